//! Mounting, and the end of a mount in each of its ways.

use crate::backing::Backing;
use crate::counters::Counts;
use crate::emulation::{Emulation, Power};
use crate::error::EmulateError;
use crate::faults::FaultPlan;
use crate::filesystem::EmulatedFiles;
use crate::script::Fault;
use crate::store::Store;
use crate::timing::Timing;
use firndb_base::clock;
use firndb_base::sync::Arc;
use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Threads that take requests from the kernel. They never wait for the emulated device, only for
/// the real one.
const SESSION_THREADS: usize = 4;

/// How long an unmounted session may take to end.
const SESSION_END: Duration = Duration::from_secs(5);

/// How a file system is mounted.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// An empty directory.
    pub mount_point: PathBuf,
    /// The backing directory; a temporary one, removed at the end, if absent.
    pub backing: Option<PathBuf>,
    /// Bytes of the device.
    pub size: u64,
    /// Whether every read and write bypasses the kernel's page cache.
    pub direct: bool,
    /// Whether other users may use it.
    pub allow_other: bool,
    /// The scripted faults.
    pub faults: Vec<Fault>,
    /// Decides what survives a power cut, and which requests meet spikes.
    pub seed: u64,
    /// Size of a sector, which a power cut leaves whole.
    pub sector: usize,
}

/// A mounted file system.
pub struct Mounted {
    session: Option<BackgroundSession>,
    emulation: Arc<Emulation>,
    mount_point: PathBuf,
}

/// How a mount ended.
#[derive(Clone, Debug)]
pub struct Ending {
    /// Counts of the requests.
    pub counts: Counts,
    /// Time of the power cut since the mount, if there was one.
    pub power_cut: Option<Duration>,
    /// Whether programs still had files open, which they lost.
    pub was_busy: bool,
}

impl Mounted {
    /// Mounts a device with this timing.
    ///
    /// # Errors
    /// [`EmulateError`] says what to do.
    pub fn mount(options: &MountOptions, timing: Box<dyn Timing>) -> Result<Mounted, EmulateError> {
        let mount_point = check_mount_point(&options.mount_point)?;
        check_fuse()?;
        // Checked before anything is made there, and again when links are resolved.
        if let Some(backing) = &options.backing {
            apart(&mount_point, &std::path::absolute(backing).unwrap_or_else(|_| backing.clone()))?;
        }
        let backing = match &options.backing {
            Some(path) => Backing::open(path)?,
            None => Backing::temporary()?,
        };
        apart(&mount_point, backing.root())?;
        let store = Store::new(backing, options.size, options.sector)?;
        let plan = FaultPlan::new(options.faults.clone());
        let emulation = Emulation::start(store, timing, plan, options.seed)
            .map_err(|source| EmulateError::Session { source })?;
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("firn-emulate".to_owned()),
            MountOption::Subtype("firn".to_owned()),
            MountOption::DefaultPermissions,
            MountOption::NoAtime,
        ];
        config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(SESSION_THREADS);
        let files = EmulatedFiles::new(emulation.clone(), options.direct);
        match fuser::spawn_mount(files, &mount_point, &config) {
            Ok(session) => Ok(Mounted { session: Some(session), emulation, mount_point }),
            Err(source) => {
                emulation.end();
                Err(EmulateError::Refused { path: mount_point, source })
            }
        }
    }

    /// Where it is mounted.
    #[must_use]
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }
    /// Counts of the requests until now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.emulation.counts()
    }
    /// Whether the power is cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.emulation.store.is_dead()
    }
    /// Whether it was unmounted by another program.
    #[must_use]
    pub fn is_unmounted(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.guard.is_finished())
    }
    /// Cuts the power now.
    pub fn cut_power(&self) {
        self.emulation.cut_power();
    }

    /// Unmounts, unless a program has anything open in it; returns whether it did.
    ///
    /// # Errors
    /// [`EmulateError::Session`] if unmounting fails otherwise.
    pub fn try_unmount(&self) -> Result<bool, EmulateError> {
        if self.is_unmounted() {
            return Ok(true);
        }
        match unmount(&self.mount_point, false) {
            // It is unmounted already.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(true),
            Err(Errno::BUSY) => Ok(false),
            Err(error) => Err(EmulateError::Session { source: error.into() }),
        }
    }

    /// Ends the mount, however busy it is: programs that have files open in it get errors from then
    /// on. With the clause `power-cut` in the script, the power is cut now.
    ///
    /// # Errors
    /// [`EmulateError::Cut`] if a power cut could not be completed.
    pub fn end(mut self) -> Result<Ending, EmulateError> {
        let was_busy = !self.try_unmount()?;
        if was_busy {
            // Detaches the mount point now; the rest ends when the last file is closed, or this
            // process ends.
            let _ = unmount(&self.mount_point, true);
        }
        if self.emulation.plan().power_cut_at_unmount() {
            self.emulation.cut_power();
        }
        let counts = self.counts();
        let power = self.emulation.take_power();
        self.close();
        let power_cut = match power {
            Power::On => None,
            Power::Cut(at) => Some(at),
            Power::Failed(source) => return Err(EmulateError::Cut { source }),
        };
        Ok(Ending { counts, power_cut, was_busy })
    }

    fn close(&mut self) {
        self.emulation.store.end();
        self.emulation.end();
        let Some(session) = self.session.take() else { return };
        // A session that programs still hold open ends with the process.
        let begun = clock::now();
        while !session.guard.is_finished() && begun.elapsed() < SESSION_END {
            clock::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.session.is_some() {
            let _ = unmount(&self.mount_point, true);
            self.close();
        }
    }
}

