//! What an operator does beside the clients: a table that is dropped and created again, masses of
//! deleted rows, and a snapshot that is held through a whole round.
//!
//! Drawn from a generator of its own, so that the rest of a scenario is what it was before there
//! was this.

use crate::client::{TAG, Tables};
use crate::scenario::Round;
use firndb::{
    CancelToken, Database, Direction, Error, ErrorKind, IndexPart, IndexSpec, KeyRange, Layout, Table,
    TableSpec, Transaction,
};
use firndb_base::clock;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

/// The table that comes and goes.
const SCRATCH: &str = "scratch";
/// The index that is built and dropped.
const INDEX: &str = "again";
/// How long the holder of a snapshot waits between its first two readings, and at most: an operator
/// may wait for a minute until a log device can leave.
const SNAPSHOT_NAPS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(500));

/// What a round does beside its clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChoresRound {
    /// Steps that the table which comes and goes takes: it is created, filled, emptied, filled,
    /// dropped, and again; sometimes created by loading its rows.
    pub scratch_steps: u32,
    /// Rows that it is filled with.
    pub scratch_rows: u32,
    /// An index of the clients' rows is built, dropped, and so on, so often.
    pub index_steps: u32,
    /// Compactions, each so long after the one before, until the clients have ended.
    pub compactions: Vec<Duration>,
    /// A snapshot is taken before the clients begin, and read again when they have ended.
    pub long_snapshot: bool,
    /// Two log devices fail at the same moment, so long after the opening.
    pub two_devices_fail: Option<(Duration, [usize; 2])>,
    /// A log device refuses all writes from before the opening on, and is read without error.
    pub read_only_log: Option<usize>,
    /// Openings in a row, each closed again, while the archive is away; none if it is there.
    pub openings_without_archive: u32,
}

/// Draws compactions, of numbers of their own, so that what else a seed stands for stays what it
/// was.
fn draw_compactions(seed: u64, rounds: &mut [Round]) {
    let rng = &mut Rng::new(seed ^ 0xC0A4_AC70);
    for round in rounds {
        if rng.one_in(2) {
            let some = 0..rng.between(1, 4);
            round.chores.compactions =
                some.map(|_| Duration::from_micros(rng.between(100, 60_000))).collect();
        }
    }
}

/// Draws the chores of every round of a scenario with `logs` log devices and `copies` copies.
pub(crate) fn draw(seed: u64, logs: usize, copies: usize, rounds: &mut [Round]) {
    draw_compactions(seed, rounds);
    let rng = &mut Rng::new(seed ^ 0xC404_E500);
    // A third of the seeds is as it always was.
    if rng.one_in(3) {
        return;
    }
    // One device at a time: what copies cover is lost with the second one.
    let one_is_lost = rounds.iter().any(|round| round.array.lost_device.is_some());
    for round in rounds {
        let chores = &mut round.chores;
        if rng.one_in(2) {
            chores.scratch_steps = rng.between(1, 25) as u32;
            chores.scratch_rows = rng.between(1, 600) as u32;
        }
        chores.long_snapshot = rng.one_in(3);
        if rng.one_in(3) {
            chores.index_steps = rng.between(1, 9) as u32;
        }
        if round.array.archive_missing && rng.one_in(2) {
            chores.openings_without_archive = rng.between(2, 30) as u32;
        }
        if logs > 2 && !one_is_lost && rng.one_in(8) {
            let first = rng.below(logs as u64) as usize;
            let other = (first + 1 + rng.below(logs as u64 - 1) as usize) % logs;
            let after = Duration::from_micros(rng.between(20, 20_000));
            chores.two_devices_fail = Some((after, [first, other]));
        }
        if copies > 1 && !one_is_lost && rng.one_in(8) {
            chores.read_only_log = Some(rng.below(logs as u64) as usize);
        }
    }
}

/// The table that comes and goes: none, or its rows, each with the number of the step that wrote
/// it.
type State = Option<BTreeMap<u32, u32>>;

/// What is known of that table.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    acknowledged: State,
    /// What a step would have led to whose fate is unknown.
    attempted: Option<State>,
    steps: u32,
}

#[derive(Debug)]
pub enum ChoreError {
    Failed(Error),
    /// The database returned what it must not.
    Wrong(String),
}

impl From<Error> for ChoreError {
    fn from(error: Error) -> ChoreError {
        ChoreError::Failed(error)
    }
}

