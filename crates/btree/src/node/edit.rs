//! Changing single entries of a node in place.
//!
//! Every function here is called at run time and by redo with the same arguments and must leave the
//! same bytes both times. Each checks its arguments and what it touches first and changes nothing
//! on an error, except those said to repack the page.

use super::layout::malformed;
use super::layout::{FLAG_CONDEMNED, Node, SHORT, SLOT_LEN, Slot, field};
use super::pack::{compact, put_half, put_heads};
use super::search::order;
use super::{HEAD_LEN, HEADER_LEN, common_prefix, head_of};
use firndb_base::PageId;
use firndb_base::codec::Malformed;
use firndb_buffer::{ByteRanges, Changed};
use std::ops::Range;

/// Which kind of node a change is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Leaf,
    Inner,
}

impl Level {
    /// Refuses a node of the other kind.
    #[inline]
    pub(crate) fn check(self, node: &Node<'_>) -> Result<(), Malformed> {
        match node.is_leaf() == (self == Level::Leaf) {
            true => Ok(()),
            false => malformed("a record for another kind of node than its page holds"),
        }
    }

    /// Reads a page as such a node.
    #[inline]
    fn node(self, page: &[u8]) -> Result<Node<'_>, Malformed> {
        let node = Node::new(page)?;
        self.check(&node)?;
        Ok(node)
    }
}

/// Byte ranges in the form the buffer takes them. The end of a 64 KiB page does not fit its type.
#[inline]
fn ranges<const N: usize>(parts: [Range<usize>; N]) -> Changed {
    let mut list = ByteRanges::default();
    for part in parts {
        match (u16::try_from(part.start), u16::try_from(part.end)) {
            (Ok(start), Ok(end)) if start < end => list.push(start..end),
            (Ok(_), Ok(_)) => {}
            _ => return Changed::Most,
        }
    }
    Changed::Ranges(list)
}

fn span(part: Range<usize>) -> Changed {
    ranges::<1>([part; 1])
}

/// Bytes of slots `at` up to `end`, where the slots start at byte `base`.
fn slot_range(base: usize, at: usize, end: usize) -> Range<usize> {
    base + at * SLOT_LEN..base + end * SLOT_LEN
}

fn write_slot(page: &mut [u8], base: usize, at: usize, slot: Slot) {
    page[slot_range(base, at, at + 1)].copy_from_slice(&slot.encode());
}

/// Whether an entry may be inserted at `at`: the slot, the order of keys and the space for it.
/// Returns whether the page must be compacted first, and how many bytes heads leave out then.
pub(crate) fn check_insert(
    node: &Node<'_>,
    at: usize,
    stored: &[u8],
    value_len: usize,
) -> Result<(bool, usize), Malformed> {
    let len = stored.len() + value_len;
    if at > node.count() || len > usize::from(u16::MAX) {
        return malformed("an insert beyond a node's slots or of an over-long entry");
    }
    if SLOT_LEN + len > node.free() {
        return malformed("an insert into a node without space for it");
    }
    let prefix_len = node.prefix().len();
    let left = at.checked_sub(1).map(|left| node.key(left)).transpose()?;
    let right = (at < node.count()).then(|| node.key(at)).transpose()?;
    let above_left = match left {
        None if node.is_leaf() => stored >= &node.low()[prefix_len..],
        None => stored > &node.low()[prefix_len..],
        Some(left) => order(left, stored).is_lt(),
    };
    let below_right = match (right, node.high()) {
        (Some(right), _) => order(stored, right).is_lt(),
        (None, Some(high)) => stored < &high[prefix_len..],
        (None, None) => true,
    };
    if !above_left || !below_right {
        return malformed("an insert out of key order");
    }
    let common_len = match (left, right) {
        (None, None) => stored.len().saturating_sub(HEAD_LEN),
        // A key between two has what they have in common.
        (Some(_), Some(_)) if stored.len() >= node.common_len() => node.common_len(),
        (Some(neighbour), _) | (None, Some(neighbour)) => common_len_with(node, neighbour, stored)?,
    };
    Ok((SLOT_LEN + len > node.gap(), common_len))
}

