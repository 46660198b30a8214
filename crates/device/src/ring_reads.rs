//! Reads through an io_uring of one thread's own, taken as they complete.
//!
//! Invariants: the memory of a read stays in its slot from the moment at which it is queued until
//! its completion was seen; dropping waits for what the kernel has taken. If that fails for good,
//! the process is aborted: the kernel would write to memory that is freed.

use crate::in_flight::OwnedRead;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use rustix::fd::RawFd;
use rustix::io::Errno;
use std::time::Duration;

/// Reads in flight at most.
const SLOTS: usize = 128;
/// Queued reads that wait until the thread has taken what is complete. More are handed to the
/// kernel first.
const QUEUED_MAX: usize = 8;
/// `IORING_ENTER_GETEVENTS`.
const ENTER_GETEVENTS: u32 = 1;

/// A read that is over, and the bytes moved or why not.
pub(crate) type Over = (OwnedRead, Result<usize, Errno>);

/// The ring and the reads in it.
pub(crate) struct RingReads {
    ring: IoUring,
    /// By the completions' numbers.
    slots: Vec<Option<OwnedRead>>,
    free: Vec<usize>,
    /// Nothing is handed to it any more.
    broken: bool,
}

impl std::fmt::Debug for RingReads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RingReads({} under way)", self.count())
    }
}

impl RingReads {
    /// `None` if the system has no more rings, or its rings cannot wait for a limited time.
    pub(crate) fn new() -> Option<RingReads> {
        // A child process must not share the ring.
        let ring = IoUring::builder().dontfork().build(SLOTS as u32).ok()?;
        if !ring.params().is_feature_ext_arg() {
            return None;
        }
        let slots = std::iter::repeat_with(|| None).take(SLOTS).collect();
        Some(RingReads { ring, slots, free: (0..SLOTS).rev().collect(), broken: false })
    }

    /// Reads under way.
    pub(crate) fn count(&self) -> usize {
        SLOTS - self.free.len()
    }

    /// Queues a read, which goes to the kernel with the next [`RingReads::wait`]; gives it back if
    /// there are too many.
    pub(crate) fn push(&mut self, fd: RawFd, mut read: OwnedRead) -> Result<(), OwnedRead> {
        let len = u32::try_from(read.len).ok().filter(|_| read.len <= read.buf.len() && !self.broken);
        let (Some(len), Some(slot)) = (len, self.free.pop()) else { return Err(read) };
        let entry = opcode::Read::new(Fd(fd), read.buf.as_mut_ptr(), len)
            .offset(read.offset)
            .build()
            .user_data(slot as u64);
        // SAFETY: the buffer has `len` bytes. It is owned by the slot, whose memory does not move
        // with it, until `reap` has seen the completion, or `drop` has waited for it.
        match unsafe { self.ring.submission().push(&entry) } {
            Ok(()) => {
                self.slots[slot] = Some(read);
                Ok(())
            }
            Err(_) => {
                self.free.push(slot);
                Err(read)
            }
        }
    }

    /// Moves what is complete to `over`; if nothing is, hands what is queued to the kernel and
    /// waits for one completion, for at most `time`. After an error of the ring all that was under
    /// way is over, as far as it was not done with [`Errno::AGAIN`].
    pub(crate) fn wait(&mut self, time: Option<Duration>, over: &mut Vec<Over>) {
        self.reap(over);
        let queued = self.ring.submission().len();
        // What has no time to wait, and nothing to hand over, need not enter the kernel.
        let enters = queued > 0 || time.is_none_or(|time| !time.is_zero());
        if over.is_empty() && self.count() > 0 && enters {
            let entered = match time {
                None => self.ring.submit_and_wait(1),
                Some(time) => {
                    let time = Timespec::from(time);
                    self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
                }
            };
            self.reap(over);
            self.check(entered, over);
        } else if queued >= QUEUED_MAX {
            let entered = self.ring.submit();
            self.check(entered, over);
        }
    }

    fn check(&mut self, entered: std::io::Result<usize>, over: &mut Vec<Over>) {
        match entered.map_err(|error| Errno::from_io_error(&error)) {
            Ok(_) | Err(Some(Errno::INTR | Errno::TIME)) => {}
            // Short of memory or of completion entries: continues as long as something completes.
            Err(Some(Errno::AGAIN | Errno::BUSY)) if !over.is_empty() => {}
            Err(_) => {
                self.broken = true;
                self.drain(over);
                // The kernel was never handed these.
                let left = self.slots.iter_mut().filter_map(Option::take);
                over.extend(left.map(|read| (read, Err(Errno::AGAIN))));
                self.free = (0..SLOTS).rev().collect();
            }
        }
    }

    fn reap(&mut self, over: &mut Vec<Over>) {
        for completion in self.ring.completion() {
            let slot = completion.user_data() as usize;
            // No panic here: it would free memory under the kernel's hands.
            let Some(read) = self.slots.get_mut(slot).and_then(Option::take) else { continue };
            self.free.push(slot);
            let result = completion.result();
            over.push((read, usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result))));
        }
    }

    /// Waits for what the kernel has taken, without handing it more.
    fn drain(&mut self, over: &mut Vec<Over>) {
        loop {
            let before = over.len();
            self.reap(over);
            if self.count() <= self.ring.submission().len() {
                return;
            }
            if over.len() > before {
                continue;
            }
            // SAFETY: waits only; no argument is passed.
            let waited = unsafe { self.ring.submitter().enter::<()>(0, 1, ENTER_GETEVENTS, None) };
            let interrupted =
                matches!(&waited, Err(error) if error.kind() == std::io::ErrorKind::Interrupted);
            if waited.is_err() && !interrupted {
                self.reap(over);
                if over.len() == before {
                    std::process::abort();
                }
            }
        }
    }
}

impl Drop for RingReads {
    fn drop(&mut self) {
        // After an error, all has been waited for.
        if !self.broken {
            self.drain(&mut Vec::new());
        }
    }
}
