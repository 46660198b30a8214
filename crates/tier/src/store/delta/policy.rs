//! Whether a page that leaves the buffer is written whole or as a delta: rent or buy.
//!
//! A delta costs its slot, and so does each later one, which repeats the changes of those before
//! it; a whole image costs a page and makes the next slots small again. Without knowing what comes,
//! a page is written whole as soon as the slots written for it since its base image would add up to
//! more than a page: whatever the sequence of changes, that writes at most twice what the best
//! sequence of choices would. For a page that grows by the same number of bytes each time it is the
//! best number of slots or one beside it.
//!
//! *Read budget.* A page with a delta is read with two requests. Each second read counts as much as
//! slots of that cost would, so a page that is read for every change is written whole sooner, and
//! on a drive whose reads cost as much as its writes nearly every time.
//!
//! What was spent since the base image is a part of the map entry, in sixtieths of a page, so it
//! needs no memory of its own and outlives a restart. Rounding is by chance, of the expected value,
//! so that small slots count as what they are.

use firndb_base::Lsn;
use firndb_base::hash::hash_bytes;

/// Units of rent that make a page.
const UNITS: u64 = 60;
/// Most rent: a page, and a unit of rounding. A map entry has six bits for it.
pub(crate) const RENT_MAX: u8 = 61;

/// How to write a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// As an image: the changes are more than half of it.
    WholeForSize,
    /// As an image: what was spent since the last comes to as much.
    WholeForRent,
    Delta,
}

/// Chooses for a page on which `rent` was spent since its base image, and whose next slot has
/// `slot_bytes`.
pub(crate) fn choose(page_size: usize, rent: u8, slot_bytes: usize) -> Choice {
    let with = u64::from(rent) * page_size as u64 + UNITS * slot_bytes as u64;
    if 2 * slot_bytes > page_size {
        Choice::WholeForSize
    } else if with > UNITS * page_size as u64 {
        Choice::WholeForRent
    } else {
        Choice::Delta
    }
}

/// The rent after one second read, before the write of `version`.
pub(crate) fn rent_after_read(rent: u8, read_cost_percent: u16, version: Lsn) -> u8 {
    let units = UNITS * u64::from(read_cost_percent);
    let chance = hash_bytes(0x5EAD, &version.0.to_le_bytes()) % 100;
    let units = units / 100 + u64::from(chance < units % 100);
    (u64::from(rent) + units).min(u64::from(RENT_MAX)) as u8
}

/// Whether second read number `number` is one after which a page that did not change should be
/// written whole. Rent or buy without memory: with this probability the reads before it cost as
/// much as the page, on average.
pub(crate) fn merges(read_cost_percent: u16, number: u64) -> bool {
    hash_bytes(0x3E26, &number.to_le_bytes()) % 100 < u64::from(read_cost_percent)
}