/// Bytes that all stored keys have in common with a new one at an end; `neighbour` is the key
/// there.
#[inline]
fn common_len_with(node: &Node<'_>, neighbour: &[u8], stored: &[u8]) -> Result<usize, Malformed> {
    let Some(common) = neighbour.get(..node.common_len()) else { return malformed(SHORT) };
    if common.is_empty() || stored.starts_with(common) {
        return Ok(common.len());
    }
    // Every head is going to change: its key must be one.
    let reaches = |at| node.key(at).is_ok_and(|key| key.len() >= common.len());
    match (0..node.count()).all(reaches) {
        true => Ok(common_prefix(common, stored)),
        false => malformed(SHORT),
    }
}

/// Inserts an entry before slot `at`. Compacts if the free bytes lie scattered. All heads change if
/// the key has less in common with the others than they among themselves.
pub(crate) fn insert(
    page: &mut [u8],
    level: Level,
    at: usize,
    stored: &[u8],
    value: &[u8],
) -> Result<Changed, Malformed> {
    let mut node = level.node(page)?;
    let (scattered, mut common_len) = check_insert(&node, at, stored, value.len())?;
    if scattered {
        compact(page)?;
        node = Node::new(page)?;
        common_len = check_insert(&node, at, stored, value.len())?.1;
    }
    let len = stored.len() + value.len();
    if SLOT_LEN + len > node.gap() {
        return malformed("a node whose dead bytes are miscounted");
    }
    let moves_heads = common_len != node.common_len();
    let (base, count, run) = (node.slots_start(), node.count(), node.run());
    let (heap_len, end) = (node.half(field::HEAP_LEN), node.heap_start());
    let offset = end - len;
    page[offset..offset + stored.len()].copy_from_slice(stored);
    page[offset + stored.len()..end].copy_from_slice(value);
    let moved = slot_range(base, at, count);
    page.copy_within(moved.clone(), moved.start + SLOT_LEN);
    let slot = Slot {
        offset: if len == 0 { 0 } else { offset },
        key_len: stored.len(),
        value_len: value.len(),
        head: head_of(&stored[common_len..]),
    };
    write_slot(page, base, at, slot);
    if moves_heads {
        put_heads(page, base, count + 1, common_len)?;
    }
    put_half(page, field::COUNT, count + 1);
    put_half(page, field::HEAP_LEN, heap_len + len);
    page[field::RUN] = next_run(run, at) as u8;
    put_half(page, field::LAST_INSERT, at);
    Ok(match scattered {
        true => Changed::Most,
        false => {
            let first = if moves_heads { 0 } else { at };
            ranges([0..HEADER_LEN, slot_range(base, first, count + 1), offset..end])
        }
    })
}

/// The hint for splits: how many inserts followed one another in adjacent slots, and in which
/// direction.
fn next_run((last, run): (usize, i8), at: usize) -> i8 {
    if run > 0 && at == last + 1 {
        run.saturating_add(1)
    } else if run < 0 && at == last {
        run.saturating_sub(1)
    } else if run == 1 && at == last {
        // A single insert has no direction yet.
        -2
    } else {
        1
    }
}

/// Whether slot `at` may get a value of `value_len` bytes. Returns whether the page must be
/// compacted first.
pub(crate) fn check_replace(node: &Node<'_>, at: usize, value_len: usize) -> Result<bool, Malformed> {
    let (stored, old) = node.entry(at)?;
    if stored.len() + value_len > usize::from(u16::MAX) {
        return malformed("an over-long value");
    }
    check_release(node, node.slot(at))?;
    if value_len <= old.len() {
        return Ok(false);
    }
    if stored.len() + value_len > node.free() + stored.len() + old.len() {
        return malformed("a value too long for its node");
    }
    Ok(stored.len() + value_len > node.gap())
}

