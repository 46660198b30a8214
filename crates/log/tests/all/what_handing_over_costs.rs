//! The additional latency of a lone client's commit if a worker issues the write: two thread
//! switches. A measurement of the machine, not a check: `cargo test --release -p firndb-log --test
//! all what_handing_over_costs -- --ignored --nocapture`, with nothing else running.

use crate::support::{before_writes, device_with};
use firndb_base::Epoch;
use firndb_log::testing::identity;
use firndb_log::{Hiding, Kind, Log, LogClass, LogOptions, OutlierOptions, Record};
use std::time::{Duration, Instant};

/// Median time of a commit on two devices of which each write takes `write`; sleeping, as a thread
/// does in a device call.
fn median(hiding: Hiding, direct_below: Duration, write: Duration) -> Duration {
    let devices = (0..2).map(|i| {
        before_writes(device_with(&format!("log {i}"), 512, 16 << 20), move |_, _| {
            std::thread::sleep(write);
            Ok(())
        })
    });
    let outliers = OutlierOptions { direct_below, ..OutlierOptions::default() };
    let options = LogOptions { hiding, outliers, section_bytes: 2 << 20, ..LogOptions::default() };
    let log = Log::create(devices.collect(), identity(2), Epoch(1), options).unwrap();
    let mut times: Vec<Duration> = (0..4000)
        .map(|_| {
            let start = Instant::now();
            let at = log.append(LogClass::Normal, Record { kind: Kind(0x20), body: &[7; 300] }).unwrap();
            log.flush(at.end).unwrap();
            start.elapsed()
        })
        .collect();
    log.close().unwrap();
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
#[ignore = "measures the machine; see the head of the file"]
fn what_handing_over_costs() {
    for us in [1, 20, 50, 100, 200, 400, 1000] {
        let write = Duration::from_micros(us);
        let own = median(Hiding::Off, Duration::ZERO, write);
        let handed = median(Hiding::Adaptive, Duration::ZERO, write);
        let trusting = median(Hiding::Adaptive, Duration::from_secs(1), write);
        let ratio = |time: Duration| time.as_secs_f64() / own.as_secs_f64();
        println!(
            "write of {us:4} us: own {own:?}, handed over {handed:?} = {:.2}, trusting {trusting:?} = {:.2}",
            ratio(handed),
            ratio(trusting)
        );
    }
}
