//! RocksDB with its tables in far memory (Adios, section 5.2).
//!
//! [`Rocks::open`] is the adapter: it opens a database whose tables are read from a region, by loads, and serves GETs and SCANs on
//! unithreads. [`Rows`] is the data of the workload: keys and values that follow from their numbers, so that every answer can be
//! checked.
//!
//! Neighbours: `sys/rocksdb` calls the library; `apps/bench` drives this.

#![forbid(unsafe_code)]

mod rows;
mod tables;

use std::path::Path;
use std::sync::Arc;

use yonder::sched::{Handler, checkpoint};
use yonder::{PagingCause, Region};
pub use yonder_rocksdb_sys::RocksError;
use yonder_rocksdb_sys::{Db, Files};

pub use crate::rows::Rows;
use crate::tables::Tables;

/// Stack of a unithread that calls RocksDB, in bytes.
pub const STACK_BYTES: usize = 64 << 10;

/// What is asked of a database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// The value of a key.
    Get(Box<[u8]>),
    /// So many values, of the keys from this one on.
    Scan(Box<[u8]>, u32),
}

/// An answer: keys and values, in the order of keys.
pub type Found = Vec<(Vec<u8>, Vec<u8>)>;

/// A database that requests are served from. Shared by all workers.
pub struct Rocks {
    db: Db,
}

impl Rocks {
    /// Opens the database in `folder`, which [`Rows::store`] has filled, and copies its tables to `region`; without one they stay
    /// files, which RocksDB maps itself.
    ///
    /// # Errors
    /// If the library is missing, the folder has no such database, or the region is too small.
    pub fn open(folder: &Path, region: Option<Arc<Region>>) -> Result<Self, RocksError> {
        let tables = region.map(|region| Arc::new(Tables::new(region)) as Arc<dyn Files>);
        Ok(Self { db: Db::open(folder, rows::SHAPE, tables)? })
    }

    /// Serves a request. Between two keys of a scan other requests may be served.
    ///
    /// # Errors
    /// If RocksDB refuses it, or a page cannot be had.
    pub fn serve(&self, request: &Request) -> Result<Found, RocksError> {
        match request {
            Request::Get(key) => {
                let mut value = Vec::new();
                Ok(if self.db.get(key, &mut value)? { vec![(key.to_vec(), value)] } else { Vec::new() })
            }
            Request::Scan(from, count) => {
                let mut found = Vec::with_capacity(*count as usize);
                let mut cursor = self.db.cursor(from)?;
                for _ in 0..*count {
                    let (mut key, mut value) = (Vec::new(), Vec::new());
                    if !cursor.next(&mut key, &mut value)? {
                        break;
                    }
                    found.push((key, value));
                    checkpoint();
                }
                Ok(found)
            }
        }
    }
}

impl Handler for Rocks {
    type Request = Request;
    type Reply = Result<Found, RocksError>;

    fn handle(&self, request: Request) -> Self::Reply {
        checkpoint();
        self.serve(&request)
    }
}

/// Why a page of a table could not be had, if that is what failed.
#[must_use]
pub fn paging_cause(error: &RocksError) -> Option<PagingCause> {
    match error {
        RocksError::Lost(caught) => Some(PagingCause::of(*caught)),
        _ => None,
    }
}
