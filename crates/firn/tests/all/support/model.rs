//! What a database must hold, and reading what it holds.

use firndb::{Database, Direction, Error, ErrorKind, KeyRange, Options};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::bed::Bed;
use super::session::pages::{model_name, read_page_file};

pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A table: its rows, the names of the indexes that can be read, and how many rows it had when its
/// statistics were kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableModel {
    pub rows: Rows,
    pub indexes: BTreeSet<String>,
    pub analyzed: Option<u64>,
}

/// All that a database holds, as one transaction sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub tables: BTreeMap<String, TableModel>,
    pub prepared: BTreeSet<Vec<u8>>,
}

impl State {
    /// Reads all of a database. Outer errors are the database's; an inner one says how an index and
    /// its table disagree.
    pub fn read(db: &Database) -> Result<Result<State, String>, Error> {
        let mut state = State { prepared: db.prepared().into_iter().collect(), ..State::default() };
        let mut tx = db.snapshot();
        for name in db.table_names() {
            let table = db.table(&name)?;
            let analyzed = db.table_statistics(&table)?.map(|statistics| statistics.rows);
            let mut model = TableModel { analyzed, ..TableModel::default() };
            let mut cursor = tx.scan(&table, KeyRange::all(), Direction::Forward);
            while let Some((key, value)) = cursor.next(&mut tx)? {
                model.rows.insert(key.to_vec(), value.to_vec());
            }
            for index in table.index_names()? {
                match read_index(&mut tx, &table.index(&index)?) {
                    Ok(found) if found == model.rows => {
                        model.indexes.insert(index);
                    }
                    Ok(found) => {
                        let (entries, rows) = (found.len(), model.rows.len());
                        return Ok(Err(format!(
                            "index {index:?} of table {name:?} shows other rows than the table: {entries} and {rows}"
                        )));
                    }
                    // Still being built, or left half built by a crash.
                    Err(error) if error.kind() == ErrorKind::Stale => {}
                    Err(error) => return Err(error),
                }
            }
            state.tables.insert(name, model);
        }
        for name in db.page_file_names() {
            let rows = read_page_file(&mut tx, &db.page_file(&name)?)?;
            let model = TableModel { rows, ..TableModel::default() };
            state.tables.insert(model_name(&name), model);
        }
        Ok(Ok(state))
    }

    /// In what `found` differs, for people.
    pub fn difference(&self, found: &State) -> String {
        if self.prepared != found.prepared {
            return format!("prepared transactions {:?} instead of {:?}", found.prepared, self.prepared);
        }
        let names = |state: &State| state.tables.keys().cloned().collect::<Vec<_>>();
        if names(self) != names(found) {
            return format!("tables {:?} instead of {:?}", names(found), names(self));
        }
        for (name, expected) in &self.tables {
            let found = &found.tables[name];
            if expected.indexes != found.indexes {
                return format!("indexes {:?} of {name:?} instead of {:?}", found.indexes, expected.indexes);
            }
            if expected.analyzed != found.analyzed {
                let (found, expected) = (found.analyzed, expected.analyzed);
                return format!("{name:?} was analyzed with {found:?} rows instead of {expected:?}");
            }
            let keys: BTreeSet<_> = expected.rows.keys().chain(found.rows.keys()).collect();
            let differing: Vec<_> =
                keys.into_iter().filter(|key| expected.rows.get(*key) != found.rows.get(*key)).collect();
            if let Some(key) = differing.first() {
                let shown = |row: Option<&Vec<u8>>| {
                    row.map_or("nothing".to_owned(), |v| v[..v.len().min(24)].escape_ascii().to_string())
                };
                return format!(
                    "{} rows of {name:?} differ, the first at {}: {} instead of {}",
                    differing.len(),
                    key.escape_ascii(),
                    shown(found.rows.get(*key)),
                    shown(expected.rows.get(*key)),
                );
            }
        }
        "nothing".to_owned()
    }
}

fn read_index(tx: &mut firndb::Transaction, index: &firndb::Index) -> Result<Rows, Error> {
    let mut rows = Rows::new();
    let mut cursor = tx.scan_index(index, KeyRange::all(), Direction::Forward);
    while let Some(entry) = cursor.next(tx)? {
        rows.insert(entry.primary_key.to_vec(), entry.row.to_vec());
    }
    Ok(rows)
}

/// The states that a database went through, and which of them it may be in after a crash: the
/// newest acknowledged one and all later ones, since the log keeps the order of commits.
#[derive(Clone, Debug)]
pub struct History {
    states: Vec<Arc<State>>,
    acknowledged: usize,
}

