//! The New-Order transaction (clause 2.4).

use super::draw::is_original;
use super::input::{Inputs, Terminal};
use super::rows::{customer, district, item, new_order, order, order_line, stock, warehouse};
use super::tables::{self, Rows, change, need};
use super::{keys, rows};
use crate::engine::{Outcome, Transaction};

/// Most lines of an order.
const LINES_MAX: usize = 15;

/// One order line of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LineInput {
    /// OL_I_ID.
    pub item: u32,
    /// OL_SUPPLY_W_ID.
    pub supply_warehouse: u32,
    /// OL_QUANTITY.
    pub quantity: u8,
}

/// The input of a New-Order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewOrderInput {
    /// W_ID.
    pub warehouse: u32,
    /// D_ID.
    pub district: u8,
    /// C_ID.
    pub customer: u32,
    /// O_ENTRY_D, in microseconds since the Unix epoch.
    pub entry_date_us: u64,
    lines: [LineInput; LINES_MAX],
    line_count: u8,
}

/// How a New-Order ended, before its commit or rollback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewOrderOutput {
    /// To be committed.
    Placed {
        /// O_ID.
        order: u32,
        /// Sum of the lines with discount and taxes.
        total_cents: i64,
        /// Lines with goods of brand "B".
        brand_lines: u8,
    },
    /// To be rolled back: an item is not for sale (clause 2.4.2.3).
    UnusedItem,
}

/// Row buffers that are reused.
#[derive(Clone, Debug, Default)]
pub(super) struct NewOrderBuffers {
    row: Vec<u8>,
    /// Of each line.
    items: Rows,
    /// Of each line, as the line leaves it.
    stock: Rows,
}

impl NewOrderBuffers {
    /// Reads the rows of all lines' items, and then takes their goods from stock. Returns the
    /// number of lines before the first item that is not for sale.
    fn take_goods<T: Transaction>(&mut self, txn: &mut T, input: &NewOrderInput) -> Outcome<usize> {
        let lines = input.lines();
        let mut all = [[0; keys::ITEM_LEN]; LINES_MAX];
        all.iter_mut().zip(lines).for_each(|(key, line)| *key = keys::item(line.item));
        self.items.read(txn, tables::ITEM, &all.each_ref().map(|key| &key[..])[..lines.len()])?;
        let missing = (0..lines.len()).find(|&number| self.items.get(number).is_none());
        let lines = &lines[..missing.unwrap_or(lines.len())];
        let mut all = [[0; keys::STOCK_LEN]; LINES_MAX];
        for (key, line) in all.iter_mut().zip(lines) {
            *key = keys::stock(line.supply_warehouse, line.item);
        }
        self.stock.change(
            txn,
            tables::STOCK,
            &all.each_ref().map(|key| &key[..])[..lines.len()],
            |number, goods| take(goods, &lines[number], input.warehouse),
        )?;
        Ok(lines.len())
    }
}

impl NewOrderInput {
    /// Draws an input by clause 2.4.1.
    pub fn draw(inputs: &mut Inputs, terminal: Terminal, now_us: u64) -> NewOrderInput {
        let mut input = NewOrderInput {
            warehouse: terminal.warehouse,
            district: inputs.district(),
            customer: inputs.customer(),
            entry_date_us: now_us,
            lines: [LineInput::default(); LINES_MAX],
            line_count: inputs.random.number(5, LINES_MAX as u32) as u8,
        };
        let rolls_back = inputs.random.percent(1);
        let last = input.line_count as usize - 1;
        for line in &mut input.lines[..=last] {
            line.item = inputs.item();
            let remote = inputs.random.percent(1);
            line.supply_warehouse =
                if remote { inputs.remote_warehouse(input.warehouse) } else { input.warehouse };
            line.quantity = inputs.random.number(1, 10) as u8;
        }
        if rolls_back {
            input.lines[last].item = inputs.population.scale.items + 1;
        }
        input
    }

    /// Its lines.
    #[must_use]
    pub fn lines(&self) -> &[LineInput] {
        &self.lines[..self.line_count as usize]
    }
}

/// Runs a New-Order up to its commit (clause 2.4.2.2).
pub(super) fn run<T: Transaction>(
    txn: &mut T,
    input: &NewOrderInput,
    buffers: &mut NewOrderBuffers,
) -> Outcome<NewOrderOutput> {
    let row = &mut buffers.row;
    need(txn, tables::WAREHOUSE, &keys::warehouse(input.warehouse), row)?;
    let warehouse_tax = warehouse::TAX.get(row);

    let key = keys::district(input.warehouse, input.district);
    let mut number = 0;
    change(txn, tables::DISTRICT, &key, row, |row| {
        number = district::NEXT_ORDER.get(row);
        district::NEXT_ORDER.set(row, number + 1);
    })?;
    let district_tax = district::TAX.get(row);

    need(txn, tables::CUSTOMER, &keys::customer(input.warehouse, input.district, input.customer), row)?;
    let discount = customer::DISCOUNT.get(row);

    let key = keys::order(input.warehouse, input.district, number);
    txn.insert(tables::ORDER, &key, &order_row(input))?;
    txn.insert(tables::NEW_ORDER, &key, &new_order::ROW)?;

    let lines = buffers.take_goods(txn, input)?;
    let mut sum_cents = 0;
    let mut brand_lines = 0;
    for (line, place) in input.lines()[..lines].iter().zip(1..) {
        let (amount_cents, brand) = add_line(txn, input, line, (number, place), buffers)?;
        sum_cents += amount_cents;
        brand_lines += u8::from(brand);
    }
    if lines < input.lines().len() {
        return Ok(NewOrderOutput::UnusedItem);
    }
    let taxed = i128::from(sum_cents)
        * i128::from(10_000 - discount)
        * i128::from(10_000 + warehouse_tax + district_tax);
    Ok(NewOrderOutput::Placed { order: number, total_cents: (taxed / 100_000_000) as i64, brand_lines })
}

