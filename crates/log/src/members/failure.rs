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
use crate::members::loss::{Left, Loss, LostMember};
use crate::write::completion::{InDevice, unknown_outcome};
use crate::write::in_flight::Flight;
use crate::write::job::{Bytes, Job, Task};
use crate::write::pipeline::Pipeline;
use firndb_base::Lsn;
use firndb_base::sync::Arc;
use firndb_device::DeviceError;

impl Pipeline {
    /// Ends a write that failed. The caller holds no lock.
    pub fn device_failed(&self, device: usize, task: Task, bytes: Arc<Bytes>, error: &DeviceError) {
        let disabled = {
            let mut flight = self.flight.lock();
            flight.write_failed(device);
            self.disable_device(&mut flight, device)
        };
        let settled = disabled.ok_or_else(|| unknown_outcome(error)).and_then(|(member, requested)| {
            let handler = self.handler.get().ok_or_else(|| unknown_outcome(error))?;
            // If the handler panics, the write counts as returned, so that no thread waits for it.
            let in_handler = InDevice(self);
            let name = self.flight.lock().slots()[device].device().info().name.clone();
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
                flight.return_buffer(device, Bytes::ended(bytes).buf);
                let moved = flight.write_returned();
                self.acknowledge(moved);
            }
        }
    }

    /// Takes a device out of use. Returns its id and the LSN up to which log has been requested;
    /// `None` if the log cannot continue without it.
    fn disable_device(&self, flight: &mut Flight, device: usize) -> Option<(MemberId, Lsn)> {
        if !self.options.takes_any_device() || self.handler.get().is_none() {
            return None;
        }
        let member = flight.disable(device, self.options.copies_required.max(1))?;
        let mut front = self.front.lock();
        front.set_in_use(device, false);
        Some((member, front.requested()))
    }

    fn settle_loss(&self, device: usize, task: Task, bytes: Arc<Bytes>, loss: Loss) {
        let mut flight = self.flight.lock();
        let moved = flight.settle_loss(device, task, bytes, loss == Loss::Dropped, self.end());
        self.acknowledge(moved);
        let next = flight.next_writer(self.end());
        if next.worker {
            self.work.notify_one();
        }
        if flight.has_workers() {
            self.work.notify_all();
        }
        self.unlock_and_wake(flight, next.wakes);
    }

    /// Composes the oldest orphan anew for a device that is free.
    pub fn compose_orphan(&self, flight: &mut Flight) -> Option<Job> {
        let (from, bytes) = flight.oldest_orphan()?;
        let begun = bytes.begun().expect("a write that failed has begun");
        for device in 0..flight.slots().len() {
            let Some(mut free) = flight.take_device(device) else { continue };
            let main = free.owner;
            assert_eq!(main.stream, STREAM_MAIN);
            let composed = [main, main.area()].into_iter().find_map(|owner| {
                let block_bytes = &begun.buf[..begun.len];
                self.front.lock().compose_again(device, owner, from, block_bytes, Need::Loss, &mut free.buf)
            });
            match composed {
                Some(composed) => return Some(flight.begin_orphan(free, composed)),
                None => flight.return_device(free),
            }
        }
        None
    }

    /// The error for a thread that found every device free and nothing to write, and would wait for
    /// ever.
    pub fn no_progress_error(&self, flight: &Flight, lsn: Lsn) -> LogError {
        let message = if !flight.has_orphans() {
            format!("no log device has space for log that was admitted before LSN {lsn}")
        } else {
            "the log failed: no other log device can take what was being written to one that failed. Whether commits \
             that were not acknowledged yet are durable is unknown until the database is opened again"
                .to_owned()
        };
        LogErrorKind::Failed.error(message)
    }

    /// Wakes a thread to write after a change that is not the end of a write.
    pub fn wake_after_device_change(&self) {
        self.unlock_and_wake_next(self.flight.lock());
    }
}
