//! What reading ahead did, by the buffer's counters.

use firndb::Statistics;
use serde::{Deserialize, Serialize};

/// Pages that were read before they were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ahead {
    pub pages: u64,
    /// Those that no thread has fixed: evicted, or in DRAM still.
    pub wasted: u64,
}

impl Ahead {
    /// Of a database, since it was opened.
    pub fn of(statistics: &Statistics) -> Ahead {
        let (pages, used) = (statistics.buffer.pages_ahead, statistics.buffer.pages_ahead_used);
        Ahead { pages, wasted: pages.saturating_sub(used) }
    }

    /// Since `earlier`. Pages that were read ahead before and fixed since make it less.
    pub fn since(&self, earlier: Ahead) -> Ahead {
        let wasted = self.wasted.saturating_sub(earlier.wasted);
        Ahead { pages: self.pages - earlier.pages, wasted }
    }

    /// Of the pages that were read ahead, those never used. Where none was read none is wasted.
    pub fn wasted_percent(&self) -> f64 {
        100.0 * self.wasted as f64 / self.pages.max(1) as f64
    }
}
