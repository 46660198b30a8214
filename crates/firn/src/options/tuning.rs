//! The settings that few users change.

use crate::error::Error;
use crate::options::limits::{INTERVAL_LEAST, INTERVAL_SHARE, MAP_SHARE, refuse};
use firndb_txn::PageRecovery;
use std::path::PathBuf;

/// Whether pages that leave the buffer are written as what they differ from their images on the
/// store's device by, many pages' changes on one page ([`Tuning::deltas`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Deltas {
    /// Pages are written whole.
    Off,
    /// Small changes are written as deltas: fewer bytes are written, and a page with a delta costs
    /// a second read, beside the first.
    On,
    /// By the profile of the store's device: on where writing a page costs 2.5 random reads or
    /// more, so that transactions get faster. Off without a profile.
    #[default]
    Auto,
}

/// Where new versions of pages go ([`Tuning::placement`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Placement {
    /// In runs of free places, as long as can be found. Nothing is copied.
    #[default]
    Threaded,
    /// In whole empty segments of 64 pages, one after the other, which a cleaner makes by copying
    /// what is left in sparse ones: more bytes are written, in long sequential requests.
    Segments,
    /// By the profile of the store's device: in segments where writing a page and copying others
    /// for it costs at most a quarter of writing it at random. In runs without a profile.
    Auto,
}

/// The settings that few users change ([`crate::Options::tuning`]): shares of memory, checkpoints,
/// recovery. All hold *for one opening*.
#[derive(Clone, Debug)]
pub struct Tuning {
    pub(crate) map_bytes: Option<usize>,
    pub(crate) version_bytes: usize,
    pub(crate) checkpoint_log_bytes: Option<u64>,
    pub(crate) recovery_bytes: usize,
    pub(crate) eager_recovery: bool,
    pub(crate) overlay_bytes: u64,
    pub(crate) measure_at_creation: bool,
    pub(crate) read_ahead: bool,
    pub(crate) store_profile: Option<PathBuf>,
    pub(crate) deltas: Deltas,
    pub(crate) delta_bytes: Option<usize>,
    pub(crate) placement: Placement,
    pub(crate) page_recovery: PageRecovery,
    pub(crate) page_file_bytes: Option<usize>,
    pub(crate) analyze_in_background: bool,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            map_bytes: None,
            version_bytes: 16 << 20,
            checkpoint_log_bytes: None,
            recovery_bytes: 64 << 20,
            eager_recovery: false,
            overlay_bytes: 64 << 20,
            measure_at_creation: false,
            read_ahead: true,
            store_profile: None,
            deltas: Deltas::Auto,
            delta_bytes: None,
            placement: Placement::Threaded,
            page_recovery: PageRecovery::default(),
            page_file_bytes: None,
            analyze_in_background: true,
        }
    }
}

