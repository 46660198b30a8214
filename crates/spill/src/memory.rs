//! Memory of a query or an index build: counted where it is kept, refused past the limit.
//!
//! Invariant: what is used is the sum of the live reservations, and never more than the limit.

use crate::error::{SpillError, SpillErrorKind};
use firndb_base::sync::Arc;
use firndb_base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Memory that the operators of one query share, or the steps of other work.
#[derive(Debug)]
pub struct Memory {
    /// What uses it, for people.
    user: &'static str,
    limit: usize,
    used: AtomicUsize,
    peak: AtomicUsize,
    /// Bytes written to the spill device for want of it.
    spilled: AtomicU64,
}

impl Memory {
    /// At most `limit` bytes, for a `user`: a query, say.
    #[must_use]
    pub fn new(user: &'static str, limit: usize) -> Arc<Memory> {
        Arc::new(Memory {
            user,
            limit,
            used: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            spilled: AtomicU64::new(0),
        })
    }

    /// The most that was used at once, in bytes.
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// Bytes written to the spill device so far.
    pub fn spilled(&self) -> u64 {
        self.spilled.load(Ordering::Relaxed)
    }
    /// Counts bytes written to the spill device.
    pub fn note_spilled(&self, bytes: usize) {
        self.spilled.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes that are used.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> Result<(), SpillError> {
        // One thread at a time uses it, so the sum cannot grow in between.
        let used = self.used.load(Ordering::Relaxed).saturating_add(bytes);
        if used > self.limit {
            return Err(SpillError::new(
                SpillErrorKind::OutOfMemory,
                format!(
                    "the {} needs more than the {} bytes of memory that it may have: raise its memory limit",
                    self.user, self.limit
                ),
            ));
        }
        self.used.store(used, Ordering::Relaxed);
        self.peak.fetch_max(used, Ordering::Relaxed);
        Ok(())
    }
}

/// A part of it that is kept. Dropping it gives it back.
#[derive(Debug)]
pub struct Reservation {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Reservation {
    /// Of nothing yet.
    pub fn none(memory: &Arc<Memory>) -> Reservation {
        Reservation { memory: memory.clone(), bytes: 0 }
    }

    /// Of this many bytes.
    pub fn of(memory: &Arc<Memory>, bytes: usize) -> Result<Reservation, SpillError> {
        let mut reservation = Reservation::none(memory);
        reservation.set(bytes)?;
        Ok(reservation)
    }

    /// Bytes that it keeps.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    /// Keeps this many bytes from now on. After an error it keeps what it had.
    pub fn set(&mut self, bytes: usize) -> Result<(), SpillError> {
        if bytes > self.bytes {
            self.memory.take(bytes - self.bytes)?;
        } else {
            self.memory.used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Makes space for `more` elements behind those of `vec`, whose memory this is. Old and new
    /// memory are counted together, since growing copies.
    pub fn grow<T>(&mut self, vec: &mut Vec<T>, more: usize) -> Result<(), SpillError> {
        let needed = vec.len() + more;
        if needed <= vec.capacity() {
            return Ok(());
        }
        let capacity = needed.max(vec.capacity() * 2);
        let before = vec.capacity() * size_of::<T>();
        self.set(self.bytes + capacity * size_of::<T>())?;
        vec.reserve_exact(capacity - vec.len());
        self.set(self.bytes - before)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_the_sum_of_what_lives_and_never_past_the_limit() {
        let memory = Memory::new("query", 1000);
        let mut first = Reservation::of(&memory, 600).unwrap();
        let refused = Reservation::of(&memory, 401).unwrap_err();
        assert_eq!(refused.kind, SpillErrorKind::OutOfMemory);
        assert!(refused.message.contains("1000 bytes") && refused.message.contains("raise"), "{refused}");
        assert_eq!((memory.used(), memory.peak()), (600, 600));
        first.set(100).unwrap();
        let second = Reservation::of(&memory, 900).unwrap();
        assert_eq!((memory.used(), memory.peak()), (1000, 1000));
        assert!(first.set(101).is_err() && first.bytes() == 100);
        drop((first, second));
        assert_eq!(memory.used(), 0);
        let (mut vec, mut counted) = (Vec::<u64>::new(), Reservation::none(&memory));
        while counted.grow(&mut vec, 1).is_ok() {
            vec.push(0);
            assert!(counted.bytes() == vec.capacity() * 8);
        }
        assert!(vec.len() >= 32, "{} of 125 fit even when it doubles by copying", vec.len());
    }
}
