//! What transactions change while an index is loaded is noted, and is in the index when it is
//! ready, however late they end.

use crate::common::*;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_device::MemoryDevice;
use firndb_spill::SpillSpace;
use firndb_table::*;
use firndb_txn::{Isolation, Transaction};

const ROWS: i64 = 300;

/// people without indexes; each row has a mail of its own.
fn plain_people(world: &World) -> (Table, TypedTable) {
    let table = people(world);
    world.catalog.drop_index(&table, "by_name").unwrap();
    world.catalog.drop_index(&table, "by_mail").unwrap();
    let typed = table.typed().unwrap();
    let mut txn = world.begin();
    for id in 0..ROWS {
        typed.insert(&mut txn, &person(id, "n", Some(&format!("m{id}")), 1)).unwrap();
    }
    txn.commit().unwrap();
    (table, typed)
}

/// Runs `during` while a build has read all rows but the last, and `late` once it has loaded the
/// index and waits for the notes of the transaction of `during`.
fn build_beside(
    world: &World,
    (table, typed): (&Table, &TypedTable),
    spec: IndexSpec,
    during: impl FnOnce(&mut Transaction),
    late: impl FnOnce(Transaction),
) -> Result<Index, TableError> {
    let waits = || world.manager.statistics().lock_waits;
    let mut last = world.begin();
    typed.update(&mut last, &person(ROWS - 1, "last", Some("last"), 1)).unwrap();
    let before = waits();
    std::thread::scope(|scope| {
        let build = scope.spawn(|| world.catalog.create_index(table, spec, &BuildLimits::default()));
        let until = |count: u64| {
            while waits() < count {
                assert!(!build.is_finished(), "it should have waited");
                std::thread::yield_now();
            }
        };
        until(before + 1);
        let mut txn = world.begin();
        during(&mut txn);
        let before = waits();
        last.commit().unwrap();
        until(before + 1);
        late(txn);
        build.join().unwrap()
    })
}

fn mail(id: i64, mail: &str) -> [ValueRef<'_>; 4] {
    person(id, "moved", Some(mail), 2)
}

#[test]
fn of_a_transaction_that_commits_or_rolls_back_after_the_load() {
    for (spec, commits) in people_indexes().into_iter().flat_map(|spec| [(spec.clone(), true), (spec, false)])
    {
        let world = World::new(1024);
        let (table, typed) = plain_people(&world);
        let during = |txn: &mut Transaction| {
            typed.update(txn, &mail(1, "new")).unwrap();
            typed.delete(txn, &[2i64.into()]).unwrap();
            typed.insert(txn, &mail(-1, "m2")).unwrap();
            let savepoint = txn.savepoint();
            typed.update(txn, &mail(3, "undone")).unwrap();
            txn.rollback_to(&savepoint).unwrap();
        };
        let late = |mut txn: Transaction| {
            // These were noted, the others not.
            typed.update(&mut txn, &mail(1, "newer")).unwrap();
            typed.update(&mut txn, &mail(-1, "m1")).unwrap();
            typed.insert(&mut txn, &mail(2, "m2")).unwrap();
            typed.delete(&mut txn, &[4i64.into()]).unwrap();
            typed.update(&mut txn, &mail(5, "m4")).unwrap();
            if commits { txn.commit().unwrap() } else { txn.rollback().unwrap() }
        };
        build_beside(&world, (&table, &typed), spec, during, late).unwrap();
        world.drop_all();
        world.assert_sound(&table);
    }
}

#[test]
fn of_a_unique_key_that_moves_from_row_to_row() {
    let [_, by_mail] = &people_indexes()[..] else { unreachable!() };
    let world = World::new(1024);
    let (table, typed) = plain_people(&world);
    let during = |open: &mut Transaction| {
        // m1: row 1, row 2, row 3; m2 and m3 are free.
        let mut txn = world.begin();
        typed.update(&mut txn, &mail(1, "none")).unwrap();
        typed.update(&mut txn, &mail(2, "m1")).unwrap();
        txn.commit().unwrap();
        let mut txn = world.begin();
        // For a moment two rows have it, as a ready index would not allow.
        typed.update(&mut txn, &mail(3, "m2")).unwrap();
        typed.update(&mut txn, &mail(3, "other")).unwrap();
        typed.delete(&mut txn, &[2i64.into()]).unwrap();
        typed.update(&mut txn, &mail(3, "m1")).unwrap();
        txn.commit().unwrap();
        let refused = typed.insert(&mut world.begin(), &mail(-2, "m1")).unwrap_err();
        assert_eq!(refused.kind, TableErrorKind::Duplicate, "the note says so");
        typed.update(open, &mail(7, "seven")).unwrap();
    };
    let late = |txn: Transaction| {
        let mut other = world.begin();
        let refused = typed.insert(&mut other, &mail(-3, "m1")).unwrap_err();
        assert_eq!(refused.kind, TableErrorKind::Duplicate, "the first writer that asks settles it");
        typed.insert(&mut other, &mail(-4, "m2")).unwrap();
        other.commit().unwrap();
        txn.commit().unwrap();
    };
    build_beside(&world, (&table, &typed), by_mail.clone(), during, late).unwrap();
    world.drop_all();
    world.assert_sound(&table);
}

