//! Lookup of one key.

use crate::descent::Target;
use crate::error::TreeError;
use crate::hint;
use crate::node::Node;
use crate::tree::Tree;

impl Tree {
    /// Looks `key` up and shows its value to `look` under the leaf's shared latch. `look` must not
    /// block on anything that a latch holder may wait for.
    pub fn get<R>(&self, key: &[u8], look: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, TreeError> {
        let (leaf, parts) = self.leaf_shared(Target::Key(key))?;
        let damaged = |error| TreeError::damaged(leaf.page(), error);
        let node = Node::at(&leaf, parts);
        hint::remember(self, leaf.optimistic());
        match node.search(key).map_err(damaged)? {
            Ok(slot) => Ok(look(Some(node.value(slot).map_err(damaged)?))),
            Err(_) => Ok(look(None)),
        }
    }
}
