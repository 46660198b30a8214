//! Heads: where in the stored keys they begin, and when that changes.

use super::tests::{LEAF, apply, body, fresh, reported};
use super::validate::validate;
use super::{HEADER_LEN, Node, SLOT_LEN};
use crate::op;
use crate::redo::PageChange;
use firndb_log::{Kind, Record};

/// Where the heads of a node begin in its stored keys.
fn common_len(page: &[u8]) -> usize {
    Node::new(page).unwrap().common_len()
}

#[test]
fn heads_leave_out_what_all_keys_have_in_common() {
    let mut page = fresh(4096, &LEAF);
    let insert = |page: &mut Vec<u8>, key: &[u8]| {
        let slot = Node::new(page).unwrap().search(key).unwrap().expect_err("a new key");
        assert!(apply(page, &body(|body| op::insert(body, slot, key, b"value"))));
        common_len(page)
    };
    // As many bytes of a key as heads have are never left out.
    assert_eq!(insert(&mut page, b"counter/0010"), 8);
    assert_eq!(insert(&mut page, b"counter/0030"), 8);
    assert_eq!(insert(&mut page, b"counter/0020"), 8);
    assert_eq!(Node::new(&page).unwrap().slot(1).head, u32::from_be_bytes(*b"0020"));
    for (below, above) in [(&b"counter/0005"[..], &b"counter/0040"[..]), (b"counted", b"country")] {
        let node = Node::new(&page).unwrap();
        assert_eq!(node.search(below).unwrap(), Err(0));
        assert_eq!(node.search(above).unwrap(), Err(3));
    }
    assert_eq!(Node::new(&page).unwrap().search(b"count").unwrap(), Err(0), "shorter than that");
    // An end key with less in common changes every head, and says so.
    let outlier = body(|body| op::insert(body, 3, b"county", b"value"));
    assert_eq!(reported(&mut page, &outlier), [HEADER_LEN, 4 * SLOT_LEN, 11]);
    validate(&page).unwrap();
    assert_eq!(common_len(&page), 5);
    assert_eq!(insert(&mut page, b"zero"), 0);
    assert_eq!(insert(&mut page, b""), 0);
    // It grows again when the node is packed.
    assert!(apply(&mut page, &body(|body| op::sweep(body, &[0, 4, 5]))));
    assert_eq!(common_len(&page), 0);
    assert!(apply(&mut page, &body(|body| op::trim(body, 3, Some(b"d")))));
    assert_eq!(common_len(&page), 8);
    (0..3).for_each(|_| assert!(apply(&mut page, &body(|body| op::remove(body, 0)))));
    assert_eq!(common_len(&page), 0);
}

#[test]
fn a_node_whose_keys_are_not_alike_as_its_header_says_is_unsound() {
    let mut page = fresh(512, &LEAF);
    for (slot, key) in [b"counter1", b"counter2", b"counter3"].into_iter().enumerate() {
        assert!(apply(&mut page, &body(|body| op::insert(body, slot, key, b""))));
    }
    assert_eq!(page[18..20], [4, 0]);
    let mut more = page.clone();
    more[18] = 9;
    assert!(validate(&more).is_err(), "longer than a key");
    // The keys lie one before the other: the second one's first byte.
    let mut other = page.clone();
    other[512 - 16] = b'b';
    assert!(validate(&other).is_err(), "a key that begins otherwise");
    // A key too short to have a head, when all get new ones.
    let mut short = page.clone();
    short[32 + SLOT_LEN + 2] = 1;
    apply_unsound(&short, &body(|body| op::insert(body, 3, b"cozy", b"")));
    let mut empty = fresh(512, &LEAF);
    empty[18] = 1;
    assert!(validate(&empty).is_err(), "no key at all");
    // Nor is anything read past an entry's end.
    for len in 0..=u8::MAX {
        more[18] = len;
        let node = Node::new(&more).unwrap();
        let _ = (node.search(b"counter2"), node.search(b""), node.child_index(b"counter9"));
        for slot in 0..4 {
            apply_unsound(&more, &body(|body| op::insert(body, slot, b"counter2x", b"")));
        }
    }
}

/// A record on a page that may be unsound: whether it can be applied is known before.
fn apply_unsound(page: &[u8], (kind, body): &(Kind, Vec<u8>)) {
    let change = PageChange::decode(Record { kind: *kind, body }).expect("just encoded");
    assert_eq!(change.rehearse(page).is_ok(), change.apply(&mut page.to_vec()).is_ok());
}

#[test]
fn golden_bytes_of_heads_behind_what_keys_have_in_common() {
    let mut page = fresh(512, &LEAF);
    assert!(apply(&mut page, &body(|body| op::insert(body, 0, b"abcdef", b""))));
    assert!(apply(&mut page, &body(|body| op::insert(body, 1, b"abcdgh", b""))));
    assert_eq!(page[18..20], [2, 0]);
    assert_eq!(page[32..52], *b"\xfa\x01\x06\0\0\0fedc\xf4\x01\x06\0\0\0hgdc");
}
