//! Merging the devices' blocks into the stream.
//!
//! LSNs on each device never decrease, so the next block is at the head of some device. A block may
//! be on several devices, or several times on one, with different fills: of one epoch, the fullest
//! copy holds all that the others do.
//!
//! Where the archive is the faster source, log is read from it as long as it has whole blocks
//! without a gap. Only then are the devices read ([`Cursor::start_reading_devices`]), which have
//! not been read before. That is correct for log that the devices had when it was archived. From
//! there on, the archive is asked for what the devices lack:
//! * if it was needed when the database crashed, for any log that they lack;
//! * if not, only for log that, by the devices, should be there: they have a later block, or a
//!   block of theirs says that it was durable. For the same epoch, begun at the same LSN, all log
//!   in the archive was once durable on the devices, unless a later epoch's start cuts it off.
//!
//! Memory: a [`Reader`] for each device, one block, and a chunk of the archive.

use crate::archive::source::ArchiveReader;
use crate::block::{BLOCK, PAYLOAD, base};
use crate::error::LogError;
use crate::ids::MemberId;
use crate::members::redundancy::Redundancy;
use crate::read::doubts::Doubt;
use crate::read::epochs::{EpochRange, EpochTable};
use crate::read::member::Member;
use crate::read::reader::{Head, Peek, Reader};
use crate::read::side_by_side;
use crate::read::underreplicated::{CopiedBlocks, UnderReplicated};
use firndb_base::sync::Arc;
use firndb_base::{Epoch, Lsn};

/// The streams that a cursor merges.
#[derive(Clone)]
pub(crate) struct Streams {
    pub members: Vec<Arc<Member>>,
    pub epochs: Arc<EpochTable>,
    /// By stream: linear position of the last block of log, if it is known.
    pub last_blocks: Option<Vec<Option<u64>>>,
    /// Whether threads read ahead.
    pub threads: bool,
}

impl Streams {
    /// A reader for each stream, from the first block that may hold log from `from` on.
    fn readers(&self, from: Lsn) -> Vec<Reader> {
        let reader = |(place, member): (usize, &Arc<Member>)| {
            let mut range = member.range(from);
            if let Some(last_blocks) = &self.last_blocks {
                let end = last_blocks[place].map_or(range.start, |last| last + BLOCK as u64);
                range.end = end.max(range.start);
            }
            Reader::new(Arc::clone(member), Arc::clone(&self.epochs), range, self.threads)
        };
        self.members.iter().enumerate().map(reader).collect()
    }
}

/// A cursor's access to the archive.
pub(crate) struct ArchivePart {
    pub reader: ArchiveReader,
    /// The devices may lack acknowledged log.
    pub needed: bool,
    /// Log before this LSN is read from the archive first.
    pub first: Option<Lsn>,
}

/// A position in the stream of one epoch, moving forward only.
pub(crate) struct Cursor {
    epochs: Arc<EpochTable>,
    streams: Streams,
    /// Empty while the archive is read first.
    readers: Vec<Reader>,
    /// Where the readers began.
    pub devices_from: Option<Lsn>,
    /// Index of the current epoch in the table.
    epoch: usize,
    pos: Lsn,
    /// The block loaded last: its first LSN and fill. `None` if none was found there.
    block: Option<(Lsn, usize)>,
    payload: [u8; PAYLOAD],
    /// Copies of blocks that a later epoch carries.
    copied_blocks: Arc<CopiedBlocks>,
    /// Members that may still fail while they are read, since others have copies of their log.
    pub spare: usize,
    /// The first member that failed when no further failure was allowed.
    pub failed: Option<MemberId>,
    pub audit: Option<Audit>,
    archive: Option<ArchivePart>,
    /// Bytes that only the archive had.
    pub from_archive: u64,
    /// End of the last of them.
    pub filled_until: Lsn,
    /// Bytes that were read from the archive first.
    pub archive_first: u64,
}

