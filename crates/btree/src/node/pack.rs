//! Writing a node from its beginning: entries in key order, no gaps, free bytes zero.
//!
//! Everything that moves a fence or compacts goes through [`Packer`], so that a page's bytes depend
//! on nothing but its contents and the records applied since it was last packed.

use super::layout::malformed;
use super::layout::{
    FLAG_CONDEMNED, FLAG_OPEN, FORMAT, MAX_LEVEL, Node, SHORT, SLOT_LEN, Shape, Slot, field,
};
use super::{HEAD_LEN, HEADER_LEN, common_prefix, head_of, prefix_between};
use firndb_base::codec::{Malformed, Reader, Writer};

/// Fills a page with a node's entries, in key order.
pub(crate) struct Packer<'p> {
    page: &'p mut [u8],
    prefix_len: usize,
    count: usize,
    heap_start: usize,
    low_len: usize,
    high_len: usize,
    open: bool,
    inner: bool,
    last: Slot,
}

impl<'p> Packer<'p> {
    /// Begins to overwrite `page` with a node; [`Packer::finish`] clears what no entry covers.
    pub(crate) fn start(page: &'p mut [u8], shape: &Shape<'_>) -> Result<Packer<'p>, Malformed> {
        let high = shape.high.unwrap_or_default();
        if page.len() > 1 << 16 || HEADER_LEN + shape.low.len() + high.len() > page.len() {
            return malformed("fences too long for the page");
        }
        if shape.level > MAX_LEVEL || shape.high.is_some_and(|high| high <= shape.low) {
            return malformed("a level over the limit, or fences out of order");
        }
        if (shape.level == 0) != (shape.first_child == 0) {
            return malformed("a leaf with a child, or an inner node without");
        }
        page[..HEADER_LEN].fill(0);
        let prefix_len = prefix_between(shape.low, shape.high);
        let high_start = HEADER_LEN + shape.low.len();
        page[field::FORMAT] = FORMAT;
        page[field::LEVEL] = shape.level;
        page[field::FLAGS] = if shape.high.is_none() { FLAG_OPEN } else { 0 }
            | if shape.condemned { FLAG_CONDEMNED } else { 0 };
        put_half(page, field::PREFIX_LEN, prefix_len);
        put_half(page, field::LOW_LEN, shape.low.len());
        put_half(page, field::HIGH_LEN, high.len());
        page[field::TREE..field::TREE + 4].copy_from_slice(&shape.tree.0.to_le_bytes());
        page[field::FIRST_CHILD..HEADER_LEN].copy_from_slice(&shape.first_child.to_le_bytes());
        page[HEADER_LEN..high_start].copy_from_slice(shape.low);
        page[high_start..high_start + high.len()].copy_from_slice(high);
        Ok(Packer {
            prefix_len,
            count: 0,
            heap_start: page.len(),
            low_len: shape.low.len(),
            high_len: high.len(),
            open: shape.high.is_none(),
            inner: shape.level > 0,
            last: Slot { offset: 0, key_len: 0, value_len: 0, head: 0 },
            page,
        })
    }

    fn slots_start(&self) -> usize {
        HEADER_LEN + self.low_len + self.high_len
    }

    /// Adds an entry whose key is `front` and `back` together, less the node's prefix.
    fn push_parts(&mut self, front: &[u8], back: &[u8], value: &[u8]) -> Result<(), Malformed> {
        let (key_len, len) = (front.len() + back.len(), front.len() + back.len() + value.len());
        let slot_at = self.slots_start() + self.count * SLOT_LEN;
        if slot_at + SLOT_LEN + len > self.heap_start {
            return malformed("entries too long for the page");
        }
        if self.inner && value.len() != 8 {
            return malformed("a child pointer that is not eight bytes");
        }
        let offset = self.heap_start - len;
        let (key, rest) = self.page[offset..self.heap_start].split_at_mut(key_len);
        key[..front.len()].copy_from_slice(front);
        key[front.len()..].copy_from_slice(back);
        rest.copy_from_slice(value);
        let offset_or_zero = if len == 0 { 0 } else { offset };
        // The head follows when all keys are known.
        let slot = Slot { offset: offset_or_zero, key_len, value_len: value.len(), head: 0 };
        let ascends = self.count == 0 || {
            let last = self.last.offset..self.last.offset + self.last.key_len;
            self.page[last] < self.page[offset..offset + key_len]
        };
        if !ascends {
            return malformed("keys out of order");
        }
        self.page[slot_at..slot_at + SLOT_LEN].copy_from_slice(&slot.encode());
        self.last = slot;
        self.count += 1;
        self.heap_start = offset;
        Ok(())
    }

    /// Adds an entry by its key less this node's prefix.
    pub(crate) fn push_stored(&mut self, stored: &[u8], value: &[u8]) -> Result<(), Malformed> {
        self.push_parts(&[], stored, value)
    }

    /// Adds an entry by its key as another node stores it.
    pub(crate) fn push_from(&mut self, prefix: &[u8], stored: &[u8], value: &[u8]) -> Result<(), Malformed> {
        let (front, back) = cut(prefix, stored, self.prefix_len)?;
        let own = &self.page[HEADER_LEN..HEADER_LEN + self.prefix_len];
        let shared = prefix.len().min(own.len());
        if own[..shared] != prefix[..shared] || !stored.starts_with(&own[shared..]) {
            return malformed("a key without its node's prefix");
        }
        self.push_parts(front, back, value)
    }

    /// Clears the gap between slots and heap, and writes heads and the header's counts. Refuses
    /// keys outside the fences.
    pub(crate) fn finish(self) -> Result<(), Malformed> {
        let slots_start = self.slots_start();
        let Packer { page, heap_start, count, .. } = self;
        page[slots_start + count * SLOT_LEN..heap_start].fill(0);
        put_half(page, field::COUNT, count);
        put_half(page, field::HEAP_LEN, page.len() - heap_start);
        if count > 0 {
            let high_start = HEADER_LEN + self.low_len;
            let low = &page[HEADER_LEN + self.prefix_len..high_start];
            let high = if self.open { &[] } else { &page[high_start + self.prefix_len..slots_start] };
            let first = Slot::decode(page[slots_start..].first_chunk().expect("a page holds a slot"));
            let first = &page[first.offset..first.offset + first.key_len];
            let last = &page[self.last.offset..self.last.offset + self.last.key_len];
            // A separator equal to the low fence would leave no keys to the first child.
            let below = if self.inner { first <= low } else { first < low };
            if below || (!self.open && last >= high) {
                return malformed("keys outside the node's fences");
            }
            // Keys ascend: what the first and the last have in common, all have. Heads leave no
            // more out than they have to, so that few inserts change it.
            let common_len = common_prefix(first, last).min(first.len().saturating_sub(HEAD_LEN));
            return put_heads(page, slots_start, count, common_len);
        }
        Ok(())
    }
}

