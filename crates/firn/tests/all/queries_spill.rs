//! Queries whose rows do not fit in their memory keep them on the device that the options name.

use firndb::query::{Hint, JoinMethod, Query, Row, col};
use firndb::{Column, ColumnType, Database, ErrorKind, Options, Schema, TableSpec, Value};
use firndb_base::sync::Arc;
use firndb_device::{Calls, DeviceErrorKind, Fault, FaultPlan, FaultRule, Faulty, When};
use std::path::Path;

const ROWS: i64 = 3000;

fn filled(db: &Database, name: &str) {
    let columns = vec![
        Column::new(format!("{name}_id"), ColumnType::I64),
        Column::new(format!("{name}_v"), ColumnType::I64),
        Column::new(format!("{name}_pad"), ColumnType::Text),
    ];
    let schema = Schema::with_key(columns, &[&format!("{name}_id")]).unwrap();
    let table = db.create_table_with(name, TableSpec::typed(schema)).unwrap().typed().unwrap();
    let pad = "x".repeat(80);
    let row = |id: i64| [Value::I64(id), Value::I64(id * 7919 % ROWS), Value::Text(pad.clone())];
    db.transact(|tx| (0..ROWS).try_for_each(|id| table.insert(tx, &row(id).each_ref().map(Value::as_ref))))
        .unwrap();
}

fn options(dir: &Path) -> Options {
    Options::new().buffer_bytes(4 << 20).spill_path(dir.join("spill"))
}

fn opened(options: Options, dir: &Path) -> Database {
    let db = options.open(dir.join("db")).unwrap();
    if db.table("a").is_err() {
        ["a", "b"].into_iter().for_each(|name| filled(&db, name));
    }
    db
}

/// A sort, and a join by hash, of more rows than fit in their memory.
fn queries(db: &Database) -> [Query; 2] {
    let join = db.query("a").join("b", col("a_v").eq(col("b_v"))).select(["a_id", "a_pad", "b_pad"]);
    [
        db.query("a").sort(["a_v"]).memory(128 << 10),
        join.hint(Hint::Join("b".into(), JoinMethod::Hash)).memory(192 << 10),
    ]
}

fn run(db: &Database, query: &Query) -> Result<(Vec<Vec<Value>>, String), firndb::Error> {
    let mut tx = db.snapshot();
    let mut rows = query.run(&mut tx)?;
    let all = rows.all(&mut tx)?.into_iter().map(Row::into_values).collect();
    Ok((all, rows.report()))
}

#[test]
fn what_does_not_fit_in_memory_goes_to_the_device_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("spill");
    let db = opened(options(dir.path()), dir.path());
    let mut expected = Vec::new();
    for query in queries(&db) {
        let (mut rows, report) = run(&db, &query).unwrap();
        assert!(!report.contains(", 0 bytes spilled"), "{report}");
        let (mut fits, report) = run(&db, &query.memory(64 << 20)).unwrap();
        assert!(report.contains(", 0 bytes spilled"), "{report}");
        assert!(rows.len() as i64 == ROWS);
        rows.sort();
        fits.sort();
        assert!(rows == fits, "the same rows");
        expected.push(fits);
    }
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 4096, "given back at the end of each query");
    // A query that is still there when the process ends leaves its rows behind.
    let mut tx = db.snapshot();
    let mut rows = queries(&db)[0].run(&mut tx).unwrap();
    rows.next(&mut tx).unwrap();
    let left = std::fs::read(&file).unwrap();
    assert!(left.len() > 100 << 10);
    drop((rows, tx));
    db.close().unwrap();
    std::fs::write(&file, &left).unwrap();
    let db = opened(options(dir.path()), dir.path());
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 4096, "emptied at opening");
    assert_eq!(run(&db, &queries(&db)[0]).unwrap().0.len(), expected[0].len());
}

#[test]
fn no_device_and_a_full_one_are_errors_that_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let db = opened(Options::new().buffer_bytes(4 << 20), dir.path());
    assert!(queries(&db)[0].explain().unwrap().to_string().contains("no spill device"));
    let error = run(&db, &queries(&db)[0]).unwrap_err();
    assert!(error.kind() == ErrorKind::Full && error.to_string().contains("spill"), "{error}");
    db.close().unwrap();
    let db = opened(options(dir.path()).spill_bytes(4 << 20), dir.path());
    let both = db.query("a").join("b as c", col("a_v").eq(col("c.b_v")));
    let both = both.join("b", col("a_id").eq(col("b.b_id"))).sort(["-a_v"]).memory(256 << 10);
    let error = run(&db, &both).map(|found| found.1).unwrap_err();
    let text = error.to_string();
    assert!(
        error.kind() == ErrorKind::Full && text.contains("spill_bytes") && text.contains("4194304"),
        "{text}"
    );
    // The database, and queries that need less, are none the worse.
    assert_eq!(run(&db, &queries(&db)[0]).unwrap().0.len() as i64, ROWS);
    drop(both);
    db.close().unwrap();
    let refused = Options::new().spill_bytes(1000).open(dir.path().join("db")).unwrap_err();
    assert!(refused.to_string().contains("spill_bytes is 1000"), "{refused}");
}

