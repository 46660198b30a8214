//! Nodes against a model, against damage, and byte by byte.

use super::pack::{EntryList, repack};
use super::split::{choose, merged_len};
use super::validate::validate;
use super::{HEADER_LEN, Node, SLOT_LEN, Shape, max_entry_len, max_key_len, prefix_between};
use crate::change::Patches;
use crate::op;
use crate::redo::PageChange;
use firndb_base::rng::Rng;
use firndb_base::{Lsn, PageId, TreeId};
use firndb_buffer::Changed;
use firndb_log::{Kind, Record};
use std::collections::BTreeMap;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

pub(super) const LEAF: Shape<'static> =
    Shape { tree: TreeId(7), level: 0, condemned: false, low: &[], high: None, first_child: 0 };

/// A record's body for page 3 at version 5.
pub(super) fn body(encode: impl FnOnce(&mut Vec<u8>) -> Kind) -> (Kind, Vec<u8>) {
    let mut body = Vec::new();
    op::begin(&mut body, PageId(3), Lsn(5), b"undo");
    let kind = encode(&mut body);
    (kind, body)
}

/// Applies a record, asserting what holds for every one: the rehearsal agrees with the outcome, the
/// node is sound afterwards, and no byte outside the announced ranges changed.
pub(super) fn apply(page: &mut Vec<u8>, (kind, body): &(Kind, Vec<u8>)) -> bool {
    let change = PageChange::decode(Record { kind: *kind, body }).expect("just encoded");
    assert_eq!((change.page, change.previous, change.attachment), (PageId(3), Lsn(5), &b"undo"[..]));
    let before = page.clone();
    let rehearsed = change.rehearse(page);
    assert_eq!(*page, before, "a rehearsal changes nothing");
    match change.apply(page) {
        Err(_) => {
            assert!(rehearsed.is_err());
            *page = before;
            false
        }
        Ok(changed) => {
            rehearsed.expect("what can be applied can be rehearsed");
            validate(page).expect("a sound node");
            assert_covers(&changed, &before, page);
            true
        }
    }
}

fn assert_covers(changed: &Changed, before: &[u8], after: &[u8]) {
    let Changed::Ranges(ranges) = changed else { return };
    for at in (0..before.len()).filter(|&at| before[at] != after[at]) {
        let covered =
            ranges.iter().any(|range| (usize::from(range.start)..usize::from(range.end)).contains(&at));
        assert!(covered, "byte {at} changed outside {ranges:?}");
    }
}

/// Bytes of each range that a record's change reports.
pub(super) fn reported(page: &mut [u8], (kind, body): &(Kind, Vec<u8>)) -> Vec<usize> {
    let change = PageChange::decode(Record { kind: *kind, body }).expect("just encoded");
    match change.apply(page) {
        Ok(Changed::Ranges(ranges)) => ranges.iter().map(|range| range.len()).collect(),
        other => panic!("a change in place, and not {other:?}"),
    }
}

#[test]
fn changes_in_place_report_what_they_touch_and_no_more() {
    const VALUE: [u8; 50] = [3; 50];
    let mut page = fresh(4096, &LEAF);
    for slot in 0..20u8 {
        let insert = body(|body| op::insert(body, slot.into(), &[b'k', 2 * slot], &VALUE));
        assert_eq!(reported(&mut page, &insert), [HEADER_LEN, SLOT_LEN, 2 + VALUE.len()], "at the end");
    }
    let insert = body(|body| op::insert(body, 5, b"k\x09", &VALUE));
    let slots_behind = 21 - 5;
    assert_eq!(reported(&mut page, &insert), [HEADER_LEN, slots_behind * SLOT_LEN, 2 + VALUE.len()]);
    let patches: Patches = [(7, [1; 3]), (40, [2; 3])].into_iter().collect();
    assert_eq!(reported(&mut page, &body(|body| op::patch(body, 9, &patches))), [3, 3]);
    let (same, shorter) = ([4; 50], [5; 20]);
    assert_eq!(reported(&mut page, &body(|body| op::replace(body, 3, &same))), [50]);
    let header_and_slot = [HEADER_LEN, SLOT_LEN, 20];
    assert_eq!(reported(&mut page, &body(|body| op::replace(body, 3, &shorter))), header_and_slot);
    let remove = body(|body| op::remove(body, 15));
    assert_eq!(reported(&mut page, &remove), [HEADER_LEN, (21 - 15) * SLOT_LEN]);
}

