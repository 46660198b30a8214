//! At a run's end: states since the backup are restored from it and the archive, and compared.
//!
//! To any commit, to the LSN just before one, to moments by the clock on the wall (which goes
//! backwards at times), and to the end. What is restored to an LSN must be the state after the last
//! commit up to it, exactly. Of a moment: no commit in it was made later, by its own record, and
//! the next one was.

use crate::array::RestoreWhat;
use crate::client::Tables;
use crate::journal::Journal;
use crate::ledger::{Lists, Rows};
use crate::scenario::Scenario;
use crate::shelf::{ARCHIVE, Shelf};
use firndb::{Error, Lsn, Options, RestoreReport, RestoreTo};
use firndb_base::rng::Rng;

/// What restoring works with.
pub struct Restoring<'a> {
    pub scenario: &'a Scenario,
    /// Where backup and archive are.
    pub shelf: &'a Shelf,
    pub journal: &'a Journal,
    /// The lists as they were found in the end.
    pub lists: &'a Lists,
    /// Where the backup ended: the earliest that can be restored to.
    pub from: Lsn,
    /// The archive may lack log.
    pub gaps: bool,
    /// The clock on the wall, as it was read now and then.
    pub moments: &'a [u64],
}

/// How restoring one state went.
pub enum Restored {
    /// It is what it must be; a sentence about it.
    Well(String),
    /// It cannot be restored, and need not be.
    Lacking(String),
    /// It differs, or was refused.
    Wrong(String),
    /// Nothing fits what was asked for.
    Nothing,
}

impl Restoring<'_> {
    /// Restores to what a seed drew, and compares.
    pub fn restore(&self, what: RestoreWhat, rng: &mut Rng) -> Restored {
        let commits = self.journal.known_since(self.from);
        let some = |rng: &mut Rng, from: &[Lsn]| {
            (!from.is_empty()).then(|| from[rng.below(from.len() as u64) as usize])
        };
        let target = match what {
            RestoreWhat::Commit => some(rng, &commits).map(RestoreTo::Lsn),
            RestoreWhat::BeforeCommit => {
                let before = some(rng, &commits).map(|lsn| Lsn(lsn.0 - 1));
                before.filter(|lsn| *lsn >= self.from).map(RestoreTo::Lsn)
            }
            RestoreWhat::BackupEnd => Some(RestoreTo::Lsn(self.from)),
            RestoreWhat::End => Some(RestoreTo::End),
            RestoreWhat::Moment => (!self.moments.is_empty())
                .then(|| RestoreTo::Time(self.moments[rng.below(self.moments.len() as u64) as usize])),
        };
        let Some(target) = target else { return Restored::Nothing };
        match self.restored(target) {
            Ok((report, lists, rows)) => self.judge(target, &report, &(lists, rows)),
            Err(error) => self.judge_refusal(target, &error),
        }
    }

    /// Restores, and reads what was restored.
    fn restored(&self, target: RestoreTo) -> Result<(RestoreReport, Lists, Vec<Rows>), Error> {
        let to = self.shelf.place("restored");
        let outcome = self.restored_in(target, &to);
        let _ = std::fs::remove_dir_all(&to);
        outcome
    }

    fn restored_in(
        &self,
        target: RestoreTo,
        to: &std::path::Path,
    ) -> Result<(RestoreReport, Lists, Vec<Rows>), Error> {
        let archive = self.scenario.array.archive.map(|_| self.shelf.place(ARCHIVE));
        let small = || Options::new().buffer_bytes(1 << 20).log(|log| log.bytes(2 << 20).devices(1));
        let options = small().page_size(self.scenario.page_size);
        let report = options.restore(self.shelf.place("backup"), archive.as_deref(), target, to)?;
        let db = small().create(false).open(to)?;
        let tables = Tables::open(&db)?;
        let mut tx = db.snapshot();
        let lists = tables.read_lists(&mut tx, self.scenario.keys)?;
        let rows = tables.read_rows(&mut tx, self.scenario.clients as usize)?;
        tx.commit()?;
        db.close()?;
        Ok((report, lists, rows))
    }

    fn judge(&self, target: RestoreTo, report: &RestoreReport, found: &(Lists, Vec<Rows>)) -> Restored {
        let lsn = match target {
            RestoreTo::Lsn(lsn) => lsn,
            RestoreTo::End | RestoreTo::Time(_) => report.lsn,
        };
        let done = format!("{target:?} was restored, which is LSN {}", report.lsn);
        if report.lsn > lsn {
            return Restored::Wrong(format!("{done}: that is too much"));
        }
        if target == RestoreTo::End && !self.gaps && self.journal.goes_beyond(report.lsn) {
            return Restored::Wrong(format!("{done}, and there were later commits, which were archived"));
        }
        if let RestoreTo::Time(time) = target
            && let Some(wrong) = self.judge_time(time, report)
        {
            return Restored::Wrong(format!("{done}: {wrong}"));
        }
        match self.journal.state_at(lsn, self.lists, self.scenario.clients as usize) {
            Some(expected) if expected != *found => Restored::Wrong(format!(
                "{done}, and differs from what was there: {}",
                differing(&expected, found)
            )),
            Some(_) => Restored::Well(done),
            None => {
                Restored::Lacking(format!("{done}; of some commits it is not known on which side they lie"))
            }
        }
    }

    /// What is wrong with where restoring to a moment ended.
    fn judge_time(&self, time: u64, report: &RestoreReport) -> Option<String> {
        if report.last_commit_us > time {
            return Some(format!("a commit made at {} is there", report.last_commit_us));
        }
        if report.at_end {
            return None;
        }
        // Each commit known is one of the archive's: the one that was too late, or others with it.
        let next = self.journal.known_since(report.lsn.advance(1)).into_iter().next()?;
        match self.restored(RestoreTo::Lsn(next)) {
            Ok((further, ..)) if further.last_commit_us > time => None,
            Ok((further, ..)) => Some(format!(
                "it ends before the commit at LSN {next}, up to which all were made by {}",
                further.last_commit_us
            )),
            Err(error) => match self.judge_refusal(RestoreTo::Lsn(next), &error) {
                Restored::Wrong(wrong) => Some(wrong),
                _ => None,
            },
        }
    }

    fn judge_refusal(&self, target: RestoreTo, error: &Error) -> Restored {
        let sentence = error.to_string().replace(&*self.shelf.place("").to_string_lossy(), "");
        let sentence = format!("restoring to {target:?}: {sentence}");
        let before = matches!(target, RestoreTo::Time(_)) && sentence.contains("before the backup's end");
        // Only what was archived can be restored.
        if before || (self.gaps && sentence.contains("archive")) {
            Restored::Lacking(sentence)
        } else {
            Restored::Wrong(sentence)
        }
    }
}

/// Where two states differ, in short.
fn differing(expected: &(Lists, Vec<Rows>), found: &(Lists, Vec<Rows>)) -> String {
    let lists = expected.0.iter().filter(|(key, list)| found.0.get(key) != Some(list));
    let lists: Vec<String> = lists
        .map(|(key, list)| format!("list {key} has {} elements, not {}", found.0[key].len(), list.len()))
        .collect();
    let rows = expected.1.iter().zip(&found.1).enumerate().filter(|(_, (expected, found))| expected != found);
    let rows: Vec<String> = rows.map(|(client, _)| format!("rows of client {client}")).collect();
    [lists, rows].concat().join(", ")
}
