//! Finding keys and children in a node.

use super::head_of;
use super::layout::Node;
use super::layout::malformed;
use firndb_base::PageId;
use firndb_base::codec::Malformed;
use std::cmp::Ordering;

/// How two keys order. Keys are short: most are decided by a load or two, without a call.
#[inline]
fn order(a: &[u8], b: &[u8]) -> Ordering {
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

impl<'a> Node<'a> {
    /// The slot of `key`, or the one it would take.
    #[inline]
    pub(crate) fn search(&self, key: &[u8]) -> Result<Result<usize, usize>, Malformed> {
        let prefix = self.prefix();
        let Some(stored) = key.strip_prefix(prefix) else {
            // Keys of other nodes only: before all keys here or after them.
            return Ok(Err(if key < prefix { 0 } else { self.count() }));
        };
        let head = head_of(stored);
        let (mut from, mut to) = (0, self.count());
        while from < to {
            let middle = (from + to) / 2;
            let slot = self.slot(middle);
            if slot.head < head {
                from = middle + 1;
            } else if slot.head > head {
                to = middle;
            } else {
                match self.compare_beyond_head(middle, slot.key_len, stored)? {
                    Ordering::Less => from = middle + 1,
                    Ordering::Greater => to = middle,
                    Ordering::Equal => return Ok(Ok(middle)),
                }
            }
        }
        Ok(Err(from))
    }

    /// How the key of slot `at`, of `len` bytes, compares to a stored key with the same head.
    #[inline]
    fn compare_beyond_head(&self, at: usize, len: usize, stored: &[u8]) -> Result<Ordering, Malformed> {
        if len <= 4 && stored.len() <= 4 {
            // Equal up to the zeros that fill the shorter one up.
            return Ok(len.cmp(&stored.len()));
        }
        Ok(order(self.key(at)?, stored))
    }

    /// Index of the child that holds `key`: 0 is the first child, i the child of slot i - 1.
    #[inline]
    pub(crate) fn child_index(&self, key: &[u8]) -> Result<usize, Malformed> {
        Ok(match self.search(key)? {
            Ok(slot) => slot + 1,
            Err(slot) => slot,
        })
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
