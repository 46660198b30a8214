//! A sample database with a model beside it, in several ways of having ended.

use super::bed::Bed;
use firndb::{Database, Error, IndexPart, IndexSpec, Options, TableSpec};
use firndb_base::rng::Rng;
use std::collections::BTreeMap;
use std::time::Duration;

/// Rows by key.
pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
/// Rows by table.
pub type Model = BTreeMap<String, Rows>;

/// The tables of a sample; the last has an index over the first byte of its values.
pub const TABLES: [&str; 3] = ["plain", "wide", "indexed"];
pub const INDEXED: &str = "indexed";

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
    pub disks: Bed,
    pub model: Model,
    /// Before the very last commit.
    pub before_last: Model,
}

/// Writes rows, changes and deletes some, with checkpoints between, and a few after the last one.
pub fn sample(seed: u64, ending: Ending) -> Sample {
    sample_under(quiet(), seed, ending)
}

/// As [`sample`], with options that are as [`quiet`] but for tuning.
pub fn sample_under(options: Options, seed: u64, ending: Ending) -> Sample {
    let disks = Bed::new(2);
    let db =
        options.background_threads(ending == Ending::Sealed).create_on(disks.devices()).expect("created");
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
    let disks = Bed::new(2);
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
