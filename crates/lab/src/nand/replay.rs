//! `firn lab nand replay`: a trace, twice: once to see what it touches, then into the flash.

use super::report;
use super::{FormatName, Replay as Args, failure};
use firndb_console::output::write_json;
use firndb_console::{Failure, interrupt, progress, say, size};
use firndb_device::trace::{HEADER, TraceError, TraceEvent, TraceReader};
use firndb_emulate::blkparse::BlkparseReader;
use firndb_emulate::nand::NandError;
use firndb_emulate::nand::replay::{DensePages, Replay, TraceShape};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicBool, Ordering};

/// Operations between two looks at the progress bar and Ctrl-C.
const SHOW_EVERY: u64 = 1 << 12;

type Events = Box<dyn Iterator<Item = Result<TraceEvent, TraceError>>>;

/// Opens the trace at its beginning.
fn events(args: &Args) -> Result<Events, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", args.trace.display()));
    let mut input = BufReader::new(File::open(&args.trace).map_err(failed)?);
    let own = match args.format {
        FormatName::Firn => true,
        FormatName::Blkparse => false,
        FormatName::Auto => input.fill_buf().map_err(failed)?.starts_with(HEADER.as_bytes()),
    };
    Ok(match own {
        true => Box::new(TraceReader::new(input)),
        false => Box::new(BlkparseReader::new(input, args.blk_action(), args.device)),
    })
}

/// What became of a replay.
pub struct Replayed {
    /// Operations of the trace.
    pub shape: TraceShape,
    pub replay: Replay,
    /// Operations that were asked of it, over all repetitions, until it was worn out if it was.
    pub operations: u64,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    if !(0.0..=1.0).contains(&args.fill) {
        return Err(Failure::bad_argument(format!("--fill is {}; it is a share from 0 to 1", args.fill)));
    }
    let stop = interrupt::install()?;
    let (shape, touched) = survey(args)?;
    if shape.events == 0 {
        return Err(Failure::new(format!(
            "{}: no operation to replay ({} had failed when they were recorded)",
            args.trace.display(),
            shape.failed
        )));
    }
    let config = args.config(touched)?;
    if touched > config.logical_bytes() {
        return Err(Failure::bad_argument(format!(
            "the trace touches {}; give at least --capacity {touched}, or --dense if it leaves most untouched",
            size::show(touched)
        )));
    }
    let filled = (config.logical_bytes() as f64 * args.fill) as u64;
    let replay = Replay::new(config, args.pace(), filled).map_err(failure)?;
    let mut replayed = Replayed { shape, replay, operations: 0 };
    go(args, &mut replayed, stop)?;
    say!("{}", report::text(&replayed));
    if let Some(path) = &args.json {
        write_json(path, &report::json(args, &replayed))?;
    }
    Ok(())
}

/// Reads the whole trace; returns what it touches, in bytes from the beginning.
fn survey(args: &Args) -> Result<(TraceShape, u64), Failure> {
    let spinner = progress::spinner("reading the trace");
    let (mut shape, mut dense) = (TraceShape::default(), DensePages::default());
    for event in events(args)? {
        let event = event.map_err(|error| Failure::new(format!("{}: {error}", args.trace.display())))?;
        shape.add(&event);
        if args.dense && !event.failed {
            check_size(&event)?;
            dense.place(&event, args.chips.page.max(512));
        }
    }
    spinner.finish_and_clear();
    let touched = if args.dense { dense.len() * args.chips.page } else { shape.end };
    Ok((shape, touched))
}

/// Bytes of the largest operation that is cut into pages: a discard of a whole disk is longer.
const DENSE_MAX: u64 = 1 << 40;

fn check_size(event: &TraceEvent) -> Result<(), Failure> {
    if event.bytes <= DENSE_MAX {
        return Ok(());
    }
    Err(Failure::new(format!("an operation of {} cannot be replayed with --dense", size::show(event.bytes))))
}

fn go(args: &Args, replayed: &mut Replayed, stop: &AtomicBool) -> Result<(), Failure> {
    let rounds = u64::from(args.warm_up) + u64::from(args.repeat);
    let bar = progress::bar("replaying", replayed.shape.events * rounds);
    let mut dense = args.dense.then(DensePages::default);
    for round in 0..rounds {
        if round == u64::from(args.warm_up) && round > 0 {
            replayed.replay.begin_counting();
            replayed.operations = 0;
        }
        for event in events(args)? {
            let event = event.map_err(|error| Failure::new(format!("{}: {error}", args.trace.display())))?;
            let placed = match &mut dense {
                Some(dense) if !event.failed => dense.place(&event, args.chips.page),
                _ => vec![event],
            };
            for event in &placed {
                match replayed.replay.step(event) {
                    Ok(()) => {}
                    Err(NandError::WornOut) => {
                        bar.finish_and_clear();
                        return Ok(());
                    }
                    Err(error) => return Err(failure(error)),
                }
            }
            replayed.operations += u64::from(!event.failed);
            if replayed.operations.is_multiple_of(SHOW_EVERY) {
                bar.set_position(
                    replayed.operations + replayed.shape.events * round.min(u64::from(args.warm_up)),
                );
                if stop.load(Ordering::SeqCst) {
                    return Err(Failure::interrupted("stopped before the end of the trace"));
                }
            }
        }
        replayed.replay.rewind();
    }
    bar.finish_and_clear();
    Ok(())
}
