//! Random work on a store with deltas, compared with a map of images.

use super::harness::*;
use crate::error::TierErrorKind;
use crate::page_cache::BackingStore;
use crate::page_tier::{DeltaRead, Found, PageRead, PageTier, PageWrite, Written};
use crate::store::{DeltaPolicy, Journal, Placement, Policy, Store};
use crate::{Base, Changes, TierError};
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::Ordering::Relaxed;
use firndb_base::{Lsn, PageId, Progress};
use firndb_device::{AlignedBuf, Device, MemoryDevice};
use firndb_log::LogClass;
use std::collections::BTreeMap;

/// A page as the buffer has it.
#[derive(Clone)]
pub(crate) struct Frame {
    pub version: Lsn,
    pub image: Vec<u8>,
    pub base: Option<Base>,
    pub changes: Changes,
    pub delta_read: DeltaRead,
}

/// The images that versions had.
pub(crate) type History = BTreeMap<(PageId, Lsn), Vec<u8>>;

pub(crate) struct DeltaModel {
    pub device: Arc<dyn Device>,
    pub log: Arc<TestLog>,
    pub store: Store,
    pub policy: Policy,
    /// Allocated pages, and their versions; `true` if the version has an image.
    pub pages: Pages,
    /// Pages in DRAM, clean.
    pub frames: BTreeMap<PageId, Frame>,
    pub history: History,
    pub rng: Rng,
    pub pages_max: u64,
    pub redo_from: Lsn,
    pub contained: Lsn,
    /// Deltas taken; delta pages written, read; deltas gathered, merged for space, for reads;
    /// images moved by the cleaner of space: before the last crash.
    pub counted: [u64; 7],
}

/// Policies that differ in what matters: no write buffer, a small one, one that takes all; few and
/// many delta pages; both placements.
pub(crate) fn policy(rng: &mut Rng) -> Policy {
    let buffer_bytes = [0, 3_000, 12_000, 100_000][rng.below(4) as usize];
    let pages_percent = [3, 12, 50][rng.below(3) as usize];
    let read_cost_percent = [0, 30, 200][rng.below(3) as usize];
    let placement =
        [Placement::Threaded, Placement::Segments][(buffer_bytes / 1000 + usize::from(pages_percent)) % 2];
    let deltas = DeltaPolicy { enabled: true, buffer_bytes, pages_percent, read_cost_percent };
    Policy { placement, deltas, ..POLICY }
}

/// The image of a version; pages never written are zeros.
pub(crate) fn image_in(history: &History) -> impl Fn(PageId, Lsn) -> Vec<u8> {
    |page, version| history[&(page, version)].clone()
}

/// Reads a page with what is known of its base.
pub(crate) fn read_found(store: &Store, page: PageId) -> Result<(Found, Vec<u8>), TierError> {
    let mut bytes = AlignedBuf::zeroed(PAGE_SIZE);
    bytes.fill(0xA5);
    let mut reads = [PageRead { page, buf: &mut bytes, outcome: Err(TierError::unset()) }];
    store.read_batch(&mut reads);
    let [PageRead { outcome, .. }] = reads;
    outcome.map(|found| (found, bytes.to_vec()))
}

impl DeltaModel {
    pub(crate) fn new(seed: u64, device: Arc<dyn Device>, pages_max: u64, policy: Policy) -> DeltaModel {
        let log = TestLog::new();
        let store = Store::create_with(device.clone(), DATABASE, options(), LAYOUT, policy).unwrap();
        store.attach_journal(log.clone());
        DeltaModel {
            device,
            log,
            store,
            policy,
            pages: Pages::new(),
            frames: BTreeMap::new(),
            history: History::new(),
            rng: Rng::new(seed),
            pages_max,
            redo_from: Lsn::FIRST,
            contained: Lsn::ZERO,
            counted: [0; 7],
        }
    }

    pub(crate) fn some_pages(&mut self, max: u64) -> Vec<PageId> {
        some_of(&self.pages, &mut self.rng, max)
    }

    pub(crate) fn step(&mut self) {
        if self.rng.one_in(5) {
            self.log.refuse(self.rng.below(3) as u32);
        }
        match self.rng.below(24) {
            0..3 => self.publish(),
            3..13 => {
                let pages = self.some_pages(9);
                self.change(&pages);
            }
            13..16 => self.read(),
            16 => self.checkpoint(),
            17 => self.log.flush(self.log.end()).unwrap(),
            18 if self.rng.one_in(3) => {
                let mut sparse = self.store.sparse_deltas();
                while self.store.compact_deltas_step(&mut sparse).unwrap() == Progress::Worked {}
                (0..8).for_each(|_| _ = self.store.compact_step().unwrap());
            }
            18 => (0..8).for_each(|_| _ = self.store.learn_step(true).unwrap()),
            19 => drop(self.store.give_back_step().unwrap()),
            20 => self.store.settle_deltas(self.redo_from).unwrap(),
            21 => {
                let pages = self.some_pages(5);
                self.leave_unchanged(&pages);
            }
            22 => {
                let pages = self.some_pages(2);
                self.store.write_whole(&pages).unwrap();
            }
            _ => self.write_back(),
        }
    }

