//! Looking into a database: check, stat, dump.

use crate::args::{Check, Dump, Stat};
use crate::inspect_json::{cache_json, store_json};
use crate::json::print_json;
use crate::tables::{self, TableRows};
use crate::{backup, caches, store_array};
use firndb::{
    BufferStatistics, CacheStatistics, CheckPhase, CheckpointLimit, Database, DumpWhat, Hiding,
    HidingStatistics, ReadRateOrigin, RestartEstimate, Statistics, TierStatistics,
};
use firndb_console::report::recovery_parts_json;
use firndb_console::{Failure, output, progress, say, size};
use serde_json::{Value, json};
use std::io::{BufWriter, Write};
use std::path::Path;

/// Opens what is there and changes nothing: it is recovered in memory, each page as it is looked
/// at, so that one that is damaged is no obstacle before; and nothing moves meanwhile.
pub fn look(dir: &Path) -> Result<Database, Failure> {
    Ok(caches::options().on_recovery(progress::recovery()).open_read_only(dir)?)
}

/// `firn check DIR`.
pub fn check(args: &Check) -> Result<(), Failure> {
    let db = look(&args.dir)?;
    let bar = progress::bar("checking", 0);
    let report = db.check(&mut |phase| match phase {
        CheckPhase::Pages(done, total) => {
            bar.set_length(total);
            bar.set_position(done);
            bar.set_message("pages");
        }
        CheckPhase::Tree(what) => bar.set_message(what),
        CheckPhase::Table(name) => bar.set_message(format!("indexes of {name}")),
        CheckPhase::Log => bar.set_message("log"),
        _ => {}
    })?;
    bar.finish_and_clear();
    let array = db.store_array();
    if args.json {
        print_json(&json!({
            "devices_left_out": array.as_ref().map_or_else(Vec::new, store_array::left_out_json),
            "pages": report.pages, "images": report.images, "cached": report.cached, "trees": report.trees, "entries": report.entries,
            "tables": report.tables, "rows": report.rows, "page_files": report.page_files,
            "file_pages": report.file_pages, "value_pages": report.value_pages,
            "log_records": report.log_records,
            "leaked_pages": report.leaked_pages, "faults": report.faults, "damage": report.damage,
        }))?;
    } else {
        say!(
            "{}: {} pages ({} images read), {} trees with {} entries, {} tables with {} rows, {} page files with {} pages, \
             {} pages of large values, {} log records",
            args.dir.display(),
            report.pages,
            report.images,
            report.trees,
            report.entries,
            report.tables,
            report.rows,
            report.page_files,
            report.file_pages,
            report.value_pages,
            report.log_records
        );
        if report.leaked_pages > 0 {
            say!("{} pages are allocated and belong to nothing; no data is affected", report.leaked_pages);
        }
        report.damage.iter().for_each(|sentence| say!("DAMAGE: {sentence}"));
    }
    db.close()?;
    if let Some(array) = array.filter(|array| array.is_degraded() && !args.json) {
        store_array::say_left_out(&array);
        say!("the store lacks devices, {}: see firn array status", store_array::may_lose(&array));
    }
    if report.is_clean() {
        if !args.json {
            say!("no damage found");
        }
        return Ok(());
    }
    Err(Failure::new(format!("{} faults found in {}", report.faults, args.dir.display())))
}

/// `firn stat DIR`.
pub fn stat(args: &Stat) -> Result<(), Failure> {
    let db = look(&args.dir)?;
    // What it does to the database is shown; what it cannot do is damage.
    let recovered = db.finish_recovery();
    let statistics = db.statistics();
    let rows = tables::rows(&db, &statistics.tables);
    if args.json {
        print_json(&stat_json(&statistics, &rows))?;
    } else {
        print_stat(&args.dir, &statistics, &rows, (db.size_on_devices(), backup::line(&db)));
    }
    db.close()?;
    recovered?;
    let damaged = rows.iter().filter(|table| table.count.is_err()).count();
    match damaged {
        0 => Ok(()),
        some => Err(Failure::new(format!(
            "the rows of {some} of {} tables cannot be counted; firn check {} says what is damaged",
            rows.len(),
            args.dir.display()
        ))),
    }
}

