//! What the tests of models, isolation and histories share: databases in memory, seeds, and a
//! watchdog.
pub mod script;

use firndb::device::MemoryDevice;
use firndb::{Database, Devices, Direction, KeyRange, Options, Table, Transaction};
use firndb_base::sync::Arc;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

/// Rows by key.
pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// The memory devices of one database.
pub struct Disks {
    superblock: Arc<MemoryDevice>,
    logs: Vec<Arc<MemoryDevice>>,
    store: Arc<MemoryDevice>,
}

impl Disks {
    pub fn new(logs: usize) -> Disks {
        Disks {
            superblock: Arc::new(MemoryDevice::new("superblock")),
            logs: (0..logs).map(|i| Arc::new(MemoryDevice::new(&format!("log {i}")))).collect(),
            store: Arc::new(MemoryDevice::new("store")),
        }
    }
    pub fn devices(&self) -> Devices {
        Devices {
            superblock: self.superblock.clone(),
            logs: self.logs.iter().map(|log| log.clone() as _).collect(),
            store: self.store.clone(),
            cache: None,
        }
    }
    /// The device of the page store, to be damaged.
    pub fn store(&self) -> &MemoryDevice {
        &self.store
    }
    /// What a crash now would leave: every byte written, and nothing that is only in memory. To be
    /// called while no client writes.
    pub fn crashed(&self) -> Disks {
        Disks {
            superblock: Arc::new(self.superblock.duplicate()),
            logs: self.logs.iter().map(|log| Arc::new(log.duplicate())).collect(),
            store: Arc::new(self.store.duplicate()),
        }
    }
}

/// A small database in memory without threads of its own.
pub fn quiet() -> Options {
    Options::new()
        .page_size(1024)
        .buffer_bytes(1 << 20)
        .log(|log| log.devices(1).bytes(1 << 20))
        .background_threads(false)
}

/// A small database in memory with threads of its own.
pub fn busy() -> Options {
    quiet().background_threads(true).log(|log| log.devices(2).bytes(2 << 20))
}

/// Creates a database in memory.
pub fn create(options: Options) -> Database {
    options.create_on(Disks::new(1).devices()).expect("a fresh database")
}

/// Every row of a range, as the transaction sees it.
pub fn scan(
    tx: &mut Transaction,
    table: &Table,
    range: KeyRange,
    direction: Direction,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = tx.scan(table, range, direction);
    let mut rows = Vec::new();
    while let Some((key, value)) = cursor.next(tx).expect("an undisturbed scan") {
        rows.push((key.to_vec(), value.to_vec()));
    }
    rows
}

/// The number in an environment variable.
pub fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}; it must be a number")))
}

/// Runs `test` for `count` seeds, or as many as `FIRN_SEEDS` says, or for the one that `FIRN_SEED`
/// names; says which seed failed and how to run it again.
pub fn for_seeds(count: u64, test: impl Fn(u64) + std::panic::RefUnwindSafe) {
    if let Some(seed) = number_from("FIRN_SEED") {
        return test(seed);
    }
    for seed in 0..number_from("FIRN_SEEDS").unwrap_or(count) {
        if let Err(panic) = std::panic::catch_unwind(|| test(seed)) {
            eprintln!("seed {seed} failed; run it again with FIRN_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Runs `test` in a thread of its own, and ends the whole process with a message if it takes longer
/// than `limit`: a hang is a failure, and a thread that hangs cannot be ended otherwise.
pub fn within(limit: Duration, test: impl FnOnce() + Send + 'static) {
    let began = Instant::now();
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let worker = std::thread::Builder::new().name(name.clone()).spawn(test).expect("a thread");
    while !worker.is_finished() {
        if began.elapsed() > limit {
            // Not by eprintln!, whose output a test harness keeps to itself.
            let _ = writeln!(std::io::stderr(), "{name} hangs: it did not end within {limit:?}");
            std::process::abort();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    if let Err(panic) = worker.join() {
        std::panic::resume_unwind(panic);
    }
}