#[test]
fn rows_that_come_to_have_one_unique_key_stop_the_build() {
    let [_, by_mail] = &people_indexes()[..] else { unreachable!() };
    let world = World::new(1024);
    let (table, typed) = plain_people(&world);
    let during = |open: &mut Transaction| {
        let mut txn = world.begin();
        // The build has read row 9, which keeps it.
        typed.insert(&mut txn, &mail(-1, "m9")).unwrap();
        txn.commit().unwrap();
        typed.update(open, &mail(7, "seven")).unwrap();
    };
    let built = build_beside(&world, (&table, &typed), by_mail.clone(), during, |txn| txn.commit().unwrap());
    assert_eq!(built.unwrap_err().kind, TableErrorKind::Duplicate);
    world.drop_all();
    assert_eq!(world.pages(), world.pages_of_trees(), "its trees are freed");
    world.assert_sound(&table);
}

/// Transactions that pass mails from row to row, which are always unique when they commit.
fn pass_mails(world: &World, typed: &TypedTable, seed: u64, stop: &AtomicBool) {
    let mut rng = Rng::new(seed);
    while !stop.load(Ordering::SeqCst) {
        let levels = [Isolation::Snapshot, Isolation::ReadCommitted, Isolation::Serializable];
        let isolation = levels[rng.below(3) as usize];
        let mut txn = world.begin_at(isolation);
        let (one, other) = (rng.below(ROWS as u64) as i64, rng.below(ROWS as u64) as i64);
        let swap = |txn: &mut Transaction| -> Result<(), TableError> {
            let mut row = Vec::new();
            if one == other || !typed.get_for_update(txn, &[one.into()], &mut row)? {
                return Ok(());
            }
            let Value::Text(mail_of_one) = &row[2] else { return Ok(()) };
            let mail_of_one = mail_of_one.clone();
            typed.delete(txn, &[one.into()])?;
            let mut row = Vec::new();
            let mail_of_other = match typed.get_for_update(txn, &[other.into()], &mut row)? {
                true => row[2].clone(),
                false => Value::Null,
            };
            typed.put(txn, &mail(other, &mail_of_one))?;
            if let Value::Text(free) = &mail_of_other {
                typed.put(txn, &mail(one, free))?;
            }
            Ok(())
        };
        match swap(&mut txn) {
            Ok(()) if rng.one_in(4) => txn.rollback().unwrap(),
            Ok(()) => match txn.commit() {
                Ok(_) => {}
                Err(error) => assert!(TableError::from(error).is_retryable()),
            },
            Err(error) => {
                assert!(error.is_retryable() || error.kind == TableErrorKind::Duplicate, "{error:?}")
            }
        }
    }
}

#[test]
fn of_threads_that_pass_unique_keys_on_whatever_the_memory_and_the_space() {
    let world = World::new(1024);
    let (table, typed) = plain_people(&world);
    let stop = AtomicBool::new(false);
    let space = || SpillSpace::open(Arc::new(MemoryDevice::new("spill")), 64 << 20).unwrap();
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (world, typed, stop) = (&world, &typed, &stop);
            scope.spawn(move || pass_mails(world, typed, seed, stop));
        }
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..24 {
                let limits = match round % 3 {
                    0 => BuildLimits::default(),
                    1 => BuildLimits { memory: 1, spill: Some(space()), cancel: None },
                    _ => BuildLimits { memory: 1, spill: None, cancel: None },
                };
                for spec in people_indexes() {
                    let name = spec.name.clone();
                    world.catalog.create_index(&table, spec, &limits).unwrap();
                    let report = world.catalog.check_table(&table).unwrap();
                    assert_eq!(report.damage, Vec::<String>::new(), "{name}, round {round}");
                }
                world.catalog.drop_index(&table, "by_name").unwrap();
                world.catalog.drop_index(&table, "by_mail").unwrap();
                world.catalog.drop_step().unwrap();
            }
        }));
        stop.store(true, Ordering::SeqCst);
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    world.drop_all();
    world.assert_sound(&table);
    assert_eq!(world.pages(), world.pages_of_trees());
}

