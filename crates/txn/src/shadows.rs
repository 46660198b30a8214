//! Committers and loads that write shadows of private images (`put_page.rs`), and the threads that
//! help them.
//!
//! *A call of many images* is cut into parts of one durable write each. Its thread and the helpers
//! write them side by side, at most [`UNDER_WAY_MAX`] at once: such writes wait for the device more
//! than they keep it busy. A load goes on composing meanwhile. *Calls of few images share writes*:
//! one that finds no such write under way leads one of all that wait; those that come meanwhile are
//! the next one. It may begin beside the most writes of parts, and so waits for none of them.

use crate::page_images::PageImage;
use crate::ranks;
use firndb_base::Lsn;
use firndb_base::sync::atomic::{AtomicU64, Ordering};
use firndb_base::sync::{Condvar, Mutex, MutexGuard};
use firndb_tier::PageWrite;
use std::collections::{BTreeMap, VecDeque};

/// As many pages as the store writes at once.
const PART_PAGES: usize = 64;
/// Most writes under way, beside one of calls of few images.
const UNDER_WAY_MAX: usize = 4;
/// Threads that help: a call's own thread writes, too.
pub(crate) const HELPERS: usize = UNDER_WAY_MAX - 1;

/// Images of one call or some.
pub(crate) type Images = Vec<PageImage>;

/// Images that one durable write takes, all of one call.
#[derive(Debug)]
struct Part {
    call: u64,
    images: Images,
}

/// What is known of a call until it ends.
#[derive(Debug, Default)]
struct Call {
    /// Its parts that wait or are under way.
    parts: usize,
    /// Images that no write took, and none will.
    left: Images,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    calls: BTreeMap<u64, Call>,
    /// Parts that wait, of calls that have several.
    parts: VecDeque<Part>,
    /// Calls of one part that wait, and how many pages they have.
    few: VecDeque<Part>,
    few_pages: usize,
    /// Writes under way, and those of them that are of `few`.
    under_way: usize,
    sharing: usize,
    /// The helpers are to end.
    ended: bool,
}

impl State {
    /// Queues images of a call in parts, which helpers may write.
    fn queue(&mut self, call: u64, images: Images) {
        let of_call = self.calls.get_mut(&call).expect("it has not ended");
        let mut rest = images.into_iter().peekable();
        while rest.peek().is_some() {
            of_call.parts += 1;
            self.parts.push_back(Part { call, images: rest.by_ref().take(PART_PAGES).collect() });
        }
    }

    /// Queues all images of a call that shares writes.
    fn queue_few(&mut self, call: u64, images: Images) {
        self.calls.get_mut(&call).expect("it has not ended").parts += 1;
        self.few_pages += images.len();
        self.few.push_back(Part { call, images });
    }

    /// Takes what a thread of this call, or a helper, is to write now.
    fn take(&mut self, call: Option<u64>) -> Option<(Vec<Part>, bool)> {
        let is_own = |part: &Part| call.is_none_or(|call| part.call == call);
        if self.under_way < UNDER_WAY_MAX
            && let Some(at) = self.parts.iter().position(is_own)
        {
            self.under_way += 1;
            return self.parts.remove(at).map(|part| (vec![part], false));
        }
        let may_share = match self.sharing {
            0 => true,
            _ => self.under_way < UNDER_WAY_MAX && self.few_pages >= PART_PAGES,
        };
        if call.is_none() || !may_share || !self.few.iter().any(is_own) {
            return None;
        }
        let (mut taken, mut pages) = (Vec::new(), 0);
        while let Some(part) = self.few.front()
            && pages + part.images.len() <= PART_PAGES
        {
            pages += part.images.len();
            taken.extend(self.few.pop_front());
        }
        self.few_pages -= pages;
        self.under_way += 1;
        self.sharing += 1;
        Some((taken, true))
    }

    /// Takes back what of a call waits.
    fn withdraw(&mut self, call: u64) {
        let of_call = self.calls.get_mut(&call).expect("it has not ended");
        for queue in [&mut self.parts, &mut self.few] {
            let (own, others) = std::mem::take(queue).into_iter().partition(|part: &Part| part.call == call);
            *queue = others;
            for Part { images, .. } in own {
                of_call.parts -= 1;
                of_call.left.extend(images);
            }
        }
        self.few_pages = self.few.iter().map(|part| part.images.len()).sum();
    }
}

