//! Pages of page files that were replaced are freed, whatever others of them meet.

use crate::common::*;
use firndb_base::{PageId, Progress};
use firndb_btree::{Direction, Position, Tree, Visit};
use firndb_table::*;
use std::time::Duration;

const PAGE: usize = 1024;
const PAGES: u64 = 600;

fn fill(world: &World, file: &PageFile, byte: u8) {
    for first in (0..PAGES).step_by(50) {
        let mut txn = world.begin();
        (first..first + 50).for_each(|page| file.put(&mut txn, page, &[byte; PAGE]).unwrap());
        txn.commit().unwrap();
    }
}

/// A file whose pages were all replaced once, and the tree of marks.
fn replaced() -> (World, PageFile, Tree) {
    let world = World::with_memory(PAGE, 64 << 10);
    let file = world.catalog.create_page_file("f").unwrap();
    fill(&world, &file, 1);
    fill(&world, &file, 2);
    let marks = tree(&world, "superseded");
    (world, file, marks)
}

/// The tree that names pages and is `what`.
fn tree(world: &World, what: &str) -> Tree {
    let owner = world.catalog.page_owners().into_iter().find(|owner| owner.what.contains(what));
    owner.expect("it is there").tree
}

/// The leaves with their marks; none of a leaf that cannot be read.
fn leaves(marks: &Tree) -> Vec<(PageId, Vec<Vec<u8>>)> {
    let (mut pages, mut leaves) = (Vec::new(), Vec::new());
    assert_eq!(
        marks.next_leaves(&Position::Start, None, Direction::Forward, 9999, &mut pages).unwrap(),
        None
    );
    let mut from = Some(Position::Start);
    for page in pages {
        let at = from.expect("another leaf");
        let mut keys = Vec::new();
        let next = marks.visit_leaf(&at, Direction::Forward, |key, _| {
            keys.push(key.to_vec());
            Visit::Continue
        });
        from = next.or_else(|_| marks.past_leaf(&at)).unwrap();
        leaves.push((page, keys));
    }
    leaves
}

fn left(marks: &Tree) -> usize {
    leaves(marks).iter().map(|(_, keys)| keys.len()).sum()
}

/// Writes every page to the tier, and has other pages take the frames.
fn evict(world: &World, file: &PageFile) {
    world.pool().write_older_than(world.manager.log().end()).unwrap();
    let mut txn = world.begin();
    for _ in 0..2 {
        (0..PAGES).for_each(|page| file.read(&mut txn, page, &mut Vec::new()).unwrap());
    }
}

fn settle(world: &World) {
    let mut idle = 0;
    // A step that takes a fence has done nothing yet, nor one that searched marks in vain.
    while idle < 10 {
        idle = if world.catalog.drop_step().unwrap() == Progress::Idle { idle + 1 } else { 0 };
    }
}

/// Cause: any failure set the freeing aside, and each search began at the first mark. Effect: one
/// damaged leaf, and no replaced page of any file was freed any more.
#[test]
fn a_damaged_leaf_of_marks_keeps_its_own_pages_only() {
    let (world, file, marks) = replaced();
    evict(&world, &file);
    let before = leaves(&marks);
    assert!(before.len() > 8, "{} leaves", before.len());
    let (page, keys) = &before[3];
    evict(&world, &file);
    world.tier.damage(*page);
    let allocated = world.pages();
    settle(&world);
    assert_eq!(left(&marks), 0, "but for the damaged leaf's, which cannot be read");
    assert!(world.pages() <= allocated - (PAGES - keys.len() as u64));
    // What is replaced later is freed, too, and the damage reported once.
    fill(&world, &file, 3);
    let allocated = world.pages();
    settle(&world);
    assert_eq!(left(&marks), 0);
    assert!(world.pages() <= allocated - PAGES);
    let (first, count) = world.manager.work_set_aside();
    assert_eq!(count, 1, "{first:?}");
    assert!(first[0].cause.contains("damaged"), "{first:?}");
    // Nor is it read any more.
    let misses = world.pool().statistics().misses;
    settle(&world);
    assert_eq!(world.pool().statistics().misses, misses);
}

#[test]
fn a_leaf_of_marks_that_cannot_be_read_for_a_while_is_read_later() {
    let (world, file, marks) = replaced();
    let (page, keys) = leaves(&marks).swap_remove(5);
    evict(&world, &file);
    world.tier.cannot_read(page);
    settle(&world);
    world.tier.can_read(page);
    let before = left(&marks);
    assert!(before >= keys.len() && before < PAGES as usize, "{before} marks are left");
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(100));
        settle(&world);
        if left(&marks) == 0 {
            break;
        }
    }
    assert_eq!((left(&marks), world.manager.work_set_aside().1), (0, 0));
    assert_eq!(world.pages(), world.pages_of_trees() + PAGES);
}

