//! Tests of the flash cache as a whole, over a store and a log that the tests control.

mod bases;
mod damaged_maps;
mod failures;
mod freed;
mod harness;
mod invariants;
mod leaving;
mod lost;
mod many_reads;
mod model;
mod opening;
mod over_deltas;
mod page_by_page;
mod restoring;
mod shadows_past;
mod switching;
mod threads;
mod wants_clean;
mod weighed;
mod whereabouts;
