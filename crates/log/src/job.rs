//! One write to a device, from composing it to telling those it concerns.
//!
//! The bytes of a write in flight belong to it alone, and nobody changes them any more: the log buffer's space
//! is released when a request is composed, however long its device takes. Who issues the request again copies them,
//! under the flight lock; the thread inside the device call only reads them.

use crate::block::{BLOCK, seal_all};
use crate::flight::{Flight, Watch, Writing, wake_all};
use crate::front::Composed;
use crate::hiding::Performed;
use crate::pipeline::{PanicGuard, Pipeline};
use crate::{LogError, LogErrorKind};
use firn_base::Lsn;
use firn_base::clock::{self, Moment};
use firn_base::sync::{Arc, OnceLock, thread};
use firn_device::{AlignedBuf, Device, DeviceError, Durability};

/// The bytes of a write, from the moment in which its thread hands them to the device.
#[derive(Default)]
pub(crate) struct Bytes(OnceLock<Begun>);

/// A write that has begun: complete with checksums.
pub(crate) struct Begun {
    pub at: Moment,
    pub buf: AlignedBuf,
    pub len: usize,
}

impl Bytes {
    /// `None` while no thread has taken the write up.
    pub fn begun(&self) -> Option<&Begun> {
        self.0.get()
    }
}

/// What a thread that has taken a device is to write.
pub(crate) struct Job {
    pub device: usize,
    target: Arc<dyn Device>,
    buf: AlignedBuf,
    bytes: Arc<Bytes>,
    offset: u64,
    len: usize,
    /// Where the write wraps: place on the device of what lies in the buffer from this many bytes on.
    rest: Option<(usize, u64)>,
    task: Task,
}

/// What a job is for.
#[derive(Clone, Copy)]
pub(crate) enum Task {
    /// A new request.
    Request(u64),
    /// One that is late at another device.
    Again { request: u64, slow: usize },
    /// Saying that all before this LSN is durable.
    Seal(Lsn),
}

impl Task {
    pub fn request(self) -> Option<u64> {
        match self {
            Task::Request(number) | Task::Again { request: number, .. } => Some(number),
            Task::Seal(_) => None,
        }
    }

    fn hides(self) -> Option<usize> {
        match self {
            Task::Again { slow, .. } => Some(slow),
            Task::Request(_) | Task::Seal(_) => None,
        }
    }
}

impl Job {
    /// Blocks of the request, padding and headers included.
    pub fn blocks(&self) -> usize {
        self.len / BLOCK
    }
}

impl Pipeline {
    /// Makes a job of what was composed for a device whose buffer was taken.
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
        flight.under_way += 1;
        let Composed { offset, len, rest, .. } = composed;
        let target = Arc::clone(&flight.slots[device].device);
        Job { device, target, buf, bytes, offset, len, rest, task }
    }

    /// Gives a job to a worker; back to the caller if it had better perform it itself.
    pub fn hand_over(&self, flight: &mut Flight, job: Job) -> Option<Job> {
        if !self.has_workers(flight) || !self.hands_over(flight, job.device, job.blocks()) {
            return Some(job);
        }
        assert!(flight.jobs.len() < flight.slots.len(), "a device has one write at a time");
        flight.jobs.push_back(job);
        self.work.notify_one();
        None
    }

    /// Writes a request and tells those it concerns. No lock is held on entry.
    pub fn run(&self, job: Job) {
        self.run_as(job, false);
    }

    /// As `run`, for a worker, which looks itself afterwards for what there is to do.
    pub fn run_guarded(&self, job: Job) {
        let _guard = PanicGuard::new(self);
        self.run_as(job, true);
    }

    fn run_as(&self, job: Job, worker: bool) {
        let Job { device, target, mut buf, bytes, offset, len, rest, task } = job;
        seal_all(&mut buf[..len]);
        let begun = bytes.0.get_or_init(|| Begun { at: clock::now(), buf, len });
        let in_device = InDevice(self);
        let outcome = write(&*target, offset, &begun.buf[..len], rest);
        std::mem::forget(in_device);
        match outcome {
            Ok(()) => self.finish(device, task, bytes, worker),
            Err(error) => self.device_failed(device, task, bytes, &error),
        }
    }

    /// A write's thread is back from its device.
    pub fn landed(&self, flight: &mut Flight) {
        flight.under_way -= 1;
        if flight.stopping || !flight.orphans.is_empty() {
            // `close` waits for the last one, and a request that lost its device for a free one.
            self.work.notify_all();
        }
    }

    /// Waits until no thread is inside a device any more. The workers have ended; what was handed to them and
    /// they left, having panicked, nobody writes.
    pub fn wait_for_writes(&self) {
        let mut flight = self.flight.lock();
        assert!(flight.stopping, "who comes back says so only then");
        flight.under_way -= flight.jobs.len();
        flight.jobs.clear();
        while flight.under_way > 0 {
            self.work.wait(&mut flight);
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
        let Begun { at, buf, len } = into_begun(bytes);
        flight.slots[device].buffer = Some(buf);
        flight.slots[device].is_slow = ended.since(at) >= self.options.outliers.direct_below;
        self.landed(&mut flight);
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
            flight.watch = Watch::Called;
            self.work.notify_one();
        }
        if !worker {
            self.call(&mut flight, &mut list);
        } else if !self.workers_lead(&flight) && !self.holds_back(&mut flight, 0) {
            flight.call_leader(&mut list);
        }
        self.release(flight, list);
    }

    /// Ends the log's life: nothing is appended or acknowledged any more.
    pub fn fail(&self, error: LogError) {
        let mut list = Vec::new();
        {
            let mut flight = self.flight.lock();
            flight.failed.get_or_insert_with(|| error.clone());
            flight.settle_all(&mut list);
            self.front.lock().refuse(error.clone());
            self.work.notify_all();
        }
        wake_all(&mut list);
        if let Some(told) = self.on_failed.get() {
            told(&error);
        }
    }
}

/// A thread inside a device call: if that panics, nobody is to wait for it.
pub(crate) struct InDevice<'a>(pub &'a Pipeline);

impl Drop for InDevice<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.landed(&mut self.0.flight.lock());
        }
    }
}

impl Flight {
    /// Tells the other writes of request `number` that it is done by `at`.
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

/// The caller has dropped the slot's share, so that the bytes are its own.
pub(crate) fn into_begun(bytes: Arc<Bytes>) -> Begun {
    let bytes = Arc::into_inner(bytes).expect("a write's bytes are shared with its device's slot only");
    bytes.0.into_inner().expect("a write that ended has begun")
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
