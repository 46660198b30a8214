//! Walking every invariant of one node.

use super::layout::malformed;
use super::layout::{FLAG_CONDEMNED, FLAG_OPEN, Node, field};
use super::{head_of, prefix_between};
use firndb_base::codec::Malformed;

/// Checks all that `node.rs` says of a node. Takes time in the order of the page's size.
pub(crate) fn validate(page: &[u8]) -> Result<(), Malformed> {
    let node = Node::new(page)?;
    if page[field::FLAGS] & !(FLAG_OPEN | FLAG_CONDEMNED) != 0 {
        return malformed("unknown flags in a node's header");
    }
    if node.is_leaf() != (node.first_child() == 0) {
        return malformed("a leaf with a child, or an inner node without");
    }
    if node.high().is_some_and(|high| high <= node.low()) {
        return malformed("fences out of order");
    }
    if node.prefix().len() != prefix_between(node.low(), node.high()) {
        return malformed("a prefix that is not what the fences share");
    }
    let common = match node.count() {
        0 if node.common_len() > 0 => return malformed("a node without keys that have something in common"),
        0 => &[],
        _ => node.common()?,
    };
    let mut places = Vec::with_capacity(node.count());
    for at in 0..node.count() {
        let slot = node.slot(at);
        let (key, value) = node.entry(at)?;
        match key.strip_prefix(common).map(head_of) {
            None => return malformed("a key that does not begin as all of its node do"),
            Some(head) if head != slot.head => return malformed("a slot whose head is not its key's"),
            Some(_) => {}
        }
        if !node.is_leaf() && (value.len() != 8 || value == [0; 8]) {
            return malformed("a child pointer that is not a page");
        }
        if at > 0 && node.key(at - 1)? >= key {
            return malformed("keys out of order");
        }
        match slot.len() {
            0 if slot.offset == 0 => {}
            0 => return malformed("an empty entry that is not at offset zero"),
            len => places.push((slot.offset, len)),
        }
    }
    check_heap(&node, places)?;
    check_fences(&node)
}

/// Entries lie in the heap, apart from each other, and with the dead bytes they fill it.
fn check_heap(node: &Node<'_>, mut places: Vec<(usize, usize)>) -> Result<(), Malformed> {
    places.sort_unstable();
    let mut end = node.heap_start();
    let mut used = 0;
    for (offset, len) in places {
        if offset < end || offset + len > node.page_size() {
            return malformed("entries that overlap or lie outside the heap");
        }
        end = offset + len;
        used += len;
    }
    match used + node.dead() == node.page_size() - node.heap_start() {
        true => Ok(()),
        false => malformed("a node whose dead bytes are miscounted"),
    }
}

fn check_fences(node: &Node<'_>) -> Result<(), Malformed> {
    let Some(last) = node.count().checked_sub(1) else {
        return Ok(());
    };
    let prefix_len = node.prefix().len();
    let low = &node.low()[prefix_len..];
    // A separator equal to the low fence would leave no keys to the first child.
    let below = if node.is_leaf() { node.key(0)? < low } else { node.key(0)? <= low };
    if below || node.high().is_some_and(|high| node.key(last).is_ok_and(|key| key >= &high[prefix_len..])) {
        return malformed("keys outside the node's fences");
    }
    Ok(())
}
