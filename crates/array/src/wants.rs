//! What a read of the array wants, a page or a copy of metadata, and the choice of fragments that
//! give it.

use crate::array::Array;
use crate::cells::Cell;
use crate::code::MEMBERS_MAX;
use crate::map::Layout;
use crate::members::Load;
use crate::service::Transfer;
use firndb_base::clock;
use firndb_base::sync::atomic::Ordering;
use firndb_device::DeviceError;

/// A page of a gather, or a part of the metadata.
#[derive(Debug)]
pub(crate) struct Want {
    /// Where it begins in the gather's buffer.
    pub at: usize,
    pub len: usize,
    pub what: What,
    /// Fragments that were asked for, a bit each.
    pub asked: u32,
    /// Of these, those that are under way.
    pub under_way: usize,
    /// Fragments that came, but for the last.
    pub got: Vec<(usize, Box<[u8]>)>,
    /// It is in the buffer, or cannot be read.
    pub is_over: bool,
}

/// What is wanted; the fragments of metadata are its copies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// The group's layout was this one when the read began.
    Place {
        group: u64,
        place: u64,
        layout: u8,
    },
    Copy {
        offset: u64,
    },
}

/// A row of a request, and what it is for.
#[derive(Debug)]
pub(crate) struct Part {
    pub gather: u64,
    pub want: usize,
    pub fragment: usize,
    pub len: usize,
    /// It is looked after, and if it is late another one is read.
    pub hides: bool,
    /// What was begun for it when it was late.
    pub instead: Option<usize>,
    pub _load: Load,
}

/// A row that is to be read.
pub(crate) struct Row {
    pub member: usize,
    pub offset: u64,
    pub part: Part,
}

impl Array {
    /// Fragments, or copies, that give what is wanted.
    pub(crate) fn needed(&self, what: What) -> usize {
        match what {
            What::Place { layout, .. } => self.map.layouts[usize::from(layout)].code.needed(),
            What::Copy { .. } => 1,
        }
    }

    /// Whether what is wanted may be had without some member, so that a late read is hidden.
    pub(crate) fn hides(&self, what: What) -> bool {
        let code = match what {
            What::Place { layout, .. } => self.map.layouts[usize::from(layout)].code,
            What::Copy { .. } => self.map.code,
        };
        self.hides_late_reads && code.spare() > 0
    }

    /// Fragments of what is wanted that were not asked for, of members that are read: number,
    /// member, and offset there.
    pub(crate) fn others(&self, want: &Want) -> impl Iterator<Item = (usize, usize, u64)> {
        let (what, asked, map) = (want.what, want.asked, &self.map);
        let count = match what {
            What::Place { layout, .. } => map.layouts[usize::from(layout)].code.written(),
            What::Copy { .. } => map.code.spare() + 1,
        };
        let cell = move |fragment: usize| match what {
            What::Place { group, place, layout } => {
                let layout = &map.layouts[usize::from(layout)];
                let cell = layout.cells.cell(place, fragment);
                (fragment, cell.member, map.row(layout, group, cell.row))
            }
            What::Copy { offset } => {
                let member = map.holders(offset).nth(fragment).expect("it has as many copies");
                (fragment, member, map.meta(offset))
            }
        };
        let all = (0..count).filter(move |fragment| asked & 1 << fragment == 0).map(cell);
        all.filter(|(_, member, _)| self.members[*member].is_read())
    }

    /// Chooses `count` more fragments of what is wanted, which is the want `at` of `gather`: of
    /// members that are not to be avoided, if they suffice, those with the fewest reads under way,
    /// data before parity.
    pub(crate) fn choose(
        &self,
        want: &mut Want,
        count: usize,
        (gather, at): (u64, usize),
        avoided: u32,
        rows: &mut Vec<Row>,
    ) -> Result<(), DeviceError> {
        let mut candidates = [(0, 0, 0, 0, 0); MEMBERS_MAX];
        let mut found = 0;
        for (fragment, member, offset) in self.others(want) {
            let load = self.members[member].reads_under_way();
            candidates[found] = (avoided >> member & 1, load, fragment, member, offset);
            found += 1;
        }
        if found < count {
            return Err(self.too_few());
        }
        candidates[..found].sort_unstable();
        let len = match want.what {
            What::Place { layout, .. } => self.map.layouts[usize::from(layout)].fragment as usize,
            What::Copy { .. } => want.len,
        };
        for (_, _, fragment, member, offset) in candidates[..count].iter().copied() {
            want.asked |= 1 << fragment;
            want.under_way += 1;
            let _load = self.members[member].begin_read();
            let hides = self.hides(want.what);
            let part = Part { gather, want: at, fragment, len, hides, instead: None, _load };
            rows.push(Row { member, offset, part });
        }
        Ok(())
    }

    /// Reads a page from the member with the fewest reads under way, without a buffer of its own;
    /// `false` if pages are not whole on a member, or another member may be asked if that one is
    /// late, or that read failed.
    pub(crate) fn read_whole(&self, group: u64, place: u64, page: &mut [u8]) -> bool {
        let Ok(layout) = self.layout_to_read(group) else { return false };
        if layout.code.needed() > 1 {
            return false;
        }
        let copies = (0..layout.code.written()).map(|copy| layout.cells.cell(place, copy));
        let copies = copies.filter(|cell| self.members[cell.member].is_read());
        if self.hides_late_reads && copies.clone().nth(1).is_some() {
            return false;
        }
        let load = |cell: &Cell| self.members[cell.member].reads_under_way();
        let Some(cell) = copies.min_by_key(load) else { return false };
        let member = &self.members[cell.member];
        let (_load, began) = (member.begin_read(), clock::now());
        let outcome = member.device().read(self.map.row(layout, group, cell.row), page);
        if outcome.is_ok() {
            member.service.ended(Transfer::Read, (began, clock::now()), (1, page.len()));
        }
        member.failed_reads.fetch_add(u64::from(outcome.is_err()), Ordering::Relaxed);
        outcome.is_ok()
    }

    /// Puts what is wanted where it belongs, now that its last fragment has come.
    pub(crate) fn put(&self, want: &Want, last: (usize, &[u8]), buf: &mut [u8]) {
        let to = &mut buf[want.at..want.at + want.len];
        match want.what {
            What::Place { layout, .. } => {
                self.decode(&self.map.layouts[usize::from(layout)], &want.got, last, to);
            }
            What::Copy { .. } => to.copy_from_slice(last.1),
        }
    }

    /// Makes the page of as many fragments as the code needs, of which `last` came last.
    fn decode(&self, layout: &Layout, got: &[(usize, Box<[u8]>)], last: (usize, &[u8]), page: &mut [u8]) {
        let mut present: [(usize, &[u8]); MEMBERS_MAX] = [last; MEMBERS_MAX];
        for (to, (fragment, bytes)) in present.iter_mut().zip(got) {
            *to = (*fragment, bytes);
        }
        let present = &mut present[..=got.len()];
        present.sort_unstable_by_key(|(fragment, _)| *fragment);
        self.coder(layout).decode(present, page);
    }
}
