//! Tests of the writes of shadows.

use super::*;
use firndb_base::PageId;
use firndb_base::sync::Arc;
use firndb_tier::{Changes, Written};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn image(page: u64) -> PageImage {
    PageImage { page: PageId(page), version: Lsn(page), bytes: vec![1; 64] }
}

fn take(write: &mut PageWrite<'_>) {
    write.outcome = Ok(Written::Taken { base: None, changes: Changes::NONE });
}

#[test]
fn committers_share_a_write_and_get_back_what_was_not_taken() {
    let shadows = Arc::new(Shadows::new());
    let writes = Arc::new(Mutex::new(Vec::new()));
    let threads: Vec<_> = (0..6u64)
        .map(|thread| {
            let (shadows, writes) = (shadows.clone(), writes.clone());
            std::thread::spawn(move || {
                shadows.write(vec![image(10 * thread), image(10 * thread + 1)], |batch| {
                    std::thread::sleep(Duration::from_millis(20));
                    writes.lock().push(batch.len());
                    batch.iter_mut().filter(|write| write.page.0 % 10 == 0).for_each(take);
                })
            })
        })
        .collect();
    for (thread, left) in threads.into_iter().enumerate() {
        let left: Vec<u64> = left.join().unwrap().iter().map(|image| image.page.0).collect();
        assert_eq!(left, [10 * thread as u64 + 1]);
    }
    let writes = writes.lock();
    assert_eq!(writes.iter().sum::<usize>(), 12);
    assert!(writes.len() < 6, "{writes:?}: those that come while one is under way share the next");
}

#[test]
fn a_write_that_panics_leaves_no_committer_waiting() {
    let shadows = Arc::new(Shadows::new());
    let other = shadows.clone();
    let panicked = std::thread::spawn(move || other.write(vec![image(1)], |_| panic!("as a test"))).join();
    assert!(panicked.is_err());
    assert_eq!(shadows.write(vec![image(2)], |batch| batch.iter_mut().for_each(take)), []);
}

/// Images of so many whole writes.
fn images(writes: u64) -> Images {
    (0..writes * PART_PAGES as u64).map(image).collect()
}