impl Scratch {
    /// Takes `steps` steps. The step that fails may have been taken or not, unless its error says
    /// that it was not.
    pub fn work(&mut self, db: &Database, steps: u32, rows: u32, rng: &mut Rng) -> Result<(), ChoreError> {
        for _ in 0..steps {
            clock::sleep(Duration::from_micros(rng.below(2000)));
            self.steps += 1;
            let next = self.next(rows);
            self.attempted = Some(next.clone());
            match self.step(db, &next) {
                Ok(()) => {
                    self.acknowledged = next;
                    self.attempted = None;
                }
                Err(ChoreError::Failed(error)) if is_certainly_undone(&error) => self.attempted = None,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The state after the next step.
    fn next(&self, rows: u32) -> State {
        match &self.acknowledged {
            None if self.steps.is_multiple_of(2) => Some(BTreeMap::new()),
            None => Some(self.rows(rows)),
            Some(old) if !old.is_empty() && self.steps.is_multiple_of(3) => Some(BTreeMap::new()),
            Some(old) if !old.is_empty() => None,
            Some(_) => Some(self.rows(rows)),
        }
    }

    fn rows(&self, rows: u32) -> BTreeMap<u32, u32> {
        (0..rows).map(|row| (row.wrapping_mul(2_654_435_761), self.steps)).collect()
    }

    fn step(&self, db: &Database, next: &State) -> Result<(), ChoreError> {
        match (&self.acknowledged, next) {
            (None, Some(rows)) if rows.is_empty() => db.create_table(SCRATCH).map(drop)?,
            (None, Some(rows)) => {
                let rows =
                    rows.iter().map(|(row, step)| Ok((row.to_be_bytes().to_vec(), contents(*row, *step))));
                db.load_table(SCRATCH, TableSpec::raw(), rows).map(drop)?;
            }
            (Some(_), None) => db.drop_table(SCRATCH)?,
            (Some(old), Some(new)) => {
                let table = db.table(SCRATCH)?;
                let mut tx = db.begin();
                // What the table held before is all there is.
                let found = rows_of(&mut tx, &table)?;
                if found != *old {
                    return Err(ChoreError::Wrong(difference(&Some(found), &self.acknowledged)));
                }
                for row in old.keys() {
                    if !tx.delete(&table, &row.to_be_bytes())? {
                        return Err(ChoreError::Wrong(format!(
                            "row {row} of {SCRATCH} was not there to be deleted"
                        )));
                    }
                }
                for (row, step) in new {
                    tx.insert(&table, &row.to_be_bytes(), &contents(*row, *step))?;
                }
                tx.commit()?;
            }
            (None, None) => unreachable!("a table that is not there is created next"),
        }
        Ok(())
    }

    /// Compares with what an opening found; a sentence if it is neither what was acknowledged nor
    /// what was attempted.
    pub fn compare(&mut self, db: &Database) -> Result<Option<String>, Error> {
        let found = match db.table(SCRATCH) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
            Ok(table) => {
                let mut tx = db.snapshot();
                match rows_of(&mut tx, &table) {
                    Ok(rows) => Some(rows),
                    Err(ChoreError::Failed(error)) => return Err(error),
                    Err(ChoreError::Wrong(sentence)) => return Ok(Some(sentence)),
                }
            }
        };
        if found != self.acknowledged && Some(&found) != self.attempted.as_ref() {
            return Ok(Some(difference(&found, &self.acknowledged)));
        }
        (self.acknowledged, self.attempted) = (found, None);
        Ok(None)
    }
}

/// Whether an error says that nothing of what was tried has been done.
fn is_certainly_undone(error: &Error) -> bool {
    use ErrorKind::{Conflict, Deadlock, Full, Timeout};
    matches!(error.kind(), Conflict | Deadlock | Full | Timeout)
}

/// A row: recognisable, and large enough that a few hundred fill several pages.
fn contents(row: u32, step: u32) -> Vec<u8> {
    let mut value = step.to_be_bytes().to_vec();
    value.resize(24 + (row % 64) as usize, row as u8);
    value
}

fn rows_of(tx: &mut Transaction, table: &Table) -> Result<BTreeMap<u32, u32>, ChoreError> {
    let mut rows = BTreeMap::new();
    let mut cursor = tx.scan(table, KeyRange::all(), Direction::Forward);
    while let Some((key, value)) = cursor.next(tx)? {
        let numbers = key.first_chunk::<4>().zip(value.first_chunk::<4>());
        let (row, step) =
            numbers.map_or((0, 0), |(row, step)| (u32::from_be_bytes(*row), u32::from_be_bytes(*step)));
        if key.len() != 4 || value != contents(row, step) {
            return Err(ChoreError::Wrong(format!("{SCRATCH} holds a row that was never written: {key:?}")));
        }
        rows.insert(row, step);
    }
    Ok(rows)
}

fn difference(found: &State, expected: &State) -> String {
    let name = |state: &State| match state {
        None => "no table".to_owned(),
        Some(rows) => {
            format!("{} rows of steps {:?}", rows.len(), rows.values().min().zip(rows.values().max()))
        }
    };
    format!("{SCRATCH} was acknowledged with {} and has {}", name(expected), name(found))
}

/// Builds an index of the clients' rows, or drops it if it is there, `steps` times.
pub fn build_indexes(
    db: &Database,
    rows: &Table,
    steps: u32,
    cancel: &CancelToken,
    rng: &mut Rng,
) -> Result<(), ChoreError> {
    for _ in 0..steps {
        clock::sleep(Duration::from_micros(rng.below(2000)));
        let step = match rows.index(INDEX) {
            Ok(_) => db.drop_index(rows, INDEX),
            Err(_) => {
                let spec = IndexSpec::ranges(INDEX, false, vec![IndexPart::Value(0..TAG)]);
                db.create_index_until(rows, spec, Some(cancel.clone()))
            }
        };
        match step {
            Err(error) if error.kind() == ErrorKind::Cancelled => return Ok(()),
            // What a crash left unfinished was dropped meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if !is_certainly_undone(&error) => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Compacts the database after each of the pauses, until `ended`, and lays a table out otherwise
/// where the store has several devices; returns how many pages got lower numbers.
pub fn compact(db: &Database, pauses: &[Duration], ended: &Arc<AtomicBool>) -> Result<u64, ChoreError> {
    let mut renumbered = 0;
    for (number, pause) in pauses.iter().enumerate() {
        clock::sleep(*pause);
        let compacted = db.compact(&mut |_| goes_on(ended));
        match compacted {
            Ok(report) => renumbered += report.pages_renumbered,
            Err(error) if is_certainly_undone(&error) => {}
            Err(error) => return Err(error.into()),
        }
        match lay_out(db, number, ended) {
            // Its table may have been dropped.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale) => {}
            Err(error) if !is_certainly_undone(&error) => return Err(error.into()),
            _ => {}
        }
    }
    Ok(renumbered)
}

/// Stops what reports its progress once `ended`.
fn goes_on(ended: &AtomicBool) -> ControlFlow<()> {
    if ended.load(Ordering::SeqCst) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Gives a table another layout, if there are several, and moves pages until `ended`.
fn lay_out(db: &Database, number: usize, ended: &AtomicBool) -> Result<(), Error> {
    let (layouts, names) = (db.layouts(), db.table_names());
    if layouts.len() < 2 || names.is_empty() {
        return Ok(());
    }
    let table = db.table(&names[number % names.len()])?;
    let layout = layouts.get((number + 1) % (layouts.len() + 1)).copied();
    db.set_layout(&table, layout.unwrap_or(Layout::Auto))?;
    db.move_to_layouts(&mut |_, _| goes_on(ended))?;
    Ok(())
}

/// Reads all lists by one snapshot, again and again until `ended`; every reading must be like the
/// first.
pub fn hold_a_snapshot(
    db: &Database,
    tables: &Tables,
    keys: u32,
    ended: &Arc<AtomicBool>,
) -> Result<(), ChoreError> {
    let mut tx = db.snapshot();
    let first = tables.read_lists(&mut tx, keys)?;
    let mut nap = SNAPSHOT_NAPS.0;
    loop {
        let last = ended.load(Ordering::SeqCst);
        let now = tables.read_lists(&mut tx, keys)?;
        if now != first {
            return Err(ChoreError::Wrong(format!("a snapshot read {first:?} first and {now:?} later")));
        }
        if last {
            return Ok(tx.rollback()?);
        }
        clock::sleep(nap);
        nap = (nap * 2).min(SNAPSHOT_NAPS.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb::device::{Device, MemoryDevice};
    use firndb::{Devices, Options};

    fn database() -> Database {
        let device = |name: &str| Arc::new(MemoryDevice::new(name)) as Arc<dyn Device>;
        let devices = Devices {
            superblock: device("superblock"),
            logs: vec![device("log")],
            store: device("store"),
            store_others: Vec::new(),
            cache: None,
        };
        let options =
            Options::new().buffer_bytes(1 << 20).log(|log| log.bytes(1 << 20)).background_threads(false);
        options.create_on(devices).expect("created")
    }

    #[test]
    fn the_judge_sees_rows_that_are_missing_and_tables_that_came_back() {
        let db = database();
        let mut scratch = Scratch::default();
        for _ in 0..12 {
            scratch.work(&db, 1, 50, &mut Rng::new(1)).expect("nothing fails");
            assert_eq!(scratch.compare(&db).expect("read"), None);
        }
        while scratch.acknowledged.as_ref().is_none_or(BTreeMap::is_empty) {
            scratch.work(&db, 1, 50, &mut Rng::new(1)).expect("nothing fails");
        }
        let table = db.table(SCRATCH).expect("it is there");
        db.transact(|tx| tx.delete(&table, &0u32.to_be_bytes()).map(drop)).expect("deleted");
        let sentence = scratch.compare(&db).expect("read").expect("a row is missing");
        assert!(sentence.contains("50 rows") && sentence.contains("49 rows"), "{sentence}");
        db.drop_table(SCRATCH).expect("dropped");
        assert!(scratch.compare(&db).expect("read").expect("the table is missing").contains("no table"));
    }

    #[test]
    fn an_attempt_may_have_succeeded_or_not_and_is_settled_once() {
        let db = database();
        let mut scratch = Scratch { attempted: Some(Some(BTreeMap::new())), ..Scratch::default() };
        assert_eq!(scratch.clone().compare(&db).expect("read"), None);
        db.create_table(SCRATCH).expect("created");
        assert_eq!(scratch.compare(&db).expect("read"), None);
        db.drop_table(SCRATCH).expect("dropped");
        assert!(scratch.compare(&db).expect("read").is_some(), "it was found before");
    }
}
