//! Merging the devices' blocks into the stream.
//!
//! Since LSNs on each device never decrease, the block that comes next is at the head of some device.
//! Blocks may lie on several devices, or several times on one, filled to different lengths: the fullest
//! of an epoch holds all that the others do.
//!
//! Memory: a [`Reader`] for each device, and one block.

use crate::archive::{ArchiveReader, Archived};
use crate::block::{PAYLOAD, base};
use crate::epochs::{EpochRange, EpochTable};
use crate::patches::{Patches, Thin};
use crate::reader::{Head, Peek, Reader};
use crate::{LogError, MemberId, Redundancy};
use firn_base::Lsn;
use firn_base::sync::{Arc, thread};

/// A position in the stream of one epoch, moving forward only.
pub(crate) struct Cursor {
    epochs: Arc<EpochTable>,
    readers: Vec<Reader>,
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
    /// Asked for what the devices do not have.
    archive: Option<ArchiveReader>,
    /// Bytes that it had.
    pub from_archive: u64,
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
    fn note(&mut self, epoch: usize, thin: Thin, members: usize) {
        let last = Lsn(thin.lsn.0 + (thin.bytes.len() as u64).max(1) - 1);
        let promised = self.redundancy.at(thin.lsn).max(self.redundancy.at(last));
        // What the archive alone has is on no device, whatever those have that are not there.
        if members > 0 && members + self.absent >= usize::from(promised) {
            return;
        }
        if self.thin.len() < THIN_MAX {
            self.thin.push((epoch, thin));
        } else {
            self.overflown = true;
        }
    }
}

impl Cursor {
    pub fn new(epochs: Arc<EpochTable>, readers: Vec<Reader>, epoch: usize, pos: Lsn) -> Cursor {
        Cursor {
            epochs,
            readers,
            epoch,
            pos,
            block: None,
            payload: [0; PAYLOAD],
            patches: Arc::default(),
            spare: 0,
            failed: None,
            audit: None,
            archive: None,
            from_archive: 0,
        }
    }

    /// With an archive for what the devices do not have.
    pub fn with_archive(mut self, archive: Option<&Archived>) -> Cursor {
        self.archive = archive.map(Archived::reader);
        self
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
        self.readers.iter().map(Reader::loaded).sum()
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
        let patch = self.patches.get(epoch, wanted);
        if let Some(bytes) = patch.filter(|bytes| best.is_none_or(|fill| bytes.len() > fill)) {
            best = Some(bytes.len());
            self.payload[..bytes.len()].copy_from_slice(bytes);
        }
        // The first epoch begins within a block.
        let before = start.0.saturating_sub(wanted.0) as usize;
        let have = best.unwrap_or(0).max(before);
        if let Some(archive) = self.archive.as_mut().filter(|_| have < PAYLOAD) {
            let lsn = wanted.advance(have as u64);
            let more = archive.copy(epoch, start, lsn, &mut self.payload[have..])?;
            if more > 0 {
                self.from_archive += more as u64;
                self.payload[..before].fill(0);
                best = Some(have + more);
                holders.clear();
            }
        }
        if let (Some(audit), Some(fill)) = (&mut self.audit, best)
            && patch.is_none_or(|bytes| bytes.len() < fill)
        {
            let thin = Thin { epoch, lsn: wanted, bytes: self.payload[..fill].to_vec() };
            audit.note(self.epoch, thin, holders.len());
        }
        Ok(best)
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
        for i in 0..self.readers.len() {
            while self.peek(i)?.is_some() {
                self.readers[i].pop();
            }
        }
        Ok(())
    }
}
