//! An engine that takes simulated processor time for its work, by a stated model.
//!
//! In virtual time the engine's own code takes none. This wrapper charges that time in one place,
//! by counting the calls: a cost for each statement, row visited, and commit. The charge occupies
//! one of the simulation's cores ([`firndb_base::sim::charge`]); outside of a simulation it has no
//! effect.

use super::model::{CostModel, STANDARD_MIX};
use firndb::Database;
use firndb_adapter::{FirnEngine, OnFirn};
use firndb_base::sim;
use firndb_workloads::{
    Access, Change, Commit, CommitMode, Engine, Found, IndexId, Outcome, Scan, Schema, Session, TableId,
    Transaction, Visitor,
};
use std::time::Duration;

/// Charges are accumulated, since each may cost the simulator a thread switch: up to this, or up to
/// the share of a transaction below, whichever is more.
const GRANULE: Duration = Duration::from_micros(20);
/// Most charges of a transaction of TPC-C's standard mix, besides the one at its end.
const CHARGES_MOST: u32 = 8;

/// The most that is accumulated before a charge.
fn granule(cost: &CostModel) -> Duration {
    GRANULE.max(cost.of(&STANDARD_MIX) / CHARGES_MOST)
}

/// An engine with charges for its work.
#[derive(Debug)]
pub struct Charged<E> {
    inner: E,
    cost: CostModel,
}

impl<E> Charged<E> {
    /// Charges the calls to `inner`.
    pub fn new(inner: E, cost: CostModel) -> Charged<E> {
        Charged { inner, cost }
    }
    /// The engine itself.
    pub fn inner(&self) -> &E {
        &self.inner
    }
    /// Ends the charging.
    pub fn into_inner(self) -> E {
        self.inner
    }
}

/// The accumulated cost that is not charged yet. Charged when dropped, so a transaction that fails
/// also pays for its work.
#[derive(Debug)]
struct Meter {
    owed: Duration,
    /// The accumulated cost at which it is charged.
    granule: Duration,
}

impl Drop for Meter {
    fn drop(&mut self) {
        // While a panic unwinds, the scheduler must not be called.
        if !std::thread::panicking() {
            self.settle();
        }
    }
}

impl Meter {
    fn add(&mut self, cost: Duration) {
        self.owed += cost;
        if self.owed >= self.granule {
            self.settle();
        }
    }
    fn settle(&mut self) {
        let owed = std::mem::take(&mut self.owed);
        if owed > Duration::ZERO {
            sim::charge(owed);
        }
    }
}

impl<E: Engine> Engine for Charged<E> {
    type Session<'e>
        = ChargedSession<E::Session<'e>>
    where
        Self: 'e;

    fn name(&self) -> &str {
        self.inner.name()
    }
    fn isolation(&self) -> &str {
        self.inner.isolation()
    }
    fn settings(&self) -> Vec<(String, String)> {
        let mut settings = self.inner.settings();
        let costs = self.cost.nanoseconds();
        settings.extend(costs.map(|(name, ns)| (format!("cost_{name}_ns"), ns.to_string())));
        settings
    }
    fn schema(&self) -> &Schema {
        self.inner.schema()
    }
    fn session(&self) -> Outcome<Self::Session<'_>> {
        Ok(ChargedSession { inner: self.inner.session()?, cost: self.cost, granule: granule(&self.cost) })
    }
}

impl OnFirn for Charged<FirnEngine> {
    fn database(&self) -> &Database {
        self.inner.database()
    }
}

/// One client of a [`Charged`] engine.
#[derive(Debug)]
pub struct ChargedSession<S> {
    inner: S,
    cost: CostModel,
    granule: Duration,
}

impl<S: Session> Session for ChargedSession<S> {
    type Transaction<'s>
        = ChargedTransaction<S::Transaction<'s>>
    where
        Self: 's;

