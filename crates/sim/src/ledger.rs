//! What the database must hold: what was acknowledged to clients, and what could not be.
//!
//! Each transaction appends elements to shared lists ([`firndb_workloads::history`] judges those)
//! and may change rows that belong to its client alone. A commit that was acknowledged must be
//! there for ever. A commit whose fate is unknown, because the power or a device failed under it,
//! is there or not, and then for ever; those of one client in their order, since their commit
//! records lie so in the log.

use crate::journal::{Journal, Span};
use firndb_workloads::history::{Element, Event, Txn};
use std::collections::{BTreeMap, BTreeSet};

/// Rows of one client: number to contents.
pub type Rows = BTreeMap<u32, Vec<u8>>;
/// Changes to them: `None` deletes.
pub type RowChanges = BTreeMap<u32, Option<Vec<u8>>>;
/// The shared lists, by key.
pub type Lists = BTreeMap<u32, Vec<Element>>;

/// What became of a transaction, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Committed,
    Aborted,
    /// The next opening decides.
    Unknown,
}

/// A transaction that has ended, or will never be heard of.
#[derive(Clone, Debug)]
pub struct Entry {
    pub client: usize,
    /// What it did to lists.
    pub txn: Txn,
    /// What it did to rows.
    pub rows: RowChanges,
    pub fate: Fate,
    /// It was acknowledged as prepared; whether it was to be committed then.
    pub prepared: Option<bool>,
    /// Where its commit record lies, if it has one.
    pub at: Span,
    /// What the clock on the wall said when it had ended.
    pub when_us: u64,
}

impl Entry {
    /// Whether anything of it would be there.
    fn has_effects(&self) -> bool {
        !self.rows.is_empty() || !standing(&self.txn).is_empty()
    }
}

/// What was decided of a prepared transaction.
#[derive(Clone, Copy, Debug)]
struct Decision {
    commit: bool,
    /// Whether it is known to have taken effect.
    acknowledged: bool,
}

/// Everything that clients know.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Of prepared transactions whose fate is unknown: what was decided last.
    decisions: BTreeMap<u32, Decision>,
    settled: Vec<Txn>,
    journal: Journal,
    /// Where those that were decided after an opening committed, by transaction.
    decided_at: BTreeMap<u32, Span>,
    rows: Vec<Rows>,
    /// By client, in the order of their commit calls.
    unknown: Vec<Vec<Entry>>,
    committed: u64,
    aborted: u64,
    resolved: [u64; 2],
    lists: Lists,
}

/// Applies the changes to the rows.
pub(crate) fn apply(rows: &mut Rows, changes: &RowChanges) {
    for (&number, contents) in changes {
        match contents {
            Some(contents) => drop(rows.insert(number, contents.clone())),
            None => drop(rows.remove(&number)),
        }
    }
}

/// The elements that stand when the transaction has committed, by key.
fn standing(txn: &Txn) -> BTreeSet<(u32, Element)> {
    let mut standing = BTreeSet::new();
    for event in &txn.events {
        match event {
            Event::Append(key, element) => drop(standing.insert((*key, *element))),
            Event::Undo(key, element) => drop(standing.remove(&(*key, *element))),
            Event::Read(..) => {}
        }
    }
    standing
}

impl Ledger {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(clients: usize) -> Ledger {
        Ledger { rows: vec![Rows::new(); clients], unknown: vec![Vec::new(); clients], ..Ledger::default() }
    }

    /// Notes what became of a transaction.
    pub fn add(&mut self, mut entry: Entry) {
        entry.txn.committed = entry.fate == Fate::Committed;
        match entry.fate {
            Fate::Committed => {
                // What is there for certain comes after what may be there: the log is durable in
                // its order. A transaction that left nothing in the log says nothing of those
                // before it.
                if entry.has_effects() {
                    for earlier in std::mem::take(&mut self.unknown[entry.client]) {
                        self.keep(earlier, true);
                    }
                }
                self.committed += 1;
                apply(&mut self.rows[entry.client], &entry.rows);
                self.note(&mut entry);
                self.settled.push(entry.txn);
            }
            Fate::Aborted => {
                self.aborted += 1;
                self.settled.push(entry.txn);
            }
            Fate::Unknown => self.unknown[entry.client].push(entry),
        }
    }

