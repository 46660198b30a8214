//! The frames that scans have filled, in the order in which they did.
//!
//! A scan's next page takes the frame of an earlier one, so that a scan of any length has a small
//! part of the pool, and the clock's hand does not move for it. A frame on the list may have got
//! another page long since: the list is a hint, and its frames are taken as any other.

use crate::frame::FrameId;
use crate::ranks;
use firndb_base::sync::Mutex;
use std::collections::VecDeque;

/// Most frames that scans fill before they take back their own.
const FRAMES_MAX: usize = 512;

/// Frames that hold, or held, pages that only a scan wanted. The lock protects the list only.
pub(crate) struct ScanFrames {
    list: Mutex<VecDeque<FrameId>>,
    /// Frames that scans fill before they take back their own.
    most: usize,
}

impl ScanFrames {
    pub(crate) fn new(frames: u32) -> ScanFrames {
        let most = (frames as usize / 16).clamp(2, FRAMES_MAX);
        ScanFrames { list: ranks::FREE.mutex(VecDeque::new()), most }
    }
    /// Frames that scans fill before they take back their own.
    pub(crate) fn most(&self) -> usize {
        self.most
    }
    /// A scan's page comes into this frame.
    pub(crate) fn push(&self, id: FrameId) {
        let mut list = self.list.lock();
        if list.len() == 2 * self.most {
            // Scans read further ahead than they use: the clock will find it.
            list.pop_front();
        }
        list.push_back(id);
    }
    /// The frame that was filled first, if scans have as many as they should.
    pub(crate) fn pop(&self) -> Option<FrameId> {
        let mut list = self.list.lock();
        if list.len() < self.most { None } else { list.pop_front() }
    }
}