    fn begin(&mut self, access: Access) -> Outcome<Self::Transaction<'_>> {
        let cost = self.cost;
        let meter = Meter { owed: cost.begin, granule: self.granule };
        Ok(ChargedTransaction { inner: self.inner.begin(access)?, cost, meter })
    }
}

/// A transaction on a [`Charged`] engine.
#[derive(Debug)]
pub struct ChargedTransaction<T> {
    inner: T,
    cost: CostModel,
    meter: Meter,
}

impl<T: Transaction> ChargedTransaction<T> {
    fn reading(&mut self) -> &mut T {
        self.meter.add(self.cost.read);
        &mut self.inner
    }
    fn reading_many(&mut self, keys: &[&[u8]]) -> &mut T {
        self.meter.add(self.cost.read * keys.len() as u32);
        &mut self.inner
    }
    fn writing(&mut self) -> &mut T {
        self.meter.add(self.cost.write);
        &mut self.inner
    }
    /// Runs a scan and counts its rows.
    fn scanned(
        &mut self,
        visit: Visitor<'_>,
        scan: impl FnOnce(&mut T, Visitor<'_>) -> Outcome<()>,
    ) -> Outcome<()> {
        self.meter.add(self.cost.scan);
        let mut rows = 0;
        let outcome = scan(&mut self.inner, &mut |key, row| {
            rows += 1;
            visit(key, row)
        });
        self.meter.add(self.cost.row * rows);
        outcome
    }
}

impl<T: Transaction> Transaction for ChargedTransaction<T> {
    fn get(&mut self, table: TableId, key: &[u8], row: &mut Vec<u8>) -> Outcome<bool> {
        self.reading().get(table, key, row)
    }
    fn get_for_update(&mut self, table: TableId, key: &[u8], row: &mut Vec<u8>) -> Outcome<bool> {
        self.reading().get_for_update(table, key, row)
    }
    fn get_many(&mut self, table: TableId, keys: &[&[u8]], found: Found<'_>) -> Outcome<()> {
        self.reading_many(keys).get_many(table, keys, found)
    }
    fn get_many_for_update(&mut self, table: TableId, keys: &[&[u8]], found: Found<'_>) -> Outcome<()> {
        self.reading_many(keys).get_many_for_update(table, keys, found)
    }
    fn insert(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Outcome<()> {
        self.writing().insert(table, key, row)
    }
    fn put(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Outcome<()> {
        self.writing().put(table, key, row)
    }
    fn update_with(
        &mut self,
        table: TableId,
        key: &[u8],
        row: &mut Vec<u8>,
        change: &mut dyn FnMut(&mut [u8]),
    ) -> Outcome<bool> {
        self.meter.add(self.cost.read + self.cost.write);
        self.inner.update_with(table, key, row, change)
    }
    fn update_many_with(&mut self, table: TableId, keys: &[&[u8]], change: Change<'_>) -> Outcome<()> {
        self.meter.add((self.cost.read + self.cost.write) * keys.len() as u32);
        self.inner.update_many_with(table, keys, change)
    }
    fn delete(&mut self, table: TableId, key: &[u8]) -> Outcome<bool> {
        self.writing().delete(table, key)
    }
    fn scan(&mut self, table: TableId, scan: Scan<'_>, visit: Visitor<'_>) -> Outcome<()> {
        self.scanned(visit, |inner, visit| inner.scan(table, scan, visit))
    }
    fn scan_index(
        &mut self,
        table: TableId,
        index: IndexId,
        scan: Scan<'_>,
        visit: Visitor<'_>,
    ) -> Outcome<()> {
        self.scanned(visit, |inner, visit| inner.scan_index(table, index, scan, visit))
    }
    fn commit(mut self, mode: CommitMode) -> Outcome<Commit> {
        self.meter.owed += self.cost.commit;
        self.meter.settle();
        self.inner.commit(mode)
    }
    fn rollback(mut self) -> Outcome<()> {
        self.meter.owed += self.cost.commit;
        self.meter.settle();
        self.inner.rollback()
    }
}
