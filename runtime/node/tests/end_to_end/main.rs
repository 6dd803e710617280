//! A memory node and its clients, end to end: data against a model, failures, bad peers, and bytes cut in odd places.
//!
//! `testbed` starts nodes and drives queue pairs; `proxy` stands between a client and a node. No test sleeps: they poll
//! until something has happened, and fail after [`testbed::PATIENCE`].

mod data;
mod failure;
mod memory;
#[path = "../../../fabric/tests/messages/mod.rs"]
mod messages;
mod peers;
mod proxy;
mod testbed;
