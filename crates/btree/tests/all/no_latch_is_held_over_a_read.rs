//! A call that reads a page holds no latch meanwhile: beside a device that does not complete the
//! read, other threads latch every node above exclusively, and change them.

use crate::common::hooked_tier::{HookedTier, hooked_tree, reopened};
use crate::common::*;
use firndb_base::PageId;
use firndb_base::sync::Arc;
use firndb_btree::{Direction, Position, Tree, Visit};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// How long a thread may take that waits for nothing but other threads' steps.
const LONG: Duration = Duration::from_secs(60);

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// A tree of three levels without one of its pages in memory.
fn cold_tree() -> (Arc<HookedTier>, Tree) {
    let (tier, tree) = hooked_tree(512, 1000);
    (0..2000).for_each(|number| put(&tree, &key(number * 2), &[1; 20]));
    assert_eq!(tree.check().unwrap().into_result().unwrap().height, 3);
    let cold = reopened(&tier, &tree, 1000);
    (tier, cold)
}

/// The pages from the root to the leaf of a key.
fn path(tree: &Tree, key: &[u8]) -> Vec<PageId> {
    let mut leaf = Vec::new();
    tree.leaves(&[key], &mut leaf).unwrap();
    // Of the nodes above leaves, only the one that was asked is in memory: try all ways.
    let mut paths = vec![vec![tree.root()]];
    loop {
        let path = paths.pop().expect("a way to the leaf");
        let last = *path.last().unwrap();
        if last == leaf[0] {
            return path;
        }
        paths.extend(children(tree, last).into_iter().map(|child| [&path[..], &[child]].concat()));
    }
}

/// The children of a node in memory.
fn children(tree: &Tree, page: PageId) -> Vec<PageId> {
    let Some(bytes) = tree.pool().shared_in_memory(page) else { return Vec::new() };
    if bytes[1] == 0 {
        return Vec::new();
    }
    let half = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let page_at = |at: usize| PageId(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()));
    let slots = 32 + half(8) + half(10);
    let of_slot = |slot| page_at(half(slots + 10 * slot) + half(slots + 10 * slot + 2));
    std::iter::once(page_at(24)).chain((0..half(4)).map(of_slot)).collect()
}

/// The next read of `page` says so and then waits until it is released.
fn hold_read_of(tier: &HookedTier, page: PageId) -> (Receiver<()>, Sender<()>) {
    let ((begun, begins), (release, released)) = (channel(), channel());
    let released = std::sync::Mutex::new(released);
    tier.on_read(move |read| {
        if read == page {
            // Later reads find that the other end is gone.
            let _ = begun.send(());
            let _ = released.lock().unwrap().recv_timeout(LONG);
        }
        Ok(())
    });
    (begins, release)
}

/// What a test does beside a read.
type Call = fn(&Tree, &[u8]);

fn calls() -> Vec<(&'static str, Call)> {
    vec![
        ("get", |tree, key| assert_eq!(get(tree, key).unwrap(), [1; 20])),
        ("visit_many", |tree, key| {
            tree.visit_many(&[key], |_, value| assert_eq!(value, Some(&[1; 20][..]))).unwrap();
        }),
        ("visit_leaf", |tree, key| {
            let mut found = None;
            let from = Position::At(key.to_vec());
            tree.visit_leaf(&from, Direction::Forward, |key, _| {
                found = Some(key.to_vec());
                Visit::Stop
            })
            .unwrap();
            assert_eq!(found.as_deref(), Some(key));
        }),
        ("modify", |tree, key| {
            put(tree, key, &[2; 20]);
            assert_eq!(get(tree, key).unwrap(), [2; 20]);
        }),
        ("sweep", |tree, key| {
            let swept = tree.sweep_leaf(key, CLASS, |swept, _| swept == key).unwrap();
            assert_eq!(swept.removed, 1);
        }),
        ("estimate", |tree, key| assert_eq!(tree.estimate(Some(key), Some(key), None).unwrap(), 0)),
        ("check", |tree, _| drop(tree.check().unwrap().into_result().unwrap())),
        ("merge", |tree, key| tree.merge_small(key, CLASS).unwrap()),
    ]
}

/// Calls `call`, and `beside` while the read of the page at `depth` on the way to the key does not
/// end.
fn beside_a_read(depth: usize, call: Call, beside: impl Fn(&Tree, &[PageId]) + Sync) {
    let (tier, tree) = cold_tree();
    let wanted = key(2200);
    let path = path(&tree, &wanted);
    assert_eq!(path.len(), 3);
    // Another pool, in which only what lies above is in memory.
    let tree = reopened(&tier, &tree, 1000);
    path[..depth].iter().for_each(|page| drop(tree.pool().shared(*page).unwrap()));
    let (begins, release) = hold_read_of(&tier, path[depth]);
    thread::scope(|scope| {
        let reader = scope.spawn(|| call(&tree, &wanted));
        begins.recv_timeout(LONG).expect("the page is read");
        let (done, is_done) = channel();
        let (tree, above, beside) = (tree.clone(), path[..depth].to_vec(), &beside);
        thread::scope(|inner| {
            inner.spawn(move || {
                beside(&tree, &above);
                done.send(()).unwrap();
            });
            let outcome = is_done.recv_timeout(Duration::from_secs(20));
            drop(release);
            outcome.expect("another thread waits for a latch that is held over a read");
        });
        reader.join().unwrap();
    });
}

#[test]
fn so_that_all_nodes_above_can_be_latched_exclusively() {
    for (name, call) in calls() {
        for depth in [1, 2] {
            println!("{name} at depth {depth}");
            beside_a_read(depth, call, |tree, above| {
                let latched: Vec<_> =
                    above.iter().map(|page| tree.pool().exclusive(*page).unwrap()).collect();
                assert_eq!(latched.len(), depth);
            });
        }
    }
}

/// The neighbours split, so that the parent which named the page has changed, and has been split
/// itself, when the read ends.
#[test]
fn and_a_parent_that_has_changed_meanwhile_is_asked_again() {
    for (name, call) in calls() {
        println!("{name}");
        beside_a_read(2, call, |tree, above| {
            let split = |page: PageId| tree.pool().shared(page).unwrap().version();
            let before = split(above[1]);
            for number in (1000..1080).chain(1120..1200) {
                put(tree, &key(number * 2 + 1), &[3; 40]);
            }
            assert!(split(above[1]) > before);
        });
    }
}
