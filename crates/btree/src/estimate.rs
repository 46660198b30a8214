//! How high a tree is, and about how many entries lie between two keys.

use crate::descent::{Restarts, Target, child_at};
use crate::error::TreeError;
use crate::node::Node;
use crate::tree::Tree;
use firndb_base::PageId;
use firndb_buffer::PageUse;
use std::cmp::Ordering;

/// A step of a path: which child was taken of how many.
#[derive(Clone, Copy, Debug)]
struct Step {
    index: u64,
    children: u64,
}

/// What was counted of a whole tree, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    pub entries: u64,
    pub leaves: u64,
}

impl Counted {
    /// Replaces the children of the nodes of one path, from the root on, by those in the mean.
    fn correct(&self, path: &mut [f64]) {
        let [root, inner @ .., leaf] = path else { return };
        if self.entries == 0 || self.leaves == 0 {
            return;
        }
        *leaf = self.entries as f64 / self.leaves as f64;
        // The product of all levels is the number of leaves; the root is known.
        let product: f64 = inner.iter().product();
        let factor = self.leaves as f64 / (*root * product);
        let each = factor.powf(1.0 / inner.len().max(1) as f64);
        inner.iter_mut().for_each(|children| *children *= each);
    }
}

impl Tree {
    /// Levels of the tree; 1 if the root is a leaf.
    pub fn height(&self) -> Result<u8, TreeError> {
        let root = self.pool().shared(self.root())?;
        Ok(self.node(root.page(), &root, None)?.level() + 1)
    }

    /// About how many entries lie between two keys (`None`: unbounded), from three descents: to
    /// both keys, and down the middle between them, whose nodes stand for those not read, unless
    /// `counted` says how full nodes are in the mean. Exact when both keys are in one leaf or in
    /// neighbours. `low` counts as inside, `high` as outside.
    pub fn estimate(
        &self,
        low: Option<&[u8]>,
        high: Option<&[u8]>,
        counted: Option<Counted>,
    ) -> Result<u64, TreeError> {
        let low_target = low.map_or(Target::First, Target::Key);
        let low_path = self.path(low, |_, page, node| low_target.index_in(page, node))?;
        let high_target = high.map_or(Target::Last, Target::Key);
        let mut high_path = self.path(high, |_, page, node| high_target.index_in(page, node))?;
        if high.is_none() {
            let leaf = high_path.last_mut().expect("a path ends in a leaf");
            leaf.index = leaf.children;
        }
        let Some(parting) = low_path.iter().zip(&high_path).position(|(low, high)| low.index != high.index)
        else {
            return Ok(0);
        };
        let (from, to) = (low_path[parting].index, high_path[parting].index);
        let middle_path = self.path(None, |depth, page, node| match depth.cmp(&parting) {
            Ordering::Less => low_target.index_in(page, node),
            Ordering::Equal => Ok((from.midpoint(to) as usize).min(node.count())),
            Ordering::Greater => Ok(node.count() / 2),
        })?;
        if low_path.len() != high_path.len() || low_path.len() != middle_path.len() {
            // The root grew or shrank between the descents; any of them says how large the tree is.
            return Ok(middle_path.iter().map(|step| step.children).fold(1, u64::saturating_mul));
        }
        let mut means: Vec<f64> = middle_path.iter().map(|step| step.children as f64).collect();
        if let Some(counted) = counted {
            counted.correct(&mut means);
        }
        Ok(between(&low_path, &high_path, &means, parting))
    }

    /// About how many leaves there are, from a descent down the middle, whose nodes stand for all.
    pub fn estimate_leaves(&self) -> Result<u64, TreeError> {
        let middle = self.path(None, |_, _, node| Ok(node.count() / 2))?;
        let inner = &middle[..middle.len() - 1];
        Ok(inner.iter().map(|step| step.children).fold(1, u64::saturating_mul))
    }

    /// Goes from the root to a leaf, by the child that `choose` names at each depth, to the slot of
    /// `key` there or the first.
    fn path(
        &self,
        key: Option<&[u8]>,
        choose: impl Fn(usize, PageId, &Node<'_>) -> Result<usize, TreeError>,
    ) -> Result<Vec<Step>, TreeError> {
        let mut restarts = Restarts::default();
        'root: loop {
            let mut guard = self.pool().shared(self.root())?;
            let (mut expected, mut path) = (None, Vec::new());
            loop {
                let node = self.node(guard.page(), &guard, expected)?;
                let damaged = |error| TreeError::damaged(guard.page(), error);
                if node.is_leaf() {
                    let found = key.map_or(Ok(Ok(0)), |key| node.search(key)).map_err(damaged)?;
                    let index = found.unwrap_or_else(|slot| slot) as u64;
                    path.push(Step { index, children: node.count() as u64 });
                    return Ok(path);
                }
                let index = choose(path.len(), guard.page(), &node)?;
                path.push(Step { index: index as u64, children: node.count() as u64 + 1 });
                expected = Some(node.level() - 1);
                let child = child_at(guard.page(), &node, index)?;
                let next = self.child_shared(guard, child, PageUse::Working, &mut restarts)?;
                let Some(next) = next else { continue 'root };
                guard = next;
            }
        }
    }
}

/// Entries between two paths that part at depth `parting`, where nodes not seen have as many
/// children as `means` says for their depth.
fn between(low: &[Step], high: &[Step], means: &[f64], parting: usize) -> u64 {
    let leaf = low.len() - 1;
    if parting == leaf {
        return high[leaf].index.saturating_sub(low[leaf].index);
    }
    if low[parting].index > high[parting].index {
        return 0;
    }
    let below = |depth: usize| means[depth + 1..].iter().product::<f64>();
    let mut children = high[parting].index - low[parting].index - 1;
    let mut total = 0.0;
    for depth in parting..leaf {
        total += children as f64 * below(depth);
        let (left, right) = (low[depth + 1], high[depth + 1]);
        // What lies right of the low path and left of the high one, a level further down.
        let beside =
            if depth + 1 == leaf { left.children - left.index } else { left.children - left.index - 1 };
        children = beside + right.index;
    }
    (total + children as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_give_the_leaves_and_entries_that_were_counted() {
        for path in [vec![7.0, 90.0], vec![7.0, 120.0, 40.0], vec![3.0, 50.0, 150.0, 80.0]] {
            let mut means = path.clone();
            Counted { entries: 1_000_000, leaves: 20_000 }.correct(&mut means);
            assert_eq!((means[0], means[path.len() - 1]), (path[0], 50.0));
            let leaves: f64 = means[..path.len() - 1].iter().product();
            assert!(path.len() == 2 || (leaves / 20_000.0 - 1.0).abs() < 1e-9, "{means:?}");
            let mut untouched = path.clone();
            Counted { entries: 0, leaves: 0 }.correct(&mut untouched);
            assert_eq!(untouched, path);
        }
        Counted { entries: 5, leaves: 1 }.correct(&mut [5.0]);
    }
}
