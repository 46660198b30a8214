//! `compare pages`: durable commits of a few random pages each, by one client, to a page file of
//! Firn's in each mode of recovery and to a table of SQLite's whose rows fill a page each.

use crate::command::{Common, median, source_commit, write_json};
use crate::process_io::{ProcessIo, json_for_each};
use crate::targets;
use clap::Args;
use firndb::{Database, Options, PageFile, PageRecovery};
use firndb_workloads::results::{BenchResult, Conditions, Target};
use firndb_workloads::{EngineError, Outcome, wall};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Arguments of `compare pages`.
#[derive(Clone, Debug, Args)]
pub struct PagesArgs {
    #[command(flatten)]
    common: Common,
    /// Pages of 4 KiB in the file.
    #[arg(long, default_value_t = 25_600, value_parser = clap::value_parser!(u64).range(100..))]
    pages: u64,
    /// Different pages of one commit.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100))]
    each: u64,
}

const PAGE: usize = 4096;
/// Bytes of a row of SQLite's: the most, in round numbers, of which one fills a page. In its
/// favour.
const BODY: usize = 4000;
/// As in the other comparisons: SQLite's own 1,000 makes every hundredth commit pay for a
/// checkpoint.
const CHECKPOINT_PAGES: u32 = 10_000;
/// Pages of one transaction that loads.
const BATCH: u64 = 256;
/// Before anything is measured.
const WARM_UP: Duration = Duration::from_secs(1);

const SQLITE: &str = "sqlite";
const ADAPTIVE: &str = "firn-adaptive";
const SHADOW: &str = "firn-shadow";
/// In the order of their turns.
const ENGINES: [(&str, Option<PageRecovery>); 4] = [
    (ADAPTIVE, Some(PageRecovery::Adaptive)),
    ("firn-log", Some(PageRecovery::Log)),
    (SHADOW, Some(PageRecovery::Shadow)),
    (SQLITE, None),
];

/// What keeps pages.
trait Pages {
    /// Makes all of them durable, in one transaction.
    fn put(&mut self, pages: &mut dyn Iterator<Item = (u64, Vec<u8>)>) -> Outcome<()>;
    fn get(&mut self, page: u64) -> Outcome<Vec<u8>>;
}

struct Firn {
    db: Database,
    file: PageFile,
}

impl Firn {
    fn open(dir: &Path, recovery: PageRecovery, cache_bytes: u64) -> Outcome<Firn> {
        let buffer = usize::try_from(cache_bytes).unwrap_or(usize::MAX);
        let options = Options::new().page_size(PAGE).buffer_bytes(buffer);
        let options = options.tuning(|tuning| tuning.page_recovery(recovery));
        let db = options.open(dir.join("db")).map_err(EngineError::fatal)?;
        let file = match db.page_file("pages") {
            Ok(file) => file,
            Err(_) => db.create_page_file("pages").map_err(EngineError::fatal)?,
        };
        Ok(Firn { db, file })
    }
}

impl Pages for Firn {
    fn put(&mut self, pages: &mut dyn Iterator<Item = (u64, Vec<u8>)>) -> Outcome<()> {
        let mut put = || -> Result<(), firndb::Error> {
            let mut tx = self.db.begin();
            for (page, bytes) in &mut *pages {
                tx.put_page(&self.file, page, &bytes)?;
            }
            tx.commit()?;
            Ok(())
        };
        put().map_err(EngineError::fatal)
    }

    fn get(&mut self, page: u64) -> Outcome<Vec<u8>> {
        self.db.snapshot().read_page(&self.file, page).map_err(EngineError::fatal)
    }
}

struct Sqlite(Connection);

fn fatal(error: rusqlite::Error) -> EngineError {
    EngineError::fatal(format_args!("SQLite: {error}"))
}

