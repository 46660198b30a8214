//! Where the header, the fences, the slots and the heap of a node lie.

use firndb_base::TreeId;
use firndb_base::codec::Malformed;

/// Bytes before the slots.
pub(crate) const HEADER_LEN: usize = 32;
/// Bytes of a slot: offset u16, stored key length u16, value length u16, head u32.
pub(crate) const SLOT_LEN: usize = 10;
/// Bytes of a key in a head.
pub(crate) const HEAD_LEN: usize = 4;
/// Levels are numbered from 0, the leaves. A tree of 2^64 pages with two children a node has 64;
/// with the four that always fit, 32.
pub(crate) const MAX_LEVEL: u8 = 31;

/// First bytes of what stands in place of a page whose changes could not be repeated and are not in
/// the log any more. The rest are zeros. No node begins so.
pub(crate) const GIVEN_UP: &[u8; 16] = b"FIRN GIVEN UP   ";
const _: () = assert!(GIVEN_UP[0] != FORMAT);
pub(super) const FORMAT: u8 = 2;
pub(super) const FLAG_OPEN: u8 = 1;
pub(super) const FLAG_CONDEMNED: u8 = 2;

/// Byte offsets of the header's fields.
pub(super) mod field {
    pub(crate) const FORMAT: usize = 0;
    pub(crate) const LEVEL: usize = 1;
    pub(crate) const FLAGS: usize = 2;
    pub(crate) const RUN: usize = 3;
    pub(crate) const COUNT: usize = 4;
    pub(crate) const PREFIX_LEN: usize = 6;
    pub(crate) const LOW_LEN: usize = 8;
    pub(crate) const HIGH_LEN: usize = 10;
    pub(crate) const HEAP_LEN: usize = 12;
    pub(crate) const DEAD: usize = 14;
    pub(crate) const LAST_INSERT: usize = 16;
    pub(crate) const COMMON_LEN: usize = 18;
    pub(crate) const TREE: usize = 20;
    pub(crate) const FIRST_CHILD: usize = 24;
}
const _: () = assert!(field::FIRST_CHILD + 8 == HEADER_LEN);

/// A key that does not begin with what all keys of its node are said to begin with.
pub(super) const SHORT: &str = "a stored key shorter than what all have in common";

pub(crate) const fn malformed<T>(what: &'static str) -> Result<T, Malformed> {
    Err(Malformed { what })
}

/// What a node is, apart from its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape<'a> {
    /// The tree that the node belongs to.
    pub(crate) tree: TreeId,
    /// 0 for a leaf.
    pub(crate) level: u8,
    /// Whether it is the root of a tree that is being cleared.
    pub(crate) condemned: bool,
    /// Least key it may hold.
    pub(crate) low: &'a [u8],
    /// Least key above all it may hold; `None`: there is no node to its right.
    pub(crate) high: Option<&'a [u8]>,
    /// Page of the leftmost child; zero in leaves.
    pub(crate) first_child: u64,
}

impl Shape<'_> {
    /// The root of an empty tree: a leaf without fences.
    pub(crate) fn empty_root(tree: TreeId) -> Shape<'static> {
        Shape { tree, level: 0, condemned: false, low: &[], high: None, first_child: 0 }
    }
}

/// One slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// Where the stored key starts, its value following; zero if both are empty.
    pub(crate) offset: usize,
    /// Bytes of the key without the node's prefix.
    pub(crate) key_len: usize,
    /// Bytes of the value.
    pub(crate) value_len: usize,
    /// First bytes of the stored key behind what all stored keys have in common.
    pub(crate) head: u32,
}

impl Slot {
    #[inline]
    pub(super) fn decode(bytes: &[u8; SLOT_LEN]) -> Slot {
        let half = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        Slot { offset: half(0), key_len: half(2), value_len: half(4), head: Slot::head_in(bytes) }
    }
    /// Where in a slot its head lies, until the slot's end.
    pub(super) const HEAD_AT: usize = SLOT_LEN - HEAD_LEN;

    pub(super) fn encode_head(head: u32) -> [u8; HEAD_LEN] {
        head.to_le_bytes()
    }
    /// The head alone.
    #[inline]
    pub(super) fn head_in(bytes: &[u8; SLOT_LEN]) -> u32 {
        u32::from_le_bytes([bytes[6], bytes[7], bytes[8], bytes[9]])
    }
    pub(super) fn encode(self) -> [u8; SLOT_LEN] {
        let mut bytes = [0; SLOT_LEN];
        bytes[0..2].copy_from_slice(&(self.offset as u16).to_le_bytes());
        bytes[2..4].copy_from_slice(&(self.key_len as u16).to_le_bytes());
        bytes[4..6].copy_from_slice(&(self.value_len as u16).to_le_bytes());
        bytes[Slot::HEAD_AT..].copy_from_slice(&Slot::encode_head(self.head));
        bytes
    }
    /// Bytes of heap it uses.
    pub(crate) fn len(&self) -> usize {
        self.key_len + self.value_len
    }
}

