//! Filling the tables (clause 4.3.3).

use std::mem;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::random::{self, LAST_NAMES_LOADED, LastName, NAMES};
use super::scale::Scale;
use super::schema::{
    CUSTOMER_NAMES, CUSTOMER_ORDERS, Customer, DISTRICTS, District, DistrictOrders, DistrictPaid, History, Item,
    NEW_ORDERS, Order, OrderLine, Stock, Warehouse, WarehousePaid, customer_order_key, district_key, history_key,
    in_district, item_key, line_key, name_key, stock_key, warehouse_key,
};
use crate::{Database, Key, OltpError, Row, Transaction};

/// Rows of a transaction.
const BATCH_ROWS: usize = 60;
/// When everything was loaded.
const LOADED: u64 = 1;
/// In cents.
const DOLLAR: i64 = 100;
/// What each customer has paid, in cents.
const PAID: i64 = 10 * DOLLAR;
/// What each district has been paid, in cents.
const DISTRICT_PAID: i64 = 30_000 * DOLLAR;

/// Fills the tables, and says how many payments there are. `progress` is told the share that is done.
pub(crate) fn load(
    database: &Database,
    scale: Scale,
    seed: u64,
    progress: &mut dyn FnMut(f64),
) -> Result<u64, OltpError> {
    let (random, batch) = (SmallRng::seed_from_u64(seed), Batch { database, open: database.begin(), rows: 0 });
    let mut loader = Loader { scale, random, batch, payments: 0 };
    loader.items()?;
    for warehouse in 1..=scale.warehouses {
        loader.warehouse(warehouse)?;
        progress(f64::from(warehouse) / f64::from(scale.warehouses));
    }
    loader.batch.open.commit()?;
    Ok(loader.payments)
}

/// Rows that are inserted many at a time.
struct Batch<'a> {
    database: &'a Database,
    open: Transaction<'a>,
    rows: usize,
}

impl Batch<'_> {
    fn add<R: Row>(&mut self, key: Key, row: &R) -> Result<(), OltpError> {
        self.count()?;
        self.open.add(key, row)
    }

    fn add_key(&mut self, table: usize, key: Key) -> Result<(), OltpError> {
        self.count()?;
        self.open.insert(table, key, &[])
    }

    fn count(&mut self) -> Result<(), OltpError> {
        if self.rows == BATCH_ROWS {
            mem::replace(&mut self.open, self.database.begin()).commit()?;
            self.rows = 0;
        }
        self.rows += 1;
        Ok(())
    }
}

struct Loader<'a> {
    scale: Scale,
    random: SmallRng,
    batch: Batch<'a>,
    payments: u64,
}

