//! The yardstick: instructions and lock-prefixed instructions of the client's thread, counted by
//! callgrind.
//!
//! A database that lies in DRAM as a whole is read once and warmed up; then each operation runs in
//! a function of its own, and callgrind counts nothing else. Counts do not depend on the load of
//! the machine, so that a change of a few per cent can be seen. What the engine's own threads do in
//! between moves some of them a little, so that a check measures up to three times and takes the
//! lowest. `table.txt` holds the counts of the code as it is checked in: of three measurements the
//! middle ones, since the lowest of a count that varies would make the next check fail by chance.
//!
//! ```sh
//! cargo run --release -p firndb-adapter --example hotpath              # measures, and prints a table
//! cargo run --release -p firndb-adapter --example hotpath -- --check   # fails if a count rose by more than 2 %
//! cargo run --release -p firndb-adapter --example hotpath -- --write   # writes a new table.txt
//! cargo run --release -p firndb-adapter --example hotpath -- --simulate # with misses of caches and branches
//! cargo run --release -p firndb-adapter --example hotpath -- --keep /tmp/counts # keeps the dumps
//! cargo run --release -p firndb-adapter --example hotpath -- --cache # cost of an idle cache
//! cargo run --release -p firndb-adapter --example hotpath -- --deltas # the same, of deltas
//! ```
//!
//! A count that rises is either mended or written down, with the reason, in the commit that changes
//! `table.txt`. Needs valgrind and objdump; where they are missing `--check` says so and succeeds.

mod callgrind;
mod pages;
mod workload;

use callgrind::Counts;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use workload::Tier;

type Error = Box<dyn std::error::Error>;

/// How much the count of an operation may rise before `--check` fails: 2 %.
const RISE_MAX: f64 = 0.02;

/// How often an operation is measured: for `--write`, and for `--check` until no count is too high.
const MEASUREMENTS: usize = 3;

/// The checked-in counts.
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/hotpath/table.txt");

/// What was counted of one operation, each time it ran.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    instructions: f64,
    locked: f64,
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("hotpath: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode, Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["run", dir] => return workload::run(Path::new(dir)).map(|()| ExitCode::SUCCESS),
        [] => print(&measure(false)?),
        ["--simulate"] => print(&measure(true)?),
        ["--keep", dir] => {
            std::fs::create_dir_all(dir)?;
            print(&measure_in(Path::new(dir), false)?);
            println!("the dumps are {dir}/dump.*, in this order: callgrind_annotate shows them by function");
        }
        ["--write"] => {
            let text = render(&middle([measure(false)?, measure(false)?, measure(false)?]))?;
            print!("{text}");
            std::fs::write(TABLE, text)?;
        }
        ["--check"] => return check(),
        ["--cache"] => return idle_cost(Tier::Cache),
        ["--deltas"] => return idle_cost(Tier::Deltas),
        ["run-mix", dir, tier, transactions] => {
            let tier = Tier::by_name(tier).ok_or("no such tier")?;
            workload::run_mix(Path::new(dir), tier, transactions.parse()?)?;
        }
        _ => {
            return Err(
                "usage: hotpath [--check | --write | --simulate | --keep DIR | --cache | --deltas]".into()
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Transactions of the two runs on each database of `--cache` or `--deltas`: between them come
/// automatic checkpoints, as they do.
const IDLE_RUNS: [u64; 2] = [1_000, 21_000];

/// Prints the instructions of a transaction of the mix, of all threads, without what lies below the
/// buffer and with it, where DRAM holds everything.
fn idle_cost(below: Tier) -> Result<ExitCode, Error> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("hotpath: skipped, since valgrind is not installed");
        return Ok(ExitCode::SUCCESS);
    }
    let dir = tempfile::tempdir()?;
    for tier in [Tier::Plain, below] {
        let mut counts = [0; 2];
        for (count, transactions) in counts.iter_mut().zip(IDLE_RUNS) {
            let path = dir.path().join(tier.name());
            workload::load_tpcc(&path, tier)?;
            let path = path.to_str().ok_or("the directory's name is no text")?.to_owned();
            *count = callgrind::count_process(&["run-mix", &path, tier.name(), &transactions.to_string()])?;
            std::fs::remove_dir_all(path)?;
        }
        let more = counts[1].checked_sub(counts[0]).ok_or("more transactions took fewer instructions")?;
        let with = if tier == below { "with" } else { "without" };
        println!("{with}_{} {:.0}", below.name(), more as f64 / (IDLE_RUNS[1] - IDLE_RUNS[0]) as f64);
    }
    Ok(ExitCode::SUCCESS)
}

/// Loads the databases and counts each operation on them.
fn measure(simulate: bool) -> Result<Vec<(String, Counts)>, Error> {
    measure_in(tempfile::tempdir()?.path(), simulate)
}

/// The same in a directory, which keeps databases and dumps.
fn measure_in(dir: &Path, simulate: bool) -> Result<Vec<(String, Counts)>, Error> {
    eprintln!("loading");
    workload::load(dir)?;
    eprintln!("counting (a minute)");
    callgrind::count(dir, simulate)
}

fn row(counts: &Counts) -> Row {
    Row { instructions: counts.each(counts.instructions), locked: counts.each(counts.locked) }
}

fn print(counts: &[(String, Counts)]) {
    println!("{:<24}{:>14}{:>12}", "operation", "instructions", "locked");
    for (name, counted) in counts {
        let Row { instructions, locked } = row(counted);
        println!("{name:<24}{instructions:>14.0}{locked:>12.1}");
        for (event, count) in &counted.others {
            println!("{:<24}{:>14.1}", format!("  {event}"), counted.each(*count));
        }
    }
}

/// The compiler, by which counts are comparable.
fn compiler() -> Result<String, Error> {
    let output = Command::new("rustc").arg("--version").output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn render(rows: &[(String, Row)]) -> Result<String, Error> {
    let mut text = format!("# {}\n# operation, instructions, lock-prefixed instructions\n", compiler()?);
    for (name, Row { instructions, locked }) in rows {
        text.push_str(&format!("{name} {instructions:.0} {locked:.1}\n"));
    }
    Ok(text)
}

/// Reads the checked-in table: the compiler, and the row of each operation.
fn read_table() -> Result<(String, Vec<(String, Row)>), Error> {
    let text = std::fs::read_to_string(PathBuf::from(TABLE))?;
    let compiler =
        text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap_or_default().to_owned();
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let [name, instructions, locked] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(format!("table.txt has a line that is no row: {line}").into());
        };
        rows.push((name.to_owned(), Row { instructions: instructions.parse()?, locked: locked.parse()? }));
    }
    Ok((compiler, rows))
}

