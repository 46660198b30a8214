//! Which cells are measured, and for how long.
//!
//! Cells are in order of importance, in case time runs out. A plan's rounds go through all cells,
//! one after another, so that changes on the machine meanwhile affect all of them alike, and each
//! figure is a median over rounds.

use crate::cell::{Cell, Ground, Op, Pattern, Purpose, STREAM_BYTES};
use std::time::Duration;

/// How much time a plan takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Under 30 seconds in all.
    Quick,
    /// About six minutes.
    Full,
}

/// A list of measurements.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The plan's effort.
    pub effort: Effort,
    /// The cells, in the order in which they are measured.
    pub cells: Vec<Cell>,
    /// How often each cell is measured, each time for an equal share of its budget.
    pub rounds: u32,
    /// After this time, cells that have not begun are left out.
    pub deadline: Duration,
    /// Longest time for writing the area beforehand; the part written by then is the area.
    pub prepare: Duration,
    /// Equal seeds give equal offsets.
    pub seed: u64,
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The request size at which devices are compared: that of a page.
pub const PAGE: usize = 4 * KIB;

use Op::{Read, WriteDurable, WriteLater};
use Pattern::{Random, Sequential};

/// The four tables of a profile.
const TABLES: [(Op, Pattern); 4] =
    [(Read, Sequential), (Read, Random), (WriteDurable, Sequential), (WriteDurable, Random)];

impl Plan {
    /// The plan of this effort, for any device.
    #[must_use]
    pub fn new(effort: Effort) -> Plan {
        match effort {
            Effort::Quick => Plan::quick(),
            Effort::Full => Plan::full(),
        }
    }

    fn quick() -> Plan {
        let short = Duration::from_millis(300);
        let mut cells = Vec::new();
        let sizes = [4 * KIB, 64 * KIB, MIB, 512, 16 * KIB, 256 * KIB];
        for (op, pattern) in TABLES {
            cells.extend(sizes.map(|bytes| Cell::new(Purpose::BySize, op, pattern, bytes, short)));
        }
        let page = |purpose, op, pattern| Cell::new(purpose, op, pattern, PAGE, short);
        cells.extend([1, 2, 4, 8].map(|k| log_streams(PAGE, k, Duration::from_millis(450))));
        cells.push(Cell {
            budget: Duration::from_millis(2400),
            ..page(Purpose::Outliers, WriteDurable, Sequential)
        });
        cells.push(page(Purpose::Rewrite, WriteDurable, Pattern::Rewrite));
        cells.push(page(Purpose::Sync, Op::WriteThenSync, Sequential));
        cells.extend([1, 4, 16, 64].map(|depth| page(Purpose::ByDepth, Read, Random).depth(depth)));
        cells.extend([1, 4, 16].map(|depth| page(Purpose::ByDepth, WriteDurable, Random).depth(depth)));
        cells.extend(
            [PAGE, MIB].map(|bytes| Cell::new(Purpose::BySize, WriteLater, Sequential, bytes, short)),
        );
        cells.push(page(Purpose::BySize, WriteLater, Random));
        cells.extend([Read, WriteLater].map(|op| wide(op, short)));
        cells.extend([4, 16, 64].map(|batch| page(Purpose::ReadBatch, Read, Random).batch(batch)));
        cells.push(two_streams(Duration::from_secs(1)));
        cells.extend([2, 8, 32].map(|streams| append_streams(streams, short)));
        cells.extend([16, 64, 256].map(|mib| by_area(mib << 20, short)));
        cells.extend([Ground::Reserved, Ground::Hole].map(|ground| by_ground(PAGE, ground, short)));
        cells.extend([1, 16].map(|depth| mixed(70, depth, short)));
        cells.extend(beside(short));
        Plan {
            effort: Effort::Quick,
            cells,
            rounds: 3,
            deadline: Duration::from_secs(24),
            prepare: Duration::from_secs(4),
            seed: 1,
        }
    }

