//! Advises whether more DRAM or more flash would save more of the time that reads take.
//!
//! FaCE (VLDB 2012), section 2.2, gives a formula: if hits grow with the logarithm of memory, flash
//! of `(1 + d)^(store / (store - flash)) - 1` times the buffer saves as much as `d` times the
//! buffer in more DRAM, where `store` and `flash` are the costs of a read of either. Here the curve
//! of hits is measured ([`MissCurve`]), and the formula's result is reported beside the measured
//! one.
//!
//! The model: pages that DRAM evicts go to flash and are dropped from there, both in LRU order;
//! reads are counted, writes are not (a flash cache saves writes to the store, too).

use crate::database::Database;
use firndb_buffer::MissCurve;
use firndb_profile::DeviceProfile;

/// Below this share of the read time nothing is worth buying.
const WORTH_MIN: f64 = 0.05;

/// What reads and memory cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryCosts {
    /// A page read from the store, in microseconds.
    pub store_read_us: f64,
    /// A page read from flash, in microseconds. It must be less than from the store, or a flash
    /// cache is useless.
    pub flash_read_us: f64,
    /// Bytes of flash for the price of one byte of DRAM. FaCE assumes 10.
    pub dram_price: f64,
}

impl MemoryCosts {
    /// The costs of devices with these profiles, for pages of `page_size` bytes.
    #[must_use]
    pub fn of_profiles(
        store: &DeviceProfile,
        flash: &DeviceProfile,
        page_size: usize,
        dram_price: f64,
    ) -> MemoryCosts {
        let read = |profile: &DeviceProfile| match &profile.model.mechanics {
            Some(mechanics) => mechanics.random_read_us(page_size as u64),
            None => profile.model.read_random.us(page_size as u64),
        };
        MemoryCosts { store_read_us: read(store), flash_read_us: read(flash), dram_price }
    }
}

/// What the same money buys, and what each purchase saves.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Purchase {
    /// More DRAM, in bytes.
    pub dram_bytes: u64,
    /// More flash, in bytes, for the same price.
    pub flash_bytes: u64,
    /// Share of the read time that the DRAM saves, 0 to 1.
    pub dram_saves: f64,
    /// Share of the read time that the flash saves, 0 to 1.
    pub flash_saves: f64,
    /// Flash that saves as much as the DRAM; `None` if none does.
    pub flash_for_dram: Option<u64>,
    /// The same by FaCE's formula, which assumes that there is no flash yet.
    pub formula_flash_for_dram: f64,
}

/// Which purchase is advised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Neither saves a twentieth of the read time.
    Enough,
    /// DRAM saves more for the same price.
    MoreDram,
    /// Flash saves more for the same price.
    MoreFlash,
}

/// Advice, with the measurements that it rests on.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Advice {
    /// DRAM misses that were measured, first accesses included.
    pub misses: u64,
    /// Purchases of a quarter, a half, once, twice and four times the present DRAM.
    pub purchases: Vec<Purchase>,
    /// The advice for the purchase of as much DRAM as there is now.
    pub verdict: Verdict,
}

/// The memory that there is, and how it is used.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryUse {
    /// Bytes of a page.
    pub page_size: u64,
    /// Pages of DRAM.
    pub dram_pages: u64,
    /// Pages of flash.
    pub flash_pages: u64,
    /// How many misses the pool would have had with more memory.
    pub curve: MissCurve,
}

impl MemoryUse {
    /// Microseconds of reads for each of today's misses, with `more_dram` more pages of DRAM and
    /// `flash` pages of flash in all.
    fn read_us(&self, costs: &MemoryCosts, more_dram: u64, flash: u64) -> f64 {
        let in_dram = self.curve.avoided_by(more_dram);
        let on_flash = self.curve.avoided_by(more_dram + flash) - in_dram;
        on_flash * costs.flash_read_us + (1.0 - in_dram - on_flash) * costs.store_read_us
    }

    fn saved(&self, costs: &MemoryCosts, more_dram: u64, more_flash: u64) -> f64 {
        let now = self.read_us(costs, 0, self.flash_pages);
        let then = self.read_us(costs, more_dram, self.flash_pages + more_flash);
        if now > 0.0 { 1.0 - then / now } else { 0.0 }
    }

    /// The least flash that saves as much as `more_dram` does, in pages; `None` if no amount does.
    fn flash_for_dram(&self, costs: &MemoryCosts, more_dram: u64) -> Option<u64> {
        let wanted = self.saved(costs, more_dram, 0);
        let saves = |flash: u64| self.saved(costs, 0, flash) >= wanted;
        let (mut low, mut high) = (0, 1u64 << 40);
        if !saves(high) {
            return None;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            (low, high) = if saves(middle) { (low, middle) } else { (middle + 1, high) };
        }
        Some(low)
    }

