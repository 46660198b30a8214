//! A key-value service: a thread for each connection, commands as lines of text.
//!
//! `set KEY VALUE`, `get KEY`, `delete KEY`, `swap KEY OLD NEW` and `list PREFIX`. Each command is
//! one transaction; commits of several connections become durable together (group commit).
//!
//! `cargo run -p firndb --example key_value_service`

use firndb::{Database, Direction, KeyRange, Table};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

const CLIENTS: usize = 4;
const KEYS: usize = 25;

/// Performs one command; returns its answer.
fn perform(db: &Database, table: &Table, command: &str) -> Result<String, firndb::Error> {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    match *command.split_whitespace().collect::<Vec<_>>() {
        ["set", key, value] => {
            let replaced = db.transact(|tx| tx.put(table, key.as_bytes(), value.as_bytes()))?;
            Ok(if replaced { "replaced" } else { "created" }.to_owned())
        }
        ["get", key] => {
            let value = db.snapshot().get(table, key.as_bytes())?;
            Ok(value.map_or("none".to_owned(), text))
        }
        ["delete", key] => {
            let deleted = db.transact(|tx| tx.delete(table, key.as_bytes()))?;
            Ok(if deleted { "deleted" } else { "none" }.to_owned())
        }
        // Compare and swap: the lock keeps the value as it was read until the commit.
        ["swap", key, old, new] => db.transact(|tx| {
            let found = tx.get_for_update(table, key.as_bytes())?;
            if found.as_deref() != Some(old.as_bytes()) {
                return Ok(found.map_or("none".to_owned(), text));
            }
            tx.put(table, key.as_bytes(), new.as_bytes())?;
            Ok("swapped".to_owned())
        }),
        ["list", prefix] => {
            let (tx, mut keys) = (&mut db.snapshot(), Vec::new());
            let mut rows = tx.scan(table, KeyRange::prefix(prefix.as_bytes()), Direction::Forward);
            while let Some((key, _)) = rows.next(tx)? {
                keys.push(text(key.to_vec()));
            }
            Ok(keys.join(" "))
        }
        _ => Ok(format!("what is {command:?}?")),
    }
}

/// Serves one connection until the client closes it.
fn serve(db: &Database, connection: &UnixStream) -> Result<(), Box<dyn Error + Send + Sync>> {
    let table = db.open_table("values")?;
    for line in BufReader::new(connection).lines() {
        let answer = match perform(db, &table, &line?) {
            Ok(answer) => answer,
            // The kind says what the client can do: retry later, give up, call the operator.
            Err(error) => format!("error {}: {error}", error.kind().code()),
        };
        writeln!(&*connection, "{answer}")?;
    }
    Ok(())
}

struct Client(BufReader<UnixStream>);

impl Client {
    fn ask(&mut self, command: &str) -> Result<String, std::io::Error> {
        writeln!(self.0.get_mut(), "{command}")?;
        let mut answer = String::new();
        self.0.read_line(&mut answer)?;
        Ok(answer.trim_end().to_owned())
    }
}

/// A client of the service, on a connection of its own.
fn client(number: usize, connection: UnixStream) -> Result<(), std::io::Error> {
    let mut service = Client(BufReader::new(connection));
    for key in 0..KEYS {
        assert_eq!(service.ask(&format!("set c{number}.{key:02} {key}"))?, "created");
    }
    assert_eq!(service.ask(&format!("get c{number}.07"))?, "7");
    assert_eq!(service.ask(&format!("delete c{number}.07"))?, "deleted");
    assert_eq!(service.ask(&format!("get c{number}.07"))?, "none");
    // All clients count one number up.
    for _ in 0..5 {
        loop {
            let old = service.ask("get counter")?;
            let new = old.parse::<u64>().expect("a number") + 1;
            if service.ask(&format!("swap counter {old} {new}"))? == "swapped" {
                break;
            }
        }
    }
    Ok(())
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("db");
    let db = firndb::Options::new().log(|log| log.bytes(4 << 20)).open(&path)?;
    perform(&db, &db.open_table("values")?, "set counter 0")?;
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let mut clients = Vec::new();
        for number in 0..CLIENTS {
            let (near, far) = UnixStream::pair()?;
            let db = &db;
            scope.spawn(move || serve(db, &far).expect("served"));
            clients.push(scope.spawn(move || client(number, near)));
        }
        clients.into_iter().try_for_each(|client| Ok(client.join().expect("no panic")?))
    })?;
    db.close()?;

    // All that was acknowledged is there after the service starts again.
    let db = Database::open(&path)?;
    let table = db.table("values")?;
    assert_eq!(perform(&db, &table, "get counter")?, (CLIENTS * 5).to_string());
    let listed = perform(&db, &table, "list c2.")?;
    assert_eq!(listed.split(' ').count(), KEYS - 1);
    assert!(listed.starts_with("c2.00 c2.01 ") && !listed.contains("c2.07"));
    assert_eq!(perform(&db, &table, "sing")?, "what is \"sing\"?");
    println!("{CLIENTS} clients, {} keys each, and a counter at {}", KEYS - 1, CLIENTS * 5);
    Ok(())
}
