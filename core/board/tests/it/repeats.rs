//! A test for each rule of requests that come twice, too late, or after they were given up.

use yonder_board::{CallEffect, Config, Handled, Path, path_of};
use yonder_wire::{
    AllocateRequest, AtomicOperation, Body, ErrorCode, HEADER_BYTES, Header, Kind, MESSAGE_BYTES_MAX, Rights, split,
};

use crate::requests::{NOBODY, world_with};
use crate::world::{PAGE, SOMEWHERE, Space, World, config, outcome};

#[test]
fn a_copy_of_a_request_gets_the_same_answer_and_is_not_executed() {
    let (mut world, space, address) = world_with(1);
    let mut add = [0; 24];
    AtomicOperation::FetchAdd(1).write_to(&mut add);
    let first = world.request(Kind::Atomic, space, address, 24);
    for _ in 0..3 {
        let again = world.retry(&first);
        assert_eq!(outcome(world.send(&again, &add)).unwrap().0.address, 0);
    }
    let allocate = world.request(Kind::Allocate, space, 0, 32);
    let mut payload = [0; 32];
    SOMEWHERE.write_to(&mut payload);
    let answers = [(); 2].map(|()| {
        let again = world.retry(&allocate);
        let (header, payload) = world.send(&again, &payload);
        (header.address, payload)
    });
    assert_eq!(answers[0], answers[1]);
    let free = world.request(Kind::Free, space, answers[0].0, 0);
    for _ in 0..2 {
        let again = world.retry(&free);
        assert_eq!(world.send(&again, &[]).0.code, ErrorCode::None);
    }
    let create = world.request(Kind::CreateSpace, NOBODY, 0, 0);
    let created = [(); 2].map(|()| {
        let again = world.retry(&create);
        let answer = world.send(&again, &[]).0;
        (answer.pid, answer.capability)
    });
    assert_eq!(created[0], created[1]);
    let destroy = world.request(Kind::DestroySpace, Space { pid: created[0].0, capability: created[0].1 }, 0, 0);
    for _ in 0..2 {
        let again = world.retry(&destroy);
        assert_eq!(world.send(&again, &[]).0.code, ErrorCode::None);
    }
    assert_eq!(world.atomic(space, address, AtomicOperation::FetchAdd(0)), Ok(1), "a copy was executed");
}

#[test]
fn a_refused_request_is_not_executed_when_its_reason_has_gone() {
    let (mut world, space, address) = world_with(1);
    let late = world.request(Kind::Write, space, address + PAGE, 1);
    assert_eq!(world.send(&late, &[7]).0.code, ErrorCode::BadAddress);
    let (next, _) = world.allocate(space, &SOMEWHERE).unwrap();
    assert_eq!(next, address + PAGE);
    let copy = world.retry(&late);
    assert_eq!(world.send(&copy, &[7]).0.code, ErrorCode::BadAddress);
    assert_eq!(world.read(space, next, 1), Ok(vec![0]));
}

/// A late copy of a write of one tenant, while another writes as fast as it can.
#[test]
fn a_tenant_that_writes_much_has_no_retry_of_another_refused() {
    const RECENT_MAX: usize = 256;
    let mut world = World::new(&Config { recent_max: RECENT_MAX, ..config(4) });
    world.refill(4);
    let [victim, hostile] = [world.create(), world.create()];
    let [own, others] = [victim, hostile].map(|space| world.allocate(space, &SOMEWHERE).unwrap().0);
    assert_ne!(victim.pid % 32, hostile.pid % 32, "a test of parties that share nothing");
    let first = world.request(Kind::Write, victim, own, 1);
    assert_eq!(world.send(&first, &[1]).0.code, ErrorCode::None);
    for _ in 0..20 * RECENT_MAX {
        world.write(hostile, others, &[2]).unwrap();
    }
    let copy = world.retry(&first);
    assert_eq!(world.send(&copy, &[3]).0.code, ErrorCode::None, "a tenant's write was forgotten");
    assert_eq!(world.read(victim, own, 1), Ok(vec![1]), "it was executed twice");
}

#[test]
fn a_request_that_is_too_old_is_refused_and_a_younger_one_is_not() {
    let mut world = World::new(&Config { recent_max: 1, ..config(4) });
    world.refill(2);
    let space = world.create();
    let (address, _) = world.allocate(space, &SOMEWHERE).unwrap();
    let first = world.request(Kind::Write, space, address, 1);
    assert_eq!(world.send(&first, &[1]).0.code, ErrorCode::None);
    for _ in 0..20 {
        world.write(space, address, &[2]).unwrap();
    }
    let copy = world.retry(&first);
    assert_eq!(world.send(&copy, &[1]).0.code, ErrorCode::TooOld);
    assert_eq!(world.read(space, address, 1), Ok(vec![2]), "an operation was executed twice");
    let future = Header { time: world.now + 100, ..world.request(Kind::Write, space, address, 1) };
    assert_eq!(world.send(&future, &[3]).0.code, ErrorCode::Busy);
}

