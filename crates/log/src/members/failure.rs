//! A device whose write failed: it leaves the log, and its request is written on another device.
//!
//! The log cannot decide whether it can do without the device: the caller knows what is durable
//! about the log's members. So the caller's handler is called, and only then the failed write is
//! settled. Meanwhile its request is not done, and no other request is composed: each request is
//! acknowledged either with the copies that the superblock promises, or after the superblock
//! promises fewer.
//!
//! A request that is on no device by then, an *orphan*, is written anew from its bytes in memory:
//! to a device's main stream, if no later log lies there yet, else to its area. If no device has
//! such a place, the log fails.

use crate::block::STREAM_MAIN;
use crate::error::{LogError, LogErrorKind};
use crate::hedge::reissue::Need;
use crate::ids::MemberId;
use crate::layout_policy::LogPolicy;
use crate::members::loss::{Left, Loss, LostMember};
use crate::members::state::MemberState;
use crate::write::completion::{InDevice, unknown_outcome};
use crate::write::flight::{Flight, Orphan};
use crate::write::job::{Bytes, Job, Task};
use crate::write::pipeline::Pipeline;
use firn_base::Lsn;
use firn_base::sync::Arc;
use firn_device::DeviceError;

impl Pipeline {
    /// Ends a write that failed. The caller holds no lock.
    pub fn device_failed(&self, device: usize, task: Task, bytes: Arc<Bytes>, error: &DeviceError) {
        let disabled = {
            let mut flight = self.flight.lock();
            flight.slots[device].writing = None;
            flight.slots[device].writes_ended += 1;
            self.disable_device(&mut flight, device)
        };
        let settled = disabled.ok_or_else(|| unknown_outcome(error)).and_then(|(member, requested)| {
            let handler = self.handler.get().ok_or_else(|| unknown_outcome(error))?;
            // If the handler panics, the write counts as returned, so that no thread waits for it.
            let in_handler = InDevice(self);
            let name = self.flight.lock().slots[device].device.info().name.clone();
            let left = || {
                let flight = self.flight.lock();
                Left { devices: flight.usable(), copies: flight.width() }
            };
            let error = error.message.clone();
            let decision =
                handler.decide(&LostMember { member, device: name, error, requested, left: &left });
            std::mem::forget(in_handler);
            decision
        });
        match settled {
            Ok(loss) => self.settle_loss(device, task, bytes, loss),
            Err(failure) => {
                self.fail(failure);
                let mut flight = self.flight.lock();
                flight.slots[device].buffer = Some(Bytes::ended(bytes).buf);
                self.write_returned(&mut flight);
            }
        }
    }

    /// Takes a device out of use. Returns its id and the LSN up to which log has been requested;
    /// `None` if the log cannot continue without it.
    fn disable_device(&self, flight: &mut Flight, device: usize) -> Option<(MemberId, Lsn)> {
        // In a striped log, only the owner of a stripe may write it.
        let array = self.options.policy == LogPolicy::Array;
        if !array || flight.failed.is_some() || self.handler.get().is_none() {
            return None;
        }
        let others = flight.slots.iter().enumerate().filter(|(i, slot)| *i != device && slot.is_usable());
        let left = others.count();
        if left < self.options.copies_required.max(1) {
            return None;
        }
        let slot = &mut flight.slots[device];
        assert!(slot.state != MemberState::Failed, "a device has one write at a time");
        slot.state = MemberState::Failed;
        flight.unsettled_losses += 1;
        let mut front = self.front.lock();
        front.set_in_use(device, false);
        Some((MemberId(flight.slots[device].owner.member), front.requested()))
    }

    fn settle_loss(&self, device: usize, task: Task, bytes: Arc<Bytes>, loss: Loss) {
        let mut flight = self.flight.lock();
        flight.unsettled_losses -= 1;
        self.write_returned(&mut flight);
        if loss == Loss::Dropped {
            drop(flight.slots[device].leave());
        }
        if let Some(number) = task.request()
            && flight.write_failed(number)
        {
            flight.orphans.push_back(Orphan { number, bytes });
            flight.orphans.make_contiguous().sort_unstable_by_key(|orphan| orphan.number);
        }
        let mut list = std::mem::take(&mut flight.scratch);
        let durable = flight.advance_durable();
        self.acknowledge(&mut flight, durable, &mut list);
        self.wake_next_writer(&mut flight, &mut list);
        if self.has_workers(&flight) {
            self.work.notify_all();
        }
        self.unlock_and_wake(flight, list);
    }

    /// Composes the oldest orphan anew for a device that is free.
    pub fn compose_orphan(&self, flight: &mut Flight) -> Option<Job> {
        let (number, bytes) = flight.orphans.front().map(|o| (o.number, Arc::clone(&o.bytes)))?;
        let from = flight.unfinished(number).expect("an orphan is not done").from;
        let begun = bytes.begun().expect("a write that failed has begun");
        for device in 0..flight.slots.len() {
            let Some(mut buf) = flight.take_buffer(device) else { continue };
            let main = flight.slots[device].owner;
            assert_eq!(main.stream, STREAM_MAIN);
            let composed = [main, main.area()].into_iter().find_map(|owner| {
                let block_bytes = &begun.buf[..begun.len];
                self.front.lock().compose_again(device, owner, from, block_bytes, Need::Loss, &mut buf)
            });
            let Some(composed) = composed else {
                flight.slots[device].buffer = Some(buf);
                continue;
            };
            flight.orphans.pop_front();
            flight.add_write(number, device);
            return Some(self.job(flight, device, buf, composed, Task::Request(number)));
        }
        None
    }

    /// Whether a request has lost its devices, and no device can take it although all are free. The
    /// threads that wait for it have queued everything, and would wait for ever.
    pub fn is_stuck(&self, flight: &Flight) -> bool {
        flight.is_all_free()
            && !flight.orphans.is_empty()
            && flight.failed.is_none()
            && flight.unsettled_losses == 0
    }

    /// The error for a thread that found every device free and nothing to write, and would wait for
    /// ever.
    pub fn no_progress_error(&self, flight: &Flight, lsn: Lsn) -> LogError {
        let message = if flight.orphans.is_empty() {
            format!("no log device has space for log that was admitted before LSN {lsn}")
        } else {
            "the log failed: no other log device can take what was being written to one that failed. Whether commits \
             that were not acknowledged yet are durable is unknown until the database is opened again"
                .to_owned()
        };
        LogError::new(LogErrorKind::Failed, message)
    }

    /// Wakes a thread to write after a change that is not the end of a write.
    pub fn wake_after_device_change(&self) {
        let mut flight = self.flight.lock();
        let mut list = std::mem::take(&mut flight.scratch);
        self.wake_next_writer(&mut flight, &mut list);
        self.unlock_and_wake(flight, list);
    }
}
