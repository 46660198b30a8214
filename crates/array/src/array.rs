//! The array: one device above, its members below.

use crate::code::Code;
use crate::coder::Coder;
use crate::group_codes::GroupCodes;
use crate::lanes::{Job, Lanes, Work};
use crate::map::{Layout, Map};
use crate::members::{Keeper, Member, MemberState, MemberStatus, copy_budget, readable};
use crate::ranges::Ranges;
use crate::ranks;
use crate::reads::Reads;
use crate::service::{MeasuredCost, Transfer, measured};
use crate::shape::{Area, Shape};
use firndb_base::DatabaseId;
use firndb_base::clock::Moment;
use firndb_base::sync::atomic::{AtomicU64, Ordering};
use firndb_base::sync::{Arc, Mutex};
use firndb_device::{
    AlignedBuf, Device, DeviceError, DeviceErrorKind, DeviceInfo, Durability, Fill, InFlight, Io, IoOp,
    OwnedRead, ReadDone,
};
use std::collections::{BTreeSet, VecDeque};

/// Reads kept for threads that read a page and wait for it.
const IDLE_READS: usize = 16;

/// Says whether a unit of metadata is whole, and then which of several copies is newer: the higher
/// number. It is given the database, how the file above is cut, the unit's offset in it, and the
/// unit's bytes, of a slot perhaps only the first.
pub type Judge = fn(DatabaseId, &Shape, u64, &[u8]) -> Option<u64>;

/// Bytes that the file above has by its own account, read from it; `None` if it cannot tell.
pub type Length = fn(DatabaseId, &dyn Device) -> Option<u64>;

/// What all openings of an array have in common.
#[derive(Debug)]
pub struct ArrayOptions {
    /// The database that it belongs to.
    pub database: DatabaseId,
    /// Knows metadata.
    pub judge: Judge,
    /// Knows how long the file above should be.
    pub length: Length,
    /// Where states of members are durable.
    pub keeper: Arc<dyn Keeper>,
    /// Whether members are written side by side, by threads of the array.
    pub threads: bool,
    /// Whether what is late on a member is read from others.
    pub hides_late_reads: bool,
}

/// A store's device over several others: pages are coded over them, metadata is copied.
///
/// Transfers of pages are whole pages.
#[derive(Debug)]
pub struct Array {
    info: DeviceInfo,
    pub(crate) map: Map,
    /// Of each code that groups may have.
    coders: Vec<Coder>,
    pub(crate) group_codes: GroupCodes,
    pub(crate) members: Vec<Member>,
    pub(crate) database: DatabaseId,
    judge: Judge,
    pub(crate) keeper: Arc<dyn Keeper>,
    pub(crate) ranges: Ranges,
    pub(crate) lanes: Lanes,
    pub(crate) length: Mutex<()>,
    pub(crate) striking: Mutex<()>,
    /// Units of metadata that are alike on all members, a bit each.
    pub(crate) alike: Mutex<Vec<u64>>,
    /// Those that were used longest ago first, so that what they left behind is taken.
    idle_reads: Mutex<VecDeque<(Box<Reads>, InFlight)>>,
    /// What is late on a member is read from others, where the group's code has any.
    pub(crate) hides_late_reads: bool,
    /// Fragments and copies that were found wrong and could not be written anew.
    pub(crate) unmended: AtomicU64,
    /// Members and offsets of fragments that are wrong and are not written anew. A leaf.
    pub(crate) left_wrong: Mutex<BTreeSet<(usize, u64)>>,
}

impl Array {
    /// Makes an array of devices, whose contents are lost. It promises what `code` does, which its
    /// groups have at first, and reserves what `widest` takes too, which spares as many members.
    ///
    /// Errors: those of the devices.
    pub fn create(
        devices: Vec<Arc<dyn Device>>,
        code: Code,
        widest: Code,
        shape: Shape,
        options: ArrayOptions,
    ) -> Result<Array, DeviceError> {
        let block = devices.iter().map(|device| device.info().logical_block).max();
        let block = block.expect("an array has members") as u64;
        let map = Map::of_new(shape, code, widest, devices.len(), block);
        for (member, device) in devices.iter().enumerate() {
            map.label(options.database, member, 1).write(&**device)?;
        }
        let budget = copy_budget();
        let member = |device| Member::new(device, MemberState::Active, false, &budget);
        let members = devices.into_iter().map(member);
        Array::assemble(map, members.collect(), options)
    }

