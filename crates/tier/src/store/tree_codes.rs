//! Which trees have which codes of groups, and where the codes are kept (`group_codes.rs` has how
//! groups come to theirs).

use firndb_array::Array;
use firndb_device::DeviceError;
use std::collections::{BTreeMap, BTreeSet};

/// The code of new groups, and of pages of trees that have no other.
pub(crate) const BASE: u8 = 0;

/// Where the number of its tree lies in a page: four bytes. A page of a page file has anything
/// there, and may go anywhere.
const TREE_AT: usize = 20;

/// The tree that a page names.
pub(crate) fn tree_of(image: &[u8]) -> u32 {
    u32::from_le_bytes(image[TREE_AT..TREE_AT + 4].try_into().expect("four bytes"))
}

/// The codes of the groups of an array, which the array keeps.
pub trait GroupCodes: std::fmt::Debug + Send + Sync {
    /// How many there are; they are numbered from 0, that of new groups.
    fn count(&self) -> usize;
    /// The code of a group.
    fn of_group(&self, group: u64) -> Result<u8, DeviceError>;
    /// Gives a group another code, none of whose places is in use; durable on return. What was in
    /// its places is lost. Errors: it has either code.
    fn set(&self, group: u64, code: u8) -> Result<(), DeviceError>;
}

impl GroupCodes for Array {
    fn count(&self) -> usize {
        self.codes().len()
    }
    fn of_group(&self, group: u64) -> Result<u8, DeviceError> {
        self.code_of_group(group)
    }
    fn set(&self, group: u64, code: u8) -> Result<(), DeviceError> {
        self.set_code_of_group(group, code)
    }
}

/// Which trees have another code than the base one.
#[derive(Debug, Default)]
pub(crate) struct TreeCodes {
    codes: BTreeMap<u32, u8>,
    /// Of each code: pages written before which no group is looked for anew, since there was none.
    rests_until: Vec<u64>,
}

impl TreeCodes {
    pub(crate) fn new(codes: impl Iterator<Item = (u32, u8)>) -> TreeCodes {
        TreeCodes { codes: codes.filter(|(_, code)| *code != BASE).collect(), rests_until: Vec::new() }
    }

    /// Whether no tree has another code.
    pub(crate) fn is_empty(&self) -> bool {
        self.codes.is_empty()
    }

    /// The code that a page's place should have.
    pub(crate) fn wanted(&self, image: &[u8]) -> u8 {
        if self.codes.is_empty() {
            return BASE;
        }
        self.of_tree(tree_of(image))
    }

    /// The code that pages of a tree should have.
    pub(crate) fn of_tree(&self, tree: u32) -> u8 {
        self.codes.get(&tree).copied().unwrap_or(BASE)
    }

    /// Groups that are kept beyond those that hold what is needed: each code but one leaves a group
    /// unfilled.
    pub(crate) fn groups_kept(&self) -> u64 {
        let codes: BTreeSet<u8> = self.codes.values().copied().collect();
        codes.len() as u64
    }

    pub(crate) fn may_look(&self, code: u8, written: u64) -> bool {
        self.rests_until.get(usize::from(code)).is_none_or(|until| written >= *until)
    }

    pub(crate) fn rest(&mut self, code: u8, until: u64) {
        let index = usize::from(code);
        self.rests_until.resize(self.rests_until.len().max(index + 1), 0);
        self.rests_until[index] = until;
    }
}