/// Lets writes end one by one, and knows how many are under way.
#[derive(Default)]
struct Gate {
    state: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Gate {
    fn write(&self, batch: &mut [PageWrite<'_>]) {
        let mut state = self.state.lock();
        state.0 += 1;
        self.changed.notify_all();
        while state.1 == 0 {
            self.changed.wait(&mut state);
        }
        state.1 -= 1;
        state.0 -= 1;
        self.changed.notify_all();
        batch.iter_mut().for_each(take);
    }

    fn wait_for(&self, under_way: usize) {
        let mut state = self.state.lock();
        while state.0 != under_way {
            self.changed.wait(&mut state);
        }
    }

    fn let_end(&self, writes: usize) {
        self.state.lock().1 += writes;
        self.changed.notify_all();
    }
}

fn wait_until(shadows: &Shadows, is_so: impl Fn(&State) -> bool) {
    while !is_so(&shadows.state.lock()) {
        std::thread::yield_now();
    }
}

/// Runs `body` beside the helpers, and ends these.
fn with_helpers(gate: &Gate, body: impl FnOnce(&Shadows)) {
    let shadows = Shadows::new();
    std::thread::scope(|scope| {
        (0..HELPERS).for_each(|_| _ = scope.spawn(|| shadows.help(|batch| gate.write(batch))));
        body(&shadows);
        shadows.end_help();
    });
    let state = shadows.state.lock();
    assert!(state.calls.is_empty() && state.parts.is_empty() && state.few.is_empty(), "{state:?}");
    assert_eq!((state.under_way, state.sharing, state.few_pages), (0, 0, 0));
}

#[test]
fn a_large_call_has_several_writes_under_way_and_a_small_one_waits_for_none_of_them() {
    let gate = Gate::default();
    with_helpers(&gate, |shadows| {
        std::thread::scope(|scope| {
            let large = scope.spawn(|| shadows.write(images(6), |batch| gate.write(batch)));
            gate.wait_for(UNDER_WAY_MAX);
            let begun = AtomicBool::new(false);
            let left = shadows.write(vec![image(1000)], |batch| {
                begun.store(true, Ordering::SeqCst);
                batch.iter_mut().for_each(take);
            });
            assert!(left.is_empty() && begun.load(Ordering::SeqCst));
            gate.let_end(2);
            gate.wait_for(UNDER_WAY_MAX);
            gate.let_end(4);
            assert_eq!(large.join().unwrap(), []);
        });
    });
}

#[test]
fn a_call_without_helpers_writes_all_of_its_parts() {
    let shadows = Shadows::new();
    let sizes = Mutex::new(Vec::new());
    let mut all = images(2);
    all.push(image(1000));
    let left = shadows.write(all, |batch| {
        sizes.lock().push(batch.len());
        batch.iter_mut().filter(|write| write.page.0 != 70).for_each(take);
    });
    assert_eq!(left, [image(70)]);
    assert_eq!(*sizes.lock(), [PART_PAGES, PART_PAGES, 1]);
}

#[test]
fn a_load_waits_only_while_too_many_parts_are_not_written() {
    let gate = Gate::default();
    with_helpers(&gate, |shadows| {
        let write = |batch: &mut [PageWrite<'_>]| gate.write(batch);
        let mut writing = shadows.begin();
        assert_eq!(writing.add(images(2), &write), [], "it goes on composing");
        gate.wait_for(2);
        assert_eq!(writing.add(images(2), &write), []);
        gate.wait_for(HELPERS);
        std::thread::scope(|scope| {
            let adding = scope.spawn(|| {
                assert_eq!(writing.add(images(2), &write), []);
                writing
            });
            gate.wait_for(UNDER_WAY_MAX);
            assert!(!adding.is_finished());
            gate.let_end(6);
            assert_eq!(adding.join().unwrap().finish(&write), []);
        });
    });
}

#[test]
fn what_one_of_several_writes_did_not_take_comes_back() {
    let shadows = Shadows::new();
    let refused = |page: u64| (64..128).contains(&page) || page == 200;
    let write = |batch: &mut [PageWrite<'_>]| {
        std::thread::sleep(Duration::from_millis(5));
        batch.iter_mut().filter(|write| !refused(write.page.0)).for_each(take);
    };
    std::thread::scope(|scope| {
        (0..HELPERS).for_each(|_| _ = scope.spawn(|| shadows.help(write)));
        let mut left: Vec<u64> = shadows.write(images(5), write).iter().map(|image| image.page.0).collect();
        left.sort_unstable();
        assert_eq!(left, (64..128).chain([200]).collect::<Vec<_>>());
        shadows.end_help();
    });
}

#[test]
fn a_load_that_ends_early_leaves_no_write_under_way() {
    let gate = Gate::default();
    with_helpers(&gate, |shadows| {
        let mut writing = shadows.begin();
        assert_eq!(writing.add(images(4), &|batch| gate.write(batch)), []);
        gate.wait_for(HELPERS);
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                drop(writing);
                ended.store(true, Ordering::SeqCst);
            });
            wait_until(shadows, |state| state.parts.is_empty());
            gate.let_end(2);
            gate.wait_for(1);
            std::thread::sleep(Duration::from_millis(20));
            assert!(!ended.load(Ordering::SeqCst), "one is under way");
            gate.let_end(1);
        });
        assert_eq!(shadows.counters.writes.load(Ordering::Relaxed), 3, "the fourth was withdrawn");
    });
}

#[test]
fn a_panic_in_one_of_several_writes_loses_no_image_and_no_place() {
    let shadows = Shadows::new();
    let write = |batch: &mut [PageWrite<'_>]| {
        std::thread::sleep(Duration::from_millis(5));
        assert!(batch[0].page.0 != 128, "as a test");
        batch.iter_mut().for_each(take);
    };
    std::thread::scope(|scope| {
        let helpers: Vec<_> = (0..HELPERS).map(|_| scope.spawn(|| shadows.help(write))).collect();
        let caller = scope.spawn(|| shadows.write(images(5), write));
        match caller.join() {
            Ok(left) => assert_eq!(left.len(), PART_PAGES, "a helper panicked"),
            Err(_) => assert!(shadows.state.lock().calls.is_empty(), "it waited for the others"),
        }
        assert_eq!(shadows.state.lock().under_way, 0);
        assert_eq!(shadows.write(vec![image(1)], |batch| batch.iter_mut().for_each(take)), []);
        shadows.end_help();
        let panicked = helpers.into_iter().map(|helper| helper.join()).filter(Result::is_err).count();
        assert!(panicked <= 1);
    });
}
