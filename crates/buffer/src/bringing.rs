//! Bringing pages in, many at once: frames are claimed while others are being filled, and each page
//! is handed over as soon as it has come.
//!
//! Invariants:
//! * The thread waits for a frame only while it fills none; it takes more only if they are at hand.
//! * The frames that it fills at one time are at most `at_once`.
//! * A page whose read fails leaves its frame at once; the others do not notice.

use crate::frame::state::can_be_held;
use crate::hints::Hints;
use crate::page_use::Uses;
use crate::pool::BufferPool;
use crate::replacement::Incoming;
use firndb_base::PageId;
use firndb_tier::PageReads;

/// Frames that a thread fills.
struct Filling<'a> {
    pool: &'a BufferPool,
    /// By the tags of their reads.
    incoming: Vec<Option<Incoming<'a>>>,
    free: Vec<usize>,
    /// Pages that are being read, as they are counted.
    counted: u64,
}

impl BufferPool {
    /// Brings in those of the pages that are in no frame: `at_once` at one time, and `in_all` at
    /// most; returns how many came.
    pub(crate) fn bring(&self, hints: &mut dyn Hints, at_once: usize, in_all: usize) -> usize {
        let mut filling = Filling { pool: self, incoming: Vec::new(), free: Vec::new(), counted: 0 };
        let mut reads = self.read_ahead.take_reads();
        let (mut begun, mut left, mut came) = (Vec::new(), in_all, 0);
        loop {
            let space = reads.space(self.page_size()).min(at_once.saturating_sub(reads.under_way()));
            // Not page by page: adjacent ones are to become one request.
            if 2 * space >= at_once || reads.under_way() == 0 {
                filling.claim(hints, space.min(left), &mut begun);
                left -= begun.len();
                if !begun.is_empty() {
                    filling.note_begun(&begun);
                    self.tier.begin_reads(&mut reads, &begun);
                }
            }
            if !self.tier.next_reads(&mut reads) {
                break;
            }
            came += filling.take(&mut reads);
            self.give_memory_down();
        }
        assert!(filling.incoming.iter().all(Option::is_none), "every page that was begun has come");
        self.read_ahead.keep_reads(reads);
        came
    }
}

impl<'a> Filling<'a> {
    /// Claims frames for the next pages, `most` of them: `begun` is what is to be read.
    fn claim(&mut self, hints: &mut dyn Hints, most: usize, begun: &mut Vec<(usize, PageId)>) {
        begun.clear();
        let (pool, is_idle) = (self.pool, self.counted == 0);
        while begun.len() < most && pool.check_usable().is_ok() {
            let Some(hint) = hints.next(most - begun.len()) else { break };
            let (page, page_use) = hint;
            if !can_be_held(page) || pool.seems_resident(page) {
                continue;
            }
            // Latches of pages that come in are held from the second page on.
            let claimed = match is_idle && begun.is_empty() {
                true => pool.claim(page_use).ok(),
                false => pool.claim_at_hand(page_use),
            };
            let Some(claimed) = claimed else { return hints.put_back(hint) };
            let incoming = claimed.install(page, Uses::of(page_use).ahead());
            // A page kept out from now on is found in its frame.
            let Some(incoming) = incoming.filter(|_| !pool.read_ahead.is_kept_out(page)) else { continue };
            let tag = self.free.pop().unwrap_or(self.incoming.len());
            if tag == self.incoming.len() {
                self.incoming.push(None);
            }
            self.incoming[tag] = Some(incoming);
            begun.push((tag, page));
        }
    }

    fn note_begun(&mut self, begun: &[(usize, PageId)]) {
        let (counters, pages) = (&self.pool.counters, begun.len() as u64);
        counters.misses.add(pages);
        self.counted += pages;
        counters.note_reading(pages);
        begun.iter().for_each(|(_, page)| self.pool.followed_pages.missed(*page));
    }

    /// Takes over the pages that have come; returns how many are there now.
    fn take(&mut self, reads: &mut PageReads) -> usize {
        let (end, page_size, mut came) = (self.pool.log.end(), self.pool.page_size(), 0);
        for read in reads.came() {
            let mut incoming = self.incoming[read.tag].take().expect("a page comes once");
            assert_eq!(incoming.page(), read.page, "a page comes under its own tag");
            self.free.push(read.tag);
            self.counted -= 1;
            self.pool.counters.reading.subtract(1);
            if let Ok(found) = self.pool.check_found(read.page, read.outcome.clone(), end) {
                incoming.bytes_mut().copy_from_slice(&read.bytes[..page_size]);
                came += usize::from(self.pool.arrive(incoming, found).is_ok_and(|hold| hold.is_some()));
            }
        }
        reads.clear();
        came
    }
}

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        self.pool.counters.reading.subtract(self.counted);
    }
}