impl History {
    pub fn new() -> History {
        History { states: vec![Arc::new(State::default())], acknowledged: 0 }
    }
    pub fn newest(&self) -> &Arc<State> {
        self.states.last().expect("there is a first")
    }
    /// A commit begins that leads to `state`; returns the state's number.
    pub fn attempt(&mut self, state: State) -> usize {
        self.states.push(Arc::new(state));
        self.states.len() - 1
    }
    /// The commit that leads to the newest state was acknowledged.
    pub fn acknowledge(&mut self) {
        self.acknowledged = self.states.len() - 1;
    }
    /// The commit that was attempted last definitely failed.
    pub fn refuse(&mut self) {
        assert!(self.states.len() - 1 > self.acknowledged);
        self.states.pop();
    }
    pub fn acknowledged(&self) -> usize {
        self.acknowledged
    }
    pub fn allowed(&self) -> &[Arc<State>] {
        &self.states[self.acknowledged..]
    }
    /// States by number, from the acknowledged one on.
    pub fn between(&self, acknowledged: usize, attempted: usize) -> &[Arc<State>] {
        &self.states[acknowledged..=attempted]
    }
    /// A recovered database showed `found`: from here on that is what it holds.
    pub fn settle(&mut self, found: &State) -> Result<(), String> {
        let place = find(self.allowed(), found)?;
        self.states.truncate(self.acknowledged + place + 1);
        self.acknowledge();
        Ok(())
    }
}

/// Which of `allowed` is what was found.
pub fn find(allowed: &[Arc<State>], found: &State) -> Result<usize, String> {
    allowed.iter().position(|state| **state == *found).ok_or_else(|| {
        let (first, last) = (&allowed[0], &allowed[allowed.len() - 1]);
        format!(
            "the contents are none of the {} allowed: against what was acknowledged: {}; against the newest: {}",
            allowed.len(),
            first.difference(found),
            last.difference(found),
        )
    })
}

/// Opens the database on `bed`, compares it with what is allowed and checks all of it. Returns
/// which of the allowed states it is in.
pub fn verify(bed: &Bed, options: &Options, allowed: &[Arc<State>]) -> Result<usize, String> {
    let db = options.clone().open_on(bed.plain()).map_err(|e| format!("does not open: {e}"))?;
    verify_open(&db, allowed)
}

fn verify_open(db: &Database, allowed: &[Arc<State>]) -> Result<usize, String> {
    let found = State::read(db).map_err(|e| format!("cannot be read: {e}"))??;
    let place = find(allowed, &found)?;
    let report = db.check(&mut |_| {}).map_err(|e| format!("cannot be checked: {e}"))?;
    if !report.is_clean() {
        return Err(format!("is damaged: {}", report.damage.join("; ")));
    }
    // One that drops or creates trees may lose a page of theirs to a crash, one that has but page
    // files "a" does neither.
    if db.page_file_names() == ["a"] && db.table_names().is_empty() && report.leaked_pages > 0 {
        return Err(format!("has lost {} pages", report.leaked_pages));
    }
    Ok(place)
}

/// Pages of trees just created or dropped that a crash may lose.
const LEAKED_MAX: u64 = 12;

/// As [`verify`], then goes on: background work to its end, a commit, a close, and everything
/// again.
pub fn verify_and_go_on(bed: &Bed, options: &Options, allowed: &[Arc<State>]) -> Result<usize, String> {
    let explain = |what: &'static str| move |e: Error| format!("{what}: {e}");
    let db = options.clone().open_on(bed.plain()).map_err(explain("does not open"))?;
    let place = verify_open(&db, allowed)?;
    let mut idle = 0;
    for _ in 0..200 {
        match db.step().map_err(explain("background work fails"))? {
            // One step takes a fence, and the next finds it past.
            firndb::Progress::Idle if idle == 3 => break,
            firndb::Progress::Idle => idle += 1,
            firndb::Progress::Worked => idle = 0,
        }
    }
    let leaked = db.check(&mut |_| {}).map_err(explain("cannot be checked"))?.leaked_pages;
    if leaked > LEAKED_MAX {
        return Err(format!("has lost {leaked} pages"));
    }
    let table = db.open_table("later").map_err(explain("no table can be created"))?;
    let mut expected = (*allowed[place]).clone();
    let rows = &mut expected.tables.entry("later".to_owned()).or_default().rows;
    for i in 0..8u32 {
        let (key, value) = (i.to_be_bytes().to_vec(), vec![b'l'; 40]);
        db.transact(|tx| tx.put(&table, &key, &value).map(|_| ())).map_err(explain("cannot commit"))?;
        rows.insert(key, value);
    }
    let expected = [Arc::new(expected)];
    verify_open(&db, &expected).map_err(|e| format!("after going on: {e}"))?;
    drop(table);
    db.close().map_err(explain("cannot be closed"))?;
    verify(bed, options, &expected).map_err(|e| format!("after closing: {e}"))?;
    Ok(place)
}
