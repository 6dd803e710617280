//! The public API end to end: collections in far memory, and the client library on one node and on several.

mod allocator;
mod clib;
mod cluster_leases;
mod leases;
mod several_nodes;
