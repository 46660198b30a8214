//! `firn array`: the devices of a store that has several, shown, replaced and scrubbed.

use crate::caches;
use crate::status_args::StatusArgs;
use clap::{Args, Subcommand};
use firndb::{Database, FragmentCost, Layout, StoreArrayStatus, StoreDevice, StoreLoads, StoreMemberState};
use firndb_console::output::write_json;
use firndb_console::{Failure, interrupt, progress, say, size, table};
use serde_json::json;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// What to do with the store's devices.
#[derive(Debug, Subcommand)]
pub enum Array {
    /// Show the store's devices and how many could be lost; changes and recovers nothing
    Status(StatusArgs),
    /// Put another device into the place of one, and fill it from the others
    Replace(Replace),
    /// Show how the pages of each table are fragmented over the devices, or have those of one
    /// fragmented otherwise
    Layout(LayoutArgs),
    /// Read everything on all devices and mend what is wrong; exit status 1 if something cannot be
    Scrub(Scrub),
}

/// `firn array replace`.
#[derive(Args, Debug)]
pub struct Replace {
    /// The database's directory
    pub dir: PathBuf,
    /// The device's number, as `firn array status` shows it
    #[arg(value_name = "N")]
    pub member: usize,
    /// The new device: a file that is made, or an empty file or raw device; a relative path counts
    /// from the database's directory
    pub path: PathBuf,
}

/// `firn array scrub`.
#[derive(Args, Debug)]
pub struct Scrub {
    /// The database's directory
    pub dir: PathBuf,
}

/// `firn array layout`.
#[derive(Args, Debug)]
pub struct LayoutArgs {
    /// The database's directory
    pub dir: PathBuf,
    /// The table
    #[arg(requires = "layout")]
    pub table: Option<String>,
    /// M:W: each page becomes W fragments, any M of which give it back; "store": as the store;
    /// "auto": by the table's load, while the database is in use
    pub layout: Option<String>,
    /// Leave the pages that there are, which move when they are written
    #[arg(long)]
    pub no_move: bool,
}

pub fn run(command: &Array) -> Result<(), Failure> {
    match command {
        Array::Status(args) => status(args),
        Array::Replace(args) => replace(args),
        Array::Scrub(args) => scrub(args),
        Array::Layout(args) => layout(args),
    }
}

fn open(dir: &Path) -> Result<Database, Failure> {
    let options = caches::options().create(false).on_recovery(progress::recovery());
    Ok(options.on_store_event(|event| say!("{}", event.message)).open(dir)?)
}

fn replace(args: &Replace) -> Result<(), Failure> {
    let db = open(&args.dir)?;
    let outcome = match is_being_filled(&db, args) {
        true => Ok(()),
        false => db.replace_store_device(args.member, &args.path).map_err(Failure::from),
    };
    let outcome = outcome.and_then(|()| fill(&db, args.member));
    let status = db.store_array();
    let closed = db.close();
    outcome?;
    closed?;
    let is_whole = status.is_some_and(|status| status.devices[args.member].state == StoreMemberState::InUse);
    if !is_whole {
        return Err(Failure::new("the new device could not be filled: see what is said above"));
    }
    Ok(())
}

/// Whether the device has the place already, and an interrupted command left it to be filled.
fn is_being_filled(db: &Database, args: &Replace) -> bool {
    let Some(status) = db.store_array() else { return false };
    let there = |path: &Path| args.dir.join(path).canonicalize().ok();
    status.devices.get(args.member).is_some_and(|device| {
        device.state == StoreMemberState::Filling && there(device.path.as_ref()) == there(&args.path)
    })
}

/// Fills the device that took a place.
fn fill(db: &Database, member: usize) -> Result<(), Failure> {
    let stop = interrupt::install()?;
    let bar = progress::bar("filling", 0);
    while db.fill_store_device()? {
        let filled = db.store_array().and_then(|status| status.devices[member].filled);
        if let Some((done, all)) = filled {
            bar.set_length(all);
            bar.set_position(done);
        }
        if filled.is_some() && stop.load(Ordering::SeqCst) {
            return Err(Failure::interrupted(
                "stopped: the new device has its place, and is filled while the database is open; the same command \
                 goes on with that",
            ));
        }
    }
    bar.finish_and_clear();
    Ok(())
}

fn layout(args: &LayoutArgs) -> Result<(), Failure> {
    let db = open(&args.dir)?;
    let outcome = match (&args.table, &args.layout) {
        (Some(table), Some(layout)) => change_layout(&db, table, layout, !args.no_move),
        _ => show_layouts(&db),
    };
    let closed = db.close();
    outcome?;
    Ok(closed?)
}

