//! Round-robin striping (3.3): the device to which a block belongs.
//!
//! Blocks are numbered from the stream's begin. `blocks` of them make a stripe unit, and unit `u`
//! belongs to device `u mod n`: its *lane*. A request takes blocks of one lane only. So a flush
//! becomes a request for each lane that it touches (*splitting*), and a free device idles while all
//! log that waits belongs to others (*skipping*).

use firndb_base::Lsn;
use firndb_log::{BLOCK, PAYLOAD};

/// Which device owns which blocks. Pure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stripes {
    /// Blocks of a stripe unit.
    blocks: u64,
    lanes: u64,
}

impl Stripes {
    pub fn new(unit_bytes: u32, lanes: usize) -> Stripes {
        Stripes { blocks: u64::from(unit_bytes) / BLOCK as u64, lanes: lanes as u64 }
    }

    /// All blocks in one lane.
    pub fn one_lane() -> Stripes {
        Stripes { blocks: 1, lanes: 1 }
    }

    pub fn lanes(&self) -> usize {
        self.lanes as usize
    }

    /// First byte of each lane in log that begins at `start`.
    pub fn begin(&self, start: Lsn) -> Vec<Lsn> {
        (0..self.lanes()).map(|lane| self.at_or_after(lane, start)).collect()
    }

    fn lane(&self, block: u64) -> u64 {
        block / self.blocks % self.lanes
    }

    /// The lane's first byte at or after `lsn`.
    pub fn at_or_after(&self, lane: usize, lsn: Lsn) -> Lsn {
        let block = lsn.0 / PAYLOAD as u64;
        let ahead = (lane as u64 + self.lanes - self.lane(block)) % self.lanes;
        if ahead == 0 {
            return lsn;
        }
        Lsn((block / self.blocks + ahead) * self.blocks * PAYLOAD as u64)
    }

    /// Blocks of the lane among those that the bytes from `from` up to `to` touch.
    pub fn count(&self, lane: usize, from: Lsn, to: Lsn) -> u64 {
        if from >= to {
            return 0;
        }
        let before = |block: u64| {
            let round = self.blocks * self.lanes;
            let within = (block % round).saturating_sub(lane as u64 * self.blocks).min(self.blocks);
            block / round * self.blocks + within
        };
        before(to.0.div_ceil(PAYLOAD as u64)) - before(from.0 / PAYLOAD as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u64 = PAYLOAD as u64;

    #[test]
    fn blocks_go_round_by_stripe_units() {
        // Stripe unit in bytes, lanes, lane, LSN in payloads, the lane's first byte at or after it
        // in payloads.
        let table: [(u32, usize, usize, f64, f64); 12] = [
            (512, 2, 0, 0.0, 0.0),
            (512, 2, 1, 0.0, 1.0),
            (512, 2, 0, 0.5, 0.5),
            (512, 2, 1, 0.5, 1.0),
            (512, 2, 0, 1.0, 2.0),
            (512, 1, 0, 7.25, 7.25),
            (2048, 2, 0, 3.75, 3.75),
            (2048, 2, 0, 4.0, 8.0),
            (2048, 2, 1, 3.75, 4.0),
            (2048, 2, 1, 9.0, 12.0),
            (1024, 3, 2, 0.0, 4.0),
            (1024, 3, 0, 5.5, 6.0),
        ];
        for (unit_bytes, lanes, lane, lsn, expected) in table {
            let stripes = Stripes::new(unit_bytes, lanes);
            let at = |blocks: f64| Lsn((blocks * P as f64) as u64);
            assert_eq!(stripes.at_or_after(lane, at(lsn)), at(expected), "{unit_bytes} {lanes} {lane} {lsn}");
        }
    }

    #[test]
    fn every_block_is_counted_in_one_lane() {
        for (unit_bytes, lanes) in [(512, 1), (512, 2), (1536, 3), (4096, 4)] {
            let stripes = Stripes::new(unit_bytes, lanes);
            for from in (0..30 * P).step_by(211) {
                for to in (from + 1..40 * P).step_by(353) {
                    let counted = |lane: usize| {
                        let blocks = (from / P..to.div_ceil(P)).filter(|&b| stripes.lane(b) == lane as u64);
                        blocks.count() as u64
                    };
                    for lane in 0..lanes {
                        assert_eq!(stripes.count(lane, Lsn(from), Lsn(to)), counted(lane));
                    }
                }
            }
        }
    }
}
