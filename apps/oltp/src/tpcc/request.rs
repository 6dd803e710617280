//! [`Request`]: what a terminal asks for, and [`Requests`], which makes them up.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use super::random::{self, CUSTOMERS, ITEMS, LAST_NAMES_ASKED, LastName, NAMES};
use super::scale::Scale;
use super::schema::DISTRICTS;

/// Lines of an order, of each of which so many are wanted, cents of a payment, and warehouses, at most.
const LINES_MAX: usize = 15;
const QUANTITY_MAX: u32 = 10;
const AMOUNT_MAX: u32 = 500_000;
const WAREHOUSES_MAX: u32 = u16::MAX as u32;

/// One transaction with its inputs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Enters an order.
    NewOrder(NewOrder),
    /// Takes a customer's payment.
    Payment(Payment),
    /// Says how a customer's last order stands.
    OrderStatus {
        /// The customer's.
        warehouse: u32,
        /// The customer's.
        district: u32,
        /// Who.
        customer: CustomerBy,
    },
    /// Delivers the oldest order of each district.
    Delivery {
        /// The districts'.
        warehouse: u32,
        /// Who delivers.
        carrier: u32,
        /// When.
        date: u64,
    },
    /// Says of how many items of the last orders there are few.
    StockLevel {
        /// The orders'.
        warehouse: u32,
        /// The orders'.
        district: u32,
        /// How many are not few any more.
        threshold: i32,
    },
}

impl Request {
    /// Whether it may be asked of tables, whatever their scale. What they do not have is missed there.
    ///
    /// # Errors
    /// If it may not; the text tells the client why.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (warehouse, district) = match self {
            Self::NewOrder(order) => {
                if !(1..=LINES_MAX).contains(&order.lines.len()) {
                    return Err(format!("an order of {} lines: 1 to {LINES_MAX} are possible", order.lines.len()));
                }
                for line in &order.lines {
                    within("warehouse", line.supplier, WAREHOUSES_MAX)?;
                    within("quantity", line.quantity, QUANTITY_MAX)?;
                }
                (order.warehouse, order.district)
            }
            Self::Payment(payment) => {
                within("warehouse", payment.customer_warehouse, WAREHOUSES_MAX)?;
                within("district", payment.customer_district, DISTRICTS)?;
                within("payment of cents", u32::try_from(payment.amount).unwrap_or(0), AMOUNT_MAX)?;
                (payment.warehouse, payment.district)
            }
            Self::OrderStatus { warehouse, district, .. } | Self::StockLevel { warehouse, district, .. } => {
                (*warehouse, *district)
            }
            Self::Delivery { warehouse, .. } => (*warehouse, 1),
        };
        within("warehouse", warehouse, WAREHOUSES_MAX)?;
        within("district", district, DISTRICTS)
    }
}

fn within(what: &str, number: u32, most: u32) -> Result<(), String> {
    let is_within = (1..=most).contains(&number);
    if is_within { Ok(()) } else { Err(format!("there is no {what} {number}: 1 to {most} are possible")) }
}

/// An order to be entered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewOrder {
    /// The customer's.
    pub warehouse: u32,
    /// The customer's.
    pub district: u32,
    /// Who orders.
    pub customer: u32,
    /// When.
    pub entered: u64,
    /// What. An item that does not exist rolls the order back.
    pub lines: Vec<Line>,
}

/// A line of an order to be entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Line {
    /// Which item.
    pub item: u32,
    /// The warehouse that has it.
    pub supplier: u32,
    /// How many.
    pub quantity: u32,
}

/// A payment to be made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Payment {
    /// Where it is made.
    pub warehouse: u32,
    /// Where it is made.
    pub district: u32,
    /// The customer's.
    pub customer_warehouse: u32,
    /// The customer's.
    pub customer_district: u32,
    /// Who pays.
    pub customer: CustomerBy,
    /// Cents.
    pub amount: i64,
    /// When.
    pub date: u64,
}

/// How a customer is named.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CustomerBy {
    /// By number.
    Number(u32),
    /// By last name: the middle one of all who have it.
    Name(LastName),
}

/// What came of a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The order was entered.
    Ordered {
        /// Its number in the district.
        order: u32,
        /// What it costs, in cents.
        total: i64,
    },
    /// The order names an item that does not exist, and nothing was entered.
    RolledBack,
    /// The payment was made.
    Paid {
        /// Who has paid.
        customer: u32,
        /// What is owed now.
        balance: i64,
    },
    /// How the last order stands.
    Status {
        /// Whose.
        customer: u32,
        /// What is owed.
        balance: i64,
        /// The number of the order.
        order: u32,
        /// Its lines: item, quantity, and when it was delivered.
        lines: Vec<(u32, u32, u64)>,
    },
    /// So many districts' orders were delivered; the others had none.
    Delivered(u32),
    /// Of so many items there are few.
    Low(u32),
}

