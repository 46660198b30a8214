//! Groups near the front that were read to write back ahead, in DRAM until they are replaced: what
//! stays in the cache then would have to be read again.
//!
//! A durable group does not change until its place is written anew, and a serial is not used again:
//! so what is kept under a serial is what the device holds as long as the group is needed. Which of
//! its images are valid the directory says, when the group is replaced.

use super::geometry::{Geometry, Serial};
use super::policy::Chances;
use firndb_device::AlignedBuf;
use std::collections::BTreeMap;

/// Most groups kept: those that are written back ahead of the front.
const GROUPS_MAX: usize = 16;
/// Most bytes kept, beside the first group.
const BYTES_MAX: u64 = 5 << 20;
/// The same as a fraction of the cache, so that a small one takes little: four times what its
/// directory takes.
const SHARE: u64 = 64;

pub(crate) struct KeptGroups {
    groups: BTreeMap<Serial, AlignedBuf>,
    pub(super) groups_max: usize,
    /// Buffers to be used again.
    spare: Vec<AlignedBuf>,
    group_bytes: usize,
}

impl KeptGroups {
    /// None are kept where nothing stays in the cache: what was written back is not read again.
    pub(crate) fn new(geometry: &Geometry, chances: Chances) -> KeptGroups {
        let bytes = (geometry.groups * geometry.group_bytes as u64 / SHARE).min(BYTES_MAX);
        let groups_max = (bytes / geometry.group_bytes as u64).clamp(1, GROUPS_MAX as u64) as usize;
        KeptGroups {
            groups: BTreeMap::new(),
            groups_max: if chances == Chances::None { 0 } else { groups_max },
            spare: Vec::new(),
            group_bytes: geometry.group_bytes,
        }
    }

    pub(crate) fn has_space(&self) -> bool {
        self.groups.len() < self.groups_max
    }
    /// A buffer for a group.
    pub(crate) fn buffer(&mut self) -> AlignedBuf {
        self.spare.pop().unwrap_or_else(|| AlignedBuf::zeroed(self.group_bytes))
    }
    /// Takes back a buffer.
    pub(crate) fn give_back(&mut self, buf: AlignedBuf) {
        // One more than are kept: for a group that is read although there is no space to keep it.
        if self.groups.len() + self.spare.len() <= self.groups_max && buf.len() == self.group_bytes {
            self.spare.push(buf);
        }
    }

    /// The bytes of a kept group.
    pub(crate) fn get(&self, serial: Serial) -> Option<&AlignedBuf> {
        self.groups.get(&serial)
    }
    /// Keeps a group of which all valid images were read.
    pub(crate) fn keep(&mut self, serial: Serial, group: AlignedBuf) {
        if self.has_space() {
            self.groups.insert(serial, group);
        } else {
            self.give_back(group);
        }
    }
    /// The bytes of the front group, if they are kept. Older groups are not needed any more.
    pub(crate) fn take(&mut self, front: Serial) -> Option<AlignedBuf> {
        let later = self.groups.split_off(&front);
        for (_, passed) in std::mem::replace(&mut self.groups, later) {
            self.give_back(passed);
        }
        self.groups.remove(&front)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_a_bound_by_the_cache_and_one_for_all() {
        let groups_max = |bytes: u64, chances| {
            let geometry = Geometry::fit(4096, 512, 64, bytes).expect("it fits");
            KeptGroups::new(&geometry, chances).groups_max
        };
        assert_eq!(groups_max(8 << 20, Chances::Kept), 1);
        assert_eq!(groups_max(128 << 20, Chances::Kept), 7);
        assert_eq!(groups_max(4 << 30, Chances::Referenced), 16);
        assert_eq!(groups_max(4 << 30, Chances::None), 0);
    }

    #[test]
    fn buffers_to_be_used_again_are_within_the_bound() {
        let geometry = Geometry::fit(4096, 512, 64, 128 << 20).expect("it fits");
        let mut kept = KeptGroups::new(&geometry, Chances::Kept);
        let most = kept.groups_max + 1;
        let held = |kept: &KeptGroups| kept.groups.len() + kept.spare.len();
        for serial in 1..=10 {
            let (group, replaced) = (kept.buffer(), AlignedBuf::zeroed(geometry.group_bytes));
            kept.keep(Serial(serial), group);
            kept.give_back(replaced);
            assert!(held(&kept) <= most, "{} of {most}", held(&kept));
        }
        assert!(kept.take(Serial(20)).is_none());
        assert!(kept.groups.is_empty() && kept.spare.len() == most, "passed groups' buffers are spare");
    }

    #[test]
    fn groups_that_the_front_passed_are_dropped() {
        let geometry = Geometry::fit(4096, 512, 64, 1 << 30).expect("it fits");
        let mut kept = KeptGroups::new(&geometry, Chances::Kept);
        for serial in [7, 5, 6] {
            let mut group = kept.buffer();
            group[0] = serial as u8;
            kept.keep(Serial(serial), group);
        }
        assert_eq!(kept.take(Serial(6)).map(|group| group[0]), Some(6));
        assert!(kept.get(Serial(5)).is_none() && kept.take(Serial(6)).is_none());
        assert_eq!(kept.get(Serial(7)).map(|group| group[0]), Some(7));
    }
}
