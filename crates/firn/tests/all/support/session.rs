//! A database and its model, driven by one script. Whatever fails is noted, and the script goes on,
//! as a program would that reports errors and keeps running.

use super::bed::Bed;
use super::model::{History, State};
use firndb::device::{CrashPlan, FaultPlan};
use firndb::{
    Database, Devices, Direction, Error, ErrorKind, IndexPart, IndexSpec, KeyRange, Options, TableSpec,
    Transaction,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a transaction did: table, key, the new value or nothing.
pub type Effects = Vec<(String, Vec<u8>, Option<Vec<u8>>)>;

/// Where a session's devices come from.
enum Ground {
    Plain(Bed),
    Faulty { bed: Bed, plan: FaultPlan, off: Arc<AtomicBool> },
    Crashing { plan: CrashPlan, devices: Devices },
}

pub struct Session {
    ground: Ground,
    options: Options,
    db: Option<Database>,
    pub history: History,
    /// Since a result was `Unknown`, the model does not know what the open database shows.
    uncertain: bool,
    prepared: BTreeMap<Vec<u8>, Effects>,
    /// Errors met, which only failing devices (and full ones) may cause.
    pub errors: Vec<(ErrorKind, String)>,
    /// What must never happen.
    pub broken: Vec<String>,
}

/// Bytes of value before those that the script chooses: the parts that are indexed.
pub const GROUP: std::ops::Range<usize> = 0..4;
pub const UNIQUE: std::ops::Range<usize> = 4..12;

/// An index of the group at the start of a value.
pub fn by_group() -> IndexSpec {
    IndexSpec::ranges("by group", false, vec![IndexPart::Value(GROUP)])
}
/// An index of the unique part of a value.
pub fn by_unique() -> IndexSpec {
    IndexSpec::ranges("by unique", true, vec![IndexPart::Value(UNIQUE)])
}

/// What one transaction does.
pub type Script = Box<dyn FnOnce(&mut Work) -> Result<(), Error>>;

impl Session {
    pub fn plain(bed: Bed, options: Options) -> Session {
        Session::on(Ground::Plain(bed), options, History::new())
    }
    pub fn faulty(bed: Bed, plan: FaultPlan, options: Options, history: History) -> Session {
        let off = Arc::new(AtomicBool::new(false));
        Session::on(Ground::Faulty { bed, plan, off }, options, history)
    }
    /// On devices that `plan` records, perhaps with wrappers above.
    pub fn over(devices: Devices, plan: CrashPlan, options: Options, history: History) -> Session {
        Session::on(Ground::Crashing { plan, devices }, options, history)
    }

    fn on(ground: Ground, options: Options, history: History) -> Session {
        Session {
            ground,
            options,
            db: None,
            history,
            uncertain: false,
            prepared: BTreeMap::new(),
            errors: Vec::new(),
            broken: Vec::new(),
        }
    }

    /// The effects of prepared transactions, which a session on the same devices goes on with.
    pub fn prepared(&self) -> BTreeMap<Vec<u8>, Effects> {
        self.prepared.clone()
    }
    pub fn with_prepared(mut self, prepared: BTreeMap<Vec<u8>, Effects>) -> Session {
        self.prepared = prepared;
        self
    }

    fn devices(&self) -> Devices {
        match &self.ground {
            Ground::Plain(bed) => bed.plain(),
            Ground::Faulty { bed, plan, off } => bed.faulty(plan, off),
            Ground::Crashing { devices, .. } => devices.clone(),
        }
    }

    /// The devices, when the session is over; the database is dropped, not closed.
    pub fn into_bed(mut self) -> Bed {
        self.abandon();
        match self.ground {
            Ground::Plain(bed) | Ground::Faulty { bed, .. } => bed,
            Ground::Crashing { .. } => panic!("what is recorded is replayed, not taken"),
        }
    }

    pub fn options(&self) -> Options {
        self.options.clone()
    }
    /// The devices, where nothing is between.
    pub fn bed(&self) -> Option<&Bed> {
        match &self.ground {
            Ground::Plain(bed) | Ground::Faulty { bed, .. } => Some(bed),
            Ground::Crashing { .. } => None,
        }
    }
    pub fn replace_bed(&mut self, bed: Bed) {
        assert!(self.db.is_none());
        self.ground = Ground::Plain(bed);
    }

    fn mark(&self, value: usize) {
        if let Ground::Crashing { plan, .. } = &self.ground {
            plan.mark(value as u64);
        }
    }
    /// State `number` may have become durable from here on.
    fn mark_attempt(&self, number: usize) {
        self.mark(2 * number);
    }
    /// State `number` must survive from here on.
    fn mark_acknowledged(&self, number: usize) {
        self.mark(2 * number + 1);
    }

    /// Notes an error. Whether its kind is one that a failing device may cause.
    fn note(&mut self, what: &str, error: &Error) {
        use ErrorKind::{Closed, Damaged, Failed, Full, Timeout, Unknown};
        let kind = error.kind();
        if kind == Unknown {
            self.uncertain = true;
        }
        // Rows of a prepared transaction that could not be ended stay locked.
        let locked = kind == Timeout && !self.history.newest().prepared.is_empty();
        let expected = matches!(kind, Failed | Full | Unknown | Closed) || locked;
        if !expected && (!self.uncertain || kind == Damaged) {
            self.broken.push(format!("{what} answered {}: {error}", kind.code()));
        }
        self.errors.push((kind, format!("{what}: {error}")));
    }

    /// A commit's outcome; `number` is the state it leads to.
    fn settle_commit(&mut self, what: &str, number: usize, outcome: Result<(), Error>) {
        match outcome {
            Ok(()) => {
                self.history.acknowledge();
                self.mark_acknowledged(number);
            }
            Err(error) => {
                if error.kind() != ErrorKind::Unknown {
                    self.history.refuse();
                }
                self.note(what, &error);
            }
        }
    }

    // ---- opening and closing ----

    /// Creates the database; the devices must be empty.
    pub fn create(&mut self) {
        assert!(self.db.is_none());
        match self.options.clone().create_on(self.devices()) {
            Ok(db) => self.db = Some(db),
            Err(error) => self.note("creating", &error),
        }
    }

    /// Opens the database; tried up to three times, since a device may fail once.
    pub fn open(&mut self) {
        assert!(self.db.is_none());
        for _ in 0..3 {
            match self.options.clone().open_on(self.devices()) {
                Ok(db) => {
                    self.db = Some(db);
                    return self.look();
                }
                Err(error) => self.note("opening", &error),
            }
        }
    }

    /// Finds out what a database holds that was just opened.
    fn look(&mut self) {
        self.uncertain = false;
        for _ in 0..3 {
            let Some(db) = &self.db else { return };
            match State::read(db) {
                Ok(Ok(found)) => {
                    if let Err(sentence) = self.history.settle(&found) {
                        self.broken.push(format!("opened: {sentence}"));
                    }
                    return;
                }
                Ok(Err(sentence)) => return self.broken.push(format!("opened: {sentence}")),
                Err(error) => {
                    self.note("reading all", &error);
                    self.uncertain = true;
                }
            }
        }
    }

    pub fn close(&mut self) {
        let Some(db) = self.db.take() else { return };
        if let Err(error) = db.close() {
            self.note("closing", &error);
        }
    }

    /// Closes and opens.
    pub fn reopen(&mut self) {
        self.close();
        self.open();
    }

    /// Ends without closing: what is on the devices stays, the rest is gone. Where crashes are
    /// replayed from the record this does nothing: they come everywhere.
    pub fn crash(&mut self) {
        match &mut self.ground {
            Ground::Plain(bed) => {
                let left = bed.duplicate();
                self.db = None;
                self.ground = Ground::Plain(left);
            }
            Ground::Faulty { bed, plan, off } => {
                let left = bed.duplicate();
                off.store(true, Ordering::SeqCst);
                let ground =
                    Ground::Faulty { bed: left, plan: plan.clone(), off: Arc::new(AtomicBool::new(false)) };
                self.db = None;
                self.ground = ground;
            }
            Ground::Crashing { .. } => {}
        }
    }

    /// As [`Session::crash`], then opens.
    pub fn crash_and_open(&mut self) {
        self.crash();
        if self.db.is_none() {
            self.open();
        }
    }

    fn abandon(&mut self) {
        if !matches!(self.ground, Ground::Crashing { .. }) {
            self.crash();
        }
    }

    /// Compares what the open database shows with the model.
    pub fn verify(&mut self) {
        let Some(db) = &self.db else { return };
        match State::read(db) {
            Ok(_) if self.uncertain => {}
            Ok(Ok(found)) => {
                let newest = self.history.newest();
                if **newest != found {
                    let difference = newest.difference(&found);
                    self.broken.push(format!("the open database: {difference}"));
                }
            }
            Ok(Err(sentence)) => self.broken.push(format!("the open database: {sentence}")),
            Err(error) => self.note("reading all", &error),
        }
    }

    // ---- transactions ----

    fn work(&self) -> Option<Work> {
        let db = self.db.clone()?;
        let tx = db.begin();
        let state = (**self.history.newest()).clone();
        Some(Work { db, tx, state, effects: Vec::new(), uncertain: self.uncertain, broken: Vec::new() })
    }

    /// Runs a transaction and commits it. If a statement fails, it is rolled back.
    pub fn transact(&mut self, script: impl FnOnce(&mut Work) -> Result<(), Error>) {
        let Some(mut work) = self.work() else { return };
        let outcome = script(&mut work);
        self.broken.append(&mut work.broken);
        let Work { db: _db, tx, state, effects, .. } = work;
        match outcome {
            // That a transaction without writes has ended says nothing of others.
            Ok(()) if effects.is_empty() => {
                if let Err(error) = tx.commit() {
                    self.note("commit of a reader", &error);
                }
            }
            Ok(()) => {
                let number = self.history.attempt(state);
                self.mark_attempt(number);
                let outcome = tx.commit();
                self.settle_commit("commit", number, outcome);
            }
            Err(error) => {
                self.note("a statement", &error);
                if let Err(error) = tx.rollback() {
                    self.note("rollback", &error);
                }
            }
        }
    }

    /// Runs a transaction and rolls it back.
    pub fn transact_and_roll_back(&mut self, script: impl FnOnce(&mut Work) -> Result<(), Error>) {
        let Some(mut work) = self.work() else { return };
        if let Err(error) = script(&mut work) {
            self.note("a statement", &error);
        }
        self.broken.append(&mut work.broken);
        if let Err(error) = work.tx.rollback() {
            self.note("rollback", &error);
        }
    }

    /// Runs several transactions, commits each without waiting, then waits for all.
    pub fn transact_async(&mut self, scripts: Vec<Script>) {
        let mut commits = Vec::new();
        for script in scripts {
            let Some(mut work) = self.work() else { return };
            let outcome = script(&mut work);
            self.broken.append(&mut work.broken);
            let Work { db: _db, tx, state, effects, .. } = work;
            match outcome {
                Ok(()) if effects.is_empty() => {}
                Ok(()) => {
                    let number = self.history.attempt(state);
                    self.mark_attempt(number);
                    match tx.commit_async() {
                        Ok(commit) => commits.push((number, commit)),
                        Err(error) => self.settle_commit("ordering a commit", number, Err(error)),
                    }
                }
                Err(error) => self.note("a statement", &error),
            }
        }
        // The last first: it says the same of all before.
        let Some((number, commit)) = commits.pop() else { return };
        let outcome = commit.wait();
        for (_, earlier) in &commits {
            if outcome.is_ok() && !earlier.is_durable() {
                self.broken.push("a later commit is durable and an earlier one is not".to_owned());
            }
        }
        self.settle_commit("waiting for a commit", number, outcome);
    }

    /// Runs a transaction and leaves it open until `meanwhile` is done; then commits it, or not.
    pub fn transact_around(
        &mut self,
        script: impl FnOnce(&mut Work) -> Result<(), Error>,
        meanwhile: impl FnOnce(&mut Session),
        commit: bool,
    ) {
        let Some(mut work) = self.work() else { return };
        let outcome = script(&mut work);
        self.broken.append(&mut work.broken);
        if let Err(error) = &outcome {
            self.note("a statement", error);
        }
        meanwhile(self);
        let Work { db: _db, tx, effects, .. } = work;
        if outcome.is_ok() && commit && !effects.is_empty() {
            let state = applied(self.history.newest(), &effects);
            let number = self.history.attempt(state);
            self.mark_attempt(number);
            let outcome = tx.commit();
            self.settle_commit("commit", number, outcome);
        } else if let Err(error) = tx.rollback() {
            self.note("rollback", &error);
        }
    }

    /// Runs a transaction and prepares it as `gid`.
    pub fn prepare(&mut self, gid: &[u8], script: impl FnOnce(&mut Work) -> Result<(), Error>) {
        let Some(mut work) = self.work() else { return };
        let outcome = script(&mut work);
        self.broken.append(&mut work.broken);
        let Work { db: _db, tx, effects, .. } = work;
        if let Err(error) = outcome {
            return self.note("a statement", &error);
        }
        if effects.is_empty() {
            return;
        }
        let mut state = (**self.history.newest()).clone();
        state.prepared.insert(gid.to_vec());
        self.prepared.insert(gid.to_vec(), effects);
        let number = self.history.attempt(state);
        self.mark_attempt(number);
        let outcome = tx.prepare(gid);
        self.settle_commit("prepare", number, outcome);
    }

    /// Commits or rolls back what was prepared, if it is there.
    pub fn finish_prepared(&mut self, gid: &[u8], commit: bool) {
        let Some(db) = self.db.clone() else { return };
        if !self.history.newest().prepared.contains(gid) {
            return;
        }
        let effects = self.prepared.get(gid).cloned().unwrap_or_default();
        let mut state = match commit {
            true => applied(self.history.newest(), &effects),
            false => (**self.history.newest()).clone(),
        };
        state.prepared.remove(gid);
        let number = self.history.attempt(state);
        self.mark_attempt(number);
        if commit {
            let outcome = db.commit_prepared(gid);
            self.settle_commit("commit of a prepared transaction", number, outcome);
        } else if let Err(error) = db.rollback_prepared(gid) {
            // How far the undoing got is not known; the next opening shows it.
            self.uncertain = true;
            self.note("rollback of a prepared transaction", &error);
        }
        // A rollback is not waited for: it may be gone after a crash, and the transaction prepared
        // again.
    }

    // ---- definitions, and everything else ----

    fn define(
        &mut self,
        what: &str,
        change: impl FnOnce(&Database) -> Result<(), Error>,
        model: impl FnOnce(&mut State),
    ) {
        let Some(db) = self.db.clone() else { return };
        let mut state = (**self.history.newest()).clone();
        model(&mut state);
        let number = self.history.attempt(state);
        self.mark_attempt(number);
        let outcome = change(&db);
        self.settle_commit(what, number, outcome);
    }

    fn has_table(&self, name: &str) -> bool {
        self.history.newest().tables.contains_key(name)
    }

    pub fn create_table(&mut self, name: &str, indexes: &[IndexSpec]) {
        if self.has_table(name) {
            return;
        }
        let spec = indexes.iter().cloned().fold(TableSpec::raw(), TableSpec::with_index);
        self.define(
            "creating a table",
            |db| db.create_table_with(name, spec).map(|_| ()),
            |state| {
                let table = state.tables.entry(name.to_owned()).or_default();
                table.indexes = indexes.iter().map(|index| index.name.clone()).collect();
            },
        );
    }
    pub fn drop_table(&mut self, name: &str) {
        if self.has_table(name) {
            let change = |db: &Database| db.drop_table(name);
            self.define("dropping a table", change, |state| {
                state.tables.remove(name);
            });
        }
    }
    pub fn rename_table(&mut self, from: &str, to: &str) {
        if self.has_table(from) && !self.has_table(to) {
            let change = |db: &Database| db.rename_table(from, to);
            self.define("renaming a table", change, |state| {
                let table = state.tables.remove(from).expect("it was there");
                state.tables.insert(to.to_owned(), table);
            });
        }
    }
    pub fn create_index(&mut self, table: &str, index: IndexSpec) {
        if self.history.newest().tables.get(table).is_some_and(|t| !t.indexes.contains(&index.name)) {
            let name = index.name.clone();
            let change = |db: &Database| db.create_index(&db.table(table)?, index);
            self.define("creating an index", change, |state| {
                state.tables.get_mut(table).expect("it was there").indexes.insert(name);
            });
        }
    }
    /// An index that the rows violate: it must be refused, and nothing change.
    pub fn create_index_in_vain(&mut self, table: &str, index: IndexSpec) {
        let Some(db) = self.db.clone().filter(|_| self.has_table(table)) else { return };
        match db.table(table).and_then(|table| db.create_index(&table, index)) {
            Ok(()) => self.broken.push("an index was created that its rows violate".to_owned()),
            Err(error) if error.kind() == ErrorKind::Duplicate => {}
            Err(error) => self.note("creating an index in vain", &error),
        }
    }
    pub fn drop_index(&mut self, table: &str, name: &str) {
        if self.history.newest().tables.get(table).is_some_and(|t| t.indexes.contains(name)) {
            let change = |db: &Database| db.drop_index(&db.table(table)?, name);
            self.define("dropping an index", change, |state| {
                state.tables.get_mut(table).expect("it was there").indexes.remove(name);
            });
        }
    }

    pub fn checkpoint(&mut self) {
        let Some(db) = self.db.clone() else { return };
        if let Err(error) = db.checkpoint() {
            self.note("a checkpoint", &error);
        }
    }

    /// Background work: up to `count` pieces.
    pub fn steps(&mut self, count: usize) {
        let Some(db) = self.db.clone() else { return };
        for _ in 0..count {
            match db.step() {
                Ok(firndb::Progress::Worked) => {}
                Ok(firndb::Progress::Idle) => return,
                Err(error) => self.note("background work", &error),
            }
        }
    }
}

fn applied(state: &State, effects: &Effects) -> State {
    let mut state = state.clone();
    for (table, key, value) in effects {
        let Some(table) = state.tables.get_mut(table) else { continue };
        match value {
            Some(value) => table.rows.insert(key.clone(), value.clone()),
            None => table.rows.remove(key),
        };
    }
    state
}

/// A running transaction, and what the database must show it.
pub struct Work {
    db: Database,
    tx: Transaction,
    state: State,
    effects: Effects,
    uncertain: bool,
    broken: Vec<String>,
}

/// A mark in a transaction and its model.
pub struct Place {
    savepoint: firndb::Savepoint,
    state: State,
    effects: usize,
}

impl Work {
    fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds && !self.uncertain {
            self.broken.push(what());
        }
    }

    /// A statement on a row; skipped if the table is not there, because its creation failed.
    fn change(
        &mut self,
        table: &str,
        key: &[u8],
        value: Option<&[u8]>,
        statement: impl FnOnce(&mut Transaction, &firndb::Table) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let Some(model) = self.state.tables.get_mut(table) else { return Ok(()) };
        let found = statement(&mut self.tx, &self.db.table(table)?)?;
        let there = match value {
            Some(value) => model.rows.insert(key.to_vec(), value.to_vec()),
            None => model.rows.remove(key),
        };
        self.effects.push((table.to_owned(), key.to_vec(), value.map(<[u8]>::to_vec)));
        let there = there.is_some();
        self.expect(there == found, || format!("row {} was there: {found}", key.escape_ascii()));
        Ok(())
    }

    pub fn put(&mut self, table: &str, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.change(table, key, Some(value), |tx, table| tx.put(table, key, value))
    }
    pub fn delete(&mut self, table: &str, key: &[u8]) -> Result<(), Error> {
        self.change(table, key, None, |tx, table| tx.delete(table, key))
    }
    /// Inserts a row that is not there.
    pub fn insert(&mut self, table: &str, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.change(table, key, Some(value), |tx, table| tx.insert(table, key, value).map(|()| false))
    }
    /// Inserts a row that must be refused because of its key or of a unique index.
    pub fn insert_in_vain(&mut self, table: &str, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if !self.state.tables.contains_key(table) {
            return Ok(());
        }
        let table = self.db.table(table)?;
        match self.tx.insert(&table, key, value) {
            Err(error) if error.kind() == ErrorKind::Duplicate => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                self.expect(false, || format!("row {} was not refused", key.escape_ascii()));
                Ok(())
            }
        }
    }
    /// As [`Work::put`], but goes on when the device is full: the statement has then changed
    /// nothing.
    pub fn put_if_room(&mut self, table: &str, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        match self.put(table, key, value) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Full => Ok(false),
            Err(error) => Err(error),
        }
    }
    pub fn get(&mut self, table: &str, key: &[u8]) -> Result<(), Error> {
        let Some(model) = self.state.tables.get(table) else { return Ok(()) };
        let expected = model.rows.get(key).cloned();
        let found = self.tx.get(&self.db.table(table)?, key)?;
        self.expect(found == expected, || format!("another row was read at {}", key.escape_ascii()));
        Ok(())
    }
    /// Reads a whole table, forwards or backwards.
    pub fn scan(&mut self, table: &str, direction: Direction) -> Result<(), Error> {
        let Some(model) = self.state.tables.get(table) else { return Ok(()) };
        let mut expected: Vec<(Vec<u8>, Vec<u8>)> = model.rows.clone().into_iter().collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        let mut found = Vec::new();
        let mut cursor = self.tx.scan(&self.db.table(table)?, KeyRange::all(), direction);
        while let Some((key, value)) = cursor.next(&mut self.tx)? {
            found.push((key.to_vec(), value.to_vec()));
        }
        self.expect(found == expected, || "a scan read other rows".to_owned());
        Ok(())
    }
    pub fn savepoint(&mut self) -> Place {
        let savepoint = self.tx.savepoint();
        Place { savepoint, state: self.state.clone(), effects: self.effects.len() }
    }
    pub fn roll_back_to(&mut self, place: &Place) -> Result<(), Error> {
        self.tx.rollback_to(&place.savepoint)?;
        self.state = place.state.clone();
        self.effects.truncate(place.effects);
        Ok(())
    }
    pub fn checkpoint(&mut self) -> Result<(), Error> {
        self.db.checkpoint()
    }
}