/// Those that write shadows.
pub(crate) struct Shadows {
    state: Mutex<State>,
    /// Signalled when a write has ended.
    changed: Condvar,
    /// Signalled when helpers may find something to write, and when they are to end.
    called: Condvar,
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
        Shadows { state, changed: Condvar::new(), called: Condvar::new(), counters: Counters::default() }
    }

    /// Has `write` write the images, perhaps with those of other calls, or by a helper; returns
    /// those that were not taken.
    pub fn write(&self, images: Images, write: impl Fn(&mut [PageWrite<'_>])) -> Images {
        let mut writing = self.begin();
        if images.len() <= PART_PAGES {
            self.state.lock().queue_few(writing.call, images);
            return writing.finish(&write);
        }
        let mut left = writing.add(images, &write);
        left.append(&mut writing.finish(&write));
        left
    }

    /// Begins a call that gives its images little by little.
    pub fn begin(&self) -> Writing<'_> {
        let mut state = self.state.lock();
        let call = state.next;
        state.next += 1;
        state.calls.insert(call, Call::default());
        Writing { shadows: self, call }
    }

    /// Writes parts of calls, until [`Shadows::end_help`].
    pub fn help(&self, write: impl Fn(&mut [PageWrite<'_>])) {
        let mut state = self.state.lock();
        while !state.ended {
            match state.take(None) {
                Some(taken) => state = self.lead(state, taken, &write),
                None => self.called.wait(&mut state),
            }
        }
    }

    /// Ends the helpers; calls go on without them.
    pub fn end_help(&self) {
        self.state.lock().ended = true;
        self.called.notify_all();
    }

    /// Writes what was taken.
    fn lead<'s>(
        &'s self,
        state: MutexGuard<'s, State>,
        (parts, shares): (Vec<Part>, bool),
        write: &impl Fn(&mut [PageWrite<'_>]),
    ) -> MutexGuard<'s, State> {
        drop(state);
        let mut leading = Leading { shadows: self, parts, shares };
        leading.write(write);
        drop(leading);
        self.state.lock()
    }
}

/// A call that gives images to be written. When it is dropped nothing of it is under way any more.
pub(crate) struct Writing<'s> {
    shadows: &'s Shadows,
    call: u64,
}

impl<'s> Writing<'s> {
    /// Has images written, some of them perhaps after it returns. Returns those of the call that
    /// were not taken so far.
    pub fn add(&mut self, images: Images, write: &impl Fn(&mut [PageWrite<'_>])) -> Images {
        let shadows = self.shadows;
        let mut state = shadows.state.lock();
        state.queue(self.call, images);
        shadows.called.notify_all();
        self.wait(state, UNDER_WAY_MAX, write)
    }

    /// Returns when all is written; as `add`.
    pub fn finish(self, write: &impl Fn(&mut [PageWrite<'_>])) -> Images {
        let shadows = self.shadows;
        self.wait(shadows.state.lock(), 0, write)
    }

    /// Writes parts of the call until at most so many are not written.
    fn wait(
        &self,
        mut state: MutexGuard<'s, State>,
        parts_max: usize,
        write: &impl Fn(&mut [PageWrite<'_>]),
    ) -> Images {
        loop {
            let of_call = state.calls.get_mut(&self.call).expect("it has not ended");
            if of_call.parts <= parts_max {
                return std::mem::take(&mut of_call.left);
            }
            match state.take(Some(self.call)) {
                Some(taken) => state = self.shadows.lead(state, taken, write),
                None => self.shadows.changed.wait(&mut state),
            }
        }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut state = self.shadows.state.lock();
        state.withdraw(self.call);
        while state.calls[&self.call].parts > 0 {
            self.shadows.changed.wait(&mut state);
        }
        state.calls.remove(&self.call);
    }
}

/// A write under way. When it ends, also by a panic, the calls get back what is left.
struct Leading<'s> {
    shadows: &'s Shadows,
    parts: Vec<Part>,
    shares: bool,
}

impl Leading<'_> {
    fn write(&mut self, write: &impl Fn(&mut [PageWrite<'_>])) {
        let images = self.parts.iter().flat_map(|part| &part.images);
        let mut writes: Vec<PageWrite<'_>> =
            images.map(|image| PageWrite::back(image.page, image.version, Lsn::MAX, &image.bytes)).collect();
        write(&mut writes);
        let taken: Vec<bool> = writes.iter().map(PageWrite::is_taken).collect();
        let counters = &self.shadows.counters;
        let count = taken.iter().filter(|taken| **taken).count() as u64;
        counters.shadows.fetch_add(count, Ordering::Relaxed);
        counters.writes.fetch_add(1, Ordering::Relaxed);
        let mut taken = taken.into_iter();
        for part in &mut self.parts {
            part.images.retain(|_| !taken.next().expect("one for each image"));
        }
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        let mut state = self.shadows.state.lock();
        state.under_way -= 1;
        state.sharing -= usize::from(self.shares);
        for Part { call, images } in self.parts.drain(..) {
            let call = state.calls.get_mut(&call).expect("it waits for its parts");
            call.parts -= 1;
            call.left.extend(images);
        }
        self.shadows.changed.notify_all();
        if !state.parts.is_empty() {
            self.shadows.called.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
