//! Small nodes whose merge met an error.
//!
//! A merge is not part of the change that made the node small, so its error is not the caller's.
//! But the node may never be changed again, so no later change would merge it. So the key is noted,
//! and the layer above, which owns background work, retries the merge ([`Tree::merge_small`]).

use crate::key_ranges::KeyRanges;
use crate::tree::Tree;
use firndb_base::TreeId;
use firndb_base::sync::atomic::{AtomicBool, Ordering};
use firndb_base::sync::{Arc, Mutex};

/// Bytes of the list, at most; beyond it, it covers more than it must.
const LIMIT: usize = 64 << 10;

/// Keys of nodes that are to be merged, of all trees that note them here
/// ([`Tree::note_unmerged_in`]).
#[derive(Debug)]
pub struct Unmerged {
    any: AtomicBool,
    /// Locked with no latch held, and nothing is locked under it.
    keys: Mutex<KeyRanges>,
}

impl Default for Unmerged {
    fn default() -> Unmerged {
        Unmerged { any: AtomicBool::new(false), keys: Mutex::new(KeyRanges::new(LIMIT)) }
    }
}

impl Unmerged {
    fn note(&self, tree: TreeId, key: &[u8]) {
        let mut keys = self.keys.lock();
        keys.add_key(tree, key);
        self.any.store(true, Ordering::SeqCst);
    }

    /// Takes what is noted, if anything is.
    #[must_use]
    pub fn take(&self) -> Option<KeyRanges> {
        if !self.any.load(Ordering::SeqCst) {
            return None;
        }
        let mut keys = self.keys.lock();
        self.any.store(false, Ordering::SeqCst);
        Some(std::mem::replace(&mut *keys, KeyRanges::new(LIMIT)))
    }

    /// What is noted.
    #[must_use]
    pub fn noted(&self) -> KeyRanges {
        self.keys.lock().clone()
    }
}

impl Tree {
    /// Has merges that meet an error noted in `unmerged`, by this handle and all its clones. A tree
    /// whose merges are noted somewhere already stays with that.
    pub fn note_unmerged_in(&self, unmerged: &Arc<Unmerged>) {
        let _ = self.unmerged.set(unmerged.clone());
    }

    pub(crate) fn note_unmerged(&self, key: &[u8]) {
        if let Some(unmerged) = self.unmerged.get() {
            unmerged.note(self.id(), key);
        }
    }
}
