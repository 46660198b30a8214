//! Tests of `versions.rs`.

use super::*;

#[test]
fn entries_are_found_by_index_through_pops_forgetting_and_spilling() {
    let mut versions = Versions::default();
    let mut out = Vec::new();
    for i in 0..10u8 {
        assert_eq!(versions.push(&[i; 5], Lsn(100 + u64::from(i))), u32::from(i));
    }
    versions.pop();
    assert_eq!(versions.next_index(), 9);
    versions.forget(8);
    assert_eq!(versions.next_index(), 9, "a used index is not given out again");
    assert_eq!(versions.read(8, &mut out), Lookup::None);
    assert_eq!(versions.read(3, &mut out), Lookup::Copied);
    assert_eq!(out, [3; 5]);
    for i in 0..4 {
        versions.mark_spilled(i);
    }
    assert_eq!(versions.read(3, &mut out), Lookup::InUndoTree);
    assert_eq!(versions.read(4, &mut out), Lookup::Copied);
    assert_eq!(out, [4; 5]);
    assert_eq!(versions.oldest_lsn(), Some(Lsn(104)));
    assert_eq!(versions.oldest_before(Lsn(104)), None);
    for i in 4..8 {
        versions.mark_spilled(i);
    }
    assert_eq!(versions.oldest_lsn(), None);
    assert_eq!(versions.push(b"last", Lsn(200)), 9);
    assert_eq!(versions.read(9, &mut out), Lookup::Copied);
    assert_eq!(out, b"last");
    assert_eq!(versions.read(2, &mut out), Lookup::InUndoTree);
    assert_eq!(versions.read(8, &mut out), Lookup::None, "it was used before it could be spilled");
}

/// What was used once stayed listed for ever, unless an older entry was spilled.
#[test]
fn entries_that_were_used_take_no_memory() {
    let (mut versions, total) = (Versions::default(), AtomicUsize::new(0));
    let mut out = Vec::new();
    for i in 0..1_000 {
        assert_eq!(versions.push(&[1; 50], Lsn(1 + u64::from(i))), i);
        versions.settle();
        versions.forget(i);
        versions.check();
        versions.account(&total);
        assert_eq!(total.load(Ordering::Relaxed), 0, "after {i}");
        assert_eq!(versions.read(i, &mut out), Lookup::None);
    }
    // Newest first, as a rollback does: the oldest lists the others until it is used.
    for i in 1_000..1_010u32 {
        versions.push(&[1; 50], Lsn(2_000 + u64::from(i)));
    }
    versions.settle();
    for i in (1_000..1_010).rev() {
        assert_eq!(versions.read(i, &mut out), Lookup::Copied);
        versions.forget(i);
        versions.check();
    }
    versions.account(&total);
    assert_eq!((versions.next_index(), total.load(Ordering::Relaxed)), (1_010, 0));
}

#[test]
fn entries_from_the_log_keep_their_indices() {
    let mut versions = Versions::default();
    let mut out = Vec::new();
    versions.restore(5, b"five", Lsn(1));
    assert_eq!(versions.oldest_to_spill(Lsn(2)), Some(5));
    versions.restore(8, b"eight", Lsn(2));
    assert_eq!(
        versions.read(4, &mut out),
        Lookup::InUndoTree,
        "before the first found: spilled, if it ever was"
    );
    assert_eq!(versions.read(6, &mut out), Lookup::None);
    assert_eq!(versions.read(8, &mut out), Lookup::Copied);
    assert_eq!(out, b"eight");
    assert_eq!(versions.next_index(), 9);
    versions.forget(8);
    versions.forget(5);
    versions.restore(12, b"twelve", Lsn(3));
    versions.check();
    assert_eq!(versions.read(4, &mut out), Lookup::InUndoTree);
    assert_eq!(versions.read(8, &mut out), Lookup::None, "what was used is in no tree");
    assert_eq!(versions.read(12, &mut out), Lookup::Copied);
    versions.forget(12);
    versions.start_at(20);
    assert_eq!((versions.next_index(), versions.read(19, &mut out)), (20, Lookup::InUndoTree));
}

/// An entry was once spilled before its change was made. When the change failed and the index was
/// used again, the undo tree returned the first entry, and the second change was not undone; a tree
/// being created found its index gone.
#[test]
fn an_entry_is_spilled_only_when_its_change_is_made() {
    let mut versions = Versions::default();
    versions.push(b"made", Lsn(1));
    versions.settle();
    versions.push(b"being made", Lsn(2));
    assert_eq!(versions.oldest_to_spill(Lsn(9)), Some(0));
    versions.mark_spilled(0);
    assert_eq!(versions.oldest_to_spill(Lsn(9)), None);
    assert_eq!(versions.oldest_lsn(), Some(Lsn(2)), "until then it holds the log");
    versions.pop();
    assert_eq!(versions.push(b"another", Lsn(3)), 1);
    versions.settle();
    assert_eq!(versions.oldest_to_spill(Lsn(9)), Some(1));
}

