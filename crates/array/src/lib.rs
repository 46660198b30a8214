//! The coded array: a page becomes w fragments on w devices, and any m of them give it back.
//!
//! Place in the stack: above `log`, below `tier`. It computes only: [`Code`] names m and w,
//! [`Coder`] encodes and decodes, [`Cells`] says where the fragments of a place lie, and
//! [`choose()`] which code suits a load. It does no I/O, and nothing in the engine uses it yet.
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
//!
//! How it fails: it does not. Lengths and numbers that do not fit together are a caller's mistake
//! and panic. A wrong fragment gives a wrong page: callers compare a checksum.
#![forbid(unsafe_code)]

mod array;
mod cells;
mod choose;
mod code;
mod coder;
mod combine;
mod field;
mod label;
mod lanes;
mod map;
mod matrix;
mod members;
mod mend;
mod meta;
mod ranges;
mod ranks;
mod reads;
mod shape;

pub use array::{Array, ArrayOptions, Judge, MemberToOpen};
pub use cells::{Cell, Cells};
pub use choose::{Choice, Clients, Cost, Demands, Estimate, Load, MemberCosts, choose, estimate};
pub use code::{Code, MEMBERS_MAX};
pub use coder::Coder;
pub use label::Label;
pub use members::{Keeper, MemberState, MemberStatus};
pub use shape::Shape;
