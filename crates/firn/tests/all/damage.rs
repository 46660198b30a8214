//! Damage to a page concerns the rows and tables on it, and nothing else.

mod catalog;
mod redo;
mod support;
mod undo;
