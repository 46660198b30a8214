//! How pages reach the drive in other papers, and in a model of Firn's delta layer, each over the
//! same recorded stream: which pages a buffer of some size read, and what it gave down, with the
//! parts of each page that had changed.
//!
//! Place in the stack: a part of the laboratory, beside the engine, none of whose crates uses it.
//! [`stream`] is what was recorded, [`event::Event`] one of its events. A [`Method`] decides what
//! is read and written for each event, and does so on a [`Medium`], which counts. [`replay()`]
//! brings the two together.
//!
//! Sources: [`InPlace`], [`Naive`], [`Incremental`] (ICL): Roh, Lee, Park, "Yet Another
//! Write-Optimized DBMS Layer for Flash-based Solid State Storage", CIKM 2010, sections 2 and 3;
//! [`AppendPack`]: Stoica, Athanassoulis, Johnson, Ailamaki, "Evaluating and Repairing Write
//! Performance on Flash Devices", DaMoN 2009; [`InPageLogging`] (IPL): Lee, Moon, "Design of
//! Flash-Based DBMS: An In-Page Logging Approach", SIGMOD 2007. They are the papers' rules, not
//! their code.
//!
//! Invariants: a method sees a stream once, forwards, and knows of no later event; equal streams
//! give equal counts. Pages have no bytes here: a method holds what it would have to hold to return
//! the newest version of a page, and tests ask it to.
//!
//! Failures: of reading the stream only ([`stream::StreamError`]).

#![forbid(unsafe_code)]

mod append_pack;
pub mod bound;
mod changed;
pub mod event;
mod firn;
mod in_page_logging;
mod in_place;
mod incremental;
mod log_area;
pub mod medium;
mod method;
mod naive;
mod replay;
pub mod stream;
mod write_buffer;

pub use append_pack::{AppendPack, ENTRY_BYTES as APPEND_PACK_ENTRY_BYTES};
pub use changed::granules;
pub use firn::policy::{Choice, LeavingPage, Policy, RentOrBuy};
pub use firn::space::{Finds, Placement, SegmentOptions};
pub use firn::{ENTRY_BYTES as FIRN_ENTRY_BYTES, Firn, FirnOptions};
pub use in_page_logging::InPageLogging;
pub use in_place::InPlace;
pub use incremental::Incremental;
pub use log_area::LOG_SHARE;
pub use medium::Medium;
pub use method::{Method, Start};
pub use naive::Naive;
pub use replay::{Part, Replayed, replay};
