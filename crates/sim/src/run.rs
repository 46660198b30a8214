//! One seed: rounds of clients, faults and power cuts, and what must be true after each.
//!
//! A round opens the database (perhaps the power fails during that), compares it with what the
//! clients know, lets them work, and ends with a close, a dropped handle or a power cut. After the
//! last the devices are healed; then `check` must find nothing, and the whole history of all rounds
//! must hold no phenomenon that its isolation level forbids.

mod beside;
mod opening;
mod power;
mod round;

use crate::chores::Scratch;
use crate::client::{Counters, Tables};
use crate::ledger::Ledger;
use crate::machine::Machine;
use crate::medium::Survival;
use crate::restoring::{Restored, Restoring};
use crate::scenario::{Canary, Round, Scenario, Severity};
use crate::shadow::Shadow;
use crate::shelf::Shelf;
use beside::log_device_fails;
use firndb::device::Calls;
use firndb::{Database, Error, ErrorKind, Isolation, Lsn, Options, StoreMemberState};
use firndb_base::clock::{self, Moment};
use firndb_base::rng::Rng;
use firndb_base::sim::{self, SimFailure, SimOptions};
use firndb_base::sync::Arc;
use firndb_workloads::history::{Phenomenon, judge};
use opening::Opened;
use std::time::Duration;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    pub committed: u64,
    /// Transactions rolled back or refused.
    pub aborted: u64,
    /// Commits of unknown fate that turned out to be lost, and to be there.
    pub unknown: [u64; 2],
    /// Device calls that went wrong on purpose.
    pub faults: u64,
    pub cuts: u64,
    /// Openings that found a database to recover.
    pub recoveries: u64,
    /// States restored from a backup and the archive, and equal to what was there.
    pub restored: u64,
    /// Pages that compaction gave lower numbers.
    pub renumbered: u64,
    /// Layouts that the engine chose for a table, whose pages it then moved.
    pub laid_out: u64,
    /// Tables that had statistics in the end.
    pub analyzed: u64,
    /// Pages read below DRAM that were compared with what had been written.
    pub pages_compared: u64,
    /// Pages read and written below DRAM that were compared with their base and their changes.
    pub bases_judged: u64,
    /// How often the log went round while clients worked: bytes written to its devices, over what
    /// these hold.
    pub laps: f64,
    /// Whether damage was done and reported, which ends a run early.
    pub damaged: bool,
    pub time: Duration,
    /// Scheduling decisions, and their hash: equal for equal seeds.
    pub steps: u64,
    /// Hash of the scheduling decisions.
    pub trace: u64,
}

/// What was found of a seed.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What the run did, as far as it came.
    pub summary: Summary,
    /// What happened, a line each.
    pub narrative: Vec<String>,
    /// What must not be: empty for a good run.
    pub wrong: Vec<String>,
}

#[must_use]
pub fn run(scenario: &Scenario) -> Verdict {
    let findings = std::sync::Arc::new(std::sync::Mutex::new(Verdict {
        summary: Summary::default(),
        narrative: Vec::new(),
        wrong: Vec::new(),
    }));
    let options = SimOptions {
        seed: scenario.seed,
        cores: scenario.cores,
        policy: scenario.policy,
        preempt_one_in: scenario.preempt_one_in,
        spurious_one_in: scenario.spurious_one_in,
        step_limit: scenario.step_limit,
        time_limit: scenario.time_limit,
        // Comparing and judging a long history takes real time.
        stuck_after: SimOptions::default().stuck_after.max(scenario.time_limit / 60),
        ..SimOptions::default()
    };
    let (for_body, of_scenario) = (findings.clone(), scenario.clone());
    let outcome = sim::run(options, move || {
        let mut story = Story::new(of_scenario);
        story.tell();
        *for_body.lock().expect("only the body locks it") = story.verdict();
    });
    let mut verdict = findings.lock().expect("the body has ended").clone();
    match outcome {
        Ok(outcome) => {
            verdict.summary.time = outcome.virtual_time;
            verdict.summary.steps = outcome.steps;
            verdict.summary.trace = outcome.trace_hash;
        }
        Err(failure) => verdict.wrong.push(describe(&failure)),
    }
    verdict
}

