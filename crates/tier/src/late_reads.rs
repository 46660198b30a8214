//! Which reads of a device are late, so that they are worth a second request.
//!
//! A device serves requests about in the order in which they came. So a read's turn has come when a
//! later one is complete, or when it is the oldest under way; from then on it should take no longer
//! than a few reads that have the device to themselves. Where it does (network volumes with a spike
//! now and then, drives that collect garbage), the same read is begun again, and whichever comes
//! first counts.
//!
//! Bounds: a second request for one in [`READS_A_COPY`] reads at most. Each in vain doubles the
//! patience with the next, each that was not halves it: a device that only serves requests in
//! another order, as a disk does, is soon left alone.
//!
//! Locks: a leaf.

use crate::ranks;
use firndb_base::clock::Moment;
use firndb_base::sync::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Reads that complete for each second request that may be made.
const READS_A_COPY: u32 = 32;
/// Second requests that may be saved up.
const COPIES_SAVED: u32 = 8;
/// A read is late after this many times what one alone takes, at first and at most.
const PATIENCE: (u32, u32) = (4, 4096);
/// It is not late before: such differences are the machine's.
const LATE_MIN: Duration = Duration::from_micros(200);
/// Bytes for which a read may take as long again as a small one.
const BYTES_ALIKE: usize = 32 << 10;
/// Reads of at most this size tell what a read alone takes.
const SMALL_BYTES: usize = 16 << 10;
/// That time rises by this part with each read, so that it follows the device.
const FORGETTING: u32 = 128;

/// The reads of one device, in the order in which they were begun.
#[derive(Debug)]
pub(crate) struct LateReads {
    order: Mutex<Order>,
    /// Otherwise no read is ever late.
    are_hidden: bool,
}

#[derive(Debug)]
struct Order {
    /// Number of the next read.
    next: u64,
    /// Reads under way, and since when each one's turn has come.
    under_way: BTreeMap<u64, Option<Moment>>,
    /// Reads below this number have been overtaken, or are complete.
    passed: u64,
    /// What a read alone takes, about; `None` until one is complete.
    alone: Option<Duration>,
    patience: u32,
    /// Reads complete that were not used up by second requests.
    credit: u32,
}

/// What is to be done about a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lateness {
    /// It may be late at this moment: to be asked for again then.
    LookAt(Moment),
    /// It is to be begun again, now.
    Late,
    /// That is not known.
    Unknown,
}

impl LateReads {
    /// Where late reads are not to be hidden, none is late.
    pub(crate) fn new(are_hidden: bool) -> LateReads {
        LateReads {
            are_hidden,
            order: ranks::LATE_READS.mutex(Order {
                next: 0,
                under_way: BTreeMap::new(),
                passed: 0,
                alone: None,
                patience: PATIENCE.0,
                credit: 0,
            }),
        }
    }

    /// A read is begun now; returns its number.
    pub(crate) fn begin(&self, now: Moment) -> u64 {
        let mut order = self.order.lock();
        let number = order.next;
        order.next += 1;
        let turn = order.under_way.is_empty().then_some(now);
        order.under_way.insert(number, turn);
        number
    }

    /// A read of `len` bytes that began at `begun` is complete.
    pub(crate) fn complete(&self, number: u64, len: usize, begun: Moment, now: Moment) {
        let mut order = self.order.lock();
        let passed = order.passed;
        if number > passed {
            order.under_way.range_mut(passed..number).for_each(|(_, turn)| _ = turn.get_or_insert(now));
            order.passed = number;
        }
        let was_there = order.under_way.remove(&number);
        assert!(was_there.is_some(), "a read is complete once");
        if let Some(mut oldest) = order.under_way.first_entry() {
            oldest.get_mut().get_or_insert(now);
        }
        let took = now.since(begun);
        if len <= SMALL_BYTES && !took.is_zero() {
            let alone = order.alone.map_or(took, |alone| (alone + alone / FORGETTING).min(took));
            order.alone = Some(alone);
        }
        order.credit = (order.credit + 1).min(READS_A_COPY * COPIES_SAVED);
    }

    /// From when on a read is late, which may have passed; `None` if that is not known.
    pub(crate) fn late_at(&self, number: u64, len: usize, now: Moment) -> Option<Moment> {
        let order = self.order.lock();
        order.late_at(number, self.allowed(&order, len)?, now)
    }

