//! Planning evaluates conditions on sampled rows, and counts their values: where the sample is the
//! whole table, as often as that is so of the table.

use crate::common::{World, random_table};
use crate::naive::holds;
use crate::plans_agree_with_a_naive_evaluator::random_predicate;
use firndb_base::rng::Rng;
use firndb_query::Predicate;
use firndb_query::planner::{Knowledge, gather};
use firndb_table::{ColumnType, Value};
use firndb_txn::TxnOptions;
use std::collections::BTreeSet;

const ROWS: u64 = 200;

#[test]
fn shares_and_values_of_a_table_that_is_its_sample() {
    let (mut true_of_some, mut values_of_some) = (0, 0);
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let world = World::new(4 << 10);
        let filled = random_table(&mut rng, &world, "t", ROWS, 60);
        let tables = [("t".to_owned(), filled.table.clone())];
        let unknown = gather(&world.catalog, &tables, None).unwrap();
        assert_eq!((unknown.distinct(0, 0), unknown.share(0, &Predicate::IsNull(0))), (None, None));
        let statistics = world.catalog.survey(&filled.table, TxnOptions::default(), &mut |_| {}).unwrap();
        assert_eq!(statistics.sample.len() as u64, ROWS);
        world.catalog.keep_statistics(&filled.table, &statistics).unwrap();
        let gathered = gather(&world.catalog, &tables, None).unwrap();
        let types: Vec<ColumnType> =
            filled.schema.columns().iter().map(|column| column.column_type).collect();
        for _ in 0..100 {
            let condition = random_predicate(&mut rng, &types, 2);
            let is_true = |row: &&Vec<Value>| holds(&condition, row) == Some(true);
            let of_all = filled.rows.iter().filter(is_true).count();
            let expected = Some((of_all as f64 / ROWS as f64, ROWS as usize));
            assert_eq!(gathered.share(0, &condition), expected, "seed {seed}: {condition:?}");
            true_of_some += usize::from(of_all > 0 && of_all < ROWS as usize);
        }
        for column in 0..types.len() {
            let values: BTreeSet<&Value> = filled.rows.iter().map(|row| &row[column]).collect();
            assert_eq!(gathered.distinct(0, column), Some(values.len() as f64), "seed {seed}, {column}");
            values_of_some += usize::from(values.len() < ROWS as usize);
        }
    }
    assert!(true_of_some > 500 && values_of_some > 60, "{true_of_some} {values_of_some}");
}
