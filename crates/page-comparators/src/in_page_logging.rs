//! In-page logging (IPL) as a model over the stream.
//!
//! An erase unit of 128 KiB has data pages and a log region of 16 sectors of 512 bytes. What has
//! changed of a page goes to sectors of its own unit when it leaves DRAM, one at least: the paper
//! writes a sector also when the page's log in DRAM is full, which comes to the same number if
//! every byte changes once, and to more otherwise. A page is read with its unit's log region. A
//! unit without a free sector is merged: all of it is read, and its pages are written to another
//! unit.
//!
//! It needs raw flash, where a sector can be programmed alone: on a drive behind an FTL its counts
//! say little, which is why the ICL paper leaves it out.

use crate::medium::{Content, Medium, region};
use crate::method::{Method, entry};
use crate::write_buffer::log_bytes;
use firndb_tier::Changes;

const UNIT: u64 = 128 << 10;
const SECTOR: u64 = 512;
const SECTORS: u64 = 16;
const REGION: u64 = SECTOR * SECTORS;

/// See the head of the file.
#[derive(Debug)]
pub struct InPageLogging {
    page_size: u64,
    /// Sectors used, by unit.
    used: Vec<u64>,
}

impl InPageLogging {
    /// For pages of this size.
    #[must_use]
    pub fn new(page_size: u64) -> InPageLogging {
        InPageLogging { page_size, used: Vec::new() }
    }

    /// Data pages of a unit.
    fn pages(&self) -> u64 {
        (UNIT - REGION) / self.page_size
    }

    /// The page's unit, and its offset.
    fn place(&self, page: u64) -> (u64, u64) {
        let (unit, at) = (page / self.pages(), page % self.pages());
        (unit, unit * UNIT + at * self.page_size)
    }
}

impl Method for InPageLogging {
    fn read(&mut self, page: u64, medium: &mut Medium<'_>) -> u64 {
        let (unit, offset) = self.place(page);
        medium.read(Content::Image, region::IMAGES + offset, self.page_size);
        if *entry(&mut self.used, unit) == 0 {
            return 0;
        }
        let logs = (unit + 1) * UNIT - REGION;
        medium.read(Content::Delta, region::IMAGES + logs, REGION);
        REGION.div_ceil(self.page_size)
    }

    fn write(&mut self, page: u64, changes: Option<Changes>, medium: &mut Medium<'_>) {
        let (unit, offset) = self.place(page);
        let Some(changes) = changes else {
            // Its place in the unit was never written since the unit was erased.
            return medium.write(Content::Image, region::IMAGES + offset, self.page_size);
        };
        let sectors = log_bytes(changes, self.page_size).div_ceil(SECTOR);
        let used = entry(&mut self.used, unit);
        if *used + sectors > SECTORS {
            *used = 0;
            medium.read(Content::Image, region::IMAGES + unit * UNIT, UNIT);
            medium.write(Content::Image, region::IMAGES + unit * UNIT, UNIT - REGION);
            return medium.merged();
        }
        let at = (unit + 1) * UNIT - REGION + *used * SECTOR;
        *used += sectors;
        medium.write(Content::Delta, region::IMAGES + at, sectors * SECTOR);
    }

    fn free(&mut self, _: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changed::granules;

    #[test]
    fn sectors_fill_the_log_region_and_then_the_unit_is_merged() {
        let (mut method, mut medium) = (InPageLogging::new(8192), Medium::new(8192));
        // 16 + 4 + 64 bytes: a sector each.
        let small = Some(granules(0..1));
        for write in 0..16 {
            method.write(write % 15, small, &mut medium);
        }
        assert_eq!((medium.counts().written.deltas, medium.counts().merges), (16 * 512, 0));
        assert_eq!(method.read(3, &mut medium), 1);
        assert_eq!(method.read(15, &mut medium), 0, "the next unit has no logs");
        method.write(2, small, &mut medium);
        let counts = medium.counts();
        assert_eq!((counts.merges, counts.written.images), (1, 15 * 8192));
        assert_eq!(counts.read.images, 2 * 8192 + (128 << 10));
        assert_eq!(method.read(3, &mut medium), 0);
        // Three sectors: 20 granules of 64 bytes.
        method.write(3, Some(granules(0..20)), &mut medium);
        assert_eq!(medium.counts().written.deltas, (16 + 3) * 512);
    }
}
