//! Makes the seeds of the fuzzers (`fuzz/corpus/*/seed-*`): small inputs from which a fuzzer needs
//! few steps to reach what it is for. They are inputs as [`harness`] reads them, named by whether
//! they get through.
//!
//!     cargo test -p firndb --test all fuzz::seeds -- --ignored
//!
//! Run it after a change of a format; `runs_are_short_here` says when seeds do not reach their
//! targets any more. It removes `seed-accepted-*` and `seed-refused-*` and leaves other seeds:
//! those were found by a fuzzer, and stay as they are.

use crate::fuzz::runs_are_short_here::corpus_path;
use crate::fuzz::runs_are_short_here::harness::{self, Disks};
use firndb::device::Device;
use firndb_base::codec::{Reader, Writer};
use firndb_base::{DatabaseId, Epoch, Lsn, PageId, TreeId};
use firndb_btree::PageChange;
use firndb_log::{LogIdentity, LogScan, MemberId, Record, Redundancy};
use firndb_testkit::bytes::contents;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A seed's name and its bytes.
pub(super) type Seed = (String, Vec<u8>);

#[test]
#[ignore = "writes fuzz/corpus: cargo test -p firndb --test all fuzz::seeds -- --ignored"]
fn are_made_anew() {
    write("page", harness::page, page_seeds());
    write("log", harness::log, log_seeds());
    write("superblock", harness::superblock, superblock_seeds());
    write("store", harness::store, store_seeds());
    write("operations", harness::operations, operation_seeds());
    write("delta", harness::delta, super::delta_seeds::delta_seeds());
    write("page_rows", harness::page_rows, super::page_row_seeds::page_row_seeds());
}

fn write(name: &str, run: fn(&[u8]) -> bool, seeds: Vec<Seed>) {
    let path = corpus_path(name);
    std::fs::create_dir_all(&path).unwrap();
    for entry in std::fs::read_dir(&path).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_string_lossy();
        if file.starts_with("seed-accepted-") || file.starts_with("seed-refused-") {
            std::fs::remove_file(&path).unwrap();
        }
    }
    let mut panics = Vec::new();
    for (seed, bytes) in seeds {
        let outcome = match std::panic::catch_unwind(|| run(&bytes)) {
            Ok(true) => "accepted",
            Ok(false) => "refused",
            Err(_) => {
                panics.push(seed);
                continue;
            }
        };
        std::fs::write(path.join(format!("seed-{outcome}-{seed}")), bytes).unwrap();
    }
    assert_eq!(panics, [""; 0], "{name} panics on these");
}

/// The devices of a database that splits, changes, sweeps and merges leaves, rolls back, and drops
/// a table.
fn changed_in_every_way() -> Disks {
    let disks = Disks::new();
    let db = harness::options().create_on(disks.devices()).unwrap();
    let steps = || {
        for _ in 0..2000 {
            let _ = db.step().unwrap();
        }
    };
    let table = db.create_table("t").unwrap();
    let put = |rows: std::ops::Range<u8>, byte: u8, len: usize| {
        db.transact(|tx| rows.clone().try_for_each(|row| tx.put(&table, &[row], &vec![byte; len]).map(drop)))
            .unwrap();
    };
    put(0..100, 1, 60);
    put(0..4, 2, 60);
    put(4..8, 3, 30);
    // A value of which a few bytes change is patched.
    db.transact(|tx| tx.put(&table, &[9], &[[1; 30], [7; 30]].concat()).map(drop)).unwrap();
    let mut tx = db.begin();
    (10..14).for_each(|row| assert!(tx.delete(&table, &[row]).unwrap()));
    tx.insert(&table, &[200], b"rolled back").unwrap();
    tx.rollback().unwrap();
    db.transact(|tx| (0..95).try_for_each(|row| tx.delete(&table, &[row]).map(drop))).unwrap();
    steps();
    put(0..60, 4, 60);
    drop(table);
    db.drop_table("t").unwrap();
    steps();
    drop(db);
    disks
}

