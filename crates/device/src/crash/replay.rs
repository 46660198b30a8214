//! Walking through a record, and the images at its events.
//!
//! Invariants: `durable` holds every sector's newest durable version; `pending` holds, for each
//! sector, the versions that began after it, oldest first, and no empty list; a write is kept in
//! `writes` exactly as long as a pending sector names it. `check` asserts them.

use super::plan::Base;
use super::survival::Verdict;
use super::{Content, Event, SECTOR_BYTES, Survival, WriteId};
use crate::bytes::SharedBytes;
use crate::device::Durability;
use crate::memory::MemoryDevice;
use firndb_base::rng::Rng;
use firndb_base::sync::Arc;
use std::collections::BTreeMap;

/// Walks through what a [`CrashPlan`](super::CrashPlan) recorded. An image costs what is not
/// durable at that moment, not the devices' size.
#[derive(Debug)]
pub struct CrashReplay {
    events: Vec<Event>,
    /// Events that have happened.
    position: usize,
    marks: Vec<u64>,
    devices: Vec<ReplayDevice>,
}

#[derive(Debug)]
struct ReplayDevice {
    base: Base,
    durable: SharedBytes,
    /// By sector, the versions that may survive instead of the durable one.
    pending: BTreeMap<u64, Vec<WriteId>>,
    writes: BTreeMap<WriteId, PendingWrite>,
    /// By number of the sync, the event at which it began.
    syncs: BTreeMap<u64, usize>,
    /// A length that is being reached.
    resizing_to: Option<u64>,
}

#[derive(Debug)]
struct PendingWrite {
    first_sector: u64,
    content: Content,
    durability: Durability,
    /// Event at which it returned.
    ended_at: Option<usize>,
    /// Sectors that still name it.
    sectors: u64,
}

impl CrashReplay {
    pub(super) fn new(events: Vec<Event>, bases: Vec<Base>) -> CrashReplay {
        let devices = bases.into_iter().map(ReplayDevice::new).collect();
        CrashReplay { events, position: 0, marks: Vec::new(), devices }
    }

    /// Events that have happened: images are of a crash right after the last of them.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Events of the record.
    #[must_use]
    pub fn event_count(&self) -> usize {
        self.events.len()
    }

    /// Lets the next event happen; `None` at the end of the record.
    pub fn step(&mut self) -> Option<&Event> {
        let at = self.position;
        let event = self.events.get(at)?;
        self.position += 1;
        match event {
            Event::WriteBegins { device, write, offset, content, durability } => {
                self.devices[*device].write_begins(*write, *offset, content, *durability);
            }
            Event::WriteEnds { device, write } => self.devices[*device].write_ends(*write, at),
            Event::SyncBegins { device, sync } => {
                self.devices[*device].syncs.insert(*sync, at);
            }
            Event::SyncEnds { device, sync } => self.devices[*device].sync_ends(*sync),
            Event::ResizeBegins { device, len } => self.devices[*device].resizing_to = Some(*len),
            Event::ResizeEnds { device, len } => self.devices[*device].resize_ends(*len),
            Event::Mark(value) => self.marks.push(*value),
        }
        Some(event)
    }

    /// Lets all happen that comes before event `index`, which must not lie behind.
    pub fn advance_to(&mut self, index: usize) {
        assert!(
            self.position <= index && index <= self.events.len(),
            "a replay goes forwards, to the record's end"
        );
        while self.position < index {
            self.step();
        }
    }

    /// What was marked so far, in order.
    #[must_use]
    pub fn marks(&self) -> &[u64] {
        &self.marks
    }

    /// Writes of which at least one sector is not durable: if zero and no length is changing, all
    /// images at this moment are equal.
    #[must_use]
    pub fn pending_writes(&self) -> usize {
        self.devices.iter().map(|device| device.writes.len()).sum()
    }

    /// The devices as a crash at this moment may leave them, in the plan's order. Equal states of
    /// `rng` give equal images.
    #[must_use]
    pub fn image(&self, survival: Survival, rng: &mut Rng) -> Vec<Arc<MemoryDevice>> {
        let mut pending: Vec<(WriteId, u64)> = self
            .devices
            .iter()
            .flat_map(|device| &device.writes)
            .map(|(&id, write)| (id, (write.content.len() / SECTOR_BYTES) as u64))
            .collect();
        pending.sort_unstable();
        let verdict = Verdict::draw(survival, &pending, rng);
        self.devices
            .iter()
            .map(|device| {
                let resized = match survival {
                    Survival::Nothing => false,
                    Survival::Everything => true,
                    _ => rng.one_in(2),
                };
                Arc::new(device.image(&verdict, resized, rng))
            })
            .collect()
    }

    /// Asserts the invariants at the head of this file.
    pub fn check(&self) {
        for device in &self.devices {
            device.check();
        }
    }
}

impl ReplayDevice {
    fn new(base: Base) -> ReplayDevice {
        ReplayDevice {
            durable: base.bytes.clone(),
            base,
            pending: BTreeMap::new(),
            writes: BTreeMap::new(),
            syncs: BTreeMap::new(),
            resizing_to: None,
        }
    }

