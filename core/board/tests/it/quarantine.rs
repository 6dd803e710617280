//! Memory that a client has mapped is given to nobody else while it may be, also when the address space has ended.

use std::collections::BTreeSet;

use yonder_board::{PhysicalPage, Pid};
use yonder_wire::{AllocateRequest, Backing, Body, ErrorCode, Kind, Translation};

use crate::world::{PAGE, SOMEWHERE, Space, World, config};

const PAGES: u32 = 16;

/// An address space with `pages` pages that a client maps, and where they lie.
fn mapped_space(world: &mut World, pages: u64) -> (Space, u64, BTreeSet<u64>) {
    let space = world.create();
    let request = AllocateRequest { bytes: pages * PAGE, backing: Backing::Now, ..SOMEWHERE };
    let (address, _) = world.allocate(space, &request).unwrap();
    let places = (0..pages).map(|page| {
        let (_, answer) = world.ask(Kind::Translate, space, address + page * PAGE, 1, &[]).unwrap();
        Translation::from_bytes(&answer).unwrap().offset
    });
    let places = places.collect();
    (space, address, places)
}

fn pid(space: Space) -> Pid {
    Pid::new(space.pid).unwrap()
}

#[test]
fn what_a_client_has_mapped_is_nobodys_until_it_has_gone() {
    let mut world = World::new(&config(PAGES));
    let (space, address, places) = mapped_space(&mut world, 10);
    world.slow.hold(pid(space));
    world.write(space, address, &[7; 100]).unwrap();
    world.destroy(space).unwrap();
    // All memory of the node, for others, twice over.
    for _ in 0..2 {
        let (next, at, others) = mapped_space(&mut world, u64::from(PAGES));
        assert!(others.is_disjoint(&places), "{others:?} and {places:?}");
        assert_eq!(world.read(next, at, PAGE as usize), Ok(vec![0; PAGE as usize]));
        // The client that stood still writes late.
        for place in &places {
            world.memory.page(PhysicalPage((place / PAGE) as u32)).fill(0xee);
        }
        for page in 0..u64::from(PAGES) {
            assert_eq!(world.read(next, at + page * PAGE, PAGE as usize), Ok(vec![0; PAGE as usize]), "page {page}");
        }
        world.destroy(next).unwrap();
    }
    world.slow.let_go(pid(space));
    while world.slow.clean(&mut world.upkeep) {}
    // Now they may be used again, and read as zeros.
    for _ in 0..3 {
        let (next, at, _) = mapped_space(&mut world, u64::from(PAGES));
        let read = |world: &mut World, page: u64| world.read(next, at + page * PAGE, PAGE as usize);
        assert!((0..u64::from(PAGES)).all(|page| read(&mut world, page) == Ok(vec![0; PAGE as usize])));
        world.slow.hold(pid(next));
        world.destroy(next).unwrap();
        world.slow.let_go(pid(next));
        while world.slow.clean(&mut world.upkeep) {}
    }
}

#[test]
fn memory_returns_to_the_machine_at_once_and_lacks_when_all_numbers_are_held() {
    let mut world = World::new(&config(PAGES));
    let mut held = Vec::new();
    for _ in 0..2 {
        let (space, ..) = mapped_space(&mut world, u64::from(PAGES));
        world.slow.hold(pid(space));
        world.destroy(space).unwrap();
        while world.slow.clean(&mut world.upkeep) {}
        held.push(pid(space));
    }
    let space = world.create();
    let request = AllocateRequest { bytes: PAGE, backing: Backing::Now, ..SOMEWHERE };
    assert_eq!(world.allocate(space, &request), Err(ErrorCode::OutOfMemory), "a number that is held was given out");
    world.slow.let_go(held[0]);
    while world.slow.clean(&mut world.upkeep) {}
    world.destroy(space).unwrap();
    let (space, ..) = mapped_space(&mut world, u64::from(PAGES));
    world.destroy(space).unwrap();
    held[1..].iter().for_each(|pid| world.slow.let_go(*pid));
    while world.slow.clean(&mut world.upkeep) {}
    assert_eq!(world.board.free_pages(), PAGES);
    mapped_space(&mut world, u64::from(PAGES));
}

#[test]
fn memory_that_no_client_maps_is_used_again() {
    let mut world = World::new(&config(PAGES));
    let (space, _, places) = mapped_space(&mut world, u64::from(PAGES));
    world.destroy(space).unwrap();
    let (_, _, others) = mapped_space(&mut world, u64::from(PAGES));
    assert_eq!(others, places);
}