fn print_stat(
    dir: &Path,
    statistics: &Statistics,
    rows: &[TableRows],
    (bytes, archive): (u64, Option<String>),
) {
    say!("database {} in {}", statistics.database, dir.display());
    say!(
        "  opened {} times, pages of {} B, {} on devices",
        statistics.epoch,
        statistics.page_size,
        size::show(bytes)
    );
    print_recovery(statistics);
    let store = &statistics.store;
    say!(
        "  store: {} pages allocated, {} places, {} free; {} in {}; since opening {} pages read in {} requests, {} written",
        store.pages_allocated,
        store.places,
        store.places_free,
        size::show(statistics.store_device.1),
        statistics.store_device.0,
        store.pages_read,
        store.read_requests,
        store.pages_written
    );
    print_map(store);
    statistics.store_array.iter().for_each(store_array::print);
    statistics.store_loads.iter().for_each(store_array::print_loads);
    if store.deltas_taken + store.delta_pages > 0 {
        say!(
            "  deltas: {} delta pages, {} deltas wait; since opening {} pages taken as deltas, {} delta pages written, \
             {} read ({} pages with a second read), {} deltas gathered, {} merged for space, {} for their reads; {} \
             changed pages written whole for their size, {} for what deltas had cost",
            store.delta_pages,
            store.deltas_waiting,
            store.deltas_taken,
            store.delta_pages_written,
            store.delta_pages_read,
            store.reads_with_delta,
            store.deltas_gathered,
            store.deltas_merged,
            store.deltas_merged_for_reads,
            store.whole_for_size,
            store.whole_for_rent
        );
    }
    print_space(store, statistics.page_size);
    if let (Some(cache), Some(kind)) = (&statistics.cache, &statistics.cache_kind) {
        print_cache(cache, kind, statistics.cache_device.as_ref());
    }
    print_buffer(&statistics.buffer, &statistics.store);
    print_log(statistics);
    if let Some(archive) = archive {
        say!("  {archive}");
    }
    for setting in &statistics.settings {
        let reason = if setting.reason.is_empty() { String::new() } else { format!(": {}", setting.reason) };
        say!("  {}: {} ({}{reason})", setting.name, setting.value, setting.origin);
    }
    let (set_aside, count) = &statistics.set_aside;
    if *count > 0 {
        say!("  set aside until the next opening because of damage: {count} pieces of work");
        set_aside.iter().for_each(|entry| say!("    {}: {}", entry.work, entry.cause));
    }
    tables::print(rows);
}

fn print_map(store: &TierStatistics) {
    say!(
        "  page map: {} of DRAM; since opening {} pages ({}) read, {} ({}) written",
        size::show(store.map_memory_bytes),
        store.metadata_pages_read,
        size::show(store.metadata_bytes_read),
        store.metadata_pages_written,
        size::show(store.metadata_bytes_written)
    );
}

/// What the places of the store are used for, and what was written to empty some.
fn print_space(store: &TierStatistics, page_size: usize) {
    let bytes = |places: u64| size::show(places * page_size as u64);
    say!(
        "  space: {} live, {} deltas, {} dead, {} held until log is durable or images are archived, {} free, {} given back; since opening of {} \
         pages written {} were moved to empty {} sparse groups, {} were changes merged",
        bytes(store.places_live()),
        bytes(store.delta_pages),
        bytes(store.places_dead),
        bytes(store.places_held),
        bytes(store.places_free.saturating_sub(store.places_held)),
        bytes(store.places_returned),
        store.pages_written,
        store.images_moved,
        store.groups_emptied,
        store.deltas_merged + store.deltas_merged_for_reads
    );
    if store.discards_failed > 0 {
        say!(
            "  the device refused to take space back {} times since opening and keeps that of {} groups: tried again \
             later, and by firn compact",
            store.discards_failed,
            store.groups_kept
        );
    }
    if store.segments_opened > 0 {
        say!(
            "  segments: {} whole; since opening {} opened, {} emptied, {} places elsewhere",
            store.segments_whole,
            store.segments_opened,
            store.segments_emptied,
            store.places_scattered
        );
    }
}

