//! The fault script's grammar: text in, [`Fault`]s out. Pure.
//!
//! ```text
//! script  = clause { ("," | newline) clause }          "#" begins a comment of one line
//! clause  = "stall" TIME "at" TIME
//!         | "eio" [ "reads" | "writes" | "syncs" ] [ SIZE ".." SIZE ] [ "of" FILE ] [ window ]
//!         | "enospc" [ window ]
//!         | "spikes" PERCENT "of" TIME [ window ]
//!         | "power-cut" [ "at" TIME ]
//! window  = [ "from" TIME ] [ "until" TIME ]
//! TIME    = number ( "us" | "ms" | "s" | "m" )         since the mount
//! SIZE    = number [ "k" | "M" | "G" | "T" ] [ "iB" | "B" ]   powers of 1024
//! PERCENT = number "%"
//! FILE    = path from the mount point, in double quotes if it holds blanks or commas
//! ```

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

/// One clause of a script.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The device completes nothing from `at` on, for `length`.
    Stall {
        /// Duration of the stall.
        length: Duration,
        /// Its begin, since the mount.
        at: Duration,
    },
    /// Requests fail with EIO.
    Eio {
        /// The kind of requests that fail.
        operation: Operation,
        /// Bytes of the file; a request that touches one of them fails. Syncs have no range.
        range: Option<Range<u64>>,
        /// Path from the mount point; every file if absent.
        file: Option<PathBuf>,
        /// When requests are affected.
        window: Window,
    },
    /// Nothing more can be allocated.
    Enospc {
        /// When requests are affected.
        window: Window,
    },
    /// Some requests take longer.
    Spikes {
        /// Number of requests that are slow, in a million.
        per_million: u32,
        /// Time added to a request.
        length: Duration,
        /// When requests are affected.
        window: Window,
    },
    /// The power is cut.
    PowerCut {
        /// Time since the mount; at the unmount if absent.
        at: Option<Duration>,
    },
}

/// The requests that a fault affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads, writes and syncs.
    Any,
    /// Reads.
    Reads,
    /// Writes.
    Writes,
    /// fsync, fdatasync.
    Syncs,
}

/// A span of time since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Begin of the span.
    pub from: Duration,
    /// Its end (not within it); for ever if absent.
    pub until: Option<Duration>,
}

impl Window {
    /// Whether `elapsed` lies within.
    #[must_use]
    pub fn holds(&self, elapsed: Duration) -> bool {
        elapsed >= self.from && self.until.is_none_or(|until| elapsed < until)
    }
}

/// Why a script cannot be read, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fault script, line {line}, column {column}: {message}")]
pub struct ScriptError {
    /// Line of the error, from 1.
    pub line: usize,
    /// Column of the error in characters, from 1.
    pub column: usize,
    /// What was expected and what was found.
    pub message: String,
}

/// Reads a script.
///
/// # Errors
/// [`ScriptError`] names the first position that does not match the grammar.
pub fn parse(text: &str) -> Result<Vec<Fault>, ScriptError> {
    let mut words = Words { tokens: tokens(text)?, next: 0, end: place(text, text.len()) };
    let mut faults = Vec::new();
    loop {
        while words.take_separator() {}
        if words.at_end() {
            return Ok(faults);
        }
        faults.push(words.clause()?);
        if !words.at_end() && !words.take_separator() {
            return Err(words.expected("a comma, a new line or the end"));
        }
    }
}

#[derive(Debug)]
struct Token {
    text: String,
    quoted: bool,
    line: usize,
    column: usize,
}

impl Token {
    fn separates(&self) -> bool {
        !self.quoted && (self.text == "," || self.text == "\n")
    }
}

/// Line and column of a byte.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..at];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

fn tokens(text: &str) -> Result<Vec<Token>, ScriptError> {
    let mut tokens = Vec::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let (line, column) = place(text, at);
        let mut push = |text: String, quoted| tokens.push(Token { text, quoted, line, column });
        match c {
            ',' | '\n' => push(c.to_string(), false),
            '#' => while chars.next_if(|(_, c)| *c != '\n').is_some() {},
            '"' => {
                let mut word = String::new();
                loop {
                    match chars.next() {
                        Some((_, '"')) => break,
                        Some((_, c)) if c != '\n' => word.push(c),
                        _ => {
                            let message = "this quote is never closed".to_owned();
                            return Err(ScriptError { line, column, message });
                        }
                    }
                }
                push(word, true);
            }
            c if c.is_whitespace() => {}
            c => {
                let mut word = String::from(c);
                while let Some((_, c)) = chars.next_if(|(_, c)| !c.is_whitespace() && *c != ',' && *c != '#')
                {
                    word.push(c);
                }
                push(word, false);
            }
        }
    }
    Ok(tokens)
}

