//! A query sees one state, whatever others commit while it runs, and refuses to go on when its own
//! transaction has written.

use crate::common::{Filled, World, borrowed, random_table, rest, spill};
use crate::naive::evaluate;
use crate::plans_agree_with_a_naive_evaluator::{random_access, random_join, random_options};
use firndb_base::rng::Rng;
use firndb_query::{JoinKind, On, OrHash, OrScan, Plan, Query, QueryErrorKind, QueryOptions, Source};
use firndb_table::{KeyRange, TableErrorKind, ValueRef};
use firndb_txn::Isolation;

/// Another transaction deletes half of a table and changes the rest.
fn rewrite(world: &World, of: &Filled) {
    let typed = of.table.typed().unwrap();
    let mut txn = world.begin();
    for (number, row) in of.rows.iter().enumerate() {
        let key: Vec<ValueRef<'_>> = of.schema.key().iter().map(|part| row[part.column].as_ref()).collect();
        if number % 2 == 0 {
            assert!(typed.delete(&mut txn, &key).unwrap());
        } else {
            let mut row = row.clone();
            row[1] = 3i64.into();
            row[2] = "ab".into();
            assert!(typed.update(&mut txn, &borrowed(&row)).unwrap());
        }
    }
    txn.commit().unwrap();
}

#[test]
fn commits_of_others_do_not_show_while_a_query_runs() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let world = World::new(4 << 10);
        let tables: Vec<Filled> =
            ["a", "b"].into_iter().map(|name| random_table(&mut rng, &world, name, 150, 600)).collect();
        let plan = match seed % 6 {
            0 => random_access(&mut rng, &tables[0]),
            kind => random_join(&mut rng, &tables, kind - 1),
        };
        let isolation = if seed % 2 == 0 { Isolation::ReadCommitted } else { Isolation::Snapshot };
        let mut txn = world.begin_at(isolation);
        let mut query = Query::new(&plan, &random_options(&mut rng)).unwrap();
        let mut found = Vec::new();
        if let Some(batch) = query.next(&mut txn).unwrap() {
            for row in batch.rows() {
                found.push((0..row.len()).map(|at| row.get(at).unwrap().to_value()).collect());
            }
            tables.iter().for_each(|of| rewrite(&world, of));
            found.extend(rest(&mut query, &mut txn).unwrap());
        }
        evaluate(&plan, &tables).assert_is(found, &|| format!("seed {seed}: {plan:?}"));
    }
}

/// A fetch that counts more entries than its memory holds, and is a fetch or a scan by then: others
/// move every row to another place of the index in between.
#[test]
fn a_fetch_that_has_counted_returns_each_row_once() {
    let mut rng = Rng::new(11);
    let cases = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable]
        .into_iter()
        .flat_map(|isolation| [20, 1499, 1500].map(|entries| (isolation, entries)));
    for (isolation, entries) in cases {
        let world = World::new(4 << 10);
        let of = random_table(&mut rng, &world, "a", 1500, 60);
        for name in ["by_k", "by_s", "by_last"] {
            let plan = Plan::IndexFetch {
                source: Source::new(&of.table).unwrap(),
                index: of.table.index(name).unwrap(),
                range: KeyRange::all(),
                or_scan: Some(OrScan { entries, range: KeyRange::all(), has_share: true }),
            };
            // Lists of some hundred keys.
            let options = QueryOptions { memory: 64 << 10, ..QueryOptions::default() };
            let (mut txn, mut query) = (world.begin_at(isolation), Query::new(&plan, &options).unwrap());
            let mut found = Vec::new();
            let batch = query.next(&mut txn).unwrap().expect("rows");
            for row in batch.rows() {
                found.push((0..row.len()).map(|at| row.get(at).unwrap().to_value()).collect());
            }
            assert!(found.len() < 700, "there are rows left: {}", found.len());
            if isolation != Isolation::Serializable && name == "by_last" {
                rewrite(&world, &of);
            }
            found.extend(rest(&mut query, &mut txn).unwrap());
            let counts = query.counts();
            // A scan finds no row by its key, and a fetch lists again what it has only counted.
            let is_scan = counts.lookups == 0;
            assert!(counts.rows >= 1500 && is_scan == (entries < 1500), "{counts:?}");
            assert_eq!(counts.entries > 1500, !is_scan, "{counts:?}");
            assert!(!is_scan || counts.entries == entries + 1, "no more than it takes: {counts:?}");
            evaluate(&plan, std::slice::from_ref(&of)).assert_is(found, &|| format!("{isolation:?} {name}"));
        }
    }
}

