//! Members of a cluster that were revoked, while they have sessions; and nodes that pass for others.

use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use yonder_fabric::lane::{CallError, Lane, NodeSession, OpenError};
use yonder_identity::{Authority, REVOKED_FILE, Role};
use yonder_node::Node;
use yonder_session::Protection;
use yonder_wire::{ErrorCode, Kind};

use crate::end_to_end::by_hand::ByHand;
use crate::end_to_end::raw::fresh;
use crate::end_to_end::secured::{ask, create, is_dropped, load, member, node, open};
use crate::end_to_end::testbed::{NETWORKS, Network, wait_for};

/// An authority, and its members' files in one folder.
struct Members {
    folder: TempDir,
    authority: Authority,
}

impl Members {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::init(&folder.path().join("authority")).unwrap();
        Self { folder, authority }
    }

    fn add(&mut self, role: Role, name: &str) -> std::path::PathBuf {
        member(&mut self.authority, self.folder.path(), role, name)
    }

    /// Revokes a member, and copies the list to where the nodes of this folder look for it.
    fn revoke(&mut self, name: &str) {
        self.authority.revoke(name).unwrap();
        // Whole at once: a part of a list is none, and lets no one in.
        let (beside, list) = (self.folder.path().join("list"), self.folder.path().join(REVOKED_FILE));
        std::fs::copy(self.authority.revoked_file(), &beside).unwrap();
        std::fs::rename(beside, list).unwrap();
    }

    /// A lane of the member whose identity is at `path`.
    fn lane(&self, node: &Node, path: &Path) -> Lane {
        open(node, &Arc::new(NodeSession::with(Some(load(path)), Protection::Encrypted))).unwrap()
    }
}

/// Until it is told that the node answers it no more, and not only nothing.
fn until_lost(lane: &mut Lane, space: (u32, u128)) {
    wait_for(|| match ask(lane, Kind::Ping, space, 0) {
        Err(CallError::Lost) => Some(()),
        Ok(_) | Err(CallError::TimedOut) => None,
        Err(other) => panic!("{other}"),
    });
}

/// Once he went on until his session was over, two hours at most.
#[test]
fn a_tenant_that_is_revoked_is_out_at_once_and_told_so() {
    for network in NETWORKS {
        let mut members = Members::new();
        let node = node(network, &load(&members.add(Role::Node, "n1")));
        let (shop, bank) = (members.add(Role::Tenant, "shop"), members.add(Role::Tenant, "bank"));
        let (mut own, mut other) = (members.lane(&node, &shop), members.lane(&node, &bank));
        let (space, others) = (create(&mut own), create(&mut other));
        assert!(ask(&mut own, Kind::Ping, space, 0).is_ok());
        members.revoke("shop");
        until_lost(&mut own, space);
        assert!(ask(&mut other, Kind::Ping, others, 0).is_ok(), "{network:?}: another tenant is out too");
        // One who has the name from now on is the tenant, and the revoked one is not.
        let again = members.folder.path().join("again.pem");
        members
            .authority
            .add(Role::Tenant, "shop", std::time::Duration::from_secs(3600))
            .unwrap()
            .write(&again)
            .unwrap();
        assert!(ask(&mut members.lane(&node, &again), Kind::Ping, space, 0).is_ok());
        let refused = open(&node, &Arc::new(NodeSession::with(Some(load(&shop)), Protection::Encrypted)));
        assert!(refused.is_err_and(|error| error.to_string().contains("its certificate was revoked")));
    }
}

/// His program does not have to be one of ours.
#[test]
fn a_revoked_tenant_that_goes_on_sending_is_not_heard() {
    let mut members = Members::new();
    let node = node(Network::Udp, &load(&members.add(Role::Node, "n1")));
    let shop = load(&members.add(Role::Tenant, "shop"));
    let mut lanes = [Protection::Encrypted, Protection::Authenticated].map(|kind| ByHand::open(&node, &shop, kind));
    for lane in &mut lanes {
        let ping = lane.sealed(&fresh(Kind::Ping, 0), &[]);
        lane.send(&ping);
        assert_eq!(lane.answer().map(|header| header.code), Some(ErrorCode::None));
    }
    let mut watched = members.lane(&node, &members.folder.path().join("shop.pem"));
    let space = create(&mut watched);
    members.revoke("shop");
    until_lost(&mut watched, space);
    drop(watched);
    for lane in &mut lanes {
        let create = lane.sealed(&fresh(Kind::CreateSpace, 0), &[]);
        let before = node.stats().bad_datagrams;
        lane.send(&create);
        is_dropped(&node, before);
    }
}

/// Those who are no tenants have one number; when one of them goes, the others make new sessions.
#[test]
fn an_operator_that_is_revoked_takes_no_other_along() {
    let mut members = Members::new();
    let node = node(Network::Udp, &load(&members.add(Role::Node, "n1")));
    let (ada, bob) = (members.add(Role::Operator, "ada"), members.add(Role::Operator, "bob"));
    let (mut revoked, mut other) = (members.lane(&node, &ada), members.lane(&node, &bob));
    let (space, others) = (create(&mut revoked), create(&mut other));
    members.revoke("ada");
    until_lost(&mut revoked, space);
    assert!(ask(&mut other, Kind::Ping, others, 0).is_ok());
}

/// Any node's certificate once passed for any node.
#[test]
fn a_program_takes_a_node_for_the_one_that_it_names_alone() {
    let mut members = Members::new();
    let node = node(Network::Tcp, &load(&members.add(Role::Node, "n2")));
    let app = members.add(Role::Tenant, "app");
    let try_as = |name: Option<&str>| {
        let session = NodeSession::with(Some(load(&app)), Protection::Encrypted).called(name.map(str::to_owned));
        open(&node, &Arc::new(session))
    };
    let refused = try_as(Some("n1")).unwrap_err();
    assert!(matches!(refused, OpenError::Handshake(_)) && refused.to_string().contains("another name"), "{refused}");
    create(&mut try_as(Some("n2")).unwrap());
    create(&mut try_as(None).unwrap());
    // A name that nothing would show is not let go by.
    let nameless = NodeSession::with(None, Protection::Encrypted).called(Some("n2".to_owned()));
    assert!(matches!(open(&node, &Arc::new(nameless)), Err(OpenError::Unnamed)));
    let url = format!("{}?name=n2", node.addresses()[0]);
    assert_eq!(NodeSession::of_url(&url).unwrap().0, node.addresses()[0].to_string());
    assert!(NodeSession::of_url(&format!("{url}&lease=60s")).is_err());
}
