//! A device whose write failed: it drops out of the log, and what it was writing goes elsewhere.
//!
//! Whether the log can do without the device is not for the log to say: the caller knows what is durable about its
//! members. So its handler is asked, and only then the failed write is settled. Meanwhile the request that it
//! belonged to is not done, and no other is composed: each is acknowledged either with the copies that the superblock
//! promises, or after it promises fewer.
//!
//! A request that is on no device by then, an *orphan*, is written anew from its bytes in memory: to a device's main
//! stream, if no later log lies there yet, else to its area. If there is no such place the log fails.

use crate::array::{MemberState, Orphan};
use crate::block::STREAM_MAIN;
use crate::flight::Flight;
use crate::job::{Bytes, InDevice, Job, Task, into_begun, unknown_outcome};
use crate::pipeline::Pipeline;
use crate::policy::LogPolicy;
use crate::reissue::Need;
use crate::{LogError, LogErrorKind, MemberId};
use firn_base::Lsn;
use firn_base::sync::Arc;
use firn_device::DeviceError;

/// A log device that failed.
#[derive(Clone, Debug)]
pub struct LostMember {
    /// Its id.
    pub member: MemberId,
    /// Its name.
    pub device: String,
    /// What went wrong.
    pub error: String,
    /// All log before it had been handed to devices by then; what follows goes to the devices that are left.
    pub requested: Lsn,
    /// Devices in use that are left.
    pub left: usize,
    /// Copies that log from `requested` on gets.
    pub copies: usize,
}

/// What became of a device that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Durably, it is no member any more.
    Dropped,
    /// It stays a member: log that is still needed may be on it alone.
    Kept,
}

/// See [`crate::Log::on_device_lost`].
pub(crate) type LossHandler = dyn Fn(&LostMember) -> Result<Loss, LogError> + Send + Sync;

/// See [`crate::Log::on_failed`].
pub(crate) type FailureListener = dyn Fn(&LogError) + Send + Sync;

impl Pipeline {
    /// Ends a write that failed. No lock is held on entry.
    pub fn device_failed(&self, device: usize, task: Task, bytes: Arc<Bytes>, error: &DeviceError) {
        let lost = {
            let mut flight = self.flight.lock();
            flight.slots[device].writing = None;
            self.take_out(&mut flight, device, error)
        };
        let settled = lost.ok_or_else(|| unknown_outcome(error)).and_then(|lost| {
            let handler = self.handler.get().ok_or_else(|| unknown_outcome(error))?;
            // Should it panic, nobody waits for this write.
            let asking = InDevice(self);
            let answer = handler(&lost);
            std::mem::forget(asking);
            answer
        });
        match settled {
            Ok(loss) => self.settle_loss(device, task, bytes, loss),
            Err(failure) => {
                self.fail(failure);
                let mut flight = self.flight.lock();
                flight.slots[device].buffer = Some(into_begun(bytes).buf);
                self.landed(&mut flight);
            }
        }
    }

    /// Takes a device out of use; `None` if the log cannot go on without it.
    fn take_out(&self, flight: &mut Flight, device: usize, error: &DeviceError) -> Option<LostMember> {
        // In stripes, what belongs to a device no other may write.
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
        flight.settling += 1;
        let mut front = self.front.lock();
        front.set_in_use(device, false);
        let slot = &flight.slots[device];
        Some(LostMember {
            member: MemberId(slot.owner.member),
            device: slot.device.info().name.clone(),
            error: error.message.clone(),
            requested: front.requested(),
            left,
            copies: flight.width(),
        })
    }

    fn settle_loss(&self, device: usize, task: Task, bytes: Arc<Bytes>, loss: Loss) {
        let mut flight = self.flight.lock();
        flight.settling -= 1;
        self.landed(&mut flight);
        if loss == Loss::Dropped {
            drop(flight.slots[device].leave());
        }
        if let Some(number) = task.request()
            && flight.lost(number)
        {
            flight.orphans.push_back(Orphan { number, bytes });
            flight.orphans.make_contiguous().sort_unstable_by_key(|orphan| orphan.number);
        }
        let mut list = std::mem::take(&mut flight.scratch);
        let durable = flight.settle_requests();
        self.acknowledge(&mut flight, durable, &mut list);
        self.call(&mut flight, &mut list);
        if self.has_workers(&flight) {
            self.work.notify_all();
        }
        self.release(flight, list);
    }

    /// Composes the oldest orphan anew for a device that is free.
    pub fn take_orphan(&self, flight: &mut Flight) -> Option<Job> {
        let (number, bytes) = flight.orphans.front().map(|o| (o.number, Arc::clone(&o.bytes)))?;
        let from = flight.unfinished(number).expect("an orphan is not done").from;
        let begun = bytes.begun().expect("a write that failed has begun");
        for device in 0..flight.slots.len() {
            let Some(mut buf) = flight.take_buffer(device) else { continue };
            let main = flight.slots[device].owner;
            assert_eq!(main.stream, STREAM_MAIN);
            let composed = [main, main.area()].into_iter().find_map(|owner| {
                let late = &begun.buf[..begun.len];
                self.front.lock().compose_again(device, owner, from, late, Need::Loss, &mut buf)
            });
            let Some(composed) = composed else {
                flight.slots[device].buffer = Some(buf);
                continue;
            };
            flight.orphans.pop_front();
            flight.carry(number, device);
            return Some(self.job(flight, device, buf, composed, Task::Request(number)));
        }
        None
    }

    /// Whether a request lost its device, and no device has a place for it although all are free: those who wait
    /// for it have handed everything over, and would never learn.
    pub fn is_stuck(&self, flight: &Flight) -> bool {
        flight.is_all_free() && !flight.orphans.is_empty() && flight.failed.is_none() && flight.settling == 0
    }

    /// Why a thread that found every device free, and nothing to write, would wait for ever.
    pub fn dead_end(&self, flight: &Flight, lsn: Lsn) -> LogError {
        let message = if flight.orphans.is_empty() {
            format!("no log device has room for log that was admitted before LSN {lsn}")
        } else {
            "the log failed: no other log device can take what was being written to one that failed. Whether commits \
             that were not acknowledged yet are durable is unknown until the database is opened again"
                .to_owned()
        };
        LogError::new(LogErrorKind::Failed, message)
    }

    /// Sets somebody to work after something changed that is no write's end.
    pub fn look_again(&self) {
        let mut flight = self.flight.lock();
        let mut list = std::mem::take(&mut flight.scratch);
        self.call(&mut flight, &mut list);
        self.release(flight, list);
    }
}
