//! What tables ask of a store over several devices, and what of their layouts was chosen by it.

use crate::database::Database;
use crate::engine::layout_loads::loads_since;
use crate::layout::Layout;
use firndb_array::Cost;
use firndb_table::TableTrees;
use firndb_tier::store::{StoreLoad, TreeLoad};

/// Pages of a table, with its indexes and large values, that the store read and wrote since the
/// database was opened: what DRAM and a flash cache had is not among them.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TableLoad {
    /// The table's name; `None` for pages of no table.
    pub table: Option<String>,
    /// Its layout.
    pub layout: Layout,
    /// The layout that its pages have, or are being moved to.
    pub layout_now: Layout,
    /// Pages read.
    pub pages_read: u64,
    /// Microseconds that one took, on average.
    pub read_us: f64,
    /// Pages written, in batches.
    pub pages_written: u64,
    /// Microseconds that the batch of one took, on average.
    pub write_us: f64,
}

/// What a transfer of a fragment takes a device of the store.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct FragmentCost {
    /// Microseconds of any.
    pub fixed_us: f64,
    /// Microseconds of each KiB.
    pub us_per_kib: f64,
    /// How that is known: measured, or by the profile of the store's device.
    pub from: &'static str,
}

impl FragmentCost {
    fn of(cost: Cost, from: &'static str) -> FragmentCost {
        FragmentCost { fixed_us: cost.fixed_us, us_per_kib: cost.us_per_byte * 1024.0, from }
    }
}

/// Loads of tables, and the choice of layouts by them ([`Layout::Auto`]).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoreLoads {
    /// By table, those without any left out.
    pub tables: Vec<TableLoad>,
    /// What reading a fragment takes a device, and writing one; `None` while neither was measured
    /// often enough and there is no profile: then nothing is chosen.
    pub costs: Option<(FragmentCost, FragmentCost)>,
    /// Layouts chosen since the database was opened.
    pub changes: u64,
    /// While pages are to be moved: those of their tables that were looked at, and about how many
    /// there are.
    pub moving: Option<(u64, u64)>,
    /// Pages that stayed where they were, for lack of space for their layout.
    pub left: u64,
}

impl Database {
    /// What tables asked of the store, if it is over several devices.
    #[must_use]
    pub fn store_loads(&self) -> Option<StoreLoads> {
        let engine = self.engine();
        let it = engine.devices.store_array.as_ref()?;
        let tables = engine.catalog.fragmentations();
        let to_move: Vec<&TableTrees> =
            tables.iter().filter(|table| table.fragmentation.is_moving()).collect();
        // What cannot be read is not counted.
        let pages_of = |table: &&TableTrees| engine.catalog.pages_of(&table.name).unwrap_or(0);
        let pages = || to_move.iter().map(pages_of).sum::<u64>();
        let state = it.layouts.shown();
        let moving = (!to_move.is_empty()).then(|| (state.looked_at, pages().max(state.looked_at)));
        let loads = loads_since(&tables, &StoreLoad::default(), &engine.store.load_by_tree()?);
        let mean_us = |ns: u64, count: u64| if count > 0 { ns as f64 / 1e3 / count as f64 } else { 0.0 };
        let shown = |table: Option<String>, layouts: (Layout, Layout), load: TreeLoad| TableLoad {
            table,
            layout: layouts.0,
            layout_now: layouts.1,
            pages_read: load.reads,
            read_us: mean_us(load.read_ns, load.reads),
            pages_written: load.writes,
            write_us: mean_us(load.write_ns, load.writes),
        };
        let of_tables = tables.into_iter().zip(&loads.tables).map(|(table, load)| {
            let layouts = (Layout::of_table(table.fragmentation), engine.layout_now(table.fragmentation));
            shown(Some(table.name), layouts, *load)
        });
        let others = shown(None, (Layout::AsStore, Layout::AsStore), loads.others);
        let used = |load: &TableLoad| load.pages_read + load.pages_written > 0;
        let costs = engine.member_costs(it).map(|known| {
            let read = FragmentCost::of(known.costs.read, known.read_from);
            (read, FragmentCost::of(known.costs.write, known.write_from))
        });
        Some(StoreLoads {
            tables: of_tables.chain([others]).filter(used).collect(),
            costs,
            changes: state.changes,
            moving,
            left: state.left,
        })
    }
}
