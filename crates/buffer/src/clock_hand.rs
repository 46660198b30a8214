//! The hand of the replacement clock.

use crate::frame::FrameId;
use firndb_base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The clock's hand: which frame it visits next.
#[derive(Default)]
pub(crate) struct ClockHand(AtomicU64);

impl ClockHand {
    /// Moves the hand one frame on; returns the frame it passed.
    pub(crate) fn pass(&self, frames: u32) -> FrameId {
        ClockHand::frame_at(self.0.fetch_add(1, Relaxed), frames)
    }
    /// Steps taken so far.
    pub(crate) fn position(&self) -> u64 {
        self.0.load(Relaxed)
    }
    /// The frame that it passes with its `step`-th step, counted from zero.
    pub(crate) fn frame_at(step: u64, frames: u32) -> FrameId {
        FrameId((step % u64::from(frames)) as u32)
    }
    /// The next `count` frames that it will pass.
    pub(crate) fn ahead(&self, frames: u32, count: u32) -> impl Iterator<Item = FrameId> + use<> {
        let start = self.0.load(Relaxed);
        (0..u64::from(count)).map(move |step| ClockHand::frame_at(start + step, frames))
    }
}
