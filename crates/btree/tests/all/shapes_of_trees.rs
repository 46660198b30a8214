//! How full leaves get, how estimates come out, how fast the common calls are.

use crate::common::*;
use firndb_base::rng::Rng;
use firndb_btree::{Change, Counted, Tree, TreeError};

/// Bytes of entries by bytes of leaves, in percent.
fn fill_percent(tree: &Tree) -> u64 {
    let report = tree.check().unwrap().into_result().unwrap();
    report.entry_bytes * 100 / (report.leaf_pages * tree.pool().page_size() as u64)
}

#[test]
fn ascending_and_descending_loads_leave_full_leaves() {
    let (up, down) = (tree_of(4096, 900), tree_of(4096, 900));
    for number in 0..20_000u32 {
        put(&up, &number.to_be_bytes(), &[1; 96]);
        put(&down, &(20_000 - number).to_be_bytes(), &[1; 96]);
    }
    // A slot is ten bytes of each hundred and ten.
    assert!(fill_percent(&up) >= 85, "{}", fill_percent(&up));
    assert!(fill_percent(&down) >= 85, "{}", fill_percent(&down));
}

#[test]
fn interleaved_ascending_runs_leave_full_leaves() {
    // As orders of several districts, each numbered on.
    let tree = tree_of(4096, 2000);
    for number in 0..3000u32 {
        for district in 0..10u8 {
            put(&tree, &[&[district][..], &number.to_be_bytes()].concat(), &[1; 95]);
        }
    }
    assert!(fill_percent(&tree) >= 75, "{}", fill_percent(&tree));
}

#[test]
fn random_loads_leave_leaves_two_thirds_full() {
    let (tree, mut rng) = (tree_of(4096, 900), Rng::new(1));
    for _ in 0..20_000 {
        put(&tree, &rng.next_u64().to_be_bytes(), &[1; 92]);
    }
    assert!((58..80).contains(&fill_percent(&tree)), "{}", fill_percent(&tree));
}

#[test]
fn estimates_are_exact_within_a_leaf_and_near_beyond() {
    let tree = tree_of(512, 900);
    (0..10_000u32).for_each(|n| put(&tree, &n.to_be_bytes(), &[1; 20]));
    let estimate = |low: u32, high: u32| {
        tree.estimate(Some(&low.to_be_bytes()), Some(&high.to_be_bytes()), None).unwrap()
    };
    assert_eq!(estimate(5000, 5000), 0);
    assert_eq!(estimate(7, 3), 0);
    for width in [10, 100, 1000, 8000] {
        for low in [0, 700, 1900] {
            let found = estimate(low, low + width);
            let error = found.abs_diff(u64::from(width));
            assert!(error <= 3 + u64::from(width) / 5, "{width} entries from {low} on: {found}");
        }
    }
    let all = tree.estimate(None, None, None).unwrap();
    assert!((8_000..12_500).contains(&all), "{all}");
    assert_eq!(tree_of(512, 50).estimate(None, None, None).unwrap(), 0);
}

/// Nodes of a tree that grew by random inserts are of all sizes: the three that an estimate reads
/// stand for the others by chance.
#[test]
fn what_was_counted_brings_estimates_nearer() {
    let tree = tree_of(2048, 4000);
    let mut rng = Rng::new(5);
    let keys: Vec<u64> = (0..50_000).map(|_| rng.next_u64()).collect();
    keys.iter().for_each(|key| put(&tree, &key.to_be_bytes(), &[1; 20]));
    let leaves = tree.check().unwrap().into_result().unwrap().leaf_pages;
    let counted = Counted { entries: 50_000, leaves };
    let mut off = [0.0, 0.0];
    for part in 0..20u64 {
        let [low, high] = [part, part + 2].map(|part| part * (u64::MAX / 24));
        let exact = keys.iter().filter(|key| (low..high).contains(*key)).count() as f64;
        for (off, counted) in off.iter_mut().zip([None, Some(counted)]) {
            let (low, high) = (low.to_be_bytes(), high.to_be_bytes());
            let found = tree.estimate(Some(&low), Some(&high), counted).unwrap() as f64;
            *off += (found / exact - 1.0f64).abs() / 20.0;
        }
    }
    assert!(off[1] < 0.08 && off[1] < off[0] / 2.0, "off by {off:?} in the mean");
}

/// Processor time of this thread, so that what else runs on the machine counts little.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a Linux kernel with schedstat");
    text.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("nanoseconds come first")
}

/// Run alone:
/// `cargo test --release -p firndb-btree --test all shapes_of_trees -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn speed_of_the_common_calls() {
    let (tree, mut rng) = (tree_of(4096, 20_000), Rng::new(1));
    let count = 400_000u64;
    let started = cpu_ns();
    for number in 0..count {
        let key = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_be_bytes();
        put(&tree, &key, &[1; 100]);
    }
    let per = |started: u64, calls: u64| (cpu_ns() - started) / calls;
    println!("insert {} ns, height {}", per(started, count), tree.check().unwrap().height);
    let started = cpu_ns();
    for _ in 0..1_000_000 {
        let key = (rng.below(count).wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_be_bytes();
        assert!(tree.get(&key, |value| value.is_some()).unwrap());
    }
    println!("get {} ns over all keys", per(started, 1_000_000));
    let started = cpu_ns();
    for _ in 0..1_000_000 {
        let key = (rng.below(5000).wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_be_bytes();
        assert!(tree.get(&key, |value| value.is_some()).unwrap());
    }
    println!("get {} ns over few keys", per(started, 1_000_000));
    let started = cpu_ns();
    for _ in 0..400_000 {
        let key = (rng.below(count).wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_be_bytes();
        tree.modify(&key, CLASS, |_, change, attachment| {
            attachment.extend_from_slice(&[0; 24]);
            *change = Change::Patch([(0, vec![7; 8]), (40, vec![8; 4])].into_iter().collect());
            Ok::<_, TreeError>(())
        })
        .unwrap();
    }
    println!("patch {} ns", per(started, 400_000));
    let started = cpu_ns();
    let entries = scan(&tree, firndb_btree::Position::Start, firndb_btree::Direction::Forward).len() as u64;
    println!("scan {} ns an entry, copying", per(started, entries));
}
