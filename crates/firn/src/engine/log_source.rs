//! Chooses whether recovery reads log from the archive or from the log's devices, where both have
//! it: from the source that is read faster (FlashLogging, 3.7).
//!
//! The choice affects speed only, so it may be wrong: log that the faster source lacks comes from
//! the other ([`firndb_log::LogSources::archive_first`]). The profiles tell how fast each is;
//! without profiles for both, both are timed, unless there is too little log for that to pay.

use crate::engine::archive_needed::ArchiveTail;
use crate::engine::superblock::Superblock;
use crate::options::Options;
use crate::options::archive::ArchiveSettings;
use firndb_base::sync::{Arc, thread};
use firndb_base::{Lsn, clock};
use firndb_device::{AlignedBuf, Device};
use firndb_log::ArchiveUse;
use firndb_log::archive::ArchiveFiles;
use firndb_profile::DeviceProfile;
use std::path::Path;
use std::time::Duration;

/// Bytes of one read, as the scan reads.
const READ: usize = 256 << 10;
/// Timing one source reads no more than these bytes, and stops earlier after this time.
const TIMED: (u64, Duration) = (2 << 20, Duration::from_millis(20));
/// Reads at least, however long they take.
const READS_LEAST: usize = 3;
/// With less log than this, likely to be read, nothing is timed.
const WORTH_TIMING: u64 = 64 << 20;

/// Expected rates in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rates {
    /// Of all log devices together.
    devices: f64,
    archive: f64,
}

impl Rates {
    /// Whether the archive is the faster source. If both are equal, the devices are: they have all
    /// log.
    fn is_archive_first(self) -> bool {
        self.archive > self.devices
    }
}

/// The sequential read rate of a device with this profile, in bytes a second.
pub(crate) fn rate_of(profile: &DeviceProfile) -> Option<f64> {
    let us = profile.model.read_sequential.us(READ as u64);
    let most = profile.model.read_mb_s.map_or(f64::MAX, |most| most * 1e6);
    (us > 0.0).then(|| (READ as f64 / us * 1e6).min(most))
}

/// How an opening uses the archive, and up to which LSN it is read first.
pub(crate) fn archive_use(
    superblock: &Superblock,
    logs: &[Arc<dyn Device>],
    tail: &ArchiveTail,
    options: &Options,
) -> (ArchiveUse, Option<Lsn>) {
    let (files, archive, until) = match tail {
        ArchiveTail::GivenUp(lost_from) => return (ArchiveUse::Lost(*lost_from), None),
        ArchiveTail::There(archived, from) => {
            (archived.files().clone(), ArchiveUse::Needed(archived.clone()), *from)
        }
        ArchiveTail::NotNeeded => match archive_files(&options.archive, superblock) {
            Some(files) => (files.clone(), ArchiveUse::Copy(files), Lsn::MAX),
            None => return (ArchiveUse::None, None),
        },
    };
    let reads_log = !superblock.clean && superblock.redo_start < until;
    let first = reads_log && rates(superblock, logs, &files, options).is_some_and(Rates::is_archive_first);
    (archive, first.then_some(until))
}

/// The archive that the superblock or the options name, if it holds anything and is not to be
/// forgotten. The one in the options goes first: the archive may have been moved.
fn archive_files(options: &ArchiveSettings, superblock: &Superblock) -> Option<ArchiveFiles> {
    let given = options.directory.as_deref().and_then(Path::to_str);
    let known = superblock.extensions.archive.as_deref().filter(|_| !options.forget);
    let mut directories = given.into_iter().chain(known).map(|path| options.resolve(path));
    directories.find_map(|directory| {
        let files = directory.is_dir().then(|| options.files(&directory))?;
        matches!(files.newest(), Ok(Some(_))).then_some(files)
    })
}

