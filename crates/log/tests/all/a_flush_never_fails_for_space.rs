//! On tiny devices, over many laps: appended log can always be flushed, no block that may hold log
//! at or after the truncation point is overwritten, LSNs on a device never decrease, and reserves
//! are kept.

use crate::support::{
    Hooked, Model, as_records, contents, device_with, log_blocks, random_group, random_policy, scan,
};
use firndb_base::rng::Rng;
use firndb_base::{Epoch, Lsn};
use firndb_device::Device;
use firndb_log::testing::{identity, options};
use firndb_log::{Kind, Log, LogClass, LogErrorKind, LogOptions, LogScan, Record};
use firndb_log_comparators::{Comparator, Compose, LogPolicy};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Wraps `inner` so that every write is checked against the bytes it replaces.
fn watched(inner: Arc<dyn Device>, truncated: Arc<AtomicU64>, in_place: bool) -> Arc<dyn Device> {
    let highest = Mutex::new(Lsn::ZERO);
    let below = inner.clone();
    let before = Box::new(move |offset: u64, data: &[u8]| {
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
    });
    Arc::new(Hooked { inner, before })
}

fn random_class(rng: &mut Rng) -> LogClass {
    match rng.below(10) {
        0 => LogClass::System,
        1 | 2 => LogClass::Rollback,
        _ => LogClass::Normal,
    }
}

fn run(seed: u64) {
    let mut rng = Rng::new(seed);
    let members = rng.between(1, 4) as u32;
    let truncated = Arc::new(AtomicU64::new(0));
    let mut block_max = 512;
    let plain: Vec<Arc<dyn Device>> = (0..members)
        .map(|i| {
            let block = [512, 512, 1024, 4096][rng.below(4) as usize];
            block_max = block_max.max(block);
            device_with(&format!("log {i}"), block, 0) as Arc<dyn Device>
        })
        .collect();
    for device in &plain {
        let bytes = (block_max as u64 * rng.between(48, 120)).next_multiple_of(4096);
        device.grow(bytes, firndb_device::Fill::Written).unwrap();
    }
    let policy = random_policy(&mut rng, members, block_max);
    let in_place = policy == LogPolicy::InPlace;
    let devices: Vec<_> = plain.iter().map(|d| watched(d.clone(), truncated.clone(), in_place)).collect();
    let options = LogOptions {
        buffer_bytes: 8192 << rng.below(3),
        request_bytes: [0, 2048, 16384][rng.below(3) as usize],
        ..options()
    };
    let compose = if rng.one_in(2) { Compose::AtFlush } else { Compose::WhenDeviceFree };
    let options = Comparator { policy, compose, ..Comparator::default() }.within(options);
    let mut log = Log::create(devices.clone(), identity(members), Epoch(1), options.clone()).unwrap();
    let mut epochs = vec![(Epoch(1), Lsn::FIRST)];
    let mut model = Model::default();
    let (mut from, mut full) = (Lsn::FIRST, 0);
    for _ in 0..1500 {
        match rng.below(12) {
            0..=6 => {
                let group = random_group(&mut rng, 300);
                match log.append_group(random_class(&mut rng), &as_records(&group)) {
                    Ok(appended) => model.add(appended, &group),
                    Err(error) if error.kind == LogErrorKind::Full => full += 1,
                    // Longer than the limit of such a small log.
                    Err(error) => assert_eq!(error.kind, LogErrorKind::BadArgument, "{error}"),
                }
            }
            7 | 8 => log.flush(log.end()).unwrap_or_else(|e| panic!("seed {seed}: {e}")),
            9 => {
                log.request_flush(log.end());
                log.step();
            }
            10 => {
                let durable = log.durable();
                let ends: Vec<Lsn> =
                    model.ends.iter().copied().filter(|&e| e >= from && e <= durable).collect();
                if full > 0 || (rng.one_in(3) && !ends.is_empty()) {
                    from = ends.get(rng.below(ends.len().max(1) as u64) as usize).copied().unwrap_or(from);
                    if full > 3 {
                        from = ends.last().copied().unwrap_or(from);
                        full = 0;
                    }
                    truncated.store(from.0, Ordering::SeqCst);
                    log.truncate(from);
                }
            }
            _ if rng.one_in(30) => {
                drop(log);
                let found = scan(&devices, &epochs, from).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
                model.check(&found, from);
                model.cut(found.end());
                let (epoch, start) = (Epoch(epochs.len() as u32 + 1), found.next_epoch_start());
                epochs.push((epoch, start));
                log = found
                    .open_log(epoch, start, options.clone())
                    .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            }
            _ => {
                log.step();
            }
        }
        let space = log.space();
        assert!(space.used_bytes <= space.capacity_bytes);
    }
    log.close().unwrap();
    let found = scan(&devices, &epochs, from).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    assert_eq!(found.end(), log.end());
    model.check(&found, from);
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
