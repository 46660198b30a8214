//! The settings of the log.

use crate::error::Error;
use crate::options::callbacks::{LogEvent, LogEventFn};
use crate::options::kept::Kept;
use crate::options::limits::{log_device_least, refuse};
use firndb_base::sync::Arc;
use firndb_log::{Hiding, LogLayout};
use std::path::PathBuf;

/// The settings of the log ([`crate::Options::log`]).
///
/// *Fixed* at creation: `bytes`, and of the first devices `devices` and `paths`; later the log's
/// devices change by [`crate::Database::add_log_device`] and its siblings. *Kept* with the
/// database: `copies`, `copies_required`. *For one opening*: `hiding`, `layout`, `on_event`,
/// `profile`.
#[derive(Clone)]
pub struct LogSettings {
    pub(crate) devices: usize,
    /// The device's latency decides the number; `devices` is the most.
    pub(crate) probe_devices: bool,
    pub(crate) bytes: u64,
    pub(crate) paths: Vec<PathBuf>,
    /// `None`: as the database has it, or one.
    pub(crate) copies: Option<usize>,
    pub(crate) copies_required: Kept<usize>,
    pub(crate) hiding: Hiding,
    pub(crate) layout: Option<Arc<dyn LogLayout>>,
    pub(crate) listener: Option<LogEventFn>,
    pub(crate) profile: Option<PathBuf>,
}

impl Default for LogSettings {
    fn default() -> LogSettings {
        LogSettings {
            devices: 4,
            probe_devices: true,
            bytes: 256 << 20,
            paths: Vec::new(),
            copies: None,
            copies_required: Kept::new(1),
            hiding: Hiding::default(),
            layout: None,
            listener: None,
            profile: None,
        }
    }
}

impl LogSettings {
    /// How many files the log is spread over when the database is created. Default: what the
    /// profile of the log's device says ([`LogSettings::profile`]); without one, one if the
    /// device's synchronous writes are fast (under 300 µs, timed at creation), else four, so that
    /// several in flight hide their latency.
    #[must_use]
    pub fn devices(mut self, count: usize) -> LogSettings {
        self.devices = count;
        self.probe_devices = false;
        self
    }
    /// Bytes of online log in all. Default: 256 MiB, so that after a crash 64 to 128 MiB are read:
    /// [`crate::Tuning::checkpoint_log_bytes`] follows from it.
    #[must_use]
    pub fn bytes(mut self, bytes: u64) -> LogSettings {
        self.bytes = bytes;
        self
    }
    /// Where the log's files (or raw devices) are; one log device each. Default: in the database's
    /// directory.
    #[must_use]
    pub fn paths(mut self, paths: Vec<PathBuf>) -> LogSettings {
        self = self.devices(paths.len());
        self.paths = paths;
        self
    }
    /// Number of log devices that each commit is written to before it is acknowledged, 1 to 8: with
    /// `copies`, the loss of any `copies` − 1 log devices loses nothing. The log's capacity shrinks
    /// accordingly. Default: as the database keeps it, and 1 for a new one, since log devices are
    /// files of one SSD by default, and fail together.
    #[must_use]
    pub fn copies(mut self, copies: usize) -> LogSettings {
        self.copies = Some(copies);
        self
    }
    /// Refuses commits, and opening, with fewer log devices than this. Default: as the database
    /// keeps it, and 1 for a new one, so that with fewer devices than [`LogSettings::copies`] it
    /// works on, and reports it.
    #[must_use]
    pub fn copies_required(mut self, devices: usize) -> LogSettings {
        self.copies_required.name(devices);
        self
    }
    /// How log writes that take much too long are hedged, if the log has two devices or more.
    /// Default: [`Hiding::Adaptive`], which the devices' own latencies guide. A database created
    /// with `Off` reserves no area for that on its log devices.
    #[must_use]
    pub fn hiding(mut self, hiding: Hiding) -> LogSettings {
        self.hiding = hiding;
        self
    }
    /// How the log's requests are composed and placed, if not as in its array: for the comparators
    /// of the laboratory, see `docs/papers/flashlogging.md`. A database may be opened with another
    /// layout than it was written with. Default: the array's.
    #[must_use]
    pub fn layout(mut self, layout: Option<Arc<dyn LogLayout>>) -> LogSettings {
        self.layout = layout;
        self
    }
    /// Called when a log device fails, is added or removed, and when the log is redundant again, by
    /// the thread that found out, so the listener must not use the database;
    /// [`crate::Database::log_events`] returns the same later. Default: none.
    #[must_use]
    pub fn on_event(mut self, listener: impl Fn(&LogEvent) + Send + Sync + 'static) -> LogSettings {
        self.listener = Some(Arc::new(listener));
        self
    }
    /// The profile (`firn characterize`) of the log's devices. Default: the one that the
    /// directory's `firn.toml` names, else the one measured at creation, else none.
    #[must_use]
    pub fn profile(mut self, path: impl Into<PathBuf>) -> LogSettings {
        self.profile = Some(path.into());
        self
    }

    /// Checks every setting against its range, for pages of `page_size` bytes.
    pub(crate) fn check(&self, page_size: usize) -> Result<(), Error> {
        if !(1..=64).contains(&self.devices) {
            return refuse(format!("log.devices is {}; it must be 1 to 64", self.devices));
        }
        let (copies, required) = (self.copies.unwrap_or(1), self.copies_required.get());
        if !(1..=8).contains(&copies) || !(1..=8).contains(&required) {
            return refuse(format!(
                "log.copies is {copies} and log.copies_required {required}; each must be 1 to 8"
            ));
        }
        let least = log_device_least(page_size);
        if self.bytes / (self.devices as u64) < least {
            return refuse(format!(
                "log.bytes is {}; each of the {} log devices needs at least {} KiB, with pages of {page_size} bytes",
                self.bytes,
                self.devices,
                least >> 10,
            ));
        }
        Ok(())
    }
}

impl std::fmt::Debug for LogSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogSettings")
            .field("devices", &(!self.probe_devices).then_some(self.devices))
            .field("bytes", &self.bytes)
            .field("paths", &self.paths)
            .field("copies", &self.copies)
            .field("copies_required", &self.copies_required)
            .field("hiding", &self.hiding)
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}
