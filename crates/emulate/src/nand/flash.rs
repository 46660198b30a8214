//! Flash chips: their contents, their wear, and when they are busy.
//!
//! Invariants, asserted at every operation:
//! * a page is programmed at most once between two erases of its block;
//! * the pages of a block are programmed in ascending order (places may be skipped: they stay
//!   unusable until the erase);
//! * a page that is not programmed is never read;
//! * a block is erased at most `erase_limit` times; the attempt after that fails, and the block is
//!   retired: it is never programmed or erased again, but can be read;
//! * a chip does one thing at a time, a bus one transfer.
//!
//! Contents are not bytes but a [`Content`]: which logical page, and a token that stands for its
//! bytes. Real controllers keep the first in a page's spare area, too. So a translation layer that
//! mixes pages up is detected without memory for the data.

use super::{BlockAddress, FlashTimes, Geometry, LogicalPage, PageAddress};

/// What a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// The logical page that was written here.
    pub logical: LogicalPage,
    /// Stands for its bytes.
    pub token: u64,
}

/// The result of an erase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Erased {
    /// All pages are clean.
    Clean,
    /// The block is worn out and retired.
    WornOut,
}

/// Operations of the chips since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashCounts {
    /// Pages read.
    pub reads: u64,
    /// Pages programmed.
    pub programs: u64,
    /// Blocks erased; failed attempts included.
    pub erases: u64,
    /// Nanoseconds of work of all chips and buses together: what Myers's equations call cost.
    pub work_ns: u64,
}

impl FlashCounts {
    /// The difference from `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &FlashCounts) -> FlashCounts {
        FlashCounts {
            reads: self.reads - earlier.reads,
            programs: self.programs - earlier.programs,
            erases: self.erases - earlier.erases,
            work_ns: self.work_ns - earlier.work_ns,
        }
    }
}

/// An erase block.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    /// The place of the first page that may be programmed next.
    next: u32,
    erases: u32,
    retired: bool,
}

/// An array of flash chips.
///
/// The caller gives every operation the moment (nanoseconds of any clock) from which it may start;
/// the operation returns the moment at which it is done; a chip serves operations in the order of
/// the calls.
#[derive(Debug)]
pub struct Flash {
    geometry: Geometry,
    times: FlashTimes,
    erase_limit: u32,
    blocks: Vec<Block>,
    pages: Vec<Option<Content>>,
    /// The moment at which each chip is free.
    chip_free_ns: Vec<u64>,
    /// The moment at which each bus is free.
    channel_free_ns: Vec<u64>,
    counts: FlashCounts,
}

impl Flash {
    /// Erased chips. The geometry has been checked; `erase_limit` is at least 1.
    #[must_use]
    pub fn new(geometry: Geometry, times: FlashTimes, erase_limit: u32) -> Flash {
        assert!(geometry.check().is_ok() && erase_limit >= 1, "the caller checks what comes from outside");
        Flash {
            geometry,
            times,
            erase_limit,
            blocks: vec![Block::default(); geometry.blocks() as usize],
            pages: vec![None; geometry.pages() as usize],
            chip_free_ns: vec![0; geometry.chips as usize],
            channel_free_ns: vec![0; geometry.channels() as usize],
            counts: FlashCounts::default(),
        }
    }

    /// How the array is built.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    /// How often a block can be erased.
    #[must_use]
    pub fn erase_limit(&self) -> u32 {
        self.erase_limit
    }
    /// Operations so far.
    #[must_use]
    pub fn counts(&self) -> FlashCounts {
        self.counts
    }
    /// Number of times that a block was erased.
    #[must_use]
    pub fn erases(&self, block: BlockAddress) -> u32 {
        self.block(block).erases
    }
    /// Whether a block is worn out.
    #[must_use]
    pub fn is_retired(&self, block: BlockAddress) -> bool {
        self.block(block).retired
    }
    /// Whether the next attempt to erase a block fails.
    #[must_use]
    pub fn is_at_limit(&self, block: BlockAddress) -> bool {
        self.block(block).erases >= self.erase_limit
    }
    /// The place of the first page of a block that may be programmed; `pages_per_block` if it is
    /// full.
    #[must_use]
    pub fn next_index(&self, block: BlockAddress) -> u32 {
        self.block(block).next
    }
    /// Whether no page of a block may be programmed any more.
    #[must_use]
    pub fn is_full(&self, block: BlockAddress) -> bool {
        self.next_index(block) == self.geometry.pages_per_block
    }
    /// What a page holds, without reading it (for checks and for the controller's own tables).
    #[must_use]
    pub fn peek(&self, page: PageAddress) -> Option<Content> {
        self.pages[page.0 as usize]
    }
    /// When the last operation begun so far is done.
    #[must_use]
    pub fn idle_at_ns(&self) -> u64 {
        self.chip_free_ns.iter().chain(&self.channel_free_ns).copied().max().unwrap_or(0)
    }

    /// Reads a programmed page.
    pub fn read(&mut self, page: PageAddress, from_ns: u64) -> (Content, u64) {
        let content = self.pages[page.0 as usize].expect("only programmed pages are read");
        let chip = self.geometry.chip_of(self.geometry.block_of(page));
        let read = self.occupy_chip(chip, from_ns, self.times.read_ns);
        self.counts.reads += 1;
        (content, self.occupy_channel(chip, read))
    }

