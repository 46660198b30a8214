//! The Payment transaction (clause 2.5).

use super::customer::CustomerSearch;
use super::input::{CustomerChoice, Inputs, Terminal};
use super::keys;
use super::rows::{self, customer, district, history, warehouse};
use super::scale::CENTS;
use super::tables::{self, change};
use crate::engine::{EngineError, Outcome, Retry, Transaction};
use std::io::Write;

/// The input of a Payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaymentInput {
    /// W_ID: the warehouse that is paid.
    pub warehouse: u32,
    /// D_ID.
    pub district: u8,
    /// C_W_ID: the warehouse of the paying customer.
    pub customer_warehouse: u32,
    /// C_D_ID.
    pub customer_district: u8,
    /// The customer that pays.
    pub customer: CustomerChoice,
    /// H_AMOUNT.
    pub amount_cents: i64,
}

/// Row buffers that are reused.
#[derive(Clone, Debug, Default)]
pub(super) struct PaymentBuffers {
    pub(super) search: CustomerSearch,
    row: Vec<u8>,
    data: Vec<u8>,
}

impl PaymentInput {
    /// Draws an input by clause 2.5.1: 15 of 100 customers belong to another warehouse.
    pub fn draw(inputs: &mut Inputs, terminal: Terminal) -> PaymentInput {
        let warehouse = terminal.warehouse;
        let district = inputs.district();
        let home = inputs.random.percent(85);
        let (customer_warehouse, customer_district) = match home {
            true => (warehouse, district),
            false => (inputs.remote_warehouse(warehouse), inputs.district()),
        };
        PaymentInput {
            warehouse,
            district,
            customer_warehouse,
            customer_district,
            customer: inputs.customer_choice(),
            amount_cents: inputs.random.between(CENTS, 5000 * CENTS) as i64,
        }
    }
}

/// Runs a Payment up to its commit (clause 2.5.2.2). `client` must not have used `date_us` for an
/// earlier payment.
pub(super) fn run<T: Transaction>(
    txn: &mut T,
    input: &PaymentInput,
    (date_us, client): (u64, u32),
    buffers: &mut PaymentBuffers,
) -> Outcome<()> {
    let row = &mut buffers.row;
    let mut paid = [0; rows::history::LEN];
    let mut names = [b' '; 24];

    let key = keys::warehouse(input.warehouse);
    change(txn, tables::WAREHOUSE, &key, row, |row| {
        warehouse::YTD.change(row, |ytd| ytd + input.amount_cents);
    })?;
    names[..10].copy_from_slice(warehouse::NAME.padded(row));

    let key = keys::district(input.warehouse, input.district);
    change(txn, tables::DISTRICT, &key, row, |row| {
        district::YTD.change(row, |ytd| ytd + input.amount_cents);
    })?;
    names[14..].copy_from_slice(district::NAME.padded(row));

    let home = (input.customer_warehouse, input.customer_district);
    let key = buffers.search.key(txn, home, input.customer)?;
    let number = keys::customer_of(&key);
    change(txn, tables::CUSTOMER, &key, row, |row| {
        customer::BALANCE.change(row, |balance| balance - input.amount_cents);
        customer::YTD_PAYMENT.change(row, |paid| paid + input.amount_cents);
        customer::PAYMENT_COUNT.change(row, |count| count.wrapping_add(1));
        if customer::CREDIT.get(row) == b"BC" {
            note_bad_credit(row, number, input, &mut buffers.data);
        }
    })?;

    history::CUSTOMER.set(&mut paid, number);
    history::CUSTOMER_DISTRICT.set(&mut paid, input.customer_district);
    history::CUSTOMER_WAREHOUSE.set(&mut paid, input.customer_warehouse);
    history::AMOUNT.set(&mut paid, input.amount_cents);
    history::DATA.set(&mut paid, &names);
    let key = keys::history(input.warehouse, input.district, date_us, client);
    match txn.insert(tables::HISTORY, &key, &paid) {
        // An earlier run wrote this row: the wall clock was set back. The next attempt has a later
        // date.
        Err(EngineError::Duplicate(tables::HISTORY)) => Err(EngineError::Retry(Retry::Conflict)),
        result => result,
    }
}

/// Inserts a note of this payment before C_DATA and truncates it to its length (clause 2.5.2.2).
fn note_bad_credit(row: &mut [u8], number: u32, input: &PaymentInput, data: &mut Vec<u8>) {
    data.clear();
    write!(
        data,
        "{number} {} {} {} {} {}.{:02} | ",
        input.customer_district,
        input.customer_warehouse,
        input.district,
        input.warehouse,
        input.amount_cents / 100,
        input.amount_cents % 100
    )
    .expect("writing to a Vec does not fail");
    data.extend_from_slice(customer::DATA.get(row));
    customer::DATA.set(row, data);
}