/// Many small writes of one transaction touch the promise, which all share, a few times.
#[test]
fn what_undoing_small_changes_takes_is_promised_in_steps() {
    let promise = AtomicU64::new(0);
    let mut versions = Versions::default();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..100 {
        versions.push(&[1; 20], Lsn(1));
        versions.promise(&promise);
        versions.settle();
        assert!(promise.load(Ordering::Relaxed) >= versions.to_undo);
        seen.insert(promise.load(Ordering::Relaxed));
    }
    assert!(seen.len() < 10, "{seen:?}");
    assert!(*seen.first().unwrap() <= 256, "and a small one does not promise much");
    let mut refused = Versions::default();
    let before = promise.load(Ordering::Relaxed);
    refused.push(&[1; 20], Lsn(1));
    refused.promise(&promise);
    refused.pop();
    refused.promise(&promise);
    assert_eq!(promise.load(Ordering::Relaxed), before, "what was taken back needs nothing");
}

#[test]
fn what_undoing_takes_is_promised_until_it_is_done_or_will_never_be() {
    const LEN: u64 = 20_000;
    let promise = AtomicU64::new(0);
    let promised = || promise.load(Ordering::Relaxed);
    let covers = |bytes: u64| (bytes..bytes + 2 * PROMISE_STEP + 10 * UNDO_RECORD).contains(&promised());
    let mut versions = Versions::default();
    for i in 0..10u8 {
        versions.push(&[i; LEN as usize], Lsn(1));
        versions.settle();
        versions.promise(&promise);
        assert!(covers(LEN * (u64::from(i) + 1)), "{}", promised());
    }
    versions.pop();
    versions.forget(8);
    versions.forget(3);
    versions.promise(&promise);
    assert!(covers(7 * LEN), "{}", promised());
    let before = versions.to_undo;
    versions.mark_spilled(0);
    assert!(versions.to_undo > before, "a spilled entry is taken out of its tree, too");
    versions.promise(&promise);
    assert!(promised() >= versions.to_undo);
    versions.check();
    versions.forget(0);
    versions.unspilled(LEN as usize);
    assert_eq!(versions.to_undo, before - LEN - UNDO_RECORD, "until it was taken out");
    versions.unspilled(LEN as usize);
    assert_eq!(versions.to_undo, before - LEN - UNDO_RECORD, "what recovery found spilled is not counted");
    versions.check();
    versions.promise(&promise);
    assert!(covers(6 * LEN), "{}", promised());
    versions.end_promise(&promise);
    assert_eq!(promised(), 0);
    versions.clear(&AtomicUsize::new(0));
}

#[test]
fn memory_is_accounted() {
    let total = AtomicUsize::new(0);
    let mut versions = Versions::default();
    versions.push(&[0; 1000], Lsn(1));
    versions.account(&total);
    assert!(total.load(Ordering::Relaxed) >= 1000);
    versions.clear(&total);
    assert_eq!(total.load(Ordering::Relaxed), 0);
}

#[test]
fn memory_is_counted_as_it_is_held_beyond_the_allowance() {
    let total = AtomicUsize::new(0);
    let counted = || total.load(Ordering::Relaxed);
    let mut versions = Versions::default();
    let memory = VersionMemory { entries: VecDeque::with_capacity(100), arena: Vec::with_capacity(3000) };
    versions.adopt(memory, 10_000);
    versions.push(&[1; 100], Lsn(1));
    versions.settle();
    versions.account(&total);
    assert_eq!(counted(), 0, "within the allowance");
    versions.push(&[1; 20_000], Lsn(2));
    versions.settle();
    versions.account(&total);
    assert!(counted() >= 10_100, "{}", counted());
    versions.end_promise(&AtomicU64::new(0));
    // It has ended, and a snapshot needs it.
    let spare = versions.settle_kept(&total);
    let exact = 20_100 + 2 * size_of::<UndoEntry>() + STATE_BYTES;
    assert!((exact..exact + 200).contains(&counted()), "{} for {exact}", counted());
    assert!(spare.len() > 0, "what it had too much goes to another");
    versions.mark_spilled(0);
    versions.mark_spilled(1);
    versions.account(&total);
    assert_eq!(counted(), STATE_BYTES, "spilled entries give their memory back");
    versions.leave_spilled(&total);
    assert_eq!(counted(), 0);
    let mut out = Vec::new();
    assert_eq!(versions.read(1, &mut out), Lookup::InUndoTree);
    versions.clear(&total);
    versions.settle_kept(&total);
    assert_eq!(counted(), 0, "what was purged meanwhile is not counted again");
}
