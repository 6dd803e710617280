//! A memory node and its clients, end to end: data against a model, failures, bad peers and attackers, and networks
//! that lose, repeat and cut.
//!
//! `testbed` starts nodes and drives queue pairs; `raw` is a client of single messages; `proxy` and `lossy` stand
//! between a client and a node. No test sleeps: they poll until something has happened, and fail after
//! [`testbed::TIMEOUT`].

mod attacks;
mod by_hand;
mod data;
mod datagrams;
mod failure;
mod layers;
mod lossy;
mod members;
mod memory;
#[path = "../../../fabric/tests/messages/mod.rs"]
mod messages;
mod once;
mod peers;
mod proxy;
mod raw;
mod secured;
mod spaces;
mod strangers;
mod tenants;
pub(crate) mod testbed;
