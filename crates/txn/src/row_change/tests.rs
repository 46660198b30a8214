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
