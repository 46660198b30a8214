//! Loads of tables, and what members take, as the choice of layouts needs them.

use crate::engine::Engine;
use crate::engine::store_array::StoreArray;
use firndb_array::{Clients, Cost, Load, MeasuredCost, MemberCosts};
use firndb_table::TableTrees;
use firndb_tier::store::{AtOnce, StoreLoad, TreeLoad};
use std::time::Duration;

/// Fewer operations than this say nothing about clients.
const OPERATIONS_MIN: u64 = 32;

/// Loads by table.
#[derive(Clone, Debug, Default)]
pub(crate) struct TableLoads {
    /// In the order of the tables.
    pub tables: Vec<TreeLoad>,
    /// Of pages of no table.
    pub others: TreeLoad,
    all: TreeLoad,
}

/// What tables were asked for between two counts.
pub(crate) fn loads_since(tables: &[TableTrees], before: &StoreLoad, now: &StoreLoad) -> TableLoads {
    let since = |tree: u32| {
        let of = |load: &StoreLoad| load.trees.get(&tree).copied().unwrap_or_default();
        of(now).since(of(before))
    };
    let sum = |all: &mut dyn Iterator<Item = TreeLoad>| all.fold(TreeLoad::default(), TreeLoad::and);
    let of_table = |table: &TableTrees| sum(&mut table.trees.iter().map(|tree| since(tree.0)));
    let tables: Vec<TreeLoad> = tables.iter().map(of_table).collect();
    let all = sum(&mut now.trees.keys().copied().map(since)).and(now.others.since(before.others));
    let others = all.since(sum(&mut tables.iter().copied()));
    TableLoads { tables, others, all }
}

impl TableLoads {
    /// Clients that come to a load. How many there are is known of all tables together: each
    /// table's are as many as its share of the time.
    pub fn clients(&self, load: TreeLoad, elapsed: Duration, at_once: AtOnce) -> Load {
        let of = |count: u64, ns: u64, all_ns: u64, at_once: usize| {
            if count < OPERATIONS_MIN || elapsed.is_zero() {
                return Clients::NONE;
            }
            let seconds = elapsed.as_secs_f64();
            let share = at_once as f64 * ns as f64 / all_ns.max(1) as f64;
            // By Little's law that many were under way on average.
            let mean = ns as f64 / 1e9 / seconds;
            let clients = share.max(mean).max(1.0).round() as usize;
            Clients::measured(count as f64 / seconds, ns as f64 / 1e3 / count as f64, clients)
        };
        Load {
            readers: of(load.reads, load.read_ns, self.all.read_ns, at_once.reads),
            writers: of(load.writes, load.write_ns, self.all.write_ns, at_once.writes),
        }
    }
}

/// What a member takes, and how that is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownCosts {
    pub costs: MemberCosts,
    pub read_from: &'static str,
    pub write_from: &'static str,
}

const MEASURED: &str = "measured";
const SCALED: &str = "measured, by size as the profile";
const ONE_SIZE: &str = "measured, of one size";
const PROFILE: &str = "profile";

impl Engine {
    /// What a member of the store takes for a fragment: measured if there are enough of them, else
    /// by the profile of the store's device. `None` if neither says.
    pub(crate) fn member_costs(&self, it: &StoreArray) -> Option<KnownCosts> {
        let page = self.pool.page_size();
        let profile = self.options.store_fragment_costs(page, firndb_device::Device::len(&*it.array));
        let (read, write) = it.array.measured_costs();
        // Writes of several pages are one transfer to a member, whatever the code: what is fixed of
        // it is a part of each byte.
        let run = |measured: &MeasuredCost| measured.mean_bytes >= 2.0 * page as f64;
        let (read, read_from) = known(read, profile.map(|costs| costs.read))?;
        let (write, write_from) = match write {
            Some(measured) if run(&measured) => {
                (Cost { fixed_us: 0.0, us_per_byte: measured.mean_us / measured.mean_bytes }, MEASURED)
            }
            write => known(write, profile.map(|costs| costs.write))?,
        };
        Some(KnownCosts { costs: MemberCosts { read, write }, read_from, write_from })
    }
}

/// Whether it is a time that something may take.
fn takes_time(cost: &Cost) -> bool {
    let us = cost.of(1);
    us > 0.0 && us.is_finite()
}

