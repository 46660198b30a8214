//! Tables whose layouts the engine chooses by their loads.

use super::*;
use firndb::device::CrashPlan;
use firndb::{Layout, StoreLoads, TableSpec};
use firndb_base::clock;
use firndb_base::sim::{self, SimOptions};
use firndb_base::sync::thread;
use firndb_emulate::{Emulated, profiles};

pub(super) fn loads(db: &Database) -> StoreLoads {
    db.store_loads().expect("there are several devices")
}

pub(super) fn layout_now(db: &Database) -> Layout {
    db.table("rows").unwrap().layout_now().unwrap()
}

/// Moves what lies elsewhere, and returns how many pages these were.
pub(super) fn misplaced(db: &Database) -> u64 {
    let before = db.statistics().store.images_moved;
    let moved = db.move_to_layouts(&mut |_, _| ControlFlow::Continue(())).unwrap();
    assert!(moved.complete && moved.pages_left == 0, "{moved:?}");
    db.statistics().store.images_moved - before
}

/// Takes steps of background work until `done`.
pub(super) fn step_until(db: &Database, done: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if done() {
            return;
        }
        db.step().unwrap();
        std::thread::sleep(Duration::from_micros(200));
    }
    panic!("it was not done: {:?}", loads(db));
}

pub(super) fn auto_table(db: &Database) {
    db.create_table_with("rows", TableSpec::raw().with_layout(Layout::Auto)).unwrap();
}

#[test]
fn auto_is_kept_and_begins_with_what_the_table_has() {
    let bed = Bed::memory(4);
    let db = over((1, 2, 4)).create_on(bed.devices()).unwrap();
    auto_table(&db);
    let (rows, own) = (db.table("rows").unwrap(), Layout::fragments(3, 4));
    assert_eq!((rows.layout().unwrap(), rows.layout_now().unwrap()), (Layout::Auto, Layout::AsStore));
    db.set_layout(&rows, own).unwrap();
    assert_eq!((rows.layout().unwrap(), rows.layout_now().unwrap()), (own, own));
    db.set_layout(&rows, Layout::Auto).unwrap();
    assert!(loads(&db).moving.is_some(), "what lies elsewhere is moved");
    fill(&db, 0..100);
    step_until(&db, || loads(&db).moving.is_none());
    let load = loads(&db);
    let of_rows = load.tables.iter().find(|it| it.table.as_deref() == Some("rows")).unwrap();
    assert!(of_rows.pages_written > 0 && of_rows.layout == Layout::Auto, "{load:?}");
    assert_eq!((load.changes, load.moving), (0, None));
    db.close().unwrap();
    let db = small().open_on(bed.devices()).unwrap();
    let rows = db.table("rows").unwrap();
    assert_eq!((rows.layout().unwrap(), rows.layout_now().unwrap()), (Layout::Auto, own));
    verify(&db, 100);
    let one = small().create_on(Bed::memory(1).devices()).unwrap();
    let refused = one.create_table_with("rows", TableSpec::raw().with_layout(Layout::Auto)).unwrap_err();
    assert!(refused.to_string().contains("one device") && one.store_loads().is_none(), "{refused}");
}

/// What the options say holds for new tables without a layout of their own, and where the store has
/// several devices.
#[test]
fn layouts_follow_loads_by_default_where_the_options_say_so() {
    let (bed, own) = (Bed::memory(4), Layout::fragments(3, 4));
    let auto = |options: Options| options.table_layout(Layout::Auto);
    let db = auto(over((1, 2, 4))).create_on(bed.devices()).unwrap();
    let rows = db.create_table("rows").unwrap();
    let fixed = db.create_table_with("fixed", TableSpec::raw().with_layout(own)).unwrap();
    let plain = db.create_table_with("plain", TableSpec::raw().with_layout(Layout::AsStore)).unwrap();
    let loaded = db.load_table("loaded", TableSpec::raw(), []).unwrap();
    let layouts = [&rows, &fixed, &plain, &loaded].map(|table| table.layout().unwrap());
    assert_eq!(layouts, [Layout::Auto, own, Layout::AsStore, Layout::Auto]);
    drop((rows, fixed, plain, loaded));
    db.close().unwrap();
    let db = small().table_layout(own).open_on(bed.devices()).unwrap();
    assert_eq!(db.table("rows").unwrap().layout().unwrap(), Layout::Auto, "tables keep theirs");
    assert_eq!(db.create_table("new").unwrap().layout().unwrap(), own);
    db.close().unwrap();
    let db = small().table_layout(Layout::fragments(1, 1)).open_on(bed.devices()).unwrap();
    let refused = db.create_table("newer").unwrap_err();
    assert!(refused.to_string().contains("no layout 1 of 1"), "{refused}");
    let one = auto(small()).create_on(Bed::memory(1).devices()).unwrap();
    assert_eq!(one.create_table("rows").unwrap().layout().unwrap(), Layout::AsStore);
}

