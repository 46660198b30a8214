//! A disk, or a log, without space is an error that an application can handle: the statement
//! changes nothing, the transaction rolls back or commits what it has, reads go on, deleting frees
//! space, space that returns is used at once, and a database that is full opens.

use crate::support::bed::Bed;
use crate::support::sample::quiet;
use firndb::device::{Calls, Device, DeviceErrorKind, Fault, FaultPlan, FaultRule, Faulty, When};
use firndb::{
    Database, Deltas, Devices, Direction, Error, ErrorKind, KeyRange, Options, PageRecovery, Placement,
    Progress, Table, Transaction,
};
use firndb_base::sync::Arc;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn value(number: u32) -> Vec<u8> {
    let mut value = number.to_be_bytes().to_vec();
    value.resize(120, number as u8);
    value
}

fn insert(tx: &mut Transaction, table: &Table, number: u32) -> Result<(), Error> {
    tx.insert(table, &number.to_be_bytes(), &value(number))
}

/// Inserts rows from `from` on, some hundred a transaction, until there is no space; returns how
/// far it came.
fn fill(db: &Database, table: &Table, from: u32) -> (u32, Error) {
    let mut next = from;
    loop {
        let outcome = db.transact(|tx| (next..next + 300).try_for_each(|number| insert(tx, table, number)));
        match outcome {
            Ok(()) => next += 300,
            Err(error) => return (next, error),
        }
        assert!(next < 1_000_000, "the disk has no end");
    }
}

fn delete(tx: &mut Transaction, table: &Table, mut numbers: Range<u32>) -> Result<(), Error> {
    numbers.try_for_each(|number| tx.delete(table, &number.to_be_bytes()).map(|deleted| assert!(deleted)))
}

/// Deletes the rows below `end`, some hundred a transaction.
fn delete_in_pieces(db: &Database, table: &Table, end: u32) {
    for first in (0..end).step_by(300) {
        let numbers = first..(first + 300).min(end);
        db.transact(|tx| delete(tx, table, numbers.clone()))
            .expect("deleting needs no space that was not reserved for it");
    }
}

fn count(db: &Database, table: &Table) -> u32 {
    let mut tx = db.snapshot();
    let mut rows = tx.scan(table, KeyRange::all(), Direction::Forward);
    let mut found = 0;
    while let Some((key, row)) = rows.next(&mut tx).expect("reads go on") {
        let number = u32::from_be_bytes(key.try_into().expect("four bytes"));
        assert_eq!(row, value(number));
        found += 1;
    }
    found
}

fn assert_clean(db: &Database) {
    let report = db.check(&mut |_| {}).expect("checked");
    assert!(report.is_clean(), "{report:?}");
}

/// Background work, for as long as there is some.
fn settle(db: &Database) {
    let began = Instant::now();
    while db.step().expect("a step") == Progress::Worked {
        assert!(began.elapsed() < Duration::from_secs(20), "background work has no end");
    }
}

/// Devices of which the store cannot grow, once the plan says so.
fn limited(disks: &Bed, plan: &FaultPlan) -> Devices {
    let devices = disks.devices();
    Devices { store: Arc::new(Faulty::new(devices.store, plan)) as Arc<dyn Device>, ..devices }
}

fn no_room(plan: &FaultPlan) {
    plan.add(FaultRule {
        calls: Calls::Grows,
        device: None,
        when: When::From(0),
        fault: Fault::Fail(DeviceErrorKind::NoSpace),
    });
}

fn small() -> Options {
    quiet().log(|log| log.devices(1).bytes(2 << 20))
}

/// With deltas, which take places beside the pages' own, and give them up when the disk is full.
fn with_deltas() -> Options {
    small().buffer_bytes(128 << 10).tuning(|tuning| tuning.deltas(Deltas::On).delta_bytes(8 << 10))
}

/// With deltas in whole segments, which the cleaner has to make on the full disk.
fn in_segments() -> Options {
    with_deltas().tuning(|tuning| tuning.placement(Placement::Segments))
}

#[test]
fn a_transaction_in_segments_meets_the_end_of_the_disk() {
    meets_the_end(in_segments());
}

#[test]
fn deleting_dropping_and_reopening_in_segments_on_a_full_disk() {
    deleting_dropping_and_reopening(in_segments);
}

