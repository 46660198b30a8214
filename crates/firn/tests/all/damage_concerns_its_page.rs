//! Damage to a page concerns the rows and tables on it: transactions that cannot be rolled back
//! because of it keep their rows locked, pages that cannot be redone cannot be read, and everything
//! else goes on, in this incarnation of the database and in every later one, for looking into it as
//! well. A file that is restored in place is as if nothing had been.
//!
//! Each test runs without background threads, and with them where they have a part in it.

use crate::support::bed::Bed;
use firndb::device::{Calls, Device, DeviceErrorKind, Durability, Fault, FaultPlan, FaultRule, When};
use firndb::{Database, Direction, DumpWhat, Error, ErrorKind, KeyRange, Options, Progress, SetAside, Table};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Pages of 1 KiB, and a buffer of a few hundred.
fn quiet() -> Options {
    Options::new()
        .page_size(1024)
        .buffer_bytes(256 << 10)
        .log_bytes(8 << 20)
        .log_devices(1)
        .checkpoint_log_bytes(1 << 20)
        .background_threads(false)
}

fn key(i: u32) -> Vec<u8> {
    format!("key {i:06}").into_bytes()
}
fn value(i: u32, what: &str) -> Vec<u8> {
    format!("{what} of {i} ").repeat(6).into_bytes()
}

const ROWS: u32 = 1500;

fn put_all(db: &Database, table: &Table, rows: impl Iterator<Item = u32>, what: &str) {
    let rows: Vec<u32> = rows.collect();
    for some in rows.chunks(100) {
        db.transact(|tx| some.iter().try_for_each(|&i| tx.put(table, &key(i), &value(i, what)).map(drop)))
            .expect("committed");
    }
}

/// A database with tables `a` and `b`, all of it in the store.
fn filled(options: &Options, bed: &Bed) -> (Database, Table, Table) {
    let db = options.clone().create_on(bed.plain()).expect("created");
    let (a, b) = (db.create_table("a").expect("created"), db.create_table("b").expect("created"));
    put_all(&db, &a, 0..ROWS, "first");
    put_all(&db, &b, 0..ROWS, "second");
    db.checkpoint().expect("taken");
    (db, a, b)
}

fn opened(options: &Options, bed: &Bed) -> Database {
    options.clone().open_on(bed.plain()).unwrap_or_else(|error| panic!("does not open: {error}"))
}

fn get(db: &Database, table: &str, i: u32) -> Result<Option<Vec<u8>>, Error> {
    let table = db.table(table)?;
    db.snapshot().get(&table, &key(i))
}

fn put(db: &Database, table: &str, i: u32, what: &str) -> Result<(), Error> {
    let table = db.table(table)?;
    db.transact(|tx| tx.put(&table, &key(i), &value(i, what)).map(drop))
}

fn all(db: &Database, table: &str) -> Rows {
    let table = db.table(table).expect("there");
    let mut tx = db.snapshot();
    let mut cursor = tx.scan(&table, KeyRange::all(), Direction::Forward);
    let mut rows = Rows::new();
    while let Some((key, value)) = cursor.next(&mut tx).expect("readable") {
        rows.insert(key.to_vec(), value.to_vec());
    }
    rows
}

fn bytes_of(bed: &Bed) -> Vec<u8> {
    let mut bytes = vec![0; bed.store.len() as usize];
    bed.store.read(0, &mut bytes).expect("memory");
    bytes
}

/// Turns a bit of the store at each of these offsets; done twice, nothing has changed.
fn rot(bed: &Bed, offsets: &[usize]) {
    assert!(!offsets.is_empty(), "there is something to rot");
    for at in offsets {
        let mut block = [0; 512];
        let start = (at / 512 * 512) as u64;
        bed.store.read(start, &mut block).expect("memory");
        block[at % 512] ^= 1;
        bed.store.write(start, &block, Durability::Durable).expect("memory");
    }
}

/// Turns the bits back that [`rot`] turned in a store of `before`, but for places that were written
/// since.
fn heal(bed: &Bed, offsets: &[usize], before: &[u8]) {
    let now = bytes_of(bed);
    let is_as_it_rotted = |at: &usize| {
        let block = at / 512 * 512..at / 512 * 512 + 512;
        let mut rotten = before[block.clone()].to_vec();
        rotten[at % 512] ^= 1;
        now[block] == rotten
    };
    rot(bed, &offsets.iter().copied().filter(is_as_it_rotted).collect::<Vec<_>>());
}

