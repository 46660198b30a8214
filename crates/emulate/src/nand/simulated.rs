//! A whole simulated device: chips, a translation layer, and a host's interface in bytes.

use super::page::{PageFtl, PageFtlOptions};
use super::report::{NandReport, WearReport};
use super::{
    BlockAddress, BlockFtl, DynamicFtl, Flash, FlashCounts, FlashTimes, Ftl, FtlCounts, Geometry,
    LogicalPage, NaiveFtl, NandError, VictimPolicy, WearLevelling,
};

/// The translation layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Translation {
    /// [`NaiveFtl`].
    Naive,
    /// [`DynamicFtl`].
    Dynamic,
    /// [`PageFtl`].
    Page,
    /// [`BlockFtl`].
    Block,
}

/// What a simulated device is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NandConfig {
    /// The chips.
    pub geometry: Geometry,
    /// The times of their operations.
    pub times: FlashTimes,
    /// How often a block can be erased: 10,000 to 1,000,000 (Myers 2008, section 2.1); about 3,000
    /// in flash of three bits a cell.
    pub erase_limit: u32,
    /// The translation layer.
    pub translation: Translation,
    /// Pages that the host can use.
    pub logical_pages: u32,
    /// The policy by which [`Translation::Page`] chooses the block to reclaim.
    pub victim: VictimPolicy,
    /// How [`Translation::Page`] and [`Translation::Block`] spread erases.
    pub wear_levelling: WearLevelling,
    /// Seed for random victims.
    pub seed: u64,
}

impl NandConfig {
    /// Chips as in Myers's simulator, with enough blocks for `bytes` of the host and
    /// `over_provisioning` times that for the controller (0.07 is usual), or what the translation
    /// layer needs if that is more. All other fields can be changed afterwards.
    pub fn sized(
        translation: Translation,
        bytes: u64,
        over_provisioning: f64,
    ) -> Result<NandConfig, NandError> {
        NandConfig::sized_with(Geometry::myers(), translation, bytes, over_provisioning)
    }

    /// As [`NandConfig::sized`], with other chips; their number of blocks is ignored.
    pub fn sized_with(
        mut geometry: Geometry,
        translation: Translation,
        bytes: u64,
        over_provisioning: f64,
    ) -> Result<NandConfig, NandError> {
        geometry.blocks_per_chip = 1;
        geometry.check()?;
        if !(0.0..=100.0).contains(&over_provisioning) {
            return Err(NandError::BadConfig(format!(
                "an over-provisioning of {over_provisioning} was asked for; it is a share of the capacity from 0 to 100"
            )));
        }
        let too_large = || NandError::BadConfig(format!("{bytes} bytes are more than the model can hold"));
        let logical_pages =
            u32::try_from(bytes.div_ceil(u64::from(geometry.page_bytes))).map_err(|_| too_large())?;
        let logical_blocks = f64::from(logical_pages) / f64::from(geometry.pages_per_block);
        let wanted = (logical_blocks * (1.0 + over_provisioning) / f64::from(geometry.chips)).ceil();
        if wanted > f64::from(u32::MAX) {
            return Err(too_large());
        }
        geometry.blocks_per_chip = (wanted as u32).max(1);
        // At most a few blocks a chip are missing.
        while logical_pages > NandConfig::most(&geometry, translation) {
            geometry.check()?;
            geometry.blocks_per_chip += 1;
        }
        geometry.check()?;
        Ok(NandConfig {
            geometry,
            times: FlashTimes::myers(),
            erase_limit: 10_000,
            translation,
            logical_pages: logical_pages.max(1),
            victim: VictimPolicy::Greedy,
            wear_levelling: PageFtlOptions::default().wear_levelling,
            seed: 1,
        })
    }

    fn most(geometry: &Geometry, translation: Translation) -> u32 {
        match translation {
            Translation::Naive => geometry.pages(),
            Translation::Dynamic => DynamicFtl::logical_pages_max(geometry),
            Translation::Page => PageFtl::logical_pages_max(geometry, true),
            Translation::Block => BlockFtl::logical_pages_max(geometry),
        }
    }

    /// Bytes that the host can use.
    #[must_use]
    pub fn logical_bytes(&self) -> u64 {
        u64::from(self.logical_pages) * u64::from(self.geometry.page_bytes)
    }
    /// Flash that the host cannot use, as a share of what it can.
    #[must_use]
    pub fn over_provisioning(&self) -> f64 {
        f64::from(self.geometry.pages()) / f64::from(self.logical_pages) - 1.0
    }
}

/// Counts of the host's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounts {
    /// Requests to read.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Requests to write.
    pub writes: u64,
    /// Their bytes.
    pub write_bytes: u64,
    /// Pages of which a request wrote only a part: the rest was read and programmed again.
    pub partial_pages: u64,
    /// Requests to discard.
    pub discards: u64,
    /// Their bytes.
    pub discard_bytes: u64,
}

/// A simulated device. Moments are nanoseconds since its making; a request begins at the moment it
/// is given, or when the chips it needs are free.
#[derive(Debug)]
pub struct Nand {
    config: NandConfig,
    ftl: Box<dyn Ftl>,
    host: HostCounts,
    /// Counts and chip time when counting began.
    base: (FlashCounts, FtlCounts),
    base_ns: u64,
    /// Pages written so far; its value is the token of the next page.
    written: u64,
}

