//! Writes: what each member is to write for a batch, and doing it on all of them side by side.

use crate::array::Array;
use crate::code::MEMBERS_MAX;
use crate::lanes::{Work, Write};
use crate::map::Layout;
use crate::meta::each_unit;
use crate::shape::Area;
use firndb_device::{AlignedBuf, DeviceError, Durability, Io, IoOp};
use std::ops::Range;

impl Array {
    /// Does the writes of a batch, on all members side by side.
    pub(crate) fn write_all(&self, batch: &mut [Io<'_>]) {
        let own = |io: &Io<'_>| match &io.op {
            IoOp::Write(data, _) => Some(io.offset..io.offset + data.len() as u64),
            IoOp::Read(_) => None,
        };
        let mut ranges = Vec::with_capacity(batch.len());
        for io in batch.iter_mut() {
            let Some(range) = own(io) else { continue };
            io.outcome = self.check(io.offset, (range.end - range.start) as usize);
            if io.outcome.is_ok() {
                ranges.push(range);
            }
        }
        let fail = |batch: &mut [Io<'_>], error: &DeviceError| {
            let writes = batch.iter_mut().filter(|io| own(io).is_some() && io.outcome.is_ok());
            writes.for_each(|io| io.outcome = Err(error.clone()));
        };
        if ranges.is_empty() {
            return;
        }
        if let Err(error) = self.record_missing() {
            return fail(batch, &error);
        }
        let _taken = self.ranges.take(ranges);
        let mut writes: Vec<Vec<Write>> = Vec::new();
        writes.resize_with(self.members.len(), Vec::new);
        for (io, transfer) in batch.iter_mut().enumerate().filter(|(_, io)| io.outcome.is_ok()) {
            if let IoOp::Write(data, durability) = &transfer.op {
                transfer.outcome = self.plan(io, transfer.offset, data, *durability, &mut writes);
            }
        }
        let mut work =
            |member: usize| Some(std::mem::take(&mut writes[member])).filter(|own| !own.is_empty());
        let failures = self.lanes.run(self.jobs(|member| work(member).map(Work::Write)));
        for failure in self.settle(failures) {
            let io = &mut batch[failure.io];
            // Some copies of metadata may have it.
            let areas = own(io).map(|range| self.map.shape.areas(range)).unwrap_or_default();
            for area in areas {
                if let Area::Meta(range) = area {
                    each_unit(&self.map, range, |unit| self.set_doubted(&unit));
                }
            }
            io.outcome = Err(failure.error);
        }
    }

    /// What each member is to write for a transfer, of which the caller has the range.
    ///
    /// Errors: the code of a group is not known; then nothing is to be written.
    fn plan(
        &self,
        io: usize,
        offset: u64,
        data: &[u8],
        durability: Durability,
        writes: &mut [Vec<Write>],
    ) -> Result<(), DeviceError> {
        let areas = self.map.shape.areas(offset..offset + data.len() as u64);
        let layout = |area: &Area| match area {
            Area::Meta(_) => Ok(None),
            Area::Places { group, .. } => self.layout_to_write(*group).map(Some),
        };
        let layouts = areas.iter().map(layout).collect::<Result<Vec<_>, DeviceError>>()?;
        for (area, layout) in areas.into_iter().zip(layouts) {
            match area {
                Area::Meta(range) => {
                    let bytes = &data[(range.start - offset) as usize..(range.end - offset) as usize];
                    self.set_alike(range.clone());
                    for member in self.map.holders(range.start) {
                        let data = copied(bytes);
                        writes[member].push(Write {
                            offset: self.map.meta(range.start),
                            data,
                            durability,
                            io,
                        });
                    }
                }
                Area::Places { group, places } => {
                    let at = (self.map.shape.place_offset(group, places.start) - offset) as usize;
                    let bytes = places.end - places.start;
                    let pages = &data[at..at + (bytes * self.map.shape.page_bytes) as usize];
                    let layout = layout.expect("it was found for places");
                    for (member, (row, data)) in self.encode(layout, places, pages).into_iter().enumerate() {
                        if let Some(data) = data {
                            let offset = self.map.row(layout, group, row);
                            writes[member].push(Write { offset, data, durability, io });
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The rows of each member that hold these pages: the first row, and their bytes.
    pub(crate) fn encode(
        &self,
        layout: &Layout,
        places: Range<u64>,
        pages: &[u8],
    ) -> Vec<(u64, Option<AlignedBuf>)> {
        let (cells, fragment) = (layout.cells, layout.fragment as usize);
        let mut rows: Vec<(u64, Option<AlignedBuf>)> = (0..self.members.len())
            .map(|member| {
                let rows = cells.rows_of(places.clone(), member);
                let bytes = (rows.end - rows.start) as usize * fragment;
                (rows.start, (bytes > 0).then(|| AlignedBuf::zeroed(bytes)))
            })
            .collect();
        for (place, page) in places.zip(pages.chunks(self.map.shape.page_bytes as usize)) {
            let mut at = [None; MEMBERS_MAX];
            for number in 0..layout.code.written() {
                let cell = cells.cell(place, number);
                at[cell.member] = Some((number, cell.row));
            }
            let mut fragments: [&mut [u8]; MEMBERS_MAX] = Default::default();
            for ((first, rows), at) in rows.iter_mut().zip(at) {
                let (Some(rows), Some((number, row))) = (rows, at) else { continue };
                let start = (row - *first) as usize * fragment;
                fragments[number] = &mut rows[start..start + fragment];
            }
            self.coder(layout).encode(page, &mut fragments[..layout.code.written()]);
        }
        rows
    }
}

pub(crate) fn copied(bytes: &[u8]) -> AlignedBuf {
    let mut data = AlignedBuf::zeroed(bytes.len());
    data.copy_from_slice(bytes);
    data
}