pub(super) fn fresh(page_size: usize, shape: &Shape<'_>) -> Vec<u8> {
    let mut page = vec![0xEE; page_size];
    assert!(apply(&mut page, &body(|body| op::format(body, shape, &EntryList::default()))));
    page
}

fn assert_holds(page: &[u8], model: &Model) {
    let node = Node::new(page).unwrap();
    assert_eq!(node.count(), model.len());
    let mut key = Vec::new();
    for (at, (expected, value)) in model.iter().enumerate() {
        node.full_key(at, &mut key).unwrap();
        assert_eq!(key, *expected);
        assert_eq!(node.value(at).unwrap(), value);
        assert_eq!(node.search(expected).unwrap(), Ok(at));
    }
    let used: usize = model.iter().map(|(key, value)| SLOT_LEN + key.len() + value.len()).sum();
    assert_eq!(node.used(), used - model.len() * node.prefix().len());
    assert_eq!(
        node.used() + node.free() + HEADER_LEN + node.low().len() + node.high().map_or(0, <[u8]>::len),
        page.len()
    );
}

fn random_key(rng: &mut Rng, page_size: usize, front: &[u8]) -> Vec<u8> {
    let mut key = front.to_vec();
    let number = rng.below(200);
    match rng.below(4) {
        0 => key.extend_from_slice(&number.to_be_bytes()[7..]),
        1 => key.extend_from_slice(&(number * 77).to_be_bytes()[4..]),
        2 => key.extend_from_slice(&[0; 9][..(number % 10) as usize]),
        _ => key.resize(rng.between(key.len() as u64, max_key_len(page_size) as u64) as usize, b'x'),
    }
    key
}

/// One random change of a leaf and of its model.
fn step(page: &mut Vec<u8>, model: &mut Model, rng: &mut Rng, front: &[u8]) {
    let page_size = page.len();
    let key = random_key(rng, page_size, front);
    let most = max_entry_len(page_size) - key.len();
    let most = most.min(1 + rng.below(200) as usize);
    let value = vec![rng.next_u64() as u8; rng.below(most as u64 + 1) as usize];
    let node = Node::new(page).unwrap();
    let (found, stored) = (node.search(&key).unwrap(), key[node.prefix().len()..].to_vec());
    let before = model.get(&key).cloned();
    match (found, rng.below(8)) {
        (Err(slot), 0..6) => {
            let fits = SLOT_LEN + stored.len() + value.len() <= node.free();
            assert_eq!(apply(page, &body(|body| op::insert(body, slot, &stored, &value))), fits);
            if fits {
                model.insert(key, value);
            }
        }
        (Ok(slot), 0..4) => {
            let fits = value.len() <= node.free() + before.unwrap().len();
            assert_eq!(apply(page, &body(|body| op::replace(body, slot, &value))), fits);
            if fits {
                model.insert(key, value);
            }
        }
        (Ok(slot), 4..6) => {
            let mut value = before.unwrap();
            let patches: Patches = (0..value.len()).step_by(3).map(|at| (at, [!value[at]])).collect();
            value.iter_mut().step_by(3).for_each(|byte| *byte = !*byte);
            assert!(apply(page, &body(|body| op::patch(body, slot, &patches))));
            model.insert(key, value);
        }
        (Ok(slot), _) => {
            assert!(apply(page, &body(|body| op::remove(body, slot))));
            model.remove(&key);
        }
        (Err(_), 6) => {
            let slots: Vec<usize> = (0..model.len()).filter(|_| rng.one_in(4)).collect();
            assert!(apply(page, &body(|body| op::sweep(body, &slots))));
            let mut at = 0;
            model.retain(|_, _| {
                at += 1;
                !slots.contains(&(at - 1))
            });
        }
        (Err(_), _) => assert_eq!(node.search(&key).unwrap().unwrap_err(), model.range(..key).count()),
    }
}

