//! The methods of [`PageTier`](crate::PageTier) that a tier over another one, or a wrapper in a
//! test, passes on.

/// The named methods of [`PageTier`](crate::PageTier), passed on to the tier in a field. What the
/// type does itself it spells out.
///
/// ```
/// use firndb_tier::{PageRead, PageTier, forward_tier, testing::MemoryTier};
///
/// struct Counted {
///     inner: MemoryTier,
///     reads: std::sync::atomic::AtomicUsize,
/// }
///
/// impl PageTier for Counted {
///     forward_tier!(inner: page_size, write_batch, make_batch_space, reserve, unreserve, prepare);
///     forward_tier!(inner: publish, sync, version_of, oldest_needed_lsn, statistics);
///     fn read_batch(&self, reads: &mut [PageRead<'_>]) {
///         self.reads.fetch_add(reads.len(), std::sync::atomic::Ordering::Relaxed);
///         self.inner.read_batch(reads);
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward_tier {
    ($field:tt: $($method:ident),+ $(,)?) => { $($crate::forward_tier!(@ $field $method);)+ };
    (@ $field:tt page_size) => {
        fn page_size(&self) -> usize {
            self.$field.page_size()
        }
    };
    (@ $field:tt read_batch) => {
        fn read_batch(&self, reads: &mut [$crate::PageRead<'_>]) {
            self.$field.read_batch(reads);
        }
    };
    (@ $field:tt next_reads) => {
        fn next_reads(&self, reads: &mut $crate::PageReads) -> bool {
            self.$field.next_reads(reads)
        }
    };
    (@ $field:tt whereabouts) => {
        fn whereabouts(
            &self,
            pages: &[$crate::forward::PageId],
            found: &mut Vec<$crate::Whereabouts>,
        ) {
            self.$field.whereabouts(pages, found);
        }
    };
    (@ $field:tt write_batch) => {
        fn write_batch(&self, writes: &mut [$crate::PageWrite<'_>]) {
            self.$field.write_batch(writes);
        }
    };
    (@ $field:tt write_shadows) => {
        fn write_shadows(&self, writes: &mut [$crate::PageWrite<'_>]) {
            self.$field.write_shadows(writes);
        }
    };
    (@ $field:tt make_batch_space) => {
        fn make_batch_space(&self) -> usize {
            self.$field.make_batch_space()
        }
    };
    (@ $field:tt wants_clean) => {
        fn wants_clean(&self) -> bool {
            self.$field.wants_clean()
        }
    };
    (@ $field:tt wants_memory) => {
        fn wants_memory(&self) -> usize {
            self.$field.wants_memory()
        }
    };
    (@ $field:tt take_memory) => {
        fn take_memory(&self, bytes: usize) {
            self.$field.take_memory(bytes);
        }
    };
    (@ $field:tt reserve) => {
        fn reserve(&self, class: $crate::forward::LogClass) -> Result<$crate::forward::PageId, $crate::TierError> {
            self.$field.reserve(class)
        }
    };
    (@ $field:tt unreserve) => {
        fn unreserve(&self, page: $crate::forward::PageId) {
            self.$field.unreserve(page);
        }
    };
    (@ $field:tt prepare) => {
        fn prepare(
            &self,
            pages: &[$crate::forward::PageId],
        ) -> Result<$crate::Prepared<'_>, $crate::TierError> {
            self.$field.prepare(pages)
        }
    };
    (@ $field:tt publish) => {
        fn publish(
            &self,
            change: $crate::Allocation<'_>,
            append: &mut dyn FnMut(
                $crate::forward::Record<'_>,
            ) -> Result<$crate::forward::Appended, $crate::forward::LogError>,
        ) -> Result<$crate::forward::Appended, $crate::TierError> {
            self.$field.publish(change, append)
        }
    };
    (@ $field:tt sync) => {
        fn sync(&self) -> Result<(), $crate::TierError> {
            self.$field.sync()
        }
    };
    (@ $field:tt settle) => {
        fn settle(&self, before: $crate::forward::Lsn) -> Result<(), $crate::TierError> {
            self.$field.settle(before)
        }
    };
    (@ $field:tt version_of) => {
        fn version_of(
            &self,
            page: $crate::forward::PageId,
        ) -> Result<Option<$crate::forward::Lsn>, $crate::TierError> {
            self.$field.version_of(page)
        }
    };
    (@ $field:tt has_change_for_sure) => {
        fn has_change_for_sure(
            &self,
            page: $crate::forward::PageId,
            lsn: $crate::forward::Lsn,
        ) -> Result<Option<bool>, $crate::TierError> {
            self.$field.has_change_for_sure(page, lsn)
        }
    };
    (@ $field:tt page_is_lost) => {
        fn page_is_lost(&self, page: $crate::forward::PageId) -> bool {
            self.$field.page_is_lost(page)
        }
    };
    (@ $field:tt oldest_needed_lsn) => {
        fn oldest_needed_lsn(&self) -> Option<$crate::forward::Lsn> {
            self.$field.oldest_needed_lsn()
        }
    };
    (@ $field:tt statistics) => {
        fn statistics(&self) -> $crate::TierStatistics {
            self.$field.statistics()
        }
    };
}

/// What the macro names, so that its users need not depend on these crates.
pub use firndb_base::{Lsn, PageId};
pub use firndb_log::{Appended, LogClass, LogError, Record};
