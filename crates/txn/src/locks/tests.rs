//! Tests of `locks.rs`.

use super::*;

/// Those that have locked the key, as a writer finds them.
fn blockers(table: &LockTable, me: u64, tree: TreeId, key: &[u8]) -> Vec<TxnId> {
    let blockers = table.write_blockers(TxnId(me), tree, key, Turn::Fair);
    blockers.map_or(Vec::new(), |blockers| blockers.as_slice().to_vec())
}

const TREE: TreeId = TreeId(3);

#[test]
fn shared_locks_agree_and_exclusive_ones_do_not() {
    let table = LockTable::default();
    let (mut a, mut b) = (HeldLocks::default(), HeldLocks::default());
    let lock = |txn: u64, mode, held: &mut HeldLocks| {
        table.lock_key(TxnId(txn), Wanted { tree: TREE, key: b"k", mode }, Turn::Fair, held)
    };
    assert_eq!(lock(1, Mode::Shared, &mut a), Ok(()));
    assert_eq!(lock(2, Mode::Shared, &mut b), Ok(()));
    assert_eq!(
        lock(1, Mode::Exclusive, &mut a),
        Err(Refused::Blocked(Blockers::Holders(vec![TxnId(2)]))),
        "an upgrade waits for other readers"
    );
    assert_eq!(blockers(&table, 1, TREE, b"k"), [TxnId(2)]);
    table.release(TxnId(2), &mut b);
    assert_eq!(lock(1, Mode::Exclusive, &mut a), Ok(()));
    assert_eq!(lock(2, Mode::Shared, &mut b), Err(Refused::Blocked(Blockers::Holders(vec![TxnId(1)]))));
    assert!(blockers(&table, 1, TREE, b"k").is_empty());
    assert!(blockers(&table, 2, TREE, b"other").is_empty());
    table.release(TxnId(1), &mut a);
    table.check();
    assert_eq!(table.count(), 0);
    assert!(!table.is_locked(TREE, b"k"));
}

#[test]
fn ranges_forbid_writes_inside_them() {
    let table = LockTable::default();
    let mut held = HeldLocks::default();
    let range = KeyRange { low: Some(b"b".to_vec()), high: Some((b"d".to_vec(), false)) };
    table.lock_range(TxnId(1), TREE, range, &mut held);
    for (key, locked) in [("a", false), ("b", true), ("c", true), ("cz", true), ("d", false)] {
        assert_eq!(!blockers(&table, 2, TREE, key.as_bytes()).is_empty(), locked, "{key}");
        assert!(blockers(&table, 1, TREE, key.as_bytes()).is_empty());
    }
    let mut other = HeldLocks::default();
    let exclusive = table.lock_key(
        TxnId(2),
        Wanted { tree: TREE, key: b"c", mode: Mode::Exclusive },
        Turn::Fair,
        &mut other,
    );
    assert_eq!(exclusive, Err(Refused::Blocked(Blockers::Holders(vec![TxnId(1)]))));
    assert_eq!(
        table.lock_key(
            TxnId(2),
            Wanted { tree: TREE, key: b"c", mode: Mode::Shared },
            Turn::Fair,
            &mut other
        ),
        Ok(())
    );
    table.release(TxnId(1), &mut held);
    table.release(TxnId(2), &mut other);
    table.check();
    assert_eq!(table.count(), 0);
}

/// All key locks once counted, of every tree and exclusive ones too: then one more shared lock
/// locked its whole tree.
#[test]
fn shared_locks_are_counted_tree_by_tree_and_without_exclusive_ones() {
    let table = LockTable::default();
    let mut held = HeldLocks::default();
    let mut lock = |tree: u32, number: u32, mode| {
        table.lock_key(
            TxnId(1),
            Wanted { tree: TreeId(tree), key: &number.to_be_bytes(), mode },
            Turn::Fair,
            &mut held,
        )
    };
    for number in 0..ESCALATE_AT as u32 {
        assert_eq!(lock(1, number, Mode::Exclusive), Ok(()));
        assert_eq!(lock(2, number, Mode::Shared), Ok(()));
        // Locked for reading first, and then for writing.
        assert_eq!(lock(4, number, Mode::Shared), Ok(()));
        assert_eq!(lock(4, number, Mode::Exclusive), Ok(()));
    }
    assert_eq!(lock(3, 0, Mode::Shared), Ok(()));
    assert_eq!(lock(4, u32::MAX, Mode::Shared), Ok(()));
    for tree in 1..5 {
        assert!(blockers(&table, 2, TreeId(tree), b"another").is_empty(), "tree {tree}");
    }
    let mut lock = |tree: u32, number: u32, mode| {
        table.lock_key(
            TxnId(1),
            Wanted { tree: TreeId(tree), key: &number.to_be_bytes(), mode },
            Turn::Fair,
            &mut held,
        )
    };
    assert_eq!(lock(2, u32::MAX, Mode::Shared), Ok(()));
    let locked = |tree| !blockers(&table, 2, TreeId(tree), b"another").is_empty();
    assert_eq!([1, 2, 3, 4].map(locked), [false, true, false, false]);
    table.release(TxnId(1), &mut held);
    table.check();
    assert_eq!(table.count(), 0);
}