#[test]
fn a_leaf_behaves_like_a_sorted_map_at_every_page_size() {
    for shift in 9..=16 {
        let page_size = 1 << shift;
        // What keys begin with is in both fences, or in none.
        for (seed, front, fenced) in [(1, &b""[..], false), (2, b"front", true), (3, b"front", false)] {
            let high = [front, &[0xff]].concat();
            let shape = if fenced { Shape { low: front, high: Some(&high), ..LEAF } } else { LEAF };
            let (mut page, mut model, mut rng) =
                (fresh(page_size, &shape), Model::new(), Rng::new(seed + shift));
            for round in 0..600 {
                step(&mut page, &mut model, &mut rng, front);
                if round % 20 == 0 {
                    assert_holds(&page, &model);
                }
            }
            assert_holds(&page, &model);
        }
    }
}

/// Fills a leaf until an entry does not fit.
fn full_leaf(page_size: usize, seed: u64, front: &[u8]) -> (Vec<u8>, Model) {
    let high = [front, &[0xff; 3]].concat();
    let shape = Shape { low: front, high: Some(&high), ..LEAF };
    let (mut page, mut model, mut rng) = (fresh(page_size, &shape), Model::new(), Rng::new(seed));
    loop {
        let key = random_key(&mut rng, page_size, front);
        let value = vec![7; rng.below((max_entry_len(page_size) - key.len()) as u64 + 1) as usize];
        let node = Node::new(&page).unwrap();
        let Err(slot) = node.search(&key).unwrap() else { continue };
        let stored = key[node.prefix().len()..].to_vec();
        if !apply(&mut page, &body(|body| op::insert(body, slot, &stored, &value))) {
            return (page, model);
        }
        model.insert(key, value);
    }
}

#[test]
fn a_full_leaf_can_always_be_split_and_the_halves_merged_again() {
    for shift in 9..=16 {
        for seed in 0..20 {
            let (left, model) = full_leaf(1 << shift, seed, b"ab");
            let node = Node::new(&left).unwrap();
            assert!(node.count() >= 4, "{} entries", node.count());
            let point = choose(&node).unwrap();
            let shape = Shape { low: &point.separator, ..node.shape() };
            let list = EntryList::of(&node, point.slot..node.count(), prefix_between(shape.low, shape.high))
                .unwrap();
            let mut right = vec![0; left.len()];
            assert!(apply(&mut right, &body(|body| op::format(body, &shape, &list))));
            let mut reused = left.clone();
            assert!(apply(&mut reused, &body(|body| op::format(body, &shape, &list))));
            assert!(reused == right, "the bytes depend on what the page held before");
            let mut trimmed = left.clone();
            assert!(apply(&mut trimmed, &body(|body| op::trim(body, point.slot, Some(&point.separator)))));
            let mut halves = model.clone();
            let upper = halves.split_off(&point.separator);
            assert_holds(&trimmed, &halves);
            assert_holds(&right, &upper);
            let (left_node, right_node) = (Node::new(&trimmed).unwrap(), Node::new(&right).unwrap());
            assert!(merged_len(&left_node, &right_node) <= left.len());
            let high = right_node.high().map(<[u8]>::to_vec);
            let prefix_len = prefix_between(left_node.low(), high.as_deref());
            let list = EntryList::of(&right_node, 0..right_node.count(), prefix_len).unwrap();
            assert!(apply(&mut trimmed, &body(|body| op::absorb(body, high.as_deref(), &list))));
            assert_holds(&trimmed, &model);
        }
    }
}

