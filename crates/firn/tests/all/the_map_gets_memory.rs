//! A page map that does not fit into its share of DRAM gets frames of the buffer.

use crate::support::bed::Bed;
use firndb::{Database, Options};
use firndb_base::rng::Rng;

const BUFFER: usize = 1 << 20;
/// Nine rows a page: 30 MiB, of which the map has some 190 KiB, three times its share.
const ROWS: u64 = 70_000;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// A database of thirty times its buffer.
fn loaded(options: Options) -> Database {
    let options = options.buffer_bytes(BUFFER).log(|log| log.devices(1).bytes(16 << 20));
    let db = options.create_on(Bed::new(1).devices()).expect("created");
    let table = db.create_table("rows").expect("a table");
    for first in (0..ROWS).step_by(1000) {
        let mut tx = db.begin();
        for number in first..first + 1000 {
            tx.put(&table, &key(number), &[number as u8; 400]).expect("put");
        }
        tx.commit().expect("committed");
    }
    db
}

/// Reads rows at random; returns the pages of the map that were read meanwhile, and those of DRAM.
fn read(db: &Database, seed: u64) -> (u64, u64) {
    let (table, mut rng) = (db.table("rows").expect("there"), Rng::new(seed));
    let count = |db: &Database| {
        let statistics = db.statistics();
        (statistics.store.metadata_pages_read, statistics.buffer.misses)
    };
    let before = count(db);
    for _ in 0..5_000 {
        let number = rng.below(ROWS);
        let row = db.snapshot().get(&table, &key(number)).expect("read").expect("every row is there");
        assert_eq!(row, [number as u8; 400]);
    }
    let after = count(db);
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn a_map_that_does_not_fit_grows_until_it_is_not_read_any_more() {
    let db = loaded(Options::new());
    let first = db.statistics();
    read(&db, 1);
    read(&db, 2);
    let (map, pages) = read(&db, 3);
    assert!(pages > 4_000, "{pages}: most rows are not in DRAM");
    assert!(map < pages / 100, "{map} pages of the map were read for {pages} pages");
    let grown = db.statistics();
    let sum = |it: &firndb::Statistics| it.buffer.memory_bytes + it.store.map_memory_bytes;
    assert!(grown.store.map_memory_bytes > BUFFER as u64 / 16 * 2, "{:?}", grown.store);
    assert!(grown.store.map_memory_bytes <= BUFFER as u64 / 4);
    assert!(first.store.map_memory_bytes <= grown.store.map_memory_bytes);
    assert_eq!(sum(&first), sum(&grown), "what the map got the frames lost");
    assert!(sum(&grown) <= BUFFER as u64);
}

#[test]
fn a_map_of_a_size_that_was_asked_for_keeps_it() {
    let bytes = BUFFER / 16;
    let db = loaded(Options::new().tuning(|tuning| tuning.map_bytes(bytes)));
    let frames = db.statistics().buffer.frames;
    read(&db, 1);
    let (map, pages) = read(&db, 2);
    assert!(map > pages / 4, "{map} pages of the map were read for {pages} pages");
    let after = db.statistics();
    assert_eq!((after.buffer.frames, after.store.map_memory_bytes), (frames, bytes as u64));
}
