//! What the cleaners write next: frames ahead of the clock's hand, and those that it has passed.
//!
//! Cleaners go over the frames once, ahead of the hand, from a position that they share: no two of
//! them inspect the same frame, and none is inspected again before the hand has passed it. A frame
//! that is dirty and cold is *found*; found ones are written when a batch of them has come
//! together, or no batch is under way, which would only make the batches smaller. A frame that a
//! miss had to pass because it is dirty is *handed over*: it is written first, and freed.
//!
//! Everything here is a hint: a frame is asked again under its latch. Bounded: `ready` by a window,
//! the others by two batches, and one more for each cleaner, which may put back what it took.

use crate::clock_hand::ClockHand;
use crate::frame::FrameId;
use crate::ranks;
use firndb_base::sync::Mutex;
use firndb_base::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::collections::VecDeque;

/// Most frames kept ready ahead of the clock's hand: about what misses consume between two steps.
const WINDOW_FRAMES_MAX: u32 = 4096;

/// What a look at a frame ahead of the hand says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// The clock would take it at once.
    Ready,
    /// Cold, and must be written first.
    Cold,
    /// In use, on its way to the tier, or without a page.
    Other,
}

/// Frames for one batch; the batch counts as under way until this is dropped.
pub(crate) struct Picked<'a> {
    list: &'a ToClean,
    pub(crate) frames: Vec<FrameId>,
    /// The first frames of these were handed over by misses.
    pub(crate) handed_over: usize,
    /// Whether another cleaner would find a batch, too.
    pub(crate) is_more: bool,
}

impl Picked<'_> {
    /// Returns those of the frames, from `from` on, that had no space in the batch.
    pub(crate) fn put_back(&mut self, from: usize) {
        if from == self.frames.len() {
            return;
        }
        let mut state = self.list.state.lock();
        let mut rest = self.frames.drain(from..);
        let passed = self.handed_over.saturating_sub(from);
        state.handed_over.extend(rest.by_ref().take(passed));
        state.found.extend(rest);
        self.handed_over -= passed;
        self.list.note_backlog(&state);
    }
}

impl Drop for Picked<'_> {
    fn drop(&mut self) {
        self.list.state.lock().under_way -= 1;
    }
}

#[derive(Default)]
struct State {
    handed_over: Vec<FrameId>,
    found: Vec<FrameId>,
    /// The next frame to be looked at, counted in steps of the hand.
    position: u64,
    /// Steps of the hand, from where it is now, that meet a frame that is clean and unused, or was
    /// found and will be.
    ready: VecDeque<u64>,
    /// Batches that cleaners write now.
    under_way: usize,
}

impl State {
    /// Forgets what the hand has passed since.
    fn follow(&mut self, hand: u64) {
        self.position = self.position.max(hand);
        while self.ready.front().is_some_and(|step| *step < hand) {
            self.ready.pop_front();
        }
    }
}

/// What the cleaners of a pool share.
pub(crate) struct ToClean {
    /// Held while frames are looked at; no thread waits under it.
    state: Mutex<State>,
    /// Whether as many frames are handed over as are taken at a time. A hint; spares the lock.
    backlogged: AtomicBool,
    /// Frames looked at by cleaners.
    pub(crate) looks: AtomicU64,
    batch_pages: usize,
    window: u32,
}

impl ToClean {
    pub(crate) fn new(frames: u32, batch_pages: usize) -> ToClean {
        let window = ToClean::window(frames as usize, batch_pages);
        ToClean {
            state: ranks::TO_CLEAN.mutex(State::default()),
            backlogged: AtomicBool::new(false),
            looks: AtomicU64::new(0),
            batch_pages,
            window,
        }
    }

    /// Frames ahead of the hand of which about half are to be ready.
    fn window(frames: usize, batch_pages: usize) -> u32 {
        (frames / 8).max(batch_pages).min(WINDOW_FRAMES_MAX as usize) as u32
    }

    /// Of the lists, and of what `cleaners` have taken from them, at their largest.
    pub(crate) fn memory_bytes(frames: usize, batch_pages: usize, cleaners: usize) -> usize {
        // A list doubles as it grows.
        2 * ToClean::window(frames, batch_pages) as usize * size_of::<u64>()
            + 2 * ToClean::listed_max(batch_pages, cleaners) * size_of::<FrameId>()
    }

    /// Most frames that are listed or taken. To less than a batch, misses add one, and so does a
    /// look ahead; each cleaner puts back one at most, to either list.
    fn listed_max(batch_pages: usize, cleaners: usize) -> usize {
        (3 + 3 * cleaners) * batch_pages
    }