    /// Bytes that each of this many devices needs at least for [`Array::create`] and a file of one
    /// group above; `block` is the largest of their blocks.
    #[must_use]
    pub fn member_bytes_least(code: Code, widest: Code, shape: Shape, members: usize, block: u64) -> u64 {
        let map = Map::of_new(shape, code, widest, members, block);
        map.member_len(shape.group_start(1)).expect("one group is not 2^64 bytes")
    }

    pub(crate) fn assemble(
        map: Map,
        members: Vec<Member>,
        options: ArrayOptions,
    ) -> Result<Array, DeviceError> {
        let names: Vec<String> = members.iter().map(|member| member.device().info().name.clone()).collect();
        let devices = || members.iter().filter(|member| member.is_written()).map(Member::device);
        let info = DeviceInfo {
            name: format!("the array of {}", names.join(", ")),
            logical_block: map.block as usize,
            direct: devices().all(|device| device.info().direct),
        };
        let lanes = match options.threads && members.len() > 1 {
            true => Lanes::start(members.len()).map_err(|error| {
                DeviceError::new(DeviceErrorKind::Failed, format!("{}: no threads: {error}", info.name))
            })?,
            false => Lanes::none(),
        };
        Ok(Array {
            info,
            coders: map.codes.iter().map(|code| Coder::new(*code)).collect(),
            group_codes: GroupCodes::default(),
            hides_late_reads: options.hides_late_reads,
            unmended: AtomicU64::new(0),
            left_wrong: Mutex::default(),
            map,
            members,
            database: options.database,
            judge: options.judge,
            keeper: options.keeper,
            ranges: Ranges::new(),
            lanes,
            length: ranks::LENGTH.mutex(()),
            striking: ranks::STRIKING.mutex(()),
            alike: ranks::ALIKE.mutex(Vec::new()),
            idle_reads: ranks::IDLE_READS.mutex(VecDeque::new()),
        })
    }

    /// How pages of a new group are fragmented, and what all groups survive.
    #[must_use]
    pub fn code(&self) -> Code {
        self.map.code
    }

    /// What encodes and decodes pages of groups of a layout.
    pub(crate) fn coder(&self, layout: &Layout) -> &Coder {
        &self.coders[usize::from(layout.index)]
    }

    /// Its members, as they are now.
    #[must_use]
    pub fn status(&self) -> Vec<MemberStatus> {
        self.members.iter().map(Member::status).collect()
    }

    /// Fragments and copies, counted since opening, that were found wrong and could not be written
    /// anew: their member is full, or cannot be done without.
    #[must_use]
    pub fn unmended(&self) -> u64 {
        self.unmended.load(Ordering::Relaxed)
    }

    /// How many of [`Array::unmended`] were found since there were `before`, and a sentence about
    /// them; `None` if there were none.
    #[must_use]
    pub fn unmended_since(&self, before: u64) -> Option<(u64, String)> {
        let unmended = self.unmended() - before;
        let sentence = format!(
            "{unmended} fragments or copies are wrong and could not be written anew, on a device that is full or cannot \
             be done without: free space on it, or replace it, and scrub again"
        );
        (unmended > 0).then_some((unmended, sentence))
    }

    /// What a read of a member takes, and a write, as far as enough were measured: of all members
    /// together.
    #[must_use]
    pub fn measured_costs(&self) -> (Option<MeasuredCost>, Option<MeasuredCost>) {
        let members = || self.members.iter().filter(|member| member.is_read()).map(|member| &*member.service);
        (measured(members(), Transfer::Read), measured(members(), Transfer::Write))
    }

    /// What [`Judge`] says of a unit.
    pub(crate) fn number_of(&self, offset: u64, bytes: &[u8]) -> Option<u64> {
        (self.judge)(self.database, &self.map.shape, offset, bytes)
    }

    /// Members that may be lost now without losing a page.
    #[must_use]
    pub fn may_lose(&self) -> usize {
        let gone = self.map.members - readable(&self.members).count_ones() as usize;
        self.map.code.spare().saturating_sub(gone)
    }

    pub(crate) fn too_few(&self) -> DeviceError {
        let gone = self.members.iter().filter(|member| !member.is_read());
        let gone: Vec<String> = gone.map(|member| member.device().info().name.clone()).collect();
        let message = format!(
            "{}: too few members can be read, {} are needed{}",
            self.info.name,
            self.map.code.needed(),
            if gone.is_empty() { String::new() } else { format!("; lost: {}", gone.join(", ")) }
        );
        DeviceError::new(DeviceErrorKind::Failed, message)
    }

