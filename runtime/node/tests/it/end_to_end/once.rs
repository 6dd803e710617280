//! Requests that arrive twice, late, or after they were given up: writes, atomics and allocations are executed once.

use yonder_node::Node;
use yonder_wire::{AllocateRequest, AtomicOperation, Backing, ErrorCode, Kind, Permission};

use crate::end_to_end::messages::sealed;
use crate::end_to_end::raw::{Grant, Raw, allocation, allocation_of, fresh, page_of, retry};
use crate::end_to_end::testbed::{NETWORKS, Network, PAGE, node, tcp_node};

/// A client, the thread of the node that serves it, and memory.
fn scene(pages: u64) -> (Node, Raw, u32, Grant, u64) {
    let node = tcp_node(pages);
    let mut raw = Raw::connect(&node);
    let home = raw.greet(None).home;
    let (space, start) = raw.create_memory(pages);
    (node, raw, home, space, start)
}

/// A connection that is served by the thread that served the one before.
fn again(node: &Node, home: u32) -> Raw {
    let mut raw = Raw::connect(node);
    assert_eq!(raw.greet(Some(home)).home, home, "the thread that remembers was asked for");
    raw
}

#[test]
fn a_write_that_is_sent_again_on_another_connection_never_undoes_a_later_one() {
    let (node, mut older, home, space, start) = scene(4);
    for turn in 0..20 {
        let first = space.write(start);
        older.ask(&first, &page_of(1)).unwrap();
        // Others come between, so that the threads would be dealt out otherwise.
        let _others: Vec<Raw> = (0..turn % 3).map(|_| Raw::open(&node)).collect();
        let mut newer = again(&node, home);
        newer.write(space, start, 2).unwrap();
        // The client did not see the answer to the first write, and asks again: with other bytes, to see whether they
        // count.
        newer.ask(&retry(&first), &page_of(3)).unwrap();
        assert_eq!(newer.read(space, start), Ok(2));
        older = newer;
    }
}

#[test]
fn a_first_copy_that_comes_late_on_the_old_connection_is_not_executed() {
    let (node, mut older, home, space, start) = scene(4);
    let first = space.write(start);
    let bytes = sealed(&first, &page_of(1));
    older.send(&bytes[..2000]);
    let mut newer = again(&node, home);
    newer.ask(&retry(&first), &page_of(1)).unwrap();
    newer.write(space, start, 2).unwrap();
    older.send(&bytes[2000..]);
    older.answer(&first).unwrap();
    assert_eq!(newer.read(space, start), Ok(2));
}

#[test]
fn a_first_copy_that_comes_after_it_was_given_up_is_refused() {
    let (node, mut older, home, space, start) = scene(4);
    let first = space.write(start);
    let bytes = sealed(&first, &page_of(1));
    older.send(&bytes[..2000]);
    let mut newer = again(&node, home);
    assert_eq!(newer.abort(&first), Ok(false));
    older.send(&bytes[2000..]);
    assert_eq!(older.answer(&first), Err(ErrorCode::Aborted));
    assert_eq!(newer.read(space, start), Ok(0));
    assert_eq!(newer.abort(&first), Ok(false), "a second request to give it up is answered alike");
}

#[test]
fn copies_are_answered_as_the_first_was() {
    for network in NETWORKS {
        let node = node(network, 8);
        let mut raw = Raw::open(&node);
        let (space, start) = raw.create_memory(4);
        let (add, body) = space.atomic(start + 8, AtomicOperation::FetchAdd(5));
        for turn in 0..5u64 {
            let (next, next_body) = space.atomic(start + 8, AtomicOperation::FetchAdd(100));
            let old = |answer: crate::end_to_end::raw::Answered| answer.unwrap().0.address;
            assert_eq!(old(raw.ask(&add, &body)), 0);
            assert_eq!(old(raw.ask(&retry(&add), &body)), 0);
            assert_eq!(old(raw.ask(&next, &next_body)), 5 + 100 * turn);
        }
        assert_eq!(raw.ask(&add, &body).unwrap().0.address, 0);
        assert_eq!(raw.atomic(space, start + 8, AtomicOperation::TestAndSet), Ok(505));
        let swap = AtomicOperation::CompareAndSwap { expected: 1, new: 7 };
        assert_eq!(raw.atomic(space, start + 8, swap), Ok(1));
        assert_eq!(raw.atomic(space, start + 8, AtomicOperation::Store(9)), Ok(7));
        assert_eq!(raw.atomic(space, start + 8, swap), Ok(9));
        assert_eq!(raw.atomic(space, start + 4, swap), Err(ErrorCode::BadLength));
        assert_eq!(raw.abort(&add), Ok(true), "it was executed");
    }
}

