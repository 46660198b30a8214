//! Append and pack: pages are appended to a log on the device, whatever they are, and a table in
//! DRAM knows where each is. Space comes back at the tail: what is still valid there has not been
//! written for as long as the log is, and is packed into a second log, of cold pages.
//!
//! The logs are rings of segments of 64 pages. Space is reclaimed from that log whose oldest
//! segment has fewer valid pages; what is valid of either goes to the head of the cold log. What is
//! not printed: how much space there is beyond the pages. On a drive that is much larger than its
//! pages no space is ever reclaimed, and that is the stronger comparator. The table is not written
//! to the device, as in the paper: after a crash it would have to be rebuilt from all pages.

use crate::medium::{Content, Medium, region};
use crate::method::{Method, Start, entry};
use firndb_tier::Changes;
use std::collections::VecDeque;

/// Pages of a segment.
pub(crate) const SEGMENT: u64 = 64;
/// Places over pages: a fifth of all places is free.
pub(crate) const STORE_OVER_PAGES: f64 = 1.25;
/// Free segments at which space is reclaimed: one for each log's head.
const FREE_LEAST: usize = 2;
/// Of an entry in the table: a place.
pub const ENTRY_BYTES: u64 = 4;

/// Segments, of all places that such a number of pages is given.
pub(crate) fn segments_for(pages: u64, over_pages: f64) -> u64 {
    ((pages as f64 * over_pages) as u64).div_ceil(SEGMENT) + 4
}

/// A log: full segments, the oldest first, and its head.
#[derive(Debug, Default)]
struct Log {
    full: VecDeque<u64>,
    head: Option<(u64, u64)>,
}

#[derive(Clone, Debug, Default)]
struct Segment {
    /// Bit n: the page at place n is valid.
    valid: u64,
    /// The page that was written to each place.
    pages: Vec<u32>,
}

/// See the head of the file.
#[derive(Debug)]
pub struct AppendPack {
    page_size: u64,
    over_pages: f64,
    /// Place of each page, plus one.
    places: Vec<u64>,
    pages: u64,
    segments: Vec<Segment>,
    free: VecDeque<u64>,
    hot: Log,
    cold: Log,
    batch: Vec<u64>,
}

impl AppendPack {
    /// On space for `over_pages` times the pages. All pages lie in the cold log, in order.
    #[must_use]
    pub fn new(start: Start, over_pages: f64) -> AppendPack {
        let mut method = AppendPack {
            page_size: start.page_size,
            over_pages,
            places: (1..=start.pages).collect(),
            pages: start.pages,
            segments: Vec::new(),
            free: VecDeque::new(),
            hot: Log::default(),
            cold: Log::default(),
            batch: Vec::new(),
        };
        method.grow();
        for page in 0..start.pages {
            let segment = &mut method.segments[(page / SEGMENT) as usize];
            segment.valid |= 1 << (page % SEGMENT);
            segment.pages.push(page as u32);
        }
        method.cold.full = (0..start.pages.div_ceil(SEGMENT)).collect();
        method.free.drain(..start.pages.div_ceil(SEGMENT) as usize);
        method
    }

    /// Adds the segments that the number of pages allows.
    fn grow(&mut self) {
        for segment in self.segments.len() as u64..segments_for(self.pages, self.over_pages) {
            self.segments.push(Segment::default());
            self.free.push_back(segment);
        }
    }

    fn invalidate(&mut self, page: u64) -> bool {
        let place = std::mem::take(entry(&mut self.places, page));
        if place > 0 {
            self.segments[((place - 1) / SEGMENT) as usize].valid &= !(1 << ((place - 1) % SEGMENT));
        }
        place > 0
    }

    /// The next place of a log, for this page.
    fn append(&mut self, page: u64, hot: bool) -> u64 {
        let log = if hot { &mut self.hot } else { &mut self.cold };
        let (segment, at) = match log.head {
            Some((segment, at)) if at < SEGMENT => (segment, at),
            full => {
                log.full.extend(full.map(|(segment, _)| segment));
                let segment = self.free.pop_front().expect("space was reclaimed");
                self.segments[segment as usize].pages.clear();
                (segment, 0)
            }
        };
        log.head = Some((segment, at + 1));
        let place = segment * SEGMENT + at;
        let found = &mut self.segments[segment as usize];
        found.pages.push(page as u32);
        found.valid |= 1 << at;
        *entry(&mut self.places, page) = place + 1;
        place
    }

