//! `firn lab tpcc --sim`: equal arguments give equal figures in every process; what makes no sense
//! is refused.

use crate::support::{Ran, firn, run};
use serde_json::Value;
use std::path::Path;

const SMALL: &str = "lab tpcc --sim --scale tiny --warehouses 2 --clients 4 --seconds 3 --warmup 1 \
                     --profile-log flash-a --profile-log flash-a --profile-data disk-10k --buffer 8M";

/// The report without what depends on the machine: the line that tells of real time.
fn figures(ran: &Ran) -> String {
    ran.out.lines().filter(|line| !line.contains("real time")).collect::<Vec<_>>().join("\n")
}

/// The results without the real time.
fn results(path: &Path) -> Value {
    let mut result: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let real = result["simulation"].as_object_mut().unwrap().remove("real_seconds");
    assert!(real.unwrap().as_f64().unwrap() > 0.0);
    result
}

fn simulated(dir: &Path, name: &str, more: &str) -> (String, Value) {
    let json = dir.join(name);
    let ran = run(dir, &format!("{SMALL} --json {} {more}", json.display())).ended(0);
    (figures(&ran), results(&json))
}

#[test]
fn a_seed_gives_the_same_report_in_every_process_and_another_seed_another() {
    let dir = tempfile::tempdir().unwrap();
    let first = simulated(dir.path(), "first", "--seed 5");
    let again = simulated(dir.path(), "again", "--seed 5");
    assert_eq!(first, again);
    let other = simulated(dir.path(), "other", "--seed 6");
    assert_ne!(first.0, other.0);
    assert_ne!(first.1["simulation"]["trace_hash"], other.1["simulation"]["trace_hash"]);
    assert!(
        first.0.contains("Simulated, in virtual time: log on flash-a and flash-a, data on disk-10k; 2 cores")
    );
    assert!(first.0.contains("every row is whole"), "{}", first.0);
}

/// The same run on flash that is nearly full and on flash with as much again: garbage collection
/// costs writes, erases and throughput.
#[test]
fn a_run_on_simulated_flash_reports_write_amplification_and_erases() {
    let dir = tempfile::tempdir().unwrap();
    let shipped = run(dir.path(), "profiles myers-nand --toml").ended(0).out;
    let on = |over_provisioning: &str| {
        let profile = dir.path().join(format!("nand-{over_provisioning}.toml"));
        let text = shipped.replace("capacity_bytes = 1073741824", "capacity_bytes = 25165824");
        let text =
            text.replace("over_provisioning = 0.07", &format!("over_provisioning = {over_provisioning}"));
        std::fs::write(&profile, text).unwrap();
        let json = dir.path().join(over_provisioning);
        let command = format!(
            "lab tpcc --sim --scale tiny --warehouses 2 --clients 4 --seconds 3 --warmup 1 --buffer 1M --profile-data {} \
             --json {}",
            profile.display(),
            json.display()
        );
        (figures(&run(dir.path(), &command).ended(0)), results(&json))
    };
    let ((text, full), (_, spare)) = (on("0.07"), on("1.0"));
    assert!(text.contains("Flash of store as myers-nand: write amplification"), "{text}");
    let of = |result: &Value, value: &str| {
        let flash = &result["simulation"]["flash"]["store as myers-nand"];
        flash.pointer(value).and_then(Value::as_f64).unwrap_or_else(|| panic!("{value} in {result}"))
    };
    assert!(of(&full, "/write_amplification") > 1.2 * of(&spare, "/write_amplification"), "{full}");
    assert!(of(&spare, "/write_amplification") >= 1.0);
    let erases = |result| of(result, "/flash/erases") / of(result, "/host/write_bytes");
    assert!(erases(&full) > 1.2 * erases(&spare), "{full}");
    assert!(of(&full, "/wear/total") >= of(&full, "/flash/erases"));
    // The flash counts the warm-up, too.
    let written = full["io"]["store"]["write_bytes"].as_f64().unwrap();
    assert!(written > 0.0 && of(&full, "/host/write_bytes") >= written, "{full}");
    assert!(full["commits"].as_u64() < spare["commits"].as_u64(), "what is copied and erased costs time");
}

#[test]
fn results_carry_what_decides_the_figures() {
    let dir = tempfile::tempdir().unwrap();
    let (_, result) = simulated(dir.path(), "results", "--cpu paper");
    assert_eq!((&result["simulated"], &result["seconds"]), (&true.into(), &3.0.into()));
    assert_eq!(result["device_profile"], "log flash-a, flash-a; data disk-10k");
    assert_eq!(result["memory_peak_bytes"], Value::Null, "that is of this machine");
    let machine = &result["config"]["machine"];
    assert_eq!((&machine["cores"], &machine["cpu"]["setting"]), (&2.into(), &"paper".into()));
    assert_eq!(machine["logs"].as_array().unwrap().len(), 2);
    assert_eq!(machine["logs"][0]["hash"].as_str().unwrap().len(), 16);
    assert_ne!(machine["logs"][0]["hash"], machine["data"]["hash"]);
    assert!(machine["cpu"]["costs_ns"]["commit"].as_u64().unwrap() > 0);
    assert!(result["simulation"]["virtual_seconds"].as_f64().unwrap() > 4.0);
    assert!(result["commits"].as_u64().unwrap() > 100, "{result}");
}