    /// What more memory would save.
    #[must_use]
    pub fn advise(&self, costs: &MemoryCosts) -> Advice {
        let ratio = costs.store_read_us / (costs.store_read_us - costs.flash_read_us).max(f64::MIN_POSITIVE);
        let purchase = |factor: f64| {
            let dram = (self.dram_pages as f64 * factor) as u64;
            let flash = (dram as f64 * costs.dram_price) as u64;
            let formula = ((1.0 + factor).powf(ratio) - 1.0) * self.dram_pages as f64;
            Purchase {
                dram_bytes: dram * self.page_size,
                flash_bytes: flash * self.page_size,
                dram_saves: self.saved(costs, dram, 0),
                flash_saves: self.saved(costs, 0, flash),
                flash_for_dram: self.flash_for_dram(costs, dram).map(|pages| pages * self.page_size),
                formula_flash_for_dram: formula * self.page_size as f64,
            }
        };
        let purchases: Vec<Purchase> = [0.25, 0.5, 1.0, 2.0, 4.0].into_iter().map(purchase).collect();
        let once = purchases[2];
        let verdict = match (once.dram_saves, once.flash_saves) {
            (dram, flash) if dram.max(flash) < WORTH_MIN => Verdict::Enough,
            (dram, flash) if dram > flash => Verdict::MoreDram,
            _ => Verdict::MoreFlash,
        };
        Advice { misses: self.curve.misses(), purchases, verdict }
    }
}

impl Database {
    /// DRAM and flash for pages, and the hits that the reads since the opening would have had with
    /// more of either.
    #[must_use]
    pub fn memory_use(&self) -> MemoryUse {
        let statistics = self.statistics();
        MemoryUse {
            page_size: statistics.page_size as u64,
            dram_pages: statistics.buffer.frames,
            flash_pages: statistics.cache.map_or(0, |cache| cache.slots),
            curve: self.engine().pool.miss_curve(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logarithmic(flash_pages: u64) -> MemoryUse {
        // Hits grow by a tenth of the misses for each factor of e in memory.
        let hits = |frames: u64| (1.0 + frames as f64 / 1000.0).ln() / 10.0;
        let curve = MissCurve::hypothetical(1 << 40, |frames| hits(frames).min(1.0));
        MemoryUse { page_size: 4096, dram_pages: 1000, flash_pages, curve }
    }

    #[test]
    fn where_hits_grow_with_the_logarithm_the_measured_answer_is_the_formulas() {
        for (store, flash) in [(6000.0, 100.0), (1000.0, 300.0), (500.0, 90.0)] {
            let costs = MemoryCosts { store_read_us: store, flash_read_us: flash, dram_price: 10.0 };
            for purchase in logarithmic(0).advise(&costs).purchases {
                let measured = purchase.flash_for_dram.unwrap() as f64;
                let ratio = measured / purchase.formula_flash_for_dram;
                assert!((ratio - 1.0).abs() < 0.03, "{store} {flash}: {purchase:?}");
            }
        }
    }

    #[test]
    fn the_cheaper_of_two_that_save_as_much_is_advised_and_nothing_where_little_is_to_be_saved() {
        let costs = |price| MemoryCosts { store_read_us: 6000.0, flash_read_us: 100.0, dram_price: price };
        let memory = logarithmic(0);
        assert_eq!(memory.advise(&costs(10.0)).verdict, Verdict::MoreFlash);
        assert_eq!(memory.advise(&costs(0.5)).verdict, Verdict::MoreDram);
        // Flash as slow as the store saves nothing.
        let slow = MemoryCosts { flash_read_us: 6000.0, ..costs(10.0) };
        let advice = memory.advise(&slow);
        assert_eq!((advice.verdict, advice.purchases[2].flash_for_dram), (Verdict::MoreDram, None));
        // All pages that are ever read again fit already.
        let curve = MissCurve::hypothetical(1 << 30, |frames| if frames < 2000 { 0.0 } else { 0.02 });
        let idle = MemoryUse { page_size: 4096, dram_pages: 1000, flash_pages: 0, curve };
        assert_eq!(idle.advise(&costs(10.0)).verdict, Verdict::Enough);
        let nothing = MemoryUse { curve: MissCurve::default(), ..idle };
        assert_eq!(nothing.advise(&costs(10.0)).verdict, Verdict::Enough);
    }

    #[test]
    fn flash_that_is_there_makes_more_of_it_worth_less() {
        let costs = MemoryCosts { store_read_us: 6000.0, flash_read_us: 100.0, dram_price: 10.0 };
        let saves = |flash| logarithmic(flash).advise(&costs).purchases[2].flash_saves;
        assert!(saves(0) > saves(10_000) && saves(10_000) > saves(100_000));
    }
}