    pub(crate) fn check(&self, offset: u64, len: usize) -> Result<(), DeviceError> {
        let end = offset.checked_add(len as u64);
        if end.is_some_and(|end| end <= self.len()) {
            return Ok(());
        }
        Err(DeviceError::new(
            DeviceErrorKind::OutOfRange,
            format!(
                "{}: {len} bytes at offset {offset} lie beyond its end at {}",
                self.info.name,
                self.len()
            ),
        ))
    }

    /// The members that are written, each with its part of a call.
    pub(crate) fn jobs(&self, mut work: impl FnMut(usize) -> Option<Work>) -> Vec<Job> {
        let written = self.members.iter().enumerate().filter(|(_, member)| member.is_written());
        let job = |(member, it): (usize, &Member)| {
            let (device, service) = (it.device(), it.service.clone());
            Some(Job { member, device, service, work: work(member)? })
        };
        written.filter_map(job).collect()
    }

    /// Has every member that is written do something; fails with the first failure that remains.
    pub(crate) fn each(&self, work: impl FnMut(usize) -> Option<Work>) -> Result<(), DeviceError> {
        self.record_missing()?;
        let failures = self.lanes.run(self.jobs(work));
        self.settle(failures).into_iter().next().map_or(Ok(()), |failure| Err(failure.error))
    }

    /// Has every member that is written do what is mere advice: one that cannot has missed nothing,
    /// and is as good as before. Fails with the first failure.
    pub(crate) fn advise(&self, work: impl FnMut(usize) -> Option<Work>) -> Result<(), DeviceError> {
        let failures = self.lanes.run(self.jobs(work));
        failures.into_iter().next().map_or(Ok(()), |failure| Err(failure.error))
    }

    /// Begins reads by `begin`, and waits until each has its bytes. Requests to members that are
    /// late stay under way in the `Reads` that began them, and the next caller that uses those
    /// takes their bytes and drops them: dropping the `Reads` now would wait for the late members.
    pub(crate) fn read_all(
        &self,
        begin: impl FnOnce(&mut Reads, &mut InFlight),
        mut take: impl FnMut(ReadDone),
    ) {
        let idle = self.idle_reads.lock().pop_front();
        let (mut own, mut in_flight) = idle.unwrap_or_default();
        begin(&mut own, &mut in_flight);
        while let Some(done) = own.next(self, &mut in_flight, None) {
            take(done);
        }
        let mut idle = self.idle_reads.lock();
        if idle.len() < IDLE_READS || own.is_under_way() {
            idle.push_back((own, in_flight));
        }
    }

    /// Reads into a buffer, by what `begin` begins.
    pub(crate) fn read_one(
        &self,
        offset: u64,
        buf: &mut [u8],
        begin: impl FnOnce(&mut Reads, &mut InFlight, OwnedRead),
    ) -> Result<(), DeviceError> {
        let read = OwnedRead { offset, len: buf.len(), buf: AlignedBuf::zeroed(buf.len()), tag: 0 };
        let mut outcome = Ok(());
        self.read_all(
            |own, in_flight| begin(own, in_flight, read),
            |done| {
                buf.copy_from_slice(&done.read.buf[..done.read.len]);
                outcome = done.outcome;
            },
        );
        outcome
    }

    /// Takes what idle reads left behind and has come since, so that its devices can be closed.
    pub(crate) fn drop_reads_left_behind(&self) {
        let mut idle = std::mem::take(&mut *self.idle_reads.lock());
        idle.iter_mut().for_each(|(own, _)| own.drop_come(self));
        self.idle_reads.lock().append(&mut idle);
    }
}

impl Device for Array {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn len(&self) -> u64 {
        let written = self.members.iter().filter(|member| member.is_read());
        self.map.len_above(written.map(|member| member.device().len()).min().unwrap_or(0))
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.check(offset, buf.len())?;
        match &self.map.shape.areas(offset..offset + buf.len() as u64)[..] {
            [Area::Meta(_)] => return self.read_meta(offset, buf),
            [Area::Places { group, places }]
                if places.end - places.start == 1 && self.read_whole(*group, places.start, buf) =>
            {
                return Ok(());
            }
            _ => {}
        }
        self.read_one(offset, buf, |own, in_flight, read| {
            own.begin(self, in_flight, &mut std::iter::once(read))
        })
    }

