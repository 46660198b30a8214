//! What one client does: random transactions over shared lists and rows of its own.

use crate::journal::Span;
use crate::ledger::{Entry, Fate, Lists, RowChanges, Rows, contents};
use firndb::{
    Commit, Database, Direction, Error, ErrorKind, IndexPart, IndexSpec, Isolation, KeyRange, Layout, Lsn,
    PageFile, Table, TableSpec, Transaction, TransactionOptions,
};
use firndb_adapter::lists::{ListTables, ListTransaction};
use firndb_base::clock;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use firndb_workloads::history::{Event, Txn};
use std::time::Duration;

/// Rows that a client has at most.
const ROWS: u64 = 60;
/// Bytes of a row before its indexed part.
pub const TAG: usize = 4;
/// Rows from this number on are pages of a page file: the length plus one, in four bytes, and the
/// contents.
const PAGES_FROM: u32 = 45;
const PAGE_LEN: usize = 4;

/// Numbers that all clients of all rounds share.
#[derive(Debug)]
pub struct Counters {
    /// Ticks whenever a transaction begins or has ended.
    clock: AtomicU64,
    next: AtomicU32,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters { clock: AtomicU64::new(1), next: AtomicU32::new(1) }
    }
}

impl Counters {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }
}

/// The tables of an open database.
#[derive(Clone, Debug)]
pub struct Tables {
    lists: ListTables,
    rows: Table,
    pages: PageFile,
}

impl Tables {
    /// Finds the tables, or creates those that are not there.
    pub fn open(db: &Database) -> Result<Tables, Error> {
        let rows = match db.table("rows") {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let tag = IndexPart::Value(0..TAG);
                let spec = TableSpec::raw();
                let spec = if db.layouts().len() > 1 { spec.with_layout(Layout::Auto) } else { spec };
                db.create_table_with("rows", spec.with_index(IndexSpec::ranges("tag", false, vec![tag])))?
            }
            other => other?,
        };
        let pages = match db.page_file("pages") {
            Err(error) if error.kind() == ErrorKind::NotFound => db.create_page_file("pages")?,
            other => other?,
        };
        Ok(Tables { lists: ListTables([db.open_table("even")?, db.open_table("odd")?]), rows, pages })
    }

    /// The rows of every client, with their tags.
    pub fn rows(&self) -> &Table {
        &self.rows
    }

    pub fn read_lists(&self, tx: &mut Transaction, keys: u32) -> Result<Lists, Error> {
        self.lists.read_all(tx, keys)
    }

    /// The rows of every client.
    pub fn read_rows(&self, tx: &mut Transaction, clients: usize) -> Result<Vec<Rows>, Error> {
        let mut rows = vec![Rows::new(); clients];
        let mut cursor = tx.scan(&self.rows, KeyRange::all(), Direction::Forward);
        while let Some((key, value)) = cursor.next(tx)? {
            let (client, number) = row_of(key);
            rows[client as usize].insert(number, value.get(TAG..).unwrap_or_default().to_vec());
        }
        for (client, rows) in rows.iter_mut().enumerate() {
            for number in PAGES_FROM..ROWS as u32 {
                if let Some(contents) = self.read_page(tx, client, number)? {
                    rows.insert(number, contents);
                }
            }
        }
        Ok(rows)
    }

    fn read_page(&self, tx: &mut Transaction, client: usize, number: u32) -> Result<Option<Vec<u8>>, Error> {
        let image = tx.read_page(&self.pages, page_of(client, number))?;
        let (len, contents) = image.split_at(PAGE_LEN);
        let len = u32::from_be_bytes(len.try_into().expect("four bytes")) as usize;
        Ok(len.checked_sub(1).map(|len| contents.get(..len).unwrap_or_default().to_vec()))
    }
}

/// The page of a client's row.
fn page_of(client: usize, number: u32) -> u64 {
    client as u64 * ROWS + u64::from(number)
}

fn row_key(client: u32, number: u32) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&client.to_be_bytes());
    key[4..].copy_from_slice(&number.to_be_bytes());
    key
}

fn row_of(key: &[u8]) -> (u32, u32) {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes"));
    (number(&key[..4]), number(&key[4..]))
}

