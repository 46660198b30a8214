//! Functions from any bytes to nothing at all, or to a panic, which is a fault.
//!
//! Decoders behind a checksum are reached by making the checksum right: the bytes are laid over a
//! valid structure, which is then sealed again. Each function returns whether the bytes got
//! through, so that a test can tell that a seed still reaches what it was made for. Used by the
//! fuzzers of this directory, and on stable by `crates/firn/tests/all/fuzz/runs_are_short_here.rs`,
//! which includes this file.

use firndb::device::{Device, Durability, MemoryDevice};
use firndb::{
    Database, Deltas, Devices, Direction, ErrorKind, KeyRange, Options, Savepoint, Table, Transaction,
};
use firndb_base::codec::Reader;
use firndb_base::sync::{Arc, OnceLock};
use firndb_base::{Crc32c, Lsn, TreeId, crc32c};
use firndb_btree::{PageChange, check_page};
use firndb_log::testing::identity;
use firndb_log::{Kind, LogScan, Record};
use std::collections::BTreeMap;
use std::ops::Bound;

pub const PAGE: usize = 1024;
/// Bytes of a metadata page of the store, and map pages in a group: a group has 144 places for
/// pages instead of 4,032, so that the few pages of these databases lie in several groups, and a
/// check does not spend its time on empty map entries.
const META: usize = 512;
const MAPS: u32 = 8;
/// Memory for the map: so little that a checkpoint writes map and bitmap pages, not the map log
/// alone.
const MAP_MEMORY: usize = 4 << 10;
/// Both slots of the first group's bitmap page and of each of its map pages.
const GROUP_SLOTS: u8 = 2 * (1 + MAPS as u8);
/// Blocks of the map log that are changed: the newest ones.
const LOG_BLOCKS: u8 = 2;
/// Bytes of a log block.
pub const BLOCK: u64 = 512;
/// Of the log that [`log`] scans: sixteen sections of four blocks, two of them for outliers. Its
/// records share blocks or are longer than one, and fill two thirds of the others.
const LOG_BYTES: u64 = (2 + 16 * 4) * BLOCK;
const LOG_RECORDS: u8 = 16;

pub fn options() -> Options {
    Options::new()
        .page_size(PAGE)
        .store_layout(META, MAPS)
        .buffer_bytes(64 * PAGE)
        .tuning(|tuning| tuning.version_bytes(2000).deltas(Deltas::On).map_bytes(MAP_MEMORY))
        .log(|log| log.devices(1).bytes(256 << 10))
        .background_threads(false)
}

#[derive(Clone)]
pub struct Disks {
    pub superblock: Arc<MemoryDevice>,
    pub log: Arc<MemoryDevice>,
    pub store: Arc<MemoryDevice>,
}

impl Disks {
    pub fn new() -> Disks {
        let device = |name| Arc::new(MemoryDevice::new(name));
        Disks { superblock: device("superblock"), log: device("log"), store: device("store") }
    }
    fn duplicate(&self) -> Disks {
        let copy = |device: &MemoryDevice| Arc::new(device.duplicate());
        Disks { superblock: copy(&self.superblock), log: copy(&self.log), store: copy(&self.store) }
    }
    pub fn devices(&self) -> Devices {
        Devices {
            superblock: self.superblock.clone(),
            logs: vec![self.log.clone()],
            store: self.store.clone(),
            store_others: Vec::new(),
            cache: None,
        }
    }
}

