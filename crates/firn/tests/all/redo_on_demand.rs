//! After a crash the database takes transactions before its pages are redone: each is redone when
//! it is touched, the rest in the background, and clients see no difference.
//!
//! Databases are opened without threads of their own, so that a test says when background work is
//! done.

use crate::support::bed::Bed;
use crate::support::caches;
use firndb::device::Device;
use firndb::{Database, ErrorKind, Options, Progress, Table};
use firndb_base::rng::Rng;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Pages of 1 KiB, and a log that takes no checkpoint by itself before it is a sixth full.
fn quiet() -> Options {
    Options::new()
        .page_size(1024)
        .buffer_bytes(512 << 10)
        .log(|log| log.bytes(16 << 20).devices(1))
        .tuning(|tuning| tuning.checkpoint_log_bytes(2 << 20))
        .background_threads(false)
}

fn key(i: u32) -> Vec<u8> {
    format!("key {i:06}").into_bytes()
}
fn value(i: u32, version: u32) -> Vec<u8> {
    format!("{version} of {i} ").repeat(8).into_bytes()
}

const ROWS: u32 = 4000;

/// A database with rows on some hundred pages, all written; then changes of every tenth row that no
/// page in the store has, and two transactions that never end. What a crash leaves of it, and what
/// is committed.
fn crashed(options: &Options) -> (Bed, Rows) {
    let bed = Bed::new(1);
    let db = options.clone().create_on(bed.plain()).expect("created");
    let table = db.create_table("t").expect("created");
    let mut rows = Rows::new();
    let mut write = |tx_rows: &[(u32, u32)]| {
        db.transact(|tx| {
            tx_rows.iter().try_for_each(|&(i, v)| tx.put(&table, &key(i), &value(i, v)).map(drop))
        })
        .expect("committed");
        rows.extend(tx_rows.iter().map(|&(i, v)| (key(i), value(i, v))));
    };
    for from in (0..ROWS).step_by(200) {
        write(&(from..from + 200).map(|i| (i, 0)).collect::<Vec<_>>());
    }
    db.checkpoint().expect("taken");
    let mut first = db.begin();
    first.put(&table, &key(15), b"never").expect("written");
    first.delete(&table, &key(25)).expect("written");
    first.insert(&table, b"key of nobody", b"never").expect("written");
    let mut second = db.begin();
    second.put(&table, &key(2005), b"never").expect("written");
    for from in (0..ROWS).step_by(200) {
        write(&(from..from + 200).step_by(10).map(|i| (i, 1)).collect::<Vec<_>>());
    }
    let left = bed.duplicate();
    drop((first, second));
    drop((table, db));
    (left, rows)
}

fn opened(options: &Options, bed: &Bed) -> (Database, Table) {
    let db = options.clone().open_on(bed.plain()).unwrap_or_else(|error| panic!("does not open: {error}"));
    let table = db.table("t").expect("there");
    (db, table)
}

fn all(db: &Database, table: &Table) -> Rows {
    let mut tx = db.snapshot();
    let mut cursor = tx.scan(table, firndb::KeyRange::all(), firndb::Direction::Forward);
    let mut rows = Rows::new();
    while let Some((key, value)) = cursor.next(&mut tx).expect("readable") {
        rows.insert(key.to_vec(), value.to_vec());
    }
    rows
}

fn assert_sound(db: &Database) {
    let report = db.check(&mut |_| {}).expect("can be checked");
    assert_eq!(report.damage, Vec::<String>::new());
    assert_eq!(report.leaked_pages, 0);
}

