//! Files of credentials, and folders of authorities.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use yonder_identity::{Authority, Credential, IdentityError, Role};

use crate::world::{DAY, World, said, shake};

#[test]
fn other_files_are_refused_in_one_line_that_says_what_to_type() {
    let mut world = World::new();
    let whole = fs::read_to_string(world.member(Role::Node, "n1")).unwrap();
    let (certificate, rest) = whole.split_once("-----BEGIN PRIVATE").unwrap();
    let other = fs::read_to_string(world.member(Role::Node, "n2")).unwrap();
    let foreign = other.split_once("-----BEGIN PRIVATE").unwrap().1;
    let path = world.file("credential");
    for text in [
        "",
        "hello",
        "yonder-key-1:12",
        certificate,
        rest,
        // Another member's key.
        &format!("{certificate}-----BEGIN PRIVATE{foreign}"),
    ] {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let told = Credential::load(&path).unwrap_err().to_string();
        assert!(told.contains("yonder cluster") && told.lines().count() == 1, "{told}");
    }
    let told = Credential::load(&world.file("none")).unwrap_err().to_string();
    assert!(told.contains("No such file"), "{told}");
    let exposed = world.file("n1.pem");
    fs::set_permissions(&exposed, Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(Credential::load(&exposed), Err(IdentityError::Exposed { .. })));
}

#[test]
fn a_changed_file_that_is_none_leaves_what_was_read() {
    let mut world = World::new();
    let (client, server) = (world.load(Role::Tenant, "t1"), world.load(Role::Node, "n1"));
    fs::write(world.file("n1.pem"), "half a file").unwrap();
    shake(&client, &server, Role::Node).0.unwrap();
}

#[test]
fn a_role_is_checked_before_anything_is_connected() {
    let mut world = World::new();
    let tenant = world.load(Role::Tenant, "t1");
    tenant.check_role(Role::Tenant).unwrap();
    let told = tenant.check_role(Role::Node).unwrap_err().to_string();
    assert!(
        told.ends_with(
            "is the identity of a tenant, and a node is needed: make one with `yonder cluster add node NAME`"
        ),
        "{told}"
    );
    world.key("key").check_role(Role::Node).unwrap();
}

#[test]
fn an_authority_is_found_again_as_it_was() {
    let mut world = World::new();
    let folder = world.authority.folder().to_owned();
    world.member(Role::Node, "n1");
    world.member(Role::Tenant, "t1");
    world.authority.revoke("t1").unwrap();
    let issued = world.authority.issued().to_vec();
    let client = world.load(Role::Tenant, "t2");
    let World { folder: _kept, authority } = world;
    drop(authority);
    assert!(matches!(Authority::init(&folder), Err(IdentityError::AuthorityExists { .. })));
    let mut again = Authority::open(&folder).unwrap();
    assert_eq!(again.issued()[..2], issued);
    let path = _kept.path().join("n2.pem");
    again.add(Role::Node, "n2", DAY).unwrap().write(&path).unwrap();
    shake(&client, &Credential::load(&path).unwrap(), Role::Node).0.unwrap();
    for file in ["authority.key", "issued.json"] {
        assert_eq!(fs::metadata(folder.join(file)).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(matches!(Authority::open(_kept.path()), Err(IdentityError::NoAuthority { .. })));
}

#[test]
fn a_name_is_of_one_member() {
    let mut world = World::new();
    world.member(Role::Node, "n1");
    for role in [Role::Node, Role::Tenant] {
        let told = world.authority.add(role, "n1", DAY).map(drop).unwrap_err().to_string();
        assert!(told.starts_with("a node has the name n1 already") && told.contains("--renew"), "{told}");
    }
    assert!(world.authority.renew(Role::Tenant, "n1", DAY, None).is_err());
    world.authority.renew(Role::Node, "n1", DAY, None).unwrap();
    assert_eq!(world.authority.revoke("n1").unwrap(), 2, "both certificates");
    assert!(matches!(world.authority.revoke("n1"), Err(IdentityError::NoMember { .. })));
    assert!(world.authority.renew(Role::Node, "n1", DAY, None).is_err(), "what was revoked is not renewed");
    // The name is free again, and the new member is not revoked.
    let server = world.load(Role::Controller, "c1");
    let path = world.file("n1-again.pem");
    world.authority.add(Role::Node, "n1", DAY).unwrap().write(&path).unwrap();
    shake(&Credential::load(&path).unwrap(), &server, Role::Controller).0.unwrap();
    let first = Credential::load(&world.file("n1.pem")).unwrap();
    assert!(said(shake(&first, &server, Role::Controller).0).contains("revoked"));
    assert!(matches!(
        world.authority.add(Role::Node, "n3", Duration::ZERO).map(drop),
        Err(IdentityError::Lifetime { .. })
    ));
}
