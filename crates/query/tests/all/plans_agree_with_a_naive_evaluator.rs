//! Random plans on random tables, every operator forced, return what loops over vectors return: at
//! every level of isolation, with pages, rows and memory of many sizes.

use crate::common::{Filled, World, random_table, random_value, run, spill};
use crate::naive::evaluate;
use firndb_base::rng::Rng;
use firndb_btree::Direction;
use firndb_query::{
    Comparison, IndexSide, JoinKind, On, OrHash, OrScan, Plan, Predicate, QueryOptions, SortColumn, Source,
};
use firndb_table::{ColumnType, Index, KeyRange, Value};
use firndb_txn::Isolation;
use std::ops::Bound;

const COMPARISONS: [Comparison; 6] = [
    Comparison::Equal,
    Comparison::NotEqual,
    Comparison::Less,
    Comparison::LessOrEqual,
    Comparison::Greater,
    Comparison::GreaterOrEqual,
];

pub fn random_predicate(rng: &mut Rng, types: &[ColumnType], depth: u64) -> Predicate {
    let column = rng.below(types.len() as u64) as usize;
    let value = |rng: &mut Rng| random_value(rng, types[column], rng.clone().one_in(8));
    let comparison = COMPARISONS[rng.below(6) as usize];
    let some = |rng: &mut Rng| (0..rng.below(3)).map(|_| random_predicate(rng, types, depth - 1)).collect();
    match rng.below(if depth > 0 { 8 } else { 5 }) {
        0 => Predicate::IsNull(column),
        1 => Predicate::Between(column, value(rng), value(rng)),
        2 => {
            let same = (0..types.len()).rfind(|other| types[*other] == types[column]);
            Predicate::CompareColumns(column, comparison, same.expect("the column itself"))
        }
        3 | 4 => Predicate::Compare(column, comparison, value(rng)),
        5 => Predicate::Not(Box::new(random_predicate(rng, types, depth - 1))),
        6 => Predicate::And(some(rng)),
        _ => Predicate::Or(some(rng)),
    }
}

/// Bounds by values of the first column of an index or a primary key.
fn random_range(
    rng: &mut Rng,
    column_type: ColumnType,
    nullable: bool,
    encode: impl Fn(&Value) -> Vec<u8>,
) -> KeyRange {
    let bound = |rng: &mut Rng| {
        let key = encode(&random_value(rng, column_type, nullable));
        match rng.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(key),
            _ => Bound::Excluded(key),
        }
    };
    let (low, high) = (bound(rng), bound(rng));
    KeyRange::of_prefixes(low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice))
}

pub fn index_range(rng: &mut Rng, of: &Filled, index: &Index) -> KeyRange {
    if rng.one_in(3) {
        return KeyRange::all();
    }
    let column = &of.schema.columns()[index.definition().unwrap().columns()[0].column];
    random_range(rng, column.column_type, column.nullable, |value| {
        let mut key = Vec::new();
        index.encode(&[value.as_ref()], &mut key).unwrap();
        key
    })
}

fn key_range(rng: &mut Rng, of: &Filled) -> KeyRange {
    if rng.one_in(2) {
        return KeyRange::all();
    }
    random_range(rng, ColumnType::I64, false, |value| {
        let mut key = Vec::new();
        of.schema.encode_key(&[value.as_ref()], &mut key).unwrap();
        key
    })
}

pub fn random_index(rng: &mut Rng, of: &Filled) -> Index {
    of.table.index(["by_k", "by_s", "by_last"][rng.below(3) as usize]).unwrap()
}

/// Some rows of a table, with all of its columns.
pub fn random_source(rng: &mut Rng, of: &Filled) -> Source {
    let types: Vec<ColumnType> = of.schema.columns().iter().map(|column| column.column_type).collect();
    let source = Source::new(&of.table).unwrap();
    if rng.one_in(2) { source } else { source.filter(random_predicate(rng, &types, 2)).unwrap() }
}

