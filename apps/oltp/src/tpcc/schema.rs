//! The tables of TPC-C: rows, and the keys by which they are found.
//!
//! Fields have the sizes of the specification (clause 1.3). Amounts are in cents, rates in hundredths of a percent,
//! times whatever number the load gives. What many transactions change of a warehouse or a district has rows of its
//! own, apart from the names and rates that all others read (vertical partitioning, which clause 1.4 allows): with
//! whole rows every Payment would be in conflict with every New-Order of its warehouse.
//!
//! Keys are numbers put together, the coarsest first, so that what belongs together stands together: a district's
//! orders, an order's lines.

use std::ops::RangeInclusive;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::random::LastName;
use crate::{Key, Row};

/// Districts of a warehouse.
pub const DISTRICTS: u32 = 10;
/// Bytes of a customer's data.
pub const CUSTOMER_DATA: usize = 500;

/// Declares rows, and the numbers of their tables in this order; tables of keys alone come behind.
macro_rules! tables {
    ($($(#[$doc:meta])* $row:ident $number:literal { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub struct $row {
                $($(#[$field_doc])* pub $field: $type,)*
            }

            impl Row for $row {
                const TABLE: usize = $number;
            }
        )*
        /// Bytes of a row of each table.
        pub const ROW_BYTES: [usize; TABLES] = [$(size_of::<$row>(),)* 0, 0, 0];
    };
}

/// Keys: customers by last name, in the order of first names.
pub const CUSTOMER_NAMES: usize = 11;
/// Keys: orders by customer.
pub const CUSTOMER_ORDERS: usize = 12;
/// Keys: orders that are not delivered. NEW-ORDER has no more than its key.
pub const NEW_ORDERS: usize = 13;
/// How many tables there are.
pub const TABLES: usize = 14;

/// Where somebody is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Address {
    /// First line.
    pub street_1: [u8; 20],
    /// Second line.
    pub street_2: [u8; 20],
    /// City.
    pub city: [u8; 20],
    /// State.
    pub state: [u8; 2],
    /// Code.
    pub zip: [u8; 9],
}

tables! {
    /// A warehouse, what does not change of it.
    Warehouse 0 {
        /// Rate.
        tax: u32,
        /// Its name.
        name: [u8; 10],
        /// Where it is.
        address: Address,
        /// Nothing.
        pad: [u8; 3],
    }
    /// What was paid to a warehouse.
    WarehousePaid 1 {
        /// In this year.
        ytd: i64,
    }
    /// A district, what does not change of it.
    District 2 {
        /// Rate.
        tax: u32,
        /// Its name.
        name: [u8; 10],
        /// Where it is.
        address: Address,
        /// Nothing.
        pad: [u8; 3],
    }
    /// What was paid to a district.
    DistrictPaid 3 {
        /// In this year.
        ytd: i64,
    }
    /// What a district counts.
    DistrictOrders 4 {
        /// Number of its next order.
        next_order: u64,
    }
    /// A customer.
    Customer 5 {
        /// What is owed.
        balance: i64,
        /// Paid in this year.
        ytd_payment: i64,
        /// How much may be owed.
        credit_limit: i64,
        /// Since when.
        since: u64,
        /// Rate.
        discount: u32,
        /// Payments so far.
        payments: u32,
        /// Deliveries so far.
        deliveries: u32,
        /// First name.
        first: [u8; 16],
        /// Middle initials.
        middle: [u8; 2],
        /// Last name.
        last: [u8; 16],
        /// Where.
        address: Address,
        /// Telephone.
        phone: [u8; 16],
        /// `GC` or `BC`.
        credit: [u8; 2],
        /// Anything.
        data: [u8; CUSTOMER_DATA],
        /// Nothing.
        pad: [u8; 5],
    }
    /// A payment that was made.
    History 6 {
        /// How much.
        amount: i64,
        /// When.
        date: u64,
        /// Who, of which district and warehouse.
        customer: u32,
        /// Of the customer.
        customer_district: u32,
        /// Of the customer.
        customer_warehouse: u32,
        /// Where it was made.
        district: u32,
        /// Where it was made.
        warehouse: u32,
        /// Names.
        data: [u8; 24],
        /// Nothing.
        pad: [u8; 4],
    }
    /// An order.
    Order 7 {
        /// When it was entered.
        entered: u64,
        /// Who ordered.
        customer: u32,
        /// Who has delivered it; 0 as long as nobody has.
        carrier: u32,
        /// How many lines it has.
        lines: u32,
        /// 1 if all items are from the order's own warehouse.
        all_local: u32,
    }
    /// A line of an order.
    OrderLine 8 {
        /// When it was delivered; 0 as long as it is not.
        delivered: u64,
        /// What it costs.
        amount: i64,
        /// Which item.
        item: u32,
        /// The warehouse that it is from.
        supplier: u32,
        /// How many.
        quantity: u32,
        /// What the supplier's stock says of the district.
        district: [u8; 24],
        /// Nothing.
        pad: [u8; 4],
    }
    /// An item.
    Item 9 {
        /// What one costs.
        price: u32,
        /// Its picture.
        image: u32,
        /// Its name.
        name: [u8; 24],
        /// Anything.
        data: [u8; 50],
        /// Nothing.
        pad: [u8; 2],
    }
    /// What a warehouse has of an item.
    Stock 10 {
        /// How many were ordered in this year.
        ytd: u64,
        /// How many there are.
        quantity: i32,
        /// Lines of orders.
        orders: u32,
        /// Of those, from other warehouses' districts.
        remotes: u32,
        /// Something for each district.
        districts: [[u8; 24]; DISTRICTS as usize],
        /// Anything.
        data: [u8; 50],
        /// Nothing.
        pad: [u8; 2],
    }
}

/// A warehouse's key.
#[must_use]
pub fn warehouse_key(warehouse: u32) -> Key {
    Key::from(warehouse)
}

/// A district's key.
#[must_use]
pub fn district_key(warehouse: u32, district: u32) -> Key {
    Key::from(warehouse) << 8 | Key::from(district)
}

/// The key of something that a district numbers: a customer, an order.
#[must_use]
pub fn in_district(warehouse: u32, district: u32, number: u32) -> Key {
    district_key(warehouse, district) << 32 | Key::from(number)
}

/// The keys of all that a district numbers.
#[must_use]
pub fn all_in_district(warehouse: u32, district: u32) -> RangeInclusive<Key> {
    in_district(warehouse, district, 0)..=in_district(warehouse, district, u32::MAX)
}

/// The number that a district has given.
#[must_use]
pub fn number_in_district(key: Key) -> u32 {
    key as u32
}

/// The key of a line of an order.
#[must_use]
pub fn line_key(order: Key, line: u32) -> Key {
    order << 8 | Key::from(line)
}

/// The keys of the lines of these orders.
#[must_use]
pub fn lines_of(orders: RangeInclusive<Key>) -> RangeInclusive<Key> {
    line_key(*orders.start(), 0)..=line_key(*orders.end(), u32::from(u8::MAX))
}

/// The key of an order among its customer's.
#[must_use]
pub fn customer_order_key(customer: Key, order: u32) -> Key {
    customer << 32 | Key::from(order)
}

/// The keys of a customer's orders.
#[must_use]
pub fn orders_of(customer: Key) -> RangeInclusive<Key> {
    customer_order_key(customer, 0)..=customer_order_key(customer, u32::MAX)
}

/// The key of a customer among those with the same last name. Of first names eight letters count, and then the
/// customers' numbers.
#[must_use]
pub fn name_key(district: Key, last: LastName, first: &[u8; 16], customer: u32) -> Key {
    let first = first.first_chunk().map_or(0, |letters| u64::from_be_bytes(*letters));
    (district << 16 | Key::from(last.number())) << 88 | Key::from(first) << 24 | Key::from(customer)
}

/// The keys of all customers of a last name.
#[must_use]
pub fn names_of(district: Key, last: LastName) -> RangeInclusive<Key> {
    let least = name_key(district, last, &[0; 16], 0);
    least..=least | ((1 << 88) - 1)
}

/// The customer of a name's key.
#[must_use]
pub fn customer_of_name(key: Key) -> u32 {
    key as u32 & 0x00FF_FFFF
}

/// The key of a payment: its district, and which of all payments it is.
#[must_use]
pub fn history_key(warehouse: u32, district: u32, number: u64) -> Key {
    district_key(warehouse, district) << 64 | Key::from(number)
}

/// An item's key.
#[must_use]
pub fn item_key(item: u32) -> Key {
    Key::from(item)
}

/// The key of what a warehouse has of an item.
#[must_use]
pub fn stock_key(warehouse: u32, item: u32) -> Key {
    Key::from(warehouse) << 32 | Key::from(item)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_sizes_of_the_specification() {
        // Fields of the specification, and what aligns rows.
        assert_eq!(size_of::<Address>(), 71);
        assert_eq!(ROW_BYTES, [88, 8, 88, 8, 8, 672, 64, 24, 56, 84, 312, 0, 0, 0]);
        assert_eq!([Warehouse::TABLE, Customer::TABLE, Stock::TABLE], [0, 5, 10]);
    }

    #[test]
    fn keys_keep_apart_what_is_different_and_together_what_belongs_together() {
        let order = |district, number| in_district(3, district, number);
        assert!(all_in_district(3, 4).contains(&order(4, u32::MAX)) && !all_in_district(3, 4).contains(&order(5, 0)));
        assert!(lines_of(order(4, 7)..=order(4, 8)).contains(&line_key(order(4, 8), 15)));
        assert!(!lines_of(order(4, 7)..=order(4, 8)).contains(&line_key(order(4, 9), 0)));
        assert_eq!(number_in_district(*orders_of(order(4, 9)).end()), u32::MAX);
        let first = |text: &[u8; 4]| std::array::from_fn(|at| text.get(at).copied().unwrap_or(b' '));
        let name =
            |last, text, customer| name_key(district_key(65_535, 10), LastName::new(last), &first(text), customer);
        let names = [name(0, b"Zoeb", 1), name(999, b"Anna", 2), name(999, b"Annb", 1), name(999, b"Annb", 3000)];
        assert!(names.is_sorted());
        let all = names_of(district_key(65_535, 10), LastName::new(999));
        assert_eq!(names.map(|key| all.contains(&key)), [false, true, true, true]);
        assert_eq!(names.map(customer_of_name), [1, 2, 1, 3000]);
    }
}
