//! A node: a slotted page, as bytes.
//!
//! Drawn byte by byte in `docs/format/tree.md`. In short, from low to high addresses:
//!
//! ```text
//! | header 32 B | low fence | high fence | slots 10 B each, in key order -> | free | <- heap of entries |
//! ```
//!
//! The low fence begins with the node's prefix and follows the header, so that a search that reads
//! both touches one cache line.
//!
//! Invariants, which [`validate::validate`] walks one by one:
//! 1. header, fences, slots and heap fit the page;
//! 2. every key is at or above the low fence and below the high one (no high fence: the node is the
//!    rightmost of its level); the low fence is empty on the leftmost node only;
//! 3. the node's prefix is the common prefix of its fences, all keys share it, and no slot stores
//!    it;
//! 4. keys ascend strictly; all stored keys begin with the same bytes up to the common length, and
//!    a slot's head is the four bytes of its key behind them;
//! 5. entries lie in the heap and do not overlap; heap bytes that belong to no entry are counted
//!    dead;
//! 6. in an inner node every value is a child's page number. The first child holds keys below the
//!    first separator, the child of slot i those from separator i up to the next.
//!
//! Bytes come from devices: [`Node::new`] checks the header in constant time, which makes the slot
//! array and the fences safe to read; what a slot points to is checked when it is read. So nothing
//! here panics or reads past the page whatever the bytes are, at the price of one comparison an
//! access.

pub(crate) mod edit;
pub(crate) mod layout;
pub(crate) mod pack;
mod search;
pub(crate) mod split;
pub(crate) mod validate;

#[cfg(test)]
mod head_tests;
#[cfg(test)]
mod tests;

pub(crate) use layout::{GIVEN_UP, HEAD_LEN, HEADER_LEN, MAX_LEVEL, Node, NodeParts, SLOT_LEN, Shape};

/// How many bytes two keys have in common at their start.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// Length of the prefix that a node with these fences does not store.
pub(crate) fn prefix_between(low: &[u8], high: Option<&[u8]>) -> usize {
    high.map_or(0, |high| common_prefix(low, high))
}

/// First four bytes of a stored key behind what all have in common, big-endian and filled up with
/// zeros: where the heads of two keys differ, they order as the keys do.
#[inline]
pub(crate) fn head_of(key: &[u8]) -> u32 {
    match key.first_chunk::<4>() {
        Some(head) => u32::from_be_bytes(*head),
        None => key.iter().zip([24, 16, 8]).fold(0, |head, (byte, shift)| head | u32::from(*byte) << shift),
    }
}

/// Longest key, in bytes. An eighth of the page: two fences and four separators fit any inner node.
pub(crate) fn max_key_len(page_size: usize) -> usize {
    page_size / 8
}

/// Longest key and value together, in bytes: three of them fit any leaf, whatever its fences are.
/// So a leaf without space for one more has at least three entries, and either half of a split has
/// space for it.
pub(crate) fn max_entry_len(page_size: usize) -> usize {
    (page_size - HEADER_LEN - 2 * max_key_len(page_size)) / 3 - SLOT_LEN
}
