//! The archive of a simulated machine: files of a directory, written through a device that takes
//! its time, fails, fills up, and loses its power with the others.
//!
//! The files are real, in memory where the system has a place for that; what is written to them is
//! durable when the write ends. A power cut leaves of each write in flight a number of its first
//! blocks, as the seed draws, and ends the devices of that machine: what a thread of it does later
//! reaches the files no more.
//!
//! Locks: `state` is held while a file is written, which takes no time of the simulation.

use crate::medium::{Call, Timing};
use firndb::device::{AlignedBuf, Device, DeviceError, DeviceErrorKind, DeviceInfo, Durability, Fill};
use firndb_base::clock;
use firndb_base::rng::Rng;
use firndb_base::sync::atomic::{AtomicU64, Ordering};
use firndb_base::sync::{Arc, Mutex};
use std::path::{Path, PathBuf};

/// What faults call the archive's files.
pub const ARCHIVE: &str = "archive";

/// A directory of its own for each run, removed with it.
#[derive(Debug)]
pub struct Shelf {
    path: PathBuf,
}

static SHELVES: AtomicU64 = AtomicU64::new(0);

impl Shelf {
    #[must_use]
    pub fn new() -> Shelf {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        // Of one length, whatever the numbers: the superblock holds it.
        let number = SHELVES.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("firn-sim-{:010}-{number:010}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory for the simulated archive");
        Shelf { path }
    }

    /// A directory on it.
    #[must_use]
    pub fn place(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Takes the archive away, or puts it back in place of what came there meanwhile.
    pub fn hide_archive(&self, hidden: bool) {
        let (here, away) = (self.place(ARCHIVE), self.place("away"));
        let (from, to) = if hidden { (here, away) } else { (away, here) };
        if from.exists() {
            let _ = std::fs::remove_dir_all(&to);
            std::fs::rename(from, to).expect("a directory can be renamed");
        }
    }
}

impl Default for Shelf {
    fn default() -> Shelf {
        Shelf::new()
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// The power of a machine's archive, from one switching on to the next switching off.
#[derive(Clone, Debug)]
pub struct Power(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    gone: bool,
    next: u64,
    in_flight: Vec<InFlight>,
    timing: Box<dyn Timing>,
    /// Bytes that all files may still take.
    left: u64,
}

#[derive(Debug)]
struct InFlight {
    number: u64,
    file: Arc<dyn Device>,
    offset: u64,
    data: AlignedBuf,
}

impl Power {
    /// Switched on; the volume takes `limit` bytes more.
    #[must_use]
    pub fn on(timing: Box<dyn Timing>, limit: u64) -> Power {
        let state = State { gone: false, next: 0, in_flight: Vec::new(), timing, left: limit };
        Power(Arc::new(Mutex::new(state)))
    }

    /// Puts itself around a file that is being made.
    #[must_use]
    pub fn around(&self, file: Arc<dyn Device>) -> Arc<dyn Device> {
        let info = DeviceInfo { name: ARCHIVE.to_owned(), ..file.info().clone() };
        Arc::new(Shelved { info, file, power: self.clone() })
    }

    pub fn cut(&self, rng: &mut Rng) {
        let mut state = self.0.lock();
        state.gone = true;
        for write in std::mem::take(&mut state.in_flight) {
            let block = write.file.info().logical_block;
            let whole = rng.below((write.data.len() / block) as u64 + 1) as usize * block;
            if whole > 0 {
                let _ = write.file.write(write.offset, &write.data[..whole], Durability::Durable);
            }
        }
    }

    fn begin(&self, call: Call, note: impl FnOnce(&mut State)) -> Result<(), DeviceError> {
        let end = {
            let mut state = self.0.lock();
            if state.gone {
                return Err(off());
            }
            note(&mut state);
            state.timing.end(clock::now(), call)
        };
        clock::sleep_until(end);
        Ok(())
    }
}

fn off() -> DeviceError {
    DeviceError::new(DeviceErrorKind::Failed, format!("{ARCHIVE}: the power is off"))
}

/// A file of the archive.
#[derive(Debug)]
struct Shelved {
    info: DeviceInfo,
    file: Arc<dyn Device>,
    power: Power,
}

impl Device for Shelved {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.power.begin(Call::Read(offset, buf.len()), |_| {})?;
        self.file.read(offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        let mut own = AlignedBuf::zeroed(data.len());
        own.copy_from_slice(data);
        let mut number = 0;
        self.power.begin(Call::Write(offset, data.len(), durability), |state| {
            (number, state.next) = (state.next, state.next + 1);
            state.in_flight.push(InFlight { number, file: self.file.clone(), offset, data: own });
        })?;
        let mut state = self.power.0.lock();
        if state.gone {
            return Err(off());
        }
        state.in_flight.retain(|write| write.number != number);
        self.file.write(offset, data, durability)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.power.begin(Call::Sync, |_| {})?;
        self.file.sync()
    }

    fn grow(&self, len: u64, fill: Fill) -> Result<(), DeviceError> {
        self.power.begin(Call::Sync, |_| {})?;
        let mut state = self.power.0.lock();
        let more = len.saturating_sub(self.file.len());
        if state.gone {
            return Err(off());
        }
        if more > state.left {
            let message = format!("{ARCHIVE}: no space for {more} bytes");
            return Err(DeviceError::new(DeviceErrorKind::NoSpace, message));
        }
        state.left -= more;
        self.file.grow(len, fill)
    }

    fn shrink(&self, len: u64) -> Result<(), DeviceError> {
        let mut state = self.power.0.lock();
        if state.gone {
            return Err(off());
        }
        state.left += self.file.len().saturating_sub(len);
        self.file.shrink(len)
    }

    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        if self.power.0.lock().gone { Err(off()) } else { Ok(()) }
    }
}
