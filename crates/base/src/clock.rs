//! The engine's only clock. In a simulation ([`crate::sim`]) it is virtual.

use crate::sim;
use std::panic::Location;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A moment of a monotonic clock, in nanoseconds: of the machine's, since this process first asked,
/// or of a simulation's, since it began. Moments of different clocks are not to be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

/// What the machine's clock showed when it was first asked.
static ORIGIN: OnceLock<Instant> = OnceLock::new();

fn origin() -> Instant {
    *ORIGIN.get_or_init(Instant::now)
}

fn nanos(time: Duration) -> Option<u64> {
    u64::try_from(time.as_nanos()).ok()
}

#[must_use]
#[track_caller]
pub fn now() -> Moment {
    if sim::simulating() {
        let at = Location::caller();
        if let Some(now) = sim::current(|context| context.now(at)) {
            return Moment(now);
        }
    }
    // 584 years fit.
    Moment(origin().elapsed().as_nanos() as u64)
}

/// Blocks this thread for `time`.
#[track_caller]
pub fn sleep(time: Duration) {
    if sim::simulating() {
        let at = Location::caller();
        let ns = nanos(time).unwrap_or(u64::MAX);
        let slept = sim::current(|context| context.sleep_until(context.now(at).saturating_add(ns), at));
        if slept.is_some() {
            return;
        }
    }
    std::thread::sleep(time);
}

/// Blocks this thread until the clock shows `moment`; not at all if it has passed. The system may
/// wake the thread some tens of microseconds late; a simulation is exact.
#[track_caller]
pub fn sleep_until(moment: Moment) {
    if sim::simulating() {
        let at = Location::caller();
        if sim::current(|context| context.sleep_until(moment.0, at)).is_some() {
            return;
        }
    }
    loop {
        let left = moment.since(now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left);
    }
}

/// Microseconds since the Unix epoch, for people to read; never for ordering.
#[must_use]
pub fn unix_time_us() -> u64 {
    sim::unix_time_us().unwrap_or_else(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
    })
}

impl Moment {
    /// The clock's first moment.
    pub const ZERO: Moment = Moment(0);

    /// The moment `nanos` after the clock's first.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Moment {
        Moment(nanos)
    }
    /// Nanoseconds since the clock's first moment.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// Time passed since this moment.
    #[must_use]
    #[track_caller]
    pub fn elapsed(self) -> Duration {
        now().since(self)
    }
    /// Time from `earlier` to this moment (zero if `earlier` is later).
    #[must_use]
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
    /// The moment `time` later; `None` past the clock's range, which callers read as "never".
    #[must_use]
    pub fn after(self, time: Duration) -> Option<Moment> {
        self.0.checked_add(nanos(time)?).map(Moment)
    }
    /// The machine's own value, for condition variables; `None` if it has none so late.
    pub(crate) fn instant(self) -> Option<Instant> {
        origin().checked_add(Duration::from_nanos(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_add_up_and_saturate() {
        let start = now();
        sleep_until(start.after(Duration::from_millis(2)).expect("soon"));
        assert!(start.elapsed() >= Duration::from_millis(2));
        assert_eq!(start.since(now()), Duration::ZERO);
        assert_eq!(Moment::from_nanos(5).after(Duration::from_nanos(7)), Some(Moment::from_nanos(12)));
        assert_eq!(start.after(Duration::MAX), None);
        let before = now();
        sleep_until(start);
        assert!(before.elapsed() < Duration::from_secs(5), "the past is not waited for");
    }
}
