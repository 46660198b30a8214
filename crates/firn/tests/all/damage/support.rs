//! What the tests of damage share: a database with two tables, and bits that rot and heal.
//!
//! Each test runs without background threads, and with them where they have a part in it.

use crate::support::bed::Bed;
use firndb::{Database, Direction, DumpWhat, Error, ErrorKind, KeyRange, Options, Progress, SetAside, Table};
use firndb_testkit::bytes::{contents, flip};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Pages of 1 KiB, and a buffer of a few hundred.
pub fn quiet() -> Options {
    Options::new()
        .page_size(1024)
        .buffer_bytes(256 << 10)
        .log(|log| log.bytes(8 << 20).devices(1))
        .tuning(|tuning| tuning.checkpoint_log_bytes(1 << 20))
        .background_threads(false)
}

pub fn key(i: u32) -> Vec<u8> {
    format!("key {i:06}").into_bytes()
}

pub fn value(i: u32, what: &str) -> Vec<u8> {
    format!("{what} of {i} ").repeat(6).into_bytes()
}

pub const ROWS: u32 = 1500;

pub fn put_all(db: &Database, table: &Table, rows: impl Iterator<Item = u32>, what: &str) {
    let rows: Vec<u32> = rows.collect();
    for some in rows.chunks(100) {
        db.transact(|tx| some.iter().try_for_each(|&i| tx.put(table, &key(i), &value(i, what)).map(drop)))
            .expect("committed");
    }
}

/// A database with tables `a` and `b`, all of it in the store.
pub fn filled(options: &Options, bed: &Bed) -> (Database, Table, Table) {
    let db = options.clone().create_on(bed.plain()).expect("created");
    let (a, b) = (db.create_table("a").expect("created"), db.create_table("b").expect("created"));
    put_all(&db, &a, 0..ROWS, "first");
    put_all(&db, &b, 0..ROWS, "second");
    db.checkpoint().expect("taken");
    (db, a, b)
}

pub fn opened(options: &Options, bed: &Bed) -> Database {
    options.clone().open_on(bed.plain()).unwrap_or_else(|error| panic!("does not open: {error}"))
}

pub fn get(db: &Database, table: &str, i: u32) -> Result<Option<Vec<u8>>, Error> {
    let table = db.table(table)?;
    db.snapshot().get(&table, &key(i))
}

pub fn put(db: &Database, table: &str, i: u32, what: &str) -> Result<(), Error> {
    let table = db.table(table)?;
    db.transact(|tx| tx.put(&table, &key(i), &value(i, what)).map(drop))
}

pub fn all(db: &Database, table: &str) -> Rows {
    let table = db.table(table).expect("there");
    let mut tx = db.snapshot();
    let mut cursor = tx.scan(&table, KeyRange::all(), Direction::Forward);
    let mut rows = Rows::new();
    while let Some((key, value)) = cursor.next(&mut tx).expect("readable") {
        rows.insert(key.to_vec(), value.to_vec());
    }
    rows
}

/// Pushes everything out of the buffer but this table: row by row, since a scan leaves the other
/// pages where they are.
pub fn push_out_but(db: &Database, table: &str) {
    for i in (0..3).flat_map(|_| 0..ROWS) {
        get(db, table, i).expect("readable").expect("there");
    }
}

/// Turns a bit of the store at each of these offsets; done twice, nothing has changed.
pub fn rot(bed: &Bed, offsets: &[usize]) {
    assert!(!offsets.is_empty(), "there is something to rot");
    offsets.iter().for_each(|at| flip(&*bed.store, *at as u64, 0));
}

/// Turns the bits back that [`rot`] turned in a store of `before`, but for places that were written
/// since.
pub fn heal(bed: &Bed, offsets: &[usize], before: &[u8]) {
    let now = contents(&*bed.store);
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
pub fn places_of(bed: &Bed, wanted: &[u8]) -> Vec<usize> {
    let bytes = contents(&*bed.store);
    bytes
        .windows(wanted.len())
        .enumerate()
        .filter(|(_, window)| *window == wanted)
        .map(|(at, _)| at)
        .collect()
}

/// A byte of every image of a node of this tree, of at most this level, that has entries.
pub fn nodes_of(bed: &Bed, tree: u32, levels: std::ops::RangeInclusive<u8>) -> Vec<usize> {
    let bytes = contents(&*bed.store);
    let pages = bytes.chunks_exact(1024).enumerate();
    let of_tree = pages.filter(|(_, page)| {
        page[0] == 2
            && levels.contains(&page[1])
            && page[20..24] == tree.to_le_bytes()
            && page[4..6] != [0, 0]
    });
    of_tree.map(|(number, _)| number * 1024 + 1000).collect()
}

/// What the listener was called with.
#[derive(Clone, Default)]
pub struct Reported(Arc<Mutex<Vec<SetAside>>>);

impl Reported {
    pub fn listen(&self, options: Options) -> Options {
        let list = self.0.clone();
        options.on_set_aside(move |work| list.lock().expect("no panic").push(work.clone()))
    }
    pub fn list(&self) -> Vec<SetAside> {
        self.0.lock().expect("no panic").clone()
    }
}

/// Waits until recovery is complete, or does it.
pub fn recovered(db: &Database, threads: bool) {
    if !threads {
        while db.step().expect("a step") == Progress::Worked {}
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

pub fn assert_damaged<T: std::fmt::Debug>(outcome: Result<T, Error>) -> String {
    let error = outcome.expect_err("it needs a damaged page");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    let sentence = error.to_string();
    assert!(sentence.contains("page"), "it names the damage: {sentence}");
    assert!(!sentence.contains("opened again"), "opening it again does not help: {sentence}");
    sentence
}

pub fn assert_sound(db: &Database) {
    let report = db.check(&mut |_| {}).expect("can be checked");
    assert_eq!(report.damage, Vec::<String>::new());
}

/// Everything that looks into a database can look into this one.
pub fn look_into(options: &Options, bed: &Bed) {
    let bed = bed.duplicate();
    let db =
        opened(&options.clone().tuning(|tuning| tuning.eager_recovery(true)).background_threads(false), &bed);
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
