//! TPC-C (revision 5.11) with the mix of the paper.
//!
//! [`Tpcc::load`] fills the tables for a [`Scale`]; [`Requests`] makes up what terminals ask for, by a seed; [`Tpcc`]
//! handles it on unithreads. A transaction that is in conflict with another runs again, after others had a turn.
//! [`Tpcc::check`] is the specification's conditions of consistency.
//!
//! What the specification asks of terminals (screens, thinking, response times) is not here: the load is open, as the
//! paper's.

mod check;
mod delivery;
mod load;
mod new_order;
mod payment;
mod queries;
mod random;
mod request;
mod scale;
pub mod schema;
mod terminals;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use yonder::Region;
use yonder::sched::{Handler, checkpoint, yield_now};

pub use self::check::{CheckError, Place};
pub use self::random::LastName;
pub use self::request::{CustomerBy, Line, NewOrder, Payment, Reply, Request, Requests};
pub use self::scale::Scale;
pub use self::terminals::{Datagrams, Terminals};
use crate::{Database, OltpError, STRIPES_LOG2_DEFAULT, Transaction};

/// Times that a transaction is run before its conflict is the answer.
const RUNS_MAX: usize = 1000;

/// TPC-C's tables. Shared by all workers.
pub struct Tpcc {
    database: Database,
    scale: Scale,
    /// Payments so far: no two have the same number.
    payments: AtomicU64,
    conflicts: AtomicU64,
}

impl Tpcc {
    /// Makes and fills the tables in a region of at least [`Scale::bytes`]. `progress` is told the share that is done.
    ///
    /// # Errors
    /// If the region is too small, or a page cannot be had.
    pub fn load(
        region: Arc<Region>,
        scale: Scale,
        seed: u64,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Self, OltpError> {
        let database = Database::new(region, &schema::ROW_BYTES, STRIPES_LOG2_DEFAULT)?;
        let payments = AtomicU64::new(load::load(&database, scale, seed, progress)?);
        Ok(Self { database, scale, payments, conflicts: AtomicU64::new(0) })
    }

    /// Serves a request. Transactions run until they are not in conflict with others.
    ///
    /// # Errors
    /// If one still is after a thousand runs, a page cannot be had, or the region is full. Nothing was changed then,
    /// but for districts to which a Delivery came before.
    pub fn serve(&self, request: &Request) -> Result<Reply, OltpError> {
        match request {
            Request::NewOrder(order) => self.run(|transaction| new_order::new_order(transaction, order)),
            Request::Payment(payment) => {
                let number = self.payments.fetch_add(1, Ordering::Relaxed) + 1;
                self.run(|transaction| payment::payment(transaction, payment, number))
            }
            Request::OrderStatus { warehouse, district, customer } => {
                self.run(|transaction| queries::order_status(transaction, *warehouse, *district, *customer))
            }
            Request::Delivery { warehouse, carrier, date } => self.deliver(*warehouse, *carrier, *date),
            Request::StockLevel { warehouse, district, threshold } => {
                self.run(|transaction| queries::stock_level(transaction, *warehouse, *district, *threshold))
            }
        }
    }

    fn deliver(&self, warehouse: u32, carrier: u32, date: u64) -> Result<Reply, OltpError> {
        let mut delivered = 0;
        for district in 1..=schema::DISTRICTS {
            let deliver = |transaction: Transaction<'_>| {
                delivery::deliver_oldest(transaction, warehouse, district, carrier, date)
            };
            delivered += u32::from(self.run(deliver)?);
        }
        Ok(Reply::Delivered(delivered))
    }

    /// Runs a transaction until it is not in conflict with others, which have a turn in between.
    fn run<T>(&self, transact: impl Fn(Transaction<'_>) -> Result<T, OltpError>) -> Result<T, OltpError> {
        for _ in 0..RUNS_MAX {
            let outcome = transact(self.database.begin());
            if !matches!(outcome, Err(OltpError::Conflict)) {
                return outcome;
            }
            self.conflicts.fetch_add(1, Ordering::Relaxed);
            yield_now();
        }
        Err(OltpError::Conflict)
    }

    /// Checks that the database is consistent (clause 3.3.2, conditions 1 to 4), while nothing else runs.
    ///
    /// # Errors
    /// The first condition that does not hold, and where.
    pub fn check(&self) -> Result<(), CheckError> {
        check::check(&self.database, self.scale.warehouses)
    }

    /// The database that the tables are in.
    #[must_use]
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Runs that were in conflict with others.
    #[must_use]
    pub fn conflicts(&self) -> u64 {
        self.conflicts.load(Ordering::Relaxed)
    }
}

impl Handler for Tpcc {
    type Request = Request;
    type Reply = Result<Reply, OltpError>;

    fn handle(&self, request: Request) -> Self::Reply {
        checkpoint();
        self.serve(&request)
    }
}
