//! How much of a device a stream occupies, from what is left beside it for random reads. Pure.
//!
//! With R and S the rates of random reads and of the stream alone, r and s those side by side, the
//! chips are full when r/R + occupancy s/S = 1. That gives the occupancy: 1 if the shares add up to
//! one device, less if the chips wait for the interface while a stream runs. If something else than
//! the chips limited the reads, the true occupancy is lower than the one found.

use crate::cell::{Op, Pattern, Purpose, STREAM_BYTES};
use crate::measure::{Measured, Measurements};
use firndb_profile::{Band, ModelSection, Parameter};

/// Shares that add up to no more than this much above one device are noise.
const NOISE: f64 = 0.08;
/// A stream that reaches less than this share of its rate says nothing.
const LEAST_SHARE: f64 = 0.1;
const LEAST_OCCUPANCY: f64 = 0.05;

/// Completes a model, whose tables and limits are fitted, by what was measured of streams.
pub fn fit_streams(measurements: &Measurements, model: &mut ModelSection) {
    let alone = |writes| alone(measurements, writes);
    if [false, true].into_iter().all(|writes| is_unstriped(model, alone(writes), writes)) {
        model.striped = false;
        return;
    }
    for writes in [false, true] {
        let limit = if writes { model.write_mb_s } else { model.read_mb_s };
        let Some(occupancy) = occupancy(measurements, writes).filter(|_| limit.is_some()) else { continue };
        let (parameter, stated) = match writes {
            true => (Parameter::WriteOccupancy, &mut model.write_occupancy),
            false => (Parameter::ReadOccupancy, &mut model.read_occupancy),
        };
        *stated = rounded(occupancy);
        if occupancy < 1.0 {
            model.band.push(Band {
                parameter,
                low: rounded((occupancy - NOISE).max(LEAST_OCCUPANCY)),
                high: rounded((occupancy + NOISE).min(1.0)),
                why: "from the random reads that a stream leaves, as exactly as rates repeat".to_owned(),
            });
        }
    }
}

fn rounded(share: f64) -> f64 {
    (share * 1000.0).round() / 1000.0
}

/// The stream alone, in requests a second.
fn alone(measurements: &Measurements, writes: bool) -> Option<f64> {
    let op = if writes { Op::WriteDurable } else { Op::Read };
    let cells = measurements.of(Purpose::Beside, op, Pattern::Sequential);
    cells.first().map(|cell| cell.requests_per_second()).filter(|&rate| rate > 0.0)
}

/// Whether as many large requests are served side by side as small ones: each has one channel.
fn is_unstriped(model: &ModelSection, alone: Option<f64>, writes: bool) -> bool {
    let (table, limit) = match writes {
        true => (&model.write_sequential, model.write_mb_s),
        false => (&model.read_sequential, model.read_mb_s),
    };
    let us = table.us(STREAM_BYTES as u64);
    let (Some(alone), true) = (alone, model.channels > 1 && us > 0.0) else { return false };
    let side_by_side = f64::from(model.channels) * 1e6 / us;
    let link = limit.map_or(f64::INFINITY, |mb_s| mb_s * 1e6 / STREAM_BYTES as f64);
    side_by_side <= 1.25 * link && alone >= 0.75 * side_by_side
}

fn occupancy(measurements: &Measurements, writes: bool) -> Option<f64> {
    let by_depth = measurements.of(Purpose::ByDepth, Op::Read, Pattern::Random);
    let reads_alone = by_depth.into_iter().map(Measured::requests_per_second).reduce(f64::max)?;
    let stream_alone = alone(measurements, writes)?;
    let beside = measurements.of(Purpose::Beside, Op::Beside { writes }, Pattern::Random);
    let (reads, stream) = beside.first()?.both_per_second();
    let (reads, stream) = (reads / reads_alone, stream / stream_alone);
    if stream < LEAST_SHARE {
        return None;
    }
    let occupancy = (1.0 - reads) / stream;
    let added_up = reads + stream <= 1.0 + NOISE;
    Some(if added_up { 1.0 } else { occupancy.clamp(LEAST_OCCUPANCY, 1.0) })
}
