//! Which code suits a load: a pure function of clients, costs of members, and demands.
//!
//! Every read costs m members a fragment's read, every write costs w members a fragment's write,
//! and cells spread both evenly ([`crate::Cells`]). Chosen is the code under which the clients do
//! the most operations, as [`estimate`] expects.
//!
//! Rates alone do not tell how clients respond to a code: they wait, and do less, where a queue
//! that arrivals fill at a given rate would grow without end. So a load is clients that do an
//! operation, wait for it, and think; [`Clients::measured`] finds them from what an array measures.

mod change;
mod queues;
mod together;

use crate::code::Code;
pub use change::{Change, Chooser, TableNow, best_change};
pub use together::estimate_all;

/// Clients that do operations of one kind, one after the other, and think between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clients {
    /// How many there are.
    pub count: f64,
    /// Microseconds between an operation's end and the next one's begin, on average.
    pub think_us: f64,
}

impl Clients {
    /// No operations.
    pub const NONE: Clients = Clients { count: 0.0, think_us: 0.0 };

    /// Clients that come to this under the code that they have: operations a second, the mean time
    /// of one, and the most that were under way at once. Where these never were all there are, the
    /// others thought longer than this says; then they hardly waited for each other either.
    #[must_use]
    pub fn measured(per_second: f64, latency_us: f64, at_once: usize) -> Clients {
        if per_second <= 0.0 || at_once == 0 {
            return Clients::NONE;
        }
        let count = at_once as f64;
        Clients { count, think_us: (count / per_second * 1e6 - latency_us).max(0.0) }
    }

    /// Operations a microsecond, if each takes this long.
    fn rate(&self, latency_us: f64) -> f64 {
        if self.count > 0.0 { self.count / (self.think_us + latency_us) } else { 0.0 }
    }

    /// Of the load of all clients, what one of them finds: not its own operation.
    fn others(&self) -> f64 {
        if self.count > 1.0 { 1.0 - 1.0 / self.count } else { 0.0 }
    }
}

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Those that read pages.
    pub readers: Clients,
    /// Those that write pages.
    pub writers: Clients,
}

/// What a transfer takes: a fixed time, and a time for each byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Microseconds of any transfer.
    pub fixed_us: f64,
    /// Microseconds of each byte.
    pub us_per_byte: f64,
}

impl Cost {
    /// Microseconds of a transfer.
    #[must_use]
    pub fn of(&self, bytes: usize) -> f64 {
        self.fixed_us + self.us_per_byte * bytes as f64
    }
}

/// What a member takes for a fragment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemberCosts {
    /// Reading one.
    pub read: Cost,
    /// Writing one, with its share of what the device does behind.
    pub write: Cost,
}

/// What a code has to satisfy, whatever it costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demands {
    /// Members that may be lost without losing a page.
    pub survive: usize,
    /// Most bytes on members for each byte of a page.
    pub space: f64,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Fragments are whole blocks of this many bytes.
    pub block_bytes: usize,
}

/// What a load comes to under a code.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Pages read a second.
    pub reads: f64,
    /// Pages written a second.
    pub writes: f64,
    /// Microseconds of a read.
    pub read_us: f64,
    /// Microseconds until a write returns.
    pub write_us: f64,
    /// Share of the time that the busiest member works.
    pub utilisation: f64,
}

impl Estimate {
    /// Operations a second.
    #[must_use]
    pub fn operations(&self) -> f64 {
        self.reads + self.writes
    }
}

/// A code, and what it was chosen by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The code.
    pub code: Code,
    /// What the load comes to.
    pub estimate: Estimate,
}

/// Of the codes that satisfy the demands, the one under which the load comes to most operations a
/// second; `None` if none satisfies them. Of equal ones, that which takes the least space, then
/// that which needs the fewest fragments.
#[must_use]
pub fn choose(load: Load, members: &[MemberCosts], demands: Demands) -> Option<Choice> {
    let space = |code: Code| code.space(demands.page_bytes, demands.block_bytes);
    let satisfying = Code::all(members.len())
        .filter(|code| code.spare() >= demands.survive && space(*code) <= demands.space);
    let choices = satisfying.map(|code| Choice { code, estimate: estimate(code, load, members, demands) });
    choices.min_by(|a, b| {
        let more = b.estimate.operations().total_cmp(&a.estimate.operations());
        more.then(space(a.code).total_cmp(&space(b.code))).then(a.code.needed().cmp(&b.code.needed()))
    })
}

/// What the load comes to under the code. Writes return when as many fragments are written as
/// survive the losses that the demands name.
#[must_use]
pub fn estimate(code: Code, load: Load, members: &[MemberCosts], demands: Demands) -> Estimate {
    estimate_all(&[(code, load)], members, demands)[0]
}

#[cfg(test)]
mod tests;
