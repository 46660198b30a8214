//! Tests of the comparators as wholes, over a store and a log that the tests control.

mod harness;
mod lazy_cleaning;
mod on_entry;
mod on_entry_model;
mod paper_face;