/// Replaces the value of slot `at`. Compacts if a longer value finds the free bytes scattered.
pub(crate) fn replace(page: &mut [u8], at: usize, value: &[u8]) -> Result<Changed, Malformed> {
    let node = Level::Leaf.node(page)?;
    let scattered = check_replace(&node, at, value.len())?;
    let slot = node.slot(at);
    if value.len() <= slot.value_len {
        let base = node.slots_start();
        return Ok(overwrite(page, base, at, slot, value));
    }
    if scattered {
        return replace_compacting(page, at, value);
    }
    release(page, slot)?;
    let node = Node::new(page)?;
    let (base, heap_len, end) = (node.slots_start(), node.half(field::HEAP_LEN), node.heap_start());
    let len = slot.key_len + value.len();
    let offset = end - len;
    // The old and the new place may overlap; the key moves first.
    page.copy_within(slot.offset..slot.offset + slot.key_len, offset);
    page[offset + slot.key_len..end].copy_from_slice(value);
    write_slot(page, base, at, Slot { offset, value_len: value.len(), ..slot });
    put_half(page, field::HEAP_LEN, heap_len + len);
    Ok(ranges([0..HEADER_LEN, slot_range(base, at, at + 1), offset..end]))
}

/// Removes the entry, gathers the free bytes, and inserts it again with its new value.
fn replace_compacting(page: &mut [u8], at: usize, value: &[u8]) -> Result<Changed, Malformed> {
    let node = Node::new(page)?;
    let (stored, (last_insert, run)) = (node.key(at)?.to_vec(), node.run());
    remove(page, Level::Leaf, at)?;
    compact(page)?;
    insert(page, Level::Leaf, at, &stored, value)?;
    page[field::RUN] = run as u8;
    put_half(page, field::LAST_INSERT, last_insert);
    Ok(Changed::Most)
}

/// Writes a value over one at least as long.
fn overwrite(page: &mut [u8], base: usize, at: usize, slot: Slot, value: &[u8]) -> Changed {
    let start = slot.offset + slot.key_len;
    page[start..start + value.len()].copy_from_slice(value);
    if value.len() == slot.value_len {
        return span(start..start + value.len());
    }
    let dead = usize::from(u16::from_le_bytes([page[field::DEAD], page[field::DEAD + 1]]));
    put_half(page, field::DEAD, dead + slot.value_len - value.len());
    let offset = if slot.key_len + value.len() == 0 { 0 } else { slot.offset };
    write_slot(page, base, at, Slot { offset, value_len: value.len(), ..slot });
    ranges([0..HEADER_LEN, slot_range(base, at, at + 1), start..start + value.len()])
}

/// Counts an entry's heap bytes as free.
fn release(page: &mut [u8], slot: Slot) -> Result<(), Malformed> {
    let node = Node::new(page)?;
    let (heap_len, dead) = (node.half(field::HEAP_LEN), node.dead());
    check_release(&node, slot)?;
    if slot.len() > 0 && slot.offset == node.heap_start() {
        put_half(page, field::HEAP_LEN, heap_len - slot.len());
    } else {
        put_half(page, field::DEAD, dead + slot.len());
    }
    Ok(())
}

/// Bytes written into a value: where in it, and what.
pub(crate) type Patch<'a> = (usize, &'a [u8]);

/// Whether patches that end at byte `end` lie within the value of slot `at`.
pub(crate) fn check_patch(node: &Node<'_>, at: usize, end: usize) -> Result<(), Malformed> {
    match end <= node.value(at)?.len() {
        true => Ok(()),
        false => malformed("a patch beyond its value"),
    }
}

