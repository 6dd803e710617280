//! What must survive the controller: [`Record`]s, each under a [`RecordKey`], and the [`Change`]s to them.
//!
//! The text of a key is its place in a store; keys with a common beginning are what [`Change::DeleteRegions`] names.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use yonder_wire::Rights;

use crate::asker::Maker;
use crate::leases::SPACE_LEASE_MS_MAX;
use crate::message::Registration;
use crate::names::{Capability, ClusterId, Key, MoveId, NodeId, Pid};

/// The latest format of records that this release reads. What is added has a default, and needs no other one, unless
/// its loss matters: a controller that does not know a field drops it when it writes the record again.
pub const RECORDS_FORMAT_READ_MAX: u32 = 1;
/// The format that this release writes. Another one is read by one release before it is written, because controllers of
/// two releases take over from one another during an upgrade.
pub const RECORDS_FORMAT_WRITTEN: u32 = 1;

const _: () = assert!(RECORDS_FORMAT_WRITTEN <= RECORDS_FORMAT_READ_MAX);

/// One durable fact.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    /// The cluster itself.
    Cluster(ClusterRecord),
    /// A node.
    Node(NodeRecord),
    /// An address space.
    Space {
        /// Its number.
        pid: Pid,
        /// Whose it is.
        #[serde(flatten)]
        space: SpaceRecord,
    },
    /// That a node knows an address space.
    Presence {
        /// The space.
        pid: Pid,
        /// The node.
        node: NodeId,
        /// How far it is.
        presence: Presence,
    },
    /// A region of an address space.
    Region {
        /// The space.
        pid: Pid,
        /// The region's number: its first address, divided by the region size.
        region: u32,
        /// Where it is.
        record: RegionRecord,
    },
}

/// Name of a [`Record`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RecordKey {
    /// [`Record::Cluster`].
    Cluster,
    /// [`Record::Node`].
    Node(NodeId),
    /// [`Record::Space`].
    Space(Pid),
    /// [`Record::Presence`].
    Presence(Pid, NodeId),
    /// [`Record::Region`].
    Region(Pid, u32),
}

/// One change to the records. The changes of one event are made together or not at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Adds the record, or puts it in place of the one with its key.
    Put(Record),
    /// Removes the record with this key, if there is one.
    Delete(RecordKey),
    /// Removes the records of all regions of this space.
    DeleteRegions(Pid),
}

/// What a cluster counts, and what never changes in it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterRecord {
    /// Its name.
    pub id: ClusterId,
    /// Bytes of a region.
    pub region_bytes: u64,
    /// The next address space's number.
    pub next_pid: Pid,
    /// The next move's number.
    pub next_move: MoveId,
    /// The format of all records; the first one is not said.
    #[serde(default = "first_format", skip_serializing_if = "is_first_format")]
    pub format: u32,
}

fn first_format() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a field so")]
fn is_first_format(format: &u32) -> bool {
    *format == first_format()
}

impl ClusterRecord {
    /// One without address spaces.
    #[must_use]
    pub fn new(id: ClusterId, region_bytes: u64) -> Self {
        Self { id, region_bytes, next_pid: Pid::FIRST, next_move: MoveId(1), format: RECORDS_FORMAT_WRITTEN }
    }
}

/// The format of records of which some have the format `stored`, and others are written in the format `written`: never
/// a lower one than they had, which would hide that from the next controller. `None` if they are not read.
pub(crate) fn format_with(stored: u32, written: u32, read_max: u32) -> Option<u32> {
    (stored <= read_max).then(|| stored.max(written))
}

/// A node that serves this cluster, or served it and may come back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeRecord {
    /// What it said of itself.
    pub facts: Registration,
    /// What is wanted of it.
    pub duty: Duty,
    /// Its seat among those that make sets ([`sets`](crate::sets)); controllers of earlier releases gave none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seat: Option<u32>,
}

/// What is wanted of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Duty {
    /// It gets regions.
    Serving,
    /// Its regions are moved to other nodes.
    Draining,
    /// It has no regions and gets none.
    Drained,
}

/// Whose an address space is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SpaceRecord {
    /// Who may use it.
    pub keys: Keys,
    /// Who has made it; `None` for an operator's, and for those of releases in which that was not noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maker: Option<Maker>,
    /// How long it is there after a request with the owner's key, in milliseconds. Spaces of releases in which that was
    /// not noted have the longest lease.
    #[serde(default = "longest_lease", skip_serializing_if = "is_longest_lease")]
    pub lease_ms: u32,
    /// New regions have this number or a higher one: below it some were given up. 0 if none was, and there is no group.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fresh_from: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a field so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn longest_lease() -> u32 {
    SPACE_LEASE_MS_MAX
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a field so")]
fn is_longest_lease(lease_ms: &u32) -> bool {
    *lease_ms == SPACE_LEASE_MS_MAX
}

