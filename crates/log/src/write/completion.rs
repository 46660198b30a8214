//! Issuing a write, and what its end does: the device is free, the request may be done, log may be
//! durable, waiting threads are woken.

use crate::block::{BLOCK, seal_all};
use crate::error::{LogError, LogErrorKind};
use crate::hedge::hiding::Performed;
use crate::write::flight::{Flight, Watch, Writing, wake_all};
use crate::write::front::Composed;
use crate::write::job::{Begun, Bytes, Job, Task};
use crate::write::pipeline::Pipeline;
use firn_base::clock::{self, Moment};
use firn_base::sync::{Arc, thread};
use firn_device::{AlignedBuf, Device, DeviceError, Durability};

impl Pipeline {
    /// Makes a job of a composed write for a device whose buffer the caller has taken.
    pub fn job(
        &self,
        flight: &mut Flight,
        device: usize,
        buf: AlignedBuf,
        composed: Composed,
        task: Task,
    ) -> Job {
        let bytes = Arc::new(Bytes::default());
        if flight.hider.is_active() {
            let slot = &mut flight.slots[device];
            assert!(slot.buffer.is_none() && slot.writing.is_none(), "one write at a time");
            slot.writing = Some(Writing {
                request: task.request(),
                bytes: Arc::clone(&bytes),
                blocks: composed.len / BLOCK,
                hides: task.hides(),
                detected: false,
                reissued: None,
                hidden_at: None,
            });
        }
        flight.outstanding_writes += 1;
        let Composed { offset, len, rest, .. } = composed;
        let target = Arc::clone(&flight.slots[device].device);
        Job { device, target, buf, bytes, offset, len, rest, task }
    }

    /// Queues the write for a worker, or returns it if the calling thread should issue it.
    pub fn queue_for_worker(&self, flight: &mut Flight, job: Job) -> Option<Job> {
        if !self.has_workers(flight) || !self.worker_should_write(flight, job.device, job.blocks()) {
            return Some(job);
        }
        assert!(flight.jobs.len() < flight.slots.len(), "a device has one write at a time");
        flight.jobs.push_back(job);
        self.work.notify_one();
        None
    }

    /// Issues a write and wakes the threads that it concerns. The caller holds no lock.
    pub fn run(&self, job: Job) {
        self.run_as(job, false);
    }

    /// As `run`, for a worker: it looks for its next write itself.
    pub fn run_guarded(&self, job: Job) {
        let _guard = PanicGuard::new(self);
        self.run_as(job, true);
    }

    fn run_as(&self, job: Job, worker: bool) {
        let Job { device, target, mut buf, bytes, offset, len, rest, task } = job;
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

    /// Records that a write's thread has returned from its device.
    pub fn write_returned(&self, flight: &mut Flight) {
        flight.outstanding_writes -= 1;
        if flight.stopping || flight.closing {
            self.ended.notify_all();
        }
        if flight.stopping || !flight.orphans.is_empty() {
            // A request that lost its devices waits for a free one.
            self.work.notify_all();
        }
    }

    fn finish(&self, device: usize, task: Task, bytes: Arc<Bytes>, worker: bool) {
        let ended = clock::now();
        let mut flight = self.flight.lock();
        if let (Some(writing), Some(begun)) = (flight.slots[device].writing.take(), bytes.begun()) {
            let contended = writing.reissued.unwrap_or_else(|| self.is_contended(&mut flight));
            flight.hider.performed(Performed {
                device,
                blocks: writing.blocks,
                took: ended.since(begun.at),
                hides: writing.hides,
                reissued: writing.reissued.is_some(),
                contended,
                hidden_for: writing.hidden_at.map(|at| ended.since(at)),
            });
        }
        let Begun { at, buf, len } = Bytes::ended(bytes);
        flight.slots[device].buffer = Some(buf);
        flight.slots[device].writes_ended += 1;
        flight.slots[device].is_slow = ended.since(at) >= self.options.outliers.direct_below;
        self.write_returned(&mut flight);
        flight.written_bytes += len as u64;
        if !matches!(task, Task::Again { .. }) {
            flight.requests_done += 1;
            flight.requests_by_size[((len / BLOCK).ilog2() as usize).min(15)] += 1;
        }
        let mut list = std::mem::take(&mut flight.scratch);
        match task {
            Task::Request(number) | Task::Again { request: number, .. } => {
                let (done, durable) = flight.complete(number);
                if done {
                    flight.note_hidden(number, ended);
                }
                self.acknowledge(&mut flight, durable, &mut list);
            }
            Task::Seal(lsn) => {
                flight.seals += 1;
                flight.sealed = lsn;
            }
        }
        if self.options.workers && flight.watch == Watch::None && self.is_unsealed(&flight) {
            flight.watch = Watch::Requested;
            self.work.notify_one();
        }
        if !worker {
            self.wake_next_writer(&mut flight, &mut list);
        } else if !self.workers_lead(&flight) && !self.should_delay(&mut flight, 0) {
            flight.wake_leader(&mut list);
        }
        self.unlock_and_wake(flight, list);
    }

    /// Fails the log: from now on it accepts no appends and acknowledges no flush.
    pub fn fail(&self, error: LogError) {
        let mut list = Vec::new();
        {
            let mut flight = self.flight.lock();
            flight.failed.get_or_insert_with(|| error.clone());
            flight.take_all_waiters(&mut list);
            self.front.lock().refuse(error.clone());
            self.work.notify_all();
            self.ended.notify_all();
        }
        wake_all(&mut list);
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
            self.0.write_returned(&mut self.0.flight.lock());
        }
    }
}

impl Flight {
    /// Notes in the other writes of request `number` that the request was done at `at`.
    fn note_hidden(&mut self, number: u64, at: Moment) {
        let others = self.slots.iter_mut().filter_map(|slot| slot.writing.as_mut());
        others.filter(|w| w.request == Some(number)).for_each(|w| w.hidden_at = Some(at));
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

pub(crate) fn unknown_outcome(error: &DeviceError) -> LogError {
    LogError::new(
        LogErrorKind::Failed,
        format!(
            "the log failed: {error}. Whether commits that were not acknowledged yet are durable is unknown \
             until the database is opened again"
        ),
    )
}

/// Fails the log if its thread panics: otherwise other threads would wait for ever for a request
/// that the thread held. Constructed before any lock is taken, so that it is dropped after all are
/// released.
pub(crate) struct PanicGuard<'a> {
    pipeline: &'a Pipeline,
    /// False in a thread that already unwinds and flushes from a destructor.
    armed: bool,
}

impl<'a> PanicGuard<'a> {
    pub fn new(pipeline: &'a Pipeline) -> PanicGuard<'a> {
        PanicGuard { pipeline, armed: !thread::panicking() }
    }
}

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if self.armed && thread::panicking() {
            self.pipeline.fail(LogError::new(
                LogErrorKind::Failed,
                "the log failed: a thread panicked while it wrote a request. Whether commits that were not \
                 acknowledged yet are durable is unknown until the database is opened again",
            ));
        }
    }
}
