//! Runs the workload under callgrind, and reads what it counted.
//!
//! Callgrind writes one dump after each measured function, with the executions of every
//! instruction. Which of them have a lock prefix (or are an exchange with memory, which locks
//! without one) objdump knows.

use crate::Error;
use crate::workload::measured::NAMES;
use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;

/// The module of the functions that are counted.
const MEASURED: &str = "hotpath::workload::measured::operation::";

/// What one operation cost, all its runs together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    pub runs: u64,
    pub instructions: u64,
    /// Instructions with a lock prefix.
    pub locked: u64,
    /// Other events, by callgrind's names; only where caches and branches are simulated.
    pub others: Vec<(String, u64)>,
}

impl Counts {
    /// Of `total`, the part of one run.
    pub fn each(&self, total: u64) -> f64 {
        total as f64 / self.runs as f64
    }

    fn add(&mut self, other: Counts) {
        self.runs += other.runs;
        self.instructions += other.instructions;
        self.locked += other.locked;
        for ((_, sum), (_, count)) in self.others.iter_mut().zip(other.others) {
            *sum += count;
        }
    }
}

/// Counts every operation on the databases in `dir`, in the order in which they run.
pub fn count(dir: &Path, simulate: bool) -> Result<Vec<(String, Counts)>, Error> {
    let dumps = dir.join("dump");
    let mut command = Command::new("valgrind");
    command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", dumps.display()));
    command.args(["--collect-atstart=no", "--dump-instr=yes", "--compress-strings=no", "--compress-pos=no"]);
    command.arg(format!("--toggle-collect={MEASURED}*"));
    // A pattern is not understood here.
    command.args(NAMES.iter().map(|name| format!("--dump-after={MEASURED}{name}")));
    if simulate {
        command.args(["--cache-sim=yes", "--branch-sim=yes"]);
    }
    let output = command.arg(std::env::current_exe()?).arg("run").arg(dir).output()?;
    let text = String::from_utf8(output.stdout)?;
    if !output.status.success() {
        return Err(format!("{text}\n{}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let mut locked = Locked::default();
    let mut counted: Vec<(String, Counts)> = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let ["counted", name, runs] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(format!("the workload said: {line}").into());
        };
        let mut counts = read_dump(&dumps.with_extension(number.to_string()), &mut locked)?;
        counts.runs = runs.parse()?;
        if counts.instructions == 0 {
            return Err(format!("callgrind counted nothing of {name}").into());
        }
        match counted.last_mut() {
            // Another part of the same operation.
            Some((last, sum)) if last == name => sum.add(counts),
            _ => counted.push((name.to_owned(), counts)),
        }
    }
    Ok(counted)
}

/// Counts the instructions of a whole run with these arguments: all threads, to the end.
pub fn count_process(arguments: &[&str]) -> Result<u64, Error> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    let output = command.arg(std::env::current_exe()?).args(arguments).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{arguments:?} under valgrind: {text}").into());
    }
    collected(&text).ok_or_else(|| format!("callgrind did not say what it counted: {text}").into())
}

/// The number in callgrind's last words, `Collected : 123`.
fn collected(text: &str) -> Option<u64> {
    let line = text.lines().rev().find(|line| line.contains("Collected"))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Reads one dump.
fn read_dump(path: &Path, locked: &mut Locked) -> Result<Counts, Error> {
    let file = std::fs::File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut events: Vec<String> = Vec::new();
    let mut sums: Vec<u64> = Vec::new();
    let mut object = String::new();
    let mut counts = Counts::default();
    let mut is_call = false;
    for line in BufReader::new(file).lines() {
        let line = line?;
        if let Some(names) = line.strip_prefix("events: ") {
            events = names.split(' ').map(str::to_owned).collect();
            sums = vec![0; events.len()];
        } else if let Some(name) = line.strip_prefix("ob=") {
            name.clone_into(&mut object);
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with("0x") {
            // The line after `calls=` is the cost of the callee, which stands with the callee, too.
            if std::mem::take(&mut is_call) {
                continue;
            }
            let mut fields = line.split(' ');
            let address = fields.next().and_then(|field| u64::from_str_radix(&field[2..], 16).ok());
            let address = address.ok_or_else(|| format!("no address in {line:?}"))?;
            fields.next(); // the source line
            for (at, field) in fields.enumerate() {
                let count: u64 = field.parse()?;
                sums[at] += count;
                if at == 0 && locked.contains(&object, address)? {
                    counts.locked += count;
                }
            }
        }
    }
    counts.instructions = sums.first().copied().unwrap_or(0);
    counts.others = events.into_iter().zip(sums).skip(1).collect();
    Ok(counts)
}

/// Addresses of locked instructions, by object.
#[derive(Default)]
struct Locked(HashMap<String, HashSet<u64>>);

impl Locked {
    fn contains(&mut self, object: &str, address: u64) -> Result<bool, Error> {
        if !self.0.contains_key(object) {
            // Code that is in no file (the kernel's) cannot be looked at.
            let found = if Path::new(object).is_file() { disassemble(object)? } else { HashSet::new() };
            self.0.insert(object.to_owned(), found);
        }
        Ok(self.0[object].contains(&address))
    }
}

/// The addresses of an object's locked instructions.
fn disassemble(object: &str) -> Result<HashSet<u64>, Error> {
    let output = Command::new("objdump").args(["-d", "--no-show-raw-insn", object]).output()?;
    if !output.status.success() {
        return Err(format!("objdump {object}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let locked = text.lines().filter_map(|line| {
        let (address, instruction) = line.trim_start().split_once(':')?;
        let instruction = instruction.trim_start();
        let locks = instruction.starts_with("lock ")
            || (instruction.starts_with("xchg ") && instruction.contains('('));
        if locks { u64::from_str_radix(address, 16).ok() } else { None }
    });
    Ok(locked.collect())
}

#[cfg(test)]
mod tests {
    use super::collected;

    #[test]
    fn the_count_is_read_from_callgrinds_last_words() {
        let text = "==1== Events    : Ir\n==1== Collected : 123456\n==1== \n==1== I   refs:      123,456\n";
        assert_eq!(collected(text), Some(123_456));
        assert_eq!(collected("==1== killed"), None);
    }
}