/// Makes requests up, by a seed.
pub struct Requests {
    random: SmallRng,
    scale: Scale,
}

impl Requests {
    /// For a database of that scale.
    #[must_use]
    pub fn new(scale: Scale, seed: u64) -> Self {
        Self { random: SmallRng::seed_from_u64(seed), scale }
    }

    /// The next, made at `now`, which is not 0.
    pub fn next(&mut self, now: u64) -> Request {
        let warehouse = self.random.random_range(1..=self.scale.warehouses);
        let district = self.random.random_range(1..=DISTRICTS);
        // Of a thousand: 445 New-Order, 431 Payment, 41 Order-Status, 42 Delivery, 41 Stock-Level (Adios, section 5.2).
        match self.random.random_range(0..1000) {
            0..445 => Request::NewOrder(self.new_order(warehouse, district, now)),
            445..876 => Request::Payment(self.payment(warehouse, district, now)),
            876..917 => Request::OrderStatus { warehouse, district, customer: self.customer() },
            917..959 => Request::Delivery { warehouse, carrier: self.random.random_range(1..=10), date: now },
            _ => Request::StockLevel { warehouse, district, threshold: self.random.random_range(10..=20) },
        }
    }

    fn new_order(&mut self, warehouse: u32, district: u32, entered: u64) -> NewOrder {
        let customer = random::uneven(&mut self.random, CUSTOMERS, 1..=self.scale.customers);
        let count = self.random.random_range(5..=15);
        let mut lines: Vec<Line> = (0..count).map(|_| self.line(warehouse)).collect();
        if self.random.random_ratio(1, 100) {
            // An item that does not exist, as the last line (clause 2.4.1.5).
            lines[count - 1].item = self.scale.items + 1;
        }
        NewOrder { warehouse, district, customer, entered, lines }
    }

    fn line(&mut self, warehouse: u32) -> Line {
        let item = random::uneven(&mut self.random, ITEMS, 1..=self.scale.items);
        let is_remote = self.random.random_ratio(1, 100);
        let supplier = if is_remote { self.other_than(warehouse) } else { warehouse };
        Line { item, supplier, quantity: self.random.random_range(1..=10) }
    }

    fn payment(&mut self, warehouse: u32, district: u32, date: u64) -> Payment {
        let is_remote = self.random.random_ratio(15, 100);
        let (customer_warehouse, customer_district) = if is_remote {
            (self.other_than(warehouse), self.random.random_range(1..=DISTRICTS))
        } else {
            (warehouse, district)
        };
        let (customer, amount) = (self.customer(), self.random.random_range(100..=500_000));
        Payment { warehouse, district, customer_warehouse, customer_district, customer, amount, date }
    }

    /// By last name in 60 of 100 cases.
    fn customer(&mut self) -> CustomerBy {
        if self.random.random_ratio(60, 100) {
            let names = NAMES.min(self.scale.customers);
            CustomerBy::Name(LastName::new(random::uneven(&mut self.random, LAST_NAMES_ASKED, 0..=names - 1)))
        } else {
            CustomerBy::Number(random::uneven(&mut self.random, CUSTOMERS, 1..=self.scale.customers))
        }
    }

    /// Another warehouse, if there is one.
    fn other_than(&mut self, warehouse: u32) -> u32 {
        if self.scale.warehouses == 1 {
            return warehouse;
        }
        let other = self.random.random_range(1..self.scale.warehouses);
        if other < warehouse { other } else { other + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_the_papers() {
        let scale = Scale::full(5);
        let mut requests = Requests::new(scale, 3);
        let (mut kinds, mut by_name, mut remote, mut rolled_back) = ([0_u32; 5], 0, 0, 0);
        for now in 1..=100_000 {
            let kind = match requests.next(now) {
                Request::NewOrder(order) => {
                    rolled_back += u32::from(order.lines.iter().any(|line| line.item > scale.items));
                    0
                }
                Request::Payment(payment) => {
                    remote += u32::from(payment.customer_warehouse != payment.warehouse);
                    by_name += u32::from(matches!(payment.customer, CustomerBy::Name(_)));
                    1
                }
                Request::OrderStatus { .. } => 2,
                Request::Delivery { .. } => 3,
                Request::StockLevel { .. } => 4,
            };
            kinds[kind] += 1;
        }
        let near = |count: u32, share: f64, of: u32| (f64::from(count) / f64::from(of) - share).abs() < 0.01;
        let shares = [0.445, 0.431, 0.041, 0.042, 0.041];
        assert!(kinds.iter().zip(shares).all(|(count, share)| near(*count, share, 100_000)), "{kinds:?}");
        assert!(near(by_name, 0.6, kinds[1]) && near(remote, 0.15, kinds[1]) && near(rolled_back, 0.01, kinds[0]));
        assert!(rolled_back > 0);
    }
}
