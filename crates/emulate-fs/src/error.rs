//! Why an emulation cannot be mounted.

use std::io;
use std::path::PathBuf;

/// Why an emulation cannot be mounted, or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmulateError {
    /// The mount point cannot be used.
    #[error("the mount point {} cannot be used: {reason}", path.display())]
    MountPoint {
        /// The path.
        path: PathBuf,
        /// The cause, and what to do.
        reason: String,
    },
    /// The kernel offers no FUSE here.
    #[error("FUSE is not available: {reason}")]
    NoFuse {
        /// The cause, and what to do.
        reason: String,
    },
    /// Mounting was refused.
    #[error("mounting on {} was refused: {source}; mounting needs root, or the program fusermount3 (package fuse3)", path.display())]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The backing directory cannot be used.
    #[error("the backing directory {} cannot be used: {source}", path.display())]
    Backing {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another emulation uses the backing directory.
    #[error("the backing directory {} is in use by another emulation; end that one, or name another directory", path.display())]
    BackingInUse {
        /// The path.
        path: PathBuf,
    },
    /// The size is not possible.
    #[error("{0}")]
    Size(String),
    /// The power cut could not be completed: the backing directory holds a mixture.
    #[error("the power cut could not be completed ({source}); the backing directory is no longer of use")]
    Cut {
        /// The system's error.
        source: io::Error,
    },
    /// The session with the kernel failed.
    #[error("the session with the kernel failed: {source}")]
    Session {
        /// The system's error.
        source: io::Error,
    },
}
