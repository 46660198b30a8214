//! Block-level mapping with log blocks: the scheme of cards and sticks with little memory.
//!
//! Logical blocks are mapped whole: each page has its fixed place in its data block. A page that is
//! overwritten goes to a log block, in the order of the writes; a log block belongs to one data
//! block, and there are few. A log block that is full, or is evicted for another, is merged: a
//! *switch* if it holds every page at its place, a *partial* merge if it holds the first ones at
//! their places and the rest can be copied behind them, else a *full* merge of both into a third
//! block. This is the log block scheme of Kim, Kim, Noh, Min and Cho ("A space-efficient flash
//! translation layer for CompactFlash systems", IEEE Trans. Consumer Electronics 2002); the least
//! recently used log block is evicted.
//!
//! Invariants:
//! * every logical block has at most one data block and one log block, and no log block without a
//!   data block;
//! * good blocks are at least the logical blocks, the log blocks allowed, and one for merging, so
//!   that one is free whenever a merge begins. Retired blocks lower the log blocks allowed; when
//!   none would be left, or no block is free, the device becomes read-only.

use super::free_blocks::FreeBlocks;
use super::mapping::Mapping;
use super::wear::{Temperature, WearLevelling};
use super::{BlockAddress, Content, Erased, Flash, Ftl, FtlCounts, Geometry, LogicalPage, NandError};

/// Blocks beside data and log blocks: the target of a merge.
const MERGE_BLOCKS: u32 = 1;

/// A block-level map with log blocks.
#[derive(Debug)]
pub struct BlockFtl {
    flash: Flash,
    map: Mapping,
    free: FreeBlocks,
    levelling: WearLevelling,
    /// The data block of each logical block.
    data: Vec<Option<BlockAddress>>,
    logs: Vec<LogBlock>,
    logs_max: u32,
    host_writes: u64,
    counts: FtlCounts,
    read_only: bool,
}

#[derive(Clone, Copy, Debug)]
struct LogBlock {
    /// The logical block that its pages belong to: an index into `data`.
    owner: usize,
    block: BlockAddress,
    /// Host writes when it was last written.
    used: u64,
}

impl BlockFtl {
    /// The most logical pages that an array can serve, with one log block.
    #[must_use]
    pub fn logical_pages_max(geometry: &Geometry) -> u32 {
        geometry.blocks().saturating_sub(MERGE_BLOCKS + 1) * geometry.pages_per_block
    }

    /// A translation layer on erased chips, with `logical_pages` for the host (rounded up to whole
    /// blocks inside). All blocks but these and one are log blocks.
    pub fn new(flash: Flash, logical_pages: u32, levelling: WearLevelling) -> Result<BlockFtl, NandError> {
        let geometry = *flash.geometry();
        let most = BlockFtl::logical_pages_max(&geometry);
        if logical_pages == 0 || logical_pages > most {
            return Err(NandError::BadConfig(format!(
                "{logical_pages} pages are to be the host's; of {} pages of flash a block-level map can give 1 to {most}: raise the over-provisioning or the number of blocks",
                geometry.pages()
            )));
        }
        let logical_blocks = logical_pages.div_ceil(geometry.pages_per_block);
        Ok(BlockFtl {
            map: Mapping::new(logical_pages, geometry.blocks()),
            free: FreeBlocks::all(&flash, levelling),
            levelling,
            data: vec![None; logical_blocks as usize],
            logs: Vec::new(),
            logs_max: geometry.blocks() - logical_blocks - MERGE_BLOCKS,
            host_writes: 0,
            counts: FtlCounts::default(),
            read_only: false,
            flash,
        })
    }

    fn owner_of(&self, page: LogicalPage) -> usize {
        (page.0 / self.flash.geometry().pages_per_block) as usize
    }
    /// A page's fixed place in its data block.
    fn index_of(&self, page: LogicalPage) -> u32 {
        page.0 % self.flash.geometry().pages_per_block
    }
    fn log_of(&self, owner: usize) -> Option<usize> {
        self.logs.iter().position(|log| log.owner == owner)
    }