/// Counts the copies of each block that the cursor passes.
pub(crate) struct Audit {
    pub redundancy: Redundancy,
    /// Members that are missing and cannot be counted.
    pub absent: usize,
    /// Blocks with too few copies, with the indexes of their epochs.
    pub underreplicated: Vec<(usize, UnderReplicated)>,
    /// There are more of them than are recorded.
    pub overflowed: bool,
}

/// Most blocks with too few copies that are recorded: what the devices may have been writing at a
/// crash.
const UNDERREPLICATED_MAX: usize = 16 << 10;

impl Audit {
    /// Records that `members` members have the block at `lsn`.
    fn note(&mut self, (place, epoch): (usize, Epoch), lsn: Lsn, bytes: &[u8], members: usize) {
        let last = Lsn(lsn.0 + (bytes.len() as u64).max(1) - 1);
        let promised = self.redundancy.at(lsn).max(self.redundancy.at(last));
        // Log that only the archive has is on no device, whatever the missing members hold.
        if members > 0 && members + self.absent >= usize::from(promised) {
            return;
        }
        if self.underreplicated.len() < UNDERREPLICATED_MAX {
            self.underreplicated.push((place, UnderReplicated { epoch, lsn, bytes: bytes.to_vec() }));
        } else {
            self.overflowed = true;
        }
    }
}

impl Cursor {
    /// A cursor at `pos` of the epoch at index `epoch`.
    pub fn new(streams: Streams, epoch: usize, pos: Lsn, archive: Option<ArchivePart>) -> Cursor {
        let mut cursor = Cursor {
            epochs: Arc::clone(&streams.epochs),
            streams,
            readers: Vec::new(),
            devices_from: None,
            epoch,
            pos,
            block: None,
            payload: [0; PAYLOAD],
            copied_blocks: Arc::default(),
            spare: 0,
            failed: None,
            audit: None,
            archive,
            from_archive: 0,
            filled_until: Lsn::ZERO,
            archive_first: 0,
        };
        if cursor.archive.as_ref().is_none_or(|archive| archive.first.is_none()) {
            cursor.start_reading_devices(pos);
        }
        cursor
    }

    /// Starts reading the devices from `from` on, unless that has been done.
    fn start_reading_devices(&mut self, from: Lsn) {
        if self.devices_from.is_none() {
            self.readers = self.streams.readers(from);
            self.devices_from = Some(from);
        }
    }

    /// Adds the copies of blocks that a later epoch carries.
    pub fn with(mut self, copied_blocks: &Arc<CopiedBlocks>) -> Cursor {
        self.copied_blocks = Arc::clone(copied_blocks);
        self
    }

    pub fn pos(&self) -> Lsn {
        self.pos
    }

    pub fn readers(&self) -> &[Reader] {
        &self.readers
    }

    /// By reader: places where the devices may hold the block of `lsn` although it was not found.
    /// For devices that have been read.
    pub fn doubts_at(&mut self, lsn: Lsn) -> Vec<(usize, Doubt)> {
        let each = self.readers.iter_mut().enumerate();
        each.flat_map(|(place, reader)| reader.doubts_at(lsn).into_iter().map(move |doubt| (place, doubt)))
            .collect()
    }

    /// Bytes loaded so far.
    pub fn bytes_read(&self) -> u64 {
        self.readers.iter().map(Reader::loaded).sum::<u64>() + self.archive_first
    }

    /// Bytes not loaded yet.
    pub fn left(&self) -> u64 {
        self.readers.iter().map(Reader::left).sum()
    }

    /// Continues at `pos` of the epoch at index `epoch`.
    pub fn seek(&mut self, epoch: usize, pos: Lsn) {
        assert!(pos >= self.pos || epoch != self.epoch, "a cursor moves forward");
        if epoch != self.epoch {
            self.block = None;
        }
        (self.epoch, self.pos) = (epoch, pos);
    }

    /// Reads `out.len()` bytes. Returns false if the stream ends before.
    pub fn read(&mut self, out: &mut [u8]) -> Result<bool, LogError> {
        let mut done = 0;
        while done < out.len() {
            let count = self.available()?.min(out.len() - done);
            if count == 0 {
                return Ok(false);
            }
            let within = (self.pos.0 % PAYLOAD as u64) as usize;
            out[done..done + count].copy_from_slice(&self.payload[within..within + count]);
            done += count;
            self.pos = self.pos.advance(count as u64);
        }
        Ok(true)
    }

