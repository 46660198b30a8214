//! Random statements on several tables return what sorted maps return: through savepoints,
//! rollbacks, commits waited for and not, two-phase commits, checkpoints, clean closes and crashes;
//! with pages, buffers and version budgets so small that everything splits, is evicted and spills.
//! Snapshots that are kept open go on seeing what they saw.
//!
//! One seed again: `FIRN_SEED=7`; more seeds: `FIRN_SEEDS=100000`.

mod compare;
mod openings;
mod statements;
mod transactions;

use crate::support::bed::Bed;
use crate::support::small::Rows;
use firndb::{
    Database, Direction, IndexPart, IndexSpec, Isolation, KeyRange, Options, Savepoint, Table, TableSpec,
    Transaction, TransactionOptions,
};
use firndb_base::rng::Rng;
use firndb_testkit::seeds::for_seeds;
use firndb_testkit::watchdog;
use std::ops::Bound;
use std::time::Duration;

/// Tables 0 and 1 have no index; table 2 has a plain one and a unique one.
const TABLES: [&str; 3] = ["plain", "other", "indexed"];

const INDEXED: usize = 2;

/// Bytes of a value that the unique index is made of, and those of the plain one.
const UNIQUE: std::ops::Range<usize> = 0..2;

const PLAIN: std::ops::Range<usize> = 2..3;

type Model = [Rows; 3];

/// The transaction that writes.
struct Writer {
    tx: Transaction,
    model: Model,
    savepoints: Vec<(Savepoint, Model)>,
    isolation: Isolation,
    /// Whether it has been shown anything: its commit then waits until that is durable.
    exposed: bool,
}

struct Run {
    rng: Rng,
    page_size: usize,
    options: Options,
    disks: Bed,
    db: Database,
    tables: Vec<Table>,
    /// What is committed.
    committed: Model,
    /// States that a crash may go back to; the last is `committed`. More than one while commits are
    /// not known to be durable.
    possible: Vec<Model>,
    writer: Option<Writer>,
    /// Snapshots and what they must see.
    readers: Vec<(Transaction, Model)>,
    keys: u64,
    long: bool,
    /// Whether some values are larger than a page.
    large: bool,
    /// Whether every step is printed: `FIRN_TRACE=1`.
    trace: bool,
}