/// A crashed database of two tables, with a delta page, and with changes since the last checkpoint;
/// made once.
pub fn template() -> Disks {
    static TEMPLATE: OnceLock<Disks> = OnceLock::new();
    TEMPLATE
        .get_or_init(|| {
            let disks = Disks::new();
            let db = options().create_on(disks.devices()).expect("created");
            for (name, rows) in [("a", 80), ("b", 20u8)] {
                let table = db.create_table(name).expect("a table");
                db.transact(|tx| (0..rows).try_for_each(|i| tx.put(&table, &[i, 7], &[i; 50]).map(drop)))
                    .expect("committed");
            }
            let table = db.table("a").expect("there");
            for byte in 0..8 {
                db.checkpoint().expect("a checkpoint");
                db.transact(|tx| tx.put(&table, &[9, 7], &[byte; 50]).map(drop)).expect("committed");
            }
            db.checkpoint().expect("a checkpoint");
            db.transact(|tx| (0..40u8).try_for_each(|i| tx.put(&table, &[i, 8], &[i; 20]).map(drop)))
                .expect("committed");
            disks.duplicate()
        })
        .duplicate()
}

/// Opens, reads everything, writes, checks, closes: each may fail, none may panic. Returns whether
/// it opens.
fn use_it(disks: &Disks) -> bool {
    let Ok(db) = options().open_on(disks.devices()) else { return false };
    for name in db.table_names() {
        let Ok(table) = db.table(&name) else { continue };
        for direction in [Direction::Forward, Direction::Backward] {
            let mut tx = db.snapshot();
            let mut rows = tx.scan(&table, KeyRange::all(), direction);
            // Whatever the pages say, there are not more rows than bytes.
            for _ in 0..100_000 {
                if !matches!(rows.next(&mut tx), Ok(Some(_))) {
                    break;
                }
            }
        }
        let _ = db.transact(|tx| tx.put(&table, b"new", b"row"));
    }
    let _ = db.check(&mut |_| {});
    let _ = db.close();
    true
}

/// A page, and a log record that changes it. Returns whether the record fits the page.
pub fn page(data: &[u8]) -> bool {
    let Some((&kind, data)) = data.split_first() else { return false };
    let (image, body) = data.split_at(data.len().min(PAGE));
    let mut bytes = vec![0; PAGE];
    bytes[..image.len()].copy_from_slice(image);
    let sound = check_page(&bytes).is_ok();
    let mut fits = false;
    if let Ok(change) = PageChange::decode(Record { kind: Kind(0x20 | kind & 0x1f), body }) {
        let _ = firndb_txn::Attachment::decode(change.attachment);
        let is_image = Kind(0x20 | kind & 0x1f) == Kind::TREE_IMAGE;
        if change.rehearse(&bytes).is_ok() {
            fits = true;
            change.apply(&mut bytes).expect("the rehearsal went well");
            // Of a page that is freed nothing is kept, and an image is no node.
            let stays = !change.frees() && !is_image;
            assert!(!sound || !stays || check_page(&bytes).is_ok(), "a good page stays good");
        }
    }
    let _ = firndb_txn::Attachment::decode(body);
    let _ = firndb_txn::CheckpointState::decode(&mut Reader::new(body));
    let _ = firndb_txn::CheckpointState::fresh(TreeId(1)).add_part(body);
    fits
}

/// Blocks of a log: bytes laid over some, which are sealed again. Returns whether records are
/// found.
pub fn log(data: &[u8]) -> bool {
    let device: Arc<dyn Device> = Arc::new(log_template());
    let mut reader = Reader::new(data);
    while let (Ok(block), Ok(at), Ok(piece)) = (reader.u16(), reader.u16(), reader.blob()) {
        overlay(
            &device,
            u64::from(block) % (device.len() / BLOCK) * BLOCK,
            BLOCK as usize,
            usize::from(at) % BLOCK as usize,
            piece,
            |bytes| {
                let checksum = crc32c(&bytes[4..512]);
                bytes[..4].copy_from_slice(&checksum.to_le_bytes());
            },
        );
    }
    let Ok(scan) = LogScan::new(vec![device], identity(1), Lsn::FIRST, &mut |_, _| {}) else { return false };
    let mut records = scan.records(Lsn::FIRST);
    let mut found = false;
    while let Ok(Some((_, record))) = records.next() {
        found = true;
        let _ = PageChange::decode(record);
    }
    found
}

