//! The ledger: transfers between accounts whose every byte follows from a seed, so that after a
//! crash what must be there can be computed and compared.
//!
//! Transfer `n` of client `c` moves amounts between a few accounts, writes one row a line, deletes
//! the rows of transfer `n - KEPT` and sets the client's head to `n`, all in one transaction. A
//! client runs its transfers in order, so what survives a crash of one client's is a prefix, and
//! the head says how long it is. Some transfers first write rubbish and roll it back, to a
//! savepoint or altogether.
//!
//! What [`Book::verify`] asserts of a database:
//! * every head is at least the last transfer acknowledged, and at most what can have been in
//!   flight beyond;
//! * the rows are exactly those of each client's last [`KEPT`] transfers, byte for byte;
//! * each account's balance and count are the sums over all transfers up to the heads.

use firndb::{Database, Direction, IndexPart, IndexSpec, KeyRange, Table, TableSpec, Transaction};
use firndb_console::Failure;
use firndb_workloads::Random;
use std::collections::BTreeMap;

/// Accounts; few enough that clients meet.
const ACCOUNTS: u32 = 400;
/// Transfers of a client whose rows are kept.
pub const KEPT: u64 = 200;
/// Longest filling of a row in bytes; four such rows fit a page.
const FILLING_MAX: u64 = 700;
/// Bytes of a row before its filling: two accounts and an amount.
const ROW_HEAD: usize = 16;

/// One line of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    from: u32,
    to: u32,
    amount: i64,
    filling: Vec<u8>,
}

impl Line {
    fn row(&self) -> Vec<u8> {
        let mut row = Vec::with_capacity(ROW_HEAD + self.filling.len());
        row.extend_from_slice(&self.from.to_be_bytes());
        row.extend_from_slice(&self.to.to_be_bytes());
        row.extend_from_slice(&self.amount.to_le_bytes());
        row.extend_from_slice(&self.filling);
        row
    }
}

/// What a transfer writes before it does what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rubbish {
    None,
    ToSavepoint,
    WholeTransaction,
}

/// Transfer `number` of `client`, as the seed has it.
struct Transfer {
    lines: Vec<Line>,
    rubbish: Rubbish,
}

impl Transfer {
    fn of(seed: u64, client: u16, number: u64) -> Transfer {
        let mut random = Random::stream(seed, (u64::from(client) << 48) | number);
        let lines = (0..random.between(1, 4)).map(|_| {
            let from = random.number(0, ACCOUNTS - 1);
            let to = (from + random.number(1, ACCOUNTS - 1)) % ACCOUNTS;
            let amount = random.between(1, 10_000) as i64;
            let mut filling = vec![0; random.between(0, FILLING_MAX) as usize];
            random.fill(&mut filling);
            Line { from, to, amount, filling }
        });
        let lines = lines.collect();
        let rubbish = match random.between(0, 9) {
            0 => Rubbish::WholeTransaction,
            1 => Rubbish::ToSavepoint,
            _ => Rubbish::None,
        };
        Transfer { lines, rubbish }
    }

    /// The lines of a transfer without their fillings' cost, for sums.
    fn movements(&self) -> impl Iterator<Item = (u32, i64)> + '_ {
        self.lines.iter().flat_map(|line| [(line.from, -line.amount), (line.to, line.amount)])
    }
}

fn line_key(client: u16, number: u64, line: usize) -> [u8; 11] {
    let mut key = [0; 11];
    key[..2].copy_from_slice(&client.to_be_bytes());
    key[2..10].copy_from_slice(&number.to_be_bytes());
    key[10] = line as u8;
    key
}

pub struct Ledger {
    accounts: Table,
    lines: Table,
    heads: Table,
}