/// Wherever the store has these bytes: in the newest image of their page, and in places that are
/// free by now.
fn places_of(bed: &Bed, wanted: &[u8]) -> Vec<usize> {
    let bytes = bytes_of(bed);
    bytes
        .windows(wanted.len())
        .enumerate()
        .filter(|(_, window)| *window == wanted)
        .map(|(at, _)| at)
        .collect()
}

/// A byte of every image of a node of this tree, of at most this level, that has entries.
fn nodes_of(bed: &Bed, tree: u32, levels: std::ops::RangeInclusive<u8>) -> Vec<usize> {
    let bytes = bytes_of(bed);
    let pages = bytes.chunks_exact(1024).enumerate();
    let of_tree = pages.filter(|(_, page)| {
        page[0] == 1
            && levels.contains(&page[1])
            && page[20..24] == tree.to_le_bytes()
            && page[4..6] != [0, 0]
    });
    of_tree.map(|(number, _)| number * 1024 + 1000).collect()
}

/// What the listener was called with.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<SetAside>>>);

impl Told {
    fn listen(&self, options: Options) -> Options {
        let list = self.0.clone();
        options.on_set_aside(move |work| list.lock().expect("no panic").push(work.clone()))
    }
    fn list(&self) -> Vec<SetAside> {
        self.0.lock().expect("no panic").clone()
    }
}

