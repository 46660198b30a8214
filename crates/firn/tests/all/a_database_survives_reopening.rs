//! What was committed is there after closing and opening, after dropping without closing, and in
//! memory devices as in files.

use firndb::{Database, Direction, ErrorKind, KeyRange, Options};

fn small() -> Options {
    Options::new().buffer_bytes(2 << 20).log(|log| log.bytes(4 << 20).devices(2))
}

fn rows(db: &Database, name: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let table = db.table(name).expect("the table exists");
    let mut tx = db.snapshot();
    let mut cursor = tx.scan(&table, KeyRange::all(), Direction::Forward);
    let mut rows = Vec::new();
    while let Some((key, value)) = cursor.next(&mut tx).expect("readable") {
        rows.push((key.to_vec(), value.to_vec()));
    }
    rows
}

#[test]
fn closed_and_opened_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    let mut expected = Vec::new();
    for life in 0..4u32 {
        let db = small().open(&path).expect("opens");
        assert!(db.recovery_report().clean, "life {life}");
        let table = db.open_table("t").expect("a table");
        assert_eq!(rows(&db, "t"), expected);
        for i in 0..500u32 {
            let key = (life * 1000 + i).to_be_bytes();
            db.transact(|tx| {
                tx.put(&table, &key, format!("value {i} of life {life}").as_bytes()).map(|_| ())
            })
            .expect("commits");
            expected.push((key.to_vec(), format!("value {i} of life {life}").into_bytes()));
        }
        db.close().expect("closes");
    }
}

#[test]
fn dropped_with_a_transaction_open() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    {
        let db = small().open(&path).expect("opens");
        let table = db.create_table("t").expect("a table");
        db.transact(|tx| tx.insert(&table, b"kept", b"1")).expect("commits");
        let mut open = db.begin();
        open.insert(&table, b"lost", b"2").expect("writes");
        open.put(&table, b"kept", b"changed").expect("writes");
        // Closing leaves the open transaction to recovery.
        db.close().expect("closes");
        assert_eq!(open.get(&table, b"kept").expect_err("closed").kind(), ErrorKind::Closed);
    }
    let db = small().open(&path).expect("opens");
    assert_eq!(rows(&db, "t"), [(b"kept".to_vec(), b"1".to_vec())]);
    assert_eq!(db.recovery_report().losers, 1);
    let report = db.check(&mut |_| {}).expect("can be checked");
    assert_eq!(report.damage, Vec::<String>::new());
    assert_eq!(report.leaked_pages, 0);
}

#[test]
fn two_openings_at_once_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    let db = small().open(&path).expect("opens");
    let error = small().open(&path).expect_err("it is open already");
    assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
    drop(db);
    small().open(&path).expect("opens after the first is gone");
    let error = small().create(false).open(dir.path().join("none")).expect_err("there is none");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}
