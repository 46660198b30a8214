//! One write to a device, from composing it to waking the threads that it concerns.
//!
//! The bytes of a write in flight belong to it alone and are never changed: the log buffer's space
//! is released when a request is composed, however long its device takes. A thread that issues the
//! request again copies them, under the flight lock; the thread inside the device call only reads
//! them.

use firndb_base::Lsn;
use firndb_base::clock::{self, Moment};
use firndb_base::sync::{Arc, OnceLock};
use firndb_device::{AlignedBuf, Device};

/// The bytes of a write, set when its thread hands them to the device.
#[derive(Default)]
pub(crate) struct Bytes(OnceLock<Begun>);

/// A write that has begun, with its checksums computed.
pub(crate) struct Begun {
    pub at: Moment,
    pub buf: AlignedBuf,
    pub len: usize,
}

impl Bytes {
    /// Hands the write to its thread, with its checksums computed.
    pub fn begin(&self, buf: AlignedBuf, len: usize) -> &Begun {
        self.0.get_or_init(|| Begun { at: clock::now(), buf, len })
    }

    /// Returns the write of which the caller holds the last reference: the device's slot has
    /// dropped its own.
    pub fn ended(bytes: Arc<Bytes>) -> Begun {
        let bytes = Arc::into_inner(bytes).expect("a write's bytes are shared with its device's slot only");
        bytes.0.into_inner().expect("a write that ended has begun")
    }

    /// The write, or `None` while no thread has begun it.
    pub fn begun(&self) -> Option<&Begun> {
        self.0.get()
    }
}

/// A composed write, for the thread that issues it.
pub(crate) struct Job {
    pub device: usize,
    pub target: Arc<dyn Device>,
    pub buf: AlignedBuf,
    pub bytes: Arc<Bytes>,
    pub offset: u64,
    pub len: usize,
    /// Set if the write wraps around the ring's end: the bytes of the buffer from this index on go
    /// to this offset on the device.
    pub rest: Option<(usize, u64)>,
    pub task: Task,
    /// A worker should issue the write, where there is one.
    pub for_worker: bool,
}

/// The purpose of a job.
#[derive(Clone, Copy)]
pub(crate) enum Task {
    /// A new request, by number; or the first copy elsewhere of one that lost its devices.
    Request(u64),
    /// A reissue of a request that is overdue on the device `slow`.
    Again { request: u64, slow: usize },
    /// A seal: all log before this LSN is durable.
    Seal(Lsn),
}

impl Task {
    pub fn request(self) -> Option<u64> {
        match self {
            Task::Request(number) | Task::Again { request: number, .. } => Some(number),
            Task::Seal(_) => None,
        }
    }

    /// The device whose slow write the job hedges.
    pub fn hides(self) -> Option<usize> {
        match self {
            Task::Again { slow, .. } => Some(slow),
            Task::Request(_) | Task::Seal(_) => None,
        }
    }
}