#[test]
fn the_first_commit_comes_before_any_background_redo() {
    let (bed, mut rows) = crashed(&quiet());
    let (db, table) = opened(&quiet(), &bed);
    let answered = db.recovery_report();
    assert!(answered.redo.pages_pending > 300, "{answered:?}");
    db.transact(|tx| tx.put(&table, &key(3000), b"first").map(drop)).expect("committed");
    rows.insert(key(3000), b"first".to_vec());
    let report = db.recovery_report();
    assert!(!report.complete && report.losers_left == 2, "{report:?}");
    assert_eq!(report.redo.pages_in_background, 0);
    // The catalog's page, the table's root and the way down from there.
    assert!(report.redo.pages_on_demand <= 6, "{report:?}");
    assert!(report.redo.pages_left > 300, "{report:?}");
    // And it survives a crash at this moment, with redo as far as it was.
    let (again, table_again) = opened(&quiet(), &bed.duplicate());
    assert_eq!(all(&again, &table_again), rows);
    drop((again, table_again));

    db.finish_recovery().expect("finished");
    let report = db.recovery_report();
    assert!(report.complete && report.losers_left == 0 && report.redo.pages_left == 0, "{report:?}");
    assert!(report.redo.pages_in_background > 250, "{report:?}");
    let redo = report.redo;
    assert_eq!(redo.pages_on_demand + redo.pages_in_background + redo.pages_obsolete, redo.pages_pending);
    assert_eq!(redo.pages_from_store, redo.pages_on_demand + redo.pages_in_background, "there is no cache");
    assert_eq!(all(&db, &table), rows);
    assert_sound(&db);
}

#[test]
fn a_page_touched_in_any_order_shows_what_was_committed() {
    let few_frames = |options: Options| options.buffer_bytes(64 << 10);
    let ways: [fn(Options) -> Options; 4] = [
        |options| options,
        few_frames,
        |options| caches::roomy(few(options)),
        |options| caches::small(few(options)),
    ];
    fn few(options: Options) -> Options {
        options.buffer_bytes(64 << 10)
    }
    for (way, options) in ways.into_iter().map(|change| change(quiet())).enumerate() {
        let (bed, rows) = crashed(&options);
        for seed in 0..3u64 {
            let (mut rows, bed) = (rows.clone(), bed.duplicate());
            let (db, table) = opened(&options, &bed);
            let mut rng = Rng::new(seed);
            for turn in 0..1500 {
                let i = rng.below(u64::from(ROWS)) as u32;
                match rng.below(20) {
                    0 => {
                        db.transact(|tx| tx.put(&table, &key(i), &value(i, turn)).map(drop))
                            .expect("committed");
                        rows.insert(key(i), value(i, turn));
                    }
                    1 if rng.one_in(8) => drop(db.step().expect("a step")),
                    _ => {
                        let found = db.snapshot().get(&table, &key(i)).expect("readable");
                        assert_eq!(
                            found.as_ref(),
                            rows.get(&key(i)),
                            "way {way}, seed {seed}, turn {turn}, row {i}"
                        );
                    }
                }
            }
            let report = db.recovery_report();
            assert!(report.redo.pages_on_demand > if way == 0 { 50 } else { 5 }, "{report:?}");
            assert_eq!(all(&db, &table), rows, "way {way}, seed {seed}");
            assert_sound(&db);
            drop(table);
            db.close().expect("closed");
            let (db, table) = opened(&options, &bed);
            assert!(db.recovery_report().clean);
            assert_eq!(all(&db, &table), rows, "way {way}, seed {seed}, in the next life");
        }
    }
}

#[test]
fn rows_of_losers_show_the_version_before_and_are_locked_until_it_is_back() {
    let (bed, rows) = crashed(&quiet());
    let (db, table) = opened(&quiet(), &bed);
    assert_eq!(all(&db, &table), rows);
    assert_eq!(db.recovery_report().losers_left, 2, "reading waits for nobody");
    // Without threads, who would wait for a loser rolls it back.
    db.transact(|tx| tx.put(&table, &key(15), b"mine").map(drop)).expect("committed");
    assert_eq!(db.recovery_report().losers_left, 1);
    assert_eq!(db.snapshot().get(&table, b"key of nobody").expect("readable"), None);
    db.transact(|tx| tx.insert(&table, b"key of nobody", b"mine")).expect("the key is free");
    db.transact(|tx| tx.delete(&table, &key(2005)).map(drop)).expect("committed");
    let report = db.recovery_report();
    assert_eq!((report.losers, report.losers_left), (2, 0));
    assert_sound(&db);
}

