//! The fabric against a node that misbehaves: the test is the node, message by message.
//!
//! A thread accepts and greets, and answers what is not about pages; the test answers reads and writes itself, so it
//! decides about order, damage and silence. Nothing sleeps: the test polls the queue pair until what it waits for has
//! happened.

#[path = "../messages/mod.rs"]
mod messages;
mod scene;
mod vectors;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use yonder_fabric::{Fabric, Module, Status, WorkId};
use yonder_units::{FrameIndex, PAGE_BYTES};
use yonder_wire::{ErrorCode, HEADER_BYTES, Header, Kind};

use messages::sealed;
use scene::{FRAMES, NODE_TIME, Scene, TIMEOUT, done, ended, refusal, reply};

#[test]
fn replies_in_any_order_and_in_single_bytes_find_their_operations() {
    let mut scene = Scene::steady();
    let requests: Vec<Header> = (0..FRAMES).map(|id| scene.asked(id)).collect();
    for (id, request) in requests.iter().enumerate().rev() {
        let bytes = reply(request, id as u8);
        for piece in bytes[..100].chunks(1).chain(bytes[100..].chunks(977)) {
            assert_eq!(scene.poll(), []);
            scene.send(piece);
        }
        assert_eq!(scene.completes(), [ended(id as u64, Status::Done)]);
        assert_eq!(scene.frame(id as u32), id as u8);
    }
}

#[test]
fn a_corrupt_page_ends_the_connection_and_does_not_reach_the_frame() {
    let mut scene = Scene::steady();
    for bit in [HEADER_BYTES * 8, HEADER_BYTES * 8 + 20_001, 60 * 8, 30 * 8] {
        let (first, second) = (scene.asked(1), scene.asked(2));
        let mut bytes = reply(&first, 7);
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes.extend(reply(&second, 9));
        scene.send(&bytes);
        let done = scene.until(|done| done.len() == 2);
        assert!(done.iter().all(|completion| completion.status == Status::Disconnected), "{done:?}");
        assert_eq!((scene.frame(1), scene.frame(2)), (0xee, 0xee));
        scene.reconnects();
    }
    assert_eq!(scene.queue_pair.outstanding(), 0);
}

#[test]
fn answers_to_another_question_count_for_nothing() {
    let mut scene = Scene::steady();
    let wrong: [fn(&Header) -> Vec<u8>; 5] = [
        |request| sealed(&request.answer(NODE_TIME, 100), &[7; 100]),
        |request| sealed(&Header { kind: Kind::Write, ..request.answer(NODE_TIME, 4096) }, &[]),
        |request| sealed(&Header { kind: Kind::Abort, ..request.refusal(NODE_TIME, ErrorCode::BadAddress) }, &[]),
        |request| sealed(request, &[]),
        |request| {
            let id = request.request_id + (1 << 40);
            reply(&Header { request_id: id, first_id: id, ..*request }, 7)
        },
    ];
    for answer in wrong {
        let request = scene.asked(1);
        scene.send(&answer(&request));
        let other = scene.asked(2);
        scene.send(&reply(&other, 8));
        assert_eq!(scene.completes(), [ended(2, Status::Done)]);
        assert_eq!((scene.frame(1), scene.queue_pair.outstanding()), (0xee, 1));
        scene.send(&refusal(&request, ErrorCode::BadAddress));
        assert_eq!(scene.completes(), [ended(1, Status::Failed)]);
        assert_eq!(scene.frame(1), 0xee);
    }
}

#[test]
fn a_late_reply_never_touches_a_frame() {
    let mut scene = Scene::steady();
    let late = scene.asked(1);
    scene.queue_pair.cancel(WorkId(1));
    assert_eq!(scene.queue_pair.outstanding(), 0);
    // The new operation takes the same slot and the same frame.
    let next = scene.asked(1 + FRAMES);
    assert_ne!(next.request_id, late.request_id);
    scene.send(&reply(&late, 7));
    let other = scene.asked(2);
    scene.send(&reply(&other, 8));
    assert_eq!(scene.completes(), [ended(2, Status::Done)]);
    assert_eq!(scene.frame(1), 0xee);
    scene.send(&[reply(&next, 9), reply(&next, 10)].concat());
    assert_eq!(scene.completes(), [ended((1 + FRAMES).into(), Status::Done)]);
    let last = scene.asked(3);
    scene.send(&reply(&last, 11));
    assert_eq!(scene.completes(), [ended(3, Status::Done)]);
    assert_eq!(scene.frame(1), 9, "the second copy of a reply must not count");
}