/// A node's bytes, its header checked.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    page: &'a [u8],
    slots: &'a [[u8; SLOT_LEN]],
    prefix_len: usize,
}

/// Where a node's parts lie, as checked once: makes the node readable again without a check while
/// its page stays latched and unchanged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeParts {
    slots_start: usize,
    count: usize,
    prefix_len: usize,
}

impl<'a> Node<'a> {
    /// The node whose parts are `parts`, which [`Node::parts`] returned for these very bytes.
    #[inline]
    pub(crate) fn at(page: &'a [u8], parts: NodeParts) -> Node<'a> {
        let slots = &page[parts.slots_start..parts.slots_start + parts.count * SLOT_LEN];
        let (slots, _) = slots.as_chunks::<SLOT_LEN>();
        let node = Node { page, slots, prefix_len: parts.prefix_len };
        debug_assert!(
            Node::new(page).is_ok_and(|new| new.slots == slots && new.prefix_len == node.prefix_len)
        );
        node
    }
    /// Where its parts lie.
    #[inline]
    pub(crate) fn parts(&self) -> NodeParts {
        NodeParts { slots_start: self.slots_start(), count: self.count(), prefix_len: self.prefix_len }
    }
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.page
    }

    /// Checks the header against the page's size; constant time.
    #[inline]
    pub(crate) fn new(page: &'a [u8]) -> Result<Node<'a>, Malformed> {
        let Some(header) = page.first_chunk::<HEADER_LEN>() else {
            return malformed("a page shorter than a node's header");
        };
        let half = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        if page.len() > 1 << 16 || header[field::FORMAT] != FORMAT || header[field::LEVEL] > MAX_LEVEL {
            return Node::of_unknown_format(page);
        }
        let slots_start = HEADER_LEN + half(field::LOW_LEN) + half(field::HIGH_LEN);
        let slots_end = slots_start + half(field::COUNT) * SLOT_LEN;
        if slots_end + half(field::HEAP_LEN) > page.len() {
            return malformed("fences, slots and heap of a node overlap");
        }
        let prefix_len = half(field::PREFIX_LEN);
        let open = header[field::FLAGS] & FLAG_OPEN != 0;
        let fences_fit = match open {
            true => prefix_len == 0 && half(field::HIGH_LEN) == 0,
            false => prefix_len <= half(field::LOW_LEN) && prefix_len <= half(field::HIGH_LEN),
        };
        if !fences_fit || half(field::DEAD) > half(field::HEAP_LEN) {
            return malformed("a node's fences or heap contradict its header");
        }
        let (slots, _) = page[slots_start..slots_end].as_chunks::<SLOT_LEN>();
        Ok(Node { page, slots, prefix_len })
    }

    #[cold]
    fn of_unknown_format(page: &[u8]) -> Result<Node<'a>, Malformed> {
        match page.starts_with(GIVEN_UP) {
            true => malformed(
                "its last changes were lost after a crash: the image that they were to be repeated on was damaged, and the \
                 log had to give them up",
            ),
            false => malformed("not a node of a known format"),
        }
    }

