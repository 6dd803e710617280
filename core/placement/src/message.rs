//! What the controller hears and says: [`Registration`], [`NodeReport`] and [`Outcome`] from nodes, [`Command`] to
//! them; [`Request`] from clients, [`Answer`] to them.
//!
//! These are also the messages on the wire between processes, as JSON; `runtime/controller` adds the envelopes.

use std::fmt;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use yonder_wire::Rights;

use crate::URLS_MAX;
use crate::domains::Domains;
use crate::names::{Capability, Key, MoveId, NodeId, Pid};
use crate::record::{Capabilities, Keys};
pub use crate::refusal::Refusal;
use crate::rights;
use crate::tenants::{TenantReport, TenantView};
pub use crate::views::{NodeCondition, NodeView, SpaceView};

/// What a node says of itself when it registers; the same for as long as it runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Registration {
    /// Its incarnation.
    pub node: NodeId,
    /// What it is called, in a cluster in which nodes have names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where clients and other nodes reach it, best first: [`URLS_MAX`](crate::URLS_MAX) at most are read.
    #[serde(deserialize_with = "urls")]
    pub urls: Vec<String>,
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// Bytes of its pages.
    pub page_bytes: u64,
    /// Bytes of the regions that it can move; the same for the whole cluster.
    pub region_bytes: u64,
    /// What fails together with it.
    #[serde(default, skip_serializing_if = "Domains::is_empty")]
    pub domains: Domains,
}

/// Reads addresses until there are too many: each costs more than the two bytes of a line that say one.
fn urls<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    struct Urls;

    impl<'de> Visitor<'de> for Urls {
        type Value = Vec<String>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(formatter, "{URLS_MAX} URLs at most")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<String>, A::Error> {
            let mut urls = Vec::new();
            while let Some(url) = from.next_element()? {
                if urls.len() == URLS_MAX {
                    return Err(A::Error::invalid_length(URLS_MAX + 1, &self));
                }
                urls.push(url);
            }
            Ok(urls)
        }
    }

    from.deserialize_seq(Urls)
}

impl Registration {
    /// Whether this is its name or one of its URLs.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name) || self.urls.iter().any(|url| url == name)
    }
}

/// How full a node is. It renews the node's lease.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NodeReport {
    /// Bytes of memory that nothing uses.
    pub free_bytes: u64,
    /// The regions that have allocations here.
    pub regions: Vec<RegionReport>,
    /// Regions that the node serves on the word of their source, until it is told to by [`Command::OpenRegion`].
    #[serde(default)]
    pub arrived: Vec<Arrival>,
    /// The tenants, those with most if there are many ([`TenantReport::most`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<TenantReport>,
}

/// A region that has come to a node: its source has said there that it has closed it for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Arrival {
    /// The address space.
    pub pid: Pid,
    /// The region's number.
    pub region: u32,
    /// The move that has brought it.
    pub id: MoveId,
}

/// How full and how hot one region is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RegionReport {
    /// The address space.
    pub pid: Pid,
    /// The region's number.
    pub region: u32,
    /// Bytes of its allocations, with memory or without.
    pub allocated_bytes: u64,
    /// Bytes of memory that it has.
    pub resident_bytes: u64,
    /// How much it is used, in a unit that all nodes share, such as accesses per second of late.
    pub heat: u64,
}

/// What a node must do. Executing one twice is the same as executing it once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Make an address space with this number, if there is none: [`Outcome::SpaceCreated`] or
    /// [`Outcome::SpaceRefused`].
    CreateSpace {
        /// Its number.
        pid: Pid,
        /// The tenant that alone may use it; all who have a capability may if it is not said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tenant: Option<String>,
    },
    /// End an address space, if there is one: [`Outcome::SpaceDestroyed`].
    DestroySpace {
        /// Its number.
        pid: Pid,
    },
    /// Move a region to another node: [`Outcome::Moved`] or [`Outcome::MoveFailed`].
    MoveRegion(MoveOrder),
    /// Serve a region that a move has brought here, because its source has closed it for good:
    /// [`Outcome::RegionOpened`].
    OpenRegion {
        /// The address space.
        pid: Pid,
        /// The region's number.
        region: u32,
        /// The move.
        id: MoveId,
    },
    /// Free everything in a region that is not this node's: left by a move that failed, or given up by its owner:
    /// [`Outcome::RegionDropped`].
    DropRegion {
        /// The address space.
        pid: Pid,
        /// The region's number.
        region: u32,
        /// Every move of the region to here with a smaller number is over: what comes of it is refused.
        before: MoveId,
        /// The region's owner does not use it any more: what this node serves of it is meant too, and a move of it
        /// ends. A node of a release that did not know this drops what has not come to it by a move.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_given_up: bool,
    },
}

