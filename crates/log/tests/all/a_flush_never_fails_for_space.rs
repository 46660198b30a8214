//! On tiny devices, over many laps: appended log can always be flushed, no block that may hold log
//! at or after the truncation point is overwritten, LSNs on a device never decrease, and reserves
//! are kept.

use crate::support::{
    Model, as_records, before_writes, device_with, log_blocks, random_group, random_policy, scan,
};
use firndb_base::rng::Rng;
use firndb_base::{Epoch, Lsn};
use firndb_device::Device;
use firndb_log::testing::{identity, options};
use firndb_log::{Kind, Log, LogClass, LogErrorKind, LogOptions, LogScan, Record};
use firndb_log_comparators::{Comparator, Compose, LogPolicy};
use firndb_testkit::bytes::contents;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Wraps `inner` so that every write is checked against the bytes it replaces.
fn watched(inner: Arc<dyn Device>, truncated: Arc<AtomicU64>, in_place: bool) -> Arc<dyn Device> {
    let highest = Mutex::new(Lsn::ZERO);
    let below = inner.clone();
    before_writes(inner, move |offset, data| {
        let mut old = vec![0; data.len()];
        below.read(offset, &mut old).unwrap();
        let limit = truncated.load(Ordering::SeqCst);
        for (at, lsn, fill, _) in log_blocks(&old) {
            let end = lsn.0 + u64::from(fill);
            let fuller = |&(there, new, new_fill, _): &(usize, Lsn, u16, u32)| {
                there == at && new == lsn && new_fill >= fill
            };
            assert!(
                end <= limit || (in_place && log_blocks(data).iter().any(fuller)),
                "log up to {end} at {} is overwritten; {limit} is kept",
                offset + at as u64
            );
        }
        let mut highest = highest.lock().unwrap();
        for (_, lsn, _, _) in log_blocks(data) {
            // A unit of several blocks is written once more from its first.
            assert!(in_place || lsn >= *highest, "LSNs on a device never decrease");
            *highest = lsn;
        }
        Ok(())
    })
}

fn random_class(rng: &mut Rng) -> LogClass {
    match rng.below(10) {
        0 => LogClass::System,
        1 | 2 => LogClass::Rollback,
        _ => LogClass::Normal,
    }
}

/// Small devices with blocks of several sizes, and the largest of these sizes.
fn small_devices(rng: &mut Rng, members: u32) -> (Vec<Arc<dyn Device>>, usize) {
    let blocks: Vec<usize> = (0..members).map(|_| [512, 512, 1024, 4096][rng.below(4) as usize]).collect();
    let block_max = blocks.iter().copied().max().unwrap();
    let device = |(i, block)| {
        let bytes = (block_max as u64 * rng.between(48, 120)).next_multiple_of(4096);
        device_with(&format!("log {i}"), block, bytes) as Arc<dyn Device>
    };
    (blocks.into_iter().enumerate().map(device).collect(), block_max)
}

fn random_options(rng: &mut Rng, policy: LogPolicy) -> LogOptions {
    let options = LogOptions {
        buffer_bytes: 8192 << rng.below(3),
        request_bytes: [0, 2048, 16384][rng.below(3) as usize],
        ..options()
    };
    let compose = if rng.one_in(2) { Compose::AtFlush } else { Compose::WhenDeviceFree };
    Comparator { policy, compose, ..Comparator::default() }.within(options)
}

/// A small log on watched devices while it is appended to, truncated and opened again.
struct SmallLog {
    seed: u64,
    rng: Rng,
    devices: Vec<Arc<dyn Device>>,
    options: LogOptions,
    epochs: Vec<(Epoch, Lsn)>,
    model: Model,
    /// Where the log was truncated; the devices compare what is overwritten with `truncated`.
    from: Lsn,
    truncated: Arc<AtomicU64>,
    /// Appends that found the log full since it was last truncated as far as it can be.
    full: u32,
}

impl SmallLog {
    fn create(seed: u64) -> (SmallLog, Arc<Log>) {
        let mut rng = Rng::new(seed);
        let members = rng.between(1, 4) as u32;
        let (plain, block_max) = small_devices(&mut rng, members);
        let policy = random_policy(&mut rng, members, block_max);
        let in_place = policy == LogPolicy::InPlace;
        let truncated = Arc::new(AtomicU64::new(0));
        let devices: Vec<_> =
            plain.into_iter().map(|device| watched(device, truncated.clone(), in_place)).collect();
        let options = random_options(&mut rng, policy);
        let log = Log::create(devices.clone(), identity(members), Epoch(1), options.clone()).unwrap();
        let (epochs, model) = (vec![(Epoch(1), Lsn::FIRST)], Model::default());
        let small =
            SmallLog { seed, rng, devices, options, epochs, model, from: Lsn::FIRST, truncated, full: 0 };
        (small, log)
    }

