//! A tier that shows each page to a hook before it is read.

use super::CLASS;
use firndb_base::sync::Arc;
use firndb_base::{PageId, TreeId};
use firndb_btree::Tree;
use firndb_buffer::{BufferPool, PoolOptions};
use firndb_log::Log;
use firndb_tier::testing::MemoryTier;
use firndb_tier::{PageRead, PageTier, TierError};
use std::sync::Mutex;

type Hook = Arc<dyn Fn(PageId) -> Result<(), TierError> + Send + Sync>;

pub struct HookedTier {
    inner: MemoryTier,
    hook: Mutex<Option<Hook>>,
}

impl HookedTier {
    /// From now on, called before a page is read; an error is that read's outcome.
    pub fn on_read(&self, hook: impl Fn(PageId) -> Result<(), TierError> + Send + Sync + 'static) {
        *self.hook.lock().unwrap() = Some(Arc::new(hook));
    }
    /// New pages get the numbers after this one.
    pub fn hand_out_after(&self, page: PageId) {
        self.inner.hand_out_after(page);
    }
    pub fn read_as_usual(&self) {
        *self.hook.lock().unwrap() = None;
    }
}

impl PageTier for HookedTier {
    firndb_tier::forward_tier!(inner: page_size, write_batch, make_batch_space, reserve, unreserve, prepare);
    firndb_tier::forward_tier!(inner: publish, sync, version_of, oldest_needed_lsn, statistics);
    fn read_batch(&self, reads: &mut [PageRead<'_>]) {
        let hook = self.hook.lock().unwrap().clone();
        for read in reads {
            match hook.as_ref().map_or(Ok(()), |hook| hook(read.page)) {
                Ok(()) => self.inner.read_batch(std::slice::from_mut(read)),
                Err(error) => read.outcome = Err(error),
            }
        }
    }
}

/// A tree on such a tier.
pub fn hooked_tree(page_size: usize, frames: usize) -> (Arc<HookedTier>, Tree) {
    let tier = Arc::new(HookedTier { inner: MemoryTier::new(page_size), hook: Mutex::new(None) });
    let log = firndb_log::testing::memory_log_with(256 << 20);
    let tree = Tree::create(pool_over(&tier, log, frames), TreeId(7), CLASS, b"").expect("a tree");
    (tier, tree)
}

/// The same tree in a pool of its own, with none of its pages in memory.
pub fn reopened(tier: &Arc<HookedTier>, tree: &Tree, frames: usize) -> Tree {
    let log = tree.pool().log();
    tree.pool().write_older_than(log.end()).expect("a memory tier takes everything");
    Tree::open(pool_over(tier, Arc::clone(log), frames), tree.id(), tree.root())
}

fn pool_over(tier: &Arc<HookedTier>, log: Arc<Log>, frames: usize) -> Arc<BufferPool> {
    let options = PoolOptions { budget_bytes: frames * (tier.page_size() + 512) + (1 << 16) };
    Arc::new(BufferPool::new(Arc::clone(tier) as _, log, options).expect("a pool"))
}
