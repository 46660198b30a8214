//! The file of a bench's results: every measurement, and the figures made of them.
//!
//! A measurement is written as soon as it is made, so that a long run may be stopped and gone on
//! with, and figures may be measured one by one into the same file. The file is replaced as a
//! whole, by a rename. It holds measurements of one commit of the source and of one setting of the
//! bench; those of others are refused.

use super::figure::Figure;
use firndb_console::Failure;
use firndb_workloads::results::Conditions;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Which measurement it is: two with equal keys come to the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// What is measured, for people.
    pub cell: String,
    /// Of all arguments but the seed.
    pub arguments: String,
    /// Where in the bands of estimated parameters: `middle`, `fast` or `slow`.
    pub band: String,
    pub seed: u64,
}

/// The head of the file. The conditions' seconds are the real time that measuring took, all runs
/// into this file together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Head {
    #[serde(flatten)]
    pub conditions: Conditions,
    pub bench: String,
}

/// The file as it is read.
#[derive(Debug, Deserialize)]
pub struct Contents {
    #[serde(flatten)]
    pub head: Head,
    pub rows: Vec<Map<String, Value>>,
    #[serde(default)]
    pub figures: Vec<Figure>,
}

/// The results of a run, kept in a file if there is one.
pub struct Kept {
    path: Option<PathBuf>,
    head: Head,
    found: BTreeMap<Key, Map<String, Value>>,
    /// Raw measurements in real time.
    others: Vec<Value>,
    figures: Vec<Figure>,
    /// When this run began, and the seconds of the file's head then.
    began: (Instant, f64),
}

impl Head {
    pub fn new(bench: &str, conditions: Conditions) -> Head {
        Head { conditions, bench: bench.to_owned() }
    }

    /// An error if results under this head may not stand beside those of `other`.
    fn goes_with(&self, other: &Head, path: &Path) -> Result<(), Failure> {
        let refused = |what: String| {
            let path = path.display();
            Err(Failure::bad_argument(format!("{path}: {what}; give --json another file")))
        };
        if self.bench != other.bench {
            return refused(format!("it holds results of the bench {:?}, not {:?}", other.bench, self.bench));
        }
        let (ours, theirs) = (&self.conditions, &other.conditions);
        if ours.commit != theirs.commit {
            return refused(format!(
                "it holds results of commit {}, and this program is of commit {}: results of two commits are not mixed",
                theirs.commit, ours.commit
            ));
        }
        if (&ours.config, ours.seed) != (&theirs.config, theirs.seed) {
            return refused(format!(
                "it holds results of {} and seed {}, not of {} and seed {}: results of different arguments are not \
                 mixed",
                theirs.config, theirs.seed, ours.config, ours.seed
            ));
        }
        Ok(())
    }
}

impl Contents {
    pub fn read(path: &Path) -> Result<Contents, Failure> {
        let text = std::fs::read(path).map_err(|error| failed(path, &error))?;
        serde_json::from_slice(&text)
            .map_err(|error| Failure::new(format!("{}: not a file of results: {error}", path.display())))
    }
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

impl Kept {
    /// Begins with what the file holds if `resume`; a file that holds results is not overwritten.
    pub fn open(path: Option<&Path>, resume: bool, head: Head) -> Result<Kept, Failure> {
        let mut kept = Kept {
            path: path.map(|path| path.canonicalize().unwrap_or_else(|_| path.to_owned())),
            head,
            found: BTreeMap::new(),
            others: Vec::new(),
            figures: Vec::new(),
            began: (Instant::now(), 0.0),
        };
        let holds = |path: &&Path| std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() > 0);
        let Some(path) = path.filter(holds) else { return Ok(kept) };
        if !resume {
            let path = path.display();
            return Err(Failure::bad_argument(format!(
                "{path}: it exists already; --resume goes on with the results in it, or give --json another file"
            )));
        }
        let contents = Contents::read(path)?;
        kept.head.goes_with(&contents.head, path)?;
        for row in contents.rows {
            let key =
                serde_json::from_value(Value::Object(row.clone())).map_err(|error| failed(path, &error))?;
            kept.found.insert(key, row);
        }
        kept.began.1 = contents.head.conditions.seconds;
        (kept.head, kept.figures) = (contents.head, contents.figures);
        Ok(kept)
    }

    /// Adds those of the figures that are not there, to be written with the first measurement.
    pub fn add_missing(&mut self, figures: Vec<Figure>) {
        for figure in figures {
            if !self.figures.iter().any(|known| known.name() == figure.name()) {
                self.figures.push(figure);
            }
        }
    }

    pub fn get(&self, key: &Key) -> Option<&Map<String, Value>> {
        self.found.get(key)
    }

    /// Adds a measurement, whose fields stand beside those of its key; writes the file.
    pub fn add(&mut self, key: Key, found: Value) -> Result<(), Failure> {
        let row = [serde_json::to_value(&key).map_err(|error| Failure::new(error.to_string()))?, found];
        let mut all = Map::new();
        for part in row {
            let Value::Object(part) = part else { return Err(Failure::new("a measurement has no fields")) };
            for (name, value) in part {
                assert!(all.insert(name, rounded(value)).is_none(), "no field is in the key, too");
            }
        }
        self.found.insert(key, all);
        if self.is_regular() { self.write() } else { Ok(()) }
    }