    /// Skips `len` bytes. Returns false if the stream ends before.
    pub fn skip(&mut self, mut len: usize) -> Result<bool, LogError> {
        while len > 0 {
            let count = self.available()?.min(len);
            if count == 0 {
                return Ok(false);
            }
            len -= count;
            self.pos = self.pos.advance(count as u64);
        }
        Ok(true)
    }

    /// Bytes available at the position; 0 if the stream ends here.
    pub fn available(&mut self) -> Result<usize, LogError> {
        let wanted = base(self.pos);
        if wanted >= self.epochs.ranges()[self.epoch].limit {
            // The block belongs to the next epoch: searching for it here would skip it.
            return Ok(0);
        }
        if self.block.is_none_or(|(lsn, _)| lsn != wanted) {
            self.block = self.find_block(wanted)?.map(|fill| (wanted, fill));
        }
        let end = self.block.map_or(wanted, |(lsn, fill)| Lsn(lsn.0 + fill as u64));
        Ok(end.since(self.pos) as usize)
    }

    /// Finds the fullest copy of the block at `wanted` and loads its payload. Returns its fill.
    /// Passes all blocks up to and including it on all devices.
    fn find_block(&mut self, wanted: Lsn) -> Result<Option<usize>, LogError> {
        if self.devices_from.is_none() {
            if let Some(found) = self.find_in_archive_first(wanted) {
                return Ok(found);
            }
            self.start_reading_devices(wanted);
        }
        let mut best = None;
        let mut holders: Vec<u32> = Vec::new();
        for i in 0..self.readers.len() {
            while let Some(head) = self.peek(i)? {
                if head.lsn > wanted {
                    break;
                }
                let ours = head.lsn == wanted && head.epoch == self.epoch;
                if ours && self.audit.is_some() {
                    if best.is_none_or(|fill| head.fill > fill) {
                        holders.clear();
                    }
                    let member = self.readers[i].member();
                    if best.is_none_or(|fill| head.fill >= fill) && !holders.contains(&member) {
                        holders.push(member);
                    }
                }
                if ours && best.is_none_or(|fill| head.fill > fill) {
                    best = Some(head.fill);
                    self.payload.copy_from_slice(self.readers[i].payload(head));
                }
                self.readers[i].pop();
            }
        }
        let EpochRange { epoch, start, .. } = self.epochs.ranges()[self.epoch];
        let copied_blocks = Arc::clone(&self.copied_blocks);
        let copied = copied_blocks.get(epoch, wanted);
        if let Some(bytes) = copied.filter(|bytes| best.is_none_or(|fill| bytes.len() > fill)) {
            best = Some(bytes.len());
            self.payload[..bytes.len()].copy_from_slice(bytes);
        }
        // The first epoch begins within a block.
        let before = start.0.saturating_sub(wanted.0) as usize;
        let have = best.unwrap_or(0).max(before);
        if have < PAYLOAD {
            let more = self.fill_from_archive(wanted, have)?;
            if more > 0 {
                self.payload[..before].fill(0);
                best = Some(have + more);
                holders.clear();
            }
        }
        if let (Some(audit), Some(fill)) = (&mut self.audit, best)
            && copied.is_none_or(|bytes| bytes.len() < fill)
        {
            audit.note((self.epoch, epoch), wanted, &self.payload[..fill], holders.len());
        }
        Ok(best)
    }

    /// Asks the archive for the rest of the block at `wanted`, of which the devices have `have`
    /// bytes. Returns the number of bytes that it had.
    fn fill_from_archive(&mut self, wanted: Lsn, have: usize) -> Result<usize, LogError> {
        let lsn = wanted.advance(have as u64);
        let indicated = self.devices_indicate(lsn);
        let Some(archive) = self.archive.as_mut().filter(|archive| archive.needed || indicated) else {
            return Ok(0);
        };
        let EpochRange { epoch, start, .. } = self.epochs.ranges()[self.epoch];
        let more = match archive.reader.copy(epoch, start, lsn, &mut self.payload[have..]) {
            Ok(more) => more,
            Err(error) if archive.needed => return Err(error),
            Err(_) => {
                // The missing log is damage on the devices, which is reported with its LSN.
                self.archive = None;
                0
            }
        };
        if more > 0 {
            self.from_archive += more as u64;
            self.filled_until = lsn.advance(more as u64);
        }
        Ok(more)
    }

