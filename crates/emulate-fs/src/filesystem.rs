//! FUSE requests to operations on the [`Emulation`].
//!
//! Locks on files are left to the kernel. Links, special files and extended attributes are refused.

use crate::emulation::Emulation;
use crate::journal::Inode;
use crate::store::WriteMode;
use crate::tree::{Tree, errno};
use firndb_base::sync::atomic::{AtomicU64, Ordering};
use firndb_base::sync::{Arc, Mutex};
use fuser::{
    AccessFlags, BsdFileFlags, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, SystemTime};

/// How long the kernel may keep names and attributes: all changes go through it.
const KEEP: Duration = Duration::from_secs(60);

/// The longest read or write taken at once.
const REQUEST_BYTES: u32 = 1 << 20;

struct Entry {
    inode: Inode,
    kind: FileType,
    name: OsString,
}

/// The file system, as the kernel sees it.
pub struct EmulatedFiles {
    emulation: Arc<Emulation>,
    direct: bool,
    handles: AtomicU64,
    /// The entries of open directories at the time they were opened.
    directories: Mutex<BTreeMap<u64, Vec<Entry>>>,
}

fn code(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.raw_os_error())
}

impl EmulatedFiles {
    /// With `direct`, every read and write bypasses the kernel's page cache.
    #[must_use]
    pub fn new(emulation: Arc<Emulation>, direct: bool) -> EmulatedFiles {
        EmulatedFiles {
            emulation,
            direct,
            handles: AtomicU64::new(1),
            directories: Mutex::new(BTreeMap::new()),
        }
    }

    fn handle_flags(&self, flags: i32) -> FopenFlags {
        if self.direct || flags & libc::O_DIRECT != 0 {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        } else {
            FopenFlags::FOPEN_KEEP_CACHE
        }
    }

    fn attributes(&self, inode: Inode) -> Result<FileAttr, Errno> {
        self.emulation.store.names(|tree| attributes(tree, inode))
    }

    fn entry(&self, made: Result<Inode, Errno>, reply: ReplyEntry) {
        match made.and_then(|inode| self.attributes(inode)) {
            Ok(attributes) => reply.entry(&KEEP, &attributes, Generation(0)),
            Err(error) => reply.error(code(error)),
        }
    }
}

fn send(attributes: Result<FileAttr, Errno>, reply: ReplyAttr) {
    match attributes {
        Ok(attributes) => reply.attr(&KEEP, &attributes),
        Err(error) => reply.error(code(error)),
    }
}

fn attributes(tree: &Tree, inode: Inode) -> Result<FileAttr, Errno> {
    let mut occupied = None;
    let metadata = match tree.file(inode) {
        Ok(shared) => {
            let content = shared.lock();
            occupied = Some((content.size, content.extents.occupied()));
            content.handle.as_ref().map(std::fs::File::metadata)
        }
        Err(Errno::ISDIR) => None,
        Err(error) => return Err(error),
    };
    let metadata = match metadata {
        Some(metadata) => metadata,
        None => std::fs::symlink_metadata(tree.backing_path(inode)),
    }
    .map_err(|error| errno(&error))?;
    let time = |time: std::io::Result<SystemTime>| time.unwrap_or(SystemTime::UNIX_EPOCH);
    let changed = SystemTime::UNIX_EPOCH
        + Duration::new(
            u64::try_from(metadata.ctime()).unwrap_or(0),
            u32::try_from(metadata.ctime_nsec()).unwrap_or(0),
        );
    let (size, bytes) = occupied.unwrap_or((4096, 0));
    Ok(FileAttr {
        ino: INodeNo(inode.0),
        size,
        blocks: bytes / 512,
        atime: time(metadata.accessed()),
        mtime: time(metadata.modified()),
        ctime: changed,
        crtime: changed,
        kind: if occupied.is_some() { FileType::RegularFile } else { FileType::Directory },
        perm: (metadata.permissions().mode() & 0o7777) as u16,
        nlink: match (tree.path(inode), occupied) {
            (None, _) => 0,
            (_, Some(_)) => 1,
            _ => 2,
        },
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    })
}

/// Sets times as utimensat(2) takes them.
fn timestamps(access: Option<TimeOrNow>, modification: Option<TimeOrNow>) -> rustix::fs::Timestamps {
    let time = |time: Option<TimeOrNow>| {
        let (seconds, nanos) = match time {
            None => (0, rustix::fs::UTIME_OMIT),
            Some(TimeOrNow::Now) => (0, rustix::fs::UTIME_NOW),
            Some(TimeOrNow::SpecificTime(time)) => match time.duration_since(SystemTime::UNIX_EPOCH) {
                Ok(since) => (since.as_secs().cast_signed(), i64::from(since.subsec_nanos()) as _),
                Err(_) => (0, 0),
            },
        };
        rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanos }
    };
    rustix::fs::Timestamps { last_access: time(access), last_modification: time(modification) }
}

