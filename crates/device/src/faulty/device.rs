//! The device that fails as planned.

use super::plan::{Calls, Fault, FaultPlan, Verdict};
use crate::aligned::AlignedBuf;
use crate::device::{Device, DeviceInfo, Durability, Fill, Io, IoOp};
use crate::error::{DeviceError, DeviceErrorKind};
use crate::in_flight::{InFlight, OwnedRead, ReadDone};
use firndb_base::clock::{self, Moment};
use firndb_base::rng::Rng;
use firndb_base::sync::{Arc, Mutex};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Passes calls on to another device, except for those that its [`FaultPlan`] makes fail.
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn Device>,
    plan: FaultPlan,
    /// By block number, what was there before its last write, while a rule of the plan wants it. A
    /// leaf.
    history: Mutex<BTreeMap<u64, Vec<u8>>>,
    /// A leaf.
    unreadable: Mutex<Unreadable>,
}

/// Numbers of blocks that cannot be read.
#[derive(Debug, Default)]
struct Unreadable {
    /// Until they are written: the medium puts another sector in their place.
    spoilt: BTreeSet<u64>,
    /// Blocks that can be neither read nor written any more.
    worn: BTreeSet<u64>,
}

impl Unreadable {
    fn is_empty(&self) -> bool {
        self.spoilt.is_empty() && self.worn.is_empty()
    }

    fn first_of(&self, blocks: Range<u64>) -> Option<u64> {
        self.spoilt.range(blocks.clone()).chain(self.worn.range(blocks)).min().copied()
    }
}

