//! Whether a page that leaves DRAM is written whole or as a delta, or merged: rent or buy. The rule
//! of Firn's delta layer, as its design states it; the store's own takes this place behind
//! [`Policy`].

/// What a policy looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeavingPage {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Bytes of the delta that would be written: all that differs from the base image. Zero if the
    /// page is clean.
    pub delta_bytes: u64,
    /// Bytes of deltas written for the page since its base image.
    pub spent_bytes: u64,
    /// Reads of the page since its base image for which a delta page had to be read.
    pub delta_reads: u64,
}

/// What becomes of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// An image, which is the new base.
    Whole,
    /// A delta; of a clean page, nothing.
    Delta,
}

/// Decides. A pure function of what it is given.
pub trait Policy {
    /// For a page that leaves DRAM.
    fn choose(&self, page: &LeavingPage) -> Choice;
}

/// Rent (deltas, and the second reads that they cost) until the rents add up to the price of the
/// image; then buy. Costs at most twice what the best choice in hindsight would, for any sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RentOrBuy {
    /// Cost of reading a delta page, in units of writing a page; 0 lifts the read budget.
    pub read_cost: f64,
}

impl Policy for RentOrBuy {
    fn choose(&self, page: &LeavingPage) -> Choice {
        let rent = (page.spent_bytes + page.delta_bytes) as f64;
        let read = self.read_cost * page.delta_reads as f64 * page.page_bytes as f64;
        let too_long = page.delta_bytes > page.page_bytes / 2;
        if too_long || rent + read > page.page_bytes as f64 { Choice::Whole } else { Choice::Delta }
    }
}

/// Every page whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Off;

impl Policy for Off {
    fn choose(&self, page: &LeavingPage) -> Choice {
        if page.delta_bytes > 0 { Choice::Whole } else { Choice::Delta }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: LeavingPage =
        LeavingPage { page_bytes: 8192, delta_bytes: 0, spent_bytes: 0, delta_reads: 0 };

    #[test]
    fn rents_add_up_to_the_price_of_an_image() {
        use Choice::{Delta, Whole};
        let free = RentOrBuy { read_cost: 0.0 };
        let dear = RentOrBuy { read_cost: 0.5 };
        for (policy, delta_bytes, spent_bytes, delta_reads, choice) in [
            (free, 4096, 0, 100, Delta),
            (free, 4097, 0, 0, Whole),
            (free, 1000, 7192, 0, Delta),
            (free, 1001, 7192, 0, Whole),
            (dear, 100, 0, 1, Delta),
            (dear, 100, 0, 2, Whole),
            (dear, 0, 100, 1, Delta),
            (dear, 0, 100, 2, Whole),
        ] {
            let page = LeavingPage { delta_bytes, spent_bytes, delta_reads, ..PAGE };
            assert_eq!(policy.choose(&page), choice, "{policy:?} {page:?}");
        }
        assert_eq!(Off.choose(&LeavingPage { delta_bytes: 1, ..PAGE }), Whole);
        assert_eq!(Off.choose(&PAGE), Delta, "a clean page is not written");
    }

    /// With equal growth the rule comes within a factor of two of the best number of deltas.
    #[test]
    fn equal_growth_costs_at_most_twice_the_minimum() {
        for (page_bytes, growth) in [(4096, 110), (8192, 110), (4096, 600), (4096, 900)] {
            let slot = |n: u64| n * growth + crate::firn::SLOT_BYTES;
            let cost = |n: u64| (1.0 + (1..n).map(slot).sum::<u64>() as f64 / page_bytes as f64) / n as f64;
            let best = (1..64).map(cost).fold(f64::INFINITY, f64::min);
            let (mut n, mut spent) = (1, 0);
            let policy = RentOrBuy { read_cost: 0.0 };
            loop {
                let delta_bytes = slot(n);
                let page = LeavingPage { page_bytes, delta_bytes, spent_bytes: spent, delta_reads: 0 };
                if policy.choose(&page) == Choice::Whole {
                    break;
                }
                (n, spent) = (n + 1, spent + delta_bytes);
            }
            assert!(cost(n) <= 1.2 * best, "{page_bytes} {growth}: {} over {best}", cost(n));
        }
    }
}
