//! Committers that write shadows of private images (`put_page.rs`) together.
//!
//! *Several committers share a write*: a committer that finds no write under way leads one of all
//! images that wait; those that come meanwhile are the next one. *Bars*: a backup, or an archive,
//! needs all content in the log. While there is a bar no write begins; who sets one waits for the
//! write under way.

use crate::page_images::PageImage;
use crate::ranks;
use firndb_base::Lsn;
use firndb_base::sync::atomic::{AtomicU64, Ordering};
use firndb_base::sync::{Condvar, Mutex};
use firndb_tier::PageWrite;
use std::collections::BTreeMap;

/// The images of one committer.
pub(crate) type Images = Vec<PageImage>;

#[derive(Debug, Default)]
struct State {
    bars: u32,
    /// A write is under way.
    writing: bool,
    next: u64,
    /// By committer, until a leader takes them.
    waiting: BTreeMap<u64, Images>,
    /// What the tier did not take, by committer, until that fetches it.
    left: BTreeMap<u64, Images>,
}

/// The committers that write shadows.
pub(crate) struct Shadows {
    state: Mutex<State>,
    /// Signalled when a write has ended, and when a bar is set.
    changed: Condvar,
    pub counters: Counters,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub shadows: AtomicU64,
    pub writes: AtomicU64,
    pub logged: AtomicU64,
    pub early: AtomicU64,
}

impl Shadows {
    pub fn new() -> Shadows {
        let state = ranks::SHADOWS.mutex(State::default());
        Shadows { state, changed: Condvar::new(), counters: Counters::default() }
    }

    /// Has `write` write the images, perhaps with those of other committers; returns those that
    /// were not taken, all of them while there is a bar.
    pub fn write(&self, images: Images, write: impl Fn(&mut [PageWrite<'_>])) -> Images {
        let mut state = self.state.lock();
        let me = state.next;
        state.next += 1;
        state.waiting.insert(me, images);
        loop {
            if let Some(left) = state.left.remove(&me) {
                return left;
            }
            if state.bars > 0
                && let Some(images) = state.waiting.remove(&me)
            {
                return images;
            }
            if state.writing {
                self.changed.wait(&mut state);
                continue;
            }
            let batch = std::mem::take(&mut state.waiting);
            state.writing = true;
            drop(state);
            let mut leading = Leading { shadows: self, batch };
            leading.write(&write);
            drop(leading);
            state = self.state.lock();
        }
    }

    /// From here on, until [`Shadows::unbar`], no image becomes a shadow. Waits for the write under
    /// way: the records of all shadows lie before the log's end then.
    pub fn bar(&self) {
        let mut state = self.state.lock();
        state.bars += 1;
        self.changed.notify_all();
        while state.writing {
            self.changed.wait(&mut state);
        }
    }

    pub fn unbar(&self) {
        let mut state = self.state.lock();
        state.bars = state.bars.checked_sub(1).expect("each bar is lifted once");
    }
}

/// A write under way. When it ends, also by a panic, the committers get back what is left.
struct Leading<'s> {
    shadows: &'s Shadows,
    batch: BTreeMap<u64, Images>,
}

impl Leading<'_> {
    fn write(&mut self, write: impl Fn(&mut [PageWrite<'_>])) {
        let images = self.batch.values().flatten();
        let mut writes: Vec<PageWrite<'_>> =
            images.map(|image| PageWrite::back(image.page, image.version, Lsn::MAX, &image.bytes)).collect();
        write(&mut writes);
        let taken: Vec<bool> = writes.iter().map(PageWrite::is_taken).collect();
        let counters = &self.shadows.counters;
        let count = taken.iter().filter(|taken| **taken).count() as u64;
        counters.shadows.fetch_add(count, Ordering::Relaxed);
        counters.writes.fetch_add(1, Ordering::Relaxed);
        let mut taken = taken.into_iter();
        for images in self.batch.values_mut() {
            images.retain(|_| !taken.next().expect("one for each image"));
        }
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        let mut state = self.shadows.state.lock();
        state.writing = false;
        state.left.append(&mut self.batch);
        self.shadows.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::PageId;
    use firndb_base::sync::Arc;
    use firndb_tier::{Changes, Written};
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    fn image(page: u64) -> PageImage {
        PageImage { page: PageId(page), version: Lsn(page), bytes: vec![1; 64], whole: true }
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
    fn a_bar_waits_for_the_write_under_way_and_lets_no_other_begin() {
        let shadows = Arc::new(Shadows::new());
        let (begun, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let writer = {
            let (shadows, begun, ended) = (shadows.clone(), begun.clone(), ended.clone());
            std::thread::spawn(move || {
                shadows.write(vec![image(1)], |batch| {
                    begun.store(true, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(50));
                    batch.iter_mut().for_each(take);
                    ended.store(true, Ordering::SeqCst);
                })
            })
        };
        while !begun.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        shadows.bar();
        assert!(ended.load(Ordering::SeqCst));
        assert_eq!(writer.join().unwrap(), []);
        let left = shadows.write(vec![image(2)], |_| panic!("there is a bar"));
        assert_eq!(left, [image(2)]);
        shadows.unbar();
        assert_eq!(shadows.write(vec![image(2)], |batch| batch.iter_mut().for_each(take)), []);
    }

    #[test]
    fn a_write_that_panics_leaves_no_committer_waiting() {
        let shadows = Arc::new(Shadows::new());
        let other = shadows.clone();
        let panicked =
            std::thread::spawn(move || other.write(vec![image(1)], |_| panic!("as a test"))).join();
        assert!(panicked.is_err());
        assert_eq!(shadows.write(vec![image(2)], |batch| batch.iter_mut().for_each(take)), []);
    }
}