impl Faulty {
    /// Lets calls to `inner` go wrong as `plan` says.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>, plan: &FaultPlan) -> Faulty {
        Faulty { inner, plan: plan.clone(), history: Mutex::default(), unreadable: Mutex::default() }
    }

    /// Damages the medium itself: flips `bits` random bits, drawn from `seed`, of the range, for
    /// good. Not counted as a call.
    pub fn rot(&self, offset: u64, len: usize, bits: u32, seed: u64) -> Result<(), DeviceError> {
        let mut bytes = AlignedBuf::zeroed(len);
        self.inner.read(offset, &mut bytes)?;
        flip(&mut bytes, bits, &mut Rng::new(seed));
        self.inner.write(offset, &bytes, Durability::Durable)
    }

    /// Damages the medium itself: the blocks of the range cannot be read any more, until they are
    /// written again. Not counted as a call.
    pub fn make_unreadable(&self, offset: u64, len: u64) {
        self.unreadable.lock().spoilt.extend(self.blocks(offset, len));
    }

    /// The same for good: a write of such a block fails, too, and writes nothing. Not counted as a
    /// call.
    pub fn wear_out(&self, offset: u64, len: u64) {
        self.unreadable.lock().worn.extend(self.blocks(offset, len));
    }

    /// How many blocks cannot be read.
    #[must_use]
    pub fn unreadable_blocks(&self) -> usize {
        let unreadable = self.unreadable.lock();
        unreadable.spoilt.union(&unreadable.worn).count()
    }

    fn blocks(&self, offset: u64, len: u64) -> Range<u64> {
        let block = self.block() as u64;
        offset / block..(offset + len).div_ceil(block)
    }

    /// Reads, unless a block of it cannot be read.
    fn read_through(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        if let Some(bad) = self.unreadable.lock().first_of(self.blocks(offset, buf.len() as u64)) {
            return Err(self.bad_block(bad, "read"));
        }
        self.inner.read(offset, buf)
    }

    fn bad_block(&self, block: u64, done: &str) -> DeviceError {
        let (name, at) = (&self.inner.info().name, block * self.block() as u64);
        DeviceError::new(DeviceErrorKind::Failed, format!("{name}: byte {at} cannot be {done}"))
    }

    fn decide(&self, kind: Calls) -> Option<Verdict> {
        self.plan.decide(&self.inner.info().name, kind)
    }

    fn block(&self) -> usize {
        self.inner.info().logical_block
    }

    fn error(&self, kind: DeviceErrorKind, operation: &str, call: u64) -> DeviceError {
        let name = &self.inner.info().name;
        DeviceError::new(
            kind,
            format!("{name}: {operation} failed on purpose, at call {call} of the fault plan"),
        )
    }

    /// The place `by` bytes on, in whole blocks, for a transfer of `len` bytes.
    fn misdirect(&self, offset: u64, len: usize, by: i64) -> u64 {
        let block = self.block() as u64;
        let Some(places) = self.inner.len().checked_sub(len as u64).map(|room| room / block + 1) else {
            return offset;
        };
        let moved = i128::from(offset / block) + i128::from(by / block as i64);
        moved.rem_euclid(i128::from(places)) as u64 * block
    }

    fn read_with(&self, verdict: Option<Verdict>, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let Some(Verdict { fault, mut rng, call }) = verdict else { return self.read_through(offset, buf) };
        match fault {
            Fault::Fail(kind) | Fault::FailLate(kind) => Err(self.error(kind, "reading", call)),
            Fault::Stall(time) => {
                firndb_base::clock::sleep(time);
                self.read_through(offset, buf)
            }
            Fault::Misdirected { by } => self.read_through(self.misdirect(offset, buf.len(), by), buf),
            Fault::BitRot { bits } => {
                self.read_through(offset, buf)?;
                flip(buf, bits, &mut rng);
                Ok(())
            }
            Fault::Stale => {
                self.read_through(offset, buf)?;
                let (block, history) = (self.block(), self.history.lock());
                for (number, part) in (offset / block as u64..).zip(buf.chunks_mut(block)) {
                    if let Some(old) = history.get(&number) {
                        part.copy_from_slice(old);
                    }
                }
                Ok(())
            }
            Fault::Torn { .. } | Fault::Lost => unreachable!("the plan fits faults to calls"),
        }
    }

    fn write_with(
        &self,
        verdict: Option<Verdict>,
        offset: u64,
        data: &[u8],
        durability: Durability,
    ) -> Result<(), DeviceError> {
        let Some(Verdict { fault, mut rng, call }) = verdict else {
            return self.write_through(offset, data, durability);
        };
        match fault {
            Fault::Fail(kind) => Err(self.error(kind, "writing", call)),
            Fault::FailLate(kind) => {
                self.write_through(offset, data, durability)?;
                Err(self.error(kind, "writing", call))
            }
            Fault::Stall(time) => {
                firndb_base::clock::sleep(time);
                self.write_through(offset, data, durability)
            }
            Fault::Lost => Ok(()),
            Fault::Torn { blocks, error } => {
                let whole = (data.len() / self.block()).saturating_sub(1) as u64;
                let written = blocks.min(whole) as usize * self.block();
                if written > 0 {
                    self.write_through(offset, &data[..written], durability)?;
                }
                error.map_or(Ok(()), |kind| Err(self.error(kind, "writing", call)))
            }
            Fault::Misdirected { by } => {
                self.write_through(self.misdirect(offset, data.len(), by), data, durability)
            }
            Fault::BitRot { bits } => {
                let mut rotten = AlignedBuf::zeroed(data.len().max(1));
                let rotten = &mut rotten[..data.len()];
                rotten.copy_from_slice(data);
                flip(rotten, bits, &mut rng);
                self.write_through(offset, rotten, durability)
            }
            Fault::Stale => unreachable!("the plan fits faults to calls"),
        }
    }

    /// Writes, after keeping what was there if a rule wants it.
    fn write_through(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        if self.plan.wants_history() && !data.is_empty() {
            let mut old = AlignedBuf::zeroed(data.len());
            self.inner.read(offset, &mut old)?;
            let (block, mut history) = (self.block(), self.history.lock());
            for (number, part) in (offset / block as u64..).zip(old.chunks(block)) {
                history.insert(number, part.to_vec());
            }
        }
        let written = self.blocks(offset, data.len() as u64);
        if let Some(&worn) = self.unreadable.lock().worn.range(written.clone()).next() {
            return Err(self.bad_block(worn, "written"));
        }
        self.inner.write(offset, data, durability)?;
        self.unreadable.lock().spoilt.retain(|block| !written.contains(block));
        Ok(())
    }

    /// For calls that carry no data: does them, unless they fail or are lost.
    fn other(
        &self,
        kind: Calls,
        operation: &str,
        call: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let Some(verdict) = self.decide(kind) else { return call() };
        match verdict.fault {
            Fault::Fail(kind) => Err(self.error(kind, operation, verdict.call)),
            Fault::FailLate(kind) => {
                call()?;
                Err(self.error(kind, operation, verdict.call))
            }
            Fault::Lost => Ok(()),
            Fault::Stall(time) => {
                firndb_base::clock::sleep(time);
                call()
            }
            Fault::Torn { .. } | Fault::Misdirected { .. } | Fault::BitRot { .. } | Fault::Stale => {
                unreachable!("the plan fits faults to calls")
            }
        }
    }
}

