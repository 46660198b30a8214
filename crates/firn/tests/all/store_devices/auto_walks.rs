//! Walks that move the pages of a table to its layout.

use super::auto_layouts::{auto_table, layout_now, loads, misplaced, step_until};
use super::*;
use firndb::{IndexPart, IndexSpec, Layout, TableSpec};

fn looking() -> Options {
    over((1, 2, 4)).choose_layouts_every(Duration::ZERO)
}

/// Has the table's pages moved to a layout by the background.
fn begin_moving(db: &Database, layout: Layout) {
    let rows = db.table("rows").unwrap();
    db.set_layout(&rows, layout).unwrap();
    db.set_layout(&rows, Layout::Auto).unwrap();
    assert!(loads(db).moving.is_some());
}

fn by_key() -> IndexSpec {
    IndexSpec::ranges("by key", false, vec![IndexPart::Value(0..20), IndexPart::Key(0..8)])
}

/// Steps of a walk between splits, merges, and a new index: when it ends nothing lies elsewhere.
#[test]
fn what_splits_and_merges_beside_a_walk_is_not_missed() {
    let mut elsewhere = 0;
    for seed in 0..6 {
        let db = looking().create_on(Bed::memory(4).devices()).unwrap();
        auto_table(&db);
        let rows = db.table("rows").unwrap();
        let mut rng = Rng::new(seed);
        let write = |rng: &mut Rng| {
            let n = rng.below(3000);
            match rng.one_in(2) {
                true => db.transact(|tx| tx.delete(&rows, &key(n)).map(drop)).unwrap(),
                false => db.transact(|tx| tx.put(&rows, &key(n), &value(n)).map(drop)).unwrap(),
            }
        };
        (0..2500).for_each(|_| write(&mut rng));
        for layout in [Layout::fragments(3, 4), Layout::AsStore, Layout::fragments(2, 3)] {
            begin_moving(&db, layout);
            let (mut steps, before) = (0, db.statistics().store.images_moved);
            while loads(&db).moving.is_some() {
                let many = rng.below(12);
                (0..many).for_each(|_| write(&mut rng));
                db.step().unwrap();
                std::thread::sleep(Duration::from_micros(100));
                steps += 1;
                if steps == 5 && rows.index("by key").is_err() {
                    db.create_index(&rows, by_key()).unwrap();
                }
                assert!(steps < 20_000, "it ends: {:?}", loads(&db));
            }
            elsewhere += db.statistics().store.images_moved - before;
            db.checkpoint().unwrap();
            assert_eq!((loads(&db).left, misplaced(&db)), (0, 0), "seed {seed}, {layout}");
        }
        drop(rows);
        assert!(db.check(&mut |_| {}).unwrap().is_clean());
    }
    assert!(elsewhere > 500, "{elsewhere} pages were moved");
}

/// A walk reads what the table has, and moves pages of no other table.
#[test]
fn a_walk_costs_what_its_table_has() {
    let db = looking().create_on(Bed::memory(4).devices()).unwrap();
    auto_table(&db);
    fill(&db, 0..200);
    for name in ["large", "by hand"] {
        let rows = (0..6000).map(|n| Ok((key(n).to_vec(), value(n))));
        db.load_table(name, TableSpec::raw(), rows).unwrap();
    }
    let by_hand = Layout::fragments(2, 3);
    db.set_layout(&db.table("by hand").unwrap(), by_hand).unwrap();
    db.checkpoint().unwrap();
    // What the loads left for the background to look at.
    for _ in 0..300 {
        db.step().unwrap();
        std::thread::sleep(Duration::from_micros(200));
    }
    let before = db.statistics().store;
    begin_moving(&db, Layout::fragments(3, 4));
    step_until(&db, || loads(&db).moving.is_none());
    let after = db.statistics().store;
    let moved = after.images_moved - before.images_moved;
    let read = after.pages_read - before.pages_read;
    assert!((40..200).contains(&moved), "{moved} pages moved");
    assert!(read < moved + 20, "{read} pages read of {}, {moved} moved", after.pages_allocated);
    assert!(misplaced(&db) > 1000, "what a user moves himself is left to him");
    assert_eq!(misplaced(&db), 0);
    // Once more: what lies right is not read.
    let before = db.statistics().store.pages_read;
    begin_moving(&db, layout_now(&db));
    step_until(&db, || loads(&db).moving.is_none());
    let read = db.statistics().store.pages_read - before;
    assert!(read < 20, "{read}");
    verify(&db, 200);
}

