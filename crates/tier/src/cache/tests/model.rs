//! The paper's algorithm 1, and its group second chance, as a queue of flags beside the real cache.

use super::harness::*;
use crate::cache::shadow::ShadowEntries;
use crate::page_cache::CacheOptions;
use crate::page_cache::PageCache;
use crate::page_cache::policy::CachePolicy;
use crate::page_tier::PageTier;
use crate::testing::Took;
use firndb_base::rng::Rng;
use firndb_base::{Lsn, PageId};
use std::collections::{BTreeMap, VecDeque};

#[derive(Clone, Debug)]
struct Flags {
    page: PageId,
    version: Lsn,
    dirty: bool,
    valid: bool,
    referenced: bool,
}

/// Multi-version FIFO in groups.
struct Queue {
    group_pages: usize,
    /// Groups that may be full at a time, the one being filled included.
    groups: usize,
    second_chance: bool,
    shadow: Option<ShadowEntries>,
    /// Whether groups were ever replaced.
    scarce: bool,
    /// Beyond the paper: as many valid images stay as had become invalid, dirty ones first.
    keeps: bool,
    closed: VecDeque<Vec<Flags>>,
    open: Vec<Flags>,
    store: BTreeMap<PageId, Lsn>,
    write_backs: u64,
    second_chances: u64,
    turned_away: u64,
}

impl Queue {
    fn new(policy: CachePolicy, group_pages: usize, slots: usize) -> Queue {
        Queue {
            group_pages,
            // One place is being emptied for the group after the one that is filled.
            groups: slots / group_pages - 1,
            second_chance: matches!(
                policy,
                CachePolicy::GroupSecondChance | CachePolicy::Keeping | CachePolicy::Selective
            ),
            keeps: policy == CachePolicy::Keeping,
            shadow: matches!(policy, CachePolicy::Selective | CachePolicy::Keeping)
                .then(|| ShadowEntries::new(slots)),
            scarce: false,
            turned_away: 0,
            closed: VecDeque::new(),
            open: Vec::new(),
            store: BTreeMap::new(),
            write_backs: 0,
            second_chances: 0,
        }
    }

    fn valid(&mut self, page: PageId) -> Option<&mut Flags> {
        let all = self.closed.iter_mut().flatten().chain(&mut self.open);
        let mut valid = all.filter(|flags| flags.valid && flags.page == page);
        let found = valid.next();
        assert!(valid.next().is_none(), "one valid version a page");
        found
    }

    fn make_space(&mut self) {
        while self.closed.len() + 1 > self.groups {
            let group = self.closed.pop_front().expect("there are groups");
            let mut space = self.group_pages - self.open.len() - 1;
            self.scarce = true;
            let (mut again, mut gone) = (Vec::new(), Vec::new());
            // A group that was closed early has empty places.
            let invalid = self.group_pages - group.iter().filter(|flags| flags.valid).count();
            let referenced = group.iter().filter(|flags| flags.valid && flags.referenced).count().min(space);
            let mut more =
                if self.keeps { invalid.saturating_sub(referenced).min(space - referenced) } else { 0 };
            let mut stays = Vec::new();
            for flags in group.iter().rev().filter(|flags| flags.valid) {
                let chosen = self.second_chance && flags.referenced && space > 0;
                space -= usize::from(chosen);
                stays.push(chosen);
            }
            for dirty in [true, false] {
                let valid = group.iter().rev().filter(|flags| flags.valid).zip(&mut stays);
                for (_, stays) in valid.filter(|(flags, stays)| flags.dirty == dirty && !**stays).take(more) {
                    *stays = true;
                    more -= 1;
                }
            }
            for (flags, stays) in group.into_iter().rev().filter(|flags| flags.valid).zip(stays) {
                if stays {
                    again.push(Flags { referenced: false, ..flags });
                    continue;
                }
                gone.push(flags.page);
                if flags.dirty {
                    self.write_backs += 1;
                    self.store.insert(flags.page, flags.version);
                }
            }
            if let Some(shadow) = &mut self.shadow {
                gone.into_iter().rev().for_each(|page| shadow.remember(page));
            }
            self.second_chances += again.len() as u64;
            self.open.extend(again.into_iter().rev());
        }
    }

    fn enqueue(&mut self, page: PageId, version: Lsn, dirty: bool) -> Took {
        if !dirty && self.valid(page).is_some() {
            return Took::Declined;
        }
        if let Some(shadow) = self.shadow.as_mut().filter(|_| !dirty && self.scarce)
            && !shadow.recall(page)
        {
            shadow.remember(page);
            self.turned_away += 1;
            return Took::Declined;
        }
        self.make_space();
        let older = self.valid(page);
        let again = older.is_some();
        if let Some(older) = older {
            older.valid = false;
        }
        self.open.push(Flags { page, version, dirty, valid: true, referenced: self.keeps && again });
        if self.open.len() == self.group_pages {
            self.close();
        }
        Took::Taken
    }
    fn close(&mut self) {
        self.closed.push_back(std::mem::take(&mut self.open));
    }

