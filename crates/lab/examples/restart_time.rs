//! Measures on a real directory how soon after a kill a database with the default options commits:
//! `recovery_time` asks for half a second, and the 95th percentile is to be at most twice that.
//!
//! `cargo run --release -p firndb-lab --example restart_time DIR [KILLS] [SECONDS]`. A child
//! process opens the database in `DIR`, says how long the first commit took from the call on, and
//! changes random rows with eight threads until it is killed at a random moment.

use firndb::{Database, Options};
use firndb_base::rng::Rng;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROWS: u64 = 200_000;
const CLIENTS: u64 = 8;

fn put(db: &Database, row: u64, byte: u8) {
    let table = db.table("t").expect("there");
    db.transact(|tx| tx.put(&table, &row.to_be_bytes(), &[byte; 300]).map(drop)).expect("committed");
}

/// Opens the database, commits, reports, and changes rows until it is killed.
fn child(dir: &Path, seed: u64) {
    let begun = Instant::now();
    let db = Options::new().create(false).open(dir).expect("opens");
    put(&db, seed % ROWS, 7);
    let (report, took) = (db.recovery_report(), begun.elapsed());
    println!("{} {}", took.as_micros(), report.log_bytes);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let db = &db;
            scope.spawn(move || {
                let (table, mut rng) = (db.table("t").expect("there"), Rng::new(seed * CLIENTS + client));
                loop {
                    let rows: Vec<u64> =
                        (0..20).map(|_| rng.below(ROWS / CLIENTS) * CLIENTS + client).collect();
                    db.transact(|tx| {
                        rows.iter().try_for_each(|row| {
                            tx.put(&table, &row.to_be_bytes(), &[client as u8; 300]).map(drop)
                        })
                    })
                    .expect("committed");
                }
            });
        }
    });
}

fn create(dir: &Path) {
    let db = Options::new().open(dir).expect("created");
    let table = db.create_table("t").expect("created");
    for from in (0..ROWS).step_by(1000) {
        db.transact(|tx| {
            (from..from + 1000).try_for_each(|row| tx.put(&table, &row.to_be_bytes(), &[1; 300]).map(drop))
        })
        .expect("committed");
    }
    drop(table);
    db.close().expect("closed");
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, word, dir, seed] = &args[..]
        && word == "child"
    {
        return child(Path::new(dir), seed.parse().expect("a number"));
    }
    let dir = Path::new(args.get(1).expect("a directory that does not exist")).to_owned();
    let number = |at: usize, usual: u64| args.get(at).map_or(usual, |text| text.parse().expect("a number"));
    let (kills, seconds) = (number(2, 100), number(3, 3));
    create(&dir);
    let mut rng = Rng::new(1);
    let mut times: Vec<(u64, u64)> = Vec::new();
    for kill in 0..=kills {
        let this = std::env::current_exe().expect("a path");
        let mut running = Command::new(this)
            .args(["child".as_ref(), dir.as_os_str(), kill.to_string().as_ref()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut line = String::new();
        let mut out = BufReader::new(running.stdout.take().expect("piped"));
        out.read_line(&mut line).expect("a line");
        let mut fields = line.split_whitespace().map(|field| field.parse::<u64>().expect("a number"));
        let found = (fields.next().expect("a time"), fields.next().expect("bytes"));
        if kill > 0 {
            times.push(found);
        }
        std::thread::sleep(Duration::from_millis(rng.below(1000 * seconds)));
        running.kill().expect("killed");
        running.wait().expect("ended");
    }
    times.sort_unstable();
    let show = |what: &str, (us, bytes): (u64, u64)| {
        println!("{what}: {:.3} s, {:.1} MB of log", us as f64 / 1e6, bytes as f64 / 1e6);
    };
    show("median", times[times.len() / 2]);
    show("95th percentile", times[(times.len() * 95).div_ceil(100) - 1]);
    show("largest", times[times.len() - 1]);
}
