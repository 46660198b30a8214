//! Merging the devices' blocks into the stream.
//!
//! Since LSNs on each device never decrease, the block that comes next is at the head of some device.
//! Blocks may lie on several devices, or several times on one, filled to different lengths: the fullest
//! of an epoch holds all that the others do.
//!
//! Where the archive is the faster source, log is taken from it as long as it has whole blocks without a hole, and only then
//! from the devices, which are not read before: [`Cursor::turn_to_devices`]. That is right for log which the devices had when it was
//! archived. Behind that, the archive is asked for what the devices lack:
//! * if it was needed when the database crashed, for whatever that is;
//! * if not, only for what the devices say should be there: they have a later block, or one of theirs says that it was durable.
//!   Of the same epoch, begun at the same LSN, the archive has nothing that was not durable on the devices once, or that a later
//!   epoch's beginning does not cut off.
//!
//! Memory: a [`Reader`] for each device, one block, and a chunk of the archive.

use crate::archive::ArchiveReader;
use crate::block::{BLOCK, PAYLOAD, base};
use crate::epochs::{EpochRange, EpochTable};
use crate::member::Member;
use crate::patches::{Patches, Thin};
use crate::reader::{Head, Peek, Reader};
use crate::{LogError, MemberId, Redundancy};
use firn_base::sync::{Arc, thread};
use firn_base::{Epoch, Lsn};

/// The streams that a cursor merges.
#[derive(Clone)]
pub(crate) struct Streams {
    pub members: Vec<Arc<Member>>,
    pub epochs: Arc<EpochTable>,
    /// By stream: linear position of the last block of log, if it is known.
    pub last_blocks: Option<Vec<Option<u64>>>,
    /// Read ahead on threads.
    pub threads: bool,
}