/// With threads: a writer waits as for any lock.
#[test]
fn writers_get_the_rows_of_losers_when_these_are_rolled_back() {
    let (bed, mut rows) = crashed(&quiet());
    let (db, table) = opened(&quiet().background_threads(true), &bed);
    std::thread::scope(|scope| {
        for i in [15u32, 25, 2005] {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                db.transact(|tx| tx.put(table, &key(i), b"after it").map(drop)).expect("committed")
            });
        }
        for seed in 0..2 {
            let (db, table, rows) = (&db, &table, &rows);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..500 {
                    let i = 10 * rng.below(u64::from(ROWS) / 10) as u32;
                    let found = db.snapshot().get(table, &key(i)).expect("readable");
                    assert_eq!(found.as_ref(), rows.get(&key(i)));
                }
            });
        }
    });
    rows.extend([15u32, 25, 2005].map(|i| (key(i), b"after it".to_vec())));
    db.finish_recovery().expect("finished");
    assert_eq!(all(&db, &table), rows);
    assert!(db.recovery_report().complete);
    assert_sound(&db);
}

#[test]
fn a_checkpoint_in_the_middle_keeps_the_log_of_what_is_pending() {
    for cache in [false, true] {
        let options = if cache { caches::roomy(quiet()) } else { quiet() };
        let (bed, mut rows) = crashed(&options);
        let (db, table) = opened(&options, &bed);
        let redo_start = db.statistics().checkpoint.1;
        let mut at = redo_start;
        let mut lives = 0;
        for round in 0u32.. {
            for i in 0..20 {
                let i = round * 31 + i * 7 % ROWS;
                db.transact(|tx| tx.put(&table, &key(i), &value(i, 9)).map(drop)).expect("committed");
                rows.insert(key(i), value(i, 9));
            }
            db.checkpoint().expect("taken");
            let now = db.statistics().checkpoint.1;
            assert!(now >= at, "the redo start never goes back");
            at = now;
            // What a crash leaves now is recovered from that checkpoint.
            let left = bed.duplicate();
            let (again, table_again) = opened(&options, &left);
            assert_eq!(all(&again, &table_again), rows, "round {round}");
            drop(table_again);
            drop(again);
            lives += 1;
            if db.recovery_report().complete {
                break;
            }
            let left = db.recovery_report().redo.pages_left;
            assert!(
                left == 0 || at < db.statistics().checkpoint.0,
                "what is pending lies before the checkpoint"
            );
            db.step().expect("a step");
        }
        assert!(lives > 4, "recovery took several steps");
        assert!(at > redo_start);
        assert_sound(&db);
    }
}

#[test]
fn log_that_fills_meanwhile_is_freed_by_redoing_what_holds_it() {
    let options = quiet().log(|log| log.bytes(3 << 20)).tuning(|tuning| tuning.checkpoint_log_bytes(1 << 19));
    let (bed, mut rows) = crashed(&options);
    let (db, table) = opened(&options, &bed);
    assert!(db.recovery_report().redo.pages_pending > 0);
    // Several times the log, and no background step.
    let begin = db.statistics().log_end;
    let mut i = 0;
    while db.statistics().log_end.since(begin) < 9 << 20 {
        i += 1;
        let (k, v) = (key(i % 500), value(i, 2).repeat(4));
        db.transact(|tx| tx.put(&table, &k, &v).map(drop))
            .unwrap_or_else(|error| panic!("write {i}: {error}"));
        rows.insert(k, v);
    }
    assert_eq!(db.recovery_report().redo.pages_left, 0);
    assert_eq!(all(&db, &table), rows);
    assert_sound(&db);
}

