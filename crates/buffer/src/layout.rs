//! How the memory budget is divided.

use crate::error::{BufferError, BufferErrorKind};
use crate::frame::FrameId;
use crate::frame::state::Frame;
use crate::page_table::PageTable;
use crate::pool::BufferPool;
use crate::recovery_lsns::RecoveryLsns;
use crate::to_clean::ToClean;

/// Fewest frames of a pool: a structure change of a tree latches several pages at once.
pub(crate) const FRAMES_MIN: usize = 16;
/// Most pages of one write to the tier: a flash block's worth (FaCE, section 3.3).
const BATCH_PAGES_MAX: usize = 64;
/// Most staging buffers: of batches that wait for one sync, and of those that gather for the next.
const STAGING_BUFFERS_MAX: usize = 8;

/// Sizes of a pool's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) frames: u32,
    /// Pages of one staging buffer.
    pub(crate) batch_pages: usize,
    pub(crate) staging_buffers: usize,
    /// Of all parts together.
    pub(crate) memory_bytes: usize,
}

impl Layout {
    fn of(frames: usize, page_size: usize) -> Layout {
        // One buffer is left to checkpoints; with the others, cleaners keep as many batches under
        // way. Together they are an eighth of the pool at most, a sixteenth if it is large.
        let (batch_pages, staging_buffers) = match frames {
            ..64 => (frames / 16, 2),
            _ => {
                let batch_pages = (frames / 32).min(BATCH_PAGES_MAX);
                (batch_pages, (frames / (16 * batch_pages)).clamp(4, STAGING_BUFFERS_MAX))
            }
        };
        let frame_bytes = page_size + size_of::<Frame>() + size_of::<FrameId>();
        let memory_bytes = frames * frame_bytes
            + RecoveryLsns::memory_bytes(frames)
            + PageTable::memory_bytes(frames)
            + ToClean::memory_bytes(frames, batch_pages, staging_buffers - 1)
            + batch_pages * staging_buffers * page_size
            + size_of::<BufferPool>();
        Layout { frames: frames as u32, batch_pages, staging_buffers, memory_bytes }
    }

    /// The most frames that fit `budget_bytes` with all that they need.
    pub(crate) fn fit(budget_bytes: usize, page_size: usize) -> Result<Layout, BufferError> {
        assert!(
            page_size.is_power_of_two() && (512..=65536).contains(&page_size),
            "a page of {page_size} bytes"
        );
        let least = Layout::of(FRAMES_MIN, page_size);
        if budget_bytes < least.memory_bytes {
            return Err(BufferError::new(
                BufferErrorKind::BadArgument,
                format!(
                    "a buffer of {budget_bytes} bytes is too small for pages of {page_size} bytes: give it at least {}",
                    least.memory_bytes
                ),
            ));
        }
        let most = (budget_bytes / page_size).min(u32::MAX as usize / 4);
        let (mut fits, mut too_many) = (FRAMES_MIN, most + 1);
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            if Layout::of(middle, page_size).memory_bytes <= budget_bytes {
                fits = middle;
            } else {
                too_many = middle;
            }
        }
        Ok(Layout::of(fits, page_size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_kept_and_used() {
        for page_size in [512, 4096, 65536] {
            for budget in [4 << 20, 9_999_999, 64 << 20, 3 << 30] {
                let layout = Layout::fit(budget, page_size).expect("large enough");
                assert!(layout.memory_bytes <= budget, "{layout:?} of {budget}");
                // Steps of the table's and the staging's size cost some of it.
                assert!(layout.memory_bytes >= budget / 100 * 90, "{layout:?} of {budget}");
                assert!(layout.frames as usize >= FRAMES_MIN);
            }
            let error = Layout::fit(page_size * FRAMES_MIN, page_size).expect_err("no space for tables");
            assert_eq!(error.kind, BufferErrorKind::BadArgument);
        }
    }
}
