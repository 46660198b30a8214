//! A storage medium that a power cut can hit at any moment.
//!
//! Beside what is read now, a medium knows of each 512-byte sector what would be there after a
//! power cut: the durable bytes, or those of any write that no sync has covered yet, those in
//! flight included. A cut draws one of them for each such sector, in any mixture, as
//! [`firndb::device::crash`] defines it, and ends the medium: every later call fails, those that
//! were under way too. What is left is a new medium.
//!
//! Calls take the time that the [`Timing`] says, in the clock of the simulation. A write is in
//! flight from its call to its end: it can be torn in between, and is read only afterwards.
//!
//! Locks: `state` is a leaf; nothing sleeps under it.

use firndb::device::{
    Device, DeviceError, DeviceErrorKind, DeviceInfo, Durability, Fill, InFlight, OwnedRead, ReadDone,
};
use firndb_base::clock::{self, Moment};
use firndb_base::rng::Rng;
use firndb_base::sync::{Arc, Mutex};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// Bytes that survive a power cut together or not at all.
const SECTOR: usize = firndb::device::crash::SECTOR_BYTES;

/// Each byte of a range that was discarded.
const DISCARDED: u8 = 0xDD;

/// What is asked of a device, for its timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Reading this number of bytes at this offset.
    Read(u64, usize),
    Write(u64, usize, Durability),
    /// Making writes durable.
    Sync,
}

/// How long a device takes.
pub trait Timing: Send + std::fmt::Debug {
    /// When a call that begins now will end.
    fn end(&mut self, now: Moment, call: Call) -> Moment;
}

/// Every call takes between `least` and `most`, drawn by the seed, whatever else goes on.
#[derive(Debug)]
pub struct Uniform {
    /// Shortest time of a call.
    pub least: Duration,
    pub most: Duration,
    pub rng: Rng,
}

impl Timing for Uniform {
    fn end(&mut self, now: Moment, _: Call) -> Moment {
        let spread = (self.most - self.least).as_nanos() as u64;
        let time = self.least + Duration::from_nanos(self.rng.below(spread + 1));
        now.after(time).unwrap_or(now)
    }
}

/// Which of the writes that no sync covers survive a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// None: the drive's cache was all volatile, and never drained by itself.
    None,
    /// All that had ended.
    Ended,
    /// Of each sector, any.
    Any,
}

/// One write of one sector that is not durable yet.
#[derive(Debug)]
struct Version {
    write: u64,
    /// When it ended, in the count of ended calls; `None` while it is in flight.
    ended: Option<u64>,
    bytes: [u8; SECTOR],
}

#[derive(Debug)]
struct State {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// By sector number, oldest write first.
    loose: BTreeMap<u64, Vec<Version>>,
    writes: u64,
    ended: u64,
    /// Where the write that ended last went.
    newest: Range<u64>,
    limit: u64,
    gone: bool,
    /// One in this number of discards and cuts fails.
    refuses: Option<(u64, Rng)>,
    timing: Box<dyn Timing>,
}

/// A device of a simulated machine.
#[derive(Debug)]
pub struct Medium {
    info: DeviceInfo,
    state: Mutex<State>,
}

impl Medium {
    /// An empty medium that can hold `limit` bytes.
    #[must_use]
    pub fn new(name: &str, limit: u64, timing: Box<dyn Timing>) -> Arc<Medium> {
        Medium::holding(name, Vec::new(), limit, timing)
    }

    /// A medium that durably holds `bytes`.
    #[must_use]
    pub fn holding(name: &str, bytes: Vec<u8>, limit: u64, timing: Box<dyn Timing>) -> Arc<Medium> {
        let info = DeviceInfo { name: name.to_owned(), logical_block: SECTOR, direct: true };
        let state = State {
            durable: bytes.clone(),
            now: bytes,
            loose: BTreeMap::new(),
            writes: 0,
            ended: 0,
            newest: 0..0,
            limit,
            gone: false,
            refuses: None,
            timing,
        };
        Arc::new(Medium { info, state: Mutex::new(state) })
    }

