//! Tests of `recovery.rs`.

use super::*;

fn ranges() -> KeyRanges {
    let mut ranges = recovered_ranges();
    ranges.add_key(TreeId(4), b"one");
    ranges.add(TreeId(4), b"two", Some(b"two and a half"));
    ranges.add(TreeId(5), b"", None);
    ranges
}

fn open(id: u64, entries: u32, gid: Option<&[u8]>) -> OpenTransaction {
    OpenTransaction { id: TxnId(id), entries, prepared: gid.map(|gid| (gid.to_vec(), Vec::new())) }
}

#[test]
fn the_checkpoint_state_round_trips_in_parts_of_any_length() {
    let mut state = CheckpointState {
        next_txn: TxnId(77),
        next_tree: TreeId(5),
        active: vec![open(3, 9, None), open(70, 1, Some(b"gid")), open(71, 300, Some(b"other"))],
        ghosts: Some(ranges()),
    };
    let keys = vec![(TreeId(3), b"key".to_vec()), (TreeId(300), vec![7; 300])];
    state.active[1].prepared = Some((b"gid".to_vec(), keys));
    let mut head = Vec::new();
    state.encode(&mut head);
    assert_eq!(head[..5], [77, 5, 3, 4, 4]);
    for cut in 0..head.len() {
        assert!(CheckpointState::decode(&mut Reader::new(&head[..cut])).is_err(), "cut at {cut}");
    }
    for (part_len, count) in [(usize::MAX, 1), (10, 3), (1, 5)] {
        let parts = state.list(part_len);
        assert_eq!(parts.len(), count);
        let (mut found, count) = CheckpointState::decode(&mut Reader::new(&head)).expect("well-formed");
        assert_eq!(count, 3);
        parts.iter().for_each(|part| found.add_part(part).expect("well-formed"));
        assert_eq!(found, state);
    }
    let whole = &state.list(usize::MAX)[0];
    assert_eq!(whole[..17], [1, 3, 9, 2, 70, 1, 3, b'g', b'i', b'd', 3, 3, 3, b'k', b'e', b'y', 3]);
    let fresh = || CheckpointState::fresh(TreeId(1));
    assert!(fresh().add_part(&[3, 3, 1, b'k']).is_err(), "a key without a transaction");
    assert!(fresh().add_part(&[1, 3, 9, 3, 3, 1, b'k']).is_err(), "a key of one that is not prepared");
    assert!(fresh().add_part(&[4, 1, 1]).is_err());
    let starts = [0, 3, 10, 16];
    for cut in (1..whole.len().min(300)).filter(|cut| !starts.contains(cut)) {
        assert!(fresh().add_part(&whole[..cut]).is_err(), "cut at {cut}");
    }
    let every = CheckpointState { ghosts: None, ..CheckpointState::fresh(TreeId(9)) };
    let mut bytes = Vec::new();
    every.encode(&mut bytes);
    assert_eq!(bytes, [1, 9, 0, 0]);
    assert_eq!(CheckpointState::decode(&mut Reader::new(&bytes)), Ok((every, 0)));
    assert!(CheckpointState::decode(&mut Reader::new(&[1, 9, 0, 2, 4, 1, b'b', 1, 1, b'a'])).is_err());
}