#[derive(Clone, Debug)]
pub struct Client {
    pub client: usize,
    pub db: Database,
    pub tables: Tables,
    pub counters: Arc<Counters>,
    /// Isolation level of all transactions.
    pub isolation: Isolation,
    /// How many lists there are.
    pub keys: u32,
    /// Longest time that it thinks before a transaction.
    pub pause: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// All its transactions are done.
    Done,
    /// The database took no more.
    Refused(Error),
    /// The database returned what it must not.
    Wrong(String),
}

impl Client {
    /// Runs `count` transactions; returns all of them in their order.
    pub fn run(&self, count: u64, rng: &mut Rng) -> (Vec<Entry>, Stop) {
        let mut entries: Vec<Entry> = Vec::new();
        // Commits not waited for yet, with their places among the entries.
        let mut pending: Vec<(usize, Commit)> = Vec::new();
        let mut stop = Stop::Done;
        for _ in 0..count {
            if !self.pause.is_zero() {
                clock::sleep(Duration::from_micros(rng.below(self.pause.as_micros() as u64)));
            }
            match self.transaction(rng, entries.len(), &mut pending) {
                Ok(entry) => entries.push(entry),
                Err((entry, why)) => {
                    entries.extend(entry.map(|entry| *entry));
                    stop = why;
                    break;
                }
            }
            if pending.len() > 3 || rng.one_in(4) {
                settle(&mut entries, &mut pending);
            }
        }
        settle(&mut entries, &mut pending);
        self.db.check_memory();
        (entries, stop)
    }

    /// One transaction. An error carries its entry, if its fate is open, and why the client must
    /// stop.
    fn transaction(
        &self,
        rng: &mut Rng,
        place: usize,
        pending: &mut Vec<(usize, Commit)>,
    ) -> Result<Entry, (Option<Box<Entry>>, Stop)> {
        let began = self.counters.tick();
        let id = self.counters.next.fetch_add(1, Ordering::SeqCst);
        let options = TransactionOptions { isolation: self.isolation, ..Default::default() };
        let mut running = Running {
            client: self,
            lists: ListTransaction::new(&self.tables.lists, self.db.begin_with(options), id),
            id,
            parts: 0,
            rows: RowChanges::new(),
        };
        let outcome = running.statements(rng);
        let Running { lists: ListTransaction { tx, events, .. }, rows, .. } = running;
        let wrote = !rows.is_empty() || events.iter().any(|event| matches!(event, Event::Append(..)));
        let mut entry = Entry {
            client: self.client,
            txn: Txn { id, committed: false, events, began, ended: 0 },
            rows,
            fate: Fate::Aborted,
            prepared: None,
            at: Span::ANYWHERE,
            when_us: 0,
        };
        let ended: Result<(), Trouble> = match outcome {
            Ok(()) if rng.one_in(8) => tx.rollback().map_err(Trouble::Error),
            Ok(()) if wrote && rng.one_in(8) => self.two_phases(tx, &mut entry, rng),
            Ok(()) if rng.one_in(4) => self.commit(tx, &mut entry).map_err(Trouble::Error),
            Ok(()) => tx.commit_async().map_err(Trouble::Error).map(|commit| {
                (entry.fate, entry.at) = (Fate::Unknown, Span::exactly(commit.lsn()));
                pending.push((place, commit));
            }),
            Err(Trouble::Error(error)) => tx.rollback().and(Err(error)).map_err(Trouble::Error),
            Err(Trouble::Wrong(sentence)) => return Err((None, Stop::Wrong(sentence))),
        };
        entry.txn.ended = self.counters.tick();
        entry.when_us = clock::unix_time_us();
        match ended {
            Ok(()) => Ok(entry),
            Err(Trouble::Wrong(sentence)) => Err((Some(Box::new(entry)), Stop::Wrong(sentence))),
            Err(Trouble::Error(error)) => match error.kind() {
                ErrorKind::Conflict | ErrorKind::Deadlock | ErrorKind::Timeout | ErrorKind::Full => Ok(entry),
                // Once prepared, only an acknowledged decision is certain.
                _ if entry.fate == Fate::Unknown => Err((Some(Box::new(entry)), Stop::Refused(error))),
                ErrorKind::Unknown if wrote => {
                    entry.fate = Fate::Unknown;
                    Err((Some(Box::new(entry)), Stop::Refused(error)))
                }
                _ => Err((Some(Box::new(entry)), Stop::Refused(error))),
            },
        }
    }
}

