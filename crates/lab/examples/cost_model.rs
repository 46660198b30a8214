//! Measures what Firn's work costs, for `CostModel::FIRN`: TPC-C in memory, commits not waited for,
//! one client.
//!
//! Instructions are counted by Valgrind's callgrind, which is exact and repeatable, for each kind
//! of operation that a transaction asks of the engine, and become time at a stated rate; the same
//! run without Valgrind shows this machine's. Nothing is fitted but scans, whose cost is a constant
//! and a cost for each row: least squares over the kinds of scans that TPC-C makes.
//! `docs/lab/tools/virtual-time.md` tells the method and the figures.
//!
//! ```sh
//! cargo run --release -p firndb-lab --example cost_model          # needs valgrind; some minutes
//! ```

use firndb::{Isolation, Options};
use firndb_adapter::FirnEngine;
use firndb_workloads::tpcc::{
    self, ClientOptions, LoadOptions, Mix, Population, Scale, Terminals, TpccClient, When,
};
use firndb_workloads::{
    Access, Attempt, Client, Commit, CommitMode, Engine, EngineError, IndexId, Outcome, Scan, Schema,
    Session, TableId, Transaction, Visitor,
};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

type Error = Box<dyn std::error::Error>;

/// Transactions of the two runs that are subtracted from each other, so that opening and warming up
/// cancel.
const COUNTED: [u64; 2] = [500, 2500];
/// The same without Valgrind, for the rate of instructions.
const TIMED: [u64; 2] = [20_000, 120_000];
/// Instructions a nanosecond: the stated rate.
const RATE: f64 = 5.0;
/// Commits outstanding.
const WINDOW: usize = 1024;

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => measure(),
        ["run", dir, count] => run(Path::new(dir), count.parse()?),
        _ => Err("usage: cost_model".into()),
    }
}

fn open(dir: &Path) -> Result<FirnEngine, Error> {
    let db = Options::new().buffer_bytes(1 << 30).log(|log| log.devices(1)).open(dir)?;
    Ok(FirnEngine::new(db, tpcc::schema(), Isolation::Snapshot)?)
}

/// What is counted of one run, by kind of operation.
#[derive(Debug, Default)]
struct Run {
    calls: BTreeMap<String, u64>,
    /// Instructions, those below included.
    instructions: BTreeMap<String, f64>,
    /// Rows that each kind of scan has shown.
    rows: BTreeMap<String, u64>,
    /// Of the whole process, in user mode.
    seconds: f64,
}

fn measure() -> Result<(), Error> {
    let scratch = tempfile::tempdir()?;
    let master = scratch.path().join("master");
    let engine = open(&master)?;
    tpcc::load(&engine, &LoadOptions::new(Scale::full(1), 7), &|_| ())?;
    engine.into_database().close()?;

    let counted = |count: u64| child(&master, count, true);
    let timed = |count: u64| child(&master, count, false);
    let (short, long) = (counted(COUNTED[0])?, counted(COUNTED[1])?);
    let transactions = (COUNTED[1] - COUNTED[0]) as f64;
    let total = (long.instructions["all"] - short.instructions["all"]) / transactions;
    let seconds = timed(TIMED[1])?.seconds - timed(TIMED[0])?.seconds;
    let each_ns = seconds * 1e9 / (TIMED[1] - TIMED[0]) as f64;
    println!("{total:.0} instructions a transaction: {:.0} ns at {RATE} a ns", total / RATE);
    println!(
        "this machine: {each_ns:.0} ns of user time a transaction, {:.2} instructions a ns",
        total / each_ns
    );
    println!();
    costs(&long, total);
    Ok(())
}