    fn write_begins(&mut self, id: WriteId, offset: u64, content: &Content, durability: Durability) {
        let first_sector = offset / SECTOR_BYTES as u64;
        let sectors = (content.len() / SECTOR_BYTES) as u64;
        assert!(sectors > 0 && offset + content.len() as u64 <= self.durable.len());
        for sector in first_sector..first_sector + sectors {
            let versions = self.pending.entry(sector).or_default();
            assert!(versions.last().is_none_or(|&last| last < id), "writes are recorded in their order");
            versions.push(id);
        }
        let write =
            PendingWrite { first_sector, content: content.clone(), durability, ended_at: None, sectors };
        self.writes.insert(id, write);
    }

    fn write_ends(&mut self, id: WriteId, at: usize) {
        // All of it may have been overwritten durably, or cut off, or settled, meanwhile.
        let Some(write) = self.writes.get_mut(&id) else { return };
        write.ended_at = Some(at);
        if write.durability == Durability::Later {
            return;
        }
        let sectors = write.first_sector..write.first_sector + (write.content.len() / SECTOR_BYTES) as u64;
        let named: Vec<u64> = self
            .pending
            .range(sectors)
            .filter(|(_, versions)| versions.contains(&id))
            .map(|(&sector, _)| sector)
            .collect();
        for sector in named {
            self.make_durable(sector, id);
        }
        assert!(!self.writes.contains_key(&id));
    }

    fn sync_ends(&mut self, sync: u64) {
        let Some(began_at) = self.syncs.remove(&sync) else { return };
        let covered = |id: &WriteId| self.writes[id].ended_at.is_some_and(|ended_at| ended_at < began_at);
        let durable: Vec<(u64, WriteId)> = self
            .pending
            .iter()
            .filter_map(|(&sector, versions)| Some((sector, *versions.iter().rev().find(|id| covered(id))?)))
            .collect();
        for (sector, id) in durable {
            self.make_durable(sector, id);
        }
    }

    fn resize_ends(&mut self, len: u64) {
        self.resizing_to = None;
        for (_, versions) in self.pending.split_off(&len.div_ceil(SECTOR_BYTES as u64)) {
            versions.into_iter().for_each(|id| self.release(id));
        }
        self.durable.resize(len);
    }

    /// Version `id` of the sector is durable: it and older ones are no longer pending.
    fn make_durable(&mut self, sector: u64, id: WriteId) {
        put_sector(&mut self.durable, sector, &self.writes[&id]);
        let versions = self.pending.get_mut(&sector).expect("the version was pending");
        let newer = versions.split_off(versions.partition_point(|&version| version <= id));
        let settled = std::mem::replace(versions, newer);
        if versions.is_empty() {
            self.pending.remove(&sector);
        }
        assert_eq!(settled.last(), Some(&id));
        settled.into_iter().for_each(|id| self.release(id));
    }

    /// One sector less names the write.
    fn release(&mut self, id: WriteId) {
        let write = self.writes.get_mut(&id).expect("a pending sector names a kept write");
        write.sectors -= 1;
        if write.sectors == 0 {
            self.writes.remove(&id);
        }
    }

    fn image(&self, verdict: &Verdict, resized: bool, rng: &mut Rng) -> MemoryDevice {
        let mut bytes = self.durable.clone();
        if let Some(len) = self.resizing_to.filter(|_| resized) {
            bytes.resize(len);
        }
        let mut versions = Vec::new();
        for (&sector, ids) in self.pending.range(..bytes.len() / SECTOR_BYTES as u64) {
            versions.clear();
            versions.extend(ids.iter().map(|&id| (id, sector - self.writes[&id].first_sector)));
            if let Some(id) = verdict.version(&versions, rng) {
                put_sector(&mut bytes, sector, &self.writes[&id]);
            }
        }
        MemoryDevice::holding(self.base.info.clone(), self.base.limit, bytes)
    }

    fn check(&self) {
        let mut named = BTreeMap::new();
        for (&sector, versions) in &self.pending {
            assert!(!versions.is_empty() && versions.is_sorted());
            assert!((sector + 1) * SECTOR_BYTES as u64 <= self.durable.len());
            versions.iter().for_each(|id| *named.entry(*id).or_insert(0) += 1);
        }
        let kept: BTreeMap<WriteId, u64> =
            self.writes.iter().map(|(&id, write)| (id, write.sectors)).collect();
        assert_eq!(named, kept);
    }
}

fn put_sector(bytes: &mut SharedBytes, sector: u64, write: &PendingWrite) {
    let offset = sector * SECTOR_BYTES as u64;
    let start = (sector - write.first_sector) as usize * SECTOR_BYTES;
    match write.content.bytes() {
        Some(content) => bytes.write(offset, &content[start..start + SECTOR_BYTES]),
        None => bytes.zero(offset, SECTOR_BYTES as u64),
    }
}
