//! What is restarted, and when it is back.

use yonder_placement::Domains;

use super::*;

fn view(node: u64, name: Option<&str>, port: u16, condition: NodeCondition) -> NodeView {
    NodeView {
        node: NodeId(node),
        name: name.map(str::to_owned),
        urls: vec![format!("tcp://10.0.0.2:{port}")],
        domains: Domains::default(),
        condition,
        memory_bytes: 1 << 30,
        free_bytes: 0,
        committed_bytes: 0,
        regions: 0,
        regions_leaving: 0,
    }
}

fn numbers(nodes: &[NodeView]) -> Vec<u64> {
    nodes.iter().map(|view| view.node.0).collect()
}

#[test]
fn all_are_restarted_and_those_first_that_an_earlier_run_has_drained() {
    let nodes = [1, 2, 3].map(|node| {
        let condition = if node == 2 { NodeCondition::Drained } else { NodeCondition::Serving };
        view(node, None, 7000, condition)
    });
    let at = ["c1:7400".to_owned(), "c2:7400".to_owned()];
    let (some, controllers) = chosen(&[], &nodes, &at, true).unwrap();
    assert_eq!((numbers(&some), controllers.len()), (vec![2, 1, 3], 2));
    assert!(chosen(&[], &nodes, &at, false).unwrap().1.is_empty(), "there is no command for controllers");
}

#[test]
fn those_that_are_named_are_restarted_alone() {
    let nodes = [1, 2, 3].map(|node| view(node, Some(&format!("n{node}")), 7000 + node as u16, NodeCondition::Serving));
    let at = ["c1:7400".to_owned(), "c2:7400".to_owned()];
    let only = ["n3", "tcp://10.0.0.2:7001", "c2:7400"].map(str::to_owned);
    let (some, controllers) = chosen(&only, &nodes, &at, true).unwrap();
    assert_eq!((numbers(&some), controllers), (vec![3, 1], vec!["c2:7400".to_owned()]));
    assert!(chosen(&only, &nodes, &at, false).unwrap_err().to_string().contains("--restart-controller"));
    let error = chosen(&["n4".to_owned()], &nodes, &at, true).unwrap_err().to_string();
    assert!(error.contains("'n4' of --only"), "{error}");
}

#[test]
fn a_node_is_back_when_another_incarnation_serves_in_its_place() {
    let old = view(1, None, 7000, NodeCondition::Drained);
    let known = BTreeSet::from([NodeId(1), NodeId(2)]);
    let back = |nodes: &[NodeView], is_by_hand| came_back(nodes, &old, &known, is_by_hand);
    let other = view(2, None, 7001, NodeCondition::Serving);
    assert_eq!(back(&[old.clone(), other.clone()], true), Look::Idle);
    assert!(matches!(back(&[old.clone(), other.clone()], false), Look::Waits { why, .. } if why.contains("not ended")));
    for away in [&[other.clone()][..], &[view(1, None, 7000, NodeCondition::Silent), other.clone()]] {
        assert!(matches!(back(away, true), Look::Waits { why, .. } if why.contains("has ended")));
    }
    let silent = view(3, None, 7000, NodeCondition::Silent);
    assert!(matches!(back(&[silent], true), Look::Waits { .. }));
    let new = view(3, None, 7000, NodeCondition::Serving);
    assert_eq!(back(&[other, new.clone()], false), Look::Done(new));
}

/// Where nodes have names, the new one may be at another address.
#[test]
fn a_node_with_a_name_is_known_by_it() {
    let old = view(1, Some("n1"), 7000, NodeCondition::Drained);
    let known = BTreeSet::from([NodeId(1)]);
    let moved = view(3, Some("n1"), 7005, NodeCondition::Serving);
    let other = view(4, Some("n2"), 7000, NodeCondition::Serving);
    assert_eq!(successor(&[other.clone(), moved], &old, &known).map(|view| view.node), Some(NodeId(3)));
    assert_eq!(successor(&[other], &old, &known), None);
}

#[test]
fn a_controller_is_back_when_it_knows_all_nodes() {
    let cluster = |condition| Cluster {
        nodes: vec![view(1, None, 1, NodeCondition::Serving), view(2, None, 2, condition)],
        spaces: Vec::new(),
    };
    let served = cluster(NodeCondition::Drained).serving();
    assert_eq!(missing(&served, &cluster(NodeCondition::Serving)), Look::Done(()));
    assert!(matches!(missing(&served, &cluster(NodeCondition::Silent)), Look::Waits { left: 1, .. }));
}
