//! Work on several devices at the same time.

use firndb_base::sync::thread;

/// Does `work` on each item on a thread of its own, or on the calling thread if there is only one.
/// Returns the outcomes in the order of the items.
pub(crate) fn each<I: Send, T: Send>(items: Vec<I>, work: impl Fn(I) -> T + Sync) -> Vec<T> {
    if items.len() == 1 {
        return items.into_iter().map(work).collect();
    }
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = items.into_iter().map(|item| scope.spawn(move || work(item))).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|outcome| outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}
