//! What was written below DRAM, remembered beside it: whatever is read there must be no older.
//!
//! A [`Shadow`] outlives power cuts; [`Shadow::watch`] puts it between the buffer and the tiers of
//! one opening of a database. It notes the version and the checksum of each page that the tiers
//! take, and compares each page that they return.
//!
//! * In the opening in which it was written, a page is read in that version or a later one; of
//!   equal versions, with equal bytes.
//! * In a later opening the tiers may be behind: redo makes up for it. But nothing is written below
//!   DRAM before its log is durable, so what was written before a crash is there again after redo,
//!   or redo makes it. A page that is read older than that is *owed*: it is written in that version
//!   or a later one before it is read again. Else redo has missed something, and only clients that
//!   read the wrong rows would notice.
//! * A page and its base differ by no byte that is not among its changes (`images.rs`), as the
//!   tiers return them and as the buffer offers them.
//! * A free, or a new incarnation of the page's number, ends what is known of it.
//!
//! The lock is the standard library's, and never held across a scheduling point: to watch changes
//! no run.

use crate::images::Images;
use firndb::{Lsn, PageId};
use firndb_base::checksum::crc32c;
use firndb_log::{Appended, LogError, Record};
use firndb_tier::{
    Allocation, Base, Changes, Found, PageRead, PageReads, PageTier, PageWrite, TierError, Written,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Faults kept, of which the first is what matters.
const FAULTS_MAX: usize = 8;

/// What is known of one page.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// The newest version that was written.
    version: Lsn,
    /// Checksum of its bytes.
    sum: u32,
    /// The opening in which it was written.
    opening: u64,
    /// In a later opening an older version was read.
    owed: bool,
}

#[derive(Debug, Default)]
struct Pages {
    opening: u64,
    known: BTreeMap<PageId, Known>,
    images: Images,
    /// What was known of the pages that are being read one by one.
    under_way: BTreeMap<PageId, Option<Known>>,
    /// A backup reads, too, past the buffer: a page that is owed may be read twice.
    lenient: bool,
    compared: u64,
    faults: Vec<String>,
}

/// What was written below DRAM, over all openings of a database.
#[derive(Clone, Debug, Default)]
pub struct Shadow(Arc<Mutex<Pages>>);

impl Shadow {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().expect("nothing panics under it")
    }

    /// The tiers of a new opening, watched. `late_shadows` breaks them: they seem to have taken the
    /// shadows of page files before they have.
    #[must_use]
    pub fn watch(&self, tier: Arc<dyn PageTier>, late_shadows: bool) -> Arc<dyn PageTier> {
        let mut pages = self.pages();
        pages.opening += 1;
        pages.known.values_mut().for_each(|known| known.owed = false);
        let late = late_shadows.then(Mutex::default);
        Arc::new(Watched { tier, shadow: self.clone(), late })
    }

    /// Whether others than the buffer read pages: a backup does.
    pub fn be_lenient(&self, lenient: bool) {
        self.pages().lenient = lenient;
    }

    /// What was wrong, since this was asked last.
    #[must_use]
    pub fn take_faults(&self) -> Vec<String> {
        std::mem::take(&mut self.pages().faults)
    }

    /// Pages read of which something was known.
    #[must_use]
    pub fn compared(&self) -> u64 {
        self.pages().compared
    }

    /// Pages of which changes since a known base were judged, as they were read and written.
    #[must_use]
    pub fn bases_judged(&self) -> u64 {
        self.pages().images.judged()
    }
}

