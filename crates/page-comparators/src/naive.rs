//! The naive write-optimized method (the paper's figures 2 and 3 a): changes go to a write buffer
//! and from there to pages of logs; earlier logs of a page stay where they are. To read a page is
//! to read its image and every page of its logs.
//!
//! What is not printed: a page whose log would be larger than half of it is written whole, in
//! place, and its logs are void; when no page of logs is free all logs are merged, each page of
//! logs read once.

use crate::log_area::{LINK_BYTES, LogArea};
use crate::medium::{Content, Medium, region};
use crate::method::{Method, Start, entry};
use crate::write_buffer::{Given, WriteBuffer};
use firndb_tier::Changes;
use std::collections::BTreeSet;

/// See the head of the file.
#[derive(Debug)]
pub struct Naive {
    page_size: u64,
    buffer: WriteBuffer,
    area: LogArea,
    /// Numbers of the pages of logs of each page, in order.
    chains: Vec<Vec<u64>>,
    links: u64,
    links_most: u64,
}

impl Naive {
    /// With a write buffer of `buffer_bytes`, and `log_pages` pages for logs.
    #[must_use]
    pub fn new(start: Start, buffer_bytes: u64, log_pages: u64) -> Naive {
        Naive {
            page_size: start.page_size,
            buffer: WriteBuffer::new(buffer_bytes),
            area: LogArea::new(log_pages),
            chains: Vec::new(),
            links: 0,
            links_most: 0,
        }
    }

    fn drop_chain(&mut self, page: u64) {
        let chain = std::mem::take(entry(&mut self.chains, page));
        self.links -= chain.len() as u64;
    }

    fn flush(&mut self, medium: &mut Medium<'_>) {
        let logs = self.buffer.take_all();
        for (at, &(page, found)) in logs.iter().enumerate() {
            let mut left = found.bytes;
            while left > 0 {
                let piece = left.min(self.page_size);
                let Some(log_page) = self.area.put(piece, self.page_size) else {
                    return self.merge_all(logs[at..].iter().map(|(page, _)| *page).collect(), medium);
                };
                left -= piece;
                let chain = entry(&mut self.chains, page);
                if chain.last() != Some(&log_page) {
                    chain.push(log_page);
                    self.links += 1;
                }
            }
        }
        self.links_most = self.links_most.max(self.links);
        self.area.write(medium);
    }

    /// Brings all logs into their pages; `also` have logs in DRAM.
    fn merge_all(&mut self, also: BTreeSet<u64>, medium: &mut Medium<'_>) {
        let mut log_pages = BTreeSet::new();
        let mut pages = also;
        for (page, chain) in self.chains.iter_mut().enumerate().filter(|(_, chain)| !chain.is_empty()) {
            pages.insert(page as u64);
            log_pages.extend(chain.drain(..));
        }
        self.links = 0;
        self.area.merge_all(log_pages, pages, medium);
    }
}

impl Method for Naive {
    fn read(&mut self, page: u64, medium: &mut Medium<'_>) -> u64 {
        medium.read_page(Content::Image, region::IMAGES, page);
        let chain = entry(&mut self.chains, page);
        for &log_page in chain.iter() {
            medium.read_page(Content::Delta, region::LOGS, log_page);
        }
        chain.len() as u64
    }

    fn write(&mut self, page: u64, changes: Option<Changes>, medium: &mut Medium<'_>) {
        match self.buffer.give(page, changes, self.page_size, medium) {
            Given::Whole => self.drop_chain(page),
            Given::Full => self.flush(medium),
            Given::Waits => {}
        }
    }

    fn free(&mut self, page: u64) {
        self.buffer.remove(page);
        self.drop_chain(page);
    }

    fn checkpoint(&mut self, medium: &mut Medium<'_>) {
        self.flush(medium);
    }

    fn table_bytes(&self) -> u64 {
        self.links_most * LINK_BYTES
    }
}
