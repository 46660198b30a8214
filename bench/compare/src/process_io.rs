//! The bytes that this process read from and wrote to devices, as counted by the kernel: the same
//! for every engine.
//!
//! Writes to the page cache count when a page is made dirty, direct writes when they are made. All
//! threads of the process count, the engine's own included.

use serde_json::{Value, json};

/// Bytes since the process began.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessIo {
    read_bytes: u64,
    write_bytes: u64,
}

impl ProcessIo {
    /// The counts so far; `None` where the system does not report them (other than Linux).
    pub fn now() -> Option<ProcessIo> {
        let text = std::fs::read_to_string("/proc/self/io").ok()?;
        let of = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        Some(ProcessIo { read_bytes: of("read_bytes:")?, write_bytes: of("write_bytes:")? })
    }

    /// Bytes since `earlier`, for each of `commits`.
    pub fn for_each(self, earlier: ProcessIo, commits: u64) -> Value {
        let per = |now: u64, then: u64| (now - then) as f64 / commits.max(1) as f64;
        json!({
            "read_bytes_per_transaction": per(self.read_bytes, earlier.read_bytes),
            "write_bytes_per_transaction": per(self.write_bytes, earlier.write_bytes),
        })
    }
}

/// `None` as JSON's null.
pub fn json_for_each(before: Option<ProcessIo>, after: Option<ProcessIo>, commits: u64) -> Value {
    match (before, after) {
        (Some(before), Some(after)) => after.for_each(before, commits),
        _ => json!({"read_bytes_per_transaction": null, "write_bytes_per_transaction": null}),
    }
}
