//! Ranges that move from one node to another and back.

use yonder_board::{Config, MovedAllocation, Moving, Pid, Shell, VirtualPage};
use yonder_wire::{AllocateRequest, Backing, ErrorCode, Kind, Permission};

use crate::world::{Asked, PAGE, SOMEWHERE, Space, World, config};

const REGION: u64 = 64 * PAGE;

/// Two nodes with one address space, whose owner has a capability for each.
fn two_nodes() -> [(World, Space); 2] {
    [*b"the first node's", *b"the other node's"].map(|key| {
        let mut world = World::new(&Config { key: key.into(), ..config(32) });
        world.refill(8);
        let space = world.create_named(pid(), 0);
        (world, space)
    })
}

fn pid() -> Pid {
    Pid::new(7).unwrap()
}

fn begin_adopt(
    world: &mut World,
    allocations: &[MovedAllocation],
    present: &[VirtualPage],
) -> Result<Moving, ErrorCode> {
    let mut shell = Shell { memory: &*world.memory, pages: &world.ring, upkeep: &mut world.upkeep };
    world.slow.begin_adopt(pid(), (REGION, 2 * REGION), allocations, present, &mut shell)
}

/// Moves the region, with its bytes.
fn move_region(from: &mut World, to: &mut World) {
    let out = from.slow.begin_move(pid(), REGION, 2 * REGION, &mut from.upkeep).unwrap();
    let present: Vec<VirtualPage> = out.memory().iter().map(|(page, _)| *page).collect();
    let into = begin_adopt(to, out.allocations(), &present).unwrap();
    for (page, memory) in out.memory() {
        let (_, target) = into.memory().iter().find(|(target, _)| target == page).unwrap();
        to.memory.page(*target).copy_from_slice(&from.memory.page(*memory));
    }
    to.slow.finish_move(into);
    from.slow.finish_move(out);
}

fn in_region(bytes: u64) -> AllocateRequest {
    AllocateRequest { bytes, from: REGION, to: 2 * REGION, ..SOMEWHERE }
}

#[test]
fn a_range_moves_with_its_bytes_and_back() {
    let [(mut here, mine), (mut there, theirs)] = two_nodes();
    let (address, _) = here.allocate(mine, &in_region(3 * PAGE)).unwrap();
    let read_only = AllocateRequest { permission: Permission::Read, ..in_region(PAGE) };
    let (constant, _) = here.allocate(mine, &read_only).unwrap();
    let now = AllocateRequest { backing: Backing::Now, ..in_region(2 * PAGE) };
    let (backed, _) = here.allocate(mine, &now).unwrap();
    let (elsewhere, _) = here.allocate(mine, &AllocateRequest { from: 2 * REGION, ..SOMEWHERE }).unwrap();
    here.write(mine, address + PAGE, &[5; 10]).unwrap();
    here.write(mine, backed, &[6; 10]).unwrap();
    here.write(mine, elsewhere, &[7]).unwrap();
    let free_before = here.board.free_pages();

    move_region(&mut here, &mut there);
    assert_eq!(here.board.free_pages(), free_before + 3);
    assert_eq!(here.read(mine, address + PAGE, 1), Err(ErrorCode::Moved));
    assert_eq!(here.write(mine, address, &[1]), Err(ErrorCode::Moved));
    assert_eq!(here.free(mine, address), Err(ErrorCode::Moved));
    assert_eq!(here.discard(mine, address, 1), Err(ErrorCode::Moved));
    assert_eq!(here.allocate(mine, &in_region(PAGE)), Err(ErrorCode::Moved));
    assert_eq!(here.ask(Kind::Translate, mine, backed, 0, &[]).err(), Some(ErrorCode::Moved));
    assert_eq!(here.read(mine, elsewhere, 1), Ok(vec![7]));
    assert!(here.allocate(mine, &SOMEWHERE).unwrap().0 >= 2 * REGION, "an address that moved away is given out");
    assert_eq!(there.read(theirs, address + PAGE - 1, 3), Ok(vec![0, 5, 5]));
    assert_eq!(there.read(theirs, backed, 1), Ok(vec![6]));
    assert_eq!(there.write(theirs, constant, &[1]), Err(ErrorCode::NotAllowed));
    there.write(theirs, address + 2 * PAGE, &[8]).unwrap();

    move_region(&mut there, &mut here);
    assert_eq!(here.read(mine, address + 2 * PAGE, 1), Ok(vec![8]));
    assert_eq!(here.read(mine, address + PAGE, 1), Ok(vec![5]));
    assert_eq!(here.read(mine, REGION + 63 * PAGE, 1), Err(ErrorCode::BadAddress), "it is here again");
    assert_eq!(there.read(theirs, address, 1), Err(ErrorCode::Moved));
    here.free(mine, address).unwrap();
    there.destroy(theirs).unwrap();
    assert_eq!(there.board.free_pages(), 32);
}