    /// The expected result of a read: the version, and whether the store's is older.
    fn read(&mut self, page: PageId) -> (Lsn, bool) {
        if let Some(flags) = self.valid(page) {
            flags.referenced = true;
            return (flags.version, flags.dirty);
        }
        (self.store[&page], false)
    }
}

/// Returns how many clean pages were declined.
fn run(seed: u64, policy: CachePolicy) -> u64 {
    let mut rng = Rng::new(seed);
    let group_pages = rng.between(1, 6) as usize;
    let bytes = 80_000 + rng.below(60_000);
    let mut rig = Rig::new(CacheOptions { bytes, policy, group_pages, write_through: false });
    let slots = rig.cache.cache_statistics().slots as usize;
    let mut model = Queue::new(policy, group_pages, slots);
    let pages = rig.allocate(rng.between(slots as u64 / 2, 2 * slots as u64) as usize);
    let pick = |rng: &mut Rng| {
        // Some pages are hotter than others.
        let among = if rng.one_in(3) { pages.len() } else { pages.len() / 4 + 1 };
        pages[rng.below(among as u64) as usize]
    };
    for step in 0..1500 {
        let page = pick(&mut rng);
        match rng.below(8) {
            0..=2 => {
                let outcome = rig.write(&[page]).remove(0).unwrap();
                assert_eq!(outcome, model.enqueue(page, rig.written[&page], true));
            }
            3 | 4 => {
                let Some(version) = rig.written.get(&page).copied() else { continue };
                let outcome = rig.offer(&[page], &[version], false).remove(0).unwrap();
                assert_eq!(outcome, model.enqueue(page, version, false), "seed {seed}, step {step}: {page}");
            }
            5 if rng.one_in(20) => {
                let needed = rig.cache.oldest_needed_lsn() != rig.store.oldest_needed_lsn();
                rig.cache.sync().unwrap();
                // Only pages that would be lost need a group of their own.
                if needed || model.open.iter().any(|flags| flags.dirty && flags.version > Lsn(0)) {
                    settle(&rig, &mut model);
                }
                assert_eq!(rig.cache.oldest_needed_lsn(), rig.store.oldest_needed_lsn());
            }
            _ => {
                let Some(version) = rig.written.get(&page).copied() else { continue };
                let expected = model.read(page);
                let (found, bytes) = read(&rig.cache, page).unwrap();
                assert_eq!(found, expected, "seed {seed}, step {step}: {page}");
                assert!(found.0 == version && bytes == image(page, version));
            }
        }
        let counted = rig.cache.cache_statistics();
        assert_eq!(counted.write_backs, model.write_backs, "seed {seed}, step {step}");
        assert_eq!(counted.second_chances, model.second_chances, "seed {seed}, step {step}");
        let valid = model.closed.iter().flatten().chain(&model.open).filter(|flags| flags.valid);
        let (valid, dirty) = valid.fold((0, 0), |(v, d), flags| (v + 1, d + u64::from(flags.dirty)));
        assert_eq!((counted.pages_valid, counted.pages_dirty), (valid, dirty), "seed {seed}, step {step}");
    }
    assert!(model.write_backs > 0, "it went round");
    rig.compare();
    let mut faults = Vec::new();
    PageCache::check(&rig.cache, &mut |fault| faults.push(fault)).unwrap();
    assert_eq!(faults, Vec::<String>::new());
    let (store, cache) = rig.reopened(policy).unwrap();
    // The last, unwritten, group is gone; redo of its log would rebuild it.
    for flags in model.open.iter().filter(|flags| flags.valid) {
        rig.written.remove(&flags.page);
    }
    compare(&cache, &rig.written);
    drop(store);
    model.turned_away
}

/// Closes the group being filled as it is, if the cache did so.
fn settle(rig: &Rig, model: &mut Queue) {
    if rig.cache.open_pages() == 0 && !model.open.is_empty() {
        model.close();
    }
}

#[test]
fn multi_version_fifo_agrees_with_a_queue() {
    (0..40).for_each(|seed| assert_eq!(run(seed, CachePolicy::GroupReplacement), 0));
}

#[test]
fn group_second_chance_agrees_with_a_queue() {
    (100..140).for_each(|seed| assert_eq!(run(seed, CachePolicy::GroupSecondChance), 0));
}

#[test]
fn keeping_what_is_valid_agrees_with_a_queue() {
    let turned_away: u64 = (300..340).map(|seed| run(seed, CachePolicy::Keeping)).sum();
    assert!(turned_away > 100, "{turned_away}");
}

#[test]
fn page_by_page_it_agrees_with_a_queue() {
    (200..220).for_each(|seed| assert_eq!(run(seed, CachePolicy::Fifo), 0));
}

#[test]
fn what_is_taken_selectively_agrees_with_a_queue() {
    let turned_away: u64 = (300..340).map(|seed| run(seed, CachePolicy::Selective)).sum();
    assert!(turned_away > 100, "{turned_away}");
}
