//! A store with holes on a file system that others have filled meanwhile: holes get their space
//! back before anything is counted on them, a full one is an error of the statement that needs more
//! pages, and when there is space again all goes on.

use firndb::device::{Device, MemoryDevice};
use firndb::{
    CompactProgress, Database, Devices, Direction, Error, ErrorKind, KeyRange, Options, Progress, Table,
};
use firndb_base::sync::Mutex;
use firndb_device::{DeviceError, DeviceErrorKind, Durability, Fill, forward};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

const BLOCK: u64 = 512;

/// A file on a file system that has a number of blocks left for it and for others.
#[derive(Debug)]
struct Sparse {
    inner: MemoryDevice,
    state: Mutex<Blocks>,
}

#[derive(Debug, Default)]
struct Blocks {
    /// Blocks of the file that have space.
    own: BTreeSet<u64>,
    /// Blocks that the file system has left.
    left: u64,
    /// Writes of something else than zeros to a block without space.
    unprepared: Vec<u64>,
    refused: u64,
}

impl Sparse {
    fn new(left: u64) -> Sparse {
        let blocks = Blocks { left, ..Blocks::default() };
        Sparse { inner: MemoryDevice::new("store"), state: Mutex::new(blocks) }
    }

    /// Gives blocks their space, as many as there is space for.
    fn take(&self, range: std::ops::Range<u64>, is_zeros: bool) -> Result<(), DeviceError> {
        let state = &mut *self.state.lock();
        for block in range {
            if state.own.contains(&block) {
                continue;
            }
            if !is_zeros {
                state.unprepared.push(block);
            }
            if state.left == 0 {
                state.refused += 1;
                return Err(DeviceError::new(DeviceErrorKind::NoSpace, "store: the file system is full"));
            }
            state.left -= 1;
            state.own.insert(block);
        }
        Ok(())
    }

    fn give_back(&self, range: std::ops::Range<u64>) {
        let state = &mut *self.state.lock();
        for block in range {
            state.left += u64::from(state.own.remove(&block));
        }
    }

    fn blocks(&self) -> u64 {
        self.state.lock().own.len() as u64
    }

    /// Other files on the file system leave `left` free blocks, whether more or fewer than before.
    fn leave(&self, left: u64) {
        self.state.lock().left = left;
    }
}

impl Device for Sparse {
    forward!(inner: info, len, read, sync);
    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        let is_zeros = data.iter().all(|byte| *byte == 0);
        self.take(offset / BLOCK..(offset + data.len() as u64).div_ceil(BLOCK), is_zeros)?;
        self.inner.write(offset, data, durability)
    }
    fn grow(&self, len: u64, fill: Fill) -> Result<(), DeviceError> {
        let old = self.inner.len();
        if len <= old {
            return Ok(());
        }
        if let Err(error) = self.take(old / BLOCK..len.div_ceil(BLOCK), true) {
            self.give_back(old / BLOCK..len.div_ceil(BLOCK));
            return Err(error);
        }
        self.inner.grow(len, fill)
    }
    fn shrink(&self, len: u64) -> Result<(), DeviceError> {
        self.give_back(len.div_ceil(BLOCK)..self.inner.len().div_ceil(BLOCK));
        self.inner.shrink(len)
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.give_back(offset / BLOCK..(offset + len) / BLOCK);
        self.inner.discard(offset, len)
    }
}

fn options() -> Options {
    let options = Options::new().page_size(1024).buffer_bytes(1 << 20).background_threads(false);
    options.log(|log| log.devices(1).bytes(8 << 20))
}

fn key(number: u32) -> [u8; 4] {
    number.wrapping_mul(0x9E37_79B1).to_be_bytes()
}

fn put(db: &Database, table: &Table, numbers: std::ops::Range<u32>, fill: u8) -> Result<(), Error> {
    db.transact(|tx| {
        numbers.clone().try_for_each(|number| tx.put(table, &key(number), &[fill; 200]).map(drop))
    })
    .map(drop)
}

fn rows(db: &Database, table: &Table) -> BTreeMap<Vec<u8>, u8> {
    let (mut found, mut tx) = (BTreeMap::new(), db.snapshot());
    let mut cursor = tx.scan(table, KeyRange::all(), Direction::Forward);
    while let Some((key, value)) = cursor.next(&mut tx).expect("a row") {
        found.insert(key.to_vec(), value[0]);
    }
    found
}