/// There was no end to them: each takes some hundred bytes.
#[test]
fn exclusive_locks_end_at_their_limit() {
    let table = LockTable::default();
    let mut held = HeldLocks::default();
    let mut lock = |number: u32, mode| {
        table.lock_key(
            TxnId(1),
            Wanted { tree: TREE, key: &number.to_be_bytes(), mode },
            Turn::Fair,
            &mut held,
        )
    };
    for number in 0..EXCLUSIVE_MAX as u32 {
        assert_eq!(lock(number, Mode::Exclusive), Ok(()));
    }
    assert_eq!(lock(u32::MAX, Mode::Exclusive), Err(Refused::TooMany));
    assert_eq!(lock(7, Mode::Exclusive), Ok(()), "it has that one");
    assert_eq!(lock(u32::MAX, Mode::Shared), Ok(()));
    assert_eq!(lock(u32::MAX, Mode::Exclusive), Err(Refused::TooMany), "an upgrade counts as well");
    table.release(TxnId(1), &mut held);
    table.check();
    assert_eq!(table.count(), 0);
}

#[test]
fn what_is_prepared_keeps_the_exclusive_locks_that_are_named() {
    let table = LockTable::default();
    let mut held = HeldLocks::default();
    for (key, mode) in [(b"a", Mode::Exclusive), (b"b", Mode::Shared), (b"c", Mode::Exclusive)] {
        assert_eq!(table.lock_key(TxnId(1), Wanted { tree: TREE, key, mode }, Turn::Fair, &mut held), Ok(()));
    }
    table.lock_range(TxnId(1), TREE, KeyRange::of_key(b"d"), &mut held);
    let mut keys = table.exclusive_keys(TxnId(1), &held);
    keys.sort();
    assert_eq!(keys, [(TREE, b"a".to_vec()), (TREE, b"c".to_vec())]);
    keys.remove(0);
    table.release_but(TxnId(1), &mut held, &keys);
    let locked = |key: &[u8]| table.is_locked(TREE, key);
    assert_eq!([b"a", b"b", b"c", b"d"].map(|key| locked(key)), [false, false, true, false]);
    assert_eq!(table.exclusive_keys(TxnId(1), &held), keys);
    table.release(TxnId(1), &mut held);
    table.check();
    assert_eq!(table.count(), 0);
}

#[test]
fn many_key_locks_become_one_lock_on_the_tree() {
    let table = LockTable::default();
    let mut held = HeldLocks::default();
    for i in 0..2 * ESCALATE_AT as u32 {
        table
            .lock_key(
                TxnId(1),
                Wanted { tree: TREE, key: &i.to_be_bytes(), mode: Mode::Shared },
                Turn::Fair,
                &mut held,
            )
            .expect("no other transaction locks");
    }
    table.check();
    assert_eq!(table.count(), 1);
    assert_eq!(blockers(&table, 2, TREE, b"anything"), [TxnId(1)]);
    table.release(TxnId(1), &mut held);
    table.check();
    assert_eq!(table.count(), 0);
    assert!(blockers(&table, 2, TREE, b"anything").is_empty());
}