fn describe(failure: &SimFailure) -> String {
    failure.to_string()
}

struct Story {
    scenario: Scenario,
    began: Moment,
    rng: Rng,
    counters: Arc<Counters>,
    ledger: Ledger,
    summary: Summary,
    narrative: Vec<String>,
    wrong: Vec<String>,
    /// Damage was done: errors may say so.
    spoilt: bool,
    /// Where the archive, backups and restored databases are.
    shelf: Arc<Shelf>,
    /// Where the backup ended, if one was taken.
    backup: Option<Lsn>,
    /// The clock on the wall, whenever a transaction had ended.
    moments: Vec<u64>,
    /// The archive may lack log.
    gaps: bool,
    /// The cache's device was lost: the next opening that succeeds goes without.
    cache_lost: bool,
    /// What was written below DRAM.
    shadow: Shadow,
    /// The table that comes and goes.
    scratch: Scratch,
}

impl Story {
    fn new(scenario: Scenario) -> Story {
        Story {
            began: clock::now(),
            rng: Rng::new(scenario.seed),
            counters: Arc::default(),
            ledger: Ledger::new(scenario.clients as usize),
            summary: Summary::default(),
            narrative: Vec::new(),
            wrong: Vec::new(),
            spoilt: false,
            shelf: Arc::new(Shelf::new()),
            backup: None,
            moments: Vec::new(),
            gaps: scenario.array.archive.is_none_or(|archive| archive.limit < 16 << 20)
                || scenario.may_leave_gaps(),
            cache_lost: false,
            shadow: Shadow::default(),
            scratch: Scratch::default(),
            scenario,
        }
    }

    fn verdict(mut self) -> Verdict {
        self.judge_pages();
        self.summary.pages_compared = self.shadow.compared();
        self.summary.bases_judged = self.shadow.bases_judged();
        let (committed, aborted, lost, there) = self.ledger.counts();
        let summary = Summary { committed, aborted, unknown: [lost, there], ..self.summary };
        Verdict { summary, narrative: self.narrative, wrong: self.wrong }
    }

    fn say(&mut self, sentence: impl Into<String>) {
        let time = clock::now().since(self.began);
        self.narrative.push(format!("{:>12.6} s  {}", time.as_secs_f64(), sentence.into()));
    }

    fn accuse(&mut self, sentence: String) {
        self.say(format!("WRONG: {sentence}"));
        self.wrong.push(sentence);
    }

    /// Whether an error may be: of damage only after damage, of failure only after a fault or a
    /// cut.
    fn judge_error(&mut self, doing: &str, error: &Error, excused: bool) {
        let sentence = error.to_string().replace(&*self.shelf.place("").to_string_lossy(), "");
        self.say(format!("{doing}: {sentence}"));
        let bad = match error.kind() {
            ErrorKind::Damaged => !self.spoilt,
            // Damage that was met poisons a database.
            ErrorKind::Failed | ErrorKind::Unknown | ErrorKind::Closed => !excused && !self.spoilt,
            // Log devices whose power is off are too few.
            ErrorKind::Unusable => !excused,
            // An archive knows more than a log whose device has lied.
            ErrorKind::BadArgument => !self.spoilt,
            ErrorKind::Full | ErrorKind::Conflict | ErrorKind::Deadlock | ErrorKind::Timeout => false,
            _ => true,
        };
        if bad {
            self.accuse(format!("{doing}: {sentence}"));
        }
    }

    /// What was seen of stale pages. What a device has lost on purpose may be older.
    fn judge_pages(&mut self) {
        for fault in self.shadow.take_faults() {
            if self.spoilt {
                self.say(fault);
            } else {
                self.accuse(fault);
            }
        }
    }

