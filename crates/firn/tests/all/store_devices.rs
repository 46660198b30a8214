//! A store over several devices: as many of them may be lost as was asked for, at any moment, and
//! others take their places while the database is in use.

use firndb::device::{
    AbsentDevice, Calls, CrashReplay, Device, DeviceError, DeviceErrorKind, Durability, Fault, FaultPlan,
    Faulty, Fill, MemoryDevice, Survival,
};
use firndb::{Database, Devices, Error, ErrorKind, Options, StoreEventKind, StoreMemberState};
use firndb_base::Progress;
use firndb_base::rng::Rng;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

mod auto_faults;
mod auto_layouts;
mod auto_walks;
mod growing;
mod layouts;
mod status;

/// Needed, written, devices.
type Shape = (usize, usize, usize);
const SHAPES: [Shape; 4] = [(1, 2, 2), (1, 2, 4), (3, 4, 4), (2, 4, 5)];

fn small() -> Options {
    Options::new()
        .page_size(1024)
        .buffer_bytes(256 << 10)
        .log(|log| log.bytes(512 << 10).devices(1))
        .background_threads(false)
}

fn over((needed, written, _): Shape) -> Options {
    small().store_code(needed, written)
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

fn value(n: u64) -> Vec<u8> {
    vec![n as u8; 30 + (n as usize * 37) % 400]
}

fn commit(db: &Database, n: u64) -> Result<(), Error> {
    let table = db.open_table("rows")?;
    db.transact(|tx| tx.put(&table, &key(n), &value(n)).map(drop))
}

fn fill(db: &Database, rows: std::ops::Range<u64>) {
    rows.for_each(|n| commit(db, n).unwrap());
    db.checkpoint().unwrap();
    while db.step().unwrap() == Progress::Worked {}
}

/// All rows below `rows` are there, and nothing is damaged.
fn verify(db: &Database, rows: u64) {
    let table = db.open_table("rows").unwrap();
    let tx = &mut db.snapshot();
    for n in 0..rows {
        assert_eq!(tx.get(&table, &key(n)).unwrap().as_deref(), Some(&value(n)[..]), "row {n} of {rows}");
    }
    let report = db.check(&mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.damage);
}

fn state(db: &Database, member: usize) -> StoreMemberState {
    db.store_array().unwrap().devices[member].state
}

/// Devices in memory.
struct Bed {
    superblock: Arc<dyn Device>,
    log: Arc<dyn Device>,
    stores: Vec<Arc<dyn Device>>,
}

impl Bed {
    fn new(of: usize, make: impl Fn(&str) -> Arc<dyn Device>) -> Bed {
        Bed {
            superblock: make("superblock"),
            log: make("log"),
            stores: (0..of).map(|member| make(&format!("store.{member}"))).collect(),
        }
    }

    fn memory(of: usize) -> Bed {
        Bed::new(of, |name| Arc::new(MemoryDevice::new(name)))
    }

    /// The devices that some power cut leaves, and the last mark before it.
    fn left_by(replay: &CrashReplay, rng: &mut Rng) -> (Bed, u64) {
        let rows = replay.marks().last().copied().unwrap_or(0);
        let survival = Survival::ALL[rng.below(Survival::ALL.len() as u64) as usize];
        let mut left = replay.image(survival, rng).into_iter().map(|it| it as Arc<dyn Device>);
        let (superblock, log) = (left.next().unwrap(), left.next().unwrap());
        (Bed { superblock, log, stores: left.collect() }, rows)
    }

    fn devices(&self) -> Devices {
        Devices {
            superblock: self.superblock.clone(),
            logs: vec![self.log.clone()],
            store: self.stores[0].clone(),
            store_others: self.stores[1..].to_vec(),
            cache: None,
        }
    }

    /// What a crash of the process leaves.
    fn duplicate(&self) -> Bed {
        let copy = |device: &Arc<dyn Device>| -> Arc<dyn Device> {
            let copy = MemoryDevice::new(&device.info().name);
            let mut bytes = vec![0; device.len() as usize];
            device.read(0, &mut bytes).unwrap();
            copy.grow(device.len(), Fill::Sparse).unwrap();
            copy.write(0, &bytes, Durability::Durable).unwrap();
            Arc::new(copy)
        };
        let stores = self.stores.iter().map(copy).collect();
        Bed { superblock: copy(&self.superblock), log: copy(&self.log), stores }
    }

    fn lose(&mut self, member: usize) {
        let why = DeviceError::new(DeviceErrorKind::Unusable, format!("store.{member} was unplugged"));
        self.stores[member] = Arc::new(AbsentDevice::new(&format!("store.{member}"), why));
    }
}

fn made(bed: &Bed, shape: Shape) -> Database {
    let db = over(shape).create_on(bed.devices()).unwrap();
    db.create_table("rows").unwrap();
    db
}

#[test]
fn in_files_a_device_is_lost_and_replaced_under_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let paths = ["store.a", "store.b", "store.c"];
    let db = small().store_paths(paths).store_survives(1).open(dir.join("db")).unwrap();
    db.create_table("rows").unwrap();
    fill(&db, 0..500);
    db.close().unwrap();
    let status = firndb::store_status(dir.join("db")).unwrap().unwrap();
    assert_eq!((status.needed, status.written, status.may_lose), (1, 2, 1));

    std::fs::remove_file(dir.join("db/store.b")).unwrap();
    let status = firndb::store_status(dir.join("db")).unwrap().unwrap();
    assert_eq!((status.devices[1].state, status.may_lose), (StoreMemberState::Missing, 0));
    let db = small().open(dir.join("db")).unwrap();
    assert_eq!(db.store_events()[0].kind, StoreEventKind::Lost);
    verify(&db, 500);
    fill(&db, 500..600);
    // Another of the database's own files is refused; the lost one's name is not.
    let refused = db.replace_store_device(1, "store.c").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::BadArgument, "{refused}");
    let refused = db.replace_store_device(0, "store.d").unwrap_err();
    assert!(refused.to_string().contains("is needed"), "{refused}");
    db.replace_store_device(1, "store.b").unwrap();
    while db.fill_store_device().unwrap() {}
    assert_eq!((state(&db, 1), db.store_array().unwrap().may_lose), (StoreMemberState::InUse, 1));
    verify(&db, 600);
    db.close().unwrap();

    for lost in ["store.a", "store.c"] {
        std::fs::rename(dir.join("db").join(lost), dir.join("away")).unwrap();
        let db = Options::new().open_read_only(dir.join("db")).unwrap();
        verify_reads(&db, 600);
        db.close().unwrap();
        std::fs::rename(dir.join("away"), dir.join("db").join(lost)).unwrap();
    }
    let one = small().open(dir.join("one")).unwrap();
    assert!(one.store_array().is_none() && one.replace_store_device(0, "other").is_err());
    assert!(one.scrub(&mut |_, _| {}).is_err());
}

