//! The tree. SKELETON.

use crate::TreeError;
use firn_base::sync::Arc;
use firn_base::{Lsn, PageId, TreeId};
use firn_buffer::BufferPool;
use firn_log::LogClass;

/// What to do with an entry, decided under the leaf's exclusive latch. Its buffers are kept between uses.
#[derive(Clone, Debug, Default)]
pub enum Change {
    /// Nothing.
    #[default]
    Keep,
    /// Insert the entry, or replace its value.
    Put(Vec<u8>),
    /// Overwrite bytes of the value in place: ascending, disjoint (offset, bytes) within its length. Only
    /// for an entry that is there.
    Patch(Vec<(u16, Vec<u8>)>),
    /// Take the entry out. Only for an entry that is there.
    Remove,
}

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Keys ascending.
    Forward,
    /// Keys descending.
    Backward,
}

/// Where a scan stands between two calls: keys only, no latch, no page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Position {
    /// Before the first key going forward, after the last going backward.
    Start,
    /// At the key itself if it is there, else at the next one in the scan's direction.
    At(Vec<u8>),
    /// Past the key in the scan's direction.
    Past(Vec<u8>),
}

/// What a visitor wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// The next entry.
    Continue,
    /// No more; the scan's next position is past this entry.
    Stop,
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct TreeReport {
    /// Levels, leaves included.
    pub height: u32,
    /// Pages of inner nodes.
    pub inner_pages: u64,
    /// Pages of leaves.
    pub leaf_pages: u64,
    /// Entries in leaves.
    pub entries: u64,
    /// Bytes of keys and values in leaves.
    pub entry_bytes: u64,
    /// Sentences, one for each broken invariant, with page and slot.
    pub damage: Vec<String>,
    /// Every page of the tree, for the check of the page map.
    pub pages: Vec<PageId>,
}

/// A B+tree. The root page never moves. Cheap to clone.
#[derive(Clone)]
pub struct Tree {
    id: TreeId,
    root: PageId,
    pool: Arc<BufferPool>,
}

impl Tree {
    /// Creates an empty tree, as one atomic group of the log. `attachment` travels in the record.
    pub fn create(_pool: Arc<BufferPool>, _id: TreeId, _class: LogClass, _attachment: &[u8]) -> Result<Tree, TreeError> {
        todo!()
    }

    /// A tree that exists, by its root.
    pub fn open(pool: Arc<BufferPool>, id: TreeId, root: PageId) -> Tree {
        Tree { id, root, pool }
    }

    /// Its id.
    pub fn id(&self) -> TreeId {
        self.id
    }
    /// Its root page.
    pub fn root(&self) -> PageId {
        self.root
    }
    /// The pool its pages are in.
    pub fn pool(&self) -> &Arc<BufferPool> {
        &self.pool
    }

    /// Longest key, in bytes: the same for all trees of a page size.
    pub fn max_key_len(_page_size: usize) -> usize {
        todo!()
    }
    /// Longest key and value together, in bytes.
    pub fn max_entry_len(_page_size: usize) -> usize {
        todo!()
    }

    /// Looks `key` up and shows its value to `look` under the leaf's shared latch. `look` must not block
    /// on anything that a latch holder may wait for.
    pub fn get<R>(&self, _key: &[u8], _look: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, TreeError> {
        todo!()
    }

    /// Shows the entry's value to `decide` under the leaf's exclusive latch and performs the change it
    /// asks for, logged as one record with the attachment it wrote. If the change needs room, the leaf is
    /// split or merged first and `decide` is asked again: it must cope with being called more than once,
    /// and only its last answer counts. Answers the record's LSN, if there was a change.
    ///
    /// A `decide` that fails changes nothing and its error is passed on.
    pub fn modify<R, E: From<TreeError>>(
        &self,
        _key: &[u8],
        _class: LogClass,
        _decide: impl FnMut(Option<&[u8]>, &mut Change, &mut Vec<u8>) -> Result<R, E>,
    ) -> Result<(R, Option<Lsn>), E> {
        todo!()
    }

    /// Shows the entries of one leaf, from `from` in `direction`, to `visit` under the leaf's shared
    /// latch, until the leaf ends or `visit` stops. Answers where to go on; `None` at the tree's end.
    pub fn visit_leaf(
        &self,
        _from: &Position,
        _direction: Direction,
        _visit: impl FnMut(&[u8], &[u8]) -> Visit,
    ) -> Result<Option<Position>, TreeError> {
        todo!()
    }

    /// About how many entries lie between two keys (`None`: unbounded), from a few page reads.
    pub fn estimate(&self, _low: Option<&[u8]>, _high: Option<&[u8]>) -> Result<u64, TreeError> {
        todo!()
    }

    /// Frees all pages but the root and empties it; in several groups of bounded size, so that an
    /// interrupted one can be called again.
    pub fn clear(&self, _class: LogClass) -> Result<(), TreeError> {
        todo!()
    }

    /// Frees the root of a cleared tree: the tree is gone.
    pub fn drop_root(self, _class: LogClass, _attachment: &[u8]) -> Result<(), TreeError> {
        todo!()
    }

    /// Walks every invariant of the tree.
    pub fn check(&self) -> Result<TreeReport, TreeError> {
        todo!()
    }
}