impl Tuning {
    /// DRAM for the page map, beside [`crate::Options::buffer_bytes`]. Default: a sixteenth of the
    /// buffer's, taken from it.
    ///
    /// The whole map takes 25 bytes a page, 0.6 % of the store with pages of 4 KiB. If the part in
    /// use does not fit into this memory, nearly every page read from the store or written to it
    /// costs a read of the map, too.
    #[must_use]
    pub fn map_bytes(mut self, bytes: usize) -> Tuning {
        self.map_bytes = Some(bytes);
        self
    }
    /// Bytes of DRAM for before-images of rows, and for the ended transactions that a snapshot may
    /// still need; beyond it they go to undo pages. The 32 KiB of each running transaction are not
    /// counted. At most a sixteenth of the log. Default: 16 MiB, that share of the log's default.
    #[must_use]
    pub fn version_bytes(mut self, bytes: usize) -> Tuning {
        self.version_bytes = bytes;
        self
    }
    /// A checkpoint begins when this many bytes of log have been appended since the last one: about
    /// this much, and at most twice as much, is read again after a crash. Default: a quarter of the
    /// log; from an eighth on, as soon as half of the log's space is in use, or little is left.
    #[must_use]
    pub fn checkpoint_log_bytes(mut self, bytes: u64) -> Tuning {
        self.checkpoint_log_bytes = Some(bytes);
        self
    }
    /// Bytes of DRAM, beside the buffer, for page changes that recovery has not repeated yet.
    /// Changes that do not fit are repeated before the opening returns. While the log is read, up
    /// to half as much again is used to read it ahead. Default: 64 MiB, as much log as is read
    /// with the default options.
    #[must_use]
    pub fn recovery_bytes(mut self, bytes: usize) -> Tuning {
        self.recovery_bytes = bytes;
        self
    }
    /// Whether recovery completes before the opening returns. Default: no; pages are redone when
    /// they are read, the others in the background ([`crate::Database::finish_recovery`]).
    #[must_use]
    pub fn eager_recovery(mut self, eager: bool) -> Tuning {
        self.eager_recovery = eager;
        self
    }
    /// Bytes of DRAM, beside the buffer, in which a database that is opened read-only keeps what
    /// recovery would write to its files ([`crate::Options::open_read_only`]). Beyond that an
    /// unlinked file in the system's directory for temporary files (`TMPDIR`) is used. Default: 64
    /// MiB, as much log as is read with the default options.
    #[must_use]
    pub fn overlay_bytes(mut self, bytes: u64) -> Tuning {
        self.overlay_bytes = bytes;
        self
    }
    /// Whether pages are read before they are asked for, many at once: by long scans, fetches by an
    /// index, reads of many keys, and recovery. Default: yes. Without it every page is read when it
    /// is needed, and nothing is read for nothing.
    #[must_use]
    pub fn read_ahead(mut self, read_ahead: bool) -> Tuning {
        self.read_ahead = read_ahead;
        self
    }
    /// Whether creating a database in a directory begins with measuring it, for at most half a
    /// minute, unless a profile is named. The profile is kept in the directory as `profile.toml`
    /// and counts at every opening. Default: no, because of that time.
    #[must_use]
    pub fn measure_at_creation(mut self, measure: bool) -> Tuning {
        self.measure_at_creation = measure;
        self
    }
    /// The profile (`firn characterize`) of the page store's device. Default: the one that the
    /// directory's `firn.toml` names, else the one measured at creation, else none.
    #[must_use]
    pub fn store_profile(mut self, path: impl Into<PathBuf>) -> Tuning {
        self.store_profile = Some(path.into());
        self
    }

    /// Whether pages are written as deltas. Default: by the profile of the store's device, and not
    /// without one. A database with deltas is read whatever this says.
    #[must_use]
    pub fn deltas(mut self, deltas: Deltas) -> Tuning {
        self.deltas = deltas;
        self
    }
    /// DRAM for deltas that wait to be written together, taken from the buffer's where deltas are
    /// on. Default: a sixteenth of it. With 0 each batch of pages writes its own.
    #[must_use]
    pub fn delta_bytes(mut self, bytes: usize) -> Tuning {
        self.delta_bytes = Some(bytes);
        self
    }
    /// Where new versions of pages go. Default: in runs of free places. The file is the same.
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Tuning {
        self.placement = placement;
        self
    }

    /// How pages of page files become durable at commit. Default: through the log or as shadows,
    /// whichever takes the devices less time by their profiles and by what writes have taken. While
    /// an archive or a backup needs their content in the log, and over a flash cache that is not of
    /// Firn's own kind, they are logged whatever this says.
    #[must_use]
    pub fn page_recovery(mut self, recovery: PageRecovery) -> Tuning {
        self.page_recovery = recovery;
        self
    }
    /// DRAM, beside the buffer, for pages that open transactions have put into page files. A
    /// transaction that finds more in use writes its own early. Default: an eighth of the buffer's.
    #[must_use]
    pub fn page_file_bytes(mut self, bytes: usize) -> Tuning {
        self.page_file_bytes = Some(bytes);
        self
    }

    /// Whether the statistics of a table are made anew in the background when 1,000 rows, and a
    /// tenth of all, have changed since [`crate::Database::analyze`] or the last time. Default:
    /// yes, with a tenth of one thread's time at most.
    #[must_use]
    pub fn analyze_in_background(mut self, analyze: bool) -> Tuning {
        self.analyze_in_background = analyze;
        self
    }

    /// Checks every setting against its range, for a buffer of `buffer_least` bytes or more and a
    /// log of `log_bytes`.
    pub(crate) fn check(&self, buffer_least: usize, log_bytes: u64) -> Result<(), Error> {
        let map_least = buffer_least / MAP_SHARE;
        if self.map_bytes.is_some_and(|bytes| bytes < map_least) {
            return refuse(format!("tuning.map_bytes must be at least {map_least}"));
        }
        if let Some(bytes) = self.checkpoint_log_bytes
            && !(INTERVAL_LEAST..=(log_bytes / INTERVAL_SHARE).max(INTERVAL_LEAST)).contains(&bytes)
        {
            return refuse(format!(
                "tuning.checkpoint_log_bytes is {bytes}; it must be at least 64 KiB and at most a quarter of \
                 log.bytes ({log_bytes})"
            ));
        }
        Ok(())
    }
}
