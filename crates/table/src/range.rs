//! Ranges of keys.

use std::cmp::Ordering;
use std::ops::Bound;

/// The keys from one bound to another. Kept half-open: the first key in it, and the first key past
/// it.
///
/// Keys are bytes, so every bound can be said that way: the next key after `k` is `k` and a zero
/// byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRange {
    low: Option<Vec<u8>>,
    high: Option<Vec<u8>>,
}

impl KeyRange {
    #[must_use]
    pub fn all() -> KeyRange {
        KeyRange::default()
    }

    /// Keys between two bounds. An empty range is allowed.
    #[must_use]
    pub fn new(low: Bound<&[u8]>, high: Bound<&[u8]>) -> KeyRange {
        let next = |key: &[u8]| [key, &[0]].concat();
        KeyRange {
            low: match low {
                Bound::Unbounded => None,
                Bound::Included(key) => Some(key.to_vec()),
                Bound::Excluded(key) => Some(next(key)),
            },
            high: match high {
                Bound::Unbounded => None,
                Bound::Included(key) => Some(next(key)),
                Bound::Excluded(key) => Some(key.to_vec()),
            },
        }
    }

    /// Keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> KeyRange {
        KeyRange { low: Some(prefix.to_vec()), high: after_prefix(prefix) }
    }

    /// Keys between two *prefixes*, as encodings of leading columns are: an included (or excluded)
    /// bound takes in (or leaves out) every key that begins with it.
    #[must_use]
    pub fn of_prefixes(low: Bound<&[u8]>, high: Bound<&[u8]>) -> KeyRange {
        let low = match low {
            Bound::Unbounded => None,
            Bound::Included(prefix) => Some(prefix.to_vec()),
            Bound::Excluded(prefix) => match after_prefix(prefix) {
                Some(after) => Some(after),
                // Nothing lies past a prefix of 0xff bytes only.
                None => return KeyRange { low: Some(Vec::new()), high: Some(Vec::new()) },
            },
        };
        let high = match high {
            Bound::Unbounded => None,
            Bound::Included(prefix) => after_prefix(prefix),
            Bound::Excluded(prefix) => Some(prefix.to_vec()),
        };
        KeyRange { low, high }
    }

    /// The first key in it; `None`: no bound.
    #[must_use]
    pub fn low(&self) -> Option<&[u8]> {
        self.low.as_deref()
    }
    /// The first key past it; `None`: no bound.
    #[must_use]
    pub fn high(&self) -> Option<&[u8]> {
        self.high.as_deref()
    }
    /// Whether no key can be in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!((&self.low, &self.high), (Some(low), Some(high)) if low >= high)
    }
    /// Where a key lies: before the range, in it, or past it.
    #[must_use]
    pub fn place(&self, key: &[u8]) -> Ordering {
        if self.low.as_deref().is_some_and(|low| key < low) {
            Ordering::Less
        } else if self.high.as_deref().is_some_and(|high| key >= high) {
            Ordering::Greater
        } else {
            Ordering::Equal
        }
    }
}

/// The first key that is past every key with this prefix; `None` if there is none.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;

    fn random_key(rng: &mut Rng) -> Vec<u8> {
        (0..rng.below(4)).map(|_| [0, 1, 0xfe, 0xff][rng.below(4) as usize]).collect()
    }

    #[test]
    fn bounds_and_prefixes_hold_the_keys_they_say() {
        let mut rng = Rng::new(11);
        for _ in 0..50_000 {
            let (low, high, key) = (random_key(&mut rng), random_key(&mut rng), random_key(&mut rng));
            let inside = |range: KeyRange| range.place(&key) == Ordering::Equal;
            assert_eq!(
                inside(KeyRange::new(Bound::Included(&low), Bound::Excluded(&high))),
                low <= key && key < high
            );
            assert_eq!(
                inside(KeyRange::new(Bound::Excluded(&low), Bound::Included(&high))),
                low < key && key <= high
            );
            assert_eq!(inside(KeyRange::prefix(&low)), key.starts_with(&low));
            let cut = |bound: &[u8]| key[..key.len().min(bound.len())].to_vec();
            assert_eq!(
                inside(KeyRange::of_prefixes(Bound::Excluded(&low), Bound::Included(&high))),
                cut(&low) > low && cut(&high) <= high
            );
            assert_eq!(
                inside(KeyRange::of_prefixes(Bound::Included(&low), Bound::Excluded(&high))),
                cut(&low) >= low && cut(&high) < high
            );
        }
        assert!(inside_all(b""));
    }

    fn inside_all(key: &[u8]) -> bool {
        KeyRange::all().place(key) == Ordering::Equal
    }
}