/// One record of each kind that trees write, with the page as it was before; and a checkpoint.
fn page_seeds() -> Vec<Seed> {
    const NAMES: [&str; 12] = [
        "insert",
        "replace",
        "patch",
        "remove",
        "sweep",
        "format",
        "trim",
        "absorb",
        "insert-child",
        "remove-child",
        "condemn",
        "drop",
    ];
    let disks = changed_in_every_way();
    let database = DatabaseId(contents(&*disks.superblock)[16..32].try_into().unwrap());
    let identity = LogIdentity {
        database,
        members: vec![MemberId(1)],
        epochs: vec![(Epoch(1), Lsn::FIRST)],
        redundancy: Redundancy::default(),
    };
    let devices: Vec<Arc<dyn Device>> = vec![disks.log.clone()];
    let scan = LogScan::new(devices, identity, Lsn::FIRST, &mut |_, _| {}).unwrap();
    let mut records = scan.records(Lsn::FIRST);
    let mut pages: BTreeMap<PageId, Vec<u8>> = BTreeMap::new();
    let mut seeds = BTreeMap::new();
    while let Some((_, Record { kind, body })) = records.next().unwrap() {
        if !(0x20..0x40).contains(&kind.0) {
            continue;
        }
        let change = PageChange::decode(Record { kind, body }).unwrap();
        let page = pages.entry(change.page).or_insert_with(|| vec![0; harness::PAGE]);
        let mut seed = vec![kind.0 & 0x1f];
        seed.extend_from_slice(page);
        seed.extend_from_slice(body);
        change.apply(page).unwrap();
        // With what undo needs, and without.
        let name = NAMES[usize::from(kind.0 & 0x1f)];
        let undo = if change.attachment.is_empty() { "" } else { "-with-undo" };
        seeds.entry(format!("{name}{undo}")).or_insert(seed);
    }
    for name in NAMES {
        assert!(seeds.keys().any(|seed| seed.starts_with(name)), "no record of kind {name} was logged");
    }
    let mut checkpoint = vec![0x1f];
    checkpoint.resize(1 + harness::PAGE, 0);
    firndb_txn::CheckpointState::fresh(TreeId(16)).encode(&mut checkpoint);
    seeds.insert("checkpoint".to_owned(), checkpoint);
    seeds.into_iter().collect()
}

/// Bytes to lay over a block of the log: its number, the first byte in it, and the bytes.
type BlockPiece<'a> = (u16, u16, &'a [u8]);
/// Bytes to lay over both copies of the superblock: the first byte in them, and the bytes.
type SuperblockPiece = (u8, Vec<u8>);
/// Bytes to lay over two slots of the store's metadata: these, the first byte in them, and the
/// bytes.
type StorePiece = ([u8; 2], u16, Vec<u8>);

