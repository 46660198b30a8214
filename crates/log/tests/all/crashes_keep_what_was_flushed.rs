//! Crash after crash: after any power cut all flushed log is found, groups are whole, and log that
//! an earlier epoch left behind never returns. The same while outliers are hidden, so that blocks
//! are in main streams and areas, with different fills, and overdue writes complete after their log
//! was truncated. And with any layout policy in each epoch.

use crate::support::{
    Jittery, Model, as_records, device_with, identity_with, is_section_header, random_group, random_policy,
    scan,
};
use firndb_base::rng::Rng;
use firndb_base::{Epoch, Lsn};
use firndb_device::{CrashPlan, Device, FaultPlan, Faulty, Fill, MemoryDevice, Survival};
use firndb_log::testing::options;
use firndb_log::{Kind, Log, LogClass, LogErrorKind, LogOptions, OutlierOptions, Record};
use firndb_log_comparators::{Comparator, Compose, Hedging};
use firndb_testkit::bytes::contents;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Appends, flushes and truncates from several threads. A mark records what was acknowledged: `2 *
/// lsn` that the log is durable to `lsn`, `2 * lsn + 1` that a later scan will start at `lsn`.
fn work(model: &Mutex<Model>, log: &Log, plan: &CrashPlan, seed: u64) {
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
        model.lock().unwrap().add(appended, &group);
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

static WHOLE: AtomicUsize = AtomicUsize::new(0);
static TOLD: AtomicUsize = AtomicUsize::new(0);

/// What clients and later scans rely on after a crash.
struct Known {
    /// The log was acknowledged to be durable to here.
    durable: Lsn,
    /// The log was truncated to here.
    truncated: Lsn,
}

impl Known {
    /// By the marks of [`work`]; without one, `from`.
    fn of(marks: &[u64], from: Lsn) -> Known {
        let last = |odd| marks.iter().filter(|&m| m % 2 == odd).map(|m| Lsn(m / 2)).max().unwrap_or(from);
        Known { durable: last(0), truncated: last(1) }
    }
}

/// A log that goes through one crash after another, an epoch for each.
struct Crashing {
    seed: u64,
    rng: Rng,
    /// Outliers are hidden. Otherwise, each epoch may place log in its own way.
    jitter: bool,
    block: usize,
    comparator: Comparator,
    options: LogOptions,
    images: Vec<Arc<MemoryDevice>>,
    epochs: Vec<(Epoch, Lsn)>,
    model: Mutex<Model>,
    /// Where the next scan begins.
    from: Lsn,
    /// Where the log ended when the newest epoch was begun.
    recovered: Lsn,
    /// Requests that were issued again.
    reissued: u64,
}

impl Crashing {
    fn new(seed: u64, jitter: bool) -> Crashing {
        let mut rng = Rng::new(seed);
        let members = rng.between(if jitter { 2 } else { 1 }, 4) as u32;
        let block = if rng.one_in(4) { 4096 } else { 512 };
        let request_bytes = if rng.one_in(2) { 4096 } else { 64 << 10 };
        let mut options = LogOptions { buffer_bytes: 64 << 10, request_bytes, ..options() };
        let compose = if rng.one_in(3) { Compose::AtFlush } else { Compose::WhenDeviceFree };
        let mut comparator = Comparator { compose, ..Comparator::default() };
        if jitter {
            options = eager(&mut rng, &mut comparator, options);
        }
        let bytes = block as u64 * 160;
        Crashing {
            seed,
            rng,
            jitter,
            block,
            comparator,
            options,
            images: (0..members).map(|i| device_with(&format!("log {i}"), block, bytes)).collect(),
            epochs: vec![(Epoch(1), Lsn::FIRST)],
            model: Mutex::default(),
            from: Lsn::FIRST,
            recovered: Lsn::FIRST,
            reissued: 0,
        }
    }

    /// Opens the log, lets clients work on it, and crashes.
    fn cycle(&mut self, cycle: u32) {
        let plan = CrashPlan::new();
        let log = self.open(cycle, &plan);
        plan.mark(self.from.0 * 2 + 1);
        if self.rng.one_in(2) {
            plan.set_latency(Duration::from_micros(self.rng.between(1, 60)));
        }
        let clients = self.rng.between(if self.jitter { 2 } else { 1 }, 4);
        let seeds: Vec<u64> = (0..clients).map(|_| self.rng.next_u64()).collect();
        std::thread::scope(|scope| {
            let (model, log, plan) = (&self.model, &log, &plan);
            for &seed in &seeds {
                scope.spawn(move || work(model, log, plan, seed));
            }
        });
        if self.rng.one_in(4) {
            log.close().unwrap();
        }
        self.reissued += log.statistics().hiding.reissued;
        drop(log);
        self.crash(cycle, &plan);
        if self.rng.one_in(3) {
            // The epoch list may be trimmed to the epochs still in use.
            let used = self.epochs.iter().rposition(|&(_, start)| start <= self.from).unwrap();
            self.epochs.drain(..used);
        }
    }

    /// Creates the log in the first cycle; later finds what the crash left and begins an epoch.
    fn open(&mut self, cycle: u32, plan: &CrashPlan) -> Arc<Log> {
        let members = self.images.len() as u32;
        if !self.jitter {
            self.comparator.policy = random_policy(&mut self.rng, members, self.block);
        }
        let options = self.comparator.within(self.options.clone());
        let devices = self.devices(plan);
        if cycle == 0 {
            let log = Log::create(devices, identity_with(members, &self.epochs), Epoch(1), options).unwrap();
            plan.settle();
            return log;
        }
        let scan = scan(&devices, &self.epochs, self.from).unwrap();
        self.model.lock().unwrap().check(&scan, self.from);
        self.recovered = scan.end();
        self.model.lock().unwrap().cut(self.recovered);
        let (epoch, start) = (Epoch(cycle + 1), scan.next_epoch_start());
        self.epochs.push((epoch, start));
        let log = scan.open_log(epoch, start, options).unwrap();
        assert!(log.end() > start && log.durable() == start);
        log
    }

    fn devices(&mut self, plan: &CrashPlan) -> Vec<Arc<dyn Device>> {
        let device = |image: &Arc<MemoryDevice>| -> Arc<dyn Device> {
            let device = plan.device_holding(image);
            if self.jitter { Arc::new(Jittery::new(device, self.rng.next_u64(), 6)) } else { device }
        };
        self.images.iter().map(device).collect()
    }

    /// Crashes at some events, and continues with what the last of these crashes left.
    fn crash(&mut self, cycle: u32, plan: &CrashPlan) {
        let events = plan.event_count() as u64;
        let mut positions: Vec<usize> = (0..10).map(|_| self.rng.below(events + 1) as usize).collect();
        positions.sort_unstable();
        let mut replay = plan.replay();
        for position in positions {
            replay.advance_to(position);
            let survival = Survival::ALL[self.rng.below(Survival::ALL.len() as u64) as usize];
            self.images = replay.image(survival, &mut self.rng);
            let known = Known::of(replay.marks(), self.from);
            let crash = format!("seed {} cycle {cycle} event {position} {survival:?}", self.seed);
            self.check(&known, &crash);
            self.check_bad_places(&known, &crash);
        }
        self.from = Known::of(replay.marks(), self.from).truncated;
    }

    /// All log that was acknowledged is found.
    fn check(&self, known: &Known, crash: &str) {
        let devices: Vec<Arc<dyn Device>> =
            self.images.iter().map(|image| image.clone() as Arc<dyn Device>).collect();
        let scan = scan(&devices, &self.epochs, known.truncated).unwrap_or_else(|e| panic!("{crash}: {e}"));
        let (durable, end) = (known.durable, scan.end());
        assert!(end >= durable, "{crash}: {durable} was flushed, {end} is the end");
        self.model.lock().unwrap().check(&scan, known.truncated);
    }

    /// Places of the devices cannot be read after the crash: the log is complete all the same, or
    /// the scan reports them; the log found is never shorter.
    fn check_bad_places(&mut self, known: &Known, crash: &str) {
        let headers_only = self.rng.one_in(2);
        let one_in = if headers_only { 2 } else { [20, 200, 1000][self.rng.below(3) as usize] };
        let mut bad = Vec::new();
        let device = |image: &Arc<MemoryDevice>| {
            let faulty = Faulty::new(image.clone(), &FaultPlan::new(0));
            let block = image.info().logical_block as u64;
            let bytes = contents(&**image);
            let places = (2 * block..image.len()).step_by(block as usize);
            let places = places.filter(|&at| !headers_only || is_section_header(&bytes[at as usize..]));
            for at in places.filter(|_| self.rng.one_in(one_in)) {
                faulty.make_unreadable(at, block);
                bad.push(format!("{} at {at}", image.info().name));
            }
            Arc::new(faulty) as Arc<dyn Device>
        };
        let devices: Vec<Arc<dyn Device>> = self.images.iter().map(device).collect();
        match scan(&devices, &self.epochs, known.truncated) {
            Ok(found) => {
                let end = found.end();
                assert!(
                    end >= known.durable,
                    "{crash}: {} was flushed, {end} is the end with these bad places: {bad:?}; epochs {:?}",
                    known.durable,
                    self.epochs
                );
                // A request that an earlier crash tore, without its section's header, was no log
                // when this epoch was begun. It is if that header cannot be read, until the epoch
                // has durable log.
                let model = self.model.lock().unwrap();
                match self.epochs.last() {
                    Some(&(epoch, _)) if epoch == found.newest_epoch() => {
                        model.check(&found, known.truncated)
                    }
                    _ => model.check_until(&found, known.truncated, end.min(self.recovered)),
                }
                WHOLE.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                assert!(!bad.is_empty() && error.kind == LogErrorKind::Damaged, "{error}");
                TOLD.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Returns the number of requests that were issued again.
fn run(seed: u64, jitter: bool) -> u64 {
    let mut crashing = Crashing::new(seed, jitter);
    let members = crashing.images.len();
    for cycle in 0..8 {
        crashing.cycle(cycle);
    }
    assert_eq!(crashing.images.len(), members);
    crashing.reissued
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
