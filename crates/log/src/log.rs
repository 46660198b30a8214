//! The log of an open database.

use crate::archive::format::EpochMark;
use crate::block;
use crate::error::{LogError, LogErrorKind};
use crate::ids::LogIdentity;
use crate::members::new_member::NewMember;
use crate::options::{LogClass, LogOptions, LogSpace, LogStatistics};
use crate::read::underreplicated::UnderReplicated;
use crate::record::{FRAME, Kind, Record};
use crate::write::front::{Front, FrontSetup};
use crate::write::in_flight::slot::Slot;
use crate::write::pipeline::Pipeline;
use crate::write::worker;
use firndb_base::codec::Writer;
use firndb_base::sync::atomic::{AtomicU64, Ordering};
use firndb_base::sync::thread::JoinHandle;
use firndb_base::sync::{Arc, Mutex};
use firndb_base::{DatabaseId, Epoch, Lsn};
use firndb_device::{AlignedBuf, Device};

const BUFFER_MIN: usize = 8 << 10;
const COPIES_MAX: usize = 8;
/// Most devices that a log has had since it was opened: each is one bit of a mask.
pub(crate) const DEVICES_MAX: usize = 64;

/// The log of an open database. All calls may be made from any thread.
pub struct Log {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) database: DatabaseId,
    mark: EpochMark,
    copies_complete: bool,
    /// Size of a device's request buffer in bytes.
    pub(crate) buffer_bytes: usize,
    /// Locked alone: only where a device is added, and by `close` and `drop`.
    pub(crate) workers: Mutex<Vec<JoinHandle<()>>>,
}

/// What a log, new or recovered, is opened with.
pub(crate) struct Opening {
    pub database: DatabaseId,
    pub members: Vec<NewMember>,
    pub epoch: Epoch,
    pub start: Lsn,
    pub oldest: Lsn,
    /// Where the previous epoch ended, unless this is the first.
    pub previous_end: Option<Lsn>,
    /// Blocks before this epoch that have too few copies; `None` if they are too many to copy.
    pub underreplicated: Option<Vec<UnderReplicated>>,
}

/// The unit of a log on these devices; members that differ in block size share the largest.
fn unit_of(devices: &[Arc<dyn Device>]) -> u64 {
    devices.iter().map(|d| d.info().logical_block as u64).max().unwrap_or(0).max(block::BLOCK as u64)
}

pub(crate) fn check_members(devices: &[Arc<dyn Device>], identity: &LogIdentity) -> Result<(), LogError> {
    let count = devices.len();
    let distinct = (0..identity.members.len()).all(|i| !identity.members[..i].contains(&identity.members[i]));
    if count == 0 || count > DEVICES_MAX || count != identity.members.len() || !distinct {
        return Err(LogErrorKind::BadArgument.error(format!(
            "a log has 1 to {DEVICES_MAX} distinct members and a device for each; {count} devices and \
                 {} members were given",
            identity.members.len()
        )));
    }
    Ok(())
}

impl Log {
    /// Formats `devices` as a new log. The caller has grown each to its size, and preferably
    /// pre-written it. Old contents need not be erased: they carry another database's id.
    pub fn create(
        devices: Vec<Arc<dyn Device>>,
        identity: LogIdentity,
        epoch: Epoch,
        options: LogOptions,
    ) -> Result<Arc<Log>, LogError> {
        Log::create_at(devices, identity, epoch, Lsn::FIRST, options)
    }

    /// As [`Log::create`], with a stream that begins at or after `start`, at the block boundary
    /// that [`Log::epoch_mark`] reports: for a database restored from one whose log had reached
    /// that LSN. `identity` names no epoch before it.
    pub fn create_at(
        devices: Vec<Arc<dyn Device>>,
        identity: LogIdentity,
        epoch: Epoch,
        start: Lsn,
        options: LogOptions,
    ) -> Result<Arc<Log>, LogError> {
        let start = Log::start_at(start);
        check_members(&devices, &identity)?;
        check_options(&options)?;
        let (unit, count, database) = (unit_of(&devices), devices.len(), identity.database);
        let devices = devices.into_iter().zip(identity.members).enumerate();
        let members = devices.map(|(place, (device, member))| {
            NewMember::format(device, (database, epoch), member, (place, count), unit, &options)
        });
        let opening = Opening {
            database,
            members: members.collect::<Result<_, _>>()?,
            epoch,
            start,
            oldest: start,
            previous_end: None,
            underreplicated: Some(Vec::new()),
        };
        Log::open(opening, options)
    }