/// Cause: a group of frees failed as one. Effect: as that of a damaged leaf.
#[test]
fn a_mark_whose_page_cannot_be_freed_stays_alone() {
    let (world, file, marks) = replaced();
    let found = leaves(&marks);
    let lost = [&found[2].1[3], &found[2].1[4], &found[6].1[0]];
    evict(&world, &file);
    for key in lost {
        world.tier.forget(PageId(u64::from_be_bytes(key[..].try_into().unwrap())));
    }
    let mut txn = world.begin();
    txn.put(&marks, b"none", b"").unwrap();
    txn.commit().unwrap();
    settle(&world);
    assert_eq!(left(&marks), lost.len() + 1);
    let (first, count) = world.manager.work_set_aside();
    assert_eq!(count, 4, "{first:?}");
    fill(&world, &file, 3);
    settle(&world);
    assert_eq!((left(&marks), world.manager.work_set_aside().1), (lost.len() + 1, 4));
}

/// Cause: what was reported was known again by the list of the first 64. Effect: once that was
/// full, each round of the search reported its malformed marks anew.
#[test]
fn a_malformed_mark_is_reported_once_however_much_else_is_damaged() {
    let (world, file, marks) = replaced();
    for work in 0..80 {
        let damage = firndb_txn::TxnError::new(firndb_txn::TxnErrorKind::Damaged, "on purpose");
        world.manager.set_aside(format!("work {work}"), &damage);
    }
    let mut txn = world.begin();
    txn.put(&marks, b"none", b"").unwrap();
    txn.commit().unwrap();
    for byte in [3, 4, 5] {
        settle(&world);
        let (first, count) = world.manager.work_set_aside();
        assert_eq!((first.len(), count), (64, 81));
        fill(&world, &file, byte);
    }
}

/// Cause: the search counted only marks that it saw as committed, and began again at once. Effect:
/// each idle step read every leaf with marks of a transaction that stayed open; and background work
/// never rested.
#[test]
fn marks_of_an_open_transaction_are_searched_once_and_a_few_leaves_a_step() {
    let world = World::with_memory(PAGE, 64 << 10);
    let file = world.catalog.create_page_file("f").unwrap();
    fill(&world, &file, 1);
    let mut open = world.begin();
    for byte in [2, 3, 4, 5] {
        // Else the pages that it has put itself would be replaced in place.
        let _ = open.savepoint();
        (0..PAGES).for_each(|page| file.put(&mut open, page, &[byte; PAGE]).unwrap());
    }
    let marks = tree(&world, "superseded");
    let (found, all) = (leaves(&marks).len(), left(&marks));
    assert!(found > 50, "{found} leaves");
    world.pool().write_older_than(world.manager.log().end()).unwrap();
    // Nor is a step idle within a round: what comes behind those marks is found in the same round.
    let mut steps = 0;
    loop {
        let before = world.pool().statistics().misses;
        let progress = world.catalog.drop_step().unwrap();
        let missed = world.pool().statistics().misses - before;
        assert!(missed <= 30, "{missed} pages were read by step {steps}");
        if progress == Progress::Idle {
            break;
        }
        steps += 1;
    }
    assert!((found - 1) / 16 <= steps && steps <= found, "{steps} steps for {found} leaves");
    // The next round begins when the transaction has ended.
    let before = world.pool().statistics();
    settle(&world);
    let after = world.pool().statistics();
    assert_eq!((after.hits, after.misses), (before.hits, before.misses));
    assert_eq!(left(&marks), all);
    open.rollback().unwrap();
    settle(&world);
    assert_eq!(left(&marks), 0);
}

/// Cause: the mark was as necessary as the new content. Effect: a damaged leaf of marks, and pages
/// of any file with such numbers could not be written any more.
#[test]
fn a_damaged_leaf_of_marks_fails_no_write() {
    let world = World::with_memory(PAGE, 64 << 10);
    let [file, other] = ["f", "other"].map(|name| world.catalog.create_page_file(name).unwrap());
    // Numbers of pages of the two files alternate.
    for page in 0..PAGES {
        let mut txn = world.begin();
        file.put(&mut txn, page, &[1; PAGE]).unwrap();
        other.put(&mut txn, page, &[1; PAGE]).unwrap();
        txn.commit().unwrap();
    }
    fill(&world, &file, 2);
    let marks = tree(&world, "superseded");
    let damaged = leaves(&marks)[3].0;
    evict(&world, &file);
    world.tier.damage(damaged);
    fill(&world, &other, 2);
    let (mut txn, mut found) = (world.begin(), Vec::new());
    for page in 0..PAGES {
        other.read(&mut txn, page, &mut found).unwrap();
        assert_eq!(found, [2; PAGE]);
    }
    let (first, count) = world.manager.work_set_aside();
    assert_eq!(count, 1, "{first:?}");
    assert!(first[0].work.contains("\"other\""), "{first:?}");
}

