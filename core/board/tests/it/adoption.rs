//! Ranges that come from another node by messages: whole, repeated, late, forged, and never ended.

use proptest::prelude::*;
use yonder_board::{Departure, MovedAllocation, Pid};
use yonder_wire::{
    AdoptRequest, AdoptStage, AdoptedAllocation, AllocateRequest, AtomicOperation, Backing, Body, ErrorCode, Header,
    InventoryList, Kind, Permission, Rights,
};

use crate::world::{PAGE, SOMEWHERE, Space, World, config};

const REGION: u64 = 64 * PAGE;
const FIRST_PAGE: u32 = 64;
const TRANSFER: u64 = 5;

fn pid() -> Pid {
    Pid::new(1 << 31).unwrap()
}

/// A node with an address space of a controller.
fn node() -> (World, Space) {
    let mut world = World::with_regions(&config(32), REGION);
    world.refill(8);
    let space = world.create_named(pid(), 0);
    (world, space)
}

fn allocation(first: u32, pages: u32) -> AdoptedAllocation {
    AdoptedAllocation { first, pages, permission: Permission::ReadWrite, backing: Backing::OnDemand }
}

fn request(stage: AdoptStage<'_>) -> AdoptRequest<'_> {
    AdoptRequest { transfer: TRANSFER, from: REGION, to: 2 * REGION, stage }
}

/// A stage of a later transfer.
fn later(by: u64, stage: AdoptStage<'_>) -> AdoptRequest<'_> {
    AdoptRequest { transfer: TRANSFER + by, ..request(stage) }
}

/// Prepares the transfer, and says that its source has closed the range.
fn finish(world: &mut World, space: Space, by: u64) {
    adopt(world, space, 0, &later(by, AdoptStage::Prepare)).unwrap();
    assert_eq!(world.read(space, REGION, 1), Err(ErrorCode::Busy), "nobody has said that the source has closed it");
    adopt(world, space, 0, &later(by, AdoptStage::Finish)).unwrap();
}

/// Begins a later transfer of one page.
fn begin_later(world: &mut World, space: Space, by: u64) -> Result<(), ErrorCode> {
    let list = InventoryList::new([allocation(FIRST_PAGE, 1)], [FIRST_PAGE]).unwrap();
    adopt(world, space, 0, &later(by, AdoptStage::Begin(list.inventory())))
}

fn adopt(world: &mut World, space: Space, address: u64, request: &AdoptRequest<'_>) -> Result<(), ErrorCode> {
    let payload = request.to_bytes();
    world.ask(Kind::Adopt, space, address, payload.len(), &payload).map(drop)
}

fn begin(world: &mut World, space: Space, allocations: &[AdoptedAllocation], pages: &[u32]) -> Result<(), ErrorCode> {
    let list = InventoryList::new(allocations.iter().copied(), pages.iter().copied()).unwrap();
    adopt(world, space, 0, &request(AdoptStage::Begin(list.inventory())))
}

fn fill(world: &mut World, space: Space, address: u64, bytes: &[u8]) -> Result<(), ErrorCode> {
    adopt(world, space, address, &request(AdoptStage::Fill(bytes)))
}

#[test]
fn a_range_arrives_stage_by_stage_and_is_used_only_when_it_is_whole() {
    let (mut world, space) = node();
    begin(&mut world, space, &[allocation(FIRST_PAGE, 3)], &[64, 65]).unwrap();
    assert_eq!(world.read(space, REGION, 1), Err(ErrorCode::Busy));
    let free = world.board.free_pages();
    begin(&mut world, space, &[allocation(FIRST_PAGE, 3)], &[64, 65]).unwrap();
    assert_eq!(world.board.free_pages(), free, "a repeated beginning takes memory again");
    fill(&mut world, space, REGION + PAGE - 2, &[1, 2, 3, 4]).unwrap();
    fill(&mut world, space, REGION + PAGE - 2, &[1, 2, 3, 4]).unwrap();
    let early = adopt(&mut world, space, 0, &request(AdoptStage::Finish));
    assert_eq!(early, Err(ErrorCode::NotAllowed), "it is not prepared");
    adopt(&mut world, space, 0, &request(AdoptStage::Prepare)).unwrap();
    assert_eq!(fill(&mut world, space, REGION, &[7]), Err(ErrorCode::NotAllowed), "it was said to be whole");
    finish(&mut world, space, 0);
    assert_eq!(world.read(space, REGION + PAGE - 3, 6), Ok(vec![0, 1, 2, 3, 4, 0]));
    assert_eq!(world.read(space, REGION + 2 * PAGE, 1), Ok(vec![0]));
    world.write(space, REGION + 2 * PAGE, &[9]).unwrap();
    for late in [AdoptStage::Fill(&[7]), AdoptStage::Prepare] {
        assert_eq!(adopt(&mut world, space, REGION, &request(late)), Err(ErrorCode::BadAddress));
    }
    adopt(&mut world, space, 0, &request(AdoptStage::Finish)).unwrap();
    adopt(&mut world, space, 0, &request(AdoptStage::Abandon)).unwrap();
    assert_eq!(begin(&mut world, space, &[allocation(100, 1)], &[]), Err(ErrorCode::TooOld));
    assert_eq!(begin_later(&mut world, space, 1), Err(ErrorCode::BadAddress), "it is served");
    assert_eq!(world.read(space, REGION + PAGE, 1), Ok(vec![3]));
    world.free(space, REGION).unwrap();
}

#[test]
fn copies_of_a_stage_are_executed_once() {
    let (mut world, space) = node();
    begin(&mut world, space, &[allocation(FIRST_PAGE, 1)], &[64]).unwrap();
    let payload = request(AdoptStage::Fill(&[1])).to_bytes();
    let first = world.request(Kind::Adopt, space, REGION, payload.len());
    assert_eq!(world.send(&first, &payload).0.code, ErrorCode::None);
    adopt(&mut world, space, 0, &request(AdoptStage::Prepare)).unwrap();
    let end = request(AdoptStage::Finish).to_bytes();
    let finish = world.request(Kind::Adopt, space, 0, end.len());
    assert_eq!(world.send(&finish, &end).0.code, ErrorCode::None);
    world.write(space, REGION, &[2]).unwrap();
    for (header, payload) in [(first, &payload), (finish, &end)] {
        let again = world.retry(&header);
        assert_eq!(world.send(&again, payload).0.code, ErrorCode::None, "it is answered as at first");
    }
    assert_eq!(world.read(space, REGION, 1), Ok(vec![2]));
}

#[test]
fn an_abandoned_range_leaves_nothing() {
    let (mut world, space) = node();
    begin(&mut world, space, &[allocation(FIRST_PAGE, 3)], &[64, 65]).unwrap();
    fill(&mut world, space, REGION, &[1; 100]).unwrap();
    adopt(&mut world, space, 0, &request(AdoptStage::Abandon)).unwrap();
    assert_eq!((world.board.free_pages(), world.slow.status().allocated_bytes), (32, 0));
    assert_eq!(world.read(space, REGION, 1), Err(ErrorCode::BadAddress));
    assert_eq!(fill(&mut world, space, REGION, &[1]), Err(ErrorCode::BadAddress));
    assert_eq!(begin(&mut world, space, &[allocation(FIRST_PAGE, 1)], &[64]), Err(ErrorCode::TooOld));
    begin_later(&mut world, space, 1).unwrap();
    finish(&mut world, space, 1);
    assert_eq!(world.read(space, REGION, 100), Ok(vec![0; 100]), "bytes of before show");
}

#[test]
fn a_message_of_another_transfer_changes_nothing() {
    let (mut world, space) = node();
    begin(&mut world, space, &[allocation(FIRST_PAGE, 1)], &[64]).unwrap();
    fill(&mut world, space, REGION, &[1]).unwrap();
    let list = InventoryList::new([], []).unwrap();
    let stages = [
        (AdoptStage::Begin(list.inventory()), Err(ErrorCode::TooOld), Err(ErrorCode::TooOld)),
        (AdoptStage::Fill(&[9]), Err(ErrorCode::BadAddress), Err(ErrorCode::BadAddress)),
        (AdoptStage::Prepare, Err(ErrorCode::BadAddress), Err(ErrorCode::BadAddress)),
        (AdoptStage::Finish, Err(ErrorCode::TooOld), Err(ErrorCode::BadAddress)),
        (AdoptStage::Abandon, Ok(()), Ok(())),
    ];
    for (stage, expected, of_another_range) in stages {
        let other = AdoptRequest { transfer: TRANSFER - 1, ..request(stage) };
        assert_eq!(adopt(&mut world, space, REGION, &other), expected, "{stage:?}");
        let shorter = AdoptRequest { to: REGION + PAGE, ..request(stage) };
        assert_eq!(adopt(&mut world, space, REGION, &shorter), of_another_range, "{stage:?}");
        let abandon = later(1, AdoptStage::Abandon);
        assert_eq!(adopt(&mut world, space, REGION, &abandon), Ok(()), "one that has not begun does not end this one");
    }
    assert_eq!(begin_later(&mut world, space, 1), Err(ErrorCode::Busy));
    finish(&mut world, space, 0);
    assert_eq!(world.read(space, REGION, 1), Ok(vec![1]));
}

/// A write, a word, a discard and a free were on their way when the region went, and arrive when it is here again.
#[test]
fn what_was_sent_before_a_region_came_back_changes_nothing() {
    let (mut world, space) = node();
    let here = AllocateRequest { bytes: 2 * PAGE, from: REGION, to: 2 * REGION, ..SOMEWHERE };
    let (address, _) = world.allocate(space, &here).unwrap();
    let (elsewhere, _) = world.allocate(space, &AllocateRequest { from: 2 * REGION, ..SOMEWHERE }).unwrap();
    world.write(space, address, &[1]).unwrap();
    let mut add = [0; 24];
    AtomicOperation::FetchAdd(1).write_to(&mut add);
    let late = |world: &mut World| {
        [(Kind::Write, 1), (Kind::Atomic, 24), (Kind::Discard, PAGE as usize), (Kind::Free, 0)]
            .map(|(kind, length)| world.request(kind, space, address, length))
    };
    let (before, beside) = (late(&mut world), world.request(Kind::Write, space, elsewhere, 1));
    let Ok(Departure::Begun(moving)) = world.slow.depart(pid(), TRANSFER, (REGION, 2 * REGION), &mut world.upkeep)
    else {
        panic!("it cannot move")
    };
    world.slow.finish_move(moving);
    let list = InventoryList::new([allocation(FIRST_PAGE, 2)], [FIRST_PAGE]).unwrap();
    adopt(&mut world, space, 0, &later(1, AdoptStage::Begin(list.inventory()))).unwrap();
    let during = late(&mut world);
    adopt(&mut world, space, REGION, &later(1, AdoptStage::Fill(&[7]))).unwrap();
    finish(&mut world, space, 1);
    let payload = |header: &Header| match header.kind {
        Kind::Write => vec![2],
        Kind::Atomic => add.to_vec(),
        _ => vec![],
    };
    for header in &before {
        for header in [*header, world.retry(header)] {
            let code = world.send(&header, &payload(&header)).0.code;
            assert_eq!(code, ErrorCode::Moved, "{:?}", header.kind);
        }
    }
    assert_eq!(world.send(&beside, &[2]).0.code, ErrorCode::None, "it did not move");
    assert_eq!(world.read(space, address, 1), Ok(vec![7]));
    for header in &during {
        assert_eq!(world.send(header, &payload(header)).0.code, ErrorCode::None, "{:?}", header.kind);
    }
}

/// Whoever may ask for a transfer could else have others' requests refused, for nothing.
#[test]
fn a_transfer_that_is_not_taken_refuses_nothing() {
    let (mut world, space) = node();
    begin(&mut world, space, &[allocation(FIRST_PAGE, 1)], &[64]).unwrap();
    finish(&mut world, space, 0);
    let write = world.request(Kind::Write, space, REGION, 1);
    let same = InventoryList::new([allocation(FIRST_PAGE, 1)], [FIRST_PAGE]).unwrap();
    let refused = adopt(&mut world, space, 0, &later(1, AdoptStage::Begin(same.inventory())));
    assert_eq!(refused, Err(ErrorCode::BadAddress), "it is here");
    assert_eq!(world.send(&write, &[2]).0.code, ErrorCode::None);
    assert_eq!(world.read(space, REGION, 1), Ok(vec![2]));
    // Nor one that is taken, of a range that was here before, and given up: some share a place with the region.
    let write = world.request(Kind::Write, space, REGION, 1);
    let nothing = InventoryList::new([], []).unwrap();
    for (number, transfer) in (2..4000).flat_map(|number| [(number, 1), (number, 2)]) {
        let of_range = |stage| AdoptRequest { transfer, from: number * REGION, to: (number + 1) * REGION, stage };
        adopt(&mut world, space, 0, &of_range(AdoptStage::Begin(nothing.inventory()))).unwrap();
        adopt(&mut world, space, 0, &of_range(AdoptStage::Abandon)).unwrap();
    }
    assert_eq!(world.send(&write, &[3]).0.code, ErrorCode::None);
}

#[test]
fn a_transfer_that_stays_silent_is_undone() {
    let (mut world, space) = node();
    begin(&mut world, space, &[allocation(FIRST_PAGE, 3)], &[64, 65]).unwrap();
    let end = world.slow.next_expiry().unwrap();
    world.now += 1_000_000;
    fill(&mut world, space, REGION, &[1]).unwrap();
    world.slow.expire(end);
    assert_eq!(world.board.free_pages(), 30, "it was heard of since");
    let end = world.slow.next_expiry().unwrap();
    world.slow.expire(end);
    assert_eq!((world.board.free_pages(), world.slow.next_expiry()), (32, None));
    assert_eq!(adopt(&mut world, space, 0, &request(AdoptStage::Finish)), Err(ErrorCode::BadAddress));
    world.destroy(space).unwrap();
}

#[test]
fn a_space_that_ends_gives_up_what_comes() {
    let (mut world, space) = node();
    begin(&mut world, space, &[allocation(FIRST_PAGE, 3)], &[64]).unwrap();
    world.destroy(space).unwrap();
    assert_eq!((world.board.free_pages(), world.slow.take_ended()), (32, Some(pid())));
}

#[test]
fn only_the_owner_of_a_space_of_a_controller_may_send() {
    let (mut world, space) = node();
    let user = world.grant(space, Rights::ReadWrite);
    assert_eq!(begin(&mut world, user, &[], &[]), Err(ErrorCode::NotAllowed));
    let own = world.create();
    assert_eq!(begin(&mut world, own, &[], &[]), Err(ErrorCode::NotAllowed));
    let stranger = Space { capability: space.capability ^ 1, ..space };
    assert_eq!(begin(&mut world, stranger, &[], &[]), Err(ErrorCode::BadCapability));
    let payload = [9; 40];
    assert_eq!(world.ask(Kind::Adopt, space, 0, 40, &payload).err(), Some(ErrorCode::BadLength));
    let list = InventoryList::new([], []).unwrap();
    let stage = AdoptStage::Begin(list.inventory());
    let long = AdoptRequest { to: REGION + 2049 * PAGE, ..request(stage) };
    assert_eq!(adopt(&mut world, space, 0, &long), Err(ErrorCode::BadLength));
}

#[test]
fn what_a_failed_move_left_is_dropped_and_does_not_begin_again() {
    let (mut world, space) = node();
    begin(&mut world, space, &[allocation(FIRST_PAGE, 1)], &[64]).unwrap();
    adopt(&mut world, space, 0, &request(AdoptStage::Prepare)).unwrap();
    let there = AllocateRequest { from: 2 * REGION, to: 3 * REGION, ..SOMEWHERE };
    let (elsewhere, _) = world.allocate(space, &there).unwrap();
    world.write(space, elsewhere, &[1]).unwrap();
    for _ in 0..2 {
        world.slow.drop_range(pid(), TRANSFER + 2, REGION, 2 * REGION).unwrap();
        assert_eq!((world.board.free_pages(), world.slow.status().allocated_bytes), (31, PAGE));
        assert_eq!(world.read(space, REGION, 1), Err(ErrorCode::Moved));
    }
    assert_eq!(world.read(space, elsewhere, 1), Ok(vec![1]));
    for by in [0, 1] {
        assert_eq!(begin_later(&mut world, space, by), Err(ErrorCode::TooOld), "a late copy");
    }
    assert_eq!(adopt(&mut world, space, 0, &request(AdoptStage::Finish)), Err(ErrorCode::TooOld));
    begin_later(&mut world, space, 2).unwrap();
    finish(&mut world, space, 2);
    assert_eq!(world.slow.drop_range(pid(), TRANSFER + 9, REGION, 2 * REGION), Err(ErrorCode::NotAllowed));
    assert_eq!(world.read(space, REGION, 1), Ok(vec![0]), "what is served is not the rest of a move");
    assert_eq!(world.slow.drop_range(Pid::new(9).unwrap(), 1, REGION, 2 * REGION), Ok(()), "there is no such space");
}

#[test]
fn what_its_owner_gave_up_is_freed_however_it_came_here() {
    let (mut world, space) = node();
    let elsewhere = AllocateRequest { from: 2 * REGION, to: 3 * REGION, ..SOMEWHERE };
    let (kept, _) = world.allocate(space, &elsewhere).unwrap();
    world.write(space, kept, &[7]).unwrap();
    let give_up = |world: &mut World, by| {
        for _ in 0..2 {
            world.slow.give_up_range(pid(), TRANSFER + by, REGION, 2 * REGION).unwrap();
            assert_eq!(world.slow.status().allocated_bytes, PAGE);
            assert_eq!(world.read(space, REGION, 1), Err(ErrorCode::BadAddress), "no other node has it");
        }
    };
    let here = AllocateRequest { from: REGION, to: 2 * REGION, ..SOMEWHERE };
    let (allocated, _) = world.allocate(space, &here).unwrap();
    world.write(space, allocated, &[1]).unwrap();
    give_up(&mut world, 0);
    begin_later(&mut world, space, 0).unwrap();
    adopt(&mut world, space, 0, &request(AdoptStage::Prepare)).unwrap();
    give_up(&mut world, 1);
    assert_eq!(adopt(&mut world, space, 0, &request(AdoptStage::Finish)), Err(ErrorCode::BadAddress));
    assert_eq!(begin_later(&mut world, space, 0), Err(ErrorCode::TooOld), "a late copy");
    begin_later(&mut world, space, 1).unwrap();
    finish(&mut world, space, 1);
    give_up(&mut world, 2);
    assert_eq!(world.slow.arrivals(pid()), []);
    assert_eq!(world.read(space, kept, 1), Ok(vec![7]));
    assert_eq!(world.slow.give_up_range(Pid::new(9).unwrap(), 1, REGION, 2 * REGION), Ok(()), "there is no such space");
}

#[test]
fn a_transfer_that_is_abandoned_before_it_was_heard_of_does_not_begin() {
    let (mut world, space) = node();
    adopt(&mut world, space, 0, &request(AdoptStage::Abandon)).unwrap();
    assert_eq!(begin_later(&mut world, space, 0), Err(ErrorCode::TooOld));
    begin_later(&mut world, space, 1).unwrap();
}

#[test]
fn a_prepared_range_waits_for_the_word_of_its_source_or_of_the_controller() {
    for is_told_by_the_source in [true, false] {
        let (mut world, space) = node();
        begin(&mut world, space, &[allocation(FIRST_PAGE, 1)], &[64]).unwrap();
        fill(&mut world, space, REGION, &[5]).unwrap();
        let open = |world: &mut World, by| world.slow.open_range(pid(), TRANSFER + by, REGION, 2 * REGION);
        assert_eq!(open(&mut world, 0), Err(ErrorCode::NotAllowed), "it is not whole");
        adopt(&mut world, space, 0, &request(AdoptStage::Prepare)).unwrap();
        assert_eq!(world.slow.next_expiry(), None, "it may be all that there is of the range");
        world.slow.expire(u64::MAX);
        assert_eq!(world.read(space, REGION, 1), Err(ErrorCode::Busy));
        assert_eq!(open(&mut world, 1), Err(ErrorCode::BadAddress), "that is another transfer");
        if is_told_by_the_source {
            adopt(&mut world, space, 0, &request(AdoptStage::Finish)).unwrap();
            assert_eq!(world.slow.arrivals(pid()), [(REGION, TRANSFER)]);
            world.write(space, REGION, &[6]).unwrap();
        }
        for _ in 0..2 {
            open(&mut world, 0).unwrap();
            adopt(&mut world, space, 0, &request(AdoptStage::Finish)).unwrap();
            assert_eq!(world.slow.arrivals(pid()), [], "the controller knows it");
            assert_eq!(world.read(space, REGION, 1), Ok(vec![5 + u8::from(is_told_by_the_source)]));
        }
    }
}

#[test]
fn a_range_leaves_once_for_each_number() {
    let (mut world, space) = node();
    let there = AllocateRequest { from: REGION, to: 2 * REGION, ..SOMEWHERE };
    world.allocate(space, &there).unwrap();
    let depart =
        |world: &mut World, transfer| world.slow.depart(pid(), transfer, (REGION, 2 * REGION), &mut world.upkeep);
    let Ok(Departure::Begun(moving)) = depart(&mut world, 3) else { panic!("it moves") };
    assert_eq!(depart(&mut world, 4).err(), Some(ErrorCode::Busy));
    adopt(&mut world, space, 0, &later(9, AdoptStage::Abandon)).unwrap();
    world.slow.abandon_move(moving);
    assert_eq!(world.read(space, REGION, 1), Ok(vec![0]));
    for late in [2, 3] {
        assert_eq!(depart(&mut world, late).err(), Some(ErrorCode::TooOld), "it was given up");
    }
    let Ok(Departure::Begun(moving)) = depart(&mut world, 4) else { panic!("it moves") };
    world.slow.finish_move(moving);
    assert!(matches!(depart(&mut world, 4), Ok(Departure::Left)));
    assert_eq!(depart(&mut world, 5).err(), Some(ErrorCode::Moved));
    assert_eq!(world.read(space, REGION, 1), Err(ErrorCode::Moved));
}

#[test]
fn a_node_says_how_much_of_each_region_is_used() {
    let mut world = World::with_regions(&config(32), REGION);
    world.refill(8);
    let space = world.create_named(pid(), 0);
    let long = AllocateRequest { bytes: 4 * PAGE, from: 126 * PAGE, to: 130 * PAGE, ..SOMEWHERE };
    let (address, _) = world.allocate(space, &long).unwrap();
    world.write(space, address, &[1]).unwrap();
    world.allocate(space, &AllocateRequest { from: 4 * REGION, ..SOMEWHERE }).unwrap();
    let regions: Vec<_> =
        world.slow.regions(pid()).iter().map(|used| (used.region, used.allocated_bytes / PAGE)).collect();
    assert_eq!(regions, [(1, 2), (2, 2), (4, 1)]);
    let resident: Vec<u64> = (0..5).map(|region| world.slow.resident_bytes(pid(), region) / PAGE).collect();
    assert_eq!(resident, [0, 1, 0, 0, 0]);
    assert_eq!(world.slow.spaces(), [pid()]);
    for _ in 0..160 {
        world.read(space, address, 1).unwrap();
        world.write(space, address, &[2]).unwrap();
    }
    let heat = [1, 2].map(|region| world.board.heat(pid(), region));
    assert!((280..370).contains(&heat[0]) && heat[1] == 0, "{heat:?}");
}

/// What a stage is, its transfer, its range, its address, its allocations as (first page, pages, whether their memory
/// is needed at once), and its pages with memory.
type Forged = (u8, u64, u64, u64, u64, Vec<(u32, u32, bool)>, Vec<u32>);

/// A stage as an attacker would send it.
fn stage() -> impl Strategy<Value = Forged> {
    let page = || prop_oneof![3 => 60u32..135, 1 => any::<u32>()];
    let address = || prop_oneof![2 => Just(REGION), 1 => Just(2 * REGION), 2 => page().prop_map(|page| u64::from(page) * PAGE), 1 => any::<u64>()];
    let pages = || prop_oneof![3 => 0u32..40, 1 => any::<u32>()];
    let allocations = prop::collection::vec((page(), pages(), any::<bool>()), 0..4);
    (0u8..5, 1u64..5, address(), address(), address(), allocations, prop::collection::vec(page(), 0..6))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 256 }))]
    /// Whatever stages an owner sends in whatever order: other spaces keep what they have, and memory is all there
    /// again when the space has ended.
    #[test]
    fn forged_stages_harm_nobody_else(stages in prop::collection::vec(stage(), 1..40)) {
        let (mut world, space) = node();
        let victim = world.create();
        let (address, _) = world.allocate(victim, &SOMEWHERE).unwrap();
        world.write(victim, address, &[0xa5; 64]).unwrap();
        for (what, transfer, from, to, address, allocations, pages) in &stages {
            let allocations = allocations.iter().map(|(first, pages, at_once)| MovedAllocation {
                first: yonder_board::VirtualPage(*first),
                pages: *pages,
                permission: Permission::ReadWrite,
                backing: if *at_once { Backing::Now } else { Backing::OnDemand },
            });
            let list = InventoryList::new(allocations.map(AdoptedAllocation::from), pages.iter().copied()).unwrap();
            let stages = [
                AdoptStage::Begin(list.inventory()), AdoptStage::Fill(&[9; 5000]), AdoptStage::Prepare,
                AdoptStage::Finish, AdoptStage::Abandon,
            ];
            let stage = stages[usize::from(*what)];
            let request = AdoptRequest { transfer: *transfer, from: *from, to: *to, stage };
            // How it is answered is the forger's business.
            let _ = adopt(&mut world, space, *address, &request);
        }
        prop_assert_eq!(world.read(victim, address, 64), Ok(vec![0xa5; 64]));
        world.destroy(space).unwrap();
        prop_assert_eq!((world.board.free_pages(), world.slow.status().allocated_bytes), (31, PAGE));
    }
}
