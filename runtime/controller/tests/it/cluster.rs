//! What clients get when all is well.

use yonder_controller::ClientError;
use yonder_placement::{NodeCondition, NodeId, Refusal};
use yonder_wire::Rights;

use crate::fake::{Cluster, REGION, Refused, until};

#[test]
fn a_space_spans_nodes_and_its_keys_are_not_equal() {
    let cluster = Cluster::in_memory();
    let _nodes = [cluster.node(1, 2), cluster.node(2, 2)];
    let mut client = cluster.client();
    let space = client.create_space().unwrap();
    assert_eq!(space.region_bytes, REGION);
    let placed = client.place(space.pid, space.keys.owner, 4 * REGION, &[]).unwrap();
    let found: Vec<(u32, u64)> = placed.iter().map(|at| (at.region, at.node.0)).collect();
    assert_eq!(found, [(1, 1), (2, 2), (3, 1), (4, 2)], "each on the emptier node");
    for at in &placed {
        cluster.network.write(space.pid, at, u64::from(at.region) * REGION, 7).unwrap();
    }
    let opened = client.open(space.pid, space.keys.read).unwrap();
    assert_eq!((opened.rights, opened.region_bytes), (Rights::Read, REGION));
    let reader = client.locate(space.pid, space.keys.read, 4).unwrap();
    assert_ne!(reader.capability, placed[3].capability);
    assert_eq!(cluster.network.read(space.pid, &reader, 4 * REGION), Ok(Some(7)));
    let refused = client.place(space.pid, space.keys.read, 1, &[]).unwrap_err();
    assert!(matches!(refused, ClientError::Refused(Refusal::NotAllowed { .. })), "{refused}");
    client.destroy_space(space.pid, space.keys.owner).unwrap();
    until("the nodes end the space", || {
        let hosts = cluster.network.hosts();
        hosts.values().all(|host| host.spaces.is_empty()).then_some(())
    });
    assert_eq!(cluster.network.read(space.pid, &reader, 4 * REGION), Err(Refused::BadCapability));
    assert!(matches!(client.open(space.pid, space.keys.read), Err(ClientError::Refused(Refusal::BadKey { .. }))));
}

#[test]
fn spaces_are_listed_with_the_nodes_that_they_are_on() {
    let cluster = Cluster::in_memory();
    let _nodes = [cluster.node(1, 8), cluster.node(2, 8)];
    let mut client = cluster.client();
    assert_eq!(client.spaces().unwrap(), []);
    let spaces = [(); 2].map(|()| client.create_space().unwrap());
    client.place(spaces[1].pid, spaces[1].keys.owner, 2 * REGION + 1, &[]).unwrap();
    let listed = client.spaces().unwrap();
    let seen: Vec<_> = listed.iter().map(|view| (view.pid, view.regions, view.nodes.clone())).collect();
    assert_eq!(seen, [(spaces[0].pid, 0, vec![]), (spaces[1].pid, 3, vec![NodeId(1), NodeId(2)])]);
    assert!((2 * REGION..=3 * REGION).contains(&listed[1].allocated_bytes), "{listed:?}");
    client.destroy_space(spaces[0].pid, spaces[0].keys.owner).unwrap();
    assert_eq!(client.spaces().unwrap().iter().map(|view| view.pid).collect::<Vec<_>>(), [spaces[1].pid]);
}

#[test]
fn nodes_are_listed_as_they_are() {
    let cluster = Cluster::in_memory();
    let mut client = cluster.client();
    assert_eq!(client.nodes().unwrap(), []);
    let space = client.create_space().unwrap();
    let nothing = client.place(space.pid, space.keys.owner, 1, &[]).unwrap_err().to_string();
    assert!(nothing.starts_with("no memory node has room for 1 B more: start another"), "{nothing}");
    let link = cluster.node(1, 2);
    client.place(space.pid, space.keys.owner, 1, &[]).unwrap();
    let nodes = client.nodes().unwrap();
    assert_eq!((nodes.len(), nodes[0].regions, nodes[0].condition), (1, 1, NodeCondition::Serving));
    drop(link);
    until("the node is seen to have gone", || {
        (client.nodes().unwrap()[0].condition == NodeCondition::Silent).then_some(())
    });
}

#[test]
fn many_clients_ask_at_a_time() {
    let cluster = Cluster::in_memory();
    let _node = cluster.node(1, 1000);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = cluster.client();
                let space = client.create_space().unwrap();
                for _ in 0..20 {
                    let placed = client.place(space.pid, space.keys.owner, REGION, &[]).unwrap();
                    assert_eq!(client.locate(space.pid, space.keys.owner, placed[0].region).unwrap(), placed[0]);
                }
            });
        }
    });
    assert_eq!(cluster.client().nodes().unwrap()[0].regions, 160);
}
