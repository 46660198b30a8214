//! `firn tpcc`: loads, goes on, checks, and writes results with every key that scripts rely on.

use crate::support::{Ran, firn, interrupt, loaded, run};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::time::{Duration, Instant};

const SMALL: &str = "tpcc --dir {db} --scale tiny --warehouses 2 --clients 3 --buffer 8M";

#[test]
fn the_first_run_loads_and_the_second_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("new").join("db");
    let first = run(&db, &format!("{SMALL} --transactions 50")).ended(0);
    let first = first.says("loaded 2 warehouses").says("tpmC").says("hold, and every row is whole");
    assert_eq!(first.err, "", "without a terminal there are no bars");
    assert!(!first.out.contains('\u{1b}'), "without a terminal there are no colours");
    let second = run(&db, &format!("{SMALL} --transactions 50")).ended(0).says("tpmC");
    assert!(!second.out.contains("loaded"), "{}", second.out);
    run(&db, "tpcc --dir {db} --scale tiny --warehouses 9 --transactions 5")
        .ended(0)
        .says("holds 2 warehouses");
    run(&db, "tpcc --dir {db} --check-only").ended(0).says("every row is whole");
    run(&db, "tpcc --dir {db} --no-load --transactions 5 --commit async").ended(0);
    run(&db, "tpcc --dir {db} --no-load --transactions 5 --isolation serializable")
        .ended(0)
        .says("serializable");
    run(&db, "check {db}").ended(0).says("no damage found");
}

#[test]
fn what_is_not_there_is_not_made_up() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    run(&db, "tpcc --dir {db} --no-load").ended(1).warns("there is no Firn database here");
    run(&db, "tpcc --dir {db} --check-only").ended(1);
    run(&db, "stat {db}").ended(1).warns("there is no Firn database here");
    run(&db, "check {db}").ended(1);
    run(&db, "dump {db}").ended(1);
    assert!(!db.exists(), "looking at a directory does not make it");
    // A database that this command did not make.
    firndb::Database::open(&db).unwrap().close().unwrap();
    run(&db, "tpcc --dir {db} --no-load").ended(1).warns("run without --no-load");
}

#[test]
fn results_have_every_key() {
    let (dir, db) = loaded();
    let json = dir.path().join("out.json");
    run(&db, &format!("{SMALL} --transactions 100 --seed 7 --json {}", json.display())).ended(0);
    let result: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    for key in ["commit", "config", "config_hash", "started_at", "buffer", "cache", "aborts", "engine"] {
        assert!(!result[key].is_null(), "{key}");
    }
    assert_eq!(result["schema"], "firn-tpcc/1");
    assert_eq!(result["device_profile"], Value::Null);
    assert!(result.as_object().unwrap().contains_key("device_profile"));
    assert_eq!(result["simulated"], false);
    assert_eq!(result["seed"], 7);
    assert_eq!((&result["warehouses"], &result["clients"]), (&2.into(), &3.into()));
    assert_eq!(result["isolation"], "snapshot");
    assert_eq!(result["config"]["transactions_per_client"], 100);
    for key in ["seconds", "tpmC", "transactions_per_second"] {
        assert!(result[key].as_f64().unwrap() > 0.0, "{key}");
    }
    for key in ["commits", "memory_peak_bytes", "database_bytes"] {
        assert!(result[key].as_u64().unwrap() > 0, "{key}");
    }
    // Every client ran its hundred: they committed, or were rolled back because the input asks for
    // it.
    let of = |key: &str| result["aborts"][key].as_u64().unwrap();
    assert_eq!(result["commits"].as_u64().unwrap() + of("user"), 300);
    assert!(of("conflict") < 10_000 && of("deadlock") < 10_000);
    for kind in ["new_order", "payment", "order_status", "delivery", "stock_level"] {
        let kind = &result["transactions"][kind];
        assert!(kind["count"].as_u64().unwrap() > 0 && kind["per_second"].as_f64().unwrap() > 0.0);
        let at = |name: &str| kind["latency_us"][name].as_f64().unwrap();
        assert!(at("p50") > 0.0 && at("p50") <= at("p95") && at("p95") <= at("p99"));
        assert!(at("p99") <= at("p999") && at("p999") <= at("max"));
    }
    for tier in ["log", "cache", "delta", "store", "map"] {
        for count in ["write_ops", "write_bytes", "read_ops", "read_bytes"] {
            assert!(result["io"][tier][count].is_u64(), "{tier} {count}");
        }
    }
    assert!(result["io"]["log"]["write_bytes"].as_u64().unwrap() > 0, "commits were durable");
    assert_eq!(result["buffer"]["budget_bytes"], 8 << 20);
    assert!((0.0..=1.0).contains(&result["buffer"]["hit_rate"].as_f64().unwrap()));
    assert_eq!(result["consistency"]["failed"], Value::Array(vec![]));
    assert!(result["consistency"]["checked"].as_array().unwrap().len() >= 11);
}