impl Client {
    /// Commits, and waits for it.
    fn commit(&self, tx: Transaction, entry: &mut Entry) -> Result<(), Error> {
        let before = self.log_end();
        let outcome = tx.commit();
        entry.at = Span(before, self.log_end());
        outcome.map(|()| entry.fate = Fate::Committed)
    }

    fn log_end(&self) -> Lsn {
        self.db.statistics().log_end
    }

    /// Prepares, thinks, and commits or rolls back.
    fn two_phases(&self, tx: Transaction, entry: &mut Entry, rng: &mut Rng) -> Result<(), Trouble> {
        let gid = gid_of(entry.txn.id);
        if let Err(error) = tx.prepare(&gid) {
            // Everything that it wrote may have been undone, or was no change.
            if error.kind() == ErrorKind::BadArgument {
                return Ok(());
            }
            // It may be prepared all the same; the next opening will tell.
            if matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Failed) {
                entry.fate = Fate::Unknown;
            }
            return Err(error.into());
        }
        let commit = rng.one_in(2);
        (entry.fate, entry.prepared) = (Fate::Unknown, Some(commit));
        clock::sleep(Duration::from_micros(rng.below(3000)));
        let before = self.log_end();
        let outcome = decide(&self.db, entry.txn.id, commit);
        entry.at = Span(before, self.log_end());
        outcome?;
        entry.fate = if commit { Fate::Committed } else { Fate::Aborted };
        Ok(())
    }
}

/// Commits a prepared transaction or rolls it back. That it is refused with an error after which it
/// might be tried again is wrong: all that the decision takes was set aside before the transaction
/// was prepared.
pub(crate) fn decide(db: &Database, txn: u32, commit: bool) -> Result<(), Trouble> {
    let (gid, doing) = (gid_of(txn), if commit { "commit_prepared" } else { "rollback_prepared" });
    let decided = if commit { db.commit_prepared(&gid) } else { db.rollback_prepared(&gid) };
    decided.map_err(|error| match may_refuse_a_decision(error.kind()) {
        true => Trouble::Error(error),
        false => Trouble::Wrong(format!("{doing} of transaction {txn} was refused: {error}")),
    })
}

/// Whether an error of this kind, of a decision over a prepared transaction, is a matter of faults,
/// which are judged apart.
fn may_refuse_a_decision(kind: ErrorKind) -> bool {
    use ErrorKind::{Conflict, Deadlock, Full, Timeout};
    !matches!(kind, Full | Conflict | Deadlock | Timeout)
}

/// The global id of a transaction, for two-phase commit.
#[must_use]
pub fn gid_of(txn: u32) -> [u8; 4] {
    txn.to_be_bytes()
}

/// The transaction of a global id.
#[must_use]
pub fn transaction_of(gid: &[u8]) -> u32 {
    gid.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Waits for the pending commits, in their order; the fates of those that fail stay unknown.
fn settle(entries: &mut [Entry], pending: &mut Vec<(usize, Commit)>) {
    for (place, commit) in pending.drain(..) {
        if commit.wait().is_ok() {
            entries[place].fate = Fate::Committed;
        }
    }
}

/// What kept something from being done.
pub(crate) enum Trouble {
    /// An error, which may be excused.
    Error(Error),
    /// A result that breaks a promise.
    Wrong(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Error(error)
    }
}

struct Running<'a> {
    client: &'a Client,
    lists: ListTransaction<'a>,
    id: u32,
    parts: u32,
    rows: RowChanges,
}

