//! Taking devices for writes and returning them; devices that fail, join and leave.

use crate::error::LogError;
use crate::ids::MemberId;
use crate::members::state::MemberState;
use crate::write::front::Composed;
use crate::write::in_flight::slot::{FreeDevice, Slot};
use crate::write::in_flight::{Flight, Moved, Orphan};
use crate::write::job::{Bytes, Job, Task};
use firndb_base::Lsn;
use firndb_base::sync::Arc;
use firndb_device::{AlignedBuf, Device};

impl Flight {
    /// Takes a free device for the next request. The one after the last request's device comes
    /// first; the first `tried` in this order were tried before, and `tried` is advanced.
    pub fn take_free_device(&mut self, tried: &mut usize) -> Option<FreeDevice> {
        if !self.may_request() {
            return None;
        }
        let count = self.slots.len();
        while *tried < count {
            let device = (self.next_device + *tried) % count;
            *tried += 1;
            if let Some(free) = self.take_device(device) {
                return Some(free);
            }
        }
        None
    }

    /// Whether a new request may be composed: not while a device failure is unsettled, and not
    /// before requests that lost their devices.
    pub fn may_request(&self) -> bool {
        self.unsettled_losses == 0 && self.orphans.is_empty()
    }

    /// Takes a device if it is free and in use.
    pub fn take_device(&mut self, device: usize) -> Option<FreeDevice> {
        let slot = &mut self.slots[device];
        let buf = if slot.is_usable() { slot.buffer.take()? } else { return None };
        Some(FreeDevice { device, owner: slot.owner, buf })
    }

    /// Returns a device that was taken, and for which nothing could be composed.
    pub fn return_device(&mut self, free: FreeDevice) {
        self.slots[free.device].buffer = Some(free.buf);
    }

    /// Returns the buffer of a write that failed, once the log has failed.
    pub fn return_buffer(&mut self, device: usize, buf: AlignedBuf) {
        self.slots[device].buffer = Some(buf);
    }

