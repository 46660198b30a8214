//! `firn cache`: the flash cache of a database, shown and changed.

use crate::caches;
use crate::status_args::StatusArgs;
use clap::{Args, Subcommand};
use firndb::{CacheKind, CachePolicy, CacheSpec, CacheStatus, Database};
use firndb_console::output::write_json;
use firndb_console::{Failure, progress, say, size};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What to do with the flash cache.
#[derive(Debug, Subcommand)]
pub enum Cache {
    /// Show the flash cache: where it is, of what kind, and whether it is there; changes and
    /// recovers nothing
    Status(StatusArgs),
    /// Put a flash cache to use: a file that is made, or an empty file or raw device
    Attach(Attach),
    /// Write to the store what only the flash cache has, and use it no more; its file is left where
    /// it is
    Detach(Detach),
    /// Make the flash cache larger or smaller; it begins empty
    Resize(Resize),
    /// Detach the flash cache and attach another
    Replace(Attach),
    /// Give up a flash cache that is lost: what only it held is made anew from the store and the
    /// log, if that was kept for it
    Abandon(Detach),
}

/// `firn cache attach` and `firn cache replace`.
#[derive(Args, Debug)]
pub struct Attach {
    /// The database's directory
    pub dir: PathBuf,
    /// Bytes of the cache, for example 40G
    #[arg(value_parser = size::parse)]
    pub bytes: u64,
    /// Where it is to be; a relative path counts from the database's directory
    #[arg(long, value_name = "FILE")]
    pub path: Option<PathBuf>,
    /// What stays and what is evicted: a name from docs/guide/cache.md (keep, gsc, gr, fifo, …)
    #[arg(long, value_parser = policy)]
    pub policy: Option<Policy>,
    /// Pages written and replaced at a time
    #[arg(long, value_name = "PAGES")]
    pub group_pages: Option<usize>,
    /// Send dirty pages to the store at once, too
    #[arg(long)]
    pub write_through: bool,
}

/// `firn cache detach`.
#[derive(Args, Debug)]
pub struct Detach {
    /// The database's directory
    pub dir: PathBuf,
}

/// `firn cache resize`.
#[derive(Args, Debug)]
pub struct Resize {
    /// The database's directory
    pub dir: PathBuf,
    /// Bytes that it is to have
    #[arg(value_parser = size::parse)]
    pub bytes: u64,
}

/// What `--policy` names.
#[derive(Clone, Debug)]
pub enum Policy {
    /// One of Firn's own kind of cache.
    Own(CachePolicy),
    /// Another kind.
    Kind(Arc<dyn CacheKind>),
}

fn policy(text: &str) -> Result<Policy, String> {
    let kind = || caches::kinds().into_iter().find(|kind| kind.name() == text).map(Policy::Kind);
    CachePolicy::named(text)
        .map(Policy::Own)
        .or_else(kind)
        .ok_or_else(|| format!("{text:?} is no policy of a flash cache; docs/guide/cache.md has them"))
}

impl Attach {
    fn spec(&self) -> CacheSpec {
        let mut spec = CacheSpec::new(self.bytes).write_through(self.write_through);
        if let Some(path) = &self.path {
            spec = spec.path(path);
        }
        match &self.policy {
            Some(Policy::Own(policy)) => spec = spec.policy(*policy),
            Some(Policy::Kind(kind)) => spec = spec.kind(kind.clone()),
            None => {}
        }
        if let Some(pages) = self.group_pages {
            spec = spec.group_pages(pages);
        }
        spec
    }
}

pub fn run(command: &Cache) -> Result<(), Failure> {
    match command {
        Cache::Status(args) => status(args),
        Cache::Attach(args) => change(&args.dir, |db, _| db.attach_cache(&args.spec())),
        Cache::Detach(args) => change(&args.dir, |db, progress| db.detach_cache(progress)),
        Cache::Resize(args) => change(&args.dir, |db, progress| db.resize_cache(args.bytes, progress)),
        Cache::Abandon(args) => abandon(&args.dir),
        Cache::Replace(args) => change(&args.dir, |db, progress| db.replace_cache(&args.spec(), progress)),
    }
}

/// Opens the database, has its cache changed, and tells what there is then.
fn change(
    dir: &Path,
    work: impl FnOnce(&Database, &mut dyn FnMut(u64)) -> Result<(), firndb::Error>,
) -> Result<(), Failure> {
    let db = caches::options().create(false).on_recovery(progress::recovery()).open(dir)?;
    let dirty = db.statistics().cache.map_or(0, |cache| cache.pages_dirty);
    let bar = progress::bar("writing pages to the store", dirty);
    let outcome = work(&db, &mut |left| bar.set_position(dirty.saturating_sub(left)));
    bar.finish_and_clear();
    let now = db.cache_status();
    let closed = db.close();
    outcome?;
    closed?;
    show(now.as_ref());
    Ok(())
}

fn abandon(dir: &Path) -> Result<(), Failure> {
    let options =
        caches::options().create(false).cache(|cache| cache.give_up(true)).on_recovery(progress::recovery());
    let db = options.open(dir)?;
    let recovery = db.recovery_report();
    db.close()?;
    say!("{} page changes were repeated from {} of log", recovery.redone, size::show(recovery.log_bytes));
    show(None);
    Ok(())
}

fn status(args: &StatusArgs) -> Result<(), Failure> {
    let status = firndb::cache_status(&args.dir)?;
    if let Some(path) = &args.json {
        write_json(path, &as_json(status.as_ref()))?;
    }
    show(status.as_ref());
    Ok(())
}

fn show(status: Option<&CacheStatus>) {
    let Some(status) = status else { return say!("the database has no flash cache") };
    let shape = status.shape.map_or(String::new(), |shape| {
        format!(
            ", {} for {} pages, {} written at a time",
            size::show(shape.bytes),
            shape.pages,
            shape.group_pages
        )
    });
    let mode = match status.write_through {
        true => "nothing in it is the only copy",
        false => "it holds the only newest copy of pages: it is as precious as the store",
    };
    say!("flash cache {}: {}{shape}, kind {}; {mode}", status.path, status.state.name(), status.kind);
    match status.rebuildable_log_bytes {
        Some(bytes) => {
            say!("if it is lost, it can be rebuilt: {} of log are kept for that", size::show(bytes))
        }
        None if status.write_through => {}
        None => say!("if it is lost, it cannot be rebuilt: no log is kept for that (cache.rebuildable)"),
    }
    if let Some(trouble) = &status.trouble {
        say!("{trouble}");
    }
}

fn as_json(status: Option<&CacheStatus>) -> serde_json::Value {
    let of = |status: &CacheStatus| {
        json!({
            "path": status.path, "state": status.state.name(), "write_through": status.write_through,
            "rebuildable_log_bytes": status.rebuildable_log_bytes, "kind": status.kind,
            "policy": status.policy.map(CachePolicy::name), "trouble": status.trouble,
            "bytes": status.shape.map(|shape| shape.bytes), "pages": status.shape.map(|shape| shape.pages),
            "group_pages": status.shape.map(|shape| shape.group_pages),
        })
    };
    json!({ "schema": "firn-cache-status/1", "cache": status.map(of) })
}
