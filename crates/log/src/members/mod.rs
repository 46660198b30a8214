//! The log's devices: joining, leaving, failing.

pub(crate) mod array;
mod failure;
pub(crate) mod loss;
pub(crate) mod new_member;
pub(crate) mod redundancy;
pub(crate) mod state;