/// A scan locks its range batch by batch: ten thousand of them were once as many locks, and from
/// the 4,096th on the whole tree.
#[test]
fn ranges_that_continue_each_other_are_one() {
    for descends in [false, true] {
        let table = LockTable::default();
        let (mut held, mut other) = (HeldLocks::default(), HeldLocks::default());
        let key = |number: u32| number.to_be_bytes().to_vec();
        let mut pairs: Vec<u32> = (0..10_000).collect();
        if descends {
            pairs.reverse();
        }
        for low in pairs {
            let range = KeyRange { low: Some(key(low)), high: Some((key(low + 1), true)) };
            table.lock_range(TxnId(1), TREE, range, &mut held);
            table.check();
            if low % 1000 == 0 {
                table.lock_range(TxnId(2), TREE, KeyRange::of_key(b"elsewhere"), &mut other);
            }
        }
        let blocked = |number: u32| blockers(&table, 3, TREE, &key(number)) == [TxnId(1)];
        assert!([0, 1, 4_999, 10_000].into_iter().all(blocked), "the whole range is locked");
        assert!(!blocked(10_001), "and nothing beside");
        table.release(TxnId(2), &mut other);
        assert_eq!(table.count(), 1);
        // The last piece may leave no bound: then it is the tree.
        table.lock_range(TxnId(1), TREE, KeyRange { low: None, high: Some((key(0), true)) }, &mut held);
        table.lock_range(TxnId(1), TREE, KeyRange { low: Some(key(10_000)), high: None }, &mut held);
        table.check();
        assert_eq!((table.count(), blocked(77_777)), (1, true));
        table.release(TxnId(1), &mut held);
        assert_eq!(table.count(), 0);
    }
}

#[test]
fn those_that_come_later_let_the_queue_go_first() {
    let table = LockTable::default();
    let mut held: Vec<HeldLocks> = (0..6).map(|_| HeldLocks::default()).collect();
    let wanted = |mode| Wanted { tree: TREE, key: b"k", mode };
    let mut lock =
        |txn: u64, mode, turn| table.lock_key(TxnId(txn), wanted(mode), turn, &mut held[txn as usize]);
    let ahead = |txn| Err(Refused::Blocked(Blockers::Ahead(TxnId(txn))));
    assert_eq!(lock(1, Mode::IntentExclusive, Turn::Fair), Ok(()));
    table.join_queue(TxnId(2), wanted(Mode::Exclusive));
    table.join_queue(TxnId(3), wanted(Mode::IntentExclusive));
    assert_eq!(lock(4, Mode::IntentExclusive, Turn::Fair), ahead(2), "it excludes that one only");
    assert_eq!(lock(3, Mode::IntentExclusive, Turn::Fair), ahead(2), "it came later");
    assert_eq!(lock(1, Mode::IntentExclusive, Turn::Fair), Ok(()), "it holds the lock");
    assert_eq!(lock(1, Mode::Exclusive, Turn::Fair), Ok(()), "the same");
    table.release(TxnId(1), &mut held[1]);
    let mut lock =
        |txn: u64, mode, turn| table.lock_key(TxnId(txn), wanted(mode), turn, &mut held[txn as usize]);
    assert_eq!(lock(4, Mode::Shared, Turn::First), Ok(()));
    let holder = Err(Refused::Blocked(Blockers::Holders(vec![TxnId(4)])));
    assert_eq!(lock(2, Mode::Exclusive, Turn::Fair), holder, "nothing is ahead of the first");
    assert_eq!(table.ahead_in(TxnId(5), TREE, &KeyRange::ALL, &mut None), Some(TxnId(3)));
    assert_eq!(table.ahead_in(TxnId(5), TREE, &KeyRange::of_key(b"l"), &mut None), None);
    assert_eq!(blockers(&table, 5, TREE, b"l"), []);
    let mut before = None;
    assert_eq!(table.ahead_in(TxnId(5), TREE, &KeyRange::ALL, &mut before), Some(TxnId(3)));
    table.join_queue(TxnId(6), wanted(Mode::Exclusive));
    let still = table.ahead_in(TxnId(5), TREE, &KeyRange::ALL, &mut before);
    assert_eq!(still, Some(TxnId(3)), "the other joined after the first look");
    table.queue.leave(TxnId(6));
    table.queue.leave(TxnId(2));
    table.queue.leave(TxnId(3));
    table.check();
    assert_eq!(lock(5, Mode::Shared, Turn::Fair), Ok(()));
    table.release(TxnId(4), &mut held[4]);
    table.release(TxnId(5), &mut held[5]);
    table.check();
    assert_eq!(table.count(), 0);
}
