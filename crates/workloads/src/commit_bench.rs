//! Small durable commits: one row of 100 bytes under a random key for each transaction.
//!
//! This measures the path from `commit` to stable storage and how clients share it by group commit;
//! the tables stay small enough to be in memory.

use crate::driver::{Attempt, Client, DriverOptions, LiveRate, drive};
use crate::engine::{Access, CommitMode, Engine, Outcome, Session, Transaction};
use crate::random::Random;
use crate::report::RunReport;
use crate::results::CommitRow;
use crate::schema::{Schema, TableId, TableSpec};
use std::sync::atomic::AtomicBool;

/// The bench's only table.
const TABLE: TableId = TableId(0);
const KEY_LEN: usize = 16;
const ROW_LEN: usize = 100;

/// What to run.
#[derive(Clone, Debug)]
pub struct CommitOptions {
    /// Clients, time and commit mode.
    pub driver: DriverOptions,
    /// Number of keys to draw from, so that a long run does not outgrow memory.
    pub keys: u64,
    /// Equal seeds draw equal keys, client by client.
    pub seed: u64,
}

/// The schema of the bench.
#[must_use]
pub fn schema() -> Schema {
    let table =
        TableSpec { name: "commit_bench".into(), key_len: KEY_LEN, row_len: ROW_LEN, indexes: Vec::new() };
    Schema { tables: vec![table] }
}

struct CommitClient<'e, E: Engine + 'e> {
    session: E::Session<'e>,
    random: Random,
    keys: u64,
    key: [u8; KEY_LEN],
    row: [u8; ROW_LEN],
}

impl<E: Engine> Client for CommitClient<'_, E> {
    fn draw(&mut self) -> usize {
        // The key is spread over its space, so that neighbours in time are not neighbours in the
        // tree.
        let mut spread = Random::new(self.random.between(0, self.keys - 1));
        spread.fill(&mut self.key);
        self.random.fill(&mut self.row);
        0
    }

    fn attempt(&mut self, mode: CommitMode) -> Outcome<Attempt> {
        let mut txn = self.session.begin(Access::Write)?;
        txn.put(TABLE, &self.key, &self.row)?;
        txn.commit(mode).map(Attempt::Committed)
    }
}

/// Runs the bench against an engine opened with [`schema`].
pub fn run<E: Engine>(
    engine: &E,
    options: &CommitOptions,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(LiveRate),
) -> Outcome<RunReport> {
    assert!(options.keys > 0, "keys are drawn from a space of at least one");
    let make = |number: usize| {
        Ok(CommitClient::<E> {
            session: engine.session()?,
            random: Random::stream(options.seed, number as u64),
            keys: options.keys,
            key: [0; KEY_LEN],
            row: [0; ROW_LEN],
        })
    };
    drive(&options.driver, &["commit"], stop, make, progress)
}

/// A run as a row of the results' JSON.
#[must_use]
pub fn row(engine: &str, clients: usize, report: &RunReport) -> CommitRow {
    CommitRow {
        engine: engine.into(),
        clients,
        commits_per_second: report.per_second(report.commits()),
        latency_us: report.kinds[0].latency,
        retries: report.retries(),
        log_bytes_per_commit: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Length;
    use crate::engine::{Scan, Visit};
    use crate::memory::MemoryEngine;
    use std::time::Duration;

    #[test]
    fn every_commit_is_counted_and_kept() {
        let engine = MemoryEngine::new(&schema());
        let mut driver = DriverOptions::new(2, Duration::ZERO);
        driver.length = Length::TransactionsPerClient(500);
        let options = CommitOptions { driver, keys: 50, seed: 1 };
        let report = run(&engine, &options, &AtomicBool::new(false), &mut |_| ()).unwrap();
        assert_eq!(report.commits(), 1000);
        let mut rows = 0;
        let mut session = engine.session().unwrap();
        let mut txn = session.begin(Access::Read).unwrap();
        txn.scan(TABLE, Scan::all(), &mut |key, row| {
            assert_eq!((key.len(), row.len()), (KEY_LEN, ROW_LEN));
            rows += 1;
            Visit::Continue
        })
        .unwrap();
        assert_eq!(rows, 50);
        assert!(row("memory", 2, &report).commits_per_second > 0.0);
    }
}