/// Prints each constant.
fn costs(run: &Run, total: f64) {
    let transactions = COUNTED[1] as f64;
    let calls = |names: &[&str]| names.iter().filter_map(|&name| run.calls.get(name)).sum::<u64>() as f64;
    let spent = |names: &[&str]| names.iter().filter_map(|&name| run.instructions.get(name)).sum::<f64>();
    println!("{:<16}{:>12}{:>16}{:>10}", "operation", "calls/txn", "instr/call", "ns/call");
    let show = |name: &str, calls: f64, spent: f64| {
        let each = if calls > 0.0 { spent / calls } else { 0.0 };
        println!("{name:<16}{:>12.3}{each:>16.0}{:>10.0}", calls / transactions, each / RATE);
    };
    for name in ["get", "get_for_update", "insert", "put", "delete", "commit", "rollback"] {
        show(name, calls(&[name]), spent(&[name]));
    }
    let scans: Vec<(&str, f64, f64, f64)> = run
        .rows
        .iter()
        .map(|(name, &rows)| (name.as_str(), calls(&[name]), rows as f64, spent(&[name])))
        .collect();
    for &(name, count, rows, spent) in &scans {
        show(&format!("{name} ({:.1} rows)", rows / count), count, spent);
    }
    let statements = spent(&["get", "get_for_update", "insert", "put", "delete"])
        + scans.iter().map(|scan| scan.3).sum::<f64>();
    let ends = spent(&["commit", "rollback"]);
    let client = spent(&["client"]) - statements - ends;
    let others = total * transactions - spent(&["client"]).min(total * transactions);
    let (scan, row) = line_through(&scans);
    println!();
    println!("constants of the model, ns:");
    let constant = |name: &str, instructions: f64| println!("  {name:<8}{:>8.0}", instructions / RATE);
    constant("begin", client / transactions);
    constant("read", spent(&["get", "get_for_update"]) / calls(&["get", "get_for_update"]));
    constant("write", spent(&["insert", "put", "delete"]) / calls(&["insert", "put", "delete"]));
    constant("scan", scan);
    constant("row", row);
    constant("commit", (ends + others) / transactions);
    println!("work of a transaction of the standard mix:");
    println!("  reads   {:>8.3}", calls(&["get", "get_for_update"]) / transactions);
    println!("  writes  {:>8.3}", calls(&["insert", "put", "delete"]) / transactions);
    println!("  scans   {:>8.3}", scans.iter().map(|scan| scan.1).sum::<f64>() / transactions);
    println!("  rows    {:>8.3}", scans.iter().map(|scan| scan.2).sum::<f64>() / transactions);
}

/// A constant for a scan and one for a row: least squares of the costs of all kinds, each weighted
/// by its calls.
fn line_through(scans: &[(&str, f64, f64, f64)]) -> (f64, f64) {
    let weight: f64 = scans.iter().map(|scan| scan.1).sum();
    let mean_x = scans.iter().map(|scan| scan.2).sum::<f64>() / weight;
    let mean_y = scans.iter().map(|scan| scan.3).sum::<f64>() / weight;
    let (mut above, mut below) = (0.0, 0.0);
    for &(_, calls, rows, spent) in scans {
        let (x, y) = (rows / calls - mean_x, spent / calls - mean_y);
        above += calls * x * y;
        below += calls * x * x;
    }
    let slope = above / below;
    (mean_y - slope * mean_x, slope)
}

/// Runs `count` transactions in a process of their own on a copy of the database, and reads what
/// was counted.
fn child(master: &Path, count: u64, counted: bool) -> Result<Run, Error> {
    let scratch = tempfile::tempdir()?;
    let dir = scratch.path().join("db");
    std::fs::create_dir(&dir)?;
    for entry in std::fs::read_dir(master)? {
        let entry = entry?;
        std::fs::copy(entry.path(), dir.join(entry.file_name()))?;
    }
    let trace = scratch.path().join("callgrind.out");
    let this = std::env::current_exe()?;
    let mut command = if counted {
        let mut valgrind = Command::new("valgrind");
        valgrind.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", trace.display())).arg(this);
        valgrind
    } else {
        Command::new(this)
    };
    let output = command.arg("run").arg(&dir).arg(count.to_string()).output()?;
    let text = String::from_utf8(output.stdout)?;
    if !output.status.success() {
        return Err(format!("{text}\n{}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let mut run = Run::default();
    for line in text.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["calls", name, count] => drop(run.calls.insert(name.to_owned(), count.parse()?)),
            ["rows", name, count] => drop(run.rows.insert(name.to_owned(), count.parse()?)),
            ["seconds", seconds] => run.seconds = seconds.parse()?,
            _ => {}
        }
    }
    if counted {
        instructions(&trace, &mut run)?;
    }
    Ok(run)
}

/// Reads callgrind's file by its own reader: inclusive costs of the functions of [`counted`].
fn instructions(trace: &Path, run: &mut Run) -> Result<(), Error> {
    let annotate = Command::new("callgrind_annotate")
        .args(["--inclusive=yes", "--threshold=100"])
        .arg(trace)
        .output()?;
    for line in String::from_utf8_lossy(&annotate.stdout).lines() {
        let Some(number) =
            line.split_whitespace().next().and_then(|number| number.replace(',', "").parse::<f64>().ok())
        else {
            continue;
        };
        if line.contains("PROGRAM TOTALS") {
            run.instructions.insert("all".to_owned(), number);
        }
        let Some((_, name)) = line.split_once("counted::") else { continue };
        let name = name.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
        // A function may be listed for several objects; the largest is the whole.
        let most = run.instructions.entry(name.to_owned()).or_default();
        *most = most.max(number);
    }
    if run.instructions.len() < 8 {
        return Err("callgrind_annotate names none of the counted functions".into());
    }
    Ok(())
}

/// The child: opens the database, reads all of it, runs transactions, prints how often it called
/// what.
fn run(dir: &Path, count: u64) -> Result<(), Error> {
    let engine = open(dir)?;
    tpcc::check(&engine, When::AfterLoad)?;
    let population = Population::of(&engine)?.ok_or("no population")?;
    let counted = Counted { inner: engine };
    let options = ClientOptions { mix: Mix::default(), terminals: Terminals::Drawn, seed: 7 };
    let client = TpccClient::new(&counted, population, &options, 0)?;
    let before = user_seconds()?;
    counted::client(client, count)?;
    println!("seconds {}", user_seconds()? - before);
    for (name, (calls, rows)) in TALLY.lock().map_err(|_| "poisoned")?.iter() {
        println!("calls {name} {calls}");
        if name.starts_with("scan") {
            println!("rows {name} {rows}");
        }
    }
    counted.inner.into_database().close()?;
    Ok(())
}

/// User time of this process so far. The unit is a hundredth of a second on all Linux systems.
fn user_seconds() -> Result<f64, Error> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let behind_name = stat.rsplit_once(')').ok_or("no name in /proc/self/stat")?.1;
    Ok(behind_name.split_whitespace().nth(11).ok_or("no user time")?.parse::<f64>()? / 100.0)
}

