//! Queries return what a naive evaluation returns, whatever plan is chosen or forced.

use firndb::query::{AccessKind, Condition, Hint, JoinMethod, Query, Row, col};
use firndb::{
    CancelToken, Column, ColumnType, Database, ErrorKind, IndexSpec, Isolation, KeyColumn, Schema, TableSpec,
    TransactionOptions, Value,
};
use firndb_base::rng::Rng;
use std::time::Duration;

type Rows = Vec<Vec<Value>>;

/// A table NAME of columns N_id (its key), N_k (NULL, indexed by `by_k`), N_s (NULL), N_v (indexed
/// with N_k by `by_v`).
fn filled(db: &Database, name: &str, rows: i64, rng: &mut Rng) -> Rows {
    let column = |end: &str, kind| Column::new(format!("{name}_{end}"), kind);
    let columns = vec![
        column("id", ColumnType::I64),
        column("k", ColumnType::I64).nullable(),
        column("s", ColumnType::Text).nullable(),
        column("v", ColumnType::I32),
    ];
    let schema = Schema::with_key(columns, &[&format!("{name}_id")]).unwrap();
    let by_v = vec![KeyColumn { column: 3, descending: true }, KeyColumn::ascending(1)];
    let spec = TableSpec::typed(schema)
        .with_index(IndexSpec::columns("by_k", false, vec![KeyColumn::ascending(1)]))
        .with_index(IndexSpec::columns("by_v", false, by_v));
    let table = db.create_table_with(name, spec).unwrap().typed().unwrap();
    let all: Rows = (0..rows)
        .map(|id| {
            let k = if rng.one_in(8) { Value::Null } else { Value::I64(rng.below(30) as i64) };
            let s = if rng.one_in(8) { Value::Null } else { ["a", "b", "c"][rng.below(3) as usize].into() };
            vec![Value::I64(id), k, s, Value::I32(rng.below(20) as i32)]
        })
        .collect();
    db.transact(|tx| {
        all.iter().try_for_each(|row| table.insert(tx, &row.iter().map(Value::as_ref).collect::<Vec<_>>()))
    })
    .unwrap();
    all
}

/// What a condition says of a row; `None`: unknown.
type Naive = Box<dyn Fn(&[Value]) -> Option<bool>>;

/// A comparison of a column of one table, whose first column in the joined row is `first`.
fn random_condition(rng: &mut Rng, name: &str, first: usize) -> (Condition, Naive) {
    let (end, at) = [("id", 0), ("k", 1), ("v", 3)][rng.below(3) as usize];
    let (column, at, x) = (col(format!("{name}_{end}")), first + at, rng.below(32) as i64);
    let number = move |row: &[Value]| match &row[at] {
        Value::I64(number) => Some(*number),
        Value::I32(number) => Some(i64::from(*number)),
        _ => None,
    };
    match rng.below(6) {
        0 => (column.eq(x), Box::new(move |row| Some(number(row)? == x))),
        1 => (column.lt(x), Box::new(move |row| Some(number(row)? < x))),
        2 => (column.ge(x), Box::new(move |row| Some(number(row)? >= x))),
        3 => (column.between(x, x + 4), Box::new(move |row| Some((x..=x + 4).contains(&number(row)?)))),
        4 => (column.is_null(), Box::new(move |row| Some(number(row).is_none()))),
        _ => (!column.ne(x), Box::new(move |row| Some(number(row)? == x))),
    }
}

fn values(rows: Vec<Row>) -> Rows {
    rows.into_iter().map(Row::into_values).collect()
}

fn sorted(mut rows: Rows) -> Rows {
    rows.sort();
    rows
}

/// Every way to read the table that the planner accepts, and its own choice.
fn forced(query: &Query, table: &str) -> Vec<Query> {
    let mut all = vec![query.clone()];
    all.push(query.clone().hint(Hint::Access(table.into(), AccessKind::TableScan, None)));
    for index in ["by_k", "by_v"] {
        for kind in [AccessKind::IndexScan, AccessKind::IndexFetch, AccessKind::IndexOnly] {
            all.push(query.clone().hint(Hint::Access(table.into(), kind, Some(index.into()))));
        }
    }
    all
}

