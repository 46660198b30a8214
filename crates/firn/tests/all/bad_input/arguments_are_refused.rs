//! Keys, values, names, definitions and handles that cannot be are refused with a sentence, and
//! change nothing.

use crate::support::bed::Bed;
use crate::support::sample::quiet;
use firndb::{
    Column, ColumnType, Database, Direction, ErrorKind, IndexPart, IndexSpec, KeyColumn, KeyRange, Schema,
    TableSpec,
};
use firndb_testkit::cases::case;
use std::ops::Bound;

/// The largest number up to `most` for which `accepts`, which holds for 0 and no longer from some
/// number on.
fn largest(most: usize, mut accepts: impl FnMut(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, most + 1);
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if accepts(middle) { low = middle } else { high = middle }
    }
    low
}

/// Opens, runs `check`, and runs it again after closing, and once more after a crash.
fn in_every_life(page_size: usize, write: impl FnOnce(&Database), check: impl Fn(&Database)) {
    let disks = Bed::new(1);
    let options = || {
        quiet().page_size(page_size).buffer_bytes(200 * page_size).log(|log| log.bytes(16 << 20).devices(1))
    };
    let db = options().create_on(disks.devices()).expect("created");
    write(&db);
    check(&db);
    let crashed = disks.duplicate();
    db.close().expect("closed");
    for disks in [disks, crashed] {
        let db = options().open_on(disks.devices()).expect("opens");
        check(&db);
        let report = db.check(&mut |_| {}).expect("checked");
        assert!(report.is_clean(), "{report:?}");
    }
}

#[test]
fn keys_and_values_at_and_over_their_limits() {
    for page_size in [1024, 4096, 65536] {
        let limits = std::cell::Cell::new((0, 0));
        in_every_life(
            page_size,
            |db| {
                let table = db.create_table("t").expect("a table");
                let mut tx = db.begin();
                let mut key = |len: usize| match tx.put(&table, &vec![b'k'; len], b"") {
                    Ok(_) => true,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::BadArgument, "a key of {len}: {error}");
                        assert!(error.to_string().contains(&len.to_string()), "{error}");
                        false
                    }
                };
                assert!(key(0) && key(1), "the empty key is a key");
                let max_key = largest(4 * page_size, key);
                assert!(max_key >= page_size / 16, "{max_key}");
                let mut value = |len: usize| match tx.put(&table, b"value", &vec![b'v'; len]) {
                    Ok(_) => true,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::BadArgument, "a value of {len}: {error}");
                        false
                    }
                };
                assert!(value(0));
                let max_value = largest(1 << 18, value);
                assert!(max_value >= page_size / 8, "{max_value}");
                tx.rollback().expect("rolled back");
                limits.set((max_key, max_value));
                let mut tx = db.begin();
                tx.insert(&table, b"", b"").expect("an empty row");
                tx.insert(&table, &vec![0; max_key], b"").expect("a key of zeros");
                tx.insert(&table, &vec![0xff; max_key], b"").expect("the highest key");
                tx.insert(&table, b"value", &vec![b'v'; max_value]).expect("the longest value");
                for len in [max_key + 1, 10 * max_key, 1 << 20] {
                    let error = tx.insert(&table, &vec![1; len], b"").expect_err("too long");
                    assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
                    // Reading a key that cannot be is no error: there is no such row.
                    assert_eq!(tx.get(&table, &vec![1; len]).expect("no row"), None);
                    let error = tx.delete(&table, &vec![1; len]).expect_err("too long");
                    assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
                }
                tx.commit().expect("committed");
            },
            |db| {
                let (max_key, max_value) = limits.get();
                let table = db.table("t").expect("there");
                let mut tx = db.snapshot();
                let mut rows = tx.scan(&table, KeyRange::all(), Direction::Forward);
                let mut found = Vec::new();
                while let Some((key, value)) = rows.next(&mut tx).expect("readable") {
                    found.push((key.to_vec(), value.len()));
                }
                let expected = [
                    (vec![], 0),
                    (vec![0; max_key], 0),
                    (b"value".to_vec(), max_value),
                    (vec![0xff; max_key], 0),
                ];
                assert_eq!(found, expected);
                let low = vec![0xff; 3 * max_key];
                let range = KeyRange::new(Bound::Included(&low[..]), Bound::Unbounded);
                let mut rows = tx.scan(&table, range, Direction::Backward);
                assert_eq!(rows.next(&mut tx).expect("readable"), None, "nothing is above the highest key");
            },
        );
    }
}