/// Calls and rows by name. Counted by one thread, outside of what is counted by callgrind.
static TALLY: Mutex<BTreeMap<&str, (u64, u64)>> = Mutex::new(BTreeMap::new());

fn tally(name: &'static str, rows: u64) {
    let mut tally = TALLY.lock().expect("one thread");
    let entry = tally.entry(name).or_default();
    (entry.0, entry.1) = (entry.0 + 1, entry.1 + rows);
}

/// The functions that callgrind tells apart: none is inlined, and no two are alike.
mod counted {
    use super::*;
    use firndb_adapter::FirnTransaction;
    use std::hint::black_box;

    #[inline(never)]
    pub fn client<C: Client>(mut client: C, count: u64) -> Result<(), Error> {
        let mut outstanding = VecDeque::new();
        for _ in 0..count {
            client.draw();
            loop {
                match client.attempt(CommitMode::Async) {
                    Ok(Attempt::Committed(Commit::Pending(pending))) => outstanding.push_back(pending),
                    Ok(_) => {}
                    Err(EngineError::Retry(_)) => continue,
                    Err(error) => return Err(error.into()),
                }
                break;
            }
            if outstanding.len() >= WINDOW {
                outstanding.pop_front().expect("the window is full").wait()?;
            }
        }
        outstanding.into_iter().try_for_each(|pending| pending.wait())?;
        Ok(())
    }

    macro_rules! statements {
        ($($name:ident($($argument:ident: $type:ty),*) -> $returned:ty;)*) => { $(
            #[inline(never)]
            pub fn $name(inner: &mut FirnTransaction<'_>, $($argument: $type),*) -> Outcome<$returned> {
                inner.$name($($argument),*)
            }
        )* };
    }
    statements! {
        get(table: TableId, key: &[u8], row: &mut Vec<u8>) -> bool;
        get_for_update(table: TableId, key: &[u8], row: &mut Vec<u8>) -> bool;
        insert(table: TableId, key: &[u8], row: &[u8]) -> ();
        put(table: TableId, key: &[u8], row: &[u8]) -> ();
        delete(table: TableId, key: &[u8]) -> bool;
    }

    #[inline(never)]
    pub fn commit(inner: FirnTransaction<'_>, mode: CommitMode) -> Outcome<Commit> {
        inner.commit(mode)
    }
    #[inline(never)]
    pub fn rollback(inner: FirnTransaction<'_>) -> Outcome<()> {
        inner.rollback()
    }

