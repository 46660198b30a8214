//! How often a page that was put is put anew before the buffer would have written it.
//!
//! That depends on what is kept in DRAM meanwhile, about: a page is *rewritten* if its successor is
//! put while fewer bytes than that were put. The last put of some pages is remembered, by their
//! numbers; where two meet, the newer one counts.

use firndb_base::PageId;
use firndb_base::sync::Mutex;

/// Pages whose last put is remembered.
const REMEMBERED: usize = 4096;
/// Puts after which the share has followed what happens by two thirds.
const FOLLOWS: f64 = 64.0;

#[derive(Debug)]
pub(crate) struct Rewrites {
    /// Bytes of pages put that stay in DRAM before they are written.
    kept_bytes: u64,
    /// Locked alone.
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    bytes_put: u64,
    /// Pages, and the bytes that had been put by then; empty before the first.
    last: Vec<(PageId, u64)>,
    share: f64,
}

impl Rewrites {
    pub fn new(kept_bytes: u64) -> Rewrites {
        Rewrites { kept_bytes, recent: Mutex::default() }
    }

    /// `page` was taken into use for an image of `bytes`.
    pub fn put(&self, page: PageId, bytes: usize) {
        let mut recent = self.recent.lock();
        recent.bytes_put += bytes as u64;
        recent.share -= recent.share / FOLLOWS;
        if recent.last.is_empty() {
            recent.last = vec![(PageId(0), 0); REMEMBERED];
        }
        let put = (page, recent.bytes_put);
        recent.last[page.0 as usize % REMEMBERED] = put;
    }

    /// A page just put took the place of `page`.
    pub fn superseded(&self, page: PageId) {
        let mut recent = self.recent.lock();
        let last = recent.last.get(page.0 as usize % REMEMBERED);
        let age = last.filter(|(of, _)| *of == page).map(|(_, at)| recent.bytes_put - at);
        if age.is_some_and(|age| age < self.kept_bytes) {
            recent.share = (recent.share + 1.0 / FOLLOWS).min(1.0);
        }
    }

    /// The share of puts, of late, whose page was rewritten.
    pub fn share(&self) -> f64 {
        self.recent.lock().share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share, after each of `pages` rows was put in turn.
    fn share(kept_bytes: u64, pages: u64) -> f64 {
        let rewrites = Rewrites::new(kept_bytes);
        for put in 0..5000 {
            rewrites.put(PageId(1000 + put), 4096);
            if put >= pages {
                rewrites.superseded(PageId(1000 + put - pages));
            }
        }
        rewrites.share()
    }

    #[test]
    fn pages_are_rewritten_where_they_come_back_while_they_are_in_memory() {
        assert!(share(1 << 20, 1) > 0.95, "one page, again and again");
        assert!(share(1 << 20, 250) > 0.95, "a little less than a MiB in turn");
        assert_eq!(share(1 << 20, 300), 0.0, "each was written before it came back");
        assert_eq!(share(1 << 20, 10_000), 0.0, "none came back");
    }

    #[test]
    fn half_of_the_puts_rewritten_are_a_share_of_a_half() {
        let rewrites = Rewrites::new(1 << 20);
        for put in 0..2000 {
            rewrites.put(PageId(put), 4096);
            if put > 2 && put % 2 == 0 {
                rewrites.superseded(PageId(put - 1));
            }
        }
        assert!((rewrites.share() - 0.5).abs() < 0.02, "{}", rewrites.share());
    }
}