impl Pages {
    fn accuse(&mut self, sentence: String) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(sentence);
        }
    }

    /// `before`: what was known when the read began.
    fn read(&mut self, page: PageId, found: Found, data: &[u8], before: Option<Known>) {
        let place = if found.cached { "the cache" } else { "the store" };
        self.judge((page, found.version), data, (found.base, found.changes), place);
        let Some(before) = before else { return };
        self.compared += 1;
        let opening = self.opening;
        let version = found.version;
        if version == before.version && crc32c(data) != before.sum {
            self.accuse(format!(
                "page {page} was read from {place} in version {version} with other bytes than were written"
            ));
        }
        if version >= before.version {
            return;
        }
        if before.opening == opening {
            return self.accuse(format!(
                "page {page} was read from {place} in version {version}; version {} had been written",
                before.version
            ));
        }
        if before.owed && !self.lenient {
            return self.accuse(format!(
                "page {page} was read from {place} in version {version} again, though version {} had been written before \
                 a crash: redo has missed it",
                before.version
            ));
        }
        if let Some(known) = self.known.get_mut(&page).filter(|known| known.version == before.version) {
            known.owed = true;
        }
    }

    fn judge(&mut self, version: (PageId, Lsn), data: &[u8], since: (Option<Base>, Changes), whence: &str) {
        if let Some(wrong) = self.images.judge(version, data, since) {
            self.accuse(format!("{wrong}: so says {whence}"));
        }
    }

    /// Before the tiers see it.
    fn offered(&mut self, write: &PageWrite<'_>) {
        let version = (write.page, write.version);
        self.judge(version, write.data, (write.base, write.changes), "the buffer");
        self.images.note(write.page, write.version, write.data);
    }

    fn written(&mut self, write: &PageWrite<'_>, before: Option<Known>) {
        let Ok(Written::Taken { base, changes }) = write.outcome else { return };
        self.judge((write.page, write.version), write.data, (base, changes), "the tier that took it");
        let (page, version) = (write.page, write.version);
        if let Some(before) = before.filter(|before| version < before.version) {
            return self.accuse(format!(
                "page {page} left DRAM in version {version}; version {} had been written",
                before.version
            ));
        }
        let known = Known { version, sum: crc32c(write.data), opening: self.opening, owed: false };
        if self.known.get(&page).is_none_or(|there| there.version <= version) {
            self.known.insert(page, known);
        }
    }
}

/// The tiers of one opening, watched.
struct Watched {
    tier: Arc<dyn PageTier>,
    shadow: Shadow,
    /// Where shadows are written late: those that are to be written.
    late: Option<Mutex<Vec<Late>>>,
}

/// A shadow that is written late.
type Late = (PageId, Lsn, Vec<u8>);