fn verify_reads(db: &Database, rows: u64) {
    let table = db.open_table("rows").unwrap();
    let tx = &mut db.snapshot();
    (0..rows).for_each(|n| assert_eq!(tx.get(&table, &key(n)).unwrap().as_deref(), Some(&value(n)[..])));
}

#[test]
fn more_than_may_be_lost_is_named_and_nothing_is_changed() {
    for shape in SHAPES {
        let (needed, written, of) = shape;
        let mut bed = Bed::memory(of);
        let db = made(&bed, shape);
        fill(&db, 0..200);
        db.close().unwrap();
        let whole = bed.stores.clone();
        (0..=written - needed).for_each(|member| bed.lose(member));
        let refused = small().open_on(bed.devices()).unwrap_err();
        for member in 0..=written - needed {
            assert!(refused.to_string().contains(&format!("store.{member}")), "{refused}");
        }
        bed.stores = whole;
        let db = small().open_on(bed.devices()).unwrap();
        assert_eq!(db.store_array().unwrap().may_lose, written - needed);
        verify(&db, 200);
    }
}

#[test]
fn a_device_that_missed_writes_is_not_believed_when_it_returns() {
    let shape = (1, 2, 2);
    let mut bed = Bed::memory(2);
    let db = made(&bed, shape);
    fill(&db, 0..200);
    db.close().unwrap();
    let stale = bed.stores[0].clone();
    bed.lose(0);
    let db = small().open_on(bed.devices()).unwrap();
    fill(&db, 200..400);
    db.close().unwrap();
    let newer = std::mem::replace(&mut bed.stores[0], stale);
    drop(newer);
    let db = small().open_on(bed.devices()).unwrap();
    assert_eq!(state(&db, 0), StoreMemberState::Lost);
    verify(&db, 400);
    db.close().unwrap();
    // Alone it is refused, however whole it looks.
    bed.lose(1);
    let refused = small().open_on(bed.devices()).unwrap_err();
    assert!(refused.to_string().contains("missed writes"), "{refused}");
}

