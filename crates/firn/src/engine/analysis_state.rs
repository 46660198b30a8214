//! What is remembered between the slices in which tables are analyzed (`analyses.rs`).

use crate::options::Options;
use firndb_base::TreeId;
use firndb_base::clock::{self, Moment};
use firndb_base::sync::Mutex;
use firndb_table::{Survey, Table};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How often tables are looked at.
const LOOKS_EVERY: Duration = Duration::from_secs(10);
/// As many rows have changed at least where a table is analyzed.
const ROWS_LEAST: u64 = 1000;

/// Of analyses in the background.
pub(crate) struct Analyses {
    pub looks_every: Duration,
    pub rows_least: u64,
    pub state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    pub rests_until: Option<Moment>,
    /// Tables to be analyzed, the next one first.
    pub tables: VecDeque<Table>,
    pub running: Option<(Survey, Moment)>,
    /// Tables that are not analyzed again before some moment.
    pub resting: BTreeMap<TreeId, Moment>,
}

impl Analyses {
    pub fn new(options: &Options) -> Analyses {
        let (looks_every, rows_least) = options.testing.analyses.unwrap_or((LOOKS_EVERY, ROWS_LEAST));
        let state = State { rests_until: clock::now().after(looks_every), ..State::default() };
        Analyses { looks_every, rows_least, state: Mutex::new(state) }
    }
}