/// The expected rates of the log's devices and of the archive in `files`; `None` if unknown.
fn rates(
    superblock: &Superblock,
    logs: &[Arc<dyn Device>],
    files: &ArchiveFiles,
    options: &Options,
) -> Option<Rates> {
    let log = options.log_profile().and_then(rate_of);
    let archive = options.archive_profile().and_then(rate_of);
    if let (Some(log), Some(archive)) = (log, archive) {
        return Some(Rates {
            devices: log * superblock.log_drives(options.archive.base.as_deref()) as f64,
            archive,
        });
    }
    // About one interval between checkpoints will be read, an eighth of the log.
    if superblock.log_bytes() / 8 < WORTH_TIMING {
        return None;
    }
    let archive = match archive {
        Some(archive) => archive,
        None => timed(&*files.newest().ok()??),
    };
    Some(Rates { devices: side_by_side(logs), archive })
}

/// The rate of all log devices, read side by side, in bytes a second.
pub(crate) fn side_by_side(logs: &[Arc<dyn Device>]) -> f64 {
    thread::each(logs.iter().collect(), |log: &Arc<dyn Device>| timed(&**log)).into_iter().sum()
}

/// The sequential read rate of a device from its middle on, in bytes a second: that of the median
/// read, so that one which waited for other requests, or came from a cache, does not decide. Zero
/// if it cannot be read or is too small.
fn timed(device: &dyn Device) -> f64 {
    let mut buf = AlignedBuf::zeroed(READ);
    let begin = device.len() / 2 / READ as u64 * READ as u64;
    let begun = clock::now();
    let (mut read, mut times) = (0, Vec::new());
    let lasts = |times: &Vec<Duration>| times.len() < READS_LEAST || begun.elapsed() < TIMED.1;
    while read < TIMED.0 && lasts(&times) && begin + read + READ as u64 <= device.len() {
        let begun = clock::now();
        if device.read(begin + read, &mut buf).is_err() {
            return 0.0;
        }
        times.push(begun.elapsed());
        read += READ as u64;
    }
    times.sort_unstable();
    // A device without a latency, in a simulation, has read all of it at once.
    times.get(times.len() / 2).map_or(0.0, |median| READ as f64 / median.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_base::sim::{self, SimOptions};
    use firndb_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use firndb_device::{AbsentDevice, DeviceError, DeviceErrorKind, Fill, MemoryDevice};
    use firndb_emulate::{Emulated, profiles};
    use firndb_testkit::hooked::Hooked;

    #[test]
    fn devices_are_timed_side_by_side_and_as_fast_as_their_profile_says() {
        let run = sim::run(SimOptions::measuring(1, 2), || {
            let drive = |name: &str, seed| -> Arc<dyn Device> {
                let memory = MemoryDevice::new("drive");
                memory.grow(16 << 20, Fill::Reserved).expect("there is memory");
                let profile = profiles::get(name).expect("it ships");
                Arc::new(Emulated::new(Arc::new(memory), &profile, seed).expect("a sound profile"))
            };
            let known = |name| rate_of(&profiles::get(name).expect("it ships")).expect("it has reads");
            for (name, drives) in [("flash-a", 1), ("flash-a", 2), ("sata-ssd", 4)] {
                let logs: Vec<_> = (0..drives).map(|seed| drive(name, seed)).collect();
                let (found, known) = (side_by_side(&logs), known(name) * drives as f64);
                assert!((0.7..1.3).contains(&(found / known)), "{drives} of {name}: {found} for {known}");
            }
            assert!(timed(&*drive("nvme", 1)) > timed(&*drive("flash-a", 1)));
            let first = AtomicBool::new(true);
            let late = Hooked::over(drive("sata-ssd", 1), move |_| {
                if first.swap(false, Relaxed) {
                    clock::sleep(Duration::from_secs(2));
                }
                Ok(())
            });
            let (found, known) = (timed(&*late), known("sata-ssd"));
            assert!((0.7..1.3).contains(&(found / known)), "one read waited: {found} for {known}");
            let gone = AbsentDevice::new("gone", DeviceError::new(DeviceErrorKind::Failed, "unplugged"));
            assert!(timed(&gone) < 1.0, "nothing is expected of it");
        });
        if let Err(failure) = run {
            panic!("{failure}");
        }
    }

    #[test]
    fn the_faster_source_is_first_and_of_equals_the_devices() {
        assert!(Rates { devices: 1.0, archive: 1.1 }.is_archive_first());
        assert!(!Rates { devices: 1.0, archive: 1.0 }.is_archive_first());
        assert!(!Rates { devices: 0.0, archive: 0.0 }.is_archive_first());
    }
}