    fn publish(&mut self) {
        let mut reserved = Vec::new();
        let shrinking = self.pages.len() as u64 > self.rng.below(self.pages_max);
        for _ in 0..self.rng.below(if shrinking { 2 } else { 12 }) {
            match self.store.reserve(LogClass::Normal) {
                Ok(page) => reserved.push(page),
                Err(error) => {
                    assert_eq!(error.kind, TierErrorKind::Full);
                    let deltas = self.store.state.lock().totals().delta_pages;
                    assert_eq!(deltas, 0, "deltas do not make a store full");
                }
            }
        }
        let freed = self.some_pages(if shrinking { 8 } else { 2 });
        let lsn = publish(&self.store, &self.log, &reserved, &freed).unwrap();
        for page in freed {
            self.pages.remove(&page);
            self.frames.remove(&page);
        }
        for page in reserved {
            self.pages.insert(page, (lsn, false));
            self.history.insert((page, lsn), vec![0; PAGE_SIZE]);
        }
    }

    /// The page in DRAM, read if it is not there.
    fn fix(&mut self, page: PageId) -> Frame {
        if let Some(frame) = self.frames.get(&page) {
            return frame.clone();
        }
        let (version, _) = self.pages[&page];
        let (found, image) = read_found(&self.store, page).unwrap();
        assert_eq!(found.version, version);
        assert!(image == self.history[&(page, version)], "{page} in version {version}");
        if let Some(base) = found.base {
            let mut with = self.history[&(page, base.version)].clone();
            found.changes.apply(&image, &mut with);
            assert!(with == image, "{page}: its changes say all that differs from its base");
        }
        let Found { base, changes, delta_read, .. } = found;
        Frame { version, image, base, changes, delta_read }
    }

    /// Changes pages, and has them leave.
    pub(crate) fn change(&mut self, pages: &[PageId]) {
        let whole = self.rng.one_in(12);
        self.change_and_write(pages, whole, false);
    }

    /// Pages leave a tier above that waits for the store's records, as a cache does.
    fn write_back(&mut self) {
        let pages = self.some_pages(4);
        self.change_and_write(&pages, false, true);
        let end = self.store.records_end();
        self.store.flush_records(end).unwrap();
        for page in pages {
            self.log.note(Fact::Taken(page, self.pages[&page].0, Lsn::ZERO));
        }
    }

    fn change_and_write(&mut self, pages: &[PageId], whole: bool, back: bool) {
        let mut frames: Vec<Frame> = pages.iter().map(|page| self.fix(*page)).collect();
        for frame in &mut frames {
            frame.version = self.log.tick();
            for _ in 0..1 + self.rng.below(3) {
                let start = self.rng.below(PAGE_SIZE as u64) as usize;
                let most = if self.rng.one_in(8) { 500 } else { 40 };
                let end = (start + 1 + self.rng.below(most) as usize).min(PAGE_SIZE);
                frame.image[start..end].iter_mut().for_each(|byte| *byte = self.rng.next_u64() as u8);
                frame.changes.add_range(start..end, PAGE_SIZE);
            }
            if whole {
                (frame.base, frame.changes) = (None, Changes::ALL);
            }
        }
        self.log.flush(self.log.end()).unwrap();
        let mut data = AlignedBuf::zeroed(pages.len().max(1) * PAGE_SIZE);
        for (frame, out) in frames.iter().zip(data.chunks_mut(PAGE_SIZE)) {
            out.copy_from_slice(&frame.image);
        }
        let offered = pages.iter().zip(&frames).zip(data.chunks(PAGE_SIZE));
        let mut writes: Vec<PageWrite<'_>> = offered
            .map(|((page, frame), data)| {
                let recovery = if back { Lsn::MAX } else { frame.version };
                let write = PageWrite::back(*page, frame.version, recovery, data);
                let write = write.changed_since(frame.base, frame.changes);
                PageWrite { delta_read: frame.delta_read, ..write }
            })
            .collect();
        self.store.write_batch(&mut writes);
        let outcomes: Vec<_> = writes.into_iter().map(|write| write.outcome).collect();
        for ((page, mut frame), outcome) in pages.iter().zip(frames).zip(outcomes) {
            let Ok(Written::Taken { base, changes }) = outcome else {
                panic!("an allocated page can always be written: {outcome:?}")
            };
            (frame.base, frame.changes, frame.delta_read) = (base, changes, DeltaRead::No);
            if !back {
                self.log.note(Fact::Taken(*page, frame.version, frame.version));
            }
            self.history.insert((*page, frame.version), frame.image.clone());
            self.pages.insert(*page, (frame.version, true));
            self.frames.insert(*page, frame);
        }
    }

