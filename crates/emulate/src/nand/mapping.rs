//! Where each logical page is, and how many pages of each block are live.
//!
//! Invariant: a physical page is live exactly if the map leads to it, and a block's live count is
//! the number of its live pages.

use super::{BlockAddress, Content, Flash, LogicalPage, PageAddress};

/// A page-level map with its live counts.
#[derive(Debug)]
pub(super) struct Mapping {
    places: Vec<Option<PageAddress>>,
    live: Vec<u32>,
    /// For each block, when one of its pages was last written or became garbage, counted in pages
    /// written by the host.
    changed: Vec<u64>,
}

impl Mapping {
    /// An empty map.
    pub fn new(logical_pages: u32, blocks: u32) -> Mapping {
        Mapping {
            places: vec![None; logical_pages as usize],
            live: vec![0; blocks as usize],
            changed: vec![0; blocks as usize],
        }
    }

    pub fn logical_pages(&self) -> u32 {
        self.places.len() as u32
    }
    pub fn place(&self, page: LogicalPage) -> Option<PageAddress> {
        self.places[page.0 as usize]
    }
    pub fn live(&self, block: BlockAddress) -> u32 {
        self.live[block.0 as usize]
    }
    pub fn changed(&self, block: BlockAddress) -> u64 {
        self.changed[block.0 as usize]
    }

    /// Maps the page to `to` (to no place if `None`); its previous place becomes garbage.
    pub fn set(&mut self, flash: &Flash, page: LogicalPage, to: Option<PageAddress>, now: u64) {
        let from = std::mem::replace(&mut self.places[page.0 as usize], to);
        if let Some(place) = from {
            let block = flash.geometry().block_of(place).0 as usize;
            self.live[block] = self.live[block].checked_sub(1).expect("a live page is counted");
            self.changed[block] = now;
        }
        if let Some(place) = to {
            debug_assert_eq!(flash.peek(place).map(|content| content.logical), Some(page));
            let block = flash.geometry().block_of(place).0 as usize;
            self.live[block] += 1;
            self.changed[block] = now;
            assert!(
                self.live[block] <= flash.geometry().pages_per_block,
                "no more is live than a block holds"
            );
        }
    }

    /// What a physical page holds, if it is live.
    pub fn live_content(&self, flash: &Flash, place: PageAddress) -> Option<Content> {
        flash.peek(place).filter(|content| self.place(content.logical) == Some(place))
    }

    /// The live pages of a block, in order.
    pub fn live_pages(&self, flash: &Flash, block: BlockAddress) -> Vec<PageAddress> {
        let geometry = flash.geometry();
        let pages: Vec<PageAddress> = (0..flash.next_index(block))
            .map(|index| geometry.page(block, index))
            .filter(|place| self.live_content(flash, *place).is_some())
            .collect();
        assert_eq!(pages.len() as u32, self.live(block), "live counts agree with the map");
        pages
    }

    /// Reads a logical page through the map.
    pub fn read(&self, flash: &mut Flash, page: LogicalPage, from_ns: u64) -> (Option<u64>, u64) {
        let Some(place) = self.place(page) else { return (None, from_ns) };
        let (content, done_ns) = flash.read(place, from_ns);
        assert_eq!(content.logical, page, "the map leads to the page that was written there");
        (Some(content.token), done_ns)
    }
}
