//! The tree: a root page in a pool, and what is asked of it.

use crate::clear::empty_root;
use crate::descent::Target;
use crate::group::Group;
use crate::hint;
use crate::node::Node;
use crate::node::pack::EntryList;
use crate::stock::Stock;
use crate::unmerged::Unmerged;
use crate::{TreeError, node, op, scratch};
use firn_base::codec::Writer;
use firn_base::sync::{Arc, OnceLock};
use firn_base::{PageId, TreeId};
use firn_buffer::BufferPool;
use firn_log::LogClass;

/// What to do with an entry, decided under the leaf's exclusive latch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    #[default]
    Keep,
    /// Insert the entry, or replace its value.
    Put(Vec<u8>),
    /// Overwrite bytes of the value in place, within its length. Only for an entry that is there.
    Patch(Patches),
    /// Take the entry out. Only for an entry that is there.
    Remove,
}

impl Change {
    /// A `Put` of a value made of parts. Uses the memory of an earlier change of this thread.
    #[must_use]
    pub fn put_parts(parts: &[&[u8]]) -> Change {
        let mut value = scratch::spare_bytes();
        value.reserve(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| value.extend_from_slice(part));
        Change::Put(value)
    }

    /// Gives its memory to changes to come.
    pub(crate) fn recycle(self) {
        match self {
            Change::Put(bytes) | Change::Patch(Patches { encoded: bytes, .. }) => scratch::keep_bytes(bytes),
            Change::Keep | Change::Remove => {}
        }
    }
}

/// Bytes to write into a value: ascending, disjoint ranges. Kept as the record will carry them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patches {
    encoded: Vec<u8>,
    end: usize,
}

impl Patches {
    /// None yet. Uses the memory of an earlier change of this thread.
    #[must_use]
    pub fn new() -> Patches {
        Patches { encoded: scratch::spare_bytes(), end: 0 }
    }
    /// Adds bytes to be written at `offset`, which must not lie before the end of those added last.
    pub fn push(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset >= self.end, "patches ascend and are disjoint");
        self.encoded.put_varint((offset - self.end) as u64);
        self.encoded.put_blob(bytes);
        self.end = offset + bytes.len();
    }
    /// Where the last of them ends.
    #[must_use]
    pub fn end(&self) -> usize {
        self.end
    }
    pub(crate) fn encoded(&self) -> &[u8] {
        &self.encoded
    }
}

impl<B: AsRef<[u8]>> FromIterator<(usize, B)> for Patches {
    fn from_iter<I: IntoIterator<Item = (usize, B)>>(patches: I) -> Patches {
        let mut all = Patches::new();
        patches.into_iter().for_each(|(offset, bytes)| all.push(offset, bytes.as_ref()));
        all
    }
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
    /// Creates an empty tree, as one atomic group of the log. `attachment` travels in the record.
    pub fn create(
        pool: Arc<BufferPool>,
        id: TreeId,
        class: LogClass,
        attachment: &[u8],
    ) -> Result<Tree, TreeError> {
        let root = Stock::new(&pool, class).run(|stock| {
            let page = stock.take()?;
            let mut group = Group::new(stock);
            let root = page.page();
            let draft =
                page.draft(attachment, |body| op::format(body, &empty_root(id), &EntryList::default()));
            group.fill(page, draft);
            group.commit(stock)?;
            Ok(root)
        })?;
        Ok(Tree::open(pool, id, root))
    }

    /// A tree that exists, by its root.
    pub fn open(pool: Arc<BufferPool>, id: TreeId, root: PageId) -> Tree {
        Tree { id, root, pool, unmerged: Arc::default() }
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

    /// Longest key, in bytes: the same for all trees of a page size. An eighth of the page.
    #[must_use]
    pub fn max_key_len(page_size: usize) -> usize {
        node::max_key_len(page_size)
    }
    /// Longest key and value together, in bytes: four of them fit any leaf (750 for pages of 4 KiB).
    #[must_use]
    pub fn max_entry_len(page_size: usize) -> usize {
        node::max_entry_len(page_size)
    }

    /// Looks `key` up and shows its value to `look` under the leaf's shared latch. `look` must not block
    /// on anything that a latch holder may wait for.
    pub fn get<R>(&self, key: &[u8], look: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, TreeError> {
        let (leaf, place) = self.leaf_shared(Target::Key(key))?;
        let damaged = |error| TreeError::damaged(leaf.page(), error);
        let node = Node::at(&leaf, place);
        hint::remember(self, leaf.optimistic());
        match node.search(key).map_err(damaged)? {
            Ok(slot) => Ok(look(Some(node.value(slot).map_err(damaged)?))),
            Err(_) => Ok(look(None)),
        }
    }
}
