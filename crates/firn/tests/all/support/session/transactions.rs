//! The transactions of a session.

use super::work::Work;
use super::{Effects, Script, Session};
use crate::support::model::State;
use firndb::Error;

impl Session {
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