#[test]
fn a_transaction_meets_the_end_of_the_disk() {
    meets_the_end(small());
}

#[test]
fn a_transaction_that_writes_deltas_meets_the_end_of_the_disk() {
    meets_the_end(with_deltas());
}

/// Shadows, most of them written early.
#[test]
fn pages_of_page_files_meet_the_end_of_the_disk() {
    pages_meet_the_end(PageRecovery::Shadow);
}

#[test]
fn logged_pages_of_page_files_meet_the_end_of_the_disk() {
    pages_meet_the_end(PageRecovery::Log);
}

fn pages_meet_the_end(recovery: PageRecovery) {
    let (disks, plan) = (Bed::new(1), FaultPlan::new(1));
    let options = small()
        .buffer_bytes(128 << 10)
        .tuning(|tuning| tuning.page_recovery(recovery).page_file_bytes(8 << 10));
    let db = options.create_on(limited(&disks, &plan)).expect("created");
    let file = db.create_page_file("f").expect("a page file");
    let image = |number: u64| vec![number as u8 | 1; file.page_size()];
    let put = |tx: &mut Transaction, number: u64| tx.put_page(&file, number, &image(number));
    db.transact(|tx| (0..20).try_for_each(|number| put(tx, number))).expect("committed");
    no_room(&plan);
    let mut next = 20;
    let error = loop {
        match db.transact(|tx| (next..next + 20).try_for_each(|number| put(tx, number))) {
            Ok(()) => next += 20,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    let committed = next;
    let mut tx = db.begin();
    let error = loop {
        match put(&mut tx, next) {
            Ok(()) => next += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    // The images that could not be written are private still; the page before is one of them.
    assert_eq!(tx.read_page(&file, next - 1).expect("readable"), image(next - 1));
    assert_eq!(tx.read_page(&file, next).expect("readable"), vec![0; file.page_size()]);
    if let Err(error) = tx.commit() {
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        next = committed;
    }
    for number in 0..next {
        assert_eq!(db.snapshot().read_page(&file, number).expect("readable"), image(number), "{number}");
    }
    db.checkpoint().expect("a checkpoint");
    assert_clean(&db);
}

fn meets_the_end(options: Options) {
    let (disks, plan) = (Bed::new(1), FaultPlan::new(1));
    let db = options.create_on(limited(&disks, &plan)).expect("created");
    let table = db.create_table("t").expect("a table");
    db.transact(|tx| (0..100).try_for_each(|number| insert(tx, &table, number))).expect("committed");
    no_room(&plan);
    let mut tx = db.begin();
    let mut next = 100;
    let error = loop {
        match insert(&mut tx, &table, next) {
            Ok(()) => next += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert!(error.to_string().contains("store"), "which device: {error}");
    // The statement that failed changed nothing; its transaction reads what it wrote, and others
    // what they saw.
    assert_eq!(tx.get(&table, &next.to_be_bytes()).expect("readable"), None);
    assert_eq!(tx.get(&table, &(next - 1).to_be_bytes()).expect("readable"), Some(value(next - 1)));
    assert_eq!(count(&db, &table), 100);
    // Nothing changes by trying again; smaller changes in place may well be possible.
    for _ in 0..3 {
        let error = (next..next + 500)
            .try_for_each(|number| insert(&mut tx, &table, number))
            .expect_err("still full");
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    }
    tx.rollback().expect("rolling back needs no space that was not reserved for it");
    assert_eq!(count(&db, &table), 100);
    db.checkpoint().expect("a checkpoint needs no space that was not reserved for it");
    settle(&db);
    // The rollback freed space.
    db.transact(|tx| (100..1000).try_for_each(|number| insert(tx, &table, number))).expect("committed");
    assert_eq!(count(&db, &table), 1000);
    assert_clean(&db);
}

#[test]
fn what_fits_can_be_committed() {
    let (disks, plan) = (Bed::new(1), FaultPlan::new(2));
    let db = small().create_on(limited(&disks, &plan)).expect("created");
    let table = db.create_table("t").expect("a table");
    no_room(&plan);
    let mut tx = db.begin();
    let mut next = 0;
    while insert(&mut tx, &table, next).is_ok() {
        next += 1;
    }
    tx.commit().expect("a commit needs no space in the store");
    assert_eq!(count(&db, &table), next);
    drop((table, db));
    let db = small().open_on(limited(&disks, &plan)).expect("a full database opens");
    let table = db.table("t").expect("there");
    assert_eq!(count(&db, &table), next);
    assert_clean(&db);
}

#[test]
fn deleting_dropping_and_reopening_on_a_full_disk() {
    deleting_dropping_and_reopening(small);
}

#[test]
fn deleting_dropping_and_reopening_with_deltas_on_a_full_disk() {
    deleting_dropping_and_reopening(with_deltas);
}

fn deleting_dropping_and_reopening(small: fn() -> Options) {
    let (disks, plan) = (Bed::new(1), FaultPlan::new(3));
    let db = small().create_on(limited(&disks, &plan)).expect("created");
    let (table, other) = (db.create_table("t").expect("a table"), db.create_table("other").expect("a table"));
    no_room(&plan);
    db.transact(|tx| (0..6000).try_for_each(|number| insert(tx, &other, number))).expect("committed");
    let (filled, error) = fill(&db, &table, 0);
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert_eq!(count(&db, &table), filled);
    // Crash, open, and close on the full disk.
    drop((table, other, db));
    let db = small().open_on(limited(&disks, &plan)).expect("a full database opens");
    let table = db.table("t").expect("there");
    assert_eq!(count(&db, &table), filled);
    drop(table);
    db.close().expect("a full database closes");
    let db = small().open_on(limited(&disks, &plan)).expect("a full database opens");
    let table = db.table("t").expect("there");
    // Deleting frees space. All at once it may not be possible: before-images of long transactions
    // spill to pages.
    let all_at_once = db.transact(|tx| delete(tx, &table, 0..filled));
    if let Err(error) = all_at_once {
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        assert_eq!(count(&db, &table), filled);
        delete_in_pieces(&db, &table, filled / 2);
    } else {
        db.transact(|tx| (filled / 2..filled).try_for_each(|number| insert(tx, &table, number)))
            .expect("there is space");
    }
    assert_eq!(count(&db, &table), filled - filled / 2);
    settle(&db);
    let (refilled, _) = fill(&db, &table, filled);
    assert!(refilled > filled, "deleted rows freed no space");
    // So does dropping a table.
    db.drop_table("other").expect("dropping needs no space that was not reserved for it");
    settle(&db);
    db.checkpoint().expect("a checkpoint");
    let (more, _) = fill(&db, &table, refilled);
    assert!(more > refilled + 3000, "the table dropped had 6000 rows: {refilled} {more}");
    assert_eq!(count(&db, &table), more - filled / 2);
    assert_clean(&db);
}

#[test]
fn room_that_returns_is_used_at_once() {
    for background in [false, true] {
        let (disks, plan) = (Bed::new(1), FaultPlan::new(4));
        let db = small().background_threads(background).create_on(limited(&disks, &plan)).expect("created");
        let table = db.create_table("t").expect("a table");
        no_room(&plan);
        let (filled, error) = fill(&db, &table, 0);
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        if background {
            // Threads that meet the full disk again and again must not give up.
            std::thread::sleep(Duration::from_millis(300));
        }
        plan.heal();
        db.transact(|tx| (filled..filled + 3000).try_for_each(|number| insert(tx, &table, number)))
            .expect("there is space");
        assert_eq!(count(&db, &table), filled + 3000);
        drop(table);
        db.close().expect("closed");
        let db = small().open_on(disks.devices()).expect("opens");
        let table = db.table("t").expect("there");
        assert_eq!(count(&db, &table), filled + 3000);
        assert_clean(&db);
    }
}

#[test]
fn a_transaction_larger_than_the_log() {
    for background in [false, true] {
        let disks = Bed::new(1);
        let options = || {
            quiet().log(|log| log.devices(1).bytes(256 << 10)).tuning(|tuning| tuning.version_bytes(64 << 10))
        };
        let db = options().background_threads(background).create_on(disks.devices()).expect("created");
        let table = db.create_table("t").expect("a table");
        db.transact(|tx| (0..50).try_for_each(|number| insert(tx, &table, number))).expect("committed");
        let mut tx = db.begin();
        // Five times the log. Checkpoints may free space for it; if they do not, it says so.
        let outcome = (50..10_000).try_for_each(|number| insert(&mut tx, &table, number));
        if let Err(error) = &outcome {
            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
            assert!(error.to_string().contains("log"), "which space: {error}");
        }
        assert_eq!(count(&db, &table), 50, "others go on reading");
        tx.rollback().expect("space was reserved for rolling back");
        assert_eq!(count(&db, &table), 50);
        db.transact(|tx| (50..100).try_for_each(|number| insert(tx, &table, number))).expect("work goes on");
        drop(table);
        db.close().expect("closed");
        let db = options().open_on(disks.devices()).expect("opens");
        let table = db.table("t").expect("there");
        assert_eq!(count(&db, &table), 100);
        assert_clean(&db);
    }
}

/// A small file system of its own, unmounted and removed when dropped.
struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    /// `Err` with the reason if this machine or user cannot make one.
    fn new(megabytes: u64) -> Result<SmallDisk, String> {
        let dir = tempfile::tempdir().expect("a directory");
        let (image, mount) = (dir.path().join("image"), dir.path().join("mount"));
        std::fs::create_dir(&mount).expect("made");
        std::fs::File::create(&image).and_then(|file| file.set_len(megabytes << 20)).expect("made");
        let run = |program: &str, arguments: &[&std::ffi::OsStr]| match Command::new(program)
            .args(arguments)
            .output()
        {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
            Err(error) => Err(format!("{program}: {error}")),
        };
        run("mkfs.ext4", &["-q".as_ref(), "-m".as_ref(), "0".as_ref(), image.as_os_str()])?;
        run("mount", &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), mount.as_os_str()])?;
        Ok(SmallDisk { dir })
    }
    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("mount")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).output();
    }
}

/// Takes all but `left` MiB of the file system.
fn ballast(path: &Path, left: u64) -> std::path::PathBuf {
    use std::io::Write;
    let ballast = path.join("ballast");
    let mut file = std::fs::File::create(&ballast).expect("made");
    let block = vec![0xb5; 1 << 20];
    let mut size = 0u64;
    while file.write_all(&block).is_ok() {
        size += 1;
    }
    file.set_len(size.saturating_sub(left) << 20).expect("cut");
    file.sync_all().expect("synced");
    ballast
}

#[test]
fn a_real_file_system_without_room() {
    let disk = match SmallDisk::new(48) {
        Ok(disk) => disk,
        Err(reason) => {
            eprintln!("skipped: no small file system can be mounted here ({reason})");
            return;
        }
    };
    let path = disk.path().join("db");
    let options = || Options::new().buffer_bytes(2 << 20).log(|log| log.devices(2).bytes(2 << 20));
    // No space to create it: nothing half-made stands in the way later.
    let ballast_path = ballast(&disk.path(), 1);
    let error = options().open(&path).expect_err("no space");
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    std::fs::remove_file(&ballast_path).expect("removed");
    let db = options().open(&path).expect("created");
    let table = db.create_table("t").expect("a table");
    let ballast_path = ballast(&disk.path(), 6);
    let (filled, error) = fill(&db, &table, 0);
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert!(error.to_string().contains("store"), "which file: {error}");
    assert_eq!(count(&db, &table), filled);
    // Others fill what little is left.
    let more_ballast = disk.path().join("more");
    let _ = std::fs::write(&more_ballast, vec![1; 8 << 20]);
    std::thread::sleep(Duration::from_millis(300));
    db.checkpoint().expect("a checkpoint needs no space that was not reserved for it");
    drop(table);
    db.close().expect("closed");
    let db = options().open(&path).expect("a full database opens");
    let table = db.table("t").expect("there");
    assert_eq!(count(&db, &table), filled);
    delete_in_pieces(&db, &table, filled / 2);
    assert_eq!(count(&db, &table), filled - filled / 2);
    std::fs::remove_file(&ballast_path).expect("removed");
    std::fs::remove_file(&more_ballast).expect("removed");
    db.transact(|tx| (filled..filled + 4000).try_for_each(|number| insert(tx, &table, number)))
        .expect("space again");
    assert_eq!(count(&db, &table), filled - filled / 2 + 4000);
    drop(table);
    db.close().expect("closed");
    let db = options().open(&path).expect("opens");
    assert_eq!(count(&db, &db.table("t").expect("there")), filled - filled / 2 + 4000);
    assert_clean(&db);
}
