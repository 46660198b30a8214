//! Where to split a node, and with which separator. Pure: reads a node, changes nothing.

use super::layout::Node;
use super::{HEADER_LEN, SLOT_LEN, common_prefix, prefix_between};
use firndb_base::codec::Malformed;

/// A decision of [`choose`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SplitPoint {
    /// A leaf's entries before this slot stay left, the others go right. In an inner node this
    /// slot's key goes up and its child becomes the right node's first.
    pub(crate) slot: usize,
    /// Key that parts the two: the right node's low fence and the left node's high fence.
    pub(crate) separator: Vec<u8>,
}

/// Consecutive inserts in one direction from which more of the same are expected.
const RUN_MIN: i8 = 4;

/// Chooses for a leaf of at least three entries, or an inner node of at least four. After a run of
/// ascending (descending) inserts the node is split just past (before) the last one, so that
/// sequential loads leave full nodes behind. Else near the middle by bytes, at the shortest
/// separator there: short separators make inner nodes wide.
pub(crate) fn choose(node: &Node<'_>) -> Result<SplitPoint, Malformed> {
    let sizes = Sizes::of(node)?;
    let count = node.count();
    let (first, last) = if node.is_leaf() { (1, count - 1) } else { (1, count - 2) };
    let half = sizes.sums[count] / 2;
    let middle = sizes.sums.partition_point(|&sum| sum < half).clamp(first, last);
    let (last_insert, run) = node.run();
    if run >= RUN_MIN {
        for slot in (middle..=(last_insert + 1).clamp(first, last)).rev() {
            let separator = separator_at(node, slot)?;
            if sizes.fits(node, slot, &separator) {
                return Ok(SplitPoint { slot, separator });
            }
        }
    } else if run <= -RUN_MIN {
        for slot in last_insert.clamp(first, last)..=middle {
            let separator = separator_at(node, slot)?;
            if sizes.fits(node, slot, &separator) {
                return Ok(SplitPoint { slot, separator });
            }
        }
    }
    let window = (count / 16).max(1);
    let mut best: Option<(usize, usize, SplitPoint)> = None;
    for slot in middle.saturating_sub(window).max(first)..=(middle + window).min(last) {
        let separator = separator_at(node, slot)?;
        let rank = (separator.len(), slot.abs_diff(middle));
        let better = best.as_ref().is_none_or(|(len, distance, _)| rank < (*len, *distance));
        if better && sizes.fits(node, slot, &separator) {
            best = Some((rank.0, rank.1, SplitPoint { slot, separator }));
        }
    }
    match best {
        Some((_, _, point)) => Ok(point),
        None => Err(Malformed { what: "a node whose entries are over their limit" }),
    }
}

/// The key that would part `slot` from the one before: in a leaf the shortest that does.
fn separator_at(node: &Node<'_>, slot: usize) -> Result<Vec<u8>, Malformed> {
    let key = node.key(slot)?;
    let len = match node.is_leaf() {
        true => (common_prefix(node.key(slot - 1)?, key) + 1).min(key.len()),
        false => key.len(),
    };
    Ok([node.prefix(), &key[..len]].concat())
}

/// The shortest key above `left` and not above `right`.
pub(crate) fn shortest_separator<'k>(left: &[u8], right: &'k [u8]) -> &'k [u8] {
    &right[..(common_prefix(left, right) + 1).min(right.len())]
}

/// Bytes of entries up to each slot.
struct Sizes {
    sums: Vec<usize>,
}

impl Sizes {
    fn of(node: &Node<'_>) -> Result<Sizes, Malformed> {
        let mut sums = Vec::with_capacity(node.count() + 1);
        let mut sum = 0;
        sums.push(0);
        for at in 0..node.count() {
            node.entry(at)?;
            sum += SLOT_LEN + node.slot(at).len();
            sums.push(sum);
        }
        // What the limits of keys and entries promise (`max_key_len`, `max_entry_len`).
        match (node.is_leaf(), node.count()) {
            (true, 0..3) => Err(Malformed { what: "a full leaf that has fewer than three entries" }),
            (false, 0..4) => Err(Malformed { what: "a full inner node that has fewer than four separators" }),
            _ => Ok(Sizes { sums }),
        }
    }

    /// Whether both sides fit a page, with their new fences and prefixes.
    fn fits(&self, node: &Node<'_>, slot: usize, separator: &[u8]) -> bool {
        let count = node.count();
        let from = if node.is_leaf() { slot } else { slot + 1 };
        let high_len = node.high().map_or(0, <[u8]>::len);
        let side = |range: std::ops::Range<usize>, fences: usize, prefix_len: usize| {
            let saved = range.len() * prefix_len.saturating_sub(node.prefix().len());
            HEADER_LEN + fences + self.sums[range.end] - self.sums[range.start] - saved <= node.page_size()
        };
        side(0..slot, node.low().len() + separator.len(), common_prefix(node.low(), separator))
            && side(from..count, separator.len() + high_len, prefix_between(separator, node.high()))
    }
}

/// Bytes that `left` would use if it took over all of `right`, its neighbour.
pub(crate) fn merged_len(left: &Node<'_>, right: &Node<'_>) -> usize {
    let prefix_len = prefix_between(left.low(), right.high());
    let grown = |node: &Node<'_>| node.used() + node.count() * node.prefix().len().saturating_sub(prefix_len);
    let pulled_down = match left.is_leaf() {
        true => 0,
        false => SLOT_LEN + right.low().len().saturating_sub(prefix_len) + 8,
    };
    HEADER_LEN
        + left.low().len()
        + right.high().map_or(0, <[u8]>::len)
        + grown(left)
        + grown(right)
        + pulled_down
}