impl Streams {
    /// A reader for each stream from the first block that may matter for log from `from` on.
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

/// What a cursor has of the archive.
pub(crate) struct ArchivePart {
    pub reader: ArchiveReader,
    /// The devices may lack what was acknowledged.
    pub needed: bool,
    /// Log before is read from it first.
    pub first: Option<Lsn>,
}

/// A position in the stream of one epoch, moving forward only.
pub(crate) struct Cursor {
    epochs: Arc<EpochTable>,
    streams: Streams,
    /// None while the archive is read first.
    readers: Vec<Reader>,
    /// Where these began.
    pub devices_from: Option<Lsn>,
    /// Place of the current epoch in the table.
    epoch: usize,
    pos: Lsn,
    /// The block loaded last: its first LSN and fill. `None` if there was none at its place.
    block: Option<(Lsn, usize)>,
    payload: [u8; PAYLOAD],
    /// Blocks that a later epoch carries.
    patches: Arc<Patches>,
    /// So many members may fail while they are read, since others have what they have.
    pub spare: usize,
    /// The first member that failed, and there was no other to spare.
    pub failed: Option<MemberId>,
    pub audit: Option<Audit>,
    archive: Option<ArchivePart>,
    /// Bytes that it alone had.
    pub from_archive: u64,
    /// Where the last of them ends.
    pub filled_until: Lsn,
    /// Bytes that were read from it first.
    pub archive_first: u64,
}

/// Counts the copies of each block that is passed.
pub(crate) struct Audit {
    pub redundancy: Redundancy,
    /// Members that are not there to be counted.
    pub absent: usize,
    /// Blocks with too few copies, with the places of their epochs.
    pub thin: Vec<(usize, Thin)>,
    /// There are more of them than are remembered.
    pub overflown: bool,
}

/// Blocks with too few copies that are remembered: what the devices may have been writing at a crash.
const THIN_MAX: usize = 16 << 10;

impl Audit {
    /// Notes that so many members have the block at `lsn`.
    fn note(&mut self, (place, epoch): (usize, Epoch), lsn: Lsn, bytes: &[u8], members: usize) {
        let last = Lsn(lsn.0 + (bytes.len() as u64).max(1) - 1);
        let promised = self.redundancy.at(lsn).max(self.redundancy.at(last));
        // What the archive alone has is on no device, whatever those have that are not there.
        if members > 0 && members + self.absent >= usize::from(promised) {
            return;
        }
        if self.thin.len() < THIN_MAX {
            self.thin.push((place, Thin { epoch, lsn, bytes: bytes.to_vec() }));
        } else {
            self.overflown = true;
        }
    }
}

impl Cursor {
    /// At `pos` of the epoch at place `epoch`.
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
            patches: Arc::default(),
            spare: 0,
            failed: None,
            audit: None,
            archive,
            from_archive: 0,
            filled_until: Lsn::ZERO,
            archive_first: 0,
        };
        if cursor.archive.as_ref().is_none_or(|archive| archive.first.is_none()) {
            cursor.turn_to_devices(pos);
        }
        cursor
    }

    /// Reads the devices from `from` on, if it does not yet.
    fn turn_to_devices(&mut self, from: Lsn) {
        if self.devices_from.is_none() {
            self.readers = self.streams.readers(from);
            self.devices_from = Some(from);
        }
    }

    /// With blocks that a later epoch carries.
    pub fn with(mut self, patches: &Arc<Patches>) -> Cursor {
        self.patches = Arc::clone(patches);
        self
    }

    pub fn pos(&self) -> Lsn {
        self.pos
    }

    pub fn readers(&self) -> &[Reader] {
        &self.readers
    }

    /// Bytes loaded so far.
    pub fn bytes_read(&self) -> u64 {
        self.readers.iter().map(Reader::loaded).sum::<u64>() + self.archive_first
    }

    /// Bytes not loaded yet.
    pub fn left(&self) -> u64 {
        self.readers.iter().map(Reader::left).sum()
    }

    /// Goes on at `pos` of the epoch at place `epoch`.
    pub fn seek(&mut self, epoch: usize, pos: Lsn) {
        assert!(pos >= self.pos || epoch != self.epoch, "a cursor moves forward");
        if epoch != self.epoch {
            self.block = None;
        }
        (self.epoch, self.pos) = (epoch, pos);
    }

    /// Reads `out.len()` bytes; false if the stream ends before.
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

    /// Goes `len` bytes on; false if the stream ends before.
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

    /// Bytes at hand at the position; 0 if the stream ends here.
    pub fn available(&mut self) -> Result<usize, LogError> {
        let wanted = base(self.pos);
        if wanted >= self.epochs.ranges()[self.epoch].limit {
            // That block belongs to the next epoch: looking for it here would pass it.
            return Ok(0);
        }
        if self.block.is_none_or(|(lsn, _)| lsn != wanted) {
            self.block = self.find(wanted)?.map(|fill| (wanted, fill));
        }
        let end = self.block.map_or(wanted, |(lsn, fill)| Lsn(lsn.0 + fill as u64));
        Ok(end.since(self.pos) as usize)
    }

    /// Finds the fullest copy of the block at `wanted` and takes its payload; answers its fill. Passes all
    /// blocks up to and including it on all devices.
    fn find(&mut self, wanted: Lsn) -> Result<Option<usize>, LogError> {
        if self.devices_from.is_none() {
            if let Some(found) = self.find_first(wanted) {
                return Ok(found);
            }
            self.turn_to_devices(wanted);
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
        let patches = Arc::clone(&self.patches);
        let patch = patches.get(epoch, wanted);
        if let Some(bytes) = patch.filter(|bytes| best.is_none_or(|fill| bytes.len() > fill)) {
            best = Some(bytes.len());
            self.payload[..bytes.len()].copy_from_slice(bytes);
        }
        // The first epoch begins within a block.
        let before = start.0.saturating_sub(wanted.0) as usize;
        let have = best.unwrap_or(0).max(before);
        if have < PAYLOAD {
            let more = self.fill(wanted, have)?;
            if more > 0 {
                self.payload[..before].fill(0);
                best = Some(have + more);
                holders.clear();
            }
        }
        if let (Some(audit), Some(fill)) = (&mut self.audit, best)
            && patch.is_none_or(|bytes| bytes.len() < fill)
        {
            audit.note((self.epoch, epoch), wanted, &self.payload[..fill], holders.len());
        }
        Ok(best)
    }

    /// Asks the archive for what the devices do not have of the block at `wanted`, of which they have `have` bytes; answers
    /// how many bytes it had.
    fn fill(&mut self, wanted: Lsn, have: usize) -> Result<usize, LogError> {
        let lsn = wanted.advance(have as u64);
        let told = self.told_of(lsn);
        let Some(archive) = self.archive.as_mut().filter(|archive| archive.needed || told) else {
            return Ok(0);
        };
        let EpochRange { epoch, start, .. } = self.epochs.ranges()[self.epoch];
        let more = match archive.reader.copy(epoch, start, lsn, &mut self.payload[have..]) {
            Ok(more) => more,
            Err(error) if archive.needed => return Err(error),
            Err(_) => {
                // What is missing is damage on the devices, which is told with its LSN.
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

    /// Whether the devices say that log at `lsn` was there: a later block is, or one says that it was durable. They stand behind
    /// its block.
    fn told_of(&mut self, lsn: Lsn) -> bool {
        let epoch = self.epoch;
        self.readers.iter_mut().any(|reader| {
            matches!(reader.peek(), Peek::Block(head) if head.lsn > lsn) || reader.seen.claims[epoch] > lsn
        })
    }

    /// Takes the block at `wanted` from the archive, while that is read first: its fill, or that it holds nothing since its
    /// epoch's log ends there. `None` if the archive is not, or no more, read first.
    fn find_first(&mut self, wanted: Lsn) -> Option<Option<usize>> {
        let archive = self.archive.as_mut().filter(|_| self.devices_from.is_none())?;
        let EpochRange { epoch, start, .. } = self.epochs.ranges()[self.epoch];
        let until = archive.first.filter(|until| wanted.0 + PAYLOAD as u64 <= until.0)?;
        let before = start.0.saturating_sub(wanted.0) as usize;
        let from = wanted.advance(before as u64);
        // Whatever goes wrong, the devices have it, too.
        let more = archive.reader.copy(epoch, start, from, &mut self.payload[before..]).ok()?;
        let fill = before + more;
        if fill < PAYLOAD {
            // The end of an epoch's log is believed if the next epoch's beginning says so.
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

    /// Reads ahead on every device that has room, all side by side.
    fn load(&mut self) -> Result<(), LogError> {
        let mut hungry: Vec<&mut Reader> = self.readers.iter_mut().filter(|r| r.can_load()).collect();
        let outcomes: Vec<(u32, Result<(), LogError>)> = if let [only] = &mut hungry[..] {
            vec![(only.member(), only.load())]
        } else {
            thread::scope(|scope| {
                let threads: Vec<_> =
                    hungry.into_iter().map(|r| (r.member(), scope.spawn(|| r.load()))).collect();
                threads
                    .into_iter()
                    .map(|(member, t)| {
                        (member, t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                    })
                    .collect()
            })
        };
        for (member, outcome) in outcomes {
            if let Err(error) = outcome {
                self.lose(member, error)?;
            }
        }
        Ok(())
    }

    /// Goes on without a member, if there is one to spare.
    fn lose(&mut self, member: u32, error: LogError) -> Result<(), LogError> {
        let readers = self.readers.iter_mut().filter(|reader| reader.member() == member);
        let mut readers: Vec<&mut Reader> = readers.collect();
        if readers.iter().all(|reader| reader.is_given_up()) {
            // Its other stream failed before.
            return Ok(());
        }
        if self.spare == 0 {
            self.failed.get_or_insert(MemberId(member));
            return Err(error);
        }
        self.spare -= 1;
        readers.iter_mut().for_each(|reader| reader.give_up());
        Ok(())
    }

    /// Reads all that is left, for what it says.
    pub fn drain(&mut self) -> Result<(), LogError> {
        self.turn_to_devices(self.pos);
        for i in 0..self.readers.len() {
            while self.peek(i)?.is_some() {
                self.readers[i].pop();
            }
        }
        Ok(())
    }
}
