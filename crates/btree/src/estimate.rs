//! About how many entries lie between two keys.

use crate::descent::Target;
use crate::{Tree, TreeError};

/// A step of a path: which child was taken of how many.
#[derive(Clone, Copy, Debug)]
struct Step {
    index: u64,
    children: u64,
}

impl Tree {
    /// About how many entries lie between two keys (`None`: unbounded), from a few page reads: two
    /// descents, and the assumption that nodes not looked at are as full as those on the way. Exact when
    /// both keys are in one leaf. `low` counts as inside, `high` as outside.
    pub fn estimate(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> Result<u64, TreeError> {
        let low = self.path(low.map_or(Target::First, Target::Key), low)?;
        let high = self.path(high.map_or(Target::Last, Target::Key), high)?;
        if low.len() != high.len() {
            // The root grew or shrank between the two descents; the shorter path knows as much.
            let path = if low.len() < high.len() { low } else { high };
            return Ok(path.iter().map(|step| step.children).fold(1, u64::saturating_mul));
        }
        let (mut from, mut to) = (0u64, 0u64);
        for (low, high) in low.iter().zip(&high) {
            let fan_out = (low.children + high.children).div_ceil(2);
            from = from.saturating_mul(fan_out).saturating_add(low.index);
            to = to.saturating_mul(fan_out).saturating_add(high.index);
        }
        Ok(to.saturating_sub(from))
    }

    /// Indexes from the root to the slot of a bound in its leaf: to its first slot or past its last, if
    /// there is no bound.
    fn path(&self, target: Target<'_>, key: Option<&[u8]>) -> Result<Vec<Step>, TreeError> {
        let pool = self.pool();
        let mut guard = pool.shared(self.root())?;
        let (mut expected, mut path) = (None, Vec::new());
        loop {
            let node = self.node(guard.page(), &guard, expected)?;
            if node.is_leaf() {
                let index = match (target, key) {
                    (_, Some(key)) => node
                        .search(key)
                        .map_err(|error| TreeError::damaged(guard.page(), error))?
                        .unwrap_or_else(|slot| slot),
                    (Target::Last, None) => node.count(),
                    _ => 0,
                };
                path.push(Step { index: index as u64, children: node.count() as u64 });
                return Ok(path);
            }
            let index = target.index_in(guard.page(), &node)?;
            path.push(Step { index: index as u64, children: node.count() as u64 + 1 });
            expected = Some(node.level() - 1);
            let child = node.child(index).map_err(|error| TreeError::damaged(guard.page(), error))?;
            let next = pool.shared(child)?;
            guard = next;
        }
    }
}
