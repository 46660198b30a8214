//! What an append, a flush and a scan cost in processor time: `cargo run --release -p firndb-log --example log_speed`.
//!
//! The devices are memory, so that the log itself is what is measured.

use firn_base::{Epoch, Lsn, clock};
use firn_log::testing::{identity, memory_device, options};
use firn_log::{Kind, Log, LogClass, LogOptions, LogScan, Record};

const RECORD: Record<'_> = Record { kind: Kind(0x20), body: &[7; 194] };

fn main() {
    let device = memory_device("memory", 1 << 30);
    let options = LogOptions { buffer_bytes: 16 << 20, ..options() };
    let log = Log::create(vec![device.clone()], identity(1), Epoch(1), options).expect("created");

    let count = 2_000_000u64;
    let mut appending = std::time::Duration::ZERO;
    let mut flushing = std::time::Duration::ZERO;
    for _ in 0..count / 20_000 {
        let start = clock::now();
        for _ in 0..20_000 {
            log.append(LogClass::Normal, RECORD).expect("room");
        }
        appending += start.elapsed();
        let start = clock::now();
        log.flush(log.end()).expect("flushed");
        flushing += start.elapsed();
    }
    let bytes = log.durable().since(Lsn::FIRST) as f64;
    println!("append of 200 bytes: {:.0} ns", appending.as_nanos() as f64 / count as f64);
    println!("framing and handing over: {:.2} GB/s", bytes / flushing.as_nanos() as f64);

    let start = clock::now();
    let commits = 500_000u64;
    for _ in 0..commits {
        let end = log.append(LogClass::Normal, RECORD).expect("room").end;
        log.flush(end).expect("flushed");
    }
    println!("append and flush alone: {:.0} ns", start.elapsed().as_nanos() as f64 / commits as f64);

    let start = clock::now();
    let scan = LogScan::new(vec![device], identity(1), Lsn::FIRST, &mut |_, _| {}).expect("whole");
    println!(
        "scan: {:.2} GB/s of device",
        log.statistics().written_bytes as f64 / start.elapsed().as_nanos() as f64
    );
    let start = clock::now();
    let (mut records, mut number) = (scan.records(Lsn::FIRST), 0);
    while records.next().expect("whole").is_some() {
        number += 1;
    }
    assert_eq!(number, count + commits);
    println!("reading: {:.0} ns a record", start.elapsed().as_nanos() as f64 / number as f64);
}
