//! What those do who have no right to anything: they push nothing out that tenants did, learn nothing, wait in front of
//! nobody, and have a share of what anyone may have.

use yonder_board::{Config, Handled, Pid, Source, SpaceLimits};
use yonder_wire::{AllocateRequest, ErrorCode, HEADER_BYTES, Header, Kind, MESSAGE_BYTES_MAX, Rights, split};

use crate::requests::{NOBODY, world_with};
use crate::world::{PAGE, SOMEWHERE, Space, World, config};

/// Operations that a node remembers here.
const RECENT_MAX: usize = 64;

/// An abort of a request of the slow path.
fn abort_of(header: &Header) -> Header {
    Header { kind: Kind::Abort, length: 0, fragment_offset: 1, ..*header }
}

#[test]
fn what_needs_no_capability_pushes_nothing_out_that_tenants_did() {
    let mut world = World::new(&Config { recent_max: RECENT_MAX, ..config(16) });
    let space = world.create();
    let (address, _) = world.allocate(space, &SOMEWHERE).unwrap();
    let free = world.request(Kind::Free, space, address, 0);
    assert_eq!(world.send(&free, &[]).0.code, ErrorCode::None);
    for _ in 0..20 * RECENT_MAX {
        for kind in [Kind::CreateSpace, Kind::Free, Kind::Discard, Kind::DestroySpace] {
            let asked = world.request(kind, NOBODY, 0, 0);
            world.send(&asked, &[]);
        }
        let given_up = world.request(Kind::CreateSpace, NOBODY, 0, 0);
        world.send(&abort_of(&given_up), &[]);
    }
    let copy = world.retry(&free);
    assert_eq!(world.send(&copy, &[]).0.code, ErrorCode::None, "a tenant's request was forgotten");
}

/// Neither requests of the slow path nor aborts, with fewer rights than they need or with those of a life that is over.
#[test]
fn who_may_only_read_or_no_more_at_all_pushes_nothing_out_that_the_owner_did() {
    let mut world = World::new(&Config { recent_max: RECENT_MAX, ..config(16) });
    world.refill(4);
    let space = world.create();
    let (address, _) = world.allocate(space, &SOMEWHERE).unwrap();
    let former = world.grant(space, Rights::ReadWrite);
    let (answer, _) = world.ask(Kind::Revoke, space, 0, 0, &[]).unwrap();
    let space = Space { capability: answer.capability, ..space };
    let reader = world.grant(space, Rights::Read);
    let write = world.request(Kind::Write, space, address, 1);
    assert_eq!(world.send(&write, &[1]).0.code, ErrorCode::None);
    let free = world.request(Kind::Free, space, address, 0);
    assert_eq!(world.send(&free, &[]).0.code, ErrorCode::None);
    for _ in 0..20 * RECENT_MAX {
        for guest in [reader, former] {
            for kind in [Kind::Free, Kind::Discard, Kind::DestroySpace, Kind::Revoke] {
                let asked = world.request(kind, guest, address, 0);
                assert_ne!(world.send(&asked, &[]).0.code, ErrorCode::None, "{kind:?}");
            }
            let asked = world.request(Kind::Free, guest, address, 0);
            assert_eq!(world.send(&abort_of(&asked), &[]).0.code, ErrorCode::None);
            let asked = world.request(Kind::Write, guest, address, 0);
            let given_up = Header { kind: Kind::Abort, length: 0, ..asked };
            assert_eq!(world.send(&given_up, &[]).0.code, ErrorCode::None);
        }
    }
    for (header, payload) in [(write, &[1][..]), (free, &[])] {
        let copy = world.retry(&header);
        assert_eq!(world.send(&copy, payload).0.code, ErrorCode::None, "{:?}: it was forgotten", header.kind);
    }
}

#[test]
fn a_stranger_gives_up_nothing_that_a_tenant_asks() {
    let (mut world, space, address) = world_with(1);
    let free = world.request(Kind::Free, space, address, 0);
    let abort = Header { pid: 0, capability: 0, ..abort_of(&world.retry(&free)) };
    world.send(&abort, &[]);
    assert_eq!(world.send(&free, &[]).0.code, ErrorCode::None);
    // But what anyone may ask for, anyone gives up, who knows its name.
    let create = world.request(Kind::CreateSpace, NOBODY, 0, 0);
    let abort = abort_of(&world.retry(&create));
    assert_eq!(world.send(&abort, &[]).0.length, 0);
    assert_eq!(world.send(&create, &[]).0.code, ErrorCode::Aborted);
}

#[test]
fn how_full_a_node_is_is_told_to_its_tenants_alone() {
    let (mut world, space, _) = world_with(1);
    let forged = Space { capability: space.capability ^ 1, ..space };
    for stranger in [NOBODY, forged] {
        assert_eq!(world.ask(Kind::Status, stranger, 0, 0, &[]).err(), Some(ErrorCode::BadCapability));
    }
    let reader = world.grant(space, Rights::Read);
    assert!(world.ask(Kind::Status, reader, 0, 0, &[]).is_ok());
    world.destroy(space).unwrap();
    assert_eq!(world.ask(Kind::Status, reader, 0, 0, &[]).err(), Some(ErrorCode::BadCapability));
}