#[test]
fn an_inner_node_without_space_for_the_longest_separator_has_four_and_can_be_split() {
    for shift in 9..=16 {
        let page_size = 1usize << shift;
        let longest = max_key_len(page_size);
        let (low, high) = (vec![b'a'; longest], vec![b'z'; longest]);
        let shape = Shape { level: 1, low: &low, high: Some(&high), first_child: 9, ..LEAF };
        let mut page = fresh(page_size, &shape);
        for number in 0..u32::MAX {
            let mut key = vec![b'm'; longest];
            key[longest - 4..].copy_from_slice(&number.to_be_bytes());
            let slot = Node::new(&page).unwrap().count();
            if !apply(
                &mut page,
                &body(|body| op::insert_child(body, slot, &key, PageId(u64::from(number) + 10))),
            ) {
                break;
            }
        }
        let node = Node::new(&page).unwrap();
        assert!(node.count() >= 4);
        let point = choose(&node).unwrap();
        assert!(point.slot >= 1 && point.slot + 1 < node.count());
        assert_eq!(node.child_index(&point.separator).unwrap(), point.slot + 1);
        assert_eq!(node.child_index_below(&point.separator).unwrap(), point.slot);
    }
}

#[test]
fn runs_of_inserts_split_where_they_end() {
    let mut page = fresh(4096, &LEAF);
    let mut number = 0u32;
    while apply(&mut page, &body(|body| op::insert(body, number as usize, &number.to_be_bytes(), &[1; 20]))) {
        number += 1;
    }
    let node = Node::new(&page).unwrap();
    assert_eq!(choose(&node).unwrap().slot, node.count() - 1);

    let mut page = fresh(4096, &LEAF);
    number = 10_000;
    while apply(&mut page, &body(|body| op::insert(body, 0, &number.to_be_bytes(), &[1; 20]))) {
        number -= 1;
    }
    assert_eq!(choose(&Node::new(&page).unwrap()).unwrap().slot, 1);
}

#[test]
fn separators_are_as_short_as_they_can_be() {
    let mut page = fresh(512, &LEAF);
    // Not in order, so that this is not taken for a sequential load.
    let inserts = [(0, &b"cherries"[..]), (0, b"apples and more"), (1, b"bananas"), (1, b"apples and pears")];
    for (slot, key) in inserts {
        assert!(apply(&mut page, &body(|body| op::insert(body, slot, key, &[0; 40]))));
    }
    assert_eq!(choose(&Node::new(&page).unwrap()).unwrap().separator, b"b");
}

/// Every reading and changing entry point on bytes that may be anything.
fn exercise(page: &[u8], records: &[(Kind, Vec<u8>)], rng: &mut Rng) {
    let _ = validate(page);
    if let Ok(node) = Node::new(page) {
        let mut key = Vec::new();
        for at in 0..node.count().min(40) + 1 {
            let _ = node.full_key(at, &mut key);
            let _ = node.child(at);
        }
        let _ =
            (node.search(b"ab"), node.search(&key), node.child_index_below(b""), node.high(), node.shape());
        let _ = (choose(&node), merged_len(&node, &node), EntryList::of(&node, 0..node.count(), 3));
        let _ = repack(&mut page.to_vec(), Some(b"zz"), node.count() / 2, None);
    }
    for _ in 0..4 {
        let (kind, body) = &records[rng.below(records.len() as u64) as usize];
        if let Ok(change) = PageChange::decode(Record { kind: *kind, body }) {
            let rehearsed = change.rehearse(page);
            let applied = change.apply(&mut page.to_vec());
            assert!(rehearsed.is_err() || applied.is_ok(), "what was rehearsed can be applied");
        }
    }
}

