//! At every moment each tree is in one of the lists that a check walks, from before its first page
//! is allocated for good until after its last one is freed.

use crate::engine::testing::{memory_devices, small};
use crate::{CheckReport, Database, TableSpec};
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_base::sync::thread;
use firndb_base::{Lsn, PageId, Progress};
use std::collections::BTreeSet;

/// Roots that the check would walk, in its order: one that moves between the lists meanwhile is in
/// the second at the latest.
fn listed(db: &Database) -> BTreeSet<PageId> {
    let catalog = &db.engine().catalog;
    let lists = [catalog.unread_trees(), db.all_trees(), catalog.unread_trees()];
    lists.into_iter().flatten().map(|(_, tree)| tree.root()).collect()
}

/// Allocated pages that are no listed tree's, and were allocated before `began`; all trees have one
/// page.
fn unlisted(db: &Database, began: Lsn) -> Vec<PageId> {
    let store = &db.engine().store;
    let allocated = || {
        let mut found = BTreeSet::new();
        store.pages(&mut |page, version| _ = (version < began).then(|| found.insert(page))).expect("pages");
        found
    };
    db.engine().catalog.settle();
    let before = allocated();
    let listed = listed(db);
    // Freed meanwhile, or changed.
    let after = allocated();
    before.intersection(&after).copied().filter(|page| !listed.contains(page)).collect()
}

/// What `look` finds while another thread does `change`, again and again until that ends and once
/// afterwards.
fn beside<T: Send + 'static>(
    options: SimOptions,
    change: fn(&Database),
    look: impl Fn(&Database) -> Vec<T> + Send + 'static,
) -> Vec<T> {
    let outcome = sim::run(options, move || {
        let db = small(1).create_on(memory_devices(1)).expect("created");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (db, is_over) = (&db, &is_over);
            let changing = scope.spawn(move || {
                change(db);
                is_over.store(true, Ordering::SeqCst);
            });
            let mut found = Vec::new();
            while !is_over.load(Ordering::SeqCst) {
                found.extend(look(db));
            }
            changing.join().expect("no panic");
            found.extend(look(db));
            found
        })
    });
    match outcome {
        Ok(outcome) => outcome.value,
        Err(failure) => panic!("{failure}"),
    }
}

fn step_until_idle(db: &Database) {
    while db.step().expect("a step") == Progress::Worked {}
}

/// Pages that are in no list while tables come and go.
fn run(seed: u64) -> Vec<PageId> {
    let options = SimOptions { preempt_one_in: [2, 4, 8][seed as usize % 3], ..SimOptions::seeded(seed) };
    let change = |db: &Database| {
        for round in 0..12u8 {
            match round % 3 {
                0 => drop(db.create_table("t").expect("created")),
                1 => {
                    let rows = std::iter::empty();
                    drop(db.load_table("t", TableSpec::raw(), rows).expect("loaded"));
                }
                _ => drop(db.create_page_file("t").expect("created")),
            }
            match round % 3 {
                2 => db.drop_page_file("t").expect("dropped"),
                _ => db.drop_table("t").expect("dropped"),
            }
            step_until_idle(db);
        }
    };
    beside(options, change, |db| unlisted(db, db.engine().log.end()))
}

/// Cause: a table that was dropped was taken out of one list before it came into the other, and out
/// of that one while it was being freed. Effect: a check called its pages leaked.
#[test]
fn a_tree_is_listed_as_long_as_it_has_a_page() {
    let wrong: Vec<(u64, usize)> =
        (0..60).map(|seed| (seed, run(seed).len())).filter(|(_, found)| *found > 0).collect();
    assert_eq!(wrong, [], "seeds, and how often a page was no tree's");
}

/// What checks of all trees call damaged beside drops of page files.
fn damaged(seed: u64) -> Vec<String> {
    let options =
        SimOptions { preempt_one_in: [4, 10, 20, 50][seed as usize % 4], ..SimOptions::seeded(seed) };
    let change = |db: &Database| {
        for _ in 0..10 {
            drop(db.create_page_file("t").expect("created"));
            db.drop_page_file("t").expect("dropped");
            step_until_idle(db);
        }
    };
    beside(options, change, move |db| {
        let mut report = CheckReport::default();
        db.check_trees(&mut report, &mut |_| {}).expect("checked");
        assert_eq!(report.leaked_pages, 0, "seed {seed}");
        report.damage
    })
}

/// Cause: a dropped tree is listed until the step that frees its root has ended, and a check that
/// read the root after it was freed found the tree listed. Effect: it called that damage.
#[test]
fn no_damage_is_seen_beside_drops() {
    let wrong: Vec<(u64, Vec<String>)> =
        (0..100).map(|seed| (seed, damaged(seed))).filter(|(_, found)| !found.is_empty()).collect();
    assert_eq!(wrong, [], "seeds, and what was called damaged");
}
