//! Background work, closes, crashes and openings.

use super::compare::differences;
use super::{Model, Run, TABLES, open_tables};
use crate::support::bed::Bed;
use crate::support::small::scan;
use firndb::{Direction, ErrorKind, KeyRange};

impl Run {
    pub fn maintain(&mut self) {
        match self.rng.below(3) {
            0 => {
                self.db.checkpoint().expect("a checkpoint");
                self.all_is_durable();
            }
            _ => {
                for _ in 0..self.rng.below(20) {
                    self.db.step().expect("a step");
                }
            }
        }
    }

    /// Closes and opens, with transactions open or not.
    pub fn reopen(&mut self) {
        self.roll_back();
        self.reopen_now();
    }

    pub fn reopen_now(&mut self) {
        let db = self.db.clone();
        if self.rng.one_in(2) {
            self.readers.clear();
        }
        db.close().expect("closed");
        self.open_again(self.disks.duplicate());
        // Closing makes everything durable.
        self.all_is_durable();
        self.check_snapshots();
    }

    /// What was written stays, what was only in memory is gone.
    pub fn crash(&mut self) {
        self.crash_now();
        self.writer = None;
    }

    pub fn crash_now(&mut self) {
        let disks = self.disks.duplicate();
        self.open_again(disks);
        let mut tx = self.db.snapshot();
        let found: Model = std::array::from_fn(|which| {
            scan(&mut tx, &self.tables[which], KeyRange::all(), Direction::Forward).into_iter().collect()
        });
        assert!(
            self.possible.contains(&found),
            "a crash brought back a state that never was; it differs from the last in {:?}",
            differences(&found, &self.committed)
        );
        self.committed = found;
        self.all_is_durable();
        drop(tx);
        self.check_snapshots();
    }

    pub fn open_again(&mut self, disks: Bed) {
        self.readers.clear();
        self.writer = None;
        self.tables.clear();
        if self.rng.one_in(3) {
            // The memory for versions may differ between two openings.
            self.options = self
                .options
                .clone()
                .tuning(|tuning| tuning.version_bytes([0, 2000, 1 << 20][self.rng.below(3) as usize]));
        }
        let mut db = self.options.clone().open_on(disks.devices()).expect("opens");
        if self.rng.one_in(3) {
            // Recovery is repeated: a crash comes right after it.
            let again = disks.duplicate();
            let second = self.options.clone().open_on(again.devices()).expect("opens twice");
            (self.disks, db) = (again, second);
        } else {
            self.disks = disks;
        }
        self.db = db;
        self.tables = open_tables(&self.db);
    }

    /// A table of the same name is empty when it was dropped in between.
    pub fn recreate_table(&mut self) {
        if !self.rng.one_in(4) {
            return;
        }
        self.roll_back();
        self.readers.clear();
        self.db.drop_table(TABLES[1]).expect("dropped");
        let stale = self.db.begin().get(&self.tables[1], b"k").expect_err("it was dropped");
        assert_eq!(stale.kind(), ErrorKind::Stale, "{stale}");
        self.tables[1] = self.db.create_table(TABLES[1]).expect("created");
        self.committed[1].clear();
        self.db.checkpoint().expect("a checkpoint");
        self.all_is_durable();
    }
}
