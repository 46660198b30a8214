//! `firn compact`: gives the space of deleted rows back to the file system.

use crate::caches;
use crate::json::print_json;
use clap::Args;
use firndb::{CompactPlan, CompactProgress, CompactReport};
use firndb_console::{Failure, interrupt, progress, say, size};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// `firn compact`.
#[derive(Args, Clone, Debug)]
pub struct Compact {
    /// The database's directory
    pub dir: PathBuf,
    /// Only say what would come back
    #[arg(long)]
    pub dry_run: bool,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// Compacts the database, or says what that would give back.
pub fn run(args: &Compact) -> Result<(), Failure> {
    let options = caches::options().create(false).on_recovery(progress::recovery());
    if args.dry_run {
        let db = options.open_read_only(&args.dir)?;
        let plan = db.compact_plan()?;
        match args.json {
            true => print_json(&plan_json(&plan))?,
            false => print_plan(&plan),
        }
        return Ok(db.close()?);
    }
    let db = options.open(&args.dir)?;
    let stop = interrupt::install()?;
    let bar = progress::bar("compacting", 0);
    let report = db.compact(&mut |at| {
        match at {
            CompactProgress::Rows(pages) => bar.set_message(format!("deleted rows, {pages} pages")),
            CompactProgress::Numbers(moved, all) => {
                bar.set_length(all);
                bar.set_position(moved);
                bar.set_message("page numbers");
            }
            CompactProgress::Deltas(pages) => bar.set_message(format!("changes on {pages} pages")),
            CompactProgress::Moving(done, total) => {
                bar.set_length(total);
                bar.set_position(done);
                bar.set_message("pages");
            }
            _ => {}
        }
        if stop.load(Ordering::SeqCst) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    let report = report?;
    if args.json {
        print_json(&report_json(&report))?
    } else {
        print_report(&report)
    }
    db.close()?;
    match report.complete {
        true => Ok(()),
        false => Err(Failure::interrupted("stopped before the end: what was done stays")),
    }
}

fn print_plan(plan: &CompactPlan) {
    say!(
        "of {} of pages on the device {} would come back: {} copied, {} of the page map read",
        size::show(plan.bytes),
        size::show(plan.bytes_back),
        size::show(plan.bytes_copied),
        size::show(plan.bytes_of_map)
    );
    say!(
        "the store's file, {} with holes, would be {} shorter: {} pages get lower numbers, {} keep theirs",
        size::show(plan.file_bytes),
        size::show(plan.file_bytes_back),
        plan.pages_renumbered,
        plan.pages_left
    );
    say!("what deleted rows and small pages hold comes in addition");
    if plan.dropped > 0 {
        say!("{} dropped tables and indexes are not freed yet", plan.dropped);
    }
}

fn plan_json(plan: &CompactPlan) -> Value {
    json!({
        "bytes": plan.bytes, "bytes_back": plan.bytes_back, "bytes_copied": plan.bytes_copied,
        "bytes_of_map": plan.bytes_of_map, "dropped": plan.dropped,
        "file_bytes": plan.file_bytes, "file_bytes_back": plan.file_bytes_back,
        "pages_renumbered": plan.pages_renumbered, "pages_left": plan.pages_left,
    })
}

fn print_report(report: &CompactReport) {
    say!(
        "pages on the device: {} became {}; the store's file: {} became {}",
        size::show(report.bytes.0),
        size::show(report.bytes.1),
        size::show(report.file_bytes.0),
        size::show(report.file_bytes.1)
    );
    say!(
        "{} deleted rows removed, {} pages allocated of {}; {} got lower numbers, {} were copied to empty {} parts of the \
         file, {} changes of pages packed together",
        report.rows_removed,
        report.pages.1,
        report.pages.0,
        report.pages_renumbered,
        report.pages_copied,
        report.groups_emptied,
        report.deltas_gathered
    );
}

fn report_json(report: &CompactReport) -> Value {
    json!({
        "complete": report.complete, "bytes": [report.bytes.0, report.bytes.1],
        "file_bytes": [report.file_bytes.0, report.file_bytes.1], "pages": [report.pages.0, report.pages.1],
        "rows_removed": report.rows_removed, "pages_renumbered": report.pages_renumbered, "pages_copied": report.pages_copied,
        "groups_emptied": report.groups_emptied, "deltas_gathered": report.deltas_gathered,
    })
}
