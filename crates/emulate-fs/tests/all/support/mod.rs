//! Mounts for tests, where mounting works.
use firndb_emulate_fs::{EmulateError, FixedTiming, MountOptions, Mounted, Timing};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A directory with a mount point and a backing directory.
pub struct Place {
    pub dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Place {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("mount")).expect("a mount point");
        Place { dir }
    }
    pub fn mount_point(&self) -> PathBuf {
        self.dir.path().join("mount")
    }
    pub fn backing(&self) -> PathBuf {
        self.dir.path().join("backing")
    }
    pub fn options(&self) -> MountOptions {
        MountOptions {
            mount_point: self.mount_point(),
            backing: Some(self.backing()),
            size: 256 << 20,
            direct: false,
            allow_other: false,
            faults: Vec::new(),
            seed: 1,
            sector: 512,
        }
    }
    /// A device that costs next to nothing; `None`, with the reason printed, where mounting doesn't
    /// work.
    pub fn mount(&self, change: impl FnOnce(&mut MountOptions)) -> Option<Mounted> {
        self.mount_as(FixedTiming::default(), change)
    }
    pub fn mount_as(
        &self,
        timing: impl Timing + 'static,
        change: impl FnOnce(&mut MountOptions),
    ) -> Option<Mounted> {
        let mut options = self.options();
        change(&mut options);
        mounted_or_skipped(Mounted::mount(&options, Box::new(timing)))
    }
}

/// Skips where FUSE is missing; any other failure fails the test.
pub fn mounted_or_skipped(mounted: Result<Mounted, EmulateError>) -> Option<Mounted> {
    match mounted {
        Ok(mounted) => Some(mounted),
        Err(error @ (EmulateError::NoFuse { .. } | EmulateError::Refused { .. })) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Ends a mount that no program uses any more.
pub fn end(mounted: Mounted) -> firndb_emulate_fs::Ending {
    let ending = mounted.end().expect("an orderly end");
    assert!(!ending.was_busy, "every file was closed");
    ending
}

/// Each file's path and bytes, each directory's path.
pub fn listing(root: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(dir).expect("a directory") {
            let entry = entry.expect("an entry");
            let path = entry.path();
            let name = path.strip_prefix(root).expect("below").to_owned();
            if name == Path::new(".firn-emulate") {
                continue;
            }
            if entry.file_type().expect("a type").is_dir() {
                found.push((name, None));
                waiting.push(path);
            } else {
                found.push((name, Some(std::fs::read(&path).expect("readable"))));
            }
        }
    }
    found.sort();
    found
}

pub fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}
