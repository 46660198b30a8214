//! One client pays one device write and no thread switch; many share requests; several devices
//! write at once.

use crate::support::{before_writes, device_with, scan};
use firndb_base::{Epoch, Lsn};
use firndb_device::Device;
use firndb_log::testing::{identity, options};
use firndb_log::{Kind, Log, LogClass, LogOptions, Record};
use firndb_log_comparators::{Comparator, Compose};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const RECORD: Record<'_> = Record { kind: Kind(0x20), body: &[1; 200] };

/// Devices that take `latency` for a write, and the highest number of writes seen at once.
fn slow(count: u32, latency: Duration) -> (Vec<Arc<dyn Device>>, Arc<AtomicUsize>) {
    let most = Arc::new(AtomicUsize::new(0));
    let now = Arc::new(AtomicUsize::new(0));
    let devices = (0..count)
        .map(|i| {
            let (now, most) = (now.clone(), most.clone());
            before_writes(device_with(&format!("log {i}"), 512, 16 << 20), move |_, _| {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(latency);
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            })
        })
        .collect();
    (devices, most)
}

#[test]
fn one_client_writes_once_a_flush_and_wakes_no_thread() {
    for workers in [false, true] {
        let devices = vec![device_with("log", 512, 16 << 20) as Arc<dyn Device>];
        let options = LogOptions { workers, seal_after: Duration::from_secs(60), ..options() };
        let log = Log::create(devices, identity(1), Epoch(1), options).unwrap();
        for _ in 0..500 {
            let end = log.append(LogClass::Normal, RECORD).unwrap().end;
            log.flush(end).unwrap();
        }
        let statistics = log.statistics();
        assert_eq!((statistics.requests, statistics.waits, statistics.hand_overs), (500, 0, 0));
        assert_eq!(statistics.requests_by_size[..2].iter().sum::<u64>(), 500);
        assert_eq!((statistics.records, statistics.appended_bytes), (500, 100_000));
    }
}

fn composing(compose: Compose) -> LogOptions {
    Comparator { compose, ..Comparator::default() }.within(options())
}

#[test]
fn many_clients_share_requests_over_all_devices() {
    for (compose, count) in
        [(Compose::WhenDeviceFree, 1), (Compose::WhenDeviceFree, 3), (Compose::AtFlush, 3)]
    {
        let (devices, most) = slow(count, Duration::from_micros(300));
        let options = LogOptions { workers: count == 3, ..composing(compose) };
        let log = Log::create(devices.clone(), identity(count), Epoch(1), options).unwrap();
        std::thread::scope(|scope| {
            for i in 0..24 {
                let log = &log;
                scope.spawn(move || {
                    for turn in 0..40 {
                        let end = log.append(LogClass::Normal, RECORD).unwrap().end;
                        if (i + turn) % 7 == 0 {
                            log.request_flush(end);
                        }
                        log.flush(end).unwrap();
                        assert!(log.durable() >= end);
                    }
                });
            }
        });
        let statistics = log.statistics();
        if compose == Compose::WhenDeviceFree {
            assert!(statistics.requests < 24 * 40 / 3, "{statistics:?}");
        }
        assert_eq!(most.load(Ordering::SeqCst), count as usize, "every device writes at once");
        log.close().unwrap();
        let found = scan(&devices, &[(Epoch(1), Lsn::FIRST)], Lsn::FIRST).unwrap();
        assert_eq!(found.end(), log.end());
        let mut records = found.records(Lsn::FIRST);
        let mut number = 0;
        while records.next().unwrap().is_some() {
            number += 1;
        }
        assert_eq!(number, 24 * 40);
    }
}

/// Few commits, for Miri, which looks for races and weak orders rather than for rare schedules.
#[test]
fn in_small() {
    let (clients, turns) = if cfg!(miri) { (3, 6) } else { (8, 40) };
    for (compose, workers) in [(Compose::WhenDeviceFree, true), (Compose::AtFlush, false)] {
        let (devices, _) = slow(2, Duration::from_micros(50));
        let options = LogOptions { workers, ..composing(compose) };
        let log = Log::create(devices.clone(), identity(2), Epoch(1), options).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..clients {
                scope.spawn(|| {
                    for _ in 0..turns {
                        let end = log.append(LogClass::Normal, RECORD).unwrap().end;
                        log.flush(end).unwrap();
                        assert!(log.durable() >= end);
                    }
                });
            }
        });
        log.close().unwrap();
        let found = scan(&devices, &[(Epoch(1), Lsn::FIRST)], Lsn::FIRST).unwrap();
        assert_eq!(found.end(), log.end());
    }
}

#[test]
fn a_full_buffer_makes_appends_wait_not_fail() {
    let (devices, _) = slow(2, Duration::from_micros(50));
    let options = LogOptions { buffer_bytes: 8192, ..options() };
    let log = Log::create(devices, identity(2), Epoch(1), options).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..300 {
                    log.append(LogClass::Normal, Record { kind: Kind(0x20), body: &[2; 1000] }).unwrap();
                }
            });
        }
    });
    assert!(log.statistics().buffer_waits > 0);
    log.flush(log.end()).unwrap();
}
