//! An engine that refuses operations at random: TPC-C runs each refused transaction again from its
//! start, with the same input, and the database stays consistent.

use firndb_workloads::tpcc::{self, ClientOptions, LoadOptions, Mix, Scale, Terminals, When};
use firndb_workloads::{
    Access, Commit, CommitMode, DriverOptions, Engine, EngineError, IndexId, Length, MemoryEngine,
    MemorySession, Outcome, PendingCommit, Random, Retry, Scan, Schema, Session, TableId, Transaction,
    Visitor,
};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A memory engine that refuses one operation in `one_in` while it is on. Its asynchronous commits
/// are durable only when they are waited for.
struct Refusing {
    inner: MemoryEngine,
    on: AtomicBool,
    one_in: u64,
    random: Mutex<Random>,
}

impl Refusing {
    fn maybe_refuse(&self) -> Outcome<()> {
        if !self.on.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut random = self.random.lock().unwrap();
        match random.between(1, 3 * self.one_in) {
            1 => Err(EngineError::Retry(Retry::Conflict)),
            2 => Err(EngineError::Retry(Retry::Deadlock)),
            3 => Err(EngineError::Retry(Retry::Busy)),
            _ => Ok(()),
        }
    }
}

impl Engine for Refusing {
    type Session<'e> = RefusingSession<'e>;
    fn name(&self) -> &str {
        "refusing"
    }
    fn isolation(&self) -> &str {
        "serial"
    }
    fn schema(&self) -> &Schema {
        self.inner.schema()
    }
    fn session(&self) -> Outcome<RefusingSession<'_>> {
        Ok(RefusingSession { engine: self, inner: self.inner.session()? })
    }
}

struct RefusingSession<'e> {
    engine: &'e Refusing,
    inner: MemorySession<'e>,
}

impl<'e> Session for RefusingSession<'e> {
    type Transaction<'s>
        = RefusingTransaction<'s, <MemorySession<'e> as Session>::Transaction<'s>>
    where
        Self: 's;
    fn begin(&mut self, access: Access) -> Outcome<Self::Transaction<'_>> {
        self.engine.maybe_refuse()?;
        Ok(RefusingTransaction { engine: self.engine, inner: self.inner.begin(access)? })
    }
}

struct RefusingTransaction<'s, T> {
    engine: &'s Refusing,
    inner: T,
}

struct WhenWaitedFor;
impl PendingCommit for WhenWaitedFor {
    fn is_durable(&mut self) -> Outcome<bool> {
        Ok(false)
    }
    fn wait(self: Box<Self>) -> Outcome<()> {
        Ok(())
    }
}

impl<T: Transaction> Transaction for RefusingTransaction<'_, T> {
    fn get(&mut self, table: TableId, key: &[u8], row: &mut Vec<u8>) -> Outcome<bool> {
        self.engine.maybe_refuse()?;
        self.inner.get(table, key, row)
    }
    fn get_for_update(&mut self, table: TableId, key: &[u8], row: &mut Vec<u8>) -> Outcome<bool> {
        self.engine.maybe_refuse()?;
        self.inner.get_for_update(table, key, row)
    }
    fn insert(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Outcome<()> {
        self.engine.maybe_refuse()?;
        self.inner.insert(table, key, row)
    }
    fn put(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Outcome<()> {
        self.engine.maybe_refuse()?;
        self.inner.put(table, key, row)
    }
    fn delete(&mut self, table: TableId, key: &[u8]) -> Outcome<bool> {
        self.engine.maybe_refuse()?;
        self.inner.delete(table, key)
    }
    fn scan(&mut self, table: TableId, scan: Scan<'_>, visit: Visitor<'_>) -> Outcome<()> {
        self.engine.maybe_refuse()?;
        self.inner.scan(table, scan, visit)
    }
    fn scan_index(
        &mut self,
        table: TableId,
        index: IndexId,
        scan: Scan<'_>,
        visit: Visitor<'_>,
    ) -> Outcome<()> {
        self.engine.maybe_refuse()?;
        self.inner.scan_index(table, index, scan, visit)
    }
    fn commit(self, mode: CommitMode) -> Outcome<Commit> {
        self.engine.maybe_refuse()?;
        self.inner.commit(mode)?.wait()?;
        Ok(match mode {
            CommitMode::Wait => Commit::Durable,
            CommitMode::Async => Commit::Pending(Box::new(WhenWaitedFor)),
        })
    }
    fn rollback(self) -> Outcome<()> {
        self.inner.rollback()
    }
}

#[test]
fn conditions_hold_though_operations_are_refused_at_random() {
    for mode in [CommitMode::Wait, CommitMode::Async] {
        let engine = Refusing {
            inner: MemoryEngine::new(&tpcc::schema()),
            on: AtomicBool::new(false),
            one_in: 300,
            random: Mutex::new(Random::new(9)),
        };
        let mut options = LoadOptions::new(Scale::tiny(2), 9);
        options.rows_per_commit = 50;
        engine.on.store(true, Ordering::Relaxed);
        // A load or run first reads the population's own row, once; if that is refused, the whole
        // load or run is.
        while let Err(error) = tpcc::load(&engine, &options, &|_| ()) {
            assert!(matches!(error, EngineError::Retry(_)), "{error}");
        }
        let mut driver = DriverOptions::new(2, Duration::ZERO);
        driver.length = Length::TransactionsPerClient(500);
        driver.commit_mode = mode;
        engine.on.store(false, Ordering::Relaxed);
        let clients = ClientOptions { mix: Mix::default(), terminals: Terminals::Drawn, seed: 10 };
        let calm = tpcc::run(&engine, &driver, &clients, &AtomicBool::new(false), &mut |_| ()).unwrap();
        assert_eq!(calm.retries().total(), 0);

        let stop = AtomicBool::new(false);
        let report = loop {
            engine.on.store(true, Ordering::Relaxed);
            match tpcc::run(&engine, &driver, &clients, &stop, &mut |_| ()) {
                Err(EngineError::Retry(_)) => (),
                result => break result.unwrap(),
            }
        };
        assert_eq!(report.commits() + report.user_aborts(), 1000);
        let retries = report.retries();
        assert!(retries.conflict > 0 && retries.deadlock > 0 && retries.busy > 0, "{retries:?}");
        engine.on.store(false, Ordering::Relaxed);
        for condition in tpcc::check(&engine, When::AfterRun).unwrap() {
            assert!(condition.holds(), "{condition}");
        }
    }
}