    /// All devices of the log, by index; those that have left keep their places.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Indexes of all devices, the one that is tried first for the next request first.
    pub fn devices_in_turn(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, count) = (self.next_device, self.slots.len());
        (0..count).map(move |i| (first + i) % count)
    }

    /// Indexes of all devices, the one of the last request last.
    pub fn devices_after_last(&self) -> impl Iterator<Item = usize> + use<> {
        let (last, count) = (self.last_device, self.slots.len());
        (1..=count).map(move |i| (last + i) % count)
    }

    /// Whether no device in use is writing.
    pub fn is_all_free(&self) -> bool {
        self.busy_devices() == 0
    }

    /// Whether any device in use is free.
    pub fn has_idle_device(&self) -> bool {
        self.slots.iter().any(Slot::is_ready)
    }

    /// Devices in use that are writing.
    pub(super) fn busy_devices(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_usable() && slot.buffer.is_none()).count()
    }

    /// Devices in use.
    pub fn usable(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_usable()).count()
    }

    /// Devices that each request should go to.
    pub fn copies(&self) -> usize {
        self.rules.copies
    }

    /// Devices that a new request goes to.
    pub fn width(&self) -> usize {
        if self.rules.copies == 1 { 1 } else { self.rules.copies.min(self.usable()).max(1) }
    }

    /// Whether enough devices are free for a new request.
    pub fn has_idle_set(&self) -> bool {
        match self.width() {
            1 => self.has_idle_device(),
            width => self.slots.iter().filter(|slot| slot.is_ready()).count() >= width,
        }
    }

    /// Adds a device. Returns its index.
    pub fn add_device(&mut self, slot: Slot) -> usize {
        self.slots.push(slot);
        self.hider.add_device();
        self.hedges = self.hider.is_active();
        self.slots.len() - 1
    }

    /// Takes a device out of use that is to leave.
    pub fn stop_using(&mut self, device: usize) {
        assert!(self.slots[device].is_usable(), "a device leaves once");
        self.slots[device].state = MemberState::Leaving;
    }

    /// Takes a device that was to leave into use again. Returns whether it was to leave.
    pub fn use_again(&mut self, device: usize) -> bool {
        let slot = &mut self.slots[device];
        let leaving = slot.state == MemberState::Leaving;
        if leaving {
            slot.state = MemberState::InUse;
        }
        leaving
    }

    /// Forgets a device that takes no requests. Returns it.
    pub fn forget(&mut self, device: usize) -> Arc<dyn Device> {
        assert!(self.slots[device].state != MemberState::InUse, "a member stops being used first");
        self.slots[device].leave()
    }

    /// Ends a write that failed, as far as the device is concerned; its loss is to be settled.
    pub fn write_failed(&mut self, device: usize) {
        let slot = &mut self.slots[device];
        slot.writing = None;
        slot.writes_ended += 1;
    }

    /// Takes a device that failed out of use, if at least `needed` others are in use and the log
    /// has not failed. Returns its id. Until [`Flight::settle_loss`], no request is composed.
    pub fn disable(&mut self, device: usize, needed: usize) -> Option<MemberId> {
        let others = self.slots.iter().enumerate().filter(|(i, slot)| *i != device && slot.is_usable());
        if self.failed.is_some() || others.count() < needed {
            return None;
        }
        let slot = &mut self.slots[device];
        assert!(slot.state != MemberState::Failed, "a device has one write at a time");
        slot.state = MemberState::Failed;
        self.unsettled_losses += 1;
        Some(slot.member())
    }

    /// Settles the failed write of `task` on a device: the request does without this copy, or is an
    /// orphan. `dropped`: the device is no member any more.
    pub fn settle_loss(
        &mut self,
        device: usize,
        task: Task,
        bytes: Arc<Bytes>,
        dropped: bool,
        end: Lsn,
    ) -> Moved {
        self.unsettled_losses -= 1;
        let mut moved = self.write_returned();
        if dropped {
            drop(self.slots[device].leave());
        }
        if let Some(number) = task.request()
            && self.copy_failed(number)
        {
            self.orphans.push_back(Orphan { number, bytes });
            self.orphans.make_contiguous().sort_unstable_by_key(|orphan| orphan.number);
        }
        let on_devices = self.remove_done();
        self.acknowledge(on_devices, end, &mut moved);
        moved
    }

    /// Records a failed write of request `number`. If too few of its writes are left, the request
    /// requires fewer copies. Returns whether it has no copy at all and must be written anew.
    fn copy_failed(&mut self, number: u64) -> bool {
        let Some(request) = self.unfinished_mut(number) else { return false };
        assert!(request.writes > 0, "a write is counted before it begins");
        request.writes -= 1;
        request.copies_required = request.copies_required.min(request.copies_written + request.writes).max(1);
        request.done = request.copies_written >= request.copies_required;
        request.copies_written + request.writes == 0
    }

    /// Whether any request has lost its devices.
    pub fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// The oldest request that lost its devices: its first LSN and the bytes to write.
    pub fn oldest_orphan(&self) -> Option<(Lsn, Arc<Bytes>)> {
        let orphan = self.orphans.front()?;
        let request = self.unfinished(orphan.number).expect("an orphan is not done");
        Some((request.from, Arc::clone(&orphan.bytes)))
    }

    /// Registers a write of the oldest orphan that was composed for `free`.
    pub fn begin_orphan(&mut self, free: FreeDevice, composed: Composed) -> Job {
        let orphan = self.orphans.pop_front().expect("the caller has composed it");
        self.add_write(orphan.number, free.device);
        self.begin_write(free, composed, Task::Request(orphan.number))
    }

    /// Records that request `number` is written to `device` as well.
    pub(super) fn add_write(&mut self, number: u64, device: usize) {
        if let Some(request) = self.unfinished_mut(number) {
            request.devices |= 1 << device;
            request.writes += 1;
        }
    }

    /// Whether a request has lost its devices, and no device can take it although all are free. The
    /// threads that wait for it have queued everything, and would wait for ever.
    pub fn is_stuck(&self) -> bool {
        self.is_all_free() && !self.orphans.is_empty() && self.failed.is_none() && self.unsettled_losses == 0
    }

    /// Gives the log up because of `error`: it fails, queued writes that no thread has begun are
    /// dropped, and so are the references to all devices. The caller drops what is returned, with
    /// no lock held.
    pub fn give_up(&mut self, error: &LogError) -> (Vec<Job>, Vec<Arc<dyn Device>>) {
        self.given_up = Some(error.clone());
        // Before the devices are dropped: a write composed in between would fail, and remove a
        // healthy device from the log.
        self.failed.get_or_insert_with(|| error.clone());
        let jobs = self.drop_queued();
        let devices = self.slots.iter_mut().map(Slot::detach_device).collect();
        (jobs, devices)
    }

    /// Drops the writes that are queued: no thread issues them any more.
    pub fn drop_queued(&mut self) -> Vec<Job> {
        self.outstanding_writes -= self.jobs.len();
        self.jobs.drain(..).collect()
    }
}