#[test]
fn a_device_that_fails_is_struck_before_anything_it_lacks_is_acknowledged() {
    for shape in SHAPES {
        let (needed, written, of) = shape;
        for seed in 0..12 {
            let bed = Bed::memory(of);
            let db = made(&bed, shape);
            fill(&db, 0..100);
            db.close().unwrap();
            let mut rng = Rng::new(seed);
            let (plan, failing) = (FaultPlan::new(seed), rng.below(of as u64) as usize);
            let mut devices = bed.devices();
            let target = match failing {
                0 => &mut devices.store,
                other => &mut devices.store_others[other - 1],
            };
            *target = Arc::new(Faulty::new(target.clone(), &plan));
            let db = small().open_on(devices).unwrap();
            plan.fail_from(rng.below(8), Calls::Any, DeviceErrorKind::Failed);
            fill(&db, 100..200);
            let lost = state(&db, failing) == StoreMemberState::Lost;
            assert!(lost, "{shape:?} {seed}: every write goes to all devices in the end");
            verify(&db, 200);
            // As after a crash: nothing was closed.
            let bed = bed.duplicate();
            drop(db);
            let db = small().open_on(bed.devices()).unwrap();
            assert_eq!(state(&db, failing), StoreMemberState::Lost);
            assert_eq!(db.store_array().unwrap().may_lose, written - needed - 1);
            verify(&db, 200);
        }
    }
}

/// Cause: the error of the new device was returned after it had been struck. Effect: filling it in
/// the background ended with a database that refused all work.
#[test]
fn a_new_device_that_fails_while_it_is_filled_is_struck_and_no_more() {
    for shape in SHAPES {
        for seed in 0..12 {
            let bed = Bed::memory(shape.2);
            let db = made(&bed, shape);
            fill(&db, 0..300);
            let plan = FaultPlan::new(seed);
            let bad = Arc::new(Faulty::new(Arc::new(MemoryDevice::new("bad")), &plan));
            let member = seed as usize % shape.2;
            db.replace_store_device_on(member, bad).unwrap();
            plan.fail_from(seed % 3, Calls::Any, DeviceErrorKind::Failed);
            while db.step().unwrap() == Progress::Worked {}
            assert_eq!(state(&db, member), StoreMemberState::Lost, "{shape:?} {seed}");
            fill(&db, 300..310);
            db.replace_store_device_on(member, Arc::new(MemoryDevice::new("good"))).unwrap();
            while db.fill_store_device().unwrap() {}
            assert_eq!(state(&db, member), StoreMemberState::InUse);
            verify(&db, 310);
        }
    }
}

/// Cause: the database kept a device open that it does not use any more. Effect: it could not be
/// given in its own place.
#[test]
fn a_device_whose_contents_were_lost_takes_its_own_place_as_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("db");
    let options = || small().background_threads(true);
    let db = options().store_paths(["store.a", "store.b"]).store_survives(1).open(&dir).unwrap();
    db.create_table("rows").unwrap();
    db.close().unwrap();
    let lost = std::fs::OpenOptions::new().write(true).open(dir.join("store.b")).unwrap();
    let len = lost.metadata().unwrap().len();
    lost.set_len(0).and_then(|()| lost.set_len(len)).unwrap();
    let db = options().open(&dir).unwrap();
    (0..60).for_each(|n| commit(&db, n).unwrap());
    assert_eq!(state(&db, 1), StoreMemberState::Lost);
    db.replace_store_device(1, "store.b").unwrap();
    while db.fill_store_device().unwrap() {}
    assert_eq!(state(&db, 1), StoreMemberState::InUse);
    verify(&db, 60);
    db.close().unwrap();
}

