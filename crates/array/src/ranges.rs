//! Ranges of the file above that threads write or mend.
//!
//! A thread takes all ranges of a call at once, and waits while another one has any byte of them,
//! or came earlier and waits for any. So nothing is written to a place while it is rebuilt or
//! scrubbed, copies of metadata are not mended with what is being replaced, and a thread that wants
//! everything gets it, however many others there are.

use crate::ranks;
use firndb_base::sync::{Condvar, Mutex, RankHold};
use std::ops::Range;

/// The ranges that are taken.
#[derive(Debug)]
pub(crate) struct Ranges {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    taken: Vec<Range<u64>>,
    /// Of threads that wait, in the order in which they came, each with its number.
    waiting: Vec<(u64, Vec<Range<u64>>)>,
    /// Threads that have waited so far.
    came: u64,
}

/// Ranges that the calling thread has until this is dropped.
pub(crate) struct Taken<'a> {
    ranges: &'a Ranges,
    own: Vec<Range<u64>>,
    _hold: RankHold,
}

impl State {
    /// Whether any of these is taken, or wanted by a thread before number `own`.
    fn is_barred(&self, ranges: &[Range<u64>], own: u64) -> bool {
        let earlier = self.waiting.iter().take_while(|(number, _)| *number < own);
        let others = self.taken.iter().chain(earlier.flat_map(|(_, wanted)| wanted));
        let overlap = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
        others.into_iter().any(|other| ranges.iter().any(|own| overlap(own, other)))
    }

    fn give_back(&mut self, own: &Range<u64>) {
        let at = self.taken.iter().position(|range| range == own).expect("it was taken");
        self.taken.swap_remove(at);
    }
}

impl Ranges {
    pub(crate) fn new() -> Ranges {
        Ranges { state: ranks::RANGES.mutex(State::default()), freed: Condvar::new() }
    }

    /// As [`Ranges::take`], for one range.
    pub(crate) fn take_one(&self, own: Range<u64>) -> Taken<'_> {
        self.take(Vec::from([own]))
    }

    /// Waits until no other thread has any byte of these, which do not overlap.
    pub(crate) fn take(&self, own: Vec<Range<u64>>) -> Taken<'_> {
        let hold = ranks::RANGE.hold(std::ptr::from_ref(&self.freed).addr());
        let mut state = self.state.lock();
        if state.is_barred(&own, u64::MAX) {
            state.came += 1;
            let number = state.came;
            state.waiting.push((number, own.clone()));
            while state.is_barred(&own, number) {
                self.freed.wait(&mut state);
            }
            state.waiting.retain(|(waiting, _)| *waiting != number);
        }
        state.taken.extend(own.iter().cloned());
        Taken { ranges: self, own, _hold: hold }
    }
}

impl Taken<'_> {
    /// Takes one more range, unless another thread has any byte of it or waits for one: this thread
    /// does not wait for it, since a thread that wants both would have to wait for this one.
    pub(crate) fn try_take_one(&mut self, range: Range<u64>) -> bool {
        let mut state = self.ranges.state.lock();
        let wanted = [range];
        let is_free = !state.is_barred(&wanted, u64::MAX);
        if is_free {
            let [range] = wanted;
            state.taken.push(range.clone());
            self.own.push(range);
        }
        is_free
    }

    /// Gives one of its ranges back.
    pub(crate) fn give_back(&mut self, range: &Range<u64>) {
        let mut state = self.ranges.state.lock();
        let own = self.own.iter().position(|own| own == range).expect("it has it");
        let range = self.own.swap_remove(own);
        state.give_back(&range);
        drop(state);
        self.ranges.freed.notify_all();
    }
}

#[cfg(test)]
impl Ranges {
    /// Whether a thread waits for a range.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.state.lock().waiting.is_empty()
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut state = self.ranges.state.lock();
        for own in &self.own {
            state.give_back(own);
        }
        drop(state);
        self.ranges.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::sync::Arc;
    use std::sync::Mutex as StdMutex;

    #[test]
    fn a_thread_that_wants_everything_is_not_passed_over() {
        let (ranges, order) = (Arc::new(Ranges::new()), Arc::new(StdMutex::new(Vec::new())));
        let held = ranges.take_one(0..1);
        let take = |name: &'static str, own: Range<u64>| {
            let (other, order) = (ranges.clone(), order.clone());
            let waiting = ranges.state.lock().waiting.len();
            let thread = std::thread::spawn(move || {
                let taken = other.take_one(own);
                order.lock().unwrap().push(name);
                drop(taken);
            });
            while ranges.state.lock().waiting.len() == waiting {
                std::thread::yield_now();
            }
            thread
        };
        // Nothing that the last one wants is taken.
        let threads = [take("everything", 0..u64::MAX), take("a part", 5..6)];
        assert!(order.lock().unwrap().is_empty());
        drop(held);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["everything", "a part"]);
        assert!(ranges.state.lock().taken.is_empty());
    }
}
