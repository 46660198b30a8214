//! The coded array: a page becomes w fragments on w devices, and any m of them give it back.
//!
//! Place in the stack: above `device`, below `tier`. [`Array`] is the store's device over several:
//! pages are coded, metadata is copied. [`Code`] names m and w, [`Coder`] encodes and decodes,
//! [`Cells`] says where the fragments of a place lie, [`Shape`] what is a place and what metadata.
//! [`choose()`] computes which code suits a load, and [`Chooser`] which table should have another.
//!
//! Source: Myers, "On the use of NAND flash memory in high-performance relational databases", MIT
//! 2008, chapter 8, after Rabin's information dispersal.
//!
//! Invariants:
//! * The first m fragments are the page's own bytes in order, filled up with zeros.
//! * A parity fragment depends on the page, on m and on its own number, and not on w: a code with
//!   more fragments has those of one with fewer.
//! * The first parity fragment is the XOR of the data fragments; with m = 1 every fragment is a
//!   copy.
//! * Any m fragments determine the page, for every m ≤ w ≤ 16.
//! * What a write returned for is on every member that is not struck; a member is struck durably
//!   ([`Keeper`]) before a write that it lacks returns.
//! * Copies of metadata are alike before anybody relies on one.
//!
//! How it fails: as a device, once more members fail than may be lost. A wrong fragment gives a
//! wrong page: callers compare a checksum, and call `read_otherwise`. Lengths and numbers that do
//! not fit together are a caller's mistake and panic.
#![forbid(unsafe_code)]

mod array;
mod cells;
mod choose;
mod code;
mod coder;
mod combine;
mod field;
mod filling;
mod group_codes;
mod groups;
mod label;
mod lanes;
mod map;
mod matrix;
mod members;
mod mend;
mod meta;
mod open;
mod ranges;
mod ranks;
mod reads;
mod service;
mod shape;
mod slot;
mod strikes;
#[doc(hidden)]
pub mod testing;
mod wants;
mod writes;

pub use array::{Array, ArrayOptions, Judge, Length};
pub use cells::{Cell, Cells};
pub use choose::{
    Change, Choice, Chooser, Clients, Cost, Demands, Estimate, Load, MemberCosts, TableNow, best_change,
    choose, estimate, estimate_all,
};
pub use code::{Code, MEMBERS_MAX};
pub use coder::Coder;
pub use label::Label;
pub use members::{Keeper, MemberState, MemberStatus};
pub use open::MemberToOpen;
pub use service::MeasuredCost;
pub use shape::Shape;
