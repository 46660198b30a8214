//! Work on several items at the same time, on as many threads as the system gives.

use super::scope;
use parking_lot::Mutex;
use std::panic::resume_unwind;

/// Does `work` on each item: several at once on the calling thread and one other thread for each
/// further item. Returns the outcomes in the order of the items. If the system has no more threads
/// to give, those that there are do the rest.
///
/// # Panics
/// With the panic of `work`.
#[track_caller]
pub fn each<I: Send, T: Send>(items: Vec<I>, work: impl Fn(I) -> T + Sync) -> Vec<T> {
    on(items.len().saturating_sub(1), items, work, || ()).0
}

/// As [`each`], while the calling thread does `own` first, whose outcome comes last.
///
/// # Panics
/// With the panic of `work` or of `own`.
#[track_caller]
pub fn each_beside<I: Send, T: Send, R>(
    items: Vec<I>,
    work: impl Fn(I) -> T + Sync,
    own: impl FnOnce() -> R,
) -> (Vec<T>, R) {
    on(items.len(), items, work, own)
}

/// As [`each_beside`], on `others` other threads, or fewer.
#[track_caller]
fn on<I: Send, T: Send, R>(
    others: usize,
    items: Vec<I>,
    work: impl Fn(I) -> T + Sync,
    own: impl FnOnce() -> R,
) -> (Vec<T>, R) {
    // Held for no call, so that a simulated thread never meets it locked.
    let queue = Mutex::new(items.into_iter().enumerate());
    let drain = || {
        let mut done = Vec::new();
        loop {
            let next = queue.lock().next();
            let Some((at, item)) = next else { return done };
            done.push((at, work(item)));
        }
    };
    let (mut done, own) = scope(|scope| {
        let others: Vec<_> = (0..others).map_while(|_| scope.try_spawn(drain).ok()).collect();
        let own = own();
        let mut done = drain();
        for other in others {
            done.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        (done, own)
    });
    done.sort_unstable_by_key(|(at, _)| *at);
    (done.into_iter().map(|(_, outcome)| outcome).collect(), own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::thread::current;

    #[test]
    fn outcomes_are_in_the_order_of_the_items_on_however_many_threads() {
        for (others, items) in [(0, 0), (0, 5), (1, 5), (4, 5), (9, 5), (3, 100)] {
            let (outcomes, own) = on(others, (0..items).collect(), |item| item * 10, || 'x');
            assert_eq!((outcomes, own), ((0..items).map(|item| item * 10).collect(), 'x'));
        }
        assert_eq!(each(vec![3], |item| (item, current().id())), [(3, current().id())]);
        assert_eq!(each(Vec::new(), |item: u8| item), []);
    }

    #[test]
    fn all_items_are_under_way_at_once_and_the_calling_thread_does_its_part() {
        let all = Barrier::new(3);
        let ids = each(vec![(); 3], |()| {
            all.wait();
            current().id()
        });
        assert!(ids.contains(&current().id()));
        let (both, own) = (Barrier::new(2), Barrier::new(3));
        let wait = |()| {
            both.wait();
            own.wait();
        };
        assert_eq!(each_beside(vec![(); 2], wait, || own.wait().is_leader()).0, [(); 2]);
    }

    #[test]
    fn without_other_threads_the_calling_one_does_all() {
        let (own, caller) = (std::cell::Cell::new(false), current().id());
        let (ids, ()) = on(0, vec![(); 4], |()| current().id(), || own.set(true));
        assert_eq!((ids, own.get()), (vec![caller; 4], true));
    }

    #[test]
    fn a_panic_of_any_thread_is_the_callers() {
        for others in 0..3 {
            for bad in 0..4 {
                let work = |item| assert!(item != bad, "as a test");
                let outcome = catch_unwind(AssertUnwindSafe(|| on(others, (0..4).collect(), work, || ())));
                assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"as a test"));
            }
        }
    }
}
