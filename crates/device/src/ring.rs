//! Batches through io_uring.
//!
//! A [`RingPool`] keeps a few rings; a batch borrows one, or creates one while fewer than
//! [`RINGS_MAX`] exist, and otherwise its caller uses positioned I/O. Rings are not bound to
//! threads.
//!
//! Invariants: [`RingPool::run`] returns only when the kernel has released every buffer it was
//! given; a ring lies in the pool only if nothing is queued or in flight on it. If waiting for the
//! kernel fails for good, the process is aborted: returning would free memory that the kernel still
//! writes to.
//!
//! Locks: `RingPool::idle` protects the list of idle rings; it is held for a push or a pop only,
//! and no other lock is taken under it.

use firndb_base::sync::Mutex;
use firndb_base::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use io_uring::{IoUring, Probe, opcode, types};
use rustix::fd::RawFd;
use rustix::io::{Errno, ReadWriteFlags};

/// Transfers in flight on one ring.
const RING_ENTRIES: usize = 64;
/// Rings of one device, which is how many threads can have batches in flight at a time.
const RINGS_MAX: usize = 16;
/// `IORING_ENTER_GETEVENTS`.
const ENTER_GETEVENTS: u32 = 1;

/// One transfer as the kernel sees it.
#[derive(Debug)]
pub(crate) struct RawTransfer {
    /// Byte offset on the device.
    pub(crate) offset: u64,
    /// First byte of the memory.
    pub(crate) memory: *mut u8,
    /// Bytes.
    pub(crate) len: u32,
    /// Direction.
    pub(crate) direction: Direction,
    /// Bytes moved, or why not; [`RawTransfer::NOT_DONE`] if the kernel was never asked.
    pub(crate) result: Result<usize, Errno>,
}

/// Where the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
    WriteDurable,
}

impl RawTransfer {
    /// What `result` starts as: to be done by other means.
    pub(crate) const NOT_DONE: Result<usize, Errno> = Err(Errno::AGAIN);

    fn entry(&self, fd: RawFd) -> io_uring::squeue::Entry {
        let fd = types::Fd(fd);
        match self.direction {
            Direction::Read => opcode::Read::new(fd, self.memory, self.len).offset(self.offset).build(),
            Direction::Write => opcode::Write::new(fd, self.memory, self.len).offset(self.offset).build(),
            Direction::WriteDurable => opcode::Write::new(fd, self.memory, self.len)
                .offset(self.offset)
                .rw_flags(ReadWriteFlags::DSYNC.bits() as _)
                .build(),
        }
    }
}

/// The rings of one device.
#[derive(Default)]
pub(crate) struct RingPool {
    idle: Mutex<Vec<IoUring>>,
    /// Rings that exist, idle or borrowed.
    made: AtomicUsize,
}

impl std::fmt::Debug for RingPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RingPool({} rings)", self.made.load(Ordering::Relaxed))
    }
}

impl RingPool {
    /// Whether this system lets the process use io_uring for reads and writes; asked once.
    pub(crate) fn is_available() -> bool {
        // Two threads may both ask the kernel, and get the same result. No lock: a lock that
        // outlives a simulation would make the next one differ from it.
        static ANSWER: AtomicU8 = AtomicU8::new(UNKNOWN);
        const UNKNOWN: u8 = 0;
        const NO: u8 = 1;
        const YES: u8 = 2;
        if ANSWER.load(Ordering::Relaxed) == UNKNOWN {
            let answer = if Self::ask_the_system() { YES } else { NO };
            ANSWER.store(answer, Ordering::Relaxed);
        }
        ANSWER.load(Ordering::Relaxed) == YES
    }

    fn ask_the_system() -> bool {
        let Ok(ring) = IoUring::new(2) else { return false };
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).is_ok()
            && probe.is_supported(opcode::Read::CODE)
            && probe.is_supported(opcode::Write::CODE)
    }

    /// Performs `transfers` on `fd` side by side. Those that could not be handed to the kernel,
    /// because no ring could be made or a ring broke, keep [`RawTransfer::NOT_DONE`].
    ///
    /// # Safety
    /// Each transfer's memory is valid for `len` bytes (to be written, if it is a read) and not
    /// touched by any other thread until this returns.
    pub(crate) unsafe fn run(&self, fd: RawFd, transfers: &mut [RawTransfer]) {
        let Some(mut ring) = self.take() else { return };
        let batch = Batch { ring: &mut ring, in_flight: 0 };
        // SAFETY: passed on to the caller; `run` returns when nothing is in flight.
        match unsafe { batch.run(fd, transfers) } {
            RingState::Usable => {
                debug_assert!(ring.submission().is_empty(), "nothing is queued in an idle ring");
                let mut idle = self.idle.lock();
                idle.push(ring);
                debug_assert!(idle.len() <= self.made.load(Ordering::Relaxed).min(RINGS_MAX));
            }
            RingState::Broken => {
                drop(ring);
                self.made.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn take(&self) -> Option<IoUring> {
        if let Some(ring) = self.idle.lock().pop() {
            return Some(ring);
        }
        let reserved = self.made.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |made| {
            (made < RINGS_MAX).then_some(made + 1)
        });
        reserved.ok()?;
        // A child process must not share the rings.
        let ring = IoUring::builder().dontfork().build(RING_ENTRIES as u32);
        if ring.is_err() {
            self.made.fetch_sub(1, Ordering::Relaxed);
        }
        ring.ok()
    }
}

/// What became of a ring.
enum RingState {
    /// Nothing queued, nothing in flight.
    Usable,
    /// Nothing in flight, but entries may be queued: never to be used again.
    Broken,
}

/// A batch in flight through one ring.
struct Batch<'a> {
    ring: &'a mut IoUring,
    /// Entries pushed whose completion was not seen yet.
    in_flight: usize,
}

