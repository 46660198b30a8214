//! Writing: from an appended record to an acknowledged commit.

pub(crate) mod batching;
pub(crate) mod closing;
pub(crate) mod completion;
pub(crate) mod flight;
pub(crate) mod front;
pub(crate) mod job;
pub(crate) mod pipeline;
mod ring;
pub(crate) mod space;
pub(crate) mod stripes;
pub(crate) mod worker;