fn order_row(input: &NewOrderInput) -> [u8; rows::order::LEN] {
    let all_local = input.lines().iter().all(|line| line.supply_warehouse == input.warehouse);
    let mut row = [0; rows::order::LEN];
    order::CUSTOMER.set(&mut row, input.customer);
    order::ENTRY_DATE.set(&mut row, input.entry_date_us);
    order::CARRIER.set(&mut row, order::NO_CARRIER);
    order::LINE_COUNT.set(&mut row, input.line_count);
    order::ALL_LOCAL.set(&mut row, u8::from(all_local));
    row
}

/// Takes one line's goods from stock, for an order of `warehouse`.
fn take(goods: &mut [u8], line: &LineInput, warehouse: u32) {
    let ordered = i32::from(line.quantity);
    let left = stock::QUANTITY.get(goods) - ordered;
    stock::QUANTITY.set(goods, if left >= 10 { left } else { left + 91 });
    stock::YTD.change(goods, |ytd| ytd + i64::from(ordered));
    stock::ORDER_COUNT.change(goods, |count| count.wrapping_add(1));
    if line.supply_warehouse != warehouse {
        stock::REMOTE_COUNT.change(goods, |count| count.wrapping_add(1));
    }
}

/// Inserts one line, whose goods have been taken from stock. Returns OL_AMOUNT and whether its
/// goods are of brand "B". The rows of all items and goods are in `buffers`.
fn add_line<T: Transaction>(
    txn: &mut T,
    input: &NewOrderInput,
    line: &LineInput,
    (number, place): (u32, u8),
    buffers: &NewOrderBuffers,
) -> Outcome<(i64, bool)> {
    let at = usize::from(place) - 1;
    let of_line = "lines behind an item that is not for sale are not added";
    let (item_row, goods) = (buffers.items.get(at).expect(of_line), buffers.stock.get(at).expect(of_line));
    let amount_cents = i64::from(line.quantity) * item::PRICE.get(item_row);
    let brand = is_original(item::DATA.get(item_row)) && is_original(stock::DATA.get(goods));
    let mut row = [0; rows::order_line::LEN];
    order_line::ITEM.set(&mut row, line.item);
    order_line::SUPPLY_WAREHOUSE.set(&mut row, line.supply_warehouse);
    order_line::DELIVERY_DATE.set(&mut row, order_line::NOT_DELIVERED);
    order_line::QUANTITY.set(&mut row, line.quantity);
    order_line::AMOUNT.set(&mut row, amount_cents);
    order_line::DISTRICT_INFO.set(&mut row, stock::district_info(input.district).get(goods));
    let key = keys::order_line(input.warehouse, input.district, number, place);
    txn.insert(tables::ORDER_LINE, &key, &row)?;
    Ok((amount_cents, brand))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpcc::{LoadOptions, Scale, load};
    use crate::{Access, Engine, MemoryEngine, Session};

    fn input(lines: &[(u32, u8)]) -> NewOrderInput {
        let mut input = NewOrderInput {
            warehouse: 1,
            district: 1,
            customer: 1,
            entry_date_us: 1,
            lines: [LineInput::default(); LINES_MAX],
            line_count: lines.len() as u8,
        };
        for (to, &(item, quantity)) in input.lines.iter_mut().zip(lines) {
            *to = LineInput { item, supply_warehouse: 1, quantity };
        }
        input
    }

    /// S_YTD and S_ORDER_CNT.
    fn taken<T: Transaction>(txn: &mut T, item: u32) -> (i64, u32) {
        let mut row = Vec::new();
        need(txn, tables::STOCK, &keys::stock(1, item), &mut row).unwrap();
        (stock::YTD.get(&row), stock::ORDER_COUNT.get(&row))
    }

    #[test]
    fn lines_with_the_same_goods_all_take_theirs_also_before_an_item_that_is_not_for_sale() {
        let engine = MemoryEngine::new(&tables::schema());
        let scale = Scale::tiny(1);
        load(&engine, &LoadOptions::new(scale, 1), &|_| ()).unwrap();
        let mut session = engine.session().unwrap();
        let mut txn = session.begin(Access::Write).unwrap();
        let before = [5, 7].map(|item| taken(&mut txn, item));
        let mut buffers = NewOrderBuffers::default();
        let placed = run(&mut txn, &input(&[(5, 3), (7, 1), (5, 4), (5, 2)]), &mut buffers).unwrap();
        assert!(matches!(placed, NewOrderOutput::Placed { .. }));
        let after = |txn: &mut _, lines: [(i64, u32); 2]| {
            for ((item, before), (quantity, orders)) in [5, 7].into_iter().zip(before).zip(lines) {
                assert_eq!(taken(txn, item), (before.0 + quantity, before.1 + orders), "item {item}");
            }
        };
        after(&mut txn, [(9, 3), (1, 1)]);
        let unused = input(&[(7, 2), (5, 1), (scale.items + 1, 1)]);
        assert_eq!(run(&mut txn, &unused, &mut buffers), Ok(NewOrderOutput::UnusedItem));
        after(&mut txn, [(10, 4), (3, 2)]);
    }
}
