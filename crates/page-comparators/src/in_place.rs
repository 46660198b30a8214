//! Every page in its own place (the paper's ORIG): a write goes over the old image.
//!
//! A batch is written in the order of places, neighbours with one request. With a double-write area
//! a batch is first written there, as one request: what an engine needs whose log holds no whole
//! pages. PostgreSQL's data files are written without; it writes whole pages to its log instead,
//! which is counted nowhere here.

use crate::medium::{Content, Medium, region};
use crate::method::Method;
use firndb_tier::Changes;

/// Pages of the double-write area: writes to it begin again at its start.
const AREA_PAGES: u64 = 128;

/// See the head of the file.
#[derive(Debug, Default)]
pub struct InPlace {
    double_write: bool,
    batch: Vec<u64>,
    area_at: u64,
}

impl InPlace {
    /// With a double-write area or without.
    #[must_use]
    pub fn new(double_write: bool) -> InPlace {
        InPlace { double_write, ..InPlace::default() }
    }
}

impl Method for InPlace {
    fn read(&mut self, page: u64, medium: &mut Medium<'_>) -> u64 {
        medium.read_page(Content::Image, region::IMAGES, page);
        0
    }

    fn write(&mut self, page: u64, _: Option<Changes>, _: &mut Medium<'_>) {
        self.batch.push(page);
    }

    fn end_batch(&mut self, medium: &mut Medium<'_>) {
        self.batch.sort_unstable();
        if self.double_write {
            for copies in self.batch.chunks(AREA_PAGES as usize) {
                let pages = copies.len() as u64;
                if self.area_at + pages > AREA_PAGES {
                    self.area_at = 0;
                }
                let offset = region::COPIES + self.area_at * medium.page_size();
                medium.write(Content::Copy, offset, pages * medium.page_size());
                self.area_at += pages;
            }
        }
        medium.write_runs(Content::Image, region::IMAGES, self.batch.drain(..));
    }

    fn free(&mut self, _: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_written_in_the_order_of_places_and_twice_if_asked_for() {
        for (double_write, copies) in [(false, 0), (true, 3 * 4096)] {
            let (mut method, mut medium) = (InPlace::new(double_write), Medium::new(4096));
            for page in [8, 3, 7] {
                method.write(page, None, &mut medium);
            }
            method.end_batch(&mut medium);
            let counts = medium.counts();
            assert_eq!((counts.written.images, counts.written.copies), (3 * 4096, copies));
            assert_eq!(counts.requests.values().sum::<u64>(), 2 + u64::from(double_write));
        }
    }
}
