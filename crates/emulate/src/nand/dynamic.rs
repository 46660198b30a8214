//! The dynamic translation layer exactly as Myers describes it (2008, section 2.2).
//!
//! A write goes to a clean page; when only one erase block's worth of clean pages is left, the live
//! pages of a block are copied there, the block is erased, and writing continues behind the copies.
//! The block is chosen at random among all, fully live ones included, which makes its expected live
//! share the live share c of the whole device: the one parameter of equation 2.2. [`PageFtl`] adds
//! what real devices do beyond that.

use super::page::{PageFtl, PageFtlOptions};
use super::victim::VictimPolicy;
use super::wear::WearLevelling;
use super::{Flash, Ftl, FtlCounts, Geometry, LogicalPage, NandError};

/// A dynamic map with random victims.
#[derive(Debug)]
pub struct DynamicFtl(PageFtl);

impl DynamicFtl {
    /// The most logical pages that an array can serve.
    #[must_use]
    pub fn logical_pages_max(geometry: &Geometry) -> u32 {
        PageFtl::logical_pages_max(geometry, false)
    }

    /// A translation layer on erased chips, with `logical_pages` for the host; `seed` draws the
    /// victims.
    pub fn new(flash: Flash, logical_pages: u32, seed: u64) -> Result<DynamicFtl, NandError> {
        let options = PageFtlOptions {
            victim: VictimPolicy::Random,
            victims_without_garbage: true,
            separate_copies: false,
            wear_levelling: WearLevelling::None,
            seed,
        };
        PageFtl::new(flash, logical_pages, options).map(DynamicFtl)
    }
}

impl Ftl for DynamicFtl {
    fn logical_pages(&self) -> u32 {
        self.0.logical_pages()
    }
    fn read(&mut self, page: LogicalPage, from_ns: u64) -> (Option<u64>, u64) {
        self.0.read(page, from_ns)
    }
    fn write(&mut self, page: LogicalPage, token: u64, from_ns: u64) -> Result<u64, NandError> {
        self.0.write(page, token, from_ns)
    }
    fn discard(&mut self, page: LogicalPage) {
        self.0.discard(page);
    }
    fn flash(&self) -> &Flash {
        self.0.flash()
    }
    fn counts(&self) -> FtlCounts {
        self.0.counts()
    }
    fn is_read_only(&self) -> bool {
        self.0.is_read_only()
    }
}
