//! A device that hangs holds up closing a database for a stated time and no longer. Its file stays
//! in use until the late write has landed.

use crate::support::bed::Bed;
use firndb::device::{Calls, Device, DeviceErrorKind, Fault, FaultPlan, FaultRule, Faulty, When};
use firndb::{Database, ErrorKind, LogEventKind, Options};
use firndb_base::clock;
use firndb_base::sim::{self, SimOptions};
use firndb_testkit::gate::{Gate, Mode};
use std::sync::Arc;
use std::time::{Duration, Instant};

const HANGS: Duration = Duration::from_secs(3600);

fn small() -> Options {
    Options::new().page_size(1024).buffer_bytes(256 << 10).log(|log| log.bytes(1 << 20).devices(2))
}

fn put(db: &Database, n: u64) {
    let table = db.open_table("rows").unwrap();
    db.transact(|tx| tx.put(&table, &n.to_be_bytes(), &[n as u8; 300]).map(drop)).unwrap();
}

fn rows(db: &Database) -> u64 {
    let (table, mut tx) = (db.table("rows").unwrap(), db.snapshot());
    (0..1000).take_while(|n: &u64| tx.get(&table, &n.to_be_bytes()).unwrap().is_some()).count() as u64
}

#[test]
fn closing_gives_up_after_the_time_that_was_asked_for_and_names_the_device() {
    for (hung, threads, patience, dropped) in [
        ("log.1", true, 30, false),
        ("log.1", false, 30, false),
        ("log.1", true, 3, true),
        ("store", true, 30, false),
        ("store", false, 5, true),
        ("superblock", true, 30, false),
    ] {
        let run = sim::run(SimOptions::seeded(7), move || {
            let (bed, plan) = (Bed::new(2), FaultPlan::new(1));
            let patience = Duration::from_secs(patience);
            let options = small().background_threads(threads).close_patience(patience);
            let db = options.create_on(bed.failing(&plan)).unwrap();
            (0..40).for_each(|n| put(&db, n));
            let (device, fault) = (Some(hung.to_owned()), Fault::Stall(HANGS));
            plan.add(FaultRule { calls: Calls::Writes, device, when: When::From(0), fault });
            let begun = clock::now();
            if dropped {
                drop(db);
            } else {
                let error = db.close().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Failed, "{hung}: {error}");
                assert!(error.to_string().contains(hung), "{hung}: {error}");
            }
            let took = begun.elapsed();
            assert!(took >= patience && took < patience + Duration::from_secs(8), "{hung}: {took:?}");
            // What hung ends at last. Nothing is lost.
            plan.heal();
            clock::sleep(3 * HANGS);
            let db = small().background_threads(false).open_on(bed.failing(&plan)).unwrap();
            assert_eq!(rows(&db), 40, "{hung}");
        });
        run.unwrap_or_else(|failure| panic!("{hung}: {failure}"));
    }
}

/// Has the next of the device's `calls` take an hour, and the later ones, too.
fn hang(plan: &FaultPlan, device: &str, calls: Calls) {
    let device = Some(device.to_owned());
    plan.add(FaultRule { calls, device, when: When::From(0), fault: Fault::Stall(HANGS) });
}

/// A checkpoint of a client is inside of the call when the closing begins: no call begins after
/// that.
#[test]
fn a_call_that_hung_before_the_closing_began_ends_it_in_time() {
    for (hung, calls) in [
        ("store", Calls::Writes),
        ("store", Calls::Syncs),
        ("superblock", Calls::Any),
        ("log.0", Calls::Writes),
    ] {
        let run = sim::run(SimOptions::seeded(11), move || {
            let (bed, plan) = (Bed::new(2), FaultPlan::new(1));
            let patience = Duration::from_secs(10);
            let db = small().close_patience(patience).create_on(bed.failing(&plan)).unwrap();
            (0..200).for_each(|n| put(&db, n));
            hang(&plan, hung, calls);
            let client = db.clone();
            let client = firndb_base::sync::thread::spawn("client", move || client.checkpoint()).unwrap();
            clock::sleep(Duration::from_secs(60));
            assert!(plan.fired() > 0, "{hung}, {calls:?}: no such call was made");
            let begun = clock::now();
            let error = db.close().unwrap_err();
            let took = begun.elapsed();
            assert_eq!(error.kind(), ErrorKind::Failed, "{hung}, {calls:?}: {error}");
            assert!(error.to_string().contains(hung), "{hung}, {calls:?}: {error}");
            assert!(
                took >= patience && took < patience + Duration::from_secs(8),
                "{hung}, {calls:?}: {took:?}"
            );
            plan.heal();
            clock::sleep(3 * HANGS);
            // What it says does not matter.
            drop(client.join());
            let db = small().background_threads(false).open_on(bed.failing(&plan)).unwrap();
            assert_eq!(rows(&db), 200, "{hung}, {calls:?}");
        });
        run.unwrap_or_else(|failure| panic!("{hung}, {calls:?}: {failure}"));
    }
}