/// Cause: the row before was to name a page. Effect: a damaged row could be neither overwritten,
/// nor freed, nor cut off.
#[test]
fn a_malformed_row_is_overwritten_freed_and_cut_off() {
    let world = World::new(PAGE);
    let file = world.catalog.create_page_file("f").unwrap();
    let rows = tree(&world, "\"f\"");
    let mut found = Vec::new();
    for malform in [0, 1, 2] {
        let mut txn = world.begin();
        (0..3).for_each(|page| file.put(&mut txn, page, &[7; PAGE]).unwrap());
        txn.put(&rows, &2u64.to_be_bytes(), b"bad").unwrap();
        txn.commit().unwrap();
        let mut txn = world.begin();
        assert_eq!(file.read(&mut txn, 2, &mut found).unwrap_err().kind, TableErrorKind::Damaged);
        assert_eq!(file.write(&mut txn, 2, 0, b"x").unwrap_err().kind, TableErrorKind::Damaged);
        let expected = match malform {
            0 => file.put(&mut txn, 2, &[8; PAGE]).map(|()| (3, 8)),
            1 => file.free(&mut txn, 2).map(|()| (3, 0)),
            _ => file.set_pages(&mut txn, 2).map(|()| (2, 0)),
        };
        let (pages, byte) = expected.unwrap();
        assert_eq!(file.pages(&mut txn).unwrap(), pages);
        file.read(&mut txn, 2, &mut found).unwrap();
        assert_eq!(found, [byte; PAGE]);
        txn.commit().unwrap();
    }
    let (first, count) = world.manager.work_set_aside();
    assert_eq!(count, 1, "of one row: {first:?}");
    assert!(first[0].work.contains("\"f\""), "{first:?}");
}

/// Cause: a look through the granules of a page began anew at a row with a malformed key. Effect:
/// the page could not be put whole, without an end.
#[test]
fn a_malformed_row_beside_a_page_with_granules_is_passed_over() {
    let world = World::new(PAGE);
    let file = world.catalog.create_page_file("f").unwrap();
    let rows = tree(&world, "\"f\"");
    let mut txn = world.begin();
    (0..2).for_each(|page| file.put(&mut txn, page, &[7; PAGE]).unwrap());
    txn.commit().unwrap();
    let mut txn = world.begin();
    file.write(&mut txn, 0, 200, b"part").unwrap();
    txn.put(&rows, &[&0u64.to_be_bytes()[..], &[9]].concat(), b"malformed").unwrap();
    let mut found = Vec::new();
    assert_eq!(file.read(&mut txn, 0, &mut found).unwrap_err().kind, TableErrorKind::Damaged);
    file.write(&mut txn, 0, 300, b"part").unwrap();
    file.put(&mut txn, 0, &[8; PAGE]).unwrap();
    file.read(&mut txn, 0, &mut found).unwrap();
    assert_eq!(found, [8; PAGE]);
    file.set_pages(&mut txn, 0).unwrap();
    assert_eq!(file.pages(&mut txn).unwrap(), 0);
    txn.commit().unwrap();
}

/// Cause: a page whose changes were given up after damage is known by its content. Effect: a page
/// that was put with that content was stored, and read as damaged for ever.
#[test]
fn content_that_would_read_as_damaged_is_refused() {
    let world = World::new(PAGE);
    let file = world.catalog.create_page_file("f").unwrap();
    let mut given_up = vec![1; PAGE];
    firndb_btree::give_up_page(&mut given_up);
    let mut txn = world.begin();
    file.put(&mut txn, 0, &[7; PAGE]).unwrap();
    assert_eq!(file.put(&mut txn, 0, &given_up).unwrap_err().kind, TableErrorKind::BadArgument);
    assert_eq!(file.write(&mut txn, 0, 0, &given_up).unwrap_err().kind, TableErrorKind::BadArgument);
    let mut found = Vec::new();
    file.read(&mut txn, 0, &mut found).unwrap();
    assert_eq!(found, [7; PAGE]);
    // With anything beside, it is content as any other.
    given_up[PAGE - 1] = 1;
    file.put(&mut txn, 0, &given_up).unwrap();
    file.read(&mut txn, 0, &mut found).unwrap();
    assert_eq!(found, given_up);
}