#[test]
fn what_does_not_fit_into_memory_is_redone_before_the_answer() {
    let (bed, rows) = crashed(&quiet());
    for bytes in [0, 4 << 10, 30 << 10] {
        let options = quiet().tuning(|tuning| tuning.recovery_bytes(bytes));
        let (db, table) = opened(&options, &bed.duplicate());
        let report = db.recovery_report();
        assert!(report.redone > 0, "{report:?}");
        assert!(report.redo.pages_pending <= bytes as u64 / 128, "{report:?}");
        assert!(bytes == 0 || report.redo.pages_pending > 0, "{report:?}");
        assert_eq!(all(&db, &table), rows, "{bytes} bytes");
        assert_sound(&db);
    }
}

#[test]
fn all_of_it_comes_before_the_answer_if_it_is_asked_for() {
    let (bed, rows) = crashed(&quiet());
    let (db, table) = opened(&quiet().tuning(|tuning| tuning.eager_recovery(true)), &bed);
    let report = db.recovery_report();
    assert!(
        report.complete && report.losers == 2 && report.losers_left == 0 && report.redone > 300,
        "{report:?}"
    );
    assert_eq!(report.redo.pages_left, 0);
    assert_eq!(db.step().expect("a step"), Progress::Worked, "of maintenance");
    assert_eq!(all(&db, &table), rows);
    assert_sound(&db);
}

/// A recovery that is never completed is begun again and again, from the same place.
#[test]
fn crashes_one_after_the_other_find_the_same_log_and_in_the_end_recovery_is_completed_first() {
    let (mut bed, mut rows) = crashed(&quiet());
    for life in 0u32..18 {
        let (db, table) = opened(&quiet(), &bed);
        let report = db.recovery_report();
        assert_eq!(report.losers, 2, "life {life}: {report:?}");
        assert_eq!(report.complete, life == 17, "life {life}: {report:?}");
        let (k, v) = (key(life * 100), value(life, 3));
        db.transact(|tx| tx.put(&table, &k, &v).map(drop)).expect("committed");
        rows.insert(k, v);
        let left = bed.duplicate();
        drop((table, db));
        bed = left;
    }
    let (db, table) = opened(&quiet(), &bed);
    assert_eq!(all(&db, &table), rows);
    assert_sound(&db);
}

#[test]
fn closing_finishes_recovery() {
    let (bed, rows) = crashed(&quiet());
    let (db, table) = opened(&quiet(), &bed);
    drop(table);
    db.close().expect("closed");
    let (db, table) = opened(&quiet(), &bed);
    let report = db.recovery_report();
    assert!(report.clean && report.complete && report.losers == 0, "{report:?}");
    assert!(report.log_bytes < 4096, "{report:?}");
    assert_eq!(all(&db, &table), rows);
}

#[test]
fn recovery_tells_what_it_does() {
    let (bed, _) = crashed(&quiet());
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let listener = told.clone();
    let options = quiet().on_recovery(move |step| listener.lock().expect("no panic").push(step));
    let (db, _table) = opened(&options, &bed);
    let before = told.lock().expect("no panic").len();
    assert!(told.lock().expect("no panic").iter().all(|step| !step.in_background));
    db.finish_recovery().expect("finished");
    let told = &told.lock().expect("no panic")[before..];
    let of = |phase| told.iter().filter(|step| step.phase == phase).copied().collect::<Vec<_>>();
    assert!(told.iter().all(|step| step.in_background && step.done <= step.total));
    let undo = of(firndb::RecoveryPhase::Undo);
    assert_eq!(undo.iter().map(|step| (step.done, step.total)).collect::<Vec<_>>(), [(1, 2), (2, 2)]);
    let redo = of(firndb::RecoveryPhase::Redo);
    assert!(redo.len() > 3 && redo.is_sorted_by_key(|step| step.done), "{redo:?}");
    assert!(redo.last().is_some_and(|step| step.done == step.total), "{redo:?}");
}