impl Running<'_> {
    fn statements(&mut self, rng: &mut Rng) -> Result<(), Trouble> {
        for _ in 0..rng.between(1, 6) {
            let key = rng.below(u64::from(self.client.keys)) as u32;
            match rng.below(16) {
                0..=3 => self.lists.append(key, self.locks(rng), || ())?,
                4..=6 => drop(self.lists.read(key, rng.one_in(4))?),
                7 => self.scan(rng)?,
                8 => self.lists.append_and_undo(key, self.locks(rng), || ())?,
                9..=13 => self.put_row(rng)?,
                14 => self.delete_row(rng)?,
                _ => self.read_own_rows()?,
            }
        }
        Ok(())
    }

    /// Whether what is to be changed is read for update.
    fn locks(&self, rng: &mut Rng) -> bool {
        self.client.isolation == Isolation::ReadCommitted || rng.one_in(3)
    }

    /// Reads all lists of a range of one table, those that are not there included.
    fn scan(&mut self, rng: &mut Rng) -> Result<(), Trouble> {
        let keys = u64::from(self.client.keys);
        let (a, b) = (rng.below(keys) as u32, rng.below(keys) as u32);
        let (low, high) = (a.min(b), a.max(b));
        let which = rng.below(2) as u32;
        let direction = if rng.one_in(2) { Direction::Forward } else { Direction::Backward };
        let found = self.lists.scan((low, high), which, direction)?;
        match found.is_empty() {
            true => Ok(()),
            false => {
                Err(Trouble::Wrong(format!("a scan of {low}..={high} met rows outside of it: {found:?}")))
            }
        }
    }

    fn put_row(&mut self, rng: &mut Rng) -> Result<(), Error> {
        let number = rng.below(ROWS) as u32;
        if number >= PAGES_FROM {
            return self.put_page(number, rng);
        }
        let len = match rng.below(40) {
            0 => rng.between(3_000, 30_000),
            1..=8 => rng.between(200, 600),
            _ => rng.below(80),
        };
        let contents = contents(self.id, self.parts, len as usize);
        self.parts += 1;
        let tag = (rng.below(10) as u32).to_be_bytes();
        let value = [&tag[..], &contents].concat();
        self.lists.tx.put(&self.client.tables.rows, &row_key(self.client.client as u32, number), &value)?;
        self.rows.insert(number, Some(contents));
        Ok(())
    }

    /// A whole page, or a part of one: then the rest of it stays, behind what counts.
    fn put_page(&mut self, number: u32, rng: &mut Rng) -> Result<(), Error> {
        let pages = &self.client.tables.pages;
        let most = pages.page_size() - PAGE_LEN - contents(self.id, self.parts, 0).len();
        let contents = contents(self.id, self.parts, rng.below(most as u64 + 1) as usize);
        self.parts += 1;
        let mut image = (contents.len() as u32 + 1).to_be_bytes().to_vec();
        image.extend(&contents);
        let page = page_of(self.client.client, number);
        match rng.one_in(2) {
            true => self.lists.tx.write_page(pages, page, 0, &image)?,
            false => {
                image.resize(pages.page_size(), 0);
                self.lists.tx.put_page(pages, page, &image)?;
            }
        }
        self.rows.insert(number, Some(contents));
        Ok(())
    }

    fn delete_row(&mut self, rng: &mut Rng) -> Result<(), Error> {
        let number = rng.below(ROWS) as u32;
        if number >= PAGES_FROM {
            self.lists.tx.free_page(&self.client.tables.pages, page_of(self.client.client, number))?;
            self.rows.insert(number, None);
            return Ok(());
        }
        self.lists.tx.delete(&self.client.tables.rows, &row_key(self.client.client as u32, number))?;
        self.rows.insert(number, None);
        Ok(())
    }

    /// Its own changes are seen by itself.
    fn read_own_rows(&mut self) -> Result<(), Trouble> {
        for (&number, expected) in &self.rows {
            let client = self.client.client;
            let found = match number >= PAGES_FROM {
                true => self.client.tables.read_page(&mut self.lists.tx, client, number)?,
                false => {
                    let row = self.lists.tx.get(&self.client.tables.rows, &row_key(client as u32, number))?;
                    row.map(|value| value[TAG..].to_vec())
                }
            };
            if found.as_deref() != expected.as_deref() {
                return Err(Trouble::Wrong(format!(
                    "transaction {} does not see its own change of row {number}",
                    self.id
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_faults_may_keep_a_prepared_transaction_from_being_decided() {
        use ErrorKind::{Closed, Conflict, Damaged, Deadlock, Failed, Full, Timeout, Unknown};
        for (kind, excusable) in [
            (Full, false),
            (Conflict, false),
            (Deadlock, false),
            (Timeout, false),
            (Failed, true),
            (Unknown, true),
            (Closed, true),
            (Damaged, true),
        ] {
            assert_eq!(may_refuse_a_decision(kind), excusable, "{kind:?}");
        }
    }
}
