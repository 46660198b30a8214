//! `firn pagefile`: page files of a database, listed, filled from a file and copied to one.

use crate::{caches, inspect};
use clap::{Args, Subcommand};
use firndb::{Database, ErrorKind, PageFile, Transaction};
use firndb_console::{Failure, interrupt, progress, say, size};
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// What to do with page files.
#[derive(Debug, Subcommand)]
pub enum PageFiles {
    /// List the page files of a database, with their lengths
    List(List),
    /// Make a page file of a file. One transaction fills it: after a crash before its end, there
    /// is none of this name or an empty one, and the import can be repeated
    Import(Import),
    /// Write a page file, as it is now, to a file
    Export(Export),
}

/// `firn pagefile list`.
#[derive(Args, Debug)]
pub struct List {
    /// The database's directory
    pub dir: PathBuf,
}

/// `firn pagefile import`.
#[derive(Args, Debug)]
pub struct Import {
    /// The database's directory
    pub dir: PathBuf,
    /// The page file's name
    pub name: String,
    /// What it is to hold, a file or block device: a multiple of the database's page size
    pub file: PathBuf,
    /// Replace the contents of a page file that is there
    #[arg(long)]
    pub replace: bool,
}

/// `firn pagefile export`.
#[derive(Args, Debug)]
pub struct Export {
    /// The database's directory
    pub dir: PathBuf,
    /// The page file's name
    pub name: String,
    /// The file, which must not be there
    pub file: PathBuf,
}

/// `firn pagefile …`.
pub fn run(command: &PageFiles) -> Result<(), Failure> {
    match command {
        PageFiles::List(args) => list(args),
        PageFiles::Import(args) => import(args),
        PageFiles::Export(args) => export(args),
    }
}

fn list(args: &List) -> Result<(), Failure> {
    let db = inspect::look(&args.dir)?;
    let mut tx = db.snapshot();
    let mut listed = 0;
    for name in db.page_file_names() {
        let file = db.page_file(&name)?;
        let pages = file.pages(&mut tx)?;
        say!("{name}: {pages} pages, {}", size::show(pages * file.page_size() as u64));
        listed += 1;
    }
    if listed == 0 {
        say!("{} has no page files", args.dir.display());
    }
    drop(tx);
    Ok(db.close()?)
}

fn import(args: &Import) -> Result<(), Failure> {
    let shown = args.file.display();
    let (source, len) = open_source(&args.file)?;
    let db = caches::options().create(false).on_recovery(progress::recovery()).open(&args.dir)?;
    let page_size = db.statistics().page_size as u64;
    if !len.is_multiple_of(page_size) {
        let padded = len.next_multiple_of(page_size);
        return Err(Failure::new(format!(
            "{shown} has {len} bytes, no multiple of the database's page size of {page_size}: pad it with zeros \
             first (truncate -s {padded} {shown})"
        )));
    }
    let (file, is_new) = match db.create_page_file(&args.name) {
        Ok(file) => (file, true),
        Err(error) if error.kind() == ErrorKind::Exists => {
            let file = db.page_file(&args.name)?;
            // An import that a crash ended leaves an empty one.
            if !args.replace && file.pages(&mut db.snapshot())? > 0 {
                let message = format!("{error}: --replace replaces its contents, another name keeps them");
                return Err(Failure::new(message));
            }
            (file, false)
        }
        Err(error) => return Err(error.into()),
    };
    let filled = fill(&db, &file, source, &args.file, len / page_size);
    drop(file);
    if filled.is_err() && is_new {
        // The first error says more.
        let _ = db.drop_page_file(&args.name);
    }
    let closed = db.close();
    filled?;
    closed?;
    say!("{}: {} pages, {}", args.name, len / page_size, size::show(len));
    Ok(())
}

/// Opens what is to be imported; returns its bytes, too.
///
/// Errors: what has no length that could be relied on, as a pipe or a file of /proc.
fn open_source(path: &Path) -> Result<(File, u64), Failure> {
    let explain = |error: std::io::Error| Failure::new(format!("{}: {error}", path.display()));
    // Before it is opened, which waits for a writer if it is a pipe.
    let kind = std::fs::metadata(path).map_err(explain)?.file_type();
    if kind.is_block_device() {
        let mut source = File::open(path).map_err(explain)?;
        let len = source.seek(SeekFrom::End(0)).map_err(explain)?;
        source.rewind().map_err(explain)?;
        return Ok((source, len));
    }
    if kind.is_file() {
        let mut source = File::open(path).map_err(explain)?;
        let len = source.metadata().map_err(explain)?.len();
        // Files of /proc have bytes and no length.
        if len > 0 || source.read(&mut [0]).map_err(explain)? == 0 {
            return Ok((source, len));
        }
    }
    let shown = path.display();
    Err(Failure::new(format!("{shown} is no regular file or block device: copy it to a file first")))
}

/// Replaces the contents of a page file by those of a file, or changes nothing.
fn fill(db: &Database, file: &PageFile, source: File, path: &Path, pages: u64) -> Result<(), Failure> {
    let stop = interrupt::install()?;
    let mut source = BufReader::with_capacity(1 << 20, source);
    let bar = progress::bar("importing", pages);
    let mut image = vec![0; file.page_size()];
    let mut tx = db.begin();
    tx.set_pages(file, 0)?;
    tx.set_pages(file, pages)?;
    for page in 0..pages {
        source.read_exact(&mut image).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                Failure::new(format!("{} was cut short while it was read", path.display()))
            }
            _ => Failure::new(format!("{}: {error}", path.display())),
        })?;
        // What is zeros is so already.
        if image.iter().any(|byte| *byte != 0) {
            tx.put_page(file, page, &image)?;
        }
        bar.set_position(page);
        if stop.load(Ordering::SeqCst) {
            return Err(Failure::interrupted("stopped: the page file is as it was before"));
        }
    }
    tx.commit()?;
    bar.finish_and_clear();
    Ok(())
}

fn export(args: &Export) -> Result<(), Failure> {
    let db = inspect::look(&args.dir)?;
    let file = db.page_file(&args.name)?;
    let mut tx = db.snapshot();
    let pages = file.pages(&mut tx)?;
    // From here on the file that is made is removed.
    let stop = interrupt::install()?;
    let target = File::create_new(&args.file)
        .map_err(|error| Failure::new(format!("{}: {error}", args.file.display())))?;
    let copied = copy_out(&file, (&mut tx, pages), target, &args.file, stop);
    if copied.is_err() {
        // A part would look like a whole file. The first error says more.
        let _ = std::fs::remove_file(&args.file);
    }
    copied?;
    say!("{}: {pages} pages, {}", args.file.display(), size::show(pages * file.page_size() as u64));
    drop((tx, file));
    Ok(db.close()?)
}

fn copy_out(
    file: &PageFile,
    (tx, pages): (&mut Transaction, u64),
    target: File,
    path: &Path,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let explain = |error: std::io::Error| Failure::new(format!("{}: {error}", path.display()));
    let bar = progress::bar("exporting", pages);
    let mut out = BufWriter::with_capacity(1 << 20, target);
    let mut image = Vec::new();
    for page in 0..pages {
        tx.read_page_into(file, page, &mut image)?;
        out.write_all(&image).map_err(explain)?;
        bar.set_position(page);
        if stop.load(Ordering::SeqCst) {
            return Err(Failure::interrupted("stopped: the file was removed, as a part of it was missing"));
        }
    }
    let target = out.into_inner().map_err(|error| explain(error.into_error()))?;
    target.sync_all().map_err(explain)?;
    bar.finish_and_clear();
    Ok(())
}