/// Where the store holds the page with this row as it was at the checkpoint, and a bit of it
/// turned.
fn rot_page_of(bed: &Bed, row: u32) {
    let needle = key(row)[6..].to_vec();
    let wanted = [needle, value(row, 0)].map(|part| part.to_vec());
    let mut bytes = vec![0; bed.store.len() as usize];
    bed.store.read(0, &mut bytes).expect("memory");
    let at = bytes
        .windows(wanted[1].len())
        .position(|window| window == wanted[1])
        .expect("the row is in the store");
    let block = at / 512 * 512;
    let mut sector = bytes[block..block + 512].to_vec();
    sector[at - block] ^= 1;
    bed.store.write(block as u64, &sector, firndb::device::Durability::Durable).expect("memory");
}

#[test]
fn damage_found_late_concerns_its_page_and_serves_nothing_wrong() {
    let (bed, rows) = crashed(&quiet());
    rot_page_of(&bed, 2110);
    // Before the opening returns, if the option says so.
    let eager = quiet().tuning(|tuning| tuning.eager_recovery(true));
    let db = eager.open_on(bed.duplicate().plain()).expect("it opens all the same");
    assert!(db.recovery_report().complete && db.recovery_report().redo.pages_set_aside == 1);
    drop(db);

    let (db, table) = opened(&quiet(), &bed);
    for i in (0..1000).step_by(10) {
        assert_eq!(db.snapshot().get(&table, &key(i)).expect("readable").as_ref(), rows.get(&key(i)));
    }
    let error = db.snapshot().get(&table, &key(2110)).expect_err("damaged");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(error.to_string().contains("page "), "no page is named: {error}");
    db.finish_recovery().expect("but for that page");
    let report = db.recovery_report();
    assert!(report.complete && report.redo.pages_left == 1 && report.redo.pages_set_aside == 1, "{report:?}");
    assert_eq!(db.work_set_aside().1, 1, "{:?}", db.work_set_aside());
    let redo_start = db.statistics().checkpoint.1;
    db.transact(|tx| tx.put(&table, &key(1), &value(1, 0)).map(drop)).expect("everything else goes on");
    db.checkpoint().expect("taken");
    assert_eq!(db.statistics().checkpoint.1, redo_start, "its log is kept");
    drop(table);
    db.close().expect("closed");
    // Nothing of the log was given up, so a mended page can be redone.
    let (db, table) = opened(&quiet().tuning(|tuning| tuning.eager_recovery(true)), &bed.duplicate());
    let error = db.snapshot().get(&table, &key(2110)).expect_err("damaged");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    rot_back(&bed, 2110);
    let (db, table) = opened(&quiet(), &bed);
    assert_eq!(all(&db, &table), rows);
    assert_sound(&db);
}

/// Turns the bit back.
fn rot_back(bed: &Bed, row: u32) {
    let mut bytes = vec![0; bed.store.len() as usize];
    bed.store.read(0, &mut bytes).expect("memory");
    let mut wanted = value(row, 0);
    wanted[0] ^= 1;
    let at = bytes.windows(wanted.len()).position(|window| window == wanted).expect("it was turned");
    let block = at / 512 * 512;
    let mut sector = bytes[block..block + 512].to_vec();
    sector[at - block] ^= 1;
    bed.store.write(block as u64, &sector, firndb::device::Durability::Durable).expect("memory");
}

