//! The tree: a root page in a pool.

use crate::node;
use crate::unmerged::Unmerged;
use firndb_base::sync::{Arc, OnceLock};
use firndb_base::{PageId, TreeId};
use firndb_buffer::BufferPool;

/// A B+tree. The root page never moves. Cheap to clone.
#[derive(Clone)]
pub struct Tree {
    id: TreeId,
    root: PageId,
    pool: Arc<BufferPool>,
    /// Where merges that met an error are noted; shared by all clones.
    pub(crate) unmerged: Arc<OnceLock<Arc<Unmerged>>>,
}

impl Tree {
    /// A tree that exists, by its root.
    pub fn open(pool: Arc<BufferPool>, id: TreeId, root: PageId) -> Tree {
        Tree { id, root, pool, unmerged: Arc::default() }
    }

    pub fn id(&self) -> TreeId {
        self.id
    }
    pub fn root(&self) -> PageId {
        self.root
    }
    /// The pool its pages are in.
    pub fn pool(&self) -> &Arc<BufferPool> {
        &self.pool
    }

    /// Longest key, in bytes: the same for all trees of a page size. An eighth of the page.
    #[must_use]
    pub fn max_key_len(page_size: usize) -> usize {
        node::max_key_len(page_size)
    }
    /// Longest key and value together, in bytes: four of them fit any leaf (750 for pages of 4
    /// KiB).
    #[must_use]
    pub fn max_entry_len(page_size: usize) -> usize {
        node::max_entry_len(page_size)
    }
}