fn known(measured: Option<MeasuredCost>, profile: Option<Cost>) -> Option<(Cost, &'static str)> {
    // A profile may say that it takes none.
    match (measured, profile.filter(takes_time)) {
        (Some(measured), _) if measured.is_by_size => Some((measured.cost, MEASURED)),
        (Some(measured), Some(profile)) => {
            let factor = measured.mean_us / profile.of(measured.mean_bytes as usize);
            let Cost { fixed_us, us_per_byte } = profile;
            Some((Cost { fixed_us: fixed_us * factor, us_per_byte: us_per_byte * factor }, SCALED))
        }
        (Some(measured), None) => Some((measured.cost, ONE_SIZE)),
        (None, Some(profile)) => Some((profile, PROFILE)),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::TreeId;
    use firndb_table::Fragmentation;
    use std::collections::BTreeMap;

    fn load(reads: u64, read_us: u64, writes: u64, write_us: u64) -> TreeLoad {
        TreeLoad { reads, read_ns: reads * read_us * 1000, writes, write_ns: writes * write_us * 1000 }
    }

    #[test]
    fn a_table_has_the_load_of_its_trees_and_its_share_of_the_clients() {
        let table = |trees: &[u32]| TableTrees {
            name: String::new(),
            trees: trees.iter().map(|tree| TreeId(*tree)).collect(),
            fragmentation: Fragmentation::default(),
        };
        let before = StoreLoad { trees: BTreeMap::from([(1, load(100, 50, 0, 0))]), ..StoreLoad::default() };
        let now = StoreLoad {
            trees: BTreeMap::from([
                (1, load(1100, 50, 0, 0)),
                (2, load(500, 100, 0, 0)),
                (3, load(0, 0, 2000, 1000)),
                (9, load(3000, 100, 0, 0)),
            ]),
            others: load(0, 0, 10, 1000),
        };
        let loads = loads_since(&[table(&[1, 2]), table(&[3])], &before, &now);
        assert_eq!((loads.tables[0].reads, loads.tables[0].read_ns), (1500, 100_000_000));
        assert_eq!((loads.tables[1].writes, loads.others.reads, loads.others.writes), (2000, 3000, 10));
        // 100 of 400 ms of reads, so two of eight readers; each does 750 reads a second of 66.7 us.
        let at_once = AtOnce { reads: 8, writes: 4 };
        let clients = |load: TreeLoad| loads.clients(load, Duration::from_secs(1), at_once);
        let readers = clients(loads.tables[0]).readers;
        assert_eq!(readers.count, 2.0);
        assert!((readers.think_us - (1e6 / 750.0 - 1e5 / 1500.0)).abs() < 1e-6, "{readers:?}");
        assert_eq!(clients(loads.tables[0]).writers, Clients::NONE);
        assert_eq!(clients(loads.tables[1]).writers.count, 4.0);
        assert_eq!(clients(loads.others).writers, Clients::NONE, "too few to tell");
    }

    #[test]
    fn costs_are_measured_or_scaled_or_the_profiles() {
        let cost = |fixed_us: f64, us_per_byte: f64| Cost { fixed_us, us_per_byte };
        let measured = |is_by_size| MeasuredCost {
            cost: cost(30.0, 0.01),
            is_by_size,
            mean_bytes: 1000.0,
            mean_us: 40.0,
        };
        let profile = Some(cost(10.0, 0.01));
        assert_eq!(known(Some(measured(true)), profile), Some((cost(30.0, 0.01), MEASURED)));
        assert_eq!(known(Some(measured(false)), profile), Some((cost(20.0, 0.02), SCALED)));
        assert_eq!(known(Some(measured(false)), None), Some((cost(30.0, 0.01), ONE_SIZE)));
        assert_eq!(known(None, profile), Some((cost(10.0, 0.01), PROFILE)));
        assert_eq!(known(None, None), None);
        // A division by nothing, and then a panic of what expects that all takes time.
        let nothing = Some(cost(0.0, 0.0));
        assert_eq!(known(Some(measured(false)), nothing), Some((cost(30.0, 0.01), ONE_SIZE)));
        assert_eq!(known(None, nothing), None);
    }
}