/// Flips `bits` bits at random places.
fn flip(bytes: &mut [u8], bits: u32, rng: &mut Rng) {
    for _ in 0..bits {
        if bytes.is_empty() {
            return;
        }
        let bit = rng.below(bytes.len() as u64 * 8);
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

impl Device for Faulty {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.read_with(self.decide(Calls::Reads), offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        self.write_with(self.decide(Calls::Writes), offset, data, durability)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.other(Calls::Syncs, "syncing", || self.inner.sync())
    }

    /// A batch in which nothing goes wrong stays a batch.
    fn submit(&self, batch: &mut [Io<'_>]) {
        let kind = |io: &Io<'_>| if matches!(io.op, IoOp::Read(_)) { Calls::Reads } else { Calls::Writes };
        let verdicts: Vec<Option<Verdict>> = batch.iter().map(|io| self.decide(kind(io))).collect();
        let healthy = self.unreadable.lock().is_empty();
        if verdicts.iter().all(Option::is_none) && !self.plan.wants_history() && healthy {
            return self.inner.submit(batch);
        }
        for (io, verdict) in batch.iter_mut().zip(verdicts) {
            io.outcome = match &mut io.op {
                IoOp::Read(buf) => self.read_with(verdict, io.offset, buf),
                IoOp::Write(data, durability) => self.write_with(verdict, io.offset, data, *durability),
            };
        }
    }

    /// A read that stalls holds up no other.
    fn begin_read(&self, in_flight: &mut InFlight, mut read: OwnedRead) {
        let verdict = self.decide(Calls::Reads);
        if verdict.is_none() && self.unreadable.lock().is_empty() {
            return self.inner.begin_read(in_flight, read);
        }
        let buf = &mut read.buf[..read.len];
        if let Some(Verdict { fault: Fault::Stall(time), .. }) = verdict {
            let outcome = self.read_through(read.offset, buf);
            let now = clock::now();
            return in_flight.complete_at(now.after(time).unwrap_or(now), read, outcome);
        }
        let outcome = self.read_with(verdict, read.offset, buf);
        in_flight.complete(read, outcome);
    }

    fn next_read(&self, in_flight: &mut InFlight, until: Option<Moment>) -> Option<ReadDone> {
        self.inner.next_read(in_flight, until)
    }

    fn grow(&self, len: u64, fill: Fill) -> Result<(), DeviceError> {
        self.other(Calls::Grows, "growing", || self.inner.grow(len, fill))
    }

    fn shrink(&self, len: u64) -> Result<(), DeviceError> {
        self.other(Calls::Discards, "shrinking", || self.inner.shrink(len))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.other(Calls::Discards, "discarding", || self.inner.discard(offset, len))
    }
}
