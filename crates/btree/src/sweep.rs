//! Taking garbage out of leaves: a leaf at a time, for background work.

use crate::descent::Target;
use crate::error::TreeError;
use crate::modify::Logged;
use crate::node::Node;
use crate::scratch;
use crate::tree::Tree;
use firndb_base::PageId;
use firndb_base::codec::Malformed;
use firndb_log::LogClass;

/// What [`Tree::sweep_leaf`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swept {
    pub removed: usize,
    /// The leaf held the keys from here on…
    pub low: Vec<u8>,
    /// …up to this one, which was not its own; `None`: to the end of the tree.
    pub high: Option<Vec<u8>>,
    /// It is small enough to be worth a merge ([`Tree::merge_small`]).
    pub small: bool,
}

impl Tree {
    /// Removes the entries that `judge` condemns from the leaf that `key` belongs to, logged as one
    /// record without attachment. The leaf is not merged.
    ///
    /// It is latched exclusively only if `judge` condemns an entry under the shared latch; then all
    /// entries are judged again, as they are if the log's buffer was full. `judge` must not block
    /// on anything that a latch holder may wait for.
    pub fn sweep_leaf(
        &self,
        key: &[u8],
        class: LogClass,
        mut judge: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Swept, TreeError> {
        {
            let (leaf, parts) = self.leaf_shared(Target::Key(key))?;
            let node = Node::at(&leaf, parts);
            let mut condemned = false;
            scratch::with(|scratch| {
                for at in 0..node.count() {
                    node.full_key(at, &mut scratch.key)?;
                    condemned |= judge(&scratch.key, node.value(at)?);
                }
                Ok::<(), Malformed>(())
            })
            .map_err(|error| TreeError::damaged(leaf.page(), error))?;
            if !condemned {
                return Ok(self.swept(0, &node, leaf.page()));
            }
        }
        loop {
            let (leaf, _) = self.leaf_exclusive(Target::Key(key))?;
            let swept = scratch::with(|scratch| {
                self.sweep_slots(leaf, class, &mut scratch.key, &mut scratch.body, |_, key, value| {
                    judge(key, value)
                })
            })?;
            match swept {
                Logged::Done(leaf, removed) => {
                    let node = self.node(leaf.page(), &leaf, Some(0))?;
                    return Ok(self.swept(removed, &node, leaf.page()));
                }
                // With no latch held; then all entries are judged again.
                Logged::NoBuffer(bytes) => self.pool().log().wait_for_buffer(bytes)?,
            }
        }
    }

    fn swept(&self, removed: usize, leaf: &Node<'_>, page: PageId) -> Swept {
        Swept {
            removed,
            low: leaf.low().to_vec(),
            high: leaf.high().map(<[u8]>::to_vec),
            small: self.is_small_node(leaf, page),
        }
    }
}