#[test]
fn a_table_that_goes_away_ends_its_walk() {
    let db = looking().create_on(Bed::memory(4).devices()).unwrap();
    auto_table(&db);
    fill(&db, 0..600);
    db.create_index(&db.table("rows").unwrap(), by_key()).unwrap();
    for steps in [1, 3, 9] {
        begin_moving(&db, Layout::fragments(2, 2 + steps % 2));
        (0..steps).for_each(|_| _ = db.step().unwrap());
        match steps {
            1 => db.drop_index(&db.table("rows").unwrap(), "by key").unwrap(),
            3 => db.rename_table("rows", "others").and_then(|()| db.rename_table("others", "rows")).unwrap(),
            _ => {
                db.drop_table("rows").unwrap();
                auto_table(&db);
                fill(&db, 0..100);
            }
        }
        step_until(&db, || loads(&db).moving.is_none());
        assert_eq!(loads(&db).left, 0);
        if steps < 9 {
            assert_eq!(misplaced(&db), 0);
        }
    }
    verify(&db, 100);
}

/// Inspection shows what is to be moved, and moves nothing.
#[test]
fn a_database_that_is_opened_read_only_moves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("db");
    let db = small().store_paths(["a", "b", "c"]).store_survives(1).open(&dir).unwrap();
    auto_table(&db);
    fill(&db, 0..300);
    begin_moving(&db, Layout::fragments(2, 3));
    db.close().unwrap();
    let bytes = || ["a", "b", "c"].map(|name| std::fs::read(dir.join(name)).unwrap());
    let before = bytes();
    let db = small().choose_layouts_every(Duration::ZERO).open_read_only(&dir).unwrap();
    for _ in 0..100 {
        db.step().unwrap();
    }
    verify_reads(&db, 300);
    assert!(loads(&db).moving.is_some());
    db.close().unwrap();
    assert!(bytes() == before);
    let db = small().choose_layouts_every(Duration::ZERO).open(&dir).unwrap();
    step_until(&db, || loads(&db).moving.is_none());
    assert_eq!(misplaced(&db), 0);
    verify(&db, 300);
}

/// A device that is lost amid a walk is replaced and filled first; then the walk goes on.
#[test]
fn a_walk_waits_for_a_lost_device_to_be_replaced() {
    let bed = Bed::memory(4);
    let plan = FaultPlan::new(1);
    let mut devices = bed.devices();
    devices.store_others[1] = Arc::new(Faulty::new(devices.store_others[1].clone(), &plan));
    let db = looking().create_on(devices).unwrap();
    auto_table(&db);
    fill(&db, 0..600);
    begin_moving(&db, Layout::fragments(3, 4));
    plan.fail_from(0, Calls::Any, DeviceErrorKind::Failed);
    let is_lost = || state(&db, 2) == StoreMemberState::Lost;
    step_until(&db, is_lost);
    let before = db.statistics().store.images_moved;
    for _ in 0..300 {
        db.step().unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(loads(&db).moving.is_some());
    assert_eq!(db.statistics().store.images_moved, before, "nothing is moved meanwhile");
    db.replace_store_device_on(2, Arc::new(MemoryDevice::new("new"))).unwrap();
    step_until(&db, || loads(&db).moving.is_none());
    assert_eq!((state(&db, 2), misplaced(&db)), (StoreMemberState::InUse, 0));
    verify(&db, 600);
}

/// Moves to other layouts on devices that are full: what finds no space stays, the walk ends and
/// says so, and what could be written before can be written still.
#[test]
fn a_store_that_is_full_ends_the_walk_and_stays_as_usable_as_it_was() {
    let mut was_left = 0;
    for capacity_kib in (800..1700).step_by(100) {
        let mut bed = Bed::memory(4);
        for (member, store) in bed.stores.iter_mut().enumerate() {
            *store = Arc::new(MemoryDevice::with(&format!("store.{member}"), 512, capacity_kib << 10));
        }
        let options = small().store_code(3, 4).store_widest(1, 4).store_layout(512, 4);
        let db = options.choose_layouts_every(Duration::ZERO).create_on(bed.devices()).unwrap();
        auto_table(&db);
        let mut rows = 0;
        while commit(&db, rows).and_then(|()| db.checkpoint()).is_ok() {
            rows += 1;
        }
        let writes = || (0..rows).step_by(7).filter(|n| commit(&db, *n).is_ok()).count();
        // The first time some of the last places are used up.
        let could = [writes(), writes(), writes()][2];
        for layout in [Layout::fragments(1, 4), Layout::fragments(2, 3), Layout::AsStore] {
            begin_moving(&db, layout);
            let mut steps = 0;
            while loads(&db).moving.is_some() {
                let failed = db.step().err();
                assert!(failed.as_ref().is_none_or(|it| it.kind() == ErrorKind::Full), "{failed:?}");
                std::thread::sleep(Duration::from_micros(200));
                steps += 1;
                assert!(steps < 10_000, "{capacity_kib} KiB, {layout}: it ends: {:?}", loads(&db));
            }
            was_left += loads(&db).left;
            assert!(writes() >= could, "{capacity_kib} KiB, {layout}");
        }
        verify(&db, rows);
    }
    assert!(was_left > 0, "some found no space");
}
