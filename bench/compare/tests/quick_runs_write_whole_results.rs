//! `compare` as a command, at scales at which figures mean nothing.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

const ENGINES: &str = "firn,sqlite,redb,lmdb";

fn compare(dir: &Path, arguments: &str) -> (Value, String) {
    let json = dir.join("out.json");
    let output = Command::new(env!("CARGO_BIN_EXE_compare"))
        .args(arguments.split_whitespace())
        .args(["--seconds", "1", "--rounds", "1", "--memory-mib", "32", "--engine", ENGINES, "--dir"])
        .arg(dir.join("db"))
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!dir.join("db").exists(), "the databases are removed");
    let result = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    (result, String::from_utf8(output.stdout).unwrap())
}

fn rows(result: &Value) -> &[Value] {
    let rows = result["rows"].as_array().unwrap();
    let engines: Vec<&str> = rows.iter().map(|row| row["engine"].as_str().unwrap()).collect();
    assert_eq!(engines.join(","), ENGINES);
    for row in rows {
        assert!(row["process_io"]["write_bytes_per_transaction"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["process_io"]["read_bytes_per_transaction"].is_number(), "{row}");
    }
    rows
}

#[test]
fn commits_are_compared_and_every_target_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    let (result, text) = compare(dir.path(), "commit --clients 32 --keys 1000");
    assert_eq!((&result["schema"], &result["bench"]), (&"firn-bench/1".into(), &"commit".into()));
    for row in rows(&result) {
        assert!(row["commits_per_second"].as_f64().unwrap() > 0.0 && row["clients"] == 32);
        assert!(!row["settings"].as_object().unwrap().is_empty());
    }
    let targets = result["targets"].as_array().unwrap();
    let names: Vec<&str> = targets.iter().map(|target| target["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["RocksDB", "redb", "SQLite"].map(|peer| format!("32 clients: commits/s over {peer}")));
    assert_eq!(targets[0]["reason"], "rocksdb was not measured");
    assert!(targets[1]["value"].as_f64().unwrap() > 0.0 && targets[2]["value"].as_f64().unwrap() > 0.0);
    assert!(text.contains("32 clients: commits/s over redb"), "{text}");
}

#[test]
fn tpcc_is_compared_and_its_conditions_hold() {
    let dir = tempfile::tempdir().unwrap();
    let (result, _) = compare(dir.path(), "tpcc --tiny --clients 2");
    for row in rows(&result) {
        assert!(row["tpmC"].as_f64().unwrap() > 0.0);
        assert_eq!(row["consistency"]["failed"], Value::Array(vec![]));
        assert!(row["consistency"]["checked"].as_array().unwrap().len() >= 11);
        assert!(row["database_bytes"].as_u64().unwrap() > 0);
    }
    let targets = result["targets"].as_array().unwrap();
    assert_eq!(targets.len(), 2);
    assert!(targets.iter().all(|target| target["value"].is_null() && target["reason"].is_string()));
}
