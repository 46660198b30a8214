//! Planning: which operators, in which order, and what that is expected to cost.
//!
//! Pure: [`plan`] depends on the [`Request`], the [`Costs`] of the devices, and what [`Knowledge`]
//! says of the tables, and on nothing else. A wrong estimate makes a slow plan, never a wrong one:
//! each condition is evaluated on every row, besides the ranges that are made of it.
//!
//! * [`KeyBounds`]: from conditions to ranges of keys;
//! * [`TableFacts`], [`Knowledge`]: what is known of tables; [`gather`] asks the tables themselves;
//! * [`Access`]: the ways to read one table, and what each costs;
//! * [`Choice`]: a plan as it was chosen, [`Choice::lower`] makes a [`crate::Plan`] of it.
//!
//! Columns of a request are those of all tables, one table behind the other.

mod access;
mod bounds;
mod costs;
mod describe;
mod facts;
mod gather;
mod joins;
mod lookups;
mod lower;
mod misjudged;
mod remembered;
mod request;
mod spills;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod times;

pub use access::{Access, AccessKind};
pub use bounds::KeyBounds;
pub use costs::{Costs, Pages};
pub use facts::{Knowledge, Origin, PathFacts, TableFacts};
pub use gather::{Gathered, gather};
pub use lookups::OrHash;
pub use misjudged::Misjudged;
pub use request::{Choice, Hints, Join, JoinMethod, Node, Request, Right, plan};
pub use times::DeviceTimes;