fn log_seeds() -> Vec<Seed> {
    let bytes = contents(&harness::log_template());
    let blocks: Vec<&[u8]> = bytes.chunks(harness::BLOCK as usize).collect();
    let of_type = |kind: u8| -> Vec<u16> {
        (0..blocks.len()).filter(|&at| blocks[at][6] == kind).map(|at| at as u16).collect()
    };
    let log = of_type(1);
    let sections = of_type(2);
    assert!(log.len() > 12 && sections.len() >= 4, "{log:?} {sections:?}");
    let (first, middle, last) = (log[0], log[log.len() / 2], log[log.len() - 1]);
    let zeros = [0; 508];
    let max = [0xff; 8];
    let stale = blocks[usize::from(first)];
    let next = blocks[usize::from(log[log.len() / 2 + 1])];
    let scripts: Vec<(&str, Vec<BlockPiece<'_>>)> = vec![
        ("untouched", vec![(0, 4, &[])]),
        ("one-header-lost", vec![(0, 4, &zeros)]),
        ("both-headers-lost", vec![(0, 4, &zeros), (1, 4, &zeros)]),
        ("a-geometry-of-giants", vec![(0, 24, &max), (0, 32, &max), (1, 24, &max), (1, 32, &max)]),
        ("sections-of-one-block", vec![(0, 24, &[1, 0, 0, 0]), (1, 24, &[1, 0, 0, 0])]),
        ("last-block-lost", vec![(last, 4, &zeros)]),
        ("middle-block-lost", vec![(middle, 4, &zeros)]),
        ("middle-block-is-the-next", vec![(middle, 4, &next[4..])]),
        ("last-block-is-the-first", vec![(last, 4, &stale[4..])]),
        ("a-seal", vec![(last, 21, &[1])]),
        ("of-an-unknown-epoch", vec![(last, 16, &[2, 0, 0, 0])]),
        ("of-the-epoch-before", vec![(middle, 16, &[0, 0, 0, 0])]),
        ("of-the-other-stream", vec![(middle, 20, &[1])]),
        ("overfilled", vec![(middle, 22, &[0xff, 0xff])]),
        ("an-empty-last-block", vec![(last, 22, &[0, 0])]),
        ("durable-beyond-its-end", vec![(last, 32, &[0, 0, 1])]),
        ("an-lsn-past-the-largest", vec![(last, 24, &max)]),
        ("a-record-of-another-length", vec![(first, 40, &[0xff, 0xff, 0x7f])]),
        ("sections-swapped", vec![(sections[1], 4, &blocks[usize::from(sections[2])][4..])]),
        ("a-section-of-sequence-0", vec![(sections[1], 32, &[0; 8])]),
        ("a-section-index-of-giants", vec![(sections[2], 22, &[0xff, 0xff]), (sections[2], 40, &max)]),
    ];
    let encode = |pieces: Vec<BlockPiece<'_>>| {
        let mut seed = Vec::new();
        for (block, at, piece) in pieces {
            seed.put_u16(block);
            seed.put_u16(at);
            seed.put_blob(piece);
        }
        seed
    };
    scripts.into_iter().map(|(name, pieces)| (name.to_owned(), encode(pieces))).collect()
}

