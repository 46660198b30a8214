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
//! The cursor moves over *windows*: full blocks of one run in one stream, or a single block. A full
//! block has no fuller copy, so a window of them needs no look at the other streams; with a single
//! stream there is nothing to merge. Where copies are counted ([`Audit`]), a window is one block.
//!
//! A window's bytes are read where the reader has them: in its current chunk. Before that reader
//! may leave the chunk, what is still needed of it (the best copy of the block that is being
//! sought, nothing else) is copied to the cursor's own block. While a window is in use, no reader
//! is moved.
//!
//! Memory: a [`Reader`] for each device, one block, and a chunk of the archive.

use crate::archive::source::ArchiveReader;
use crate::block::{BLOCK, HEADER, PAYLOAD, base};
use crate::error::LogError;
use crate::ids::MemberId;
use crate::read::audit::Audit;
use crate::read::doubts::Doubt;
use crate::read::epochs::{EpochRange, EpochTable};
use crate::read::member::Member;
use crate::read::read_ahead::ReadAhead;
use crate::read::reader::{Peek, Reader};
use crate::read::runs::Run;
use crate::read::underreplicated::CopiedBlocks;
use crate::read::window::{Place, Window};
use firndb_base::sync::{Arc, thread};
use firndb_base::{Epoch, Lsn};
use std::ops::Range;

/// The streams that a cursor merges.
#[derive(Clone)]
pub(crate) struct Streams {
    pub members: Vec<Arc<Member>>,
    pub epochs: Arc<EpochTable>,
    /// By stream: linear position of the last block of log, if it is known.
    pub last_blocks: Option<Vec<Option<u64>>>,
    /// Whether threads read ahead.
    pub threads: bool,
    /// Memory for reading ahead.
    pub read_ahead_bytes: usize,
}