/// A flash cache that survived: most pages to be redone are found there.
#[test]
fn pages_are_redone_from_the_flash_cache() {
    let options = caches::roomy(quiet().buffer_bytes(64 << 10)).cache(|cache| cache.bytes(4 << 20));
    let (bed, rows) = crashed(&options);
    let (db, table) = opened(&options, &bed);
    db.finish_recovery().expect("finished");
    let redo = db.recovery_report().redo;
    assert!(redo.pages_from_cache > 0, "{redo:?}");
    assert!(redo.pages_from_cache * 100 >= 98 * (redo.pages_from_cache + redo.pages_from_store), "{redo:?}");
    assert_eq!(all(&db, &table), rows);
    assert_sound(&db);
}

/// No thread sees a page between its read and its redo, however many read it at the same moment.
#[test]
fn threads_that_ask_for_one_page_at_once_all_see_it_redone() {
    for round in 0..4 {
        let (bed, rows) = crashed(&quiet().buffer_bytes(64 << 10));
        let (db, table) = opened(&quiet().buffer_bytes(128 << 10), &bed);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (db, table, over, rows) = (&db, &table, &over, &rows);
            let readers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(move || {
                        let mut rng = Rng::new(round);
                        for _ in 0..1000 {
                            let i = rng.below(u64::from(ROWS)) as u32;
                            let found = db.snapshot().get(table, &key(i)).expect("readable");
                            assert_eq!(found.as_ref(), rows.get(&key(i)), "row {i}");
                        }
                    })
                })
                .collect();
            scope.spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    db.step().expect("a step");
                }
            });
            readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
            over.store(true, Ordering::SeqCst);
        });
        assert_sound(&db);
    }
}

/// Finding the log's end reads it; analysis has it from memory, as far as the budget goes.
#[test]
fn the_log_is_read_once_if_it_fits_into_memory() {
    let (bed, rows) = crashed(&quiet());
    let (db, table) = opened(&quiet(), &bed.duplicate());
    let report = db.recovery_report();
    assert!(report.scan.log_reads > 1 && report.records > 400, "{report:?}");
    assert_eq!(report.analysis.log_reads, 0, "{report:?}");
    assert_eq!(all(&db, &table), rows);
    drop((db, table));

    let small = quiet().tuning(|tuning| tuning.recovery_bytes(16 << 10));
    let (db, table) = opened(&small, &bed);
    let report = db.recovery_report();
    assert!(report.analysis.log_reads > 0, "{report:?}");
    assert_eq!(all(&db, &table), rows);
    assert_sound(&db);
}

/// Takes the checkpoint that is due: returns the log's end before it, and where redo would start
/// after it.
fn after_a_checkpoint(options: &Options) -> (firndb_base::Lsn, firndb_base::Lsn) {
    let bed = Bed::new(1);
    let options = options.clone().tuning(|tuning| tuning.checkpoint_log_bytes(256 << 10));
    let db = options.create_on(bed.plain()).expect("created");
    let table = db.create_table("t").expect("created");
    let mut checkpoints = 0;
    for i in 0.. {
        let (last, end) = (db.statistics().checkpoint.0, db.statistics().log_end);
        while db.step().expect("works") == Progress::Worked {}
        if db.statistics().checkpoint.0 != last {
            checkpoints += 1;
        }
        if checkpoints == 3 {
            return (end, db.statistics().checkpoint.1);
        }
        db.transact(|tx| tx.put(&table, &key(i % 300), &value(i, 1)).map(drop)).expect("committed");
    }
    unreachable!("a checkpoint becomes due");
}

#[test]
fn a_checkpoint_into_a_flash_cache_leaves_nothing_to_redo_and_one_without_an_interval() {
    let (end, redo_start) = after_a_checkpoint(&caches::roomy(quiet()).cache(|cache| cache.bytes(4 << 20)));
    assert!(redo_start >= end, "redo would start at {redo_start}, and {end} was the end before");
    for options in [quiet(), caches::through(quiet())] {
        let (end, redo_start) = after_a_checkpoint(&options);
        assert!(redo_start.0 + (200 << 10) < end.0, "a page changed all the time is written once in two");
    }
}
