//! Dropped tables whose trees are damaged.

use super::{PAGE, pages, wait_until};
use crate::archive::support::rows_of;
use crate::support::bed::Bed;
use firndb::{Database, IndexPart, IndexSpec, Options, Progress, SetAside, TableSpec};
use firndb_testkit::bytes::{contents, flip};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Trees of the first table created: its rows, its large values, its index; of the second the
/// next three.
const ROWS: u32 = 16;
const LARGE: u32 = 17;
const INDEX: u32 = 18;

fn options() -> Options {
    Options::new().page_size(PAGE).buffer_bytes(1 << 20).log(|log| log.devices(1).bytes(2 << 20))
}

fn large(number: u32) -> Vec<u8> {
    (0..20_000u32).map(|at| (at * 7 + number) as u8).collect()
}

/// Two equal tables, `bad` and `good`, each of several levels, with large values and an index.
fn closed_database() -> Bed {
    let disks = Bed::new(1);
    let db = options().background_threads(false).create_on(disks.devices()).expect("created");
    for name in ["bad", "good"] {
        let by_number = IndexSpec::ranges("by_number", false, vec![IndexPart::Value(0..4)]);
        let table = db.create_table_with(name, TableSpec::raw().with_index(by_number)).expect("a new table");
        for chunk in 0..30u32 {
            db.transact(|tx| {
                for number in chunk * 20..chunk * 20 + 20 {
                    let value = [&number.to_be_bytes()[..], &[7; 150]].concat();
                    tx.put(&table, format!("key {number:06}").as_bytes(), &value)?;
                }
                tx.put(&table, &chunk.to_be_bytes(), &large(chunk)).map(drop)
            })
            .expect("there is space");
        }
    }
    db.close().expect("closed");
    disks
}

/// Flips a bit in every image of the tree's nodes that `wanted` chooses by level and order, in
/// whatever version; returns in how many.
fn damage(disks: &Bed, tree: u32, mut wanted: impl FnMut(u8, usize) -> bool) -> usize {
    let bytes = contents(&*disks.store);
    let mut found = 0;
    for (at, block) in (0..).step_by(512).zip(bytes.windows(PAGE).step_by(512)) {
        let of_tree = block[20..24] == tree.to_le_bytes();
        // Format, flags, and what keys have in common: see `docs/format/tree.md`.
        if of_tree && block[0] == 2 && block[1] < 8 && block[2] < 4 && block[19] == 0 {
            if wanted(block[1], found) {
                flip(&*disks.store, at + 700, 3);
            }
            found += 1;
        }
    }
    found
}

fn highest_level(disks: &Bed, tree: u32) -> u8 {
    let mut highest = 0;
    damage(disks, tree, |level, _| {
        highest = highest.max(level);
        false
    });
    highest
}

fn assert_good(db: &Database) {
    let rows = rows_of(db, "good");
    assert_eq!(rows.len(), 630);
    assert_eq!(rows[&5u32.to_be_bytes()[..]], large(5));
    db.transact(|tx| tx.put(&db.table("good").expect("there"), b"key 000001", &[1, 2, 3, 4]).map(drop))
        .expect("written");
    db.transact(|tx| {
        let value = [&1u32.to_be_bytes()[..], &[7; 150]].concat();
        tx.put(&db.table("good").expect("there"), b"key 000001", &value).map(drop)
    })
    .expect("written");
}

/// Drops the damaged table with threads at work; returns what was set aside, and how many pages
/// a check then finds leaked.
fn drop_and_reopen(disks: &Bed) -> (Vec<SetAside>, u64) {
    let heard: Arc<Mutex<Vec<SetAside>>> = Arc::default();
    let hears = heard.clone();
    let db = options()
        .on_set_aside(move |work| hears.lock().expect("not poisoned").push(work.clone()))
        .open_on(disks.devices())
        .expect("opened");
    let before = pages(&db);
    db.drop_table("bad").expect("dropped");
    // All but what cannot be reached: at least the trees that are whole.
    let mut seen = (before, Instant::now());
    wait_until("an end of the drop", || {
        if pages(&db) != seen.0 {
            seen = (pages(&db), Instant::now());
        }
        seen.0 < before && seen.1.elapsed() > Duration::from_millis(300)
    });
    assert_good(&db);
    db.close().expect("closed");
    let mut leaked = 0;
    for _ in 0..2 {
        // With threads and nothing to do but what the opening finds.
        let db = options().open_on(disks.devices()).expect("opened");
        std::thread::sleep(Duration::from_millis(100));
        assert_good(&db);
        db.close().expect("closed");
        let db = options().background_threads(false).open_on(disks.devices()).expect("opened");
        while db.step().expect("a step") == Progress::Worked {}
        let report = db.check(&mut |_| {}).expect("checked");
        assert!(report.is_clean(), "{:?}", report.damage);
        leaked = report.leaked_pages;
        let (set_aside, count) = db.statistics().set_aside;
        assert_eq!((set_aside, count), (Vec::new(), 0), "it is not met again at every opening");
        db.close().expect("closed");
    }
    let heard = heard.lock().expect("not poisoned").clone();
    (heard, leaked)
}

