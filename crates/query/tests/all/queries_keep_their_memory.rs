//! What operators keep stays within the query's limit, however large their inputs are.

use crate::common::{Filled, World, random_table, rest, spill};
use crate::naive::evaluate;
use crate::plans_agree_with_a_naive_evaluator::{random_join, random_upper};
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_device::{Counting, MemoryDevice};
use firndb_query::{Comparison, SortColumn};
use firndb_query::{JoinKind, On, Plan, Predicate, Query, QueryErrorKind, QueryOptions, Source, SpillSpace};
use firndb_table::{Column, ColumnType, IndexSpec, KeyColumn, KeyRange, Schema, TableKind, Value, ValueRef};

fn options(memory: usize) -> QueryOptions {
    QueryOptions { memory, spill: Some(spill(256 << 20)), ..QueryOptions::default() }
}

#[test]
fn no_plan_uses_more_than_its_limit() {
    let mut rng = Rng::new(7);
    let world = World::new(4 << 10);
    let tables: Vec<Filled> =
        ["a", "b"].into_iter().map(|name| random_table(&mut rng, &world, name, 600, 300)).collect();
    for round in 0..40u64 {
        let plan = random_join(&mut rng, &tables, round % 5);
        let plan = random_upper(&mut rng, plan);
        for memory in [80 << 10, 200 << 10, 4 << 20] {
            let mut query = Query::new(&plan, &options(memory)).unwrap();
            let rows = rest(&mut query, &mut world.begin()).unwrap();
            assert!(query.peak_memory() <= memory);
            assert_eq!(query.rows(), rows.len() as u64);
        }
    }
}

#[test]
fn too_little_memory_is_refused_and_a_row_that_does_not_fit_an_error() {
    let mut rng = Rng::new(8);
    let world = World::new(4 << 10);
    let of = random_table(&mut rng, &world, "a", 30, 400_000);
    let plan = Plan::scan(Source::new(&of.table).unwrap());
    let error = Query::new(&plan, &options(60 << 10)).err().expect("too little");
    assert_eq!(error.kind, QueryErrorKind::BadArgument, "{error}");
    let error = rest(&mut Query::new(&plan, &options(64 << 10)).unwrap(), &mut world.begin()).unwrap_err();
    assert!(error.kind == QueryErrorKind::OutOfMemory && error.message.contains("raise"), "{error}");
    // Rows that are longer than a batch.
    let sorted = plan.clone().sort(&[SortColumn { column: 1, descending: true }]);
    for plan in [&plan, &sorted] {
        let mut query = Query::new(plan, &options(4 << 20)).unwrap();
        evaluate(plan, std::slice::from_ref(&of))
            .assert_is(rest(&mut query, &mut world.begin()).unwrap(), &|| format!("{plan:?}"));
    }
}

fn bytes_of(value: &Value) -> usize {
    match value {
        Value::Bytes(bytes) => bytes.len(),
        other => panic!("the last column holds bytes, not {other:?}"),
    }
}

/// The build side has more than ten times the memory; nine of ten probe rows have no partner.
#[test]
fn a_hash_join_finishes_in_a_tenth_of_its_build_side_and_spares_rows_without_partner() {
    let mut rng = Rng::new(9);
    let world = World::new(4 << 10);
    let build = random_table(&mut rng, &world, "a", 4000, 500);
    let probe = random_table(&mut rng, &world, "b", 4000, 500);
    let all = |of: &Filled| Source::new(&of.table).unwrap();
    // By ids: those of the build side are one in ten of the probe side's.
    let few = Predicate::Compare(0, Comparison::Less, 350i64.into());
    let pad = build.schema.columns().len() - 1;
    let bytes: usize = build.rows.iter().map(|row| 40 + bytes_of(&row[pad])).sum();
    let memory = 64 << 10;
    // An operator has three eighths of it.
    assert!(bytes > 10 * memory * 3 / 8, "{bytes}");
    let spilled = |right: Source| {
        let device = Arc::new(Counting::new(Arc::new(MemoryDevice::new("spill"))));
        let space = SpillSpace::open(device.clone(), 256 << 20).unwrap();
        let options = QueryOptions { memory, spill: Some(space), ..QueryOptions::default() };
        let (left, right) = (Plan::scan(all(&probe)), Plan::scan(right));
        let on = On::keys(JoinKind::LeftOuter, &[(0, 0)]);
        let plan = Plan::HashJoin { left: Box::new(left), right: Box::new(right), on };
        let mut query = Query::new(&plan, &options).unwrap();
        let rows = rest(&mut query, &mut world.begin()).unwrap();
        let tables = [build.clone(), probe.clone()];
        evaluate(&plan, &tables).assert_is(rows, &|| format!("{plan:?}"));
        assert!(query.peak_memory() <= memory);
        device.snapshot().writes.bytes
    };
    let (many, few) = (spilled(all(&build)), spilled(all(&build).filter(few).unwrap()));
    println!("{many} bytes spilled where all match, {few} where a tenth does");
    assert!(many as usize > bytes, "it recursed: {many} bytes of {bytes}");
    assert!(few < many / 5, "{few} of {many} bytes");
}