    /// Whether a read is late. One that is has its copy paid for.
    pub(crate) fn judge(&self, number: u64, len: usize, now: Moment) -> Lateness {
        let mut order = self.order.lock();
        let Some(allowed) = self.allowed(&order, len) else { return Lateness::Unknown };
        let Some(late_at) = order.late_at(number, allowed, now) else { return Lateness::Unknown };
        if late_at > now {
            return Lateness::LookAt(late_at);
        }
        if order.credit < READS_A_COPY {
            return now.after(allowed).map_or(Lateness::Unknown, Lateness::LookAt);
        }
        order.credit -= READS_A_COPY;
        Lateness::Late
    }

    fn allowed(&self, order: &Order, len: usize) -> Option<Duration> {
        order.allowed(len).filter(|_| self.are_hidden)
    }

    /// A second request came first, or did not.
    pub(crate) fn judged(&self, came_first: bool) {
        let mut order = self.order.lock();
        order.patience = match came_first {
            true => (order.patience / 2).max(PATIENCE.0),
            false => (order.patience * 2).min(PATIENCE.1),
        };
    }
}

impl Order {
    /// How long a read of `len` bytes may take once its turn has come, if that is known.
    fn allowed(&self, len: usize) -> Option<Duration> {
        let allowed = self.alone? * self.patience * (1 + len / BYTES_ALIKE) as u32;
        Some(allowed.max(LATE_MIN))
    }

    fn late_at(&self, number: u64, allowed: Duration, now: Moment) -> Option<Moment> {
        let turn = self.under_way.get(&number).copied().flatten();
        turn.unwrap_or(now).after(allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A read that says nothing of what one alone takes.
    const LONG: usize = 64 << 10;

    fn at(us: u64) -> Moment {
        Moment::from_nanos(us * 1000)
    }

    /// A device on which a read alone takes a millisecond, and which has earned `copies` requests.
    fn known(copies: u32) -> LateReads {
        let late = LateReads::new(true);
        for _ in 0..READS_A_COPY * copies {
            let number = late.begin(at(0));
            late.complete(number, 4096, at(0), at(1000));
        }
        late
    }

    #[test]
    fn a_read_is_late_some_time_after_its_turn_has_come() {
        let late = known(1);
        let [first, second, third] = [(); 3].map(|()| late.begin(at(2000)));
        assert_eq!(late.judge(first, 4096, at(3000)), Lateness::LookAt(at(6000)), "the oldest");
        assert_eq!(late.judge(second, 4096, at(5000)), Lateness::LookAt(at(9000)), "behind the oldest");
        late.complete(third, LONG, at(2000), at(6000));
        assert_eq!(late.judge(second, 4096, at(6000)), Lateness::LookAt(at(10_000)), "overtaken");
        assert_eq!(late.judge(second, LONG, at(10_000)), Lateness::LookAt(at(18_000)), "a long one");
        assert_eq!(late.judge(second, 4096, at(10_000)), Lateness::Late);
        assert!(matches!(late.judge(first, 4096, at(10_000)), Lateness::LookAt(_)), "nothing is left for it");
    }

    #[test]
    fn patience_grows_with_requests_in_vain_and_falls_again() {
        let late = known(8);
        for (came_first, wanted_us) in
            [(false, 8000), (false, 16_000), (true, 8000), (true, 4000), (true, 4000)]
        {
            late.judged(came_first);
            let number = late.begin(at(0));
            assert_eq!(late.judge(number, 4096, at(0)), Lateness::LookAt(at(wanted_us)));
            late.complete(number, LONG, at(0), at(0));
        }
    }

    #[test]
    fn nothing_is_late_on_a_device_of_which_nothing_is_known() {
        let late = LateReads::new(true);
        let number = late.begin(at(0));
        assert_eq!(late.judge(number, 4096, at(1_000_000)), Lateness::Unknown);
    }

    #[test]
    fn nothing_is_late_where_it_is_not_to_be_hidden() {
        let late = LateReads { are_hidden: false, ..known(8) };
        let number = late.begin(at(0));
        assert_eq!(late.late_at(number, 4096, at(1_000_000)), None);
        assert_eq!(late.judge(number, 4096, at(1_000_000)), Lateness::Unknown);
    }
}
