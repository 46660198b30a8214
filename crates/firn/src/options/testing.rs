//! What only tests, simulation and the laboratory change: the setters need the feature `testing`.

use crate::options::callbacks::{WrapDeviceFn, WrapTierFn};
use firndb_tier::store::Layout;
use std::time::Duration;

use firndb_base::sync::Arc;
use firndb_device::Device;

#[cfg(feature = "testing")]
use {
    crate::options::Options, firndb_device::DeviceError, firndb_log::archive::WrapDevice,
    firndb_tier::PageTier,
};

/// What only tests, simulation and the laboratory change.
#[derive(Clone, Default)]
pub(crate) struct Testing {
    pub wrap_device: Option<WrapDeviceFn>,
    pub wrap_tier: Option<WrapTierFn>,
    pub spill: Option<Arc<dyn Device>>,
    pub store_layout: Layout,
    pub numbers_limit: Option<u64>,
    pub skip_wal_rule: bool,
    pub break_cache_restore: bool,
    pub break_cache_rebuild: bool,
    pub reuse_held_places: bool,
    pub waits_for_late_reads: bool,
    pub layouts_every: Option<Duration>,
    pub layouts_in_turn: bool,
    /// How often tables are looked at, and how many changed rows make one be analyzed at least.
    pub analyses: Option<(Duration, u64)>,
}

/// With the feature `testing` only. All hold for one opening, except for the store's layout, which
/// is fixed.
#[cfg(feature = "testing")]
impl Options {
    /// Wraps each file of the database in a device of the caller's: one that records
    /// ([`crate::device::Recording`]), counts, fails, or takes its time as another device would.
    /// `wrap` gets a name (`superblock`, `log.0`, `log.1`, …, `store`, `cache`, `spill`) and the
    /// file, and returns the device that is used. It is called once a file and opening. What the
    /// database does before (taking the files' locks, reading the superblock, timing the device for
    /// [`crate::LogSettings::devices`]) is done to the file itself.
    ///
    /// The returned device must keep what [`Device`] promises; the database's durability rests on
    /// it.
    #[must_use]
    pub fn wrap_devices(
        mut self,
        wrap: impl Fn(&str, Arc<dyn Device>) -> Result<Arc<dyn Device>, DeviceError> + Send + Sync + 'static,
    ) -> Options {
        self.testing.wrap_device = Some(Arc::new(wrap));
        self
    }
    /// Has queries spill to this device, instead of the file of [`Options::spill_path`].
    #[must_use]
    pub fn spill_on(mut self, device: Arc<dyn Device>) -> Options {
        self.testing.spill = Some(device);
        self
    }
    /// Wraps what is below DRAM, for tests that watch the pages that pass. Called once an opening.
    #[must_use]
    pub fn wrap_tier(
        mut self,
        wrap: impl Fn(Arc<dyn PageTier>) -> Arc<dyn PageTier> + Send + Sync + 'static,
    ) -> Options {
        self.testing.wrap_tier = Some(Arc::new(wrap));
        self
    }
    /// Wraps every file that the archive and backups write: tests of failing, slow and crashing
    /// ones.
    #[must_use]
    pub fn wrap_archive(mut self, wrap: WrapDevice) -> Options {
        self.archive.wrap = Some(wrap);
        self
    }
    /// Wraps every file of the archive that recovery reads: tests of fast and slow ones.
    #[must_use]
    pub fn wrap_archive_reads(mut self, wrap: WrapDevice) -> Options {
        self.archive.wrap_reads = Some(wrap);
        self
    }
    /// Cuts a new page store into groups with `maps_per_group` map pages of `meta_bytes` bytes,
    /// instead of groups of 4,032 pages: a test's database of a few pages then has several groups,
    /// and is checked in less time.
    #[must_use]
    pub fn store_layout(mut self, meta_bytes: usize, maps_per_group: u32) -> Options {
        self.testing.store_layout = Layout { meta_bytes, maps_per_group };
        self
    }
    /// Compaction moves page numbers from `limit` on although the file need not be so short: a
    /// test's few pages fit any file.
    #[must_use]
    pub fn move_page_numbers_from(mut self, limit: u64) -> Options {
        self.testing.numbers_limit = Some(limit);
        self
    }
    /// Reads of the store that are late are waited for, and not begun again: to see what that
    /// hides.
    #[must_use]
    pub fn wait_for_late_reads(mut self, wait: bool) -> Options {
        self.testing.waits_for_late_reads = wait;
        self
    }
    /// How often loads of tables are looked at, to choose layouts by.
    #[must_use]
    pub fn choose_layouts_every(mut self, time: Duration) -> Options {
        self.testing.layouts_every = Some(time);
        self
    }
    /// Tables whose layouts the engine chooses get one after another, whatever their loads.
    #[must_use]
    pub fn choose_layouts_in_turn(mut self) -> Options {
        self.testing.layouts_in_turn = true;
        self
    }
    /// How often tables are looked at to be analyzed in the background, and the rows that have
    /// changed at least in one that is.
    #[must_use]
    pub fn analyze_every(mut self, time: Duration, rows_least: u64) -> Options {
        self.testing.analyses = Some((time, rows_least));
        self
    }
    /// Breaks the write-ahead rule, so that tests of crashes can show that they see failure.
    #[must_use]
    pub fn unsafe_skip_wal_rule(mut self) -> Options {
        self.testing.skip_wal_rule = true;
        self
    }
    /// Forgets a part of what a flash cache held whenever it is opened, so that tests can show that
    /// they see failure.
    #[must_use]
    pub fn unsafe_break_cache_restore(mut self) -> Options {
        self.testing.break_cache_restore = true;
        self
    }
    /// Rebuilds a lost flash cache from too little log, so that tests can show that they see
    /// failure.
    #[must_use]
    pub fn unsafe_break_cache_rebuild(mut self) -> Options {
        self.testing.break_cache_rebuild = true;
        self
    }
    /// Gives places of shadows out again before archive and backups have the images, so that tests
    /// can show that they see failure.
    #[must_use]
    pub fn unsafe_reuse_held_places(mut self) -> Options {
        self.testing.reuse_held_places = true;
        self
    }
}
