//! Who is let in, and what those are told who are not.

use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::thread;
use std::time::{Duration, Instant};

use yonder_identity::{Credential, Expected, HandshakeError, Role, accept, connect};

use crate::world::{DAY, LONG, World, pair, said, shake};

#[test]
fn members_of_one_authority_know_each_other() {
    let mut world = World::new();
    let node = world.load(Role::Node, "n1");
    let controller = world.load(Role::Controller, "c1");
    for (role, name) in [(Role::Tenant, "t1"), (Role::Operator, "o1")] {
        let client = world.load(role, name);
        for (server, asked, served_by) in [(&node, Role::Node, "n1"), (&controller, Role::Controller, "c1")] {
            let (at_client, at_server) = shake(&client, server, asked);
            let (server, client) = (at_client.unwrap().1, at_server.unwrap().1);
            assert_eq!((server.role(), server.name()), (Some(asked), Some(served_by)));
            assert_eq!((client.role(), client.name()), (Some(role), Some(name)));
            assert!(client.has(role) && !client.has(Role::Node));
        }
    }
    let (at_node, at_controller) = shake(&node, &controller, Role::Controller);
    assert_eq!(at_node.unwrap().1.to_string(), "controller c1");
    assert_eq!(at_controller.unwrap().1.to_string(), "node n1");
}

#[test]
fn those_who_have_the_key_are_everything_and_others_nothing() {
    let world = World::new();
    let key = world.key("key");
    for asked in [Role::Node, Role::Controller] {
        let (at_client, at_server) = shake(&key, &key, asked);
        for peer in [at_client.unwrap().1, at_server.unwrap().1] {
            assert!(Role::ALL.into_iter().all(|role| peer.has(role)));
            assert_eq!((peer.role(), peer.name()), (None, None));
        }
    }
    let other = world.key("other");
    let (at_client, at_server) = shake(&key, &other, Role::Node);
    assert!(said(at_client).contains("another authority, or its key is another one"));
    assert!(said(at_server).contains("another authority, or its key is another one"));
}

#[test]
fn a_member_of_another_authority_is_refused_by_both_ends() {
    let (mut ours, mut theirs) = (World::new(), World::new());
    let (client, server) = (theirs.load(Role::Tenant, "t1"), ours.load(Role::Node, "n1"));
    let (at_client, at_server) = shake(&client, &server, Role::Node);
    let told = said(at_client);
    assert!(told.starts_with("the other end is not trusted: its certificate is of another authority"), "{told}");
    let told = said(at_server);
    assert!(told.starts_with("the other end refuses this identity: its certificate is of another"), "{told}");
}

/// A tenant's key that was stolen serves no pages, and a node's is no controller.
#[test]
fn a_server_has_the_role_that_is_asked_for() {
    let mut world = World::new();
    let client = world.load(Role::Operator, "o1");
    let (node, tenant) = (world.load(Role::Node, "n1"), world.load(Role::Tenant, "t1"));
    let told = said(shake(&client, &node, Role::Controller).0);
    assert!(told.contains("of another role"), "{told}");
    for other in [Role::Node, Role::Controller] {
        let told = said(shake(&client, &tenant, other).0);
        assert!(told.contains("of another role"), "{told}");
    }
    assert_eq!(shake(&client, &tenant, Role::Tenant).0.unwrap().1.name(), Some("t1"), "for its metrics");
    let told = said(shake(&tenant, &client, Role::Operator).0);
    assert!(told.contains("serves no one"), "{told}");
}

