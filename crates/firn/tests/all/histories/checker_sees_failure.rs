//! The judge of histories finds what is wrong with histories made by hand, and nothing in good
//! ones.

use firndb_workloads::history::Phenomenon::{self, *};
use firndb_workloads::history::{Element, Event, Txn, judge};
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

/// A history in which each of `count` transactions reads a list and appends to it, several at a
/// time on different lists.
fn long_history(count: u32) -> (Vec<Txn>, BTreeMap<u32, Vec<Element>>) {
    const LISTS: u32 = 400;
    let mut last: BTreeMap<u32, Vec<Element>> = BTreeMap::new();
    let txns = (0..count)
        .map(|id| {
            let (key, other) = (id % LISTS, (id * 7 + 3) % LISTS);
            let seen = last.get(&other).cloned().unwrap_or_default();
            let before = last.get(&key).cloned().unwrap_or_default();
            last.entry(key).or_default().push((id, 0));
            let events = vec![read(key, &before), append(key, (id, 0)), scan(other, &seen)];
            // Each overlaps the three after it.
            let began = u64::from(id) * 10;
            let events = if key == other { events[..2].to_vec() } else { events };
            Txn { began, ended: began + 35, ..committed(id, &events) }
        })
        .collect();
    (txns, last)
}

/// Real time alone once took the square of the history, so that long ones were not judged at all.
#[test]
fn long_histories_are_judged_in_linear_time() {
    let (mut txns, last) = long_history(20_000);
    let began = std::time::Instant::now();
    assert_eq!(judge(&txns, &last).0.keys().copied().collect::<Vec<_>>(), []);
    // A single stale read deep inside: of a version that another had replaced before the reader
    // began.
    let at = 15_000;
    let Event::Read(_, list, true) = &mut txns[at].events[2] else { panic!("a scan") };
    list.pop().expect("a version to miss");
    let findings = judge(&txns, &last);
    assert!(findings.has(GSingle) && !findings.has(G1c), "{findings:?}");
    assert!(findings.0[&GSingle].contains("15000"), "{findings:?}");
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}