/// It once held every entry since the redo start, however little of it had been in memory before
/// the crash.
#[test]
fn analysis_holds_no_entry_that_was_spilled() {
    let mut analysis = Analysis::new(CheckpointState::fresh(TreeId(10)));
    let (mut bytes, mut entry) = (Vec::new(), Vec::new());
    let target = undo::Target { tree: TreeId(3), key: b"key", deletes: true, names_page: false };
    let before = crate::header::RowHeader { writer: TxnId(1), undo: 0, ghost: false, flag: false };
    undo::encode_full(&mut entry, target, before, &[7; 500]);
    for index in 0..1000 {
        crate::attachment::begin_change(&mut bytes, TxnId(2), index);
        bytes.extend_from_slice(&entry);
        analysis.page_change(Lsn(5000 + u64::from(index)), PageId(1), &bytes).expect("well-formed");
        // The oldest are spilled first.
        if index < 999 {
            crate::attachment::spilled(&mut bytes, TxnId(2), index);
            analysis.page_change(Lsn(5000 + u64::from(index)), PageId(2), &bytes).expect("well-formed");
        }
    }
    let total = std::sync::atomic::AtomicUsize::new(0);
    let versions = &mut analysis.open.get_mut(&TxnId(2)).expect("open").versions;
    versions.account(&total);
    let held = total.load(std::sync::atomic::Ordering::Relaxed);
    assert!(held < 5_000, "{held} bytes for the one entry of {} that is left", entry.len());
    let mut out = Vec::new();
    assert_eq!(versions.read(998, &mut out), Lookup::InUndoTree);
    assert_eq!(versions.read(999, &mut out), Lookup::Copied);
    let ghosts = analysis.ghosts.expect("they are known");
    assert_eq!(ghosts.iter().collect::<Vec<_>>(), [(TreeId(3), &b"key"[..], Some(&b"key"[..]))]);
}

/// It was once found prepared again, with half of it undone.
#[test]
fn a_prepared_transaction_that_was_being_rolled_back_is_rolled_back() {
    let state = CheckpointState {
        next_txn: TxnId(5),
        next_tree: TreeId(5),
        active: vec![open(3, 2, Some(b"gid")), open(4, 2, None), open(5, 2, Some(b"decided"))],
        ghosts: None,
    };
    let mut analysis = Analysis::new(state);
    let mut undone = Vec::new();
    crate::attachment::compensation(&mut undone, TxnId(3), 1);
    analysis.page_change(Lsn(5000), PageId(1), &undone).expect("well-formed");
    assert_eq!(analysis.open[&TxnId(3)].prepared, None);
    analysis.record(Record { kind: Kind::ROLLBACK, body: &[5] }).expect("well-formed");
    assert_eq!(analysis.open[&TxnId(5)].prepared, None, "decided, and nothing of it undone yet");
    // A return to a savepoint before the prepare record says nothing.
    crate::attachment::compensation(&mut undone, TxnId(4), 1);
    analysis.page_change(Lsn(5100), PageId(1), &undone).expect("well-formed");
    let record = Record { kind: Kind::PREPARE, body: &[4, 1, b'g', 16, 1, b'k', 17, 0] };
    analysis.record(record).expect("well-formed");
    let keys = vec![(TreeId(16), b"k".to_vec()), (TreeId(17), Vec::new())];
    assert_eq!(analysis.open[&TxnId(4)].prepared, Some((b"g".to_vec(), keys)));
}

#[test]
fn analysis_keeps_what_has_not_ended() {
    let mut analysis = Analysis::new(CheckpointState::fresh(TreeId(10)));
    let mut change = |txn: u64, index: u32| {
        let mut bytes = Vec::new();
        crate::attachment::begin_change(&mut bytes, TxnId(txn), index);
        undo::encode_absent(
            &mut bytes,
            undo::Target { tree: TreeId(3), key: b"key", deletes: false, names_page: false },
        );
        analysis.page_change(Lsn(5000), PageId(1), &bytes).expect("well-formed");
    };
    change(1, 0);
    change(2, 0);
    change(2, 1);
    change(3, 0);
    analysis.record(Record { kind: Kind::COMMIT, body: &[1, 0] }).expect("well-formed");
    analysis.record(Record { kind: Kind::PREPARE, body: &[3, 1, b'g'] }).expect("well-formed");
    assert_eq!(analysis.open.keys().copied().collect::<Vec<_>>(), [TxnId(2), TxnId(3)]);
    assert_eq!(analysis.open[&TxnId(2)].versions.next_index(), 2);
    assert_eq!(analysis.open[&TxnId(3)].prepared, Some((b"g".to_vec(), Vec::new())));
    assert_eq!(analysis.next_txn(), TxnId(4));
}