/// Records of every kind.
fn records() -> Vec<(Kind, Vec<u8>)> {
    let (page, _) = full_leaf(512, 3, b"ab");
    let node = Node::new(&page).unwrap();
    let list = EntryList::of(&node, 0..3, 2).unwrap();
    let inner = Shape { level: 1, first_child: 4, low: b"ab", high: Some(b"ad"), ..LEAF };
    vec![
        body(|body| op::insert(body, 1, b"key", b"value")),
        body(|body| op::replace(body, 1, b"another value")),
        body(|body| op::patch(body, 1, &[(0, vec![1, 2]), (3, vec![4])].into_iter().collect())),
        body(|body| op::remove(body, 0)),
        body(|body| op::sweep(body, &[0, 2])),
        body(|body| op::format(body, &node.shape(), &list)),
        body(|body| op::format(body, &inner, &EntryList::default())),
        body(|body| op::trim(body, 2, Some(b"ac"))),
        body(|body| op::absorb(body, Some(b"b"), &list)),
        body(|body| op::insert_child(body, 0, b"k", PageId(8))),
        body(|body| op::remove_child(body, 0)),
        body(|body| op::set_child(body, 1, PageId(300))),
        body(|_| Kind::TREE_CONDEMN),
        body(|_| Kind::TREE_DROP_PAGE),
    ]
}

#[test]
fn pages_with_flipped_bits_never_panic() {
    let (records, mut rng) = (records(), Rng::new(11));
    for round in 0..6000 {
        let (mut page, _) = full_leaf(512, round % 16, b"ab");
        for _ in 0..rng.between(1, 12) {
            // The header decides most, so it is hit as often as all the rest.
            let within = if rng.one_in(2) { HEADER_LEN + 2 * SLOT_LEN } else { page.len() };
            page[rng.below(within as u64) as usize] ^= 1 << rng.below(8);
        }
        exercise(&page, &records, &mut rng);
    }
}

#[test]
fn pages_of_random_bytes_never_panic() {
    let (records, mut rng) = (records(), Rng::new(12));
    for _ in 0..3000 {
        let mut page: Vec<u8> = (0..512).map(|_| rng.next_u64() as u8).collect();
        page[0] = 2;
        page[1] &= 3;
        for at in [4, 6, 8, 10, 12, 14] {
            page[at + 1] = 0;
        }
        exercise(&page, &records, &mut rng);
    }
    for len in [0, 1, 31, 32, 100] {
        exercise(&vec![2; len], &records, &mut rng);
    }
}

#[test]
fn records_with_flipped_bits_never_panic_and_never_make_an_unsound_node() {
    let (records, mut rng) = (records(), Rng::new(13));
    let mut accepted = 0;
    for round in 0..40_000 {
        let (page, _) = full_leaf(512, round % 4, b"ab");
        let (mut kind, mut body) = records[rng.below(records.len() as u64) as usize].clone();
        for _ in 0..rng.between(1, 4) {
            let at = rng.below(body.len() as u64) as usize;
            match rng.below(6) {
                0 => body.truncate(at.max(1)),
                1 => kind = Kind(Kind::TREE_INSERT.0 + rng.below(0x20) as u8),
                _ => body[at] ^= 1 << rng.below(8),
            }
        }
        let Ok(change) = PageChange::decode(Record { kind, body: &body }) else { continue };
        let mut after = page.clone();
        // What they leave is no node.
        let leaves_a_node = ![Kind::TREE_DROP_PAGE, Kind::TREE_IMAGE].contains(&kind);
        if change.apply(&mut after).is_ok() && leaves_a_node {
            accepted += 1;
            validate(&after).expect("a record that is accepted leaves a sound node");
        }
    }
    assert!(accepted > 1000, "only {accepted} records were accepted: the test shows little");
}