fn superblock_seeds() -> Vec<Seed> {
    let bytes = contents(&*harness::template().superblock);
    let len = u32::from_le_bytes(bytes[44..48].try_into().unwrap()) as usize;
    let body = &bytes[48..48 + len];
    // Where the fields of the body begin (docs/format/superblock.md).
    let mut reader = Reader::new(body);
    let mut field = || {
        let at = 48 + len - reader.rest().len();
        reader.varint().unwrap();
        at as u8
    };
    let (_created, catalog, undo, checkpoint, redo_start, clean, epochs) =
        (field(), field(), field(), field(), field(), field(), field());
    let (epoch, start, members, member, member_bytes) = (field(), field(), field(), field(), field());
    let max = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let longer = |by: u8| [(len as u8) + by, 0, 0, 0];
    let end = (48 + len) as u8;
    let scripts: Vec<(&str, Vec<SuperblockPiece>)> = vec![
        ("untouched", vec![(0, vec![])]),
        ("a-newer-format", vec![(12, vec![2])]),
        ("sequence-0", vec![(32, vec![0; 8])]),
        ("the-last-sequence", vec![(32, vec![0xff; 8])]),
        ("larger-pages", vec![(40, vec![0, 8, 0, 0])]),
        ("pages-of-3-bytes", vec![(40, vec![3, 0, 0, 0])]),
        ("no-body", vec![(44, vec![0; 4])]),
        ("an-endless-body", vec![(44, vec![0xff; 4])]),
        ("catalog-at-page-0", vec![(catalog, vec![0])]),
        ("catalog-is-the-undo-tree", vec![(catalog, vec![body[usize::from(undo) - 48]])]),
        ("undo-tree-far-away", vec![(undo, vec![0x7f])]),
        ("checkpoint-at-the-start", vec![(checkpoint, vec![0x80, 0])]),
        ("checkpoint-past-the-end", vec![(checkpoint, max.to_vec())]),
        ("redo-after-the-checkpoint", vec![(redo_start, vec![0xff, 0x7f])]),
        ("clean-although-it-crashed", vec![(clean, vec![1])]),
        ("no-epochs", vec![(epochs, vec![0])]),
        ("more-epochs-than-bytes", vec![(epochs, max.to_vec())]),
        ("another-epoch", vec![(epoch, vec![9])]),
        ("an-epoch-that-begins-later", vec![(start, vec![0x7f])]),
        ("no-log-device", vec![(members, vec![0])]),
        ("another-log-device", vec![(member, vec![7])]),
        ("a-log-device-of-another-size", vec![(member_bytes, vec![0x80, 0x80, 8])]),
        ("an-unknown-field", vec![(44, longer(2).to_vec()), (end, vec![0x63, 0])]),
        ("log-kept-from-the-start", vec![(44, longer(3).to_vec()), (end, vec![1, 1, 0])]),
        ("an-archive-nowhere", vec![(44, longer(4).to_vec()), (end, vec![2, 2, b'/', b'a'])]),
        ("a-kept-setting", vec![(44, longer(4).to_vec()), (end, vec![8, 2, 2, 1])]),
    ];
    let encode = |pieces: Vec<SuperblockPiece>| {
        let mut seed = Vec::new();
        for (at, piece) in pieces {
            seed.put_u8(at);
            seed.put_blob(&piece);
        }
        seed
    };
    scripts.into_iter().map(|(name, pieces)| (name.to_owned(), encode(pieces))).collect()
}