#[test]
fn rot_is_mended_where_it_is_read_and_all_of_it_by_a_scrub() {
    for shape in SHAPES {
        let (needed, written, of) = shape;
        let bed = Bed::memory(of);
        let db = made(&bed, shape);
        fill(&db, 0..300);
        db.close().unwrap();
        let rot = |members: std::ops::Range<usize>| {
            for store in &bed.stores[members] {
                let start = 128 << 10;
                let junk = vec![0x5a; (store.len() - start) as usize];
                store.write(start, &junk, Durability::Durable).unwrap();
            }
        };
        rot(0..written - needed);
        let db = small().open_on(bed.devices()).unwrap();
        verify_reads(&db, 300);
        let report = db.scrub(&mut |done, all| assert!(done <= all)).unwrap();
        assert!(report.repairs > 0 && report.faults == 0, "{report:?}");
        assert_eq!(db.scrub(&mut |_, _| {}).unwrap().repairs, 0, "all is right now");
        assert!(db.store_events().iter().all(|event| event.kind == StoreEventKind::Repaired));
        // What was mended is as good as new.
        rot(of - (written - needed)..of);
        verify(&db, 300);
        db.close().unwrap();
    }
}

/// Cause: a check took a page for whole once its content was found, whatever became of the writes
/// that mend its fragments. Effect: those that stayed wrong on a full device were not reported.
#[test]
fn a_check_reports_fragments_that_it_could_not_write_anew() {
    let (bed, plan) = (Bed::memory(2), FaultPlan::new(1));
    let db = made(&bed, (1, 2, 2));
    fill(&db, 0..300);
    db.close().unwrap();
    let mut devices = bed.devices();
    devices.store = Arc::new(Faulty::new(devices.store.clone(), &plan));
    let db = small().open_on(devices).unwrap();
    assert!(db.check(&mut |_| {}).unwrap().is_clean());
    let start = 128 << 10;
    let junk = vec![0x5a; (bed.stores[0].len() - start) as usize];
    bed.stores[0].write(start, &junk, Durability::Durable).unwrap();
    plan.one_in(1, Calls::Writes, Fault::Fail(DeviceErrorKind::NoSpace));
    let report = db.check(&mut |_| {}).unwrap();
    assert!(report.damage.iter().any(|it| it.contains("could not be written anew")), "{report:?}");
    plan.heal();
    db.check(&mut |_| {}).unwrap();
    verify(&db, 300);
}

#[test]
fn a_device_is_replaced_while_others_write_and_fills_on_after_a_crash() {
    let shape = (3, 4, 4);
    let mut bed = Bed::memory(4);
    let db = over(shape).background_threads(true).create_on(bed.devices()).unwrap();
    db.create_table("rows").unwrap();
    (0..500).for_each(|n| commit(&db, n).unwrap());
    let stop = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut n = 500;
            while !stop.load(Ordering::SeqCst) {
                commit(&db, n).unwrap();
                n += 1;
            }
            n
        });
        for member in [2, 0] {
            let fresh: Arc<dyn Device> = Arc::new(MemoryDevice::new("fresh"));
            bed.stores[member] = fresh.clone();
            db.replace_store_device_on(member, fresh).unwrap();
            let begun = Instant::now();
            while state(&db, member) != StoreMemberState::InUse {
                assert!(begun.elapsed() < Duration::from_secs(60), "background work fills it");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        stop.store(true, Ordering::SeqCst);
        writer.join().unwrap()
    });
    db.close().unwrap();
    bed.lose(1);
    let db = small().open_on(bed.devices()).unwrap();
    verify(&db, written);
    // Half filled, and then the power fails.
    let fresh: Arc<dyn Device> = Arc::new(MemoryDevice::new("fresh"));
    db.replace_store_device_on(1, fresh.clone()).unwrap();
    assert!(db.fill_store_device().unwrap());
    bed.stores[1] = fresh;
    bed = bed.duplicate();
    drop(db);
    let db = small().open_on(bed.devices()).unwrap();
    assert_eq!(state(&db, 1), StoreMemberState::Filling);
    while db.step().unwrap() == Progress::Worked {}
    assert_eq!(state(&db, 1), StoreMemberState::InUse);
    db.close().unwrap();
    bed.lose(3);
    verify(&small().open_on(bed.devices()).unwrap(), written);
}

