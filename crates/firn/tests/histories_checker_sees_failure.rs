//! The judge of histories finds what is wrong with histories made by hand, and nothing in good ones.

use firn_workloads::history::Phenomenon::{self, *};
use firn_workloads::history::{Element, Event, Txn, judge};
use std::collections::BTreeMap;

const X: u32 = 1;
const Y: u32 = 2;

/// A transaction of this id that committed, at the same time as all others.
fn committed(id: u32, events: &[Event]) -> Txn {
    Txn { id, committed: true, events: events.to_vec(), began: 0, ended: 100 }
}

fn append(key: u32, element: Element) -> Event {
    Event::Append(key, element)
}

fn read(key: u32, list: &[Element]) -> Event {
    Event::Read(key, list.to_vec(), false)
}

fn scan(key: u32, list: &[Element]) -> Event {
    Event::Read(key, list.to_vec(), true)
}

fn found(txns: &[Txn], x: &[Element], y: &[Element]) -> Vec<Phenomenon> {
    let last = BTreeMap::from([(X, x.to_vec()), (Y, y.to_vec())]);
    judge(txns, &last).0.keys().copied().collect()
}

#[test]
fn serial_histories_are_good() {
    let one = Txn { ended: 1, ..committed(1, &[read(X, &[]), append(X, (1, 0)), read(X, &[(1, 0)])]) };
    let two = Txn {
        began: 2,
        ..committed(2, &[scan(X, &[(1, 0)]), scan(Y, &[]), append(Y, (2, 0)), append(X, (2, 1))])
    };
    assert_eq!(found(&[one, two], &[(1, 0), (2, 1)], &[(2, 0)]), []);
}

#[test]
fn g0_writes_in_opposite_orders() {
    let one = committed(1, &[append(X, (1, 0)), append(Y, (1, 1))]);
    let two = committed(2, &[append(X, (2, 0)), append(Y, (2, 1))]);
    let all = found(&[one, two], &[(1, 0), (2, 0)], &[(2, 1), (1, 1)]);
    assert!(all.contains(&G0) && all.contains(&G1c), "{all:?}");
}

#[test]
fn g1a_what_was_rolled_back_is_read_or_stays() {
    let aborted = Txn { committed: false, ..committed(1, &[append(X, (1, 0))]) };
    let reader = committed(2, &[read(X, &[(1, 0)])]);
    assert_eq!(found(&[aborted.clone(), reader], &[], &[]), [G1a]);
    assert_eq!(found(&[aborted], &[(1, 0)], &[]), [G1a]);
    // A part that was undone is as if rolled back.
    let undone = committed(1, &[append(X, (1, 0)), Event::Undo(X, (1, 0)), append(X, (1, 1))]);
    let reader = committed(2, &[read(X, &[(1, 0)])]);
    assert_eq!(found(&[undone, reader], &[(1, 1)], &[]), [G1a]);
}

#[test]
fn g1b_what_was_replaced_is_read() {
    let writer = committed(1, &[append(X, (1, 0)), append(X, (1, 1))]);
    let reader = committed(2, &[read(X, &[(1, 0)])]);
    assert!(found(&[writer, reader], &[(1, 0), (1, 1)], &[]).contains(&G1b));
}

#[test]
fn g1c_each_sees_the_other() {
    let one = committed(1, &[append(X, (1, 0)), read(Y, &[(2, 0)])]);
    let two = committed(2, &[append(Y, (2, 0)), read(X, &[(1, 0)])]);
    let all = found(&[one, two], &[(1, 0)], &[(2, 0)]);
    assert!(all.contains(&G1c) && !all.contains(&G0), "{all:?}");
}

#[test]
fn lost_updates_and_forgotten_own_writes() {
    let one = committed(1, &[append(X, (1, 0))]);
    let two = committed(2, &[append(X, (2, 0))]);
    assert!(found(&[one.clone(), two], &[(2, 0)], &[]).contains(&LostUpdate));
    let reader = committed(2, &[read(X, &[(1, 0)])]);
    let three = committed(3, &[append(X, (3, 0))]);
    assert!(found(&[one, reader, three], &[(3, 0), (1, 0)], &[]).contains(&LostUpdate));
    let blind = committed(1, &[append(X, (1, 0)), read(X, &[])]);
    assert_eq!(found(&[blind], &[(1, 0)], &[]), [Internal]);
}

#[test]
fn g_single_read_skew() {
    let writer = committed(1, &[append(X, (1, 0)), append(Y, (1, 1))]);
    let reader = committed(2, &[read(X, &[]), read(Y, &[(1, 1)])]);
    let all = found(&[writer.clone(), reader], &[(1, 0)], &[(1, 1)]);
    assert_eq!(all, [GSingle, GNonadjacent, G2Item, G2]);
    let reader = committed(2, &[scan(X, &[]), scan(Y, &[(1, 1)])]);
    let all = found(&[writer, reader], &[(1, 0)], &[(1, 1)]);
    assert_eq!(all, [GSingle, GNonadjacent, G2], "the rw is by a scan");
}

#[test]
fn g_nonadjacent_two_readers_see_two_writers_in_opposite_orders() {
    // The long fork: not G-single, and not allowed under snapshot isolation.
    let (one, two) = (committed(1, &[append(X, (1, 0))]), committed(2, &[append(Y, (2, 0))]));
    let three = committed(3, &[read(X, &[(1, 0)]), read(Y, &[])]);
    let four = committed(4, &[read(X, &[]), read(Y, &[(2, 0)])]);
    let all = found(&[one, two, three, four], &[(1, 0)], &[(2, 0)]);
    assert_eq!(all, [GNonadjacent, G2Item, G2]);
}

#[test]
fn g2_write_skew() {
    let one = committed(1, &[read(X, &[]), read(Y, &[]), append(X, (1, 0))]);
    let two = committed(2, &[read(X, &[]), read(Y, &[]), append(Y, (2, 0))]);
    assert_eq!(
        found(&[one, two.clone()], &[(1, 0)], &[(2, 0)]),
        [G2Item, G2],
        "snapshot isolation allows it"
    );
    let one = committed(1, &[scan(X, &[]), scan(Y, &[]), append(X, (1, 0))]);
    assert_eq!(found(&[one, two], &[(1, 0)], &[(2, 0)]), [G2], "one of the rw is by a scan");
}

#[test]
fn stale_reads_against_time() {
    let writer = Txn { ended: 1, ..committed(1, &[append(X, (1, 0))]) };
    let reader = Txn { began: 2, ..committed(2, &[read(X, &[])]) };
    assert!(found(&[writer, reader], &[(1, 0)], &[]).contains(&GSingle));
}