fn show_layouts(db: &Database) -> Result<(), Failure> {
    let layouts: Vec<String> = db.layouts().iter().map(Layout::to_string).collect();
    let Some(own) = layouts.first() else {
        say!("the store is one device, so there are no layouts");
        return Ok(());
    };
    say!("the store is {own}; tables may be {}", layouts.join(", "));
    let mut rows = table::new(&["table", "layout"]);
    for name in db.table_names() {
        let table = db.table(&name)?;
        rows.add_row([name, shown_layout(table.layout()?, table.layout_now()?)]);
    }
    say!("{}", table::text(rows, 2));
    Ok(())
}

fn shown_layout(layout: Layout, now: Layout) -> String {
    if layout == now { layout.to_string() } else { format!("{layout}: {now}") }
}

/// What tables asked of the store, and what was chosen by that.
pub fn print_loads(loads: &StoreLoads) {
    if !loads.tables.is_empty() {
        let mut rows = table::new(&["table", "layout", "pages read", "us each", "written", "us each"]);
        for load in &loads.tables {
            let name = load.table.clone().unwrap_or_else(|| "(no table)".to_owned());
            let us = |us: f64| format!("{us:.0}");
            rows.add_row([
                name,
                shown_layout(load.layout, load.layout_now),
                load.pages_read.to_string(),
                us(load.read_us),
                load.pages_written.to_string(),
                us(load.write_us),
            ]);
        }
        say!("{}", table::text(rows, 2));
    }
    if let Some((read, write)) = &loads.costs {
        let cost = |cost: &FragmentCost| {
            format!("{:.0} us and {:.1} us a KiB ({})", cost.fixed_us, cost.us_per_kib, cost.from)
        };
        say!("    a device takes {} for a read, {} for a write", cost(read), cost(write));
    }
    let moving =
        loads.moving.map_or(String::new(), |(done, all)| format!(", pages are moved: {done} of {all}"));
    if loads.changes + loads.left > 0 || loads.moving.is_some() {
        say!("    {} layouts chosen, {} pages without space for theirs{moving}", loads.changes, loads.left);
    }
}

pub fn loads_json(loads: &StoreLoads) -> serde_json::Value {
    let tables: Vec<_> = loads
        .tables
        .iter()
        .map(|load| {
            json!({
                "table": load.table, "layout": load.layout.to_string(),
                "layout_now": load.layout_now.to_string(),
                "pages_read": load.pages_read, "read_us": load.read_us,
                "pages_written": load.pages_written, "write_us": load.write_us,
            })
        })
        .collect();
    let cost = |cost: &FragmentCost| json!({ "fixed_us": cost.fixed_us, "us_per_kib": cost.us_per_kib, "from": cost.from });
    let costs = loads.costs.as_ref().map(|(read, write)| json!({ "read": cost(read), "write": cost(write) }));
    json!({
        "tables": tables, "costs": costs, "layouts_chosen": loads.changes, "moving": loads.moving,
        "pages_left": loads.left,
    })
}