pub fn random_access(rng: &mut Rng, of: &Filled) -> Plan {
    let source = random_source(rng, of);
    let direction = if rng.one_in(2) { Direction::Forward } else { Direction::Backward };
    let index = random_index(rng, of);
    match rng.below(4) {
        0 => Plan::TableScan { source, range: key_range(rng, of), direction },
        1 => Plan::IndexScan { source, range: index_range(rng, of, &index), index, direction },
        2 => {
            let range = index_range(rng, of, &index);
            let or_scan = rng.one_in(2).then(|| {
                let (entries, has_share) = (rng.below(2 * of.rows.len() as u64 + 1), !rng.one_in(4));
                OrScan { entries, range: KeyRange::all(), has_share }
            });
            Plan::IndexFetch { source, range, index, or_scan }
        }
        _ => {
            let definition = index.definition().unwrap();
            let columns = of.schema.columns();
            let covered: Vec<usize> =
                (0..columns.len()).filter(|column| definition.covers(&of.schema, *column)).collect();
            let source = Source::new(&of.table).unwrap().select(&covered).unwrap();
            let of_covered = covered[rng.below(covered.len() as u64) as usize];
            let value = random_value(rng, columns[of_covered].column_type, true);
            let comparison = COMPARISONS[rng.below(6) as usize];
            let predicate = Predicate::Compare(of_covered, comparison, value);
            let source = if rng.one_in(2) { source } else { source.filter(predicate).unwrap() };
            Plan::IndexOnly { source, range: index_range(rng, of, &index), index, direction }
        }
    }
}

/// Operators of one input above a plan.
pub fn random_upper(rng: &mut Rng, plan: Plan) -> Plan {
    let types = plan.types().unwrap();
    let column = |rng: &mut Rng| rng.below(types.len() as u64) as usize;
    let plan = if rng.one_in(2) { plan } else { plan.filter(random_predicate(rng, &types, 3)) };
    let plan = match rng.below(3) {
        0 => {
            let by: Vec<SortColumn> = (0..rng.below(4))
                .map(|_| SortColumn { column: column(rng), descending: rng.one_in(2) })
                .collect();
            plan.sort(&by)
        }
        1 => {
            let columns: Vec<usize> = (0..rng.below(5)).map(|_| column(rng)).collect();
            plan.project(&columns)
        }
        _ => plan,
    };
    match rng.below(6) {
        0 => plan.count(),
        1 => plan.limit(rng.below(40)),
        _ => plan,
    }
}

pub fn random_options(rng: &mut Rng) -> QueryOptions {
    let memory = [80 << 10, 128 << 10, 512 << 10, 16 << 20][rng.below(4) as usize];
    QueryOptions { memory, spill: Some(spill(64 << 20)), ..QueryOptions::default() }
}

pub fn agree(seed: u64, make: impl Fn(&mut Rng, &[Filled]) -> Plan, sizes: &[u64], longest: &[u64]) -> u64 {
    let mut rng = Rng::new(seed);
    let world = World::new([1 << 10, 4 << 10, 16 << 10][rng.below(3) as usize]);
    let tables: Vec<Filled> = ["left", "right"]
        .into_iter()
        .map(|name| {
            let rows = sizes[rng.below(sizes.len() as u64) as usize];
            let longest = longest[rng.below(longest.len() as u64) as usize];
            random_table(&mut rng, &world, name, rows, longest)
        })
        .collect();
    let mut spilled = 0;
    for _ in 0..12 {
        let plan = make(&mut rng, &tables);
        let options = random_options(&mut rng);
        let isolation = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];
        let mut txn = world.begin_at(isolation[rng.below(3) as usize]);
        let found = run(&plan, &options, &mut txn);
        let found = found.unwrap_or_else(|error| panic!("seed {seed}: {error}: {plan:?}"));
        evaluate(&plan, &tables).assert_is(found, &|| format!("seed {seed}: {plan:?}"));
        let space = options.spill.as_ref().unwrap();
        assert_eq!(space.used_bytes(), 0, "seed {seed}: all is given back");
        spilled += u64::from(space.has_been_used());
    }
    spilled
}

/// Sometimes lookups hand over to a hash join: at once, behind a few rows, many, or never.
fn random_or_hash(rng: &mut Rng, of: &Filled, right: &Source) -> Option<OrHash> {
    let rows = [0, 1, rng.below(8), rng.below(of.rows.len() as u64 + 1), 10_000][rng.below(5) as usize];
    let scan = match rng.below(3) {
        // A fetch has memory of its own, or little.
        0 => Plan::IndexFetch {
            source: right.clone(),
            index: random_index(rng, of),
            range: KeyRange::all(),
            or_scan: rng.one_in(2).then(|| OrScan {
                entries: [0, 10_000][rng.below(2) as usize],
                range: KeyRange::all(),
                has_share: false,
            }),
        },
        _ => Plan::scan(right.clone()),
    };
    let (counts_ahead, builds_left) = (rng.one_in(2), rng.one_in(2));
    (!rng.one_in(4)).then(|| OrHash { rows, counts_ahead, scan: Box::new(scan), builds_left })
}

