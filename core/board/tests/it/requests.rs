//! A test for each rule of requests but those of `repeats`.

use yonder_board::{Config, PageSize, PageSource, Pid, Source, SpaceLimits};
use yonder_wire::{
    AllocateRequest, AtomicOperation, Backing, Body, ErrorCode, HEADER_BYTES, Kind, NodeStatus, PAYLOAD_BYTES_MAX,
    Permission, Rights, Translation,
};

use crate::world::{Asked, PAGE, SOMEWHERE, Space, World, config};

pub(crate) const NOBODY: Space = Space { pid: 0, capability: 0 };

/// A node with an address space that has `pages` pages, and where they are.
pub(crate) fn world_with(pages: u64) -> (World, Space, u64) {
    let mut world = World::with_ring(16, 8);
    let space = world.create();
    let (address, _) = world.allocate(space, &AllocateRequest { bytes: pages * PAGE, ..SOMEWHERE }).unwrap();
    (world, space, address)
}

#[test]
fn what_was_written_is_read_and_what_was_not_is_zeros_without_memory() {
    let (mut world, space, address) = world_with(3);
    assert_eq!(world.read(space, address, 3 * PAGE as usize), Ok(vec![0; 3 * PAGE as usize]));
    assert_eq!(world.board.free_pages(), 16, "a read takes memory");
    world.write(space, address + PAGE - 2, &[1, 2, 3, 4]).unwrap();
    assert_eq!(world.board.free_pages(), 14);
    assert_eq!(world.read(space, address + PAGE - 3, 6), Ok(vec![0, 1, 2, 3, 4, 0]));
}

