//! What threads of their own do beside the clients: a backup, changes of the log's devices and of
//! the flash cache, chores, failures, and the clock on the wall.

use super::Story;
use crate::array::Change;
use crate::chores::{self, ChoreError, Scratch};
use crate::client::Tables;
use crate::machine::Machine;
use crate::scenario::{CacheChange, Round};
use firndb::device::{Calls, DeviceErrorKind, Fault, FaultRule, When};
use firndb::{CancelToken, Database, Error, ErrorKind, Lsn};
use firndb_base::clock;
use firndb_base::rng::Rng;
use firndb_base::sim;
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_base::sync::{Arc, thread};

impl Story {
    /// Takes a backup while clients work; where it ended, if it did.
    pub(super) fn back_up(&self, db: &Database) -> thread::JoinHandle<Option<Lsn>> {
        let (db, to) = (db.clone(), self.shelf.place("backup"));
        let body = move || {
            let taken = db.backup(to, &mut |_| std::ops::ControlFlow::Continue(()));
            taken.ok().map(|report| report.end)
        };
        thread::spawn("backup", body).expect("a thread")
    }

    /// Changes the log's devices while clients work.
    pub(super) fn change_members(
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

    /// Does beside the clients what the round asks for, in threads of its own.
    pub(super) fn chores(
        &mut self,
        round: &Round,
        machine: &Machine,
        db: &Database,
        tables: &Tables,
    ) -> Chores {
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
        let steps = round.chores.index_steps;
        let cancel = CancelToken::new();
        let build = (steps > 0).then(|| {
            let mut rng = Rng::new(self.scenario.seed ^ 0x14DE_C500 ^ (self.summary.recoveries << 32));
            let (db, rows, cancel) = (db.clone(), tables.rows().clone(), cancel.clone());
            let body = move || chores::build_indexes(&db, &rows, steps, &cancel, &mut rng);
            thread::spawn("indexes", body).expect("a thread")
        });
        let pauses = round.chores.compactions.clone();
        let compact = (!pauses.is_empty()).then(|| {
            let (db, ended) = (db.clone(), ended.clone());
            let body = move || chores::compact(&db, &pauses, &ended);
            thread::spawn("compaction", body).expect("a thread")
        });
        let fail = round.chores.two_devices_fail.map(|(after, logs)| {
            let machine = machine.clone();
            let body = move || {
                clock::sleep(after);
                logs.into_iter().for_each(|log| machine.trouble(log_device_fails(log, Calls::Any)));
            };
            thread::spawn("failures", body).expect("a thread")
        });
        Chores { churn, hold, compact, build, cancel, fail, ended }
    }

    /// Does to the flash cache what the round asks for, in a thread of its own; returns what came
    /// of it.
    pub(super) fn change_cache(
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
}

/// A log device of which every call of a kind fails from now on.
pub(super) fn log_device_fails(log: usize, calls: Calls) -> FaultRule {
    let fault = Fault::Fail(DeviceErrorKind::Failed);
    FaultRule { calls, device: Some(format!("log.{log}")), when: When::From(0), fault }
}

/// Sets the clock on the wall while clients work.
pub(super) fn set_wall_clock(round: &Round) -> thread::JoinHandle<()> {
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
pub(super) type Outcome = (Change, Result<(), Error>);

/// What is done beside the clients.
pub(super) struct Chores {
    churn: Option<thread::JoinHandle<(Scratch, Result<(), ChoreError>)>>,
    hold: Option<thread::JoinHandle<Result<(), ChoreError>>>,
    compact: Option<thread::JoinHandle<Result<u64, ChoreError>>>,
    build: Option<thread::JoinHandle<Result<(), ChoreError>>>,
    /// Of `build`: a transaction that is left prepared would keep it waiting.
    cancel: CancelToken,
    fail: Option<thread::JoinHandle<()>>,
    ended: Arc<AtomicBool>,
}

/// How the chores of a round ended.
pub(super) struct ChoresDone {
    pub(super) scratch: Option<Scratch>,
    pub(super) outcomes: Vec<(&'static str, Result<(), ChoreError>)>,
    /// Pages that compaction gave lower numbers.
    pub(super) renumbered: u64,
}

impl Chores {
    /// The clients have ended: waits for the rest.
    pub(super) fn finish(self) -> ChoresDone {
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
        let mut renumbered = 0;
        if let Some(compact) = self.compact {
            let compacted = compact.join().expect("it does not panic");
            outcomes.push(("compaction", compacted.map(|pages| renumbered = pages)));
        }
        self.cancel.cancel();
        if let Some(build) = self.build {
            outcomes.push(("an index built", build.join().expect("it does not panic")));
        }
        if let Some(fail) = self.fail {
            fail.join().expect("it does not panic");
        }
        ChoresDone { scratch, outcomes, renumbered }
    }
}
