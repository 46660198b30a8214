//! `firn profiles`: the device profiles that ship, and what one of them says.

use clap::Args;
use firndb_console::{Failure, output, say, table};
use firndb_emulate::{Load, Model, profiles};
use firndb_profile::{DeviceProfile, Figure, Op, Origin, Pattern, ProfileError, Unit};
use serde::Serialize;
use std::path::PathBuf;

/// `firn profiles`.
#[derive(Args, Debug)]
pub struct Profiles {
    /// A shipped profile's name, or a profile's file; all shipped ones are listed if it is left out
    pub profile: Option<String>,
    /// Print the profile's text, to start a profile of one's own from
    #[arg(long, requires = "profile")]
    pub toml: bool,
    /// Write what is shown to this file as JSON, too
    #[arg(long, value_name = "FILE", conflicts_with = "toml")]
    pub json: Option<PathBuf>,
}

/// Requests of each load that is shown: what takes milliseconds on the device takes microseconds in
/// the model.
const REQUESTS: usize = 6000;

/// What a device does, as its emulation shows it.
#[derive(Serialize)]
struct Row {
    name: String,
    title: String,
    origin: Origin,
    random_read_us: f64,
    random_reads_per_second: f64,
    sequential_read_mb_s: f64,
    durable_write_us: f64,
    random_writes_per_second: f64,
    sequential_write_mb_s: f64,
}

/// A figure beside what the emulation gives.
#[derive(Serialize)]
struct Compared {
    figure: Figure,
    emulated: f64,
}

#[derive(Serialize)]
struct Listing<'a> {
    schema: &'a str,
    profiles: Vec<Row>,
}

#[derive(Serialize)]
struct Shown<'a> {
    schema: &'a str,
    profile: &'a DeviceProfile,
    figures: Vec<Compared>,
}

pub fn run(arguments: &Profiles) -> Result<(), Failure> {
    match &arguments.profile {
        None => list(arguments),
        Some(name) if arguments.toml => print_text(name),
        Some(name) => show(arguments, name),
    }
}

fn find(name: &str) -> Result<DeviceProfile, Failure> {
    profiles::find(name).map_err(|error| Failure::bad_argument(error.to_string()))
}

fn print_text(name: &str) -> Result<(), Failure> {
    let text = match profiles::text(name) {
        Some(text) => text.to_owned(),
        None => find(name)?.to_toml().map_err(|error| Failure::new(error.to_string()))?,
    };
    say!("{}", text.trim_end());
    Ok(())
}

fn load(profile: &DeviceProfile, load: Load) -> Result<firndb_emulate::LoadOutcome, ProfileError> {
    Ok(load.run(&mut Model::new(profile, 1)?, profile.capacity_bytes, REQUESTS, 1))
}

fn row(profile: &DeviceProfile) -> Result<Row, ProfileError> {
    let at = |op, pattern, bytes, depth| load(profile, Load { op, pattern, bytes, durable: true, depth });
    let (read, write) = (Op::Read, Op::Write);
    Ok(Row {
        name: profile.name.clone(),
        title: profile.title.clone(),
        origin: profile.origin,
        random_read_us: at(read, Pattern::Random, 4096, 1)?.mean_us,
        random_reads_per_second: at(read, Pattern::Random, 4096, 32)?.iops,
        sequential_read_mb_s: at(read, Pattern::Sequential, 1 << 20, 8)?.mb_s,
        durable_write_us: at(write, Pattern::Sequential, 4096, 1)?.mean_us,
        random_writes_per_second: at(write, Pattern::Random, 4096, 32)?.iops,
        sequential_write_mb_s: at(write, Pattern::Sequential, 1 << 20, 8)?.mb_s,
    })
}

fn list(arguments: &Profiles) -> Result<(), Failure> {
    let mut table =
        table::new(&["profile", "device", "4K read", "reads/s", "MB/s", "4K commit", "writes/s", "MB/s"]);
    let mut rows = Vec::new();
    for profile in profiles::all() {
        let row = row(&profile).map_err(|error| Failure::new(format!("{}: {error}", profile.name)))?;
        table.add_row([
            row.name.clone(),
            shortened(&row.title, 48),
            micros(row.random_read_us),
            format!("{:.0}", row.random_reads_per_second),
            format!("{:.0}", row.sequential_read_mb_s),
            micros(row.durable_write_us),
            format!("{:.0}", row.random_writes_per_second),
            format!("{:.0}", row.sequential_write_mb_s),
        ]);
        rows.push(row);
    }
    say!("{}", table::text(table, 2));
    say!("");
    say!(
        "Means of the emulated devices: a random 4 KiB read and a sequential durable 4 KiB write alone; random 4 KiB"
    );
    say!(
        "requests (writes durable) with 32 outstanding; sequential 1 MiB ones with 8. `firn profiles NAME` tells more."
    );
    match &arguments.json {
        Some(path) => output::write_json(path, &Listing { schema: "firn-profiles/1", profiles: rows }),
        None => Ok(()),
    }
}

