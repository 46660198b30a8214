//! One memory control group for all engines: heap, caches and the system's page cache of their
//! files together.
//!
//! Children join it before they open anything, and loading happens in it too: pages cached outside
//! would be free memory for the run that reads them.

use firndb_workloads::{EngineError, Outcome};
use std::path::{Path, PathBuf};

/// Where version 1 and version 2 of control groups are usually found.
const VERSION_1: &str = "/sys/fs/cgroup/memory";
const VERSION_2: &str = "/sys/fs/cgroup";

/// A control group of this process's own; removed when dropped.
#[derive(Debug)]
pub struct MemoryLimit {
    dir: PathBuf,
}

impl MemoryLimit {
    /// Makes a group that may hold `bytes`.
    pub fn new(bytes: u64) -> Outcome<MemoryLimit> {
        let version_1 = Path::new(VERSION_1).join("memory.limit_in_bytes").exists();
        let (root, file) =
            if version_1 { (VERSION_1, "memory.limit_in_bytes") } else { (VERSION_2, "memory.max") };
        let dir = Path::new(root).join(format!("firn-compare-{}", std::process::id()));
        let refused = |error: std::io::Error| {
            EngineError::Fatal(format!(
                "cannot limit memory with the control group {}: {error}. Run as root, or without --memory-limit-mib \
                 inside `systemd-run --scope -p MemoryMax=...`",
                dir.display()
            ))
        };
        std::fs::create_dir(&dir).map_err(refused)?;
        let limit = MemoryLimit { dir: dir.clone() };
        std::fs::write(dir.join(file), bytes.to_string()).map_err(refused)?;
        // The limit is on DRAM: pages that are swapped out would not be measured.
        let _ = std::fs::write(dir.join("memory.swappiness"), "0");
        let _ = std::fs::write(dir.join("memory.swap.max"), "0");
        Ok(limit)
    }

    /// The group's directory, which a child needs to join it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // Fails while a process is in the group, which then remains.
        let _ = std::fs::remove_dir(&self.dir);
    }
}

/// Moves this process into a group.
pub fn join(dir: &Path) -> Outcome<()> {
    std::fs::write(dir.join("cgroup.procs"), std::process::id().to_string())
        .map_err(|error| EngineError::Fatal(format!("{}: cannot join it: {error}", dir.display())))
}