#[test]
fn requests_for_a_range_that_moves_wait_and_others_do_not() {
    let [(mut here, mine), _] = two_nodes();
    let (address, _) = here.allocate(mine, &in_region(2 * PAGE)).unwrap();
    let (elsewhere, _) = here.allocate(mine, &AllocateRequest { from: 2 * REGION, ..SOMEWHERE }).unwrap();
    here.write(mine, address, &[1]).unwrap();
    here.upkeep.asked.clear();
    let moving = here.slow.begin_move(pid(), REGION, 2 * REGION, &mut here.upkeep).unwrap();
    assert_eq!(here.upkeep.asked, [Asked::Quiet], "a write may be under way");
    let write = here.request(Kind::Write, mine, address, 1);
    assert_eq!(here.send(&write, &[2]).0.code, ErrorCode::Busy);
    for kind in [Kind::Read, Kind::Free, Kind::Discard, Kind::Translate] {
        assert_eq!(here.ask(kind, mine, address, 1, &[]).err(), Some(ErrorCode::Busy), "{kind:?}");
    }
    assert_eq!(here.allocate(mine, &in_region(PAGE)), Err(ErrorCode::Busy));
    assert_eq!(here.destroy(mine), Err(ErrorCode::Busy));
    assert_eq!(here.write(mine, elsewhere, &[3]), Ok(()));
    let again = here.slow.begin_move(pid(), REGION, 2 * REGION, &mut here.upkeep);
    assert_eq!(again.err(), Some(ErrorCode::Busy));
    here.slow.abandon_move(moving);
    assert_eq!(here.send(&write, &[2]).0.code, ErrorCode::None);
    assert_eq!(here.read(mine, address, 1), Ok(vec![2]));
    here.destroy(mine).unwrap();
    assert_eq!(here.board.free_pages(), 32);
}

#[test]
fn what_cannot_move_is_refused() {
    let [(mut here, mine), _] = two_nodes();
    let mut begin = |from, to| here.slow.begin_move(pid(), from, to, &mut here.upkeep).err();
    assert_eq!(begin(REGION + 1, 2 * REGION), Some(ErrorCode::BadAddress));
    assert_eq!(begin(REGION, REGION), Some(ErrorCode::BadAddress));
    assert_eq!(begin(0, u64::MAX), Some(ErrorCode::BadAddress));
    here.allocate(mine, &AllocateRequest { to: 3 * REGION, ..in_region(2 * PAGE) }).unwrap();
    let mut begin = |pid, from, to| here.slow.begin_move(pid, from, to, &mut here.upkeep).err();
    assert_eq!(begin(pid(), REGION + PAGE, 2 * REGION), Some(ErrorCode::BadAddress), "half an allocation");
    assert_eq!(begin(pid(), REGION, REGION + PAGE), Some(ErrorCode::BadAddress), "half an allocation");
    assert_eq!(begin(Pid::new(8).unwrap(), REGION, 2 * REGION), Some(ErrorCode::BadCapability));
    assert_eq!(begin(pid(), REGION, 2 * REGION), None);
}

#[test]
fn an_adoption_without_room_changes_nothing() {
    let [_, (mut there, theirs)] = two_nodes();
    let allocation = |first, pages, backing| MovedAllocation {
        first: VirtualPage(first),
        pages,
        permission: Permission::ReadWrite,
        backing,
    };
    let small = allocation(64, 2, Backing::OnDemand);
    let outside =
        [allocation(63, 2, Backing::OnDemand), allocation(127, 2, Backing::OnDemand), allocation(64, 0, Backing::Now)];
    for wrong in outside {
        assert_eq!(begin_adopt(&mut there, &[small, wrong], &[]).err(), Some(ErrorCode::BadAddress));
    }
    let overlapping = allocation(65, 1, Backing::OnDemand);
    assert_eq!(begin_adopt(&mut there, &[small, overlapping], &[]).err(), Some(ErrorCode::OutOfMemory));
    let large = allocation(66, 33, Backing::Now);
    assert_eq!(begin_adopt(&mut there, &[small, large], &[VirtualPage(64)]).err(), Some(ErrorCode::OutOfMemory));
    assert_eq!(begin_adopt(&mut there, &[small], &[VirtualPage(70)]).err(), Some(ErrorCode::BadAddress));
    assert_eq!((there.board.free_pages(), there.slow.status().allocated_bytes), (32, 0));
    let (address, _) = there.allocate(theirs, &in_region(2 * PAGE)).unwrap();
    assert_eq!(there.write(theirs, address, &[1]), Ok(()), "the range stays closed");
}

#[test]
fn an_adoption_that_is_abandoned_leaves_the_range_where_it_was() {
    let [(mut here, mine), (mut there, _)] = two_nodes();
    let (address, _) = here.allocate(mine, &in_region(PAGE)).unwrap();
    move_region(&mut here, &mut there);
    let into = begin_adopt(&mut here, &[], &[]).unwrap();
    here.slow.abandon_move(into);
    assert_eq!(here.read(mine, address, 1), Err(ErrorCode::Moved));
}

#[test]
fn memory_that_a_client_reaches_by_itself_does_not_move() {
    let [(mut here, mine), _] = two_nodes();
    let (address, _) = here.allocate(mine, &AllocateRequest { backing: Backing::Now, ..in_region(PAGE) }).unwrap();
    here.ask(Kind::Translate, mine, address, 0, &[]).unwrap();
    let refused = here.slow.begin_move(pid(), REGION, 2 * REGION, &mut here.upkeep);
    assert_eq!(refused.err(), Some(ErrorCode::NotAllowed));
    assert_eq!(here.read(mine, address, 1), Ok(vec![0]));
}

#[test]
fn a_lease_that_ends_during_a_move_ends_the_space_afterwards() {
    let mut world = World::with_ring(32, 8);
    let space = world.create_named(pid(), 10);
    let (address, _) = world.allocate(space, &in_region(PAGE)).unwrap();
    let moving = world.slow.begin_move(pid(), REGION, 2 * REGION, &mut world.upkeep).unwrap();
    let end = world.slow.next_expiry().unwrap();
    world.slow.expire(end);
    assert_eq!(world.slow.next_expiry(), Some(end + 10_000_000));
    world.slow.abandon_move(moving);
    assert_eq!(world.read(space, address, 1), Ok(vec![0]));
    world.slow.expire(end + 10_000_000);
    assert_eq!(world.slow.take_ended(), Some(pid()));
}
