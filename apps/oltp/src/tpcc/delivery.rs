//! Delivery (clause 2.7). Each district's order is delivered in a transaction of its own, as that clause allows: it is
//! over the sooner, and in conflict the less.

use super::schema::{
    Customer, NEW_ORDERS, Order, OrderLine, all_in_district, in_district, lines_of, number_in_district,
};
use crate::{Direction, OltpError, Row, Transaction};

/// Delivers the oldest order of a district; false if none waits.
pub(crate) fn deliver_oldest(
    mut transaction: Transaction<'_>,
    warehouse: u32,
    district: u32,
    carrier: u32,
    date: u64,
) -> Result<bool, OltpError> {
    let oldest = transaction.scan(NEW_ORDERS, all_in_district(warehouse, district), Direction::Ascending, 1)?;
    let Some(oldest) = oldest.first() else { return transaction.commit().map(|_| false) };
    transaction.delete(oldest.at())?;
    let key = in_district(warehouse, district, number_in_district(oldest.key()));
    let (at, order) = transaction.need::<Order>(key)?;
    transaction.replace(at, &Order { carrier, ..order })?;
    let mut amount = 0;
    for line in transaction.scan(OrderLine::TABLE, lines_of(key..=key), Direction::Ascending, usize::MAX)? {
        let (at, line) = transaction.fetch::<OrderLine>(&line)?;
        amount += line.amount;
        transaction.replace(at, &OrderLine { delivered: date, ..line })?;
    }
    let (at, mut customer) = transaction.need::<Customer>(in_district(warehouse, district, order.customer))?;
    customer.balance += amount;
    customer.deliveries += 1;
    transaction.replace(at, &customer)?;
    transaction.commit().map(|_| true)
}
