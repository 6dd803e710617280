//! TPC-C with a fifth of its tables in local memory.

use std::sync::Arc;
use std::time::Duration;

use crate::served::{WAYS, serve_all};
use crate::support::{URL, far};
use yonder::{Config, Deadlines, EmuFabric, FarMemory};
use yonder_oltp::tpcc::schema::{
    Customer, DISTRICTS, DistrictOrders, DistrictPaid, NEW_ORDERS, Order, OrderLine, Stock, Warehouse, WarehousePaid,
    all_in_district, district_key, in_district, line_key, stock_key, warehouse_key,
};
use yonder_oltp::tpcc::{
    CheckError, CustomerBy, LastName, Line, NewOrder, Payment, Reply, Request, Requests, Scale, Tpcc,
};
use yonder_oltp::{Direction, OltpError, Row, Transaction};

/// In cents.
const DOLLAR: i64 = 100;
/// Requests of a run.
const REQUESTS: usize = 4000;

fn scale() -> Scale {
    Scale::full(2).shrunk(10)
}

fn load(far: &FarMemory, scale: Scale) -> Arc<Tpcc> {
    let region = far.region(scale.bytes(2 * REQUESTS as u64)).unwrap();
    Arc::new(Tpcc::load(Arc::new(region), scale, 1, &mut |_| ()).unwrap())
}

fn requests(seed: u64, count: usize) -> Vec<Request> {
    let mut requests = Requests::new(scale(), seed);
    (2..).take(count).map(|now| requests.next(now)).collect()
}