    /// Whether, by the devices, there was log at `lsn`: they have a later block, or a block says
    /// that it was durable. The readers are past the block of `lsn`.
    fn devices_indicate(&mut self, lsn: Lsn) -> bool {
        let epoch = self.epoch;
        self.readers.iter_mut().any(|reader| {
            matches!(reader.peek(), Peek::Block(head) if head.lsn > lsn) || reader.seen.claims[epoch] > lsn
        })
    }

    /// Loads the block at `wanted` from the archive while that is read first. Returns its fill, or
    /// `Some(None)` if its epoch's log ends before; `None` if the archive is not, or no longer,
    /// read first.
    fn find_in_archive_first(&mut self, wanted: Lsn) -> Option<Option<usize>> {
        let archive = self.archive.as_mut().filter(|_| self.devices_from.is_none())?;
        let EpochRange { epoch, start, .. } = self.epochs.ranges()[self.epoch];
        let until = archive.first.filter(|until| wanted.0 + PAYLOAD as u64 <= until.0)?;
        let before = start.0.saturating_sub(wanted.0) as usize;
        let from = wanted.advance(before as u64);
        // On any error the cursor falls back to the devices, which have the log, too.
        let more = archive.reader.copy(epoch, start, from, &mut self.payload[before..]).ok()?;
        let fill = before + more;
        if fill < PAYLOAD {
            // The end of an epoch's log is accepted only if the next epoch's start confirms it.
            let next = archive.reader.later_epoch(epoch)?;
            let known = self.epochs.ranges().iter().any(|r| (r.epoch, r.start) == (next.epoch, next.start));
            if !known || next.start > until || next.previous_end != wanted.advance(fill as u64) {
                return None;
            }
        }
        self.payload[..before].fill(0);
        self.archive_first += more as u64;
        Some((fill > 0).then_some(fill))
    }

    fn peek(&mut self, i: usize) -> Result<Option<Head>, LogError> {
        loop {
            match self.readers[i].peek() {
                Peek::Block(head) => return Ok(Some(head)),
                Peek::End => return Ok(None),
                Peek::Starved => self.load()?,
            }
        }
    }

    /// Reads ahead on every device that has a spare buffer, all in parallel.
    fn load(&mut self) -> Result<(), LogError> {
        let loadable = self.readers.iter_mut().filter(|r| r.can_load()).collect();
        let outcomes = side_by_side::each(loadable, |reader: &mut Reader| (reader.member(), reader.load()));
        for (member, outcome) in outcomes {
            if let Err(error) = outcome {
                self.drop_member(member, error)?;
            }
        }
        Ok(())
    }

    /// Continues without a member, if a further failure is allowed.
    fn drop_member(&mut self, member: u32, error: LogError) -> Result<(), LogError> {
        let readers = self.readers.iter_mut().filter(|reader| reader.member() == member);
        let mut readers: Vec<&mut Reader> = readers.collect();
        if readers.iter().all(|reader| reader.is_abandoned()) {
            // The member's other stream failed before.
            return Ok(());
        }
        if self.spare == 0 {
            self.failed.get_or_insert(MemberId(member));
            return Err(error);
        }
        self.spare -= 1;
        readers.iter_mut().for_each(|reader| reader.abandon());
        Ok(())
    }

    /// Reads all that is left, for the durable LSNs that its blocks carry.
    pub fn drain(&mut self) -> Result<(), LogError> {
        self.start_reading_devices(self.pos);
        for i in 0..self.readers.len() {
            while self.peek(i)?.is_some() {
                self.readers[i].pop();
            }
        }
        Ok(())
    }
}