impl Loader<'_> {
    fn items(&mut self) -> Result<(), OltpError> {
        for item in 1..=self.scale.items {
            let random = &mut self.random;
            let row = Item {
                price: random.random_range(100..=10_000),
                image: random.random_range(1..=10_000),
                name: random::text(random, 14),
                data: random::data(random),
                pad: [0; 2],
            };
            self.batch.add(item_key(item), &row)?;
        }
        Ok(())
    }

    fn warehouse(&mut self, warehouse: u32) -> Result<(), OltpError> {
        let random = &mut self.random;
        let (name, address) = (random::text(random, 6), random::address(random));
        let row = Warehouse { tax: random.random_range(0..=2000), name, address, pad: [0; 3] };
        self.batch.add(warehouse_key(warehouse), &row)?;
        let paid = WarehousePaid { ytd: DISTRICT_PAID * i64::from(DISTRICTS) };
        self.batch.add(warehouse_key(warehouse), &paid)?;
        self.stock(warehouse)?;
        (1..=DISTRICTS).try_for_each(|district| self.district(warehouse, district))
    }

    fn stock(&mut self, warehouse: u32) -> Result<(), OltpError> {
        for item in 1..=self.scale.items {
            let random = &mut self.random;
            let row = Stock {
                ytd: 0,
                quantity: random.random_range(10..=100),
                orders: 0,
                remotes: 0,
                districts: std::array::from_fn(|_| random::text(random, 24)),
                data: random::data(random),
                pad: [0; 2],
            };
            self.batch.add(stock_key(warehouse, item), &row)?;
        }
        Ok(())
    }

    fn district(&mut self, warehouse: u32, district: u32) -> Result<(), OltpError> {
        let key = district_key(warehouse, district);
        let random = &mut self.random;
        let (name, address) = (random::text(random, 6), random::address(random));
        self.batch.add(key, &District { tax: random.random_range(0..=2000), name, address, pad: [0; 3] })?;
        self.batch.add(key, &DistrictPaid { ytd: DISTRICT_PAID })?;
        self.batch.add(key, &DistrictOrders { next_order: u64::from(self.scale.customers) + 1 })?;
        (1..=self.scale.customers).try_for_each(|customer| self.customer(warehouse, district, customer))?;
        let mut customers: Vec<u32> = (1..=self.scale.customers).collect();
        customers.shuffle(&mut self.random);
        (1..).zip(customers).try_for_each(|(order, customer)| self.order(warehouse, district, order, customer))
    }

    fn customer(&mut self, warehouse: u32, district: u32, customer: u32) -> Result<(), OltpError> {
        let random = &mut self.random;
        // The first thousand have all names.
        let last = if customer <= NAMES {
            LastName::new(customer - 1)
        } else {
            LastName::new(random::uneven(random, LAST_NAMES_LOADED, 0..=NAMES - 1))
        };
        let row = Customer {
            balance: -PAID,
            ytd_payment: PAID,
            credit_limit: 50_000 * DOLLAR,
            since: LOADED,
            discount: random.random_range(0..=5000),
            payments: 1,
            deliveries: 0,
            first: random::text(random, 8),
            middle: *b"OE",
            last: last.text(),
            address: random::address(random),
            phone: random::digits(random),
            credit: if random.random_ratio(1, 10) { *b"BC" } else { *b"GC" },
            data: random::text(random, 300),
            pad: [0; 5],
        };
        self.batch.add(in_district(warehouse, district, customer), &row)?;
        let name = name_key(district_key(warehouse, district), last, &row.first, customer);
        self.batch.add_key(CUSTOMER_NAMES, name)?;
        self.payments += 1;
        let payment = History {
            amount: PAID,
            date: LOADED,
            customer,
            customer_district: district,
            customer_warehouse: warehouse,
            district,
            warehouse,
            data: random::text(&mut self.random, 12),
            pad: [0; 4],
        };
        self.batch.add(history_key(warehouse, district, self.payments), &payment)
    }

    fn order(&mut self, warehouse: u32, district: u32, order: u32, customer: u32) -> Result<(), OltpError> {
        let key = in_district(warehouse, district, order);
        let is_delivered = order <= self.scale.delivered();
        let carrier = if is_delivered { self.random.random_range(1..=10) } else { 0 };
        let lines = self.random.random_range(5..=15);
        self.batch.add(key, &Order { entered: LOADED, customer, carrier, lines, all_local: 1 })?;
        let of_customer = customer_order_key(in_district(warehouse, district, customer), order);
        self.batch.add_key(CUSTOMER_ORDERS, of_customer)?;
        if !is_delivered {
            self.batch.add_key(NEW_ORDERS, key)?;
        }
        for line in 1..=lines {
            let random = &mut self.random;
            let row = OrderLine {
                delivered: if is_delivered { LOADED } else { 0 },
                amount: if is_delivered { 0 } else { random.random_range(1..10_000 * DOLLAR) },
                item: random.random_range(1..=self.scale.items),
                supplier: warehouse,
                quantity: 5,
                district: random::text(random, 24),
                pad: [0; 4],
            };
            self.batch.add(line_key(key, line), &row)?;
        }
        Ok(())
    }
}