    /// A free block; data blocks of neighbours go to different chips.
    fn take_free(&mut self, owner: usize, temperature: Temperature) -> BlockAddress {
        let chip = owner % self.flash.geometry().chips as usize;
        self.free.take(&self.flash, chip, temperature).expect("data and log blocks leave one to merge into")
    }

    fn program(&mut self, block: BlockAddress, index: u32, content: Content, from_ns: u64) -> u64 {
        let place = self.flash.geometry().page(block, index);
        let done_ns = self.flash.program(place, content, from_ns);
        self.map.set(&self.flash, content.logical, Some(place), self.host_writes);
        done_ns
    }

    /// Where the page is to be written: at its place in the data block if that is clean, else in
    /// the log block. Merges the log block that must be evicted first; returns when that is done.
    fn find_place(&mut self, page: LogicalPage, from_ns: u64) -> Result<(BlockAddress, u32, u64), NandError> {
        let (owner, index) = (self.owner_of(page), self.index_of(page));
        let mut now_ns = from_ns;
        loop {
            // Blocks that wore out in one merge may have left none for the next.
            if self.read_only || self.free.len() == 0 {
                self.read_only = true;
                return Err(NandError::WornOut);
            }
            let Some(data) = self.data[owner] else {
                let block = self.take_free(owner, Temperature::Hot);
                self.data[owner] = Some(block);
                return Ok((block, index, now_ns));
            };
            let log = self.log_of(owner);
            if self.flash.next_index(data) <= index {
                return Ok((data, index, now_ns));
            }
            match log {
                // All of it was discarded: the block is erased and used again.
                None if self.map.live(data) == 0 => {
                    self.data[owner] = None;
                    now_ns = self.release(data, now_ns);
                }
                Some(at) if !self.flash.is_full(self.logs[at].block) => {
                    self.logs[at].used = self.host_writes;
                    let block = self.logs[at].block;
                    return Ok((block, self.flash.next_index(block), now_ns));
                }
                Some(at) => now_ns = self.merge(at, now_ns),
                None if self.logs.len() >= self.logs_max as usize => {
                    let oldest = self.logs.iter().enumerate().min_by_key(|(_, log)| log.used);
                    let (at, _) = oldest.expect("a writable device has at least one log block");
                    now_ns = self.merge(at, now_ns);
                }
                None => {
                    let block = self.take_free(owner, Temperature::Hot);
                    self.logs.push(LogBlock { owner, block, used: self.host_writes });
                    return Ok((block, 0, now_ns));
                }
            }
        }
    }

    /// Makes a log block and its data block one block, in the cheapest way there is. Returns the
    /// moment at which it is done.
    fn merge(&mut self, at: usize, from_ns: u64) -> u64 {
        let LogBlock { owner, block: log, .. } = self.logs.swap_remove(at);
        let data = self.data[owner].expect("a log block has a data block");
        let written = self.flash.next_index(log);
        let pages = self.map.live_pages(&self.flash, log);
        let geometry = *self.flash.geometry();
        let at_its_place = |page: &super::PageAddress| {
            let content = self.flash.peek(*page).expect("it is live");
            geometry.index_of(*page) == content.logical.0 % geometry.pages_per_block
        };
        let in_place = pages.len() as u32 == written && pages.iter().all(at_its_place);
        let rest = self.map.live_pages(&self.flash, data);
        let fits_behind = rest.iter().all(|page| geometry.index_of(*page) >= written);
        if !(in_place && fits_behind) {
            self.counts.full_merges += 1;
            let target = self.take_free(owner, Temperature::Hot);
            let moved_ns = self.gather(owner, target, from_ns);
            self.counts.copies += u64::from(self.map.live(target));
            self.data[owner] = Some(target);
            let erased_ns = self.release(log, moved_ns);
            return self.release(data, erased_ns);
        }
        match rest.is_empty() {
            true => self.counts.switch_merges += 1,
            false => self.counts.partial_merges += 1,
        }
        self.counts.copies += rest.len() as u64;
        let mut moved_ns = from_ns;
        for page in rest {
            let (content, read_ns) = self.flash.read(page, from_ns);
            moved_ns = moved_ns.max(self.program(log, geometry.index_of(page), content, read_ns));
        }
        self.data[owner] = Some(log);
        self.release(data, moved_ns)
    }

