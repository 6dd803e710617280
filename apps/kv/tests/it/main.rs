//! Tests of the crate from outside: the store, the server over loopback sockets, and both against memcached itself.

mod against_memcached;
mod driven;
mod exhaustion;
mod far;
mod harness;
mod hostile;
mod login;
mod lost_pages;
mod memory;
mod meta;
mod recut;
mod renewal;
mod server;
mod store;
mod store_threads;
mod tls;