/// A log device with some records, of several sections, made once.
pub fn log_template() -> MemoryDevice {
    static TEMPLATE: OnceLock<MemoryDevice> = OnceLock::new();
    TEMPLATE
        .get_or_init(|| {
            let device = Arc::new(MemoryDevice::new("log"));
            device.grow(LOG_BYTES, firndb::device::Fill::Written).expect("memory grows");
            let log = firndb_log::Log::create(
                vec![device.clone() as Arc<dyn Device>],
                identity(1),
                firndb_base::Epoch(1),
                firndb_log::testing::options(),
            )
            .expect("created");
            for i in 0..LOG_RECORDS {
                let body = vec![i; 10 + 40 * usize::from(i)];
                let end = log
                    .append(firndb_log::LogClass::Normal, Record { kind: Kind(0x20), body: &body })
                    .expect("space")
                    .end;
                log.flush(end).expect("memory does not fail");
            }
            device.duplicate()
        })
        .duplicate()
}

/// Lays `piece` over a structure of `len` bytes at `offset`, from its byte `at` on, and seals it
/// again.
fn overlay(
    device: &Arc<dyn Device>,
    offset: u64,
    len: usize,
    at: usize,
    piece: &[u8],
    seal: impl FnOnce(&mut [u8]),
) {
    let mut bytes = vec![0; len];
    device.read(offset, &mut bytes).expect("inside the device");
    let count = piece.len().min(len - at);
    bytes[at..at + count].copy_from_slice(&piece[..count]);
    seal(&mut bytes);
    device.write(offset, &bytes, Durability::Durable).expect("inside the device");
}

/// A superblock: bytes laid over it, in both copies, and sealed again. Returns whether the database
/// opens.
pub fn superblock(data: &[u8]) -> bool {
    let disks = template();
    let mut reader = Reader::new(data);
    while let (Ok(at), Ok(piece)) = (reader.u8(), reader.blob()) {
        for copy in 0..2 {
            let device: Arc<dyn Device> = disks.superblock.clone();
            overlay(&device, copy << 14, 512, usize::from(at), piece, |bytes| {
                let len = u32::from_le_bytes(bytes[44..48].try_into().expect("four bytes")) as usize;
                if let Some(covered) = bytes.get(12..48usize.saturating_add(len)) {
                    let checksum = crc32c(covered);
                    bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
                }
            });
        }
    }
    use_it(&disks)
}

/// Where the newest blocks of the map log lie, the last one first.
fn log_blocks(disks: &Disks) -> Vec<u64> {
    let mut block = [0; META];
    let mut found = Vec::new();
    for at in (0..disks.store.len()).step_by(META) {
        disks.store.read(at, &mut block).expect("inside the device");
        if block.starts_with(b"FIRNMAPL") {
            found.push((u64::from_le_bytes(block[32..40].try_into().expect("eight bytes")), at));
        }
    }
    found.sort_unstable();
    let newest = found.iter().rev().take(usize::from(LOG_BLOCKS));
    newest.map(|(_, at)| *at).collect()
}

/// Where the store's first delta page lies.
pub fn delta_page(disks: &Disks) -> u64 {
    let mut page = [0; PAGE];
    let mut at = (0..disks.store.len()).step_by(META);
    let is_one = |at: &u64| {
        disks.store.read(*at, &mut page[..META]).expect("inside the device");
        page.starts_with(b"FIRNDLTA")
    };
    at.find(is_one).expect("the template has a delta page")
}