/// A join of the two tables of the kind with this number, of random inputs.
pub fn random_join(rng: &mut Rng, tables: &[Filled], kind: u64) -> Plan {
    let kinds = [JoinKind::Inner, JoinKind::LeftOuter];
    let on = |rng: &mut Rng, keys: &[(usize, usize)], types: &[ColumnType]| {
        let on = On::keys(kinds[rng.below(2) as usize], keys);
        if rng.one_in(2) { on } else { on.and(random_predicate(rng, types, 1)) }
    };
    let all_types = |of: &Filled| of.schema.columns().iter().map(|c| c.column_type).collect::<Vec<_>>();
    let types = [all_types(&tables[0]), all_types(&tables[1])].concat();
    let few = |rng: &mut Rng, of: &Filled| {
        // All columns, so that those of keys are there.
        let range = if rng.one_in(2) { KeyRange::all() } else { key_range(rng, of) };
        Plan::TableScan { source: random_source(rng, of), range, direction: Direction::Forward }
    };
    let (left, right) = (few(rng, &tables[0]), few(rng, &tables[1]));
    let (left, right) = (Box::new(left), Box::new(right));
    let keys: &[(usize, usize)] = match rng.below(4) {
        0 => &[(1, 1)],
        1 => &[(2, 2)],
        2 => &[(1, 3)],
        _ => &[(1, 1), (2, 2)],
    };
    match kind {
        0 => {
            let keys = if rng.one_in(4) { &[] } else { keys };
            Plan::BlockNestedLoops { left, right, on: on(rng, keys, &types) }
        }
        1 => Plan::SortMerge { left, right, on: on(rng, keys, &types) },
        2 => Plan::HashJoin { left, right, on: on(rng, keys, &types) },
        3 => {
            let inner = random_source(rng, &tables[1]);
            let (index, keys): (Option<Index>, &[(usize, usize)]) = match rng.below(3) {
                0 => (Some(tables[1].table.index("by_k").unwrap()), &[(1, 1)]),
                1 => (Some(tables[1].table.index("by_s").unwrap()), &[(2, 2)]),
                _ if tables[1].schema.key().len() == 1 => (None, &[(1, 0)]),
                _ => (None, &[(1, 0), (3, 3)]),
            };
            let or_hash = random_or_hash(rng, &tables[1], &inner);
            Plan::IndexNestedLoops { left, right: inner, index, on: on(rng, keys, &types), or_hash }
        }
        _ => {
            let side = |rng: &mut Rng, of: &Filled, name: &str| {
                let index = of.table.index(name).unwrap();
                IndexSide { source: random_source(rng, of), range: index_range(rng, of, &index), index }
            };
            let parts = |of: &Filled, name: &str| {
                of.table.index(name).unwrap().definition().unwrap().columns().to_vec()
            };
            let same = |name: &str| parts(&tables[0], name) == parts(&tables[1], name);
            let (name, keys): (&str, &[(usize, usize)]) = match rng.below(3) {
                0 if same("by_s") => ("by_s", &[(2, 2)]),
                1 if same("by_k") && parts(&tables[0], "by_k").len() == 2 => ("by_k", &[(1, 1), (2, 2)]),
                _ => ("by_k", &[(1, 1)]),
            };
            let (left, right) = (side(rng, &tables[0], name), side(rng, &tables[1], name));
            Plan::IndexSortMerge { left, right, on: on(rng, keys, &types) }
        }
    }
}

/// The same, and operators above it; sometimes with a join for its left input.
fn random_plan_of_joins(rng: &mut Rng, tables: &[Filled], kind: u64) -> Plan {
    let mut plan = random_join(rng, tables, kind);
    if rng.one_in(5) {
        let kind = rng.below(5);
        let below = random_join(rng, tables, kind).project(&[0, 1, 2, 3]);
        if let Plan::BlockNestedLoops { left, on, .. }
        | Plan::SortMerge { left, on, .. }
        | Plan::HashJoin { left, on, .. }
        | Plan::IndexNestedLoops { left, on, .. } = &mut plan
        {
            **left = below;
            on.rest = Predicate::And(vec![]);
        }
    }
    random_upper(rng, plan)
}

const JOINED: ([u64; 5], [u64; 3]) = ([0, 1, 12, 60, 250], [20, 300, 1200]);

#[test]
fn block_nested_loops() {
    let make = |rng: &mut Rng, tables: &[Filled]| random_plan_of_joins(rng, tables, 0);
    for seed in 100..130 {
        agree(seed, make, &JOINED.0, &JOINED.1);
    }
}