/// A move of a region to another node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MoveOrder {
    /// The move's name: an order with a name that was executed is answered as it was then.
    pub id: MoveId,
    /// The address space.
    pub pid: Pid,
    /// The region's number.
    pub region: u32,
    /// First address of the region.
    pub address: u64,
    /// Bytes of the region.
    pub bytes: u64,
    /// The target.
    pub to: NodeId,
    /// What the target is called, in a cluster in which nodes have names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where the target is reached.
    pub urls: Vec<String>,
    /// The owner's capability at the target.
    pub capability: Capability,
}

/// What became of a [`Command`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The node has the address space.
    SpaceCreated {
        /// Its number.
        pid: Pid,
        /// What proves the rights to it here.
        capabilities: Capabilities,
    },
    /// The node has no room for it.
    SpaceRefused {
        /// Its number.
        pid: Pid,
        /// Why, in one line.
        cause: String,
    },
    /// The node does not have the address space any more.
    SpaceDestroyed {
        /// Its number.
        pid: Pid,
    },
    /// The target has all of the region, and this node refuses it as moved, for good.
    Moved {
        /// The move.
        id: MoveId,
    },
    /// This node serves the region that the move has brought.
    RegionOpened {
        /// The address space.
        pid: Pid,
        /// The region's number.
        region: u32,
        /// The move.
        id: MoveId,
    },
    /// This node still has the region, and serves it; the target may have a part, and serves nothing of it.
    MoveFailed {
        /// The move.
        id: MoveId,
        /// Why, in one line.
        cause: String,
    },
    /// Nothing of the region is left here.
    RegionDropped {
        /// The address space.
        pid: Pid,
        /// The region's number.
        region: u32,
    },
}

/// What a client asks. All but `Nodes`, `Spaces`, `Tenants`, `Drain` and `Undrain`, which are for who runs the cluster,
/// prove their right by a key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// A new address space with these keys, or the one that has the owner's key: [`Answer::SpaceCreated`].
    CreateSpace {
        /// Its keys, drawn by the client.
        keys: Keys,
        /// How long it is to be there after a request with the owner's key, in milliseconds: five seconds at least, a
        /// day at most, and a day for 0.
        #[serde(default)]
        lease_ms: u32,
    },
    /// What a key allows: [`Answer::Opened`]. With the owner's, it begins the lease anew, as every request with that
    /// key does.
    Open {
        /// The address space.
        pid: Pid,
        /// A key of it.
        key: Key,
    },
    /// Regions to allocate in, with the owner's key: [`Answer::Placed`].
    PlaceRegion {
        /// The address space.
        pid: Pid,
        /// The owner's key.
        key: Key,
        /// How much will be allocated. More than a region: whole regions, one behind the other.
        bytes: u64,
        /// Regions that had no room for it, of which there are at most
        /// [`AVOIDED_PER_REQUEST_MAX`](crate::AVOIDED_PER_REQUEST_MAX).
        avoid: Vec<u32>,
    },
    /// Places for a group of pages, with the owner's key: [`Answer::Group`]. Asked twice there are two of each; those
    /// in which nothing is allocated soon take no room.
    PlaceGroup {
        /// The address space.
        pid: Pid,
        /// The owner's key.
        key: Key,
        /// What is to be placed.
        #[serde(flatten)]
        wanted: PlacesWanted,
    },
    /// A region is not used any more, wherever it is, with the owner's key: [`Answer::GivenUp`], also if there is none.
    /// What nodes have of it is freed, at once or when they come back. No region of the space has its number again.
    GiveUp {
        /// The address space.
        pid: Pid,
        /// The owner's key.
        key: Key,
        /// The region's number.
        region: u32,
    },
    /// How many pages of the address space are at fewer places than was asked for, with the owner's key, who alone
    /// knows it: [`Answer::Noted`].
    NoteProtection {
        /// The address space.
        pid: Pid,
        /// The owner's key.
        key: Key,
        /// How many pages.
        pages_below: u64,
    },
    /// Where a region is: [`Answer::Located`].
    Locate {
        /// The address space.
        pid: Pid,
        /// A key of it: the capability in the answer has the same rights.
        key: Key,
        /// The region's number.
        region: u32,
    },
    /// Ends an address space, with the owner's key: [`Answer::Destroyed`].
    DestroySpace {
        /// The address space.
        pid: Pid,
        /// The owner's key.
        key: Key,
    },
    /// All nodes: [`Answer::Nodes`].
    Nodes,
    /// The address spaces, without their keys: [`Answer::Spaces`].
    Spaces {
        /// Only those with this number or a higher one.
        from: Pid,
    },
    /// What each tenant has and does: [`Answer::Tenants`].
    Tenants,
    /// Moves all regions off a node: [`Answer::Draining`], at once. It is drained when none is left.
    Drain {
        /// The node's number, name or one of its URLs.
        node: String,
    },
    /// Lets a node have regions again: [`Answer::Undrained`].
    Undrain {
        /// The node's number, name or one of its URLs.
        node: String,
    },
}

