//! The emulated file system's state, without time: every operation takes effect here at once, and
//! returns the device requests that it costs.
//!
//! Locks, in the order in which they are taken: `tree` (names, journal), a file's content, `space`
//! (which extents are free). A power cut sets `dead` first and then takes each lock in turn, so an
//! operation that saw `dead` unset under a lock has ended before the cut touches what that lock
//! protects; all others fail with `EIO`.

use crate::backing::Backing;
use crate::content::Content;
use crate::error::EmulateError;
use crate::journal::{Inode, Mark};
use crate::space::{EXTENT, Space};
use crate::timing::{DeviceOperation, DeviceRequest};
use crate::tree::{SharedContent, Tree, errno};
use crate::work::{SyncWork, dirty_requests, requests};
use firndb_base::rng::Rng;
use firndb_base::sync::Mutex;
use firndb_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::path::Path;

/// Most bytes of earlier contents kept in memory for a power cut, all files together. A file that
/// would exceed the limit counts as written back: its contents are durable.
pub const KEPT_LIMIT: u64 = 256 << 20;

/// Most dirty bytes of a file in the emulated page cache; a writer that reaches the limit writes
/// them out.
pub const DIRTY_LIMIT: u64 = 16 << 20;

/// The emulated file system's state.
#[derive(Debug)]
pub struct Store {
    tree: Mutex<Tree>,
    pub(crate) space: Mutex<Space>,
    dead: AtomicBool,
    kept: AtomicU64,
    /// Offset of the journal's next write in its extent.
    journal_at: AtomicU64,
    sector: usize,
}

/// Where a write goes, and when it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Into the emulated page cache.
    Cached,
    /// To the device (`O_DIRECT`), durable after a sync.
    Direct,
    /// To the device, durable when it completes (`O_SYNC`, `O_DSYNC`).
    Durable,
}

/// Capacity: free bytes and bytes in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Bytes that files may occupy.
    pub total: u64,
    /// Bytes that are free.
    pub free: u64,
}

impl Store {
    /// The file system in `backing`, on a device of `size` bytes. Its sectors, the units that a
    /// power cut leaves whole, have `sector` bytes (a power of two up to 4,096).
    ///
    /// # Errors
    /// [`EmulateError::Size`] if the size is too small or too large, [`EmulateError::Backing`].
    pub fn new(backing: Backing, size: u64, sector: usize) -> Result<Store, EmulateError> {
        if !sector.is_power_of_two() || !(512..=4096).contains(&sector) {
            return Err(EmulateError::Size(format!(
                "sectors of {sector} bytes cannot be emulated; 512 to 4096 can"
            )));
        }
        let mut space = Space::new(size).ok_or_else(|| {
            EmulateError::Size(format!("a size of {size} bytes cannot be emulated; give 2 MiB to 4 PiB"))
        })?;
        let path = backing.root().to_owned();
        let tree = Tree::scan(backing, &mut space)
            .map_err(|source| EmulateError::Backing { path: path.clone(), source })?
            .ok_or_else(|| {
                EmulateError::Size(format!("what {} holds does not fit; give a larger size", path.display()))
            })?;
        Ok(Store {
            tree: Mutex::new(tree),
            space: Mutex::new(space),
            dead: AtomicBool::new(false),
            kept: AtomicU64::new(0),
            journal_at: AtomicU64::new(0),
            sector,
        })
    }

    /// Whether the power is cut.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }
    fn alive(&self) -> Result<(), Errno> {
        if self.is_dead() { Err(Errno::IO) } else { Ok(()) }
    }

    /// Calls `work` with the name space.
    ///
    /// # Errors
    /// `EIO` if the power is cut, those of `work`.
    pub fn names<R>(&self, work: impl FnOnce(&mut Tree) -> Result<R, Errno>) -> Result<R, Errno> {
        let mut tree = self.tree.lock();
        self.alive()?;
        work(&mut tree)
    }

    /// Calls `work` with an open file; opens the file if it is not.
    fn with_file<R>(
        &self,
        inode: Inode,
        work: impl FnOnce(&mut Content) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let shared = self.names(|tree| tree.file(inode))?;
        let mut content = shared.lock();
        if content.handle.is_none() {
            // The name must not change between finding the backing file and opening it; locks go
            // tree first.
            drop(content);
            let tree = self.tree.lock();
            let path = tree.backing_path(inode);
            content = shared.lock();
            if content.handle.is_none() && !self.is_dead() {
                content.handle = Some(open_backing(&path).map_err(|error| errno(&error))?);
            }
        }
        self.alive()?;
        let before = content.kept();
        let result = work(&mut content);
        if content.opens == 0 {
            content.handle = None;
        }
        self.account(before, &mut content);
        result
    }

    /// Enforces the bound on memory.
    fn account(&self, before: u64, content: &mut Content) {
        let change = content.kept().wrapping_sub(before);
        let kept = self.kept.fetch_add(change, Ordering::SeqCst).wrapping_add(change);
        if kept > KEPT_LIMIT {
            let freed = content.kept();
            content.settle();
            self.kept.fetch_sub(freed - content.kept(), Ordering::SeqCst);
        }
    }

