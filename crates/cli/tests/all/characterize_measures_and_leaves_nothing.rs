//! `firn characterize` as its users run it.

use crate::support::{firn, run};
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn arguments_that_make_no_sense_end_before_anything_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("letter.toml");
    std::fs::write(&kept, "Dear reader,").unwrap();
    for (arguments, sentence) in [
        ("", "required arguments were not provided"),
        ("{db}/none", "there is no such file or directory"),
        ("/dev/null", "is neither a directory nor a regular file nor a block device"),
        ("{db} --destroy-contents", "--i-am-sure <PATH>"),
        ("{db} --destroy-contents --i-am-sure /elsewhere", "--i-am-sure does not name"),
        ("{db} --out {db}/letter.toml", "exists and is no profile"),
        ("{db} --out {db}/none/a.toml", "there is no such directory"),
        ("{db} --name My_SSD", "use lower-case letters, digits, dots and hyphens"),
        ("{db} --only nonsense", "the plan has"),
        ("{db} --only x --seconds 0", "--seconds must be a positive number"),
        ("--compare {db}/a.toml", "2 values required"),
    ] {
        run(dir.path(), &format!("characterize {arguments}")).ended(2).warns(sentence);
    }
    run(dir.path(), "characterize --compare flash-a {db}/letter.toml").ended(2).warns("letter.toml");
    run(dir.path(), "characterize --compare flash-a flash-b").ended(0).says("B/A above 1: B is slower");
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "Dear reader,");
    assert_eq!(names(dir.path()), ["letter.toml"]);
}

#[test]
fn one_thing_alone_is_measured_and_only_its_result_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("out.json");
    let output = firn()
        .args(["characterize", "--quick", "--area", "16M", "--seconds", "0.3"])
        .args(["--only", "read random 4096 B, 4 in flight", "--json"])
        .args([&json, dir.path()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("read random 4096 B, 4 in flight: "));
    let row: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let rate = row["requests_per_second"].as_f64().unwrap();
    let mean_us = row["latency_us"]["mean"].as_f64().unwrap();
    // Four are always in flight: rate times latency is their number (Little's law).
    assert!((2.0..4.4).contains(&(rate * mean_us / 1e6)), "{rate} a second of {mean_us} us");
    assert_eq!(names(dir.path()), ["out.json"]);
}

#[test]
fn ctrl_c_ends_it_with_130_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let child = firn()
        .args(["characterize", "--quick", "--area", "16M"])
        .arg(dir.path())
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("nothing was left behind"));
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
#[ignore = "measures for half a minute; cargo test -p firndb-cli --test all characterize_measures_and_leaves_nothing -- --ignored"]
fn a_quick_run_writes_a_profile_that_is_drawn_and_compared() {
    let dir = tempfile::tempdir().unwrap();
    let begun = std::time::Instant::now();
    run(
        dir.path(),
        "characterize {db} --quick --area 64M --out {db}/a.toml --json {db}/a.json --pictures {db}/pictures",
    )
    .ended(0)
    .says("for the engine")
    .says("log width");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    run(dir.path(), "characterize --compare {db}/a.toml {db}/a.toml").ended(0).says("1.00");
    assert_eq!(names(dir.path()), ["a.json", "a.toml", "pictures"]);
    assert_eq!(names(&dir.path().join("pictures")), ["measured-latency.svg", "measured-throughput.svg"]);
    let json: Value =
        serde_json::from_str(&std::fs::read_to_string(dir.path().join("a.json")).unwrap()).unwrap();
    assert_eq!(json["schema"], "firn-characterize/1");
    assert!(json["rows"].as_array().unwrap().len() > 30);
}
