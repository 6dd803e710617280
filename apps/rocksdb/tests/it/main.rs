//! RocksDB with tables in far memory, and the example.

mod example;
mod far_tables;
