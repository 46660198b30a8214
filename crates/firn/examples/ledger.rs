//! A ledger: typed tables with secondary indexes, transfers that keep the sum, statements by day.
//!
//! `cargo run -p firndb --example ledger`

use firndb::{
    Column, ColumnType, Database, Direction, ErrorKind, IndexSpec, KeyColumn, Schema, TableSpec, Transaction,
    TypedTable, Value,
};
use std::error::Error;
use std::ops::Bound::Included;

const ACCOUNTS: i64 = 10;
const OPENING_BALANCE: i64 = 1000;

/// Why a transfer was not made.
#[derive(Debug, PartialEq)]
enum Refused {
    NoAccount(i64),
    TooLittle { balance: i64 },
    Database(firndb::Error),
}

impl From<firndb::Error> for Refused {
    fn from(error: firndb::Error) -> Refused {
        Refused::Database(error)
    }
}

struct Ledger {
    db: Database,
    accounts: TypedTable,
    entries: TypedTable,
}

impl Ledger {
    fn create(db: &Database) -> Result<Ledger, Box<dyn Error>> {
        let accounts = Schema::with_key(
            vec![
                Column::new("id", ColumnType::I64),
                Column::new("owner", ColumnType::Text),
                Column::new("balance", ColumnType::I64),
            ],
            &["id"],
        )?;
        let by_owner = IndexSpec::columns("by_owner", true, vec![KeyColumn::ascending(1)]);
        let entries = Schema::with_key(
            vec![
                Column::new("number", ColumnType::I64),
                Column::new("account", ColumnType::I64),
                Column::new("day", ColumnType::I64),
                Column::new("amount", ColumnType::I64),
            ],
            &["number", "account"],
        )?;
        let columns = vec![KeyColumn::ascending(1), KeyColumn::ascending(2)];
        let by_account = IndexSpec::columns("by_account_and_day", false, columns);
        let accounts = db.create_table_with("accounts", TableSpec::typed(accounts).with_index(by_owner))?;
        let entries = db.create_table_with("entries", TableSpec::typed(entries).with_index(by_account))?;
        Ok(Ledger { db: db.clone(), accounts: accounts.typed()?, entries: entries.typed()? })
    }

    fn open_account(&self, id: i64, owner: &str) -> Result<(), firndb::Error> {
        let row = [id.into(), owner.into(), OPENING_BALANCE.into()];
        self.db.transact(|tx| self.accounts.insert(tx, &row))
    }

    /// Reads and locks an account; returns its balance.
    fn lock(&self, tx: &mut Transaction, id: i64, row: &mut Vec<Value>) -> Result<i64, Refused> {
        match self.accounts.get_for_update(tx, &[id.into()], row)? {
            true => Ok(number(&row[2])),
            false => Err(Refused::NoAccount(id)),
        }
    }

    fn transfer(&self, entry: i64, day: i64, from: i64, to: i64, amount: i64) -> Result<(), Refused> {
        self.db.transact(|tx| {
            let mut row = Vec::new();
            let balance = self.lock(tx, from, &mut row)?;
            if balance < amount {
                // Ends the transaction, which is rolled back.
                return Err(Refused::TooLittle { balance });
            }
            for (account, change) in [(from, -amount), (to, amount)] {
                let balance = self.lock(tx, account, &mut row)?;
                row[2] = Value::I64(balance + change);
                let values: Vec<_> = row.iter().map(Value::as_ref).collect();
                self.accounts.update(tx, &values)?;
                self.entries.insert(tx, &[entry.into(), account.into(), day.into(), change.into()])?;
            }
            Ok(())
        })
    }

    /// The amounts of an account's entries in a range of days, in the order of the days.
    fn statement(&self, account: i64, days: (i64, i64)) -> Result<Vec<(i64, i64)>, firndb::Error> {
        let index = self.entries.table().index("by_account_and_day")?;
        let (low, high) = ([account.into(), days.0.into()], [account.into(), days.1.into()]);
        let mut entries =
            self.entries.scan_index(&index, Included(&low), Included(&high), Direction::Forward)?;
        let (tx, mut found) = (&mut self.db.snapshot(), Vec::new());
        while let Some(row) = entries.next(tx)? {
            found.push((number(&row[2]), number(&row[3])));
        }
        Ok(found)
    }

    /// The sum of all balances, as one snapshot has them.
    fn sum(&self) -> Result<i64, firndb::Error> {
        let (tx, mut sum) = (&mut self.db.snapshot(), 0);
        let all = std::ops::Bound::Unbounded;
        let mut accounts = self.accounts.scan(all, all, Direction::Forward)?;
        while let Some(row) = accounts.next(tx)? {
            sum += number(&row[2]);
        }
        Ok(sum)
    }
}

fn number(value: &Value) -> i64 {
    match value {
        Value::I64(number) => *number,
        other => panic!("{other:?} is no number"),
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let db = firndb::Options::new().log(|log| log.bytes(4 << 20)).open(dir.path().join("db"))?;
    let ledger = Ledger::create(&db)?;
    for id in 0..ACCOUNTS {
        ledger.open_account(id, &format!("owner {id}"))?;
    }
    // The unique index refuses a second account of the same owner.
    let refused = ledger.open_account(99, "owner 3").expect_err("there is one");
    assert_eq!(refused.kind(), ErrorKind::Duplicate);

    // Several tellers at once; every snapshot sees whole transfers only.
    std::thread::scope(|scope| {
        for teller in 0..3 {
            let ledger = &ledger;
            scope.spawn(move || {
                for n in 0..10 {
                    let (from, to) = ((teller + n) % ACCOUNTS, (teller * 3 + n * 7 + 1) % ACCOUNTS);
                    if from != to {
                        ledger.transfer(teller * 100 + n, n, from, to, 10 + n).expect("they can pay");
                    }
                }
            });
        }
        for _ in 0..20 {
            assert_eq!(ledger.sum().expect("readable"), ACCOUNTS * OPENING_BALANCE);
        }
    });
    let refused = ledger.transfer(1000, 20, 1, 2, 1_000_000).expect_err("it has less");
    assert!(matches!(refused, Refused::TooLittle { balance } if balance < 2 * OPENING_BALANCE));
    assert_eq!(ledger.transfer(1001, 20, 1, 77, 5), Err(Refused::NoAccount(77)));
    ledger.transfer(1002, 20, 1, 2, 5)?;

    assert_eq!(ledger.sum()?, ACCOUNTS * OPENING_BALANCE);
    assert_eq!(ledger.statement(1, (20, 20))?, [(20, -5)], "refused transfers left nothing");
    let all = ledger.statement(1, (0, 99))?;
    assert!(all.is_sorted_by_key(|(day, _)| *day) && all.len() > 1);
    let (row, changes) = (&mut Vec::new(), all.iter().map(|(_, amount)| amount).sum::<i64>());
    ledger.accounts.get(&mut db.snapshot(), &[1i64.into()], row)?;
    assert_eq!(number(&row[2]), OPENING_BALANCE + changes);
    println!("account 1 has {} entries and a balance of {}", all.len(), number(&row[2]));
    db.close()?;
    Ok(())
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::NoAccount(id) => write!(f, "there is no account {id}"),
            Refused::TooLittle { balance } => write!(f, "the account has {balance} only"),
            Refused::Database(error) => error.fmt(f),
        }
    }
}

impl Error for Refused {}