    /// Pages leave DRAM unchanged, and are offered as the buffer offers those that the store wants.
    fn leave_unchanged(&mut self, pages: &[PageId]) {
        let frames: Vec<(PageId, Frame)> =
            pages.iter().filter_map(|page| Some((*page, self.frames.remove(page)?))).collect();
        let mut data = AlignedBuf::zeroed(frames.len().max(1) * PAGE_SIZE);
        for ((_, frame), out) in frames.iter().zip(data.chunks_mut(PAGE_SIZE)) {
            out.copy_from_slice(&frame.image);
        }
        let offered = frames.iter().zip(data.chunks(PAGE_SIZE));
        let mut writes: Vec<PageWrite<'_>> = offered
            .map(|((page, frame), data)| {
                let write = PageWrite::back(*page, frame.version, frame.version, data);
                let write = write.changed_since(frame.base, frame.changes);
                PageWrite { dirty: false, delta_read: frame.delta_read, ..write }
            })
            .collect();
        self.store.write_batch(&mut writes);
        for write in &writes {
            assert!(write.outcome.is_ok(), "{:?}", write.outcome);
            assert!(!write.is_taken() || write.delta_read == DeltaRead::Merge);
        }
    }

    fn read(&mut self) {
        for page in self.some_pages(5) {
            self.frames.remove(&page);
            let frame = self.fix(page);
            if self.rng.one_in(2) {
                self.frames.insert(page, frame);
            }
        }
    }

    /// Records the LSN from which the log is needed; half of the time after a sync.
    pub(crate) fn checkpoint(&mut self) {
        if self.rng.one_in(2) {
            let contained = self.store.metadata_version();
            self.store.sync().unwrap();
            self.contained = contained;
        }
        let end = self.log.end();
        let needed = self.store.oldest_needed_lsn().unwrap_or(end).min(end);
        assert!(needed >= self.redo_from, "what was once not needed is not needed later");
        self.log.flush(end).unwrap();
        self.redo_from = needed;
        self.log.note(Fact::Contained(self.contained));
        self.log.note(Fact::Truncated(needed));
    }

    pub(crate) fn compare(&self) {
        compare_images(&self.store, &self.pages, &image_in(&self.history));
    }

    pub(crate) fn counts(&self) -> [u64; 7] {
        let now = &self.store.counters;
        let now = [
            &now.deltas_taken,
            &now.delta_pages_written,
            &now.delta_pages_read,
            &now.deltas_gathered,
            &now.deltas_merged,
            &now.deltas_merged_for_reads,
            &now.images_moved,
        ];
        std::array::from_fn(|i| self.counted[i] + now[i].load(Relaxed))
    }

    /// Reopens as after a crash of the process. Versions that only the write buffer had are redone
    /// from the log, which is still there.
    fn crash(&mut self) {
        let cut = self.log.durable();
        let mut records = self.log.records();
        records.retain(|record| record.end <= cut);
        let (contained, from) = (self.contained, self.redo_from);
        let pages = fold(&records, cut);
        for (page, (version, _)) in &self.pages {
            let found = pages.get(page).map(|(version, _)| *version);
            let kept = found.is_none_or(|found| found >= *version) || from <= *version;
            assert!(kept, "{page}: version {version} is lost, {found:?} is left");
        }
        self.policy = policy(&mut self.rng);
        self.counted = self.counts();
        self.store = recover_under(self.policy, self.device.clone(), &records, contained, from, cut).unwrap();
        (self.pages, self.frames) = (pages, BTreeMap::new());
        self.compare();
        self.log = TestLog::with(records);
        self.store.attach_journal(self.log.clone());
    }
}

fn run(seed: u64, steps: u64) -> [u64; 7] {
    let limit = if seed.is_multiple_of(2) { u64::MAX } else { 600_000 };
    let device = Arc::new(MemoryDevice::with("store", 512, limit));
    let policy = policy(&mut Rng::new(seed));
    let mut model = DeltaModel::new(seed, device, 300, policy);
    for step in 0..steps {
        model.step();
        if step % 97 == 96 {
            model.crash();
        }
        if step % 61 == 60 {
            model.compare();
            model.store.settle_deltas(Lsn(u64::MAX)).unwrap();
            assert_eq!(fold(&model.log.records(), model.log.end()), model.pages);
            model.compare();
        }
    }
    model.store.sync().unwrap();
    model.compare();
    model.store.state.lock().deltas.check();
    model.counts()
}

#[test]
fn a_store_with_deltas_does_what_a_map_does_through_crashes_and_a_full_device() {
    let mut sums = [0; 7];
    for seed in 0..12 {
        sums.iter_mut().zip(run(seed, 600)).for_each(|(sum, counted)| *sum += counted);
    }
    assert!(sums.iter().all(|sum| *sum > 0), "everything happened at least once: {sums:?}");
}

#[test]
#[ignore = "long"]
fn a_store_with_deltas_does_what_a_map_does_for_many_seeds() {
    for seed in 100..400 {
        run(seed, 3000);
    }
}
