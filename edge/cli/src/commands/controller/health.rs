//! `yonder controller health`: what is not well, for people and for scripts that look at the exit code.
//!
//! That a group of pages lacks a place the controller knows itself; how many pages lack a copy, while one is made, it
//! is told by their owner. Until a controller that has just started may have been told, and all nodes are back, it does
//! not say that all is well.

use std::process::ExitCode;

use serde::Serialize;
use yonder_placement::{NodeCondition, NodeView, SpaceView};

use super::{ANSWER_TIMEOUT, client};
use crate::args::HealthArgs;
use crate::output::{json_line, line};

/// What there is, and what of it is not well.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
struct Health {
    healthy: bool,
    nodes: usize,
    nodes_lost: usize,
    nodes_silent: usize,
    spaces: usize,
    /// Address spaces with anything at fewer nodes than was asked for.
    spaces_below: usize,
    groups_below: u64,
    pages_below: u64,
    /// Address spaces of which that is not known yet.
    spaces_unknown: usize,
}

pub(super) fn run(args: &HealthArgs) -> anyhow::Result<ExitCode> {
    let mut client = client(&args.controller, ANSWER_TIMEOUT)?;
    let (nodes, spaces) = (client.nodes()?, client.spaces()?);
    let health = Health::of(&nodes, &spaces);
    if args.json {
        json_line(&health)?;
    } else {
        complaints(&nodes, &spaces).iter().try_for_each(|complaint| line(complaint))?;
        if health.healthy {
            line(&format!("{} nodes and {} address spaces, and all is well", health.nodes, health.spaces))?;
        }
    }
    Ok(if health.healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Health {
    fn of(nodes: &[NodeView], spaces: &[SpaceView]) -> Self {
        let in_condition = |condition| nodes.iter().filter(|node| node.condition == condition).count();
        let is_below = |space: &&SpaceView| space.groups_below > 0 || space.pages_below > 0;
        let (nodes_lost, nodes_silent) = (in_condition(NodeCondition::Lost), in_condition(NodeCondition::Silent));
        let spaces_below = spaces.iter().filter(is_below).count();
        let spaces_unknown = spaces.iter().filter(|space| space.is_pages_below_unknown).count();
        Self {
            healthy: nodes_lost == 0 && nodes_silent == 0 && spaces_below == 0 && spaces_unknown == 0,
            nodes: nodes.len(),
            nodes_lost,
            nodes_silent,
            spaces: spaces.len(),
            spaces_below,
            groups_below: spaces.iter().map(|space| space.groups_below).sum(),
            pages_below: spaces.iter().map(|space| space.pages_below).sum(),
            spaces_unknown,
        }
    }
}

/// Whether nothing of it is wrong.
pub(crate) fn is_well(nodes: &[NodeView], spaces: &[SpaceView]) -> bool {
    Health::of(nodes, spaces).healthy
}

/// A line for each thing that is not well.
pub(crate) fn complaints(nodes: &[NodeView], spaces: &[SpaceView]) -> Vec<String> {
    let nodes = nodes.iter().filter_map(|node| {
        let (name, urls) = (node.name.clone().unwrap_or_else(|| node.node.to_string()), node.urls.join(","));
        match node.condition {
            NodeCondition::Lost => Some(format!(
                "node {name} at {urls} is lost, with {} regions: start it again, or another one in its place",
                node.regions
            )),
            NodeCondition::Silent => {
                Some(format!("node {name} at {urls} is silent, or has not come to a controller that has just started"))
            }
            NodeCondition::Serving | NodeCondition::Draining | NodeCondition::Drained => None,
        }
    });
    let unknown = spaces.iter().filter(|space| space.is_pages_below_unknown).map(|space| {
        let pid = space.pid;
        format!(
            "address space {pid}: it is not yet known whether pages are at fewer nodes than was asked for, for the \
             controller has just started: ask again in a moment"
        )
    });
    let spaces = spaces.iter().filter(|space| space.groups_below > 0 || space.pages_below > 0).map(|space| {
        let SpaceView { pid, groups_below, pages_below, .. } = space;
        format!(
            "address space {pid}: {pages_below} pages and {groups_below} groups are at fewer nodes than was asked for; \
             they are copied if there are nodes with room"
        )
    });
    nodes.chain(spaces).chain(unknown).collect()
}

#[cfg(test)]
mod tests {
    use yonder_placement::{NodeId, Pid};

    use super::*;

    fn node(condition: NodeCondition) -> NodeView {
        NodeView {
            node: NodeId(0xa1),
            name: None,
            urls: vec!["tcp://10.0.0.2:7000".to_owned()],
            domains: yonder_placement::Domains::default(),
            condition,
            memory_bytes: 4 << 30,
            free_bytes: 3 << 30,
            committed_bytes: 2 << 30,
            regions: 5,
            regions_leaving: 1,
        }
    }

    fn space(groups_below: u64, pages_below: u64) -> SpaceView {
        SpaceView {
            pid: Pid(7),
            regions: 1,
            allocated_bytes: 1,
            nodes: vec![NodeId(0xa1)],
            tenant: None,
            groups_below,
            pages_below,
            is_pages_below_unknown: false,
        }
    }

    #[test]
    fn what_is_not_well_has_a_line_and_an_exit_code() {
        let well = ([node(NodeCondition::Serving), node(NodeCondition::Drained)], [space(0, 0)]);
        assert!(Health::of(&well.0, &well.1).healthy && complaints(&well.0, &well.1).is_empty());
        let lost = [node(NodeCondition::Lost), node(NodeCondition::Silent)];
        let health = Health::of(&lost, &[space(1, 0), space(0, 5), space(0, 0)]);
        assert_eq!((health.nodes_lost, health.nodes_silent, health.spaces_below), (1, 1, 2));
        assert_eq!((health.healthy, health.groups_below, health.pages_below), (false, 1, 5));
        let said = complaints(&lost, &[space(2, 5)]);
        assert_eq!(said.len(), 3);
        assert!(said[0].contains("00000000000000a1 at tcp://10.0.0.2:7000 is lost, with 5 regions"), "{said:?}");
        assert!(said[2].starts_with("address space 7: 5 pages and 2 groups"), "{said:?}");
        let unknown = [SpaceView { is_pages_below_unknown: true, ..space(0, 0) }];
        let health = Health::of(&well.0, &unknown);
        assert_eq!((health.healthy, health.spaces_unknown, complaints(&well.0, &unknown).len()), (false, 1, 1));
        for one in [([node(NodeCondition::Silent)], [space(0, 0)]), ([node(NodeCondition::Serving)], [space(0, 1)])] {
            assert!(!Health::of(&one.0, &one.1).healthy);
        }
    }
}
