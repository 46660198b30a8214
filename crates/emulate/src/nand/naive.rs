//! The naive translation layer (Myers 2008, section 2.2): a static map from logical to physical
//! pages.
//!
//! "Each write of a block will require the erasure and rewrite of the corresponding page"; the
//! other live pages of the erase block are read into memory before the erase and written back after
//! it. The host uses all pages; there is no spare block, so the device is read-only as soon as the
//! first block that is to be rewritten is worn out.

use super::{BlockAddress, Content, Erased, Flash, Ftl, FtlCounts, LogicalPage, NandError, PageAddress};

/// A static map.
#[derive(Debug)]
pub struct NaiveFtl {
    flash: Flash,
    live: Vec<bool>,
    counts: FtlCounts,
    read_only: bool,
}

impl NaiveFtl {
    /// A translation layer on erased chips.
    #[must_use]
    pub fn new(flash: Flash) -> NaiveFtl {
        let live = vec![false; flash.geometry().pages() as usize];
        NaiveFtl { flash, live, counts: FtlCounts::default(), read_only: false }
    }

    /// The fixed place of a page. Neighbours fill a block before they continue on the next chip.
    fn place(page: LogicalPage) -> PageAddress {
        PageAddress(page.0)
    }

    /// Reads the live pages of a block into memory, but for `except`; returns them in order, and
    /// the moment at which all are read.
    fn save(&mut self, block: BlockAddress, except: PageAddress, from_ns: u64) -> (Vec<Content>, u64) {
        let geometry = *self.flash.geometry();
        let (mut saved, mut read_ns) = (Vec::new(), from_ns);
        for place in (0..geometry.pages_per_block).map(|index| geometry.page(block, index)) {
            if self.live[place.0 as usize] && place != except {
                let (content, done_ns) = self.flash.read(place, from_ns);
                saved.push(content);
                read_ns = read_ns.max(done_ns);
            }
        }
        (saved, read_ns)
    }
}

impl Ftl for NaiveFtl {
    fn logical_pages(&self) -> u32 {
        self.flash.geometry().pages()
    }

    fn read(&mut self, page: LogicalPage, from_ns: u64) -> (Option<u64>, u64) {
        if !self.live[page.0 as usize] {
            return (None, from_ns);
        }
        let (content, done_ns) = self.flash.read(NaiveFtl::place(page), from_ns);
        assert_eq!(content.logical, page, "the map is static");
        (Some(content.token), done_ns)
    }

    fn write(&mut self, page: LogicalPage, token: u64, from_ns: u64) -> Result<u64, NandError> {
        let place = NaiveFtl::place(page);
        let block = self.flash.geometry().block_of(place);
        // Checked before the erase: the block's pages have no other place.
        if self.read_only || self.flash.is_at_limit(block) {
            self.read_only = true;
            return Err(NandError::WornOut);
        }
        let (mut contents, read_ns) = self.save(block, place, from_ns);
        self.counts.copies += contents.len() as u64;
        self.counts.collections += 1;
        contents.push(Content { logical: page, token });
        contents.sort_by_key(|content| content.logical);
        let (erased, mut done_ns) = self.flash.erase(block, read_ns);
        assert_eq!(erased, Erased::Clean, "the limit was asked for");
        for content in contents {
            done_ns = self.flash.program(NaiveFtl::place(content.logical), content, done_ns);
        }
        self.live[place.0 as usize] = true;
        Ok(done_ns)
    }

    fn discard(&mut self, page: LogicalPage) {
        self.live[page.0 as usize] = false;
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