    /// From now on one in this number of discards and cuts fails, and leaves everything as it was.
    pub fn refuse_one_in(&self, many: u64, rng: Rng) {
        self.state.lock().refuses = Some((many, rng));
    }

    /// The power fails: every call fails from now on. Returns what is left.
    pub fn cut(&self, survival: Survival, rng: &mut Rng) -> Vec<u8> {
        let mut state = self.state.lock();
        state.gone = true;
        let mut left = state.durable.clone();
        for (&sector, versions) in &state.loose {
            let at = sector as usize * SECTOR;
            let survivor = match survival {
                Survival::None => None,
                Survival::Ended => versions.iter().filter(|v| v.ended.is_some()).max_by_key(|v| v.ended),
                Survival::Any => {
                    let drawn = rng.below(versions.len() as u64 + 1) as usize;
                    drawn.checked_sub(1).map(|drawn| &versions[drawn])
                }
            };
            // A write beyond an end that was cut meanwhile has no place to survive in.
            if let Some((version, place)) = survivor.zip(left.get_mut(at..at + SECTOR)) {
                place.copy_from_slice(&version.bytes);
            }
        }
        left
    }

    /// Bytes of the write that ended last.
    pub fn newest(&self) -> Range<u64> {
        self.state.lock().newest.clone()
    }

    /// Flips `bits` bits of what is stored, anywhere outside `spared`; returns where. Nothing if it
    /// is empty.
    pub fn rot(&self, bits: u32, spared: &Range<u64>, rng: &mut Rng) -> Vec<u64> {
        let mut state = self.state.lock();
        let len = state.now.len() as u64;
        if len == 0 {
            return Vec::new();
        }
        let mut places: Vec<u64> = (0..bits).map(|_| rng.below(len * 8)).collect();
        places.retain(|place| !spared.contains(&(place / 8)));
        for place in &places {
            let (byte, bit) = ((place / 8) as usize, 1 << (place % 8));
            state.now[byte] ^= bit;
            state.durable[byte] ^= bit;
        }
        places.into_iter().map(|place| place / 8).collect()
    }

    fn gone(&self) -> DeviceError {
        DeviceError::new(DeviceErrorKind::Failed, format!("{}: the power is off", self.info.name))
    }

    fn refused(&self) -> DeviceError {
        DeviceError::new(DeviceErrorKind::Failed, format!("{}: it keeps the space", self.info.name))
    }

    fn range(&self, state: &State, offset: u64, len: usize) -> Result<std::ops::Range<usize>, DeviceError> {
        if state.gone {
            return Err(self.gone());
        }
        let end = offset + len as u64;
        if end > state.now.len() as u64 {
            let message = format!("{}: {offset}+{len} lies beyond the end", self.info.name);
            return Err(DeviceError::new(DeviceErrorKind::OutOfRange, message));
        }
        Ok(offset as usize..end as usize)
    }

    /// Sleeps as long as the call takes; whatever `begin` notes happens at its beginning.
    fn take<T>(
        &self,
        call: Call,
        begin: impl FnOnce(&mut State) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let (noted, end) = {
            let mut state = self.state.lock();
            let noted = begin(&mut state)?;
            let end = state.timing.end(clock::now(), call);
            (noted, end)
        };
        clock::sleep_until(end);
        Ok(noted)
    }
}

impl State {
    /// Whether a discard or a cut is one that fails.
    fn refuses(&mut self) -> bool {
        self.refuses.as_mut().is_some_and(|(many, rng)| rng.one_in(*many))
    }

    /// Gives a range other bytes, durably, as a device may that discards it. Writes in flight are
    /// still to come.
    fn garble(&mut self, range: Range<usize>) {
        let sectors = (range.start / SECTOR) as u64..(range.end / SECTOR) as u64;
        self.now[range.clone()].fill(DISCARDED);
        self.durable[range].fill(DISCARDED);
        self.loose.retain(|sector, versions| {
            versions.retain(|version| version.ended.is_none() || !sectors.contains(sector));
            !versions.is_empty()
        });
    }