/// Writes the heads of all slots, whose keys have their first `common_len` bytes in common.
pub(super) fn put_heads(
    page: &mut [u8],
    slots_start: usize,
    count: usize,
    common_len: usize,
) -> Result<(), Malformed> {
    put_half(page, field::COMMON_LEN, common_len);
    for at in (0..count).map(|at| slots_start + at * SLOT_LEN) {
        let slot = Slot::decode(page[at..].first_chunk().expect("a slot within the page"));
        let Some(key) = page.get(slot.offset + common_len..slot.offset + slot.key_len) else {
            return malformed(SHORT);
        };
        let head = Slot::encode_head(head_of(key));
        page[at + Slot::HEAD_AT..at + SLOT_LEN].copy_from_slice(&head);
    }
    Ok(())
}

/// Takes `drop` bytes off the start of `prefix` and `stored` together.
fn cut<'a>(prefix: &'a [u8], stored: &'a [u8], drop: usize) -> Result<(&'a [u8], &'a [u8]), Malformed> {
    if drop <= prefix.len() {
        return Ok((&prefix[drop..], stored));
    }
    match stored.get(drop - prefix.len()..) {
        Some(back) => Ok((&[], back)),
        None => malformed("a key shorter than its node's prefix"),
    }
}

pub(super) fn put_half(page: &mut [u8], at: usize, value: usize) {
    debug_assert!(value <= usize::from(u16::MAX));
    page[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
}

/// Entries as records carry them: a count, then for each the lengths of stored key and value, and
/// both.
#[derive(Debug, Default)]
pub(crate) struct EntryList {
    count: usize,
    bytes: Vec<u8>,
}

impl EntryList {
    /// Entries `range` of `node`, less a prefix of `prefix_len` bytes.
    pub(crate) fn of(
        node: &Node<'_>,
        range: std::ops::Range<usize>,
        prefix_len: usize,
    ) -> Result<EntryList, Malformed> {
        let mut list = EntryList::default();
        list.extend(node, range, prefix_len)?;
        Ok(list)
    }
    /// Adds entries `range` of `node`, less a prefix of `prefix_len` bytes.
    pub(crate) fn extend(
        &mut self,
        node: &Node<'_>,
        range: std::ops::Range<usize>,
        prefix_len: usize,
    ) -> Result<(), Malformed> {
        for at in range {
            let (stored, value) = node.entry(at)?;
            let (front, back) = cut(node.prefix(), stored, prefix_len)?;
            self.push(front, back, value);
        }
        Ok(())
    }
    /// Adds an entry whose stored key is `front` and `back` together.
    pub(crate) fn push(&mut self, front: &[u8], back: &[u8], value: &[u8]) {
        self.count += 1;
        self.bytes.put_varint((front.len() + back.len()) as u64);
        self.bytes.put_varint(value.len() as u64);
        self.bytes.put(front);
        self.bytes.put(back);
        self.bytes.put(value);
    }
    /// As records carry it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.count as u64);
        out.put(&self.bytes);
    }
}