impl Ledger {
    /// Takes the tables from `db`, and makes those that are not there.
    pub fn open(db: &Database) -> Result<Ledger, Failure> {
        let lines = match db.table("ledger_lines") {
            Ok(table) => table,
            Err(error) if error.kind() == firndb::ErrorKind::NotFound => {
                let by_account = IndexSpec::ranges("by_account", false, vec![IndexPart::Value(0..4)]);
                db.create_table_with("ledger_lines", TableSpec::raw().with_index(by_account))?
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Ledger {
            accounts: db.open_table("ledger_accounts")?,
            lines,
            heads: db.open_table("ledger_heads")?,
        })
    }

    /// The last transfer of `client` that is there; 0 if there is none.
    pub fn head(&self, tx: &mut Transaction, client: u16) -> Result<u64, Failure> {
        match tx.get(&self.heads, &client.to_be_bytes())? {
            None => Ok(0),
            Some(bytes) => number(&bytes, "a head"),
        }
    }

    /// Does everything of transfer `number` of `client` in `tx` but the commit.
    pub fn transfer(
        &self,
        db: &Database,
        seed: u64,
        client: u16,
        number: u64,
    ) -> Result<Transaction, firndb::Error> {
        let transfer = Transfer::of(seed, client, number);
        if transfer.rubbish == Rubbish::WholeTransaction {
            let mut tx = db.begin();
            self.write_rubbish(&mut tx, client, number, &transfer)?;
            tx.rollback()?;
        }
        let mut tx = db.begin();
        if transfer.rubbish == Rubbish::ToSavepoint {
            let before = tx.savepoint();
            self.write_rubbish(&mut tx, client, number, &transfer)?;
            tx.rollback_to(&before)?;
        }
        for (account, amount) in transfer.movements() {
            self.move_amount(&mut tx, account, amount)?;
        }
        for (place, line) in transfer.lines.iter().enumerate() {
            tx.insert(&self.lines, &line_key(client, number, place), &line.row())?;
        }
        if let Some(old) = number.checked_sub(KEPT).filter(|old| *old > 0) {
            for place in 0..Transfer::of(seed, client, old).lines.len() {
                tx.delete(&self.lines, &line_key(client, old, place))?;
            }
        }
        tx.put(&self.heads, &client.to_be_bytes(), &number.to_le_bytes())?;
        Ok(tx)
    }

    /// Rows and sums that no reader may ever find committed.
    fn write_rubbish(
        &self,
        tx: &mut Transaction,
        client: u16,
        number: u64,
        transfer: &Transfer,
    ) -> Result<(), firndb::Error> {
        for (place, line) in transfer.lines.iter().enumerate() {
            tx.put(&self.lines, &line_key(client, number, place), &[0xee; 200])?;
            self.move_amount(tx, line.from, -1_000_000_000)?;
        }
        tx.put(&self.heads, &client.to_be_bytes(), &u64::MAX.to_le_bytes()).map(|_| ())
    }

    fn move_amount(&self, tx: &mut Transaction, account: u32, amount: i64) -> Result<(), firndb::Error> {
        let key = account.to_be_bytes();
        let (balance, count) =
            tx.get_for_update(&self.accounts, &key)?.as_deref().and_then(account_of).unwrap_or((0, 0));
        let row = [(balance + amount).to_le_bytes(), (count + 1).to_le_bytes()].concat();
        tx.put(&self.accounts, &key, &row).map(|_| ())
    }
}

fn account_of(row: &[u8]) -> Option<(i64, u64)> {
    let (balance, count) = row.split_at_checked(8)?;
    Some((i64::from_le_bytes(balance.try_into().ok()?), u64::from_le_bytes(count.try_into().ok()?)))
}

fn number(bytes: &[u8], what: &str) -> Result<u64, Failure> {
    let bytes = bytes.try_into();
    Ok(u64::from_le_bytes(bytes.map_err(|_| Failure::new(format!("{what} is not of eight bytes")))?))
}

/// What the ledger's database must hold: kept by the parent, which watches from outside.
#[derive(Clone, Debug)]
pub struct Book {
    seed: u64,
    /// By client: transfers that are known to be in the database.
    heads: Vec<u64>,
    /// By account, over all transfers up to the heads: balance and count.
    accounts: BTreeMap<u32, (i64, u64)>,
}

impl Book {
    /// The book of an empty ledger.
    pub fn new(seed: u64, clients: u16) -> Book {
        Book { seed, heads: vec![0; usize::from(clients)], accounts: BTreeMap::new() }
    }

    /// Transfers in it.
    pub fn transfers(&self) -> u64 {
        self.heads.iter().sum()
    }

    /// Client `client` has acknowledged that transfer `number` is durable. (Sums follow when it is
    /// verified.)
    pub fn last_known(&self, client: u16) -> u64 {
        self.heads[usize::from(client)]
    }

    /// Compares a database with what must be in it. `acknowledged` is by client; beyond it up to
    /// `in_flight` transfers of a client may be there. Returns how many there were that had not
    /// been acknowledged.
    pub fn verify(&mut self, db: &Database, acknowledged: &[u64], in_flight: u64) -> Result<u64, Failure> {
        let ledger = Ledger::open(db)?;
        let mut tx = db.snapshot();
        let mut unacknowledged = 0;
        for (client, &acknowledged) in acknowledged.iter().enumerate() {
            let known = acknowledged.max(self.heads[client]);
            let head = ledger.head(&mut tx, client as u16)?;
            if head < known {
                return Err(Failure::new(format!(
                    "LOST: client {client} acknowledged transfer {known} as durable, and the database ends at {head}"
                )));
            }
            if head > known + in_flight {
                return Err(Failure::new(format!(
                    "client {client} acknowledged {known} transfers and had at most {in_flight} more in flight; \
                     the database has {head}"
                )));
            }
            unacknowledged += head - known;
            for number in self.heads[client] + 1..=head {
                for (account, amount) in Transfer::of(self.seed, client as u16, number).movements() {
                    let (balance, count) = self.accounts.entry(account).or_default();
                    *balance += amount;
                    *count += 1;
                }
            }
            self.heads[client] = head;
        }
        self.verify_lines(&ledger, &mut tx)?;
        self.verify_accounts(&ledger, &mut tx)?;
        tx.rollback()?;
        Ok(unacknowledged)
    }

