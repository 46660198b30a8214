//! What the choice between shadows and log needs to know ([`crate::image_choice`]): what writes
//! take, how many transactions write images side by side, and how soon pages are put anew.

use crate::image_choice::{Situation, WriteCosts};
use crate::page_images::PageImage;
use crate::rewrites::Rewrites;
use crate::write_times::WriteTimes;
use firndb_base::sync::atomic::{AtomicUsize, Ordering};
use firndb_buffer::BufferPool;

/// Until the buffer has written dirty pages, the choice expects it to write this many in one batch,
/// but no more than this share of its frames (a divisor).
const BATCH_ASSUMED: (f64, f64) = (64.0, 16.0);
/// Batches of the buffer that this expectation counts as.
const BATCHES_ASSUMED: f64 = 8.0;

#[derive(Debug)]
pub(crate) struct ImageCosts {
    /// What writing shadows takes.
    pub times: WriteTimes,
    pub rewrites: Rewrites,
    writers: AtomicUsize,
}

/// A transaction that writes images, counted until it is dropped.
pub(crate) struct Writing<'c>(&'c ImageCosts);

impl ImageCosts {
    pub fn new(expected: WriteCosts, kept_bytes: u64) -> ImageCosts {
        ImageCosts {
            times: WriteTimes::new(expected),
            rewrites: Rewrites::new(kept_bytes),
            writers: AtomicUsize::new(0),
        }
    }

    /// Counts a transaction that begins to write images.
    pub fn writing(&self) -> Writing<'_> {
        self.writers.fetch_add(1, Ordering::Relaxed);
        Writing(self)
    }

    /// What a transaction chooses by for these images.
    pub fn choice(&self, images: &[PageImage], pool: &BufferPool) -> (Situation, WriteCosts) {
        let writers = self.writers.load(Ordering::Relaxed);
        let situation = Situation { images: images.len(), writers, ..self.situation(pool) };
        self.times.asked();
        (situation, self.times.costs())
    }

    /// Above how many images a transaction that commits alone would write them as shadows, if it
    /// chose by cost; `None` if it would log any number.
    pub fn shadows_above(&self, pool: &BufferPool) -> Option<u64> {
        let images = self.situation(pool).break_even(&self.times.costs());
        (images < u64::MAX as f64).then_some(images as u64)
    }

    /// Of a transaction with one image.
    fn situation(&self, pool: &BufferPool) -> Situation {
        let (written, batches) = pool.written();
        let (most, share) = BATCH_ASSUMED;
        let assumed = (pool.frame_count() as f64 / share).clamp(1.0, most) * BATCHES_ASSUMED;
        Situation {
            images: 1,
            image_bytes: pool.tier().page_size(),
            writers: 1,
            batch: (assumed + written as f64) / (BATCHES_ASSUMED + batches as f64),
            rewritten: self.rewrites.share(),
        }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.writers.fetch_sub(1, Ordering::Relaxed);
    }
}
