//! Requests that are written once more while a write of them is in flight (`hedge/overdue.rs`).

use crate::hedge::hiding::{Hider, Performed};
use crate::write::front::Composed;
use crate::write::in_flight::Flight;
use crate::write::in_flight::slot::{FreeDevice, Writing};
use crate::write::job::{Bytes, Job, Task};
use firndb_base::Lsn;
use firndb_base::clock::Moment;
use firndb_base::sync::Arc;

impl Flight {
    /// Whether a request in flight could be issued again now.
    pub fn may_reissue(&self) -> bool {
        self.hedges && self.is_busy() && self.has_idle_device() && self.failed.is_none()
    }

    /// Whether writes in flight may become overdue.
    pub fn may_become_overdue(&self) -> bool {
        self.hedges && self.is_busy()
    }

    /// When writes are overdue, and which of them are worth issuing again.
    pub fn hider(&self) -> &Hider {
        &self.hider
    }

    /// The write on a device.
    pub fn writing(&self, device: usize) -> Option<&Writing> {
        self.slots[device].writing.as_ref()
    }

    /// Records that the write on a device was found overdue.
    pub fn detect_overdue(&mut self, device: usize) {
        if let Some(writing) = &mut self.slots[device].writing
            && !std::mem::replace(&mut writing.detected, true)
        {
            self.hider.detect();
        }
    }

    /// Registers a write of request `number` that was composed for `free`, since its write on the
    /// device `slow` is overdue. `contended`: log waited for a device.
    pub fn begin_again(
        &mut self,
        free: FreeDevice,
        composed: Composed,
        number: u64,
        slow: usize,
        contended: bool,
    ) -> Job {
        self.hider.reissue(composed.len as u64);
        if let Some(writing) = &mut self.slots[slow].writing {
            writing.reissued = Some(contended);
        }
        self.add_write(number, free.device);
        self.begin_write(free, composed, Task::Again { request: number, slow })
    }

    /// Learns the latency of a write that has ended at `at`, and judges what hedging it gained.
    pub(super) fn learn_from_write(&mut self, device: usize, bytes: &Arc<Bytes>, at: Moment, end: Lsn) {
        if let (Some(writing), Some(begun)) = (self.slots[device].writing.take(), bytes.begun()) {
            let contended = writing.reissued.unwrap_or_else(|| self.is_contended(end));
            self.hider.performed(Performed {
                device,
                blocks: writing.blocks,
                took: at.since(begun.at),
                hides: writing.hides,
                reissued: writing.reissued.is_some(),
                contended,
                hidden_for: writing.hidden_at.map(|hidden| at.since(hidden)),
            });
        }
    }

    /// Notes in the other writes of request `number` that the request was done at `at`.
    pub(super) fn note_hidden(&mut self, number: u64, at: Moment) {
        let others = self.slots.iter_mut().filter_map(|slot| slot.writing.as_mut());
        others.filter(|w| w.request == Some(number)).for_each(|w| w.hidden_at = Some(at));
    }
}