    fn verify_lines(&self, ledger: &Ledger, tx: &mut Transaction) -> Result<(), Failure> {
        let mut found = tx.scan(&ledger.lines, KeyRange::all(), Direction::Forward);
        for (client, &head) in self.heads.iter().enumerate() {
            for number in (head.saturating_sub(KEPT) + 1)..=head {
                let transfer = Transfer::of(self.seed, client as u16, number);
                for (place, line) in transfer.lines.iter().enumerate() {
                    let key = line_key(client as u16, number, place);
                    let what = || format!("line {place} of transfer {number} of client {client}");
                    match found.next(tx)? {
                        Some((at, row)) if at == key && row == line.row() => {}
                        Some((at, _)) if at == key => {
                            return Err(Failure::new(format!("TORN: {} has another content", what())));
                        }
                        Some((at, _)) => {
                            return Err(Failure::new(format!(
                                "TORN: {} is next, and the row {} was found",
                                what(),
                                at.escape_ascii()
                            )));
                        }
                        None => return Err(Failure::new(format!("TORN: {} is missing", what()))),
                    }
                }
            }
        }
        match found.next(tx)? {
            None => Ok(()),
            Some((key, _)) => Err(Failure::new(format!(
                "TORN: the row {} belongs to no transfer that committed",
                key.escape_ascii()
            ))),
        }
    }

    fn verify_accounts(&self, ledger: &Ledger, tx: &mut Transaction) -> Result<(), Failure> {
        let mut found = BTreeMap::new();
        let mut rows = tx.scan(&ledger.accounts, KeyRange::all(), Direction::Forward);
        while let Some((key, row)) = rows.next(tx)? {
            let account = key.try_into().map(u32::from_be_bytes);
            let (Ok(account), Some(sums)) = (account, account_of(row)) else {
                return Err(Failure::new("TORN: a row of ledger_accounts is not of this ledger"));
            };
            found.insert(account, sums);
        }
        if let Some((account, sums)) =
            self.accounts.iter().find(|(account, sums)| found.get(account) != Some(*sums))
        {
            return Err(Failure::new(format!(
                "TORN: account {account} must have (balance, transfers) {sums:?} and has {:?}",
                found.get(account)
            )));
        }
        if found.len() != self.accounts.len() {
            return Err(Failure::new("TORN: there are accounts that no transfer touched"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs transfers `1..=count` of client 0.
    fn run(db: &Database, ledger: &Ledger, count: u64) {
        for number in 1..=count {
            ledger.transfer(db, 7, 0, number).unwrap().commit().unwrap();
        }
    }

    #[test]
    fn a_book_agrees_with_the_ledger_it_is_about_and_with_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let db = firndb::Options::new()
            .log(|log| log.bytes(4 << 20))
            .buffer_bytes(4 << 20)
            .open(dir.path().join("db"))
            .unwrap();
        let ledger = Ledger::open(&db).unwrap();
        run(&db, &ledger, KEPT + 20);
        let empty = Book::new(7, 1);
        assert_eq!(empty.clone().verify(&db, &[KEPT + 19], 1).unwrap(), 1);
        let lost = empty.clone().verify(&db, &[KEPT + 21], 1).unwrap_err().to_string();
        assert!(lost.starts_with("LOST"), "{lost}");
        let invented = empty.clone().verify(&db, &[KEPT + 10], 1).unwrap_err().to_string();
        assert!(invented.contains("in flight"), "{invented}");

        let spoil = |work: &dyn Fn(&mut Transaction) -> Result<(), firndb::Error>| {
            let mut tx = db.begin();
            work(&mut tx).unwrap();
            tx.commit().unwrap();
            let found = empty.clone().verify(&db, &[KEPT + 20], 1).unwrap_err().to_string();
            assert!(found.starts_with("TORN"), "{found}");
        };
        let key = line_key(0, KEPT, 0);
        let row = db.snapshot().get(&ledger.lines, &key).unwrap().unwrap();
        spoil(&|tx| tx.delete(&ledger.lines, &key).map(|_| ()));
        spoil(&|tx| tx.put(&ledger.lines, &key, &[0xee; 200]).map(|_| ()));
        db.transact(|tx| tx.put(&ledger.lines, &key, &row)).unwrap();
        assert_eq!(empty.clone().verify(&db, &[KEPT + 20], 1).unwrap(), 0);
        spoil(&|tx| ledger.move_amount(tx, 3, 5));
    }
}
