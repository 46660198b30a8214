//! The options that the in-flight table depends on.

use crate::options::LogOptions;
use std::time::Duration;

/// Options that the table depends on; fixed while the log is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The log has workers.
    pub workers: bool,
    /// Log is left to accumulate where many threads wait (`batching.rs`).
    pub batches: bool,
    /// Copies that each request should have. A request goes to this number of devices, or to all in
    /// use if they are fewer.
    pub copies: usize,
    /// A device whose last write took at least this long is slow.
    pub direct_below: Duration,
}

impl Rules {
    pub fn of(options: &LogOptions) -> Rules {
        Rules {
            workers: options.workers,
            batches: options.composes_as_array(),
            copies: options.copies,
            direct_below: options.outliers.direct_below,
        }
    }
}