/// A database most of which are holes, its rows by key, and the numbers that are left.
fn with_holes(db: &Database) -> BTreeMap<Vec<u8>, u8> {
    let table = db.create_table("t").expect("a table");
    for from in (0..30_000).step_by(500) {
        put(db, &table, from..from + 500, 1).expect("put");
    }
    // Roots keep their numbers: the file cannot be cut before this one.
    db.create_table("at the end").expect("a table");
    db.checkpoint().expect("a checkpoint");
    for from in (0..30_000).step_by(500) {
        db.transact(|tx| {
            let mut gone = (from..from + 500).filter(|number| number % 10 != 3);
            gone.try_for_each(|number| tx.delete(&table, &key(number)).map(drop))
        })
        .expect("deleted");
    }
    db.compact(&mut |_: CompactProgress| ControlFlow::Continue(())).expect("compacted");
    let left = (0..30_000).filter(|number| number % 10 == 3);
    let left: BTreeMap<Vec<u8>, u8> = left.map(|number| (key(number).to_vec(), 1)).collect();
    assert_eq!(rows(db, &table), left);
    left
}

/// Puts new rows until there is no space for more.
fn fill(db: &Database, table: &Table, from: &mut u32, rows: &mut BTreeMap<Vec<u8>, u8>, fill: u8) -> Error {
    for _ in 0..3000 {
        let some = *from..*from + 20;
        match put(db, table, some.clone(), fill) {
            Ok(()) => some.for_each(|number| _ = rows.insert(key(number).to_vec(), fill)),
            Err(error) => return error,
        }
        *from += 20;
        while db.step().expect("a step") == Progress::Worked {}
    }
    panic!("it is never full");
}

fn check(db: &Database, table: &Table, wanted: &BTreeMap<Vec<u8>, u8>) {
    assert_eq!(&rows(db, table), wanted);
    let report = db.check(&mut |_| {}).expect("checked");
    assert!(report.is_clean() && report.leaked_pages == 0, "{report:?}");
}

#[test]
fn are_filled_again_before_a_commit_depends_on_them_or_the_store_is_full() {
    // None, some of a group, and a group with some of the next: what others have left.
    for left in [0, 700, 9000] {
        let store = Arc::new(Sparse::new(1 << 30));
        let device = |name: &str| Arc::new(MemoryDevice::new(name)) as Arc<dyn Device>;
        let devices = Devices {
            superblock: device("superblock"),
            logs: vec![device("log")],
            store: store.clone(),
            store_others: Vec::new(),
            cache: None,
        };
        let db = options().create_on(devices.clone()).expect("created");
        let mut wanted = with_holes(&db);
        let holes = db.statistics().store.places_returned;
        assert!(holes > 4000, "{holes} places are holes");
        let table = db.table("t").expect("there");
        let mut next = 40_000;

        store.leave(left);
        let before = store.blocks();
        let error = fill(&db, &table, &mut next, &mut wanted, 2);
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        assert!(
            error
                .to_string()
                .contains("Delete something, some rows in each transaction, or make the volume larger"),
            "it says what to do: {error}"
        );
        assert!(store.blocks() <= before + left && store.state.lock().refused > 0);
        assert!(db.statistics().store.places_returned > 0, "holes stay that got no space");
        // What is there can be removed, in the order of keys; what is left is there after an
        // opening.
        let first: Vec<Vec<u8>> = wanted.keys().take(600).cloned().collect();
        for some in first.chunks(20) {
            db.transact(|tx| some.iter().try_for_each(|key| tx.delete(&table, key).map(drop)))
                .expect("deletes are free to split a leaf without a byte left for before-images");
            some.iter().for_each(|key| _ = wanted.remove(key));
            while db.step().expect("a step") == Progress::Worked {}
        }
        db.checkpoint().expect("a checkpoint needs no space");
        check(&db, &table, &wanted);
        drop(table);
        db.close().expect("closed");
        let db = options().open_on(devices.clone()).expect("opened on a full file system");
        let table = db.table("t").expect("there");
        assert_eq!(fill(&db, &table, &mut next, &mut wanted, 4).kind(), ErrorKind::Full);
        check(&db, &table, &wanted);

        store.leave(1 << 30);
        let rows_before = wanted.len();
        for _ in 0..300 {
            put(&db, &table, next..next + 20, 5).expect("there is space again");
            (next..next + 20).for_each(|number| _ = wanted.insert(key(number).to_vec(), 5));
            next += 20;
        }
        db.checkpoint().expect("a checkpoint");
        assert!(wanted.len() > rows_before + 5000);
        check(&db, &table, &wanted);
        let unprepared = &store.state.lock().unprepared;
        assert!(unprepared.is_empty(), "{} writes to holes", unprepared.len());
    }
}