    fn full() -> Plan {
        let short = Duration::from_millis(1000);
        let sizes: Vec<usize> = (9..=21).map(|shift| 1 << shift).collect();
        let mut cells = Vec::new();
        for (op, pattern) in TABLES {
            let time = Duration::from_millis(1500);
            cells.extend(sizes.iter().map(|&bytes| Cell::new(Purpose::BySize, op, pattern, bytes, time)));
        }
        for bytes in [PAGE, 16 * KIB] {
            cells.extend([1, 2, 3, 4, 6, 8, 12, 16].map(|k| log_streams(bytes, k, short)));
        }
        for bytes in [PAGE, 512, 64 * KIB] {
            let time = Duration::from_secs(20);
            cells.push(Cell::new(Purpose::Outliers, WriteDurable, Sequential, bytes, time));
        }
        for bytes in [512, PAGE, 16 * KIB, 64 * KIB] {
            cells.push(Cell::new(Purpose::Rewrite, WriteDurable, Pattern::Rewrite, bytes, short));
        }
        cells.push(Cell::new(Purpose::Sync, Op::WriteThenSync, Sequential, PAGE, short));
        for (op, pattern) in
            [(Read, Random), (Read, Sequential), (WriteDurable, Random), (WriteLater, Random)]
        {
            let cell = Cell::new(Purpose::ByDepth, op, pattern, PAGE, short);
            cells.extend([1, 2, 4, 8, 16, 32, 64].map(|depth| cell.depth(depth)));
        }
        for pattern in [Sequential, Random] {
            cells.extend(
                sizes.iter().map(|&bytes| Cell::new(Purpose::BySize, WriteLater, pattern, bytes, short)),
            );
        }
        let batched = Cell::new(Purpose::ReadBatch, Read, Random, PAGE, short);
        cells.extend([2, 4, 8, 16, 32, 64].map(|batch| batched.batch(batch)));
        cells.push(two_streams(Duration::from_secs(10)));
        cells.extend([2, 4, 8, 16, 32, 64].map(|streams| append_streams(streams, short)));
        cells.extend((0..9).map(|i| by_area((4 << 20) << i, Duration::from_millis(1500))));
        for bytes in [PAGE, 64 * KIB] {
            cells.extend(
                [Ground::Written, Ground::Reserved, Ground::Hole]
                    .map(|ground| by_ground(bytes, ground, short)),
            );
        }
        for percent in [30, 50, 70, 90] {
            cells.extend([1, 16].map(|depth| mixed(percent, depth, short)));
        }
        cells.extend(beside(short));
        cells.push(
            Cell::new(Purpose::Sustained, WriteLater, Sequential, MIB, Duration::from_secs(30)).depth(4),
        );
        Plan {
            effort: Effort::Full,
            cells,
            rounds: 3,
            deadline: Duration::from_secs(15 * 60),
            prepare: Duration::from_secs(60),
            seed: 1,
        }
    }

    /// Leaves out cells that a device of `logical_block` bytes with an area of `area` cannot do.
    pub fn fit(&mut self, logical_block: usize, area: u64) {
        self.cells.retain(|cell| {
            let wanted = cell.area.unwrap_or(cell.bytes as u64 * cell.streams.max(cell.depth) as u64 * 2);
            let wanted = wanted.max((cell.stream_depth() * STREAM_BYTES) as u64 * 2);
            cell.bytes.is_multiple_of(logical_block) && wanted <= area
        });
    }

    /// The time of all cells together, without the gaps between them.
    #[must_use]
    pub fn budget(&self) -> Duration {
        self.cells.iter().map(|cell| cell.budget).sum()
    }
}

/// A cell that measures the device's bandwidth.
fn wide(op: Op, budget: Duration) -> Cell {
    Cell::new(Purpose::ByDepth, op, Sequential, MIB, budget).depth(4)
}

fn log_streams(bytes: usize, streams: usize, budget: Duration) -> Cell {
    Cell::new(Purpose::LogStreams, WriteDurable, Sequential, bytes, budget).depth(streams).streams(streams)
}

fn append_streams(streams: usize, budget: Duration) -> Cell {
    Cell::new(Purpose::AppendStreams, WriteDurable, Sequential, PAGE, budget).streams(streams)
}

fn two_streams(budget: Duration) -> Cell {
    Cell::new(Purpose::TwoStreams, WriteDurable, Pattern::TwoStreams { aside_percent: 1 }, PAGE, budget)
}

fn by_area(area: u64, budget: Duration) -> Cell {
    Cell::new(Purpose::ByArea, WriteDurable, Random, PAGE, budget).area(area)
}

fn by_ground(bytes: usize, ground: Ground, budget: Duration) -> Cell {
    Cell::new(Purpose::ByGround, WriteDurable, Sequential, bytes, budget).ground(ground)
}

fn mixed(read_percent: u32, depth: usize, budget: Duration) -> Cell {
    Cell::new(Purpose::Mixed, Op::Mixed { read_percent }, Random, PAGE, budget).depth(depth)
}

/// Random reads beside a stream, and the stream alone as deep.
fn beside(budget: Duration) -> [Cell; 4] {
    let reads = |writes| Cell::new(Purpose::Beside, Op::Beside { writes }, Random, PAGE, budget).depth(64);
    let alone = |op| Cell::new(Purpose::Beside, op, Sequential, STREAM_BYTES, budget).depth(16);
    [reads(false), reads(true), alone(Read), alone(WriteDurable)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_plan_fits_into_half_a_minute_and_the_full_one_into_ten() {
        let (quick, full) = (Plan::new(Effort::Quick), Plan::new(Effort::Full));
        assert!(quick.budget() < Duration::from_secs(24), "{:?}", quick.budget());
        assert!(quick.prepare + quick.deadline < Duration::from_secs(30));
        assert!(full.budget() < Duration::from_secs(540), "{:?}", full.budget());
    }

    #[test]
    fn a_plan_holds_each_cell_once_and_only_what_the_device_can_do() {
        for effort in [Effort::Quick, Effort::Full] {
            let mut plan = Plan::new(effort);
            for (index, cell) in plan.cells.iter().enumerate() {
                assert!(!plan.cells[..index].contains(cell), "{cell} stands twice");
            }
            assert!(plan.cells.iter().any(|cell| cell.bytes == 512));
            plan.fit(4096, 32 << 20);
            assert!(plan.cells.iter().all(|cell| cell.bytes >= 4096 && cell.area.unwrap_or(0) <= 32 << 20));
            assert!(plan.cells.iter().any(|cell| cell.purpose == Purpose::ByArea));
        }
    }
}