    fn append(&mut self, log: &Log) {
        let group = random_group(&mut self.rng, 300);
        match log.append_group(random_class(&mut self.rng), &as_records(&group)) {
            Ok(appended) => self.model.add(appended, &group),
            Err(error) if error.kind == LogErrorKind::Full => self.full += 1,
            // Longer than the limit of such a small log.
            Err(error) => assert_eq!(error.kind, LogErrorKind::BadArgument, "{error}"),
        }
    }

    fn flush(&self, log: &Log) {
        log.flush(log.end()).unwrap_or_else(|e| panic!("seed {}: {e}", self.seed));
    }

    /// Truncates the log at some durable end of a group; at the last one if it stays full.
    fn truncate(&mut self, log: &Log) {
        let durable = log.durable();
        let able = self.from..=durable;
        let ends: Vec<Lsn> = self.model.ends.iter().copied().filter(|end| able.contains(end)).collect();
        if self.full > 0 || (self.rng.one_in(3) && !ends.is_empty()) {
            let chosen = self.rng.below(ends.len().max(1) as u64) as usize;
            self.from = ends.get(chosen).copied().unwrap_or(self.from);
            if self.full > 3 {
                self.from = ends.last().copied().unwrap_or(self.from);
                self.full = 0;
            }
            self.truncated.store(self.from.0, Ordering::SeqCst);
            log.truncate(self.from);
        }
    }

    fn scan(&self) -> LogScan {
        scan(&self.devices, &self.epochs, self.from).unwrap_or_else(|e| panic!("seed {}: {e}", self.seed))
    }

    /// Loses what was not written, and opens the log for another epoch.
    fn reopen(&mut self, log: Arc<Log>) -> Arc<Log> {
        drop(log);
        let found = self.scan();
        self.model.check(&found, self.from);
        self.model.cut(found.end());
        let (epoch, start) = (Epoch(self.epochs.len() as u32 + 1), found.next_epoch_start());
        self.epochs.push((epoch, start));
        found
            .open_log(epoch, start, self.options.clone())
            .unwrap_or_else(|e| panic!("seed {}: {e}", self.seed))
    }

    /// Closes the log and finds all of it.
    fn close(&self, log: &Log) {
        log.close().unwrap();
        let found = self.scan();
        assert_eq!(found.end(), log.end());
        self.model.check(&found, self.from);
    }
}

fn run(seed: u64) {
    let (mut small, mut log) = SmallLog::create(seed);
    for _ in 0..1500 {
        match small.rng.below(12) {
            0..=6 => small.append(&log),
            7 | 8 => small.flush(&log),
            9 => {
                log.request_flush(log.end());
                log.step();
            }
            10 => small.truncate(&log),
            _ if small.rng.one_in(30) => log = small.reopen(log),
            _ => {
                log.step();
            }
        }
        let space = log.space();
        assert!(space.used_bytes <= space.capacity_bytes);
    }
    small.close(&log);
}

#[test]
fn a_flush_of_what_was_accepted_always_finds_room() {
    for seed in 0..120 {
        run(seed);
    }
}

#[test]
#[ignore = "takes minutes"]
fn a_flush_of_what_was_accepted_always_finds_room_long() {
    for seed in 10_000..14_000 {
        run(seed);
    }
}

fn fill_with(log: &Log, class: LogClass, flush_each: bool) -> u64 {
    let mut count = 0;
    loop {
        match log.append(class, Record { kind: Kind(0x20), body: &[1; 100] }) {
            Ok(appended) if flush_each => log.flush(appended.end).unwrap(),
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind, LogErrorKind::Full);
                return count;
            }
        }
        count += 1;
    }
}

