//! The rows of the initial population (clause 4.3.3.1).

use super::draw::{OneInTen, TextBuffer, last_name};
use super::load::Part;
use super::rows::{self, Address};
use super::scale::{CENTS, DISTRICTS, FIRST_PAYMENT_CENTS, Population, Scale};
use super::{keys, tables};
use crate::engine::Outcome;
use crate::random::Random;
use crate::schema::TableId;

/// A row: its table, key and bytes.
pub(super) type Row<'a> = (TableId, &'a [u8], &'a [u8]);

/// Takes rows as they are made.
pub(super) type Sink<'a> = &'a mut dyn FnMut(Row<'_>) -> Outcome<()>;

/// Approximate rows of a population: orders have ten lines on average.
pub(super) fn expected_rows(scale: &Scale) -> u64 {
    let orders = u64::from(scale.customers);
    let new_orders = u64::from(scale.customers - scale.delivered_orders());
    // A customer comes with a row of HISTORY, an order with ten lines.
    let district = 1 + 2 * u64::from(scale.customers) + orders * 11 + new_orders;
    let warehouse = 1 + u64::from(scale.items) + u64::from(DISTRICTS) * district;
    1 + u64::from(scale.items) + u64::from(scale.warehouses) * warehouse
}

/// Makes the rows of one part.
pub(super) fn part(
    population: &Population,
    part: Part,
    date_us: u64,
    random: &mut Random,
    sink: Sink<'_>,
) -> Outcome<()> {
    let text = TextBuffer::default();
    let mut maker = Maker { population, date_us, random, text, sink };
    match part {
        Part::Items => maker.items(),
        Part::Warehouse(warehouse) => maker.warehouse(warehouse),
        Part::Stock(warehouse) => maker.stock(warehouse),
        Part::Customers(warehouse, district) => maker.customers(warehouse, district),
        Part::Orders(warehouse, district) => maker.orders(warehouse, district),
    }
}

struct Maker<'a> {
    population: &'a Population,
    date_us: u64,
    random: &'a mut Random,
    text: TextBuffer,
    sink: Sink<'a>,
}