    /// Opens a file.
    ///
    /// # Errors
    /// `EISDIR`, `ESTALE`, those of the backing file.
    pub fn open(&self, inode: Inode) -> Result<(), Errno> {
        self.with_file(inode, |content| {
            content.opens += 1;
            Ok(())
        })
    }

    /// Closes a file.
    pub fn close(&self, inode: Inode) {
        let mut tree = self.tree.lock();
        let Ok(shared) = tree.file(inode) else { return };
        let mut content = shared.lock();
        content.opens = content.opens.saturating_sub(1);
        if content.opens == 0 {
            content.handle = None;
            let removed = tree.path(inode).is_none();
            if removed {
                content.extents.release(0..u64::MAX, &mut self.space.lock());
            }
            drop(content);
            tree.forget_if_unused(inode);
        }
    }

    /// Reads; returns the bytes and the device requests.
    ///
    /// # Errors
    /// Those of the backing file.
    pub fn read(
        &self,
        inode: Inode,
        offset: u64,
        length: usize,
    ) -> Result<(Vec<u8>, Vec<DeviceRequest>), Errno> {
        self.with_file(inode, |content| {
            let bytes = content.read(offset, length).map_err(|error| errno(&error))?;
            let range = offset..offset + bytes.len() as u64;
            Ok((bytes, requests(DeviceOperation::Read, content, &[range])))
        })
    }

    /// Writes; returns the device requests. With `full`, no extent can be allocated.
    ///
    /// # Errors
    /// `ENOSPC`, `EFBIG`, those of the backing file.
    pub fn write(
        &self,
        inode: Inode,
        offset: u64,
        bytes: &[u8],
        mode: WriteMode,
        full: bool,
    ) -> Result<SyncWork, Errno> {
        let range = offset..offset.checked_add(bytes.len() as u64).ok_or(Errno::FBIG)?;
        self.with_shared_file(inode, |content, shared, mark| {
            if full && !content.covered(range.clone()) {
                return Err(Errno::NOSPC);
            }
            content.cover(range.clone(), &self.space).map_err(|_| Errno::NOSPC)?;
            content.write(offset, bytes).map_err(|error| errno(&error))?;
            let mut work = SyncWork {
                writes: Vec::new(),
                flush: false,
                content: None,
                ticket: None,
                mark: Mark::default(),
            };
            match mode {
                WriteMode::Direct => work.writes = requests(DeviceOperation::Write, content, &[range]),
                WriteMode::Cached => {
                    content.dirty.add(&range);
                    if content.dirty.bytes() > DIRTY_LIMIT {
                        work.writes = dirty_requests(content);
                    }
                }
                WriteMode::Durable => {
                    work.writes =
                        requests(DeviceOperation::DurableWrite, content, std::slice::from_ref(&range));
                    if content.metadata_waits() {
                        work.writes.push(self.journal_write(DeviceOperation::DurableWrite));
                    }
                    work.ticket = Some(content.begin_sync(range));
                    work.content = Some(shared);
                    work.mark = mark;
                }
            }
            Ok(work)
        })
    }

    fn with_shared_file<R>(
        &self,
        inode: Inode,
        work: impl FnOnce(&mut Content, SharedContent, Mark) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let (shared, mark) = self.names(|tree| Ok((tree.file(inode)?, tree.mark())))?;
        self.with_file(inode, |content| work(content, shared, mark))
    }

    /// Begins a sync of a file; `None` if there is nothing to do.
    ///
    /// # Errors
    /// `ESTALE`, `EIO`.
    pub fn begin_sync(&self, inode: Inode) -> Result<Option<SyncWork>, Errno> {
        let changes = self.names(|tree| Ok(tree.changes_wait()))?;
        self.with_shared_file(inode, |content, shared, mark| {
            if !changes && content.is_durable() {
                return Ok(None);
            }
            let mut writes = dirty_requests(content);
            if changes || content.metadata_waits() {
                writes.push(self.journal_write(DeviceOperation::Write));
            }
            let ticket = Some(content.begin_sync(0..u64::MAX));
            Ok(Some(SyncWork { writes, flush: true, content: Some(shared), ticket, mark }))
        })
    }

    /// Begins a sync of a directory; `None` if there is nothing to do.
    ///
    /// # Errors
    /// `EIO`.
    pub fn begin_directory_sync(&self) -> Result<Option<SyncWork>, Errno> {
        self.names(|tree| {
            Ok(tree.changes_wait().then(|| SyncWork {
                writes: vec![self.journal_write(DeviceOperation::Write)],
                flush: true,
                content: None,
                ticket: None,
                mark: tree.mark(),
            }))
        })
    }