#[test]
fn an_operation_that_is_cancelled_before_it_was_sent_is_never_sent() {
    let mut scene = Scene::steady();
    scene.write(1, 0, 2, 0x22);
    scene.write(2, 1, 3, 0x33);
    scene.queue_pair.cancel(WorkId(1));
    scene.queue_pair.cancel(WorkId(77));
    assert_eq!(scene.queue_pair.outstanding(), 1);
    let (write, payload) = scene.request();
    assert_eq!((write.kind, write.address, payload), (Kind::Write, 4096, vec![0x33; PAGE_BYTES]));
    assert_eq!((write.pid, write.capability, write.first_id), (7, 9, write.request_id));
    scene.send(&done(&write));
    assert_eq!(scene.completes(), [ended(2, Status::Done)]);
}

#[test]
fn a_write_waits_until_the_node_has_given_up_a_cancelled_one_of_the_same_page() {
    let mut scene = Scene::steady();
    scene.write(1, 3, 0, 0x11);
    let first = scene.request().0;
    scene.queue_pair.cancel(WorkId(1));
    // Whoever cancels may use the frame for something else, and the first write must not be sent again with that.
    scene.frames.write(FrameIndex(0).offset(), &[0x55; PAGE_BYTES]);
    scene.write(2, 3, 1, 0x22);
    let abort = scene.request().0;
    assert_eq!((abort.kind, abort.first_id, abort.fragment_offset), (Kind::Abort, first.first_id, 0));
    assert!(abort.request_id > first.request_id);
    // The first write was executed late; its answer says so, and a page elsewhere was not held up.
    scene.write(3, 4, 2, 0x44);
    let (elsewhere, payload) = scene.request();
    assert_eq!((elsewhere.kind, elsewhere.address, payload[0]), (Kind::Write, 4 * 4096, 0x44));
    scene.send(&sealed(&abort.answer(NODE_TIME, 1), &[]));
    let (second, payload) = scene.request();
    assert_eq!((second.kind, second.address, payload), (Kind::Write, 3 * 4096, vec![0x22; PAGE_BYTES]));
    scene.send(&[done(&first), done(&second), done(&elsewhere)].concat());
    let mut all = scene.until(|done| done.len() == 2);
    all.sort_by_key(|completion| completion.id.0);
    assert_eq!(all, [ended(2, Status::Done), ended(3, Status::Done)]);
}

#[test]
fn a_write_that_a_lost_connection_left_open_is_given_up_on_the_next_one() {
    let mut scene = Scene::steady();
    scene.write(1, 3, 0, 0x11);
    let first = scene.request().0;
    scene.peer.messages.stream.shutdown(Shutdown::Both).unwrap();
    assert_eq!(scene.completes(), [ended(1, Status::Disconnected)]);
    scene.frames.write(FrameIndex(0).offset(), &[0x55; PAGE_BYTES]);
    scene.reconnects();
    let abort = scene.request().0;
    assert_eq!((abort.kind, abort.first_id), (Kind::Abort, first.first_id));
    scene.write(2, 3, 1, 0x22);
    scene.send(&sealed(&abort.answer(NODE_TIME, 0), &[]));
    let (second, payload) = scene.request();
    assert_eq!((second.kind, payload), (Kind::Write, vec![0x22; PAGE_BYTES]));
    scene.send(&done(&second));
    assert_eq!(scene.completes(), [ended(2, Status::Done)]);
}

#[test]
fn what_may_pass_is_asked_again_and_what_was_damaged_too() {
    let mut scene = Scene::steady();
    scene.write(1, 3, 0, 0x11);
    let first = scene.request().0;
    let mut last = first;
    for code in [ErrorCode::Busy, ErrorCode::Corrupt, ErrorCode::Busy] {
        let bytes = refusal(&last, code);
        scene.send(&bytes);
        let next = scene.request().0;
        assert_eq!((next.kind, next.first_id), (Kind::Write, first.first_id));
        assert!(next.request_id > last.request_id);
        last = next;
    }
    let bytes = done(&last);
    scene.send(&bytes);
    assert_eq!(scene.completes(), [ended(1, Status::Done)]);
}