    fn valid_at_tail(&self, log: &Log) -> u32 {
        log.full.front().map_or(u32::MAX, |&segment| self.segments[segment as usize].valid.count_ones())
    }

    /// Empties the oldest segment of one of the logs.
    fn reclaim(&mut self, medium: &mut Medium<'_>) {
        let hot = self.valid_at_tail(&self.hot) <= self.valid_at_tail(&self.cold);
        let log = if hot { &mut self.hot } else { &mut self.cold };
        let segment = log.full.pop_front().expect("the logs have more than their heads");
        let Segment { valid, pages } = std::mem::take(&mut self.segments[segment as usize]);
        let moved: Vec<u64> = (0..SEGMENT).filter(|at| valid >> at & 1 == 1).collect();
        for &at in &moved {
            medium.read_page(Content::Image, region::IMAGES, segment * SEGMENT + at);
        }
        medium.moved(moved.len() as u64 * self.page_size);
        let places: Vec<u64> =
            moved.iter().map(|&at| self.append(u64::from(pages[at as usize]), false)).collect();
        medium.write_runs(Content::Image, region::IMAGES, places);
        self.free.push_back(segment);
    }
}

impl Method for AppendPack {
    fn read(&mut self, page: u64, medium: &mut Medium<'_>) -> u64 {
        let place = *entry(&mut self.places, page);
        medium.read_page(Content::Image, region::IMAGES, place.max(1) - 1);
        0
    }

    fn write(&mut self, page: u64, _: Option<Changes>, _: &mut Medium<'_>) {
        self.batch.push(page);
    }

    fn end_batch(&mut self, medium: &mut Medium<'_>) {
        let mut places = Vec::new();
        for page in std::mem::take(&mut self.batch) {
            if !self.invalidate(page) {
                self.pages += 1;
                self.grow();
            }
            while self.free.len() < FREE_LEAST {
                medium.write_runs(Content::Image, region::IMAGES, places.drain(..));
                self.reclaim(medium);
            }
            places.push(self.append(page, true));
        }
        medium.write_runs(Content::Image, region::IMAGES, places);
    }

    fn free(&mut self, page: u64) {
        if self.invalidate(page) {
            self.pages -= 1;
        }
    }

    fn table_bytes(&self) -> u64 {
        self.places.len() as u64 * ENTRY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;

    #[test]
    fn every_page_stays_where_the_table_says_through_many_reclaims() {
        let start = Start { page_size: 4096, pages: 500 };
        let (mut method, mut medium) = (AppendPack::new(start, STORE_OVER_PAGES), Medium::new(4096));
        let mut rng = Rng::new(7);
        for _ in 0..2000 {
            for _ in 0..rng.below(20) {
                // Skewed: most writes go to a tenth of the pages.
                let among = if rng.below(10) < 8 { 50 } else { 520 };
                method.write(rng.below(among), None, &mut medium);
            }
            method.end_batch(&mut medium);
        }
        method.free(499);
        let live: Vec<u64> = (0..520).filter(|&page| method.places[page as usize] > 0).collect();
        for &page in &live {
            let place = method.places[page as usize] - 1;
            let segment = &method.segments[(place / SEGMENT) as usize];
            assert_eq!(u64::from(segment.pages[(place % SEGMENT) as usize]), page);
            assert_eq!(segment.valid >> (place % SEGMENT) & 1, 1);
        }
        let valid: u32 = method.segments.iter().map(|segment| segment.valid.count_ones()).sum();
        assert_eq!(u64::from(valid), live.len() as u64);
        assert_eq!(method.pages, live.len() as u64);
        assert!(medium.counts().moved > 0);
    }

    #[test]
    fn writes_without_reclaiming_are_one_stream() {
        let start = Start { page_size: 4096, pages: 1000 };
        let (mut method, mut medium) = (AppendPack::new(start, STORE_OVER_PAGES), Medium::new(4096));
        for page in [5, 900, 17, 4, 333] {
            method.write(page, None, &mut medium);
            method.end_batch(&mut medium);
        }
        let random = medium.counts().requests.iter().filter(|(kind, _)| !kind.sequential);
        assert_eq!(random.map(|(_, count)| count).sum::<u64>(), 1, "only the first");
    }
}
