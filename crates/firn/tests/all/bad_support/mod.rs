//! What the tests of bad input share: a sample database with a model beside it, and the examination
//! of what is left after something was done to its devices.
//!
//! The examination asserts what holds for *any* damage: opening returns an error that says what is
//! wrong, or every read returns what the model says or an error; a check reports whatever a read
//! stumbled over; nothing panics.
use firndb::device::{Device, Durability, MemoryDevice};
use firndb::{
    CheckReport, Database, Devices, Direction, Error, ErrorKind, IndexPart, IndexSpec, KeyRange, Options,
    TableSpec,
};
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::{Duration, Instant};

/// Rows by key, by table.
pub type Model = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// The tables of a sample; the last has an index over the first byte of its values.
pub const TABLES: [&str; 3] = ["plain", "wide", "indexed"];
pub const INDEXED: &str = "indexed";

/// The memory devices of one database.
#[derive(Clone, Debug)]
pub struct Disks {
    pub superblock: Arc<MemoryDevice>,
    pub logs: Vec<Arc<MemoryDevice>>,
    pub store: Arc<MemoryDevice>,
}

impl Disks {
    pub fn new(logs: usize) -> Disks {
        Disks {
            superblock: Arc::new(MemoryDevice::new("superblock")),
            logs: (0..logs).map(|i| Arc::new(MemoryDevice::new(&format!("log.{i}")))).collect(),
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
    /// An independent copy: what a crash now would leave, if no thread writes meanwhile.
    pub fn duplicate(&self) -> Disks {
        Disks {
            superblock: Arc::new(self.superblock.duplicate()),
            logs: self.logs.iter().map(|log| Arc::new(log.duplicate())).collect(),
            store: Arc::new(self.store.duplicate()),
        }
    }
    /// Superblock, log devices, store.
    pub fn all(&self) -> Vec<Arc<MemoryDevice>> {
        let mut all = vec![self.superblock.clone()];
        all.extend(self.logs.iter().cloned());
        all.push(self.store.clone());
        all
    }
}

/// A small database without threads of its own.
pub fn quiet() -> Options {
    Options::new()
        .page_size(1024)
        .buffer_bytes(256 << 10)
        .log(|log| log.devices(2).bytes(512 << 10))
        .background_threads(false)
}

/// How a sample's last life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Closed.
    Closed,
    /// The power failed after a while of rest, when the log had been sealed.
    Sealed,
    /// The power failed right after the last commit.
    Abrupt,
}

/// A database and what it must hold.
pub struct Sample {
    pub disks: Disks,
    pub model: Model,
    /// Before the very last commit.
    pub before_last: Model,
}

/// Writes rows, changes and deletes some, with checkpoints between, and a few after the last one.
pub fn sample(seed: u64, ending: Ending) -> Sample {
    let disks = Disks::new(2);
    let db =
        quiet().background_threads(ending == Ending::Sealed).create_on(disks.devices()).expect("created");
    let mut model = create_tables(&db);
    let mut before_last = model.clone();
    let mut rng = Rng::new(seed);
    for round in 0..3 {
        for _ in 0..if round == 2 { 12 } else { 90 } {
            before_last = model.clone();
            change(&db, &mut model, &mut rng);
        }
        if round < 2 {
            db.checkpoint().expect("a checkpoint");
        }
    }
    let disks = match ending {
        Ending::Closed => {
            db.close().expect("closed");
            disks
        }
        Ending::Sealed => {
            std::thread::sleep(Duration::from_millis(400));
            disks.duplicate()
        }
        Ending::Abrupt => disks.duplicate(),
    };
    Sample { disks, model, before_last }
}

/// A table that is dropped in a busy sample, and not freed yet.
pub const DOOMED: &str = "doomed";

/// A database that crashed with background work of every kind left: pages to be redone, a
/// transaction to be rolled back that wrote to each table, deleted rows to be removed, a dropped
/// table to be freed.
pub fn busy_sample(seed: u64) -> Sample {
    let disks = Disks::new(2);
    let db = quiet().create_on(disks.devices()).expect("created");
    let mut model = create_tables(&db);
    let doomed = db.create_table(DOOMED).expect("a new table");
    let mut rng = Rng::new(seed);
    for number in 0..300 {
        let key = format!("key {number:05}");
        db.transact(|tx| tx.put(&doomed, key.as_bytes(), &[7; 60]).map(drop)).expect("committed");
    }
    for _ in 0..120 {
        change(&db, &mut model, &mut rng);
    }
    drop(doomed);
    db.drop_table(DOOMED).expect("dropped");
    let plain = db.table("plain").expect("there");
    let gone: Vec<Vec<u8>> = model["plain"].keys().skip(40).take(120).cloned().collect();
    db.transact(|tx| gone.iter().try_for_each(|key| tx.delete(&plain, key).map(drop))).expect("committed");
    model.get_mut("plain").expect("in the model").retain(|key, _| !gone.contains(key));
    let mut loser = db.begin();
    for (name, rows) in &model {
        let table = db.table(name).expect("there");
        for key in rows.keys().step_by(30) {
            loser.put(&table, key, b"never").expect("written");
        }
    }
    db.checkpoint().expect("a checkpoint");
    // To be redone. The rows that are locked are left alone.
    for (name, rows) in &mut model {
        let table = db.table(name).expect("there");
        let keys: Vec<Vec<u8>> = rows.keys().skip(1).step_by(15).cloned().collect();
        db.transact(|tx| keys.iter().try_for_each(|key| tx.put(&table, key, b"later").map(drop)))
            .expect("committed");
        rows.extend(keys.into_iter().map(|key| (key, b"later".to_vec())));
    }
    let disks = disks.duplicate();
    drop(loser);
    Sample { disks, before_last: model.clone(), model }
}

/// What became of a busy database after something was done to it.
#[derive(Debug)]
pub enum BusyVerdict {
    /// It was not opened.
    Refused,
    /// It was opened. The tables that damage concerns.
    Opened(Vec<String>),
}

/// Opens what is on the devices with threads and gives these time for what they have to do; twice.
/// Each time every table that can be read must hold what the model says and take writes, whatever
/// became of the others. Then drops the others.
pub fn examine_busy(disks: &Disks, model: &Model) -> BusyVerdict {
    let mut damaged = Vec::new();
    for incarnation in 0..3 {
        let db = match quiet().background_threads(true).open_on(disks.devices()) {
            Ok(db) => db,
            Err(error) if incarnation == 0 => {
                assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
                return BusyVerdict::Refused;
            }
            Err(error) => panic!("incarnation {incarnation}, which was opened before: {error}"),
        };
        let limit = Instant::now() + Duration::from_secs(20);
        while !db.recovery_report().complete {
            assert!(Instant::now() < limit, "recovery does not end: {:?}", db.recovery_report());
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(60));
        let mut now = Vec::new();
        for (name, rows) in model.iter().filter(|(name, _)| incarnation < 2 || !damaged.contains(*name)) {
            let alone = Model::from([(name.clone(), rows.clone())]);
            if examine_reads(&db, &[&alone]).is_empty() {
                write_to(&db, name);
            } else {
                now.push(name.clone());
            }
        }
        assert!(
            incarnation == 0 || now.iter().all(|name| damaged.contains(name)),
            "{now:?}, and not {damaged:?}"
        );
        if incarnation == 1 {
            for name in &now {
                match db.drop_table(name) {
                    Ok(()) => {}
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Damaged, "{error}"),
                }
            }
        }
        damaged = if incarnation == 0 { now } else { damaged };
        db.close().unwrap_or_else(|error| panic!("incarnation {incarnation} cannot be closed: {error}"));
    }
    BusyVerdict::Opened(damaged)
}

