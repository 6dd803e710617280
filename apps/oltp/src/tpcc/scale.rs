//! [`Scale`]: how much there is of everything.

use serde::{Deserialize, Serialize};

use super::schema::{
    CUSTOMER_NAMES, CUSTOMER_ORDERS, Customer, DISTRICTS, History, Item, NEW_ORDERS, Order, OrderLine, ROW_BYTES,
    Stock, TABLES,
};
use crate::Row;

/// Of an order's lines: 5 to 15.
pub(crate) const LINES_MEAN: u64 = 10;
/// What an index needs for a key: 24 bytes, in leaves of which half may be empty.
const KEY_BYTES: u64 = 48;
/// What a table needs beside its rows: chunks that are begun.
const TABLE_BYTES: u64 = 256 << 10;
/// Shares of what the load has: of a district's orders, those that are not delivered.
const UNDELIVERED_PERCENT: u32 = 30;

/// How many rows there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Scale {
    /// Warehouses: at most 65535.
    pub warehouses: u32,
    /// Items, and what each warehouse has of them.
    pub items: u32,
    /// Customers of a district; each has ordered once.
    pub customers: u32,
}

impl Scale {
    /// As the specification has it: about 90 MiB for each warehouse.
    #[must_use]
    pub fn full(warehouses: u32) -> Self {
        Self { warehouses, items: 100_000, customers: 3000 }
    }

    /// With so much fewer items and customers, for tests.
    #[must_use]
    pub fn shrunk(self, by: u32) -> Self {
        Self { items: (self.items / by).max(20), customers: (self.customers / by).max(10), ..self }
    }

    /// Orders of a district that have been delivered when it is loaded.
    pub(crate) fn delivered(self) -> u32 {
        self.customers - self.customers * UNDELIVERED_PERCENT / 100
    }

    /// Bytes of far memory for all this, and for `new_orders` New-Orders with as many Payments and fewer others.
    #[must_use]
    pub fn bytes(self, new_orders: u64) -> u64 {
        let rows = |table: usize, count: u64| {
            let in_page = 4096 / (ROW_BYTES[table].next_multiple_of(8) as u64).max(1);
            let row_bytes = if ROW_BYTES[table] == 0 { 0 } else { 4096 / in_page };
            count * (row_bytes + KEY_BYTES)
        };
        let warehouses = u64::from(self.warehouses);
        let customers = warehouses * u64::from(DISTRICTS) * u64::from(self.customers);
        let orders = customers + new_orders;
        let of_orders = [Order::TABLE, CUSTOMER_ORDERS, NEW_ORDERS].map(|table| rows(table, orders));
        let of_customers = [Customer::TABLE, CUSTOMER_NAMES].map(|table| rows(table, customers));
        of_orders.iter().chain(&of_customers).sum::<u64>()
            + rows(OrderLine::TABLE, orders * LINES_MEAN * 11 / 10)
            + rows(History::TABLE, orders * 11 / 10)
            + rows(Item::TABLE, u64::from(self.items))
            + rows(Stock::TABLE, warehouses * u64::from(self.items))
            + warehouses * 8192
            + TABLES as u64 * TABLE_BYTES
    }
}