#[test]
fn a_call_that_fails_ends_the_query_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let db = opened(Options::new().buffer_bytes(4 << 20), dir.path());
    let expected: Vec<usize> = [ROWS as usize, ROWS as usize].to_vec();
    db.close().unwrap();
    let (mut failed, mut survived) = (0, 0);
    for nth in [0, 1, 2, 5, 9, 17, 30, 400] {
        for kind in [DeviceErrorKind::Failed, DeviceErrorKind::NoSpace] {
            let faults = FaultPlan::new(nth);
            let with = faults.clone();
            let options = options(dir.path()).wrap_devices(move |name, device| match name {
                "spill" => Ok(Arc::new(Faulty::new(device, &with))),
                _ => Ok(device),
            });
            let db = opened(options, dir.path());
            for (number, query) in queries(&db).iter().enumerate() {
                let calls = if kind == DeviceErrorKind::NoSpace { Calls::Writes } else { Calls::Any };
                let rule = FaultRule { calls, device: None, when: When::Nth(nth), fault: Fault::Fail(kind) };
                faults.add(rule);
                match run(&db, query) {
                    Ok((rows, _)) => {
                        assert_eq!(rows.len(), expected[number]);
                        survived += 1;
                    }
                    Err(error) => {
                        let full = kind == DeviceErrorKind::NoSpace;
                        assert_eq!(error.kind() == ErrorKind::Full, full, "{error}");
                        assert!(error.to_string().contains("spill"), "{error}");
                        failed += 1;
                    }
                }
                faults.heal();
                assert_eq!(run(&db, query).unwrap().0.len(), expected[number]);
            }
            db.transact(|tx| {
                let table = db.table("a")?.typed()?;
                table.put(tx, &[Value::I64(0), Value::I64(0), "".into()].each_ref().map(Value::as_ref))
            })
            .unwrap();
            db.close().unwrap();
        }
    }
    assert!(failed > 15 && survived > 1, "{failed} failed, {survived} survived");
}

#[test]
fn what_holds_anything_else_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    opened(Options::new().buffer_bytes(4 << 20), dir.path()).close().unwrap();
    let thesis = dir.path().join("thesis");
    for text in ["short".to_owned(), "long".repeat(4096)] {
        std::fs::write(&thesis, &text).unwrap();
        let error = Options::new().spill_path(&thesis).open(dir.path().join("db")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
        assert_eq!(std::fs::read_to_string(&thesis).unwrap(), text);
    }
    let error = Options::new().spill_path("store").open(dir.path().join("db")).unwrap_err();
    assert!(
        error.kind() == ErrorKind::BadArgument && error.to_string().contains("of the database"),
        "{error}"
    );
    let db = opened(options(dir.path()), dir.path());
    assert_eq!(db.query("a").count(&mut db.snapshot()).unwrap() as i64, ROWS);
}

/// Three rows are expected where there are 3,000, and then 3,000 where there are three.
#[test]
fn a_join_whose_estimate_is_wrong_changes_its_method_and_reports_it() {
    let dir = tempfile::tempdir().unwrap();
    let db = opened(options(dir.path()), dir.path());
    for name in ["a", "b"] {
        db.analyze(&db.table(name).unwrap()).unwrap();
    }
    for (below, factor, outcome) in [
        (ROWS, 0.001, " rows looked up, the rest joined by hash"),
        (3, 1000.0, "adaptive join with b: 3 rows looked up\n"),
    ] {
        let joined = |kind: &str| {
            let (a, on) = (db.query("a").filter(col("a_id").lt(below)), col("a_v").eq(col("b_id")));
            if kind == "left" { a.left_join("b", on) } else { a.join("b", on) }
        };
        for kind in ["inner", "left"] {
            let query = joined(kind).memory(16 << 20).misjudged(factor);
            let plan = query.explain().unwrap().plan;
            assert!(plan.contains("adaptive index nested loops join with b"), "{plan}");
            assert_eq!(plan.ends_with(", likely by hash"), factor > 1.0, "{plan}");
            let (mut rows, report) = run(&db, &query).unwrap();
            assert!(report.contains(outcome), "{report}");
            let forced = joined(kind).hint(Hint::Join("b".into(), JoinMethod::IndexNestedLoops));
            let (mut expected, of_forced) = run(&db, &forced).unwrap();
            assert!(!of_forced.contains("adaptive"), "a hint asks for lookups alone: {of_forced}");
            rows.sort();
            expected.sort();
            assert_eq!(rows, expected);
            assert_eq!(rows.len() as i64, below);
        }
    }
}