/// The store's header and metadata: bytes laid over a slot, and sealed again; or its delta page.
/// Returns whether the database opens.
pub fn store(data: &[u8]) -> bool {
    let disks = template();
    let device: Arc<dyn Device> = disks.store.clone();
    let mut reader = Reader::new(data);
    while let (Ok(which), Ok(at), Ok(piece)) = (reader.u8(), reader.u16(), reader.blob()) {
        // Header and totals lie 64 KiB apart, behind the first blocks of the map log the first
        // group's metadata pages one by one.
        let (offset, len, checksum_at) = match which % (4 + GROUP_SLOTS + LOG_BLOCKS + 1) {
            slot if slot == 4 + GROUP_SLOTS + LOG_BLOCKS => {
                // Slots have checksums of their own: the fuzzer of delta pages goes behind these.
                overlay(&device, delta_page(&disks), PAGE, usize::from(at) % PAGE, piece, |_| ());
                continue;
            }
            slot @ 0..=1 => (u64::from(slot) << 16, 4096, 64),
            slot @ 2..=3 => (u64::from(slot) << 16, META, 60),
            slot if slot >= 4 + GROUP_SLOTS => {
                (log_blocks(&disks)[usize::from(slot - 4 - GROUP_SLOTS)], META, 100)
            }
            slot => {
                let group = ((256 << 10) + 16 * META as u64).next_multiple_of(64 << 10);
                (group + u64::from(slot - 4) * META as u64, META, 60)
            }
        };
        overlay(&device, offset, len, usize::from(at) % len, piece, |bytes| {
            let checksum = Crc32c::new().with(&bytes[..checksum_at]).with(&bytes[checksum_at + 4..]).value();
            bytes[checksum_at..checksum_at + 4].copy_from_slice(&checksum.to_le_bytes());
        });
    }
    use_it(&disks)
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
/// Savepoints, with the rows there were.
type Marks = Vec<(Savepoint, Rows)>;

/// Statements, transactions, crashes and closings of a database, as the bytes say, beside a sorted
/// map. Returns whether a row was committed.
pub fn operations(data: &[u8]) -> bool {
    let mut disks = Disks::new();
    let mut db = options().create_on(disks.devices()).expect("created");
    let mut table = db.create_table("t").expect("a table");
    let mut committed = Rows::new();
    let mut ever_committed = false;
    let mut open: Option<(Transaction, Rows, Marks)> = None;
    let mut reader = Reader::new(data);
    while let (Ok(operation), Ok(number)) = (reader.u8(), reader.u8()) {
        // What is open is lost when the database is closed or crashes.
        if operation % 16 >= 13 {
            open = None;
        }
        match operation % 16 {
            0 => db.checkpoint().expect("a checkpoint"),
            1 => {
                let _ = db.step().expect("a step");
            }
            2 => {
                if let Some((tx, rows, _)) = open.take() {
                    tx.commit().expect("committed");
                    ever_committed |= !rows.is_empty();
                    committed = rows;
                }
            }
            3 => {
                if let Some((tx, ..)) = open.take() {
                    tx.rollback().expect("rolled back");
                }
            }
            4 => compare(&db, &table, &committed),
            13 => {
                drop((table, db));
                db = options().open_on(disks.devices()).expect("opens");
                table = db.table("t").expect("there");
                compare(&db, &table, &committed);
            }
            14 => {
                drop(table);
                db.close().expect("closed");
                db = options().open_on(disks.devices()).expect("opens");
                table = db.table("t").expect("there");
                compare(&db, &table, &committed);
            }
            15 => {
                disks = disks.duplicate();
                db = options().open_on(disks.devices()).expect("opens");
                table = db.table("t").expect("there");
                compare(&db, &table, &committed);
            }
            statement => {
                let (tx, rows, marks) =
                    open.get_or_insert_with(|| (db.begin(), committed.clone(), Vec::new()));
                if !run_statement(statement, number, tx, &table, rows, marks) {
                    open = None;
                }
            }
        }
    }
    drop(open);
    compare(&db, &table, &committed);
    let report = db.check(&mut |_| {}).expect("checked");
    assert!(report.is_clean(), "{report:?}");
    ever_committed
}

/// One statement; false if the transaction has to end.
fn run_statement(
    statement: u8,
    number: u8,
    tx: &mut Transaction,
    table: &Table,
    rows: &mut Rows,
    marks: &mut Marks,
) -> bool {
    let key = vec![number % 64; 1 + usize::from(number / 64) * 20];
    let value = vec![number; usize::from(number) % 90];
    let outcome = match statement {
        5 | 6 => tx.put(table, &key, &value).map(|existed| {
            assert_eq!(existed, rows.insert(key, value).is_some());
        }),
        7 => match tx.insert(table, &key, &value) {
            Err(error) if error.kind() == ErrorKind::Duplicate => {
                assert!(rows.contains_key(&key));
                Ok(())
            }
            outcome => outcome.map(|()| assert_eq!(rows.insert(key, value), None)),
        },
        8 | 9 => tx.delete(table, &key).map(|existed| assert_eq!(existed, rows.remove(&key).is_some())),
        10 => tx.get(table, &key).map(|found| assert_eq!(found.as_ref(), rows.get(&key))),
        11 => {
            marks.push((tx.savepoint(), rows.clone()));
            Ok(())
        }
        _ => match marks.pop() {
            Some((savepoint, before)) => {
                *rows = before;
                tx.rollback_to(&savepoint)
            }
            None => {
                let range = KeyRange::new(Bound::Included(&key[..]), Bound::Unbounded);
                let found = tx
                    .scan(table, range, Direction::Forward)
                    .next(tx)
                    .map(|row| row.map(|(key, _)| key.to_vec()));
                found.map(|found| assert_eq!(found.as_ref(), rows.range(key..).next().map(|(key, _)| key)))
            }
        },
    };
    match outcome {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
            false
        }
    }
}

