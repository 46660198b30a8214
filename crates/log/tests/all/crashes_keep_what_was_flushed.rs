//! Crash after crash: after any power cut all flushed log is found, groups are whole, and log that
//! an earlier epoch left behind never returns. The same while outliers are hidden, so that blocks
//! are in main streams and areas, with different fills, and overdue writes complete after their log
//! was truncated. And with any layout policy in each epoch.

use crate::support::{Jittery, Model, as_records, identity_with, random_group, random_policy, scan};
use firndb_base::rng::Rng;
use firndb_base::{Epoch, Lsn};
use firndb_device::{CrashPlan, Device, FaultPlan, Faulty, Fill, MemoryDevice, Survival};
use firndb_log::testing::options;
use firndb_log::{Kind, Log, LogClass, LogErrorKind, LogOptions, OutlierOptions, Record};
use firndb_log_comparators::{Comparator, Compose, Hedging};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Life {
    members: u32,
    epochs: Vec<(Epoch, Lsn)>,
    model: Mutex<Model>,
    comparator: Comparator,
    options: LogOptions,
}

/// Appends, flushes and truncates from several threads. A mark records what was acknowledged: `2 *
/// lsn` that the log is durable to `lsn`, `2 * lsn + 1` that a later scan will start at `lsn`.
fn work(life: &Life, log: &Log, plan: &CrashPlan, seed: u64) {
    let mut rng = Rng::new(seed);
    for _ in 0..rng.between(5, 60) {
        let group = random_group(&mut rng, 900);
        let appended = match log.append_group(LogClass::Normal, &as_records(&group)) {
            Ok(appended) => appended,
            Err(error) => {
                assert_eq!(error.kind, LogErrorKind::Full, "{error}");
                log.flush(log.end()).unwrap();
                let durable = log.durable();
                plan.mark(durable.0 * 2);
                plan.mark(durable.0 * 2 + 1);
                log.truncate(durable);
                continue;
            }
        };
        life.model.lock().unwrap().add(appended, &group);
        if !rng.one_in(3) {
            log.flush(appended.end).unwrap();
            plan.mark(appended.end.0 * 2);
            if rng.one_in(20) {
                // Only group ends may be truncated to; this one is durable.
                plan.mark(appended.end.0 * 2 + 1);
                log.truncate(appended.end);
            }
        } else if rng.one_in(2) {
            log.request_flush(appended.end);
        } else {
            log.step();
        }
    }
}

/// Every write that takes longer than 100 µs is issued again.
fn eager(rng: &mut Rng, comparator: &mut Comparator, options: LogOptions) -> LogOptions {
    let outliers = OutlierOptions {
        expected: vec![[512, 1 << 20].map(|bytes| (bytes, Duration::from_micros(50))).to_vec()],
        learn: false,
        direct_below: if rng.one_in(2) { Duration::ZERO } else { Duration::from_micros(100) },
        extra_bytes_percent: 100,
        ..OutlierOptions::default()
    };
    comparator.hedging =
        [Hedging::TwoStream, Hedging::TwoStream, Hedging::Adaptive, Hedging::Naive][rng.below(4) as usize];
    LogOptions { outliers, workers: rng.one_in(2), ..options }
}

/// Places of the devices cannot be read after the crash: the log is complete all the same, or the
/// scan reports them; the log found is never shorter.
fn check_bad_places(life: &Life, images: &[Arc<MemoryDevice>], from: Lsn, acknowledged: Lsn, rng: &mut Rng) {
    let one_in = [20, 200, 1000][rng.below(3) as usize];
    let mut bad = 0;
    let devices: Vec<Arc<dyn Device>> = images
        .iter()
        .map(|image| {
            let faulty = Faulty::new(image.clone(), &FaultPlan::new(0));
            let block = image.info().logical_block as u64;
            for at in (2 * block..image.len()).step_by(block as usize).filter(|_| rng.one_in(one_in)) {
                faulty.make_unreadable(at, block);
            }
            bad += faulty.unreadable_blocks();
            Arc::new(faulty) as Arc<dyn Device>
        })
        .collect();
    match scan(&devices, &life.epochs, from) {
        Ok(found) => {
            assert!(found.end() >= acknowledged, "with {bad} bad places the log ends at {}", found.end());
            life.model.lock().unwrap().check(&found, from);
            WHOLE.fetch_add(1, Ordering::Relaxed);
        }
        Err(error) => {
            assert!(bad > 0 && error.kind == LogErrorKind::Damaged, "{error}");
            TOLD.fetch_add(1, Ordering::Relaxed);
        }
    }
}

