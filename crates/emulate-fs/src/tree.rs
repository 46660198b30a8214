//! The name space: inodes, names, and the changes that are not durable.
//!
//! Every change is made in the backing directory first and then appended to the [`Journal`]. A
//! removed file or directory is moved aside in the backing directory and stays until its removal is
//! durable and no program has it open.
//!
//! Invariants: an inode that has a place is the entry of that name in its parent, and stands under
//! that name in the backing directory; one without (but the root) is held aside. There are no hard
//! links.

use crate::backing::{Backing, RESERVED};
use crate::content::Content;
use crate::journal::{Change, Inode, Journal, Mark, Place};
use crate::space::{Extents, Space};
use firndb_base::sync::{Arc, Mutex};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The root directory.
pub const ROOT: Inode = Inode(1);

/// A file's content, shared between the name space and requests.
pub type SharedContent = Arc<Mutex<Content>>;

/// A file or a directory.
#[derive(Debug)]
pub enum Kind {
    /// A directory with its entries.
    Directory(BTreeMap<OsString, Inode>),
    /// A file with its bytes.
    File(SharedContent),
}

#[derive(Debug)]
struct Node {
    place: Option<Place>,
    kind: Kind,
    /// Its removal is durable: it is dropped when no program has it open.
    gone: bool,
}

/// The name space.
#[derive(Debug)]
pub struct Tree {
    backing: Backing,
    nodes: BTreeMap<Inode, Node>,
    journal: Journal,
    next: u64,
}

/// The number of a system error; `EIO` if it has none.
#[must_use]
pub fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