impl Nand {
    /// A device with erased chips.
    pub fn new(config: NandConfig) -> Result<Nand, NandError> {
        config.geometry.check()?;
        if config.erase_limit == 0 {
            return Err(NandError::BadConfig("erase_limit is 0; it must be at least 1".into()));
        }
        let flash = Flash::new(config.geometry, config.times, config.erase_limit);
        let ftl: Box<dyn Ftl> = match config.translation {
            Translation::Naive => Box::new(NaiveFtl::new(flash)),
            Translation::Dynamic => Box::new(DynamicFtl::new(flash, config.logical_pages, config.seed)?),
            Translation::Block => {
                Box::new(BlockFtl::new(flash, config.logical_pages, config.wear_levelling)?)
            }
            Translation::Page => {
                let options = PageFtlOptions {
                    victim: config.victim,
                    wear_levelling: config.wear_levelling,
                    seed: config.seed,
                    ..PageFtlOptions::default()
                };
                Box::new(PageFtl::new(flash, config.logical_pages, options)?)
            }
        };
        if config.logical_pages == 0 || config.logical_pages > ftl.logical_pages() {
            return Err(NandError::BadConfig(format!(
                "{} pages are to be the host's; the flash has {}",
                config.logical_pages,
                ftl.logical_pages()
            )));
        }
        let base = (FlashCounts::default(), FtlCounts::default());
        Ok(Nand { config, ftl, host: HostCounts::default(), base, base_ns: 0, written: 0 })
    }

    /// What the device is made of.
    #[must_use]
    pub fn config(&self) -> &NandConfig {
        &self.config
    }
    /// Bytes that the host can use.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.config.logical_bytes()
    }
    /// Always `false`: the host can use at least one byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }
    /// Whether nothing can be written any more.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.ftl.is_read_only()
    }

    /// Reads; returns the moment of completion.
    pub fn read(&mut self, offset: u64, bytes: u64, from_ns: u64) -> Result<u64, NandError> {
        let pages = self.pages(offset, bytes)?;
        self.host.reads += 1;
        self.host.read_bytes += bytes;
        let from_ns = from_ns.saturating_add(self.base_ns);
        let done_ns = pages.map(|page| self.ftl.read(LogicalPage(page), from_ns).1).max().unwrap_or(from_ns);
        Ok(done_ns - self.base_ns)
    }

    /// Writes; returns the moment of completion. After an error each page of the request holds
    /// either its old contents or the new ones.
    pub fn write(&mut self, offset: u64, bytes: u64, from_ns: u64) -> Result<u64, NandError> {
        let pages = self.pages(offset, bytes)?;
        let page_bytes = u64::from(self.config.geometry.page_bytes);
        let (from_ns, end) = (from_ns.saturating_add(self.base_ns), offset + bytes);
        let mut done_ns = from_ns;
        for page in pages {
            let begin = u64::from(page) * page_bytes;
            let mut ready_ns = from_ns;
            if offset > begin || end < begin + page_bytes {
                self.host.partial_pages += 1;
                ready_ns = self.ftl.read(LogicalPage(page), from_ns).1;
            }
            self.written += 1;
            done_ns = done_ns.max(self.ftl.write(LogicalPage(page), self.written, ready_ns)?);
        }
        self.host.writes += 1;
        self.host.write_bytes += bytes;
        Ok(done_ns - self.base_ns)
    }

    /// Discards the pages that lie wholly in the range. Takes no time.
    pub fn discard(&mut self, offset: u64, bytes: u64) -> Result<(), NandError> {
        self.pages(offset, bytes)?;
        let page_bytes = u64::from(self.config.geometry.page_bytes);
        self.host.discards += 1;
        self.host.discard_bytes += bytes;
        for page in offset.div_ceil(page_bytes)..(offset + bytes) / page_bytes {
            self.ftl.discard(LogicalPage(page as u32));
        }
        Ok(())
    }

    /// Writes the first `bytes` sequentially, and then resets all counts, with idle chips.
    pub fn fill(&mut self, bytes: u64) -> Result<(), NandError> {
        let page_bytes = u64::from(self.config.geometry.page_bytes);
        for page in self.pages(0, bytes)? {
            self.write(u64::from(page) * page_bytes, page_bytes, 0)?;
        }
        self.begin_counting();
        Ok(())
    }

    /// Resets the counts and the time, but not the wear.
    pub fn begin_counting(&mut self) {
        self.host = HostCounts::default();
        self.base = (self.ftl.flash().counts(), self.ftl.counts());
        self.base_ns = self.base_ns.max(self.ftl.flash().idle_at_ns());
    }

    /// Counts since counting began, and the state of wear.
    #[must_use]
    pub fn report(&self) -> NandReport {
        let flash = self.ftl.flash();
        let erases: Vec<u32> =
            (0..self.config.geometry.blocks()).map(|block| flash.erases(BlockAddress(block))).collect();
        let retired =
            (0..self.config.geometry.blocks()).filter(|block| flash.is_retired(BlockAddress(*block)));
        NandReport {
            host: self.host,
            flash: flash.counts().since(&self.base.0),
            translation: self.ftl.counts().since(&self.base.1),
            page_bytes: self.config.geometry.page_bytes,
            chips: self.config.geometry.chips,
            wear: WearReport::of(erases, retired.count() as u32, self.config.erase_limit),
            read_only: self.ftl.is_read_only(),
            elapsed_ns: flash.idle_at_ns().saturating_sub(self.base_ns),
        }
    }

    /// The pages that a range touches.
    fn pages(&self, offset: u64, bytes: u64) -> Result<std::ops::Range<u32>, NandError> {
        let page_bytes = u64::from(self.config.geometry.page_bytes);
        match offset.checked_add(bytes) {
            Some(end) if end <= self.len() && bytes == 0 => Ok(0..0),
            Some(end) if end <= self.len() => {
                Ok((offset / page_bytes) as u32..end.div_ceil(page_bytes) as u32)
            }
            _ => Err(NandError::OutOfRange { offset, bytes, capacity: self.len() }),
        }
    }
}
