//! New-Order (clause 2.4).

use super::request::{Line, NewOrder, Reply};
use super::schema::{
    CUSTOMER_ORDERS, Customer, District, DistrictOrders, Item, NEW_ORDERS, Order, OrderLine, Stock, Warehouse,
    customer_order_key, district_key, in_district, item_key, line_key, stock_key, warehouse_key,
};
use crate::{OltpError, Transaction};

/// Rates are in hundredths of a percent.
const RATE_ONE: i64 = 10_000;
/// What a stock is filled up by when there would be too few left.
const REFILL: i32 = 91;
const LEFT_MIN: i32 = 10;

/// Enters an order. What many change, the number of the next order, is read last: pages are waited for before.
pub(crate) fn new_order(mut transaction: Transaction<'_>, order: &NewOrder) -> Result<Reply, OltpError> {
    let NewOrder { warehouse, district, customer, entered, ref lines } = *order;
    let buyer = in_district(warehouse, district, customer);
    let (_, Warehouse { tax: warehouse_tax, .. }) = transaction.need(warehouse_key(warehouse))?;
    let (_, District { tax: district_tax, .. }) = transaction.need(district_key(warehouse, district))?;
    let (_, Customer { discount, .. }) = transaction.need(buyer)?;
    let mut rows = Vec::with_capacity(lines.len());
    for line in lines {
        let Some(row) = take_item(&mut transaction, order, line)? else { return Ok(Reply::RolledBack) };
        rows.push(row);
    }

    let (at, mut orders) = transaction.need::<DistrictOrders>(district_key(warehouse, district))?;
    let number = orders.next_order as u32;
    orders.next_order += 1;
    transaction.replace(at, &orders)?;
    let key = in_district(warehouse, district, number);
    let all_local = u32::from(lines.iter().all(|line| line.supplier == warehouse));
    let row = Order { entered, customer, carrier: 0, lines: lines.len() as u32, all_local };
    transaction.add(key, &row)?;
    transaction.insert(NEW_ORDERS, key, &[])?;
    transaction.insert(CUSTOMER_ORDERS, customer_order_key(buyer, number), &[])?;
    for (row, line) in rows.iter().zip(1..) {
        transaction.add(line_key(key, line), row)?;
    }
    transaction.commit()?;

    let sum: i64 = rows.iter().map(|row| row.amount).sum();
    let taxed = RATE_ONE + i64::from(warehouse_tax) + i64::from(district_tax);
    let total = sum * (RATE_ONE - i64::from(discount)) / RATE_ONE * taxed / RATE_ONE;
    Ok(Reply::Ordered { order: number, total })
}

/// Takes what a line wants out of the stock; `None` if there is no such item.
fn take_item(transaction: &mut Transaction<'_>, order: &NewOrder, line: &Line) -> Result<Option<OrderLine>, OltpError> {
    let Some((_, item)) = transaction.row::<Item>(item_key(line.item))? else { return Ok(None) };
    let (at, mut stock) = transaction.need::<Stock>(stock_key(line.supplier, line.item))?;
    stock.quantity -= line.quantity as i32;
    if stock.quantity < LEFT_MIN {
        stock.quantity += REFILL;
    }
    stock.ytd += u64::from(line.quantity);
    stock.orders += 1;
    stock.remotes += u32::from(line.supplier != order.warehouse);
    transaction.replace(at, &stock)?;
    Ok(Some(OrderLine {
        delivered: 0,
        amount: i64::from(line.quantity) * i64::from(item.price),
        item: line.item,
        supplier: line.supplier,
        quantity: line.quantity,
        district: stock.districts[order.district as usize - 1],
        pad: [0; 4],
    }))
}