#[test]
fn each_class_has_a_reserve_that_those_before_it_cannot_take() {
    for flush_each in [false, true] {
        let options = LogOptions { rollback_reserve_percent: 25, system_reserve_percent: 12, ..options() };
        let device = device_with("log", 512, 1 << 20);
        let log = Log::create(vec![device], identity(1), Epoch(1), options).unwrap();
        let normal = fill_with(&log, LogClass::Normal, flush_each);
        let rollback = fill_with(&log, LogClass::Rollback, flush_each);
        assert_eq!(fill_with(&log, LogClass::Normal, flush_each), 0);
        let system = fill_with(&log, LogClass::System, flush_each);
        assert_eq!(fill_with(&log, LogClass::Rollback, flush_each), 0);
        let all = normal + rollback + system;
        assert!(normal * 100 / all > 55, "{normal} {rollback} {system}");
        assert!((20..30).contains(&(rollback * 100 / all)), "{normal} {rollback} {system}");
        assert!((8..15).contains(&(system * 100 / all)), "{normal} {rollback} {system}");
        log.flush(log.end()).unwrap();
        // There is still space for sealing, and for opening the log again.
        log.close().unwrap();
        assert_eq!(log.statistics().seals, 1);
        log.truncate(log.durable());
        assert!(log.space().used_bytes < log.space().capacity_bytes / 8);
    }
}

#[test]
fn what_is_promised_to_undoing_is_kept_from_normal_work_up_to_half_of_the_log() {
    let share = |promised: u64| {
        let options = LogOptions { rollback_reserve_percent: 25, system_reserve_percent: 12, ..options() };
        let log =
            Log::create(vec![device_with("log", 512, 1 << 20)], identity(1), Epoch(1), options).unwrap();
        log.undo_promise().fetch_add(promised, std::sync::atomic::Ordering::SeqCst);
        let normal = fill_with(&log, LogClass::Normal, false);
        let rollback = fill_with(&log, LogClass::Rollback, false);
        rollback * 100 / (normal + rollback + fill_with(&log, LogClass::System, false))
    };
    assert!((20..30).contains(&share(100 << 10)), "the reserve is enough for that");
    assert!((34..45).contains(&share(330 << 10)), "{}", share(330 << 10));
    assert!((45..55).contains(&share(10 << 20)), "{}", share(10 << 20));
}

#[test]
fn a_full_log_can_be_opened_again_and_again_and_freed() {
    let devices = vec![device_with("log", 512, 64 << 10) as Arc<dyn Device>];
    let log = Log::create(devices.clone(), identity(1), Epoch(1), options()).unwrap();
    fill_with(&log, LogClass::System, true);
    drop(log);
    let mut epochs = vec![(Epoch(1), Lsn::FIRST)];
    for i in 2..6 {
        let found = scan(&devices, &epochs, Lsn::FIRST).unwrap();
        epochs.push((Epoch(i), found.next_epoch_start()));
        let log = found.open_log(Epoch(i), found.next_epoch_start(), options()).unwrap();
        log.flush(log.end()).unwrap();
        assert_eq!(
            log.append(LogClass::Normal, Record { kind: Kind(0x20), body: b"x" }).unwrap_err().kind,
            LogErrorKind::Full
        );
        if i == 5 {
            log.truncate(log.durable());
            assert!(fill_with(&log, LogClass::Normal, true) > 50);
        }
    }
}

#[test]
fn recovery_reads_only_the_sections_that_may_hold_log() {
    let device = device_with("log", 512, 8 << 20);
    let log = Log::create(vec![device.clone()], identity(1), Epoch(1), options()).unwrap();
    let mut at = Lsn::FIRST;
    let mut seen = BTreeMap::new();
    for i in 0..60_000u32 {
        let appended = log
            .append(LogClass::Normal, Record { kind: Kind(0x20), body: &i.to_le_bytes().repeat(20) })
            .unwrap();
        if i % 50 == 0 {
            log.flush(appended.end).unwrap();
            log.truncate(at);
        }
        if i % 1000 == 0 {
            seen.insert(i, appended.first);
            at = if i >= 5000 { seen[&(i - 5000)] } else { at };
        }
    }
    log.flush(log.end()).unwrap();
    let end = log.end();
    let from = seen[&58_000];
    let mut read = 0;
    let found = LogScan::new(vec![device.clone()], identity(1), from, &mut |done, expected| {
        assert!(done <= expected || expected == done);
        read = done;
    })
    .unwrap();
    assert_eq!(found.end(), end);
    let needed = end.since(from);
    assert!(read < needed + needed / 4 + (1 << 20), "{read} bytes read for {needed}");
    assert!(log_blocks(&contents(&*device)).len() > 10_000, "the log went round");
}