#[test]
fn beyond_its_memory_it_spills_or_inserts() {
    let world = World::new(1024);
    let (table, typed) = plain_people(&world);
    let long = "n".repeat(100);
    let mut txn = world.begin();
    for id in ROWS..3 * ROWS {
        typed.insert(&mut txn, &person(id, &long, None, id as i32)).unwrap();
    }
    txn.commit().unwrap();
    let space = SpillSpace::open(Arc::new(MemoryDevice::new("spill")), 64 << 20).unwrap();
    for spill in [Some(space.clone()), None] {
        let limits = BuildLimits { memory: BuildLimits::MEMORY_MIN, spill, cancel: None };
        world.catalog.create_index(&table, people_indexes()[0].clone(), &limits).unwrap();
        world.assert_sound(&table);
        world.catalog.drop_index(&table, "by_name").unwrap();
    }
    assert!(space.has_been_used() && space.used_bytes() == 0);
    let small = SpillSpace::open(Arc::new(MemoryDevice::new("spill")), 1).unwrap();
    let limits = BuildLimits { memory: BuildLimits::MEMORY_MIN, spill: Some(small), cancel: None };
    let error = world.catalog.create_index(&table, people_indexes()[0].clone(), &limits).unwrap_err();
    assert!(
        matches!(error.kind, TableErrorKind::Spill(_)) && error.message.contains("spill_bytes"),
        "{error}"
    );
    world.drop_all();
    world.assert_sound(&table);
    assert_eq!(world.pages(), world.pages_of_trees());
}

#[test]
fn of_a_duplicate_that_is_rolled_back() {
    let [_, by_mail] = &people_indexes()[..] else { unreachable!() };
    let world = World::new(1024);
    let (table, typed) = plain_people(&world);
    let during = |txn: &mut Transaction| {
        // The build has read row 9, which keeps it.
        typed.insert(txn, &mail(-1, "m9")).unwrap();
        let index = table.index("by_mail").unwrap();
        let asked = index.estimate(&KeyRange::all(), None).unwrap_err();
        assert_eq!(asked.kind, TableErrorKind::Stale, "its leaves may lack content");
    };
    let late = |mut txn: Transaction| {
        let refused = typed.insert(&mut txn, &mail(-2, "m9")).unwrap_err();
        assert_eq!(refused.kind, TableErrorKind::Duplicate);
        txn.rollback().unwrap();
    };
    build_beside(&world, (&table, &typed), by_mail.clone(), during, late).unwrap();
    world.drop_all();
    world.assert_sound(&table);
}

/// Cause: each entry was locked explicitly, besides by its header. Effect: a transaction could
/// change a fixed number of rows, and be prepared with fewer.
#[test]
fn of_a_large_transaction_which_needs_no_locks_beside_its_rows() {
    let [by_name, by_mail] = &people_indexes()[..] else { unreachable!() };
    let world = World::with_memory(4096, 512 << 20);
    let (table, typed) = plain_people(&world);
    let noted = |txn: &mut Transaction| {
        for n in 1..=270_000i64 {
            typed.insert(txn, &mail(-n, &format!("x{n}"))).unwrap();
        }
    };
    let roll_back = |txn: Transaction| txn.rollback().unwrap();
    build_beside(&world, (&table, &typed), by_mail.clone(), noted, roll_back).unwrap();
    let noted = |txn: &mut Transaction| typed.insert(txn, &mail(-1, "one")).unwrap();
    let settled = |txn: Transaction| {
        let (mut other, name) = (world.begin(), "n".repeat(200));
        for n in 2..=20_000i64 {
            typed.insert(&mut other, &person(-n, &name, None, 1)).unwrap();
        }
        let prepared = other.prepare(b"a name");
        txn.commit().unwrap();
        prepared.unwrap();
        world.manager.rollback_prepared(b"a name").unwrap();
    };
    build_beside(&world, (&table, &typed), by_name.clone(), noted, settled).unwrap();
}