fn print_buffer(buffer: &BufferStatistics, store: &TierStatistics) {
    say!(
        "  buffer: {} of {} frames in use; since opening {} hits, {} misses, {:.1} pages being read at once on average, \
         {} at most; {} read ahead, {} of them used, {} wasted; {} pages written in {} batches, {} of these by threads \
         that missed, at most {} under way; {} syncs, shared {} times",
        buffer.resident,
        buffer.frames,
        buffer.hits,
        buffer.misses,
        buffer.reads_at_once_mean(),
        buffer.reads_at_once_max,
        buffer.pages_ahead,
        buffer.pages_ahead_used,
        buffer.pages_ahead_wasted,
        buffer.pages_written,
        buffer.batches_written,
        buffer.batches_written_by_misses,
        buffer.batches_under_way_max,
        store.syncs,
        store.syncs_shared
    );
}

fn buffer_json(buffer: &BufferStatistics) -> Value {
    json!({
        "frames": buffer.frames, "resident": buffer.resident, "dirty": buffer.dirty, "hits": buffer.hits,
        "misses": buffer.misses, "evictions": buffer.evictions, "reads_at_once_mean": buffer.reads_at_once_mean(),
        "reads_at_once_max": buffer.reads_at_once_max, "pages_ahead": buffer.pages_ahead,
        "pages_ahead_used": buffer.pages_ahead_used, "pages_ahead_wasted": buffer.pages_ahead_wasted,
        "pages_written": buffer.pages_written, "batches_written": buffer.batches_written,
        "batches_written_by_misses": buffer.batches_written_by_misses,
        "batches_under_way_max": buffer.batches_under_way_max, "cleaner_looks": buffer.cleaner_looks,
    })
}

fn print_recovery(statistics: &Statistics) {
    let recovery = &statistics.recovery;
    say!(
        "  {}: {} of log read, {} changes repeated, {} transactions rolled back, {} prepared",
        if recovery.clean { "had been closed cleanly" } else { "had not been closed" },
        size::show(recovery.log_bytes),
        recovery.redone,
        recovery.losers,
        recovery.prepared
    );
    if let Some((memory, filed)) = statistics.kept_aside.filter(|_| !recovery.clean) {
        say!(
            "  that was done in memory, the files are as they were: {} kept aside, {} of it in a temporary file",
            size::show(memory + filed),
            size::show(filed)
        );
    }
    let cost = recovery.before_transactions();
    say!(
        "  opening took {:.3} s and {} reads: {} of the log, {} of the cache, {} of the store",
        cost.time.as_secs_f64(),
        cost.reads(),
        cost.log_reads,
        cost.cache_reads,
        cost.store_reads
    );
    if recovery.archive_first + recovery.from_archive > 0 {
        say!(
            "  of the log, {} were read from the archive as the faster source, and {} only it had",
            size::show(recovery.archive_first),
            size::show(recovery.from_archive)
        );
    }
}

fn print_log(statistics: &Statistics) {
    let space = &statistics.log_space;
    say!(
        "  log: {} of {} in use, next LSN {}, checkpoint at {}, redo from {}, a checkpoint every {}",
        size::show(space.used_bytes),
        size::show(space.capacity_bytes),
        statistics.log_end,
        statistics.checkpoint.0,
        statistics.checkpoint.1,
        size::show(statistics.checkpoint_interval)
    );
    print_restart(statistics);
    for (name, bytes) in &statistics.log_devices {
        say!("    {name}: {}", size::show(*bytes));
    }
    let array = &statistics.log_array;
    if array.copies > 1 {
        let from = array.redundant_from.map_or("none yet".to_owned(), |lsn| format!("all from LSN {lsn} on"));
        say!("    {} copies wanted, {} now; redundant: {from}", array.copies, array.copies_now);
    }
    print_hiding(&statistics.log.hiding);
}

