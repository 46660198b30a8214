//! Reading: finding the log's end at recovery, delivering its records, following an open log.

mod ahead;
mod audit;
mod doubts;
mod epoch_walk;
mod epochs;
pub(crate) mod follow;
mod medium;
pub(crate) mod member;
mod merge;
mod read_ahead;
pub(crate) mod read_log;
pub(crate) mod reader;
mod reading;
pub(crate) mod records;
mod runs;
pub(crate) mod scan;
mod sections;
pub(crate) mod sources;
pub(crate) mod underreplicated;
mod window;
