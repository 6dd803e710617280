//! [`Refusal`]: why a client's request was not done, in one line that says what to do.

use serde::{Deserialize, Serialize};

use crate::names::{NodeId, Pid};

/// Why nothing was done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// Unknown space, or a key that is none of its keys. They are not told apart, so that nobody can search for spaces.
    #[error(
        "no address space {pid} has this key: use the number and a key that its creation returned, or make another \
         address space if it has ended or its lease is over"
    )]
    BadKey {
        /// The address space.
        pid: Pid,
    },
    /// The key does not allow this.
    #[error("this key of address space {pid} does not allow it: use the owner's key")]
    NotAllowed {
        /// The address space.
        pid: Pid,
    },
    /// Another program has made the space.
    #[error("address space {pid} is of another tenant, or of none: use the identity that it was made with")]
    NotYours {
        /// The address space.
        pid: Pid,
    },
    /// Only those who run the cluster may ask it.
    #[error("{asker} may not ask that: use an operator's identity, made with `yonder cluster add operator NAME`")]
    NotAnOperator {
        /// Who asked.
        asker: String,
    },
    /// One program, or one address, has too many address spaces.
    #[error("{asker} has {spaces_max} address spaces, and may have no more: end some first")]
    TooManySpaces {
        /// Who asked.
        asker: String,
        /// The most that one may have.
        spaces_max: usize,
    },
    /// No node has room.
    #[error(
        "no memory node has room for {} more: start another with `yonder node --controller ...`, or free memory",
        yonder_units::format_bytes(*.bytes)
    )]
    NoRoom {
        /// What was asked for.
        bytes: u64,
    },
    /// Each place is on another node, and there are not so many.
    #[error(
        "{wanted} memory nodes are needed, each for one place, and {there} can be used: start others with `yonder node \
         --controller ...`, or ask for fewer copies"
    )]
    TooFewNodes {
        /// How many places were asked for.
        wanted: u32,
        /// How many nodes there are that may have one.
        there: u32,
    },
    /// No places, or more than one request can have.
    #[error("{places} places cannot be had at a time: ask for at least 1 and at most {places_max}")]
    BadPlaces {
        /// What was asked for.
        places: u32,
        /// The most that can be asked for.
        places_max: u32,
    },
    /// A request that keeps apart from more nodes than any needs to.
    #[error("a request that keeps apart from {apart} nodes is not tried: name at most {apart_max}")]
    TooManyApart {
        /// How many it names.
        apart: usize,
        /// The most that one can name.
        apart_max: usize,
    },
    /// An allocation of nothing, or of more than one request can have.
    #[error(
        "an allocation of {} cannot be placed: ask for at least 1 byte and at most {}",
        yonder_units::format_bytes(*.bytes),
        yonder_units::format_bytes(*.bytes_max)
    )]
    BadLength {
        /// What was asked for.
        bytes: u64,
        /// The most that can be asked for.
        bytes_max: u64,
    },
    /// A request that avoids more regions than any needs to.
    #[error("a request that avoids {avoided} regions is not tried: avoid at most {avoided_max}")]
    TooManyAvoided {
        /// How many it avoids.
        avoided: usize,
        /// The most that one can avoid.
        avoided_max: usize,
    },
    /// No such region.
    #[error("address space {pid} has no region {region}: allocate before use")]
    NoRegion {
        /// The address space.
        pid: Pid,
        /// The region's number.
        region: u32,
    },
    /// The region's node is gone, and its memory with it.
    #[error(
        "region {region} of address space {pid} is lost: memory node {node} ({url}) does not answer. \
         If it still runs, connect it again; else destroy the address space"
    )]
    RegionLost {
        /// The address space.
        pid: Pid,
        /// The region's number.
        region: u32,
        /// The node.
        node: NodeId,
        /// Where it was reached.
        url: String,
    },
    /// No such node.
    #[error("no memory node is named '{name}': `yonder controller nodes --at ADDRESS` lists them")]
    NoNode {
        /// What was asked for.
        name: String,
    },
    /// A node said no.
    #[error("memory node {url}: {cause}")]
    NodeRefused {
        /// Where the node is reached.
        url: String,
        /// What it said.
        cause: String,
    },
    /// A request that only a later release knows.
    #[error("the controller is of an earlier release, and does not know that: upgrade it")]
    NotKnown,
    /// What only a later release says.
    #[serde(skip)]
    #[error("the controller says '{name}', which only a later release knows: upgrade this program")]
    Unknown {
        /// What it is called.
        name: String,
    },
    /// Too much waits for nodes already, or numbers have run out.
    #[error("the controller cannot take the request: {cause}; try again later")]
    Busy {
        /// What there is too much of.
        cause: String,
    },
}
