//! Writes and syncs of several members at once: each member has a lane of jobs, and threads that do
//! them side by side, since one write at a time leaves most drives idle.
//!
//! The calling thread does the job of one member itself, and waits for the others. Every job ends
//! before the call returns: none is under way when its place is written again. So jobs of a lane
//! are of different calls, which bar each other where they touch the same bytes (`ranges.rs`), and
//! their order does not matter: a sync promises what was complete before it.

use crate::ranks;
use crate::service::{ServiceTimes, Transfer};
use firndb_base::clock;
use firndb_base::sync::{Arc, Condvar, Mutex, thread};
use firndb_device::{AlignedBuf, Device, DeviceError, DeviceErrorKind, Durability, Io, IoOp};
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A write of a job.
pub(crate) struct Write {
    /// On the member.
    pub offset: u64,
    pub data: AlignedBuf,
    pub durability: Durability,
    /// The transfer of the caller that it is a part of.
    pub io: usize,
}

impl Write {
    fn as_io(&self) -> Io<'_> {
        Io { offset: self.offset, op: IoOp::Write(&self.data, self.durability), outcome: Ok(()) }
    }
}

/// What one member is to do for a call.
pub(crate) enum Work {
    Write(Vec<Write>),
    Sync,
    Grow(u64, firndb_device::Fill),
    Shrink(u64),
    Discard(Vec<(u64, u64)>),
}

/// A part of a call that failed.
pub(crate) struct Failure {
    pub member: usize,
    /// The member's device when the job began: another may have its place by now.
    pub device: Arc<dyn Device>,
    /// Of a write: the caller's transfer.
    pub io: usize,
    pub error: DeviceError,
}

/// The work of one member.
pub(crate) struct Job {
    pub member: usize,
    pub device: Arc<dyn Device>,
    pub service: Arc<ServiceTimes>,
    pub work: Work,
}

/// The jobs of one call.
struct Ticket {
    state: Mutex<Open>,
    done: Condvar,
}

struct Open {
    left: usize,
    failures: Vec<Failure>,
}

/// Most threads of a lane. The first is there from the beginning, the others are started when jobs
/// wait: no more than there ever are calls at once.
const THREADS_MAX: usize = 32;

struct Lane {
    name: String,
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<(Job, Arc<Ticket>)>,
    /// Threads that wait for a job, those that were woken for one included.
    idle: usize,
    /// Threads that were started, or are about to be.
    started: usize,
    threads: Vec<thread::JoinHandle<()>>,
    closed: bool,
}

/// The lanes of an array.
pub(crate) struct Lanes {
    lanes: Vec<Arc<Lane>>,
}

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lanes({})", self.lanes.len())
    }
}

impl Job {
    /// Does it. One that panics has failed: its caller would wait for it forever, or return while
    /// others of the call are under way, and the lane would have a thread less.
    fn run(self) -> Vec<Failure> {
        let (member, device) = (self.member, self.device.clone());
        let mut parts = match &self.work {
            Work::Write(writes) => writes.iter().map(|write| write.io).collect(),
            _ => Vec::from([0]),
        };
        catch_unwind(AssertUnwindSafe(|| self.perform())).unwrap_or_else(|_| {
            parts.dedup();
            let message = format!("{}: a call of it panicked", device.info().name);
            let error = DeviceError::new(DeviceErrorKind::Failed, message);
            let failed = |io: usize| Failure { member, device: device.clone(), io, error: error.clone() };
            parts.into_iter().map(failed).collect()
        })
    }