/// Writes to a table, and leaves it as it was.
fn write_to(db: &Database, name: &str) {
    let table = db.table(name).expect("it was read");
    let write = |work: &dyn Fn(&mut firndb::Transaction) -> Result<(), Error>| {
        db.transact(|tx| work(tx))
            .unwrap_or_else(|error| panic!("{name} can be read and not written: {error}"));
    };
    write(&|tx| (0..20u8).try_for_each(|i| tx.put(&table, &[b'z', i], &[b'v'; 50]).map(drop)));
    write(&|tx| (0..20u8).try_for_each(|i| tx.delete(&table, &[b'z', i]).map(drop)));
}

pub fn create_tables(db: &Database) -> Model {
    let by_first = IndexSpec::ranges("by_first", false, vec![IndexPart::Value(0..1)]);
    for name in TABLES {
        let spec = TableSpec::raw();
        let spec = if name == INDEXED { spec.with_index(by_first.clone()) } else { spec };
        db.create_table_with(name, spec).expect("a new table");
    }
    TABLES.iter().map(|name| ((*name).to_owned(), BTreeMap::new())).collect()
}

/// One committed transaction of a dozen statements, in the database and in the model.
pub fn change(db: &Database, model: &mut Model, rng: &mut Rng) {
    try_change(db, model, rng).expect("committed");
}