/// Commits a second on one log device.
fn rate(dir: &Path, arguments: &str) -> f64 {
    let json = dir.join("rate");
    let common = "lab tpcc --sim --scale tiny --seconds 3 --warmup 1 --profile-data nvme";
    run(dir, &format!("{common} --json {} {arguments}", json.display())).ended(0);
    results(&json)["transactions_per_second"].as_f64().unwrap()
}

#[test]
fn devices_and_computing_cost_what_they_are_said_to() {
    let dir = tempfile::tempdir().unwrap();
    // A disk turns 10,000 times a minute: with one client a commit waits for a turn, or the part of
    // one that is left.
    let disk = rate(dir.path(), "--clients 1 --profile-log disk-10k");
    assert!((150.0..400.0).contains(&disk), "{disk}");
    let ideal = rate(dir.path(), "--clients 1 --profile-log disk-10k-wce");
    assert!(ideal > 5.0 * disk, "{ideal} and {disk}");
    // Computing alone limits many clients on an ideal log, within what conflicts and waits for one
    // device take.
    let many = "--warehouses 8 --clients 16 --profile-log disk-10k-wce";
    let slow = rate(dir.path(), &format!("{many} --cpu ideal=20000"));
    let slower = rate(dir.path(), &format!("{many} --cpu ideal=10000"));
    assert!((1.7..2.2).contains(&(slow / slower)), "{slow} and {slower}");
    let one_core = rate(dir.path(), &format!("{many} --cpu paper --sim-cores 1"));
    let two_cores = rate(dir.path(), &format!("{many} --cpu paper"));
    assert!((1.6..2.2).contains(&(two_cores / one_core)), "{two_cores} and {one_core}");
}

#[test]
fn a_band_has_two_ends() {
    let dir = tempfile::tempdir().unwrap();
    let at = |end: &str| rate(dir.path(), &format!("--clients 2 --profile-log flash-a{end}"));
    let (fast, middle, slow) = (at("@fast"), at(""), at("@slow"));
    assert!(fast > middle && middle > slow, "{fast}, {middle}, {slow}");
}

#[test]
fn what_makes_no_sense_is_refused_with_status_2() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |arguments: &str| run(dir.path(), &format!("lab tpcc {arguments}")).ended(2);
    refused("--sim --profile-log flesh").warns("flash-a").warns("flesh");
    refused("--sim --profile-data /nonexistent.toml").warns("/nonexistent.toml");
    refused("--sim --profile-log x25-e@fast --profile-data nvme@middle").warns("nvme@middle");
    refused("--sim --cpu fast").warns("paper");
    refused("--sim --cpu firn*-3").warns("firn*FACTOR");
    for option in [
        "--dir x",
        "--no-load",
        "--load-only",
        "--check-only",
        "--log-devices 2",
        "--trace x",
        "--log-path x",
    ] {
        refused(&format!("--sim {option}")).warns("cannot be used with");
    }
    refused("--profile-log nvme").warns("--sim");
    refused("--cpu paper").warns("--sim");
    refused("--emulate --dir x --sim").warns("cannot be used with");
    refused("--emulate --dir x --cpu paper").warns("cannot be used with");
    refused("--emulate --dir x --sim-cores 3").warns("cannot be used with");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is made");
}

#[test]
fn real_files_take_as_long_as_an_emulated_device() {
    let dir = tempfile::tempdir().unwrap();
    let (db, json) = (dir.path().join("db"), dir.path().join("json"));
    let common =
        format!("lab tpcc --dir {{db}} --scale tiny --clients 1 --buffer 8M --json {}", json.display());
    let disks = "--emulate --profile-log disk-10k --profile-data nvme";
    run(&db, &format!("{common} {disks} --transactions 60")).ended(0).says("Emulated devices in real time");
    let result: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!((&result["simulated"], &result["config"]["machine"]["time"]), (&false.into(), &"real".into()));
    assert_eq!(result["device_profile"], "log disk-10k; data nvme");
    // A commit waits for the platter, however fast the file below is.
    assert!(
        result["transactions_per_second"].as_f64().unwrap() < 400.0,
        "{}",
        result["transactions_per_second"]
    );
    let two = run(&db, &format!("{common} --emulate --profile-data nvme --transactions 5"));
    two.ended(0);
    assert!(firn().arg("check").arg(&db).output().unwrap().status.success());
}
