//! Which parts of a page changed: the unit in which the tiers below DRAM write less than a page.
//!
//! A page has 128 *granules* of equal size, 32 bytes at 4 KiB. [`Changes`] names those that may
//! differ from the page's *base*, the whole image on the store's device. It may name more than was
//! changed, never less: whatever writes only the granules named takes the others from the base.
//!
//! A set that was counted from an older base of the same incarnation of the page is right for a
//! newer one, too: it names more than has changed since.

use firndb_base::Lsn;
use std::ops::{BitOr, BitOrAssign, Range};

/// The granules of a page that may differ from its base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Changes([u64; 2]);

/// The page's whole image on the store's device, from which changes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Base {
    /// The version of the image.
    pub version: Lsn,
    /// Its checksum in the page map.
    pub checksum: u32,
}

impl Changes {
    /// Granules of a page.
    pub const GRANULES: usize = 128;
    /// Bytes of a set.
    pub const BYTES: usize = Changes::GRANULES / 8;
    /// The page is its base.
    pub const NONE: Changes = Changes([0; 2]);
    /// Any byte may differ.
    pub const ALL: Changes = Changes([u64::MAX; 2]);

    /// Bytes of a granule of a page of `page_size` bytes, a power of two.
    #[must_use]
    pub const fn granule_bytes(page_size: usize) -> usize {
        1 << Changes::granule_bits(page_size)
    }
    /// Logarithm of the granule's size; pages of less than 128 bytes have fewer granules.
    #[inline]
    const fn granule_bits(page_size: usize) -> u32 {
        page_size.ilog2().saturating_sub(Changes::GRANULES.ilog2())
    }

    /// The granules of these bytes of a page of `page_size` bytes.
    #[inline]
    #[must_use]
    pub fn of(bytes: Range<usize>, page_size: usize) -> Changes {
        debug_assert!(page_size.is_power_of_two());
        assert!(
            bytes.start <= bytes.end && bytes.end <= page_size,
            "{bytes:?} of a page of {page_size} bytes"
        );
        if bytes.is_empty() {
            return Changes::NONE;
        }
        let bits = Changes::granule_bits(page_size);
        // At most 127, both: the bytes are in the page.
        let (first, last) = (bytes.start >> bits, (bytes.end - 1) >> bits);
        let mask = (u128::MAX << first) & (u128::MAX >> (Changes::GRANULES - 1 - last));
        Changes([mask as u64, (mask >> 64) as u64])
    }

    /// Adds the granules of these bytes of a page of `page_size` bytes.
    #[inline]
    pub fn add_range(&mut self, bytes: Range<usize>, page_size: usize) {
        *self |= Changes::of(bytes, page_size);
    }

    /// What either set names.
    #[inline]
    #[must_use]
    pub const fn union(self, other: Changes) -> Changes {
        Changes([self.0[0] | other.0[0], self.0[1] | other.0[1]])
    }

    /// Whether no granule is named.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0[0] | self.0[1] == 0
    }
    /// Whether every granule is named.
    #[must_use]
    pub const fn is_all(self) -> bool {
        self.0[0] & self.0[1] == u64::MAX
    }
    /// Whether this set names all that `other` does.
    #[must_use]
    pub const fn covers(self, other: Changes) -> bool {
        other.0[0] & !self.0[0] == 0 && other.0[1] & !self.0[1] == 0
    }
    /// Granules named.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0[0].count_ones() + self.0[1].count_ones()
    }
    /// Bytes of the granules named, of a page of `page_size` bytes.
    #[must_use]
    pub const fn bytes(self, page_size: usize) -> usize {
        let bytes = self.count() as usize * Changes::granule_bytes(page_size);
        if bytes < page_size { bytes } else { page_size }
    }

    /// The granules named, as runs of adjacent ones, ascending.
    pub fn runs(self) -> impl Iterator<Item = Range<usize>> {
        let [low, high] = self.0;
        let lasts = Changes([low & !(low >> 1 | high << 63), high & !(high >> 1)]);
        self.starts().ascending().zip(lasts.ascending()).map(|(first, last)| first..last + 1)
    }
    /// How many runs these are.
    #[inline]
    #[must_use]
    pub const fn run_count(self) -> usize {
        self.starts().count() as usize
    }
    /// The granules that runs begin with.
    #[inline]
    const fn starts(self) -> Changes {
        let [low, high] = self.0;
        Changes([low & !(low << 1), high & !(high << 1 | low >> 63)])
    }
    /// The granules named, by number.
    #[inline]
    fn ascending(self) -> impl Iterator<Item = usize> {
        let [mut low, mut high] = self.0;
        std::iter::from_fn(move || {
            if low != 0 {
                let granule = low.trailing_zeros() as usize;
                low &= low - 1;
                return Some(granule);
            }
            let granule = (high != 0).then(|| 64 + high.trailing_zeros() as usize)?;
            high &= high - 1;
            Some(granule)
        })
    }
    /// The same runs as bytes of a page of `page_size` bytes.
    pub fn byte_runs(self, page_size: usize) -> impl Iterator<Item = Range<usize>> {
        let granule = Changes::granule_bytes(page_size);
        let run = move |run: Range<usize>| run.start * granule..(run.end * granule).min(page_size);
        self.runs().map(run).take_while(|run| !run.is_empty())
    }

    /// `base` with the granules named taken from `page`: the page, if the set is right.
    pub fn apply(self, page: &[u8], base: &mut [u8]) {
        assert_eq!(page.len(), base.len(), "a page and its base are of one size");
        self.byte_runs(page.len()).for_each(|run| base[run.clone()].copy_from_slice(&page[run]));
    }

    /// The set's two words: bit *i* of the first is granule *i*.
    #[inline]
    #[must_use]
    pub const fn words(self) -> [u64; 2] {
        self.0
    }
    /// The set of these words.
    #[inline]
    #[must_use]
    pub const fn from_words(words: [u64; 2]) -> Changes {
        Changes(words)
    }
    /// As on devices: both words, little-endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Changes::BYTES] {
        let mut bytes = [0; Changes::BYTES];
        bytes[..8].copy_from_slice(&self.0[0].to_le_bytes());
        bytes[8..].copy_from_slice(&self.0[1].to_le_bytes());
        bytes
    }
    /// The set of these bytes: all bytes are one.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Changes::BYTES]) -> Changes {
        let all = u128::from_le_bytes(bytes);
        Changes([all as u64, (all >> 64) as u64])
    }
}

