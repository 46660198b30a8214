//! Layouts that the engine chooses by the load of tables: a background step.
//!
//! Now and then it looks at what the store counted by tree since the last look, and asks
//! [`firndb_array::Chooser`] whether a table should have another layout. The catalog then has that,
//! durably, and that its pages are to be moved; a walk through its trees moves them
//! (`table_walk.rs`), a batch a step, and then the catalog has that they are moved. After a restart
//! a walk begins anew if the catalog says that pages are to be moved. What the chooser remembers is
//! in memory only.
//!
//! A walk uses a quarter of the time, and waits for compaction, recovery, a lost device, and groups
//! that are being emptied. It ends when its table has no pages to be moved, also if a user fixed
//! its layout.

use crate::engine::Engine;
use crate::engine::layout_loads::{TableLoads, loads_since};
use crate::engine::layout_state::{Before, Choosing, TableWalk, Walked};
use crate::engine::store_array::StoreArray;
use crate::error::Error;
use firndb_array::{Change, Code, Demands, MEMBERS_MAX, MemberState, TableNow};
use firndb_base::Progress;
use firndb_base::clock;
use firndb_table::{Chosen, Fragmentation, Fragments, TableTrees};
use firndb_tier::store::AtOnce;
use std::time::Duration;

/// How often loads are looked at.
pub(crate) const LOOKS_EVERY: Duration = Duration::from_secs(10);
/// After a step of a walk it rests this many times as long as the step took, within these bounds.
const REST: u32 = 3;
const REST_MAX: Duration = Duration::from_secs(1);
/// How long it waits for log space, for a change of definitions, and for compaction.
const WAIT: Duration = Duration::from_millis(200);
/// Tables whose loads are estimated by themselves: those with the most operations. The others count
/// together.
const TABLES_MAX: usize = 8;
/// Names the others.
const OTHERS: u32 = u32::MAX;

impl Engine {
    /// One step of choosing layouts, or of moving pages to them. `Idle` while it rests.
    pub(crate) fn layout_step(&self) -> Result<Progress, Error> {
        let Some(it) = &self.devices.store_array else { return Ok(Progress::Idle) };
        let Some(mut choosing) = it.layouts.choosing.try_lock() else { return Ok(Progress::Idle) };
        let now = clock::now();
        if choosing.rests_until.is_some_and(|until| now < until) {
            return Ok(Progress::Idle);
        }
        // Others move pages too: one after another, so that they do not undo each other's work. And
        // a device that was lost is to be replaced first.
        let is_whole = || it.array.status().iter().all(|member| member.state == MemberState::Active);
        let waits = it.layouts.is_waiting()
            || self.store.is_vacating()
            || !self.recovery.is_complete()
            || !is_whole();
        if waits {
            choosing.rests_until = now.after(WAIT);
            return Ok(Progress::Idle);
        }
        let tables = self.catalog.fragmentations();
        if let Some(table) = tables.iter().find(|table| table.fragmentation.is_moving()) {
            let outcome = self.walk_step(it, table, &mut choosing.walk);
            // What was counted meanwhile has the moves beside it.
            choosing.before = None;
            choosing.rests_until = match outcome {
                Ok(Walked::NotNow) | Err(_) => now.after(WAIT),
                Ok(_) => clock::now().after((now.elapsed() * REST).min(REST_MAX)),
            };
            return match outcome? {
                Walked::Some => Ok(Progress::Worked),
                Walked::NotNow | Walked::All => Ok(Progress::Idle),
            };
        }
        choosing.walk = None;
        it.layouts.shown.lock().looked_at = 0;
        choosing.rests_until = now.after(self.options.testing.layouts_every.unwrap_or(LOOKS_EVERY));
        self.look_at_loads(it, &mut choosing, &tables)?;
        Ok(Progress::Idle)
    }

    /// Moves some pages of a table; when none is left, the catalog has that.
    fn walk_step(
        &self,
        it: &StoreArray,
        table: &TableTrees,
        walk: &mut Option<TableWalk>,
    ) -> Result<Walked, Error> {
        let walk = match walk {
            Some(walk) if walk.is_of(table) => walk,
            other => {
                // A thread that changed the catalog may not have come to it.
                self.place_trees()?;
                other.insert(TableWalk::of(table))
            }
        };
        let walked = self.table_walk_step(table, walk)?;
        it.layouts.shown.lock().looked_at = walk.looked_at;
        if walked != Walked::All {
            return Ok(walked);
        }
        let moved = |now: Fragmentation| {
            let chosen = Chosen::ByLoad { moving: false };
            (now == table.fragmentation).then_some(Fragmentation { chosen, ..now })
        };
        if !self.change_fragmentation(&table.name, moved)? {
            return Ok(Walked::NotNow);
        }
        it.layouts.shown.lock().left = walk.left;
        Ok(Walked::All)
    }