/// Each level of partitions leaves some for later: what their probe rows wait in is no memory.
#[test]
fn a_hash_join_recurses_deeply_in_the_least_memory() {
    let mut rng = Rng::new(10);
    let world = World::new(4 << 10);
    let of = random_table(&mut rng, &world, "a", 20_000, 1000);
    let scan = || {
        Box::new(Plan::scan(
            Source::new(&of.table).unwrap().select(&[0, of.schema.columns().len() - 1]).unwrap(),
        ))
    };
    let on = On::keys(JoinKind::Inner, &[(0, 0)]);
    let plan = Plan::HashJoin { left: scan(), right: scan(), on };
    let mut query = Query::new(&plan, &options(QueryOptions::MEMORY_MIN)).unwrap();
    let mut txn = world.begin();
    let mut rows = 0;
    while let Some(batch) = query.next(&mut txn).unwrap() {
        rows += batch.len();
    }
    assert_eq!(rows, of.rows.len());
    println!("{} bytes at most", query.peak_memory());
}

/// Cause: rows were read, and counted then. Effect: a piece of 128 keys behind short rows brought
/// large values of twice the limit into memory, and the query failed though each row fits.
#[test]
fn large_values_behind_short_rows_are_read_a_few_at_a_time() {
    let world = World::new(4 << 10);
    let columns = ["id", "k"].map(|name| Column::new(name, ColumnType::I64)).into_iter();
    let columns = columns.chain([Column::new("pad", ColumnType::Bytes)]).collect();
    let schema = Schema::with_key(columns, &["id"]).unwrap();
    let by_k = IndexSpec::columns("by_k", false, vec![KeyColumn::ascending(1)]);
    let table = world.catalog.create_table("t", TableKind::Typed(schema), vec![by_k]).unwrap();
    let mut txn = world.begin();
    for id in 0..60i64 {
        let pad = vec![id as u8; if id < 40 { 10 } else { 300_000 }];
        let row: [ValueRef<'_>; 3] = [id.into(), (-id).into(), ValueRef::Bytes(&pad)];
        table.typed().unwrap().insert(&mut txn, &row).unwrap();
    }
    txn.commit().unwrap();
    let (source, index) = (Source::new(&table).unwrap(), table.index("by_k").unwrap());
    let plan = Plan::IndexFetch { source, index, range: KeyRange::all(), or_scan: None };
    let mut query = Query::new(&plan, &options(3 << 20)).unwrap();
    let rows = rest(&mut query, &mut world.begin()).unwrap();
    assert!(query.peak_memory() <= 3 << 20);
    for (id, row) in rows.iter().enumerate() {
        assert_eq!(row[..2], [Value::from(id as i64), Value::from(-(id as i64))]);
        assert_eq!(bytes_of(&row[2]), if id < 40 { 10 } else { 300_000 });
    }
    assert_eq!(rows.len(), 60);
    // One row alone that does not fit is an error, before it is read.
    let error = rest(&mut Query::new(&plan, &options(256 << 10)).unwrap(), &mut world.begin()).unwrap_err();
    assert_eq!(error.kind, QueryErrorKind::OutOfMemory, "{error}");
}

#[test]
fn joins_of_rows_with_large_values_agree_with_the_naive_evaluator() {
    let mut rng = Rng::new(10);
    let world = World::new(4 << 10);
    let tables: Vec<Filled> =
        ["a", "b"].into_iter().map(|name| random_table(&mut rng, &world, name, 150, 60_000)).collect();
    for round in 0..30u64 {
        let plan = random_join(&mut rng, &tables, round % 5);
        let mut query = Query::new(&plan, &options(1 << 20)).unwrap();
        let rows = rest(&mut query, &mut world.begin()).unwrap();
        assert!(query.peak_memory() <= 1 << 20);
        evaluate(&plan, &tables).assert_is(rows, &|| format!("round {round}: {plan:?}"));
    }
}
