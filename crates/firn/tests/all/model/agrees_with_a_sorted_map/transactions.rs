//! How transactions end, savepoints, and snapshots that are kept open.

use super::Run;
use super::compare::compare;
use firndb::ErrorKind;

impl Run {
    pub fn savepoint(&mut self) {
        let writer = self.writer();
        writer.savepoints.push((writer.tx.savepoint(), writer.model.clone()));
    }

    pub fn roll_back_to(&mut self) {
        let pick = self.rng.next_u64() as usize;
        let writer = self.writer();
        if writer.savepoints.is_empty() {
            return;
        }
        let at = pick % writer.savepoints.len();
        writer.savepoints.truncate(at + 1);
        let (savepoint, model) = &writer.savepoints[at];
        writer.tx.rollback_to(savepoint).expect("rolled back");
        writer.model = model.clone();
    }

    pub fn commit(&mut self) {
        let Some(writer) = self.writer.take() else { return };
        self.committed = writer.model;
        match self.rng.below(3) {
            0 => {
                let commit = writer.tx.commit_async().expect("ordered");
                self.possible.push(self.committed.clone());
                if self.rng.one_in(2) {
                    commit.wait().expect("durable");
                    if writer.exposed {
                        self.all_is_durable();
                    }
                }
            }
            _ => {
                writer.tx.commit().expect("committed");
                if writer.exposed {
                    self.all_is_durable();
                }
            }
        }
    }

    pub fn roll_back(&mut self) {
        if let Some(writer) = self.writer.take() {
            match self.rng.below(2) {
                0 => writer.tx.rollback().expect("rolled back"),
                _ => drop(writer),
            }
        }
    }

    pub fn take_snapshot(&mut self) {
        if self.readers.len() == 3 {
            let which = self.rng.below(3) as usize;
            let (mut tx, model) = self.readers.swap_remove(which);
            compare(&mut tx, &self.tables, &model);
            tx.commit().expect("what it saw becomes durable");
        }
        let mut tx = self.db.snapshot();
        // It sees the database as it is at its first read.
        let first = tx.get(&self.tables[0], b"no such key").expect("readable");
        assert_eq!(first, None);
        self.readers.push((tx, self.committed.clone()));
    }

    pub fn check_snapshots(&mut self) {
        for (tx, model) in &mut self.readers {
            compare(tx, &self.tables, model);
        }
        let mut latest = self.db.snapshot();
        compare(&mut latest, &self.tables, &self.committed);
    }

    pub fn two_phase(&mut self) {
        let Some(writer) = self.writer.take() else { return };
        let wrote = writer.model != self.committed;
        let gid = self.rng.next_u64().to_be_bytes();
        match writer.tx.prepare(&gid) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
                assert!(!wrote, "{error}");
                return;
            }
        }
        self.all_is_durable();
        let after = writer.model;
        for _ in 0..self.rng.below(3) {
            match self.rng.below(3) {
                0 => self.reopen_now(),
                1 => self.crash_now(),
                _ => self.maintain(),
            }
            assert_eq!(self.db.prepared(), [gid.to_vec()]);
            self.check_snapshots();
            for (which, rows) in after.iter().enumerate().take(2) {
                let changed = rows.iter().find(|(key, row)| self.committed[which].get(*key) != Some(row));
                if let Some((key, _)) = changed {
                    let mut other = self.db.begin();
                    let error = other.put(&self.tables[which], key, b"other").expect_err("it is locked");
                    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
                }
            }
        }
        if self.rng.one_in(2) {
            self.db.commit_prepared(&gid).expect("committed");
            self.committed = after;
        } else {
            self.db.rollback_prepared(&gid).expect("rolled back");
        }
        assert_eq!(self.db.commit_prepared(&gid).expect_err("ended").kind(), ErrorKind::BadArgument);
        // A rollback is not waited for: a crash may bring the prepared transaction back. So make it
        // durable.
        self.db.checkpoint().expect("a checkpoint");
        self.all_is_durable();
    }
}
