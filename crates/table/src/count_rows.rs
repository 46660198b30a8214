//! Counting the rows of a table, or estimating how many there are.

use crate::error::TableError;
use crate::range::KeyRange;
use crate::table::Table;
use crate::walk::Walk;
use firndb_base::rng::Rng;
use firndb_btree::{Direction, TreeErrorKind};
use firndb_txn::{RowHeader, Transaction};

/// How many rows a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowCount {
    pub rows: u64,
    /// Whether they were counted, in the transaction's snapshot, rather than estimated.
    pub is_exact: bool,
}

/// Leaves of the first sample: a tree with no more is counted.
const SAMPLE_LEAVES: usize = 2048;
/// How far an estimate may be off, as a share of it.
const PRECISION: f64 = 0.1;
/// Samples begun again because the tree changed meanwhile: then its rows are counted.
const ATTEMPTS: u32 = 5;

impl Table {
    /// How many rows it has, counted if that takes no more than reading some thousand pages, else
    /// estimated to within 10 % from a sample of its leaves. Deleted rows do not count, whether or
    /// not they are cleaned up.
    pub fn count_rows(&self, txn: &mut Transaction) -> Result<RowCount, TableError> {
        let state = self.shared.state_for(txn)?;
        let mut rng = Rng::new(u64::from(state.tree.id().0));
        let (mut leaves_max, mut attempts) = (SAMPLE_LEAVES, 0);
        loop {
            let sampled = state.tree.sample_leaves(leaves_max, &mut rng, is_row);
            let sample = match sampled {
                // Its nodes may have been moving while they were read, as they do as long as a
                // compaction goes on. If it is damage, counting meets it.
                Err(error) if error.kind == TreeErrorKind::Damaged && attempts == ATTEMPTS => break,
                Err(error) if error.kind == TreeErrorKind::Damaged => {
                    attempts += 1;
                    continue;
                }
                sample => sample?,
            };
            if sample.is_whole {
                break;
            }
            // Three standard errors: about one estimate in four hundred is further off.
            if sample.entries > 0.0 && sample.standard_error * 3.0 <= sample.entries * PRECISION {
                return Ok(RowCount { rows: sample.entries.round() as u64, is_exact: false });
            }
            leaves_max *= 4;
        }
        let mut walk = Walk::new(KeyRange::all(), Direction::Forward);
        let mut rows = 0;
        while walk.advance(txn, &state.tree)? {
            rows += 1;
        }
        Ok(RowCount { rows, is_exact: true })
    }
}

/// Whether an entry is a row: what cannot be read is not.
fn is_row(value: &[u8]) -> bool {
    RowHeader::split(value).is_ok_and(|(header, _)| !header.ghost)
}
