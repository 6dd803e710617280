//! The controller's decisions: which memory node has which region of a remote address space (Clio, section 4.7).
//!
//! An address space is one range of 64-bit addresses, cut into regions of one size. A region belongs to one node; the
//! node allocates inside it, and the controller only knows roughly how full it is. [`Controller::handle`] takes an
//! [`Event`] and the time and returns [`Actions`]: records to make durable, commands to nodes, answers to clients.
//!
//! Two kinds of knowledge are kept apart. *Records* (`state`) say what must survive the controller: nodes, spaces,
//! which node knows which space, which node owns which region, which moves are under way. Everything else (`live`) is
//! what nodes say of themselves, and is learned again from them; or how far the leases of spaces have run (`leases`),
//! which begins anew.
//!
//! Invariants:
//! - A region has one owner at any time. Owner changes only when the old owner says, here or to the new one, that it
//!   has closed the region for good. No other move of the region begins before the new owner has said that it serves
//!   it.
//! - A region has at most one move under way, and no region of a lost node is given to another node.
//! - A region of a group has no other allocations, and is on a node without another region of that group, unless a
//!   client that did not say so has asked for more.
//! - The number of a region that was given up is never the number of another one of its space.
//! - An address space has a lease, and ends with it as if its owner had ended it.
//! - Every change of a record is in [`Actions::changes`], and a controller restored from the records goes on as this
//!   one would: commands follow from records alone, and executing a command twice is the same as executing it once.
//!
//! Neighbours: `runtime/controller` has the sockets and the stores.

#![forbid(unsafe_code)]

mod asker;
mod config;
mod controller;
mod domains;
mod fullness;
mod group;
mod leases;
mod live;
mod message;
mod migrate;
mod names;
mod outcomes;
mod place;
mod record;
mod refusal;
mod requests;
mod restore;
mod rights;
pub mod sets;
mod state;
mod strays;
mod tenants;
mod views;
mod waits;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use asker::{Asker, Maker};
pub use config::{Config, ConfigError};
pub use controller::{Actions, Controller, Event, Ticket};
pub use domains::{DOMAIN_LEVELS_MAX, Domains, DomainsError};
pub use leases::{SPACE_LEASE_MS_MAX, SPACE_LEASE_MS_MIN, SPACE_LEASE_STEP_MAX, Times};
pub use message::{
    Answer, Arrival, Command, MoveOrder, NodeCondition, NodeReport, NodeView, Outcome, Placement, PlacesWanted,
    Refusal, RegionReport, Registration, Request, SpaceView,
};
pub use names::{Capability, ClusterId, Key, MoveId, NameError, NodeId, Pid};
pub use record::{
    Capabilities, Change, ClusterRecord, Duty, GroupRecord, Keys, Move, NodeRecord, Presence, RECORDS_FORMAT_READ_MAX,
    RECORDS_FORMAT_WRITTEN, Record, RecordKey, RegionRecord, SpaceRecord,
};
pub use restore::RestoreError;
pub use tenants::{TenantReport, TenantView};

/// Most regions that one request can ask for: what one transaction of a store can hold.
pub const REGIONS_PER_REQUEST_MAX: u64 = 64;
/// Most regions that one request for regions can ask to avoid. Clients give up after 16, or after 64 if each attempt
/// is for several regions.
pub const AVOIDED_PER_REQUEST_MAX: usize = 128;
/// Most places that one request for a group can ask for: all that a group has at a time.
pub const PLACES_PER_REQUEST_MAX: u32 = 8;
/// Most nodes that one request for a group can keep apart from.
pub const APART_PER_REQUEST_MAX: usize = 64;
/// Most address spaces whose leases are over that one event ends: the rest follow with the next one.
pub const SPACES_ENDED_PER_EVENT_MAX: usize = 64;
/// Most requests that wait for nodes at a time.
pub const WAITING_MAX: usize = 4096;
/// Most address spaces, and their nodes, that one answer tells of: what fits a line.
pub const SPACES_PER_ANSWER_MAX: usize = 16384;
/// Most tenants that a node tells of in one report.
pub const TENANTS_PER_REPORT_MAX: usize = 1024;
/// Most tenants that one answer tells of: what fits a line.
pub const TENANTS_PER_ANSWER_MAX: usize = 4096;
/// Most addresses of one node.
pub const URLS_MAX: usize = 8;
/// Longest address of a node, and longest name, in bytes: all that it says of itself then fits any store's record.
pub const URL_BYTES_MAX: usize = 256;
/// Most address spaces of controllers that one node can have: twice as many as it makes, because it names also those
/// that are just ending.
pub const NODE_SPACES_MAX: usize = 1 << 17;
/// Most address spaces that a node has not ended yet for more of those that it should not have to be noted.
pub const STRAYS_NOTED_MAX: usize = 4096;
/// Most bytes of memory of one node: more than any machine has.
pub const NODE_MEMORY_BYTES_MAX: u64 = 1 << 50;

const _: () = assert!(AVOIDED_PER_REQUEST_MAX as u64 >= 2 * REGIONS_PER_REQUEST_MAX);
