//! RocksDB, of which the table files can lie in far memory.
//!
//! The library is loaded when a database is opened ([`Db::open`]), through its C interface, so that nothing of it is
//! needed to build. Tables are PlainTables, read by `mmap` (Adios, section 5.2); where [`Files`] are given, that call
//! is answered with far memory that has the file's bytes. Unithreads may read a database: see `yonder_library` for how
//! its thread-locals and locks stay right when they are parked in the middle.
//!
//! Files: `functions` of the C interface; `files` what stands in for `mmap`; `db` databases.
//!
//! UNSAFETY: the contracts of RocksDB's functions.

mod db;
mod files;
mod functions;

pub use db::{Cursor, Db, RocksError, Shape};
pub use files::Files;
