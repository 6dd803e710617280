//! The client of one memory node over one lane, without I/O (Clio, sections 4.4 and 4.5).
//!
//! A *lane* is one flow of one client thread to one node: a socket of datagrams, or a stream. A [`Client`] decides what
//! is sent on it and when: its owner submits an [`Operation`], sends what [`Client::transmit`] gives, hands what
//! arrives to [`Client::receive`], calls [`Client::advance`] when [`Client::timeout`] has come, and takes
//! [`Client::completion`]s. It sees neither sockets nor buffers: payloads of reads and writes are named by offset and
//! stay with the owner.
//!
//! What it guarantees, with a node that does its part:
//! - T1: an operation is cut into fragments that travel, execute and are answered each by itself, in any order.
//! - T2: operations that touch a page in common, one of them to change it, are executed in order of submission.
//! - T4: an answer that does not come is asked for again; the request is executed once all the same. An operation that
//!   is given up is aborted at the node, and keeps its pages until the node has said that it will never execute.
//!
//! Files: `operations` holds operations from submission to completion and their order (T2), `fragments` the requests on
//! the lane by their names (T1, T4), `round_trip` and `window` what the network bears, `clock` the node's time;
//! `client` puts them together with `receive`, `ending` and `timers`. Neighbours: `core/wire` has the messages;
//! `runtime/fabric` and the simulator own clients.
//!
//! Invariant: nothing allocates after [`Client::new`].

#![forbid(unsafe_code)]

mod client;
mod clock;
mod config;
mod ending;
mod event;
mod fragments;
mod list;
mod operation;
mod operations;
mod receive;
mod round_trip;
mod scope;
mod timers;
mod window;

pub use client::{Client, Payload, Stats, Transmit};
pub use clock::NodeClock;
pub use config::{Config, FRAGMENT_BYTES_MIN, FRAGMENTS_MAX, Transport, WindowConfig};
pub use operation::{BODY_BYTES_MAX, Completion, Operation, OperationId, Outcome, SubmitError};
pub use receive::Received;
