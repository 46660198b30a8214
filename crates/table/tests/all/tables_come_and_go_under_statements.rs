//! Threads read and write a table while another drops it, frees its pages, creates it again and
//! renames it. They meet clear errors only, never a page of something else, and no page is lost.

use crate::common::*;
use firndb_base::Progress;
use firndb_base::rng::Rng;
use firndb_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use firndb_btree::Direction;
use firndb_table::*;
use firndb_txn::{Isolation, Transaction};

fn statements(world: &World, rng: &mut Rng, txn: &mut Transaction) -> Result<u64, TableError> {
    let table = world.catalog.table("people")?;
    let typed = table.typed()?;
    let mut done = 0;
    let mut cursor = table.scan(KeyRange::all(), Direction::Forward);
    for _ in 0..rng.between(1, 12) {
        let id = rng.below(200) as i64;
        match rng.below(5) {
            0 => drop(typed.delete(txn, &[id.into()])?),
            1 => drop(typed.get(txn, &[id.into()], &mut Vec::new())?),
            2 => drop(cursor.next(txn)?),
            _ => match typed.put(txn, &person(id, "ann", Some(&format!("m{id}")), 1)) {
                Err(error) if error.kind == TableErrorKind::Duplicate => {}
                other => drop(other?),
            },
        }
        done += 1;
        if rng.one_in(8) {
            std::thread::yield_now();
        }
    }
    Ok(done)
}

fn worker(world: &World, seed: u64, stop: &AtomicBool, done: &AtomicU64) {
    let mut rng = Rng::new(seed);
    let levels = [Isolation::Snapshot, Isolation::ReadCommitted, Isolation::Serializable];
    while !stop.load(Ordering::SeqCst) {
        let mut txn = world.begin_at(levels[rng.below(3) as usize]);
        match statements(world, &mut rng, &mut txn) {
            Ok(_) if rng.one_in(3) => txn.rollback().unwrap(),
            Ok(count) => {
                txn.commit().unwrap();
                done.fetch_add(count, Ordering::SeqCst);
            }
            Err(error) => {
                let gone = matches!(error.kind, TableErrorKind::Dropped | TableErrorKind::NotFound);
                assert!(gone || error.is_retryable(), "{error:?}");
                txn.rollback().unwrap();
            }
        }
    }
}

/// Stops the workers, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn with_clear_errors_and_without_losing_a_page() {
    let world = World::new(1024);
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut freed = 0;
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        for seed in 0..2 {
            let (world, stop, done) = (&world, &stop, &done);
            scope.spawn(move || worker(world, seed, stop, done));
        }
        for round in 0..40 {
            people(&world);
            let before = done.load(Ordering::SeqCst);
            while done.load(Ordering::SeqCst) < before + 40 {
                std::thread::yield_now();
            }
            if round % 3 == 0 {
                world.catalog.rename_table("people", "others").unwrap();
                world.catalog.rename_table("others", "people").unwrap();
            }
            world.catalog.drop_table("people").unwrap();
            while world.catalog.drop_step().unwrap() == Progress::Worked {
                freed += 1;
            }
        }
    });
    assert!(freed > 0, "no tree was freed while others worked: the test shows nothing");
    world.drop_all();
    assert_eq!(world.catalog.pending_drops(), 0);
    // Not those of an empty database: ghosts of erased definitions may still fill the catalog.
    assert_eq!(world.pages(), world.pages_of_trees());
    assert_eq!(world.catalog.names(), Vec::<String>::new());
}
