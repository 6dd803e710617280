//! Nodes that are drained while clients write: nothing is lost, and only what moves waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use yonder_wire::ErrorCode;

use crate::cluster::router::Router;
use crate::cluster::scene::{PAGE, REGION, Scene, TIMEOUT, id_of, until, url_of};
use crate::cluster::target::{Stage, Target};

const BLOCK: u64 = 4096;
/// Blocks of an allocation.
const BLOCKS: u64 = (REGION - PAGE) / BLOCK;

/// A block as its writer fills it the `version`th time.
fn block(address: u64, version: u64) -> Vec<u8> {
    let words = (0..BLOCK / 8).map(|word| (address ^ (version << 40)).wrapping_add(word).wrapping_mul(0x9e37_79b9));
    words.flat_map(u64::to_le_bytes).collect()
}

/// Writes and checks the blocks of an allocation in turn until it is told to stop; returns the version of each block.
fn keep_writing(router: &mut Router, address: u64, stop: &AtomicBool) -> Vec<u64> {
    let mut versions = vec![0; BLOCKS as usize];
    let mut turn = 0u64;
    while !stop.load(Ordering::Acquire) {
        let index = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) % BLOCKS;
        let at = address + index * BLOCK;
        let version = &mut versions[index as usize];
        if *version > 0 {
            assert!(router.read(at, BLOCK as usize) == block(at, *version), "block {index} of {address:#x}");
        }
        *version += 1;
        router.write(at, &block(at, *version));
        turn += 1;
    }
    versions
}

#[test]
fn regions_that_move_there_and_back_under_load_lose_nothing() {
    let scene = Scene::new(2);
    let first = scene.node(128);
    let mut owner = Router::create(&scene);
    let space = owner.space;
    let allocations: Vec<u64> = (0..3).map(|_| owner.allocate_region()).collect();
    let second = scene.node(128);
    let mut client = scene.client();
    let stop = AtomicBool::new(false);
    let written: Vec<(Vec<u64>, usize)> = thread::scope(|scope| {
        let (scene, stop) = (&scene, &stop);
        let writers: Vec<_> = allocations
            .iter()
            .map(|address| {
                scope.spawn(move || {
                    let mut router = Router::open(scene, space);
                    let versions = keep_writing(&mut router, *address, stop);
                    (versions, router.moved)
                })
            })
            .collect();
        for node in [&first, &second, &first] {
            client.drain(&url_of(node), TIMEOUT).unwrap();
            client.undrain(&url_of(node)).unwrap();
        }
        stop.store(true, Ordering::Release);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    owner.look_again();
    for (address, (versions, moved)) in allocations.iter().zip(written) {
        assert_eq!(owner.place(*address).node, id_of(&second, &mut client));
        assert!(versions.iter().sum::<u64>() > 10 && moved >= 1, "{moved} moves seen by a writer");
        for (index, version) in (0..).zip(versions) {
            let at = address + index * BLOCK;
            let expected = if version == 0 { vec![0; BLOCK as usize] } else { block(at, version) };
            assert!(owner.read(at, BLOCK as usize) == expected, "block {index} of {address:#x}, version {version}");
        }
    }
    let (gone, back) = (first.stats(), second.stats());
    assert_eq!((gone.moves, back.moves, gone.failed_moves + back.failed_moves), (6, 3, 0));
    assert!(gone.moved_bytes > 0 && gone.longest_move_pause_ns > 0);
    assert_eq!(gone.allocated_bytes, 0, "what has moved away is free");
}

#[test]
fn only_the_region_that_moves_waits_and_a_move_that_fails_ends_the_wait() {
    let scene = Scene::new(1);
    let node = scene.node(128);
    let mut router = Router::create(&scene);
    let space = router.space;
    let allocations = [router.allocate_region(), router.allocate_region()];
    allocations.iter().for_each(|address| router.write(*address, &block(*address, 1)));
    let target = Target::new(&scene);
    let mut client = scene.client();
    client.start_drain(&url_of(&node)).unwrap();
    let begin = target.next();
    assert_eq!(begin.stage, Stage::Begin);
    let moving = *allocations.iter().find(|address| *address / REGION == begin.from / REGION).unwrap();
    let staying = *allocations.iter().find(|address| **address != moving).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (scene, done) = (&scene, &done);
        let waiting = scope.spawn(move || {
            let mut router = Router::open(scene, space);
            router.write(moving + BLOCK, &block(moving, 2));
            done.store(true, Ordering::Release);
        });
        until("the region is held up", || router.is_held_up(moving).then_some(()));
        for turn in 0..200 {
            router.write(staying + BLOCK, &block(staying, turn));
            assert!(router.read(staying + BLOCK, BLOCK as usize) == block(staying, turn));
        }
        assert!(!done.load(Ordering::Acquire), "a region that moves is written");
        client.undrain(&url_of(&node)).unwrap();
        begin.answer(Ok(()));
        let mut stages = vec![];
        loop {
            let asked = target.next();
            stages.push(asked.stage);
            match asked.stage {
                Stage::Prepare => asked.answer(Err(ErrorCode::OutOfMemory)),
                Stage::Abandon => break asked.answer(Ok(())),
                _ => asked.answer(Ok(())),
            }
        }
        assert_eq!(stages, [Stage::Fill, Stage::Prepare, Stage::Abandon], "what is zero is not sent");
        waiting.join().unwrap();
    });
    assert!(router.read(moving, BLOCK as usize) == block(moving, 1));
    assert!(router.read(moving + BLOCK, BLOCK as usize) == block(moving, 2));
    let region = (moving / REGION) as u32;
    until("the target is told to drop the region", || target.dropped.lock().unwrap().contains(&region).then_some(()));
    assert_eq!((node.stats().moves, node.stats().failed_moves), (0, 1));
}
