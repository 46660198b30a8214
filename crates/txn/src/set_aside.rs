//! Background work that met damage.
//!
//! Damage to a page concerns the rows on it, never the database. Background work (rollback of
//! losers, redo, ghost removal, dropping a tree, freeing large values, the undo tree) that meets a
//! damaged page is *set aside*: it is noted here, reported once, and not tried again before the
//! next opening. All other work continues.

use crate::error::TxnError;
use crate::manager::TxnManager;
use firndb_base::hash::hash_bytes;
use firndb_base::sync::{Mutex, OnceLock};
use std::collections::BTreeSet;

/// One piece of background work that met damage and is not tried again before the next opening.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SetAside {
    /// What the engine was doing, for people: "freeing the dropped table accounts".
    pub work: String,
    /// The damage that it met, for people.
    pub cause: String,
}

impl SetAside {
    /// Work that met damage.
    #[must_use]
    pub fn new(work: impl Into<String>, cause: impl Into<String>) -> SetAside {
        SetAside { work: work.into(), cause: cause.into() }
    }
}

/// Called once for each piece of work that is set aside, by the thread that met the damage.
pub type SetAsideFn = dyn Fn(&SetAside) + Send + Sync;

/// The work set aside since opening.
#[derive(Default)]
pub(crate) struct SetAsideList {
    /// Locked alone.
    list: Mutex<Listed>,
    listener: OnceLock<Box<SetAsideFn>>,
}

#[derive(Default)]
struct Listed {
    first: Vec<SetAside>,
    /// Of all, those in `first` included.
    known: BTreeSet<u64>,
}

impl SetAside {
    /// Entries kept for the report; further ones are only counted.
    pub const LISTED_MAX: usize = 64;
    /// Entries known again, should their work meet the same damage once more; further ones are not
    /// noted.
    pub const KNOWN_MAX: usize = 4096;

    /// Stands for the entry among those known.
    fn hash(&self) -> u64 {
        hash_bytes(hash_bytes(0, self.work.as_bytes()), self.cause.as_bytes())
    }
}

impl TxnManager {
    /// Notes that background work met damage and is left until the next opening. The same work with
    /// the same cause is noted once. As [`TxnManager::report_set_aside`] in what the caller holds.
    pub fn set_aside(&self, work: impl Into<String>, error: &TxnError) {
        let entry = SetAside { work: work.into(), cause: error.message.clone() };
        {
            let mut list = self.set_aside.list.lock();
            if list.known.len() >= SetAside::KNOWN_MAX || !list.known.insert(entry.hash()) {
                return;
            }
            if list.first.len() < SetAside::LISTED_MAX {
                list.first.push(entry.clone());
            }
        }
        self.report_set_aside(&entry);
    }

    /// Reports work that is set aside and that the caller lists. No latch and no lock of the engine
    /// may be held: the listener is called.
    pub fn report_set_aside(&self, entry: &SetAside) {
        if let Some(listener) = self.set_aside.listener.get() {
            listener(entry);
        }
    }

    /// The first pieces of work set aside since opening, and how many there are in all.
    #[must_use]
    pub fn work_set_aside(&self) -> (Vec<SetAside>, u64) {
        let list = self.set_aside.list.lock();
        (list.first.clone(), list.known.len() as u64)
    }

    /// Hands in what is called for each piece of work that is set aside. Set once, when the
    /// database is assembled.
    pub fn on_set_aside(&self, listener: impl Fn(&SetAside) + Send + Sync + 'static) {
        assert!(
            self.set_aside.listener.set(Box::new(listener)).is_ok(),
            "set once, when the database is assembled"
        );
        // What was met while it was being opened.
        let (before, _) = self.work_set_aside();
        before.iter().for_each(|entry| self.report_set_aside(entry));
    }
}
