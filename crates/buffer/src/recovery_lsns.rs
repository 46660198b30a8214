//! From where on redo needs the log for the pages in DRAM.
//!
//! One word a frame: the *recovery LSN*, which is at or before the first change of the page that
//! the tier does not have. A frame without one is clean and no change of it is announced. The words
//! lie side by side, apart from the frames, so that a checkpoint scans them quickly.
//!
//! Invariants:
//! 1. A change at LSN `l` that the tier does not have yet is covered: its frame's recovery LSN is
//!    there and at most `l`, from *before* the record was appended. So a checkpointer that reads
//!    the log's end first and the recovery LSNs then (the append publishes the word together with
//!    the new end) sees every change before that end.
//! 2. A recovery LSN is set where there was none under the exclusive latch only
//!    ([`RecoveryLsns::announce`]).
//! 3. It is raised only by the holder of the frame's writing flag, once the tier has taken an
//!    image, and only to a bound noted while that image was copied under the latch: no change was
//!    in flight then, so any that is not in the image has a later LSN.
//! 4. It is cleared only under a latch (so that no change is in flight), when the tier has all
//!    changes.

use crate::frame::FrameId;
use crate::frame::state::WritingFlag;
use firndb_base::Lsn;
use firndb_base::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};

/// No recovery LSN; greater than any, so that a minimum ignores it.
const NONE: u64 = u64::MAX;

/// The recovery LSNs of all frames.
pub(crate) struct RecoveryLsns {
    words: Box<[AtomicU64]>,
}

impl RecoveryLsns {
    /// Bytes for `frames`.
    pub(crate) fn memory_bytes(frames: usize) -> usize {
        frames * size_of::<AtomicU64>()
    }

    /// All frames clean.
    pub(crate) fn new(frames: u32) -> RecoveryLsns {
        RecoveryLsns { words: (0..frames).map(|_| AtomicU64::new(NONE)).collect() }
    }

    /// A frame's recovery LSN, if it has one.
    pub(crate) fn get(&self, id: FrameId) -> Option<Lsn> {
        let word = self.words[id.0 as usize].load(Acquire);
        (word != NONE).then_some(Lsn(word))
    }

    /// Sets a frame's recovery LSN if it has none; returns whether it had none. Called under the
    /// exclusive latch, before the record is appended.
    pub(crate) fn announce(&self, id: FrameId, lsn: impl FnOnce() -> Lsn) -> bool {
        let clean = self.get(id).is_none();
        if clean {
            let lsn = lsn();
            assert!(lsn < Lsn::MAX);
            self.words[id.0 as usize].store(lsn.0, Release);
        }
        clean
    }

    /// Raises a frame's recovery LSN to what invariant 3 allows. The caller holds the writing flag.
    pub(crate) fn raise(&self, id: FrameId, _held: &WritingFlag<'_>, bound: Lsn) {
        let before =
            self.get(id).expect("what is not clean has a recovery LSN until its writer takes it away");
        assert!(before <= bound, "a recovery LSN never goes back: {before} to {bound}");
        self.words[id.0 as usize].store(bound.0, Release);
    }

    /// Clears a frame's recovery LSN. Called under a latch, when the tier has all its changes.
    pub(crate) fn clear(&self, id: FrameId) {
        self.words[id.0 as usize].store(NONE, Release);
    }

    /// The least of all.
    pub(crate) fn oldest(&self) -> Option<Lsn> {
        let least = self.words.iter().map(|word| word.load(Acquire)).min().unwrap_or(NONE);
        (least != NONE).then_some(Lsn(least))
    }

    /// How many frames have one.
    pub(crate) fn count(&self) -> u64 {
        self.words.iter().filter(|word| word.load(Acquire) != NONE).count() as u64
    }
}
