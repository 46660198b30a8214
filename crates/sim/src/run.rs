//! One seed: rounds of clients, faults and power cuts, and what must be true after each.
//!
//! A round opens the database (perhaps the power fails during that), compares it with what the
//! clients know, lets them work, and ends with a close, a dropped handle or a power cut. After the
//! last the devices are healed; then `check` must find nothing, and the whole history of all rounds
//! must hold no phenomenon that its isolation level forbids.

mod opening;

use crate::array::Change;
use crate::chores::{self, ChoreError, Scratch};
use crate::client::{Client, Counters, Stop, Tables};
use crate::ledger::{Entry, Ledger};
use crate::machine::Machine;
use crate::medium::Survival;
use crate::restoring::{Restored, Restoring};
use crate::scenario::{CacheChange, End, Round, Scenario, Severity};
use crate::shadow::Shadow;
use crate::shelf::Shelf;
use firndb::device::{Calls, DeviceErrorKind, Fault, FaultRule, When};
use firndb::{Database, Error, ErrorKind, Isolation, Lsn, Options};
use firndb_base::clock::{self, Moment};
use firndb_base::rng::Rng;
use firndb_base::sim::{self, SimFailure, SimOptions};
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_base::sync::{Arc, Mutex, thread};
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
    /// Pages read below DRAM that were compared with what had been written.
    pub pages_compared: u64,
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
        machine.with_archive(options.wrap_tier(move |tier| shadow.watch(tier)), &self.shelf)
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
        let Some((device, bits)) = round.rot else { return Some(left) };
        let dark = Machine::switched_on(&self.scenario, left, &mut self.rng);
        let sentence = dark.rot(device, bits, &spared, &mut self.rng);
        self.say(sentence);
        self.spoilt = true;
        Some(dark.cut(Survival::None, &mut self.rng))
    }

    /// Switches the power off after a while, from a thread of its own. The returned flag says that
    /// it is off.
    fn switch(&mut self, machine: &Machine, after: Duration, survival: Survival) -> Switch {
        let left = Arc::new(Mutex::new(None));
        let off = Arc::new(AtomicBool::new(false));
        let (machine, for_thread, flag) = (machine.clone(), left.clone(), off.clone());
        let mut rng = Rng::new(self.rng.next_u64());
        let handle = thread::spawn("power", move || {
            clock::sleep(after);
            flag.store(true, Ordering::SeqCst);
            *for_thread.lock() = Some(machine.cut(survival, &mut rng));
        });
        Switch { left, off, handle: handle.expect("a thread") }
    }

    /// Takes a backup while clients work; where it ended, if it did.
    fn back_up(&self, db: &Database) -> thread::JoinHandle<Option<Lsn>> {
        let (db, to) = (db.clone(), self.shelf.place("backup"));
        let body = move || {
            let taken = db.backup(to, &mut |_| std::ops::ControlFlow::Continue(()));
            taken.ok().map(|report| report.end)
        };
        thread::spawn("backup", body).expect("a thread")
    }

    /// Opens the database while its archive is away: that works, or it says that the archive is
    /// needed.
    fn opening_without_archive(&mut self, contents: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
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

    /// Changes the log's devices while clients work.
    fn change_members(
        &self,
        round: &Round,
        machine: &Machine,
        db: &Database,
    ) -> thread::JoinHandle<Vec<Outcome>> {
        let (db, machine) = (db.clone(), machine.clone());
        let (changes, spares) = (round.array.changes.clone(), self.scenario.array.spares as u64);
        let mut rng = Rng::new(self.scenario.seed ^ 0xC4A6);
        let body = move || {
            let mut outcomes = Vec::new();
            for (after, change) in changes {
                clock::sleep(after);
                let spare = machine.spare(rng.below(spares) as usize);
                let members = db.log_array().members;
                let some =
                    members.get(rng.below(members.len().max(1) as u64) as usize).map(|member| member.id);
                let add = || db.add_log_device_on(spare.clone()).map(drop);
                let remove = || match some.map_or(Ok(()), |id| db.remove_log_device(id)) {
                    // It failed, and a checkpoint has dropped it since the look at the members.
                    Err(error)
                        if error.kind() == ErrorKind::NotFound
                            && db.log_array().members.iter().all(|member| Some(member.id) != some) =>
                    {
                        Ok(())
                    }
                    outcome => outcome,
                };
                let outcome = match change {
                    Change::Add => add(),
                    Change::Remove => remove(),
                    Change::Replace => add().and_then(|()| remove()),
                };
                outcomes.push((change, outcome));
            }
            outcomes
        };
        thread::spawn("operator", body).expect("a thread")
    }

    fn interrupted_opening(
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

    /// Clients at work, until the round's end.
    fn work(&mut self, round: &Round, machine: &Machine, db: Database, tables: Tables) -> Vec<Vec<u8>> {
        let switch = match round.end {
            End::PowerCut(after, survival) => Some(self.switch(machine, after, survival)),
            End::Close | End::Drop => None,
        };
        let handles: Vec<_> = (0..self.scenario.clients as usize)
            .map(|client| {
                let client = Client {
                    client,
                    db: db.clone(),
                    tables: tables.clone(),
                    counters: self.counters.clone(),
                    isolation: self.scenario.isolation,
                    keys: self.scenario.keys,
                    pause: self.scenario.pause,
                };
                let (count, mut rng) = (round.transactions, Rng::new(self.rng.next_u64()));
                let name = format!("client-{}", client.client);
                thread::spawn(&name, move || client.run(count, &mut rng)).expect("a thread")
            })
            .collect();
        let clock = set_wall_clock(round);
        let chores = self.chores(round, machine, &db, &tables);
        let changes = self.change_cache(round, machine, &db);
        let operator = self.change_members(round, machine, &db);
        let ended: Vec<(Vec<Entry>, Stop)> =
            handles.into_iter().map(|handle| handle.join().expect("a client does not panic")).collect();
        let changed = operator.join().expect("the operator does not panic");
        let done = chores.finish();
        clock.join().expect("nothing panics");
        let excused = machine.faults_met() > 0 || switch.as_ref().is_some_and(Switch::is_off);
        for (change, outcome) in changed {
            match outcome {
                Ok(()) => self.say(format!("log devices: {change:?}")),
                // It is a member already, or the last one.
                Err(error) if error.kind() == ErrorKind::BadArgument => {
                    self.say(format!("log devices: {change:?} was refused: {error}"));
                }
                Err(error) => self.judge_error(&format!("log devices: {change:?}"), &error, excused),
            }
        }
        for (what, outcome) in done.outcomes {
            match outcome {
                Ok(()) => {}
                Err(ChoreError::Failed(error)) => self.judge_error(what, &error, excused),
                Err(ChoreError::Wrong(sentence)) => self.accuse(format!("{what}: {sentence}")),
            }
        }
        self.scratch = done.scratch.unwrap_or_else(|| std::mem::take(&mut self.scratch));
        let holds = self.scenario.log_bytes_each * self.scenario.log_devices as u64;
        self.summary.laps += db.statistics().log.written_bytes as f64 / holds as f64;
        if let Some(archive) = db.archive_statistics() {
            self.gaps |= !archive.gaps.is_empty();
        }
        for (client, (entries, stop)) in ended.into_iter().enumerate() {
            self.moments.extend(entries.iter().map(|entry| entry.when_us));
            entries.into_iter().for_each(|entry| self.ledger.add(entry));
            match stop {
                Stop::Done => {}
                Stop::Refused(error) => self.judge_error(&format!("client {client}"), &error, excused),
                Stop::Wrong(sentence) => self.accuse(format!("client {client}: {sentence}")),
            }
        }
        let changes = changes.join().expect("nothing panics");
        let excused = machine.faults_met() > 0 || switch.as_ref().is_some_and(Switch::is_off);
        for (what, outcome) in changes {
            match outcome {
                Ok(()) => self.say(format!("{what}: done")),
                Err(error) => self.judge_error(&what, &error, excused),
            }
        }
        drop(tables);
        let excused =
            |switch: &Option<Switch>| machine.faults_met() > 0 || switch.as_ref().is_some_and(Switch::is_off);
        match round.end {
            End::Close => {
                machine.heal();
                if let Err(error) = db.close() {
                    let excused = excused(&switch);
                    self.judge_error("closing it", &error, excused);
                }
                machine.cut(Survival::Any, &mut self.rng)
            }
            End::Drop => {
                drop(db);
                machine.cut(Survival::Any, &mut self.rng)
            }
            End::PowerCut(..) => {
                let switch = switch.expect("set up above");
                // The background threads go on until the power fails.
                let left = switch.wait();
                drop(db);
                self.summary.cuts += 1;
                self.say("the power failed");
                left
            }
        }
    }

    /// Does beside the clients what the round asks for, in threads of its own.
    fn chores(&mut self, round: &Round, machine: &Machine, db: &Database, tables: &Tables) -> Chores {
        let (steps, rows) = (round.chores.scratch_steps, round.chores.scratch_rows);
        let churn = (steps > 0).then(|| {
            // A generator of its own: a seed without chores is what it was before there were any.
            let mut rng = Rng::new(self.scenario.seed ^ (self.summary.recoveries << 32));
            let (mut scratch, db) = (self.scratch.clone(), db.clone());
            let body = move || {
                let outcome = scratch.work(&db, steps, rows, &mut rng);
                (scratch, outcome)
            };
            thread::spawn("chores", body).expect("a thread")
        });
        let ended = Arc::new(AtomicBool::new(false));
        let hold = round.chores.long_snapshot.then(|| {
            let (db, tables, keys, ended) = (db.clone(), tables.clone(), self.scenario.keys, ended.clone());
            let body = move || chores::hold_a_snapshot(&db, &tables, keys, &ended);
            thread::spawn("snapshot", body).expect("a thread")
        });
        let fail = round.chores.two_devices_fail.map(|(after, logs)| {
            let machine = machine.clone();
            let body = move || {
                clock::sleep(after);
                logs.into_iter().for_each(|log| machine.trouble(log_device_fails(log, Calls::Any)));
            };
            thread::spawn("failures", body).expect("a thread")
        });
        Chores { churn, hold, fail, ended }
    }

    /// Does to the flash cache what the round asks for, in a thread of its own; returns what came
    /// of it.
    fn change_cache(
        &mut self,
        round: &Round,
        machine: &Machine,
        db: &Database,
    ) -> thread::JoinHandle<Vec<(String, Result<(), Error>)>> {
        let (changes, page_size) = (round.cache_changes.clone(), self.scenario.page_size);
        let (db, machine) = (db.clone(), machine.clone());
        let work = move || {
            let mut outcomes = Vec::new();
            for (after, change) in changes {
                clock::sleep(after);
                let there = db.cache_status().is_some();
                let outcome = match change {
                    CacheChange::Attach(_) if there => continue,
                    CacheChange::Detach | CacheChange::Resize(_) if !there => continue,
                    CacheChange::Attach(setup) => {
                        let device = machine.devices().cache.expect("the scenario has a cache");
                        db.attach_cache_on(device, &setup.spec(page_size))
                    }
                    CacheChange::Detach => db.detach_cache(&mut |_| {}),
                    CacheChange::Resize(pages) => db.resize_cache(pages * page_size as u64, &mut |_| {}),
                };
                let nothing_changed = match &outcome {
                    Err(error) => match error.kind() {
                        // Too small for its groups.
                        ErrorKind::BadArgument => true,
                        // It was lost, and a checkpoint has dropped it since the look at its
                        // status.
                        ErrorKind::NotFound => db.cache_status().is_none(),
                        _ => false,
                    },
                    Ok(()) => false,
                };
                if !nothing_changed {
                    outcomes.push((format!("{change:?}"), outcome));
                }
            }
            outcomes
        };
        thread::spawn("cache", work).expect("a thread")
    }

    fn check(&mut self, db: &Database) {
        match db.check(&mut |_| {}) {
            Ok(report) if report.is_clean() => {}
            Ok(report) if self.spoilt => self.say(format!("check: {:?}", report.damage)),
            Ok(report) => self.accuse(format!("check: {:?}", report.damage)),
            Err(error) => self.judge_error("check", &error, false),
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

/// A log device of which every call of a kind fails from now on.
fn log_device_fails(log: usize, calls: Calls) -> FaultRule {
    let fault = Fault::Fail(DeviceErrorKind::Failed);
    FaultRule { calls, device: Some(format!("log.{log}")), when: When::From(0), fault }
}

/// Sets the clock on the wall while clients work.
fn set_wall_clock(round: &Round) -> thread::JoinHandle<()> {
    let times = round.array.clock.clone();
    let body = move || {
        for (after, by_us) in times {
            clock::sleep(after);
            sim::set_wall_clock(by_us);
        }
    };
    thread::spawn("clock", body).expect("a thread")
}

/// How a change of the log's devices ended.
type Outcome = (Change, Result<(), Error>);

/// What is done beside the clients.
struct Chores {
    churn: Option<thread::JoinHandle<(Scratch, Result<(), ChoreError>)>>,
    hold: Option<thread::JoinHandle<Result<(), ChoreError>>>,
    fail: Option<thread::JoinHandle<()>>,
    ended: Arc<AtomicBool>,
}

/// How the chores of a round ended.
struct ChoresDone {
    scratch: Option<Scratch>,
    outcomes: Vec<(&'static str, Result<(), ChoreError>)>,
}

impl Chores {
    /// The clients have ended: waits for the rest.
    fn finish(self) -> ChoresDone {
        let mut outcomes = Vec::new();
        let scratch = self.churn.map(|churn| {
            let (scratch, churned) = churn.join().expect("it does not panic");
            outcomes.push(("a table that comes and goes", churned));
            scratch
        });
        self.ended.store(true, Ordering::SeqCst);
        if let Some(hold) = self.hold {
            outcomes.push(("a snapshot held", hold.join().expect("it does not panic")));
        }
        if let Some(fail) = self.fail {
            fail.join().expect("it does not panic");
        }
        ChoresDone { scratch, outcomes }
    }
}

/// A power switch that goes off by itself.
struct Switch {
    left: Arc<Mutex<Option<Vec<Vec<u8>>>>>,
    off: Arc<AtomicBool>,
    handle: thread::JoinHandle<()>,
}

impl Switch {
    fn is_off(&self) -> bool {
        self.off.load(Ordering::SeqCst)
    }

    /// Waits for it; what is left on the devices.
    fn wait(self) -> Vec<Vec<u8>> {
        self.handle.join().expect("the switch does not panic");
        self.left.lock().take().expect("the power is off")
    }
}
