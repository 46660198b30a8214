//! Completion and acknowledgement: a write is issued; its end frees the device, completes the
//! request, makes log durable and wakes the committers that wait for it.

use crate::block::seal_all;
use crate::error::{LogError, LogErrorKind};
use crate::write::in_flight::waiter::{WakeList, wake_all};
use crate::write::in_flight::{Flight, Moved};
use crate::write::job::{Bytes, Job, Task};
use crate::write::pipeline::Pipeline;
use firndb_base::clock;
use firndb_base::sync::atomic::Ordering;
use firndb_base::sync::{Arc, MutexGuard, thread};
use firndb_device::{Device, DeviceError, Durability};

impl Pipeline {
    /// Issues a write that the calling thread has composed. Another thread may use the next idle
    /// device meanwhile.
    pub fn issue(&self, flight: MutexGuard<'_, Flight>, job: Job) {
        self.unlock_and_wake_next(flight);
        self.run(job);
    }

    /// Issues a write and wakes the threads that it concerns. The caller holds no lock.
    pub fn run(&self, job: Job) {
        self.run_as(job, false);
    }

    /// As `run`, for a worker: it looks for its next write itself.
    pub fn run_as_worker(&self, job: Job) {
        self.run_as(job, true);
    }

    fn run_as(&self, job: Job, worker: bool) {
        let Job { device, target, mut buf, bytes, offset, len, rest, task, .. } = job;
        seal_all(&mut buf[..len]);
        let begun = bytes.begin(buf, len);
        let in_device = InDevice(self);
        let outcome = write(&*target, offset, &begun.buf[..len], rest);
        std::mem::forget(in_device);
        match outcome {
            Ok(()) => self.finish(device, task, bytes, worker),
            Err(error) => self.device_failed(device, task, bytes, &error),
        }
    }

    /// Ends a write that succeeded.
    fn finish(&self, device: usize, task: Task, bytes: Arc<Bytes>, worker: bool) {
        let ended = clock::now();
        let mut flight = self.flight.lock();
        let moved = flight.write_ended(device, task, bytes, ended, self.end());
        self.acknowledge(moved);
        if worker {
            let wakes = flight.next_writer_beside_worker(self.end());
            self.unlock_and_wake(flight, wakes);
        } else {
            self.unlock_and_wake_next(flight);
        }
    }

    /// Publishes what became durable: the commits up to there are acknowledged. The committers that
    /// wait for them are in the table's list, and are woken once the lock is released. The caller
    /// holds the flight lock.
    pub fn acknowledge(&self, moved: Moved) {
        if let Some(lsn) = moved.on_devices {
            self.on_devices.store(lsn.0, Ordering::Release);
        }
        if let Some(lsn) = moved.durable {
            self.durable.store(lsn.0, Ordering::Release);
        }
        if moved.closer_awaits_write {
            self.ended.notify_all();
        }
        if moved.for_workers {
            self.work.notify_all();
        }
        if moved.closer_awaits_log {
            self.ended.notify_all();
        }
        if moved.for_watcher {
            self.work.notify_one();
        }
    }

    /// Releases the lock, after choosing the thread that uses an idle device: a worker where
    /// workers write, otherwise a waiting thread as the next leader.
    pub fn unlock_and_wake_next(&self, mut flight: MutexGuard<'_, Flight>) {
        let next = flight.next_writer(self.end());
        if next.worker {
            self.work.notify_one();
        }
        self.unlock_and_wake(flight, next.wakes);
    }

    /// Releases the lock and wakes `wakes`, which the table has chosen.
    pub fn unlock_and_wake(&self, flight: MutexGuard<'_, Flight>, mut wakes: WakeList) {
        drop(flight);
        if wakes.is_empty() {
            return;
        }
        wake_all(&mut wakes);
        if let Some(mut flight) = self.flight.try_lock() {
            flight.reuse(wakes);
        }
    }

    /// Fails the log: from now on it accepts no appends and acknowledges no flush.
    pub fn fail(&self, error: LogError) {
        let mut wakes = {
            let mut flight = self.flight.lock();
            flight.fail(&error);
            self.front.lock().refuse(error.clone());
            self.work.notify_all();
            self.ended.notify_all();
            flight.take_wakes()
        };
        wake_all(&mut wakes);
        if let Some(listener) = self.on_failed.get() {
            listener(&error);
        }
    }
}

/// A thread inside a device call. If the call panics, the write counts as returned, so that no
/// thread waits for it.
pub(crate) struct InDevice<'a>(pub &'a Pipeline);

impl Drop for InDevice<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let mut flight = self.0.flight.lock();
            let moved = flight.write_lost();
            self.0.acknowledge(moved);
        }
    }
}

fn write(
    device: &dyn Device,
    offset: u64,
    bytes: &[u8],
    rest: Option<(usize, u64)>,
) -> Result<(), DeviceError> {
    let (first, wrapped) = bytes.split_at(rest.map_or(bytes.len(), |(at, _)| at));
    device.write(offset, first, Durability::Durable)?;
    match rest {
        Some((_, offset)) => device.write(offset, wrapped, Durability::Durable),
        None => Ok(()),
    }
}

/// The error of a log that failed because of its device's.
pub(crate) fn unknown_outcome(error: &DeviceError) -> LogError {
    LogErrorKind::Failed.error(format!(
        "the log failed: {error}. Whether commits that were not acknowledged yet are durable is unknown \
             until the database is opened again"
    ))
}