impl Tree {
    /// Reads the backing directory: everything there is durable. Returns `None` if it does not fit
    /// into the space. Entries that are neither files nor directories are not shown.
    ///
    /// # Errors
    /// Those of reading directories.
    pub fn scan(backing: Backing, space: &mut Space) -> std::io::Result<Option<Tree>> {
        let root = Node { place: None, kind: Kind::Directory(BTreeMap::new()), gone: false };
        let mut tree = Tree {
            nodes: BTreeMap::from([(ROOT, root)]),
            journal: Journal::default(),
            next: ROOT.0 + 1,
            backing,
        };
        let mut waiting = vec![ROOT];
        while let Some(parent) = waiting.pop() {
            // Sorted, so that equal directories get equal addresses.
            let mut entries = std::fs::read_dir(tree.backing_path(parent))
                .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)?;
            entries.sort_by_key(std::fs::DirEntry::file_name);
            for entry in entries {
                if entry.file_name() == RESERVED && parent == ROOT {
                    continue;
                }
                let found = entry.metadata()?;
                let place = Place { parent, name: entry.file_name() };
                if found.is_dir() {
                    waiting.push(tree.insert(place, Kind::Directory(BTreeMap::new())));
                } else if found.is_file() {
                    let mut extents = Extents::default();
                    if extents.cover(0..found.len(), space).is_err() {
                        return Ok(None);
                    }
                    let content = Content::new(found.len(), extents);
                    tree.insert(place, Kind::File(Arc::new(Mutex::new(content))));
                }
            }
        }
        Ok(Some(tree))
    }

    fn insert(&mut self, place: Place, kind: Kind) -> Inode {
        let inode = Inode(self.next);
        self.next += 1;
        self.nodes.insert(inode, Node { place: None, kind, gone: false });
        self.attach(inode, place);
        inode
    }

    fn attach(&mut self, inode: Inode, place: Place) {
        if let Some(Node { kind: Kind::Directory(entries), .. }) = self.nodes.get_mut(&place.parent) {
            let before = entries.insert(place.name.clone(), inode);
            assert!(before.is_none(), "a name is taken before it is given again");
        }
        if let Some(node) = self.nodes.get_mut(&inode) {
            node.place = Some(place);
        }
    }

    fn detach(&mut self, inode: Inode) -> Option<Place> {
        let place = self.nodes.get_mut(&inode)?.place.take()?;
        if let Some(Node { kind: Kind::Directory(entries), .. }) = self.nodes.get_mut(&place.parent) {
            let removed = entries.remove(&place.name);
            assert_eq!(removed, Some(inode), "an inode stands at its place");
        }
        Some(place)
    }

    fn node(&self, inode: Inode) -> Result<&Node, Errno> {
        self.nodes.get(&inode).ok_or(Errno::STALE)
    }

    /// A directory's entries.
    ///
    /// # Errors
    /// `ESTALE`, `ENOTDIR`.
    pub fn entries(&self, inode: Inode) -> Result<&BTreeMap<OsString, Inode>, Errno> {
        match &self.node(inode)?.kind {
            Kind::Directory(entries) => Ok(entries),
            Kind::File(_) => Err(Errno::NOTDIR),
        }
    }

    /// A file's content.
    ///
    /// # Errors
    /// `ESTALE`, `EISDIR`.
    pub fn file(&self, inode: Inode) -> Result<SharedContent, Errno> {
        match &self.node(inode)?.kind {
            Kind::File(content) => Ok(content.clone()),
            Kind::Directory(_) => Err(Errno::ISDIR),
        }
    }

    /// Whether an inode is a directory.
    #[must_use]
    pub fn is_directory(&self, inode: Inode) -> bool {
        self.nodes.get(&inode).is_some_and(|node| matches!(node.kind, Kind::Directory(_)))
    }

    /// A directory's parent; the root's is the root.
    #[must_use]
    pub fn parent(&self, inode: Inode) -> Inode {
        self.nodes.get(&inode).and_then(|node| node.place.as_ref()).map_or(ROOT, |place| place.parent)
    }

    /// Looks up a name.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ESTALE`.
    pub fn lookup(&self, parent: Inode, name: &OsStr) -> Result<Inode, Errno> {
        self.entries(parent)?.get(name).copied().ok_or(Errno::NOENT)
    }

    /// The path from the mount point; `None` if the inode was removed.
    #[must_use]
    pub fn path(&self, inode: Inode) -> Option<PathBuf> {
        let mut names = Vec::new();
        let mut at = inode;
        while at != ROOT {
            let place = self.nodes.get(&at)?.place.as_ref()?;
            names.push(&place.name);
            at = place.parent;
        }
        Some(names.iter().rev().collect())
    }

    /// The path of an inode in the backing directory.
    #[must_use]
    pub fn backing_path(&self, inode: Inode) -> PathBuf {
        match self.path(inode) {
            Some(path) => self.backing.root().join(path),
            None => self.backing.held(inode.0),
        }
    }

    fn backing_place(&self, place: &Place) -> PathBuf {
        self.backing_path(place.parent).join(&place.name)
    }

    /// Checks that a name in a directory is free, and not the reserved one.
    fn free_name(&self, parent: Inode, name: &OsStr) -> Result<Place, Errno> {
        if parent != ROOT && self.node(parent)?.place.is_none() {
            return Err(Errno::NOENT);
        }
        if parent == ROOT && name == RESERVED {
            return Err(Errno::PERM);
        }
        match self.lookup(parent, name) {
            Err(Errno::NOENT) => Ok(Place { parent, name: name.to_owned() }),
            Ok(_) => Err(Errno::EXIST),
            Err(error) => Err(error),
        }
    }

    /// Makes a file (`make` opens it anew) or a directory.
    ///
    /// # Errors
    /// `EEXIST` and the like, and those of `make`.
    pub fn make(
        &mut self,
        parent: Inode,
        name: &OsStr,
        make: impl FnOnce(&Path) -> std::io::Result<Kind>,
    ) -> Result<Inode, Errno> {
        let place = self.free_name(parent, name)?;
        let kind = make(&self.backing_place(&place)).map_err(|error| errno(&error))?;
        let inode = self.insert(place, kind);
        self.journal.record(Change::Made { inode });
        Ok(inode)
    }

    /// Removes a file or an empty directory; returns its inode.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `ENOTDIR`, `ENOTEMPTY`, those of the backing directory.
    pub fn remove(&mut self, parent: Inode, name: &OsStr, directory: bool) -> Result<Inode, Errno> {
        let inode = self.lookup(parent, name)?;
        match &self.node(inode)?.kind {
            Kind::Directory(_) if !directory => return Err(Errno::ISDIR),
            Kind::File(_) if directory => return Err(Errno::NOTDIR),
            Kind::Directory(entries) if !entries.is_empty() => return Err(Errno::NOTEMPTY),
            _ => {}
        }
        let place = self.hold_aside(inode)?;
        self.journal.record(Change::Removed { inode, place });
        Ok(inode)
    }

    fn hold_aside(&mut self, inode: Inode) -> Result<Place, Errno> {
        std::fs::rename(self.backing_path(inode), self.backing.held(inode.0))
            .map_err(|error| errno(&error))?;
        self.detach(inode).ok_or(Errno::NOENT)
    }

    /// Renames a file or directory, and replaces the entry of the new name; returns the inode that
    /// was replaced.
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn rename(
        &mut self,
        from: (Inode, &OsStr),
        to: (Inode, &OsStr),
        replace: bool,
    ) -> Result<Option<Inode>, Errno> {
        let inode = self.lookup(from.0, from.1)?;
        let replaced = match self.lookup(to.0, to.1) {
            Ok(found) if found == inode => return Ok(None),
            Ok(_) if !replace => return Err(Errno::EXIST),
            Ok(found) => Some(found),
            Err(_) => {
                self.free_name(to.0, to.1)?;
                None
            }
        };
        // A directory cannot become its own descendant.
        let mut above = to.0;
        while above != ROOT {
            if above == inode {
                return Err(Errno::INVAL);
            }
            above = self.parent(above);
        }
        if let Some(replaced) = replaced {
            match (&self.node(inode)?.kind, &self.node(replaced)?.kind) {
                (Kind::File(_), Kind::Directory(_)) => return Err(Errno::ISDIR),
                (Kind::Directory(_), Kind::File(_)) => return Err(Errno::NOTDIR),
                (_, Kind::Directory(entries)) if !entries.is_empty() => return Err(Errno::NOTEMPTY),
                _ => {}
            }
            self.hold_aside(replaced)?;
        }
        let place = Place { parent: to.0, name: to.1.to_owned() };
        std::fs::rename(self.backing_path(inode), self.backing_place(&place))
            .map_err(|error| errno(&error))?;
        let from = self.detach(inode).ok_or(Errno::NOENT)?;
        self.attach(inode, place);
        self.journal.record(Change::Renamed { inode, from, replaced });
        Ok(replaced)
    }

    /// The current end of the journal.
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.journal.mark()
    }
    /// Whether there are changes that are not durable.
    #[must_use]
    pub fn changes_wait(&self) -> bool {
        !self.journal.is_empty()
    }

    /// Makes all changes before `mark` durable.
    pub fn commit(&mut self, mark: Mark) {
        for held in self.journal.commit(mark).iter().filter_map(Change::held) {
            if let Some(node) = self.nodes.get_mut(&held) {
                node.gone = true;
            }
            self.forget_if_unused(held);
        }
    }

    /// Drops an inode if its removal is durable and no program has it open.
    pub fn forget_if_unused(&mut self, inode: Inode) {
        let unused = self.nodes.get(&inode).is_some_and(|node| {
            node.gone
                && match &node.kind {
                    Kind::File(content) => content.lock().opens == 0,
                    Kind::Directory(_) => true,
                }
        });
        if unused {
            self.discard_held(inode);
            self.nodes.remove(&inode);
        }
    }

    fn discard_held(&self, inode: Inode) {
        let path = self.backing.held(inode.0);
        // An entry that cannot be removed now is removed at the next mount of this backing
        // directory.
        let _ = if self.is_directory(inode) { std::fs::remove_dir(path) } else { std::fs::remove_file(path) };
    }

    /// Every file, those that are held aside included.
    pub fn files(&self) -> impl Iterator<Item = (Inode, &SharedContent)> {
        self.nodes.iter().filter_map(|(inode, node)| match &node.kind {
            Kind::File(content) => Some((*inode, content)),
            Kind::Directory(_) => None,
        })
    }

    /// Cuts the power: undoes some of the changes that are not durable, the latest first.
    ///
    /// # Errors
    /// Those of the backing directory.
    pub fn cut(&mut self, rng: &mut firndb_base::rng::Rng) -> std::io::Result<usize> {
        let lost = self.journal.cut(rng);
        for change in &lost {
            match change {
                Change::Made { inode } => {
                    std::fs::rename(self.backing_path(*inode), self.backing.held(inode.0))?;
                    self.detach(*inode);
                }
                Change::Removed { inode, place } => self.put_back(*inode, place.clone())?,
                Change::Renamed { inode, from, replaced } => {
                    std::fs::rename(self.backing_path(*inode), self.backing_place(from))?;
                    let to = self.detach(*inode);
                    self.attach(*inode, from.clone());
                    if let (Some(replaced), Some(to)) = (replaced, to) {
                        self.put_back(*replaced, to)?;
                    }
                }
            }
        }
        Ok(lost.len())
    }

    fn put_back(&mut self, inode: Inode, place: Place) -> std::io::Result<()> {
        std::fs::rename(self.backing.held(inode.0), self.backing_place(&place))?;
        self.attach(inode, place);
        Ok(())
    }

    /// Removes a temporary backing directory.
    pub fn discard_temporary(&mut self) {
        self.backing.discard_temporary();
    }

    /// Removes everything that is held aside, when the emulation ends.
    pub fn discard_all_held(&self) {
        let held = self.nodes.iter().filter(|(inode, node)| node.place.is_none() && **inode != ROOT);
        held.for_each(|(inode, _)| self.discard_held(*inode));
    }
}