    fn begin_write(&mut self, offset: u64, data: &[u8]) -> u64 {
        self.writes += 1;
        let write = self.writes;
        for (sector, part) in (offset / SECTOR as u64..).zip(data.chunks_exact(SECTOR)) {
            let bytes = part.try_into().expect("a whole sector");
            self.loose.entry(sector).or_default().push(Version { write, ended: None, bytes });
        }
        write
    }

    fn end_write(&mut self, write: u64, offset: u64, data: &[u8], durability: Durability) {
        self.ended += 1;
        let ended = self.ended;
        self.newest = offset..offset + data.len() as u64;
        let at = offset as usize;
        self.now[at..at + data.len()].copy_from_slice(data);
        for (sector, part) in (offset / SECTOR as u64..).zip(data.chunks_exact(SECTOR)) {
            let versions = self.loose.get_mut(&sector).expect("noted at its beginning");
            let own = versions.iter_mut().find(|v| v.write == write).expect("noted at its beginning");
            own.ended = Some(ended);
            if durability == Durability::Durable {
                // Only a write in flight can still replace it.
                versions.retain(|v| v.ended.is_none());
                self.durable[sector as usize * SECTOR..][..SECTOR].copy_from_slice(part);
                if versions.is_empty() {
                    self.loose.remove(&sector);
                }
            }
        }
    }

    /// All writes that had ended by `mark` are durable.
    fn settle(&mut self, mark: u64) {
        let State { loose, durable, .. } = self;
        loose.retain(|&sector, versions| {
            let covered = |version: &Version| version.ended.is_some_and(|ended| ended <= mark);
            if let Some(last) = versions.iter().filter(|v| covered(v)).max_by_key(|v| v.ended) {
                durable[sector as usize * SECTOR..][..SECTOR].copy_from_slice(&last.bytes);
            }
            versions.retain(|version| !covered(version));
            !versions.is_empty()
        });
    }
}

impl Device for Medium {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn len(&self) -> u64 {
        self.state.lock().now.len() as u64
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let len = buf.len();
        self.take(Call::Read(offset, len), |state| self.range(state, offset, len))?;
        let state = self.state.lock();
        buf.copy_from_slice(&state.now[self.range(&state, offset, len)?]);
        Ok(())
    }

    /// Its bytes are those that are there when it begins.
    fn begin_read(&self, in_flight: &mut InFlight, mut read: OwnedRead) {
        let (offset, len) = (read.offset, read.len);
        let mut state = self.state.lock();
        match self.range(&state, offset, len) {
            Err(error) => in_flight.complete(read, Err(error)),
            Ok(range) => {
                read.buf[..len].copy_from_slice(&state.now[range]);
                let end = state.timing.end(clock::now(), Call::Read(offset, len));
                in_flight.complete_at(end, read, Ok(()));
            }
        }
    }

