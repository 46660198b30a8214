//! The consistency conditions of clause 3.3.2, as queries.
//!
//! All run in one read transaction: on an engine with snapshots the conditions hold at any moment,
//! on others only when nothing else runs. ORDER, NEW-ORDER and ORDER-LINE share the prefix of their
//! keys, so a district is checked in one pass over each.

use super::keys;
use super::rows::{customer, district, history, order, order_line, warehouse};
use super::scale::{DISTRICTS, Population, Scale};
use super::tables::{self, is_whole};
use crate::engine::{Access, Engine, EngineError, KeyRange, Outcome, Scan, Session, Transaction, Visit};
use crate::schema::TableId;
use std::collections::BTreeMap;
use std::fmt;

/// When a check is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Right after the load: condition 11 holds too.
    AfterLoad,
    /// After any transactions.
    AfterRun,
}

/// The result of a check of one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The condition is 3.3.2.`number`; number 0 is not the specification's: every row is whole,
    /// belongs to the population, and is found through every index.
    pub number: u8,
    /// What must hold.
    pub name: &'static str,
    /// Instances checked: warehouses, districts, orders, lines or customers.
    pub checked: u64,
    /// Instances for which it does not hold.
    pub violations: u64,
    /// A sentence about the first of them.
    pub first: Option<String>,
}

impl Condition {
    /// Whether the condition was checked and held everywhere.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.checked > 0 && self.violations == 0
    }

    fn expect(&mut self, holds: bool, sentence: impl FnOnce() -> String) {
        self.checked += 1;
        if !holds {
            self.violations += 1;
            self.first.get_or_insert_with(sentence);
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>2} {}: ", self.number, self.name)?;
        match &self.first {
            None if self.checked == 0 => f.write_str("nothing to look at, which can't be"),
            None => write!(f, "holds ({} checked)", self.checked),
            Some(first) => write!(f, "FAILS for {} of {}: {first}", self.violations, self.checked),
        }
    }
}

const NAMES: [&str; 13] = [
    "rows are whole, known, and found through every index",
    "W_YTD = sum(D_YTD)",
    "D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)",
    "max(NO_O_ID) - min(NO_O_ID) + 1 = rows of NEW-ORDER",
    "sum(O_OL_CNT) = rows of ORDER-LINE",
    "O_CARRIER_ID is null just where NEW-ORDER has a row",
    "O_OL_CNT = rows of ORDER-LINE of the order",
    "OL_DELIVERY_D is null just where O_CARRIER_ID is",
    "W_YTD = sum(H_AMOUNT)",
    "D_YTD = sum(H_AMOUNT)",
    "C_BALANCE = sum(delivered OL_AMOUNT) - sum(H_AMOUNT)",
    "rows of ORDER - rows of NEW-ORDER = 2100",
    "C_BALANCE + C_YTD_PAYMENT = sum(delivered OL_AMOUNT)",
];

/// Checks the conditions and returns the results, by ascending number. An error means that the
/// check could not be made, not that a condition fails.
pub fn check<E: Engine>(engine: &E, when: When) -> Outcome<Vec<Condition>> {
    let Some(population) = Population::of(engine)? else {
        return Err(EngineError::Fatal("there is no whole population to check: load one first".into()));
    };
    let mut session = engine.session()?;
    let txn = session.begin(Access::Read)?;
    let conditions = (0..).zip(NAMES).map(|(number, name)| Condition {
        number,
        name,
        checked: 0,
        violations: 0,
        first: None,
    });
    let mut check = Check { txn, scale: population.scale, conditions: conditions.collect() };
    check.all(when)?;
    let Check { txn, mut conditions, .. } = check;
    txn.rollback()?;
    if when == When::AfterRun {
        conditions.retain(|condition| condition.number != 11);
    }
    Ok(conditions)
}

struct Check<T> {
    txn: T,
    scale: Scale,
    /// Results by number.
    conditions: Vec<Condition>,
}

/// Sums of H_AMOUNT, in cents.
#[derive(Default)]
struct Payments {
    by_district: BTreeMap<[u8; keys::DISTRICT_LEN], i64>,
    by_customer: BTreeMap<[u8; keys::CUSTOMER_LEN], i64>,
}

