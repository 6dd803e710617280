//! RocksDB with its tables in far memory (Adios, section 5.2).
//!
//! [`Rocks::open`] is the adapter: it opens a database whose tables are read from a region, by loads, and serves GETs
//! and SCANs on unithreads. [`Rows`] is the data of the workload: keys and values that follow from their numbers, so
//! that every answer can be checked; [`GetsAndScans`] is what is asked of them, and [`Datagrams`] how.
//!
//! Neighbours: [`library`] calls RocksDB; `apps/serve` has the sockets; `tools/bench` drives this within the process.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
pub mod library;
mod protocol;
mod rows;
mod tables;
mod workload;

use std::io;
use std::path::Path;
use std::sync::Arc;

pub use crate::library::RocksError;
use crate::library::{Db, Files};
use tempfile::TempDir;
use yonder::sched::{Handler, checkpoint};
use yonder::{FarError, FarMemory, PagingCause, Region};

pub use crate::protocol::{Datagrams, SCAN_ROWS_MAX};
pub use crate::rows::Rows;
use crate::tables::Tables;
pub use crate::workload::GetsAndScans;

/// Stack of a unithread that calls RocksDB, in bytes.
pub const STACK_BYTES: usize = 64 << 10;

/// Room for tables in a region, for each byte of rows: a table has an index and a filter behind its rows, and is
/// rounded up to pages.
const ROOM: f64 = 1.25;

/// Why there is no database with rows in far memory.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    /// RocksDB is missing, or refuses.
    #[error(transparent)]
    Rocks(#[from] RocksError),
    /// Far memory cannot be had.
    #[error(transparent)]
    Far(#[from] FarError),
    /// There is no place for the files.
    #[error("cannot make a folder for tables among the temporary files: {0}; set TMPDIR to one where there is room")]
    Folder(#[from] io::Error),
}

/// Why a request has failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// A page of a table could not be had.
    #[error("far memory unavailable: {}", .0.text())]
    Paging(PagingCause),
    /// RocksDB has refused it.
    #[error(transparent)]
    Rocks(RocksError),
}

impl From<RocksError> for RequestError {
    fn from(error: RocksError) -> Self {
        match error {
            RocksError::Lost(caught) => Self::Paging(PagingCause::of(caught)),
            other => Self::Rocks(other),
        }
    }
}

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
    // After the database, which has files there.
    _files: Option<TempDir>,
}

impl Rocks {
    /// Opens the database in `folder`, which [`Rows::store`] has filled, and copies its tables to `region`, which is
    /// sealed then; without one they stay files, which RocksDB maps itself.
    ///
    /// # Errors
    /// If the library is missing, the folder has no such database, or the region is too small or cannot be written.
    pub fn open(folder: &Path, region: Option<Region>) -> Result<Self, FillError> {
        let tables = region.map(|region| Arc::new(Tables::new(region)));
        let files = tables.clone().map(|tables| tables as Arc<dyn Files>);
        let db = Db::open(folder, rows::SHAPE, files)?;
        tables.map_or(Ok(()), |tables| tables.seal())?;
        Ok(Self { db, _files: None })
    }

    /// A new database that has `rows`, in a region of `far` of its own. Its files are among the system's temporary ones
    /// as long as it is. `progress` is told what is done, and the share of it.
    ///
    /// # Errors
    /// If RocksDB is missing, there is no room on the disk, or far memory cannot be had.
    pub fn filled(rows: Rows, far: &FarMemory, progress: &mut dyn FnMut(&str, f64)) -> Result<Self, FillError> {
        let files = TempDir::with_prefix("yonder-rocksdb-")?;
        rows.store(files.path(), &mut |share| progress("making tables", share))?;
        progress("copying tables to far memory", 0.0);
        let region = far.region((rows.bytes() as f64 * ROOM) as u64)?;
        let rocks = Self::open(files.path(), Some(region))?;
        Ok(Self { _files: Some(files), ..rocks })
    }

    /// Serves a request. Between two keys of a scan other requests may be served.
    ///
    /// # Errors
    /// If RocksDB refuses it, or a page cannot be had.
    pub fn serve(&self, request: &Request) -> Result<Found, RequestError> {
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
    type Reply = Result<Found, RequestError>;

    fn handle(&self, request: Request) -> Self::Reply {
        checkpoint();
        self.serve(&request)
    }
}