/// The closing has to read pages that are not in memory, to undo what had not committed.
#[test]
fn a_read_that_hangs_ends_the_closing_in_time_and_is_named() {
    let run = sim::run(SimOptions::seeded(5), || {
        let (bed, plan) = (Bed::new(2), FaultPlan::new(1));
        let patience = Duration::from_secs(10);
        let options = || small().close_patience(patience).background_threads(false);
        let db = options().create_on(bed.failing(&plan)).unwrap();
        (0..40).for_each(|n| put(&db, n));
        let table = db.table("rows").unwrap();
        let mut open = db.begin();
        open.put(&table, &7u64.to_be_bytes(), b"never committed").unwrap();
        // It reaches the devices with the checkpoint, and is a loser's after the crash.
        db.checkpoint().unwrap();
        std::mem::forget(open);
        let crashed = bed.duplicate();
        drop(db);
        let bed = crashed;
        let db = options().open_on(bed.failing(&plan)).unwrap();
        hang(&plan, "store", Calls::Reads);
        let begun = clock::now();
        let error = db.close().unwrap_err();
        let took = begun.elapsed();
        assert!(error.kind() == ErrorKind::Failed && error.to_string().contains("store"), "{error}");
        assert!(took >= patience && took < patience + Duration::from_secs(8), "{took:?}");
        plan.heal();
        clock::sleep(3 * HANGS);
        let db = options().open_on(bed.failing(&plan)).unwrap();
        db.finish_recovery().unwrap();
        assert_eq!(rows(&db), 40);
    });
    run.unwrap_or_else(|failure| panic!("{failure}"));
}

/// One device is stuck; that calls to another one begin and end does not make the closing wait for
/// it longer.
#[test]
fn a_device_that_hangs_beside_another_at_work_ends_the_closing_in_time() {
    let run = sim::run(SimOptions::seeded(13), || {
        let (bed, plan) = (Bed::new(2), FaultPlan::new(1));
        let patience = Duration::from_secs(10);
        let db = small().close_patience(patience).create_on(bed.failing(&plan)).unwrap();
        (0..200).for_each(|n| put(&db, n));
        db.checkpoint().unwrap();
        put(&db, 200);
        let (device, fault) = (Some("store".to_owned()), Fault::Stall(Duration::from_secs(2)));
        plan.add(FaultRule { calls: Calls::Reads, device, when: When::From(0), fault });
        let checking = db.clone();
        let checking =
            firndb_base::sync::thread::spawn("check", move || drop(checking.check(&mut |_| {}))).unwrap();
        // It has begun, and reads page after page.
        clock::sleep(Duration::from_secs(5));
        assert!(plan.fired() > 0 && !checking.is_finished());
        hang(&plan, "superblock", Calls::Any);
        let begun = clock::now();
        let error = db.close().unwrap_err();
        let took = begun.elapsed();
        assert!(error.to_string().contains("superblock"), "{error}");
        assert!(took < patience + Duration::from_secs(8), "{took:?}");
        assert!(!checking.is_finished(), "the store was to be at work for longer");
        plan.heal();
        checking.join().unwrap();
    });
    run.unwrap_or_else(|failure| panic!("{failure}"));
}