static WHOLE: AtomicUsize = AtomicUsize::new(0);
static TOLD: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of requests that were issued again.
fn run(seed: u64, jitter: bool) -> u64 {
    let mut rng = Rng::new(seed);
    let members = rng.between(if jitter { 2 } else { 1 }, 4) as u32;
    let block = if rng.one_in(4) { 4096 } else { 512 };
    let mut life = Life {
        members,
        epochs: vec![(Epoch(1), Lsn::FIRST)],
        model: Mutex::default(),
        comparator: Comparator::default(),
        options: LogOptions {
            buffer_bytes: 64 << 10,
            request_bytes: if rng.one_in(2) { 4096 } else { 64 << 10 },
            ..options()
        },
    };
    life.comparator.compose = if rng.one_in(3) { Compose::AtFlush } else { Compose::WhenDeviceFree };
    if jitter {
        life.options = eager(&mut rng, &mut life.comparator, life.options);
    }
    let mut reissued = 0;
    let mut images: Vec<Arc<MemoryDevice>> = (0..members)
        .map(|i| {
            let device = MemoryDevice::with(&format!("log {i}"), block, u64::MAX);
            device.grow(block as u64 * 160, Fill::Written).unwrap();
            Arc::new(device)
        })
        .collect();
    let mut from = Lsn::FIRST;
    for cycle in 0..8u32 {
        if !jitter {
            // Each epoch may place log in its own way.
            life.comparator.policy = random_policy(&mut rng, members, block);
        }
        let options = life.comparator.within(life.options.clone());
        let plan = CrashPlan::new();
        let devices: Vec<Arc<dyn Device>> = images
            .iter()
            .map(|image| match plan.device_holding(image) {
                device if jitter => Arc::new(Jittery::new(device, rng.next_u64(), 6)) as Arc<dyn Device>,
                device => device,
            })
            .collect();
        let log = if cycle == 0 {
            let identity = identity_with(members, &life.epochs);
            let log = Log::create(devices, identity, Epoch(1), options).unwrap();
            plan.settle();
            log
        } else {
            let scan = scan(&devices, &life.epochs, from).unwrap();
            life.model.lock().unwrap().check(&scan, from);
            life.model.lock().unwrap().cut(scan.end());
            let (epoch, start) = (Epoch(cycle + 1), scan.next_epoch_start());
            life.epochs.push((epoch, start));
            let log = scan.open_log(epoch, start, options).unwrap();
            assert!(log.end() > start && log.durable() == start);
            log
        };
        plan.mark(from.0 * 2 + 1);
        if rng.one_in(2) {
            plan.set_latency(Duration::from_micros(rng.between(1, 60)));
        }
        let seeds: Vec<u64> =
            (0..rng.between(if jitter { 2 } else { 1 }, 4)).map(|_| rng.next_u64()).collect();
        std::thread::scope(|scope| {
            let (life, log, plan) = (&life, &log, &plan);
            for &seed in &seeds {
                scope.spawn(move || work(life, log, plan, seed));
            }
        });
        if rng.one_in(4) {
            log.close().unwrap();
        }
        reissued += log.statistics().hiding.reissued;
        drop(log);
        let events = plan.event_count();
        let mut positions: Vec<usize> = (0..10).map(|_| rng.below(events as u64 + 1) as usize).collect();
        positions.sort_unstable();
        let mut replay = plan.replay();
        for position in positions {
            replay.advance_to(position);
            let survival = Survival::ALL[rng.below(Survival::ALL.len() as u64) as usize];
            images = replay.image(survival, &mut rng);
            let marks = replay.marks();
            let acknowledged = marks.iter().filter(|&m| m % 2 == 0).map(|m| Lsn(m / 2)).max().unwrap_or(from);
            let truncated = marks.iter().filter(|&m| m % 2 == 1).map(|m| Lsn(m / 2)).max().unwrap_or(from);
            let devices: Vec<Arc<dyn Device>> = images.iter().map(|d| d.clone() as Arc<dyn Device>).collect();
            let scan = scan(&devices, &life.epochs, truncated)
                .unwrap_or_else(|e| panic!("seed {seed} cycle {cycle} event {position} {survival:?}: {e}"));
            assert!(
                scan.end() >= acknowledged,
                "seed {seed} cycle {cycle} event {position} {survival:?}: {acknowledged} was flushed, {} is the end",
                scan.end()
            );
            life.model.lock().unwrap().check(&scan, truncated);
            check_bad_places(&life, &images, truncated, acknowledged, &mut rng);
        }
        let truncated = replay.marks().iter().filter(|&m| m % 2 == 1).map(|m| Lsn(m / 2)).max();
        from = truncated.unwrap_or(from);
        if rng.one_in(3) {
            // The epoch list may be trimmed to the epochs still in use.
            let used = life.epochs.iter().rposition(|&(_, start)| start <= from).unwrap();
            life.epochs.drain(..used);
        }
    }
    assert_eq!(images.len(), life.members as usize);
    reissued
}