struct Words {
    tokens: Vec<Token>,
    next: usize,
    end: (usize, usize),
}

impl Words {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }
    fn at_end(&self) -> bool {
        self.peek().is_none()
    }
    fn take_separator(&mut self) -> bool {
        let taken = self.peek().is_some_and(Token::separates);
        self.next += usize::from(taken);
        taken
    }
    /// Consumes the next word if it is this one.
    fn take(&mut self, word: &str) -> bool {
        let taken = self.peek().is_some_and(|token| !token.quoted && token.text.eq_ignore_ascii_case(word));
        self.next += usize::from(taken);
        taken
    }
    fn expected(&self, what: &str) -> ScriptError {
        let (found, (line, column)) = match self.peek() {
            Some(token) if token.text == "\n" && !token.quoted => {
                ("the line ends".to_owned(), (token.line, token.column))
            }
            Some(token) => (format!("{:?} stands there", token.text), (token.line, token.column)),
            None => ("the script ends".to_owned(), self.end),
        };
        ScriptError { line, column, message: format!("expected {what}, but {found}") }
    }
    fn demand(&mut self, word: &str) -> Result<(), ScriptError> {
        if self.take(word) { Ok(()) } else { Err(self.expected(&format!("{word:?}"))) }
    }
    /// Consumes the next word and returns what `read` makes of it.
    fn value<T>(&mut self, what: &str, read: impl Fn(&str) -> Option<T>) -> Result<T, ScriptError> {
        let value = self.peek().filter(|token| !token.separates()).and_then(|token| read(&token.text));
        match value {
            Some(value) => {
                self.next += 1;
                Ok(value)
            }
            None => Err(self.expected(what)),
        }
    }
    fn time(&mut self) -> Result<Duration, ScriptError> {
        self.value("a time such as 5s or 200ms", time)
    }

    fn clause(&mut self) -> Result<Fault, ScriptError> {
        if self.take("stall") {
            let length = self.time()?;
            self.demand("at")?;
            return Ok(Fault::Stall { length, at: self.time()? });
        }
        if self.take("eio") {
            return self.eio();
        }
        if self.take("enospc") {
            return Ok(Fault::Enospc { window: self.window()? });
        }
        if self.take("spikes") {
            let per_million = self.value("a share such as 1%", share)?;
            self.demand("of")?;
            return Ok(Fault::Spikes { per_million, length: self.time()?, window: self.window()? });
        }
        if self.take("power-cut") {
            let at = if self.take("at") { Some(self.time()?) } else { None };
            return Ok(Fault::PowerCut { at });
        }
        Err(self.expected("stall, eio, enospc, spikes or power-cut"))
    }

    fn eio(&mut self) -> Result<Fault, ScriptError> {
        let operation = match () {
            () if self.take("reads") => Operation::Reads,
            () if self.take("writes") => Operation::Writes,
            () if self.take("syncs") => Operation::Syncs,
            () => Operation::Any,
        };
        let mut range = None;
        if self.peek().is_some_and(|token| !token.quoted && token.text.contains("..")) {
            if operation == Operation::Syncs {
                return Err(self.expected("no range, since a sync has none"));
            }
            range = Some(self.value("a range such as 1MiB..2MiB, not empty", sizes)?);
        }
        let file = if self.take("of") {
            Some(self.value("a path from the mount point", |text| {
                let path = text.trim_start_matches('/');
                (!path.is_empty()).then(|| PathBuf::from(path))
            })?)
        } else {
            None
        };
        Ok(Fault::Eio { operation, range, file, window: self.window()? })
    }

    fn window(&mut self) -> Result<Window, ScriptError> {
        let from = if self.take("from") { self.time()? } else { Duration::ZERO };
        let mut until = None;
        if self.take("until") {
            until = Some(self.value("a later time than the one after \"from\"", |text| {
                time(text).filter(|until| *until > from)
            })?);
        }
        Ok(Window { from, until })
    }
}

/// Splits `12.5ms` into its number and its unit.
fn number(text: &str) -> Option<(f64, &str)> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..unit_at].parse().ok()?;
    number.is_finite().then_some((number, &text[unit_at..]))
}

fn time(text: &str) -> Option<Duration> {
    let (number, unit) = number(text)?;
    let seconds = match unit {
        "us" | "µs" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        "m" | "min" => number * 60.0,
        _ => return None,
    };
    // No mount lasts a year; the limit keeps sums of times within range.
    (seconds <= 366.0 * 86_400.0).then(|| Duration::from_secs_f64(seconds))
}