/// Overwrites parts of the value of slot `at`; nothing moves. A patch beyond the value is an error,
/// with those before it made.
pub(crate) fn patch<'a>(
    page: &mut [u8],
    at: usize,
    patches: impl Iterator<Item = Patch<'a>>,
) -> Result<Changed, Malformed> {
    let node = Level::Leaf.node(page)?;
    let (_, value) = node.entry(at)?;
    let slot = node.slot(at);
    let (start, len) = (slot.offset + slot.key_len, value.len());
    let mut list = ByteRanges::default();
    let mut narrow = true;
    for (offset, bytes) in patches {
        if offset + bytes.len() > len {
            return malformed("a patch beyond its value");
        }
        let range = start + offset..start + offset + bytes.len();
        page[range.clone()].copy_from_slice(bytes);
        match (u16::try_from(range.start), u16::try_from(range.end)) {
            (Ok(start), Ok(end)) => list.push(start..end),
            _ => narrow = false,
        }
    }
    Ok(if narrow { Changed::Ranges(list) } else { Changed::Most })
}

/// Whether slot `at` exists and its bytes can be freed.
pub(crate) fn check_remove(node: &Node<'_>, at: usize) -> Result<(), Malformed> {
    node.entry(at)?;
    check_release(node, node.slot(at))
}

fn check_release(node: &Node<'_>, slot: Slot) -> Result<(), Malformed> {
    match slot.len() <= node.half(field::HEAP_LEN) - node.dead() {
        true => Ok(()),
        false => malformed("a node whose dead bytes are miscounted"),
    }
}

pub(crate) fn remove(page: &mut [u8], level: Level, at: usize) -> Result<Changed, Malformed> {
    let node = level.node(page)?;
    check_remove(&node, at)?;
    let (slot, base, count) = (node.slot(at), node.slots_start(), node.count());
    release(page, slot)?;
    let moved = slot_range(base, at + 1, count);
    page.copy_within(moved.clone(), moved.start - SLOT_LEN);
    put_half(page, field::COUNT, count - 1);
    if count == 1 {
        put_half(page, field::COMMON_LEN, 0);
    }
    page[field::RUN] = 0;
    Ok(ranges([0..HEADER_LEN, slot_range(base, at, count)]))
}

/// Whether an inner node has a child `index`, counted with its first child.
pub(crate) fn check_set_child(node: &Node<'_>, index: usize) -> Result<(), Malformed> {
    Level::Inner.check(node)?;
    node.child(index).map(drop)
}

/// Puts another page in the place of child `index`.
pub(crate) fn set_child(page: &mut [u8], index: usize, child: PageId) -> Result<Changed, Malformed> {
    let node = Level::Inner.node(page)?;
    check_set_child(&node, index)?;
    let at = match index.checked_sub(1).map(|slot| node.slot(slot)) {
        None => field::FIRST_CHILD,
        Some(slot) => slot.offset + slot.key_len,
    };
    page[at..at + 8].copy_from_slice(&child.0.to_le_bytes());
    Ok(span(at..at + 8))
}

/// Removes several slots, given in ascending order.
pub(crate) fn sweep(page: &mut [u8], slots: &[usize]) -> Result<Changed, Malformed> {
    let node = Level::Leaf.node(page)?;
    for (i, &at) in slots.iter().enumerate() {
        node.entry(at)?;
        if i > 0 && slots[i - 1] >= at {
            return malformed("slots out of order");
        }
    }
    let (base, count) = (node.slots_start(), node.count());
    let first = slots.first().copied().unwrap_or_default();
    for &at in slots.iter().rev() {
        remove(page, Level::Leaf, at)?;
    }
    Ok(ranges([0..HEADER_LEN, slot_range(base, first, count)]))
}

/// Marks the root of a tree that is being cleared.
pub(crate) fn condemn(page: &mut [u8]) -> Result<Changed, Malformed> {
    Node::new(page)?;
    page[field::FLAGS] |= FLAG_CONDEMNED;
    Ok(span(0..HEADER_LEN))
}