fn store_seeds() -> Vec<Seed> {
    // As the harness counts slots: header, totals, bitmap page, first and second map page, two of
    // each; the map log's first two blocks after the eight map pages of the group.
    const HEADER: [u8; 2] = [0, 1];
    const TOTALS: [u8; 2] = [2, 3];
    const BITMAP: [u8; 2] = [4, 5];
    const MAP: [u8; 2] = [6, 7];
    const SECOND_MAP: [u8; 2] = [8, 9];
    const MAP_LOG: [u8; 2] = [22, 23];
    const DELTA: [u8; 2] = [24, 24];
    const BODY: u16 = 64;
    // Page 0 has no entry in use; page 1 is in the map's second entry of 24 bytes: state and
    // version, then place and checksum.
    const ENTRY: u16 = BODY + 24;
    let max = [0xff; 8];
    let scripts: Vec<(&str, Vec<StorePiece>)> = vec![
        ("untouched", vec![(HEADER, 0, vec![])]),
        ("a-newer-format", vec![(HEADER, 8, vec![3])]),
        ("larger-pages", vec![(HEADER, 12, vec![0, 8, 0, 0])]),
        ("larger-metadata-pages", vec![(HEADER, 32, vec![0, 4, 0, 0])]),
        ("metadata-pages-of-no-bytes", vec![(HEADER, 32, vec![0; 4])]),
        ("no-map-pages", vec![(HEADER, 36, vec![0; 4])]),
        ("more-map-pages", vec![(HEADER, 36, vec![20, 0, 0, 0])]),
        ("no-groups", vec![(HEADER, 40, vec![0; 8])]),
        ("more-groups-than-bytes", vec![(HEADER, 40, vec![200])]),
        ("endless-groups", vec![(HEADER, 40, max.to_vec())]),
        ("the-last-sequence", vec![(HEADER, 56, max.to_vec())]),
        ("shrunk-in-the-future", vec![(HEADER, 48, vec![0xff; 6])]),
        ("totals-of-nothing", vec![(TOTALS, BODY, vec![0; 24])]),
        ("totals-of-everything", vec![(TOTALS, BODY, vec![0xff; 24])]),
        ("totals-lost", vec![(TOTALS, 0, vec![0; 8])]),
        ("totals-of-another-lsn", vec![(TOTALS, 40, vec![0xff; 6])]),
        ("all-places-free", vec![(BITMAP, BODY + 8, vec![0; 48])]),
        ("all-places-used", vec![(BITMAP, BODY + 8, vec![0xff; 48])]),
        ("places-without-space", vec![(BITMAP, BODY, vec![1])]),
        ("bitmap-lost", vec![(BITMAP, 0, vec![0; 8])]),
        ("a-page-freed", vec![(MAP, ENTRY, vec![0; 24])]),
        ("a-page-nowhere", vec![(MAP, ENTRY + 8, max.to_vec())]),
        ("a-page-of-the-future", vec![(MAP, ENTRY, max.to_vec())]),
        ("two-pages-in-one-place", vec![(MAP, ENTRY + 8, vec![1; 8]), (MAP, ENTRY + 32, vec![1; 8])]),
        ("map-is-another", vec![(MAP, 32, vec![1])]),
        ("a-map-of-noise", vec![(SECOND_MAP, BODY, (0..200).collect())]),
        ("a-lost-map", vec![(SECOND_MAP, 0, vec![0; 8])]),
        ("a-map-log-of-noise", vec![(MAP_LOG, 104, (0..200).collect())]),
        ("a-map-log-of-too-much", vec![(MAP_LOG, 52, max.to_vec())]),
        ("a-map-log-that-begins-later", vec![(MAP_LOG, 56, vec![8])]),
        ("a-map-log-in-a-circle", vec![(MAP_LOG, 40, vec![0; 8])]),
        ("a-lost-map-log", vec![(MAP_LOG, 0, vec![0; 8])]),
        ("no-delta-page", vec![(DELTA, 0, vec![0; 8])]),
        ("a-delta-page-of-more-slots", vec![(DELTA, 8, vec![250])]),
        ("a-delta-that-is-another", vec![(DELTA, 14, vec![0xff; 40])]),
        ("an-anchor-beyond-the-end", vec![(TOTALS, BODY + 40, max.to_vec())]),
        ("an-anchor-of-the-future", vec![(TOTALS, BODY + 56, vec![0xff; 7])]),
    ];
    let encode = |pieces: Vec<StorePiece>| {
        let mut seed = Vec::new();
        for (slots, at, piece) in pieces {
            for slot in slots {
                seed.put_u8(slot);
                seed.put_u16(at);
                seed.put_blob(&piece);
            }
        }
        seed
    };
    scripts.into_iter().map(|(name, pieces)| (name.to_owned(), encode(pieces))).collect()
}

// Operations, as the harness counts them.
const CHECKPOINT: u8 = 0;
const STEP: u8 = 1;
const COMMIT: u8 = 2;
const ROLLBACK: u8 = 3;
const COMPARE: u8 = 4;
const PUT: u8 = 5;
const INSERT: u8 = 7;
const DELETE: u8 = 8;
const GET: u8 = 10;
const SAVEPOINT: u8 = 11;
/// To the last savepoint; reads the next row if there is none.
const ROLLBACK_TO: u8 = 12;
/// By dropping it; CLOSE does so with a call.
const DROP: u8 = 13;
const CLOSE: u8 = 14;
const CRASH: u8 = 15;