#[test]
fn golden_bytes_of_a_leaf() {
    let shape = Shape { low: b"key1", high: Some(b"key9"), ..LEAF };
    let mut page = fresh(512, &shape);
    assert!(apply(&mut page, &body(|body| op::insert(body, 0, b"2", b"two"))));
    assert!(apply(&mut page, &body(|body| op::insert(body, 1, b"3456", b"x"))));
    assert!(apply(&mut page, &body(|body| op::replace(body, 0, b"2"))));
    #[rustfmt::skip]
    let header_and_slots = [
        2, 0, 0, 2,             // format, level, flags, run
        2, 0, 3, 0,             // count, prefix length
        4, 0, 4, 0,             // fence lengths: low, high
        9, 0, 2, 0,             // heap length, dead bytes
        1, 0, 0, 0,             // last insert, reserved
        7, 0, 0, 0,             // tree
        0, 0, 0, 0, 0, 0, 0, 0, // first child
        b'k', b'e', b'y', b'1', b'k', b'e', b'y', b'9', // fences
        0xfc, 1, 1, 0, 1, 0, 0, 0, 0, b'2',          // at 508: "2" -> "2"
        0xf7, 1, 4, 0, 1, 0, b'6', b'5', b'4', b'3', // at 503: "3456" -> "x"
    ];
    assert_eq!(page[..60], header_and_slots);
    assert!(page[60..503].iter().all(|&byte| byte == 0));
    assert_eq!(&page[503..], b"3456x22wo");
}

#[test]
fn golden_bytes_of_an_inner_node() {
    let shape = Shape { level: 2, first_child: 0x0102_0304, ..LEAF };
    let mut page = fresh(512, &shape);
    assert!(apply(&mut page, &body(|body| op::insert_child(body, 0, b"m", PageId(0x55)))));
    assert_eq!(page[..4], [2, 2, 1, 1]);
    assert_eq!(page[24..42], [4, 3, 2, 1, 0, 0, 0, 0, 0xf7, 1, 1, 0, 8, 0, 0, 0, 0, b'm']);
    assert_eq!(&page[503..], b"m\x55\0\0\0\0\0\0\0");
}

#[test]
fn golden_bytes_of_every_record() {
    let expected: [(u8, &[u8]); 14] = [
        (0x20, b"\x01\x03keyvalue"),
        (0x21, b"\x01another value"),
        (0x22, b"\x01\x00\x02\x01\x02\x01\x01\x04"),
        (0x23, b"\x00"),
        (0x24, b"\x00\x01"),
        (0x25, b""),
        (0x25, b"\x07\x01\x00\x02ab\x02ad\x04\x00"),
        (0x26, b"\x02\x01\x02ac"),
        (0x27, b""),
        (0x28, b"\x00\x01k\x08"),
        (0x29, b"\x00"),
        (0x2d, b"\x01\xac\x02"),
        (0x2a, b""),
        (0x2b, b""),
    ];
    for ((kind, body), (expected_kind, operation)) in records().into_iter().zip(expected) {
        assert_eq!(kind.0, expected_kind);
        let rest = body.strip_prefix(b"\x03\x05\x04undo").expect("page, previous version, attachment");
        if !operation.is_empty() || kind.0 >= 0x2a {
            assert_eq!(rest, operation);
        }
    }
    let mut list = EntryList::default();
    list.push(b"", b"k", b"v");
    let (_, absorbed) = body(|body| op::absorb(body, None, &list));
    assert_eq!(absorbed[7..], [0, 1, 1, 1, b'k', b'v']);
}

#[test]
fn a_small_patch_takes_a_small_record() {
    let mut body = Vec::new();
    op::begin(&mut body, PageId(1 << 20), Lsn(1 << 40), &[]);
    op::patch(&mut body, 100, &[(0, vec![0; 8]), (200, vec![0; 4])].into_iter().collect());
    assert!(body.len() <= 30, "{} bytes", body.len());
}