#[test]
fn whose_leaves_are_damaged_come_back_whole() {
    for tree in [ROWS, LARGE, INDEX] {
        let disks = closed_database();
        assert!(damage(&disks, tree, |level, _| level == 0) > 10);
        let (set_aside, leaked) = drop_and_reopen(&disks);
        // The marks of large values are looked for at the opening.
        let drops: Vec<_> = set_aside.iter().filter(|work| work.work.contains("dropped")).collect();
        if tree == LARGE {
            // But for the pages that they named.
            assert!(drops.iter().all(|work| work.cause.contains("Pages that it names could not be freed")));
            assert!((400..=30 * (20_000 / PAGE as u64)).contains(&leaked), "{leaked}");
            continue;
        }
        assert!(drops.is_empty() && leaked == 0, "tree {tree}: {drops:?}, {leaked}");
    }
}

#[test]
fn whose_roots_are_damaged_are_lost_space_and_nothing_worse() {
    for (tree, what) in [
        (ROWS, "table \"bad\""),
        (LARGE, "large values of table \"bad\""),
        (INDEX, "index \"by_number\" of table \"bad\""),
    ] {
        let disks = closed_database();
        let top = highest_level(&disks, tree);
        assert!(top > 0);
        damage(&disks, tree, |level, _| level == top);
        let (mut set_aside, leaked) = drop_and_reopen(&disks);
        // The marks of large values are looked for at the opening.
        set_aside.retain(|work| work.work.contains("dropped"));
        assert_eq!(set_aside.len(), 1, "{set_aside:?}");
        assert_eq!(set_aside[0].work, format!("freeing the dropped {what}"));
        assert!(set_aside[0].cause.contains("a check counts them as leaked"), "{}", set_aside[0].cause);
        assert!(leaked > 10, "{leaked} pages of tree {tree}");
    }
}

#[test]
fn whose_inner_nodes_are_damaged_come_back_but_for_what_is_below() {
    let disks = closed_database();
    let top = highest_level(&disks, LARGE);
    assert!(top >= 2, "the tree of large values has {top} levels above its leaves");
    let mut damaged = 0;
    // Every second one, in every version there is of it: some of them may be hit more than
    // once.
    damage(&disks, LARGE, |level, number| {
        let hit = level == 1 && number % 2 == 0;
        damaged += usize::from(hit);
        hit
    });
    assert!(damaged > 0);
    let (set_aside, leaked) = drop_and_reopen(&disks);
    assert!(!set_aside.is_empty() && leaked > 0, "{set_aside:?}, {leaked}");
    let every = set_aside.iter().all(|work| work.work.contains("large values of table \"bad\""));
    assert!(every, "{set_aside:?}");
}

/// The row says where the only node is.
#[test]
fn of_one_page_lose_nothing() {
    let disks = Bed::new(1);
    let db = options().background_threads(false).create_on(disks.devices()).expect("created");
    for name in ["bad", "good"] {
        let table = db.create_table(name).expect("created");
        db.transact(|tx| tx.put(&table, b"key", b"value").map(drop)).expect("there is space");
    }
    db.close().expect("closed");
    damage(&disks, ROWS, |_, _| true);
    let db = options().open_on(disks.devices()).expect("opened");
    let before = pages(&db);
    db.drop_table("bad").expect("dropped");
    wait_until("both pages", || pages(&db) == before - 2);
    wait_until("a report", || db.statistics().set_aside.1 == 1);
    assert_eq!(rows_of(&db, "good").len(), 1);
    db.close().expect("closed");
    let db = options().background_threads(false).open_on(disks.devices()).expect("opened");
    let report = db.check(&mut |_| {}).expect("checked");
    assert!(report.is_clean() && report.leaked_pages == 0, "{report:?}");
    assert_eq!(rows_of(&db, "good").len(), 1);
}

/// The first look at the marks is at every opening.
#[test]
fn of_large_values_stop_the_freeing_of_one_table_only() {
    let disks = closed_database();
    damage(&disks, LARGE, |level, _| level == 0);
    for opening in 0..2u32 {
        let db = options().open_on(disks.devices()).expect("opened");
        wait_until("a report", || db.statistics().set_aside.1 == 1);
        let (set_aside, _) = db.statistics().set_aside;
        assert!(set_aside[0].work.contains("large values of table \"bad\""), "{set_aside:?}");
        let before = pages(&db);
        let (bad, good) = (db.table("bad").expect("there"), db.table("good").expect("there"));
        for table in [&bad, &good] {
            // The row is gone; what it led to is freed where it can be.
            db.transact(|tx| tx.delete(table, &opening.to_be_bytes()).map(drop)).ok();
        }
        wait_until("the pages of a large value", || pages(&db) + 15 < before);
        assert_eq!(db.statistics().set_aside.1, 1, "it is not tried again");
        assert!(rows_of(&db, "good").len() == 629 - opening as usize);
        db.close().expect("closed");
    }
}
