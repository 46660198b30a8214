//! Reads of pages that complete one by one.
//!
//! As in `read.rs`, each page is looked up before the read and after it. What cannot be settled by
//! one image (a page that moved meanwhile, that looks damaged, or a device's error) is read once
//! more, alone; pages that need their delta page are read as one batch.

use super::read::{Looked, is_damaged, same};
use super::state::{Store, count};
use super::tree_loads::{Operation, UnderWay};
use crate::error::TierError;
use crate::merged_reads::Piece;
use crate::page_reads::PageReads;
use crate::page_tier::{Found, PageRead};
use crate::piece_reads::{Completed, Part, PieceReads, Source};
use firndb_base::PageId;
use std::collections::BTreeMap;

/// What the store keeps of the reads that a thread has under way.
#[derive(Default)]
struct StoreReads {
    /// By their tags.
    pages: BTreeMap<usize, (PageId, Looked, Option<UnderWay>)>,
    pieces: PieceReads,
}

impl Store {
    pub(crate) fn begin_reads(&self, reads: &mut PageReads, pages: &[(usize, PageId)]) {
        if pages.is_empty() {
            return;
        }
        count(&self.counters.pages_read, pages.len());
        reads.begin(pages.len(), self.geometry.page_size);
        let numbers: Vec<PageId> = pages.iter().map(|(_, page)| *page).collect();
        let (looked, pins) = self.look_all(&numbers);
        drop(pins);
        let mut below = take_below(reads);
        let (mut pieces, mut others) = (Vec::with_capacity(pages.len()), Vec::new());
        for (&(tag, page), looked) in pages.iter().zip(looked) {
            match looked {
                Ok(looked) if looked.entry.place().is_some() && looked.slot().is_none() => {
                    let place = looked.entry.place().expect("it has one");
                    let (offset, len) = (self.geometry.place_offset(place), self.geometry.page_size);
                    pieces.push(Piece { offset, len, into: None, tag });
                    let before = below.pages.insert(tag, (page, looked, self.begin(Operation::Read, 1)));
                    assert!(before.is_none(), "a tag names one read");
                }
                _ => others.push((tag, page)),
            }
        }
        pieces.sort_unstable_by_key(|piece| piece.offset);
        let requests = below.pieces.begin(self.source(), &mut reads.bufs, &pieces);
        count(&self.counters.read_requests, requests);
        reads.below = Some(below);
        if !others.is_empty() {
            reads.read_now(self.geometry.page_size, &others, |batch| {
                let under_way = self.begin(Operation::Read, batch.len());
                self.read_placed(batch);
                under_way.iter().for_each(|it| it.count_read(batch));
            });
        }
    }

    pub(crate) fn next_reads(&self, reads: &mut PageReads) -> bool {
        if reads.has_come() || reads.under_way() == 0 {
            return reads.has_come();
        }
        let mut below = take_below(reads);
        let (completed, requests) = below.pieces.next(self.source(), &mut reads.bufs);
        count(&self.counters.read_requests, requests);
        self.settle_read(reads, &mut below, completed.expect("what is under way completes"));
        reads.below = Some(below);
        true
    }

    /// Looks its pages up again, and has them come.
    fn settle_read(&self, reads: &mut PageReads, below: &mut StoreReads, completed: Completed) {
        let Completed { pieces, offset, mut buf, outcome } = completed;
        let mut take = |piece: &Part| below.pages.remove(&piece.tag).expect("its page was begun");
        let begun: Vec<(PageId, Looked, Option<UnderWay>)> = pieces.iter().map(&mut take).collect();
        let pages: Vec<PageId> = begun.iter().map(|(page, ..)| *page).collect();
        let (now, _pins) = self.look_all(&pages);
        let mut settled = Vec::with_capacity(pieces.len());
        for ((piece, (page, looked, under_way)), now) in pieces.iter().zip(begun).zip(now) {
            let from = (piece.offset - offset) as usize;
            let image = &mut buf[from..from + piece.len];
            let found = outcome.clone().map_err(TierError::of_read);
            let found = found.and_then(|()| self.found(page, &looked, image));
            let mut read = PageRead { page, buf: image, outcome: found };
            let is_settled = same(&now, &Ok(looked)) && !is_damaged(&read);
            if !is_settled {
                self.read_one(&mut read);
            }
            under_way.iter().for_each(|it| it.count_read(std::slice::from_ref(&read)));
            settled.push((piece.tag, page, read.outcome, from));
        }
        let buf = reads.hold(buf);
        for (tag, page, outcome, from) in settled {
            reads.arrive((tag, page), outcome, (buf, from));
        }
    }

    /// The page in what was read of its place, with the changes that wait in memory.
    fn found(&self, page: PageId, looked: &Looked, image: &mut [u8]) -> Result<Found, TierError> {
        match &looked.waits {
            Some(delta) => self.merge(page, &looked.entry, delta, image),
            None => self.verify(page, &looked.entry, image),
        }
    }

    fn source(&self) -> Source<'_> {
        Source { device: &*self.device, late: &self.late_reads }
    }
}

/// What this store keeps with the reads, taken out of them.
fn take_below(reads: &mut PageReads) -> Box<StoreReads> {
    let below = reads.below.take().map(|below| below.downcast::<StoreReads>());
    below.map_or_else(Default::default, |below| below.expect("one kind of store lies below"))
}