/// Any node of a cluster once passed for any other.
#[test]
fn a_server_has_the_name_that_is_asked_for() {
    let mut world = World::new();
    let client = world.load(Role::Tenant, "t1");
    let (node, controller) = (world.load(Role::Node, "n1"), world.load(Role::Controller, "c1"));
    let asked = |role, name| Expected { role, name: Some(name) };
    assert_eq!(shake(&client, &node, asked(Role::Node, "n1")).0.unwrap().1.name(), Some("n1"));
    let told = said(shake(&client, &node, asked(Role::Node, "n2")).0);
    assert!(told.contains("of another name"), "{told}");
    let told = said(shake(&client, &controller, asked(Role::Node, "c1")).0);
    assert!(told.contains("of another role"), "{told}");
    // What is asked for may come from others.
    for name in ["", "n1.node.yonder", "*", "N1"] {
        let refused = shake(&client, &node, asked(Role::Node, name)).0.map(drop).unwrap_err();
        assert!(matches!(refused, HandshakeError::Identity(_)), "{name}: {refused}");
    }
    // One who has the shared key has no name.
    let key = world.key("key");
    assert!(said(shake(&key, &key, asked(Role::Node, "n1")).0).contains("of another name"));
}

/// A list that cannot be trusted would let in those whom it should keep out.
#[test]
fn no_one_is_let_in_while_the_list_cannot_be_used() {
    let mut world = World::new();
    let (server, client) = (world.load(Role::Node, "n1"), world.load(Role::Tenant, "t1"));
    let peer = shake(&client, &server, Role::Node).1.unwrap().1;
    let list = world.file("revoked.pem");
    let refuses = |why: &str| {
        let told = said(shake(&client, &server, Role::Node).1);
        assert!(told.starts_with("no one is let in while the list") && told.contains(why), "{told}");
        assert!(server.check(&peer).is_err() && !server.has_revoked(&peer), "what is not known is not said");
    };
    rustix::fs::mkfifoat(rustix::fs::CWD, &list, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    refuses("it is no file");
    std::fs::remove_file(&list).unwrap();
    std::fs::write(&list, "no list").unwrap();
    refuses("it is no list");
    std::fs::copy(world.authority.revoked_file(), &list).unwrap();
    std::fs::set_permissions(&list, Permissions::from_mode(0o666)).unwrap();
    refuses("other users may write it");
    std::fs::set_permissions(&list, Permissions::from_mode(0o644)).unwrap();
    // It is enough to do what was said.
    shake(&client, &server, Role::Node).0.unwrap();
}

/// Those who may write the folder, and not the list, could take it away, or bring an old one back.
#[test]
fn a_list_that_was_read_counts_when_it_has_gone() {
    let mut world = World::new();
    let (server, client) = (world.load(Role::Node, "n1"), world.load(Role::Tenant, "t1"));
    let peer = shake(&client, &server, Role::Node).1.unwrap().1;
    let list = world.file("revoked.pem");
    std::fs::copy(world.authority.revoked_file(), world.file("old.pem")).unwrap();
    world.authority.revoke("t1").unwrap();
    let before = server.changes();
    std::fs::copy(world.authority.revoked_file(), &list).unwrap();
    assert!(server.changes() > before && server.has_revoked(&peer));
    std::fs::remove_file(&list).unwrap();
    assert!(said(shake(&client, &server, Role::Node).0).contains("revoked"));
    std::fs::copy(world.file("old.pem"), &list).unwrap();
    assert!(said(shake(&client, &server, Role::Node).0).contains("revoked"));
    assert!(server.has_revoked(&peer));
}

#[test]
fn a_certificate_that_is_over_is_refused_and_the_client_is_told_why() {
    let mut world = World::new();
    let server = world.load(Role::Node, "n1");
    let path = world.member_for(Role::Tenant, "t1", Duration::from_secs(1));
    let client = Credential::load(&path).unwrap();
    let deadline = Instant::now() + LONG;
    let (at_client, at_server) = loop {
        let ends = shake(&client, &server, Role::Node);
        if ends.0.is_err() {
            break ends;
        }
        assert!(Instant::now() < deadline);
    };
    assert!(said(at_server).contains("is over"));
    let told = said(at_client);
    assert!(told.starts_with("the other end refuses this identity: its certificate is over"), "{told}");
    // A new certificate counts without another start.
    std::fs::remove_file(&path).unwrap();
    world.authority.renew(Role::Tenant, "t1", DAY, None).unwrap().write(&path).unwrap();
    let (at_client, _at_server) = shake(&client, &server, Role::Node);
    at_client.unwrap();
}

#[test]
fn a_revoked_member_is_refused_as_soon_as_the_list_is_beside_the_identity() {
    let mut world = World::new();
    let server = world.load(Role::Node, "n1");
    let (client, other) = (world.load(Role::Tenant, "t1"), world.load(Role::Tenant, "t2"));
    let peer = shake(&client, &server, Role::Node).1.unwrap().1;
    server.check(&peer).unwrap();
    assert_eq!(world.authority.revoke("t1").unwrap(), 1);
    std::fs::copy(world.authority.revoked_file(), world.file("revoked.pem")).unwrap();
    let (at_client, at_server) = shake(&client, &server, Role::Node);
    assert!(said(at_server).contains("its certificate was revoked"));
    assert_eq!(said(at_client), "the other end refuses this identity: its certificate was revoked");
    assert!(server.check(&peer).unwrap_err().to_string().contains("was revoked"));
    shake(&other, &server, Role::Node).0.unwrap();
    // Those that are made later have the list in their own file.
    std::fs::remove_file(world.file("revoked.pem")).unwrap();
    let later = world.load(Role::Node, "n2");
    assert!(said(shake(&client, &later, Role::Node).0).contains("revoked"));
    shake(&other, &later, Role::Node).0.unwrap();
}

/// Two clusters' identities may lie in one folder; the list of one says nothing of the other.
#[test]
fn a_list_of_another_authority_is_no_list() {
    let (mut ours, mut theirs) = (World::new(), World::new());
    let (server, client) = (ours.load(Role::Node, "n1"), ours.load(Role::Tenant, "t1"));
    theirs.member(Role::Tenant, "x");
    theirs.authority.revoke("x").unwrap();
    std::fs::copy(theirs.authority.revoked_file(), ours.file("revoked.pem")).unwrap();
    shake(&client, &server, Role::Node).0.unwrap();
}

#[test]
fn those_who_speak_no_tls_are_told_apart() {
    let mut world = World::new();
    let server = world.load(Role::Controller, "c1");
    let (mut there, here) = pair();
    there.write_all(b"{\"ask\":{\"id\":1,\"request\":\"nodes\"}}\n").unwrap();
    let error = accept(&server, here, Instant::now() + LONG).unwrap_err();
    assert!(matches!(error, HandshakeError::NotTls), "{error}");
    let (there, mut here) = pair();
    let answers = thread::spawn(move || {
        let mut hello = [0; 1024];
        assert!(here.read(&mut hello).unwrap() > 0);
        here.write_all(b"{\"turned-away\":{\"cause\":\"the line is not one of this protocol\"}}\n").unwrap();
        here
    });
    let error = connect(&server, there, Role::Controller, Instant::now() + LONG).unwrap_err();
    assert!(matches!(error, HandshakeError::NotTls), "{error}");
    drop(answers.join().unwrap());
}

#[test]
fn a_handshake_ends_in_time_however_slowly_it_comes() {
    let mut world = World::new();
    let server = world.load(Role::Node, "n1");
    // One that says nothing, and one that says a little, again and again.
    let (mut there, here) = pair();
    let error = accept(&server, here, Instant::now() + Duration::from_millis(50)).unwrap_err();
    assert!(matches!(error, HandshakeError::Exceeded("time")), "{error}");
    assert!(there.write_all(b"x").is_ok());
    let (mut there, here) = pair();
    // The header of a record of 16 KiB, which never ends.
    there.write_all(&[22, 3, 1, 0x40, 0]).unwrap();
    let drips = thread::spawn(move || while there.write_all(&[1]).is_ok() {});
    let start = Instant::now();
    accept(&server, here, start + Duration::from_millis(200)).unwrap_err();
    assert!(start.elapsed() < LONG);
    drips.join().unwrap();
}
