//! Order-Status (clause 2.6) and Stock-Level (clause 2.8), which change nothing.

use super::payment::find_customer;
use super::request::{CustomerBy, Reply};
use super::schema::{
    CUSTOMER_ORDERS, Customer, DistrictOrders, OrderLine, Stock, district_key, in_district, lines_of,
    number_in_district, orders_of, stock_key,
};
use crate::{Direction, OltpError, Row, Transaction};

/// Orders whose items Stock-Level looks at.
const LAST_ORDERS: u32 = 20;

/// How a customer's last order stands.
pub(crate) fn order_status(
    mut transaction: Transaction<'_>,
    warehouse: u32,
    district: u32,
    customer: CustomerBy,
) -> Result<Reply, OltpError> {
    let customer = find_customer(&mut transaction, district_key(warehouse, district), customer)?;
    let key = in_district(warehouse, district, customer);
    let (_, Customer { balance, .. }) = transaction.need(key)?;
    let last = transaction.scan(CUSTOMER_ORDERS, orders_of(key), Direction::Descending, 1)?;
    let Some(last) = last.first() else { return Err(transaction.missing(CUSTOMER_ORDERS, key)) };
    let order = number_in_district(last.key());
    let key = in_district(warehouse, district, order);
    let mut lines = Vec::new();
    for line in transaction.scan(OrderLine::TABLE, lines_of(key..=key), Direction::Ascending, usize::MAX)? {
        let (_, line) = transaction.fetch::<OrderLine>(&line)?;
        lines.push((line.item, line.quantity, line.delivered));
    }
    transaction.commit()?;
    Ok(Reply::Status { customer, balance, order, lines })
}

/// Of how many items of the last orders there are fewer than `threshold`.
pub(crate) fn stock_level(
    mut transaction: Transaction<'_>,
    warehouse: u32,
    district: u32,
    threshold: i32,
) -> Result<Reply, OltpError> {
    let (_, orders) = transaction.need::<DistrictOrders>(district_key(warehouse, district))?;
    let next = orders.next_order as u32;
    let order = |number| in_district(warehouse, district, number);
    let last_orders = lines_of(order(next.saturating_sub(LAST_ORDERS))..=order(next - 1));
    let mut items = Vec::new();
    for line in transaction.scan(OrderLine::TABLE, last_orders, Direction::Ascending, usize::MAX)? {
        items.push(transaction.fetch::<OrderLine>(&line)?.1.item);
    }
    items.sort_unstable();
    items.dedup();
    let mut low = 0;
    for item in items {
        let (_, stock) = transaction.need::<Stock>(stock_key(warehouse, item))?;
        low += u32::from(stock.quantity < threshold);
    }
    transaction.commit()?;
    Ok(Reply::Low(low))
}