/// A log device that has failed is no device that hangs: closing takes as long as the others need,
/// and succeeds.
#[test]
fn a_failed_log_device_does_not_end_a_long_closing() {
    for fault in [Fault::Fail(DeviceErrorKind::Failed), Fault::FailLate(DeviceErrorKind::Failed)] {
        let run = sim::run(SimOptions::seeded(9), move || {
            let (bed, plan) = (Bed::new(2), FaultPlan::new(1));
            let patience = Duration::from_secs(5);
            let db = small().close_patience(patience).create_on(bed.failing(&plan)).unwrap();
            (0..40).for_each(|n| put(&db, n));
            let rule = |device: &str, calls, fault| {
                let device = Some(device.to_owned());
                plan.add(FaultRule { calls, device, when: When::From(0), fault });
            };
            rule("log.1", Calls::Any, fault);
            (40..60).for_each(|n| put(&db, n));
            let lost = || db.log_events().iter().any(|event| event.kind == LogEventKind::Lost);
            assert!(lost(), "the device has not failed yet");
            rule("log.0", Calls::Any, Fault::Stall(Duration::from_secs(4)));
            rule("superblock", Calls::Any, Fault::Stall(Duration::from_secs(4)));
            let begun = clock::now();
            db.close().unwrap();
            assert!(begun.elapsed() > 2 * patience, "it was to take long: {:?}", begun.elapsed());
            plan.heal();
            let db = small().background_threads(false).open_on(bed.failing(&plan)).unwrap();
            assert_eq!(rows(&db), 60);
        });
        run.unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Closing waits for an archive for a time of its own. It is none of the database's devices, and
/// none of these is accused of it.
#[test]
fn an_archive_that_hangs_is_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_owned();
    let run = sim::run(SimOptions::seeded(15), move || {
        let (bed, plan) = (Bed::new(2), FaultPlan::new(1));
        let faults = plan.clone();
        let wrap =
            Arc::new(move |file: Arc<dyn Device>| Arc::new(Faulty::new(file, &faults)) as Arc<dyn Device>);
        let options = small()
            .close_patience(Duration::from_secs(1))
            .archive(|archive| archive.directory(&place))
            .wrap_archive(wrap);
        let db = options.create_on(bed.plain()).unwrap();
        (0..40).for_each(|n| put(&db, n));
        plan.add(FaultRule {
            calls: Calls::Any,
            device: None,
            when: When::From(0),
            fault: Fault::Stall(HANGS),
        });
        (40..60).for_each(|n| put(&db, n));
        let begun = clock::now();
        db.close().unwrap();
        let took = begun.elapsed();
        assert!(took > Duration::from_secs(5) && took < Duration::from_secs(13), "{took:?}");
        plan.heal();
        clock::sleep(3 * HANGS);
        let db = small().background_threads(false).open_on(bed.plain()).unwrap();
        assert_eq!(rows(&db), 60);
    });
    run.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn a_slow_device_is_waited_for() {
    let run = sim::run(SimOptions::seeded(3), || {
        let (bed, plan) = (Bed::new(2), FaultPlan::new(1));
        let db = small().create_on(bed.failing(&plan)).unwrap();
        (0..40).for_each(|n| put(&db, n));
        // The store's are given in batches, in which one comes after the other here.
        for (slow, ms) in [("log.0", 20_000), ("log.1", 20_000), ("superblock", 20_000), ("store", 200)] {
            let (device, fault) = (Some(slow.to_owned()), Fault::Stall(Duration::from_millis(ms)));
            plan.add(FaultRule { calls: Calls::Writes, device, when: When::From(0), fault });
        }
        let begun = clock::now();
        db.close().unwrap();
        assert!(begun.elapsed() > Duration::from_secs(60), "{:?}", begun.elapsed());
    });
    run.unwrap_or_else(|failure| panic!("{failure}"));
}

/// The hung write's file is in use until the write has landed; where copies cover it the others are
/// not.
#[test]
fn a_file_in_which_a_write_hangs_stays_in_use_until_it_has_landed() {
    for copies in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let gate = Gate::default();
        let inside = gate.clone();
        let wrap = move |name: &str, inner: Arc<dyn Device>| {
            Ok(if name == "log.1" { inside.over(inner) } else { inner })
        };
        // With three devices of which two have each request, the other two go on.
        let options = small().log(|log| log.devices(copies + 1).copies(copies));
        let db = options.close_patience(Duration::from_millis(300)).wrap_devices(wrap).open(&path).unwrap();
        (0..20).for_each(|n| put(&db, n));
        gate.set(Mode::Shut);
        // Hidden where it is late: commits go on.
        (20..40).for_each(|n| put(&db, n));
        let begun = Instant::now();
        let error = db.close().unwrap_err();
        assert!(error.kind() == ErrorKind::Failed && error.to_string().contains("log.1"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        if copies == 1 {
            let error = Options::new().open(&path).unwrap_err();
            assert!(error.kind() == ErrorKind::InUse && error.to_string().contains("log.1"), "{error}");
        } else {
            let db = Options::new().open(&path).unwrap();
            let events = db.log_events();
            assert!(
                events[0].kind == LogEventKind::Lost && events[0].message.contains("log.1"),
                "{events:?}"
            );
            assert_eq!(rows(&db), 40);
            db.close().unwrap();
        }
        gate.set(Mode::Open);
        let begun = Instant::now();
        let db = loop {
            match Options::new().open(&path) {
                Ok(db) => break db,
                Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{error}"),
            }
        };
        assert_eq!(rows(&db), 40);
        assert!(db.check(&mut |_| {}).unwrap().is_clean());
    }
}
