//! Tables with layouts of their own; and crash images, in which tables get others.

use super::*;
use firndb::device::CrashPlan;
use firndb::{Layout, TableSpec};

/// The layouts that tables may have over a store of this shape.
fn layouts(shape: Shape) -> Vec<Layout> {
    let db = made(&Bed::memory(shape.2), shape);
    db.layouts()
}

/// Moves all pages.
fn move_pages(db: &Database) {
    let moved = db.move_to_layouts(&mut |_, _| ControlFlow::Continue(())).unwrap();
    assert!(moved.complete);
}

/// Groups by layout.
fn groups(db: &Database) -> Vec<(Layout, u64)> {
    db.store_array().unwrap().groups
}

fn has(db: &Database, layout: Layout) -> bool {
    groups(db).iter().any(|(found, groups)| *found == layout && *groups > 0)
}

#[test]
fn codes_that_survive_less_or_take_more_space_are_no_layouts() {
    let shown = |shape| layouts(shape).iter().map(Layout::to_string).collect::<Vec<_>>();
    assert_eq!(shown((1, 2, 4)), ["1 of 2", "2 of 3", "2 of 4", "3 of 4"]);
    let large = || small().page_size(4096).store_code(3, 4);
    let db = large().create_on(Bed::memory(4).devices()).unwrap();
    assert_eq!(db.layouts().iter().map(Layout::to_string).collect::<Vec<_>>(), ["3 of 4", "2 of 3"]);
    let db = large().store_widest(1, 2).create_on(Bed::memory(4).devices()).unwrap();
    assert_eq!(db.layouts().len(), 4);
    let refused = db.create_table_with("t", TableSpec::raw().with_layout(Layout::fragments(1, 4)));
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::BadArgument);
    assert!(refused.to_string().contains("no layout 1 of 4"), "{refused}");
    assert!(db.table("t").is_err(), "nothing was created");
    let one = small().create_on(Bed::memory(1).devices()).unwrap();
    let table = one.create_table("rows").unwrap();
    let refused = one.set_layout(&table, Layout::fragments(1, 1)).unwrap_err();
    assert!(refused.to_string().contains("one device"), "{refused}");
    let narrow = small().store_code(1, 2).store_widest(2, 2);
    assert_eq!(narrow.create_on(Bed::memory(4).devices()).unwrap_err().kind(), ErrorKind::BadArgument);
}

#[test]
fn tables_have_layouts_of_their_own_and_keep_them() {
    let shape = (1, 2, 4);
    let bed = Bed::memory(4);
    let db = made(&bed, shape);
    let names: Vec<String> = (0..layouts(shape).len()).map(|number| format!("table {number}")).collect();
    for (name, layout) in names.iter().zip(layouts(shape)) {
        db.create_table_with(name, TableSpec::raw().with_layout(layout)).unwrap();
    }
    let put = |db: &Database, rows: std::ops::Range<u64>| {
        for name in &names {
            let table = db.table(name).unwrap();
            db.transact(|tx| rows.clone().try_for_each(|n| tx.put(&table, &key(n), &value(n)).map(drop)))
                .unwrap();
        }
        db.checkpoint().unwrap();
    };
    put(&db, 0..300);
    for layout in layouts(shape) {
        assert!(has(&db, layout), "{layout}: {:?}", groups(&db));
    }
    db.close().unwrap();
    for lost in 0..4 {
        let mut without = bed.duplicate();
        without.lose(lost);
        let db = small().open_on(without.devices()).unwrap();
        put(&db, 300..400);
        for (name, layout) in names.iter().zip(layouts(shape)) {
            let table = db.table(name).unwrap();
            assert_eq!(table.layout().unwrap(), layout);
            let tx = &mut db.snapshot();
            for n in 0..400 {
                assert_eq!(tx.get(&table, &key(n)).unwrap().as_deref(), Some(&value(n)[..]));
            }
        }
        db.replace_store_device_on(lost, Arc::new(MemoryDevice::new("new"))).unwrap();
        while db.fill_store_device().unwrap() {}
        assert_eq!(db.store_array().unwrap().may_lose, 1);
        verify(&db, 0);
    }
}

#[test]
fn a_table_gets_another_layout_beside_writers() {
    let bed = Bed::memory(4);
    let db = made(&bed, (1, 2, 4));
    fill(&db, 0..400);
    let (table, wanted) = (db.table("rows").unwrap(), Layout::fragments(3, 4));
    db.set_layout(&table, wanted).unwrap();
    assert_eq!(table.layout().unwrap(), wanted);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (400..700).for_each(|n| commit(&db, n).unwrap());
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            move_pages(&db);
        }
    });
    assert!(has(&db, wanted));
    db.checkpoint().unwrap();
    let moved = db.statistics().store.images_moved;
    move_pages(&db);
    move_pages(&db);
    assert!(db.statistics().store.images_moved > moved || moved > 0);
    verify(&db, 700);
    db.close().unwrap();
    let db = small().open_on(bed.devices()).unwrap();
    assert_eq!(db.table("rows").unwrap().layout().unwrap(), wanted);
    db.set_layout(&db.table("rows").unwrap(), Layout::AsStore).unwrap();
    move_pages(&db);
    verify(&db, 700);
}

/// Commits rows while the table's layout changes, and opens crash images without as many devices as
/// may be lost.
fn crash_images(seed: u64, shape: Shape, layouts: &[Layout]) {
    let (needed, written, of) = shape;
    let plan = CrashPlan::new();
    let bed = Bed::new(of, |name| plan.device(name));
    let db = made(&bed, shape);
    fill(&db, 0..60);
    plan.settle();
    plan.mark(60);
    for n in 60..160 {
        commit(&db, n).unwrap();
        plan.mark(n + 1);
        if n % 20 == 0 {
            db.checkpoint().unwrap();
        }
        if n % 15 == 0 && layouts.len() > 1 {
            let table = db.table("rows").unwrap();
            db.set_layout(&table, layouts[n as usize / 15 % layouts.len()]).unwrap();
            move_pages(&db);
        }
        let _ = db.step().unwrap();
    }
    let (mut replay, mut rng, mut images) = (plan.replay(), Rng::new(seed), 0);
    while replay.step().is_some() {
        if !rng.one_in(25) {
            continue;
        }
        let (mut bed, rows) = Bed::left_by(&replay, &mut rng);
        let mut lost = Vec::new();
        while lost.len() < written - needed {
            // Some are lost with the power, the others later.
            let member = rng.below(of as u64) as usize;
            if !lost.contains(&member) {
                lost.push(member);
                bed.lose(member);
            }
            if rng.one_in(2) {
                let db = small().open_on(bed.devices()).unwrap();
                verify(&db, rows);
                commit(&db, 1000 + lost.len() as u64).unwrap();
                db.close().unwrap();
            }
        }
        let db = small().open_on(bed.devices()).unwrap();
        verify(&db, rows);
        if layouts.len() > 1 {
            move_pages(&db);
            verify(&db, rows);
        }
        images += 1;
    }
    assert!(images >= 10, "{images} images of {shape:?}");
}

#[test]
fn any_crash_image_opens_without_as_many_devices_as_may_be_lost() {
    for (seed, shape) in (0..).zip(SHAPES) {
        crash_images(seed, shape, &[]);
    }
}

#[test]
fn so_does_any_in_which_a_table_gets_other_layouts() {
    for (seed, shape) in (0..).zip(SHAPES) {
        crash_images(seed, shape, &layouts(shape));
    }
}
