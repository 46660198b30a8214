//! `--cpu`: what the engine's work costs on a simulated machine.

use super::model::{CostModel, STANDARD_MIX};
use serde_json::{Value, json};
use std::fmt;
use std::str::FromStr;

/// New-Orders a minute that FlashLogging's server (two cores, SIGMOD 2009, section 5.1) is taken to
/// do with its ideal log: the geometric mean of [`PAPER_LEAST`] and [`PAPER_MOST`]. The text prints
/// no transaction rate; `docs/lab/tools/virtual-time.md` has the derivation, from the disk's 6 ms a
/// write and from disk-based logging being at 11.2 % to 29.9 % of the ideal.
const PAPER: f64 = 60_000.0;
/// If one client with a disk's log does 29.9 % of the ideal.
const PAPER_LEAST: f64 = 35_000.0;
/// If one client with a disk's log does 11.2 % of the ideal.
const PAPER_MOST: f64 = 103_000.0;
/// Cores of the paper's server.
const PAPER_CORES: f64 = 2.0;

/// How many times Firn's measured cost `paper` is, and the two ends of its estimate.
pub fn paper_factors() -> [(&'static str, f64); 3] {
    let named = [("paper", PAPER), ("paper-slow", PAPER_LEAST), ("paper-fast", PAPER_MOST)];
    named.map(|(name, rate)| (name, CostModel::FIRN.factor_reaching(rate, PAPER_CORES)))
}

/// A setting of the cost model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cpu {
    /// Firn's measured cost, times this factor.
    Firn(f64),
    /// As if a machine with two such cores, on which no commit waits for the log, did this number
    /// of New-Orders a minute: the papers' time. First the name by which it was asked for.
    Paper(&'static str, f64),
    /// The same, with a rate of the user's own, and all cores of the simulated machine.
    Ideal(f64),
}

/// What the argument may be.
const FORMS: &str = "firn, firn*FACTOR, paper, paper-slow, paper-fast, ideal=RATE or free";

impl FromStr for Cpu {
    type Err = String;

    fn from_str(text: &str) -> Result<Cpu, String> {
        let number = |text: &str| {
            let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
            number.filter(|&number| number > 0.0 && (1e-6..=1e9).contains(&number))
        };
        let cpu = match text {
            "firn" => Some(Cpu::Firn(1.0)),
            "free" => Some(Cpu::Firn(0.0)),
            "paper" => Some(Cpu::Paper("paper", PAPER)),
            "paper-slow" => Some(Cpu::Paper("paper-slow", PAPER_LEAST)),
            "paper-fast" => Some(Cpu::Paper("paper-fast", PAPER_MOST)),
            _ => match (text.strip_prefix("firn*"), text.strip_prefix("ideal=")) {
                (Some(factor), _) => number(factor).map(Cpu::Firn),
                (_, Some(rate)) => number(rate).map(Cpu::Ideal),
                _ => None,
            },
        };
        cpu.ok_or_else(|| format!("it is {FORMS}"))
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cpu::Firn(1.0) => f.write_str("firn"),
            Cpu::Firn(0.0) => f.write_str("free"),
            Cpu::Firn(factor) => write!(f, "firn*{factor}"),
            Cpu::Paper(name, _) => f.write_str(name),
            Cpu::Ideal(rate) => write!(f, "ideal={rate}"),
        }
    }
}

impl Cpu {
    /// The costs on a machine of `cores` cores.
    pub fn model(self, cores: u32) -> CostModel {
        match self {
            Cpu::Firn(factor) => CostModel::FIRN.times(factor),
            Cpu::Paper(_, rate) => CostModel::FIRN.reaching(rate, PAPER_CORES),
            Cpu::Ideal(rate) => CostModel::FIRN.reaching(rate, f64::from(cores)),
        }
    }

    /// The setting and its costs, in a sentence.
    pub fn sentence(self, cores: u32) -> String {
        let each = self.model(cores).of(&STANDARD_MIX).as_secs_f64() * 1e6;
        let what = match self {
            Cpu::Firn(0.0) => return "computing is free".to_owned(),
            Cpu::Firn(_) => "Firn's measured cost".to_owned(),
            Cpu::Paper(_, rate) => format!("{rate:.0} New-Orders a minute on 2 cores with an ideal log"),
            Cpu::Ideal(rate) => format!("{rate:.0} New-Orders a minute on {cores} cores with an ideal log"),
        };
        format!("computing costs {each:.0} us a transaction ({self}: {what})")
    }

    /// For result files.
    pub fn json(self, cores: u32) -> Value {
        let costs: serde_json::Map<String, Value> = self
            .model(cores)
            .nanoseconds()
            .into_iter()
            .map(|(name, ns)| (name.to_owned(), json!(ns)))
            .collect();
        let each = self.model(cores).of(&STANDARD_MIX).as_nanos() as u64;
        json!({ "setting": self.to_string(), "costs_ns": costs, "transaction_ns": each })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_shown_alike() {
        for text in ["firn", "free", "firn*2.5", "paper", "paper-slow", "paper-fast", "ideal=12000"] {
            assert_eq!(text.parse::<Cpu>().map(|cpu| cpu.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "2.5", "firn*", "firn*-1", "firn*0", "firn*nan", "ideal=inf", "ideal=x", "Paper"] {
            assert!(text.parse::<Cpu>().is_err_and(|error| error.contains("paper-slow")), "{text}");
        }
    }

    #[test]
    fn the_papers_cost_does_not_depend_on_the_cores_that_are_simulated() {
        let paper = Cpu::Paper("paper", PAPER);
        assert_eq!(paper.model(2), paper.model(16));
        assert_eq!(paper.model(2), Cpu::Ideal(PAPER).model(2));
        assert!(Cpu::Ideal(PAPER).model(4).of(&STANDARD_MIX) > paper.model(4).of(&STANDARD_MIX));
    }
}