#[test]
fn atomics_return_the_old_word() {
    let (mut world, space, address) = world_with(1);
    assert_eq!(world.atomic(space, address + 8, AtomicOperation::FetchAdd(5)), Ok(0));
    assert_eq!(world.atomic(space, address + 8, AtomicOperation::CompareAndSwap { expected: 5, new: 9 }), Ok(5));
    assert_eq!(world.atomic(space, address + 8, AtomicOperation::TestAndSet), Ok(9));
    assert_eq!(world.read(space, address + 8, 8), Ok(vec![1, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(world.atomic(space, address + 4, AtomicOperation::TestAndSet), Err(ErrorCode::BadLength));
    assert_eq!(world.ask(Kind::Atomic, space, address, 3, &[0; 3]).err(), Some(ErrorCode::BadLength));
    assert_eq!(world.ask(Kind::Atomic, space, address, 24, &[9; 24]).err(), Some(ErrorCode::BadLength));
}

#[test]
fn what_is_outside_of_allocations_is_refused_and_a_refused_write_changes_nothing() {
    let (mut world, space, address) = world_with(2);
    let end = address + 2 * PAGE;
    for (address, bytes) in [(0, 1), (end, 1), (end - 1, 2), (u64::MAX, 1), (u64::MAX - 1, 8), (1 << 50, 8)] {
        assert_eq!(world.read(space, address, bytes), Err(ErrorCode::BadAddress), "{address:#x}");
        assert_eq!(world.write(space, address, &vec![7; bytes]), Err(ErrorCode::BadAddress), "{address:#x}");
    }
    assert_eq!(world.read(space, end - 1, 1), Ok(vec![0]), "a part of a refused write is there");
    assert_eq!(world.board.free_pages(), 16);
    assert_eq!(world.atomic(space, 1 << 50, AtomicOperation::TestAndSet), Err(ErrorCode::BadAddress));
    assert_eq!(world.read(space, address, 0), Err(ErrorCode::BadLength));
    assert_eq!(world.write(space, address, &[]), Err(ErrorCode::BadLength));
    assert_eq!(world.read(space, address, PAYLOAD_BYTES_MAX + 1), Err(ErrorCode::BadLength));
}

#[test]
fn an_answer_that_has_no_room_is_refused() {
    let (mut world, space, address) = world_with(1);
    let read = world.request(Kind::Read, space, address, 100).seal(&[]);
    assert_eq!(world.deliver_with_room(&read, HEADER_BYTES + 99).unwrap().0.code, ErrorCode::BadLength);
    assert_eq!(world.deliver_with_room(&read, HEADER_BYTES + 100).unwrap().0.code, ErrorCode::None);
    let status = world.request(Kind::Status, space, 0, 0).seal(&[]);
    assert_eq!(world.deliver_with_room(&status, HEADER_BYTES + 31).unwrap().0.code, ErrorCode::BadLength);
}

#[test]
fn each_right_allows_what_it_says() {
    let (mut world, owner, address) = world_with(1);
    let reader = world.grant(owner, Rights::Read);
    let writer = world.grant(owner, Rights::ReadWrite);
    let refused = Err(ErrorCode::NotAllowed);
    assert_eq!(world.read(reader, address, 1), Ok(vec![0]));
    assert_eq!(world.write(reader, address, &[1]), refused);
    assert_eq!(world.atomic(reader, address, AtomicOperation::TestAndSet), Err(ErrorCode::NotAllowed));
    assert_eq!(world.discard(reader, address, 1), refused);
    assert_eq!(world.write(writer, address, &[1]), Ok(()));
    assert_eq!(world.discard(writer, address, 1), Ok(()));
    assert_eq!((world.free(writer, address), world.destroy(writer)), (refused, refused));
    assert_eq!(world.allocate(writer, &SOMEWHERE), Err(ErrorCode::NotAllowed));
    assert_eq!(world.ask(Kind::Grant, writer, 0, 1, &[]).err(), Some(ErrorCode::NotAllowed));
    assert_eq!(world.ask(Kind::Grant, owner, 0, 4, &[]).err(), Some(ErrorCode::BadLength));
}

#[test]
fn another_space_is_out_of_reach() {
    let (mut world, victim, address) = world_with(1);
    world.write(victim, address, &[1]).unwrap();
    let other = world.create();
    let foreign = [
        Space { pid: victim.pid, capability: other.capability },
        Space { pid: victim.pid, capability: victim.capability ^ 1 },
        Space { pid: other.pid ^ 1, capability: other.capability },
        NOBODY,
    ];
    for space in foreign {
        assert_eq!(world.read(space, address, 1), Err(ErrorCode::BadCapability));
        assert_eq!(world.write(space, address, &[2]), Err(ErrorCode::BadCapability));
        assert_eq!(world.free(space, address), Err(ErrorCode::BadCapability));
    }
    assert_eq!(world.read(other, address, 1), Err(ErrorCode::BadAddress));
    assert_eq!(world.free(other, address), Err(ErrorCode::BadAddress));
    assert_eq!(world.read(victim, address, 1), Ok(vec![1]));
}

#[test]
fn read_only_memory_is_written_by_nobody() {
    let (mut world, space, _) = world_with(1);
    let request = AllocateRequest { permission: Permission::Read, ..SOMEWHERE };
    let (address, _) = world.allocate(space, &request).unwrap();
    assert_eq!(world.read(space, address, 8), Ok(vec![0; 8]));
    assert_eq!(world.write(space, address, &[1]), Err(ErrorCode::NotAllowed));
    assert_eq!(world.atomic(space, address, AtomicOperation::TestAndSet), Err(ErrorCode::NotAllowed));
    assert_eq!(world.discard(space, address, PAGE), Err(ErrorCode::NotAllowed));
    assert_eq!(world.free(space, address), Ok(()));
}

#[test]
fn what_is_corrupt_is_refused_and_what_is_no_request_is_dropped() {
    let (mut world, space, address) = world_with(1);
    for (kind, payload) in [(Kind::Write, &[1u8, 2][..]), (Kind::Free, &[])] {
        let header = world.request(kind, space, address, payload.len());
        let mut bytes = [&header.seal(payload)[..], payload].concat();
        bytes[40] ^= 1;
        assert_eq!(world.deliver(&bytes).unwrap().0.code, ErrorCode::Corrupt);
        bytes[40] ^= 1;
        assert_eq!(world.deliver(&bytes).unwrap().0.code, ErrorCode::None, "a corrupt copy was remembered");
    }
    let answer = world.request(Kind::Read, space, address, 1).answer(5, 1);
    assert_eq!(world.deliver(&[&answer.seal(&[0])[..], &[0]].concat()), None);
    let hello = world.request(Kind::Hello, NOBODY, 0, 8);
    assert_eq!(world.deliver(&[&hello.seal(&[0; 8])[..], &[0; 8]].concat()), None);
}

#[test]
fn a_first_write_waits_for_a_page_and_fails_when_there_is_none() {
    let mut world = World::with_ring(2, 0);
    let space = world.create();
    let (address, _) = world.allocate(space, &AllocateRequest { bytes: 3 * PAGE, ..SOMEWHERE }).unwrap();
    let write = world.request(Kind::Write, space, address + PAGE - 1, 2);
    assert_eq!(world.send(&write, &[1, 1]).0.code, ErrorCode::Busy);
    world.refill(1);
    assert_eq!(world.send(&write, &[1, 1]).0.code, ErrorCode::Busy);
    assert_eq!(world.read(space, address, 1 + PAGE as usize), Ok(vec![0; 1 + PAGE as usize]));
    world.refill(1);
    assert_eq!(world.send(&write, &[1, 1]).0.code, ErrorCode::None, "a refusal that may pass was remembered");
    assert_eq!(world.write(space, address + 2 * PAGE, &[1]), Err(ErrorCode::OutOfMemory));
    world.discard(space, address, PAGE).unwrap();
    assert_eq!(world.write(space, address + 2 * PAGE, &[1]), Err(ErrorCode::Busy));
    world.refill(1);
    assert_eq!(world.write(space, address + 2 * PAGE, &[1]), Ok(()));
}

#[test]
fn memory_is_used_again_only_after_the_data_threads_were_quiet_and_zeroed() {
    let mut world = World::with_ring(1, 1);
    let space = world.create();
    let (address, _) = world.allocate(space, &SOMEWHERE).unwrap();
    world.write(space, address, &[7; 64]).unwrap();
    world.free(space, address).unwrap();
    assert_eq!(world.upkeep.asked, [], "nobody needs the memory");
    let page = world.slow.take_free_page(&mut world.upkeep).unwrap();
    assert_eq!(world.upkeep.asked, [Asked::Quiet, Asked::Zero(page)]);
    assert!(world.memory.page(page).iter().all(|byte| *byte == 0), "old bytes");
    assert_eq!(world.slow.take_free_page(&mut world.upkeep), None);
    PageSource::give_back(&world.ring, page);
    let (address, _) = world.allocate(space, &SOMEWHERE).unwrap();
    world.write(space, address, &[7; 64]).unwrap();
    world.upkeep.asked.clear();
    world.discard(space, address, PAGE).unwrap();
    world.refill(1);
    assert_eq!(world.upkeep.asked, [Asked::Quiet, Asked::Zero(page)]);
}

#[test]
fn an_allocation_with_memory_takes_it_all_or_nothing() {
    let mut world = World::with_ring(8, 5);
    let space = world.create();
    let now = AllocateRequest { bytes: 6 * PAGE, backing: Backing::Now, ..SOMEWHERE };
    let (address, allocated) = world.allocate(space, &now).unwrap();
    assert_eq!((allocated.bytes, world.board.free_pages()), (6 * PAGE, 2));
    assert_eq!(world.allocate(space, &AllocateRequest { bytes: 3 * PAGE, ..now }), Err(ErrorCode::OutOfMemory));
    assert_eq!(world.write(space, address, &vec![3; 6 * PAGE as usize]), Ok(()));
    world.discard(space, address, 2 * PAGE).unwrap();
    assert_eq!(world.board.free_pages(), 2, "memory that was to be there at once is given back");
    assert_eq!(world.read(space, address + 2 * PAGE - 1, 2), Ok(vec![0, 3]));
    assert_eq!(world.allocate(space, &AllocateRequest { bytes: 2 * PAGE, ..now }).unwrap().1.bytes, 2 * PAGE);
}

#[test]
fn allocations_are_translated_if_they_have_their_memory() {
    let (mut world, space, on_demand) = world_with(1);
    let (address, _) = world.allocate(space, &AllocateRequest { backing: Backing::Now, ..SOMEWHERE }).unwrap();
    world.write(space, address + 100, &[9]).unwrap();
    let (_, payload) = world.ask(Kind::Translate, space, address + 100, 0, &[]).unwrap();
    let translation = Translation::from_bytes(&payload).unwrap();
    assert_eq!(translation.bytes, PAGE - 100);
    let page = yonder_board::PhysicalPage((translation.offset / PAGE) as u32);
    assert_eq!(world.memory.page(page)[(translation.offset % PAGE) as usize], 9);
    assert_eq!(world.ask(Kind::Translate, space, on_demand, 0, &[]).err(), Some(ErrorCode::NotAllowed));
    assert_eq!(world.ask(Kind::Translate, space, 1 << 40, 0, &[]).err(), Some(ErrorCode::BadAddress));
}

#[test]
fn allocations_lie_in_their_windows() {
    let mut world = World::with_ring(1024, 0);
    let space = world.create();
    let within = |from, to, bytes| AllocateRequest { from, to, bytes, ..SOMEWHERE };
    assert_eq!(world.allocate(space, &within(5 << 20, 6 << 20, 1 << 20)).unwrap().0, 5 << 20);
    assert_eq!(world.allocate(space, &within(5 << 20, 6 << 20, 1)), Err(ErrorCode::OutOfMemory));
    assert_eq!(world.allocate(space, &within(PAGE + 1, 4 * PAGE - 1, 1)).unwrap().0, 2 * PAGE);
    assert_eq!(world.allocate(space, &within(PAGE + 1, 2 * PAGE, 1)), Err(ErrorCode::BadAddress));
    assert_eq!(world.allocate(space, &within(u64::MAX, 5, 1)), Err(ErrorCode::BadAddress));
    assert_eq!(world.allocate(space, &within(0, 0, 0)), Err(ErrorCode::BadLength));
    assert_eq!(world.allocate(space, &within(0, 0, u64::MAX)), Err(ErrorCode::BadLength));
    assert_eq!(world.allocate(space, &within(0, 0, 1 << 40)), Err(ErrorCode::OutOfMemory));
}

#[test]
fn more_can_be_allocated_than_there_is_memory() {
    let mut world = World::with_ring(64, 4);
    let space = world.create();
    let (address, _) = world.allocate(space, &AllocateRequest { bytes: 100 * PAGE, ..SOMEWHERE }).unwrap();
    world.write(space, address + 99 * PAGE, &[1]).unwrap();
    let (_, payload) = world.ask(Kind::Status, space, 0, 0, &[]).unwrap();
    let status = NodeStatus::from_bytes(&payload).unwrap();
    let [memory_bytes, free_bytes, allocated_bytes] = [64, 63, 100].map(|pages| pages * PAGE);
    assert_eq!(status, NodeStatus { memory_bytes, free_bytes, allocated_bytes, spaces: 1 });
    world.free(space, address).unwrap();
    assert_eq!((world.slow.status().allocated_bytes, world.slow.status().free_bytes), (0, 64 * PAGE));
    let all = AllocateRequest { bytes: 100 * PAGE, ..SOMEWHERE };
    assert!(world.allocate(space, &all).is_ok(), "slots that were freed are not used again");
}

#[test]
fn an_address_space_ends_with_its_lease_unless_it_is_renewed() {
    let mut world = World::with_ring(8, 4);
    let second = 1_000_000_000;
    let (answer, _) = world.ask(Kind::CreateSpace, NOBODY, 0, 1000, &[]).unwrap();
    let space = Space { pid: answer.pid, capability: answer.capability };
    let (address, _) = world.allocate(space, &SOMEWHERE).unwrap();
    world.write(space, address, &[1]).unwrap();
    let named = world.create_named(Pid::new(1 << 31 | 9).unwrap(), 0);
    let end = world.slow.next_expiry().unwrap();
    world.now += second / 2;
    assert_eq!(
        world.ask(Kind::Ping, Space { capability: 1, ..space }, 0, 0, &[]).err(),
        Some(ErrorCode::BadCapability)
    );
    assert_eq!(world.slow.next_expiry(), Some(end));
    world.ask(Kind::Ping, space, 0, 0, &[]).unwrap();
    assert_eq!(world.slow.next_expiry(), Some(world.now + second));
    world.slow.expire(end);
    assert_eq!((world.read(space, address, 1), world.slow.take_ended()), (Ok(vec![1]), None));
    world.slow.expire(world.now + second);
    assert_eq!(world.read(space, address, 1), Err(ErrorCode::BadCapability));
    assert_eq!(world.ask(Kind::Ping, space, 0, 0, &[]).err(), Some(ErrorCode::BadCapability));
    assert_eq!((world.slow.take_ended(), world.slow.take_ended()), (Pid::new(space.pid), None));
    assert_eq!((world.slow.next_expiry(), world.board.free_pages()), (None, 8));
    assert!(world.allocate(named, &SOMEWHERE).is_ok());
}

/// A node that stood still finds all leases over by its clock, and the renewals in its sockets.
#[test]
fn a_clock_that_leaps_by_a_lease_ends_no_address_space() {
    const MILLISECOND: u64 = 1_000_000;
    let mut world = World::new(&Config { lease_step_max: 600 * MILLISECOND, ..config(8) });
    let spaces: Vec<Space> = (0..4)
        .map(|_| {
            let (answer, _) = world.ask(Kind::CreateSpace, NOBODY, 0, 1000, &[]).unwrap();
            Space { pid: answer.pid, capability: answer.capability }
        })
        .collect();
    world.now += 3_600_000 * MILLISECOND;
    world.slow.expire(world.now);
    for space in &spaces[..3] {
        world.ask(Kind::Ping, *space, 0, 0, &[]).expect("the space has ended while the node stood still");
    }
    // Who is silent from then on is ended.
    for _ in 0..9 {
        world.now += 100 * MILLISECOND;
        world.slow.expire(world.now);
    }
    assert_eq!(world.slow.take_ended(), None);
    let end = world.slow.next_expiry().unwrap();
    assert!(end <= world.now + 100 * MILLISECOND);
    world.slow.expire(end);
    assert_eq!((world.slow.take_ended(), world.slow.take_ended()), (Pid::new(spaces[3].pid), None));
}

#[test]
fn many_leases_that_end_at_once_end_in_several_turns() {
    const MANY: usize = 100;
    let mut world = World::new(&Config { spaces: SpaceLimits::of(8 * MANY), ..config(8) });
    (0..MANY).for_each(|_| drop(world.ask(Kind::CreateSpace, NOBODY, 0, 1000, &[]).unwrap()));
    world.now += 2_000_000_000;
    world.slow.expire(world.now);
    let first = std::iter::from_fn(|| world.slow.take_ended()).count();
    assert!((1..MANY / 2).contains(&first), "{first} address spaces ended in one turn");
    while world.slow.next_expiry().is_some_and(|end| end <= world.now) {
        world.slow.expire(world.now);
    }
    assert_eq!(world.slow.status().spaces, 0);
}

#[test]
fn address_spaces_have_numbers_of_their_own_and_a_bound() {
    let mut world = World::with_ring(8, 0);
    let wanted = Space { pid: 77, capability: 0 };
    assert_eq!(world.ask(Kind::CreateSpace, wanted, 0, 0, &[]).err(), Some(ErrorCode::NotAllowed));
    let named = Pid::new(1 << 31).unwrap();
    assert_eq!(world.slow.create_space(Some(named), 0, 1), Ok(named));
    assert_eq!(world.slow.create_space(Some(named), 0, 1), Err(ErrorCode::BadAddress));
    let drawn: Vec<Space> = (0..8).map(|_| world.create()).collect();
    assert!(drawn.iter().all(|space| space.pid != 0 && space.pid < 1 << 31));
    assert_eq!(world.ask(Kind::CreateSpace, NOBODY, 0, 0, &[]).err(), Some(ErrorCode::OutOfMemory));
    world.destroy(drawn[0]).unwrap();
    assert_eq!(world.destroy(drawn[0]), Err(ErrorCode::BadCapability));
    world.create();
}

#[test]
fn a_ping_without_an_address_space_tells_the_time() {
    let mut world = World::with_ring(8, 0);
    let (answer, _) = world.ask(Kind::Ping, NOBODY, 0, 0, &[]).unwrap();
    assert_eq!(answer.time, world.now);
}

#[test]
fn offloads_use_memory_without_messages() {
    let (mut world, space, address) = world_with(4);
    let pid = Pid::new(space.pid).unwrap();
    let access = world.board.access(&*world.memory, &world.ring);
    let long: Vec<u8> = (0..3 * PAGE + 5).map(|at| at as u8).collect();
    access.write(pid, address + 1, &long).unwrap();
    let mut back = vec![0; long.len()];
    access.read(pid, address + 1, &mut back).unwrap();
    assert_eq!(back, long);
    assert_eq!(
        access.atomic(pid, address, AtomicOperation::Store(1)),
        Ok(u64::from_le_bytes([0, 0, 1, 2, 3, 4, 5, 6]))
    );
    assert_eq!(access.read(pid, address + 4 * PAGE - 1, &mut [0; 2]), Err(ErrorCode::BadAddress));
    assert_eq!(world.read(space, address, 1), Ok(vec![1]));
}

#[test]
fn a_node_takes_memory_for_its_pages_and_not_for_its_clients() {
    let mut world = World::new(&Config { spaces: SpaceLimits::of(1000), ..config(64) });
    let before = world.board.bytes() + world.fast.bytes();
    for number in 0..1000 {
        world.source = Source(number);
        world.create();
    }
    assert_eq!(world.board.bytes() + world.fast.bytes(), before);
    assert_eq!(world.board.config().page_size, PageSize::new(PAGE).unwrap());
}
