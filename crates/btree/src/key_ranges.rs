//! Ranges of keys in trees, in bounded memory: where a sweep has to go.
//!
//! A set of them may always cover more than was put in, never less. That is what bounds it: beyond
//! its limit, neighbouring ranges of one tree are joined, and where each tree has only one left, it
//! becomes the whole tree. So the memory is at most the limit, or that of one entry for each tree
//! if that is more.

use firndb_base::TreeId;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

/// Where a range of keys ends.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// With the key it begins with.
    Same,
    /// With this key, which belongs to it.
    At(Box<[u8]>),
    /// With the tree.
    Open,
}

/// Bytes of memory that a range takes beside its keys, about: its place in the map, and two
/// allocations.
const ENTRY: usize = 96;

/// Sets of at most this many bytes are checked by debug builds after each change.
const CHECKED_BYTES: usize = 64 * ENTRY;

type Ranges = BTreeMap<Box<[u8]>, End>;

/// One range: from the first key up to the second, both included; `None`: to the end of the tree.
pub type KeyRangeRef<'a> = (TreeId, &'a [u8], Option<&'a [u8]>);

/// A set of key ranges of trees that covers all that was put in, and more where it would outgrow
/// its limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRanges {
    /// Disjoint ranges of each tree, by their first keys. No tree is without one.
    trees: BTreeMap<TreeId, Ranges>,
    bytes: usize,
    limit: usize,
}

fn len(low: &[u8], end: &End) -> usize {
    ENTRY + low.len() + if let End::At(key) = end { key.len() } else { 0 }
}

/// The last key of a range; `None`: to the end of the tree.
fn last<'a>(low: &'a [u8], end: &'a End) -> Option<&'a [u8]> {
    match end {
        End::Same => Some(low),
        End::At(key) => Some(key),
        End::Open => None,
    }
}

fn ends_at(low: &[u8], high: Option<&[u8]>) -> End {
    match high {
        Some(high) if high == low => End::Same,
        Some(high) => End::At(high.into()),
        None => End::Open,
    }
}

/// Whether a range that ends with `high` reaches `key`.
fn reaches(high: Option<&[u8]>, key: &[u8]) -> bool {
    high.is_none_or(|high| high >= key)
}

impl KeyRanges {
    /// An empty set of at most `limit` bytes.
    #[must_use]
    pub const fn new(limit: usize) -> KeyRanges {
        KeyRanges { trees: BTreeMap::new(), bytes: 0, limit }
    }