#[test]
fn a_request_that_was_given_up_is_not_executed() {
    let (mut world, space, address) = world_with(1);
    let given_up = world.request(Kind::Write, space, address, 1);
    for expected in [0, 0] {
        let retried = world.retry(&given_up);
        let abort = Header { kind: Kind::Abort, fragment_offset: 0, length: 0, ..retried };
        assert_eq!(outcome(world.send(&abort, &[])).unwrap().0.length, expected);
    }
    assert_eq!(world.send(&given_up, &[1]).0.code, ErrorCode::Aborted);
    assert_eq!(world.read(space, address, 1), Ok(vec![0]));
    let executed = world.request(Kind::Write, space, address, 1);
    assert_eq!(world.send(&executed, &[1]).0.code, ErrorCode::None);
    let retried = world.retry(&executed);
    assert_eq!(world.send(&Header { kind: Kind::Abort, length: 0, ..retried }, &[]).0.length, 1);
    let free = world.request(Kind::Free, space, address, 0);
    let retried = world.retry(&free);
    let abort = Header { kind: Kind::Abort, fragment_offset: 1, ..retried };
    assert_eq!(outcome(world.send(&abort, &[])).unwrap().0.length, 0);
    assert_eq!(world.send(&free, &[]).0.code, ErrorCode::Aborted);
    assert_eq!(world.read(space, address, 1), Ok(vec![1]));
}

#[test]
fn an_id_of_another_kind_of_request_gets_no_answer_of_that() {
    let (mut world, space, _) = world_with(1);
    let allocate = world.request(Kind::Allocate, space, 0, AllocateRequest::BYTES);
    let mut payload = [0; AllocateRequest::BYTES];
    SOMEWHERE.write_to(&mut payload);
    assert_eq!(world.send(&allocate, &payload).0.code, ErrorCode::None);
    for kind in [Kind::Free, Kind::Call, Kind::DestroySpace, Kind::Discard] {
        let header = Header { kind, length: 0, ..world.retry(&allocate) };
        assert_eq!(world.send(&header, &[]).0.code, ErrorCode::Unsupported, "{kind:?}");
    }
    let create = world.request(Kind::CreateSpace, NOBODY, 0, 0);
    assert_eq!(world.send(&create, &[]).0.code, ErrorCode::None);
    // That is remembered elsewhere: whoever has a right asks for something new.
    let free = Header { kind: Kind::Free, pid: space.pid, capability: space.capability, ..world.retry(&create) };
    assert_eq!(world.send(&free, &[]).0.code, ErrorCode::BadAddress);
}

#[test]
fn a_call_is_executed_once_if_it_must_be() {
    let (mut world, space, _) = world_with(1);
    let mut extend = world.board.extend_path();
    let (now, mut reply) = (world.now, vec![0; MESSAGE_BYTES_MAX]);
    let call = |world: &mut World, space| {
        let header = world.request(Kind::Call, space, 1, 1);
        assert_eq!(path_of(&header), Path::Extend);
        [&header.seal(&[5])[..], &[5]].concat()
    };
    let answered = |reply: &[u8]| {
        let answer = split(reply).unwrap().unwrap();
        if answer.header.is_refusal() { Err(answer.header.code) } else { Ok(answer.payload.to_vec()) }
    };
    let once = call(&mut world, space);
    let message = split(&once).unwrap().unwrap();
    assert_eq!(extend.admit(&message, now, |_| true, &mut reply), Handled::Slow);
    assert_eq!(
        extend.answer(&message, now, CallEffect::Once, Ok(b"done"), &mut reply),
        Handled::Reply(HEADER_BYTES + 4)
    );
    assert_eq!(extend.admit(&message, now, |_| true, &mut reply), Handled::Reply(HEADER_BYTES + 4));
    assert_eq!(answered(&reply), Ok(b"done".to_vec()));
    let again = call(&mut world, space);
    let message = split(&again).unwrap().unwrap();
    for _ in 0..2 {
        assert_eq!(extend.admit(&message, now, |_| true, &mut reply), Handled::Slow, "what may be repeated is");
        let handled = extend.answer(&message, now, CallEffect::Repeatable, Ok(&[1; 1000]), &mut reply);
        assert_eq!(handled, Handled::Reply(HEADER_BYTES + 1000));
    }
    assert_eq!(extend.answer(&message, now, CallEffect::Once, Ok(&[1; 65]), &mut reply), Handled::Reply(HEADER_BYTES));
    assert_eq!(answered(&reply), Err(ErrorCode::OffloadFailed));
    let reader = world.grant(space, Rights::Read);
    for (space, is_space, code) in [
        (reader, true, ErrorCode::NotAllowed),
        (space, false, ErrorCode::BadCapability),
        (NOBODY, true, ErrorCode::BadCapability),
    ] {
        let refused = call(&mut world, space);
        let message = split(&refused).unwrap().unwrap();
        assert_eq!(extend.admit(&message, world.now, |_| is_space, &mut reply), Handled::Reply(HEADER_BYTES));
        assert_eq!(answered(&reply), Err(code));
    }
}

#[test]
fn a_call_that_was_given_up_is_not_executed() {
    let (mut world, space, _) = world_with(1);
    let mut extend = world.board.extend_path();
    let (now, mut reply) = (world.now, vec![0; MESSAGE_BYTES_MAX]);
    let call = world.request(Kind::Call, space, 1, 0);
    let abort = Header { kind: Kind::Abort, fragment_offset: 2, length: 0, ..call };
    assert_eq!(path_of(&abort), Path::Extend);
    for (header, code) in [(abort, ErrorCode::None), (call, ErrorCode::Aborted)] {
        let bytes = header.seal(&[]);
        let message = split(&bytes).unwrap().unwrap();
        assert_eq!(extend.admit(&message, now, |_| true, &mut reply), Handled::Reply(HEADER_BYTES));
        assert_eq!(split(&reply).unwrap().unwrap().header.code, code);
    }
}
