//! Flushes that no thread waits for, in virtual time: few writes, and each of them soon.

use crate::support::device_with;
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::thread;
use firndb_base::{Epoch, Lsn, clock};
use firndb_device::{Calls, Device, Fault, FaultPlan, FaultRule, Faulty, When};
use firndb_log::testing::{identity, options};
use firndb_log::{Kind, Log, LogClass, LogOptions, Record};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What one write takes.
const WRITE: Duration = Duration::from_micros(100);

/// A log with workers on `devices` devices.
fn log(devices: u32) -> Arc<Log> {
    let plan = FaultPlan::new(1);
    let fault = Fault::Stall(WRITE);
    plan.add(FaultRule { calls: Calls::Writes, device: None, when: When::From(0), fault });
    let faulty = |i| Arc::new(Faulty::new(device_with(&format!("log {i}"), 512, 4 << 20), &plan));
    let devices: Vec<_> = (0..devices).map(|i| faulty(i) as Arc<dyn Device>).collect();
    let count = devices.len() as u32;
    let options = LogOptions { workers: true, buffer_bytes: 1 << 20, ..options() };
    Log::create(devices, identity(count), Epoch(1), options).unwrap()
}

/// Asks for `count` flushes of `body` bytes each, `every` so often. Returns the longest time that
/// one of them took to become durable, by a thread that looks every 10 us, and the requests.
fn ask(log: &Log, count: usize, body: usize, every: Duration) -> (Duration, u64) {
    let asked = std::sync::Mutex::new(Vec::<(Lsn, clock::Moment)>::new());
    let ended = AtomicBool::new(false);
    let before = log.statistics().requests;
    let longest = thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            loop {
                let last = ended.load(Ordering::SeqCst);
                let durable = log.durable();
                let mut waiting = asked.lock().unwrap();
                let done = waiting.iter().take_while(|(end, _)| *end <= durable).count();
                longest =
                    waiting.drain(..done).map(|(_, at)| at.elapsed()).max().unwrap_or_default().max(longest);
                if last && waiting.is_empty() {
                    return longest;
                }
                drop(waiting);
                clock::sleep(Duration::from_micros(10));
            }
        });
        for _ in 0..count {
            let record = Record { kind: Kind(0x20), body: &vec![7; body] };
            let end = log.append(LogClass::Normal, record).unwrap().end;
            asked.lock().unwrap().push((end, clock::now()));
            log.request_flush(end);
            clock::sleep(every);
        }
        ended.store(true, Ordering::SeqCst);
        looking.join().unwrap()
    });
    (longest, log.statistics().requests - before)
}

fn in_virtual_time(body: impl Fn() + Send + Sync + Clone + 'static) {
    for seed in 0..6 {
        let body = body.clone();
        sim::run(SimOptions::seeded(seed), body).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    }
}

/// Cause: each flush that found a device free was written at once. Effect: a write for every few
/// small commits, and a thread woken for each.
#[test]
fn many_small_flushes_are_a_write_a_millisecond() {
    in_virtual_time(|| {
        for devices in [1, 3] {
            let log = log(devices);
            let begun = clock::now();
            let (longest, requests) = ask(&log, 1000, 100, Duration::from_micros(20));
            let turns = begun.elapsed().as_millis() as u64;
            assert!(requests <= turns + 3, "{requests} requests in {turns} ms");
            assert!(requests >= turns / 2, "{requests} requests in {turns} ms");
            let limit = Duration::from_millis(1) + 3 * WRITE;
            assert!(longest <= limit, "{longest:?} on {devices} devices");
            log.close().unwrap();
        }
    });
}

#[test]
fn where_flushes_are_rare_none_waits_for_others() {
    in_virtual_time(|| {
        let log = log(1);
        let (longest, requests) = ask(&log, 40, 100, Duration::from_millis(3));
        assert!(longest <= 2 * WRITE, "{longest:?}");
        assert_eq!(requests, 40);
        log.close().unwrap();
    });
}

#[test]
fn enough_log_is_written_before_its_turn() {
    in_virtual_time(|| {
        let log = log(1);
        // Each is enough.
        let (longest, requests) = ask(&log, 40, 70 << 10, Duration::from_micros(300));
        assert!(requests >= 36, "{requests}");
        assert!(longest <= Duration::from_micros(700), "{longest:?}");
        log.close().unwrap();
    });
}

/// A committer that waits writes what has gathered, and does not wait for the turn itself.
#[test]
fn a_commit_that_waits_takes_what_has_gathered() {
    in_virtual_time(|| {
        let log = log(1);
        for _ in 0..50 {
            let append =
                |body: &[u8]| log.append(LogClass::Normal, Record { kind: Kind(0x20), body }).unwrap().end;
            let asked = append(&[1; 100]);
            log.request_flush(asked);
            clock::sleep(Duration::from_micros(150));
            let gathered = append(&[2; 100]);
            log.request_flush(gathered);
            let waited = append(&[3; 100]);
            let begun = clock::now();
            log.flush(waited).unwrap();
            assert!(begun.elapsed() <= 3 * WRITE, "{:?}", begun.elapsed());
            assert!(log.durable() >= gathered);
        }
        log.close().unwrap();
    });
}