/// The first bytes of a name, as a key of its own.
fn short(name: &str) -> Vec<u8> {
    name.bytes().take(100).collect()
}

#[test]
fn names_odd_and_long() {
    let long = "n".repeat(255);
    let good =
        ["t", " ", "a\0b", "line\nbreak", "../../etc/passwd", "object/", "naïve Тест 表 🜁", &long[..], "."];
    in_every_life(
        1024,
        |db| {
            for name in good {
                let table = db.create_table(name).expect("a good name");
                db.transact(|tx| tx.insert(&table, &short(name), b"")).expect("committed");
                let error = db.create_table(name).expect_err("taken");
                assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
            }
            for name in ["", &"n".repeat(256)[..], &"ä".repeat(128)[..], &"x".repeat(1 << 20)[..]] {
                let error = db.create_table(name).expect_err("a bad name");
                assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
                assert!(error.to_string().len() < 1000, "an error repeats no megabyte");
                assert_eq!(db.table(name).expect_err("none").kind(), ErrorKind::NotFound);
                assert_eq!(db.drop_table(name).expect_err("none").kind(), ErrorKind::NotFound);
                let error = db.rename_table("t", name).expect_err("a bad name");
                assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
            }
        },
        |db| {
            let mut expected = good.map(str::to_owned);
            expected.sort();
            assert_eq!(db.table_names(), expected);
            for name in good {
                let table = db.table(name).expect("there");
                assert_eq!(db.snapshot().get(&table, &short(name)).expect("read").as_deref(), Some(&b""[..]));
            }
        },
    );
}