impl Streams {
    /// A reader for each stream, from the first block that may hold log from `from` on.
    fn readers(&self, from: Lsn) -> Vec<Reader> {
        let range = |(place, member): (usize, &Arc<Member>)| {
            let mut range = member.range(from);
            if let Some(last_blocks) = &self.last_blocks {
                let end = last_blocks[place].map_or(range.start, |last| last + BLOCK as u64);
                range.end = end.max(range.start);
            }
            range
        };
        let ranges: Vec<Range<u64>> = self.members.iter().enumerate().map(range).collect();
        let long = ranges.iter().filter(|range| !range.is_empty()).count();
        let how = ReadAhead::of(self.threads, self.read_ahead_bytes, long);
        let parts = self.members.iter().zip(ranges);
        parts
            .map(|(member, range)| Reader::new(Arc::clone(member), Arc::clone(&self.epochs), range, how))
            .collect()
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
    /// The blocks found last. `None` if none was found there.
    window: Option<Window>,
    /// The block of a window that is [`Place::Own`].
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
            window: None,
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
            self.window = None;
        }
        (self.epoch, self.pos) = (epoch, pos);
    }

    /// Reads `out.len()` bytes. Returns false if the stream ends before.
    pub fn read(&mut self, out: &mut [u8]) -> Result<bool, LogError> {
        let mut done = 0;
        while done < out.len() {
            let within = (self.pos.0 % PAYLOAD as u64) as usize;
            let count = self.available()?.min(out.len() - done).min(PAYLOAD - within);
            let Some(window) = self.window.filter(|_| count > 0) else { return Ok(false) };
            let first = (self.pos.since(window.first) / PAYLOAD as u64) as usize;
            let from = self.payload(window.place, first, within + count);
            out[done..done + count].copy_from_slice(&from[within..]);
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

    /// Bytes available at the position, in one block or several; 0 if the stream ends here.
    pub fn available(&mut self) -> Result<usize, LogError> {
        let wanted = base(self.pos);
        if let Some(window) = self.window.filter(|window| window.covers(wanted)) {
            return Ok(window.end().since(self.pos) as usize);
        }
        if wanted >= self.epochs.ranges()[self.epoch].limit {
            // The block belongs to the next epoch: searching for it here would skip it.
            return Ok(0);
        }
        self.window = self.find_window(wanted)?;
        Ok(self.window.map_or(0, |window| window.end().since(self.pos) as usize))
    }

    /// The first `len` bytes of the payload of a window's block: the `block`-th of those at
    /// `place`.
    fn payload(&self, place: Place, block: usize, len: usize) -> &[u8] {
        match place {
            Place::Own => &self.payload[..len],
            Place::Chunk { reader, at } => self.readers[reader].bytes(at + block * BLOCK + HEADER, len),
        }
    }

    /// Copies a block's payload to the cursor's own, unless it is there.
    fn own(&mut self, window: Window) -> Window {
        if let Place::Chunk { reader, at } = window.place {
            self.payload.copy_from_slice(self.readers[reader].bytes(at + HEADER, PAYLOAD));
        }
        Window { place: Place::Own, ..window }
    }

    /// Finds the fullest copy of the block at `wanted`, and the full blocks that follow it in its
    /// run. Passes all blocks before on all devices.
    fn find_window(&mut self, wanted: Lsn) -> Result<Option<Window>, LogError> {
        // What follows may move every reader.
        self.window = None;
        if self.devices_from.is_none() {
            if let Some(found) = self.find_in_archive_first(wanted) {
                return Ok(found.map(|fill| Window::block(wanted, fill, Place::Own)));
            }
            self.start_reading_devices(wanted);
        }
        let mut best = self.find_on_devices(wanted)?;
        let EpochRange { epoch, start, .. } = self.epochs.ranges()[self.epoch];
        let copied_blocks = Arc::clone(&self.copied_blocks);
        let copied = copied_blocks.get(epoch, wanted);
        if let Some(bytes) = copied.filter(|bytes| best.is_none_or(|best| bytes.len() > best.fill)) {
            best = Some(Window::block(wanted, bytes.len(), Place::Own));
            self.payload[..bytes.len()].copy_from_slice(bytes);
        }
        // The first epoch begins within a block.
        let before = start.0.saturating_sub(wanted.0) as usize;
        let have = best.map_or(0, |best| best.fill).max(before);
        if have < PAYLOAD && self.archive.is_some() {
            best = best.map(|best| self.own(best));
            let more = self.fill_from_archive(wanted, have)?;
            if more > 0 {
                self.payload[..before].fill(0);
                best = Some(Window::block(wanted, have + more, Place::Own));
                self.audit.iter_mut().for_each(Audit::no_holder);
            }
        }
        let Some(found) = best else { return Ok(None) };
        if self.audit.is_none() {
            return Ok(Some(self.extended(found)));
        }
        if copied.is_none_or(|bytes| bytes.len() < found.fill) {
            self.note_copies(epoch, found);
        }
        Ok(Some(found))
    }

    /// Finds the fullest copy on the devices of the block at `wanted`. Passes all blocks up to and
    /// including it.
    fn find_on_devices(&mut self, wanted: Lsn) -> Result<Option<Window>, LogError> {
        let mut best: Option<Window> = None;
        self.audit.iter_mut().for_each(Audit::no_holder);
        for i in 0..self.readers.len() {
            loop {
                if self.readers[i].head().is_none() {
                    // `peek` may leave the chunk.
                    best = best.map(|best| if best.is_in_chunk_of(i) { self.own(best) } else { best });
                }
                let Some(head) = self.peek(i)?.filter(|head| head.lsn <= wanted) else { break };
                if head.lsn < wanted {
                    self.readers[i].pop(head.blocks_below(wanted));
                    continue;
                }
                let (fill, fullest) = (head.fill(), best.map(|best| best.fill));
                if head.epoch == self.epoch && fullest.is_none_or(|fullest| fill >= fullest) {
                    let fuller = fullest.is_none_or(|fullest| fill > fullest);
                    if let Some(audit) = &mut self.audit {
                        audit.holder(self.readers[i].member(), fuller);
                    }
                    if fuller {
                        best = Some(Window::block(wanted, fill, Place::Chunk { reader: i, at: head.at }));
                    }
                }
                self.readers[i].pop(1);
            }
        }
        Ok(best)
    }

    fn note_copies(&mut self, epoch: Epoch, found: Window) {
        let bytes = match found.place {
            Place::Own => &self.payload[..found.fill],
            Place::Chunk { reader, at } => self.readers[reader].bytes(at + HEADER, found.fill),
        };
        if let Some(audit) = &mut self.audit {
            audit.note((self.epoch, epoch), found.first, bytes);
        }
    }

    /// The block found, with the full blocks behind it in its run. They are passed on that stream;
    /// on the others, they are when a later block is sought.
    fn extended(&mut self, found: Window) -> Window {
        let Place::Chunk { reader, at } = found.place else { return found };
        let next = self.readers[reader].head();
        let Some(run) = next.filter(|run| found.fill == PAYLOAD && run.at == at + BLOCK) else {
            return found;
        };
        let follows = run.epoch == self.epoch && run.lsn == found.first.advance(PAYLOAD as u64);
        let more = if follows { run.full_blocks() } else { 0 };
        self.readers[reader].pop(more);
        Window { blocks: 1 + more, ..found }
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
            matches!(reader.peek(), Peek::Run(head) if head.lsn > lsn) || reader.seen.claims[epoch] > lsn
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

    fn peek(&mut self, i: usize) -> Result<Option<Run>, LogError> {
        loop {
            match self.readers[i].peek() {
                Peek::Run(head) => return Ok(Some(head)),
                Peek::End => return Ok(None),
                Peek::Starved => self.load()?,
            }
        }
    }

    /// Reads ahead on every device that has a spare buffer, all in parallel.
    fn load(&mut self) -> Result<(), LogError> {
        let loadable = self.readers.iter_mut().filter(|r| r.can_load()).collect();
        let outcomes = thread::each(loadable, |reader: &mut Reader| (reader.member(), reader.load()));
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
        self.window = None;
        self.start_reading_devices(self.pos);
        for i in 0..self.readers.len() {
            while let Some(head) = self.peek(i)? {
                self.readers[i].pop(head.blocks);
            }
        }
        Ok(())
    }
}
