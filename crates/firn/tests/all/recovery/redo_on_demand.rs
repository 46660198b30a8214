//! After a crash the database takes transactions before its pages are redone: each is redone when
//! it is touched, the rest in the background, and clients see no difference.
//!
//! Databases are opened without threads of their own, so that a test says when background work is
//! done.

mod log;
mod losers;
mod pages;
mod support;
