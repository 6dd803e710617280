//! Who is let in where names are asked for, what each may do, and what the others are told.

use std::sync::Arc;
use std::time::{Duration, Instant};

use yonder_controller::{
    ClientError, ControllerClient, EmbeddedStore, FromController, LinkCondition, LinkError, MemoryStore, ToController,
};
use yonder_identity::{Credential, Role};
use yonder_placement::{Config, Refusal, Request, TenantReport};

use crate::fake::{Cluster, REGION, TIMEOUT, config, until, url};
use crate::identities::{DAY, Members, Raw, register, shared_key};

fn turned_away(result: Result<impl Sized, ClientError>) -> String {
    match result.map(drop) {
        Err(ClientError::TurnedAway { cause, .. }) => cause,
        other => panic!("{other:?}"),
    }
}

fn refused(result: Result<impl Sized, ClientError>) -> Refusal {
    match result.map(drop) {
        Err(ClientError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_role_does_its_part() {
    let mut members = Members::new();
    let cluster = members.cluster(config());
    let nodes = [1, 2].map(|node| {
        let credential = members.add(Role::Node, &format!("n{node}"));
        cluster.node_as(node, 10, Some(credential)).unwrap()
    });
    let mut tenant = cluster.client_as(&members.add(Role::Tenant, "app"));
    let mut operator = cluster.client_as(&members.add(Role::Operator, "me"));
    let space = tenant.create_space().unwrap();
    let placed = tenant.place(space.pid, space.keys.owner, 1, &[]).unwrap();
    let located = tenant.locate(space.pid, space.keys.read, 1).unwrap();
    assert_eq!(located.node, placed[0].node);
    // The program takes no other node for it.
    assert!(["n1", "n2"].map(Some).contains(&located.name.as_deref()) && located.name == placed[0].name, "{located:?}");
    let names: Vec<_> = operator.nodes().unwrap().into_iter().map(|node| node.name).collect();
    assert_eq!(names, [Some("n1".to_owned()), Some("n2".to_owned())]);
    assert_eq!(operator.spaces().unwrap()[0].tenant.as_deref(), Some("app"));
    operator.drain("n1", TIMEOUT).unwrap();
    operator.undrain("n1").unwrap();
    // It may use a space whose key it has.
    operator.destroy_space(space.pid, space.keys.owner).unwrap();
    assert!(nodes.iter().all(|link| link.condition() == LinkCondition::Connected));
}

#[test]
fn what_tenants_have_and_do_is_told_to_those_who_run_the_cluster() {
    let mut members = Members::new();
    let cluster = members.cluster(config());
    let credential = members.add(Role::Node, "n1");
    let _node = cluster.node_as(1, 10, Some(credential)).unwrap();
    let app = TenantReport { name: "app".to_owned(), requests: 7, memory_bytes: REGION, ..TenantReport::default() };
    cluster.network.at(1, |host| host.tenants = vec![app]);
    let mut operator = cluster.client_as(&members.add(Role::Operator, "me"));
    let told = until("the node has said it", || operator.tenants().unwrap().pop());
    assert_eq!((told.tenant.as_str(), told.requests, told.memory_bytes, told.nodes), ("app", 7, REGION, 1));
    // Controllers serve it as metrics.
    cluster.client_as(cluster.credential.as_ref().unwrap()).tenants().unwrap();
    let refusal = refused(cluster.client_as(&members.add(Role::Tenant, "app")).tenants());
    assert_eq!(refusal, Refusal::NotAnOperator { asker: "tenant app".to_owned() });
}

#[test]
fn a_stranger_without_an_identity_is_told_to_type_one() {
    let mut members = Members::new();
    let cluster = members.cluster(config());
    let cause = turned_away(cluster.client().nodes());
    assert!(cause.contains("type --identity FILE or --key FILE"), "{cause}");
    let error = cluster.try_node(1, 10).unwrap_err();
    assert!(matches!(&error, LinkError::TurnedAway { cause, .. } if cause.contains("--identity")), "{error}");
}

#[test]
fn a_member_of_another_cluster_is_told_so() {
    let (mut ours, mut theirs) = (Members::new(), Members::new());
    let cluster = ours.cluster(config());
    let stranger = theirs.add(Role::Operator, "me");
    assert!(turned_away(cluster.client_as(&stranger).nodes()).contains("another authority"));
    let (_folder, key) = shared_key();
    assert!(turned_away(cluster.client_as(&key).nodes()).contains("another authority"));
    let node = theirs.add(Role::Node, "n1");
    let error = cluster.node_as(1, 10, Some(node)).unwrap_err();
    assert!(matches!(&error, LinkError::TurnedAway { cause, .. } if cause.contains("another authority")), "{error}");
}

#[test]
fn an_identity_that_is_over_is_told_so_also_while_it_is_connected() {
    let mut members = Members::new();
    let cluster = members.cluster(config());
    let credential = members.add_for(Role::Operator, "me", Duration::from_secs(3));
    let mut client = cluster.client_as(&credential);
    let deadline = Instant::now() + TIMEOUT;
    let cause = loop {
        // The same connection all the time, until it is cut off, and then a new one.
        match client.nodes() {
            Ok(_) => assert!(Instant::now() < deadline),
            Err(ClientError::TurnedAway { cause, .. }) => break cause,
            Err(other) => panic!("{other}"),
        }
    };
    assert!(cause.contains("is over"), "{cause}");
    assert!(
        turned_away(cluster.client_as(&credential).nodes()).contains("refuses this identity: its certificate is over")
    );
}

#[test]
fn a_revoked_member_is_told_so_and_cut_off() {
    let mut members = Members::new();
    let cluster = members.cluster(Config { lease: 1_000_000_000, ..config() });
    let (node, operator) = (members.add(Role::Node, "n1"), members.add(Role::Operator, "me"));
    let link = cluster.node_as(1, 10, Some(Arc::clone(&node))).unwrap();
    members.revoke("n1");
    let cause = until("the node is cut off", || match link.condition() {
        LinkCondition::Reconnecting(cause) if cause.contains("revoked") => Some(cause),
        _ => None,
    });
    assert!(cause.contains("its certificate was revoked"), "{cause}");
    let error = cluster.node_as(2, 10, Some(node)).unwrap_err().to_string();
    assert!(error.contains("its certificate was revoked"), "{error}");
    cluster.client_as(&operator).nodes().unwrap();
    members.revoke("me");
    assert!(turned_away(cluster.client_as(&operator).nodes()).contains("its certificate was revoked"));
}

#[test]
fn a_tenant_runs_no_cluster_and_uses_its_own_spaces_only() {
    let mut members = Members::new();
    let cluster = members.cluster(config());
    let _node = cluster.node_as(1, 10, Some(members.add(Role::Node, "n1"))).unwrap();
    let mut owner = cluster.client_as(&members.add(Role::Tenant, "app"));
    let mut other = cluster.client_as(&members.add(Role::Tenant, "other"));
    for refusal in [
        refused(owner.start_drain(&url(1))),
        refused(owner.undrain(&url(1))),
        refused(owner.nodes()),
        refused(owner.spaces()),
    ] {
        assert_eq!(refusal, Refusal::NotAnOperator { asker: "tenant app".to_owned() });
    }
    let space = owner.create_space().unwrap();
    owner.place(space.pid, space.keys.owner, 1, &[]).unwrap();
    // It has found the key, but not the identity.
    let (pid, key) = (space.pid, space.keys.owner);
    for refusal in [
        refused(other.open(pid, key)),
        refused(other.place(pid, key, 1, &[])),
        refused(other.locate(pid, key, 1)),
        refused(other.destroy_space(pid, key)),
    ] {
        assert_eq!(refusal, Refusal::NotYours { pid });
    }
    owner.locate(pid, key, 1).unwrap();
}

#[test]
fn only_a_node_registers_and_under_its_own_name() {
    let mut members = Members::new();
    let cluster = members.cluster(config());
    let (first, second) = (members.add(Role::Node, "n1"), members.add(Role::Node, "n2"));
    for role in [Role::Tenant, Role::Operator] {
        let credential = members.add(role, &format!("a-{role}"));
        let mut raw = Raw::new(cluster.address, Some(&credential));
        raw.say(&register(1, None));
        assert!(raw.cause().contains(&format!("{role} a-{role} is no node")));
    }
    let mut raw = Raw::new(cluster.address, Some(&second));
    raw.say(&register(2, Some("n1")));
    let cause = raw.cause();
    assert!(cause.contains("node n2 cannot register as n1"), "{cause}");
    let link = cluster.node_as(1, 10, Some(Arc::clone(&first))).unwrap();
    // The number of another node: its connection would be taken over, and all its regions.
    let mut raw = Raw::new(cluster.address, Some(&second));
    raw.say(&register(1, None));
    let cause = raw.cause();
    assert!(cause.contains("known by another name"), "{cause}");
    // A second one with the same identity.
    let mut raw = Raw::new(cluster.address, Some(&first));
    raw.say(&register(3, None));
    let cause = raw.cause();
    assert!(cause.contains("a node called n1 is connected already") && cause.contains("yonder cluster add"), "{cause}");
    assert_eq!(link.condition(), LinkCondition::Connected);
    // One that was started again is welcome as soon as the first has gone.
    drop(link);
    until("the first one is seen to have gone", || cluster.node_as(3, 10, Some(Arc::clone(&first))).ok());
}

#[test]
fn a_node_asks_nothing() {
    let mut members = Members::new();
    let cluster = members.cluster(config());
    let node = members.add(Role::Node, "n1");
    let mut raw = Raw::new(cluster.address, Some(&node));
    raw.say(&ToController::Ask { id: 1, request: Request::Nodes });
    assert!(raw.cause().contains("a node asks nothing"));
    let mut raw = Raw::new(cluster.address, Some(&node));
    raw.say(&register(1, Some("n1")));
    assert!(matches!(raw.hear(), FromController::Registered { .. }));
}

/// A stolen key of a node makes no controller, nor does one who merely listens there.
#[test]
fn a_controller_shows_that_it_is_one() {
    let mut members = Members::new();
    let operator = members.add(Role::Operator, "me");
    let node = members.add(Role::Node, "n1");
    let false_one = Cluster::of(config(), Box::new(MemoryStore::default()), Some(node));
    assert!(turned_away(false_one.client_as(&operator).nodes()).contains("of another role"));
    let plain = Cluster::in_memory();
    assert!(turned_away(plain.client_as(&operator).nodes()).contains("speaks no TLS"));
    let gone = { Cluster::in_memory().address };
    let mut client = ControllerClient::new(&gone.to_string(), Duration::from_millis(1));
    client = client.with_credential(Some(operator));
    assert!(matches!(client.nodes(), Err(ClientError::Unreachable { .. })));
}

#[test]
fn all_who_have_the_key_may_do_everything() {
    let (_folder, key) = shared_key();
    let cluster = Cluster::of(config(), Box::new(MemoryStore::default()), Some(Arc::clone(&key)));
    let _nodes = [1, 2].map(|node| cluster.node_as(node, 10, Some(Arc::clone(&key))).unwrap());
    let mut client = cluster.client_as(&key);
    let space = client.create_space().unwrap();
    client.place(space.pid, space.keys.owner, REGION, &[]).unwrap();
    client.drain(&url(1), TIMEOUT).unwrap();
    assert!(turned_away(cluster.client().nodes()).contains("--key FILE"));
    let (_other_folder, other) = shared_key();
    assert!(turned_away(cluster.client_as(&other).nodes()).contains("its key is another one"));
}

#[test]
fn whose_a_space_is_outlives_the_controller() {
    let mut members = Members::new();
    let folder = tempfile::tempdir().unwrap();
    let open = || Box::new(EmbeddedStore::open(&folder.path().join("state")).unwrap());
    let mut cluster = Cluster::of(config(), open(), Some(members.add(Role::Controller, "c1")));
    let [app, other]: [Arc<Credential>; 2] = ["app", "other"].map(|name| members.add(Role::Tenant, name));
    let space = cluster.client_as(&app).create_space().unwrap();
    cluster.restart(|| open());
    cluster.client_as(&app).open(space.pid, space.keys.owner).unwrap();
    let refusal = refused(cluster.client_as(&other).open(space.pid, space.keys.owner));
    assert_eq!(refusal, Refusal::NotYours { pid: space.pid });
}

/// What nodes count are spaces that they make themselves: those of a controller are counted there.
#[test]
fn a_tenant_makes_no_more_spaces_than_its_certificate_says() {
    let mut members = Members::new();
    let cluster = members.cluster(config());
    let mut limited = cluster.client_as(&members.add_limited(Role::Tenant, "app", DAY, "spaces=2,requests=1k"));
    let mut other = cluster.client_as(&members.add(Role::Tenant, "other"));
    let first = limited.create_space().unwrap();
    limited.create_space().unwrap();
    let refused = limited.create_space().unwrap_err().to_string();
    assert!(refused.contains("tenant app"), "{refused}");
    for _ in 0..3 {
        other.create_space().unwrap();
    }
    limited.destroy_space(first.pid, first.keys.owner).unwrap();
    limited.create_space().expect("one has ended");
}
