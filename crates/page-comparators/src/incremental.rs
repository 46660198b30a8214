//! Incremental logging (ICL) as published: a flush of the write buffer reads the previous log of
//! each page and writes it again together with the new ones, so that a page has one page of logs at
//! most, and a read of a page is of two pages at most.
//!
//! A log is the *set* of all logs of its page since its image: what was changed twice is in it
//! twice. A page whose log would pass half of it is merged: its image is read, and written in
//! place. When no page of logs is free, the latest log of every page is merged and the space begins
//! again (figure 4); superseded pages of logs are not used before that.
//!
//! What is not printed, here at its best: within one flush a page of previous logs is read once; a
//! page that differs in more than half is written whole when it is given down, without a read.

use crate::log_area::{LINK_BYTES, LogArea};
use crate::medium::{Content, Medium, region};
use crate::method::{Method, Start, entry};
use crate::write_buffer::{Given, WriteBuffer};
use firndb_tier::Changes;
use std::collections::BTreeSet;

/// See the head of the file.
#[derive(Debug)]
pub struct Incremental {
    page_size: u64,
    buffer: WriteBuffer,
    area: LogArea,
    /// The latest log of each page.
    latest: Vec<Option<Latest>>,
    logs: u64,
    logs_most: u64,
}

/// The log of a page.
#[derive(Clone, Copy, Debug)]
struct Latest {
    log_page: u64,
    bytes: u64,
}

impl Incremental {
    /// With a write buffer of `buffer_bytes`, and `log_pages` pages for logs.
    #[must_use]
    pub fn new(start: Start, buffer_bytes: u64, log_pages: u64) -> Incremental {
        Incremental {
            page_size: start.page_size,
            buffer: WriteBuffer::new(buffer_bytes),
            area: LogArea::new(log_pages),
            latest: Vec::new(),
            logs: 0,
            logs_most: 0,
        }
    }

    fn forget(&mut self, page: u64) {
        if entry(&mut self.latest, page).take().is_some() {
            self.logs -= 1;
        }
    }

    fn flush(&mut self, medium: &mut Medium<'_>) {
        let logs = self.buffer.take_all();
        let (mut seen, mut too_long) = (BTreeSet::new(), BTreeSet::new());
        for (at, &(page, new)) in logs.iter().enumerate() {
            let previous = *entry(&mut self.latest, page);
            if let Some(previous) = previous.filter(|previous| seen.insert(previous.log_page)) {
                medium.read_page(Content::Delta, region::LOGS, previous.log_page);
            }
            let bytes = new.bytes + previous.map_or(0, |previous| previous.bytes);
            if bytes > self.page_size / 2 {
                medium.read_page(Content::Image, region::IMAGES, page);
                medium.merged();
                self.forget(page);
                too_long.insert(page);
                continue;
            }
            let Some(log_page) = self.area.put(bytes, self.page_size) else {
                medium.write_runs(Content::Image, region::IMAGES, too_long);
                return self.merge_all(logs[at..].iter().map(|(page, _)| *page).collect(), medium);
            };
            // A later page of this flush whose previous log lies there is not read for it.
            seen.insert(log_page);
            self.logs += u64::from(previous.is_none());
            *entry(&mut self.latest, page) = Some(Latest { log_page, bytes });
        }
        self.logs_most = self.logs_most.max(self.logs);
        medium.write_runs(Content::Image, region::IMAGES, too_long);
        self.area.write(medium);
    }

    /// Brings the latest log of every page into it; `also` have logs in DRAM.
    fn merge_all(&mut self, also: BTreeSet<u64>, medium: &mut Medium<'_>) {
        let mut log_pages = BTreeSet::new();
        let mut pages = also;
        for (page, latest) in self.latest.iter_mut().enumerate() {
            if let Some(latest) = latest.take() {
                pages.insert(page as u64);
                log_pages.insert(latest.log_page);
            }
        }
        self.logs = 0;
        self.area.merge_all(log_pages, pages, medium);
    }
}

impl Method for Incremental {
    fn read(&mut self, page: u64, medium: &mut Medium<'_>) -> u64 {
        medium.read_page(Content::Image, region::IMAGES, page);
        let Some(latest) = *entry(&mut self.latest, page) else { return 0 };
        medium.read_page(Content::Delta, region::LOGS, latest.log_page);
        1
    }

    fn write(&mut self, page: u64, changes: Option<Changes>, medium: &mut Medium<'_>) {
        match self.buffer.give(page, changes, self.page_size, medium) {
            Given::Whole => self.forget(page),
            Given::Full => self.flush(medium),
            Given::Waits => {}
        }
    }

    fn free(&mut self, page: u64) {
        self.buffer.remove(page);
        self.forget(page);
    }

    fn checkpoint(&mut self, medium: &mut Medium<'_>) {
        self.flush(medium);
    }

    fn table_bytes(&self) -> u64 {
        self.logs_most * LINK_BYTES
    }
}
