//! The Order-Status transaction (clause 2.6). Reads only.

use super::customer::CustomerSearch;
use super::input::{CustomerChoice, Inputs, Terminal};
use super::keys;
use super::rows::{customer, order, order_line};
use super::tables::{self, need};
use crate::engine::{EngineError, KeyRange, Outcome, Scan, Transaction, Visit};
use crate::schema::make_successor;

/// The input of an Order-Status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderStatusInput {
    /// W_ID.
    pub warehouse: u32,
    /// D_ID.
    pub district: u8,
    /// The customer of the order: its last one is read.
    pub customer: CustomerChoice,
}

/// The output of an Order-Status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderStatusOutput {
    /// C_BALANCE.
    pub balance_cents: i64,
    /// O_ID of the customer's last order.
    pub order: u32,
    /// Its lines.
    pub lines: u32,
    /// Delivered lines among these.
    pub delivered_lines: u32,
    /// Sum of OL_AMOUNT.
    pub amount_cents: i64,
}

/// Row buffers that are reused.
#[derive(Clone, Debug, Default)]
pub(super) struct OrderStatusBuffers {
    pub(super) search: CustomerSearch,
    row: Vec<u8>,
    high: Vec<u8>,
}

impl OrderStatusInput {
    /// Draws an input by clause 2.6.1.
    pub fn draw(inputs: &mut Inputs, terminal: Terminal) -> OrderStatusInput {
        OrderStatusInput {
            warehouse: terminal.warehouse,
            district: inputs.district(),
            customer: inputs.customer_choice(),
        }
    }
}

/// Runs an Order-Status up to its commit (clause 2.6.2.2).
pub(super) fn run<T: Transaction>(
    txn: &mut T,
    input: &OrderStatusInput,
    buffers: &mut OrderStatusBuffers,
) -> Outcome<OrderStatusOutput> {
    let key = buffers.search.key(txn, (input.warehouse, input.district), input.customer)?;
    need(txn, tables::CUSTOMER, &key, &mut buffers.row)?;
    let balance_cents = customer::BALANCE.get(&buffers.row);

    let number = last_order(txn, keys::customer_of(&key), input, &mut buffers.high)?;
    let low = keys::order(input.warehouse, input.district, number);
    let high = keys::order(input.warehouse, input.district, number + 1);
    let mut output =
        OrderStatusOutput { balance_cents, order: number, lines: 0, delivered_lines: 0, amount_cents: 0 };
    txn.scan(tables::ORDER_LINE, Scan::between(&low, &high), &mut |_key, row| {
        if tables::is_whole(tables::ORDER_LINE, row) {
            output.lines += 1;
            let delivered = order_line::DELIVERY_DATE.get(row) != order_line::NOT_DELIVERED;
            output.delivered_lines += u32::from(delivered);
            output.amount_cents += order_line::AMOUNT.get(row);
        }
        Visit::Continue
    })?;
    Ok(output)
}

/// O_ID of a customer's last order. Every customer has one from the load on.
fn last_order<T: Transaction>(
    txn: &mut T,
    customer: u32,
    input: &OrderStatusInput,
    high: &mut Vec<u8>,
) -> Outcome<u32> {
    let low = keys::orders_of(input.warehouse, input.district, customer);
    high.clear();
    high.extend_from_slice(&low);
    make_successor(high);
    let scan = Scan { range: KeyRange { low: &low, high }, reverse: true, limit: 1 };
    let mut last = None;
    txn.scan_index(tables::ORDER, tables::ORDER_BY_CUSTOMER, scan, &mut |key, row| {
        if tables::is_whole(tables::ORDER, row) && order::CUSTOMER.get(row) == customer {
            last = Some(keys::order_of(key));
        }
        Visit::Stop
    })?;
    last.ok_or_else(|| {
        EngineError::Fatal(format!(
            "customer {customer} of district {} of warehouse {} has no order, but was loaded with one",
            input.district, input.warehouse
        ))
    })
}