fn print_restart(statistics: &Statistics) {
    let restart = &statistics.restart;
    say!(
        "  after a crash now: {} of log to read, {:.3} s at {}/s ({}); recovery_time is {:.3} s, and checkpoints are \
         limited by {}",
        size::show(restart.log_bytes),
        restart.time.as_secs_f64(),
        size::show(restart.bytes_per_second),
        rate_origin(restart.rate_from),
        restart.goal.as_secs_f64(),
        match restart.limit {
            CheckpointLimit::RecoveryTime => "it",
            CheckpointLimit::LogBytes => "the log's size or tuning.checkpoint_log_bytes",
            _ => "what they cost: this device is too slow for it",
        }
    );
    if let Some(limit) = restart.writes_wait_from {
        say!(
            "    transactions wait from {:.3} s on (recovery_time_limit), and have for {:.3} s in all",
            limit.as_secs_f64(),
            restart.writes_waited.as_secs_f64()
        );
    }
}

fn rate_origin(origin: ReadRateOrigin) -> &'static str {
    match origin {
        ReadRateOrigin::Recovery => "as recovery took",
        ReadRateOrigin::Profile => "by the profile",
        ReadRateOrigin::Timed => "timed",
        _ => "assumed",
    }
}

fn restart_json(restart: &RestartEstimate) -> Value {
    json!({
        "goal_seconds": restart.goal.as_secs_f64(), "seconds": restart.time.as_secs_f64(),
        "log_bytes": restart.log_bytes, "bytes_per_second": restart.bytes_per_second,
        "rate": rate_origin(restart.rate_from),
        "limit": match restart.limit {
            CheckpointLimit::RecoveryTime => "recovery_time",
            CheckpointLimit::LogBytes => "log_bytes",
            _ => "least_distance",
        },
        "writes_wait_from_seconds": restart.writes_wait_from.map(|limit| limit.as_secs_f64()),
        "writes_waited_seconds": restart.writes_waited.as_secs_f64(),
    })
}

/// Nothing if the log has one device.
fn print_hiding(hiding: &HidingStatistics) {
    if hiding.policy == Hiding::Off {
        return;
    }
    let on = hiding.devices.iter().filter(|device| device.is_on).count();
    say!(
        "  log outliers: hiding {:?}, on for {on} of {} devices; since opening {} noticed, {} written again ({}), {} of \
         them for nothing, {:.1} ms gained",
        hiding.policy,
        hiding.devices.len(),
        hiding.detected,
        hiding.reissued,
        size::show(hiding.reissued_bytes),
        hiding.wasted,
        hiding.gained.as_secs_f64() * 1e3
    );
}

fn hiding_json(hiding: &HidingStatistics) -> Value {
    let devices = hiding.devices.iter().map(|device| {
        json!({"on": device.is_on, "hands_over": device.hands_over, "outliers": device.outliers,
               "usual_us": device.usual.map(|usual| usual.as_secs_f64() * 1e6)})
    });
    json!({
        "policy": format!("{:?}", hiding.policy), "detected": hiding.detected, "reissued": hiding.reissued,
        "wasted": hiding.wasted, "reissued_bytes": hiding.reissued_bytes,
        "gained_us": hiding.gained.as_secs_f64() * 1e6, "devices": devices.collect::<Vec<_>>(),
    })
}

fn print_cache(cache: &CacheStatistics, kind: &str, device: Option<&(String, u64)>) {
    let (name, bytes) = device.map_or(("", 0), |(name, bytes)| (name.as_str(), *bytes));
    say!(
        "  flash cache: {} of {} places in use, {} pages valid, {} of them newer than the store's ({:.0} % duplicates); {} \
         in {name}, kind {kind}{}",
        cache.slots_used,
        cache.slots,
        cache.pages_valid,
        cache.pages_dirty,
        100.0 * cache.duplicate_share(),
        size::show(bytes),
        if cache.write_through { ", write-through" } else { "" }
    );
    say!(
        "    since opening: {} hits in {} requests, {} misses; {} dirty and {} clean pages taken, {} written back, {} second chances",
        cache.hits,
        cache.read_requests,
        cache.misses,
        cache.dirty_enqueued,
        cache.clean_enqueued,
        cache.write_backs,
        cache.second_chances
    );
}