#[test]
fn whatever_is_flushed_survives_and_ghosts_never_come_back() {
    for seed in 0..30 {
        run(seed, false);
    }
    let (whole, told) = (WHOLE.load(Ordering::Relaxed), TOLD.load(Ordering::Relaxed));
    assert!(whole > 100 && told > 100, "bad places: {whole} logs were whole, {told} told");
}

#[test]
fn whatever_is_flushed_survives_while_outliers_are_hidden() {
    let reissued: u64 = (100..116).map(|seed| run(seed, true)).sum();
    assert!(reissued > 100, "only {reissued} requests were written again");
}

#[test]
#[ignore = "takes minutes"]
fn whatever_is_flushed_survives_long() {
    for seed in 1000..3000 {
        run(seed, seed % 2 == 0);
    }
}

/// An epoch goes round the rings, and a crash leaves a section that was begun and holds no block of
/// this lap yet. The next epoch writes to another device, and the log is truncated to that.
///
/// Cause: a second look at the place behind that section's header took a block of an earlier lap
/// for log that the first look had missed. Effect: the log could not be opened any more ("reads
/// other bytes each time").
#[test]
fn blocks_of_an_earlier_lap_are_never_taken_for_log_that_was_missed() {
    let members = 4;
    let mut rng = Rng::new(1);
    let options = LogOptions { buffer_bytes: 64 << 10, ..options() };
    let plan = CrashPlan::new();
    let images = (0..members).map(|i| {
        let device = MemoryDevice::with(&format!("log {i}"), 512, u64::MAX);
        device.grow(512 * 80, Fill::Written).unwrap();
        Arc::new(device)
    });
    let devices: Vec<Arc<dyn Device>> =
        images.map(|image| plan.device_holding(&image) as Arc<dyn Device>).collect();
    let mut epochs = vec![(Epoch(1), Lsn::FIRST)];
    let log = Log::create(devices, identity_with(members, &epochs), Epoch(1), options.clone()).unwrap();
    plan.settle();
    let add = |log: &Log, bytes: u64| {
        let body = vec![7; bytes as usize];
        let end = log.append(LogClass::Normal, Record { kind: Kind(0x20), body: &body }).unwrap().end;
        log.flush(end).unwrap();
        log.truncate(end);
        end
    };
    while log.durable().0 < 4 * 80 * 512 * u64::from(members) {
        plan.mark(add(&log, rng.between(1, 600)).0);
    }
    drop(log);
    let events = plan.event_count();
    let mut replay = plan.replay();
    for position in events / 2..=events {
        replay.advance_to(position);
        let from = replay.marks().iter().map(|&mark| Lsn(mark)).max().expect("half of the log");
        let images = replay.image(Survival::ALL[position % Survival::ALL.len()], &mut rng);
        let devices: Vec<Arc<dyn Device>> = images.into_iter().map(|d| d as Arc<dyn Device>).collect();
        let found = scan(&devices, &epochs, from).unwrap();
        assert!(found.end() >= from, "event {position}");
        let start = found.next_epoch_start();
        epochs.push((Epoch(2), start));
        let log = found.open_log(Epoch(2), start, options.clone()).unwrap();
        let from = add(&log, 10);
        let end = add(&log, 10);
        drop(log);
        let found = scan(&devices, &epochs, from).unwrap_or_else(|error| panic!("event {position}: {error}"));
        assert_eq!(found.end(), end, "event {position}");
        epochs.pop();
    }
}