#[test]
fn one_table_by_every_access_is_what_a_naive_evaluation_returns() {
    let (dir, mut rng) = (tempfile::tempdir().unwrap(), Rng::new(1));
    let db = Database::open(dir.path().join("db")).unwrap();
    let rows = filled(&db, "t", 300, &mut rng);
    let (mut run, mut refused, mut found) = (0, 0, 0);
    for round in 0..60 {
        if round == 30 {
            db.analyze(&db.table("t").unwrap()).unwrap();
        }
        let mut query = db.query("t");
        let mut expected = rows.clone();
        for _ in 0..rng.below(3) {
            let (condition, naive) = random_condition(&mut rng, "t", 0);
            query = query.filter(condition);
            expected.retain(|row| naive(row) == Some(true));
        }
        let is_sorted = rng.one_in(2);
        if is_sorted {
            query = query.sort(["-t_v", "t_id"]);
            expected.sort_by_key(|row| (std::cmp::Reverse(row[3].clone()), row[0].clone()));
        }
        if rng.one_in(2) {
            query = query.select(["t_v", "t_id", "t_k"]);
            expected = expected.iter().map(|r| vec![r[3].clone(), r[0].clone(), r[1].clone()]).collect();
        }
        for query in forced(&query, "t") {
            let options = TransactionOptions {
                isolation: [Isolation::Snapshot, Isolation::ReadCommitted, Isolation::Serializable]
                    [rng.below(3) as usize],
                ..TransactionOptions::default()
            };
            let mut tx = db.begin_with(options);
            match query.run(&mut tx) {
                Ok(mut rows) => {
                    let all = values(rows.all(&mut tx).unwrap());
                    let (all, expected) = if is_sorted {
                        (all, expected.clone())
                    } else {
                        (sorted(all), sorted(expected.clone()))
                    };
                    assert_eq!(all, expected, "{}", query.explain().unwrap());
                    assert_eq!(query.count(&mut tx).unwrap(), expected.len() as u64);
                    let few = query.clone().limit(3).run(&mut tx).unwrap().all(&mut tx).unwrap();
                    assert_eq!(few.len(), expected.len().min(3));
                    assert!(rows.report().contains("expected"));
                    (run, found) = (run + 1, found + expected.len());
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
                    assert!(error.to_string().contains("hints"), "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(run > 300 && refused > 20 && found > 5000, "{run} {refused} {found}");
}

#[test]
fn joins_by_every_operator_are_what_a_naive_evaluation_returns() {
    let (dir, mut rng) = (tempfile::tempdir().unwrap(), Rng::new(2));
    let db = Database::open(dir.path().join("db")).unwrap();
    let tables = ["a", "b", "c"].map(|name| filled(&db, name, 60, &mut rng));
    let (mut run, mut refused, mut found) = (0, 0, 0);
    for round in 0..60 {
        let (is_outer, third) = (rng.one_in(2), rng.one_in(3));
        let on = [("a_k", "b_k", 1, 5), ("a_k", "b_id", 1, 4), ("a_v", "b_v", 3, 7)][rng.below(3) as usize];
        let (name, first) = [("a", 0), ("b", 4)][rng.below(2) as usize];
        let (more, naive_more) = random_condition(&mut rng, name, first);
        let has_more = rng.one_in(3);
        let condition = col(on.0).eq(col(on.1));
        let condition = if has_more { condition.and(more) } else { condition };
        let matches = |pair: &[Value]| {
            let (left, right) = (&pair[on.2], &pair[on.3]);
            *left != Value::Null && left == right && (!has_more || naive_more(pair) == Some(true))
        };
        let mut query = db.query("a");
        query = if is_outer { query.left_join("b", condition) } else { query.join("b", condition) };
        let mut expected = Rows::new();
        for left in &tables[0] {
            let pairs = tables[1].iter().map(|right| [&left[..], right].concat());
            let before = expected.len();
            expected.extend(pairs.filter(|pair| matches(pair)));
            if is_outer && expected.len() == before {
                expected.push([&left[..], &[const { Value::Null }; 4]].concat());
            }
        }
        if third {
            query = query.join("c", col("b_k").eq(col("c_k")));
            let pairs = expected.iter().flat_map(|pair| tables[2].iter().map(|c| [&pair[..], c].concat()));
            expected = pairs.filter(|row| row[5] != Value::Null && row[5] == row[9]).collect();
        }
        for _ in 0..rng.below(3) {
            let (name, first) = [("a", 0), ("b", 4)][rng.below(2) as usize];
            let (condition, naive) = random_condition(&mut rng, name, first);
            query = query.filter(condition);
            expected.retain(|row| naive(row) == Some(true));
        }
        let expected = sorted(expected);
        assert_eq!(query.count(&mut db.snapshot()).unwrap(), expected.len() as u64, "round {round}");
        let (name, at) = [("a_s", 2), ("b_id", 4)][rng.below(2) as usize];
        let one_column = query.clone().select([name]);
        let all = one_column.run(&mut db.snapshot()).unwrap().all(&mut db.snapshot());
        let of_column = expected.iter().map(|row| vec![row[at].clone()]).collect();
        assert_eq!(sorted(values(all.unwrap())), sorted(of_column), "round {round}: {name}");
        let mut queries = vec![query.clone(), query.clone().sort(["a_s", "b_v"])];
        for method in JoinMethod::ALL {
            queries.push(query.clone().hint(Hint::Join("b".into(), method)));
            let order = if third { vec!["b", "a", "c"] } else { vec!["b", "a"] };
            let order = Hint::Order(order.into_iter().map(Into::into).collect());
            queries.push(query.clone().hint(Hint::Join("a".into(), method)).hint(order));
        }
        for query in queries {
            let mut tx = db.snapshot();
            match query.run(&mut tx) {
                Ok(mut rows) => {
                    let all = sorted(values(rows.all(&mut tx).unwrap()));
                    assert_eq!(all, expected, "round {round}: {}", query.explain().unwrap());
                    (run, found) = (run + 1, found + expected.len());
                }
                Err(error) => {
                    assert!(error.to_string().contains("hints"), "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(run > 250 && refused > 20 && found > 5000, "{run} {refused} {found}");
}

/// Of `a_id = a_k` and `a_k = b_k` follows `a_id = b_k`, by which rows are then joined, too: once
/// that read a column that the plan had dropped.
#[test]
fn what_follows_from_conditions_is_read_wherever_it_is_compared() {
    let (dir, mut rng) = (tempfile::tempdir().unwrap(), Rng::new(7));
    let db = Database::open(dir.path().join("db")).unwrap();
    let tables = ["a", "b"].map(|name| filled(&db, name, 200, &mut rng));
    let of_a = tables[0].iter().filter(|row| row[0] == row[1] && row[1] < Value::I64(20));
    let pairs = of_a.flat_map(|a| tables[1].iter().filter(|b| b[1] == a[1]));
    let expected: Rows = pairs.map(|b| vec![b[0].clone()]).collect();
    assert!(expected.len() > 3, "{expected:?}");
    let query = db
        .query("a")
        .filter(col("a_id").eq(col("a_k")).and(col("a_k").lt(20)))
        .join("b", col("a_k").eq(col("b_k")))
        .select(["b_id"]);
    let mut queries = vec![query.clone()];
    queries.extend(JoinMethod::ALL.map(|method| query.clone().hint(Hint::Join("b".into(), method))));
    for query in queries {
        let mut tx = db.snapshot();
        let found = query.run(&mut tx).unwrap().all(&mut tx).unwrap();
        assert_eq!(sorted(values(found)), sorted(expected.clone()), "{}", query.explain().unwrap());
    }
}

#[test]
fn errors_name_what_there_is_and_ends_are_kept() {
    let (dir, mut rng) = (tempfile::tempdir().unwrap(), Rng::new(3));
    let db = Database::open(dir.path().join("db")).unwrap();
    filled(&db, "t", 50, &mut rng);
    let refused = |query: Query, words: &[&str]| {
        let error = query.explain().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    };
    refused(db.query("t").filter(col("x").eq(1)), &["\"x\"", "t_id, t_k, t_s, t_v"]);
    refused(db.query("t").filter(col("t_s").eq(1)), &["t_s", "text", "i32"]);
    refused(db.query("t").filter(col("t_v").eq(1i64 << 40)), &["t_v", "i32"]);
    refused(db.query("t").filter(col("t_v").eq(col("t_k"))), &["t_v", "t_k"]);
    refused(db.query("t").join("t", col("t_v").eq(1)), &["comes twice", "as other"]);
    let both = || db.query("t as x").join("t as y", col("x.t_id").eq(col("y.t_k")));
    refused(both().select(["t_v"]), &["ambiguous", "x.t_v or y.t_v"]);
    refused(db.query("t").hint(Hint::Access("t".into(), AccessKind::IndexScan, None)), &["by_k, by_v"]);
    assert_eq!(db.query("none").explain().unwrap_err().kind(), ErrorKind::NotFound);
    assert!(both().select(["x.t_v", "y.t_id"]).explain().is_ok());

    let before = db.query("t").explain().unwrap();
    assert!(
        before.to_string().contains("analyze it") && before.to_string().contains("no profile"),
        "{before}"
    );
    db.analyze(&db.table("t").unwrap()).unwrap();
    let after = db.query("t").filter(col("t_id").lt(10)).explain().unwrap();
    assert!(after.to_string().contains("statistics (50 rows"), "{after}");
    assert!((9.0..=11.0).contains(&after.rows) && after.next_best.len() == 2, "{after:?}");

    let mut tx = db.snapshot();
    let mut late = db.query("t").deadline(Duration::ZERO).run(&mut tx).unwrap();
    assert_eq!(late.next(&mut tx).unwrap_err().kind(), ErrorKind::Timeout);
    let token = CancelToken::new();
    let mut ended = db.query("t").cancel(token.clone()).run(&mut tx).unwrap();
    token.cancel();
    assert_eq!(ended.next(&mut tx).unwrap_err().kind(), ErrorKind::Cancelled);
    let mut row = db.query("t").select(["t_id"]).sort(["-t_id"]).run(&mut tx).unwrap();
    let row = row.next(&mut tx).unwrap().unwrap();
    assert_eq!(row.get("t_id").unwrap(), &Value::I64(49));
    assert!(row.get("t_k").unwrap_err().to_string().contains("it has t_id"));
}

/// Chains are not nested, however long; what is nested too deeply, and too little memory, are
/// refused before anything walks or plans it.
#[test]
fn conditions_of_any_length_run_and_what_cannot_be_planned_is_refused() {
    let (dir, mut rng) = (tempfile::tempdir().unwrap(), Rng::new(8));
    let db = Database::open(dir.path().join("db")).unwrap();
    let rows = filled(&db, "t", 50, &mut rng);
    let ids = || (0..20_000).map(|id| col("t_id").eq(2 * id));
    let run = move || {
        let count = |condition| db.query("t").filter(condition).count(&mut db.snapshot());
        assert_eq!(count(ids().reduce(Condition::or).unwrap()).unwrap(), 25);
        assert_eq!(count(ids().map(|one| !one).reduce(Condition::and).unwrap()).unwrap(), 25);
        let deep = (0..100_000).fold(col("t_id").eq(1), |of, _| !of);
        assert_eq!(count(deep).unwrap_err().kind(), ErrorKind::BadArgument);
        let nested = |depth: usize| (0..depth).fold(col("t_id").eq(1), |of, _| !of);
        assert_eq!(count(nested(60)).unwrap(), 1);
        assert_eq!(count(nested(61)).unwrap_err().kind(), ErrorKind::BadArgument);
        let from_the_right = ids().take(2000).reduce(|all, one| one.or(all)).unwrap();
        assert_eq!(count(from_the_right).unwrap(), 25);
        let sorted = db.query("t").sort(["t_s"]);
        let join = db.query("t as x").join("t as y", col("x.t_k").eq(col("y.t_k"))).sort(["x.t_s"]);
        for (query, memory) in [sorted, join].iter().flat_map(|of| [0, 7, 31, 65_535].map(|it| (of, it))) {
            let error = query.clone().memory(memory).explain().unwrap_err();
            assert!(
                error.kind() == ErrorKind::BadArgument && error.to_string().contains("memory"),
                "{error}"
            );
        }
    };
    assert_eq!(rows.len(), 50);
    // As little stack as threads have by default.
    let small = std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap();
    small.join().unwrap();
}

/// An index that was completed after a snapshot is of no use to it, and does not stop its queries.
#[test]
fn an_older_snapshot_is_queried_without_an_index_that_was_completed_after_it() {
    let (dir, mut rng) = (tempfile::tempdir().unwrap(), Rng::new(9));
    let db = Database::open(dir.path().join("db")).unwrap();
    filled(&db, "t", 500, &mut rng);
    let by_id = || db.query("t").filter(col("t_s").eq("a")).select(["t_id", "t_s"]);
    let join = || {
        let on = col("t.t_s").eq(col("u.t_s")).and(col("u.t_s").eq("a"));
        db.query("t").join("t as u", on).select(["u.t_id"])
    };
    let mut tx = db.snapshot();
    let before = [by_id().count(&mut tx).unwrap(), join().count(&mut tx).unwrap()];
    let index = IndexSpec::columns("by_s", false, vec![KeyColumn::ascending(2)]);
    db.create_index(&db.table("t").unwrap(), index).unwrap();
    let hint =
        |query: Query| query.hint(Hint::Access("t".into(), AccessKind::IndexFetch, Some("by_s".into())));
    assert_eq!([by_id(), join()].map(|query| query.count(&mut tx).unwrap()), before);
    assert!(hint(by_id()).count(&mut tx).unwrap_err().to_string().contains("by_s"));
    assert_eq!(hint(by_id()).count(&mut db.snapshot()).unwrap(), before[0], "a newer one uses it");
}

#[test]
fn a_query_sees_the_snapshot_of_its_transaction() {
    let (dir, mut rng) = (tempfile::tempdir().unwrap(), Rng::new(4));
    let db = Database::open(dir.path().join("db")).unwrap();
    filled(&db, "t", 50, &mut rng);
    let table = db.table("t").unwrap().typed().unwrap();
    let mut tx = db.snapshot();
    assert_eq!(db.query("t").count(&mut tx).unwrap(), 50);
    db.transact(|tx| table.delete(tx, &[7i64.into()])).unwrap();
    assert_eq!(db.query("t").count(&mut tx).unwrap(), 50);
    assert_eq!(db.query("t").filter(col("t_id").eq(7)).count(&mut tx).unwrap(), 1);
    assert_eq!(db.query("t").count(&mut db.snapshot()).unwrap(), 49);
}