    /// Whether it covers nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.trees.is_empty()
    }
    /// Bytes of memory, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    /// Bytes of memory, at most.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }
    pub fn clear(&mut self) {
        self.trees.clear();
        self.bytes = 0;
    }
    /// How many trees have ranges in it.
    #[must_use]
    pub fn trees(&self) -> usize {
        self.trees.len()
    }

    pub fn add_key(&mut self, tree: TreeId, key: &[u8]) {
        self.add(tree, key, Some(key));
    }

    /// Adds the keys from `low` up to `high`, both included; `None`: to the end of the tree.
    pub fn add(&mut self, tree: TreeId, low: &[u8], high: Option<&[u8]>) {
        debug_assert!(reaches(high, low), "a range ends behind its beginning");
        let ranges = self.trees.entry(tree).or_default();
        let mut low: Box<[u8]> = low.into();
        let mut end = ends_at(&low, high);
        let before = ranges.range::<[u8], _>((Bound::Unbounded, Bound::Included(&*low))).next_back();
        if let Some((key, had)) = before
            && reaches(last(key, had), &low)
        {
            if last(key, had).is_none_or(|had| last(&low, &end).is_some_and(|new| had >= new)) {
                return;
            }
            if matches!(end, End::Same) {
                end = End::At(low);
            }
            low = key.clone();
        }
        // What begins within the range becomes part of it.
        while let Some((key, _)) = ranges.range::<[u8], _>((Bound::Included(&*low), Bound::Unbounded)).next()
            && reaches(last(&low, &end), key)
        {
            let key = key.clone();
            let had = ranges.remove(&key).expect("found just now");
            self.bytes -= len(&key, &had);
            let longer = match (last(&key, &had), last(&low, &end)) {
                (_, None) => false,
                (None, _) => true,
                (Some(had), Some(new)) => had > new,
            };
            if longer {
                end = if matches!(had, End::Same) { End::At(key) } else { had };
            }
        }
        self.bytes += len(&low, &end);
        ranges.insert(low, end);
        if self.bytes > self.limit {
            self.coarsen();
        }
        self.check_in_debug();
    }

    /// Adds all that another set covers.
    pub fn add_all(&mut self, other: &KeyRanges) {
        for (tree, low, high) in other.iter() {
            self.add(tree, low, high);
        }
    }

    /// All of it under another limit.
    #[must_use]
    pub fn limited(&self, limit: usize) -> KeyRanges {
        let mut copy = KeyRanges { limit, ..self.clone() };
        if copy.bytes > limit {
            copy.coarsen();
        }
        copy.check_in_debug();
        copy
    }

    /// Removes the keys from `low` up to `high`, which is kept; `None`: to the end of the tree. A
    /// range that begins before `low` stays as it is.
    pub fn remove(&mut self, tree: TreeId, low: &[u8], high: Option<&[u8]>) {
        let Entry::Occupied(mut entry) = self.trees.entry(tree) else { return };
        let ranges = entry.get_mut();
        while let Some((key, end)) = ranges.range::<[u8], _>((Bound::Included(low), Bound::Unbounded)).next()
        {
            if high.is_some_and(|high| &**key >= high) {
                break;
            }
            let key = key.clone();
            self.bytes -= len(&key, end);
            let end = ranges.remove(&key).expect("found just now");
            if let Some(high) = high
                && reaches(last(&key, &end), high)
            {
                let end = ends_at(high, last(&key, &end));
                self.bytes += len(high, &end);
                ranges.insert(high.into(), end);
                break;
            }
        }
        if ranges.is_empty() {
            entry.remove();
        }
        self.check_in_debug();
    }

    /// Removes the range that begins with `key`, if one does.
    pub fn remove_key(&mut self, tree: TreeId, key: &[u8]) {
        let Entry::Occupied(mut entry) = self.trees.entry(tree) else { return };
        if let Some(end) = entry.get_mut().remove(key) {
            self.bytes -= len(key, &end);
        }
        if entry.get().is_empty() {
            entry.remove();
        }
    }

    /// Removes all ranges of a tree.
    pub fn remove_tree(&mut self, tree: TreeId) {
        for (low, end) in self.trees.remove(&tree).into_iter().flatten() {
            self.bytes -= len(&low, &end);
        }
    }

    /// The ranges, by tree and key.
    pub fn iter(&self) -> impl Iterator<Item = KeyRangeRef<'_>> {
        self.trees
            .iter()
            .flat_map(|(&tree, ranges)| ranges.iter().map(move |(low, end)| (tree, &**low, last(low, end))))
    }

    /// The first range that begins at or after a key of a tree, or in a later tree.
    #[must_use]
    pub fn next_from(&self, tree: TreeId, key: &[u8]) -> Option<KeyRangeRef<'_>> {
        let ahead = self
            .trees
            .get(&tree)
            .and_then(|ranges| ranges.range::<[u8], _>((Bound::Included(key), Bound::Unbounded)).next());
        let (tree, (low, end)) = match ahead {
            Some(range) => (tree, range),
            None => {
                let (&tree, ranges) = self.trees.range((Bound::Excluded(tree), Bound::Unbounded)).next()?;
                (tree, ranges.first_key_value().expect("no tree is without one"))
            }
        };
        Some((tree, low, last(low, end)))
    }

    /// Joins ranges until half the limit suffices, or no tree has more than one, which is all of
    /// it.
    fn coarsen(&mut self) {
        while self.bytes > self.limit / 2 {
            let most = self.trees.iter_mut().max_by_key(|(_, ranges)| ranges.len());
            let Some((_, ranges)) = most.filter(|(_, ranges)| ranges.len() > 1) else { break };
            let mut joined = Ranges::new();
            let mut rest = std::mem::take(ranges).into_iter();
            while let Some((low, end)) = rest.next() {
                let end = match rest.next() {
                    None => end,
                    Some((_, End::Open)) => End::Open,
                    Some((_, End::At(high))) => End::At(high),
                    Some((key, End::Same)) => End::At(key),
                };
                joined.insert(low, end);
            }
            *ranges = joined;
            self.count();
        }
        if self.bytes > self.limit {
            for ranges in self.trees.values_mut() {
                *ranges = Ranges::from([(Box::default(), End::Open)]);
            }
            self.count();
        }
    }

    /// Whether it has at most its limit, or one range for each tree. Always, after each call.
    #[must_use]
    pub fn is_within_limit(&self) -> bool {
        self.bytes <= self.limit || self.trees.values().all(|ranges| ranges.len() == 1)
    }

    /// In debug builds, asserts what the struct states, of a set that is small.
    fn check_in_debug(&self) {
        if cfg!(debug_assertions) && self.bytes <= CHECKED_BYTES {
            let counted: usize = self.trees.values().flatten().map(|(low, end)| len(low, end)).sum();
            assert_eq!(self.bytes, counted, "bytes are counted");
            for ranges in self.trees.values() {
                assert!(!ranges.is_empty(), "no tree is without a range");
                assert!(
                    ranges.iter().all(|(low, end)| reaches(last(low, end), low)),
                    "ranges end behind their begin"
                );
                let following = ranges.iter().zip(ranges.keys().skip(1));
                for ((low, end), next) in following {
                    assert!(!reaches(last(low, end), next), "ranges are disjoint");
                }
            }
            assert!(self.is_within_limit(), "{} bytes of {}", self.bytes, self.limit);
        }
    }

    fn count(&mut self) {
        self.bytes = self.trees.values().flatten().map(|(low, end)| len(low, end)).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;

    const TREE: TreeId = TreeId(7);

    fn all(ranges: &KeyRanges) -> Vec<(u32, Vec<u8>, Option<Vec<u8>>)> {
        ranges.iter().map(|(tree, low, high)| (tree.0, low.to_vec(), high.map(<[u8]>::to_vec))).collect()
    }

    #[test]
    fn ranges_that_meet_become_one() {
        let mut ranges = KeyRanges::new(1 << 20);
        ranges.add_key(TREE, b"b");
        ranges.add_key(TREE, b"b");
        ranges.add(TREE, b"d", Some(b"f"));
        assert_eq!(
            all(&ranges),
            [(7, b"b".to_vec(), Some(b"b".to_vec())), (7, b"d".to_vec(), Some(b"f".to_vec()))]
        );
        ranges.add(TREE, b"c", Some(b"e"));
        ranges.add(TREE, b"b", Some(b"c"));
        assert_eq!(all(&ranges), [(7, b"b".to_vec(), Some(b"f".to_vec()))]);
        ranges.add(TREE, b"e", None);
        assert_eq!(all(&ranges), [(7, b"b".to_vec(), None)]);
        ranges.add_key(TREE, b"z");
        assert_eq!(ranges.iter().count(), 1);
    }

    #[test]
    fn what_is_taken_out_leaves_the_rest() {
        let mut ranges = KeyRanges::new(1 << 20);
        ranges.add(TREE, b"b", Some(b"m"));
        ranges.add_key(TREE, b"p");
        ranges.remove(TREE, b"a", Some(b"g"));
        assert_eq!(all(&ranges)[0], (7, b"g".to_vec(), Some(b"m".to_vec())));
        ranges.remove(TREE, b"h", Some(b"p"));
        assert_eq!(ranges.iter().count(), 2, "what begins before stays");
        ranges.remove(TREE, b"g", Some(b"q"));
        assert!(ranges.is_empty() && ranges.bytes() == 0);
        ranges.add(TREE, b"b", None);
        ranges.remove(TREE, b"b", None);
        assert!(ranges.is_empty() && ranges.bytes() == 0);
    }

    /// Random additions and removals beside a model of all keys of two bytes.
    #[test]
    fn it_covers_all_that_was_put_in_whatever_its_limit() {
        for seed in 0..40 {
            let mut rng = Rng::new(seed);
            let limit = [300, 2000, 1 << 20][seed as usize % 3];
            let mut ranges = KeyRanges::new(limit);
            let mut model = [[false; 1 << 10]; 3];
            for _ in 0..300 {
                let (tree, low) = (rng.below(3) as usize, rng.below(1 << 10) as usize);
                let high = (low + [0, 3, 60][rng.below(3) as usize]).min((1 << 10) - 1);
                let key = |number: usize| (number as u16).to_be_bytes();
                if rng.one_in(5) {
                    ranges.remove(TreeId(tree as u32), &key(low), Some(&key(high)));
                    model[tree][low..high].fill(false);
                } else {
                    ranges.add(TreeId(tree as u32), &key(low), Some(&key(high)));
                    model[tree][low..=high].fill(true);
                }
                let covers = |tree: usize, number: usize| {
                    ranges.iter().any(|(t, low, high)| {
                        t.0 as usize == tree && low <= &key(number)[..] && reaches(high, &key(number))
                    })
                };
                for _ in 0..20 {
                    let (tree, number) = (rng.below(3) as usize, rng.below(1 << 10) as usize);
                    assert!(!model[tree][number] || covers(tree, number), "seed {seed}, key {number}");
                }
                assert!(ranges.bytes() <= limit.max(3 * ENTRY + 12), "{} bytes", ranges.bytes());
                let counted: usize = ranges.trees.values().flatten().map(|(low, end)| len(low, end)).sum();
                assert_eq!(counted, ranges.bytes());
                let keys: Vec<_> = ranges.iter().collect();
                assert!(keys.windows(2).all(|two| two[0].0 < two[1].0 || !reaches(two[0].2, two[1].1)));
            }
        }
    }

    #[test]
    fn with_more_trees_than_its_limit_holds_each_is_covered_whole() {
        let mut ranges = KeyRanges::new(1000);
        for tree in 0..100 {
            ranges.add(TreeId(tree), &[tree as u8; 50], Some(&[tree as u8 + 1; 50]));
        }
        assert_eq!((ranges.trees(), ranges.bytes()), (100, 100 * ENTRY));
        assert!(ranges.iter().all(|(_, low, high)| low.is_empty() && high.is_none()));
        assert_eq!(ranges.next_from(TreeId(3), b""), Some((TreeId(3), &b""[..], None)));
        assert_eq!(ranges.next_from(TreeId(3), b"a"), Some((TreeId(4), &b""[..], None)));
        assert_eq!(ranges.next_from(TreeId(99), b"a"), None);
        ranges.remove_tree(TreeId(5));
        assert_eq!((ranges.trees(), ranges.bytes()), (99, 99 * ENTRY));
    }
}
