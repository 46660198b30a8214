//! What a simulated device reports.

use super::{FlashCounts, FtlCounts, HostCounts};

/// Counts since counting began, and the state of wear.
#[derive(Clone, Debug, PartialEq)]
pub struct NandReport {
    /// The host's requests.
    pub host: HostCounts,
    /// The chips' operations.
    pub flash: FlashCounts,
    /// The translation layer's own work.
    pub translation: FtlCounts,
    /// Bytes of a flash page.
    pub page_bytes: u32,
    /// Number of chips.
    pub chips: u32,
    /// Erases and what is left.
    pub wear: WearReport,
    /// Whether nothing can be written any more.
    pub read_only: bool,
    /// Nanoseconds from the beginning until the last chip is idle.
    pub elapsed_ns: u64,
}

/// Erases of all blocks since the device was new.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WearReport {
    /// Blocks, retired ones included.
    pub blocks: u32,
    /// Blocks that are worn out.
    pub retired: u32,
    /// How often a block can be erased.
    pub limit: u32,
    /// Erases of all blocks together.
    pub total: u64,
    /// Erases of the block erased least often.
    pub min: u32,
    /// Median of the blocks' erases.
    pub median: u32,
    /// Erases of the block erased most often.
    pub max: u32,
    /// Standard deviation between blocks.
    pub deviation: f64,
}

impl WearReport {
    /// Summarises the erases of each block.
    #[must_use]
    pub fn of(mut erases: Vec<u32>, retired: u32, limit: u32) -> WearReport {
        assert!(!erases.is_empty() && limit > 0, "a device has blocks, and they can be erased");
        erases.sort_unstable();
        let total: u64 = erases.iter().copied().map(u64::from).sum();
        let mean = total as f64 / erases.len() as f64;
        let variance =
            erases.iter().map(|count| (f64::from(*count) - mean).powi(2)).sum::<f64>() / erases.len() as f64;
        WearReport {
            blocks: erases.len() as u32,
            retired,
            limit,
            total,
            min: erases[0],
            median: erases[(erases.len() - 1) / 2],
            max: erases[erases.len() - 1],
            deviation: variance.sqrt(),
        }
    }

    /// Share of all possible erases that is left if wear is level.
    #[must_use]
    pub fn life_left(&self) -> f64 {
        1.0 - self.total as f64 / (f64::from(self.blocks) * f64::from(self.limit))
    }
    /// Share of its erases that the most worn block has left.
    #[must_use]
    pub fn worst_block_left(&self) -> f64 {
        1.0 - f64::from(self.max) / f64::from(self.limit)
    }
}

impl NandReport {
    /// Bytes programmed over bytes that the host wrote; `None` before it wrote any.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        let programmed = self.flash.programs as f64 * f64::from(self.page_bytes);
        (self.host.write_bytes > 0).then(|| programmed / self.host.write_bytes as f64)
    }

    /// Bytes that the host can still write before level wear has used up all erases, if it
    /// continues as it did since counting began; `None` if nothing was erased.
    #[must_use]
    pub fn host_bytes_left(&self) -> Option<f64> {
        let wear = &self.wear;
        let left = f64::from(wear.blocks) * f64::from(wear.limit) - wear.total as f64;
        (self.flash.erases > 0).then(|| self.host.write_bytes as f64 * left / self.flash.erases as f64)
    }

    /// Share of the time in which a chip worked, on average.
    #[must_use]
    pub fn busy(&self) -> f64 {
        let possible = self.elapsed_ns as f64 * f64::from(self.chips);
        if possible == 0.0 { 0.0 } else { self.flash.work_ns as f64 / possible }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wear_is_summed_up() {
        let wear = WearReport::of(vec![10, 0, 4, 6], 1, 20);
        assert_eq!((wear.total, wear.min, wear.median, wear.max), (20, 0, 4, 10));
        assert!((wear.deviation - 13.0_f64.sqrt()).abs() < 1e-9);
        assert!((wear.life_left() - 0.75).abs() < 1e-9 && (wear.worst_block_left() - 0.5).abs() < 1e-9);
    }
}
