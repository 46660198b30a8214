//! Tests of the flash cache as a whole, over a store and a log that the tests control.

mod failures;
mod freed;
mod harness;
mod lazy_cleaning;
mod leaving;
mod lost;
mod model;
mod on_entry;
mod on_entry_model;
mod opening;
mod restoring;
mod switching;
mod threads;
mod wants_clean;
