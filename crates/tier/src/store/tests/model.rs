//! Random work on the store, compared with a map.

use super::group_codes::{COUNT, Codes};
use super::harness::*;
use crate::error::TierErrorKind;
use crate::page_tier::PageTier;
use crate::store::Journal;
use crate::store::{CodeWalk, Placement, Policy, Store};
use crate::testing::Took;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use firndb_base::{Lsn, PageId};
use firndb_device::{Device, MemoryDevice};
use firndb_log::LogClass;

pub(crate) struct Model {
    pub device: Arc<dyn Device>,
    pub log: Arc<TestLog>,
    pub store: Store,
    pub policy: Policy,
    pub pages: Pages,
    pub rng: Rng,
    pub pages_max: u64,
    /// Redo starts here: the LSN that a checkpoint would have recorded.
    pub redo_from: Lsn,
    /// What the metadata contained before it was synced.
    pub contained: Lsn,
    /// Codes of groups, if they have any.
    codes: Option<Arc<Codes>>,
}

/// Both placements, in turn.
pub(crate) fn policy(seed: u64) -> Policy {
    let placement = [Placement::Threaded, Placement::Segments][(seed / 2 % 2) as usize];
    Policy { placement, ..POLICY }
}

impl Model {
    pub(crate) fn new(seed: u64, device: Arc<dyn Device>, pages_max: u64) -> Model {
        let log = TestLog::new();
        let policy = policy(seed);
        let store = create_under(policy, device.clone(), &log);
        let codes = (!seed.is_multiple_of(3)).then(|| Codes::over(device.clone()));
        codes.iter().for_each(|codes| store.attach_codes(codes.clone()));
        Model {
            device,
            log,
            store,
            policy,
            pages: Pages::new(),
            rng: Rng::new(seed),
            pages_max,
            redo_from: Lsn::FIRST,
            contained: Lsn::ZERO,
            codes,
        }
    }

    fn some_pages(&mut self, max: u64) -> Vec<PageId> {
        some_of(&self.pages, &mut self.rng, max)
    }

    pub(crate) fn step(&mut self) {
        if self.rng.one_in(5) {
            // The log's buffer is full for a while.
            self.log.refuse(self.rng.below(3) as u32);
        }
        match self.rng.below(23) {
            0..5 => self.publish(),
            5..12 => self.write(),
            12..15 => self.read(),
            15 => self.checkpoint(),
            16 => self.log.flush(self.log.end()).unwrap(),
            17 => drop(self.store.learn_step(true).unwrap()),
            18 => drop(self.store.give_back_step().unwrap()),
            19 => self.sweep(),
            20 => self.compact(),
            21 => self.place(),
            _ => self.stale_write(),
        }
    }

    /// A round of the sweep, or a full circle.
    fn sweep(&mut self) {
        let rounds = &mut self.store.write_back.lock();
        match self.rng.one_in(3) {
            true => assert!(self.store.sweep_all(rounds).unwrap()),
            false => self.store.sweep_round(rounds).unwrap(),
        }
    }

    /// Some steps of compaction, or all; or it is abandoned.
    fn compact(&mut self) {
        self.store.begin_compaction();
        for _ in 0..self.rng.below(16) {
            self.store.compact_step().unwrap();
        }
        if self.rng.one_in(4) {
            self.store.abandon_compaction();
        }
    }

    /// Gives trees other codes, or moves pages to where their trees have them.
    fn place(&mut self) {
        let Some(codes) = &self.codes else { return };
        codes.refuse(self.rng.one_in(4));
        if self.rng.one_in(2) {
            let mut code = || self.rng.below(COUNT as u64) as u8;
            let trees = (0..3).map(|tree| (tree, code())).collect();
            return self.store.set_codes_of_trees(trees).unwrap();
        }
        let mut walk = CodeWalk { next: self.rng.below(4), left: 0 };
        for _ in 0..self.rng.below(16) {
            self.store.move_to_codes(&mut walk).unwrap();
        }
    }