    fn perform(self) -> Vec<Failure> {
        let Job { member, device, service, work } = self;
        let fail = |io: usize, error: DeviceError| Failure { member, device: device.clone(), io, error };
        let whole = |outcome: Result<(), DeviceError>| {
            outcome.err().map(|error| fail(0, error)).into_iter().collect()
        };
        match work {
            Work::Write(writes) => {
                let mut batch: Vec<Io<'_>> = writes.iter().map(Write::as_io).collect();
                let began = clock::now();
                device.submit(&mut batch);
                let now = clock::now();
                // A device that refuses at once says nothing of what writes take.
                if batch.iter().all(|io| io.outcome.is_ok()) {
                    let bytes = writes.iter().map(|write| write.data.len()).sum();
                    service.ended(Transfer::Write, (began, now), (writes.len(), bytes));
                }
                let outcomes: Vec<Result<(), DeviceError>> = batch.into_iter().map(|io| io.outcome).collect();
                let failed = writes.iter().zip(outcomes);
                failed.filter_map(|(write, outcome)| Some(fail(write.io, outcome.err()?))).collect()
            }
            Work::Sync => {
                let began = clock::now();
                let outcome = device.sync();
                service.synced((began, clock::now()));
                whole(outcome)
            }
            Work::Grow(len, fill) => whole(device.grow(len, fill)),
            Work::Shrink(len) => whole(device.shrink(len)),
            Work::Discard(ranges) => {
                whole(ranges.into_iter().try_for_each(|(offset, len)| device.discard(offset, len)))
            }
        }
    }
}

impl Lanes {
    /// A lane, and a thread, for each member.
    pub(crate) fn start(members: usize) -> io::Result<Lanes> {
        let mut lanes = Lanes { lanes: Vec::new() };
        for member in 0..members {
            let queue = ranks::LANE.mutex(Queue { started: 1, ..Queue::default() });
            let lane = Arc::new(Lane { name: format!("array-{member}"), queue, wake: Condvar::new() });
            lanes.lanes.push(lane.clone());
            lane.start_thread()?;
        }
        Ok(lanes)
    }

    /// No threads: the jobs of a call are done one after another.
    pub(crate) fn none() -> Lanes {
        Lanes { lanes: Vec::new() }
    }

    /// Does all jobs, of different members; returns what failed.
    pub(crate) fn run(&self, mut jobs: Vec<Job>) -> Vec<Failure> {
        if self.lanes.is_empty() || jobs.len() < 2 {
            return jobs.into_iter().flat_map(Job::run).collect();
        }
        let own = jobs.pop().expect("two at least");
        let state = ranks::TICKET.mutex(Open { left: jobs.len(), failures: Vec::new() });
        let ticket = Arc::new(Ticket { state, done: Condvar::new() });
        for job in jobs {
            self.lanes[job.member].put(job, &ticket);
        }
        let mut failures = own.run();
        let mut open = ticket.state.lock();
        while open.left > 0 {
            ticket.done.wait(&mut open);
        }
        failures.append(&mut open.failures);
        failures
    }
}

impl Lane {
    /// Queues a job, and starts a thread for it if none is idle.
    fn put(self: &Arc<Lane>, job: Job, ticket: &Arc<Ticket>) {
        let mut queue = self.queue.lock();
        queue.jobs.push_back((job, ticket.clone()));
        let lacks_threads = queue.jobs.len() > queue.idle && queue.started < THREADS_MAX;
        queue.started += usize::from(lacks_threads);
        drop(queue);
        self.wake.notify_one();
        if lacks_threads && self.start_thread().is_err() {
            // The system has none to give: those that are there do the job.
            self.queue.lock().started -= 1;
        }
    }

    /// Starts a thread, which was counted as started.
    fn start_thread(self: &Arc<Lane>) -> io::Result<()> {
        let lane = self.clone();
        let thread = thread::spawn(&self.name, move || lane.serve())?;
        self.queue.lock().threads.push(thread);
        Ok(())
    }

    fn serve(&self) {
        loop {
            let mut queue = self.queue.lock();
            let (job, ticket) = loop {
                match queue.jobs.pop_front() {
                    Some(next) => break next,
                    None if queue.closed => return,
                    None => {
                        queue.idle += 1;
                        self.wake.wait(&mut queue);
                        queue.idle -= 1;
                    }
                }
            };
            drop(queue);
            let mut failures = job.run();
            let mut open = ticket.state.lock();
            open.left -= 1;
            open.failures.append(&mut failures);
            let over = open.left == 0;
            drop(open);
            if over {
                ticket.done.notify_one();
            }
        }
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for lane in &self.lanes {
            lane.queue.lock().closed = true;
            lane.wake.notify_all();
        }
        for lane in &self.lanes {
            let threads = std::mem::take(&mut lane.queue.lock().threads);
            for thread in threads {
                // A thread that panicked has said so.
                let _ = thread.join();
            }
        }
    }
}