    fn keep(&mut self, mut entry: Entry, committed: bool) {
        self.resolved[usize::from(committed)] += 1;
        entry.txn.committed = committed;
        if committed {
            apply(&mut self.rows[entry.client], &entry.rows);
            self.note(&mut entry);
        }
        self.settled.push(entry.txn);
    }

    /// A transaction is known to have committed.
    fn note(&mut self, entry: &mut Entry) {
        if entry.has_effects() {
            let at = self.decided_at.get(&entry.txn.id).copied().unwrap_or(entry.at);
            self.journal.committed(at, entry.txn.id, entry.client, std::mem::take(&mut entry.rows));
        }
    }

    /// Notes which transactions an opening found prepared. What was acknowledged as prepared and is
    /// not among them has been decided: by an opening, or else by its client.
    pub fn found_prepared(&mut self, found: &[u32]) {
        for entry in self.unknown.iter().flatten() {
            if let Some(commit) = entry.prepared
                && !found.contains(&entry.txn.id)
            {
                let by_client = Decision { commit, acknowledged: true };
                let decision = self.decisions.entry(entry.txn.id).or_insert(by_client);
                // It took effect, since the transaction is not prepared any more.
                decision.acknowledged = true;
            }
        }
    }

    /// Notes that an opening is about to commit a prepared transaction or to roll it back. If that
    /// fails, it may have been done or not, until an opening finds the transaction prepared again
    /// or gone.
    pub fn deciding(&mut self, txn: u32, commit: bool) {
        self.decisions.insert(txn, Decision { commit, acknowledged: false });
    }

    /// Notes that a prepared transaction was committed, there, or rolled back, and acknowledged so.
    pub fn decided(&mut self, txn: u32, commit: bool, at: Span) {
        self.decisions.insert(txn, Decision { commit, acknowledged: true });
        self.decided_at.insert(txn, at);
    }

    /// All commits, by where they are.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Compares the database, as it was found after an opening, with what must be there, and
    /// settles the fates that were unknown. A sentence for each difference.
    pub fn compare(&mut self, lists: &Lists, rows: &[Rows]) -> Vec<String> {
        let mut differences = Vec::new();
        self.lists.clone_from(lists);
        let present: BTreeSet<(u32, Element)> =
            lists.iter().flat_map(|(&key, list)| list.iter().map(move |&element| (key, element))).collect();
        for (client, found) in rows.iter().enumerate() {
            let unknown = std::mem::take(&mut self.unknown[client]);
            match self.settle_client(client, found, &unknown, &present) {
                Ok(survived) => {
                    for (at, entry) in unknown.into_iter().enumerate() {
                        self.keep(entry, at < survived);
                    }
                }
                Err(sentence) => differences.push(sentence),
            }
        }
        differences
    }

    /// How many of the unknown commits of a client survived.
    fn settle_client(
        &self,
        client: usize,
        found: &Rows,
        unknown: &[Entry],
        present: &BTreeSet<(u32, Element)>,
    ) -> Result<usize, String> {
        let mut expected = self.rows[client].clone();
        let mut survived = None;
        for count in 0..=unknown.len() {
            if count > 0 {
                apply(&mut expected, &unknown[count - 1].rows);
            }
            let lists_agree = unknown.iter().enumerate().all(|(at, entry)| {
                let decided = self.decisions.get(&entry.txn.id).filter(|decision| decision.acknowledged);
                decided.is_none_or(|decision| decision.commit == (at < count))
                    && standing(&entry.txn).iter().all(|element| present.contains(element) == (at < count))
            });
            // The least that explains what was found: those that changed nothing leave no trace.
            if lists_agree && &expected == found {
                survived = survived.or(Some(count));
            }
        }
        survived.ok_or_else(|| {
            let kept = &self.rows[client];
            let numbers: BTreeSet<u32> = kept.keys().chain(found.keys()).copied().collect();
            let differing: Vec<String> = numbers
                .into_iter()
                .filter(|number| kept.get(number) != found.get(number))
                .map(|number| {
                    let name = |rows: &Rows| {
                        rows.get(&number).map_or("absent".to_owned(), |contents| describe(contents))
                    };
                    format!("row {number} was acknowledged {} and is {}", name(kept), name(found))
                })
                .collect();
            let open: Vec<String> = unknown
                .iter()
                .map(|entry| {
                    let there =
                        standing(&entry.txn).iter().filter(|element| present.contains(element)).count();
                    let rows: Vec<u32> = entry.rows.keys().copied().collect();
                    let of = standing(&entry.txn).len();
                    format!("transaction {} ({there} of {of} elements there, rows {rows:?})", entry.txn.id)
                })
                .collect();
            format!(
                "client {client}: {}; of unknown fate: {}",
                if differing.is_empty() {
                    "its rows are as acknowledged".to_owned()
                } else {
                    differing.join(", ")
                },
                if open.is_empty() { "none".to_owned() } else { open.join(", ") }
            )
        })
    }