/// The name of a script, and its operations in pieces.
type Operations = (&'static str, Vec<Vec<u8>>);

fn each(operation: u8, rows: std::ops::Range<u8>) -> Vec<u8> {
    rows.flat_map(|row| [operation, row]).collect()
}
fn one(operation: u8) -> Vec<u8> {
    vec![operation, 0]
}
fn times(count: usize, script: &[Vec<u8>]) -> Vec<u8> {
    script.concat().repeat(count)
}

fn operation_seeds() -> Vec<Seed> {
    let scripts = [ends_of_transactions(), openings(), space()].concat();
    scripts.into_iter().map(|(name, script)| (name.to_owned(), script.concat())).collect()
}

fn ends_of_transactions() -> Vec<Operations> {
    vec![
        ("one-row", vec![vec![PUT, 1], one(COMMIT), vec![GET, 1]]),
        ("rows-of-all-lengths", vec![each(PUT, 0..255), one(COMMIT), one(COMPARE), each(GET, 0..255)]),
        (
            "rolled-back",
            vec![each(PUT, 0..40), one(COMMIT), each(DELETE, 0..40), each(INSERT, 60..90), one(ROLLBACK)],
        ),
        (
            "a-savepoint-and-a-crash",
            vec![
                each(PUT, 0..50),
                one(COMMIT),
                each(PUT, 10..20),
                one(SAVEPOINT),
                each(DELETE, 0..50),
                one(CHECKPOINT),
                one(ROLLBACK_TO),
                one(CRASH),
                one(COMPARE),
            ],
        ),
        (
            "savepoints",
            vec![
                each(PUT, 0..10),
                one(SAVEPOINT),
                each(DELETE, 0..5),
                one(SAVEPOINT),
                each(PUT, 100..130),
                one(ROLLBACK_TO),
                each(INSERT, 0..5),
                one(ROLLBACK_TO),
                each(GET, 0..10),
                one(COMMIT),
            ],
        ),
    ]
}

fn openings() -> Vec<Operations> {
    vec![
        (
            "crash-amid-a-transaction",
            vec![
                each(PUT, 0..80),
                one(COMMIT),
                each(DELETE, 20..60),
                one(CHECKPOINT),
                each(PUT, 100..140),
                one(CRASH),
                each(GET, 0..10),
                each(INSERT, 30..50),
                one(COMMIT),
            ],
        ),
        (
            "crash-after-a-checkpoint",
            vec![
                each(PUT, 0..200),
                one(COMMIT),
                one(CHECKPOINT),
                each(PUT, 100..120),
                one(COMMIT),
                one(CRASH),
                one(DROP),
                one(CLOSE),
            ],
        ),
        (
            "closed-and-opened",
            vec![
                each(PUT, 0..60),
                one(COMMIT),
                one(CLOSE),
                each(DELETE, 0..60),
                one(COMMIT),
                one(CLOSE),
                one(CLOSE),
            ],
        ),
        (
            "ghosts-and-a-crash",
            vec![
                each(PUT, 0..128),
                one(COMMIT),
                each(DELETE, 0..100),
                one(COMMIT),
                one(STEP).repeat(3),
                one(CRASH),
                each(INSERT, 0..30),
                one(COMMIT),
                one(STEP).repeat(30),
                one(CLOSE),
            ],
        ),
        (
            "crashes-without-end",
            vec![times(5, &[each(PUT, 0..6), one(COMMIT), each(DELETE, 2..4), one(CRASH)])],
        ),
    ]
}

/// Pages, or log, that are taken and given back.
fn space() -> Vec<Operations> {
    vec![
        (
            "emptied-and-merged",
            vec![
                each(PUT, 0..255),
                one(COMMIT),
                each(DELETE, 0..255),
                one(COMMIT),
                one(STEP).repeat(60),
                one(CHECKPOINT),
                each(PUT, 0..64),
                one(COMMIT),
                one(STEP).repeat(20),
                one(CRASH),
            ],
        ),
        (
            "a-log-that-goes-round",
            vec![times(12, &[each(PUT, 0..128), one(COMMIT), one(STEP), one(STEP)]), one(CRASH)],
        ),
        (
            "more-than-the-log-holds",
            vec![times(14, &[each(PUT, 0..200)]), one(COMMIT), each(PUT, 0..10), one(COMMIT)],
        ),
    ]
}