/// Whoever is told that a request was refused may rely on it, also when a copy comes after the reason has gone.
#[test]
fn a_request_that_was_refused_stays_refused() {
    for network in NETWORKS {
        let node = node(network, 8);
        let mut raw = Raw::open(&node);
        let space = raw.create_space(0);
        let place = 64 * PAGE;
        let write = space.write(place);
        assert_eq!(raw.ask(&write, &page_of(1)), Err(ErrorCode::BadAddress));
        let there = AllocateRequest {
            bytes: PAGE,
            permission: Permission::ReadWrite,
            backing: Backing::OnDemand,
            from: place,
            to: place + PAGE,
        };
        let (allocate, body) = allocation_of(space, &there);
        assert_eq!(raw.ask(&allocate, &body).unwrap().0.address, place);
        assert_eq!(raw.ask(&retry(&write), &page_of(1)), Err(ErrorCode::BadAddress));
        assert_eq!(raw.read(space, place), Ok(0));
        assert_eq!(raw.write(space, place, 2), Ok(()));
    }
}

#[test]
fn slow_requests_are_executed_once_wherever_the_copies_come_in() {
    for network in NETWORKS {
        let node = node(network, 8);
        // Two clients, so that two data threads may forward the copies.
        let (mut raw, mut other) = (Raw::open(&node), Raw::open(&node));
        let create = fresh(Kind::CreateSpace, 0);
        let made = raw.ask(&create, &[]).unwrap().0;
        let again = other.ask(&retry(&create), &[]).unwrap().0;
        assert_eq!((made.pid, made.capability), (again.pid, again.capability));
        let space = Grant { pid: made.pid, capability: made.capability };
        let (allocate, body) = allocation(space, 2, Permission::ReadWrite);
        let before = node.stats().allocated_bytes;
        let start = raw.ask(&allocate, &body).unwrap().0.address;
        for _ in 0..3 {
            assert_eq!(raw.ask(&retry(&allocate), &body).unwrap().0.address, start);
            assert_eq!(other.ask(&allocate, &body).unwrap().0.address, start);
        }
        assert_eq!(node.stats().allocated_bytes, before + 2 * PAGE);
        raw.write(space, start, 7).unwrap();
        let free = space.request(Kind::Free, start, 0);
        raw.ask(&free, &[]).unwrap();
        assert_eq!(node.stats().allocated_bytes, before);
        other.ask(&retry(&free), &[]).unwrap();
        assert_eq!(raw.ask(&space.request(Kind::Free, start, 0), &[]), Err(ErrorCode::BadAddress));
        let (given_up, body) = allocation(space, 2, Permission::ReadWrite);
        assert_eq!(other.abort(&given_up), Ok(false));
        assert_eq!(raw.ask(&given_up, &body), Err(ErrorCode::Aborted));
        assert_eq!(node.stats().allocated_bytes, before);
    }
}

/// A retry by datagram meets the thread that executed the first attempt, whichever of the threads that is.
#[test]
fn every_datagram_client_is_remembered_by_its_thread() {
    let node = node(Network::Udp, 64);
    let mut homes = [0; 2];
    for _ in 0..32 {
        let mut raw = Raw::connect(&node);
        homes[raw.greet(None).home as usize] += 1;
        let (space, start) = raw.create_memory(1);
        let first = space.write(start);
        raw.ask(&first, &page_of(1)).unwrap();
        raw.write(space, start, 2).unwrap();
        raw.ask(&retry(&first), &page_of(3)).unwrap();
        assert_eq!(raw.read(space, start), Ok(2));
    }
    assert!(homes.iter().all(|clients| *clients > 0), "one thread serves all: {homes:?}");
}