/// Adds the entries of an encoded list to `packer`, whose prefix they were encoded for.
pub(crate) fn push_list(packer: &mut Packer<'_>, list: &[u8]) -> Result<(), Malformed> {
    let mut reader = Reader::new(list);
    let count = reader.varint_max(usize::from(u16::MAX))?;
    for _ in 0..count {
        let key_len = reader.varint_max(usize::from(u16::MAX))?;
        let value_len = reader.varint_max(usize::from(u16::MAX))?;
        let stored = reader.bytes(key_len)?;
        packer.push_stored(stored, reader.bytes(value_len)?)?;
    }
    match reader.is_empty() {
        true => Ok(()),
        false => malformed("bytes after a list of entries"),
    }
}

/// Rewrites the node with entries `0..keep` of its own and those of `list`, below a new high fence.
pub(crate) fn repack(
    page: &mut [u8],
    high: Option<&[u8]>,
    keep: usize,
    list: Option<&[u8]>,
) -> Result<(), Malformed> {
    let old = page.to_vec();
    let node = Node::new(&old)?;
    if keep > node.count() {
        return malformed("a slot beyond a node's count");
    }
    let mut packer = Packer::start(page, &Shape { high, ..node.shape() })?;
    for at in 0..keep {
        let (stored, value) = node.entry(at)?;
        packer.push_from(node.prefix(), stored, value)?;
    }
    if let Some(list) = list {
        push_list(&mut packer, list)?;
    }
    packer.finish()
}

/// Gathers the free bytes of a node in one gap.
pub(super) fn compact(page: &mut [u8]) -> Result<(), Malformed> {
    let hints = (page[field::RUN], [page[field::LAST_INSERT], page[field::LAST_INSERT + 1]]);
    let (count, high) = {
        let node = Node::new(page)?;
        (node.count(), node.high().map(<[u8]>::to_vec))
    };
    repack(page, high.as_deref(), count, None)?;
    page[field::RUN] = hints.0;
    page[field::LAST_INSERT..field::LAST_INSERT + 2].copy_from_slice(&hints.1);
    Ok(())
}
