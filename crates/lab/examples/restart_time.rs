//! Measures on a real directory how soon after a kill a database with the default options commits.
//!
//! `cargo run --release -p firndb-lab --example restart_time -- DIR` kills at random moments:
//! `recovery_time` asks for half a second, and the 95th percentile is to be at most twice that.
//! With `--changes N` each kill comes when `N` rows have changed since a checkpoint: equal work, by
//! which databases of different size (`--rows`), and deltas off and on, can be compared.
//!
//! A child process opens the database in `DIR`, says how long the first commit took from the call
//! on, and changes random rows with eight threads until it is killed.

use clap::{Parser, ValueEnum};
use firndb::{Database, Deltas, Options};
use firndb_base::rng::Rng;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const CLIENTS: u64 = 8;
/// Rows that a transaction changes.
const CHANGED: u64 = 20;
/// Bytes of a row's value.
const VALUE: usize = 300;
/// What a child prints when all its changes are durable.
const READY: &str = "ready";

#[derive(Parser)]
struct Args {
    /// A directory that does not exist.
    dir: PathBuf,
    #[arg(long, default_value_t = 100)]
    kills: u64,
    /// A kill comes at a random moment within these seconds.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Rows of 308 bytes.
    #[arg(long, default_value_t = 200_000)]
    rows: u64,
    /// Each kill comes after a checkpoint and this number of changed rows instead.
    #[arg(long)]
    changes: Option<u64>,
    #[arg(long, value_enum, default_value_t = Written::Whole)]
    pages: Written,
    /// Set for the process that is killed: the seed of its changes.
    #[arg(long, hide = true)]
    child: Option<u64>,
}

/// How pages are written to the store.
#[derive(Clone, Copy, ValueEnum)]
enum Written {
    Whole,
    Deltas,
}

impl Args {
    fn options(&self) -> Options {
        let deltas = match self.pages {
            Written::Whole => Deltas::Off,
            Written::Deltas => Deltas::On,
        };
        Options::new().tuning(|tuning| tuning.deltas(deltas))
    }
}

fn put(db: &Database, row: u64, byte: u8) {
    let table = db.table("t").expect("there");
    db.transact(|tx| tx.put(&table, &row.to_be_bytes(), &[byte; VALUE]).map(drop)).expect("committed");
}

/// One client's transactions: `times` of them, or without end.
fn change(db: &Database, args: &Args, client: u64, seed: u64, times: u64) {
    let (table, mut rng) = (db.table("t").expect("there"), Rng::new(seed * CLIENTS + client));
    for _ in 0..times {
        let rows: Vec<u64> =
            (0..CHANGED).map(|_| rng.below(args.rows / CLIENTS) * CLIENTS + client).collect();
        let value = [rng.below(256) as u8; VALUE];
        db.transact(|tx| {
            rows.iter().try_for_each(|row| tx.put(&table, &row.to_be_bytes(), &value).map(drop))
        })
        .expect("committed");
    }
}

/// Opens the database, commits, reports, and changes rows until it is killed.
fn child(args: &Args, seed: u64) {
    let begun = Instant::now();
    let db = args.options().create(false).open(&args.dir).expect("opens");
    put(&db, seed % args.rows, 7);
    let (report, took) = (db.recovery_report(), begun.elapsed());
    println!("{} {}", took.as_micros(), report.log_bytes);
    if args.changes.is_some() {
        db.finish_recovery().expect("finished");
        db.checkpoint().expect("taken");
    }
    let times = args.changes.map_or(u64::MAX, |changes| changes.div_ceil(CLIENTS * CHANGED));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let db = &db;
            scope.spawn(move || change(db, args, client, seed, times));
        }
    });
    println!("{READY}");
    std::thread::park();
}

fn create(args: &Args) {
    let db = args.options().open(&args.dir).expect("created");
    let table = db.create_table("t").expect("created");
    for from in (0..args.rows).step_by(1000) {
        db.transact(|tx| {
            (from..from + 1000).try_for_each(|row| tx.put(&table, &row.to_be_bytes(), &[1; VALUE]).map(drop))
        })
        .expect("committed");
    }
    drop(table);
    db.close().expect("closed");
}

/// Runs a child until it is killed: the microseconds of its first commit, and bytes of log read.
fn run_and_kill(args: &Args, seed: u64, rng: &mut Rng) -> (u64, u64) {
    let mut running = Command::new(std::env::current_exe().expect("a path"))
        .args(std::env::args_os().skip(1))
        .args(["--child", &seed.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(running.stdout.take().expect("piped")).lines();
    let line = lines.next().expect("a line").expect("text");
    let mut fields = line.split_whitespace().map(|field| field.parse::<u64>().expect("a number"));
    let found = (fields.next().expect("a time"), fields.next().expect("bytes"));
    if args.changes.is_some() {
        assert_eq!(lines.next().expect("a line").expect("text"), READY);
    } else {
        std::thread::sleep(Duration::from_millis(rng.below(1000 * args.seconds)));
    }
    running.kill().expect("killed");
    running.wait().expect("ended");
    found
}

fn bytes_of(dir: &Path) -> u64 {
    let lens = std::fs::read_dir(dir).expect("readable").map(|entry| {
        let entry = entry.expect("readable");
        let metadata = entry.metadata().expect("readable");
        if metadata.is_dir() { bytes_of(&entry.path()) } else { metadata.len() }
    });
    lens.sum()
}

fn main() {
    let args = Args::parse();
    if let Some(seed) = args.child {
        return child(&args, seed);
    }
    create(&args);
    println!("{:.2} GB", bytes_of(&args.dir) as f64 / 1e9);
    let mut rng = Rng::new(1);
    // The first life follows a close.
    let _closed = run_and_kill(&args, 0, &mut rng);
    let mut times = Vec::new();
    for kill in 1..=args.kills {
        times.push(run_and_kill(&args, kill, &mut rng));
        eprint!("\r{kill} of {} kills", args.kills);
        std::io::stderr().flush().expect("written");
    }
    eprintln!();
    times.sort_unstable();
    let show = |what: &str, (us, bytes): (u64, u64)| {
        println!("{what}: {:.3} s, {:.1} MB of log", us as f64 / 1e6, bytes as f64 / 1e6);
    };
    show("median", times[times.len() / 2]);
    show("95th percentile", times[(times.len() * 95).div_ceil(100) - 1]);
    show("largest", times[times.len() - 1]);
}