    fn next_read(&self, in_flight: &mut InFlight, until: Option<Moment>) -> Option<ReadDone> {
        let done = in_flight.next(until, clock::sleep_until)?;
        let outcome = if self.state.lock().gone { Err(self.gone()) } else { done.outcome };
        Some(ReadDone { outcome, ..done })
    }

    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        assert!(
            offset.is_multiple_of(SECTOR as u64) && data.len().is_multiple_of(SECTOR),
            "transfers are whole blocks: {offset}+{} on {}",
            data.len(),
            self.info.name
        );
        let write = self.take(Call::Write(offset, data.len(), durability), |state| {
            self.range(state, offset, data.len())?;
            Ok(state.begin_write(offset, data))
        })?;
        let mut state = self.state.lock();
        self.range(&state, offset, data.len())?;
        state.end_write(write, offset, data, durability);
        Ok(())
    }

    fn sync(&self) -> Result<(), DeviceError> {
        let mark = self.take(Call::Sync, |state| match state.gone {
            true => Err(self.gone()),
            false => Ok(state.ended),
        })?;
        let mut state = self.state.lock();
        if state.gone {
            return Err(self.gone());
        }
        state.settle(mark);
        Ok(())
    }

    fn grow(&self, len: u64, _: Fill) -> Result<(), DeviceError> {
        self.take(Call::Sync, |_| Ok(()))?;
        let mut state = self.state.lock();
        let len = len.next_multiple_of(SECTOR as u64);
        if state.gone {
            return Err(self.gone());
        }
        if len > state.limit {
            let message = format!("{}: no space for {len} bytes", self.info.name);
            return Err(DeviceError::new(DeviceErrorKind::NoSpace, message));
        }
        let len = state.now.len().max(len as usize);
        state.now.resize(len, 0);
        state.durable.resize(len, 0);
        Ok(())
    }

    fn shrink(&self, len: u64) -> Result<(), DeviceError> {
        self.take(Call::Sync, |_| Ok(()))?;
        let mut state = self.state.lock();
        if state.gone {
            return Err(self.gone());
        }
        if state.refuses() {
            return Err(self.refused());
        }
        let len = state.now.len().min(len.next_multiple_of(SECTOR as u64) as usize);
        state.now.truncate(len);
        state.durable.truncate(len);
        state.loose.retain(|&sector, _| ((sector as usize) + 1) * SECTOR <= len);
        Ok(())
    }

    /// What was there is lost at once, which is the worst that a device may do.
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let mut state = self.state.lock();
        let range = self.range(&state, offset, len as usize)?;
        if state.refuses() {
            return Err(self.refused());
        }
        state.garble(range);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn medium() -> Arc<Medium> {
        let timing = Uniform { least: Duration::ZERO, most: Duration::ZERO, rng: Rng::new(1) };
        let medium = Medium::new("data", 1 << 20, Box::new(timing));
        medium.grow(4096, Fill::Written).expect("grown");
        medium
    }

    #[test]
    fn what_no_sync_covered_survives_or_not_sector_by_sector() {
        let (mut all, mut none, mut torn) = (0, 0, 0);
        for seed in 0..200 {
            let medium = medium();
            medium.write(0, &[1; 1024], Durability::Later).expect("written");
            let left = medium.cut(Survival::Any, &mut Rng::new(seed));
            match (left[0], left[512]) {
                (1, 1) => all += 1,
                (0, 0) => none += 1,
                _ => torn += 1,
            }
            assert!(left[1024..].iter().all(|&byte| byte == 0));
        }
        assert!(all > 20 && none > 20 && torn > 50, "{all} {none} {torn}");
    }

    #[test]
    fn what_was_durable_stays() {
        for seed in 0..50 {
            let medium = medium();
            medium.write(0, &[1; 512], Durability::Later).expect("written");
            medium.sync().expect("synced");
            medium.write(512, &[2; 512], Durability::Durable).expect("written");
            medium.write(512, &[3; 512], Durability::Later).expect("written");
            let left = medium.cut(Survival::Any, &mut Rng::new(seed));
            assert_eq!(left[0], 1);
            assert!(left[512] == 2 || left[512] == 3);
            assert!(medium.read(0, &mut [0; 512]).is_err(), "the power is off");
        }
    }

    #[test]
    fn a_durable_write_replaces_the_loose_ones_before_it() {
        let medium = medium();
        medium.write(0, &[1; 512], Durability::Later).expect("written");
        medium.write(0, &[2; 512], Durability::Durable).expect("written");
        for seed in 0..20 {
            assert_eq!(medium.cut(Survival::Any, &mut Rng::new(seed))[0], 2);
        }
    }

    #[test]
    fn what_is_discarded_is_lost_and_what_is_refused_stays() {
        let medium = medium();
        medium.write(0, &[1; 1024], Durability::Durable).expect("written");
        medium.write(512, &[2; 512], Durability::Later).expect("written");
        medium.discard(512, 512).expect("discarded");
        let mut found = [0; 1024];
        medium.read(0, &mut found).expect("read");
        assert_eq!((found[0], found[512]), (1, DISCARDED));
        medium.refuse_one_in(1, Rng::new(1));
        assert!(medium.discard(0, 512).is_err() && medium.shrink(0).is_err());
        let left = medium.cut(Survival::Ended, &mut Rng::new(1));
        assert_eq!((left.len(), left[0], left[512]), (4096, 1, DISCARDED));
    }
}