fn random_options(rng: &mut Rng) -> (usize, usize, Options) {
    let page_size = 1024 << rng.below(3);
    let logs = 1 + rng.below(3) as usize;
    let options = Options::new()
        .page_size(page_size)
        .buffer_bytes(page_size * (64 + rng.below(100) as usize))
        .tuning(|tuning| {
            tuning
                .version_bytes([0, 300, 5000, 1 << 20][rng.below(4) as usize])
                .checkpoint_log_bytes(64 << 10)
                .eager_recovery(true)
        })
        .log(|log| log.devices(logs).bytes((256 << 10) * logs as u64))
        // A wait is in vain in one thread, and one that may not last undoes no loser: so recovery
        // has undone them all.
        .lock_deadline(Duration::ZERO)
        .background_threads(false);
    (page_size, logs, options)
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut rng = Rng::new(seed);
        let (page_size, logs, options) = random_options(&mut rng);
        let disks = Bed::new(logs);
        let db = options.clone().create_on(disks.devices()).expect("created");
        let indexes = TableSpec::raw()
            .with_index(IndexSpec::ranges("plain", false, vec![IndexPart::Value(PLAIN)]))
            .with_index(IndexSpec::ranges("unique", true, vec![IndexPart::Value(UNIQUE)]));
        db.create_table(TABLES[0]).expect("created");
        db.create_table(TABLES[1]).expect("created");
        db.create_table_with(TABLES[2], indexes).expect("created");
        let tables = open_tables(&db);
        let keys = [6, 30, 200][rng.below(3) as usize];
        let long = rng.one_in(3);
        let large = rng.one_in(2);
        Run {
            rng,
            page_size,
            options,
            disks,
            db,
            tables,
            committed: Model::default(),
            possible: vec![Model::default()],
            writer: None,
            readers: Vec::new(),
            keys,
            long,
            large,
            trace: std::env::var_os("FIRN_TRACE").is_some(),
        }
    }

    fn key(&mut self) -> Vec<u8> {
        random_key(&mut self.rng, self.keys, self.long)
    }

    fn value(&mut self, table: usize, key: &[u8]) -> Vec<u8> {
        let most = firndb_txn::max_row_len(self.page_size) - key.len();
        let len = match self.rng.below(20) {
            // The longest that stands beside its key, and longer ones, which are cut into chunks.
            0 => most + self.rng.below(2) as usize,
            1 if self.large => self.rng.below(self.page_size as u64 * 6) as usize,
            1 => 0,
            2..=6 => self.rng.below(most as u64 + 1) as usize,
            _ => self.rng.below(24) as usize,
        };
        let len = if table == INDEXED { len.max(3) } else { len };
        let mut value: Vec<u8> = (0..len).map(|_| b'a' + self.rng.below(4) as u8).collect();
        if table == INDEXED {
            value[0] = b'0' + self.rng.below(10) as u8;
            value[1] = b'0' + self.rng.below(if self.keys > 30 { 60 } else { 5 }) as u8;
        }
        value
    }

    fn range(&mut self) -> (KeyRange, Option<Vec<u8>>, Option<Vec<u8>>) {
        let low = (!self.rng.one_in(3)).then(|| self.key());
        let high = (!self.rng.one_in(3)).then(|| self.key());
        let bound = |key: &Option<Vec<u8>>| key.clone();
        let (from, to) = (bound(&low), bound(&high));
        let range = KeyRange::new(
            low.as_deref().map_or(Bound::Unbounded, Bound::Included),
            high.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
        );
        (range, from, to)
    }

    fn writer(&mut self) -> &mut Writer {
        if self.writer.is_none() {
            let isolation = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable]
                [self.rng.below(3) as usize];
            let tx = self.db.begin_with(TransactionOptions { isolation, ..Default::default() });
            let model = self.committed.clone();
            self.writer = Some(Writer { tx, model, savepoints: Vec::new(), isolation, exposed: false });
        }
        self.writer.as_mut().expect("begun")
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.trace {
            eprintln!("{}", what());
        }
    }

    fn step(&mut self) {
        let kind = self.rng.below(100);
        self.tell(|| format!("{kind}: {:?}", self.writer.as_ref().map(|writer| &writer.tx)));
        match kind {
            0..=44 => self.write(),
            45..=54 => self.read(),
            55..=62 => self.scan(),
            63..=66 => self.scan_while_writing(),
            67..=70 => self.savepoint(),
            71..=74 => self.roll_back_to(),
            75..=82 => self.commit(),
            83..=85 => self.roll_back(),
            86..=88 => self.take_snapshot(),
            89..=90 => self.check_snapshots(),
            91..=93 => self.maintain(),
            94..=95 => self.second_writer_is_refused(),
            96 => self.two_phase(),
            97 => self.reopen(),
            98 => self.crash(),
            _ => self.recreate_table(),
        }
    }

    fn direction(&mut self) -> Direction {
        if self.rng.one_in(2) { Direction::Forward } else { Direction::Backward }
    }

    fn all_is_durable(&mut self) {
        self.possible = vec![self.committed.clone()];
    }
}

fn open_tables(db: &Database) -> Vec<Table> {
    TABLES.iter().map(|name| db.table(name).expect("the table is there")).collect()
}

fn random_key(rng: &mut Rng, keys: u64, long: bool) -> Vec<u8> {
    let number = rng.below(keys);
    let mut key = format!("{number:03}").into_bytes();
    if long {
        // Its length is a function of the number, so that equal numbers are equal keys.
        key.resize(3 + (number as usize * 7) % 50, b'k');
    }
    key
}

fn run(seed: u64) {
    let mut run = Run::new(seed);
    let steps = run.rng.between(20, 400);
    for _ in 0..steps {
        run.step();
    }
    run.check_snapshots();
    run.roll_back();
    run.readers.clear();
    if run.rng.one_in(4) {
        let report = run.db.check(&mut |_| {}).expect("can be checked");
        assert_eq!(report.damage, Vec::<String>::new());
    }
    run.crash_now();
}

#[test]
fn random_runs_agree_with_the_model() {
    watchdog::within(Duration::from_secs(300), || for_seeds(300, run));
}
