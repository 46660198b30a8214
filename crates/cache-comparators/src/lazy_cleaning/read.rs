//! Reading pages, those of a batch side by side.

use super::LazyCleaning;
use super::places::Place;
use firndb_base::PageId;
use firndb_device::{Io, IoOp};
use firndb_tier::page_cache::statistics::add;
use firndb_tier::{Found, PageRead, TierError};

/// A page found in a place, which this thread keeps from changing.
struct Pinned {
    /// Index of the read.
    read: usize,
    at: usize,
    place: Place,
}

impl LazyCleaning {
    /// Reads those pages that are in the cache; returns, in ascending order, the indexes of those
    /// that are not, or are clean and cannot be read.
    pub(crate) fn read_cached(&self, reads: &mut [PageRead<'_>]) -> Vec<usize> {
        let (mut left, mut missed) = ((0..reads.len()).collect::<Vec<_>>(), Vec::new());
        while !left.is_empty() {
            left = self.read_round(reads, &left, &mut missed);
        }
        missed.sort_unstable();
        missed
    }

    /// Reads one page; `None` if it is not in the cache, or is clean and cannot be read.
    pub(crate) fn read_page(&self, page: PageId, buf: &mut [u8]) -> Option<Result<Found, TierError>> {
        let outcome = Err(TierError::unset());
        let mut reads = [PageRead { page, buf, outcome }];
        let missed = self.read_cached(&mut reads);
        let [PageRead { outcome, .. }] = reads;
        missed.is_empty().then_some(outcome)
    }

    /// Reads those of `left` that no thread is writing; returns the others. A thread waits only
    /// while it pins nothing: what it waits for may wait for a pinned place.
    fn read_round(&self, reads: &mut [PageRead<'_>], left: &[usize], missed: &mut Vec<usize>) -> Vec<usize> {
        let (mut pinned, mut later) = (Vec::new(), Vec::new());
        {
            let mut state = self.state.lock();
            for &read in left {
                match state.pages.get(&reads[read].page).copied() {
                    None => missed.push(read),
                    Some(at) if state.place(at).moving => later.push(read),
                    Some(at) => {
                        state.touch(at);
                        state.place(at).users += 1;
                        pinned.push(Pinned { read, at, place: *state.place(at) });
                    }
                }
            }
            if pinned.is_empty() && !later.is_empty() {
                self.settled.wait(&mut state);
            }
        }
        let outcomes = self.read_pinned(reads, &pinned);
        let mut state = self.state.lock();
        self.settled.notify_all();
        for (Pinned { read, at, place }, outcome) in pinned.into_iter().zip(outcomes) {
            match outcome {
                Ok(()) => {
                    let Place { version, dirty, base, changes, .. } = place;
                    reads[read].outcome =
                        Ok(Found { dirty, cached: true, base, changes, ..Found::without_base(version) });
                }
                Err(error) if place.dirty => reads[read].outcome = Err(error),
                Err(_) => {
                    // The store has the page: this place is not read any more.
                    add(&self.counters.faults, 1);
                    if state.pages.get(&place.page) == Some(&at) {
                        state.pages.remove(&place.page);
                    }
                    missed.push(read);
                }
            }
            state.release(at);
        }
        later
    }

    /// Reads and verifies pinned places, as one batch.
    fn read_pinned(&self, reads: &mut [PageRead<'_>], pinned: &[Pinned]) -> Vec<Result<(), TierError>> {
        if pinned.is_empty() {
            return Vec::new();
        }
        let mut next = pinned.iter().peekable();
        let mut batch: Vec<Io<'_>> = Vec::with_capacity(pinned.len());
        for (index, read) in reads.iter_mut().enumerate() {
            if let Some(found) = next.next_if(|found| found.read == index) {
                let op = IoOp::Read(&mut *read.buf);
                batch.push(Io { offset: self.offset(found.at), op, outcome: Ok(()) });
            }
        }
        assert_eq!(batch.len(), pinned.len(), "pinned in the order of the reads");
        self.device.submit(&mut batch);
        let outcomes: Vec<_> = batch.into_iter().map(|io| io.outcome).collect();
        let verify = |(found, outcome): (&Pinned, Result<(), _>)| {
            outcome.map_err(TierError::from)?;
            self.verify(&found.place, reads[found.read].buf)
        };
        pinned.iter().zip(outcomes).map(verify).collect()
    }
}