    /// Adds figures, in place of those of the same names, and writes the file.
    pub fn add_figures(&mut self, figures: &[Figure]) -> Result<(), Failure> {
        for (at, figure) in figures.iter().enumerate() {
            let is_new = figures[..at].iter().all(|other| other.name() != figure.name());
            assert!(is_new, "two figures are named {}: one would replace the other", figure.name());
            self.others.extend(figure.rows.iter().cloned());
            match self.figures.iter_mut().find(|known| known.name() == figure.name()) {
                Some(known) => *known = figure.clone(),
                None => self.figures.push(figure.clone()),
            }
        }
        self.write()
    }

    /// Whether the file can be replaced. A pipe is written once, at the end.
    fn is_regular(&self) -> bool {
        self.path.as_ref().is_some_and(|path| std::fs::metadata(path).map_or(true, |meta| meta.is_file()))
    }

    fn write(&mut self) -> Result<(), Failure> {
        self.head.conditions.seconds = self.began.1 + self.began.0.elapsed().as_secs_f64();
        let Some(path) = &self.path else { return Ok(()) };
        let text = self.text().map_err(|error| failed(path, &error))?;
        if !self.is_regular() {
            return std::fs::write(path, text).map_err(|error| failed(path, &error));
        }
        let mut name = path.clone().into_os_string();
        name.push(".new");
        let new = PathBuf::from(name);
        let written = std::fs::File::create(&new).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.and_then(|()| std::fs::rename(&new, path)).map_err(|error| failed(path, &error))
    }

    /// The file: a line for each measurement, target and comparison, so that two can be compared.
    fn text(&self) -> Result<String, serde_json::Error> {
        let Value::Object(head) = serde_json::to_value(&self.head)? else {
            unreachable!("a structure is an object")
        };
        let mut text = String::from("{\n");
        for (name, value) in head {
            text += &format!(" \"{name}\": {value},\n");
        }
        let rows = self
            .found
            .values()
            .map(serde_json::to_string)
            .chain(self.others.iter().map(serde_json::to_string));
        let targets = self.figures.iter().flat_map(|figure| &figure.targets).map(serde_json::to_string);
        let paper = self.figures.iter().flat_map(|figure| &figure.beside).map(serde_json::to_string);
        let figures = self.figures.iter().map(serde_json::to_string);
        let lists: [(&str, Vec<_>); 4] = [
            ("rows", rows.collect()),
            ("targets", targets.collect()),
            ("paper", paper.collect()),
            ("figures", figures.collect()),
        ];
        for (at, (name, list)) in lists.into_iter().enumerate() {
            let list = list.into_iter().collect::<Result<Vec<String>, _>>()?;
            text +=
                &format!("{} \"{name}\": [\n  {}\n ]", if at > 0 { ",\n" } else { "" }, list.join(",\n  "));
        }
        Ok(text + "\n}\n")
    }
}

/// With its numbers rounded: what is read back is what was found, to the bit.
fn rounded(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            number.as_f64().map(super::figure::round).map_or(Value::Null, Value::from)
        }
        Value::Array(values) => values.into_iter().map(rounded).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, rounded(value))).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn head(commit: &str) -> Head {
        let mut conditions = Conditions::now("firn-bench/1", commit, json!({"quick": true}), 1);
        conditions.started_at = "2009-06-29T00:00:00Z".into();
        Head::new("log", conditions)
    }

    fn key(cell: &str, seed: u64) -> Key {
        Key { cell: cell.into(), arguments: "0".into(), band: "middle".into(), seed }
    }

    #[test]
    fn measurements_are_in_the_file_as_soon_as_they_are_made_and_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results");
        let mut kept = Kept::open(Some(&path), false, head("a")).unwrap();
        kept.add(key("b", 1), json!({"rate": 1.0 / 3.0, "count": 12_345_678})).unwrap();
        let again = Kept::open(Some(&path), true, head("a")).unwrap();
        let found = again.get(&key("b", 1)).unwrap();
        assert_eq!(found, kept.get(&key("b", 1)).unwrap());
        assert_eq!((&found["rate"], &found["count"]), (&json!(0.33333), &json!(12_345_678)));
        assert!(again.get(&key("b", 2)).is_none() && again.get(&key("c", 1)).is_none());
    }

    #[test]
    fn results_of_another_commit_or_of_other_arguments_are_refused_and_none_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results");
        Kept::open(Some(&path), false, head("a")).unwrap().add(key("b", 1), json!({})).unwrap();
        let refused = |resume, head| Kept::open(Some(&path), resume, head).err().unwrap().to_string();
        assert!(refused(false, head("a")).contains("--resume"));
        assert!(refused(true, head("b")).contains("two commits are not mixed"));
        let mut other = head("a");
        other.conditions.config = json!({"quick": false});
        assert!(refused(true, other).contains("different arguments are not mixed"));
        assert!(refused(true, Head { bench: "cache".into(), ..head("a") }).contains("the bench"));
        std::fs::write(&path, "{").unwrap();
        assert!(refused(true, head("a")).contains("not a file of results"));
    }

    #[test]
    fn figures_measured_one_by_one_stand_in_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results");
        for (number, title) in [("5", "five"), ("7", "seven"), ("5", "five again")] {
            let mut kept = Kept::open(Some(&path), true, head("a")).unwrap();
            kept.add_figures(&[Figure::new(number, title)]).unwrap();
        }
        let titles: Vec<String> =
            Contents::read(&path).unwrap().figures.into_iter().map(|figure| figure.title).collect();
        assert_eq!(titles, ["five again", "seven"]);
    }
}
