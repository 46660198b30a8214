//! A damaged map or bitmap page costs what it holds: checkpoints, the map log, and all other pages
//! go on, and what changed of it since stays known.

use super::harness::*;
use crate::error::TierErrorKind;
use crate::page_tier::PageTier;
use crate::store::Journal;
use crate::store::Store;
use crate::store::geometry::Slot;
use crate::store::meta_page::MetaId;
use crate::testing::Took;
use firndb_base::PageId;
use firndb_base::sync::Arc;
use firndb_device::{Device, Durability, MemoryDevice};

/// Flips a bit in both slots of a metadata page.
fn damage(store: &Store, device: &MemoryDevice, id: MetaId) {
    for slot in [Slot::A, Slot::B] {
        let at = store.geometry.meta_offset(id, slot);
        let mut block = [0; 512];
        device.read(at, &mut block).unwrap();
        block[100] ^= 4;
        device.write(at, &block, Durability::Later).unwrap();
    }
}

/// A store that was opened with moves in the map log, and the page damaged that `id` chooses.
struct Opened {
    device: Arc<MemoryDevice>,
    log: Arc<TestLog>,
    store: Store,
    pages: Vec<PageId>,
    /// Of these the map log has moves.
    moved: Vec<PageId>,
}

fn opened(id: MetaId) -> Opened {
    let device = Arc::new(MemoryDevice::new("store"));
    let log = TestLog::new();
    let store = create(device.clone(), &log);
    let pages = allocate(&store, &log, 150).unwrap();
    write(&store, &log, &pages);
    sweep(&store);
    // Two of each map page.
    let moved: Vec<PageId> = pages.iter().copied().filter(|page| page.0 % 20 == 5).collect();
    write(&store, &log, &moved);
    store.sync().unwrap();
    log.flush(log.end()).unwrap();
    damage(&store, &device, id);
    drop(store);
    let store = recover(device.clone(), &log.records(), log.end(), log.end()).unwrap();
    store.attach_journal(log.clone());
    Opened { device, log, store, pages, moved }
}

impl Opened {
    fn is_of(&self, id: MetaId) -> impl Fn(&PageId) -> bool + use<> {
        let geometry = self.store.geometry;
        move |page| geometry.map_of_page(*page) == id
    }

    /// Writes and checkpoints far beyond what the map log holds, reopening now and then.
    fn work(&mut self, on: &[PageId], rounds: usize) {
        for round in 0..rounds {
            for chunk in on.chunks(6) {
                for (_, outcome) in write(&self.store, &self.log, chunk) {
                    assert_eq!(outcome, Ok(Took::Taken));
                }
            }
            self.store.sync().unwrap_or_else(|error| panic!("checkpoint {round}: {error}"));
            assert_eq!(self.store.oldest_needed_lsn().filter(|_| round == 0), None);
            if round % 7 == 6 {
                self.log.flush(self.log.end()).unwrap();
                let contained = self.store.metadata_version();
                self.store = recover_after(
                    self.device.clone(),
                    &self.log.records(),
                    contained,
                    self.log.end(),
                    self.log.end(),
                )
                .unwrap();
                self.store.attach_journal(self.log.clone());
            }
        }
    }

    /// Every page of `which` has its newest version.
    fn assert_newest(&self, which: &[PageId]) {
        let newest = fold(&self.log.records(), self.log.end());
        for page in which {
            let (version, bytes) = read(&self.store, *page).unwrap();
            assert_eq!(version, newest[page].0, "{page}");
            assert!(bytes == image(*page, version), "{page}");
        }
    }
}

/// Cause: what a damaged map page lacked was in the map log only, which could not be dropped.
/// Effect: when the map log was full, checkpoints failed, and the log filled up.
#[test]
fn checkpoints_go_on_past_a_damaged_map_page_that_has_changed() {
    let id = MetaId::Map(1);
    let mut opened = opened(id);
    let is_of = opened.is_of(id);
    let (there, others): (Vec<PageId>, Vec<PageId>) = opened.pages.iter().partition(|page| is_of(page));
    opened.work(&others, 60);
    opened.assert_newest(&others);
    // Entries that changed since are known, the others are not.
    let (known, lost): (Vec<PageId>, Vec<PageId>) =
        there.iter().partition(|page| opened.moved.contains(page));
    assert!(known.len() == 2 && lost.len() > 30);
    opened.assert_newest(&known);
    for page in &lost {
        let error = read(&opened.store, *page).unwrap_err();
        assert_eq!(error.kind, TierErrorKind::Damaged);
        assert!(error.message.contains("map page 1 is damaged in both"), "{error}");
    }
    // A known page can be written, and its new place is known after the next opening.
    opened.work(&known, 60);
    opened.assert_newest(&known);
    opened.assert_newest(&others);
    let report = opened.store.check(true, &mut |_| {}).unwrap();
    assert!(report.damage[0].contains("map page 1 is damaged in both"), "{:?}", report.damage);
}

/// A slot that can be mended by the device, or put back from a copy, has everything again.
#[test]
fn a_map_page_that_can_be_read_again_gets_what_it_lacks() {
    let id = MetaId::Map(1);
    let mut opened = opened(id);
    let known: Vec<PageId> = opened.moved.clone();
    opened.work(&known, 40);
    damage(&opened.store, &opened.device, id);
    opened.work(&known, 20);
    let newest = fold(&opened.log.records(), opened.log.end());
    sweep(&opened.store);
    compare(&opened.store, &newest);
}

/// Cause: the place that a page leaves must be cleared in its bitmap page. Effect: one that could
/// not be read failed the whole batch, and dirty pages with images in its group stayed dirty.
#[test]
fn pages_are_written_although_the_bitmap_page_of_their_old_place_is_damaged() {
    let id = MetaId::Bitmap(0);
    let mut opened = opened(id);
    let all = opened.pages.clone();
    opened.work(&all, 60);
    opened.assert_newest(&all);
    let report = opened.store.check(true, &mut |_| {}).unwrap();
    assert!(!report.damage.is_empty());
    let others = |sentence: &&String| !sentence.contains("bitmap page of group 0 is damaged in both");
    assert_eq!(report.damage.iter().find(others), None);
    // Nothing was forgotten: put right, it agrees with the maps.
    damage(&opened.store, &opened.device, id);
    opened.work(&all, 8);
    let newest = fold(&opened.log.records(), opened.log.end());
    sweep(&opened.store);
    compare(&opened.store, &newest);
}
