//! Openings, and their judge: what the database must hold when it has been opened, and what damage
//! may keep from being read.

use super::Story;
use crate::client::{Tables, Trouble, decide, transaction_of};
use crate::journal::Span;
use crate::ledger::{Lists, Rows};
use crate::machine::Machine;
use crate::medium::Survival;
use firndb::{Database, Direction, Error, ErrorKind, KeyRange};
use firndb_base::clock;
use std::time::Duration;

/// How long background work gets to meet the damage that an opening found.
const DAMAGE_WAIT: Duration = Duration::from_millis(500);

/// What the database held before the round's clients began.
struct State {
    lists: Lists,
    rows: Vec<Rows>,
    /// What is wrong with the table that comes and goes.
    scratch: Option<String>,
}

/// How an attempt to open ended.
pub(super) enum Opened {
    Yes(Database, Tables),
    /// The power failed, or a device did; what is left.
    No,
    /// It is damaged, and said so.
    Damaged,
}

impl Story {
    /// Opens the database while its archive is away: that works, or it says that the archive is
    /// needed.
    pub(super) fn opening_without_archive(&mut self, contents: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let machine = Machine::switched_on(&self.scenario, contents, &mut self.rng);
        self.shelf.hide_archive(true);
        match self.options(&machine).open_on(machine.devices()) {
            Ok(db) => {
                self.say("opened without its archive");
                // What it archived meanwhile goes with the directory that took its place.
                self.gaps = true;
                if let Err(error) = db.close() {
                    self.judge_error("closing it without its archive", &error, false);
                }
            }
            Err(error) if error.to_string().contains("the archive is needed") => {
                self.say("it needs its archive");
            }
            Err(error) => self.judge_error("opening it without its archive", &error, false),
        }
        let left = machine.cut(Survival::Any, &mut self.rng);
        self.shelf.hide_archive(false);
        left
    }

    pub(super) fn interrupted_opening(
        &mut self,
        contents: Vec<Vec<u8>>,
        after: Duration,
        survival: Survival,
    ) -> Vec<Vec<u8>> {
        let machine = Machine::switched_on(&self.scenario, contents, &mut self.rng);
        let switch = self.switch(&machine, after, survival);
        let opened = self.options(&machine).open_on(machine.devices());
        if let Err(error) = &opened {
            let off = switch.is_off();
            self.judge_error("the opening under which the power failed", error, off);
        }
        drop(opened);
        self.summary.cuts += 1;
        switch.wait()
    }

    /// Opens the database and compares it with what must be in it.
    pub(super) fn open(&mut self, machine: &Machine) -> Opened {
        self.summary.recoveries += 1;
        let before = machine.faults_met();
        let excused = |machine: &Machine| machine.faults_met() > before;
        let found = self.options(machine).open_on(machine.devices()).and_then(|db| {
            let read = self.read_all(&db).inspect_err(|error| {
                if error.kind() == ErrorKind::Damaged && self.spoilt {
                    self.damage_stays_where_it_is(&db, || excused(machine));
                }
            });
            read.map(|(tables, state)| (db, tables, state))
        });
        match found {
            Ok((db, tables, state)) => {
                self.cache_lost = false;
                let recovery = db.recovery_report();
                self.say(format!(
                    "opened: {} bytes of log, {} losers{}",
                    recovery.log_bytes,
                    recovery.losers,
                    if recovery.clean { ", had been closed" } else { "" }
                ));
                let differences = self.ledger.compare(&state.lists, &state.rows);
                for difference in differences.into_iter().chain(state.scratch) {
                    self.accuse(format!("after an opening: {difference}"));
                }
                Opened::Yes(db, tables)
            }
            Err(error) => {
                let excused = excused(machine);
                self.judge_error("opening it", &error, excused);
                if error.kind() == ErrorKind::Damaged && self.spoilt { Opened::Damaged } else { Opened::No }
            }
        }
    }

    fn read_all(&mut self, db: &Database) -> Result<(Tables, State), Error> {
        let tables = Tables::open(db)?;
        self.decide_prepared(db)?;
        let mut tx = db.snapshot();
        let lists = tables.read_lists(&mut tx, self.scenario.keys)?;
        let rows = tables.read_rows(&mut tx, self.scenario.clients as usize)?;
        tx.commit()?;
        let scratch = self.scratch.compare(db)?;
        Ok((tables, State { lists, rows, scratch }))
    }

    /// Damage concerns the tables that have it: after background work has met it, the others can be
    /// read as before, and a table of its own takes writes.
    fn damage_stays_where_it_is(&mut self, db: &Database, excused: impl Fn() -> bool) {
        const NAMES: [&str; 3] = ["even", "odd", "rows"];
        let before = NAMES.map(|name| every_row(db, name));
        clock::sleep(DAMAGE_WAIT);
        for (name, before) in NAMES.into_iter().zip(before) {
            let Ok(before) = before else { continue };
            match every_row(db, name) {
                Ok(after) if after == before => {}
                Ok(_) => self.accuse(format!("{name} changed while the background met damage")),
                // A device that fails beside the damage may end the log.
                Err(error) if error.kind() != ErrorKind::Damaged && excused() => {
                    self.say(format!("damage, and {name} cannot be read: {error}"));
                }
                Err(error) => {
                    self.accuse(format!("{name} could be read until the background met damage: {error}"))
                }
            }
        }
        let written = db
            .open_table("unharmed")
            .and_then(|table| db.transact(|tx| tx.put(&table, b"key", b"value").map(drop)));
        match written {
            Ok(()) => self.say("damage; everything else works"),
            // The catalog's own pages, or those that tell free space, may have it.
            Err(error) if matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Full) => {
                self.say(format!("damage; a new table is refused: {error}"));
            }
            // A device that fails beside the damage may end the log.
            Err(error) if excused() => self.judge_error("a table of its own beside damage", &error, true),
            Err(error) => {
                self.accuse(format!("damage elsewhere keeps a table of its own from being written: {error}"))
            }
        }
    }

    /// Commits or rolls back what was found prepared, by the toss of a coin.
    fn decide_prepared(&mut self, db: &Database) -> Result<(), Error> {
        let found: Vec<u32> = db.prepared().iter().map(|gid| transaction_of(gid)).collect();
        self.ledger.found_prepared(&found);
        for id in found {
            let commit = self.rng.one_in(2);
            let before = db.statistics().log_end;
            self.ledger.deciding(id, commit);
            match decide(db, id, commit) {
                Ok(()) => {}
                Err(Trouble::Error(error)) => return Err(error),
                Err(Trouble::Wrong(sentence)) => {
                    self.accuse(sentence);
                    continue;
                }
            }
            self.ledger.decided(id, commit, Span(before, db.statistics().log_end));
            self.say(format!(
                "transaction {id} was prepared, and is {} now",
                if commit { "committed" } else { "undone" }
            ));
        }
        Ok(())
    }
}

type KeyAndValue = (Vec<u8>, Vec<u8>);

/// All keys and values of a table.
fn every_row(db: &Database, name: &str) -> Result<Vec<KeyAndValue>, Error> {
    let table = db.table(name)?;
    let mut tx = db.snapshot();
    let mut cursor = tx.scan(&table, KeyRange::all(), Direction::Forward);
    let mut rows = Vec::new();
    while let Some((key, value)) = cursor.next(&mut tx)? {
        rows.push((key.to_vec(), value.to_vec()));
    }
    Ok(rows)
}
