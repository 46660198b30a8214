//! Equations 2.1 and 2.2 of Myers's thesis beside simulation: the cost of a write over the live
//! share c.

use super::equations::{Costs, dynamic_us, naive_us};
use super::{BlockAddress, DynamicFtl, Flash, FlashTimes, Ftl, Geometry, LogicalPage, NaiveFtl, NandError};
use firndb_base::rng::Rng;

/// Blocks of the simulated chip.
const BLOCKS: u32 = 64;
/// Victims over which the dynamic map's cost is taken, about: their live pages are drawn, so their
/// mean has an error, which at c = 0.95 is 0.8 % (one standard deviation) of what a victim gains.
const COLLECTIONS: u32 = 20_000;

/// Costs of a page write at one live share, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// The live share: of the block's other pages for the naive map, of the flash (but for the
    /// reserve block) for the dynamic one.
    pub c: f64,
    /// Simulated, naive map.
    pub naive_us: f64,
    /// Equation 2.1.
    pub naive_equation_us: f64,
    /// Simulated, dynamic map.
    pub dynamic_us: f64,
    /// Equation 2.2.
    pub dynamic_equation_us: f64,
}

/// Live shares above this are not simulated: a victim gains hardly a page, and chance dominates.
const SHARE_MAX: f64 = 0.96;

/// The live shares from 0 to 0.96 that whole pages allow.
#[must_use]
pub fn all_shares(geometry: &Geometry) -> Vec<f64> {
    let pages = geometry.pages_per_block;
    (0..pages).map(|live| f64::from(live) / f64::from(pages)).take_while(|c| *c <= SHARE_MAX).collect()
}

/// Simulates one chip with the pages of `geometry` at each live share (0 to 0.96, rounded to whole
/// pages). `seed` draws pages and victims.
pub fn simulate(
    geometry: &Geometry,
    times: &FlashTimes,
    shares: &[f64],
    seed: u64,
) -> Result<Vec<CurvePoint>, NandError> {
    let geometry = Geometry { blocks_per_chip: BLOCKS, chips: 1, chips_per_channel: 1, ..*geometry };
    geometry.check()?;
    let costs = Costs::of(&geometry, times);
    // The equations add up all work; transfers that overlap with the chip's work would make it
    // cheaper.
    let times = FlashTimes {
        read_ns: times.read_ns + times.transfer_ns,
        program_ns: times.program_ns + times.transfer_ns,
        transfer_ns: 0,
        ..*times
    };
    let mut points = Vec::with_capacity(shares.len());
    for share in shares {
        if !(0.0..=SHARE_MAX).contains(share) {
            return Err(NandError::BadConfig(format!("a live share of {share} was given; give 0 to 0.96")));
        }
        let live = (share * f64::from(geometry.pages_per_block)).round() as u32;
        let c = f64::from(live) / f64::from(geometry.pages_per_block);
        points.push(CurvePoint {
            c,
            naive_us: naive(geometry, times, live)?,
            naive_equation_us: naive_us(&costs, c),
            dynamic_us: dynamic(geometry, times, live, seed)?,
            dynamic_equation_us: dynamic_us(&costs, c),
        });
    }
    Ok(points)
}

/// Blocks hold `live` pages beside the one that is written again and again.
fn naive(geometry: Geometry, times: FlashTimes, live: u32) -> Result<f64, NandError> {
    let mut layer = NaiveFtl::new(Flash::new(geometry, times, u32::MAX));
    let written = |block: u32| geometry.page(BlockAddress(block), live).0;
    for page in (0..geometry.pages()).filter(|page| page % geometry.pages_per_block < live) {
        layer.write(LogicalPage(page), 0, 0)?;
    }
    let before_ns = layer.flash().idle_at_ns();
    for block in 0..BLOCKS {
        layer.write(LogicalPage(written(block)), 1, 0)?;
    }
    Ok((layer.flash().idle_at_ns() - before_ns) as f64 / 1000.0 / f64::from(BLOCKS))
}

/// All blocks but the reserve hold `live` pages on average, which are written at random.
fn dynamic(geometry: Geometry, times: FlashTimes, live: u32, seed: u64) -> Result<f64, NandError> {
    // With nothing live, one page is written and discarded again.
    let pages = (live * (BLOCKS - 1)).max(1);
    let flash = Flash::new(geometry, times, u32::MAX);
    let mut layer = DynamicFtl::new(flash, pages, seed)?;
    let mut rng = Rng::new(seed);
    let write = |layer: &mut DynamicFtl, page| -> Result<(), NandError> {
        layer.write(LogicalPage(page), 0, 0)?;
        if live == 0 {
            layer.discard(LogicalPage(page));
        }
        Ok(())
    };
    for page in 0..pages {
        write(&mut layer, page)?;
    }
    // Until every block has been reclaimed some times, ages are not those of the steady state.
    let gained = geometry.pages_per_block - live;
    for _ in 0..geometry.pages() + 8 * BLOCKS * gained {
        write(&mut layer, rng.below(u64::from(pages)) as u32)?;
    }
    let (before_ns, writes) = (layer.flash().idle_at_ns(), COLLECTIONS * gained);
    for _ in 0..writes {
        write(&mut layer, rng.below(u64::from(pages)) as u32)?;
    }
    Ok((layer.flash().idle_at_ns() - before_ns) as f64 / 1000.0 / f64::from(writes))
}
