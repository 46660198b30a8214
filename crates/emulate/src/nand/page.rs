//! Page-level mapping, log-structured: every write goes to a clean page; garbage collection makes
//! clean pages.
//!
//! Each chip has its own open block for the host's pages; pages go to the chips in turn, so that
//! chips work side by side. When such a block is full and no free block but the reserve is left, a
//! victim's live pages are copied and it is erased. Copies go to a stream of their own (pages that
//! survived once are colder than those just written) or, in [`super::DynamicFtl`], into the block
//! that the host continues to fill.
//!
//! Invariants:
//! * a block is free, open (being filled by one stream), sealed, or retired;
//! * victims are sealed. So that at least one sealed block has garbage whenever a victim is needed,
//!   the good blocks must outnumber the logical pages' blocks by those that can be open or free
//!   then, and by one of garbage (see [`PageFtl::logical_pages_max`]). When retired blocks break
//!   that, the device becomes read-only;
//! * a victim is reclaimed only if its live pages fit in clean pages of the stream and free blocks.

use super::free_blocks::FreeBlocks;
use super::mapping::Mapping;
use super::victim::{Candidate, VictimPolicy};
use super::wear::{Temperature, WearLevelling};
use super::{
    BlockAddress, Content, Erased, Flash, Ftl, FtlCounts, Geometry, LogicalPage, NandError, PageAddress,
};
use firndb_base::rng::Rng;

/// Free blocks that only garbage collection may take.
const RESERVE: usize = 1;
/// Number of fully live random victims in a row after which the best victim is taken: a bound for a
/// loop that ends with probability 1.
const GAINLESS_MAX: u32 = 256;

/// How a page-mapped device collects its garbage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFtlOptions {
    /// The policy that chooses the block to reclaim.
    pub victim: VictimPolicy,
    /// Whether fully live blocks can be victims, too, although nothing is gained from them.
    pub victims_without_garbage: bool,
    /// Whether copies go to blocks of their own.
    pub separate_copies: bool,
    /// The policy that spreads erases.
    pub wear_levelling: WearLevelling,
    /// Seed for random victims.
    pub seed: u64,
}

impl Default for PageFtlOptions {
    fn default() -> PageFtlOptions {
        PageFtlOptions {
            victim: VictimPolicy::Greedy,
            victims_without_garbage: false,
            separate_copies: true,
            wear_levelling: WearLevelling::Static { spread: 32 },
            seed: 1,
        }
    }
}

/// A writer of one open block: the host on one chip, or garbage collection.
type Stream = usize;

/// A log-structured page map.
#[derive(Debug)]
pub struct PageFtl {
    flash: Flash,
    map: Mapping,
    free: FreeBlocks,
    options: PageFtlOptions,
    /// The open block of each stream: one a chip for the host, and one for copies if they are kept
    /// apart.
    open: Vec<Option<BlockAddress>>,
    /// Filled blocks, in the order in which they were filled.
    sealed: Vec<BlockAddress>,
    next_chip: Stream,
    good_blocks: u32,
    rng: Rng,
    host_writes: u64,
    counts: FtlCounts,
    read_only: bool,
}

impl PageFtl {
    /// The most logical pages that an array can serve, and still collect garbage.
    #[must_use]
    pub fn logical_pages_max(geometry: &Geometry, separate_copies: bool) -> u32 {
        PageFtl::capacity(geometry, separate_copies, geometry.blocks())
    }

    fn capacity(geometry: &Geometry, separate_copies: bool, good_blocks: u32) -> u32 {
        let kept = RESERVE as u32 + geometry.chips + u32::from(separate_copies);
        good_blocks.saturating_sub(kept) * geometry.pages_per_block
    }

