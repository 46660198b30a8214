//! An adaptive join collects its left rows as the build side of a hash join, counts them, and looks
//! them up if they are few.

use crate::common::{Filled, World, random_table, rest};
use crate::naive::evaluate;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_device::{Counting, MemoryDevice};
use firndb_query::{Adapted, Counts, JoinKind, On, OrHash, Plan, Query, QueryOptions, Source, SpillSpace};

fn all(of: &Filled) -> Box<Plan> {
    Box::new(Plan::scan(Source::new(&of.table).unwrap()))
}

/// Of both tables by their second columns; by hash if there are more left rows.
pub fn adaptive(tables: &[Filled], kind: JoinKind, rows: u64, builds_left: bool) -> Plan {
    Plan::IndexNestedLoops {
        left: all(&tables[0]),
        right: Source::new(&tables[1].table).unwrap(),
        index: Some(tables[1].table.index("by_k").unwrap()),
        on: On::keys(kind, &[(1, 1)]),
        or_hash: Some(OrHash { rows, counts_ahead: true, scan: all(&tables[1]), builds_left }),
    }
}

fn tables(world: &World) -> [Filled; 2] {
    let mut rng = Rng::new(14);
    ["a", "b"].map(|name| random_table(&mut rng, world, name, 500, 400))
}

struct Ran {
    adapted: Vec<Adapted>,
    counts: Counts,
    /// Bytes written to the spill device.
    written: u64,
}

fn ran(world: &World, tables: &[Filled], plan: &Plan, memory: usize) -> Ran {
    let device = Arc::new(Counting::new(Arc::new(MemoryDevice::new("spill"))));
    let space = SpillSpace::open(device.clone(), 64 << 20).unwrap();
    let opened = device.snapshot().writes.bytes;
    let options = QueryOptions { memory, spill: Some(space.clone()), ..QueryOptions::default() };
    let mut query = Query::new(plan, &options).unwrap();
    let rows = rest(&mut query, &mut world.begin()).unwrap();
    evaluate(plan, tables).assert_is(rows, &|| format!("{memory} {plan:?}"));
    assert_eq!(space.used_bytes(), 0);
    let written = device.snapshot().writes.bytes - opened;
    Ran { adapted: query.adapted(), counts: query.counts(), written }
}

#[test]
fn a_join_that_counts_its_build_side_costs_what_a_hash_join_costs() {
    let world = World::new(4 << 10);
    let tables = tables(&world);
    let on = On::keys(JoinKind::Inner, &[(1, 1)]);
    let hash = Plan::HashJoin { left: all(&tables[1]), right: all(&tables[0]), on };
    for (memory, spills) in [(64 << 10, true), (4 << 20, false)] {
        let hash = ran(&world, &tables, &hash, memory);
        let adaptive = ran(&world, &tables, &adaptive(&tables, JoinKind::Inner, 100, true), memory);
        assert_eq!((adaptive.written, adaptive.counts), (hash.written, hash.counts), "{memory}");
        assert_eq!(hash.written > 0, spills);
        assert!(adaptive.adapted[0].is_hash && adaptive.adapted[0].left_rows == 0);
    }
}

/// From memory, and from the spill device.
#[test]
fn left_rows_that_were_counted_are_looked_up_if_they_are_few() {
    let world = World::new(4 << 10);
    let tables = tables(&world);
    let keyed = tables[0].rows.iter().filter(|row| !row[1].as_ref().is_null()).count() as u64;
    assert!((300..500).contains(&keyed));
    for (kind, builds_left, left_rows) in
        [(JoinKind::Inner, true, keyed), (JoinKind::Inner, false, 500), (JoinKind::LeftOuter, false, 500)]
    {
        for (memory, spills) in [(64 << 10, true), (128 << 10, true), (8 << 20, false)] {
            for (rows, is_hash) in [(left_rows, false), (left_rows - 1, true)] {
                let found = ran(&world, &tables, &adaptive(&tables, kind, rows, builds_left), memory);
                let [adapted] = &found.adapted[..] else { panic!("{:?}", found.adapted) };
                let looked_up = if is_hash { 0 } else { left_rows };
                assert_eq!((adapted.is_hash, adapted.left_rows), (is_hash, looked_up), "{kind:?} {memory}");
                assert_eq!(found.written > 0, spills, "{kind:?} {memory} {rows}");
                assert_eq!(found.counts.probes > 0, !is_hash);
            }
        }
    }
}
