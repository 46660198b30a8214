//! A cell that is written once.

use super::lock::Mutex;
use std::fmt;

/// A cell that is written once and read by many. A thread that finds it being initialised waits on
/// a [`Mutex`], so that an initialiser may block in a simulation.
pub struct OnceLock<T> {
    cell: std::sync::OnceLock<T>,
    /// Held while the cell is being initialised.
    filling: Mutex<()>,
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T> OnceLock<T> {
    #[must_use]
    pub const fn new() -> OnceLock<T> {
        OnceLock { cell: std::sync::OnceLock::new(), filling: Mutex::new(()) }
    }

    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.cell.get()
    }

    pub fn into_inner(self) -> Option<T> {
        self.cell.into_inner()
    }

    /// Fills it; returns `value` if it is full.
    #[track_caller]
    pub fn set(&self, value: T) -> Result<(), T> {
        let _filling = self.filling.lock();
        self.cell.set(value)
    }

    /// What is in it, after filling it with what `make` makes if it is empty. `make` must not fill
    /// it itself.
    #[track_caller]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.cell.get() {
            return value;
        }
        let _filling = self.filling.lock();
        // `make` runs under the lock, so no other thread is in here.
        self.cell.get_or_init(make)
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cell.fmt(f)
    }
}
