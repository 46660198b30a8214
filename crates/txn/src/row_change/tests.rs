//! Tests of `row_change.rs`.

use super::*;

#[test]
fn differences_cover_every_changed_byte_and_little_else() {
    let old = vec![0u8; 100];
    let mut new = old.clone();
    let differences = |old: &[u8], new: &[u8]| {
        let mut ranges = Vec::new();
        differences(old, new, |range| ranges.push(range));
        ranges
    };
    assert_eq!(differences(&old, &new), []);
    new[3] = 1;
    new[5] = 1;
    new[50] = 1;
    new[99] = 1;
    assert_eq!(differences(&old, &new), [3..6, 50..51, 99..100]);
}

/// Byte by byte, as the definition says it.
fn plainly(old: &[u8], new: &[u8]) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for at in (0..old.len()).filter(|&at| old[at] != new[at]) {
        match ranges.last_mut() {
            Some(last) if at - last.end <= GAP => last.end = at + 1,
            _ => ranges.push(at..at + 1),
        }
    }
    ranges
}

#[test]
fn differences_by_words_are_those_by_bytes() {
    let mut rng = firndb_base::rng::Rng::new(11);
    for _ in 0..2000 {
        let old: Vec<u8> = (0..rng.below(70)).map(|_| rng.below(256) as u8).collect();
        let mut new = old.clone();
        for _ in 0..rng.below(9) {
            if let Some(at) = rng.below(70).checked_rem(new.len() as u64) {
                new[at as usize] ^= 1 << rng.below(8);
            }
        }
        let mut ranges = Vec::new();
        differences(&old, &new, |range| ranges.push(range));
        assert_eq!(ranges, plainly(&old, &new), "{old:?} {new:?}");
    }
}