/// As [`change`]; after an error the model is as before.
pub fn try_change(db: &Database, model: &mut Model, rng: &mut Rng) -> Result<(), Error> {
    let mut after = model.clone();
    let mut tx = db.begin();
    for Statement { table: name, key, value } in statements(rng) {
        let table = db.table(name)?;
        let rows = after.get_mut(name).expect("in the model");
        match value {
            Some(value) => {
                tx.put(&table, &key, &value)?;
                rows.insert(key, value);
            }
            None => {
                tx.delete(&table, &key)?;
                rows.remove(&key);
            }
        }
    }
    tx.commit()?;
    *model = after;
    Ok(())
}

/// A row to put, or to delete if there is no value.
pub struct Statement {
    pub table: &'static str,
    pub key: Vec<u8>,
    pub value: Option<Vec<u8>>,
}

/// What one transaction does.
pub fn statements(rng: &mut Rng) -> Vec<Statement> {
    let mut statement = || {
        let table = TABLES[rng.below(3) as usize];
        let key = format!("key {:05}", rng.below(900)).into_bytes();
        let len = rng.between(1, if table == "wide" { 140 } else { 60 });
        let value = (!rng.one_in(6)).then(|| (0..len).map(|_| b'a' + rng.below(20) as u8).collect());
        Statement { table, key, value }
    };
    (0..12).map(|_| statement()).collect()
}

/// What became of a database after something was done to it.
#[derive(Debug)]
pub enum Verdict {
    /// It was not opened.
    Refused(Error),
    /// It was opened. Reads that failed, and what a check said.
    Opened(Vec<Error>, Result<CheckReport, Error>),
}

impl Verdict {
    /// Opened, every read went well, and a check found nothing.
    pub fn is_whole(&self) -> bool {
        matches!(self, Verdict::Opened(errors, Ok(report)) if errors.is_empty() && report.is_clean())
    }
}

/// Opens what is on the devices and compares every row with the models, one of which it has to be.
///
/// Panics if anything that was read is wrong, if an error does not tell of damage, or if a check is
/// content with what could not be read.
pub fn examine(disks: &Disks, models: &[&Model]) -> Verdict {
    let db = match quiet().open_on(disks.devices()) {
        Ok(db) => db,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
            assert!(error.to_string().len() > 20, "an error says what is wrong: {error}");
            return Verdict::Refused(error);
        }
    };
    examine_open(&db, models)
}

/// As [`examine`], of an open database.
pub fn examine_open(db: &Database, models: &[&Model]) -> Verdict {
    let errors = examine_reads(db, models);
    let check = db.check(&mut |_| {});
    if !errors.is_empty() {
        assert!(
            !matches!(&check, Ok(report) if report.is_clean()),
            "a check is content with what could not be read: {errors:?}"
        );
    }
    if let Ok(report) = &check {
        assert!(report.is_clean() == report.damage.is_empty(), "faults are described: {report:?}");
    }
    Verdict::Opened(errors, check)
}

/// Reads everything and compares it with the models. The errors, which tell of damage.
pub fn examine_reads(db: &Database, models: &[&Model]) -> Vec<Error> {
    let mut outcomes = models.iter().map(|model| read_everything(db, model));
    let errors = loop {
        match outcomes.next() {
            Some(Ok(errors)) => break errors,
            Some(Err(wrong)) if outcomes.len() == 0 => panic!("{wrong}"),
            Some(Err(_)) => {}
            None => unreachable!("there is a model"),
        }
    };
    for error in &errors {
        assert!(
            matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Failed),
            "reading what is damaged says so: {error:?}"
        );
    }
    errors
}

