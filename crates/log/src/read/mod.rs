//! Reading: finding the log's end at recovery, delivering its records, following an open log.

mod ahead;
mod doubts;
mod epoch_walk;
mod epochs;
pub(crate) mod follow;
mod medium;
pub(crate) mod member;
mod merge;
pub(crate) mod reader;
pub(crate) mod records;
pub(crate) mod scan;
mod sections;
pub(crate) mod sources;
pub(crate) mod underreplicated;