    fn write(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), DeviceError> {
        let mut batch = [Io { offset, op: IoOp::Write(data, durability), outcome: Ok(()) }];
        self.write_all(&mut batch);
        let [io] = batch;
        io.outcome
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.each(|_| Some(Work::Sync))
    }

    fn submit(&self, batch: &mut [Io<'_>]) {
        self.write_all(batch);
        let reads = batch.iter().enumerate().filter_map(|(tag, io)| match &io.op {
            IoOp::Read(buf) => {
                let (len, tag) = (buf.len(), tag as u64);
                Some(OwnedRead { offset: io.offset, len, buf: AlignedBuf::zeroed(len), tag })
            }
            IoOp::Write(..) => None,
        });
        let reads: Vec<OwnedRead> = reads.collect();
        if reads.is_empty() {
            return;
        }
        self.read_all(
            |own, in_flight| own.begin(self, in_flight, &mut reads.into_iter()),
            |done| {
                let io = &mut batch[done.read.tag as usize];
                if let IoOp::Read(buf) = &mut io.op {
                    buf.copy_from_slice(&done.read.buf[..done.read.len]);
                }
                io.outcome = done.outcome;
            },
        );
    }

    fn begin_read(&self, in_flight: &mut InFlight, read: OwnedRead) {
        self.begin_reads(in_flight, &mut std::iter::once(read));
    }

    fn begin_reads(&self, in_flight: &mut InFlight, reads: &mut dyn Iterator<Item = OwnedRead>) {
        let mut own: Box<Reads> = in_flight.take_composed().unwrap_or_default();
        own.begin(self, in_flight, reads);
        in_flight.put_composed(own);
    }

    fn next_read(&self, in_flight: &mut InFlight, until: Option<Moment>) -> Option<ReadDone> {
        let mut own: Box<Reads> = in_flight.take_composed()?;
        let done = own.next(self, in_flight, until);
        in_flight.put_composed(own);
        done
    }

    fn hides_late_reads(&self) -> bool {
        self.hides_late_reads && self.may_lose() > 0
    }

    fn read_otherwise(&self, offset: u64, buf: &mut [u8], right: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.mend(offset, buf, right)
    }

    fn grow(&self, len: u64, fill: Fill) -> Result<(), DeviceError> {
        let Some(bytes) = self.map.member_len(len) else {
            let message = format!("{}: no device has {len} bytes", self.info.name);
            return Err(DeviceError::new(DeviceErrorKind::NoSpace, message));
        };
        let _length = self.length.lock();
        let longest = self.members.iter().filter(|member| member.is_written());
        let longest = longest.map(|member| member.device().len()).max().unwrap_or(0);
        let kept = self.map.shape.groups_of(self.map.len_above(longest));
        self.each(|_| Some(Work::Grow(bytes, fill)))?;
        self.begin_groups(self.map.shape.groups_of(len), kept, fill)
    }

    fn shrink(&self, len: u64) -> Result<(), DeviceError> {
        let Some(bytes) = self.map.member_len(len) else { return Ok(()) };
        // Nobody mends what is cut off.
        let _taken = self.ranges.take_one(len..u64::MAX);
        let _length = self.length.lock();
        self.end_groups(self.map.shape.groups_of(len));
        self.advise(|_| Some(Work::Shrink(bytes)))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let _taken = self.ranges.take_one(offset..offset + len);
        let mut ranges: Vec<Vec<(u64, u64)>> = vec![Vec::new(); self.members.len()];
        for area in self.map.shape.areas(offset..offset + len) {
            let (group, places) = match area {
                Area::Places { group, places } => (group, places),
                Area::Meta(range) => {
                    for member in self.map.holders(range.start) {
                        ranges[member].push((self.map.meta(range.start), range.end - range.start));
                    }
                    continue;
                }
            };
            let layout = self.layout_to_read(group)?;
            for (member, ranges) in ranges.iter_mut().enumerate() {
                let rows = layout.cells.rows_of(places.clone(), member);
                if !rows.is_empty() {
                    let bytes = (rows.end - rows.start) * layout.fragment;
                    ranges.push((self.map.row(layout, group, rows.start), bytes));
                }
            }
        }
        let mut own = |member: usize| Some(std::mem::take(&mut ranges[member])).filter(|own| !own.is_empty());
        self.advise(|member| own(member).map(Work::Discard))
    }
}

#[cfg(test)]
mod tests;