    /// As [`firndb_table::Catalog::change_fragmentation`]; not while the log is full.
    fn change_fragmentation(
        &self,
        table: &str,
        change: impl FnOnce(Fragmentation) -> Option<Fragmentation>,
    ) -> Result<bool, Error> {
        match self.catalog.change_fragmentation(table, change).map_err(Error::from) {
            Err(error) if error.is_log_full() => Ok(false),
            outcome => outcome,
        }
    }

    fn look_at_loads(
        &self,
        it: &StoreArray,
        choosing: &mut Choosing,
        tables: &[TableTrees],
    ) -> Result<(), Error> {
        if !tables.iter().any(|table| table.fragmentation.is_by_load()) {
            choosing.before = None;
            return Ok(());
        }
        let chosen = match self.options.testing.layouts_in_turn {
            true => self.next_in_turn(tables, &mut choosing.turns),
            false => self.best_change(it, choosing, tables)?,
        };
        let Some((name, code)) = chosen else { return Ok(()) };
        let byte = |count: usize| u8::try_from(count).expect("there are 16 members at most");
        let fragments = Some(Fragments { needed: byte(code.needed()), written: byte(code.written()) });
        let change = |now: Fragmentation| {
            let chosen = Chosen::ByLoad { moving: true };
            now.is_by_load().then_some(Fragmentation { fragments, chosen })
        };
        match self.change_fragmentation(&name, change) {
            Ok(true) => {
                it.layouts.shown.lock().changes += 1;
                self.place_trees()
            }
            not_made => {
                let table = tables.iter().find(|it| it.name == name);
                table.iter().for_each(|table| choosing.chooser.forget(table.trees[0].0));
                not_made.map(drop)
            }
        }
    }

    /// The change that the loads since the last look ask for, by what the members take.
    fn best_change(
        &self,
        it: &StoreArray,
        choosing: &mut Choosing,
        tables: &[TableTrees],
    ) -> Result<Option<(String, Code)>, Error> {
        let Some(load) = self.store.load_by_tree() else { return Ok(None) };
        let (at, at_once) = (clock::now(), self.store.take_at_once());
        let before = choosing.before.replace(Before { at, load: load.clone() });
        let Some(before) = before else { return Ok(None) };
        let Some(costs) = self.member_costs(it) else { return Ok(None) };
        let loads = loads_since(tables, &before.load, &load);
        let now = self.tables_now(tables, &loads, (at.since(before.at), at_once))?;
        let demands = Demands {
            // Writes wait for all of their fragments, and codes survive what they are to.
            survive: MEMBERS_MAX,
            space: f64::MAX,
            page_bytes: self.pool.page_size(),
            block_bytes: firndb_device::Device::info(&*it.array).logical_block,
        };
        let members = vec![costs.costs; it.array.status().len()];
        choosing.chooser.keep(|id| tables.iter().any(|table| table.trees[0].0 == id));
        let change = choosing.chooser.next(&now, it.array.codes(), &members, demands);
        let named = |change: Change| {
            let table = tables.iter().find(|table| table.trees[0].0 == change.id)?;
            Some((table.name.clone(), change.code))
        };
        Ok(change.and_then(named))
    }

    /// Tables as the chooser sees them: the busiest, and the others together.
    fn tables_now(
        &self,
        tables: &[TableTrees],
        loads: &TableLoads,
        (elapsed, at_once): (Duration, AtOnce),
    ) -> Result<Vec<TableNow>, Error> {
        let mut order: Vec<usize> = (0..tables.len()).collect();
        order.sort_by_key(|table| {
            let load = loads.tables[*table];
            std::cmp::Reverse((load.read_ns + load.write_ns, *table))
        });
        let base = self.codes()[0];
        let mut now = Vec::new();
        let mut others = loads.others;
        for (place, table) in order.into_iter().enumerate() {
            let (table, load) = (&tables[table], loads.tables[table]);
            if place >= TABLES_MAX {
                others = others.and(load);
                continue;
            }
            let may_change = table.fragmentation.is_by_load();
            now.push(TableNow {
                id: table.trees[0].0,
                code: self.own_code(table.fragmentation).map_or(base, |number| self.codes()[number]),
                load: loads.clients(load, elapsed, at_once),
                pages: if may_change { self.catalog.pages_of(&table.name)? } else { 0 },
                may_change,
            });
        }
        let load = loads.clients(others, elapsed, at_once);
        now.push(TableNow { id: OTHERS, code: base, load, pages: 0, may_change: false });
        Ok(now)
    }

    /// In tests: another code for one table after another, whatever the load.
    fn next_in_turn(&self, tables: &[TableTrees], turns: &mut usize) -> Option<(String, Code)> {
        let tables: Vec<&TableTrees> =
            tables.iter().filter(|table| table.fragmentation.is_by_load()).collect();
        let codes = self.codes();
        *turns += 1;
        let table = tables.get(*turns % tables.len())?;
        Some((table.name.clone(), codes[(*turns / tables.len()) % codes.len()]))
    }
}
