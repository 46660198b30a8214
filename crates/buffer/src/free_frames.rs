//! The frames that were made and hold no page.

use crate::frame::FrameId;
use crate::ranks;
use firndb_base::sync::Mutex;
use std::collections::VecDeque;

/// Frames that were made and hold no page. The lock protects the list only; no thread waits under
/// it.
pub(crate) struct FreeFrames(Mutex<VecDeque<FrameId>>);

impl FreeFrames {
    pub(crate) fn new() -> FreeFrames {
        FreeFrames(ranks::FREE.mutex(VecDeque::new()))
    }
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
    /// The frame that was freed last.
    pub(crate) fn pop(&self) -> Option<FrameId> {
        self.0.lock().pop_back()
    }
    pub(crate) fn push(&self, id: FrameId) {
        self.0.lock().push_back(id);
    }
    /// Puts back a frame that cannot be taken yet; it is tried again after all others.
    pub(crate) fn put_off(&self, id: FrameId) {
        self.0.lock().push_front(id);
    }
}