    fn publish(&mut self) {
        let mut reserved = Vec::new();
        let shrinking = self.pages.len() as u64 > self.rng.below(self.pages_max);
        for _ in 0..self.rng.below(if shrinking { 2 } else { 9 }) {
            let class = [LogClass::Normal, LogClass::Rollback, LogClass::System][self.rng.below(3) as usize];
            match self.store.reserve(class) {
                Ok(page) => {
                    assert!(!self.pages.contains_key(&page) && page != PageId(0));
                    assert!(!reserved.contains(&page));
                    reserved.push(page);
                }
                Err(error) => assert_eq!(error.kind, TierErrorKind::Full),
            }
        }
        if self.rng.one_in(4)
            && let Some(page) = reserved.pop()
        {
            self.store.unreserve(page);
        }
        let freed = self.some_pages(if shrinking { 12 } else { 3 });
        let lsn = publish(&self.store, &self.log, &reserved, &freed).unwrap();
        freed.iter().for_each(|page| assert!(self.pages.remove(page).is_some()));
        reserved.iter().for_each(|page| assert!(self.pages.insert(*page, (lsn, false)).is_none()));
    }

    fn write(&mut self) {
        let pages = self.some_pages(11);
        for (page, (version, outcome)) in pages.iter().zip(write(&self.store, &self.log, &pages)) {
            assert_eq!(outcome, Ok(Took::Taken), "an allocated page can always be written");
            self.pages.insert(*page, (version, true));
        }
    }

    fn stale_write(&mut self) {
        let Some(page) = self.some_pages(1).pop() else { return };
        let (version, _) = self.pages[&page];
        let outcome = write_versions(&self.store, &self.log, &[page], &[Lsn(version.0 - 1)]);
        assert_eq!(outcome, [Ok(Took::Declined)], "an older version never replaces a newer one");
        let outcome = write_versions(&self.store, &self.log, &[PageId(1 << 40)], &[version]);
        assert_eq!(outcome[0].as_ref().unwrap_err().kind, TierErrorKind::NotAllocated);
    }

    fn read(&mut self) {
        for page in self.some_pages(5) {
            let (version, placed) = self.pages[&page];
            let wanted = if placed { image(page, version) } else { vec![0; PAGE_SIZE] };
            assert_eq!(read(&self.store, page).unwrap(), (version, wanted));
        }
        let page = PageId(self.rng.below(self.pages_max * 2));
        if !self.pages.contains_key(&page) {
            assert_eq!(read(&self.store, page).unwrap_err().kind, TierErrorKind::NotAllocated);
            assert_eq!(self.store.version_of(page).unwrap(), None);
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
        // A checkpoint would flush its own record.
        self.log.flush(end).unwrap();
        self.redo_from = needed;
        self.log.note(Fact::Contained(self.contained));
        self.log.note(Fact::Truncated(needed));
    }

    /// Reopens as after a crash of the process: what was written is there, what was not flushed is
    /// not.
    pub(crate) fn crash(&mut self) {
        let cut = self.log.durable();
        let mut records = self.log.records();
        records.retain(|record| record.end <= cut);
        let (contained, from) = (self.contained, self.redo_from);
        self.store = recover_under(self.policy, self.device.clone(), &records, contained, from, cut).unwrap();
        self.codes.iter().for_each(|codes| self.store.attach_codes(codes.clone()));
        self.pages = fold(&records, cut);
        compare(&self.store, &self.pages);
        self.log = TestLog::with(records);
        self.store.attach_journal(self.log.clone());
    }
}

fn run(seed: u64, steps: u64) {
    let limit = if seed.is_multiple_of(2) { u64::MAX } else { 600_000 };
    let device = Arc::new(MemoryDevice::with("store", 512, limit));
    let mut model = Model::new(seed, device, 400);
    for step in 0..steps {
        model.step();
        if step % 97 == 96 {
            model.crash();
        }
        if step % 61 == 60 {
            assert_eq!(fold(&model.log.records(), model.log.end()), model.pages);
            compare(&model.store, &model.pages);
        }
    }
    model.store.sync().unwrap();
    compare(&model.store, &model.pages);
}

#[test]
fn the_store_does_what_a_map_does_through_crashes_and_a_full_device() {
    for seed in 0..8 {
        run(seed, 700);
    }
}

#[test]
#[ignore = "long"]
fn the_store_does_what_a_map_does_for_many_seeds() {
    for seed in 100..400 {
        run(seed, 3000);
    }
}