    /// Programs a clean page.
    pub fn program(&mut self, page: PageAddress, content: Content, from_ns: u64) -> u64 {
        let (block, index) = (self.geometry.block_of(page), self.geometry.index_of(page));
        let chip = self.geometry.chip_of(block);
        let state = &mut self.blocks[block.0 as usize];
        assert!(!state.retired, "a retired block is not programmed");
        assert!(index >= state.next, "pages of a block are programmed in order, once between erases");
        assert!(self.pages[page.0 as usize].is_none(), "a programmed page is erased first");
        state.next = index + 1;
        self.pages[page.0 as usize] = Some(content);
        self.counts.programs += 1;
        let here = self.occupy_channel(chip, from_ns);
        self.occupy_chip(chip, here, self.times.program_ns)
    }

    /// Erases a block, or finds it worn out.
    pub fn erase(&mut self, block: BlockAddress, from_ns: u64) -> (Erased, u64) {
        let chip = self.geometry.chip_of(block);
        let done = self.occupy_chip(chip, from_ns, self.times.erase_ns);
        self.counts.erases += 1;
        let limit = self.erase_limit;
        let state = &mut self.blocks[block.0 as usize];
        assert!(!state.retired, "a retired block is not erased");
        if state.erases >= limit {
            state.retired = true;
            return (Erased::WornOut, done);
        }
        state.erases += 1;
        state.next = 0;
        let first = self.geometry.page(block, 0).0 as usize;
        self.pages[first..first + self.geometry.pages_per_block as usize].fill(None);
        (Erased::Clean, done)
    }

    fn block(&self, block: BlockAddress) -> &Block {
        &self.blocks[block.0 as usize]
    }

    fn occupy_chip(&mut self, chip: usize, from_ns: u64, time_ns: u64) -> u64 {
        self.counts.work_ns += time_ns;
        occupy(&mut self.chip_free_ns[chip], from_ns, time_ns)
    }

    fn occupy_channel(&mut self, chip: usize, from_ns: u64) -> u64 {
        let time_ns = self.times.transfer_ns;
        self.counts.work_ns += time_ns;
        if time_ns == 0 {
            return from_ns;
        }
        occupy(&mut self.channel_free_ns[self.geometry.channel_of(chip)], from_ns, time_ns)
    }
}

/// Occupies a chip or bus that is free at `free_ns` for `time_ns`, not before `from_ns`; returns
/// the moment at which that is done.
fn occupy(free_ns: &mut u64, from_ns: u64, time_ns: u64) -> u64 {
    *free_ns = from_ns.max(*free_ns).saturating_add(time_ns);
    *free_ns
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn flash(chips: u32, transfer_ns: u64) -> Flash {
        let geometry =
            Geometry { page_bytes: 512, pages_per_block: 4, blocks_per_chip: 2, chips, chips_per_channel: 2 };
        let times = FlashTimes { read_ns: 10, program_ns: 100, erase_ns: 1000, transfer_ns };
        Flash::new(geometry, times, 2)
    }
    fn content(number: u32) -> Content {
        Content { logical: LogicalPage(number), token: u64::from(number) * 7 }
    }
    fn refused(act: impl FnOnce()) -> bool {
        catch_unwind(AssertUnwindSafe(act)).is_err()
    }

    #[test]
    fn pages_are_programmed_in_order_and_once_between_erases() {
        let mut flash = flash(1, 0);
        flash.program(PageAddress(1), content(5), 0);
        assert!(refused(|| _ = flash.program(PageAddress(1), content(6), 0)), "twice");
        assert!(refused(|| _ = flash.program(PageAddress(0), content(6), 0)), "backwards");
        assert!(refused(|| _ = flash.read(PageAddress(3), 0)), "clean");
        assert_eq!(flash.read(PageAddress(1), 0).0, content(5));
        assert_eq!(flash.erase(BlockAddress(0), 0).0, Erased::Clean);
        flash.program(PageAddress(0), content(6), 0);
        assert_eq!(flash.peek(PageAddress(1)), None);
    }

    #[test]
    fn a_block_is_retired_by_the_erase_after_its_last_but_can_be_read() {
        let mut flash = flash(1, 0);
        assert_eq!(flash.erase(BlockAddress(1), 0).0, Erased::Clean);
        assert_eq!(flash.erase(BlockAddress(1), 0).0, Erased::Clean);
        assert!(flash.is_at_limit(BlockAddress(1)));
        flash.program(PageAddress(4), content(1), 0);
        assert_eq!(flash.erase(BlockAddress(1), 0).0, Erased::WornOut);
        assert_eq!(flash.read(PageAddress(4), 0).0, content(1));
        assert!(refused(|| _ = flash.program(PageAddress(5), content(1), 0)));
        assert_eq!(flash.erases(BlockAddress(1)), 2);
    }

    #[test]
    fn chips_work_side_by_side_and_share_buses() {
        let mut flash = flash(4, 30);
        // Blocks 0 to 3 are on chips 0 to 3; chips 0 and 1 share a bus.
        let done: Vec<u64> =
            (0..4).map(|block| flash.program(PageAddress(block * 4), content(block), 0)).collect();
        assert_eq!(done, [130, 160, 130, 160]);
        // The same chip again: its transfer waits for the bus only, the programming for the chip.
        assert_eq!(flash.program(PageAddress(1), content(9), 0), 230);
        assert_eq!(flash.counts().work_ns, 5 * 130);
        assert_eq!(flash.idle_at_ns(), 230);
    }
}
