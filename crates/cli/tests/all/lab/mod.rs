//! `firn lab`, run as its users run it.

mod bench_log_measures_and_replays;
mod emulate_mounts_and_ends_in_order;
mod emulated_devices_are_characterized;
mod kill_nine_loses_nothing;
mod lab_commands_end_in_sentences;
mod nand_replays_what_was_recorded;
mod the_array_bench_lists_every_target;
mod the_cache_bench_measures_alike;
mod the_delta_bench_counts_alike;
mod the_pages_bench_counts_alike;
mod the_query_bench_lists_every_target;
mod the_reads_bench_lists_every_target;
mod the_space_bench_counts_alike;
mod tpcc_in_virtual_time_replays;

use serde_json::Value;
use std::path::Path;

/// What a bench wrote to this file, without what tells of the moment and the machine.
fn results(path: &Path) -> Value {
    let mut result: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    for key in ["started_at", "seconds"] {
        assert!(result.as_object_mut().unwrap().remove(key).is_some(), "{key}");
    }
    result
}

/// A figure that is measured again alone gives the rows that it gave among others.
fn assert_rows_are_among(all: &Value, alone: &Value) {
    let rows = |of: &Value| of["rows"].as_array().unwrap().clone();
    let (all, alone) = (rows(all), rows(alone));
    assert!(!alone.is_empty());
    for row in alone {
        assert!(all.contains(&row), "measured among others it is not {row}");
    }
}