/// Others change both tables behind the first batch, which comes from lookups; the rest is joined
/// by hash.
#[test]
fn a_join_that_goes_over_to_hash_returns_each_row_once_and_says_when() {
    let mut rng = Rng::new(12);
    let cases = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable]
        .into_iter()
        .flat_map(|isolation| [0, 1, 300, 1499, 1500].map(|most| (isolation, most)))
        .flat_map(|case| {
            [
                (JoinKind::Inner, false, false),
                (JoinKind::Inner, true, true),
                (JoinKind::LeftOuter, false, true),
            ]
            .map(|kind| (case, kind))
        });
    for ((isolation, most), (kind, builds_left, counts_ahead)) in cases {
        let world = World::new(4 << 10);
        let tables =
            [("a", 1500), ("b", 40)].map(|(name, rows)| random_table(&mut rng, &world, name, rows, 60));
        let source = |at: usize| Source::new(&tables[at].table).unwrap();
        let plan = Plan::IndexNestedLoops {
            left: Box::new(Plan::scan(source(0))),
            right: source(1),
            index: Some(tables[1].table.index("by_k").unwrap()),
            on: On::keys(kind, &[(1, 1)]),
            or_hash: Some(OrHash {
                rows: most,
                counts_ahead,
                scan: Box::new(Plan::scan(source(1))),
                builds_left,
            }),
        };
        // Blocks of some dozen left rows.
        let options =
            QueryOptions { memory: 64 << 10, spill: Some(spill(64 << 20)), ..QueryOptions::default() };
        let (mut txn, mut query) = (world.begin_at(isolation), Query::new(&plan, &options).unwrap());
        let mut found = Vec::new();
        let batch = query.next(&mut txn).unwrap().expect("rows");
        for row in batch.rows() {
            found.push((0..row.len()).map(|at| row.get(at).unwrap().to_value()).collect());
        }
        // Rows without a key are not collected as a build side.
        let keyed = tables[0].rows.iter().filter(|row| !row[1].as_ref().is_null()).count() as u64;
        let left_rows = if builds_left && counts_ahead { keyed } else { 1500 };
        let is_known = if counts_ahead { most < left_rows } else { most < 2 };
        assert!(query.adapted().len() == usize::from(is_known), "{:?}", query.adapted());
        if isolation != Isolation::Serializable {
            tables.iter().for_each(|of| rewrite(&world, of));
        }
        found.extend(rest(&mut query, &mut txn).unwrap());
        evaluate(&plan, &tables).assert_is(found, &|| format!("{isolation:?} {most} {kind:?} {builds_left}"));
        let [adapted] = &query.adapted()[..] else { panic!("{:?}", query.adapted()) };
        assert_eq!((adapted.table.as_str(), adapted.is_hash), ("b", most < left_rows), "{adapted:?}");
        // Whole blocks, up to the last that has too many.
        let looked_up = adapted.left_rows;
        let few = if counts_ahead { 0 } else { most };
        assert!(looked_up <= few && looked_up + 200 > few || !adapted.is_hash, "{adapted:?}");
        assert!(adapted.is_hash || looked_up == left_rows, "{adapted:?}");
    }
}

#[test]
fn a_query_of_a_transaction_that_has_written_since_ends() {
    let mut rng = Rng::new(1);
    let world = World::new(4 << 10);
    let of = random_table(&mut rng, &world, "a", 3000, 20);
    let plan = Plan::scan(Source::new(&of.table).unwrap());
    let mut txn = world.begin();
    let mut query = Query::new(&plan, &QueryOptions::default()).unwrap();
    assert!(query.next(&mut txn).unwrap().is_some());
    let mut row = of.rows[7].clone();
    row[1] = 100i64.into();
    of.table.typed().unwrap().update(&mut txn, &borrowed(&row)).unwrap();
    let error = query.next(&mut txn).unwrap_err();
    assert!(error.kind == QueryErrorKind::BadArgument && error.message.contains("has written"), "{error}");
    assert!(query.next(&mut txn).unwrap().is_none(), "it has ended");
    // One that begins after the write sees it.
    let mut query = Query::new(&plan, &QueryOptions::default()).unwrap();
    assert!(rest(&mut query, &mut txn).unwrap().contains(&row));
    // And belongs to one transaction.
    let mut query = Query::new(&plan, &QueryOptions::default()).unwrap();
    query.next(&mut txn).unwrap();
    assert_eq!(query.next(&mut world.begin()).unwrap_err().kind, QueryErrorKind::BadArgument);
}

#[test]
fn a_dropped_table_ends_a_query_with_its_error() {
    let mut rng = Rng::new(2);
    let world = World::new(4 << 10);
    let of = random_table(&mut rng, &world, "a", 3000, 20);
    let plan = Plan::scan(Source::new(&of.table).unwrap());
    let mut txn = world.begin();
    let mut query = Query::new(&plan, &QueryOptions::default()).unwrap();
    assert!(query.next(&mut txn).unwrap().is_some());
    world.catalog.drop_table("a").unwrap();
    let error = rest(&mut query, &mut txn).unwrap_err();
    assert_eq!(error.kind, QueryErrorKind::Table(TableErrorKind::Dropped), "{error}");
}
