//! What reading ahead did, by the buffer's counters.

use firndb::Statistics;
use serde::{Deserialize, Serialize};

/// Pages that were read before they were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ahead {
    pub pages: u64,
    /// Those that were evicted before a thread fixed them.
    pub wasted: u64,
}

impl Ahead {
    /// Of a database, since it was opened.
    pub fn of(statistics: &Statistics) -> Ahead {
        Ahead { pages: statistics.buffer.pages_ahead, wasted: statistics.buffer.pages_ahead_wasted }
    }

    pub fn since(&self, earlier: Ahead) -> Ahead {
        Ahead { pages: self.pages - earlier.pages, wasted: self.wasted - earlier.wasted }
    }

    /// Of the pages that were read ahead, those never used. Where none was read none is wasted.
    pub fn wasted_percent(&self) -> f64 {
        100.0 * self.wasted as f64 / self.pages.max(1) as f64
    }
}
