//! The scripts that both harnesses run: each shows one way in which a database is used, on devices
//! and budgets small enough that its I/O calls can be gone through one by one.

mod definitions;
mod limits;
mod openings;
mod pages;
mod rows;
mod shapes;
mod transactions;

use super::bed::Bed;
use super::session::{Session, by_group, by_unique};
use firndb::{Deltas, Options, PageRecovery, Placement};

/// A script, and what it starts from.
pub struct Script {
    pub name: &'static str,
    pub options: fn() -> Options,
    /// Log devices.
    pub logs: usize,
    /// Bytes at which the store is full.
    pub store_limit: u64,
    /// Whether a run takes long.
    pub large: bool,
    /// Prepares the devices, without faults, from an open empty database.
    pub setup: fn(&mut Session),
    /// What a flash cache adds to the options.
    pub cache: Option<fn(Options) -> Options>,
    /// DRAM for deltas that wait, if pages are written as deltas.
    pub delta_bytes: Option<usize>,
    pub placement: Placement,
    /// How pages of page files become durable, and DRAM for those that are private.
    pub pages: (PageRecovery, usize),
    /// Whether the devices are left as a crash leaves them, not as closing does.
    pub crashed: bool,
    /// What is tested. Begins with a database that has just been opened.
    pub run: fn(&mut Session),
}

impl Script {
    const fn new(name: &'static str, setup: fn(&mut Session), run: fn(&mut Session)) -> Script {
        Script {
            name,
            options: tiny,
            logs: 1,
            store_limit: u64::MAX,
            large: false,
            setup,
            cache: None,
            delta_bytes: None,
            placement: Placement::Threaded,
            pages: (PageRecovery::Log, 8 << 10),
            crashed: false,
            run,
        }
    }
    const fn options(self, options: fn() -> Options) -> Script {
        Script { options, ..self }
    }
    const fn logs(self, logs: usize) -> Script {
        Script { logs, ..self }
    }
    const fn store_limit(self, store_limit: u64) -> Script {
        Script { store_limit, large: true, ..self }
    }
    /// The same over a flash cache.
    pub fn over_cache(self, cache: fn(Options) -> Options) -> Script {
        Script { cache: Some(cache), ..self }
    }
    /// The same with deltas, of which `bytes` bytes wait.
    pub fn with_deltas(self, bytes: usize) -> Script {
        Script { delta_bytes: Some(bytes), ..self }
    }
    /// The same with pages in whole segments, which a cleaner makes.
    pub fn in_segments(self) -> Script {
        Script { placement: Placement::Segments, ..self }
    }
    /// The same with pages of page files recovered so, and `bytes` bytes for private ones.
    pub fn recovering(self, recovery: PageRecovery, bytes: usize) -> Script {
        Script { pages: (recovery, bytes), ..self }
    }
    const fn crashed(self) -> Script {
        Script { crashed: true, ..self }
    }

    /// The options for this script's log devices.
    pub fn options_for(&self) -> Options {
        let logs = self.logs;
        // A waiter in a test of one thread would wait for itself.
        let options = (self.options)().lock_deadline(std::time::Duration::from_millis(50));
        let options = options.log(|log| log.devices(logs).bytes(logs as u64 * LOG_BYTES));
        let options = options.tuning(|tuning| {
            let (recovery, bytes) = self.pages;
            tuning.placement(self.placement).page_recovery(recovery).page_file_bytes(bytes)
        });
        let options = match self.delta_bytes {
            Some(bytes) => options.tuning(|tuning| tuning.deltas(Deltas::On).delta_bytes(bytes)),
            None => options,
        };
        match self.cache {
            Some(cache) => cache(options),
            None => options,
        }
    }

    /// Prepares the devices: a session that has ended. What is on them is its bed.
    pub fn prepare(&self) -> Session {
        let bed = Bed::with_store_of(self.logs, self.store_limit);
        let mut session = Session::plain(bed, self.options_for());
        session.create();
        (self.setup)(&mut session);
        session.verify();
        match self.crashed {
            true => session.crash(),
            false => session.close(),
        }
        assert!(session.broken.is_empty(), "{}: the set-up: {:?}", self.name, session.broken);
        assert!(session.errors.is_empty(), "{}: the set-up: {:?}", self.name, session.errors);
        session
    }
}

/// Bytes of a store with pages of 1 KiB that has one group, of about 4000 pages.
const STORE_OF_ONE_GROUP: u64 = 4_700_000;

/// Bytes of one log device: the least there may be.
const LOG_BYTES: u64 = 256 << 10;

/// Pages of 1 KiB, so that few rows make deep trees, and as few of them in DRAM as can be.
fn tiny() -> Options {
    let options = Options::new().page_size(1024).buffer_bytes(64 << 10).background_threads(false);
    options.tuning(|tuning| tuning.version_bytes(4 << 10))
}

/// The same with space for all pages.
fn roomy() -> Options {
    tiny().buffer_bytes(512 << 10)
}

/// Pages of the usual size: a little log goes a long way around.
fn pages_of_4k() -> Options {
    tiny().page_size(4096).buffer_bytes(256 << 10).tuning(|tuning| tuning.version_bytes(64 << 10))
}

pub fn key(i: u32) -> Vec<u8> {
    format!("key {i:05}").into_bytes()
}

/// A value of `len` bytes at least 12: a group of four, a unique number, filling.
pub fn value(i: u32, version: u32, len: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(len);
    value.extend_from_slice(&((i ^ version) % 4).to_be_bytes());
    value.extend_from_slice(&(u64::from(version) << 32 | u64::from(i)).to_be_bytes());
    value.resize(len.max(12), b'a' + (i + version) as u8 % 26);
    value
}

/// Table "t" with `count` rows of `len` bytes, written `batch` a transaction.
fn filled(session: &mut Session, count: u32, batch: u32, len: usize) {
    session.create_table("t", &[]);
    fill(session, "t", 0..count, batch, len);
}

fn fill(session: &mut Session, table: &str, range: std::ops::Range<u32>, batch: u32, len: usize) {
    let mut from = range.start;
    while from < range.end {
        let to = (from + batch).min(range.end);
        session.transact(|work| {
            for i in from..to {
                work.put(table, &key(i), &value(i, 0, len))?;
            }
            Ok(())
        });
        from = to;
    }
}

fn nothing(_: &mut Session) {}

fn empty_table(session: &mut Session) {
    session.create_table("t", &[]);
}

fn hundred_rows(session: &mut Session) {
    filled(session, 100, 25, 30);
}

/// Many more pages than fit into the buffer.
fn many_pages(session: &mut Session) {
    filled(session, 700, 50, 140);
}

fn indexed(session: &mut Session) {
    session.create_table("t", &[by_group(), by_unique()]);
    fill(session, "t", 0..80, 20, 30);
}

/// All scripts.
pub fn all() -> Vec<Script> {
    [
        rows::scripts(),
        shapes::scripts(),
        transactions::scripts(),
        definitions::scripts(),
        openings::scripts(),
        pages::scripts(),
        limits::scripts(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Those whose transactions put whole pages.
pub fn of_whole_pages() -> Vec<Script> {
    pages::scripts()
}

pub fn named(name: &str) -> Script {
    all().into_iter().find(|script| script.name == name).unwrap_or_else(|| panic!("no script {name:?}"))
}
