//! What once went wrong with layouts that the engine chooses.

use super::auto_layouts::{auto_table, layout_now, loads, misplaced, step_until};
use super::*;
use firndb::{IndexPart, IndexSpec, Layout, TableSpec};

/// Reads and writes rows beside steps of background work, so that loads and costs are known and
/// looked at, after what is to be moved was.
fn use_and_step(db: &Database, rows: u64) {
    step_until(db, || loads(db).moving.is_none());
    for _ in 0..30 {
        verify_reads(db, rows);
        fill(db, 0..100);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Cause: the choice took the layout that the catalog names for one that the store has. Effect: a
/// backup of more devices was restored onto fewer, and background work panicked.
#[test]
fn a_chosen_layout_that_a_restored_store_has_not_is_as_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let db = small().store_paths(["a", "b", "c", "d"]).store_survives(1).open(dir.join("db")).unwrap();
    auto_table(&db);
    let rows = db.table("rows").unwrap();
    db.set_layout(&rows, Layout::fragments(3, 4)).unwrap();
    db.set_layout(&rows, Layout::Auto).unwrap();
    fill(&db, 0..2000);
    db.backup(dir.join("backup"), &mut |_| ControlFlow::Continue(())).unwrap();
    drop(rows);
    db.close().unwrap();
    for paths in [&["a", "b"][..], &["a"]] {
        let to = dir.join(format!("restored on {}", paths.len()));
        let options = small().store_paths(paths).store_survives(paths.len() - 1);
        options.restore(dir.join("backup"), None, firndb::RestoreTo::End, &to).unwrap();
        let db = small().choose_layouts_every(Duration::ZERO).open(&to).unwrap();
        assert_eq!(db.table("rows").unwrap().layout().unwrap(), Layout::Auto);
        match paths.len() {
            1 => assert!(db.store_loads().is_none()),
            _ => use_and_step(&db, 2000),
        }
        assert_eq!(layout_now(&db), Layout::AsStore);
        verify(&db, 2000);
        db.close().unwrap();
    }
}

/// Cause: each number that stood where a page names its tree was counted as a tree. Effect: after
/// large values, whose pages hold any bytes there, loads of new tables were not known, and nothing
/// was chosen for them.
#[test]
fn whole_pages_do_not_keep_tables_from_being_counted() {
    let db = over((1, 2, 2)).create_on(Bed::memory(2).devices()).unwrap();
    let large = db.create_table("large").unwrap();
    let mut rng = Rng::new(1);
    for n in 0..20 {
        let value: Vec<u8> = (0..200_000).map(|_| rng.next_u64() as u8).collect();
        db.transact(|tx| tx.put(&large, &key(n), &value).map(drop)).unwrap();
    }
    db.checkpoint().unwrap();
    for number in 0..300 {
        let name = format!("table {number}");
        let table = db.create_table(&name).unwrap();
        db.transact(|tx| tx.put(&table, &key(number), &value(number)).map(drop)).unwrap();
        db.drop_table(&name).unwrap();
    }
    auto_table(&db);
    fill(&db, 0..100);
    let load = loads(&db);
    let of_rows = load.tables.iter().find(|it| it.table.as_deref() == Some("rows"));
    assert!(of_rows.is_some_and(|it| it.pages_written > 0), "{load:?}");
}

/// Cause: pages went to a layout from when an index was complete. Effect: most of it lay as the
/// store is, and nothing moved it.
#[test]
fn an_index_has_the_layout_of_its_table_from_its_first_page() {
    let db = over((1, 2, 4)).create_on(Bed::memory(4).devices()).unwrap();
    db.create_table_with("rows", TableSpec::raw().with_layout(Layout::fragments(3, 4))).unwrap();
    fill(&db, 0..1500);
    assert_eq!(misplaced(&db), 0);
    let rows = db.table("rows").unwrap();
    let index = IndexSpec::ranges("by key", false, vec![IndexPart::Key(0..8), IndexPart::Value(0..30)]);
    db.create_index(&rows, index).unwrap();
    db.checkpoint().unwrap();
    assert_eq!(misplaced(&db), 0, "of the index");
    let loaded = TableSpec::raw().with_layout(Layout::fragments(2, 3));
    let new_rows = (0..3000).map(|n| Ok((key(n).to_vec(), value(n))));
    db.load_table("loaded", loaded, new_rows).unwrap();
    db.checkpoint().unwrap();
    let elsewhere = misplaced(&db);
    assert!(elsewhere < 4, "{elsewhere} of the table that was loaded: what finds no space goes elsewhere");
    verify(&db, 1500);
}

/// Cause: that a compaction runs was noted, and taken back only when it returned. Effect: after one
/// whose caller panicked no pages were moved any more.
#[test]
fn moves_go_on_after_a_compaction_that_panicked() {
    let turning = over((1, 2, 4)).choose_layouts_every(Duration::ZERO).choose_layouts_in_turn();
    let db = turning.create_on(Bed::memory(4).devices()).unwrap();
    auto_table(&db);
    fill(&db, 0..300);
    let compact = || db.compact(&mut |_| panic!("as a caller may"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(compact)).is_err());
    let before = loads(&db).changes;
    step_until(&db, || loads(&db).changes > before + 2);
    verify(&db, 300);
}