    /// A translation layer on erased chips, with `logical_pages` for the host.
    pub fn new(flash: Flash, logical_pages: u32, options: PageFtlOptions) -> Result<PageFtl, NandError> {
        let geometry = *flash.geometry();
        let most = PageFtl::logical_pages_max(&geometry, options.separate_copies);
        if logical_pages == 0 || logical_pages > most {
            return Err(NandError::BadConfig(format!(
                "{logical_pages} pages are to be the host's; of {} pages of flash this translation layer needs some to work with and can give 1 to {most}: raise the over-provisioning or the number of blocks",
                geometry.pages()
            )));
        }
        let streams = geometry.chips as usize + usize::from(options.separate_copies);
        Ok(PageFtl {
            map: Mapping::new(logical_pages, geometry.blocks()),
            free: FreeBlocks::all(&flash, options.wear_levelling),
            open: vec![None; streams],
            sealed: Vec::new(),
            next_chip: 0,
            good_blocks: geometry.blocks(),
            rng: Rng::new(options.seed),
            host_writes: 0,
            counts: FtlCounts::default(),
            read_only: false,
            flash,
            options,
        })
    }

    /// Clean pages of the block that a stream fills.
    fn clean_pages(&self, stream: Stream) -> u32 {
        self.open[stream]
            .map_or(0, |block| self.flash.geometry().pages_per_block - self.flash.next_index(block))
    }

    /// Gives the stream a free block; its full one is sealed.
    fn open_block(&mut self, stream: Stream, temperature: Temperature) {
        assert_eq!(self.clean_pages(stream), 0, "a block is filled to its end");
        // Copies go to the chips in turn, wherever the victim is.
        let chip = if stream < self.flash.geometry().chips as usize { stream } else { self.next_chip };
        let block = self.free.take(&self.flash, chip, temperature).expect("the caller knows of a free block");
        if let Some(full) = self.open[stream].replace(block) {
            self.sealed.push(full);
        }
    }

    /// Programs the stream's next clean page, and maps the logical page to it.
    fn append(&mut self, stream: Stream, content: Content, from_ns: u64) -> u64 {
        let block = self.open[stream].expect("the stream has a clean page");
        let place = self.flash.geometry().page(block, self.flash.next_index(block));
        self.place(content, place, from_ns)
    }

    fn place(&mut self, content: Content, place: PageAddress, from_ns: u64) -> u64 {
        let done_ns = self.flash.program(place, content, from_ns);
        self.map.set(&self.flash, content.logical, Some(place), self.host_writes);
        done_ns
    }

    /// Ensures that the stream has a clean page; returns the moment at which the work for it is
    /// done.
    fn ensure_clean_page(&mut self, stream: Stream, from_ns: u64) -> Result<u64, NandError> {
        let mut now_ns = from_ns;
        let mut gainless = 0;
        while self.clean_pages(stream) == 0 {
            if self.free.len() > RESERVE {
                self.open_block(stream, Temperature::Hot);
                continue;
            }
            // A full block of this stream has garbage like any other.
            if let Some(full) = self.open[stream].take() {
                self.sealed.push(full);
            }
            let to = if self.options.separate_copies { self.open.len() - 1 } else { stream };
            let victim = self.choose_victim(to, gainless >= GAINLESS_MAX).ok_or_else(|| self.worn_out())?;
            gainless = if self.map.live(victim) == self.pages_per_block() { gainless + 1 } else { 0 };
            now_ns = self.collect(victim, to, now_ns)?;
        }
        Ok(now_ns)
    }

    fn pages_per_block(&self) -> u32 {
        self.flash.geometry().pages_per_block
    }

    fn worn_out(&mut self) -> NandError {
        self.read_only = true;
        NandError::WornOut
    }

    /// Chooses the policy's victim among the sealed blocks with live pages that fit, and removes it
    /// from the list of sealed blocks.
    fn choose_victim(&mut self, to: Stream, best: bool) -> Option<BlockAddress> {
        let pages = self.pages_per_block();
        let space = self.clean_pages(to) + self.free.len() as u32 * pages;
        let (map, now) = (&self.map, self.host_writes);
        let with_garbage_only = best || !self.options.victims_without_garbage;
        let fits = |block: &BlockAddress| {
            map.live(*block) <= space && (map.live(*block) < pages || !with_garbage_only)
        };
        let candidates = self.sealed.iter().enumerate().filter(|(_, block)| fits(block));
        let known = candidates.clone().map(|(_, block)| Candidate {
            live: map.live(*block),
            pages,
            age: now - map.changed(*block),
        });
        let policy = if best { VictimPolicy::Greedy } else { self.options.victim };
        let chosen = policy.choose(known, &mut self.rng)?;
        let (index, _) = candidates.clone().nth(chosen).expect("the policy chose among them");
        Some(self.sealed.remove(index))
    }

