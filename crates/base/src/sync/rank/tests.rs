//! Tests of `rank.rs`.

use super::{DevicePermit, Rank, before_device};
use crate::sync::{Condvar, RawLatch, thread};
use std::time::Duration;

static OUTER: Rank = Rank::new(1, "outer");
static INNER: Rank = Rank::new(2, "inner");
static MANY: Rank = Rank::several(3, "many");

fn wrong(work: impl FnOnce() + Send + 'static) -> String {
    // On a thread of its own: what a panic leaves held ends with it.
    let ended = thread::spawn("wrong", work).expect("a thread").join();
    let panic = ended.expect_err("the order is wrong");
    panic.downcast_ref::<String>().expect("a sentence").clone()
}

#[test]
fn locks_in_their_order_are_had_again_and_again() {
    let (outer, inner) = (OUTER.mutex(1), INNER.rwlock(2));
    for _ in 0..3 {
        let first = outer.lock();
        assert_eq!(*first + *inner.read(), 3);
        let second = inner.write();
        // Released in any order.
        drop(first);
        drop(second);
    }
    let _inner = inner.read();
    assert!(outer.try_lock().is_some(), "a thread that tries does not wait");
}

#[test]
fn a_wrong_order_is_reported_with_both_places() {
    let report = wrong(|| {
        let (outer, inner) = (OUTER.mutex(()), INNER.rwlock(()));
        let _inner = inner.read();
        let _outer = outer.lock();
    });
    assert!(
        report.contains("\"outer\" (1) is asked for") && report.contains("had \"inner\" (2)"),
        "{report}"
    );
    assert_eq!(report.matches("tests.rs").count(), 2, "{report}");
}

#[test]
fn a_lock_that_the_thread_has_is_not_asked_for_again() {
    let report = wrong(|| {
        let lock = MANY.rwlock(());
        let _first = lock.read();
        let _second = lock.read();
    });
    assert!(report.contains("by the thread that has had it since"), "{report}");
}

#[test]
fn two_of_a_rank_are_wrong_unless_said_otherwise() {
    let report = wrong(|| {
        let (one, two) = (OUTER.mutex(()), OUTER.mutex(()));
        let _one = one.lock();
        let _two = two.lock();
    });
    assert!(report.contains("wrong order"), "{report}");
    let (one, two) = (MANY.mutex(()), MANY.mutex(()));
    let _both = (one.lock(), two.lock());
}

#[test]
fn what_was_tried_counts_once_it_is_held() {
    let report = wrong(|| {
        let (outer, inner) = (OUTER.mutex(()), INNER.mutex(()));
        let _inner = inner.try_lock().expect("it is free");
        let _outer = outer.lock();
    });
    assert!(report.contains("wrong order"), "{report}");
}

#[test]
fn a_wait_asks_for_its_lock_again() {
    let report = wrong(|| {
        let (outer, inner) = (OUTER.mutex(()), INNER.mutex(()));
        let mut outer = outer.lock();
        let _inner = inner.lock();
        Condvar::new().wait_for(&mut outer, Duration::from_millis(1));
    });
    assert!(report.contains("\"outer\" (1) is asked for"), "{report}");
}

static BARRING: Rank = Rank::several(4, "barring").bars_devices();

#[test]
fn a_lock_that_bars_devices_is_reported_unless_it_is_shared_or_permitted() {
    let (mutex, latch) = (BARRING.mutex(()), RawLatch::ranked(&BARRING));
    before_device();
    latch.lock_exclusive();
    latch.allow_devices();
    before_device();
    latch.bar_devices();
    {
        let _permit = DevicePermit::granted();
        before_device();
    }
    // SAFETY: held exclusively here, then shared, and released once.
    unsafe { latch.downgrade() };
    before_device();
    // SAFETY: as above.
    unsafe { latch.unlock_shared() };
    drop(mutex.lock());
    before_device();
    let report = wrong(move || {
        let _held = mutex.lock();
        before_device();
    });
    assert!(report.contains("has had \"barring\" (4) exclusively since"), "{report}");
    let report = wrong(move || {
        latch.lock_exclusive();
        latch.allow_devices();
        latch.bar_devices();
        before_device();
    });
    assert_eq!(report.matches("tests.rs").count(), 2, "{report}");
}

#[test]
fn what_is_held_without_a_lock_has_its_place_in_the_order() {
    let (outer, inner) = (OUTER.mutex(()), MANY.mutex(()));
    let hold = INNER.hold(7);
    drop(inner.lock());
    drop(hold);
    drop(outer.lock());
    let report = wrong(move || {
        let _hold = INNER.hold(7);
        let _outer = outer.lock();
    });
    assert!(report.contains("had \"inner\" (2)"), "{report}");
}

#[test]
fn a_latch_that_would_be_waited_for_is_checked_though_it_is_free() {
    static LATCHES: Rank = Rank::several(1, "a latch");
    let latch = RawLatch::ranked(&LATCHES);
    latch.before_waiting();
    latch.assert_not_held();
    let report = wrong(|| {
        let inner = INNER.mutex(());
        let _inner = inner.lock();
        RawLatch::ranked(&LATCHES).before_waiting();
    });
    assert!(report.contains("\"a latch\" (1) is asked for"), "{report}");
    let report = wrong(move || {
        assert!(latch.try_lock_shared() && latch.is_locked() && !latch.is_locked_exclusive());
        latch.assert_not_held();
    });
    assert!(report.contains("by the thread that has had it"), "{report}");
}

#[test]
fn locks_that_must_not_be_had_are_reported() {
    let (outer, inner) = (OUTER.mutex(()), INNER.mutex(()));
    let held = outer.lock();
    INNER.assert_none_from();
    drop(held);
    let report = wrong(move || {
        let _held = inner.lock();
        OUTER.assert_none_from();
    });
    assert!(report.contains("has had \"inner\" (2) since"), "{report}");
}

#[test]
fn ranks_are_not_asked_of_others() {
    let plain = crate::sync::Mutex::new(());
    let inner = INNER.mutex(());
    let _inner = inner.lock();
    let first = plain.lock();
    assert!(plain.try_lock().is_none());
    drop(first);
}
