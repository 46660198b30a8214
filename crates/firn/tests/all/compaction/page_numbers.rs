//! Compaction gives pages lower numbers: the store's file becomes as short as what it holds.

use super::*;
use firndb::device::{Calls, DeviceErrorKind, Fault, FaultPlan, FaultRule, Faulty, When};
use firndb_testkit::bytes::{contents, flip};

/// Bytes of a group of the store's file, about: with its metadata it has no twentieth more.
const GROUP: u64 = 4032 * PAGE as u64 / 20 * 21;

/// Stops compaction once it has moved at least `most` page numbers.
fn stopping_after(most: u64) -> impl FnMut(CompactProgress) -> ControlFlow<()> {
    move |at| match at {
        CompactProgress::Numbers(moved, all) => {
            assert!(moved <= all, "{moved} of {all}");
            if moved >= most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
        _ => ControlFlow::Continue(()),
    }
}

#[test]
fn the_file_becomes_as_short_as_the_plan_says_wherever_it_is_stopped_on_the_way() {
    let devices = devices();
    let db = options().create_on(devices.clone()).expect("created");
    let (table, left) = sparse(&db, 30_000);
    let long = devices.store.len();
    assert!(long > 4 * GROUP);
    let mut stops = 0;
    let report = loop {
        let report = db.compact(&mut stopping_after(150)).expect("compacted");
        assert_eq!(rows(&db, &table), left);
        if report.complete {
            break report;
        }
        let plan = db.compact_plan().expect("a plan");
        assert_eq!(plan.file_bytes, devices.store.len());
        assert!(plan.pages_left == 0 && plan.pages_renumbered > 0, "{plan:?}");
        assert!(plan.file_bytes - plan.file_bytes_back < 2 * GROUP, "{plan:?}");
        stops += 1;
        assert!(stops < 50, "each time something is moved");
    };
    assert!(stops > 4, "it was stopped {stops} times");
    assert!(devices.store.len() < 2 * GROUP, "{long} became {}: {report:?}", devices.store.len());
    let plan = db.compact_plan().expect("a plan");
    assert_eq!((plan.file_bytes_back, plan.pages_renumbered), (0, 0), "{plan:?}");
    drop(table);
    db.close().expect("closed");
    let db = options().open_on(devices).expect("opened");
    assert_eq!(rows(&db, &db.table("t").expect("a table")), left);
    assert_eq!(db.check(&mut |_| {}).expect("checked").faults, 0);
}

/// The file after a crash in the middle is that of a crash beside splits and merges.
#[test]
fn what_was_moved_is_moved_when_the_database_was_not_closed() {
    let devices = devices();
    let db = options().create_on(devices.clone()).expect("created");
    let (_, left) = sparse(&db, 30_000);
    assert!(!db.compact(&mut stopping_after(300)).expect("stopped").complete);
    // Not closed: nothing is written any more.
    std::mem::forget(db);
    let copy = |device: &Arc<dyn Device>| {
        let copy = Arc::new(MemoryDevice::new("copy"));
        let bytes = contents(&**device);
        copy.grow(bytes.len() as u64, firndb::device::Fill::Reserved).expect("memory");
        copy.write(0, &bytes, firndb::device::Durability::Durable).expect("memory");
        copy as Arc<dyn Device>
    };
    let devices = Devices {
        superblock: copy(&devices.superblock),
        logs: devices.logs.iter().map(copy).collect(),
        store: copy(&devices.store),
        store_others: Vec::new(),
        cache: None,
    };
    let db = options().open_on(devices.clone()).expect("opened");
    let table = db.table("t").expect("a table");
    assert_eq!(rows(&db, &table), left);
    assert!(db.compact(&mut all).expect("compacted").complete);
    assert_eq!(rows(&db, &table), left);
    assert!(devices.store.len() < 2 * GROUP, "{}", devices.store.len());
    assert_eq!(db.check(&mut |_| {}).expect("checked").faults, 0);
}

#[test]
fn a_page_that_rotted_stays_and_all_others_are_moved() {
    let devices = devices();
    let db = options().create_on(devices.clone()).expect("created");
    let (table, mut left) = sparse(&db, 30_000);
    // One row near the end of the file, which can be told from all others.
    let marked = key(29_993);
    let mark = b"this row lies on the page that is going to rot".repeat(2);
    db.transact(|tx| tx.put(&table, &marked, &mark).map(drop)).expect("committed");
    while db.step().expect("a step") == Progress::Worked {}
    drop(table);
    db.close().expect("closed");
    let bytes = contents(&*devices.store);
    let found = bytes.windows(mark.len()).enumerate().filter(|(_, window)| *window == &mark[..]);
    let places: Vec<u64> = found.map(|(at, _)| at as u64).collect();
    assert!(!places.is_empty());
    places.iter().for_each(|at| flip(&*devices.store, *at, 3));
    let db = options().open_on(devices.clone()).expect("opened");
    let report = db.compact(&mut all).expect("compacted all the same");
    assert!(report.complete && report.pages_renumbered > 200, "{report:?}");
    let reported = db.statistics().set_aside.0;
    assert!(reported.iter().any(|aside| aside.work.contains("a lower number")), "{reported:?}");
    // Its neighbours in the leaf are lost with it, and no other row.
    let table = db.table("t").expect("a table");
    let mut lost = 0;
    left.insert(marked.to_vec(), mark);
    for (key, value) in &left {
        match db.snapshot().get(&table, key) {
            Ok(found) => assert_eq!(found.as_ref(), Some(value)),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Damaged);
                lost += 1;
            }
        }
    }
    assert!((1..60).contains(&lost), "{lost} rows are lost");
    // What the damage keeps from being cut off is holes.
    assert!(report.bytes.1 <= 2 * 4032 * PAGE as u64, "{report:?}");
}