    /// Copies all live pages of a logical block to their places in `target`. Returns the moment at
    /// which that is done.
    fn gather(&mut self, owner: usize, target: BlockAddress, from_ns: u64) -> u64 {
        let pages = self.flash.geometry().pages_per_block;
        let first = owner as u32 * pages;
        let end = (first + pages).min(self.map.logical_pages());
        let mut done_ns = from_ns;
        for page in (first..end).map(LogicalPage) {
            let Some(place) = self.map.place(page) else { continue };
            let (content, read_ns) = self.flash.read(place, from_ns);
            done_ns = done_ns.max(self.program(target, self.index_of(page), content, read_ns));
        }
        done_ns
    }

    /// Erases a block that holds no live page; it is then free or retired. Returns the moment at
    /// which that is done.
    fn release(&mut self, block: BlockAddress, from_ns: u64) -> u64 {
        assert_eq!(self.map.live(block), 0, "nothing live is erased");
        self.counts.collections += 1;
        let (erased, done_ns) = self.flash.erase(block, from_ns);
        match erased {
            Erased::Clean => self.free.put(block),
            Erased::WornOut => {
                self.logs_max = self.logs_max.saturating_sub(1);
                self.read_only = self.logs_max == 0;
            }
        }
        done_ns
    }

    /// Moves the data block erased least often into the free block erased most often, if wear
    /// levelling asks for it.
    fn level_wear(&mut self, from_ns: u64) -> u64 {
        let WearLevelling::Static { .. } = self.levelling else { return from_ns };
        let resting = |(owner, block): (usize, &Option<BlockAddress>)| block.map(|block| (owner, block));
        let least = (self.data.iter().enumerate().filter_map(resting))
            .filter(|(owner, _)| self.log_of(*owner).is_none())
            .min_by_key(|(owner, block)| (self.flash.erases(*block), *owner));
        let (Some((owner, block)), Some(worn)) = (least, self.free.most_worn(&self.flash)) else {
            return from_ns;
        };
        if !self.levelling.moves(self.flash.erases(worn), self.flash.erases(block)) {
            return from_ns;
        }
        self.free.take_this(worn);
        let moved_ns = self.gather(owner, worn, from_ns);
        self.counts.wear_copies += u64::from(self.map.live(worn));
        self.data[owner] = Some(worn);
        self.release(block, moved_ns)
    }
}

impl Ftl for BlockFtl {
    fn logical_pages(&self) -> u32 {
        self.map.logical_pages()
    }

    fn read(&mut self, page: LogicalPage, from_ns: u64) -> (Option<u64>, u64) {
        self.map.read(&mut self.flash, page, from_ns)
    }

    fn write(&mut self, page: LogicalPage, token: u64, from_ns: u64) -> Result<u64, NandError> {
        let before = self.counts.collections;
        let (block, index, ready_ns) = self.find_place(page, from_ns)?;
        self.host_writes += 1;
        let done_ns = self.program(block, index, Content { logical: page, token }, ready_ns);
        // Checked only after an erase: the spread grows at no other time.
        if self.counts.collections == before || self.read_only {
            return Ok(done_ns);
        }
        Ok(self.level_wear(done_ns))
    }

    fn discard(&mut self, page: LogicalPage) {
        self.map.set(&self.flash, page, None, self.host_writes);
    }

    fn flash(&self) -> &Flash {
        &self.flash
    }
    fn counts(&self) -> FtlCounts {
        self.counts
    }
    fn is_read_only(&self) -> bool {
        self.read_only
    }
}