/// Sums over the lines of one order.
#[derive(Clone, Copy, Default)]
struct Lines {
    count: u64,
    delivered: u64,
    delivered_cents: i64,
}

/// One row of ORDER.
struct Order {
    number: u32,
    customer: u32,
    open: bool,
    line_count: u64,
}

/// Facts of one district's orders.
#[derive(Default)]
struct Orders {
    orders: Vec<Order>,
    /// O_ID of the rows of NEW-ORDER, ascending.
    open: Vec<u32>,
    lines: BTreeMap<u32, Lines>,
}

impl<T: Transaction> Check<T> {
    fn all(&mut self, when: When) -> Outcome<()> {
        let payments = self.payments()?;
        for warehouse in 1..=self.scale.warehouses {
            self.warehouse(warehouse, &payments)?;
            for district in 1..=DISTRICTS {
                let orders = self.orders(warehouse, district)?;
                self.district(warehouse, district, &orders, when)?;
                self.each_order((warehouse, district), &orders);
                self.customers((warehouse, district), &orders, &payments)?;
            }
        }
        self.rows_in(tables::WAREHOUSE, self.scale.warehouses.into())?;
        self.rows_in(tables::DISTRICT, self.scale.terminals().into())?;
        self.rows_in(tables::ITEM, self.scale.items.into())?;
        self.rows_in(tables::STOCK, u64::from(self.scale.items) * u64::from(self.scale.warehouses))?;
        let customers = u64::from(self.scale.customers) * u64::from(self.scale.terminals());
        self.rows_in(tables::CUSTOMER, customers)?;
        self.index(tables::CUSTOMER)?;
        self.index(tables::ORDER)
    }

    /// Scans rows, all of which must be whole; rows that are not are reported and skipped.
    fn rows(
        &mut self,
        table: TableId,
        range: KeyRange<'_>,
        mut visit: impl FnMut(&mut Condition, &[u8], &[u8]),
    ) -> Outcome<()> {
        let key_len = tables::schema().table(table).key_len;
        let whole = &mut self.conditions[0];
        let scan = Scan { range, reverse: false, limit: usize::MAX };
        self.txn.scan(table, scan, &mut |key, row| {
            let fits = key.len() == key_len && is_whole(table, row);
            whole.expect(fits, || format!("row {key:02x?} of table {} has {} bytes", table.0, row.len()));
            if fits {
                visit(whole, key, row);
            }
            Visit::Continue
        })
    }

    fn payments(&mut self) -> Outcome<Payments> {
        let mut payments = Payments::default();
        self.rows(tables::HISTORY, KeyRange::ALL, |_, key, row| {
            let amount = history::AMOUNT.get(row);
            let receiver = keys::district(keys::warehouse_of(key), keys::district_of(key));
            *payments.by_district.entry(receiver).or_default() += amount;
            let payer = keys::customer(
                history::CUSTOMER_WAREHOUSE.get(row),
                history::CUSTOMER_DISTRICT.get(row),
                history::CUSTOMER.get(row),
            );
            *payments.by_customer.entry(payer).or_default() += amount;
        })?;
        Ok(payments)
    }

    /// A row that a condition needs; `None`, and a violation of condition 0, if it is missing or
    /// not whole.
    fn row(&mut self, table: TableId, key: &[u8]) -> Outcome<Option<Vec<u8>>> {
        let mut row = Vec::new();
        let found = self.txn.get(table, key, &mut row)? && is_whole(table, &row);
        self.conditions[0].expect(found, || format!("table {} has no whole row {key:02x?}", table.0));
        Ok(found.then_some(row))
    }