/// Compares the counts of now with the checked-in ones.
fn check() -> Result<ExitCode, Error> {
    for tool in ["valgrind", "objdump"] {
        if Command::new(tool).arg("--version").output().is_err() {
            println!("hotpath: skipped, since {tool} is not installed");
            return Ok(ExitCode::SUCCESS);
        }
    }
    let (made_with, expected) = read_table()?;
    if compiler()? != made_with {
        println!("hotpath: skipped, since table.txt was made with {made_with} and this is {}", compiler()?);
        return Ok(ExitCode::SUCCESS);
    }
    let mut counts = measure(false)?;
    let mut worse = rises(&expected, &counts);
    for _ in 1..MEASUREMENTS {
        if !worse.is_empty() {
            counts = least(counts, measure(false)?);
            worse = rises(&expected, &counts);
        }
    }
    print(&counts);
    for line in &worse {
        println!("{line}");
    }
    if worse.is_empty() {
        println!("hotpath: no count rose by more than {:.0} %", RISE_MAX * 100.0);
        return Ok(ExitCode::SUCCESS);
    }
    println!("Mend the cause, or write a new table (--write) and say in the commit why it may cost more.");
    Ok(ExitCode::FAILURE)
}

/// The lower of two measurements, for each count by itself.
fn least(mut one: Vec<(String, Counts)>, other: Vec<(String, Counts)>) -> Vec<(String, Counts)> {
    for ((_, one), (_, other)) in one.iter_mut().zip(other) {
        one.instructions = one.instructions.min(other.instructions);
        one.locked = one.locked.min(other.locked);
    }
    one
}

/// The middle of the measurements, for each count by itself.
fn middle(measured: [Vec<(String, Counts)>; MEASUREMENTS]) -> Vec<(String, Row)> {
    let of = |at: usize, count: fn(Row) -> f64| {
        let mut counts: Vec<f64> = measured.iter().map(|rows| count(row(&rows[at].1))).collect();
        counts.sort_by(f64::total_cmp);
        counts[MEASUREMENTS / 2]
    };
    let names = measured[0].iter().map(|(name, _)| name.clone()).enumerate();
    names
        .map(|(at, name)| {
            (name, Row { instructions: of(at, |row| row.instructions), locked: of(at, |row| row.locked) })
        })
        .collect()
}

/// A sentence for each count that rose too much, and for each operation that the table and the
/// program do not share.
fn rises(expected: &[(String, Row)], counts: &[(String, Counts)]) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, before) in expected {
        let Some((_, counted)) = counts.iter().find(|(other, _)| other == name) else {
            lines.push(format!("{name}: in table.txt, and not measured"));
            continue;
        };
        let now = row(counted);
        for (what, before, now) in
            [("instructions", before.instructions, now.instructions), ("locked", before.locked, now.locked)]
        {
            // Of few locked instructions a single one is more than the limit.
            if now > before * (1.0 + RISE_MAX) + 0.5 {
                lines.push(format!("{name}: {what} rose from {before:.1} to {now:.1}"));
            }
        }
    }
    for (name, _) in counts.iter().filter(|(name, _)| expected.iter().all(|(other, _)| other != name)) {
        lines.push(format!("{name}: measured, and not in table.txt"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(instructions: u64, locked: u64) -> Counts {
        Counts { runs: 10, instructions, locked, others: Vec::new() }
    }

    #[test]
    fn a_count_that_rises_by_more_than_two_per_cent_is_named() {
        let expected = vec![("get".to_owned(), Row { instructions: 1000.0, locked: 10.0 })];
        let now = |instructions, locked| vec![("get".to_owned(), counted(instructions, locked))];
        assert!(rises(&expected, &now(10_000, 100)).is_empty());
        assert!(rises(&expected, &now(10_190, 103)).is_empty());
        assert_eq!(rises(&expected, &now(10_300, 100)), ["get: instructions rose from 1000.0 to 1030.0"]);
        assert_eq!(rises(&expected, &now(10_000, 120)), ["get: locked rose from 10.0 to 12.0"]);
        assert_eq!(rises(&expected, &[]).len(), 1);
        assert_eq!(rises(&[], &now(1, 1)).len(), 1);
        assert_eq!(least(now(10_300, 90), now(10_000, 100)), now(10_000, 90));
    }

    #[test]
    fn the_table_holds_the_middle_of_three_measurements() {
        let now = |instructions, locked| vec![("get".to_owned(), counted(instructions, locked))];
        let rows = middle([now(10_300, 90), now(10_000, 110), now(10_100, 100)]);
        assert_eq!(rows, [("get".to_owned(), Row { instructions: 1010.0, locked: 10.0 })]);
    }
}
