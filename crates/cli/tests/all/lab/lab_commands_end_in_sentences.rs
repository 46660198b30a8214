//! `firn lab`: bad arguments, result files and interruptions, as a user meets them who has not read
//! the code.

use crate::support::{Ran, firn, run};
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn arguments_that_make_no_sense_end_with_status_2_and_a_sentence() {
    for (arguments, sentence) in [
        ("lab bench commit --seconds 0", "--seconds must be a positive number"),
        ("lab bench commit --clients 0,1", "--clients must be numbers from 1 to 1024"),
        ("lab bench commit --clients 1 --spinners", "--spinners measures 8 clients"),
        ("lab torture kill --rounds 0", "0 is not in"),
        ("lab nand replay", "required arguments were not provided"),
        ("lab nand replay x --ftl magic", "[possible values: page, block, naive, dynamic]"),
        ("lab nand replay x --fill 2", "--fill is 2; it is a share from 0 to 1"),
        ("lab nand replay x --device sda", "is no device; write for example 8,16"),
        ("lab nand cost --read-us -1", "unexpected argument '-1'"),
        ("lab nand cost --erase-us 1e9", "--erase-us is 1000000000"),
    ] {
        run(Path::new(""), arguments).ended(2).warns(sentence);
    }
}

#[test]
fn every_command_explains_itself() {
    let none = Path::new("");
    run(none, "--help").ended(0).says("lab");
    for command in ["bench", "torture", "nand", "sim", "emulate", "tpcc", "characterize"] {
        run(none, "lab --help").ended(0).says(command);
        let help = run(none, &format!("lab {command} --help")).ended(0).says("Usage: firn lab");
        assert!(!help.out.contains("--scale"), "what is for tests is not shown");
    }
    run(none, "lab torture kill --help").ended(0).says("--rounds");
    run(none, "lab bench commit --help").ended(0).says("--spinners");
}

/// A full disk behind standard output is a failure of the command.
#[test]
fn what_cannot_be_said_is_a_failure() {
    for command in ["lab nand cost", "lab sim --seed 3"] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = firn().args(command.split(' ')).stdout(full).output().unwrap();
        let ran = Ran::of(output, command.to_owned()).ended(1);
        let sentence = "cannot be written";
        assert!(ran.err.contains(sentence) && ran.err.contains("No space left"), "{command}: {}", ran.err);
        assert_eq!(ran.err.matches("No space left").count(), 1, "said once: {}", ran.err);
    }
}

#[test]
fn a_result_file_that_cannot_be_written_is_noticed_before_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_string_lossy().into_owned();
    for json in [format!("{at}/none/out.json"), at.clone()] {
        for command in ["lab bench commit --dir {db}", "lab sim --seeds 0..1000000", "lab nand cost"] {
            let begun = std::time::Instant::now();
            let ran = run(&dir.path().join("db"), &format!("{command} --json {json}")).ended(1);
            assert!(ran.err.contains("the results cannot be written there"), "{command}: {}", ran.err);
            assert!(ran.out.is_empty() && begun.elapsed() < Duration::from_secs(20), "{command}");
        }
    }
    assert!(!dir.path().join("db").exists(), "nothing was begun");
}

#[test]
fn bench_commit_lists_every_target() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("out.json");
    let arguments = "lab bench commit --dir {db} --clients 1,8 --seconds 0.05 --rounds 2";
    let ran = run(dir.path(), &format!("{arguments} --json {}", json.display())).ended(0);
    ran.says("commit p50 over raw sync write p50, 1 client: ").says("not measured (run with --spinners)");
    let read = || -> Value { serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap() };
    let result = read();
    assert_eq!((&result["schema"], &result["bench"]), (&"firn-bench/1".into(), &"commit".into()));
    let targets = result["targets"].as_array().unwrap();
    assert_eq!(targets.len(), 2);
    assert!(targets[0]["value"].as_f64().unwrap() > 0.0);
    assert_eq!((&targets[1]["value"], &targets[1]["met"]), (&Value::Null, &false.into()));
    assert!(targets[1]["reason"].is_string());

    run(dir.path(), &format!("{arguments} --spinners --json {}", json.display()))
        .ended(0)
        .says("8 + 2 spinners");
    let result = read();
    assert!(result["targets"][1]["value"].as_f64().unwrap() > 0.0);
    assert_eq!(
        result["targets"][1]["name"],
        "two spinners, 8 clients: commit p50 over idle p50 of 8 clients"
    );
    assert_eq!(result["rows"].as_array().unwrap().len(), 2 * 2 + 2 * 3);
    let names: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["out.json"], "what was measured on is removed again");
}

fn interrupt(child: &std::process::Child) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

#[test]
fn a_bench_that_is_interrupted_shows_what_it_measured() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("out.json");
    let child = firn()
        .args(["lab", "bench", "commit", "--clients", "1,2", "--seconds", "0.2", "--rounds", "100", "--dir"])
        .arg(dir.path())
        .arg("--json")
        .arg(&json)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A few of the two hundred rounds.
    std::thread::sleep(Duration::from_secs(8));
    interrupt(&child);
    let ran = Ran::of(child.wait_with_output().unwrap(), "lab bench commit".into()).ended(130);
    if ran.err.contains("there is nothing to show") {
        return eprintln!("skipped: this machine made no round in eight seconds");
    }
    assert!(
        ran.out.contains("commits/s") && ran.out.contains("commit p50 over raw sync write p50"),
        "{}",
        ran.out
    );
    assert!(ran.err.contains("the figures are of the rounds that were complete"), "{}", ran.err);
    let result: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let rows = result["rows"].as_array().unwrap().len();
    assert!((2..400).contains(&rows), "{rows} rows");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "what was measured on is removed again");
}

#[test]
fn seeds_without_an_end_run_until_they_are_stopped() {
    let mut child = firn()
        .args(["lab", "sim", "--seeds", "7.."])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(3));
    assert!(child.try_wait().unwrap().is_none(), "it goes on");
    interrupt(&child);
    let ran = Ran::of(child.wait_with_output().unwrap(), "lab sim --seeds 7..".into()).ended(130);
    assert!(
        ran.out.contains("nothing is wrong") && ran.err.contains("stopped after"),
        "{}{}",
        ran.out,
        ran.err
    );
    // Or until their time is over.
    run(Path::new(""), "lab sim --seeds 7.. --minutes 0.02").ended(0).says("nothing is wrong");
    run(Path::new(""), "lab sim --seeds ..7").ended(2).warns("write it as 0..1000");
}