    /// Conditions 1, 8 and 9.
    fn warehouse(&mut self, warehouse: u32, payments: &Payments) -> Outcome<()> {
        let mut districts = 0;
        let mut paid_all = 0;
        for district in 1..=DISTRICTS {
            let key = keys::district(warehouse, district);
            let Some(row) = self.row(tables::DISTRICT, &key)? else { continue };
            let ytd = district::YTD.get(&row);
            let paid = payments.by_district.get(&key).copied().unwrap_or(0);
            districts += ytd;
            paid_all += paid;
            self.conditions[9].expect(ytd == paid, || {
                format!("district {district} of warehouse {warehouse}: D_YTD {ytd}, history {paid} cents")
            });
        }
        let Some(row) = self.row(tables::WAREHOUSE, &keys::warehouse(warehouse))? else { return Ok(()) };
        let ytd = warehouse::YTD.get(&row);
        self.conditions[1].expect(ytd == districts, || {
            format!("warehouse {warehouse}: W_YTD {ytd}, its districts {districts} cents")
        });
        self.conditions[8].expect(ytd == paid_all, || {
            format!("warehouse {warehouse}: W_YTD {ytd}, history {paid_all} cents")
        });
        Ok(())
    }

    fn orders(&mut self, warehouse: u32, district: u8) -> Outcome<Orders> {
        let low = keys::district(warehouse, district);
        let high = keys::district(warehouse, district + 1);
        let range = KeyRange { low: &low, high: &high };
        let mut orders = Orders::default();
        self.rows(tables::ORDER, range, |_, key, row| {
            orders.orders.push(Order {
                number: keys::order_of(key),
                customer: order::CUSTOMER.get(row),
                open: order::CARRIER.get(row) == order::NO_CARRIER,
                line_count: order::LINE_COUNT.get(row).into(),
            });
        })?;
        self.rows(tables::NEW_ORDER, range, |_, key, _| orders.open.push(keys::order_of(key)))?;
        self.rows(tables::ORDER_LINE, range, |_, key, row| {
            let lines = orders.lines.entry(keys::order_of(key)).or_default();
            lines.count += 1;
            if order_line::DELIVERY_DATE.get(row) != order_line::NOT_DELIVERED {
                lines.delivered += 1;
                lines.delivered_cents += order_line::AMOUNT.get(row);
            }
        })?;
        Ok(orders)
    }

    /// Conditions 2, 3, 4 and 11.
    fn district(&mut self, warehouse: u32, district: u8, orders: &Orders, when: When) -> Outcome<()> {
        let place = || format!("district {district} of warehouse {warehouse}");
        let last_order = orders.orders.last().map_or(0, |order| order.number);
        if let Some(row) = self.row(tables::DISTRICT, &keys::district(warehouse, district))? {
            let last = district::NEXT_ORDER.get(&row).wrapping_sub(1);
            // Where every order is delivered there is no NO_O_ID to compare.
            let last_open = orders.open.last().copied();
            self.conditions[2].expect(
                last == last_order && last_open.is_none_or(|open| open == last),
                || {
                    format!(
                        "{}: D_NEXT_O_ID - 1 = {last}, last order {last_order}, open {last_open:?}",
                        place()
                    )
                },
            );
        }
        if let (Some(first), Some(last)) = (orders.open.first(), orders.open.last()) {
            let rows = orders.open.len() as u64;
            self.conditions[3].expect(u64::from(last - first) + 1 == rows, || {
                format!("{}: NO_O_ID from {first} to {last} in {rows} rows", place())
            });
        } else {
            self.conditions[3].expect(true, String::new);
        }
        let promised: u64 = orders.orders.iter().map(|order| order.line_count).sum();
        let lines: u64 = orders.lines.values().map(|lines| lines.count).sum();
        self.conditions[4].expect(promised == lines, || {
            format!("{}: O_OL_CNT sum to {promised}, there are {lines} lines", place())
        });
        if when == When::AfterLoad {
            let delivered = orders.orders.len().abs_diff(orders.open.len());
            let expected = self.scale.delivered_orders();
            self.conditions[11].expect(delivered == expected as usize, || {
                format!("{}: {delivered} more orders than new ones, not {expected}", place())
            });
        }
        Ok(())
    }