fn compare(db: &Database, table: &Table, rows: &Rows) {
    let mut tx = db.snapshot();
    let mut found = Rows::new();
    let mut cursor = tx.scan(table, KeyRange::all(), Direction::Forward);
    while let Some((key, value)) = cursor.next(&mut tx).expect("readable") {
        found.insert(key.to_vec(), value.to_vec());
    }
    assert_eq!(&found, rows);
}

/// A delta page: bytes laid over it, its slots sealed again. Returns whether they can be read.
pub fn delta(data: &[u8]) -> bool {
    firndb_tier::testing::delta_page::read_over(data)
}

/// Rows laid over those of a page file of four pages, two of them with granules; then the file is
/// used: each call may fail, none may panic, and a page that was put is read as it was put. Returns
/// whether all pages can be read before.
pub fn page_rows(data: &[u8]) -> bool {
    let db = options().create_on(Disks::new().devices()).expect("created");
    let file = db.create_page_file("f").expect("a page file");
    let mut tx = db.begin();
    (0..4).for_each(|page| tx.put_page(&file, page, &[7; PAGE]).expect("put"));
    tx.commit().expect("committed");
    let mut tx = db.begin();
    (0..2).for_each(|page| tx.write_page(&file, page, 200, &[8; 60]).expect("written"));
    let mut reader = Reader::new(data);
    while let (Ok(page), Ok(flag), Ok(rest), Ok(payload)) =
        (reader.u8(), reader.u8(), reader.blob(), reader.blob())
    {
        let key = [&u64::from(page % 6).to_be_bytes()[..], rest].concat();
        let _ = tx.put_page_row(&file, &key, payload, flag % 2 == 1);
    }
    tx.commit().expect("committed");
    let (mut tx, mut image) = (db.begin(), Vec::new());
    let sound = (0..6).all(|page| tx.read_page_into(&file, page, &mut image).is_ok());
    for page in 0..6 {
        let _ = tx.write_page(&file, page, 190, b"part");
        let _ = tx.write_page(&file, page, 30, &[5; 400]);
        if tx.put_page(&file, page, &[9; PAGE]).is_ok() {
            tx.read_page_into(&file, page, &mut image).expect("put just now");
            assert_eq!(image, [9; PAGE]);
        }
        let _ = tx.free_page(&file, page);
    }
    let _ = (file.pages(&mut tx), tx.set_pages(&file, 1), tx.commit());
    let _ = db.check(&mut |_| {});
    let _ = db.close();
    sound
}
