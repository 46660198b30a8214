//! What a child tells its parent through a pipe: one short line for each commit, after the commit
//! returned.
//!
//! Lines are shorter than the size up to which a pipe's writes are whole (`PIPE_BUF`), so a killed
//! child leaves no half line, and what it wrote is still read after its death.

use firndb_console::Failure;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};

/// Kinds of TPC-C transactions that are counted: places in `firndb_workloads::tpcc::KINDS`.
const KINDS: usize = firndb_workloads::tpcc::KINDS.len();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Everything is there to run on; sent once, after what was made for it is durable.
    Ready,
    /// Transfer `number` of `client` is durable.
    Transfer { client: u16, number: u64 },
    /// A TPC-C transaction of a kind (a place in `KINDS`) is durable.
    Tpcc { kind: usize },
}

impl Message {
    fn line(self) -> String {
        match self {
            Message::Ready => "ready\n".to_owned(),
            Message::Transfer { client, number } => format!("transfer {client} {number}\n"),
            Message::Tpcc { kind } => format!("tpcc {kind}\n"),
        }
    }

    fn parse(line: &str) -> Option<Message> {
        let mut words = line.strip_suffix('\n')?.split(' ');
        let message = match words.next()? {
            "ready" => Message::Ready,
            "transfer" => {
                Message::Transfer { client: words.next()?.parse().ok()?, number: words.next()?.parse().ok()? }
            }
            "tpcc" => Message::Tpcc { kind: words.next()?.parse().ok().filter(|kind| *kind < KINDS)? },
            _ => return None,
        };
        words.next().is_none().then_some(message)
    }

    /// Sends it on standard output; an error means that the parent has closed the pipe.
    pub fn send(self) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        out.write_all(self.line().as_bytes())?;
        out.flush()
    }
}

/// What was received from all children since the last verification.
#[derive(Clone, Debug)]
pub struct Received {
    /// Whether a child has ever been ready.
    pub ready: bool,
    /// By client: its last transfer known durable.
    pub transfers: Vec<u64>,
    /// By kind of transaction.
    pub tpcc: [u64; KINDS],
    /// Messages of commits.
    pub commits: u64,
}

impl Received {
    pub fn new(clients: u16) -> Received {
        Received { ready: false, transfers: vec![0; usize::from(clients)], tpcc: [0; KINDS], commits: 0 }
    }

    /// Reads until the pipe ends. Meanwhile `commits` shows how many messages of commits there
    /// were, and `ready` how many of [`Message::Ready`].
    pub fn read(&mut self, pipe: impl Read, commits: &AtomicU64, ready: &AtomicU64) -> Result<(), Failure> {
        let mut lines = BufReader::new(pipe);
        let mut line = String::new();
        while lines.read_line(&mut line)? > 0 {
            let message =
                Message::parse(&line).ok_or_else(|| Failure::new(format!("the child wrote {line:?}")))?;
            self.take(message)?;
            let count = if message == Message::Ready { ready } else { commits };
            count.fetch_add(1, Ordering::Release);
            line.clear();
        }
        Ok(())
    }

    fn take(&mut self, message: Message) -> Result<(), Failure> {
        self.commits += u64::from(message != Message::Ready);
        match message {
            Message::Ready => self.ready = true,
            Message::Tpcc { kind } => self.tpcc[kind] += 1,
            Message::Transfer { client, number } => {
                let last = self
                    .transfers
                    .get_mut(usize::from(client))
                    .ok_or_else(|| Failure::new(format!("the child has a client {client}")))?;
                if number <= *last {
                    return Err(Failure::new(format!(
                        "LOST: client {client} had transfer {last} acknowledged, and then ran {number} again"
                    )));
                }
                *last = number;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_sent_and_nothing_else_is() {
        let messages =
            [Message::Ready, Message::Transfer { client: 3, number: 1 << 40 }, Message::Tpcc { kind: 4 }];
        for message in messages {
            assert_eq!(Message::parse(&message.line()), Some(message));
        }
        for line in ["ready", "ready \n", "tpcc 5\n", "tpcc\n", "transfer 1\n", "transfer 70000 1\n", "\n"] {
            assert_eq!(Message::parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn a_transfer_that_runs_twice_after_it_was_acknowledged_was_lost() {
        let mut received = Received::new(1);
        let (count, ready) = (AtomicU64::new(0), AtomicU64::new(0));
        received.read(&b"ready\ntransfer 0 1\ntransfer 0 2\ntpcc 1\n"[..], &count, &ready).unwrap();
        assert_eq!((received.ready, received.transfers[0], received.tpcc[1]), (true, 2, 1));
        assert_eq!((count.load(Ordering::Relaxed), ready.load(Ordering::Relaxed)), (3, 1));
        let again = received.read(&b"transfer 0 2\n"[..], &count, &ready).unwrap_err();
        assert!(again.to_string().starts_with("LOST"), "{again}");
    }
}