impl Batch<'_> {
    /// # Safety
    /// As [`RingPool::run`].
    unsafe fn run(mut self, fd: RawFd, transfers: &mut [RawTransfer]) -> RingState {
        let mut next = 0;
        loop {
            while next < transfers.len() && self.in_flight < RING_ENTRIES {
                let entry = transfers[next].entry(fd).user_data(next as u64);
                // SAFETY: the memory stays valid until the completion is seen, which `run` waits
                // for.
                if unsafe { self.ring.submission().push(&entry) }.is_err() {
                    break;
                }
                next += 1;
                self.in_flight += 1;
            }
            if self.in_flight == 0 {
                return RingState::Usable;
            }
            // One completion is waited for while transfers are queued; in the end, one sleep for
            // all.
            let wanted = if next < transfers.len() { 1 } else { self.in_flight };
            let entered = self.ring.submit_and_wait(wanted);
            let seen = self.reap(transfers);
            match entered.map_err(|error| Errno::from_io_error(&error)) {
                Ok(_) | Err(Some(Errno::INTR)) => {}
                // Short of memory or of completion entries: continues as long as something
                // completes.
                Err(Some(Errno::AGAIN | Errno::BUSY)) if seen > 0 => {}
                Err(_) => {
                    self.drain(transfers);
                    return RingState::Broken;
                }
            }
        }
    }

    /// Takes note of what is complete; how many.
    fn reap(&mut self, transfers: &mut [RawTransfer]) -> usize {
        let mut seen = 0;
        for completion in self.ring.completion() {
            seen += 1;
            // No panic here: it would free memory under the kernel's hands.
            if let Some(transfer) = transfers.get_mut(completion.user_data() as usize) {
                let result = completion.result();
                transfer.result = usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
            }
        }
        self.in_flight = self.in_flight.saturating_sub(seen);
        seen
    }

    /// Waits for what the kernel has taken, without handing it more.
    fn drain(&mut self, transfers: &mut [RawTransfer]) {
        loop {
            let queued = self.ring.submission().len();
            if self.in_flight <= queued {
                return;
            }
            // SAFETY: waits only; no argument is passed.
            let waited = unsafe { self.ring.submitter().enter::<()>(0, 1, ENTER_GETEVENTS, None) };
            let seen = self.reap(transfers);
            let interrupted =
                matches!(&waited, Err(error) if error.kind() == std::io::ErrorKind::Interrupted);
            if waited.is_err() && !interrupted && seen == 0 {
                std::process::abort();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsRawFd;

    #[test]
    fn batches_larger_than_the_ring_complete_and_the_ring_is_used_again() {
        if !RingPool::is_available() {
            eprintln!("skipped: this system forbids io_uring");
            return;
        }
        let file = tempfile::tempfile().expect("a temporary file can be made");
        let pool = RingPool::default();
        let mut memory = vec![7u8; 300 * 512];
        for direction in [Direction::WriteDurable, Direction::Write, Direction::Read] {
            let mut transfers: Vec<RawTransfer> = memory
                .chunks_mut(512)
                .enumerate()
                .map(|(i, part)| RawTransfer {
                    offset: i as u64 * 512,
                    memory: part.as_mut_ptr(),
                    len: 512,
                    direction,
                    result: RawTransfer::NOT_DONE,
                })
                .collect();
            // SAFETY: `memory` outlives the call and no other thread touches it.
            unsafe { pool.run(file.as_raw_fd(), &mut transfers) };
            assert!(transfers.iter().all(|t| t.result == Ok(512)));
        }
        assert_eq!(pool.made.load(Ordering::Relaxed), 1);
        assert_eq!(pool.idle.lock().len(), 1);
    }

    #[test]
    fn errors_of_the_kernel_belong_to_their_transfer_and_leave_the_ring_usable() {
        if !RingPool::is_available() {
            eprintln!("skipped: this system forbids io_uring");
            return;
        }
        let pool = RingPool::default();
        let mut memory = [0u8; 512];
        let mut transfers = [RawTransfer {
            offset: 0,
            memory: memory.as_mut_ptr(),
            len: 512,
            direction: Direction::Read,
            result: RawTransfer::NOT_DONE,
        }];
        // SAFETY: `memory` outlives the call and no other thread touches it.
        unsafe { pool.run(-1, &mut transfers) };
        assert_eq!(transfers[0].result, Err(Errno::BADF));
        assert_eq!(pool.idle.lock().len(), 1);
    }
}
