//! Payment (clause 2.5), and how a customer is found by name.

use std::io::Write;

use super::request::{CustomerBy, Payment, Reply};
use super::schema::{
    CUSTOMER_DATA, CUSTOMER_NAMES, Customer, District, DistrictPaid, History, Warehouse, WarehousePaid,
    customer_of_name, district_key, history_key, in_district, names_of, warehouse_key,
};
use crate::{Direction, Key, OltpError, Transaction};

/// Takes a payment, the `number`th of all. What many change, the sums of the warehouse and the district, is read last.
pub(crate) fn payment(mut transaction: Transaction<'_>, payment: &Payment, number: u64) -> Result<Reply, OltpError> {
    let Payment { warehouse, district, customer_warehouse, customer_district, customer, amount, date } = *payment;
    let of_customer = district_key(customer_warehouse, customer_district);
    let customer = find_customer(&mut transaction, of_customer, customer)?;
    let (at, mut payer) = transaction.need::<Customer>(in_district(customer_warehouse, customer_district, customer))?;
    payer.balance -= amount;
    payer.ytd_payment += amount;
    payer.payments += 1;
    if payer.credit == *b"BC" {
        note(&mut payer, payment, customer);
    }
    transaction.replace(at, &payer)?;

    let (_, Warehouse { name: warehouse_name, .. }) = transaction.need(warehouse_key(warehouse))?;
    let (_, District { name: district_name, .. }) = transaction.need(district_key(warehouse, district))?;
    let mut data = [b' '; 24];
    data[..10].copy_from_slice(&warehouse_name);
    data[14..].copy_from_slice(&district_name);
    let row = History {
        amount,
        date,
        customer,
        customer_district,
        customer_warehouse,
        district,
        warehouse,
        data,
        pad: [0; 4],
    };
    transaction.add(history_key(warehouse, district, number), &row)?;

    let (at, mut paid) = transaction.need::<WarehousePaid>(warehouse_key(warehouse))?;
    paid.ytd += amount;
    transaction.replace(at, &paid)?;
    let (at, mut paid) = transaction.need::<DistrictPaid>(district_key(warehouse, district))?;
    paid.ytd += amount;
    transaction.replace(at, &paid)?;
    transaction.commit()?;
    Ok(Reply::Paid { customer, balance: payer.balance })
}

/// Which customer of a district is meant: of those with a name the middle one, by first names.
pub(crate) fn find_customer(
    transaction: &mut Transaction<'_>,
    district: Key,
    customer: CustomerBy,
) -> Result<u32, OltpError> {
    let last = match customer {
        CustomerBy::Number(number) => return Ok(number),
        CustomerBy::Name(last) => last,
    };
    let found = transaction.scan(CUSTOMER_NAMES, names_of(district, last), Direction::Ascending, usize::MAX)?;
    let middle = found.len().div_ceil(2);
    if middle == 0 {
        return Err(transaction.missing(CUSTOMER_NAMES, *names_of(district, last).start()));
    }
    Ok(customer_of_name(found[middle - 1].key()))
}

/// Puts a payment before everything that is noted of a customer with bad credit.
fn note(payer: &mut Customer, payment: &Payment, customer: u32) {
    let mut data = Vec::with_capacity(2 * CUSTOMER_DATA);
    let Payment { warehouse, district, customer_warehouse, customer_district, amount, .. } = payment;
    write!(data, "{customer} {customer_district} {customer_warehouse} {district} {warehouse} {amount}|")
        .expect("a vector takes what is written");
    data.extend_from_slice(&payer.data);
    payer.data.copy_from_slice(&data[..CUSTOMER_DATA]);
}