impl Watched {
    /// Keeps the shadows that are to be written late, which seem to have been taken, and writes
    /// those kept before. False if shadows are not written late.
    fn put_off(&self, writes: &mut [PageWrite<'_>]) -> bool {
        let Some(late) = &self.late else { return false };
        let kept = writes.iter().map(|write| (write.page, write.version, write.data.to_vec())).collect();
        let due = std::mem::replace(&mut *late.lock().expect("nothing panics under it"), kept);
        let mut due: Vec<PageWrite<'_>> = due
            .iter()
            .map(|(page, version, data)| PageWrite::back(*page, *version, Lsn::MAX, data))
            .collect();
        self.tier.write_shadows(&mut due);
        writes
            .iter_mut()
            .for_each(|write| write.outcome = Ok(Written::Taken { base: None, changes: Changes::NONE }));
        true
    }
}

impl PageTier for Watched {
    firndb_tier::forward_tier!(tier: page_size, make_batch_space, wants_clean, reserve, unreserve, prepare);
    firndb_tier::forward_tier!(tier: sync, settle, version_of, has_change_for_sure, page_is_lost);
    firndb_tier::forward_tier!(tier: oldest_needed_lsn, statistics, whereabouts);
    fn read_batch(&self, reads: &mut [PageRead<'_>]) {
        self.put_off(&mut []);
        let known = |shadow: &Shadow, page| shadow.pages().known.get(&page).copied();
        let before: Vec<Option<Known>> = reads.iter().map(|read| known(&self.shadow, read.page)).collect();
        self.tier.read_batch(reads);
        let mut pages = self.shadow.pages();
        for (read, before) in reads.iter().zip(before) {
            if let Ok(found) = read.outcome {
                pages.read(read.page, found, read.buf, before);
            }
        }
    }
    fn begin_reads(&self, reads: &mut PageReads, pages: &[(usize, PageId)]) {
        self.put_off(&mut []);
        for (_, page) in pages {
            let mut shadow = self.shadow.pages();
            let known = shadow.known.get(page).copied();
            shadow.under_way.insert(*page, known);
        }
        self.tier.begin_reads(reads, pages);
    }
    fn next_reads(&self, reads: &mut PageReads) -> bool {
        let have_come = self.tier.next_reads(reads);
        let mut pages = self.shadow.pages();
        for read in reads.came() {
            // The buffer reads a page once at a time.
            let before = pages.under_way.remove(&read.page).expect("it was begun");
            if let Ok(found) = *read.outcome {
                pages.read(read.page, found, &read.bytes[..self.tier.page_size()], before);
            }
        }
        have_come
    }
    fn write_batch(&self, writes: &mut [PageWrite<'_>]) {
        let known = |shadow: &Shadow, page| shadow.pages().known.get(&page).copied();
        let before: Vec<Option<Known>> = writes.iter().map(|write| known(&self.shadow, write.page)).collect();
        writes.iter().for_each(|write| self.shadow.pages().offered(write));
        self.tier.write_batch(writes);
        let mut pages = self.shadow.pages();
        writes.iter().zip(before).for_each(|(write, before)| pages.written(write, before));
    }
    /// The log need not be durable before. A crash that takes the version back takes the page's
    /// allocation back with it, or leaves the page as one that is freed before it is read.
    fn write_shadows(&self, writes: &mut [PageWrite<'_>]) {
        writes.iter().for_each(|write| self.shadow.pages().offered(write));
        if self.put_off(writes) {
            return;
        }
        self.tier.write_shadows(writes);
        let mut pages = self.shadow.pages();
        writes.iter().for_each(|write| pages.written(write, None));
    }
    fn publish(
        &self,
        change: Allocation<'_>,
        append: &mut dyn FnMut(Record<'_>) -> Result<Appended, LogError>,
    ) -> Result<Appended, TierError> {
        self.tier.publish(change, &mut |record| {
            let appended = append(record)?;
            let mut pages = self.shadow.pages();
            change.free.iter().chain(change.allocate).for_each(|page| {
                pages.known.remove(page);
                pages.images.forget(*page);
            });
            Ok(appended)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_log::LogClass;
    use firndb_tier::{Prepared, TierStatistics};

    /// Returns the same version and bytes for every page, as set, and takes everything.
    struct Puppet(Mutex<(Lsn, u8)>);

    impl PageTier for Puppet {
        fn page_size(&self) -> usize {
            64
        }
        fn read_batch(&self, reads: &mut [PageRead<'_>]) {
            let (version, byte) = *self.0.lock().expect("no panic under it");
            for read in reads {
                read.buf.fill(byte);
                read.outcome = Ok(Found { cached: true, ..Found::without_base(version) });
            }
        }
        fn write_batch(&self, writes: &mut [PageWrite<'_>]) {
            for write in writes {
                write.outcome = Ok(Written::Taken { base: write.base, changes: write.changes });
            }
        }
        fn make_batch_space(&self) -> usize {
            1
        }
        fn reserve(&self, _: LogClass) -> Result<PageId, TierError> {
            Ok(PageId(1))
        }
        fn unreserve(&self, _: PageId) {}
        fn prepare(&self, _: &[PageId]) -> Result<Prepared<'_>, TierError> {
            Ok(Prepared::default())
        }
        fn publish(
            &self,
            _: Allocation<'_>,
            append: &mut dyn FnMut(Record<'_>) -> Result<Appended, LogError>,
        ) -> Result<Appended, TierError> {
            append(Record { kind: firndb_log::Kind::PAGES_PUBLISHED, body: &[] })
                .map_err(|error| TierError::new(firndb_tier::TierErrorKind::Failed, error.to_string()))
        }
        fn sync(&self) -> Result<(), TierError> {
            Ok(())
        }
        fn version_of(&self, _: PageId) -> Result<Option<Lsn>, TierError> {
            Ok(None)
        }
        fn oldest_needed_lsn(&self) -> Option<Lsn> {
            None
        }
        fn statistics(&self) -> TierStatistics {
            TierStatistics::default()
        }
    }

    struct Opening {
        puppet: Arc<Puppet>,
        tier: Arc<dyn PageTier>,
    }

    impl Opening {
        fn of(shadow: &Shadow) -> Opening {
            let puppet = Arc::new(Puppet(Mutex::new((Lsn(0), 0))));
            Opening { tier: shadow.watch(puppet.clone(), false), puppet }
        }
        fn read(&self, version: u64, byte: u8) {
            *self.puppet.0.lock().expect("no panic under it") = (Lsn(version), byte);
            let none = || Err(TierError::new(firndb_tier::TierErrorKind::Failed, "not read"));
            self.tier.read_batch(&mut [PageRead { page: PageId(7), buf: &mut [0; 64], outcome: none() }]);
        }
        fn write(&self, version: u64, byte: u8) {
            self.tier.write_batch(&mut [PageWrite {
                page: PageId(7),
                version: Lsn(version),
                recovery_lsn: Lsn(version),
                dirty: true,
                data: &[byte; 64],
                base: None,
                changes: firndb_tier::Changes::ALL,
                delta_read: firndb_tier::DeltaRead::No,
                outcome: Ok(Written::Declined),
            }]);
        }
        fn free(&self) {
            let change = Allocation { allocate: &[], free: &[PageId(7)] };
            let appended = Appended { first: Lsn(50), end: Lsn(60) };
            self.tier.publish(change, &mut |_| Ok(appended)).expect("appended");
        }
    }

    fn the_only_fault(shadow: &Shadow) -> String {
        let faults = shadow.take_faults();
        assert_eq!(faults.len(), 1, "{faults:?}");
        faults[0].clone()
    }

    #[test]
    fn an_older_version_and_other_bytes_of_the_same_are_reported() {
        let shadow = Shadow::default();
        let opening = Opening::of(&shadow);
        opening.read(10, 1);
        opening.write(20, 2);
        opening.read(20, 2);
        opening.read(30, 3);
        assert!(shadow.take_faults().is_empty());
        opening.read(10, 1);
        assert!(the_only_fault(&shadow).contains("version 20 had been written"));
        opening.read(20, 3);
        assert!(the_only_fault(&shadow).contains("other bytes"));
        opening.write(15, 2);
        assert!(the_only_fault(&shadow).contains("left DRAM"));
        assert_eq!(shadow.compared(), 4);
    }

    #[test]
    fn after_a_crash_redo_has_one_chance() {
        let shadow = Shadow::default();
        Opening::of(&shadow).write(20, 2);
        let opening = Opening::of(&shadow);
        opening.read(10, 1);
        opening.write(20, 2);
        opening.read(20, 2);
        assert!(shadow.take_faults().is_empty());
        let opening = Opening::of(&shadow);
        opening.read(10, 1);
        // A crash in between: again once.
        let opening = Opening::of(&shadow);
        opening.read(10, 1);
        shadow.be_lenient(true);
        opening.read(10, 1);
        assert!(shadow.take_faults().is_empty());
        shadow.be_lenient(false);
        opening.read(10, 1);
        assert!(the_only_fault(&shadow).contains("redo has missed it"));
        opening.write(15, 1);
        assert!(the_only_fault(&shadow).contains("left DRAM"));
    }

    #[test]
    fn a_page_that_was_freed_may_begin_anew() {
        let shadow = Shadow::default();
        let opening = Opening::of(&shadow);
        opening.write(20, 2);
        opening.free();
        opening.read(10, 0);
        opening.write(12, 1);
        opening.read(12, 1);
        assert!(shadow.take_faults().is_empty());
    }
}
