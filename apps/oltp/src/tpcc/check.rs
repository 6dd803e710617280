//! The consistency conditions 1 to 4 (clause 3.3.2), over the whole database.

use std::fmt;

use super::schema::{
    DISTRICTS, DistrictOrders, DistrictPaid, NEW_ORDERS, Order, OrderLine, WarehousePaid, all_in_district,
    district_key, lines_of, number_in_district, warehouse_key,
};
use crate::{Database, Direction, OltpError, Row, Transaction};

/// A database that is not as it must be, or cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CheckError {
    /// A condition does not hold.
    #[error("{place}: condition {condition} does not hold: {details}")]
    Broken {
        /// Which, by the specification's numbers.
        condition: u32,
        /// Where.
        place: Place,
        /// The numbers that do not agree.
        details: String,
    },
    /// The rows cannot be had, or others change them.
    #[error(transparent)]
    Unread(#[from] OltpError),
}

/// A warehouse, or a district of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The warehouse.
    pub warehouse: u32,
    /// The district, if it is one.
    pub district: Option<u32>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "warehouse {}", self.warehouse)?;
        self.district.map_or(Ok(()), |district| write!(f, ", district {district}"))
    }
}

/// Checks every warehouse and every district.
pub(crate) fn check(database: &Database, warehouses: u32) -> Result<(), CheckError> {
    for warehouse in 1..=warehouses {
        check_payments(database.begin(), warehouse)?;
        (1..=DISTRICTS).try_for_each(|district| check_orders(database.begin(), warehouse, district))?;
    }
    Ok(())
}

/// 1: what was paid to a warehouse was paid to its districts.
fn check_payments(mut transaction: Transaction<'_>, warehouse: u32) -> Result<(), CheckError> {
    let (_, WarehousePaid { ytd }) = transaction.need(warehouse_key(warehouse))?;
    let mut of_districts = 0;
    for district in 1..=DISTRICTS {
        of_districts += transaction.need::<DistrictPaid>(district_key(warehouse, district))?.1.ytd;
    }
    transaction.commit()?;
    let details = format!("{ytd} cents were paid to it, and {of_districts} to its districts");
    require(ytd == of_districts, 1, Place { warehouse, district: None }, details)
}

fn check_orders(mut transaction: Transaction<'_>, warehouse: u32, district: u32) -> Result<(), CheckError> {
    let place = Place { warehouse, district: Some(district) };
    let (_, DistrictOrders { next_order }) = transaction.need(district_key(warehouse, district))?;
    let all = all_in_district(warehouse, district);
    let orders = transaction.scan(Order::TABLE, all.clone(), Direction::Ascending, usize::MAX)?;
    let last_order = orders.last().map_or(0, |order| u64::from(number_in_district(order.key())));
    let details = format!("the next order is {next_order}, and the last one {last_order}");
    require(next_order == last_order + 1, 2, place, details)?;

    let waiting = transaction.scan(NEW_ORDERS, all.clone(), Direction::Ascending, usize::MAX)?;
    if let (Some(first), Some(last)) = (waiting.first(), waiting.last()) {
        let [first, last] = [first, last].map(|entry| u64::from(number_in_district(entry.key())));
        let details = format!("the last order is {last_order}, and the last that waits {last}");
        require(last == last_order, 2, place, details)?;
        let details = format!("{} orders wait, from {first} to {last}", waiting.len());
        require(last - first + 1 == waiting.len() as u64, 3, place, details)?;
    }

    let mut lines_told = 0;
    for order in &orders {
        lines_told += transaction.fetch::<Order>(order)?.1.lines as usize;
    }
    let lines = transaction.scan(OrderLine::TABLE, lines_of(all), Direction::Ascending, usize::MAX)?.len();
    transaction.commit()?;
    require(lines == lines_told, 4, place, format!("orders tell of {lines_told} lines, and there are {lines}"))
}

fn require(holds: bool, condition: u32, place: Place, details: String) -> Result<(), CheckError> {
    if holds { Ok(()) } else { Err(CheckError::Broken { condition, place, details }) }
}