fn stat_json(statistics: &Statistics, rows: &[TableRows]) -> Value {
    let set_aside = statistics.set_aside.0.iter();
    json!({
        "database": statistics.database, "epoch": statistics.epoch, "page_size": statistics.page_size,
        "tables": tables::to_json(rows),
        "set_aside": {
            "count": statistics.set_aside.1,
            "first": set_aside.map(|entry| json!({"work": entry.work, "cause": entry.cause})).collect::<Vec<_>>(),
        },
        "settings": statistics.settings.iter().map(|setting| json!({
            "name": setting.name, "value": setting.value, "origin": setting.origin.to_string(),
            "reason": setting.reason,
        })).collect::<Vec<_>>(),
        "store": store_json(statistics),
        "log": {"capacity_bytes": statistics.log_space.capacity_bytes, "used_bytes": statistics.log_space.used_bytes,
                "end_lsn": statistics.log_end.0, "durable_lsn": statistics.log_durable.0,
                "checkpoint_lsn": statistics.checkpoint.0.0, "redo_start_lsn": statistics.checkpoint.1.0,
                "devices": statistics.log_devices, "hiding": hiding_json(&statistics.log.hiding)},
        "buffer": buffer_json(&statistics.buffer), "cache": statistics.cache.as_ref().map(cache_json),
        "archive": statistics.archive.as_ref().map(|archive| json!({
            "directory": archive.directory, "archived_lsn": archive.archived.map(|lsn| lsn.0),
            "behind_bytes": archive.behind_bytes, "early_writes": archive.early_writes, "failing": archive.failing,
            "gaps": archive.gaps.iter().map(|(from, to)| [from.0, to.0]).collect::<Vec<_>>(),
        })),
        "restart": restart_json(&statistics.restart),
        "recovery": {"clean": statistics.recovery.clean, "log_bytes": statistics.recovery.log_bytes,
                     "archive_first_bytes": statistics.recovery.archive_first,
                     "only_archive_bytes": statistics.recovery.from_archive,
                     "records": statistics.recovery.records, "redone": statistics.recovery.redone,
                     "losers": statistics.recovery.losers,
                     "losers_set_aside": statistics.recovery.losers_set_aside,
                     "pages_set_aside": statistics.recovery.redo.pages_set_aside, "prepared": statistics.recovery.prepared,
                     "complete": statistics.recovery.complete,
                     "seconds": statistics.recovery.before_transactions().time.as_secs_f64(),
                     "parts": recovery_parts_json(&statistics.recovery),
                     "reads": {"log": statistics.recovery.before_transactions().log_reads,
                               "cache": statistics.recovery.before_transactions().cache_reads,
                               "store": statistics.recovery.before_transactions().store_reads}},
    })
}

/// `firn dump DIR`.
pub fn dump(args: &Dump) -> Result<(), Failure> {
    let what = match (args.log, args.page, &args.table) {
        (true, ..) => DumpWhat::Log,
        (_, Some(page), _) => DumpWhat::Page(page),
        (_, _, Some(table)) if args.raw => DumpWhat::RawTable(table.clone()),
        (_, _, Some(table)) => DumpWhat::Table(table.clone()),
        _ => DumpWhat::Catalog,
    };
    let db = look(&args.dir)?;
    let mut out = BufWriter::new(output::Out);
    let dumped = db.dump(&what, &mut out).map_err(Failure::from);
    // Remembered, as what it is asked to write below.
    let _ = out.flush();
    // What is left was refused already.
    drop(out.into_parts());
    db.close()?;
    // Output that failed is reported when the command ends; `firn dump DIR --log | head` has seen
    // what it wanted.
    if output::is_troubled() { Ok(()) } else { dumped }
}