    /// Ends a sync when the device has done its part: what the sync covers is durable.
    ///
    /// # Errors
    /// `EIO` if the power was cut before.
    pub fn end_sync(&self, work: SyncWork) -> Result<(), Errno> {
        if let (Some(shared), Some(ticket)) = (&work.content, work.ticket) {
            let mut content = shared.lock();
            self.alive()?;
            let before = content.kept();
            content.end_sync(ticket);
            self.kept.fetch_sub(before - content.kept(), Ordering::SeqCst);
        }
        let mut tree = self.tree.lock();
        self.alive()?;
        tree.commit(work.mark);
        Ok(())
    }

    /// A request for the journal's next block: changes of names, lengths and places cost one block.
    fn journal_write(&self, operation: DeviceOperation) -> DeviceRequest {
        let at = self.journal_at.fetch_add(4096, Ordering::Relaxed) % EXTENT;
        DeviceRequest { operation, range: at..at + 4096 }
    }

    /// Sets a file's length.
    ///
    /// # Errors
    /// `EFBIG`, `EIO`, those of the backing file.
    pub fn set_size(&self, inode: Inode, size: u64) -> Result<(), Errno> {
        if i64::try_from(size).is_err() {
            return Err(Errno::FBIG);
        }
        self.with_file(inode, |content| {
            // Bytes beyond the limit are not read, since they could not be kept: such a truncation
            // counts as durable at once.
            if content.size.saturating_sub(size) > KEPT_LIMIT {
                content.settle();
                let handle = content.handle.as_ref().ok_or(Errno::BADF)?;
                handle.set_len(size).map_err(|error| errno(&error))?;
                content.size = size;
                content.settle();
            } else {
                content.set_size(size).map_err(|error| errno(&error))?;
            }
            content.extents.release(size..u64::MAX, &mut self.space.lock());
            Ok(())
        })
    }

    /// Allocates extents for a range of a file, and grows the file to the range's end unless
    /// `keep_size`.
    ///
    /// # Errors
    /// `ENOSPC`, `EFBIG`.
    pub fn allocate(
        &self,
        inode: Inode,
        range: Range<u64>,
        keep_size: bool,
        full: bool,
    ) -> Result<(), Errno> {
        self.with_file(inode, |content| {
            if full && !content.covered(range.clone()) {
                return Err(Errno::NOSPC);
            }
            content.cover(range.clone(), &self.space).map_err(|_| Errno::NOSPC)?;
            if !keep_size && range.end > content.size {
                content.set_size(range.end).map_err(|error| errno(&error))?;
            }
            Ok(())
        })
    }

    /// Makes a range read as zeros; with `punch`, frees its extents.
    ///
    /// # Errors
    /// Those of the backing file.
    pub fn zero(&self, inode: Inode, range: Range<u64>, punch: bool) -> Result<(), Errno> {
        self.with_file(inode, |content| {
            content.zero(range.clone()).map_err(|error| errno(&error))?;
            if punch {
                content.extents.release(range, &mut self.space.lock());
            }
            Ok(())
        })
    }

    /// Capacity: free bytes and bytes in all.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        let space = self.space.lock();
        Capacity { total: space.total() * EXTENT, free: space.free() * EXTENT }
    }

    /// Makes names, lengths and places durable as they are. Called every
    /// [`JOURNAL_INTERVAL`](crate::emulation::JOURNAL_INTERVAL).
    pub fn settle_metadata(&self) {
        let mut tree = self.tree.lock();
        if self.is_dead() {
            return;
        }
        for (_, shared) in tree.files() {
            let mut content = shared.lock();
            if content.metadata_waits() {
                let before = content.kept();
                content.settle_metadata();
                self.kept.fetch_sub(before - content.kept(), Ordering::SeqCst);
            }
        }
        let mark = tree.mark();
        tree.commit(mark);
    }

    /// Cuts the power. Returns whether it was on before. The backing directory then holds what the
    /// medium would.
    ///
    /// # Errors
    /// Those of the backing directory; its contents are then undefined.
    pub fn cut(&self, rng: &mut Rng) -> std::io::Result<bool> {
        if self.dead.swap(true, Ordering::SeqCst) {
            return Ok(false);
        }
        let mut tree = self.tree.lock();
        for (inode, shared) in tree.files() {
            let mut content = shared.lock();
            if content.cut_changes() {
                let file = match content.handle.take() {
                    Some(file) => file,
                    None => open_backing(&tree.backing_path(inode))?,
                };
                content.cut(&file, self.sector, rng)?;
            }
        }
        tree.cut(rng)?;
        tree.discard_all_held();
        Ok(true)
    }

    /// Ends the emulation; with power on, everything is kept, except a temporary backing directory.
    pub fn end(&self) {
        let was_dead = self.dead.swap(true, Ordering::SeqCst);
        let mut tree = self.tree.lock();
        if !was_dead {
            tree.discard_all_held();
        }
        tree.discard_temporary();
    }
}

/// Opens a backing file for reading and writing, if possible.
fn open_backing(path: &Path) -> std::io::Result<File> {
    match OpenOptions::new().read(true).write(true).open(path) {
        // A file that its owner may only read is opened for reading; the kernel refuses writes.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => File::open(path),
        result => result,
    }
}