#[test]
fn definitions_that_cannot_be() {
    let disks = Bed::new(1);
    let db = quiet().log(|log| log.devices(1)).create_on(disks.devices()).expect("created");
    let column = |name: &str| Column::new(name, ColumnType::I64);
    for (what, schema) in [
        ("no column", Schema::with_key(vec![], &["id"])),
        ("a key that is no column", Schema::with_key(vec![column("a")], &["id"])),
        ("a key of no column", Schema::with_key(vec![column("a")], &[])),
        ("a column twice", Schema::with_key(vec![column("a"), column("a")], &["a"])),
        ("a key column twice", Schema::with_key(vec![column("a")], &["a", "a"])),
        ("a column without a name", Schema::with_key(vec![column("")], &[""])),
    ] {
        case(what, || {
            let refused = match schema {
                Err(_) => true,
                Ok(schema) => db.create_table_with("t", TableSpec::typed(schema)).is_err(),
            };
            assert!(refused);
        });
    }
    let schema = || Schema::with_key(vec![column("a"), column("b")], &["a"]).expect("good");
    let specs = [
        ("an index over no column", IndexSpec::columns("i", false, vec![])),
        (
            "an index over a column there is not",
            IndexSpec::columns("i", false, vec![KeyColumn::ascending(9)]),
        ),
        ("an index without a name", IndexSpec::columns("", false, vec![KeyColumn::ascending(1)])),
        ("ranges over columns", IndexSpec::ranges("i", false, vec![IndexPart::Value(0..1)])),
    ];
    for (what, index) in specs {
        case(what, || {
            let error =
                db.create_table_with("t", TableSpec::typed(schema()).with_index(index)).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
            assert_eq!(db.table("t").expect_err("none").kind(), ErrorKind::NotFound);
        });
    }
    let backwards = std::ops::Range { start: 3, end: 1 };
    for (what, range) in
        [("a backward range", backwards), ("an endless one", 0..usize::MAX), ("an empty one", 2..2)]
    {
        case(what, || {
            let spec =
                TableSpec::raw().with_index(IndexSpec::ranges("i", false, vec![IndexPart::Value(range)]));
            if let Ok(table) = db.create_table_with("t", spec) {
                // Then rows that are too short for it must do no harm.
                let outcome = db.transact(|tx| tx.put(&table, b"k", b"v"));
                assert!(outcome.is_ok() || outcome.is_err_and(|e| e.kind() == ErrorKind::BadArgument));
                db.drop_table("t").expect("dropped");
            }
        });
    }
    let report = db.check(&mut |_| {}).expect("checked");
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn global_ids_of_every_length() {
    let disks = Bed::new(1);
    let options = || quiet().log(|log| log.devices(1));
    let db = options().create_on(disks.devices()).expect("created");
    let table = db.create_table("t").expect("a table");
    for len in [0usize, 257, 4096, 1 << 20] {
        let mut tx = db.begin();
        tx.insert(&table, b"never", b"").expect("inserted");
        let error = tx.prepare(&vec![7; len]).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
        assert_eq!(db.snapshot().get(&table, b"never").expect("read"), None);
    }
    for len in [1usize, 256] {
        let mut tx = db.begin();
        tx.insert(&table, &[len as u8], b"").expect("inserted");
        tx.prepare(&vec![7; len]).expect("prepared");
    }
    drop(table);
    drop(db);
    let db = options().open_on(disks.devices()).expect("opens");
    let mut prepared = db.prepared();
    prepared.sort();
    assert_eq!(prepared, [vec![7; 1], vec![7; 256]]);
    assert_eq!(db.commit_prepared(&[]).expect_err("none").kind(), ErrorKind::BadArgument);
    db.commit_prepared(&[7]).expect("committed");
    db.rollback_prepared(&[7; 256]).expect("rolled back");
    let table = db.table("t").expect("there");
    assert_eq!(db.snapshot().get(&table, &[1]).expect("read"), Some(vec![]));
    assert_eq!(db.snapshot().get(&table, &[0]).expect("read"), None);
}

/// A savepoint is a number among its transaction's changes: another transaction once went back to
/// that number of its own.
#[test]
fn savepoints_and_cursors_of_another_transaction() {
    let spec = TableSpec::raw().with_index(IndexSpec::ranges("i", false, vec![IndexPart::Key(0..1)]));
    let db = quiet().log(|log| log.devices(1)).create_on(Bed::new(1).devices()).expect("created");
    let table = db.create_table_with("t", spec).expect("a table");
    let index = table.index("i").expect("just created");
    db.transact(|tx| [b"1", b"2", b"3"].iter().try_for_each(|key| tx.insert(&table, *key, b"old")))
        .expect("committed");
    let refused = |error: firndb::Error| {
        assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
        assert!(error.to_string().contains("transaction"), "{error}");
    };
    let (mut one, mut two) = (db.begin(), db.begin());
    // Neither has an id yet; then both have, and have written as much.
    let early = one.savepoint();
    refused(two.rollback_to(&early).expect_err("not its own"));
    one.put(&table, b"1", b"new").expect("free");
    two.put(&table, b"2", b"new").expect("free");
    let late = one.savepoint();
    two.put(&table, b"3", b"new").expect("free");
    for savepoint in [&early, &late] {
        refused(two.rollback_to(savepoint).expect_err("not its own"));
    }
    // What is refused has undone nothing, and the transaction goes on.
    assert_eq!(two.get(&table, b"3"), Ok(Some(b"new".to_vec())));
    let mut cursor = one.scan(&table, KeyRange::all(), Direction::Forward);
    cursor.next(&mut one).expect("read").expect("a row");
    refused(cursor.next(&mut two).expect_err("not its own"));
    let mut cursor = one.scan_index(&index, KeyRange::all(), Direction::Forward);
    cursor.next(&mut one).expect("read").expect("a row");
    refused(cursor.next(&mut two).expect_err("not its own"));
    one.rollback_to(&early).expect("its own");
    one.commit().expect("committed");
    two.commit().expect("committed");
    // Nor one of a transaction that has ended.
    let mut three = db.begin();
    three.put(&table, b"1", b"newer").expect("free");
    refused(three.rollback_to(&early).expect_err("not its own"));
    three.commit().expect("committed");
    let mut tx = db.snapshot();
    let found = [b"1", b"2", b"3"].map(|key| tx.get(&table, key).expect("read").expect("a row"));
    assert_eq!(found, [b"newer".to_vec(), b"new".to_vec(), b"new".to_vec()]);
}
