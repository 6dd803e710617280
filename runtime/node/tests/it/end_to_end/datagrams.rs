//! The node over datagrams: hostile ones, many clients, and a network that loses requests and answers.

use std::collections::HashMap;
use std::sync::Arc;

use yonder_client::{Operation, Outcome};
use yonder_fabric::Status;
use yonder_fabric::lane::{Data, Lane, NodeAddress, NodeSession, call};
use yonder_wire::{AtomicOperation, Body, ErrorCode, HEADER_BYTES, Header, Kind};

use crate::end_to_end::lossy::{Faults, LossyProxy};
use crate::end_to_end::messages::sealed;
use crate::end_to_end::raw::{Grant, Raw, fresh, page_of, retry};
use crate::end_to_end::testbed::{Client, Dice, Network, PAGE, address, node, page, wait_for};

/// Clients at the same time.
const CLIENTS: usize = 200;
/// Threads that drive them.
const DRIVERS: usize = 8;

#[test]
fn hostile_datagrams_are_counted_and_hurt_nobody() {
    let node = node(Network::Udp, 16);
    let mut good = Client::of(&node, 1);
    let start = good.allocate(4);
    assert_eq!(good.store(start, 5), Status::Done);
    let mut raw = Raw::open(&node);
    let (space, victim) = raw.create_memory(1);
    raw.write(space, victim, 7).unwrap();
    let errors = node.stats().errors;
    let mut dice = Dice(4711);
    let mut bad = 0;
    for round in 0..20 {
        for bytes in hostile(space, victim, &mut dice) {
            raw.send(&bytes);
            bad += 1;
        }
        // Waiting for the count keeps the node's buffer from overflowing.
        wait_for(|| (node.stats().bad_datagrams == bad).then_some(()));
        assert_eq!(good.load(start), (Status::Done, 5), "round {round}");
    }
    assert_eq!(raw.read(space, victim), Ok(7), "no answer came to any of them");
    assert_eq!((node.stats().bad_datagrams, node.stats().errors), (bad, errors));
}

/// Datagrams that are no requests.
fn hostile(space: Grant, victim: u64, dice: &mut Dice) -> Vec<Vec<u8>> {
    let write = sealed(&space.write(victim), &page_of(9));
    let read = sealed(&space.request(Kind::Read, victim, PAGE as u32), &[]);
    let noise = |dice: &mut Dice, bytes: u64| -> Vec<u8> { (0..bytes).map(|_| dice.below(256) as u8).collect() };
    let patched = |at: usize, bytes: &[u8]| {
        let mut patched = write.clone();
        patched[at..at + bytes.len()].copy_from_slice(bytes);
        patched
    };
    let answer = sealed(&space.write(victim).answer(1, PAGE as u32), &[]);
    let welcome = sealed(&fresh(Kind::Hello, 0).refusal(1, ErrorCode::Busy), &[]);
    let length = 1 + dice.below(HEADER_BYTES as u64 - 1) as usize;
    vec![
        Vec::new(),
        noise(dice, 1),
        noise(dice, HEADER_BYTES as u64),
        noise(dice, 5000),
        noise(dice, 60_000),
        read[..length].to_vec(),
        write[..HEADER_BYTES + 1].to_vec(),
        write[..write.len() - 1].to_vec(),
        [write.clone(), vec![0]].concat(),
        [read.clone(), read].concat(),
        patched(2, &[1]),
        patched(20, &[0]),
        patched(20, &[200]),
        patched(21, &[0xfe]),
        patched(22, &[1, 0]),
        patched(28, &u32::MAX.to_le_bytes()),
        patched(28, &(1u32 << 16).to_le_bytes()),
        {
            let mut nameless = write.clone();
            // The name of the first attempt would be that of a request before the first.
            nameless[36..40].copy_from_slice(&u32::MAX.to_le_bytes());
            nameless[40..48].copy_from_slice(&1u64.to_le_bytes());
            nameless
        },
        answer,
        welcome,
    ]
}

#[test]
fn a_damaged_request_is_told_so_and_not_executed() {
    let node = node(Network::Udp, 8);
    let mut raw = Raw::open(&node);
    let (space, start) = raw.create_memory(1);
    let kinds = [
        (space.write(start), page_of(1)),
        (space.request(Kind::Read, start, PAGE as u32), Vec::new()),
        (space.request(Kind::Free, start, 0), Vec::new()),
        (fresh(Kind::Ping, 0), Vec::new()),
    ];
    for (request, payload) in kinds {
        let bytes = sealed(&request, &payload);
        // The address, the capability, the time, the checksum, and the last byte.
        for at in [48, 56, 72, 12, bytes.len() - 1] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            raw.send(&damaged);
            let (answer, _) = raw.receive().unwrap();
            assert_eq!((answer.request_id, answer.code), (request.request_id, ErrorCode::Corrupt));
        }
    }
    assert_eq!(raw.read(space, start), Ok(0));
    let (first, body) = (space.write(start), page_of(2));
    raw.ask(&retry(&first), &body).unwrap();
    assert_eq!(raw.read(space, start), Ok(2));
    assert_eq!(node.stats().bad_datagrams, 0);
}

