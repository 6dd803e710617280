//! What the controller shows of nodes and address spaces: [`NodeView`] and [`SpaceView`].

use serde::{Deserialize, Serialize};

use crate::domains::Domains;
use crate::names::{NodeId, Pid};

/// How a node is seen by the controller.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeView {
    /// Its number.
    pub node: NodeId,
    /// What it is called, in a cluster in which nodes have names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where it is reached.
    pub urls: Vec<String>,
    /// What fails together with it.
    #[serde(default, skip_serializing_if = "Domains::is_empty")]
    pub domains: Domains,
    /// How it is.
    pub condition: NodeCondition,
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// Bytes of memory that nothing uses, as it last said.
    pub free_bytes: u64,
    /// Bytes of all allocations, roughly.
    pub committed_bytes: u64,
    /// Regions that it owns.
    pub regions: u64,
    /// Those of them that are moving away.
    pub regions_leaving: u64,
}

/// How an address space is seen by the controller.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SpaceView {
    /// Its number.
    pub pid: Pid,
    /// Regions that it has.
    pub regions: u64,
    /// Bytes of all its allocations, roughly, and rather too many than too few.
    pub allocated_bytes: u64,
    /// The nodes that have a region of it, each once.
    pub nodes: Vec<NodeId>,
    /// The program that has made it, in a cluster in which programs have names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Groups of pages that have fewer places than was asked for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub groups_below: u64,
    /// Pages that are at fewer places than was asked for, as their owner has said.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pages_below: u64,
    /// The space has groups, and the controller has started so lately that its owner may not have said that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_pages_below_unknown: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// How a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeCondition {
    /// It serves.
    Serving,
    /// Its regions are moving away.
    Draining,
    /// It has no regions and gets none.
    Drained,
    /// It is not connected; its lease is not over.
    Silent,
    /// Its lease is over. What it had is lost unless it comes back.
    Lost,
}
