//! Finding keys and children in a node.

use super::head_of;
use super::layout::{Node, SHORT, Slot, malformed};
use firndb_base::PageId;
use firndb_base::codec::Malformed;
use std::cmp::Ordering;

/// How two keys order. Keys are short: most are decided by a load or two, without a call.
#[inline]
pub(super) fn order(a: &[u8], b: &[u8]) -> Ordering {
    let shared = a.len().min(b.len());
    let word = |key: &[u8], at: usize| key[at..].first_chunk().map_or(0, |word| u64::from_be_bytes(*word));
    if shared < 8 {
        return a.cmp(b);
    }
    let mut at = 0;
    loop {
        // The last word ends with the shorter key; it may begin with bytes that are known to be
        // equal.
        let start = at.min(shared - 8);
        let (x, y) = (word(a, start), word(b, start));
        if x != y {
            return x.cmp(&y);
        }
        at += 8;
        if at >= shared {
            return a.len().cmp(&b.len());
        }
    }
}

/// The head of what `key` has from byte `at` on.
#[inline]
fn head_behind(key: &[u8], at: usize) -> u32 {
    let missing = (at + 4).saturating_sub(key.len());
    match (missing, key.last_chunk::<4>()) {
        (0, _) => head_of(&key[at..]),
        // The last bytes of the key, less those before `at`.
        (1..4, Some(last)) => u32::from_be_bytes(*last) << (8 * missing),
        _ => head_of(key.get(at..).unwrap_or_default()),
    }
}

/// The child that holds a key found at, or missing before, a slot.
fn child_behind(found: Result<usize, usize>) -> usize {
    match found {
        Ok(slot) => slot + 1,
        Err(slot) => slot,
    }
}

impl<'a> Node<'a> {
    /// The slot of `key`, or the one it would take.
    #[inline]
    pub(crate) fn search(&self, key: &[u8]) -> Result<Result<usize, usize>, Malformed> {
        let prefix = self.prefix();
        match key.starts_with(prefix) {
            true => self.search_behind(key, prefix.len()),
            // Keys of other nodes only: before all keys here or after them.
            false => Ok(Err(if key < prefix { 0 } else { self.count() })),
        }
    }

    /// As [`Node::search`], for a key whose first `known` bytes are the node's prefix.
    #[inline(always)]
    fn search_behind(&self, key: &[u8], known: usize) -> Result<Result<usize, usize>, Malformed> {
        let mut at = known;
        let common_len = self.common_len();
        if common_len > 0 {
            let (common, stored) = (self.common()?, key.get(known..).unwrap_or_default());
            if !stored.starts_with(common) {
                return Ok(Err(if stored < common { 0 } else { self.count() }));
            }
            at += common_len;
        }
        let head = head_behind(key, at);
        // Without a branch that depends on a key.
        let from = self.slots().partition_point(|slot| Slot::head_in(slot) < head);
        match self.slots().get(from) {
            Some(slot) if Slot::head_in(slot) == head => {
                self.search_from(from, head, key.get(at..).unwrap_or_default())
            }
            _ => Ok(Err(from)),
        }
    }

    /// Finds a key among those with its head, of which slot `from` is the first; `rest` is what
    /// follows the bytes that all keys have in common. Mostly there is one.
    #[inline(never)]
    fn search_from(
        &self,
        mut from: usize,
        head: u32,
        rest: &[u8],
    ) -> Result<Result<usize, usize>, Malformed> {
        let (mut at, mut to) = (from, self.count());
        while from < to {
            let slot = self.slot(at);
            if slot.head != head {
                to = at;
            } else {
                match self.compare_beyond_head(at, slot.key_len, rest)? {
                    Ordering::Less => from = at + 1,
                    Ordering::Greater => to = at,
                    Ordering::Equal => return Ok(Ok(at)),
                }
            }
            at = (from + to) / 2;
        }
        Ok(Err(from))
    }

    /// How the key of slot `at`, of `len` bytes, compares to one with the same head. Of that key
    /// `rest` is what follows the bytes that all keys have in common.
    #[inline]
    fn compare_beyond_head(&self, at: usize, len: usize, rest: &[u8]) -> Result<Ordering, Malformed> {
        let Some(beyond) = len.checked_sub(self.common_len()) else {
            return malformed(SHORT);
        };
        if beyond <= 4 && rest.len() <= 4 {
            // Equal up to the zeros that fill the shorter one up.
            return Ok(beyond.cmp(&rest.len()));
        }
        Ok(order(&self.key(at)?[len - beyond..], rest))
    }

    /// Index of the child that holds `key`: 0 is the first child, i the child of slot i - 1.
    pub(crate) fn child_index(&self, key: &[u8]) -> Result<usize, Malformed> {
        self.search(key).map(child_behind)
    }

    /// As [`Node::child_index`], for a key between the node's fences: it begins with what they have
    /// in common.
    #[inline(always)]
    pub(crate) fn child_index_within(&self, key: &[u8]) -> Result<usize, Malformed> {
        self.search_behind(key, self.prefix().len()).map(child_behind)
    }

    /// Index of the child that holds the greatest keys below `key`.
    pub(crate) fn child_index_below(&self, key: &[u8]) -> Result<usize, Malformed> {
        Ok(match self.search(key)? {
            Ok(slot) | Err(slot) => slot,
        })
    }

    /// The page of child `index`.
    #[inline]
    pub(crate) fn child(&self, index: usize) -> Result<PageId, Malformed> {
        if self.is_leaf() {
            return malformed("a leaf has no children");
        }
        if index == 0 {
            return Ok(PageId(self.first_child()));
        }
        match self.value(index - 1)?.try_into() {
            Ok(bytes) => Ok(PageId(u64::from_le_bytes(bytes))),
            Err(_) => malformed("a child pointer that is not eight bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::order;
    use firndb_base::rng::Rng;

    #[test]
    fn keys_order_as_bytes_do() {
        let mut rng = Rng::new(5);
        for _ in 0..20_000 {
            let key = |rng: &mut Rng| -> Vec<u8> {
                (0..rng.below(28)).map(|_| [0, 1, 0x7f, 0xff][rng.below(100) as usize / 97]).collect()
            };
            let (a, b) = (key(&mut rng), key(&mut rng));
            assert_eq!(order(&a, &b), a.cmp(&b), "{a:?} {b:?}");
        }
    }
}