    /// The LSN at which a log that is to begin at or after `lsn` begins.
    #[must_use]
    pub fn start_at(lsn: Lsn) -> Lsn {
        if lsn <= Lsn::FIRST { Lsn::FIRST } else { block::next_base(lsn) }
    }

    pub(crate) fn open(opening: Opening, options: LogOptions) -> Result<Arc<Log>, LogError> {
        check_options(&options)?;
        let members = opening.members;
        let unit = members[0].space.unit_bytes();
        assert!(members.iter().all(|m| m.space.unit_bytes() == unit), "the members of a log share its unit");
        let capacities: Vec<u64> = members.iter().map(|m| m.space.capacity_bytes()).collect();
        if let Some(layout) = &options.layout {
            layout.check(unit, &capacities)?;
        }
        let previous_end = opening.previous_end.unwrap_or(opening.start);
        let mark = EpochMark { epoch: opening.epoch, start: opening.start, previous_end };
        let setup = FrontSetup {
            epoch: opening.epoch,
            start: opening.start,
            unit,
            buffer_bytes: options.buffer_bytes,
            rollback_reserve_percent: options.rollback_reserve_percent,
            system_reserve_percent: options.system_reserve_percent,
            oldest: opening.oldest,
        };
        // At least a section header and one unit of blocks.
        let request_bytes = options.request_bytes.next_multiple_of(unit as usize).max(2 * unit as usize);
        // A request that is issued again may cross one section boundary more than the first time.
        let buffer_bytes = request_bytes + unit as usize;
        let (mut slots, mut spaces, mut areas) = (Vec::new(), Vec::new(), Vec::new());
        for NewMember { device, owner, space, area } in members {
            slots.push(Slot::new(device, owner, AlignedBuf::zeroed(buffer_bytes)));
            spaces.push(space);
            areas.push(area);
        }
        let count = slots.len();
        let layout = options.layout.as_ref().and_then(|it| it.composing(unit, count, opening.start));
        let front = Front::new(setup, spaces, areas, options.copies, layout);
        let workers = options.workers;
        let pipeline = Arc::new(Pipeline::new(opening.epoch, options, front, slots));
        let thin = opening.underreplicated.as_deref();
        let copied = thin.map(|thin| pipeline.copies_end(opening.start, thin));
        let copied = copied.filter(|&end| pipeline.front.lock().has_capacity_for(end));
        if let Some(previous_end) = opening.previous_end {
            let mut body = Vec::with_capacity(20);
            body.put_u32(opening.epoch.0);
            body.put_u64(previous_end.0);
            if let Some(end) = copied.filter(|&end| end > opening.start) {
                body.put_u64(end.0);
            }
            pipeline.append(None, &[Record { kind: Kind::EPOCH_START, body: &body }])?;
        }
        let (database, workers_list) = (opening.database, Mutex::default());
        let log = Arc::new(Log {
            pipeline: Arc::clone(&pipeline),
            database,
            mark,
            copies_complete: copied.is_some(),
            buffer_bytes,
            workers: workers_list,
        });
        if workers {
            *log.workers.lock() = worker::start(&pipeline, count)?;
        }
        if copied.is_some() && !thin.unwrap_or_default().is_empty() {
            for thin in thin.unwrap_or_default() {
                let record = Record { kind: Kind::COPIED, body: &thin.encode() };
                log.pipeline.append(Some(LogClass::System), &[record])?;
            }
            // The copies must be durable before anything depends on the blocks that they copy.
            log.flush_to_devices(log.end())?;
        }
        Ok(log)
    }

    /// Whether all log before this epoch has the copies that it should have: blocks that lacked
    /// some were copied.
    #[must_use]
    pub fn is_covered(&self) -> bool {
        self.copies_complete
    }

    /// Bytes of log that undoing all open transactions will take, as the transaction manager knows
    /// it: it adds them before a change is appended, and subtracts them once the change is undone
    /// or committed. `Normal` leaves this space, within bounds, to `Rollback`.
    #[must_use]
    pub fn undo_promise(&self) -> &AtomicU64 {
        &self.pipeline.promised
    }

    /// Number of records of class [`LogClass::Decision`] still to be appended, as the transaction
    /// manager knows it: one more before a transaction is prepared, one less when its decision is
    /// appended. For each of them, up to [`Log::decisions_max`], all other classes leave the space
    /// that it takes, so that no decision is ever refused for lack of space.
    #[must_use]
    pub fn decisions(&self) -> &AtomicU64 {
        &self.pipeline.decisions
    }