impl BitOr for Changes {
    type Output = Changes;
    #[inline]
    fn bitor(self, other: Changes) -> Changes {
        self.union(other)
    }
}

impl BitOrAssign for Changes {
    #[inline]
    fn bitor_assign(&mut self, other: Changes) {
        *self = self.union(other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::rng::Rng;

    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "one run is a case like any other")]
    fn ranges_of_bytes_become_granules() {
        const PAGE: usize = 4096;
        let cases: [(Range<usize>, &[Range<usize>]); 7] = [
            (0..0, &[]),
            (0..1, &[0..1]),
            (31..33, &[0..2]),
            (32..64, &[1..2]),
            (2047..2049, &[63..65]),
            (4095..4096, &[127..128]),
            (0..4096, &[0..128]),
        ];
        for (bytes, runs) in cases {
            assert_eq!(Changes::of(bytes.clone(), PAGE).runs().collect::<Vec<_>>(), runs, "{bytes:?}");
        }
        assert!(Changes::of(0..PAGE, PAGE).is_all() && Changes::of(7..7, PAGE).is_none());
        assert_eq!(Changes::of(0..65_536, 65_536), Changes::ALL);
        assert_eq!(Changes::of(511..512, 512).byte_runs(512).collect::<Vec<_>>(), [508..512]);
        // Fewer granules than bits.
        let small = Changes::ALL;
        assert_eq!((small.bytes(64), small.byte_runs(64).collect::<Vec<_>>()), (64, vec![0..64]));
        assert_eq!(Changes::of(63..64, 64).byte_runs(64).collect::<Vec<_>>(), [63..64]);
    }

    #[test]
    #[should_panic(expected = "of a page of 512 bytes")]
    fn bytes_beyond_the_page_are_refused() {
        let _ = Changes::of(0..513, 512);
    }

    #[test]
    fn sets_have_golden_bytes() {
        let mut set = Changes::of(0..1, 4096);
        set.add_range(33 * 32..35 * 32, 4096);
        set.add_range(4095..4096, 4096);
        let golden = [1, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 128];
        assert_eq!(set.to_bytes(), golden);
        assert_eq!(Changes::from_bytes(golden), set);
        assert_eq!(set.words(), [6 << 32 | 1, 1 << 63]);
    }

    #[test]
    fn random_sets_match_a_list_of_flags() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let page_size = 512 << rng.below(8);
            let granule = page_size / Changes::GRANULES;
            let mut flags = [false; Changes::GRANULES];
            let (mut set, mut other) = (Changes::NONE, Changes::NONE);
            for _ in 0..rng.below(9) {
                let start = rng.below(page_size as u64) as usize;
                let end = (start + rng.below(200) as usize).min(page_size);
                if rng.one_in(2) { &mut set } else { &mut other }.add_range(start..end, page_size);
                if start < end {
                    flags[start / granule..=(end - 1) / granule].fill(true);
                }
            }
            let both = set | other;
            assert!(both.covers(set) && both.covers(other) && both.covers(Changes::NONE), "seed {seed}");
            assert_eq!(set.covers(both), set == both, "seed {seed}");
            let mut found = [false; Changes::GRANULES];
            both.runs().for_each(|run| found[run].fill(true));
            assert_eq!(found, flags, "seed {seed}");
            let count = flags.iter().filter(|flag| **flag).count();
            assert_eq!(
                (both.count() as usize, both.bytes(page_size)),
                (count, count * granule),
                "seed {seed}"
            );
            assert_eq!(Changes::from_bytes(both.to_bytes()), both, "seed {seed}");
            assert_eq!(Changes::from_words(both.words()), both, "seed {seed}");
            let (page, mut base) = (vec![7u8; page_size], vec![3u8; page_size]);
            both.apply(&page, &mut base);
            let expected = |at: usize| if flags[at / granule] { 7 } else { 3 };
            assert!((0..page_size).all(|at| base[at] == expected(at)), "seed {seed}");
        }
    }
}
