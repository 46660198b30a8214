//! From the kernel's error numbers to what a caller can do.

use crate::error::{DeviceError, DeviceErrorKind};
use rustix::io::Errno;
use std::fmt::Display;

/// The error of an operation on a path: opening, creating, locking, removing.
pub(super) fn path_error(path: &dyn Display, operation: &str, errno: Errno) -> DeviceError {
    let (kind, advice) = match errno {
        Errno::NOSPC | Errno::DQUOT => (DeviceErrorKind::NoSpace, "free space on its file system"),
        Errno::NOENT => (DeviceErrorKind::Unusable, "check the path, or create it first"),
        Errno::EXIST => (DeviceErrorKind::Unusable, "open it instead of creating it, or choose another path"),
        Errno::ACCESS | Errno::PERM => (DeviceErrorKind::Unusable, "give this user the permission to use it"),
        Errno::ROFS => (
            DeviceErrorKind::Unusable,
            "its file system is mounted read-only: mount it writable or copy it elsewhere to write; to look, open it \
             read-only",
        ),
        Errno::BUSY => (DeviceErrorKind::Locked, "unmount it, or stop what else uses it"),
        Errno::MFILE | Errno::NFILE => {
            (DeviceErrorKind::Unusable, "raise the limit of open files (ulimit -n)")
        }
        Errno::ISDIR
        | Errno::NOTDIR
        | Errno::LOOP
        | Errno::NAMETOOLONG
        | Errno::NXIO
        | Errno::NODEV
        | Errno::TXTBSY
        | Errno::INVAL => (DeviceErrorKind::Unusable, "name a regular file or a block device"),
        _ => (DeviceErrorKind::Failed, "check the device and the kernel's log"),
    };
    DeviceError::new(kind, format!("{path}: cannot {operation}: {errno}; {advice}"))
}

/// The error of a transfer or a change of length on an open device. `place` says where on the
/// device.
pub(super) fn io_error(name: &str, operation: &str, place: &dyn Display, errno: Errno) -> DeviceError {
    let (kind, advice) = match errno {
        Errno::NOSPC => {
            (DeviceErrorKind::NoSpace, "free space on its file system, or move it to a larger one")
        }
        Errno::DQUOT => (DeviceErrorKind::NoSpace, "raise the user's disk quota"),
        Errno::FBIG => {
            (DeviceErrorKind::NoSpace, "raise the limit of file size (ulimit -f), or use another file system")
        }
        Errno::ROFS => (
            DeviceErrorKind::Failed,
            "the file system became read-only, often after an error: check the kernel's log",
        ),
        Errno::IO | Errno::NODATA | Errno::ILSEQ => (
            DeviceErrorKind::Failed,
            "the medium may be broken: check the kernel's log and replace the device",
        ),
        Errno::NODEV | Errno::NXIO | Errno::STALE => {
            (DeviceErrorKind::Failed, "the device is gone: attach it again and reopen the database")
        }
        _ => (DeviceErrorKind::Failed, "check the device and the kernel's log"),
    };
    DeviceError::new(kind, format!("{name}: {operation} failed{place}: {errno}; {advice}"))
}

/// " of 4096 bytes at offset 8192", for messages.
pub(super) struct At {
    pub(super) offset: u64,
    pub(super) len: usize,
}

impl Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, " for {} bytes at offset {}", self.len, self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_device_place_cause_and_advice() {
        let error = io_error("/data/log0", "writing", &At { offset: 8192, len: 512 }, Errno::NOSPC);
        assert_eq!(error.kind, DeviceErrorKind::NoSpace);
        for part in ["/data/log0", "writing", "512 bytes at offset 8192", "free space"] {
            assert!(error.message.contains(part), "{part:?} is missing in {:?}", error.message);
        }
        assert_eq!(io_error("x", "reading", &"", Errno::IO).kind, DeviceErrorKind::Failed);
        assert_eq!(path_error(&"x", "open it", Errno::NOENT).kind, DeviceErrorKind::Unusable);
        assert_eq!(path_error(&"x", "create it", Errno::DQUOT).kind, DeviceErrorKind::NoSpace);
    }
}
