//! The controller of several memory nodes (Clio, section 4.7): a server, the node's side of it, and a client.
//!
//! [`ControllerServer`] runs what `core/placement` decides: nodes and clients speak JSON Lines to it over TCP
//! ([`ToController`], [`FromController`]), and its records are in a [`Store`]: in memory ([`MemoryStore`]), in a file
//! ([`EmbeddedStore`]), or in etcd ([`EtcdStore`], with the feature `etcd`). A node runs a [`NodeLink`] and
//! implements [`NodeAgent`]; whoever allocates has a [`ControllerClient`]. Reads and writes never pass the controller.
//!
//! With a credential (`runtime/identity`) connections are encrypted and both ends are named: a node registers under
//! its own name, a tenant uses its own address spaces, an operator drains. Without one, all who reach the port may do
//! all of it, and the keys of an address space keep its users apart, not an attacker on the network.
//!
//! Neighbours: `core/placement` decides; `runtime/identity` has who is who; `runtime/node` is the memory node.

#![forbid(unsafe_code)]

mod addresses;
mod agent;
mod brain;
mod client;
mod desk;
mod door;
#[cfg(test)]
mod formats;
mod limits;
mod lines;
mod link;
mod messages;
mod outbox;
mod peers;
mod pool;
mod server;
mod silence;
mod store;
mod unknown;

pub use agent::{MoveEnd, NodeAgent};
pub use client::{ClientError, ControllerClient, OpenedSpace, PlacedGroup, Space};
pub use link::{LinkCondition, LinkError, NodeLink};
pub use messages::{FromController, ToController, VERSION, VERSION_MIN};
pub use server::{ControllerError, ControllerServer};
pub use store::{
    EmbeddedStore, EtcdAccess, EtcdCertificate, EtcdStore, EtcdTls, Leadership, MemoryStore, Store, StoreError,
    TenureProbe, Write,
};
