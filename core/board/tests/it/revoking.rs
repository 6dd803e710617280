//! Capabilities that are void: of an earlier life of an address space, and of a time that is over.

use yonder_board::Pid;
use yonder_wire::{ErrorCode, Header, Kind, Rights};

use crate::requests::world_with;
use crate::world::{SOMEWHERE, Space, World};

/// Nanoseconds of the unit in which capabilities end.
const MINUTE: u64 = 60_000_000_000;

/// Whether a capability opens nothing.
fn is_void(world: &mut World, space: Space, address: u64) -> bool {
    let refused = [
        world.read(space, address, 1).err(),
        world.write(space, address, &[9]).err(),
        world.free(space, address).err(),
        world.discard(space, address, 1).err(),
        world.allocate(space, &SOMEWHERE).err(),
        world.ask(Kind::Ping, space, 0, 0, &[]).err(),
        world.ask(Kind::Grant, space, 0, Rights::Read as usize, &[]).err(),
        world.ask(Kind::Status, space, 0, 0, &[]).err(),
        world.ask(Kind::Revoke, space, 0, 0, &[]).err(),
        world.destroy(space).err(),
    ];
    // One for reading alone is refused more for that reason.
    let is_refused = |code: &Option<_>| matches!(code, Some(ErrorCode::BadCapability | ErrorCode::NotAllowed));
    refused[0] == Some(ErrorCode::BadCapability) && refused.iter().all(is_refused)
}

#[test]
fn what_is_revoked_opens_nothing_and_the_owner_goes_on() {
    let (mut world, owner, address) = world_with(1);
    let reader = world.grant(owner, Rights::Read);
    let writer = world.grant(owner, Rights::ReadWrite);
    world.write(writer, address, &[1]).unwrap();
    for other in [reader, writer] {
        assert_eq!(world.ask(Kind::Revoke, other, 0, 0, &[]).err(), Some(ErrorCode::NotAllowed));
    }
    let revoke = world.request(Kind::Revoke, owner, 0, 0);
    let (answer, _) = world.send(&revoke, &[]);
    let renewed = Space { capability: answer.capability, ..owner };
    assert_eq!(answer.code, ErrorCode::None);
    for void in [owner, reader, writer] {
        assert!(is_void(&mut world, void, address));
    }
    assert_eq!(world.read(renewed, address, 1), Ok(vec![1]));
    // Its answer may have been lost: whoever has revoked with the old capability is told the new one again.
    let again = world.retry(&revoke);
    assert_eq!(world.send(&again, &[]).0.capability, renewed.capability);
    assert_eq!(world.read(renewed, address, 1), Ok(vec![1]), "the repetition has revoked again");
}

#[test]
fn a_number_that_comes_again_is_not_opened_by_what_opened_it_before() {
    let mut world = World::with_ring(8, 8);
    let named = Pid::new(1 << 31).unwrap();
    let before = world.create_named(named, 0);
    let (address, _) = world.allocate(before, &SOMEWHERE).unwrap();
    world.destroy(before).unwrap();
    while world.work() {}
    let after = world.create_named(named, 0);
    assert_eq!(world.allocate(after, &SOMEWHERE).unwrap().0, address, "the attack is on the same address");
    assert!(is_void(&mut world, before, address));
    assert_eq!(world.read(after, address, 1), Ok(vec![0]));
    // A controller has told others of its capabilities, and would not know a new one.
    assert_eq!(world.ask(Kind::Revoke, after, 0, 0, &[]).err(), Some(ErrorCode::NotAllowed));
}

#[test]
fn a_capability_for_some_minutes_ends_after_them() {
    let (mut world, owner, address) = world_with(1);
    let grant = |world: &mut World, minutes| {
        let granted = world.ask(Kind::Grant, owner, minutes, Rights::ReadWrite as usize, &[]);
        granted.map(|(answer, _)| Space { capability: answer.capability, ..owner })
    };
    let lent = grant(&mut world, 3).unwrap();
    let kept = grant(&mut world, 0).unwrap();
    assert_eq!(grant(&mut world, u64::MAX).err(), Some(ErrorCode::BadLength));
    world.now += 3 * MINUTE;
    assert_eq!(world.write(lent, address, &[1]), Ok(()));
    world.now += MINUTE;
    assert!(is_void(&mut world, lent, address));
    assert_eq!(world.read(kept, address, 1), Ok(vec![1]));
}

/// Who was told the outcome before a revocation is told the same when he asks again: it was executed.
#[test]
fn what_was_executed_before_is_answered_as_it_was() {
    let (mut world, owner, address) = world_with(1);
    let writer = world.grant(owner, Rights::ReadWrite);
    let write = world.request(Kind::Write, writer, address, 1);
    assert_eq!(world.send(&write, &[7]).0.code, ErrorCode::None);
    world.ask(Kind::Revoke, owner, 0, 0, &[]).unwrap();
    let again: Header = world.retry(&write);
    assert_eq!(world.send(&again, &[7]).0.code, ErrorCode::None);
    assert_eq!(world.write(writer, address, &[8]).err(), Some(ErrorCode::BadCapability));
}