/// A data thread refuses them: they never wait for the slow path, nor others for them.
#[test]
fn requests_without_a_right_go_no_further_than_a_data_thread() {
    let (mut world, space, address) = world_with(1);
    let mut reply = vec![0; MESSAGE_BYTES_MAX];
    let forged = Space { capability: space.capability ^ 1, ..space };
    let kinds = [Kind::Allocate, Kind::Free, Kind::Discard, Kind::Grant, Kind::Translate, Kind::Status, Kind::Call];
    for kind in kinds.into_iter().chain([Kind::Ping, Kind::DestroySpace]) {
        let mut handled = |space: Space, flipped: u8| {
            let mut bytes = world.request(kind, space, address, 0).seal(&[]).to_vec();
            bytes[56] ^= flipped;
            let message = split(&bytes).unwrap().unwrap();
            let handled = world.fast.execute(&message, world.now, &*world.memory, &world.ring, &mut reply);
            let is_answered = handled == Handled::Reply(HEADER_BYTES);
            (handled, is_answered.then(|| split(&reply).unwrap().unwrap().header.code))
        };
        assert_eq!(handled(space, 0).0, Handled::Slow, "{kind:?}");
        assert_eq!(handled(forged, 0).1, Some(ErrorCode::BadCapability), "{kind:?}");
        assert_eq!(handled(space, 1).1, Some(ErrorCode::Corrupt), "{kind:?}: a damaged capability proves nothing");
    }
    let create = world.request(Kind::CreateSpace, NOBODY, 0, 0).seal(&[]);
    let create = split(&create).unwrap().unwrap();
    let handled = world.fast.execute(&create, world.now, &*world.memory, &world.ring, &mut reply);
    assert_eq!(handled, Handled::Slow);
}

#[test]
fn one_source_has_a_share_of_the_address_spaces_and_some_are_kept_for_those_with_few() {
    const SPACES_MAX: usize = 256;
    let mut world = World::new(&Config { spaces: SpaceLimits::of(SPACES_MAX), ..config(8) });
    let fill = |world: &mut World, source| {
        world.source = Source(source);
        let create = |world: &mut World| world.ask(Kind::CreateSpace, NOBODY, 0, 0, &[]);
        let made: Vec<Space> = std::iter::from_fn(|| create(world).ok())
            .map(|(answer, _)| Space { pid: answer.pid, capability: answer.capability })
            .collect();
        assert_eq!(create(world).err(), Some(ErrorCode::OutOfMemory));
        made
    };
    let first = fill(&mut world, 1);
    assert_eq!(first.len(), SPACES_MAX / 8, "one source has taken all");
    assert!((2..7).all(|source| fill(&mut world, source).len() == SPACES_MAX / 8));
    assert!((7..11).all(|source| fill(&mut world, source).len() == 16), "the last quarter is for those with few");
    assert!(fill(&mut world, 11).is_empty());
    // What a controller or an offload wants is made all the same.
    assert!(world.slow.create_space(None, 0, world.now).is_ok());
    assert!(world.slow.create_space(Pid::new(1 << 31 | 1), 0, world.now).is_ok());
    // What ends can be had again.
    first.into_iter().for_each(|space| world.destroy(space).unwrap());
    assert_eq!(fill(&mut world, 12).len(), 16);
}

#[test]
fn every_address_space_of_a_client_has_a_lease() {
    let spaces = SpaceLimits { spaces_max: 64, lease_default_ms: 2000, lease_max_ms: 5000 };
    let mut world = World::new(&Config { spaces, ..config(8) });
    let create = |world: &mut World, lease_ms| {
        let (answer, _) = world.ask(Kind::CreateSpace, NOBODY, 0, lease_ms, &[])?;
        Ok::<_, ErrorCode>((Space { pid: answer.pid, capability: answer.capability }, answer.length))
    };
    assert_eq!(create(&mut world, 5001).err(), Some(ErrorCode::BadLength));
    let (longest, lease_ms) = create(&mut world, 5000).unwrap();
    assert_eq!(lease_ms, 5000);
    let (without, lease_ms) = create(&mut world, 0).unwrap();
    assert_eq!(lease_ms, 2000, "an answer says what lease it is");
    let named = world.create_named(Pid::new(1 << 31 | 1).unwrap(), 0);
    world.now += 3_000_000_000;
    world.slow.expire(world.now);
    assert_eq!(world.allocate(without, &SOMEWHERE), Err(ErrorCode::BadCapability), "an address space stays for ever");
    assert!(world.allocate(longest, &SOMEWHERE).is_ok());
    world.now += 3_000_000_000;
    world.slow.expire(world.now);
    assert_eq!(world.slow.next_expiry(), None);
    assert!(world.allocate(named, &AllocateRequest { bytes: PAGE, ..SOMEWHERE }).is_ok());
}

/// Requests that are given up before their time wait for it: of one source only so many.
#[test]
fn a_stranger_who_gives_much_up_before_its_time_leaves_room_for_others() {
    let (mut world, ..) = world_with(1);
    let gives_up = |world: &mut World, source| {
        world.source = Source(source);
        let asked = Header { time: world.now + 1_000_000_000, ..world.request(Kind::CreateSpace, NOBODY, 0, 0) };
        world.send(&abort_of(&asked), &[]).0.code
    };
    let taken = (0..10_000).take_while(|_| gives_up(&mut world, 1) == ErrorCode::None).count();
    assert!((100..5000).contains(&taken), "{taken} requests of one stranger wait");
    assert_eq!((gives_up(&mut world, 1), gives_up(&mut world, 2)), (ErrorCode::Busy, ErrorCode::None));
}
