//! The engine's only clock.

use std::time::{Duration, Instant};

/// A moment of the engine's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Instant);

/// Now.
#[must_use]
pub fn now() -> Moment {
    Moment(Instant::now())
}

/// Blocks this thread for `time`.
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// Microseconds since the Unix epoch, for people to read; never for ordering.
#[must_use]
pub fn unix_time_us() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
}

impl Moment {
    /// Time passed since this moment.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
    /// Time from `earlier` to this moment (zero if `earlier` is later).
    #[must_use]
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }
    /// The moment `time` later; `None` past the clock's range, which callers read as "never".
    #[must_use]
    pub fn after(self, time: Duration) -> Option<Moment> {
        self.0.checked_add(time).map(Moment)
    }
    /// The clock's own value, for condition variables.
    pub(crate) fn instant(self) -> Instant {
        self.0
    }
}