    /// The options, on this machine.
    fn options(&self, machine: &Machine) -> Options {
        let shadow = self.shadow.clone();
        let options = self.scenario.options().cache(|cache| cache.give_up(self.cache_lost));
        let late_shadows = self.scenario.canary == Some(Canary::LateShadows);
        machine.with_archive(options.wrap_tier(move |tier| shadow.watch(tier, late_shadows)), &self.shelf)
    }

    fn tell(&mut self) {
        let Some(mut contents) = self.create() else { return };
        for (number, round) in self.scenario.rounds.clone().into_iter().enumerate() {
            self.say(format!("round {number}"));
            let backup = self.scenario.array.backup == Some(number);
            self.shadow.be_lenient(backup);
            match self.round(&round, contents, backup) {
                Some(left) => contents = left,
                None => return,
            }
            self.judge_pages();
            if let Some(device) = round.array.lost_device {
                self.say(format!("log device {device} is lost"));
                contents[1 + device].clear();
            }
        }
        self.say("the last opening, on healthy devices");
        let machine = Machine::switched_on(&self.scenario, contents, &mut self.rng);
        if let Opened::Yes(db, _) = self.open(&machine) {
            self.check(&db);
            if let Err(error) = db.close() {
                self.judge_error("the last close", &error, false);
            }
            self.restore();
            self.judge_history();
        } else if !self.spoilt {
            self.accuse("it does not open on healthy devices".to_owned());
        }
    }

    /// Creates the database, on devices without faults.
    fn create(&mut self) -> Option<Vec<Vec<u8>>> {
        let machine = Machine::switched_on(&self.scenario, Machine::blank(&self.scenario), &mut self.rng);
        let created = self.options(&machine).create_on(machine.devices_of_a_new_database());
        let made = created.and_then(|db| Tables::open(&db).map(|_| db)).and_then(Database::close);
        if let Err(error) = made {
            self.accuse(format!("creating it: {error}"));
            return None;
        }
        Some(machine.cut(Survival::None, &mut self.rng))
    }

    /// One round; what is left on the devices, unless the run is over.
    fn round(&mut self, round: &Round, contents: Vec<Vec<u8>>, backup: bool) -> Option<Vec<Vec<u8>>> {
        let mut contents = contents;
        for _ in 0..round.openings_without_archive() {
            contents = self.opening_without_archive(contents);
        }
        if let Some((after, survival)) = round.cut_in_recovery {
            contents = self.interrupted_opening(contents, after, survival);
        }
        let machine = Machine::switched_on(&self.scenario, contents, &mut self.rng);
        if let Some(log) = round.chores.read_only_log {
            self.say(format!("log device {log} refuses writes"));
            machine.trouble(log_device_fails(log, Calls::Writes));
        }
        let (db, tables) = match self.open(&machine) {
            Opened::Yes(db, tables) => (db, tables),
            Opened::No => return Some(machine.cut(Survival::Any, &mut self.rng)),
            Opened::Damaged => {
                self.summary.damaged = true;
                return None;
            }
        };
        let may_lose = self.replace_lost_store_device(&db, &machine);
        let transient = self.spoilt;
        for trouble in &round.troubles {
            machine.trouble(trouble.rule.clone());
            self.spoilt |= trouble.severity == Severity::Detected;
        }
        round.array.troubles.iter().for_each(|(_, rule)| machine.trouble_archive(rule.clone()));
        let backup = backup.then(|| self.back_up(&db));
        let mut left = self.work(round, &machine, db, tables);
        // The last request of the log has nothing behind it that says it was durable: a loss there
        // that raises no error cannot be detected (`docs/fault-model.md`, the window that the seal
        // leaves).
        let spared = round.rot.map_or(0..0, |(device, _)| machine.newest(device));
        if let Some(backup) = backup {
            self.backup = backup.join().expect("a backup does not panic");
            self.say(match self.backup {
                Some(end) => format!("a backup was taken, which ended at LSN {end}"),
                None => "no backup was taken".to_owned(),
            });
        }
        self.summary.faults += machine.faults_met();
        // A read spoilt once has spoilt nothing that is stored.
        self.spoilt = transient || round.troubles.iter().any(|trouble| trouble.lasting);
        if round.cache_lost && !self.spoilt {
            // Behind superblock, log devices and store.
            left[self.scenario.log_devices + 2].clear();
            self.cache_lost = true;
            self.say("the cache's device is lost");
        }
        if may_lose && round.troubles.is_empty() && machine.faults_met() == 0 && self.rng.one_in(2) {
            let member = self.rng.below(1 + self.scenario.store.others() as u64) as usize;
            left[machine.place_of_store(member)].clear();
            self.say(format!("device {member} of the store is lost"));
        }
        let Some((device, bits)) = round.rot else { return Some(left) };
        let dark = Machine::switched_on(&self.scenario, left, &mut self.rng);
        let sentence = dark.rot(device, bits, &spared, &mut self.rng);
        self.say(sentence);
        self.spoilt = true;
        Some(dark.cut(Survival::None, &mut self.rng))
    }

