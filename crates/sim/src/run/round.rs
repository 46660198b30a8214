//! Clients at work in a round, until it ends with a close, a dropped handle or a power cut.

use super::Story;
use super::beside::{Outcome, set_wall_clock};
use super::power::Switch;
use crate::chores::ChoreError;
use crate::client::{Client, Stop, Tables};
use crate::ledger::Entry;
use crate::machine::Machine;
use crate::medium::Survival;
use crate::scenario::{End, Round};
use firndb::{Database, ErrorKind};
use firndb_base::rng::Rng;
use firndb_base::sync::thread;

impl Story {
    /// Clients at work, until the round's end.
    pub(super) fn work(
        &mut self,
        round: &Round,
        machine: &Machine,
        db: Database,
        tables: Tables,
    ) -> Vec<Vec<u8>> {
        let switch = match round.end {
            End::PowerCut(after, survival) => Some(self.switch(machine, after, survival)),
            End::Close | End::Drop => None,
        };
        let handles = self.start_clients(round, &db, &tables);
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
        self.judge_members(changed, excused);
        for (what, outcome) in done.outcomes {
            match outcome {
                Ok(()) => {}
                Err(ChoreError::Failed(error)) => self.judge_error(what, &error, excused),
                Err(ChoreError::Wrong(sentence)) => self.accuse(format!("{what}: {sentence}")),
            }
        }
        self.summary.renumbered += done.renumbered;
        self.summary.laid_out += db.store_loads().map_or(0, |loads| loads.changes);
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
        self.end(round, machine, db, switch)
    }

    /// Starts the round's clients.
    fn start_clients(
        &mut self,
        round: &Round,
        db: &Database,
        tables: &Tables,
    ) -> Vec<thread::JoinHandle<(Vec<Entry>, Stop)>> {
        (0..self.scenario.clients as usize)
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
            .collect()
    }

    /// What came of the changes of the log's devices.
    fn judge_members(&mut self, changed: Vec<Outcome>, excused: bool) {
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
    }

    /// Ends a round: closes the database, drops its handle, or waits until the power fails. What is
    /// left on the devices.
    fn end(
        &mut self,
        round: &Round,
        machine: &Machine,
        db: Database,
        switch: Option<Switch>,
    ) -> Vec<Vec<u8>> {
        match round.end {
            End::Close => {
                machine.heal();
                if let Err(error) = db.close() {
                    self.judge_error("closing it", &error, machine.faults_met() > 0);
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
}