impl Filesystem for EmulatedFiles {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Each is an improvement that older kernels lack.
        let _ = config.set_max_write(REQUEST_BYTES);
        let _ = config.set_max_background(64);
        for wanted in
            [InitFlags::FUSE_PARALLEL_DIROPS, InitFlags::FUSE_ASYNC_DIO, InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP]
        {
            let _ = config.add_capabilities(wanted);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(self.emulation.store.names(|tree| tree.lookup(Inode(parent.0), name)), reply);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        send(self.attributes(Inode(inode.0)), reply);
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        access: Option<TimeOrNow>,
        modification: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let inode = Inode(inode.0);
        let store = &self.emulation.store;
        let changed = size.map_or(Ok(()), |size| store.set_size(inode, size)).and_then(|()| {
            store.names(|tree| {
                let path = tree.backing_path(inode);
                let system = |result: std::io::Result<()>| result.map_err(|error| errno(&error));
                if user.is_some() || group.is_some() {
                    system(std::os::unix::fs::chown(&path, user, group))?;
                }
                if let Some(mode) = mode {
                    system(std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode & 0o7777)))?;
                }
                if access.is_some() || modification.is_some() {
                    let times = timestamps(access, modification);
                    rustix::fs::utimensat(rustix::fs::CWD, &path, &times, rustix::fs::AtFlags::empty())?;
                }
                attributes(tree, inode)
            })
        });
        send(changed, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let owner = (request.uid(), request.gid());
        let mode = mode & !umask & 0o7777;
        let made = self.emulation.store.make_directory(Inode(parent.0), name, mode, owner);
        self.entry(made, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.emulation.store.remove(Inode(parent.0), name, false), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.emulation.store.remove(Inode(parent.0), name, true), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !(flags - RenameFlags::RENAME_NOREPLACE).is_empty() {
            return reply.error(fuser::Errno::EINVAL);
        }
        let replace = !flags.contains(RenameFlags::RENAME_NOREPLACE);
        let (from, to) = ((Inode(parent.0), name), (Inode(new_parent.0), new_name));
        empty(self.emulation.store.rename(from, to, replace), reply);
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.emulation.store.open(Inode(inode.0)) {
            Ok(()) => reply.opened(FileHandle(0), self.handle_flags(flags.0)),
            Err(error) => reply.error(code(error)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        if self.emulation.is_full() {
            return reply.error(fuser::Errno::ENOSPC);
        }
        let owner = (request.uid(), request.gid());
        let mode = mode & !umask & 0o7777;
        let made = self.emulation.store.create(Inode(parent.0), name, mode, owner);
        match made.and_then(|inode| self.attributes(inode)) {
            Ok(attributes) => {
                reply.created(&KEEP, &attributes, Generation(0), FileHandle(0), self.handle_flags(flags));
            }
            Err(error) => reply.error(code(error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.emulation.read(Inode(inode.0), offset, size as usize, move |result| match result {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(code(error)),
        });
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mode = if flags.0 & libc::O_DSYNC != 0 {
            WriteMode::Durable
        } else if self.direct || flags.0 & libc::O_DIRECT != 0 {
            WriteMode::Direct
        } else {
            WriteMode::Cached
        };
        let length = data.len() as u32;
        self.emulation.write(Inode(inode.0), offset, data, mode, move |result| match result {
            Ok(()) => reply.written(length),
            Err(error) => reply.error(code(error)),
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.emulation.store.close(Inode(inode.0));
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.emulation.sync(Inode(inode.0), move |result| empty(result, reply));
    }

    fn fsyncdir(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.emulation.sync_directory(Inode(inode.0), move |result| empty(result, reply));
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let inode = Inode(inode.0);
        let listed = self.emulation.store.names(|tree| {
            let directory = |inode, name: &str| Entry { inode, kind: FileType::Directory, name: name.into() };
            let mut entries = vec![directory(inode, "."), directory(tree.parent(inode), "..")];
            for (name, inode) in tree.entries(inode)? {
                let kind =
                    if tree.is_directory(*inode) { FileType::Directory } else { FileType::RegularFile };
                entries.push(Entry { inode: *inode, kind, name: name.clone() });
            }
            Ok(entries)
        });
        match listed {
            Ok(entries) => {
                let handle = self.handles.fetch_add(1, Ordering::Relaxed);
                self.directories.lock().insert(handle, entries);
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(error) => reply.error(code(error)),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let directories = self.directories.lock();
        let Some(entries) = directories.get(&handle.0) else { return reply.error(fuser::Errno::EBADF) };
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, entry) in entries.iter().enumerate().skip(skipped) {
            if reply.add(INodeNo(entry.inode.0), at as u64 + 1, entry.kind, &entry.name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.directories.lock().remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let capacity = self.emulation.store.capacity();
        let free = capacity.free / 4096;
        // Inodes are not limited; this is a number that programs accept.
        reply.statfs(capacity.total / 4096, free, free, 1 << 32, 1 << 32, 4096, 255, 4096);
    }

    fn access(&self, _: &Request, inode: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        // The kernel checks permissions by itself (default_permissions); this checks that the inode
        // exists.
        empty(self.attributes(Inode(inode.0)).map(|_| ()), reply);
    }

    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let (store, inode) = (&self.emulation.store, Inode(inode.0));
        let Some(end) = offset.checked_add(length).filter(|end| i64::try_from(*end).is_ok()) else {
            return reply.error(fuser::Errno::EFBIG);
        };
        let keep = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let result = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => store.allocate(inode, offset..end, keep, self.emulation.is_full()),
            libc::FALLOC_FL_PUNCH_HOLE if keep => store.zero(inode, offset..end, true),
            libc::FALLOC_FL_ZERO_RANGE => store
                .allocate(inode, offset..end, keep, self.emulation.is_full())
                .and_then(|()| store.zero(inode, offset..end, false)),
            _ => Err(Errno::OPNOTSUPP),
        };
        empty(result, reply);
    }
}

fn empty(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(code(error)),
    }
}
