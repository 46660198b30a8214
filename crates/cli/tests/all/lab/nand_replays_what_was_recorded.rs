//! From a recorded run of TPC-C to a report of what it does to flash, and what a broken trace gets.

use crate::support::run;
use serde_json::Value;
use std::path::Path;

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("results")).expect("JSON")
}

#[test]
fn a_recorded_run_is_replayed_through_every_translation_layer() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = dir.path().join("db");
    let tpcc = "tpcc --dir {db} --scale tiny --warehouses 2 --clients 2 --transactions 100 --buffer 1M \
                --log-devices 1 --trace {db}.traces --json {db}.tpcc";
    run(&db, tpcc).ended(0).says("recorded").says("store.trace").says("log.0.trace");
    for (layer, gc, rounds) in [
        ("page", "greedy", 2),
        ("page", "cost-benefit", 2),
        ("block", "random", 2),
        ("naive", "greedy", 1),
        ("dynamic", "greedy", 2),
    ] {
        let command = format!(
            "lab nand replay {{db}}.traces/log.0.trace --ftl {layer} --gc {gc} --warm-up {} --repeat {rounds} \
             --pace closed --page 16k --json {{db}}.json",
            rounds - 1
        );
        run(&db, &command).ended(0).says("write amplification").says("life left");
        let (of_flash, of_engine) = (json(&db.with_extension("json")), json(&db.with_extension("tpcc")));
        assert_eq!(of_flash["schema"], "firn-nand-replay/1");
        assert_eq!(of_flash["simulated"], true);
        let amplification = of_flash["write_amplification"].as_f64().expect("written");
        assert!(amplification >= 1.0, "{layer}: {amplification}");
        assert!(
            layer != "naive" || amplification > 4.0,
            "a static map rewrites whole blocks: {amplification}"
        );
        // The load is in the trace as well: more than the measured part of the run wrote, each
        // time.
        let written = of_flash["host"]["write_bytes"].as_u64().expect("written");
        let measured = of_engine["io"]["log"]["write_bytes"].as_u64().expect("counted");
        assert!(measured > 0 && written > rounds * measured, "{layer}: {written} of {measured}");
    }
}

#[test]
fn traces_of_blkparse_are_told_by_their_look() {
    let dir = tempfile::tempdir().expect("a directory");
    let trace = dir.path().join("trace");
    let line = |number: u64, sector: u64| {
        format!("  8,16   1 {number:8}     0.{:09}   697  D   W {sector} + 8 [x]\n", number * 1000)
    };
    // Far apart on a large disk: 64 pages, written again and again.
    let text: String = (0..2000).map(|number| line(number, (number * 37 % 64) * 80_000_000)).collect();
    std::fs::write(&trace, text + "\nCPU1 (sdb):\n Writes Queued: 2000\n").expect("written");
    run(&trace, "lab nand replay {db}").ended(2).warns("--dense leaves out what lies untouched");
    run(&trace, "lab nand replay {db} --dense --json {db}.json").ended(0).says("256.0 KiB");
    let results = json(&dir.path().join("trace.json"));
    assert_eq!(results["host"]["writes"], 2000);
    assert_eq!(results["config"]["capacity_bytes"], 64 * 4096);
    run(&trace, "lab nand replay {db} --action completed").ended(1).warns("no operation to replay");
    run(&trace, "lab nand replay {db} --dense --erase-limit 1").ended(0).says("worn out after");
}

#[test]
fn broken_traces_are_refused_with_the_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let trace = dir.path().join("trace");
    run(&trace, "lab nand replay {db}").ended(1).warns("No such file");
    for (text, sentence) in [
        ("firn-trace 1\n0 0 W 0 4096 -\n0 0 W 0 many -\n", "line 3: bytes is \"many\""),
        ("firn-trace 1\n0 0 S 0 0 !\n", "no operation to replay (1 had failed"),
        ("8,0 0 1 0.000000001 1 D R 0 + 8 [x]\n8,0 nonsense\n", "line 2: processor is \"nonsense\""),
        ("", "no operation to replay"),
    ] {
        std::fs::write(&trace, text).expect("written");
        run(&trace, "lab nand replay {db}").ended(1).warns(sentence);
    }
    std::fs::write(&trace, "firn-trace 1\n0 0 W 0 8192 -\n").expect("written");
    run(&trace, "lab nand replay {db} --capacity 4096").ended(2).warns("give at least --capacity 8192");
    run(&trace, "lab nand replay {db} --page 1000").ended(2).warns("a power of two");
    run(&trace, "lab nand replay {db} --chips 0").ended(2).warns("chips is 0");
}

#[test]
fn the_cost_of_writes_lies_on_the_equations_and_is_drawn() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = dir.path().join("curve");
    let command = "lab nand cost --pages-per-block 16 --svg {db}.svg --json {db}.json";
    run(&db, command).ended(0).says("Simulation is within");
    let results = json(&db.with_extension("json"));
    assert_eq!(results["targets"][0]["met"], true, "{}", results["targets"]);
    assert_eq!(results["rows"].as_array().map(Vec::len), Some(16), "0 to 15 live pages of 16");
    let picture = std::fs::read_to_string(db.with_extension("svg")).expect("drawn");
    assert!(picture.starts_with("<svg") && picture.contains("eq. 2.2") && picture.contains("<circle"));
}
