//! What is durable in a striped log.

use crate::boundaries::Boundaries;
use crate::stripes::Stripes;
use firndb_base::Lsn;
use firndb_log::log_layout::Completing;

/// The written part of each lane.
#[derive(Debug)]
pub(crate) struct LanesWritten {
    /// By lane: all of the lane before this LSN is durable.
    durable: Vec<Lsn>,
    /// By lane: the cursor once the request in flight has completed.
    in_flight: Vec<Option<Lsn>>,
    boundaries: Boundaries,
}

impl LanesWritten {
    pub fn new(stripes: Stripes, start: Lsn) -> LanesWritten {
        LanesWritten {
            durable: stripes.begin(start),
            in_flight: vec![None; stripes.lanes()],
            boundaries: Boundaries::new(start),
        }
    }
}

impl Completing for LanesWritten {
    fn begin(&mut self, lane: usize, cursor: Lsn, boundary: Lsn) {
        assert!(self.in_flight[lane].is_none(), "a device has one write at a time");
        assert!(cursor >= self.durable[lane], "a lane goes forward");
        self.in_flight[lane] = Some(cursor);
        self.boundaries.add(boundary);
    }

    fn complete(&mut self, lane: usize) -> Option<Lsn> {
        self.durable[lane] = self.in_flight[lane].take()?;
        self.boundaries.pass(self.durable.iter().copied().min()?)
    }

    fn is_busy(&self) -> bool {
        self.in_flight.iter().any(Option::is_some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firndb_log::PAYLOAD;

    const P: u64 = PAYLOAD as u64;

    #[test]
    fn a_lane_that_is_behind_holds_up_only_what_lies_in_it() {
        let stripes = Stripes::new(512, 2);
        let mut written = LanesWritten::new(stripes, Lsn(0));
        written.begin(0, Lsn(2 * P), Lsn(P)); // block 0
        written.begin(1, Lsn(3 * P), Lsn(2 * P)); // block 1
        assert_eq!(
            written.complete(0),
            Some(Lsn(P)),
            "the group in block 0 is durable, whatever block 1 does"
        );
        written.begin(0, Lsn(4 * P), Lsn(3 * P)); // block 2
        assert_eq!(written.complete(0), None);
        assert_eq!(written.complete(1), Some(Lsn(3 * P)));
    }
}
