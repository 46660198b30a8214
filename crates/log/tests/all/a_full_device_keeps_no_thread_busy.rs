//! Threads that wait for a device to end a write sleep, though others are free: those have no
//! space. In virtual time.

use crate::support::device_with;
use firndb_base::sim::{self, Policy, SimOptions};
use firndb_base::{Epoch, clock};
use firndb_device::{Calls, Device, Fault, FaultPlan, FaultRule, Faulty, When};
use firndb_log::testing::{identity, options};
use firndb_log::{Hiding, Kind, Log, LogClass, LogOptions, Record};
use std::sync::Arc;
use std::time::Duration;

const STALL: Duration = Duration::from_secs(10);

fn full_beside_a_stalled_device() {
    let plan = FaultPlan::new(1);
    let devices = (0..2).map(|i| {
        let device = device_with(&format!("log {i}"), 512, 256 << 10);
        Arc::new(Faulty::new(device, &plan)) as Arc<dyn Device>
    });
    let options = LogOptions { workers: true, hiding: Hiding::Off, ..options() };
    let log = Log::create(devices.collect(), identity(2), Epoch(1), options).unwrap();
    let append = || log.append(LogClass::Normal, Record { kind: Kind(0x20), body: &[5; 400] });
    log.flush(append().unwrap().end).unwrap();
    let device = Some("log 1".to_owned());
    plan.add(FaultRule { calls: Calls::Writes, device, when: When::From(0), fault: Fault::Stall(STALL) });
    let begun = clock::now();
    // What is written to the other device meanwhile is not durable, so it cannot be truncated.
    while let Ok(appended) = append() {
        log.request_flush(appended.end);
        clock::sleep(Duration::from_millis(1));
    }
    assert!(begun.elapsed() < STALL / 2, "the other device has no space long before");
    log.flush(log.end()).unwrap();
    assert!(begun.elapsed() >= STALL, "{:?}", begun.elapsed());
    log.close().unwrap();
}

/// Where the committer runs before the worker goes on, they did so for as long as the write lasted.
#[test]
fn a_committer_and_a_worker_do_not_wake_each_other_in_turn() {
    for seed in 0..8 {
        let policy = Policy::Priorities { changes: 2, over_steps: 10_000 };
        let options = SimOptions { policy, step_limit: 1_000_000, ..SimOptions::seeded(seed) };
        sim::run(options, full_beside_a_stalled_device).unwrap_or_else(|failure| panic!("{failure}"));
    }
}
