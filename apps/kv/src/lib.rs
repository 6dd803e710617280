//! A memcached-compatible server whose items live in far memory: the library behind `yonder kv`.
//!
//! - [`protocol`]: memcached's text protocol, sans-IO: bytes in, commands out.
//! - [`store`]: the items. Headers, keys, values and hash chains lie in far memory, reached through [`ItemMemory`];
//!   bucket heads, allocator and eviction metadata stay local, so that a lookup that misses and a sweep for victims
//!   touch no far page.
//! - [`server`]: the TCP and UDP front end of the dispatcher thread and the handler that workers run per request.
//!
//! Neighbours: `runtime/sched` drives [`server::KvFrontend`] and [`server::KvHandler`]; `edge/cli` builds a
//! [`server::KvServer`] from its flags.

#![forbid(unsafe_code)]

pub mod protocol;
pub mod server;
pub mod store;

mod memory;

pub use memory::ItemMemory;
pub use server::{
    BoundKv, ExtraStats, KvAccess, KvConfig, KvError, KvFrontend, KvHandler, KvReply, KvRequest, KvServer, Listen,
    Shutdown, ShutdownCommand, TlsClients, TlsFiles, UdpTrust, runtime_stats,
};
pub use store::{Store, StoreConfig};
