//! The comparison with the naive evaluator fails when an operator is broken on purpose.

use crate::common::{Filled, World, random_table, run, spill};
use crate::joins_count_before_they_choose::adaptive as adaptive_counting;
use crate::naive::evaluate;
use firndb_base::rng::Rng;
use firndb_query::{Break, JoinKind, On, OrHash, OrScan, Plan, QueryOptions, SortColumn, Source, with_break};
use firndb_table::KeyRange;

#[test]
fn each_break_is_noticed() {
    let mut rng = Rng::new(10);
    let world = World::new(4 << 10);
    let tables: Vec<Filled> =
        ["a", "b"].into_iter().map(|name| random_table(&mut rng, &world, name, 1000, 2000)).collect();
    let all = |of: &Filled| Box::new(Plan::scan(Source::new(&of.table).unwrap()));
    let on = On::keys(JoinKind::LeftOuter, &[(1, 1)]);
    let adaptive = Plan::IndexNestedLoops {
        left: all(&tables[0]),
        right: Source::new(&tables[1].table).unwrap(),
        index: Some(tables[1].table.index("by_k").unwrap()),
        on: on.clone(),
        or_hash: Some(OrHash { rows: 200, counts_ahead: false, scan: all(&tables[1]), builds_left: false }),
    };
    let counted = adaptive_counting(&tables, JoinKind::Inner, 10_000, true);
    let hash = Plan::HashJoin { left: all(&tables[0]), right: all(&tables[1]), on: on.clone() };
    let merge = Plan::SortMerge { left: all(&tables[0]), right: all(&tables[1]), on };
    let sort = all(&tables[0]).sort(&[SortColumn { column: 1, descending: false }]);
    let fetch = Plan::IndexFetch {
        source: Source::new(&tables[0].table).unwrap(),
        index: tables[0].table.index("by_k").unwrap(),
        range: KeyRange::all(),
        or_scan: Some(OrScan { entries: 5000, range: KeyRange::all(), has_share: true }),
    };
    let (little, much) = (64 << 10, 8 << 20);
    let cases = [
        (Break::NullsMatch, &hash, little),
        (Break::NullsMatch, &merge, little),
        (Break::UnmatchedForgotten, &hash, little),
        (Break::UnmatchedForgotten, &merge, little),
        (Break::SpilledPartitionForgotten, &hash, little),
        (Break::LaterRunFirst, &sort, little),
        (Break::PairsEndWithBatch, &hash, much),
        (Break::ListReadAgain, &fetch, little),
        (Break::HandedOverForgotten, &adaptive, little),
        (Break::HandedOverForgotten, &counted, much),
    ];
    for (broken, plan, memory) in cases {
        let found = || {
            let options = QueryOptions { memory, spill: Some(spill(64 << 20)), ..QueryOptions::default() };
            run(plan, &options, &mut world.begin()).expect("rows, if wrong ones")
        };
        assert!(!evaluate(plan, &tables).differs_from(found()), "{plan:?}");
        let wrong = with_break(broken, found);
        assert!(evaluate(plan, &tables).differs_from(wrong), "{broken:?} was not noticed");
    }
}
