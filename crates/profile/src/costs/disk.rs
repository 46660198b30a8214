//! Disks: a short walk of the arms.

use super::draws::Draws;
use super::{Access, DeviceCosts, Order, Submission, Work};
use crate::arms::{Arms, DiskRequest};
use crate::model::Mechanics;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Requests of a walk, at least; a third of them comes before what is counted.
const REQUESTS: u32 = 2048;
/// The same if they ascend: a turn that is missed now and then is most of what they cost.
const REQUESTS_ASCENDING: u32 = 4096;
/// The same of small ones that follow each other, at most.
const REQUESTS_SEQUENTIAL: u64 = 8192;
/// Rounds of the depth in a walk, at least.
const ROUNDS: u32 = 48;

/// Offsets in the order that the work states.
struct Offsets {
    work: Work,
    draws: Draws,
    next: u64,
}

impl Offsets {
    fn new(work: &Work) -> Offsets {
        Offsets { work: *work, draws: Draws::default(), next: 0 }
    }

    fn next(&mut self) -> u64 {
        let Work { bytes, span_bytes, .. } = self.work;
        let places = (span_bytes / bytes).max(1);
        let place = match self.work.order {
            Order::Random => (self.draws.unit() * places as f64) as u64,
            Order::Sequential => self.next,
            Order::Ascending { gap_bytes } => {
                let skipped = gap_bytes as f64 / (gap_bytes + bytes) as f64;
                let skips = if skipped > 0.0 { (1.0 - self.draws.unit()).ln() / skipped.ln() } else { 0.0 };
                self.next + skips.min(places as f64) as u64
            }
        } % places;
        self.next = place + 1;
        place * bytes
    }
}

impl DeviceCosts {
    /// Mean time from one completion to the next.
    pub(super) fn disk_us(&self, mechanics: &Mechanics, work: &Work) -> f64 {
        let link_ns = (self.link_us(work) * 1000.0).round() as u64;
        let mut arms = Linked { arms: Arms::new(mechanics, self.capacity_bytes), link_ns, free_at: 0 };
        let mut offsets = Offsets::new(work);
        let least = match work.order {
            Order::Random => REQUESTS,
            Order::Ascending { .. } => REQUESTS_ASCENDING,
            // Three times over all disks of an array: they read ahead from the second time on.
            Order::Sequential => {
                let rounds = 3 * mechanics.stripe_bytes * u64::from(mechanics.spindles) / work.bytes;
                REQUESTS.max(rounds.min(REQUESTS_SEQUENTIAL) as u32)
            }
        };
        let requests = least.max(ROUNDS.saturating_mul(work.depth));
        let ns = match work.submission {
            Submission::Steady => steady_ns(&mut arms, &mut offsets, requests),
            Submission::Batches => batches_ns(&mut arms, &mut offsets, requests),
        };
        let late = self.outliers(work).map(|rule| rule.share * (rule.from_us + rule.to_us) / 2.0);
        ns / 1000.0 + late.sum::<f64>()
    }
}

/// The disks behind a link that requests pass one after another.
struct Linked {
    arms: Arms,
    link_ns: u64,
    free_at: u64,
}

impl Linked {
    /// The completion of a request that is submitted at `now`.
    fn serve(&mut self, now: u64, work: &Work, offset: u64, swept: bool) -> u64 {
        let request = DiskRequest { offset, bytes: work.bytes, reads: work.access == Access::Read };
        let service = self.arms.serve(now, &request, swept);
        self.free_at = self.free_at.max(service.start) + self.link_ns;
        service.end.max(self.free_at)
    }
}

/// `depth` outstanding at any time.
fn steady_ns(arms: &mut Linked, offsets: &mut Offsets, requests: u32) -> f64 {
    let work = offsets.work;
    let mut ends: BinaryHeap<Reverse<u64>> = (0..u64::from(work.depth)).map(Reverse).collect();
    let (mut began, mut last) = (0, 0);
    for i in 0..requests {
        let Some(Reverse(now)) = ends.pop() else { break };
        if i == requests / 3 {
            began = now;
        }
        last = now;
        ends.push(Reverse(arms.serve(now, &work, offsets.next(), false)));
    }
    (last - began) as f64 / f64::from(requests - requests / 3 - 1)
}

/// `depth` at once, then the next.
fn batches_ns(arms: &mut Linked, offsets: &mut Offsets, requests: u32) -> f64 {
    let work = offsets.work;
    let batches = requests.div_ceil(work.depth);
    let (mut now, mut began) = (0, 0);
    for i in 0..batches {
        if i == batches / 3 {
            began = now;
        }
        let batch: Vec<u64> = (0..work.depth).map(|_| offsets.next()).collect();
        let mut end = now;
        for at in arms.arms.elevator(&batch) {
            end = end.max(arms.serve(now, &work, batch[at], batch.len() > 1));
        }
        now = end;
    }
    (now - began) as f64 / f64::from(batches - batches / 3) / f64::from(work.depth)
}