#[test]
fn sort_merge_joins() {
    let make = |rng: &mut Rng, tables: &[Filled]| random_plan_of_joins(rng, tables, 1);
    let spilled: u64 = (200..240).map(|seed| agree(seed, make, &JOINED.0, &JOINED.1)).sum();
    assert!(spilled >= 10, "{spilled} plans used the spill device");
}

#[test]
fn hash_joins() {
    let make = |rng: &mut Rng, tables: &[Filled]| random_plan_of_joins(rng, tables, 2);
    let spilled: u64 = (300..340).map(|seed| agree(seed, make, &JOINED.0, &JOINED.1)).sum();
    assert!(spilled >= 10, "{spilled} plans used the spill device");
}

#[test]
fn index_nested_loops_joins() {
    let make = |rng: &mut Rng, tables: &[Filled]| random_plan_of_joins(rng, tables, 3);
    let spilled: u64 = (400..460).map(|seed| agree(seed, make, &JOINED.0, &JOINED.1)).sum();
    assert!(spilled >= 10, "{spilled} plans used the spill device: they went over to hash");
}

#[test]
fn index_sort_merge_joins() {
    let make = |rng: &mut Rng, tables: &[Filled]| random_plan_of_joins(rng, tables, 4);
    for seed in 500..540 {
        agree(seed, make, &JOINED.0, &JOINED.1);
    }
}

#[test]
fn access_paths_and_operators_above_them() {
    let make = |rng: &mut Rng, tables: &[Filled]| {
        let of = &tables[rng.below(2) as usize];
        let plan = random_access(rng, of);
        random_upper(rng, plan)
    };
    let spilled: u64 = (0..120).map(|seed| agree(seed, make, &[0, 1, 10, 300, 1500], &[20, 400, 6000])).sum();
    assert!(spilled >= 10, "sorts of {spilled} plans used the spill device");
}

/// A hundred rows of each side have one key, which no operator can divide.
#[test]
fn joins_of_many_rows_with_one_key() {
    let mut rng = Rng::new(600);
    let world = World::new(4 << 10);
    let table = |rng: &mut Rng, name: &str| random_table(rng, &world, name, 600, 100);
    let directions = |of: &Filled| of.table.index("by_s").unwrap().definition().unwrap().columns().to_vec();
    let left = table(&mut rng, "left");
    let right = (0..).map(|at| table(&mut rng, &format!("right{at}")));
    let right = right.take(20).find(|right| directions(right) == directions(&left)).unwrap();
    let tables = [left, right];
    let one = Predicate::Compare(2, Comparison::Equal, "ab".into());
    let source = |at: usize| Source::new(&tables[at].table).unwrap().filter(one.clone()).unwrap();
    let scan = |at: usize| Box::new(Plan::scan(source(at)));
    let index = |at: usize| tables[at].table.index("by_s").unwrap();
    let side = |at: usize| IndexSide { source: source(at), index: index(at), range: KeyRange::all() };
    let rest = Predicate::CompareColumns(1, Comparison::Less, tables[0].schema.columns().len() + 1);
    let handing_over = |rows: u64, builds_left: bool, on: &On| Plan::IndexNestedLoops {
        left: scan(0),
        right: source(1),
        index: Some(index(1)),
        on: on.clone(),
        or_hash: Some(OrHash { rows, counts_ahead: builds_left, scan: scan(1), builds_left }),
    };
    for kind in [JoinKind::Inner, JoinKind::LeftOuter] {
        for on in [On::keys(kind, &[(2, 2)]), On::keys(kind, &[(2, 2)]).and(rest.clone())] {
            let plans = [
                Plan::BlockNestedLoops { left: scan(0), right: scan(1), on: on.clone() },
                Plan::SortMerge { left: scan(0), right: scan(1), on: on.clone() },
                Plan::HashJoin { left: scan(0), right: scan(1), on: on.clone() },
                Plan::IndexNestedLoops {
                    left: scan(0),
                    right: source(1),
                    index: Some(index(1)),
                    on: on.clone(),
                    or_hash: None,
                },
                handing_over(0, false, &on),
                handing_over(60, true, &on),
                Plan::IndexSortMerge { left: side(0), right: side(1), on: on.clone() },
            ];
            for plan in &plans {
                let options = QueryOptions {
                    memory: 64 << 10,
                    spill: Some(spill(64 << 20)),
                    ..QueryOptions::default()
                };
                let found = run(plan, &options, &mut world.begin()).unwrap();
                evaluate(plan, &tables).assert_is(found, &|| format!("{plan:?}"));
            }
        }
    }
}