#[test]
fn a_backup_is_restored_onto_several_devices() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let db = small().open(dir.join("db")).unwrap();
    db.create_table("rows").unwrap();
    fill(&db, 0..300);
    db.backup(dir.join("backup"), &mut |_| ControlFlow::Continue(())).unwrap();
    db.close().unwrap();
    let to = dir.join("restored");
    let paths = [Path::new("s.0"), Path::new("s.1"), Path::new("s.2")];
    let options = small().store_paths(paths).store_code(2, 3);
    options.restore(dir.join("backup"), None, firndb::RestoreTo::End, &to).unwrap();
    std::fs::remove_file(to.join("s.1")).unwrap();
    let db = small().open(&to).unwrap();
    assert_eq!(db.store_array().unwrap().may_lose, 0);
    verify(&db, 300);
}

#[test]
fn codes_that_cannot_be_are_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    for options in [
        small().store_survives(1),
        small().store_paths(["a", "b"]).store_survives(2),
        small().store_paths(["a", "b"]).store_code(2, 1),
        small().store_paths(["a", "b"]).store_code(0, 1),
        small().store_paths((0..17).map(|n| n.to_string())),
    ] {
        let refused = options.open(dir.path().join("db")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BadArgument, "{refused}");
        assert!(!dir.path().join("db/a").exists());
    }
}

/// Cause: the old device was given up before the new one was looked at. Effect: a device that could
/// not take its place cost a healthy one.
#[test]
fn a_device_that_cannot_be_used_takes_no_place() {
    let bed = Bed::memory(2);
    let db = made(&bed, (1, 2, 2));
    fill(&db, 0..300);
    let refused = |device: Arc<dyn Device>| db.replace_store_device_on(1, device).unwrap_err().kind();
    assert_eq!(refused(Arc::new(MemoryDevice::with("small", 512, 200_000))), ErrorKind::Full);
    assert_eq!(refused(Arc::new(MemoryDevice::with("coarse", 4096, 1 << 30))), ErrorKind::Unusable);
    // One device for two places would be the end of both.
    assert_eq!(refused(bed.stores[0].clone()), ErrorKind::BadArgument);
    assert_eq!(refused(bed.stores[1].clone()), ErrorKind::BadArgument);
    assert_eq!(db.store_array().unwrap().may_lose, 1);
    verify(&db, 300);
}

/// Cause: the array was as long as its shortest device. Effect: one device that was cut off kept
/// the database from opening, though it could be lost.
#[test]
fn a_device_that_was_cut_off_counts_as_lost() {
    for (left, shape) in [(4096, (1, 2, 2)), (70_000, (1, 2, 2)), (300_000, (3, 4, 4))] {
        let bed = Bed::memory(shape.2);
        let db = made(&bed, shape);
        fill(&db, 0..300);
        db.close().unwrap();
        assert!(bed.stores[1].len() > left);
        bed.stores[1].shrink(left).unwrap();
        let db = small().open_on(bed.devices()).unwrap();
        assert_eq!(state(&db, 1), StoreMemberState::Lost, "{left} bytes left");
        commit(&db, 300).unwrap();
        verify(&db, 301);
        drop(db);
        bed.stores[0].shrink(left).unwrap();
        let refused = small().open_on(bed.devices()).unwrap_err().to_string();
        assert!(refused.contains("cut off") && refused.contains("can lose 1 of its"), "{refused}");
    }
}