    /// A scan, and by which index if not by the key.
    pub type ScanFn =
        fn(&mut FirnTransaction<'_>, TableId, Option<IndexId>, Scan<'_>, Visitor<'_>) -> Outcome<()>;

    macro_rules! scans {
        ($($name:ident $number:literal)*) => {
            $(
                #[inline(never)]
                pub fn $name(
                    inner: &mut FirnTransaction<'_>,
                    table: TableId,
                    index: Option<IndexId>,
                    scan: Scan<'_>,
                    visit: Visitor<'_>,
                ) -> Outcome<()> {
                    // Equal bodies would be made one function.
                    black_box($number);
                    match index {
                        Some(index) => inner.scan_index(table, index, scan, visit),
                        None => inner.scan(table, scan, visit),
                    }
                }
            )*
            /// One for each kind of scan, with its name.
            pub const SCANS: &[(&str, ScanFn)] = &[$((stringify!($name), $name)),*];
        };
    }
    scans! { scan_0 0 scan_1 1 scan_2 2 scan_3 3 scan_4 4 scan_5 5 scan_6 6 scan_7 7 scan_8 8 scan_9 9 }
}

struct Counted {
    inner: FirnEngine,
}
struct CountedSession<'e> {
    inner: <FirnEngine as Engine>::Session<'e>,
}
struct CountedTransaction<'s> {
    inner: firndb_adapter::FirnTransaction<'s>,
    access: Access,
}

impl Engine for Counted {
    type Session<'e> = CountedSession<'e>;
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn isolation(&self) -> &str {
        self.inner.isolation()
    }
    fn schema(&self) -> &Schema {
        self.inner.schema()
    }
    fn session(&self) -> Outcome<CountedSession<'_>> {
        Ok(CountedSession { inner: self.inner.session()? })
    }
}

impl Session for CountedSession<'_> {
    type Transaction<'s>
        = CountedTransaction<'s>
    where
        Self: 's;
    fn begin(&mut self, access: Access) -> Outcome<CountedTransaction<'_>> {
        tally("begin", 0);
        Ok(CountedTransaction { inner: self.inner.begin(access)?, access })
    }
}

/// Kinds of scans met so far: table, index, and whether the transaction only reads.
static KINDS: Mutex<Vec<(usize, Option<usize>, bool)>> = Mutex::new(Vec::new());

impl CountedTransaction<'_> {
    fn any_scan(
        &mut self,
        table: TableId,
        index: Option<IndexId>,
        scan: Scan<'_>,
        visit: Visitor<'_>,
    ) -> Outcome<()> {
        let kind = (table.0, index.map(|index| index.0), self.access == Access::Read);
        let place = {
            let mut kinds = KINDS.lock().expect("one thread");
            kinds.iter().position(|known| *known == kind).unwrap_or_else(|| {
                kinds.push(kind);
                kinds.len() - 1
            })
        };
        let (name, function) = counted::SCANS[place];
        let mut rows = 0;
        function(&mut self.inner, table, index, scan, &mut |key, row| {
            rows += 1;
            visit(key, row)
        })?;
        tally(name, rows);
        Ok(())
    }
}

impl Transaction for CountedTransaction<'_> {
    fn get(&mut self, table: TableId, key: &[u8], row: &mut Vec<u8>) -> Outcome<bool> {
        tally("get", 0);
        counted::get(&mut self.inner, table, key, row)
    }
    fn get_for_update(&mut self, table: TableId, key: &[u8], row: &mut Vec<u8>) -> Outcome<bool> {
        tally("get_for_update", 0);
        counted::get_for_update(&mut self.inner, table, key, row)
    }
    fn insert(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Outcome<()> {
        tally("insert", 0);
        counted::insert(&mut self.inner, table, key, row)
    }
    fn put(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Outcome<()> {
        tally("put", 0);
        counted::put(&mut self.inner, table, key, row)
    }
    fn delete(&mut self, table: TableId, key: &[u8]) -> Outcome<bool> {
        tally("delete", 0);
        counted::delete(&mut self.inner, table, key)
    }
    fn scan(&mut self, table: TableId, scan: Scan<'_>, visit: Visitor<'_>) -> Outcome<()> {
        self.any_scan(table, None, scan, visit)
    }
    fn scan_index(
        &mut self,
        table: TableId,
        index: IndexId,
        scan: Scan<'_>,
        visit: Visitor<'_>,
    ) -> Outcome<()> {
        self.any_scan(table, Some(index), scan, visit)
    }
    fn commit(self, mode: CommitMode) -> Outcome<Commit> {
        tally("commit", 0);
        counted::commit(self.inner, mode)
    }
    fn rollback(self) -> Outcome<()> {
        tally("rollback", 0);
        counted::rollback(self.inner)
    }
}
