//! Which reads of a device are late, so that they are worth a second request, to the device or to
//! another one that has the same bytes.
//!
//! A device serves requests about in the order in which they came. So a read's turn has come when a
//! later one is complete; and it waits as well while the device completes nothing at all. One that
//! has waited for longer than the *patience* is begun again (a network volume with a spike now and
//! then, a drive that collects garbage or is frozen), and whichever comes first counts.
//!
//! The patience is learned: a second request in vain, since the first read came before it, makes it
//! what that read waited, and each read that comes in time lowers it by one in [`FALLING`]. So it
//! settles where fewer than one read in a hundred is begun again in vain, on a device of any kind;
//! reads that are faster or slower for a time, as those that a drive's own cache serves, are
//! forgotten. Second requests that came first leave it as it is: what they hide is late.
//!
//! Bounds: a second request for one in `READS_A_COPY` reads at most, in the long run
//! ([`CopyBudget`]).
//!
//! Locks: a leaf.

use crate::ranks;
use firndb_base::clock::Moment;
use firndb_base::sync::atomic::{AtomicI64, Ordering};
use firndb_base::sync::{Arc, Mutex};
use std::collections::BTreeMap;
use std::time::Duration;

/// Reads that complete for each second request that may be made.
const READS_A_COPY: i64 = 32;
/// The patience at first, in times of the first read.
const PATIENCE_FIRST: u32 = 2;
/// Each read that completes in time shortens the patience by 1/`FALLING` of it.
const FALLING: u32 = 1024;
/// The patience: below are differences of the machine's, above is no device.
const PATIENCE: (Duration, Duration) = (Duration::from_micros(200), Duration::from_secs(10));
/// Bytes for which a read may take as long again as a small one.
const BYTES_ALIKE: usize = 32 << 10;

/// Limits second requests: `READS_A_COPY` reads that complete pay for one. Several devices may
/// share a budget.
#[derive(Debug)]
pub struct CopyBudget {
    /// Reads that have completed and not paid yet. A second request for many reads may make it
    /// negative.
    credit: AtomicI64,
    most: i64,
}

impl CopyBudget {
    /// An empty budget. Reads that complete fill it, until it pays for `copies` second requests.
    #[must_use]
    pub fn saving(copies: u32) -> CopyBudget {
        CopyBudget { credit: AtomicI64::new(0), most: READS_A_COPY * i64::from(copies) }
    }

    fn earn(&self, reads: u32) {
        let earned = |credit: i64| Some((credit + i64::from(reads)).min(self.most));
        let _ = self.credit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, earned);
    }

    /// Takes the price of second requests for `reads` reads, if the budget has that of at least
    /// one; returns whether the caller may make them.
    fn pay(&self, reads: u32) -> bool {
        let cost = READS_A_COPY * i64::from(reads);
        let paid = |credit: i64| (credit >= READS_A_COPY).then(|| credit - cost);
        self.credit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid).is_ok()
    }
}

/// The reads of one device, in the order in which they were begun.
#[derive(Debug)]
pub struct LateReads {
    order: Mutex<Order>,
    budget: Arc<CopyBudget>,
    /// Otherwise no read is ever late.
    are_hidden: bool,
}

#[derive(Debug)]
struct Order {
    /// Number of the next read.
    next: u64,
    under_way: BTreeMap<u64, UnderWay>,
    /// Reads below this number have been overtaken, or are complete.
    passed: u64,
    /// When one was complete last that was not overtaken.
    last: Moment,
    /// How long a small read may wait; `None` until one is complete.
    patience: Option<Duration>,
}

#[derive(Debug)]
struct UnderWay {
    begun: Moment,
    /// When a later one was complete first.
    overtaken: Option<Moment>,
    /// How many times the patience it may wait, for its length.
    times: u32,
    /// How many reads the budget counts it as.
    reads: u32,
}

/// What is to be done about a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lateness {
    /// It may be late at this moment: to be asked for again then.
    LookAt(Moment),
    /// It is to be begun again, now.
    Late,
    /// That is not known.
    Unknown,
}

impl LateReads {
    /// Where late reads are not to be hidden, none is late.
    #[must_use]
    pub fn new(are_hidden: bool, budget: Arc<CopyBudget>) -> LateReads {
        LateReads {
            are_hidden,
            budget,
            order: ranks::LATE_READS.mutex(Order {
                next: 0,
                under_way: BTreeMap::new(),
                passed: 0,
                last: Moment::ZERO,
                patience: None,
            }),
        }
    }

    /// A read of `len` bytes, which counts as `reads`, is begun now; returns its number.
    #[must_use]
    pub fn begin(&self, len: usize, reads: u32, now: Moment) -> u64 {
        let mut order = self.order.lock();
        let number = order.next;
        order.next += 1;
        let times = u32::try_from(1 + len / BYTES_ALIKE).unwrap_or(u32::MAX);
        order.under_way.insert(number, UnderWay { begun: now, overtaken: None, times, reads });
        number
    }

    /// A read is complete, or its second request is. `in_vain`: it was begun again, and has come
    /// before what was begun then.
    pub fn complete(&self, number: u64, in_vain: bool, now: Moment) {
        let mut order = self.order.lock();
        let read = order.under_way.remove(&number).expect("a read is complete once");
        let waited = now.since(order.turn_of(&read)) / read.times;
        let passed = order.passed;
        if number >= passed {
            order.under_way.range_mut(passed..number).for_each(|(_, it)| _ = it.overtaken.get_or_insert(now));
            order.passed = number;
            // One that was overtaken long ago says nothing of those after it.
            order.last = now;
        }
        order.learn(waited, in_vain);
        drop(order);
        self.budget.earn(read.reads);
    }

    /// From when on a read is late, which may have passed; `None` if that is not known.
    #[must_use]
    pub fn late_at(&self, number: u64) -> Option<Moment> {
        self.order.lock().late_at(number).filter(|_| self.are_hidden)
    }

    /// Whether a read is late. One that is has its second request paid for.
    #[must_use]
    pub fn judge(&self, number: u64, now: Moment) -> Lateness {
        let order = self.order.lock();
        let late_at = order.late_at(number).filter(|_| self.are_hidden);
        let (Some(late_at), Some(patience)) = (late_at, order.patience) else { return Lateness::Unknown };
        if late_at > now {
            return Lateness::LookAt(late_at);
        }
        match self.budget.pay(order.under_way[&number].reads) {
            true => Lateness::Late,
            false => now.after(patience).map_or(Lateness::Unknown, Lateness::LookAt),
        }
    }
}

impl Order {
    /// Since when a read waits.
    fn turn_of(&self, read: &UnderWay) -> Moment {
        read.overtaken.unwrap_or(read.begun.max(self.last))
    }

    fn late_at(&self, number: u64) -> Option<Moment> {
        let read = self.under_way.get(&number)?;
        self.turn_of(read).after(self.patience?.saturating_mul(read.times))
    }

    fn learn(&mut self, waited: Duration, in_vain: bool) {
        let Some(patience) = self.patience else {
            // One that took no time says nothing of the device.
            let first = Some(waited).filter(|waited| !waited.is_zero());
            self.patience = first.map(|first| (first * PATIENCE_FIRST).clamp(PATIENCE.0, PATIENCE.1));
            return;
        };
        let learned = match in_vain {
            true if waited > patience => waited.clamp(patience + patience / 8, 2 * patience),
            false if waited <= patience => patience - patience / FALLING,
            _ => patience,
        };
        self.patience = Some(learned.clamp(PATIENCE.0, PATIENCE.1));
    }
}

#[cfg(test)]
mod tests;