#[test]
fn bytes_that_are_no_messages_end_the_connection_and_the_next_one_works() {
    let mut scene = Scene::steady();
    let mut huge = reply(&Header::request(Kind::Read, 1, 0, 0), 0)[..HEADER_BYTES].to_vec();
    huge[28..32].copy_from_slice(&u32::MAX.to_le_bytes());
    let cut_short = |request: &Header| reply(request, 7)[..3000].to_vec();
    for turn in 0..3 {
        scene.read(1);
        scene.request();
        let request = scene.asked(2);
        let bytes = match turn {
            0 => b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\nServer: x\r\n\r\n".to_vec(),
            1 => huge.clone(),
            _ => cut_short(&request),
        };
        scene.send(&bytes);
        if turn == 2 {
            scene.peer.messages.stream.shutdown(Shutdown::Both).unwrap();
        }
        let mut done = scene.until(|done| done.len() == 2);
        done.sort_by_key(|completion| completion.id.0);
        assert_eq!(done, [ended(1, Status::Disconnected), ended(2, Status::Disconnected)]);
        assert_eq!((scene.frame(1), scene.frame(2)), (0xee, 0xee));
        scene.reconnects();
    }
    // What the client asks before it has seen the welcome ends as disconnected; soon it has.
    let start = Instant::now();
    let answered = loop {
        assert!(start.elapsed() < TIMEOUT);
        scene.read(5);
        let done = scene.poll();
        if done.is_empty() {
            break scene.request().0;
        }
        assert_eq!(done, [ended(5, Status::Disconnected)]);
    };
    let bytes = reply(&answered, 5);
    scene.send(&bytes);
    assert_eq!(scene.completes(), [ended(5, Status::Done)]);
    assert_eq!(scene.frame(5), 5);
}

#[test]
fn a_node_with_another_incarnation_is_never_used() {
    let mut scene = Scene::new(|number| if number < 2 { 1 } else { 2 });
    scene.read(1);
    scene.peer.messages.stream.shutdown(Shutdown::Both).unwrap();
    assert_eq!(scene.completes(), [ended(1, Status::Disconnected)]);
    scene.reconnects();
    // The client closes the connection when it has seen the welcome of a stranger.
    let start = Instant::now();
    scene.peer.messages.stream.set_nonblocking(true).unwrap();
    while !matches!(scene.peer.messages.stream.read(&mut [0; 1]), Ok(0)) {
        assert!(start.elapsed() < TIMEOUT, "the client goes on with a stranger");
        scene.read(2);
        assert_eq!(scene.completes(), [ended(2, Status::Disconnected)]);
    }
    assert!(scene.peers.try_recv().is_err(), "a further connection was made");
    is_lost_for_good(&mut scene);
}

#[test]
fn a_node_that_does_not_know_the_address_space_is_lost_for_good() {
    let mut scene = Scene::steady();
    let (refused, open) = (scene.asked(1), scene.asked(2));
    scene.send(&refusal(&refused, ErrorCode::BadCapability));
    let done = scene.until(|done| done.len() == 2);
    assert!(done.iter().all(|completion| completion.status == Status::Disconnected), "{done:?}");
    // Too late: the client trusts nothing that the node says now. It may have closed the connection.
    let _ = scene.peer.messages.stream.write_all(&reply(&open, 7));
    is_lost_for_good(&mut scene);
    assert_eq!(scene.frame(2), 0xee);
}

#[test]
fn a_refused_allocation_tells_every_queue_pair_that_the_memory_is_lost() {
    let mut scene = Scene::steady();
    scene.fabric.allocate(4096).unwrap();
    let request = scene.asked(1);
    scene.has_forgotten.store(true, Ordering::SeqCst);
    assert!(scene.fabric.allocate(4096).unwrap_err().to_string().contains("far memory is lost"));
    let _ = scene.peer.messages.stream.write_all(&reply(&request, 7));
    assert_eq!(scene.completes(), [ended(1, Status::Disconnected)]);
    is_lost_for_good(&mut scene);
    assert_eq!(scene.frame(1), 0xee);
}

fn is_lost_for_good(scene: &mut Scene) {
    for _ in 0..10 {
        scene.read(3);
        assert_eq!(scene.completes(), [ended(3, Status::Disconnected)]);
    }
    let error = scene.fabric.allocate(4096).unwrap_err().to_string();
    assert!(error.contains("far memory is lost"), "{error}");
    let error = scene.fabric.queue_pair(Module::Fault, Arc::clone(&scene.frames)).err().expect("refused").to_string();
    assert!(error.contains("far memory is lost"), "{error}");
}

#[test]
fn completions_wait_for_room() {
    let mut scene = Scene::steady();
    let requests: Vec<Header> = (0..FRAMES).map(|id| scene.asked(id)).collect();
    let bytes: Vec<u8> = requests.iter().flat_map(|request| reply(request, 1)).collect();
    scene.send(&bytes);
    let (start, mut seen) = (Instant::now(), 0);
    while seen < FRAMES {
        assert!(start.elapsed() < TIMEOUT);
        let mut completions = Vec::with_capacity(1);
        scene.queue_pair.poll(yonder_clock::now(), &mut completions);
        assert!(completions.len() <= 1 && completions.capacity() == 1);
        seen += completions.len() as u32;
        assert_eq!(scene.queue_pair.outstanding() as u32, FRAMES - seen);
    }
}