    #[inline]
    pub(super) fn half(&self, at: usize) -> usize {
        usize::from(u16::from_le_bytes([self.page[at], self.page[at + 1]]))
    }
    pub(crate) fn page_size(&self) -> usize {
        self.page.len()
    }
    /// 0 for a leaf.
    #[inline]
    pub(crate) fn level(&self) -> u8 {
        self.page[field::LEVEL]
    }
    /// Whether entries are rows rather than children.
    #[inline]
    pub(crate) fn is_leaf(&self) -> bool {
        self.level() == 0
    }
    /// Whether it is the root of a tree whose clearing was begun.
    #[inline]
    pub(crate) fn is_condemned(&self) -> bool {
        self.page[field::FLAGS] & FLAG_CONDEMNED != 0
    }
    /// The tree that the node belongs to.
    #[inline]
    pub(crate) fn tree(&self) -> TreeId {
        TreeId(u32::from_le_bytes(self.page[field::TREE..field::TREE + 4].try_into().expect("four bytes")))
    }
    /// Entries; in an inner node, separators, one less than children.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.slots.len()
    }
    /// Bytes of every key that slots do not store.
    #[inline]
    pub(crate) fn prefix(&self) -> &'a [u8] {
        &self.page[HEADER_LEN..HEADER_LEN + self.prefix_len]
    }
    /// Bytes at their start that all stored keys have in common, which heads leave out. There may
    /// be more.
    #[inline]
    pub(super) fn common_len(&self) -> usize {
        self.half(field::COMMON_LEN)
    }
    /// Those bytes. The node has an entry.
    #[inline]
    pub(super) fn common(&self) -> Result<&'a [u8], Malformed> {
        match (self.common_len(), self.key(0)) {
            (0, _) => Ok(&[]),
            (_, Err(error)) => Err(error),
            (len, Ok(first)) => first.get(..len).map_or_else(|| malformed(SHORT), Ok),
        }
    }
    /// Least key the node may hold.
    #[inline]
    pub(crate) fn low(&self) -> &'a [u8] {
        &self.page[HEADER_LEN..HEADER_LEN + self.half(field::LOW_LEN)]
    }
    /// Least key above the node; `None` on the rightmost.
    #[inline]
    pub(crate) fn high(&self) -> Option<&'a [u8]> {
        if self.page[field::FLAGS] & FLAG_OPEN != 0 {
            return None;
        }
        Some(&self.page[HEADER_LEN + self.half(field::LOW_LEN)..self.slots_start()])
    }
    /// Whether `key`, which is not below the node, is one that it may hold.
    #[inline]
    pub(crate) fn is_below_high(&self, key: &[u8]) -> bool {
        self.high().is_none_or(|high| key < high)
    }
    /// What it is apart from its entries.
    pub(crate) fn shape(&self) -> Shape<'a> {
        Shape {
            tree: self.tree(),
            level: self.level(),
            condemned: self.is_condemned(),
            low: self.low(),
            high: self.high(),
            first_child: self.first_child(),
        }
    }
    #[inline]
    pub(super) fn first_child(&self) -> u64 {
        u64::from_le_bytes(self.page[field::FIRST_CHILD..HEADER_LEN].try_into().expect("eight bytes"))
    }
    /// First byte of the heap, which ends with the page.
    #[inline]
    pub(super) fn heap_start(&self) -> usize {
        self.page.len() - self.half(field::HEAP_LEN)
    }
    /// First byte of the slots, after the fences.
    #[inline]
    pub(super) fn slots_start(&self) -> usize {
        HEADER_LEN + self.half(field::LOW_LEN) + self.half(field::HIGH_LEN)
    }
    /// All slots.
    #[inline]
    pub(super) fn slots(&self) -> &'a [[u8; SLOT_LEN]] {
        self.slots
    }
    #[inline]
    pub(super) fn slots_end(&self) -> usize {
        self.slots_start() + self.slots.len() * SLOT_LEN
    }
    /// Free bytes between slots and heap.
    #[inline]
    pub(crate) fn gap(&self) -> usize {
        self.heap_start() - self.slots_end()
    }
    /// Bytes of heap that no entry uses.
    #[inline]
    pub(crate) fn dead(&self) -> usize {
        self.half(field::DEAD)
    }
    /// Free bytes in all, after compaction.
    #[inline]
    pub(crate) fn free(&self) -> usize {
        self.gap() + self.dead()
    }
    /// Bytes that entries use, slots included.
    pub(crate) fn used(&self) -> usize {
        self.slots.len() * SLOT_LEN + self.half(field::HEAP_LEN) - self.dead()
    }
    /// The slot of the last insert, and how many before it continued in the same direction:
    /// positive upwards, negative downwards, zero when unknown.
    pub(crate) fn run(&self) -> (usize, i8) {
        (self.half(field::LAST_INSERT), self.page[field::RUN] as i8)
    }

    /// Slot `at`, which must be below the count.
    #[inline]
    pub(crate) fn slot(&self, at: usize) -> Slot {
        Slot::decode(&self.slots[at])
    }
    /// Stored key and value of slot `at`.
    #[inline]
    pub(crate) fn entry(&self, at: usize) -> Result<(&'a [u8], &'a [u8]), Malformed> {
        let (stored, key_len) = self.stored(at)?;
        Ok(stored.split_at(key_len))
    }
    /// Stored key of slot `at` with the value behind it, and the key's length.
    #[inline]
    pub(crate) fn stored(&self, at: usize) -> Result<(&'a [u8], usize), Malformed> {
        let Some(slot) = self.slots.get(at) else {
            return malformed("a slot beyond a node's count");
        };
        let slot = Slot::decode(slot);
        match self.page.get(slot.offset..slot.offset + slot.len()) {
            Some(bytes) => Ok((bytes, slot.key_len)),
            None => malformed("an entry that lies beyond its page"),
        }
    }
    /// Stored key of slot `at`.
    #[inline]
    pub(crate) fn key(&self, at: usize) -> Result<&'a [u8], Malformed> {
        self.entry(at).map(|(key, _)| key)
    }
    #[inline]
    pub(crate) fn value(&self, at: usize) -> Result<&'a [u8], Malformed> {
        self.entry(at).map(|(_, value)| value)
    }
    /// The whole key of slot `at`, into `key`.
    pub(crate) fn full_key(&self, at: usize, key: &mut Vec<u8>) -> Result<(), Malformed> {
        let stored = self.key(at)?;
        key.clear();
        key.extend_from_slice(self.prefix());
        key.extend_from_slice(stored);
        Ok(())
    }
}