/// Waits until recovery is complete, or does it.
fn recovered(db: &Database, threads: bool) {
    if !threads {
        while db.step().expect("a step") == firndb::Progress::Worked {}
    }
    let limit = Instant::now() + Duration::from_secs(30);
    while !db.recovery_report().complete {
        assert!(
            Instant::now() < limit,
            "recovery goes on without what is damaged: {:?}",
            db.recovery_report()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn assert_damaged<T: std::fmt::Debug>(outcome: Result<T, Error>) -> String {
    let error = outcome.expect_err("it needs a damaged page");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    let sentence = error.to_string();
    assert!(sentence.contains("page"), "it names the damage: {sentence}");
    assert!(!sentence.contains("opened again"), "opening it again does not help: {sentence}");
    sentence
}

fn assert_sound(db: &Database) {
    let report = db.check(&mut |_| {}).expect("can be checked");
    assert_eq!(report.damage, Vec::<String>::new());
}

/// Everything that looks into a database can look into this one.
fn look_into(options: &Options, bed: &Bed) {
    let bed = bed.duplicate();
    let db = opened(&options.clone().eager_recovery(true).background_threads(false), &bed);
    let report = db.check(&mut |_| {}).expect("it can be checked");
    assert!(!report.is_clean(), "and is not taken for sound");
    assert!(!db.statistics().tables.is_empty());
    let mut out = Vec::new();
    for what in [DumpWhat::Catalog, DumpWhat::Log, DumpWhat::Table("b".to_owned())] {
        out.clear();
        match db.dump(&what, &mut out) {
            Ok(()) => {}
            // After all trees: some of them cannot be walked.
            Err(error) => assert!(what == DumpWhat::Catalog && error.kind() == ErrorKind::Damaged, "{error}"),
        }
        assert!(!out.is_empty());
    }
    db.close().expect("closed");
}

/// A transaction that never ends changes rows of both tables, on some twenty pages, which the store
/// has; then a crash. What it leaves, a place on the page of row 705 of `a`, and the log's end.
fn crashed_with_a_loser() -> (Bed, Vec<usize>, firndb::Lsn) {
    let bed = Bed::new(1);
    let (db, a, b) = filled(&quiet(), &bed);
    let mut loser = db.begin();
    for i in (5..ROWS).step_by(100) {
        loser.put(&a, &key(i), &value(i, "lost")).expect("written");
        loser.put(&b, &key(i), &value(i, "gone")).expect("written");
    }
    loser.delete(&a, &key(805)).expect("deleted");
    db.checkpoint().expect("taken");
    put_all(&db, &b, 0..1, "third");
    let (left, end) = (bed.duplicate(), db.statistics().log_end);
    drop(loser);
    let places = places_of(&left, &value(705, "lost"));
    (left, places, end)
}

#[test]
fn a_loser_on_a_damaged_page_keeps_what_is_on_it_and_nothing_else() {
    let (bed, places, crash_end) = crashed_with_a_loser();
    for threads in [false, true] {
        let bed = bed.duplicate();
        rot(&bed, &places);
        look_into(&quiet(), &bed);
        let told = Told::default();
        let options = told.listen(quiet().background_threads(threads));
        let db = opened(&options, &bed);
        recovered(&db, threads);
        let report = db.recovery_report();
        assert_eq!((report.losers, report.losers_left, report.losers_set_aside), (1, 1, 1), "{report:?}");
        assert_damaged(get(&db, "a", 705));
        assert_damaged(put(&db, "a", 705, "mine"));
        for i in (5..ROWS).step_by(100).filter(|i| *i != 705) {
            assert_eq!(get(&db, "a", i).expect("readable"), Some(value(i, "first")));
            put(&db, "a", i, "mine").expect("what could be undone is free");
            put(&db, "b", i, "mine").expect("free");
        }
        // It holds no log.
        for round in 0..3 {
            put(&db, "b", 1, &format!("round {round}")).expect("committed");
            db.checkpoint().expect("taken");
        }
        assert!(db.statistics().checkpoint.1 > crash_end, "{:?} > {crash_end:?}", db.statistics().checkpoint);
        let set_aside = db.work_set_aside();
        assert!(
            set_aside.0.iter().any(|entry| entry.work.contains("rolling back transaction")),
            "{set_aside:?}"
        );
        assert!(set_aside.0.iter().all(|entry| entry.cause.contains("page")), "{set_aside:?}");
        assert_eq!(told.list(), set_aside.0, "each was reported once");
        if threads {
            // No thread reads the damaged page over and over.
            std::thread::sleep(Duration::from_millis(100));
            let reads = || db.io_counts().store.reads.ops;
            let before = reads();
            std::thread::sleep(Duration::from_millis(400));
            assert!(reads() - before < 10, "{} reads in an idle database", reads() - before);
        }
        db.close().expect("closed");

        // The next incarnation finds it again, with all that it needs.
        let db = opened(&options, &bed);
        recovered(&db, threads);
        let report = db.recovery_report();
        assert_eq!((report.losers, report.losers_set_aside, report.clean), (1, 1, false), "{report:?}");
        put(&db, "b", 2, "once more").expect("committed");
        db.close().expect("closed");

        // The page is as it was, and nothing is left of it all.
        let healed = bed.duplicate();
        rot(&healed, &places);
        let db = opened(&quiet(), &healed);
        assert_eq!(get(&db, "a", 705).expect("readable"), Some(value(705, "first")));
        recovered(&db, false);
        assert_eq!((db.recovery_report().losers, db.recovery_report().losers_left), (1, 0));
        let a = all(&db, "a");
        assert_eq!(
            (a.len() as u32, &a[&key(705)], &a[&key(5)]),
            (ROWS, &value(705, "first"), &value(5, "mine"))
        );
        assert_sound(&db);

        // Or the table is dropped: the next opening has nothing left to undo.
        let db = opened(&options, &bed);
        db.drop_table("a").expect("dropped");
        db.close().expect("closed");
        let db = opened(&options, &bed);
        recovered(&db, threads);
        assert_eq!((db.recovery_report().losers, db.recovery_report().losers_left), (1, 0));
        put(&db, "b", 3, "without it").expect("committed");
        // Until the drop is done, a check finds the damaged page in the dropped tree.
        while db.step().expect("a step") == Progress::Worked {}
        db.close().expect("closed");
        let db = opened(&quiet(), &bed);
        assert!(db.recovery_report().clean, "{:?}", db.recovery_report());
        assert_eq!(db.table("a").expect_err("gone").kind(), ErrorKind::NotFound);
        assert_sound(&db);
    }
}

/// Pushes everything out of the buffer but table `b`.
fn push_out(db: &Database) {
    db.checkpoint().expect("taken");
    for _ in 0..3 {
        assert_eq!(all(db, "b").len() as u32, ROWS);
    }
}

#[test]
fn a_rollback_that_meets_damage_is_set_aside() {
    let bed = Bed::new(1);
    let told = Told::default();
    let (db, a, _) = filled(&told.listen(quiet()), &bed);
    let mut tx = db.begin();
    tx.put(&a, &key(705), &value(705, "doomed")).expect("written");
    tx.put(&a, &key(5), &value(5, "doomed")).expect("written");
    push_out(&db);
    let places = places_of(&bed, &value(705, "doomed"));
    rot(&bed, &places);
    tx.rollback().expect("it has no effect any more");
    assert_eq!(told.list().len(), 1, "{:?}", told.list());
    assert_damaged(get(&db, "a", 705));
    put(&db, "a", 5, "mine").expect("it was undone there");
    put(&db, "b", 5, "mine").expect("committed");
    while db.step().expect("a step") == firndb::Progress::Worked {}
    db.checkpoint().expect("taken");
    drop(a);
    db.close().expect("closed");
    rot(&bed, &places);
    let db = opened(&quiet(), &bed);
    assert_eq!(get(&db, "a", 705).expect("readable"), Some(value(705, "first")));
    recovered(&db, false);
    assert_eq!((db.recovery_report().losers, db.recovery_report().losers_left), (1, 0));
    assert_sound(&db);
}

#[test]
fn after_a_return_to_a_savepoint_that_met_damage_a_transaction_can_be_rolled_back_only() {
    let bed = Bed::new(1);
    let (db, a, b) = filled(&quiet(), &bed);
    let mut tx = db.begin();
    tx.put(&b, &key(7), &value(7, "doomed")).expect("written");
    let savepoint = tx.savepoint();
    tx.put(&a, &key(705), &value(705, "doomed")).expect("written");
    push_out(&db);
    let places = places_of(&bed, &value(705, "doomed"));
    rot(&bed, &places);
    assert_damaged(tx.rollback_to(&savepoint));
    let sentence = assert_damaged(tx.put(&b, &key(8), b"no"));
    assert!(sentence.contains("can only be rolled back"), "{sentence}");
    assert_damaged(tx.get(&b, &key(8)));
    assert_damaged(tx.commit());
    assert_eq!(db.work_set_aside().1, 1);
    put(&db, "b", 7, "mine").expect("it was undone there");
    rot(&bed, &places);
    drop((a, b));
    db.close().expect("closed");
    let db = opened(&quiet(), &bed);
    recovered(&db, false);
    assert_eq!(get(&db, "a", 705).expect("readable"), Some(value(705, "first")));
    assert_eq!(get(&db, "b", 7).expect("readable"), Some(value(7, "mine")));
    assert_sound(&db);
}

#[test]
fn a_prepared_transaction_on_a_damaged_page_is_decided_and_undone_when_it_is_mended() {
    let bed = Bed::new(1);
    let (db, a, b) = filled(&quiet(), &bed);
    let mut tx = db.begin();
    tx.put(&a, &key(705), &value(705, "doomed")).expect("written");
    tx.put(&b, &key(7), &value(7, "doomed")).expect("written");
    tx.prepare(b"gid").expect("prepared");
    push_out(&db);
    let places = places_of(&bed, &value(705, "doomed"));
    rot(&bed, &places);
    db.rollback_prepared(b"gid").expect("the decision is one record, and needs no page");
    assert!(db.prepared().is_empty(), "it is decided");
    assert_eq!(db.work_set_aside().1, 1, "what is on the damaged page: {:?}", db.work_set_aside());
    put(&db, "b", 7, "mine").expect("it was undone there");
    drop((a, b));
    db.close().expect("closed");
    rot(&bed, &places);
    let db = opened(&quiet(), &bed);
    assert_eq!((db.recovery_report().prepared, db.recovery_report().losers), (0, 1));
    recovered(&db, false);
    assert_eq!(get(&db, "a", 705).expect("readable"), Some(value(705, "first")));
    assert_eq!(get(&db, "b", 7).expect("readable"), Some(value(7, "mine")));
    assert_sound(&db);
}

#[test]
fn a_rollback_whose_read_fails_is_tried_again() {
    for failures in [1, u64::MAX] {
        let bed = Bed::new(1);
        drop(filled(&quiet(), &bed));
        let plan = FaultPlan::new(0);
        let db = quiet().open_on(bed.faulty(&plan, &Arc::new(AtomicBool::new(false)))).expect("opened");
        recovered(&db, false);
        let a = db.table("a").expect("there");
        let mut tx = db.begin();
        tx.put(&a, &key(705), &value(705, "doomed")).expect("written");
        push_out(&db);
        let when = if failures == 1 { When::Nth(0) } else { When::From(0) };
        let fault = Fault::Fail(DeviceErrorKind::Failed);
        plan.add(FaultRule { calls: Calls::Reads, device: Some("store".to_owned()), when, fault });
        tx.rollback().expect("it has no effect any more");
        assert!(plan.fired() > 0, "a read failed");
        if failures > 1 {
            // A transaction that needs the row tries in vain. Nothing else is refused.
            let error = put(&db, "a", 705, "mine").expect_err("cannot be read");
            assert_eq!(error.kind(), ErrorKind::Failed, "{error}");
            assert!(!error.to_string().contains("opened again"), "{error}");
            put(&db, "b", ROWS - 1, "mine").expect("it is in the buffer");
            plan.heal();
        }
        assert_eq!(get(&db, "a", 705).expect("readable"), Some(value(705, "first")));
        put(&db, "a", 705, "mine").expect("the waiter undoes it");
        assert_eq!(db.work_set_aside().1, 0, "{:?}", db.work_set_aside());
        drop(a);
        db.close().expect("closed");
        let db = opened(&quiet(), &bed);
        assert!(db.recovery_report().clean, "{:?}", db.recovery_report());
        assert_sound(&db);
    }
}

/// Before-images that lie on rotten pages of the undo tree: so readers of their rows get an error,
/// and so do waiters.
#[test]
fn rotten_before_images_concern_the_rows_they_belong_to() {
    let options = quiet().version_bytes(0);
    let bed = Bed::new(1);
    let (db, a, b) = filled(&options, &bed);
    let mut loser = db.begin();
    for i in 0..200 {
        loser.put(&a, &key(i), &value(i, "lost")).expect("written");
    }
    put_all(&db, &b, 0..1, "third");
    // Twice: what was dirty at the last one, and the log before it, are done with.
    db.checkpoint().expect("taken");
    db.checkpoint().expect("taken");
    let bed = {
        let left = bed.duplicate();
        drop(loser);
        left
    };
    const UNDO_TREE: u32 = 2;
    let places = nodes_of(&bed, UNDO_TREE, 0..=0);
    rot(&bed, &places);
    for threads in [false, true] {
        let bed = bed.duplicate();
        look_into(&options, &bed);
        let db = opened(&options.clone().background_threads(threads), &bed);
        let waiting = db.clone();
        // It waits before recovery comes to the loser, or comes when it is set aside.
        let waiter = std::thread::spawn(move || put(&waiting, "a", 0, "mine"));
        recovered(&db, threads);
        let sentence = assert_damaged(waiter.join().expect("no panic"));
        assert!(sentence.contains("locked by transaction"), "{sentence}");
        assert_eq!(db.recovery_report().losers_set_aside, 1, "{:?}", db.recovery_report());
        let sentence = assert_damaged(put(&db, "a", 0, "mine"));
        assert!(sentence.contains("locked by transaction"), "{sentence}");
        assert_damaged(get(&db, "a", 0));
        assert_eq!(get(&db, "a", 700).expect("readable"), Some(value(700, "first")));
        put(&db, "a", 700, "mine").expect("committed");
        for i in 0..300 {
            put(&db, "b", i, "mine").expect("committed");
            if i % 100 == 0 {
                db.checkpoint().expect("taken");
            }
        }
        while !threads && db.step().expect("a step") == firndb::Progress::Worked {}
        db.close().expect("closed");

        rot(&bed, &places);
        let db = opened(&options, &bed);
        recovered(&db, false);
        assert_eq!((db.recovery_report().losers, db.recovery_report().losers_left), (1, 0));
        assert_eq!(get(&db, "a", 0).expect("readable"), Some(value(0, "first")));
        assert_sound(&db);
    }
}

/// A database that crashed with changes of table `a` that the store does not have, and a place on
/// the page of row 700, which is among them.
fn crashed_with_redo() -> (Bed, Vec<usize>) {
    let bed = Bed::new(1);
    let (db, a, _) = filled(&quiet(), &bed);
    put_all(&db, &a, (0..ROWS).step_by(10), "new");
    let left = bed.duplicate();
    let places = places_of(&left, &value(700, "first"));
    (left, places)
}

#[test]
fn a_page_that_cannot_be_redone_stays_as_it_is_until_it_can() {
    let (bed, places) = crashed_with_redo();
    rot(&bed, &places);
    look_into(&quiet(), &bed);
    // Within the budget, over it, and before the opening returns.
    let ways = [quiet(), quiet().recovery_bytes(0), quiet().eager_recovery(true)];
    for (options, threads) in ways.iter().flat_map(|options| [(options, false), (options, true)]) {
        let bed = bed.duplicate();
        let options = options.clone().background_threads(threads);
        let db = opened(&options, &bed);
        recovered(&db, threads);
        assert_eq!(db.recovery_report().redo.pages_set_aside, 1, "{:?}", db.recovery_report());
        assert!(db.work_set_aside().0[0].cause.contains("page"), "{:?}", db.work_set_aside());
        assert_damaged(get(&db, "a", 700));
        assert_damaged(put(&db, "a", 700, "mine"));
        assert_eq!(get(&db, "a", 0).expect("readable"), Some(value(0, "new")));
        put(&db, "a", 0, "mine").expect("committed");
        put(&db, "b", 0, "mine").expect("committed");
        let directory = tempfile::tempdir().expect("a directory");
        let copy = directory.path().join("copy");
        assert_damaged(db.backup(&copy, &mut |_| std::ops::ControlFlow::Continue(())));
        db.close().expect("closed");
        let again = opened(&options, &bed);
        recovered(&again, threads);
        assert_damaged(get(&again, "a", 700));
        again.close().expect("closed");

        rot(&bed, &places);
        let db = opened(&quiet(), &bed);
        assert_eq!(get(&db, "a", 700).expect("readable"), Some(value(700, "new")));
        assert_eq!(get(&db, "a", 0).expect("readable"), Some(value(0, "mine")));
        db.finish_recovery().expect("finished");
        assert_sound(&db);
        db.close().expect("closed");
        assert!(opened(&quiet(), &bed).recovery_report().clean);
    }
}

/// The image can be read again while the database runs: readers of the page get it redone, from
/// memory, or if its changes took more than recovery may use, from the log.
#[test]
fn a_page_that_can_be_read_again_is_redone_when_it_is_asked_for() {
    let (bed, places) = crashed_with_redo();
    for options in [quiet(), quiet().recovery_bytes(0)] {
        let bed = bed.duplicate();
        rot(&bed, &places);
        let db = opened(&options, &bed);
        recovered(&db, false);
        assert_damaged(get(&db, "a", 700));
        // What it needs of the log stays there, whatever is written meanwhile.
        for round in 0..3 {
            put(&db, "b", 1, &format!("round {round}")).expect("committed");
            db.checkpoint().expect("taken");
        }
        rot(&bed, &places);
        assert_eq!(get(&db, "a", 700).expect("readable"), Some(value(700, "new")));
        assert_eq!(db.recovery_report().redo.pages_left, 0);
        assert_sound(&db);
        db.close().expect("closed");
        let db = opened(&quiet(), &bed);
        assert!(db.recovery_report().clean);
        assert_eq!(get(&db, "a", 700).expect("readable"), Some(value(700, "new")));
    }
}

/// Cause: a page whose changes took more memory than recovery may use was damaged until the next
/// opening if the one read of it failed. Effect: a device that was away for a moment when the
/// database was opened took all such pages with it.
#[test]
fn reads_that_failed_at_the_opening_damage_nothing() {
    let (bed, _) = crashed_with_redo();
    let leaves = nodes_of(&bed, 16, 0..=0);
    for threads in [false, true] {
        let bed = bed.duplicate();
        let before = bytes_of(&bed);
        rot(&bed, &leaves);
        let options = quiet().recovery_bytes(0).background_threads(threads);
        let db = opened(&options, &bed);
        recovered(&db, threads);
        let set_aside = db.recovery_report().redo.pages_set_aside;
        assert!(set_aside > 50 && set_aside == db.work_set_aside().1, "{:?}", db.recovery_report());
        heal(&bed, &leaves, &before);
        let reads = || db.io_counts().logs.iter().map(|log| log.reads.ops).sum::<u64>();
        let before = reads();
        // All at once, each from another end.
        std::thread::scope(|scope| {
            for part in 0..4 {
                let db = &db;
                scope.spawn(move || {
                    for i in (0..ROWS).map(|i| (i + part * ROWS / 4) % ROWS) {
                        let what = if i.is_multiple_of(10) { "new" } else { "first" };
                        assert_eq!(get(db, "a", i).expect("readable"), Some(value(i, what)));
                    }
                });
            }
        });
        assert!(
            reads() - before < 10 * set_aside,
            "the log was read once for many pages: {}",
            reads() - before
        );
        assert_eq!((db.recovery_report().redo.pages_left, db.work_set_aside()), (0, (Vec::new(), 0)));
        assert_sound(&db);
        db.close().expect("closed");
        let db = opened(&quiet(), &bed);
        assert!(db.recovery_report().clean, "{:?}", db.recovery_report());
        assert_eq!(all(&db, "a").len() as u32, ROWS);
    }
}

/// Cause: what was pending of a page did not end when the page was freed. Effect: backups were
/// refused, and the database was not closed cleanly, because of a page that no table had any more.
#[test]
fn a_page_that_is_freed_keeps_nothing_waiting() {
    let (bed, places) = crashed_with_redo();
    rot(&bed, &places);
    for options in [quiet(), quiet().recovery_bytes(0)] {
        let bed = bed.duplicate();
        let db = opened(&options, &bed);
        recovered(&db, false);
        assert_eq!(db.recovery_report().redo.pages_set_aside, 1);
        db.drop_table("a").expect("dropped");
        while db.step().expect("a step") == firndb::Progress::Worked {}
        let redo = db.recovery_report().redo;
        assert_eq!((redo.pages_set_aside, redo.pages_left), (0, 0), "{redo:?}");
        assert!(db.work_set_aside().0.iter().all(|entry| !entry.work.contains("repeating")), "{redo:?}");
        // A crash now finds the page freed.
        let left = bed.duplicate();
        let directory = tempfile::tempdir().expect("a directory");
        db.backup(directory.path().join("copy"), &mut |_| std::ops::ControlFlow::Continue(())).expect("free");
        assert_sound(&db);
        db.close().expect("closed");
        let db = opened(&quiet(), &bed);
        assert!(db.recovery_report().clean, "{:?}", db.recovery_report());
        db.close().expect("closed");
        let db = opened(&options, &left);
        recovered(&db, false);
        assert_eq!(db.recovery_report().redo.pages_left, 0, "{:?}", db.recovery_report());
        assert_sound(&db);
    }
}

/// No log is kept for it for ever; and what is given up is not taken for the older version that is
/// stored.
#[test]
fn a_page_that_cannot_be_redone_is_given_up_when_the_log_is_full() {
    let (bed, places) = crashed_with_redo();
    rot(&bed, &places);
    for (options, threads) in [(quiet(), false), (quiet(), true), (quiet().recovery_bytes(0), false)] {
        let bed = bed.duplicate();
        let options = options.background_threads(threads);
        let db = opened(&options, &bed);
        recovered(&db, threads);
        let begin = db.statistics().log_end;
        let b = db.table("b").expect("there");
        let long = vec![7; 600];
        let mut i = 0;
        while db.statistics().log_end.since(begin) < 20 << 20 {
            i += 1;
            let rows = (i * 20..i * 20 + 20).map(|row| key(row % 400));
            db.transact(|tx| rows.clone().try_for_each(|key| tx.put(&b, &key, &long).map(drop)))
                .unwrap_or_else(|error| panic!("write {i}: {error}"));
        }
        drop(b);
        assert_eq!(db.recovery_report().redo.pages_set_aside, 0, "{:?}", db.recovery_report());
        assert_damaged(get(&db, "a", 700));
        db.close().expect("closed");
        // The stored image is whole once more. It is the one from before the changes that were
        // given up.
        rot(&bed, &places);
        let db = opened(&options, &bed);
        assert!(db.recovery_report().clean, "{:?}", db.recovery_report());
        let sentence = assert_damaged(get(&db, "a", 700));
        assert!(sentence.contains("given up") || sentence.contains("give them up"), "{sentence}");
        assert_eq!(get(&db, "a", 0).expect("readable"), Some(value(0, "new")));
        let report = db.check(&mut |_| {}).expect("can be checked");
        assert!(!report.is_clean());
        db.close().expect("closed");
    }
}

/// A page made since the last checkpoint is in the log as a whole.
#[test]
fn a_page_that_the_log_has_whole_needs_no_image() {
    let bed = Bed::new(1);
    let (db, a, _) = filled(&quiet(), &bed);
    put_all(&db, &a, ROWS..ROWS + 300, "new");
    // Written, but not by a checkpoint.
    for _ in 0..3 {
        assert_eq!(all(&db, "b").len() as u32, ROWS);
    }
    let left = bed.duplicate();
    let places = places_of(&left, &value(ROWS + 100, "new"));
    rot(&left, &places);
    // Within the budget, and over it.
    for options in [quiet(), quiet().recovery_bytes(0)] {
        let db = opened(&options, &left.duplicate());
        assert_eq!(get(&db, "a", ROWS + 100).expect("readable"), Some(value(ROWS + 100, "new")));
        recovered(&db, false);
        assert_eq!(db.recovery_report().redo.pages_left, 0);
        assert_eq!(all(&db, "a").len() as u32, ROWS + 300);
        assert_sound(&db);
    }
}

/// The root of a tree that grows is written whole by one record. What came before that is not
/// needed.
#[test]
fn a_page_that_is_overwritten_needs_no_image() {
    let bed = Bed::new(1);
    let (db, ..) = filled(&quiet(), &bed);
    let c = db.create_table("c").expect("created");
    put_all(&db, &c, 0..3, "first");
    db.checkpoint().expect("taken");
    db.checkpoint().expect("taken");
    put_all(&db, &c, 3..200, "new");
    let left = bed.duplicate();
    rot(&left, &nodes_of(&left, 20, 0..=9));
    // Within the budget, and over it.
    for options in [quiet(), quiet().recovery_bytes(0)] {
        let left = left.duplicate();
        let db = opened(&options, &left);
        recovered(&db, false);
        assert_eq!(db.work_set_aside().0, []);
        assert_eq!(get(&db, "c", 0).expect("readable"), Some(value(0, "first")));
        assert_eq!(all(&db, "c").len(), 200);
        assert_sound(&db);
        db.close().expect("closed");
        assert_eq!(all(&opened(&quiet(), &left), "c").len(), 200);
    }
}

const CATALOG: u32 = 1;

#[test]
fn a_damaged_leaf_of_the_catalog_concerns_the_tables_defined_there() {
    let bed = Bed::new(1);
    let (db, _, b) = filled(&quiet(), &bed);
    for number in 0..60 {
        db.create_table(&format!("table {number}")).expect("created");
    }
    db.drop_table("table 59").expect("dropped");
    // It is to be undone in a table that no catalog will list, and in one that is there.
    let mut loser = db.begin();
    loser.put(&db.table("table 30").expect("there"), &key(1), &value(1, "lost")).expect("written");
    loser.put(&b, &key(1), &value(1, "lost")).expect("written");
    put_all(&db, &b, 0..1, "third");
    db.checkpoint().expect("taken");
    let bed = {
        let left = bed.duplicate();
        drop(loser);
        left
    };
    let definition = places_of(&bed, b"table 30");
    rot(&bed, &definition);
    for threads in [false, true] {
        let bed = bed.duplicate();
        look_into(&quiet(), &bed);
        let options = quiet().background_threads(threads);
        let db = opened(&options, &bed);
        recovered(&db, threads);
        let there = db.table_names().len();
        assert!(there > 30 && there < 61, "{there} of 61 tables");
        assert_damaged(db.table("table 30").map(drop));
        assert_damaged(db.create_table("table 30").map(drop));
        assert_damaged(db.rename_table("b", "table 30"));
        assert_eq!(db.recovery_report().losers_set_aside, 1);
        put(&db, "b", 1, "mine").expect("committed");
        db.drop_table("table 58").expect("dropped");
        while !threads && db.step().expect("a step") == firndb::Progress::Worked {}
        db.close().expect("closed");

        rot(&bed, &definition);
        let db = opened(&options, &bed);
        recovered(&db, threads);
        assert_eq!(db.table_names().len(), 60);
        assert_eq!((db.recovery_report().losers, db.recovery_report().losers_left), (1, 0));
        assert_eq!(get(&db, "table 30", 1).expect("readable"), None, "what did not commit is not there");
        db.close().expect("closed");
        assert_sound(&opened(&quiet(), &bed));
    }
    let root = nodes_of(&bed, CATALOG, 1..=9);
    rot(&bed, &root);
    let error = quiet().open_on(bed.plain()).expect_err("no table can be found");
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.to_string().contains("the catalog cannot be read"), "{error}");
}
