//! What measurements found, as it is kept in files of results.

use firndb_log::LogStatistics;
use firndb_workloads::Latency;
use serde::{Deserialize, Serialize};

/// Of the log's own counters.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LogFound {
    pub requests: u64,
    pub written_bytes: u64,
    /// Requests of 2^i blocks of 512 B and up to twice as many less one, by i; without the zeros at
    /// the end.
    pub requests_by_size: Vec<u64>,
    /// Outliers seen, and writes issued again for them.
    pub detected: u64,
    pub reissued: u64,
    pub reissued_bytes: u64,
}

impl LogFound {
    pub fn of(log: &LogStatistics) -> LogFound {
        let mut requests_by_size = log.requests_by_size.to_vec();
        while requests_by_size.last() == Some(&0) {
            requests_by_size.pop();
        }
        LogFound {
            requests: log.requests,
            written_bytes: log.written_bytes,
            requests_by_size,
            detected: log.hiding.detected,
            reissued: log.hiding.reissued,
            reissued_bytes: log.hiding.reissued_bytes,
        }
    }

    /// Bytes written again, as a share of all others.
    pub fn extra_bytes(&self) -> f64 {
        self.reissued_bytes as f64 / (self.written_bytes - self.reissued_bytes).max(1) as f64
    }
}

/// Of a TPC-C run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TpccFound {
    /// New-Orders a minute (the paper's NOTPM).
    pub tpm: f64,
    pub per_second: f64,
    pub new_order: Latency,
    pub log: LogFound,
    pub log_bytes_per_commit: f64,
    /// Writes of the archive that acknowledged commits which the log's devices did not have yet.
    pub early_writes: u64,
    /// Every scheduling point of the run.
    pub trace_hash: String,
}

/// Of the log alone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StreamFound {
    pub per_second: f64,
    /// Of what was appended, in 10⁶ bytes a second.
    pub mb_per_second: f64,
    pub latency: Latency,
    pub log: LogFound,
}