fn change_layout(db: &Database, name: &str, text: &str, moves: bool) -> Result<(), Failure> {
    let table = db.table(name)?;
    let layout = parse_layout(text)?;
    db.set_layout(&table, layout)?;
    if layout == Layout::Auto {
        say!("the layout of {name:?} follows its load, and is {} now", table.layout_now()?);
        return Ok(());
    }
    if !moves {
        say!("pages of {name:?} will be {} as they are written", table.layout()?);
        return Ok(());
    }
    let stop = interrupt::install()?;
    let bar = progress::bar("moving", 0);
    let moved = db.move_to_layouts(&mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
        if stop.load(Ordering::SeqCst) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    let moved = moved?;
    if !moved.complete {
        return Err(Failure::interrupted(
            "stopped: pages that were moved stay so, others move when they are written; run it again to go on",
        ));
    }
    let left = moved.pages_left;
    say!("pages of {name:?} are {}", table.layout()?);
    if left > 0 {
        say!(
            "{left} pages could not be moved, for lack of space for their layout: run it again, or let them be written"
        );
    }
    Ok(())
}

fn parse_layout(text: &str) -> Result<Layout, Failure> {
    let counts = text.split_once(':').and_then(|(m, w)| Some((m.parse().ok()?, w.parse().ok()?)));
    match (text, counts) {
        ("store", _) => Ok(Layout::AsStore),
        ("auto", _) => Ok(Layout::Auto),
        (_, Some((needed, written))) => Ok(Layout::fragments(needed, written)),
        _ => Err(Failure::bad_argument(format!(
            "{text:?} is no layout: name one as M:W, like 3:4, or \"store\" or \"auto\""
        ))),
    }
}

fn scrub(args: &Scrub) -> Result<(), Failure> {
    let db = open(&args.dir)?;
    let bar = progress::bar("scrubbing", 0);
    let report = db.scrub(&mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let devices = db.store_array().map_or_else(Vec::new, |status| status.devices);
    let closed = db.close();
    let report = report?;
    closed?;
    report.damage.iter().for_each(|sentence| say!("{sentence}"));
    say!(
        "{} pages read from {} devices; {} fragments and copies mended; {} faults left",
        report.pages,
        devices.len() - report.devices_left_out.len(),
        report.repairs,
        report.faults
    );
    for &member in &report.devices_left_out {
        let device = &devices[member];
        say!("device {member}, {}, was not read: it is {}", device.path, device.state.name());
    }
    match (report.faults, report.devices_left_out.is_empty()) {
        (0, true) => Ok(()),
        (0, false) => Err(Failure::new(
            "not all devices could be read: firn array replace puts others into their places",
        )),
        _ => Err(Failure::new(
            "faults are left, as said above: what is damaged on more devices than may be lost is restored from a \
             backup",
        )),
    }
}

fn status(args: &StatusArgs) -> Result<(), Failure> {
    let Some(status) = firndb::store_status(&args.dir)? else {
        say!("the store is one device: name several when the database is created (store_paths)");
        return match &args.json {
            Some(path) => write_json(path, &json!({ "schema": "firn-array-status/1", "devices": [] })),
            None => Ok(()),
        };
    };
    if let Some(path) = &args.json {
        write_json(path, &as_json(&status))?;
    }
    let mut rows = table::new(&["device", "path", "state", "bytes"]);
    for device in &status.devices {
        rows.add_row([
            device.member.to_string(),
            device.path.clone(),
            device.state.name().to_owned(),
            size::show(device.bytes),
        ]);
    }
    say!("{}\n", table::text(rows, 3));
    for device in &status.devices {
        if let Some(trouble) = &device.trouble {
            say!("device {}: {trouble}", device.member);
        }
    }
    say!("each page is {}; {}", fragments(&status), may_lose(&status));
    Ok(())
}

/// A line for each device of an open database, and what may be lost.
pub fn print(status: &StoreArrayStatus) {
    for device in &status.devices {
        let filled = device.filled.map_or(String::new(), |(done, all)| format!(", {done} of {all} parts"));
        say!(
            "    device {}: {}, {}{filled}; {} reads failed, {} repairs",
            device.member,
            device.path,
            device.state.name(),
            device.failed_reads,
            device.repairs
        );
    }
    say!("    each page is {}; {}", fragments(status), may_lose(status));
}

fn fragments(status: &StoreArrayStatus) -> String {
    match (status.needed, status.written) {
        (1, 1) => "on one device".to_owned(),
        (1, copies) => format!("on {copies} devices"),
        (needed, written) => format!("{written} fragments, of which {needed} give it back"),
    }
}

pub fn may_lose(status: &StoreArrayStatus) -> String {
    let gone = left_out(status).count();
    match status.may_lose {
        0 if gone > status.written - status.needed => "more devices are missing than may be lost".to_owned(),
        0 => "no device can be lost".to_owned(),
        some => format!("{some} could be lost without losing anything"),
    }
}

fn left_out(status: &StoreArrayStatus) -> impl Iterator<Item = &StoreDevice> {
    status.devices.iter().filter(|device| device.state != StoreMemberState::InUse)
}

/// A line for each device of which nothing was read.
pub fn say_left_out(status: &StoreArrayStatus) {
    for device in left_out(status) {
        say!("device {}, {}, was not read: it is {}", device.member, device.path, device.state.name());
    }
}

/// Devices of which nothing was read.
pub fn left_out_json(status: &StoreArrayStatus) -> Vec<serde_json::Value> {
    left_out(status).map(device_json).collect()
}

fn device_json(device: &StoreDevice) -> serde_json::Value {
    json!({
        "member": device.member, "path": device.path, "state": device.state.name(),
        "bytes": device.bytes, "filled": device.filled.map(|(done, _)| done),
        "trouble": device.trouble,
    })
}

pub fn as_json(status: &StoreArrayStatus) -> serde_json::Value {
    let devices: Vec<_> = status.devices.iter().map(device_json).collect();
    json!({
        "schema": "firn-array-status/1",
        "needed": status.needed, "written": status.written, "may_lose": status.may_lose,
        "degraded": status.is_degraded(), "devices": devices,
    })
}