/// A restart begins the walk anew where the catalog says that pages are to be moved; a layout that
/// a user fixes meanwhile ends it.
#[test]
fn pages_are_moved_after_a_restart_too() {
    for is_fixed in [false, true] {
        let bed = Bed::memory(4);
        let turning =
            |options: Options| options.choose_layouts_every(Duration::ZERO).choose_layouts_in_turn();
        let db = turning(over((1, 2, 4))).create_on(bed.devices()).unwrap();
        auto_table(&db);
        (0..400).for_each(|n| commit(&db, n).unwrap());
        db.checkpoint().unwrap();
        step_until(&db, || loads(&db).changes > 0 && layout_now(&db) != Layout::AsStore);
        let chosen = layout_now(&db);
        assert!(loads(&db).moving.is_some());
        let left = bed.duplicate();
        drop(db);
        let db = small().open_on(left.devices()).unwrap();
        assert!(loads(&db).moving.is_some() && layout_now(&db) == chosen);
        if is_fixed {
            db.set_layout(&db.table("rows").unwrap(), Layout::AsStore).unwrap();
            assert_eq!(loads(&db).moving, None);
            continue;
        }
        step_until(&db, || loads(&db).moving.is_none());
        assert_eq!((loads(&db).left, layout_now(&db)), (0, chosen));
        assert_eq!(misplaced(&db), 0);
        verify(&db, 400);
    }
}

/// The table is written, then read by many: then a read should take one device.
#[test]
fn a_table_that_is_read_gets_copies_and_keeps_them() {
    let options = SimOptions { time_limit: Duration::from_secs(600), ..SimOptions::measuring(1, 4) };
    sim::run(options, || {
        let mut profile = profiles::get("myers-nand").expect("shipped");
        profile.capacity_bytes = 16 << 20;
        let mut bed = Bed::memory(4);
        for (member, store) in bed.stores.iter_mut().enumerate() {
            let device = Emulated::new(store.clone(), &profile, member as u64).expect("a sound profile");
            *store = Arc::new(device);
        }
        let options = small().background_threads(true).choose_layouts_every(Duration::from_millis(20));
        let db = options.store_code(2, 4).store_widest(1, 4).create_on(bed.devices()).unwrap();
        auto_table(&db);
        let rows = 4000;
        for n in 0..rows {
            commit(&db, n).unwrap();
        }
        db.checkpoint().unwrap();
        assert_eq!((loads(&db).changes, layout_now(&db)), (0, Layout::AsStore), "{:?}", loads(&db));
        read_until(&db, rows, 0, &|| loads(&db).changes > 0 && loads(&db).moving.is_none());
        let now = layout_now(&db);
        assert!(matches!(now, Layout::Fragments { needed: 1, .. }), "{now}: {:?}", loads(&db));
        assert!(misplaced(&db) < 100, "the walk has moved what there was");
        let until = clock::now().after(Duration::from_millis(300)).unwrap();
        read_until(&db, rows, 1, &|| clock::now() > until);
        assert_eq!((loads(&db).changes, layout_now(&db)), (1, now), "the load is the same");
        verify(&db, rows);
        db.close().unwrap();
        let db = small().open_on(bed.devices()).unwrap();
        assert_eq!((db.table("rows").unwrap().layout().unwrap(), layout_now(&db)), (Layout::Auto, now));
        verify(&db, rows);
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
}

/// Readers of single rows, until `done`.
fn read_until(db: &Database, rows: u64, seed: u64, done: &(dyn Fn() -> bool + Sync)) {
    let ended = AtomicBool::new(false);
    let table = db.table("rows").unwrap();
    thread::scope(|scope| {
        for reader in 0..24 {
            let (ended, table) = (&ended, &table);
            scope.spawn(move || {
                let mut rng = Rng::new(100 * seed + reader);
                while !ended.load(Ordering::Relaxed) {
                    let n = rng.below(rows);
                    assert_eq!(db.snapshot().get(table, &key(n)).unwrap().as_deref(), Some(&value(n)[..]));
                }
            });
        }
        for _ in 0..3000 {
            if done() {
                break;
            }
            clock::sleep(Duration::from_millis(10));
        }
        ended.store(true, Ordering::Relaxed);
    });
    assert!(done(), "{:?}", loads(db));
}

/// Rows are committed while the engine moves their table to one layout after another, and crash
/// images are opened without as many devices as may be lost.
#[test]
fn any_crash_image_of_moves_opens_without_as_many_devices_as_may_be_lost() {
    for (seed, shape) in (0..).zip(SHAPES) {
        let (needed, written, of) = shape;
        let plan = CrashPlan::new();
        let bed = Bed::new(of, |name| plan.device(name));
        let turning = over(shape).choose_layouts_every(Duration::ZERO).choose_layouts_in_turn();
        let db = turning.create_on(bed.devices()).unwrap();
        auto_table(&db);
        fill(&db, 0..60);
        plan.settle();
        plan.mark(60);
        for n in 60..160 {
            commit(&db, n).unwrap();
            plan.mark(n + 1);
            if n % 20 == 0 {
                db.checkpoint().unwrap();
            }
            for _ in 0..4 {
                db.step().unwrap();
                std::thread::sleep(Duration::from_micros(300));
            }
        }
        if db.layouts().len() > 1 {
            assert!(loads(&db).changes > 0, "{:?}", loads(&db));
        }
        let (mut replay, mut rng, mut images) = (plan.replay(), Rng::new(seed), 0);
        while replay.step().is_some() {
            if !rng.one_in(50) {
                continue;
            }
            let (whole, rows) = Bed::left_by(&replay, &mut rng);
            let mut bed = whole.duplicate();
            let first = rng.below(of as u64) as usize;
            (0..written - needed).for_each(|lost| bed.lose((first + lost) % of));
            let db = small().open_on(bed.devices()).unwrap();
            verify(&db, rows);
            drop(db);
            let db = small().open_on(whole.devices()).unwrap();
            step_until(&db, || loads(&db).moving.is_none());
            verify(&db, rows);
            images += 1;
        }
        assert!(images >= 5, "{images} images of {shape:?}");
    }
}
