//! A client: draws transactions by the mix and runs them against an engine.

use super::delivery::{self, DeliveryBuffers, DeliveryInput};
use super::input::{Inputs, Terminal};
use super::new_order::{self, NewOrderBuffers, NewOrderInput, NewOrderOutput};
use super::order_status::{self, OrderStatusBuffers, OrderStatusInput};
use super::payment::{self, PaymentBuffers, PaymentInput};
use super::scale::{DISTRICTS, Population};
use super::stock_level::{self, StockLevelBuffers, StockLevelInput};
use crate::driver::{Attempt, Client};
use crate::engine::{Access, CommitMode, Engine, Outcome, Session, Transaction};
use crate::random::Random;
use crate::wall;

/// Names of the five transactions; the driver's kinds are indices into this list.
pub const KINDS: [&str; 5] = ["new_order", "payment", "order_status", "delivery", "stock_level"];

/// Shares of the five transactions, in the order of [`KINDS`]: cards of a deck that is shuffled,
/// dealt to its end and shuffled again (clause 5.2.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix(pub [u8; 5]);

impl Default for Mix {
    /// The mix of clause 5.2.3, with the largest share of New-Order that the minima of the others
    /// allow.
    fn default() -> Mix {
        Mix([45, 43, 4, 4, 4])
    }
}

/// The terminals that a client uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Terminals {
    /// Any terminal, drawn for every transaction: each client works on all warehouses, as a pool of
    /// connections shared by all terminals does.
    #[default]
    Drawn,
    /// One terminal for the whole run: clients divide the warehouses among them and rarely
    /// conflict.
    Pinned,
}

/// Options that all clients share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// Shares of the transactions.
    pub mix: Mix,
    /// How clients choose terminals.
    pub terminals: Terminals,
    /// Equal seeds draw equal inputs, client by client.
    pub seed: u64,
}

enum Input {
    NewOrder(NewOrderInput),
    Payment(PaymentInput),
    OrderStatus(OrderStatusInput),
    Delivery(DeliveryInput),
    StockLevel(StockLevelInput),
}

#[derive(Default)]
struct Buffers {
    new_order: NewOrderBuffers,
    payment: PaymentBuffers,
    order_status: OrderStatusBuffers,
    delivery: DeliveryBuffers,
    stock_level: StockLevelBuffers,
}

/// One client of a run.
pub struct TpccClient<'e, E: Engine + 'e> {
    session: E::Session<'e>,
    number: u32,
    inputs: Inputs,
    /// The terminal it is pinned to.
    pinned: Option<Terminal>,
    mix: Mix,
    /// Cards not dealt yet.
    deck: Vec<usize>,
    /// The transaction drawn last.
    input: Option<Input>,
    buffers: Buffers,
    /// The last date given to a row of HISTORY; each is later than the one before.
    last_payment_us: u64,
}

impl<'e, E: Engine> TpccClient<'e, E> {
    /// Client `number` of a run against `population`.
    pub fn new(
        engine: &'e E,
        population: Population,
        options: &ClientOptions,
        number: usize,
    ) -> Outcome<TpccClient<'e, E>> {
        assert!(options.mix.0.iter().any(|&share| share > 0), "a mix of nothing");
        let number = u32::try_from(number).expect("clients are threads, so few");
        let inputs = Inputs {
            random: Random::stream(options.seed, u64::from(number)),
            population,
            constants: population.run_constants(options.seed),
        };
        // Clients with consecutive numbers use different warehouses, as long as there are any left.
        let scale = population.scale;
        let seat = u64::from(number) * u64::from(DISTRICTS) + u64::from(number / scale.warehouses);
        let pinned = match options.terminals {
            Terminals::Drawn => None,
            Terminals::Pinned => Some(Terminal::nth((seat % u64::from(scale.terminals())) as u32)),
        };
        Ok(TpccClient {
            session: engine.session()?,
            number,
            inputs,
            pinned,
            mix: options.mix,
            deck: Vec::new(),
            input: None,
            buffers: Buffers::default(),
            last_payment_us: 0,
        })
    }

    fn deal(&mut self) -> usize {
        if self.deck.is_empty() {
            for (kind, &share) in self.mix.0.iter().enumerate() {
                self.deck.extend(std::iter::repeat_n(kind, share.into()));
            }
            self.inputs.random.shuffle(&mut self.deck);
        }
        self.deck.pop().expect("the mix is not empty")
    }

    fn new_order(&mut self, input: &NewOrderInput, mode: CommitMode) -> Outcome<Attempt> {
        let mut txn = self.session.begin(Access::Write)?;
        match new_order::run(&mut txn, input, &mut self.buffers.new_order)? {
            NewOrderOutput::Placed { .. } => txn.commit(mode).map(Attempt::Committed),
            NewOrderOutput::UnusedItem => txn.rollback().map(|()| Attempt::UserAbort),
        }
    }

    fn payment(&mut self, input: &PaymentInput, mode: CommitMode) -> Outcome<Attempt> {
        self.last_payment_us = wall::now_us().max(self.last_payment_us + 1);
        let stamp = (self.last_payment_us, self.number);
        let mut txn = self.session.begin(Access::Write)?;
        payment::run(&mut txn, input, stamp, &mut self.buffers.payment)?;
        txn.commit(mode).map(Attempt::Committed)
    }

    fn order_status(&mut self, input: &OrderStatusInput, mode: CommitMode) -> Outcome<Attempt> {
        let mut txn = self.session.begin(Access::Read)?;
        order_status::run(&mut txn, input, &mut self.buffers.order_status)?;
        txn.commit(mode).map(Attempt::Committed)
    }

    fn delivery(&mut self, input: &DeliveryInput, mode: CommitMode) -> Outcome<Attempt> {
        let mut txn = self.session.begin(Access::Write)?;
        delivery::run(&mut txn, input, &mut self.buffers.delivery)?;
        txn.commit(mode).map(Attempt::Committed)
    }

    fn stock_level(&mut self, input: &StockLevelInput, mode: CommitMode) -> Outcome<Attempt> {
        let mut txn = self.session.begin(Access::Read)?;
        stock_level::run(&mut txn, input, &mut self.buffers.stock_level)?;
        txn.commit(mode).map(Attempt::Committed)
    }
}

impl<E: Engine> Client for TpccClient<'_, E> {
    fn draw(&mut self) -> usize {
        let kind = self.deal();
        let terminal = self.pinned.unwrap_or_else(|| self.inputs.terminal());
        let inputs = &mut self.inputs;
        self.input = Some(match KINDS[kind] {
            "new_order" => Input::NewOrder(NewOrderInput::draw(inputs, terminal, wall::now_us())),
            "payment" => Input::Payment(PaymentInput::draw(inputs, terminal)),
            "order_status" => Input::OrderStatus(OrderStatusInput::draw(inputs, terminal)),
            "delivery" => Input::Delivery(DeliveryInput::draw(inputs, terminal, wall::now_us())),
            _ => Input::StockLevel(StockLevelInput::draw(inputs, terminal)),
        });
        kind
    }

    fn attempt(&mut self, mode: CommitMode) -> Outcome<Attempt> {
        let input = self.input.take().expect("a transaction is drawn before it is attempted");
        let result = match &input {
            Input::NewOrder(input) => self.new_order(input, mode),
            Input::Payment(input) => self.payment(input, mode),
            Input::OrderStatus(input) => self.order_status(input, mode),
            Input::Delivery(input) => self.delivery(input, mode),
            Input::StockLevel(input) => self.stock_level(input, mode),
        };
        self.input = Some(input);
        result
    }
}