fn show(arguments: &Profiles, name: &str) -> Result<(), Failure> {
    let profile = find(name)?;
    say!("{}: {}", profile.name, profile.title);
    say!("{}: {}", origin(profile.origin), profile.source);
    say!("{} bytes in blocks of {}", profile.capacity_bytes, profile.logical_block);
    for note in &profile.notes {
        say!("- {note}");
    }
    let mut compared = Vec::new();
    for figure in &profile.figures {
        let outcome = load(&profile, Load::of(figure)).map_err(|error| Failure::new(error.to_string()))?;
        compared.push(Compared { figure: figure.clone(), emulated: outcome.value(figure.unit) });
    }
    if !compared.is_empty() {
        say!("");
        say!("{}", figures(&compared));
    }
    say!("");
    say!("{}", service_times(&profile).map_err(|error| Failure::new(error.to_string()))?);
    if !profile.inputs.is_empty() {
        say!("");
    }
    for input in &profile.inputs {
        say!("Input, so that the emulation cannot confirm it: {}; {}.", input.result, input.why);
    }
    if !profile.model.band.is_empty() {
        say!("");
        say!("{}", bands(&profile));
    }
    match &arguments.json {
        Some(path) => output::write_json(
            path,
            &Shown { schema: "firn-profile/1", profile: &profile, figures: compared },
        ),
        None => Ok(()),
    }
}

fn figures(compared: &[Compared]) -> String {
    let mut table = table::new(&["figure", "from", "bytes", "depth", "stated", "emulated"]);
    for Compared { figure, emulated } in compared {
        let durable = if figure.op == Op::Write && figure.durable { ", durable" } else { "" };
        let (decimals, unit) = match figure.unit {
            Unit::Iops => (0, "/s"),
            Unit::MbS => (1, "MB/s"),
            Unit::Us => (0, "µs"),
        };
        table.add_row([
            format!(
                "{} {}{durable}",
                word(figure.pattern),
                if figure.op == Op::Read { "read" } else { "write" }
            ),
            shortened(&figure.source, 56),
            figure.bytes.to_string(),
            figure.depth.to_string(),
            format!("{:.decimals$} {unit}", figure.value),
            format!("{emulated:.decimals$} {unit}"),
        ]);
    }
    table::text(table, 2)
}

/// Mean times of single requests, outliers included.
fn service_times(profile: &DeviceProfile) -> Result<String, ProfileError> {
    let mut table = table::new(&[
        "one at a time",
        "sequential read",
        "random read",
        "sequential write",
        "random write",
        "rewrite",
    ]);
    for bytes in [512u64, 4096, 16 << 10, 64 << 10, 256 << 10, 1 << 20] {
        if bytes < u64::from(profile.logical_block) || bytes > profile.capacity_bytes {
            continue;
        }
        let at = |op, pattern| {
            load(profile, Load { op, pattern, bytes, durable: true, depth: 1 })
                .map(|outcome| micros(outcome.mean_us))
        };
        table.add_row([
            if bytes < 1024 { format!("{bytes} B") } else { format!("{} KiB", bytes / 1024) },
            at(Op::Read, Pattern::Sequential)?,
            at(Op::Read, Pattern::Random)?,
            at(Op::Write, Pattern::Sequential)?,
            at(Op::Write, Pattern::Random)?,
            at(Op::Write, Pattern::Overlapping)?,
        ]);
    }
    Ok(table::text(table, 1))
}

fn bands(profile: &DeviceProfile) -> String {
    let mut table = table::new(&["not known", "why", "low", "high"]);
    for band in &profile.model.band {
        let name =
            serde_json::to_value(band.parameter).ok().and_then(|name| name.as_str().map(str::to_owned));
        table.add_row([
            name.unwrap_or_default().replace('_', " "),
            band.why.clone(),
            band.low.to_string(),
            band.high.to_string(),
        ]);
    }
    table::text(table, 2)
}

fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Published => "Published",
        Origin::Measured => "Measured",
        Origin::Estimated => "Estimated",
    }
}

fn word(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Sequential => "sequential",
        Pattern::Random => "random",
        Pattern::Overlapping => "overlapping",
        Pattern::Unwritten => "unwritten",
        Pattern::Append => "append",
    }
}

fn micros(us: f64) -> String {
    match us {
        us if us < 1000.0 => format!("{us:.0} µs"),
        us if us < 10_000.0 => format!("{:.2} ms", us / 1000.0),
        us => format!("{:.1} ms", us / 1000.0),
    }
}

/// At most `most` characters.
fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text.to_owned(),
    }
}
