//! Processor time of an append, a flush and a scan: `cargo run --release -p firndb-log --example
//! log_speed`.
//!
//! The devices are memory, so that only the log itself is measured.

use firndb_base::{Epoch, Lsn, clock};
use firndb_log::testing::{identity, memory_device, options};
use firndb_log::{Kind, Log, LogClass, LogOptions, LogScan, Record};

const RECORD: Record<'_> = Record { kind: Kind(0x20), body: &[7; 194] };

fn main() {
    let device = memory_device("memory", 1 << 30);
    let options = LogOptions { buffer_bytes: 16 << 20, ..options() };
    let log = Log::create(vec![device.clone()], identity(1), Epoch(1), options).expect("created");

    // The best of many rounds: the cost of the code, without other load of the machine.
    let (rounds, batch, commits) = (100, 20_000u64, 2_000u64);
    let (mut append_ns, mut framing, mut commit_ns) = (f64::MAX, 0f64, f64::MAX);
    for _ in 0..rounds {
        let start = clock::now();
        for _ in 0..batch {
            log.append(LogClass::Normal, RECORD).expect("room");
        }
        append_ns = append_ns.min(start.elapsed().as_nanos() as f64 / batch as f64);
        let bytes = log.end().since(log.durable()) as f64;
        let start = clock::now();
        log.flush(log.end()).expect("flushed");
        framing = framing.max(bytes / start.elapsed().as_nanos() as f64);
        let start = clock::now();
        for _ in 0..commits {
            let end = log.append(LogClass::Normal, RECORD).expect("room").end;
            log.flush(end).expect("flushed");
        }
        commit_ns = commit_ns.min(start.elapsed().as_nanos() as f64 / commits as f64);
    }
    println!("append of 200 bytes: {append_ns:.0} ns");
    println!("framing and handing over: {framing:.2} GB/s");
    println!("append and flush of 200 bytes: {commit_ns:.0} ns");
    let written = log.statistics().written_bytes as f64;

    let start = clock::now();
    let scan = LogScan::new(vec![device], identity(1), Lsn::FIRST, &mut |_, _| {}).expect("whole");
    println!("scan: {:.2} GB/s of device", written / start.elapsed().as_nanos() as f64);
    let start = clock::now();
    let (mut records, mut number) = (scan.records(Lsn::FIRST), 0);
    while records.next().expect("whole").is_some() {
        number += 1;
    }
    assert_eq!(number, rounds * (batch + commits));
    println!("reading: {:.0} ns a record", start.elapsed().as_nanos() as f64 / number as f64);
}