/// A file system without a byte to spare: moving takes what it gives up.
#[test]
fn a_full_disk_ends_no_compaction() {
    let plan = FaultPlan::new(1);
    let plain = devices();
    let store: Arc<dyn Device> = Arc::new(Faulty::new(plain.store.clone(), &plan));
    let devices = Devices { store, ..plain.clone() };
    let db = options().create_on(devices).expect("created");
    let (table, left) = sparse(&db, 60_000);
    // Background work that rests on a busy machine is waited for.
    let begun = std::time::Instant::now();
    let holes = || db.statistics().store.places_returned;
    while db.step().expect("a step") == Progress::Worked || holes() == 0 {
        assert!(begun.elapsed().as_secs() < 120, "the background gives no space back");
    }
    let full = Fault::Fail(DeviceErrorKind::NoSpace);
    plan.add(FaultRule { calls: Calls::Grows, device: None, when: When::From(0), fault: full });
    let before = plain.store.len();
    let report = db.compact(&mut all).expect("compacted");
    assert!(report.complete && report.pages_renumbered > 0, "{report:?}");
    assert!(plain.store.len() < before, "{before} became {}", plain.store.len());
    assert_eq!(rows(&db, &table), left);
    assert_eq!(db.check(&mut |_| {}).expect("checked").faults, 0);
}

#[test]
fn beside_threads_that_insert_delete_look_up_and_scan() {
    let devices = devices();
    let options = options().buffer_bytes(8 << 20);
    let db = options.clone().create_on(devices.clone()).expect("created");
    let (table, left) = sparse(&db, 20_000);
    // Rows are removed and pages merged, large values included, a batch of which waits for a fence
    // each; no background work moves page numbers.
    let mut idle = 0;
    while idle < 50 {
        idle = if db.step().expect("a step") == Progress::Worked { 0 } else { idle + 1 };
    }
    let stop = AtomicBool::new(false);
    let own = |me: u8, number: u32| [&[me][..], &number.to_be_bytes()].concat();
    let mut renumbered = 0;
    std::thread::scope(|scope| {
        let (db, table, stop, left, own) = (&db, &table, &stop, &left, &own);
        let writers: Vec<_> = (1..3u8)
            .map(|me| {
                scope.spawn(move || {
                    let mut model = BTreeMap::new();
                    for round in 0u32.. {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        std::thread::sleep(std::time::Duration::from_micros(300));
                        let numbers = (0..20).map(|i| (round * 17 + i * 7) % 300);
                        db.transact(|tx| {
                            numbers.clone().try_for_each(|number| match number % 3 == round % 3 {
                                true => tx.delete(table, &own(me, number)).map(drop),
                                false => tx.put(table, &own(me, number), &[round as u8; 150]).map(drop),
                            })
                        })
                        .expect("committed");
                        for number in numbers {
                            match number % 3 == round % 3 {
                                true => _ = model.remove(&own(me, number)),
                                false => _ = model.insert(own(me, number), vec![round as u8; 150]),
                            }
                        }
                    }
                    model
                })
            })
            .collect();
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let mut found = rows(db, table);
                found.retain(|key, _| key.len() == 4);
                assert_eq!(&found, left, "a scan beside the moves");
                for (key, value) in left.iter().step_by(7) {
                    assert_eq!(db.snapshot().get(table, key).expect("read").as_ref(), Some(value));
                }
            }
        });
        let report = db.compact(&mut all).expect("compacted");
        assert!(report.complete, "{report:?}");
        renumbered += report.pages_renumbered;
        stop.store(true, Ordering::Relaxed);
        let mut expected = left.clone();
        writers.into_iter().for_each(|writer| expected.extend(writer.join().expect("no panic")));
        assert_eq!(rows(db, table), expected);
    });
    assert!(renumbered > 0 && devices.store.len() < 3 * GROUP, "{renumbered}, {}", devices.store.len());
    drop(table);
    db.close().expect("closed");
    let db = options.open_on(devices).expect("opened");
    assert_eq!(db.check(&mut |_| {}).expect("checked").faults, 0);
}

/// Cause: pages of page files keep their numbers, and the plan did not count them. Effect: it
/// promised, each time again, bytes that compaction did not give back.
#[test]
fn the_plan_counts_pages_of_page_files_which_stay() {
    let devices = devices();
    let db = options().create_on(devices.clone()).expect("created");
    let file = db.create_page_file("f").expect("a page file");
    for from in (0..20_000u64).step_by(200) {
        let put = |page| (page, [from as u8 | 1; PAGE]);
        db.transact(|tx| {
            (from..from + 200).map(put).try_for_each(|(page, image)| tx.put_page(&file, page, &image))
        })
        .expect("committed");
    }
    for from in (0..20_000u64).step_by(200) {
        let freed = |page: &u64| page % 10 != 3;
        db.transact(|tx| (from..from + 200).filter(freed).try_for_each(|page| tx.free_page(&file, page)))
            .expect("committed");
    }
    let mut idle = 0;
    while idle < 50 {
        idle = if db.step().expect("a step") == Progress::Worked { 0 } else { idle + 1 };
    }
    db.compact(&mut all).expect("compacted");
    let (plan, before) = (db.compact_plan().expect("a plan"), devices.store.len());
    assert!(plan.pages_left > 1_000, "every tenth page, of those with high numbers: {plan:?}");
    db.compact(&mut all).expect("compacted");
    assert_eq!(plan.file_bytes_back, before - devices.store.len(), "{plan:?}");
}