    pub(crate) fn window_frames(&self) -> u32 {
        self.window
    }

    fn note_backlog(&self, state: &State) {
        self.backlogged.store(state.handed_over.len() >= self.batch_pages, Relaxed);
    }

    /// Whether the hand should not move on before the cleaners have taken what it passed.
    pub(crate) fn is_backlogged(&self) -> bool {
        self.backlogged.load(Relaxed)
    }

    /// Cold dirty frames that the hand has passed for a miss. What is too much is left to the
    /// hand's next turn.
    pub(crate) fn hand_over(&self, cold: &[FrameId]) {
        let mut state = self.state.lock();
        if state.handed_over.len() < self.batch_pages {
            let fits = cold.len().min(self.batch_pages);
            state.handed_over.extend(&cold[..fits]);
        }
        self.note_backlog(&state);
    }

    /// Frames for the next batch. Looks at frames from the shared position on, by `look`, if fewer
    /// than half of a window ahead of the hand are ready; `free` ones count as ready. If there is
    /// nothing and no batch is under way, those that `otherwise` returns.
    pub(crate) fn pick(
        &self,
        hand: &ClockHand,
        frames: u32,
        free: usize,
        look: impl Fn(FrameId) -> Look,
        otherwise: impl FnOnce() -> Vec<FrameId>,
    ) -> Option<Picked<'_>> {
        let wanted = (self.window as usize / 2).saturating_sub(free);
        let reach = u64::from(frames.min(4 * self.window));
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let now = hand.position();
        state.follow(now);
        let began = state.position;
        if state.ready.len() < wanted {
            while state.found.len() < self.batch_pages
                && state.ready.len() < self.window as usize
                && state.position < now + reach
            {
                let id = ClockHand::frame_at(state.position, frames);
                let seen = look(id);
                if seen == Look::Cold {
                    state.found.push(id);
                }
                if seen != Look::Other {
                    state.ready.push_back(state.position);
                }
                state.position += 1;
            }
        }
        self.looks.fetch_add(state.position - began, Relaxed);
        let mut taken = Vec::new();
        let alone = state.under_way == 0;
        let handed_over = state.handed_over.len().min(self.batch_pages);
        if alone || handed_over > 0 || state.found.len() >= self.batch_pages {
            taken.extend(state.handed_over.drain(..handed_over));
            let fits = state.found.len().min(self.batch_pages - handed_over);
            taken.extend(state.found.drain(..fits));
            self.note_backlog(state);
        }
        if taken.is_empty() && alone {
            taken = otherwise();
        }
        if taken.is_empty() {
            return None;
        }
        state.under_way += 1;
        let is_more = !state.handed_over.is_empty() || state.ready.len() < wanted;
        Some(Picked { list: self, frames: taken, handed_over, is_more })
    }

    /// After a batch failed: its frames, and all that was found, are looked at again.
    pub(crate) fn start_again(&self) {
        let mut state = self.state.lock();
        state.found.clear();
        state.ready.clear();
        state.position = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMES: u32 = 1024;
    const BATCH: usize = 32;

    fn pass(hand: &ClockHand, steps: u32) {
        for _ in 0..steps {
            let _ = hand.pass(FRAMES);
        }
    }

    fn pick<'a>(list: &'a ToClean, hand: &ClockHand, look: impl Fn(FrameId) -> Look) -> Option<Picked<'a>> {
        list.pick(hand, FRAMES, 0, look, Vec::new)
    }

    #[test]
    fn cleaners_take_different_frames_and_look_at_each_once() {
        let (list, hand) = (ToClean::new(FRAMES, BATCH), ClockHand::default());
        let first = pick(&list, &hand, |_| Look::Cold).expect("all are cold");
        let second = pick(&list, &hand, |_| Look::Cold).expect("half of the window is not ready yet");
        let numbers = |picked: &Picked<'_>| picked.frames.iter().map(|id| id.0).collect::<Vec<_>>();
        assert_eq!(numbers(&first), (0..32).collect::<Vec<_>>());
        assert_eq!(numbers(&second), (32..64).collect::<Vec<_>>());
        assert!(first.is_more && !second.is_more, "half of a window of 128 frames");
        assert!(pick(&list, &hand, |_| Look::Cold).is_none());
        pass(&hand, 40);
        let third = pick(&list, &hand, |_| Look::Cold).expect("the hand has passed 40 of the 64");
        assert_eq!(numbers(&third), (64..96).collect::<Vec<_>>());
        assert_eq!(list.looks.load(Relaxed), 96);
    }

    #[test]
    fn a_part_of_a_batch_waits_while_another_is_under_way() {
        let (list, hand) = (ToClean::new(FRAMES, BATCH), ClockHand::default());
        let one_in_16 = |id: FrameId| if id.0.is_multiple_of(16) { Look::Cold } else { Look::Other };
        // Its reach are 512 frames.
        let alone = pick(&list, &hand, one_in_16).expect("no other batch is under way");
        assert_eq!((alone.frames.len(), alone.handed_over), (32, 0));
        pass(&hand, 160);
        assert!(pick(&list, &hand, one_in_16).is_none(), "ten are too few beside another batch");
        list.hand_over(&[FrameId(1)]);
        let for_a_miss = pick(&list, &hand, one_in_16).expect("misses wait for it");
        assert_eq!((for_a_miss.frames.len(), for_a_miss.handed_over), (11, 1));
        assert_eq!(for_a_miss.frames[0], FrameId(1));
        drop(for_a_miss);
        drop(alone);
        pass(&hand, 16);
        assert_eq!(pick(&list, &hand, one_in_16).expect("alone again").frames.len(), 1);
    }

    #[test]
    fn what_does_not_fit_a_batch_or_fails_is_taken_again() {
        let (list, hand) = (ToClean::new(FRAMES, BATCH), ClockHand::default());
        let cold: Vec<FrameId> = (900..960).map(FrameId).collect();
        list.hand_over(&cold);
        assert!(list.is_backlogged());
        let mut picked = pick(&list, &hand, |_| Look::Cold).expect("handed over");
        assert_eq!((picked.frames.len(), picked.handed_over), (32, 32));
        assert!(!list.is_backlogged());
        picked.put_back(20);
        assert_eq!((picked.frames.len(), picked.handed_over), (20, 20));
        drop(picked);
        let mut rest = pick(&list, &hand, |_| Look::Other).expect("put back");
        assert_eq!((rest.frames.len(), rest.handed_over), (32, 12));
        assert_eq!((rest.frames[0], rest.frames[12]), (FrameId(920), FrameId(0)));
        rest.put_back(30);
        assert_eq!((rest.frames.len(), rest.handed_over), (30, 12));
        drop(rest);
        list.start_again();
        let again = pick(&list, &hand, |_| Look::Cold).expect("from the hand on");
        assert_eq!(again.frames, (0..32).map(FrameId).collect::<Vec<_>>());
    }

    /// Cause: what cleaners put back was not counted. Effect: the lists outgrew their part of the
    /// budget.
    #[test]
    fn the_lists_have_a_bound_whatever_is_put_back() {
        const CLEANERS: usize = 3;
        let (list, hand) = (ToClean::new(FRAMES, BATCH), ClockHand::default());
        let cold: Vec<FrameId> = (0..40).map(FrameId).collect();
        let mut most = 0;
        for round in 0..100 {
            let mut taken: Vec<_> = (0..CLEANERS)
                .map(|_| {
                    list.hand_over(&cold);
                    list.hand_over(&cold);
                    pass(&hand, 16);
                    pick(&list, &hand, |_| Look::Cold).expect("handed over")
                })
                .collect();
            list.hand_over(&cold);
            taken.iter_mut().for_each(|picked| picked.put_back(round % 3));
            let state = list.state.lock();
            let lists = [&state.handed_over, &state.found].into_iter();
            let taken = taken.iter().map(|picked| &picked.frames);
            most = most.max(lists.chain(taken).map(Vec::capacity).sum());
            drop(state);
        }
        assert!(most > 8 * BATCH && most <= 2 * ToClean::listed_max(BATCH, CLEANERS), "{most} frames");
    }

    #[test]
    fn in_a_pool_that_is_mostly_clean_it_stops_at_a_window() {
        let (list, hand) = (ToClean::new(FRAMES, BATCH), ClockHand::default());
        let look = |id: FrameId| if id.0 == 5 { Look::Cold } else { Look::Ready };
        assert_eq!(pick(&list, &hand, look).expect("one").frames, [FrameId(5)]);
        assert_eq!(list.looks.load(Relaxed), 128);
        pass(&hand, 63);
        assert!(pick(&list, &hand, look).is_none());
        assert_eq!(list.looks.load(Relaxed), 128, "more than half of a window is still ready");
    }
}