    /// Conditions 5, 6 and 7, and that no line or new order is without its order.
    fn each_order(&mut self, (warehouse, district): (u32, u8), orders: &Orders) {
        let place = |number| format!("order {number} of district {district} of warehouse {warehouse}");
        for order in &orders.orders {
            let listed = orders.open.binary_search(&order.number).is_ok();
            self.conditions[5].expect(order.open == listed, || {
                format!("{}: carrier null is {}, in NEW-ORDER is {listed}", place(order.number), order.open)
            });
            let lines = orders.lines.get(&order.number).copied().unwrap_or_default();
            self.conditions[6].expect(order.line_count == lines.count, || {
                format!("{}: O_OL_CNT {}, lines {}", place(order.number), order.line_count, lines.count)
            });
            let dated = if order.open { 0 } else { lines.count };
            self.conditions[7].expect(lines.delivered == dated, || {
                format!("{}: {} of {} lines dated", place(order.number), lines.delivered, lines.count)
            });
        }
        let known = |number: &u32| orders.orders.binary_search_by_key(number, |order| order.number).is_ok();
        for number in &orders.open {
            self.conditions[5].expect(known(number), || format!("{}: in NEW-ORDER only", place(*number)));
        }
        for number in orders.lines.keys() {
            self.conditions[6].expect(known(number), || format!("{}: in ORDER-LINE only", place(*number)));
        }
    }

    /// Conditions 10 and 12.
    fn customers(&mut self, place: (u32, u8), orders: &Orders, payments: &Payments) -> Outcome<()> {
        let mut delivered = vec![0; self.scale.customers as usize + 1];
        for order in &orders.orders {
            let cents = orders.lines.get(&order.number).map_or(0, |lines| lines.delivered_cents);
            let of = delivered.get_mut(order.customer as usize);
            self.conditions[0].expect(of.is_some() && order.customer > 0, || {
                format!("order {} of {place:?} is customer {}'s", order.number, order.customer)
            });
            if let Some(of) = of {
                *of += cents;
            }
        }
        let low = keys::district(place.0, place.1);
        let high = keys::district(place.0, place.1 + 1);
        let mut balances = Vec::new();
        self.rows(tables::CUSTOMER, KeyRange { low: &low, high: &high }, |_, key, row| {
            let balance = customer::BALANCE.get(row);
            balances.push((keys::customer_of(key), balance, customer::YTD_PAYMENT.get(row)));
        })?;
        for (number, balance, ytd) in balances {
            let delivered = delivered.get(number as usize).copied().unwrap_or(0);
            let key = keys::customer(place.0, place.1, number);
            let paid = payments.by_customer.get(&key).copied().unwrap_or(0);
            self.conditions[10].expect(balance == delivered - paid, || {
                format!("customer {number} of {place:?}: {balance} is not {delivered} - {paid} cents")
            });
            self.conditions[12].expect(balance + ytd == delivered, || {
                format!("customer {number} of {place:?}: {balance} + {ytd} is not {delivered} cents")
            });
        }
        Ok(())
    }

    /// Condition 0: a table that the transactions do not grow has as many rows as it was loaded
    /// with.
    fn rows_in(&mut self, table: TableId, expected: u64) -> Outcome<()> {
        let mut rows = 0;
        self.rows(table, KeyRange::ALL, |_, _, _| rows += 1)?;
        let name = tables::schema().table(table).name.clone();
        self.conditions[0].expect(rows == expected, || format!("{name} has {rows} rows, not {expected}"));
        Ok(())
    }

    /// Condition 0: the table's index leads to each of its rows once, in order.
    fn index(&mut self, table: TableId) -> Outcome<()> {
        let mut rows = 0u64;
        self.rows(table, KeyRange::ALL, |_, _, _| rows += 1)?;
        let spec = tables::schema().table(table).clone();
        let sound = &mut self.conditions[0];
        for (at, index) in spec.indexes.iter().enumerate() {
            let (mut entries, mut last, mut index_key) = (0u64, Vec::new(), Vec::new());
            self.txn.scan_index(table, crate::IndexId(at), Scan::all(), &mut |key, row| {
                entries += 1;
                if key.len() == spec.key_len && row.len() == spec.row_len {
                    index.key_of(key, row, &mut index_key);
                    sound.expect(index_key > last, || format!("index {} is not in order", index.name));
                    std::mem::swap(&mut last, &mut index_key);
                }
                Visit::Continue
            })?;
            sound.expect(entries == rows, || {
                format!("index {} leads to {entries} of the {rows} rows of {}", index.name, spec.name)
            });
        }
        Ok(())
    }
}