impl Sqlite {
    fn open(dir: &Path, cache_bytes: u64) -> Outcome<Sqlite> {
        let open = || {
            let connection = Connection::open(dir.join("sqlite.db"))?;
            connection.execute_batch(&format!(
                "PRAGMA page_size = {PAGE}; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
                 PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}; PRAGMA cache_size = -{};
                 CREATE TABLE IF NOT EXISTS pages (n INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;",
                cache_bytes / 1024
            ))?;
            Ok(Sqlite(connection))
        };
        open().map_err(fatal)
    }
}

impl Pages for Sqlite {
    fn put(&mut self, pages: &mut dyn Iterator<Item = (u64, Vec<u8>)>) -> Outcome<()> {
        let mut put = || {
            let transaction = self.0.transaction()?;
            let mut statement =
                transaction.prepare_cached("INSERT OR REPLACE INTO pages (n, body) VALUES (?1, ?2)")?;
            for (page, bytes) in &mut *pages {
                statement.execute((page as i64, &bytes[..BODY]))?;
            }
            drop(statement);
            transaction.commit()
        };
        put().map_err(fatal)
    }

    fn get(&mut self, page: u64) -> Outcome<Vec<u8>> {
        let get = || {
            let mut statement = self.0.prepare_cached("SELECT body FROM pages WHERE n = ?1")?;
            statement.query_row([page as i64], |row| row.get(0))
        };
        get().map_err(fatal)
    }
}

/// What a page holds once it was put this many times.
fn content(page: u64, times: u64) -> Vec<u8> {
    let stamp = (page << 20 | times).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    stamp.to_le_bytes().repeat(PAGE / 8)
}