fn share(text: &str) -> Option<u32> {
    let (number, unit) = number(text)?;
    (unit == "%" && number <= 100.0).then_some((number * 1e4).round() as u32)
}

fn size(text: &str) -> Option<u64> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..unit_at].parse().ok()?;
    let unit = text[unit_at..].to_ascii_lowercase();
    let shift = match unit.trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

fn sizes(text: &str) -> Option<Range<u64>> {
    let (from, to) = text.split_once("..")?;
    let range = size(from)?..size(to)?;
    (!range.is_empty()).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn scripts_are_read() {
        let always = Window::default();
        let eio = |operation, range, file: Option<&str>, window| Fault::Eio {
            operation,
            range,
            file: file.map(PathBuf::from),
            window,
        };
        let table: Vec<(&str, Vec<Fault>)> = vec![
            ("", vec![]),
            ("  \n# nothing\n,", vec![]),
            ("stall 5s at 10s", vec![Fault::Stall { length: S(5), at: S(10) }]),
            ("STALL 1.5s AT 2m", vec![Fault::Stall { length: Duration::from_millis(1500), at: S(120) }]),
            ("eio", vec![eio(Operation::Any, None, None, always)]),
            (
                "eio 1MiB..2MiB of db/file from 3s",
                vec![eio(
                    Operation::Any,
                    Some(1 << 20..2 << 20),
                    Some("db/file"),
                    Window { from: S(3), until: None },
                )],
            ),
            ("eio reads of /a", vec![eio(Operation::Reads, None, Some("a"), always)]),
            ("eio writes 0..512", vec![eio(Operation::Writes, Some(0..512), None, always)]),
            (
                "eio syncs of \"a, b # c\" until 1s",
                vec![eio(Operation::Syncs, None, Some("a, b # c"), Window { from: S(0), until: Some(S(1)) })],
            ),
            (
                "enospc from 1s until 2s",
                vec![Fault::Enospc { window: Window { from: S(1), until: Some(S(2)) } }],
            ),
            (
                "spikes 1% of 100ms",
                vec![Fault::Spikes {
                    per_million: 10_000,
                    length: Duration::from_millis(100),
                    window: always,
                }],
            ),
            ("power-cut", vec![Fault::PowerCut { at: None }]),
            (
                "power-cut at 20s, stall 2us at 0s # late\nenospc\n",
                vec![
                    Fault::PowerCut { at: Some(S(20)) },
                    Fault::Stall { length: Duration::from_micros(2), at: S(0) },
                    Fault::Enospc { window: always },
                ],
            ),
        ];
        for (text, faults) in table {
            assert_eq!(parse(text), Ok(faults), "{text:?}");
        }
    }

    #[test]
    fn errors_name_the_place() {
        let table = [
            ("stal 5s at 10s", 1, 1, "\"stal\" stands there"),
            ("stall 5 at 10s", 1, 7, "\"5\" stands there"),
            ("stall 5s", 1, 9, "expected \"at\", but the script ends"),
            ("stall 5s at 10s enospc", 1, 17, "a comma"),
            ("enospc,\n  eio 2M..1M", 2, 7, "not empty"),
            ("eio 1..2 of", 1, 12, "a path"),
            ("eio of ,", 1, 8, "a path"),
            ("eio syncs 1..2", 1, 11, "a sync has none"),
            ("spikes 101% of 1s", 1, 8, "a share"),
            ("spikes 1% 1s", 1, 11, "\"of\""),
            ("enospc from 3s until 2s", 1, 22, "a later time"),
            ("power-cut at\nstall 1s at 1s", 1, 13, "the line ends"),
            ("eio of \"x", 1, 8, "never closed"),
            ("stall 1e9s at 1s", 1, 7, "a time"),
            ("stall 99999999999999s at 1s", 1, 7, "a time"),
            ("eio 1..99999999999999999999 of x", 1, 5, "a range"),
            ("spikes 1% of 1s at 3s", 1, 17, "a comma"),
            ("ä, stall x at 1s", 1, 1, "expected"),
        ];
        for (text, line, column, part) in table {
            let error = parse(text).expect_err(text);
            assert_eq!((error.line, error.column), (line, column), "{text:?}: {error}");
            assert!(error.to_string().contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn windows_end_before_their_end() {
        let window = Window { from: S(1), until: Some(S(2)) };
        for (at, within) in [(0, false), (999, false), (1000, true), (1999, true), (2000, false)] {
            assert_eq!(window.holds(Duration::from_millis(at)), within, "{at} ms");
        }
        assert!(Window::default().holds(Duration::ZERO));
    }
}