#[test]
fn results_that_cannot_be_written_are_a_failure_in_words() {
    let (_dir, db) = loaded();
    let ran = run(&db, &format!("{SMALL} --transactions 3 --json /nonexistent-directory/out.json"));
    ran.ended(1).warns("/nonexistent-directory/out.json");
}

#[test]
fn ctrl_c_ends_a_run_in_order() {
    let (_dir, db) = loaded();
    let mut command = firn();
    command.args(["tpcc", "--no-load", "--seconds", "1000", "--warmup", "0", "--dir"]).arg(&db);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.starts_with("running 8 clients"), "{line}");
    std::thread::sleep(Duration::from_millis(500));
    interrupt(&child);
    let interrupted = Instant::now();
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).unwrap();
    let mut output = child.wait_with_output().unwrap();
    output.stdout = rest;
    let ran = Ran::of(output, "tpcc, interrupted".into());
    assert!(interrupted.elapsed() < Duration::from_secs(60));
    ran.ended(130).says("tpmC").says("every row is whole").warns("stopping").warns("stopped before its time");
    let stat = run(&db, "stat {db}").ended(0);
    stat.says("had been closed cleanly");
    run(&db, "check {db}").ended(0).says("no damage found");
}

#[test]
fn a_load_that_was_cut_off_begins_anew() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let mut command = firn();
    command.args(["tpcc", "--warehouses", "5", "--load-only", "--dir"]).arg(&db);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Rows are in the store file once it has grown beyond what is made for an empty database.
    let begun = Instant::now();
    while !std::fs::metadata(db.join("store")).is_ok_and(|file| file.len() > 24 << 20) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the load goes on");
        assert_eq!(child.try_wait().unwrap(), None, "the load takes longer than this test");
        std::thread::sleep(Duration::from_millis(2));
    }
    interrupt(&child);
    let ran = Ran::of(child.wait_with_output().unwrap(), "tpcc, interrupted".into());
    ran.ended(130).warns("begins it anew");
    run(&db, "tpcc --dir {db} --check-only").ended(1).warns("holds no loaded TPC-C database");
    run(&db, &format!("{SMALL} --transactions 20")).ended(0).says("loaded 2 warehouses");
    run(&db, "check {db}").ended(0).says("no damage found");
}

#[test]
fn log_and_store_lie_where_the_arguments_say() {
    let dir = tempfile::tempdir().unwrap();
    let [db, one, two, store] = ["db", "one", "two", "store-elsewhere"].map(|name| dir.path().join(name));
    let places =
        format!("--log-path {} --log-path {} --store-path {}", one.display(), two.display(), store.display());
    run(&db, &format!("tpcc --dir {{db}} --scale tiny --buffer 8M --transactions 20 {places}")).ended(0);
    for file in [&one, &two, &store] {
        assert!(std::fs::metadata(file).unwrap().len() > 1 << 20, "{}", file.display());
    }
    // Where they are is kept in the database.
    run(&db, "tpcc --dir {db} --no-load --transactions 20").ended(0).says("every row is whole");
}
