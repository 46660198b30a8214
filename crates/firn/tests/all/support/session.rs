//! A database and its model, driven by one script. Whatever fails is noted, and the script goes on,
//! as a program would that reports errors and keeps running.

mod definitions;
pub mod pages;
mod transactions;
mod work;

pub use work::Work;

use super::bed::Bed;
use super::model::{History, State};
use firndb::device::{CrashPlan, FaultPlan};
use firndb::{Database, Devices, Error, ErrorKind, IndexPart, IndexSpec, Options};
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
    pub(super) db: Option<Database>,
    pub history: History,
    /// Since a result was `Unknown`, the model does not know what the open database shows.
    pub(super) uncertain: bool,
    pub(super) prepared: BTreeMap<Vec<u8>, Effects>,
    /// Errors met, which only failing devices (and full ones) may cause.
    pub errors: Vec<(ErrorKind, String)>,
    /// Pages that compactions gave lower numbers.
    pub renumbered: u64,
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
            renumbered: 0,
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
    pub(super) fn mark_attempt(&self, number: usize) {
        self.mark(2 * number);
    }
    /// State `number` must survive from here on.
    fn mark_acknowledged(&self, number: usize) {
        self.mark(2 * number + 1);
    }

    /// Notes an error. Whether its kind is one that a failing device may cause.
    pub(super) fn note(&mut self, what: &str, error: &Error) {
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
    pub(super) fn settle_commit(&mut self, what: &str, number: usize, outcome: Result<(), Error>) {
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
}