impl SpaceRecord {
    /// One without regions.
    #[must_use]
    pub const fn new(keys: Keys, maker: Option<Maker>, lease_ms: u32) -> Self {
        Self { keys, maker, lease_ms, fresh_from: 0 }
    }
}

/// The keys of an address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Keys {
    /// Allows everything.
    pub owner: Key,
    /// Allows reads, writes and atomics.
    pub read_write: Key,
    /// Allows reads.
    pub read: Key,
}

impl Keys {
    /// What `key` allows; `None` if it is none of these.
    #[must_use]
    pub fn rights(&self, key: Key) -> Option<Rights> {
        [(self.owner, Rights::Owner), (self.read_write, Rights::ReadWrite), (self.read, Rights::Read)]
            .into_iter()
            .find_map(|(known, rights)| (known == key).then_some(rights))
    }
}

/// What one node takes for proof of the rights to one address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Capabilities {
    /// Allows everything.
    pub owner: Capability,
    /// Allows reads, writes and atomics.
    pub read_write: Capability,
    /// Allows reads.
    pub read: Capability,
}

impl Capabilities {
    /// The one with these rights.
    #[must_use]
    pub const fn with(&self, rights: Rights) -> Capability {
        match rights {
            Rights::Owner => self.owner,
            Rights::ReadWrite => self.read_write,
            Rights::Read => self.read,
        }
    }
}

/// How far a node knows an address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    /// It is told to make it.
    Creating,
    /// It has made it.
    Ready(Capabilities),
    /// It is told to end it, whether the space has ended or the node has it of an earlier time.
    Ending,
}

/// Where a region is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RegionRecord {
    /// The node that has it.
    pub owner: NodeId,
    /// The move that is under way.
    pub moving: Option<Move>,
    /// The move that has brought it to its owner, until that says that it serves the region.
    #[serde(default)]
    pub opening: Option<MoveId>,
    /// Nodes that may hold a part of it from a move that failed. It moves to none of them before they have dropped it.
    pub leftovers: BTreeSet<NodeId>,
    /// The group that alone has it; any allocation of the space may be in it if it is of none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupRecord>,
}

/// What is known of a group at each of its regions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupRecord {
    /// Its name among those of its space.
    pub number: u32,
    /// How many places it has when none is missing: they say which sets it is in one of.
    pub places: u32,
}

/// A move of a region away from its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Move {
    /// Its name.
    pub id: MoveId,
    /// The node that will own the region.
    pub to: NodeId,
}

impl RegionRecord {
    /// A region that `owner` has.
    #[must_use]
    pub const fn new(owner: NodeId) -> Self {
        Self { owner, moving: None, opening: None, leftovers: BTreeSet::new(), group: None }
    }

    /// A region that `owner` has for a group alone.
    pub(crate) const fn of_group(owner: NodeId, group: GroupRecord) -> Self {
        Self { owner, moving: None, opening: None, leftovers: BTreeSet::new(), group: Some(group) }
    }

    /// The nodes that may have something of it.
    pub(crate) fn holders(&self) -> BTreeSet<NodeId> {
        let coming = self.moving.map(|moving| moving.to);
        [self.owner].into_iter().chain(coming).chain(self.leftovers.iter().copied()).collect()
    }

    /// Whether it neither moves nor has to be opened at its owner.
    pub(crate) const fn is_stable(&self) -> bool {
        self.moving.is_none() && self.opening.is_none()
    }
}

impl Record {
    /// Its name.
    #[must_use]
    pub const fn key(&self) -> RecordKey {
        match self {
            Self::Cluster(_) => RecordKey::Cluster,
            Self::Node(record) => RecordKey::Node(record.facts.node),
            Self::Space { pid, .. } => RecordKey::Space(*pid),
            Self::Presence { pid, node, .. } => RecordKey::Presence(*pid, *node),
            Self::Region { pid, region, .. } => RecordKey::Region(*pid, *region),
        }
    }
}

impl RecordKey {
    /// How the keys of all regions of a space begin.
    #[must_use]
    pub fn regions_of(pid: Pid) -> String {
        format!("region/{:08x}/", pid.0)
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => formatter.write_str("cluster"),
            Self::Node(node) => write!(formatter, "node/{node}"),
            Self::Space(pid) => write!(formatter, "space/{:08x}", pid.0),
            Self::Presence(pid, node) => write!(formatter, "presence/{:08x}/{node}", pid.0),
            Self::Region(pid, region) => write!(formatter, "{}{region:08x}", Self::regions_of(*pid)),
        }
    }
}