    /// All transactions whose fate is known.
    #[must_use]
    pub fn history(&self) -> &[Txn] {
        &self.settled
    }

    /// The lists as the last comparison found them.
    #[must_use]
    pub fn lists(&self) -> &Lists {
        &self.lists
    }

    /// Acknowledged commits; rolled back ones; of unknown fate that turned out lost, and there.
    #[must_use]
    pub fn counts(&self) -> (u64, u64, u64, u64) {
        (self.committed, self.aborted, self.resolved[0], self.resolved[1])
    }
}

/// The contents of a row that `txn` wrote as its `part`-th change: recognisable, and of any length.
#[must_use]
pub fn contents(txn: u32, part: u32, len: usize) -> Vec<u8> {
    let head = [txn.to_be_bytes(), part.to_be_bytes()].concat();
    let body = (0..len).map(|at| (txn as usize * 31 + part as usize * 7 + at) as u8);
    head.into_iter().chain(body).collect()
}

fn describe(contents: &[u8]) -> String {
    match contents.first_chunk::<4>() {
        Some(txn) => format!("of transaction {} ({} bytes)", u32::from_be_bytes(*txn), contents.len()),
        None => format!("{} bytes that no client wrote", contents.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u32, fate: Fate, row: u32) -> Entry {
        let events = vec![Event::Append(1, (id, 0))];
        let txn = Txn { id, events, ..Txn::default() };
        let rows = RowChanges::from([(row, Some(contents(id, 0, 3)))]);
        Entry { client: 0, txn, rows, fate, prepared: None, at: Span::ANYWHERE, when_us: 0 }
    }

    fn lists(ids: &[u32]) -> Lists {
        Lists::from([(1, ids.iter().map(|&id| (id, 0)).collect())])
    }

    fn rows(of: &[(u32, u32)]) -> Rows {
        of.iter().map(|&(row, id)| (row, contents(id, 0, 3))).collect()
    }

    #[test]
    fn what_was_acknowledged_must_be_there() {
        let mut ledger = Ledger::new(1);
        ledger.add(entry(1, Fate::Committed, 5));
        assert_eq!(ledger.compare(&lists(&[1]), &[rows(&[(5, 1)])]), Vec::<String>::new());
        let lost = ledger.compare(&lists(&[1]), &[rows(&[])]);
        assert!(lost[0].contains("row 5 was acknowledged of transaction 1"), "{lost:?}");
        assert_eq!(ledger.compare(&lists(&[1]), &[rows(&[(5, 2)])]).len(), 1, "another's contents");
    }

    #[test]
    fn unknown_fates_are_settled_once_in_order_and_whole() {
        let both = || {
            let mut ledger = Ledger::new(1);
            ledger.add(entry(1, Fate::Unknown, 5));
            ledger.add(entry(2, Fate::Unknown, 6));
            ledger
        };
        assert!(both().compare(&lists(&[]), &[rows(&[])]).is_empty());
        assert!(both().compare(&lists(&[1]), &[rows(&[(5, 1)])]).is_empty());
        assert!(both().compare(&lists(&[1, 2]), &[rows(&[(5, 1), (6, 2)])]).is_empty());
        assert_eq!(both().compare(&lists(&[2]), &[rows(&[(6, 2)])]).len(), 1, "the second without the first");
        assert_eq!(both().compare(&lists(&[1]), &[rows(&[])]).len(), 1, "half of a transaction");
        let mut ledger = both();
        assert!(ledger.compare(&lists(&[1]), &[rows(&[(5, 1)])]).is_empty());
        assert_eq!(ledger.compare(&lists(&[]), &[rows(&[])]).len(), 1, "it was there already");
    }

    #[test]
    fn what_was_prepared_is_not_lost() {
        let with = |prepared| {
            let mut ledger = Ledger::new(1);
            ledger.add(Entry { prepared, ..entry(1, Fate::Unknown, 5) });
            ledger.found_prepared(&[]);
            ledger
        };
        let (there, absent) = ((lists(&[1]), [rows(&[(5, 1)])]), (lists(&[]), [rows(&[])]));
        assert!(with(Some(true)).compare(&there.0, &there.1).is_empty());
        assert_eq!(with(Some(true)).compare(&absent.0, &absent.1).len(), 1, "prepared, and gone");
        assert!(with(Some(false)).compare(&absent.0, &absent.1).is_empty());
        assert_eq!(with(Some(false)).compare(&there.0, &there.1).len(), 1, "committed against the decision");
        assert!(with(None).compare(&absent.0, &absent.1).is_empty());
    }

    /// Seed 106997: an opening rolled a prepared transaction back and then could not be read; the
    /// next one, which did not find it prepared any more, took it for committed, as its client had
    /// meant to.
    #[test]
    fn what_an_opening_decided_outlasts_later_openings() {
        let (there, absent) = ((lists(&[1]), [rows(&[(5, 1)])]), (lists(&[]), [rows(&[])]));
        let decided = |commit: bool| {
            let mut ledger = Ledger::new(1);
            ledger.add(Entry { prepared: Some(!commit), ..entry(1, Fate::Unknown, 5) });
            ledger.found_prepared(&[1]);
            ledger.deciding(1, commit);
            ledger.decided(1, commit, Span::ANYWHERE);
            ledger.found_prepared(&[]);
            ledger
        };
        assert!(decided(false).compare(&absent.0, &absent.1).is_empty());
        assert_eq!(decided(false).compare(&there.0, &there.1).len(), 1, "committed against the decision");
        assert!(decided(true).compare(&there.0, &there.1).is_empty());
        assert_eq!(decided(true).compare(&absent.0, &absent.1).len(), 1, "rolled back against the decision");
    }

    /// A decision that failed may have been taken, or not; an opening that does not find the
    /// transaction prepared tells.
    #[test]
    fn a_decision_that_failed_may_have_taken_effect() {
        let (there, absent) = ((lists(&[1]), [rows(&[(5, 1)])]), (lists(&[]), [rows(&[])]));
        let attempted = |found_again: bool| {
            let mut ledger = Ledger::new(1);
            ledger.add(Entry { prepared: Some(true), ..entry(1, Fate::Unknown, 5) });
            ledger.found_prepared(&[1]);
            ledger.deciding(1, false);
            ledger.found_prepared(if found_again { &[1] } else { &[] });
            ledger
        };
        assert!(attempted(false).compare(&absent.0, &absent.1).is_empty());
        assert_eq!(attempted(false).compare(&there.0, &there.1).len(), 1);
        let mut again = attempted(true);
        again.decided(1, true, Span::ANYWHERE);
        assert!(again.compare(&there.0, &there.1).is_empty());
    }

    #[test]
    fn a_later_acknowledgement_settles_the_commits_before_it() {
        let mut ledger = Ledger::new(1);
        ledger.add(entry(1, Fate::Unknown, 5));
        ledger.add(entry(2, Fate::Committed, 6));
        assert_eq!(ledger.compare(&lists(&[2]), &[rows(&[(6, 2)])]).len(), 1);
    }
}
