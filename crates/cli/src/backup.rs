//! `firn backup`, `firn restore` and `firn archive`.

use crate::{caches, inspect};
use clap::{Args, Subcommand};
use firndb::{ArchiveSurvey, BackupProgress, BackupReport, Database, Lsn, Options, RestoreTo};
use firndb_console::output::write_json;
use firndb_console::report::backup_sentence;
use firndb_console::{Failure, interrupt, moment, progress, say, size, table};
use serde_json::json;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// `firn backup`.
#[derive(Args, Debug)]
pub struct Backup {
    /// The database's directory; with --verify, a backup's
    pub dir: PathBuf,
    /// Where the backup goes: a directory that is not there yet, or empty
    #[arg(required_unless_present = "verify")]
    pub to: Option<PathBuf>,
    /// Read a backup that is there: all its pages and the log that it needs
    #[arg(long, conflicts_with = "to")]
    pub verify: bool,
    /// Write what happened to this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `firn restore`.
#[derive(Args, Debug)]
pub struct Restore {
    /// The backup to begin with
    #[arg(long, value_name = "BACKUP")]
    pub from: PathBuf,
    /// The archive that was written since; without it, the database as it was when the backup ended
    #[arg(long, value_name = "DIR")]
    pub archive: Option<PathBuf>,
    /// Up to a commit's LSN, or a time in UTC such as 2026-11-20T10:12:00Z [all that was archived]
    #[arg(long, value_name = "LSN|TIME", value_parser = target)]
    pub to: Option<RestoreTo>,
    /// Where the new database goes
    pub new_dir: PathBuf,
    /// Bytes of online log of the new database
    #[arg(long, default_value = "256M", value_parser = size::parse)]
    pub log: u64,
    /// DRAM for pages while it works
    #[arg(long, default_value = "128M", value_parser = size::parse)]
    pub buffer: u64,
    /// Write what happened to this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `firn archive`.
#[derive(Debug, Subcommand)]
pub enum Archive {
    /// List an archive's segments and the log that they hold
    List(ArchiveDir),
    /// Read every record of an archive; exit status 1 if anything is damaged or missing
    Verify(ArchiveDir),
    /// Show how far a database's archive is
    Status(ArchiveStatus),
    /// Let a database do without its archive, which is lost; after a crash, commits that only it
    /// had are given up
    Forget(ArchiveStatus),
}

/// `firn archive list` and `verify`.
#[derive(Args, Debug)]
pub struct ArchiveDir {
    /// The archive's directory
    pub dir: PathBuf,
    /// Write the list to this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `firn archive status`.
#[derive(Args, Debug)]
pub struct ArchiveStatus {
    /// The database's directory
    pub dir: PathBuf,
}

fn target(text: &str) -> Result<RestoreTo, String> {
    if let Ok(lsn) = text.parse() {
        return Ok(RestoreTo::Lsn(Lsn(lsn)));
    }
    moment::parse(text).map(RestoreTo::Time).ok_or_else(|| {
        format!(
            "{text:?} is neither an LSN nor a time in UTC; write for example 123456 or 2026-11-20T10:12:00Z"
        )
    })
}

/// A bar that follows a backup, and stops it after Ctrl-C.
fn follow(stop: &AtomicBool) -> impl FnMut(BackupProgress) -> ControlFlow<()> + '_ {
    let bar = progress::bar("backup", 1);
    move |step| {
        let (message, done, total) = match step {
            BackupProgress::Pages(done, total) => ("copying pages", done, total),
            BackupProgress::Log => ("copying the log", 1, 1),
            BackupProgress::Verifying(done, total) => ("reading it back", done, total),
            _ => ("working", 1, 1),
        };
        bar.set_length(total);
        bar.set_position(done);
        bar.set_message(message);
        if stop.load(Ordering::SeqCst) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// `firn backup DIR TO`.
pub fn backup(args: &Backup) -> Result<(), Failure> {
    let (report, at) = match &args.to {
        None => (firndb::verify_backup(&args.dir, &mut follow(interrupt::install()?))?, &args.dir),
        Some(to) => {
            let db = caches::options().create(false).on_recovery(progress::recovery()).open(&args.dir)?;
            let report = db.backup(to, &mut follow(interrupt::install()?));
            db.close()?;
            (report?, to)
        }
    };
    say!("{}", backup_sentence(&report, at));
    match &args.json {
        Some(path) => write_json(path, &backup_json(&report)),
        None => Ok(()),
    }
}

fn backup_json(report: &BackupReport) -> serde_json::Value {
    json!({
        "schema": "firn-backup/1", "database": report.database, "pages": report.pages,
        "page_bytes": report.page_bytes, "from_lsn": report.from.0, "end_lsn": report.end.0,
        "begun": moment::show(report.times_us.0), "ended": moment::show(report.times_us.1),
    })
}

/// `firn restore`.
pub fn restore(args: &Restore) -> Result<(), Failure> {
    let buffer = usize::try_from(args.buffer).map_err(|_| Failure::bad_argument("--buffer is too large"))?;
    let options =
        Options::new().log(|log| log.bytes(args.log)).buffer_bytes(buffer).on_recovery(progress::recovery());
    let report =
        options.restore(&args.from, args.archive.as_deref(), args.to.unwrap_or_default(), &args.new_dir)?;
    say!(
        "restored database {} to LSN {} in {}: {} pages of the backup, {} changes repeated, {} transactions rolled \
         back, {} prepared",
        report.from_database,
        report.lsn,
        args.new_dir.display(),
        report.pages,
        report.redone,
        report.losers,
        report.prepared
    );
    if report.last_commit_us > 0 {
        say!("the last commit in it was made at {}", moment::show(report.last_commit_us));
    }
    if report.at_end && matches!(args.to, Some(RestoreTo::Time(_))) {
        say!(
            "nothing later was archived: what was committed between then and the time asked for, if anything, is not in it"
        );
    }
    say!("it is a new database with an id of its own; give it an archive of its own, and take a backup");
    match &args.json {
        Some(path) => write_json(
            path,
            &json!({
                "schema": "firn-restore/1", "from_database": report.from_database, "lsn": report.lsn.0,
                "last_commit": moment::show(report.last_commit_us), "at_end": report.at_end,
                "pages": report.pages, "redone": report.redone, "losers": report.losers,
                "prepared": report.prepared,
            }),
        ),
        None => Ok(()),
    }
}

/// `firn archive`.
pub fn archive(command: &Archive) -> Result<(), Failure> {
    match command {
        Archive::List(args) => survey(args, false),
        Archive::Verify(args) => survey(args, true),
        Archive::Status(args) => status(args),
        Archive::Forget(args) => forget(args),
    }
}

fn survey(args: &ArchiveDir, verify: bool) -> Result<(), Failure> {
    let bar = progress::bar("reading the archive", 1);
    let found = firndb::survey_archive(&args.dir, verify, &mut |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    print_survey(&args.dir, &found, verify);
    if let Some(path) = &args.json {
        write_json(path, &survey_json(&found))?;
    }
    let gaps = if verify { found.stretches.len().saturating_sub(1) } else { 0 };
    match found.damage.len() + gaps {
        0 => Ok(()),
        faults => Err(Failure::new(format!("{faults} faults found in {}", args.dir.display()))),
    }
}

fn print_survey(dir: &Path, found: &ArchiveSurvey, verify: bool) {
    let Some(database) = found.database else {
        say!("{}: the archive is empty", dir.display());
        return;
    };
    say!("archive of database {database} in {}", dir.display());
    let mut rows =
        table::new(&["segment", "first LSN", "end LSN", "writes", "images", "from", "to", "sealed"]);
    for segment in &found.segments {
        rows.add_row([
            segment.sequence.to_string(),
            segment.first.to_string(),
            segment.end.to_string(),
            segment.chunks.to_string(),
            segment.images.to_string(),
            moment::show(segment.times_us.0),
            moment::show(segment.times_us.1),
            if segment.sealed { "yes" } else { "no" }.to_owned(),
        ]);
    }
    say!("{}", table::text(rows, 1));
    for (first, end) in &found.stretches {
        say!("log from LSN {first} to {end}");
    }
    for pair in found.stretches.windows(2) {
        say!(
            "GAP: the log from LSN {} to {} is not in the archive; only a backup that ended after it helps",
            pair[0].1,
            pair[1].0
        );
    }
    if verify {
        say!("{} records read", found.records);
    }
    found.damage.iter().for_each(|sentence| say!("DAMAGE: {sentence}"));
}

fn survey_json(found: &ArchiveSurvey) -> serde_json::Value {
    let segments: Vec<serde_json::Value> = found
        .segments
        .iter()
        .map(|segment| {
            json!({
                "path": segment.path, "sequence": segment.sequence, "first_lsn": segment.first.0,
                "end_lsn": segment.end.0, "previous_lsn": segment.previous.0, "chunks": segment.chunks,
                "images": segment.images,
                "from": moment::show(segment.times_us.0), "to": moment::show(segment.times_us.1),
                "sealed": segment.sealed,
            })
        })
        .collect();
    let stretches: Vec<[u64; 2]> = found.stretches.iter().map(|(first, end)| [first.0, end.0]).collect();
    json!({
        "schema": "firn-archive/1", "database": found.database.map(|database| database.to_string()),
        "segments": segments, "stretches": stretches, "records": found.records, "damage": found.damage,
    })
}

fn status(args: &ArchiveStatus) -> Result<(), Failure> {
    let db = inspect::look(&args.dir)?;
    match line(&db) {
        Some(text) => say!("{text}"),
        None => say!("{}: the database has no archive", args.dir.display()),
    }
    Ok(db.close()?)
}

fn forget(args: &ArchiveStatus) -> Result<(), Failure> {
    let options = caches::options().create(false).background_threads(false).on_recovery(progress::recovery());
    options.archive(|archive| archive.forget().lost(true)).open(&args.dir)?.close()?;
    say!("{}: the database has no archive now; give it another, and take a backup", args.dir.display());
    Ok(())
}

/// How a database's archive does, if it has one.
pub fn line(db: &Database) -> Option<String> {
    let archive = db.archive_statistics()?;
    let archived = archive.archived.map_or("nothing".to_owned(), |lsn| format!("up to LSN {lsn}"));
    let mut text = format!(
        "archive: {archived} archived in {}, {} behind",
        archive.directory.display(),
        size::show(archive.behind_bytes)
    );
    for (from, to) in &archive.gaps {
        text += &format!("; GAP from LSN {from} to {to}: take a new backup");
    }
    if let Some(cause) = &archive.failing {
        text += &format!("; FAILING: {cause}");
    }
    Some(text)
}