/// The rent after a slot of `slot_bytes` was written for a version.
pub(crate) fn rent_after(page_size: usize, rent: u8, slot_bytes: usize, version: Lsn) -> u8 {
    let units = UNITS * slot_bytes as u64;
    let (whole, part) = (units / page_size as u64, units % page_size as u64);
    let chance = hash_bytes(0x5107, &version.0.to_le_bytes()) % page_size as u64;
    let units = whole + u64::from(chance < part);
    (u64::from(rent) + units).min(u64::from(RENT_MAX)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;

    /// Bytes of a slot beside those of the granules.
    const SLOT_OVERHEAD: f64 = 26.0;

    /// The least page writes an eviction of a page that grows by `growth` bytes each time, over all
    /// lengths of a cycle.
    fn least(page_size: f64, growth: f64) -> f64 {
        let mut slots = 0.0;
        (1..100u32).fold(f64::MAX, |least, n| {
            let cost = (1.0 + slots / page_size) / f64::from(n);
            slots += f64::from(n) * growth + SLOT_OVERHEAD;
            least.min(cost)
        })
    }

    fn written(page_size: usize, growth: usize, evictions: u64) -> f64 {
        let (mut rent, mut slot, mut bytes) = (0, 0, 0);
        for eviction in 0..evictions {
            slot += growth;
            let slot_bytes = slot + SLOT_OVERHEAD as usize;
            match choose(page_size, rent, slot_bytes) {
                Choice::WholeForSize | Choice::WholeForRent => {
                    (rent, slot) = (0, 0);
                    bytes += page_size;
                }
                Choice::Delta => {
                    rent = rent_after(page_size, rent, slot_bytes, Lsn(eviction));
                    bytes += slot_bytes;
                }
            }
        }
        bytes as f64 / (evictions as f64 * page_size as f64)
    }

    #[test]
    fn writes_are_near_the_least_whatever_the_growth() {
        assert!((least(4096.0, 110.0) - 0.224).abs() < 0.001, "as computed by hand");
        assert!((least(4096.0, 600.0) - 0.475).abs() < 0.001);
        for (page_size, growth) in
            [(4096, 110), (8192, 110), (4096, 600), (4096, 900), (8192, 600), (16384, 64)]
        {
            let (cost, least) = (written(page_size, growth, 20_000), least(page_size as f64, growth as f64));
            assert!(cost <= 1.15 * least, "{growth} bytes on {page_size}: {cost:.3}, least {least:.3}");
        }
    }

    /// Whatever comes, at most twice the least plus a page: the proof's bound, with the rounding.
    #[test]
    fn no_sequence_of_changes_costs_more_than_twice_the_least() {
        let mut rng = Rng::new(9);
        for _ in 0..200 {
            let most = 1 + rng.below(30);
            let grown: Vec<usize> = (0..40).map(|_| 32 * (1 + rng.below(most) as usize)).collect();
            let (mut rent, mut slot, mut cost) = (0, 0usize, 0usize);
            for (number, grown) in grown.iter().enumerate() {
                slot = (slot + grown).min(4096);
                match choose(4096, rent, slot + 26) {
                    Choice::WholeForSize | Choice::WholeForRent => {
                        (rent, slot) = (0, 0);
                        cost += 4096;
                    }
                    Choice::Delta => {
                        rent = rent_after(4096, rent, slot + 26, Lsn(number as u64));
                        cost += slot + 26;
                    }
                }
            }
            // The least, by the last eviction that wrote the page whole; 0 is the image before all.
            let slots = |from: usize, to: usize| {
                let sizes = grown[from..to].iter().scan(0, |size, grown| {
                    *size = (*size + grown).min(4096);
                    Some(*size + 26)
                });
                sizes.sum::<usize>()
            };
            let mut whole = vec![0usize; grown.len() + 1];
            for at in 1..=grown.len() {
                whole[at] = (0..at).map(|last| whole[last] + slots(last, at - 1) + 4096).min().expect("one");
            }
            let least =
                (0..=grown.len()).map(|last| whole[last] + slots(last, grown.len())).min().expect("one");
            assert!(cost <= 2 * least + 4096, "{cost}, least {least}");
        }
    }

    #[test]
    fn rent_is_right_on_the_average_and_fits_its_bits() {
        let mut sum = 0u64;
        for version in 0..20_000 {
            sum += u64::from(rent_after(4096, 0, 30, Lsn(version)));
        }
        let wanted = 20_000.0 * 30.0 * 60.0 / 4096.0;
        assert!((sum as f64 / wanted - 1.0).abs() < 0.05, "{sum} units, {wanted} wanted");
        let mut rent = 0;
        for version in 0..10_000 {
            assert!(rent <= RENT_MAX);
            rent = match choose(4096, rent, 30) {
                Choice::Delta => rent_after(4096, rent, 30, Lsn(version)),
                _ => 0,
            };
        }
        assert_eq!(choose(4096, 0, 2049), Choice::WholeForSize, "never more than half a page");
        assert_eq!((choose(4096, 60, 1), choose(4096, 0, 2048)), (Choice::WholeForRent, Choice::Delta));
    }

    /// Slots written until the page is written whole, if each is read once before the next.
    fn slots(read_cost_percent: u16, slot_bytes: usize) -> f64 {
        let (mut written, mut rent, mut whole) = (0u32, 0, 0u32);
        for version in (0..4000).map(Lsn) {
            if rent > 0 {
                rent = rent_after_read(rent, read_cost_percent, version);
            }
            if choose(4096, rent, slot_bytes) == Choice::Delta {
                rent = rent_after(4096, rent, slot_bytes, version);
                written += 1;
            } else {
                (rent, whole) = (0, whole + 1);
            }
        }
        f64::from(written) / f64::from(whole)
    }

    #[test]
    fn second_reads_and_slots_add_up_to_the_price_of_an_image() {
        // A slot of a tenth of a page: ten of them; then reads at a tenth, at 0.4, at a whole page.
        for (read_cost_percent, wanted) in [(0, 10.0), (10, 5.0), (40, 2.0), (100, 1.0), (400, 1.0)] {
            let slots = slots(read_cost_percent, 410);
            assert!((slots - wanted).abs() <= 0.15 * wanted, "{read_cost_percent}: {slots:.2}, not {wanted}");
        }
        assert_eq!(rent_after_read(50, 400, Lsn(1)), RENT_MAX);
    }

    #[test]
    fn merges_are_drawn_with_the_probability_of_the_cost() {
        for percent in [0, 7, 50, 100, 300] {
            let merges = (0..20_000).filter(|number| merges(percent, *number)).count() as f64 / 200.0;
            assert!((merges - f64::from(percent.min(100))).abs() < 1.0, "{merges} of {percent}");
        }
    }
}