/// Reads every table both ways, by key and by index. Returns the errors; `Err` if a result is
/// wrong.
fn read_everything(db: &Database, model: &Model) -> Result<Vec<Error>, String> {
    let mut errors = Vec::new();
    for (name, rows) in model {
        let table = match db.table(name) {
            Ok(table) => table,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(format!("table {name} is gone")),
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        let mut tx = db.snapshot();
        for direction in [Direction::Forward, Direction::Backward] {
            let mut expected: Vec<_> = rows.iter().collect();
            if direction == Direction::Backward {
                expected.reverse();
            }
            let mut expected = expected.into_iter();
            let mut cursor = tx.scan(&table, KeyRange::all(), direction);
            loop {
                match cursor.next(&mut tx) {
                    Ok(Some((key, value))) => {
                        let wanted = expected.next();
                        if wanted.map(|(k, v)| (&k[..], &v[..])) != Some((key, value)) {
                            let key = key.escape_ascii();
                            return Err(format!(
                                "{name}: {direction:?} scan found {key}, expected {wanted:?}"
                            ));
                        }
                    }
                    Ok(None) => match expected.next() {
                        None => break,
                        Some((key, _)) => {
                            return Err(format!(
                                "{name}: the {direction:?} scan ends before {}",
                                key.escape_ascii()
                            ));
                        }
                    },
                    Err(error) => {
                        errors.push(error);
                        break;
                    }
                }
            }
        }
        for number in (0..900).step_by(7) {
            let key = format!("key {number:05}").into_bytes();
            match tx.get(&table, &key) {
                Ok(found) if found.as_ref() == rows.get(&key) => {}
                Ok(found) => return Err(format!("{name}: {} is {found:?}", key.escape_ascii())),
                Err(error) => errors.push(error),
            }
        }
        if name == INDEXED {
            match table.index("by_first") {
                Ok(index) => {
                    let mut expected: Vec<_> = rows.iter().map(|(key, value)| (value[0], key)).collect();
                    expected.sort_unstable();
                    let mut expected = expected.into_iter();
                    let all = KeyRange::new(Bound::Unbounded, Bound::Unbounded);
                    let mut cursor = tx.scan_index(&index, all, Direction::Forward);
                    loop {
                        match cursor.next(&mut tx) {
                            Ok(Some(row)) => {
                                let wanted = expected.next();
                                if wanted != Some((row.row[0], &row.primary_key.to_vec())) {
                                    return Err(format!("the index shows another row than {wanted:?}"));
                                }
                            }
                            Ok(None) if expected.len() == 0 => break,
                            Ok(None) => return Err("the index ends early".to_owned()),
                            Err(error) => {
                                errors.push(error);
                                break;
                            }
                        }
                    }
                }
                Err(error) => errors.push(error),
            }
        }
    }
    Ok(errors)
}

/// Runs one case; says which it was if it panics.
pub fn case<T>(what: impl std::fmt::Display, run: impl FnOnce() -> T) -> T {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        Ok(value) => value,
        Err(panic) => {
            eprintln!("in the case: {what}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// The contents of a device.
pub fn contents(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read(0, &mut bytes).expect("memory is readable");
    bytes
}

/// Writes `bytes`, whole blocks, at `offset`.
pub fn overwrite(device: &MemoryDevice, offset: u64, bytes: &[u8]) {
    device.write(offset, bytes, Durability::Durable).expect("memory is writable");
}

/// Flips one bit for good.
pub fn flip(device: &MemoryDevice, byte: u64, bit: u32) {
    let mut block = [0; 512];
    let start = byte / 512 * 512;
    device.read(start, &mut block).expect("memory is readable");
    block[(byte - start) as usize] ^= 1 << bit;
    overwrite(device, start, &block);
}

/// The blocks of 512 bytes that hold anything.
pub fn used_blocks(device: &MemoryDevice) -> Vec<u64> {
    let bytes = contents(device);
    let used = bytes.chunks(512).enumerate().filter(|(_, block)| block.iter().any(|&byte| byte != 0));
    used.map(|(number, _)| number as u64 * 512).collect()
}