    /// Number of decisions for which the log can set space aside.
    pub fn decisions_max(&self) -> u64 {
        self.pipeline.front.lock().decisions_max()
    }

    /// Bytes of space set aside for decisions now.
    pub fn kept_for_decisions(&self) -> u64 {
        self.pipeline.front.lock().kept_for_decisions()
    }

    /// Bytes of stream that a record with a body of `body_len` bytes takes.
    #[must_use]
    pub fn framed_len(body_len: usize) -> u64 {
        (body_len + FRAME) as u64
    }

    /// Longest group in bytes of stream, framing included: half the log buffer, or a quarter of the
    /// devices if that is less.
    pub fn group_max(&self) -> u64 {
        self.pipeline.front.lock().group_max()
    }

    /// LSN of the next record.
    pub fn end(&self) -> Lsn {
        self.pipeline.end()
    }

    /// All log before this LSN is durable: on the devices, or archived ([`Log::archived`]).
    pub fn durable(&self) -> Lsn {
        self.pipeline.durable()
    }

    /// The epoch in which this log appends.
    pub fn epoch(&self) -> Epoch {
        self.pipeline.epoch
    }

    /// The current epoch, where it began, and where the log before it ended.
    #[must_use]
    pub fn epoch_mark(&self) -> EpochMark {
        self.mark
    }

    /// LSN of the next record, and bytes written to the devices since the log was opened, framing,
    /// padding and copies included.
    pub fn written(&self) -> (Lsn, u64) {
        let written = self.pipeline.flight.lock().written_bytes();
        (self.end(), written)
    }

    /// Copies the stream's bytes from `from` on out of the log buffer. Returns false if the buffer
    /// does not hold all of them any more. They were appended in this epoch.
    #[must_use]
    pub fn copy(&self, from: Lsn, out: &mut [u8]) -> bool {
        self.pipeline.front.lock().copy(from, out)
    }

    /// Number of devices that the log is written to.
    pub fn devices(&self) -> usize {
        self.pipeline.flight.lock().usable()
    }

    /// Truncates the log before `lsn` (before [`Log::on_devices`], if that is less). The truncation
    /// point lasts only through what the caller passes to `LogScan::new` the next time.
    pub fn truncate(&self, lsn: Lsn) {
        let durable = self.on_devices();
        self.pipeline.front.lock().truncate(lsn.min(durable));
    }

    /// Space in use.
    pub fn space(&self) -> LogSpace {
        self.pipeline.front.lock().space()
    }

    /// Counters since the log was opened.
    pub fn statistics(&self) -> LogStatistics {
        let flight = self.pipeline.flight.lock();
        let front = self.pipeline.front.lock();
        LogStatistics {
            records: front.records,
            appended_bytes: front.appended_bytes,
            buffer_waits: self.pipeline.buffer_waits.load(Ordering::Relaxed),
            refused: front.refused,
            ..flight.statistics()
        }
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("end", &self.end()).field("durable", &self.durable()).finish()
    }
}

impl Pipeline {
    /// End of the records at the beginning of an epoch that carry the copies `thin`; the epoch's
    /// start if there are none.
    fn copies_end(&self, start: Lsn, thin: &[UnderReplicated]) -> Lsn {
        if thin.is_empty() {
            return start;
        }
        let bodies = std::iter::once(20).chain(thin.iter().map(|thin| thin.encode().len()));
        start.advance(bodies.map(Log::framed_len).sum())
    }
}

fn check_options(options: &LogOptions) -> Result<(), LogError> {
    let reserves = options.rollback_reserve_percent + options.system_reserve_percent;
    let problem = if options.buffer_bytes < BUFFER_MIN {
        format!("a log buffer needs at least {BUFFER_MIN} bytes, not {}", options.buffer_bytes)
    } else if options.request_bytes > 64 << 20 {
        format!("log requests may have up to 64 MiB, not {} bytes", options.request_bytes)
    } else if reserves > 90 {
        format!("the log's reserves together may take up to 90 % of it, not {reserves} %")
    } else if !(1..=COPIES_MAX).contains(&options.copies) {
        format!("a log has 1 to {COPIES_MAX} copies, not {}", options.copies)
    } else if options.copies > 1 && !options.composes_as_array() {
        "copies of the log need the layout of the array".to_owned()
    } else {
        return Ok(());
    };
    Err(LogErrorKind::BadArgument.error(problem))
}