    /// Copies the victim's live pages, erases it, and levels wear. Returns the moment at which that
    /// is done.
    fn collect(&mut self, victim: BlockAddress, to: Stream, from_ns: u64) -> Result<u64, NandError> {
        let mut copied_ns = from_ns;
        for page in self.map.live_pages(&self.flash, victim) {
            if self.clean_pages(to) == 0 {
                self.open_block(to, Temperature::Cold);
            }
            let (content, read_ns) = self.flash.read(page, from_ns);
            copied_ns = copied_ns.max(self.append(to, content, read_ns));
            self.counts.copies += 1;
        }
        self.counts.collections += 1;
        self.erase(victim, copied_ns)
    }

    /// Erases a block without live pages. It becomes free, is retired, or receives data that never
    /// change.
    fn erase(&mut self, block: BlockAddress, from_ns: u64) -> Result<u64, NandError> {
        assert_eq!(self.map.live(block), 0, "nothing live is erased");
        let (erased, done_ns) = self.flash.erase(block, from_ns);
        if erased == Erased::WornOut {
            self.good_blocks -= 1;
            let capacity =
                PageFtl::capacity(self.flash.geometry(), self.options.separate_copies, self.good_blocks);
            if self.map.logical_pages() > capacity {
                return Err(self.worn_out());
            }
            return Ok(done_ns);
        }
        match self.resting_block(block) {
            Some(resting) => self.move_into(resting, block, done_ns),
            None => {
                self.free.put(block);
                Ok(done_ns)
            }
        }
    }

    /// A sealed block that was erased so much less often than `worn` that its data should rest
    /// there.
    fn resting_block(&mut self, worn: BlockAddress) -> Option<BlockAddress> {
        let WearLevelling::Static { .. } = self.options.wear_levelling else { return None };
        let erases = |block: BlockAddress| self.flash.erases(block);
        let (index, least) =
            self.sealed.iter().enumerate().min_by_key(|(index, block)| (erases(**block), *index))?;
        let moves = self.options.wear_levelling.moves(erases(worn), erases(*least));
        moves.then(|| self.sealed.remove(index))
    }

    /// Moves the live pages of `from` into the erased block `to`, which is then sealed, and erases
    /// `from`.
    fn move_into(&mut self, from: BlockAddress, to: BlockAddress, from_ns: u64) -> Result<u64, NandError> {
        let mut moved_ns = from_ns;
        for (index, page) in (0..).zip(self.map.live_pages(&self.flash, from)) {
            let (content, read_ns) = self.flash.read(page, from_ns);
            let place = self.flash.geometry().page(to, index);
            moved_ns = moved_ns.max(self.place(content, place, read_ns));
            self.counts.wear_copies += 1;
        }
        self.sealed.push(to);
        self.erase(from, moved_ns)
    }
}

impl Ftl for PageFtl {
    fn logical_pages(&self) -> u32 {
        self.map.logical_pages()
    }

    fn read(&mut self, page: LogicalPage, from_ns: u64) -> (Option<u64>, u64) {
        self.map.read(&mut self.flash, page, from_ns)
    }

    fn write(&mut self, page: LogicalPage, token: u64, from_ns: u64) -> Result<u64, NandError> {
        if self.read_only {
            return Err(NandError::WornOut);
        }
        self.next_chip = (self.next_chip + 1) % self.flash.geometry().chips as usize;
        let ready_ns = self.ensure_clean_page(self.next_chip, from_ns)?;
        self.host_writes += 1;
        Ok(self.append(self.next_chip, Content { logical: page, token }, ready_ns))
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