impl Request {
    /// The address space that it is about, and the key that proves the right to it.
    pub(crate) fn space(&self) -> Option<(Pid, Key)> {
        match self {
            Self::Open { pid, key }
            | Self::PlaceRegion { pid, key, .. }
            | Self::PlaceGroup { pid, key, .. }
            | Self::GiveUp { pid, key, .. }
            | Self::NoteProtection { pid, key, .. }
            | Self::Locate { pid, key, .. }
            | Self::DestroySpace { pid, key } => Some((*pid, *key)),
            Self::CreateSpace { .. }
            | Self::Nodes
            | Self::Spaces { .. }
            | Self::Tenants
            | Self::Drain { .. }
            | Self::Undrain { .. } => None,
        }
    }
}

/// Places for the pages of a group, which are kept at several nodes: for each place a region that is new and has
/// nothing else, each on another node, and those where possible in other failure domains.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct PlacesWanted {
    /// How much will be allocated in each: a region at most.
    pub bytes: u64,
    /// How many: 1 to [`PLACES_PER_REQUEST_MAX`](crate::PLACES_PER_REQUEST_MAX).
    pub places: u32,
    /// The group, as the [`Answer::Group`] to the first request for it has named it; a new one if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// Nodes that get none, because they have other places of the group, or are not to have any: at most
    /// [`APART_PER_REQUEST_MAX`](crate::APART_PER_REQUEST_MAX). The new places are to be in other failure domains too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<NodeId>,
    /// Regions whose nodes get none, because they had no room: at most
    /// [`AVOIDED_PER_REQUEST_MAX`](crate::AVOIDED_PER_REQUEST_MAX).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoid: Vec<u32>,
}

/// What a client is told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The address space exists, without memory.
    SpaceCreated {
        /// Its number.
        pid: Pid,
        /// Bytes of a region.
        region_bytes: u64,
        /// How long it is there after a request with the owner's key, in milliseconds; 0 if it is until it is ended,
        /// as at controllers of releases that knew no leases.
        #[serde(default)]
        lease_ms: u32,
    },
    /// The key is good.
    Opened {
        /// What it allows.
        #[serde(with = "rights")]
        rights: Rights,
        /// Bytes of a region.
        region_bytes: u64,
        /// As in [`Answer::SpaceCreated`].
        #[serde(default)]
        lease_ms: u32,
    },
    /// Regions to allocate in, one behind the other. A single one may have other allocations.
    Placed {
        /// Where they are.
        regions: Vec<Placement>,
    },
    /// Regions for a group alone, each on another node.
    Group {
        /// The group's name in its address space, for what is asked of it later.
        group: u32,
        /// Where the regions are.
        places: Vec<Placement>,
    },
    /// The region is not used any more.
    GivenUp,
    /// It was noted.
    Noted,
    /// Where the region is.
    Located(Placement),
    /// The address space is gone.
    Destroyed,
    /// All nodes.
    Nodes(Vec<NodeView>),
    /// Address spaces by number, as many as fit an answer.
    Spaces {
        /// The spaces.
        spaces: Vec<SpaceView>,
        /// Where the rest begins, if there is one.
        next: Option<Pid>,
    },
    /// The tenants, those with most memory first.
    Tenants(Vec<TenantView>),
    /// The node's regions are being moved.
    Draining {
        /// How many are left; 0 when the node is drained.
        regions_left: u64,
    },
    /// The node may have regions again.
    Undrained,
    /// Nothing was done.
    Refused(Refusal),
}

/// Where a region is, and how to use it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Placement {
    /// The region's number: its addresses begin at this times the region size.
    pub region: u32,
    /// The node.
    pub node: NodeId,
    /// What it is called, in a cluster in which nodes have names: no other is to be taken for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where it is reached, best first.
    pub urls: Vec<String>,
    /// Bytes of its pages.
    pub page_bytes: u64,
    /// Proof of the rights of the key that was used.
    pub capability: Capability,
}