/// Two hundred clients with two flows each are served by two threads, and the node is no larger for it.
#[test]
fn the_node_does_not_grow_with_its_clients() {
    let node = node(Network::Udp, 4 * CLIENTS as u64);
    let before = node.stats();
    assert!(before.own_bytes > 0);
    std::thread::scope(|scope| {
        for driver in 0..DRIVERS {
            let node = &node;
            scope.spawn(move || {
                let mut clients: Vec<Client> = (0..CLIENTS / DRIVERS).map(|_| Client::of(node, 4)).collect();
                let starts: Vec<_> = clients.iter().map(|client| client.allocate(4)).collect();
                for round in 0..5u8 {
                    for (number, (client, start)) in clients.iter_mut().zip(&starts).enumerate() {
                        let byte = |frame: u32| (driver * 31 + number * 7) as u8 ^ (round * 4 + frame as u8);
                        for frame in 0..4 {
                            client.fill(frame, byte(frame));
                            client.write(page(*start, frame.into()), frame);
                        }
                        client.finish(4);
                        for frame in 0..4 {
                            client.read(page(*start, u64::from(3 - frame)), frame);
                        }
                        client.finish(4);
                        (0..4).for_each(|frame| assert_eq!(client.content(frame), byte(3 - frame)));
                    }
                }
            });
        }
    });
    let after = node.stats();
    assert_eq!((after.own_bytes, after.allocated_bytes), (before.own_bytes, before.allocated_bytes));
    assert_eq!((after.errors, after.bad_datagrams), (0, 0));
    assert!(after.writes >= 20 * CLIENTS as u64, "{after:?}");
}

/// Words are changed one after the other, so nothing of them is asked for but the old values.
struct NoBytes;

impl Data for NoBytes {
    fn copy_out(&mut self, _token: u64, _offset: u64, _into: &mut [u8]) {
        unreachable!("nothing is written");
    }

    fn copy_in(&mut self, _token: u64, _offset: u64, _bytes: &[u8]) {
        unreachable!("nothing is read");
    }

    fn answer(&mut self, _token: u64, _header: &Header, _payload: &[u8]) {
        unreachable!("only atomics are submitted");
    }
}

/// Additions over a bad network from two lanes: every one counts once, and each is told what was there before.
#[test]
fn atomics_are_executed_once_when_the_network_is_bad() {
    const EACH: u64 = 600;
    let node = node(Network::Udp, 16);
    let proxy = LossyProxy::to(&address(&node), Faults { lost: 150, repeated: 150, late: 200 }, 9);
    let at = NodeAddress::resolve(&proxy.url()).unwrap().remove(0);
    let mut raw = Raw::open(&node);
    let (space, start) = raw.create_memory(1);
    let lane = || Lane::open(&at, 64, &Arc::new(NodeSession::default())).unwrap().lane;
    let mut olds: Vec<u64> = std::thread::scope(|scope| {
        let adders: Vec<_> = (0..2).map(|_| scope.spawn(|| add_ones(&mut lane(), space, start + 16, EACH))).collect();
        adders.into_iter().flat_map(|adder| adder.join().unwrap()).collect()
    });
    olds.sort_unstable();
    assert!(olds.iter().copied().eq(0..2 * EACH), "an addition was lost or counted twice");
    assert_eq!(raw.atomic(space, start + 16, AtomicOperation::FetchAdd(0)), Ok(2 * EACH));
    assert_eq!((node.stats().bad_datagrams, node.stats().errors), (0, 0));
}

/// Adds 1 to the word at `address` so many times, and returns what it was each time.
fn add_ones(lane: &mut Lane, space: Grant, address: u64, times: u64) -> Vec<u64> {
    let mut body = [0; AtomicOperation::BYTES];
    AtomicOperation::FetchAdd(1).write_to(&mut body);
    let operation = |token| Operation {
        kind: Kind::Atomic,
        pid: space.pid,
        capability: space.capability,
        address,
        length: body.len() as u64,
        body: &body,
        deadline: u64::MAX,
        token,
    };
    let (mut submitted, mut olds) = (0, HashMap::new());
    wait_for(|| {
        let now = yonder_clock::now();
        while submitted < times && lane.submit(&operation(submitted), now).is_ok() {
            submitted += 1;
        }
        lane.poll(now, &mut NoBytes);
        while let Some(done) = lane.completion() {
            let Outcome::Old(old) = done.outcome else { panic!("{done:?}") };
            assert_eq!(olds.insert(done.token, old), None);
        }
        (olds.len() as u64 == times).then_some(())
    });
    olds.into_values().collect()
}

/// Allocations over a bad network: each asks until it is answered, and each is made once.
#[test]
fn allocations_are_made_once_when_the_network_is_bad() {
    let node = node(Network::Udp, 64);
    let proxy = LossyProxy::to(&address(&node), Faults { lost: 200, repeated: 300, late: 300 }, 5);
    let before = node.stats().allocated_bytes;
    let client = Client::new(&proxy.url(), 1);
    for turn in 1..=16 {
        client.allocate(3);
        assert_eq!(node.stats().allocated_bytes, before + turn * 3 * PAGE);
    }
    drop(client);
    assert_eq!(node.stats().allocated_bytes, before);
}

#[test]
fn a_node_says_how_full_it_is_over_a_lane() {
    let node = node(Network::Udp, 16);
    let at = NodeAddress::resolve(&node.addresses()[0].to_string()).unwrap().remove(0);
    let mut lane = Lane::open(&at, 4, &Arc::new(NodeSession::default())).unwrap().lane;
    let space = Raw::open(&node).create_space(0);
    let status = Operation {
        kind: Kind::Status,
        pid: space.pid,
        capability: space.capability,
        address: 0,
        length: 0,
        body: &[],
        deadline: u64::MAX,
        token: 1,
    };
    let answer = call(&mut lane, &status, &[]).unwrap();
    let status = yonder_wire::NodeStatus::from_bytes(&answer.payload).unwrap();
    assert_eq!((status.memory_bytes, status.free_bytes), (16 * PAGE, 16 * PAGE));
}