/// Loads pages where there are none, commits for the time given, reads all back; a row of results.
fn run_one(
    args: &PagesArgs,
    name: &str,
    keeper: &mut dyn Pages,
    round: usize,
    stop: &AtomicBool,
) -> Outcome<Value> {
    let mut times = vec![0u64; args.pages as usize];
    for first in (0..args.pages).step_by(BATCH as usize) {
        let batch = first..args.pages.min(first + BATCH);
        keeper.put(&mut batch.map(|page| (page, content(page, 0))))?;
    }
    let mut state = args.common.seed + round as u64;
    let mut draw = || {
        // splitmix64
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % args.pages
    };
    let (mut began, mut io, mut latencies) = (Instant::now(), None, Vec::new());
    let mut is_warm = false;
    while !stop.load(Ordering::Relaxed) {
        if !is_warm && began.elapsed() >= WARM_UP {
            (is_warm, began, io) = (true, Instant::now(), ProcessIo::now());
        }
        if is_warm && began.elapsed() >= args.common.time() {
            break;
        }
        let mut chosen: Vec<u64> = Vec::new();
        while chosen.len() < args.each as usize {
            let page = draw();
            if !chosen.contains(&page) {
                chosen.push(page);
            }
        }
        let commit = Instant::now();
        keeper.put(&mut chosen.into_iter().map(|page| {
            times[page as usize] += 1;
            (page, content(page, times[page as usize]))
        }))?;
        if is_warm {
            latencies.push(commit.elapsed().as_secs_f64() * 1e6);
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let after = ProcessIo::now();
    for (page, times) in times.iter().enumerate() {
        let found = keeper.get(page as u64)?;
        if found[..] != content(page as u64, *times)[..found.len()] {
            return Err(EngineError::Fatal(format!("{name}: page {page} is not as it was committed")));
        }
    }
    latencies.sort_by(f64::total_cmp);
    let commits = latencies.len();
    let at = |share: f64| latencies.get(((commits as f64 * share) as usize).min(commits.saturating_sub(1)));
    Ok(json!({
        "engine": name, "round": round, "commits": commits, "commits_per_second": commits as f64 / seconds,
        "latency_us": { "p50": at(0.5), "p99": at(0.99), "p999": at(0.999) },
        "process_io": json_for_each(io, after, commits as u64),
    }))
}

fn run_engine(
    args: &PagesArgs,
    (name, recovery): (&str, Option<PageRecovery>),
    round: usize,
    stop: &AtomicBool,
) -> Outcome<Value> {
    let (dir, cache) = (args.common.fresh_for(name)?, args.common.memory_mib << 20);
    match recovery {
        Some(recovery) => {
            let mut firn = Firn::open(&dir, recovery, cache)?;
            let row = run_one(args, name, &mut firn, round, stop)?;
            firn.db.close().map_err(EngineError::fatal)?;
            Ok(row)
        }
        None => run_one(args, name, &mut Sqlite::open(&dir, cache)?, round, stop),
    }
}

/// Runs every engine in turn, in rounds, and shows and writes the results.
pub fn run(args: &PagesArgs, stop: &AtomicBool) -> Outcome<()> {
    let started_at = wall::iso8601(wall::now_us());
    let mut rows: Vec<Value> = Vec::new();
    for round in 0..args.common.rounds {
        for engine in ENGINES {
            if !stop.load(Ordering::Relaxed) {
                rows.push(run_engine(args, engine, round, stop)?);
            }
        }
    }
    let medians = |name: &str, at: &str| {
        let of_engine = rows.iter().filter(|row| row["engine"] == name);
        median(of_engine.filter_map(|row| row.pointer(at)?.as_f64()).collect())
    };
    println!("{:<14}{:>11}{:>9}{:>9}{:>18}", "medians", "commits/s", "p50 us", "p99 us", "B written/commit");
    for (name, _) in ENGINES {
        println!(
            "{name:<14}{:>11.0}{:>9.0}{:>9.0}{:>18.0}",
            medians(name, "/commits_per_second"),
            medians(name, "/latency_us/p50"),
            medians(name, "/latency_us/p99"),
            medians(name, WRITTEN),
        );
    }
    let over = |name: &str, at: &str| match (medians(name, at), medians(SQLITE, at)) {
        (value, other) if value > 0.0 && other > 0.0 => Ok(value / other),
        _ => Err("not measured".to_owned()),
    };
    let targets: Vec<Target> = vec![
        targets::at_least("commits/s, adaptive over SQLite", over(ADAPTIVE, "/commits_per_second"), 1.2),
        targets::at_most("bytes written a commit, shadow over SQLite", over(SHADOW, WRITTEN), 0.6),
    ];
    targets::show(&targets);
    let config = json!({
        "pages": args.pages, "each": args.each, "seconds": args.common.seconds, "rounds": args.common.rounds,
        "memory_mib": args.common.memory_mib, "seed": args.common.seed,
        "sqlite": { "version": rusqlite::version(), "journal_mode": "WAL", "synchronous": "FULL",
                    "wal_autocheckpoint": CHECKPOINT_PAGES, "body_bytes": BODY },
    });
    let mut conditions = Conditions::now("firn-bench/1", source_commit(), config, args.common.seed);
    conditions.started_at = started_at;
    conditions.seconds = args.common.seconds as f64;
    let results = BenchResult { conditions, bench: "pages".into(), rows, targets, paper: vec![] };
    write_json(args.common.json.as_deref(), &results)?;
    args.common.clean_up_named(&ENGINES.map(|(name, _)| name))
}

const WRITTEN: &str = "/process_io/write_bytes_per_transaction";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        args: PagesArgs,
    }

    #[test]
    fn every_engine_has_what_was_committed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("made");
        let given = ["t", "--pages", "200", "--seconds", "0", "--memory-mib", "16", "--dir"];
        let given = given.iter().copied().chain([path.to_str().unwrap()]);
        let args = Only::parse_from(given).args;
        for engine in ENGINES {
            let row = run_engine(&args, engine, 0, &AtomicBool::new(false)).unwrap();
            assert_eq!(row["engine"], engine.0);
        }
        args.common.clean_up_named(&ENGINES.map(|(name, _)| name)).unwrap();
        assert!(!path.exists());
    }
}
