//! RocksDB as Debian has it, with its tables in local and in far memory.

mod databases;
mod example;
mod far_tables;
