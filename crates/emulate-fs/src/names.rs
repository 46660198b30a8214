//! Names: files and directories made, removed and renamed, as operations of the [`Store`].

use crate::content::Content;
use crate::journal::Inode;
use crate::space::Extents;
use crate::store::Store;
use crate::tree::{Kind, Tree};
use firndb_base::sync::{Arc, Mutex};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

impl Store {
    /// Makes an empty file and opens it.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn create(&self, parent: Inode, name: &OsStr, mode: u32, owner: (u32, u32)) -> Result<Inode, Errno> {
        self.names(|tree| {
            tree.make(parent, name, |path| {
                let file =
                    OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path)?;
                file.set_permissions(std::fs::Permissions::from_mode(mode))?;
                give_to(path, owner);
                let mut content = Content::new(0, Extents::default());
                content.handle = Some(file);
                content.opens = 1;
                Ok(Kind::File(Arc::new(Mutex::new(content))))
            })
        })
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// Those of mkdir(2).
    pub fn make_directory(
        &self,
        parent: Inode,
        name: &OsStr,
        mode: u32,
        owner: (u32, u32),
    ) -> Result<Inode, Errno> {
        self.names(|tree| {
            tree.make(parent, name, |path| {
                std::fs::create_dir(path)?;
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
                give_to(path, owner);
                Ok(Kind::Directory(std::collections::BTreeMap::new()))
            })
        })
    }

    /// Removes a file or an empty directory.
    ///
    /// # Errors
    /// Those of unlink(2) and rmdir(2).
    pub fn remove(&self, parent: Inode, name: &OsStr, directory: bool) -> Result<(), Errno> {
        self.names(|tree| {
            let removed = tree.remove(parent, name, directory)?;
            self.free_removed(tree, removed);
            Ok(())
        })
    }

    /// Renames a file or directory.
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn rename(&self, from: (Inode, &OsStr), to: (Inode, &OsStr), replace: bool) -> Result<(), Errno> {
        self.names(|tree| {
            if let Some(replaced) = tree.rename(from, to, replace)? {
                self.free_removed(tree, replaced);
            }
            Ok(())
        })
    }

    /// Frees the space of a file that was removed and is not open at once; its bytes are still held
    /// aside.
    fn free_removed(&self, tree: &Tree, inode: Inode) {
        if let Ok(shared) = tree.file(inode) {
            let mut content = shared.lock();
            if content.opens == 0 {
                content.extents.release(0..u64::MAX, &mut self.space.lock());
            }
        }
    }
}

/// Changes the owner of a new file to the calling user; only root can, and for other users the file
/// has that owner already.
fn give_to(path: &Path, (user, group): (u32, u32)) {
    let _ = std::os::unix::fs::chown(path, Some(user), Some(group));
}