    /// Puts a device into the place of one that the store has lost, or not. Whether any may be lost
    /// when the round is over.
    fn replace_lost_store_device(&mut self, db: &Database, machine: &Machine) -> bool {
        let Some(array) = db.store_array() else { return false };
        let first = |state| array.devices.iter().find(|device| device.state == state);
        let lost = first(StoreMemberState::Lost).filter(|_| first(StoreMemberState::Filling).is_none());
        if let Some(lost) = lost.filter(|_| self.rng.one_in(2)) {
            let member = lost.member;
            match db.replace_store_device_on(member, machine.store(member)) {
                Ok(()) => self.say(format!("device {member} of the store is replaced")),
                Err(error) => self.judge_error("replacing a device of the store", &error, false),
            }
        }
        array.may_lose > 0
    }

    /// Restores states since the backup, and compares.
    fn restore(&mut self) {
        let Some(from) = self.backup.filter(|_| !self.spoilt) else { return };
        for what in self.scenario.array.restores.clone() {
            let restoring = Restoring {
                scenario: &self.scenario,
                shelf: &self.shelf,
                journal: self.ledger.journal(),
                lists: self.ledger.lists(),
                from,
                gaps: self.gaps,
                moments: &self.moments,
            };
            match restoring.restore(what, &mut self.rng) {
                Restored::Well(sentence) => {
                    self.summary.restored += 1;
                    self.say(sentence);
                }
                Restored::Lacking(sentence) => self.say(sentence),
                Restored::Wrong(sentence) => self.accuse(sentence),
                Restored::Nothing => self.say(format!("{what:?} cannot be restored: there was none")),
            }
        }
    }

    fn check(&mut self, db: &Database) {
        match db.check(&mut |_| {}) {
            Ok(report) if report.is_clean() => {}
            Ok(report) if self.spoilt => self.say(format!("check: {:?}", report.damage)),
            Ok(report) => self.accuse(format!("check: {:?}", report.damage)),
            Err(error) => self.judge_error("check", &error, false),
        }
        for name in db.table_names() {
            match db.table(&name).and_then(|table| db.table_statistics(&table)) {
                Ok(found) => self.summary.analyzed += u64::from(found.is_some()),
                Err(error) => self.judge_error("reading statistics", &error, self.spoilt),
            }
        }
    }

    fn judge_history(&mut self) {
        use Phenomenon::*;
        let forbidden: &[Phenomenon] = match self.scenario.isolation {
            Isolation::ReadCommitted => &[Internal, LostUpdate, G0, G1a, G1b, G1c],
            Isolation::Snapshot => &[Internal, LostUpdate, G0, G1a, G1b, G1c, GSingle, GNonadjacent],
            Isolation::Serializable => {
                &[Internal, LostUpdate, G0, G1a, G1b, G1c, GSingle, GNonadjacent, G2Item, G2]
            }
        };
        let findings = judge(self.ledger.history(), self.ledger.lists());
        for phenomenon in forbidden {
            if let Some(example) = findings.0.get(phenomenon) {
                self.accuse(format!("{:?} shows {phenomenon:?}: {example}", self.scenario.isolation));
            }
        }
    }
}
