//! The sources from which the inputs of transactions are drawn.

use super::draw::{CUSTOMER_A, ITEM_A, LAST_NAME_A, RunConstants, last_name, nurand};
use super::scale::{DISTRICTS, Population};
use crate::random::Random;

/// A terminal of clause 2.1.1: its home warehouse, and the district of its Stock-Level
/// transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// Home warehouse.
    pub warehouse: u32,
    /// The district of its Stock-Level transactions.
    pub district: u8,
}

impl Terminal {
    /// The terminal at a place in `0..scale.terminals()`.
    #[must_use]
    pub fn nth(place: u32) -> Terminal {
        let districts = u32::from(DISTRICTS);
        Terminal { warehouse: place / districts + 1, district: (place % districts) as u8 + 1 }
    }
}

/// How a customer is selected (clauses 2.5.1.2 and 2.6.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CustomerChoice {
    /// By C_LAST: the number that the name is made of.
    LastName(u32),
    /// By C_ID.
    Id(u32),
}

impl CustomerChoice {
    /// C_LAST, padded by the caller's buffer; `None` if selected by id.
    pub(super) fn name<'a>(&self, buffer: &'a mut [u8; 16]) -> Option<&'a [u8]> {
        match self {
            CustomerChoice::LastName(number) => Some(last_name(*number, buffer)),
            CustomerChoice::Id(_) => None,
        }
    }
}

/// A client's source of inputs.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// The client's own stream.
    pub random: Random,
    /// What the tables hold.
    pub population: Population,
    /// NURand's constants in this run.
    pub constants: RunConstants,
}

impl Inputs {
    /// Any terminal, each as likely as the others.
    pub fn terminal(&mut self) -> Terminal {
        Terminal::nth(self.random.number(0, self.population.scale.terminals() - 1))
    }
    /// A uniform D_ID.
    pub fn district(&mut self) -> u8 {
        self.random.number(1, u32::from(DISTRICTS)) as u8
    }
    /// C_ID by NURand(1023, 1, 3000).
    pub fn customer(&mut self) -> u32 {
        let customers = self.population.scale.customers;
        nurand(&mut self.random, CUSTOMER_A, 1, customers, self.constants.customer)
    }
    /// OL_I_ID by NURand(8191, 1, 100000).
    pub fn item(&mut self) -> u32 {
        let items = self.population.scale.items;
        nurand(&mut self.random, ITEM_A, 1, items, self.constants.item)
    }
    /// By last name, from NURand(255, 0, 999), in 60 of 100 draws; by id in the others.
    pub fn customer_choice(&mut self) -> CustomerChoice {
        if self.random.percent(60) {
            let names = self.population.scale.last_names();
            let number = nurand(&mut self.random, LAST_NAME_A, 0, names - 1, self.constants.last_name);
            CustomerChoice::LastName(number)
        } else {
            CustomerChoice::Id(self.customer())
        }
    }
    /// Any warehouse but `home`; `home` if there is no other.
    pub fn remote_warehouse(&mut self, home: u32) -> u32 {
        let warehouses = self.population.scale.warehouses;
        if warehouses == 1 {
            return home;
        }
        let drawn = self.random.number(1, warehouses - 1);
        if drawn < home { drawn } else { drawn + 1 }
    }
}
