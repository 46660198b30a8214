//! The report of a failed run.

use super::event::Event;
use super::outcome::Report;
use super::state::{Key, Mode, State, Status, Wait};
use std::fmt::Write;
use std::time::Duration;

impl State {
    /// Keeps an event, forgetting the oldest.
    pub fn remember(&mut self, event: Event) {
        if self.options.history == 0 {
            return;
        }
        if self.history.len() >= self.options.history {
            self.history.pop_front();
        }
        self.history.push_back(event);
    }

    /// The state of all threads.
    pub fn report(&self) -> Report {
        let mut names = Names::default();
        Report {
            seed: self.options.seed,
            steps: self.steps,
            virtual_time: Duration::from_nanos(self.now),
            trace_hash: self.hash,
            threads: (0..self.threads.len()).map(|thread| self.describe(thread, &mut names)).collect(),
            history: self.history.iter().map(|event| self.tell(event)).collect(),
        }
    }

    /// A thread's number and name.
    pub fn title(&self, thread: usize) -> String {
        format!("thread {thread} {:?}", self.threads[thread].name)
    }

    fn describe(&self, thread: usize, names: &mut Names) -> String {
        let state = &self.threads[thread];
        let mut line = self.title(thread);
        let at = state.at;
        let _ = match state.status {
            Status::Starting => write!(line, " is being started"),
            Status::Runnable => write!(line, " can run, at {at}"),
            Status::Running => write!(line, " runs, last seen at {at}"),
            Status::Ended => write!(line, " has ended"),
            Status::Blocked(Wait::Time) => write!(line, " sleeps, at {at}"),
            Status::Blocked(Wait::Core) => write!(line, " computes, at {at}"),
            Status::Blocked(Wait::Queue(Key::EndOf(other), _)) => {
                write!(line, " waits for the end of {}, at {at}", self.title(other))
            }
            Status::Blocked(Wait::Queue(Key::Condvar(address), _)) => {
                write!(line, " waits for a notification of condition variable {}, at {at}", names.of(address))
            }
            Status::Blocked(Wait::Queue(Key::Lock(address), mode)) => {
                write!(line, " waits for lock {} ({}), at {at}", names.of(address), adverb(mode))
            }
        };
        for held in &state.held {
            let _ = write!(
                line,
                "; holds lock {} ({}) since {}",
                names.of(held.address),
                adverb(held.mode),
                held.since
            );
        }
        line
    }

    fn tell(&self, event: &Event) -> String {
        match event {
            Event::Point { step, now, thread, action, at } => {
                format!(
                    "{:>12?} step {step} {}: {action:?} at {at}",
                    Duration::from_nanos(*now),
                    self.title(*thread)
                )
            }
            Event::Note { now, thread, text } => {
                format!("{:>12?} {}: {text}", Duration::from_nanos(*now), self.title(*thread))
            }
        }
    }
}

fn adverb(mode: Mode) -> &'static str {
    match mode {
        Mode::Shared => "shared",
        Mode::Exclusive => "exclusively",
    }
}

/// Numbers for addresses in the order of their first mention, since addresses differ from run to
/// run.
#[derive(Default)]
struct Names(Vec<usize>);

impl Names {
    fn of(&mut self, address: usize) -> usize {
        match self.0.iter().position(|known| *known == address) {
            Some(number) => number + 1,
            None => {
                self.0.push(address);
                self.0.len()
            }
        }
    }
}
