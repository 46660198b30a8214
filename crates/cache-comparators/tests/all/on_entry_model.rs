//! The two comparators that cache on entry, as lists beside the real ones.

use crate::on_entry::{Bed, PLACES};
use firndb_base::rng::Rng;
use firndb_base::{Lsn, PageId};
use firndb_cache_comparators::EntryPolicy;
use firndb_tier::PageCache;
use firndb_tier::store::Journal;
use firndb_tier::testing::Took;
use firndb_tier::testing::small_store::publish_in;
use std::collections::BTreeMap;

/// The cached pages in the order of eviction; temperatures by extent, if they decide.
#[derive(Default)]
struct Model {
    cached: Vec<PageId>,
    temperature: Option<BTreeMap<u64, u64>>,
    recent: Vec<u64>,
    reads: u64,
    hits: u64,
    misses: u64,
    entered: u64,
    declined: u64,
    replaced: u64,
    rewritten: u64,
}

impl Model {
    fn heat(&self, page: PageId) -> u64 {
        self.temperature.as_ref().unwrap().get(&(page.0 / 32)).copied().unwrap_or(0)
    }

    fn warm(&mut self, page: PageId) {
        let Some(temperature) = &mut self.temperature else { return };
        let scan = self.recent.iter().rev().take(16).any(|recent| recent + 1 == page.0);
        *temperature.entry(page.0 / 32).or_insert(0) += if scan { 1 } else { 8 };
        self.recent.push(page.0);
        self.reads += 1;
        if self.reads.is_multiple_of(8 * PLACES as u64) {
            temperature.values_mut().for_each(|heat| *heat /= 2);
        }
    }

    fn read(&mut self, page: PageId) {
        self.warm(page);
        if let Some(index) = self.cached.iter().position(|cached| *cached == page) {
            self.hits += 1;
            if self.temperature.is_none() {
                let page = self.cached.remove(index);
                self.cached.push(page);
            }
            return;
        }
        self.misses += 1;
        if self.cached.len() == PLACES {
            let victim = match &self.temperature {
                None => 0,
                Some(_) => {
                    let coldest =
                        self.cached.iter().map(|cached| (self.heat(*cached), cached.0 / 32)).min().unwrap();
                    if coldest.0 >= self.heat(page) {
                        self.declined += 1;
                        return;
                    }
                    self.cached.iter().position(|cached| cached.0 / 32 == coldest.1).unwrap()
                }
            };
            self.cached.remove(victim);
            self.replaced += 1;
        }
        self.cached.push(page);
        self.entered += 1;
    }

    fn write(&mut self, page: PageId) {
        match &self.temperature {
            Some(_) => self.rewritten += u64::from(self.cached.contains(&page)),
            None => self.free(page),
        }
    }
    fn free(&mut self, page: PageId) {
        self.cached.retain(|cached| *cached != page);
    }
}

fn drive(policy: EntryPolicy, seed: u64) {
    let bed = Bed::new(policy, 0);
    let mut rng = Rng::new(seed);
    let temperature = (policy == EntryPolicy::Temperature).then(BTreeMap::new);
    let mut model = Model { temperature, ..Model::default() };
    let mut pages: Vec<PageId> = bed.allocate(400);
    let mut newest: BTreeMap<PageId, Lsn> = BTreeMap::new();
    for step in 0..6000 {
        // Skewed, so that extents differ.
        let at = rng.below(pages.len() as u64).min(rng.below(pages.len() as u64)) as usize;
        let page = pages[at];
        match rng.below(8) {
            0 | 1 => {
                newest.insert(page, bed.write(page, true));
                model.write(page);
            }
            2 if newest.contains_key(&page) => {
                bed.offer(page, newest[&page], false, Ok(Took::Declined));
            }
            3 if rng.one_in(8) => {
                publish_in(&bed.cache, &[], &[page], &mut |record| bed.log.append(record)).unwrap();
                newest.remove(&page);
                model.free(page);
                pages[at] = bed.allocate(1)[0];
                model.free(pages[at]);
            }
            _ if newest.contains_key(&page) => {
                bed.assert_reads(page, newest[&page]);
                model.read(page);
            }
            _ => {}
        }
        if rng.one_in(10) {
            bed.cache.step().unwrap();
        }
        let counted = bed.cache.cache_statistics();
        let seen = (
            counted.hits,
            counted.misses,
            counted.clean_enqueued,
            counted.clean_declined,
            counted.discarded_clean,
            counted.dirty_enqueued,
            counted.pages_valid,
        );
        let expected = (
            model.hits,
            model.misses,
            model.entered,
            model.declined,
            model.replaced,
            model.rewritten,
            model.cached.len() as u64,
        );
        assert_eq!(seen, expected, "{policy:?}, seed {seed}, step {step}");
    }
    assert!(model.hits > 500 && model.replaced > 100, "the run says something: {} hits", model.hits);
    assert!(policy != EntryPolicy::Temperature || model.declined > 100 && model.rewritten > 50);
    let mut faults = Vec::new();
    assert_eq!(bed.cache.check(&mut |fault| faults.push(fault)).unwrap(), model.cached.len() as u64);
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
fn least_recently_used_agrees_with_a_list() {
    (0..4).for_each(|seed| drive(EntryPolicy::ReadLru, seed));
}

#[test]
fn temperatures_agree_with_a_list() {
    (10..14).for_each(|seed| drive(EntryPolicy::Temperature, seed));
}