/// Runs a change that no other is in conflict with.
fn change<T>(tpcc: &Tpcc, change: impl FnOnce(&mut Transaction<'_>) -> T) -> T {
    let mut transaction = tpcc.database().begin();
    let result = change(&mut transaction);
    transaction.commit().unwrap();
    result
}

/// Orders that districts have counted.
fn orders(tpcc: &Tpcc) -> u64 {
    let districts =
        (1..=scale().warehouses).flat_map(|warehouse| (1..=DISTRICTS).map(move |district| (warehouse, district)));
    let next = |(warehouse, district)| {
        let key = district_key(warehouse, district);
        change(tpcc, |transaction| transaction.need::<DistrictOrders>(key).unwrap().1.next_order)
    };
    districts.map(next).sum()
}

#[test]
fn what_is_loaded_is_consistent_and_has_the_room_that_was_said() {
    let Some(far) = far(64 << 20) else { return };
    let scale = scale();
    let region = far.region(scale.bytes(0)).unwrap();
    let mut told = Vec::new();
    let tpcc = Tpcc::load(Arc::new(region), scale, 1, &mut |share| told.push(share)).unwrap();
    tpcc.check().unwrap();
    assert_eq!(told, [0.5, 1.0]);
    let used = tpcc.database().used_bytes();
    assert!(used <= scale.bytes(0) && used > scale.bytes(0) / 2, "{used} bytes are used");
}

#[test]
fn a_region_that_is_too_small_is_an_error() {
    let Some(far) = far(16 << 20) else { return };
    let region = Arc::new(far.region(4 << 20).unwrap());
    let full = Tpcc::load(region, scale(), 1, &mut |_| ()).err();
    assert!(matches!(full, Some(OltpError::OutOfRoom { bytes }) if bytes <= 4 << 20), "{full:?}");
}

#[test]
fn an_order_is_entered_paid_shown_and_delivered() {
    let Some(far) = far(64 << 20) else { return };
    let tpcc = load(&far, scale());
    let (warehouse, district, customer) = (1, 2, 3);
    let next = scale().customers + 1;
    let stock = |item| change(&tpcc, |transaction| transaction.need::<Stock>(stock_key(2, item)).unwrap().1);
    let before = stock(7);
    // The same item twice: the second line sees what the first has taken.
    let lines = vec![Line { item: 7, supplier: 2, quantity: 4 }, Line { item: 7, supplier: 2, quantity: 5 }];
    let order = NewOrder { warehouse, district, customer, entered: 77, lines };
    let Ok(Reply::Ordered { order: number, total }) = tpcc.serve(&Request::NewOrder(order.clone())) else {
        panic!("the order is not entered")
    };
    assert_eq!(number, next);
    let after = stock(7);
    assert_eq!((after.ytd, after.orders, after.remotes), (before.ytd + 9, before.orders + 2, before.remotes + 2));
    assert_eq!((before.quantity - 9 - after.quantity).rem_euclid(91), 0);
    assert!(after.quantity >= 10 && total > 0);

    let nothing = Line { item: scale().items + 1, supplier: 1, quantity: 1 };
    let wrong = NewOrder { lines: vec![order.lines[0], nothing], ..order };
    assert_eq!(tpcc.serve(&Request::NewOrder(wrong)), Ok(Reply::RolledBack));
    assert_eq!(stock(7), after, "what is rolled back has changed nothing");

    let status = Request::OrderStatus { warehouse, district, customer: CustomerBy::Number(customer) };
    let lines = |delivered| vec![(7, 4, delivered), (7, 5, delivered)];
    let expected = |balance, delivered| Reply::Status { customer, balance, order: next, lines: lines(delivered) };
    assert_eq!(tpcc.serve(&status), Ok(expected(-10 * DOLLAR, 0)));
    let (customer_by, amount) = (CustomerBy::Number(customer), 12_345);
    let payment = Payment {
        warehouse: 2,
        district: 1,
        customer_warehouse: warehouse,
        customer_district: district,
        customer: customer_by,
        amount,
        date: 78,
    };
    assert_eq!(tpcc.serve(&Request::Payment(payment)), Ok(Reply::Paid { customer, balance: -10 * DOLLAR - amount }));

    let key = in_district(warehouse, district, next);
    let line = |line| change(&tpcc, |transaction| transaction.need::<OrderLine>(line_key(key, line)).unwrap().1);
    let balance = -10 * DOLLAR - amount + line(1).amount + line(2).amount;
    while line(1).delivered == 0 {
        let delivered = tpcc.serve(&Request::Delivery { warehouse, carrier: 9, date: 99 });
        assert!(matches!(delivered, Ok(Reply::Delivered(1..=DISTRICTS))), "{delivered:?}");
    }
    let delivered = change(&tpcc, |transaction| transaction.need::<Order>(key).unwrap().1);
    assert_eq!((delivered.carrier, delivered.lines, delivered.all_local), (9, 2, 0));
    let Ok(Reply::Status { balance: told, lines: shown, .. }) = tpcc.serve(&status) else { panic!("no status") };
    assert!(shown == lines(99) && told >= balance, "the customer has other orders too, or none");
    tpcc.check().unwrap();
}

#[test]
fn customers_are_found_by_name_in_the_order_of_first_names() {
    let Some(far) = far(64 << 20) else { return };
    // Names of 300 customers are 300 different ones; rename some to have several of one.
    let tpcc = load(&far, scale());
    let name = LastName::new(5);
    let payment = |customer| {
        let (warehouse, district) = (1, 1);
        let request = Payment {
            warehouse,
            district,
            customer_warehouse: warehouse,
            customer_district: district,
            customer,
            amount: DOLLAR,
            date: 5,
        };
        match tpcc.serve(&Request::Payment(request)) {
            Ok(Reply::Paid { customer, .. }) => customer,
            other => panic!("{other:?}"),
        }
    };
    let customer = payment(CustomerBy::Name(name));
    assert_eq!(customer, 6, "the first customers have the names in turn");
    let key =
        |first: &[u8; 16], customer| yonder_oltp::tpcc::schema::name_key(district_key(1, 1), name, first, customer);
    let add = |first: &[u8; 16], customer| {
        let names = yonder_oltp::tpcc::schema::CUSTOMER_NAMES;
        change(&tpcc, |transaction| transaction.insert(names, key(first, customer), &[]).unwrap());
    };
    // Before and behind all that the load makes up: of three the second is the middle one, and so it is of four.
    add(b"                ", 20);
    add(b"~               ", 21);
    assert_eq!(payment(CustomerBy::Name(name)), 6);
    add(b"~~              ", 22);
    assert_eq!(payment(CustomerBy::Name(name)), 6);
    add(b"~~~             ", 23);
    assert_eq!(payment(CustomerBy::Name(name)), 21);
}

#[test]
fn the_mix_leaves_a_consistent_database_whoever_waits_for_pages() {
    for (seed, way) in (0..).zip(WAYS) {
        let Some(far) = far(scale().bytes(0) / 5) else { return };
        let tpcc = load(&far, scale());
        tpcc.check().unwrap();
        let (orders_before, faults_before) = (orders(&tpcc), far.stats().major_faults);
        let replies = serve_all(&far, &tpcc, way, requests(seed, REQUESTS));
        let replies: Vec<Reply> = replies.into_iter().map(Result::unwrap).collect();
        assert!(far.stats().major_faults - faults_before > 1000, "{way:?}");
        tpcc.check().unwrap();
        let entered = replies.iter().filter(|reply| matches!(reply, Reply::Ordered { .. })).count();
        assert_eq!(orders(&tpcc) - orders_before, entered as u64, "{way:?}");
        assert!(replies.contains(&Reply::RolledBack) && replies.contains(&Reply::Delivered(DISTRICTS)));
        let is_low = |reply: &Reply| matches!(reply, Reply::Low(count) if *count > 0);
        assert!(replies.iter().any(is_low), "nothing is ever low");
    }
}

#[test]
fn a_lost_node_fails_transactions_and_leaves_nothing_of_them() {
    if far(64 << 20).is_none() {
        return;
    }
    let fabric = Arc::new(EmuFabric::open(URL).unwrap());
    let control = fabric.control();
    let deadlines = Deadlines { fault: Duration::from_secs(1), ..Deadlines::default() };
    let config = Config { deadlines, ..Config::with_local(scale().bytes(0) / 5) };
    let far = FarMemory::new(fabric, config).unwrap();
    let tpcc = load(&far, scale());
    for round in 0..3 {
        let before = orders(&tpcc);
        control.set_dead(true);
        let replies = serve_all(&far, &tpcc, WAYS[0], requests(round, 300));
        control.set_dead(false);
        let failed = replies.iter().filter(|reply| matches!(reply, Err(OltpError::Paging(_)))).count();
        assert!(failed > 0, "nothing has failed");
        tpcc.check().unwrap();
        let entered = replies.iter().filter(|reply| matches!(reply, Ok(Reply::Ordered { .. }))).count();
        assert_eq!(orders(&tpcc) - before, entered as u64);
        // No lock is left: everything can be changed.
        let replies = serve_all(&far, &tpcc, WAYS[0], requests(round + 10, 300));
        assert!(replies.iter().all(Result::is_ok));
    }
}

#[test]
fn what_is_inconsistent_is_seen() {
    let Some(far) = far(64 << 20) else { return };
    let tpcc = load(&far, Scale::full(1).shrunk(100));
    let broken = || match tpcc.check() {
        Err(CheckError::Broken { condition, place, .. }) => (condition, place.district),
        other => panic!("{other:?}"),
    };
    // Each is broken, seen, and mended.
    let pay = |cents| {
        change(&tpcc, |transaction| {
            let (at, paid) = transaction.need::<WarehousePaid>(warehouse_key(1)).unwrap();
            transaction.replace(at, &WarehousePaid { ytd: paid.ytd + cents }).unwrap();
        });
    };
    pay(1);
    assert_eq!(broken(), (1, None));
    pay(-1);
    let count = |orders: u64| {
        change(&tpcc, |transaction| {
            let (at, counted) = transaction.need::<DistrictOrders>(district_key(1, 4)).unwrap();
            let next_order = counted.next_order.wrapping_add(orders);
            transaction.replace(at, &DistrictOrders { next_order }).unwrap();
        });
    };
    count(1);
    assert_eq!(broken(), (2, Some(4)));
    count(u64::MAX);
    let waiting = change(&tpcc, |transaction| {
        let found = transaction.scan(NEW_ORDERS, all_in_district(1, 5), Direction::Descending, 2).unwrap();
        found.iter().for_each(|entry| assert!(entry.key() > in_district(1, 5, 0)));
        transaction.delete(found[1].at()).unwrap();
        found[1].key()
    });
    assert_eq!(broken(), (3, Some(5)));
    change(&tpcc, |transaction| transaction.insert(NEW_ORDERS, waiting, &[]).unwrap());
    change(&tpcc, |transaction| {
        let (at, _) = transaction.need::<OrderLine>(line_key(in_district(1, 6, 1), 1)).unwrap();
        transaction.delete(at).unwrap();
    });
    assert_eq!(broken(), (4, Some(6)));
}

#[test]
fn rows_that_are_missing_are_said() {
    let Some(far) = far(64 << 20) else { return };
    let tpcc = load(&far, Scale::full(1).shrunk(100));
    let mut transaction = tpcc.database().begin();
    let key = in_district(1, 1, 4_000_000);
    let missing = OltpError::Missing { table: Customer::TABLE, key };
    assert_eq!(transaction.need::<Customer>(key).err(), Some(missing));
    let (at, _) = transaction.need::<DistrictPaid>(district_key(1, 1)).unwrap();
    change(&tpcc, |other| {
        let (at, _) = other.need::<DistrictPaid>(district_key(1, 1)).unwrap();
        other.replace(at, &DistrictPaid { ytd: 5 }).unwrap();
    });
    assert_eq!(transaction.need::<Customer>(key).err(), Some(OltpError::Conflict), "it has seen what is past");
    transaction.replace(at, &DistrictPaid { ytd: 6 }).unwrap();
    assert_eq!(transaction.commit(), Err(OltpError::Conflict));
    let row = change(&tpcc, |transaction| transaction.need::<Warehouse>(warehouse_key(1)).unwrap().1);
    let again = change(&tpcc, |transaction| transaction.row::<Warehouse>(warehouse_key(1)).unwrap());
    assert_eq!(again.map(|(_, row)| row), Some(row));
}
