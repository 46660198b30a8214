//! Whether an image becomes a shadow or is logged: pure functions, with tables of cases.

use crate::page_images::PageImage;

/// How whole pages of page files become durable at commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PageRecovery {
    /// Their content is logged, and written to its place later. Parts of pages are logged alone.
    Log,
    /// Their content is written to free places before the commit record, and is in no log. A page
    /// of which a part is written is written whole, too.
    Shadow,
    /// Pages that were put whole as with `Shadow`, parts of pages as with `Log`.
    Hybrid,
    /// Pages that were put whole as with `Log` or as with `Shadow`, whichever takes the devices
    /// less time for the images of the transaction; parts of pages as with `Log`.
    #[default]
    Adaptive,
}

/// What writing takes the devices, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriteCosts {
    /// The log's devices, for each byte more in a request.
    pub log_byte: f64,
    /// The store's device, for a durable write whatever its length.
    pub store_write: f64,
    /// The store's device, for each byte of it.
    pub store_byte: f64,
}

impl WriteCosts {
    /// Of a SATA SSD that loses nothing with the power.
    pub const ASSUMED: WriteCosts = WriteCosts { log_byte: 2.0, store_write: 100_000.0, store_byte: 2.0 };

    /// A durable write of so many bytes to the store, in nanoseconds.
    pub(crate) fn of_store(&self, bytes: f64) -> f64 {
        self.store_write + bytes * self.store_byte
    }
}

/// The images that a transaction writes, and what surrounds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Situation {
    pub images: usize,
    pub image_bytes: usize,
    /// Transactions that write images just now, this one included: they share a durable write.
    pub writers: usize,
    /// Dirty pages that the buffer writes to the store at once.
    pub batch: f64,
    /// The share of pages that are put anew before the buffer has written them.
    pub rewritten: f64,
}

impl Situation {
    /// Above how many images the devices take less time if they become shadows. A shadow is written
    /// once, by a durable write of its own. A logged image is written to the log, and later, with
    /// other pages, to the store, unless its page is put anew before.
    pub fn break_even(&self, costs: &WriteCosts) -> f64 {
        let bytes = self.image_bytes as f64;
        let shadow = bytes * costs.store_byte;
        let later = (1.0 - self.rewritten) * (costs.store_write / self.batch.max(1.0) + shadow);
        let saved = bytes * costs.log_byte + later - shadow;
        if saved > 0.0 { costs.store_write / self.writers.max(1) as f64 / saved } else { f64::INFINITY }
    }

    fn shadows_pay(&self, costs: &WriteCosts) -> bool {
        self.images as f64 > self.break_even(costs)
    }
}

/// The images that are logged, and those that are to be shadows. `adaptive` tells what the choice
/// by cost needs: the situation, and the costs.
pub(crate) fn choose(
    recovery: PageRecovery,
    images: Vec<PageImage>,
    adaptive: impl FnOnce(&[PageImage]) -> (Situation, WriteCosts),
) -> (Vec<PageImage>, Vec<PageImage>) {
    match recovery {
        PageRecovery::Log => (images, Vec::new()),
        PageRecovery::Shadow | PageRecovery::Hybrid => (Vec::new(), images),
        PageRecovery::Adaptive => {
            let (situation, costs) = adaptive(&images);
            match situation.shadows_pay(&costs) {
                true => (Vec::new(), images),
                false => (images, Vec::new()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::{Lsn, PageId};

    const DISK: WriteCosts = WriteCosts { log_byte: 15.0, store_write: 12e6, store_byte: 15.0 };
    const ONE: Situation =
        Situation { images: 1, image_bytes: 4096, writers: 1, batch: 64.0, rewritten: 0.0 };

    #[test]
    fn the_kind_of_recovery_decides_which_images_are_logged() {
        let image = |page: u64| PageImage { page: PageId(page), version: Lsn(page), bytes: vec![1] };
        for (recovery, images, logged, shadows) in [
            (PageRecovery::Log, 1000, &[1, 2, 3][..], &[][..]),
            (PageRecovery::Shadow, 1, &[], &[1, 2, 3]),
            (PageRecovery::Hybrid, 1, &[], &[1, 2, 3]),
            (PageRecovery::Adaptive, 1, &[1, 2, 3], &[]),
            (PageRecovery::Adaptive, 1000, &[], &[1, 2, 3]),
        ] {
            let situation = Situation { images, ..ONE };
            let all = vec![image(1), image(2), image(3)];
            let chosen = choose(recovery, all, |_| (situation, WriteCosts::ASSUMED));
            let pages = |images: &[PageImage]| images.iter().map(|image| image.page.0).collect::<Vec<_>>();
            assert_eq!(
                (pages(&chosen.0), pages(&chosen.1)),
                (logged.to_vec(), shadows.to_vec()),
                "{recovery:?}"
            );
        }
    }

    /// The fewest images that become shadows.
    fn fewest(situation: Situation, costs: WriteCosts) -> Option<usize> {
        (1..10_000).find(|&images| Situation { images, ..situation }.shadows_pay(&costs))
    }

    #[test]
    fn many_images_become_shadows_and_few_are_logged() {
        // 100 us against 8.2 us in the log and a 64th of 100 us later.
        assert_eq!(fewest(ONE, WriteCosts::ASSUMED), Some(11));
        assert_eq!(fewest(ONE, DISK), Some(49));
        let shared = Situation { writers: 16, ..ONE };
        assert_eq!(fewest(shared, WriteCosts::ASSUMED), Some(1), "a 16th of 100 us each");
        let small_batches = Situation { batch: 4.0, ..ONE };
        assert_eq!(fewest(small_batches, DISK), Some(4), "the buffer writes four at once");
    }

    #[test]
    fn pages_that_are_put_again_and_again_are_logged() {
        let hot = Situation { rewritten: 1.0, ..ONE };
        assert_eq!(fewest(hot, WriteCosts::ASSUMED), None, "written to the log, and hardly to the store");
        let half = Situation { rewritten: 0.5, ..ONE };
        assert_eq!(fewest(half, WriteCosts::ASSUMED), Some(21));
        let slow_log = WriteCosts { log_byte: 20.0, ..WriteCosts::ASSUMED };
        assert_eq!(fewest(hot, slow_log), Some(2), "the log is ten times as slow");
    }
}
