//! Closes a database in bounded time, although a device may hang.
//!
//! A thread of its own does the work (stopping the others, the last checkpoint, the log's seal),
//! and the closing caller watches it:
//! * a log device that does not complete one and the same write within `Options::close_patience` is
//!   given up by the log (`firndb_log`'s `closing.rs`): the work ends with an error that names it;
//! * if a device of any kind is in a call for that long, and none of its calls ends meanwhile, the
//!   caller abandons the work. It does not matter what the call is, nor whether it began before the
//!   closing did;
//! * if for that long no device is in a call, and longer than the work may wait for the archive,
//!   the caller abandons it, too: a thread of the application may be stuck inside the engine, in a
//!   callback for instance.
//!
//! Calls that are slow and end are waited for, however many they are; a batch of transfers is one
//! call.
//!
//! Abandoned work keeps what it uses: a log device's thread the one device, any other thread the
//! whole database. So their files stay locked, and opening them is refused with `InUse`, until the
//! call has ended: a late write never lands in a file that a later opening has read. The work
//! continues then, and ends.

use crate::engine::threads::{ARCHIVE_STOP_MAX, Threads};
use crate::engine::{ARCHIVE_CLOSE_MAX, Engine};
use crate::error::Error;
use firndb_base::clock::{self, Moment};
use firndb_base::sync::thread::{self, JoinHandle};
use firndb_base::sync::{Arc, Condvar, Mutex};
use firndb_device::{Counting, Device};
use firndb_log::WriteWatch;
use std::panic::resume_unwind;
use std::time::Duration;

/// Longest pause between two looks of the closing caller.
const LOOK_MAX: Duration = Duration::from_millis(100);
/// How long the work may take to end once the log has been given up.
const GRACE: Duration = Duration::from_secs(2);

/// Signals that the work has ended.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    wake: Condvar,
}

struct RingsAtEnd(Arc<Bell>);

impl Drop for RingsAtEnd {
    fn drop(&mut self) {
        *self.0.rung.lock() = true;
        self.0.wake.notify_all();
    }
}

/// Stops the threads and closes the engine, which has begun to close.
pub(crate) fn close(engine: &Arc<Engine>, threads: Option<&Arc<Threads>>) -> Result<(), Error> {
    let panicking = thread::panicking();
    let bell = Arc::new(Bell::default());
    engine.log.begin_close();
    let work = {
        let (engine, threads, bell) = (engine.clone(), threads.cloned(), RingsAtEnd(bell.clone()));
        move || {
            let _bell = bell;
            finish(&engine, threads.as_deref(), panicking)
        }
    };
    match thread::spawn("firn-close", work) {
        Ok(handle) => watch(engine, handle, &bell),
        // Without a thread it cannot be watched.
        Err(_) => finish(engine, threads.map(|threads| &**threads), panicking),
    }
}

fn finish(engine: &Engine, threads: Option<&Threads>, panicking: bool) -> Result<(), Error> {
    if let Some(threads) = threads {
        threads.stop();
    }
    engine.finish_close(panicking)
}

fn watch(engine: &Engine, handle: JoinHandle<Result<(), Error>>, bell: &Bell) -> Result<(), Error> {
    let patience = engine.options.close_patience;
    let look = LOOK_MAX.min(patience / 4).max(Duration::from_micros(100));
    let mut writes = WriteWatch::default();
    let mut calls = CallWatch::new();
    let mut given_up: Option<(Error, Moment)> = None;
    let mut rung = bell.rung.lock();
    while !*rung {
        bell.wake.wait_for(&mut rung, look);
        if *rung {
            break;
        }
        drop(rung);
        if given_up.is_none() {
            let stuck = engine.log.give_up_if_stuck(&mut writes);
            given_up = stuck.map(|error| (Error::from(error), clock::now()));
        }
        if let Some((error, since)) = &given_up
            && since.elapsed() >= GRACE
        {
            return Err(error.clone());
        }
        // The log goes first, with its own devices.
        calls.look(engine.devices.each());
        let hung = calls.hung_for(patience + GRACE);
        if !hung.is_empty() {
            return Err(device_hangs(&hung, patience));
        }
        if calls.quiet_for(patience + GRACE + ARCHIVE_STOP_MAX + ARCHIVE_CLOSE_MAX) {
            return Err(work_hangs());
        }
        rung = bell.rung.lock();
    }
    drop(rung);
    let ended = match handle.join() {
        Ok(ended) => ended,
        Err(_) if thread::panicking() => Err(Error::failed("closing the database panicked")),
        Err(panic) => resume_unwind(panic),
    };
    // The cause of the work's failure, if a device was given up.
    match given_up {
        Some((error, _)) => Err(error),
        None => ended,
    }
}

/// Which devices are in calls, and since when none of their calls has ended.
struct CallWatch {
    seen: Vec<Seen>,
    /// When a device was last seen in a call, or to have ended one.
    busy: Moment,
}

struct Seen {
    device: Arc<Counting>,
    ended: u64,
    under_way: bool,
    /// Since when the state is as it was seen.
    since: Moment,
}

impl CallWatch {
    fn new() -> CallWatch {
        CallWatch { seen: Vec::new(), busy: clock::now() }
    }

    /// Records the state of `devices`, which are all devices; one that is gone is not waited for.
    fn look(&mut self, devices: Vec<Arc<Counting>>) {
        let (now, mut before) = (clock::now(), std::mem::take(&mut self.seen));
        for device in devices {
            let (ended, under_way) = device.calls_ended();
            let known = before.iter().position(|seen| Arc::ptr_eq(&seen.device, &device));
            let known = known.map(|place| before.swap_remove(place));
            let same = known.as_ref().is_some_and(|seen| seen.ended == ended && seen.under_way == under_way);
            if under_way || !same {
                self.busy = now;
            }
            let since = known.filter(|_| same).map_or(now, |seen| seen.since);
            self.seen.push(Seen { device, ended, under_way, since });
        }
    }

    /// The names of the devices that have been in calls for `time`, none of which has ended.
    fn hung_for(&self, time: Duration) -> Vec<String> {
        let hangs = |seen: &&Seen| seen.under_way && seen.since.elapsed() >= time;
        self.seen.iter().filter(hangs).map(|seen| seen.device.info().name.clone()).collect()
    }

    /// Whether no device has been in a call for `time`.
    fn quiet_for(&self, time: Duration) -> bool {
        self.busy.elapsed() >= time
    }
}

fn device_hangs(devices: &[String], patience: Duration) -> Error {
    Error::failed(format!(
        "closing the database waited {patience:?} for {}, which does not respond, and gave up. What was acknowledged is \
             there when it is opened again; until the call has ended the database stays in use",
        devices.join(", ")
    ))
}

fn work_hangs() -> Error {
    Error::failed(
        "closing the database waited for a thread inside of it that does not come out, though no device is in a call, and gave \
         up: look for an archive that does not respond, or a callback that does not return. What was acknowledged is there when it is opened again; until the thread \
         has come out the database stays in use",
    )
}