/// Unmounts; `lazy` detaches the mount point and keeps the rest until the last file is closed.
/// Users other than root need fusermount3 for it, which does not say why it fails: a failure counts
/// as busy.
fn unmount(mount_point: &Path, lazy: bool) -> Result<(), Errno> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(mount_point, flags) {
        Err(Errno::PERM) => {}
        result => return result,
    }
    for program in ["fusermount3", "fusermount"] {
        let option = if lazy { "-uqz" } else { "-uq" };
        let status = std::process::Command::new(program).arg(option).arg("--").arg(mount_point).status();
        if let Ok(status) = status {
            return if status.success() { Ok(()) } else { Err(Errno::BUSY) };
        }
    }
    Err(Errno::PERM)
}

fn check_mount_point(path: &Path) -> Result<PathBuf, EmulateError> {
    let fail = |reason: String| EmulateError::MountPoint { path: path.to_owned(), reason };
    let listing = match path.canonicalize().and_then(|path| std::fs::read_dir(&path).map(|list| (path, list))) {
        Ok(listing) => Ok(listing),
        Err(error) => Err(match error.raw_os_error() {
            Some(libc::ENOENT) => fail("it does not exist; make it with mkdir".to_owned()),
            Some(libc::ENOTDIR) => fail("it is not a directory".to_owned()),
            Some(libc::ENOTCONN | libc::ECONNABORTED) => fail(
                "the file system of a program that has died is still mounted there; free it with umount or fusermount3 -u"
                    .to_owned(),
            ),
            _ => fail(error.to_string()),
        }),
    };
    let (path, mut entries) = listing?;
    if entries.next().is_some() {
        return Err(fail("it is not empty; its files would be hidden".to_owned()));
    }
    Ok(path)
}

/// Refuses nested directories: a file system that keeps its bytes in itself would wait for itself.
fn apart(mount_point: &Path, backing: &Path) -> Result<(), EmulateError> {
    if backing.starts_with(mount_point) || mount_point.starts_with(backing) {
        return Err(EmulateError::MountPoint {
            path: mount_point.to_owned(),
            reason: format!("it and the backing directory {} lie in each other", backing.display()),
        });
    }
    Ok(())
}

fn check_fuse() -> Result<(), EmulateError> {
    let opened = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let Err(error) = opened else { return Ok(()) };
    let reason = match error.kind() {
        std::io::ErrorKind::NotFound => {
            "there is no /dev/fuse; load the module with modprobe fuse, or give the container that device"
                .to_owned()
        }
        std::io::ErrorKind::PermissionDenied => {
            "/dev/fuse may not be opened; run as root, or have the container allow that device".to_owned()
        }
        _ => format!("/dev/fuse cannot be opened: {error}"),
    };
    Err(EmulateError::NoFuse { reason })
}