impl Maker<'_> {
    fn items(&mut self) -> Outcome<()> {
        let items = self.population.scale.items;
        let mut original = OneInTen::of(items);
        let mut row = [0; rows::item::LEN];
        for item in 1..=items {
            rows::item::IMAGE.set(&mut row, self.random.number(1, 10_000));
            rows::item::NAME.set(&mut row, self.text.letters(self.random, 14, 24));
            rows::item::PRICE.set(&mut row, self.random.between(CENTS, 100 * CENTS) as i64);
            let marked = original.next(self.random);
            rows::item::DATA.set(&mut row, self.text.data(self.random, marked));
            (self.sink)((tables::ITEM, &keys::item(item), &row))?;
        }
        Ok(())
    }

    fn stock(&mut self, warehouse: u32) -> Outcome<()> {
        let items = self.population.scale.items;
        let mut original = OneInTen::of(items);
        let mut row = [0; rows::stock::LEN];
        for item in 1..=items {
            rows::stock::QUANTITY.set(&mut row, self.random.number(10, 100) as i32);
            for district in 1..=DISTRICTS {
                let info = self.text.letters(self.random, 24, 24);
                rows::stock::district_info(district).set(&mut row, info);
            }
            let marked = original.next(self.random);
            rows::stock::DATA.set(&mut row, self.text.data(self.random, marked));
            (self.sink)((tables::STOCK, &keys::stock(warehouse, item), &row))?;
        }
        Ok(())
    }

    fn address(&mut self, address: Address, row: &mut [u8]) {
        address.street_1.set(row, self.text.letters(self.random, 10, 20));
        address.street_2.set(row, self.text.letters(self.random, 10, 20));
        address.city.set(row, self.text.letters(self.random, 10, 20));
        address.state.set(row, self.text.letters(self.random, 2, 2));
        address.zip.set(row, self.text.zip(self.random));
    }

    fn warehouse(&mut self, warehouse: u32) -> Outcome<()> {
        let district_ytd = FIRST_PAYMENT_CENTS * i64::from(self.population.scale.customers);
        let mut row = [0; rows::warehouse::LEN];
        rows::warehouse::NAME.set(&mut row, self.text.letters(self.random, 6, 10));
        self.address(rows::warehouse::ADDRESS, &mut row);
        rows::warehouse::TAX.set(&mut row, self.random.number(0, 2000) as i32);
        rows::warehouse::YTD.set(&mut row, district_ytd * i64::from(DISTRICTS));
        (self.sink)((tables::WAREHOUSE, &keys::warehouse(warehouse), &row))?;

        let mut row = [0; rows::district::LEN];
        for district in 1..=DISTRICTS {
            rows::district::NAME.set(&mut row, self.text.letters(self.random, 6, 10));
            self.address(rows::district::ADDRESS, &mut row);
            rows::district::TAX.set(&mut row, self.random.number(0, 2000) as i32);
            rows::district::YTD.set(&mut row, district_ytd);
            rows::district::NEXT_ORDER.set(&mut row, self.population.scale.customers + 1);
            (self.sink)((tables::DISTRICT, &keys::district(warehouse, district), &row))?;
        }
        Ok(())
    }

    fn customers(&mut self, warehouse: u32, district: u8) -> Outcome<()> {
        let customers = self.population.scale.customers;
        let mut bad_credit = OneInTen::of(customers);
        let mut row = [0; rows::customer::LEN];
        for customer in 1..=customers {
            let bad = bad_credit.next(self.random);
            self.customer(customer, bad, &mut row);
            (self.sink)((tables::CUSTOMER, &keys::customer(warehouse, district, customer), &row))?;
        }
        let mut row = [0; rows::history::LEN];
        for customer in 1..=customers {
            rows::history::CUSTOMER.set(&mut row, customer);
            rows::history::CUSTOMER_DISTRICT.set(&mut row, district);
            rows::history::CUSTOMER_WAREHOUSE.set(&mut row, warehouse);
            rows::history::AMOUNT.set(&mut row, FIRST_PAYMENT_CENTS);
            rows::history::DATA.set(&mut row, self.text.letters(self.random, 12, 24));
            // All have one date; the customer's number is used as the client's, which distinguishes
            // rows.
            let key = keys::history(warehouse, district, self.date_us, customer);
            (self.sink)((tables::HISTORY, &key, &row))?;
        }
        Ok(())
    }

    fn customer(&mut self, customer: u32, bad_credit: bool, row: &mut [u8]) {
        use rows::customer as c;
        let name = match customer {
            1..=1000 => customer - 1,
            _ => self.population.loaded_last_name(self.random),
        };
        c::LAST.set(row, last_name(name, &mut [0; 16]));
        c::MIDDLE.set(row, b"OE");
        c::FIRST.set(row, self.text.letters(self.random, 8, 16));
        self.address(c::ADDRESS, row);
        c::PHONE.set(row, self.text.digits(self.random, 16, 16));
        c::SINCE.set(row, self.date_us);
        c::CREDIT.set(row, if bad_credit { b"BC" } else { b"GC" });
        c::CREDIT_LIMIT.set(row, 50_000 * CENTS as i64);
        c::DISCOUNT.set(row, self.random.number(0, 5000) as i32);
        c::BALANCE.set(row, -FIRST_PAYMENT_CENTS);
        c::YTD_PAYMENT.set(row, FIRST_PAYMENT_CENTS);
        c::PAYMENT_COUNT.set(row, 1);
        c::DELIVERY_COUNT.set(row, 0);
        c::DATA.set(row, self.text.letters(self.random, 300, 500));
    }

    fn orders(&mut self, warehouse: u32, district: u8) -> Outcome<()> {
        let scale = self.population.scale;
        let mut customers: Vec<u32> = (1..=scale.customers).collect();
        self.random.shuffle(&mut customers);
        let mut line_counts = Vec::with_capacity(customers.len());
        let mut row = [0; rows::order::LEN];
        for (order, customer) in (1..).zip(customers) {
            let delivered = order <= scale.delivered_orders();
            let lines = self.random.number(5, 15) as u8;
            let carrier = if delivered { self.random.number(1, 10) as u8 } else { rows::order::NO_CARRIER };
            rows::order::CUSTOMER.set(&mut row, customer);
            rows::order::ENTRY_DATE.set(&mut row, self.date_us);
            rows::order::CARRIER.set(&mut row, carrier);
            rows::order::LINE_COUNT.set(&mut row, lines);
            rows::order::ALL_LOCAL.set(&mut row, 1);
            (self.sink)((tables::ORDER, &keys::order(warehouse, district, order), &row))?;
            line_counts.push(lines);
        }
        for (order, lines) in (1..).zip(line_counts) {
            for line in 1..=lines {
                self.order_line(warehouse, district, order, line)?;
            }
        }
        for order in scale.delivered_orders() + 1..=scale.customers {
            let key = keys::order(warehouse, district, order);
            (self.sink)((tables::NEW_ORDER, &key, &rows::new_order::ROW))?;
        }
        Ok(())
    }

    fn order_line(&mut self, warehouse: u32, district: u8, order: u32, line: u8) -> Outcome<()> {
        let scale = self.population.scale;
        let mut row = [0; rows::order_line::LEN];
        rows::order_line::ITEM.set(&mut row, self.random.number(1, scale.items));
        rows::order_line::SUPPLY_WAREHOUSE.set(&mut row, warehouse);
        rows::order_line::QUANTITY.set(&mut row, 5);
        if order <= scale.delivered_orders() {
            rows::order_line::DELIVERY_DATE.set(&mut row, self.date_us);
            rows::order_line::AMOUNT.set(&mut row, 0);
        } else {
            rows::order_line::DELIVERY_DATE.set(&mut row, rows::order_line::NOT_DELIVERED);
            rows::order_line::AMOUNT.set(&mut row, self.random.between(1, 10_000 * CENTS - 1) as i64);
        }
        rows::order_line::DISTRICT_INFO.set(&mut row, self.text.letters(self.random, 24, 24));
        (self.sink)((tables::ORDER_LINE, &keys::order_line(warehouse, district, order, line), &row))
    }
}
