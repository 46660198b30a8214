//! Log that no thread waits for gathers: it is flushed when there is enough of it, or at the next
//! turn of the worker that wrote the last of it.
//!
//! A commit that nobody waits for states up to where it wants the log flushed, and compares that
//! with `quiet_until`: two atomics, no lock, no thread woken. Only the first one after a pause, and
//! the one that makes it [`GATHER_BYTES`], lock the in-flight table and have a worker write. That
//! worker looks again [`GATHER_FOR`] after it began to write, and then each time it finds more. So
//! what is asked for is durable one turn and one write later, and at once where commits are rare.
//!
//! A thread that waits for its own commit takes what has gathered along with it.

use firndb_base::Lsn;
use firndb_base::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// So much log is flushed without waiting for more.
pub(crate) const GATHER_BYTES: u64 = 64 << 10;
/// For so long log gathers after the last of it was composed into a request.
pub(crate) const GATHER_FOR: Duration = Duration::from_millis(1);

/// Shared by committers, which hold no lock, and the in-flight table. Each side writes one of the
/// two and then reads the other, so that one of them notices.
#[derive(Debug)]
pub(crate) struct Gathering {
    /// Up to here a flush was asked for.
    target: AtomicU64,
    /// Who asks for a flush past this has a worker woken.
    quiet_until: AtomicU64,
}

impl Gathering {
    pub fn new(start: Lsn) -> Gathering {
        Gathering { target: AtomicU64::new(start.0), quiet_until: AtomicU64::new(start.0) }
    }

    /// Asks for a flush to `lsn`. Returns whether the caller has to tell the in-flight table.
    #[must_use]
    pub fn ask(&self, lsn: Lsn) -> bool {
        self.target.fetch_max(lsn.0, Ordering::SeqCst);
        lsn.0 > self.quiet_until.load(Ordering::SeqCst)
    }

    /// Lets log gather up to `lsn`, for the in-flight table. Returns up to where a flush was asked
    /// for: past `lsn`, nobody may tell the table of it.
    #[must_use]
    pub fn keep_quiet_until(&self, lsn: Lsn) -> Lsn {
        self.quiet_until.store(lsn.0, Ordering::SeqCst);
        Lsn(self.target.load(Ordering::SeqCst))
    }
}
