//! Both ends against each other: what a lane seals is let in once, and nothing else is.

use core::cell::RefCell;
use core::net::Ipv4Addr;
use std::sync::Arc;

use yonder_wire::{ErrorCode, HEADER_BYTES, Header, Kind, split_proven};

use super::*;
use crate::chain::{Chain, RenewalTimes, Session};
use crate::cipher::TESTED;
use crate::gate::{Arrived, Gate, Origin};
use crate::protector::Protector;

const HOUR: Nanos = 3_600_000_000_000;
const START: Nanos = 5 << 20;

struct Plain(RefCell<ReplayWindows>);

impl Table for Plain {
    fn accept(&self, number: SessionNumber, counter: u64, now: Nanos) -> bool {
        self.0.borrow_mut().accept(number, counter, now)
    }
}

#[derive(Clone, Copy, PartialEq)]
struct From([u8; 4]);

impl Origin for From {
    fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn ip(&self) -> Option<Ipv6Addr> {
        Some(mapped(IpAddr::from(self.0)))
    }
}

type TestDoors = Doors<Box<NodeSecret>, Plain>;

fn doors(admission: Admission) -> TestDoors {
    let rules = Rules { cipher: TESTED[0], ..Rules::usual(admission) };
    let secret = Box::new(NodeSecret::new([3; 32]));
    Doors::new(secret, rules, START, |windows| Plain(RefCell::new(windows)))
}

const HERE: From = From([10, 0, 0, 1]);
const ELSEWHERE: From = From([10, 0, 0, 2]);

/// A lane of a client at [`HERE`], whose session was made at `now`, which has not greeted.
fn lane(doors: &TestDoors, numbers: &mut Numbers, now: Nanos, door: Door) -> Protector {
    let visitor = Visitor { tenant: None, ip: Ipv4Addr::from(HERE.0).into(), host: 1 };
    let grant = doors.session(numbers, visitor, Protection::Encrypted, 1, now).unwrap();
    let session = Arc::new(Session::new(grant, HOUR, visitor.ip, 0, 0));
    let chain = Arc::new(Chain::new(&session, RenewalTimes::USUAL));
    let number = chain.next_lane().unwrap();
    Protector::new(&chain, &session, number, door)
}

fn sealed(lane: &mut Protector, request: &Header, now: Nanos) -> Vec<u8> {
    let mut room = [&request.seal(&[])[..], &[0; PROOF_BYTES]].concat();
    let bytes = lane.seal(&mut room, HEADER_BYTES, now).unwrap();
    room.truncate(bytes);
    room
}

const REQUEST: Header = Header::request(Kind::Ping, 9, 0, 0);
const HELLO: Header = Header::request(Kind::Hello, 9, 0, 0);

/// What the gate makes of a datagram: how its answer goes back, or why there is none.
fn opened(gate: &mut Gate<From>, doors: &TestDoors, mut datagram: Vec<u8>, from: From, now: Nanos) -> Option<Wrap> {
    match gate.open(doors, &mut datagram, &from, now) {
        Arrived::Message(message, wrap) => {
            assert_eq!(message.header.request_id, REQUEST.request_id);
            Some(wrap)
        }
        Arrived::Refused(..) | Arrived::Dropped => None,
    }
}

/// What was withheld may come from another port, and so to another thread, which does not know what was executed.
#[test]
fn a_request_is_let_in_once_by_its_thread_from_one_address() {
    let (doors, mut numbers) = (doors(Admission::Protected), Numbers::default());
    let now = START + (2 << 20);
    let mut lane = lane(&doors, &mut numbers, now, Door::Datagrams);
    let mut gates = [Gate::new(&doors, 0), Gate::new(&doors, 1)];
    lane.settle(0).unwrap();
    let request = sealed(&mut lane, &REQUEST, 0);
    assert_eq!(opened(&mut gates[1], &doors, request.clone(), HERE, now), None, "it is for the other thread");
    assert_eq!(opened(&mut gates[0], &doors, request.clone(), ELSEWHERE, now), None);
    let wrap = opened(&mut gates[0], &doors, request.clone(), HERE, now).unwrap();
    assert_eq!(opened(&mut gates[0], &doors, request.clone(), HERE, now), None);
    assert_eq!(opened(&mut gates[1], &doors, request, HERE, now), None);
    // The answer of another thread is opened by the lane, and is no request.
    let mut room = [&REQUEST.answer(now, 0).seal(&[])[..], &[0; PROOF_BYTES]].concat();
    let bytes = gates[1].close(&doors, wrap, &mut room, HEADER_BYTES);
    assert_eq!(bytes, HEADER_BYTES + wrap.bytes());
    assert_eq!(opened(&mut gates[1], &doors, room.clone(), HERE, now), None);
    let (bytes, taken) = lane.open(&mut room, 1).unwrap().unwrap();
    assert_eq!((bytes, taken), (HEADER_BYTES, HEADER_BYTES + PROOF_BYTES));
    assert_eq!(split_proven(&room[..bytes]).unwrap().unwrap().header.request_id, REQUEST.request_id);
}

#[test]
fn a_session_ends_with_its_hour_and_plain_messages_are_refused() {
    let (doors, mut numbers) = (doors(Admission::Protected), Numbers::default());
    let now = START + HOUR / 2;
    let mut lane = lane(&doors, &mut numbers, now, Door::Datagrams);
    assert_eq!(doors.left(lane.number(), now), HOUR + HOUR / 2);
    let mut gate = Gate::new(&doors, 0);
    lane.settle(0).unwrap();
    let [first, last, late] = [0; 3].map(|_| sealed(&mut lane, &REQUEST, 0));
    assert!(opened(&mut gate, &doors, first, HERE, now).is_some());
    assert!(opened(&mut gate, &doors, last, HERE, START + 2 * HOUR - 1).is_some());
    assert_eq!(opened(&mut gate, &doors, late, HERE, START + 2 * HOUR), None);
    let mut plain = REQUEST.seal(&[]);
    let arrived = gate.open(&doors, &mut plain, &HERE, now);
    assert!(matches!(arrived, Arrived::Refused(_, ErrorCode::Unprotected)), "{arrived:?}");
}

/// Any thread opens a greeting, and nothing else under its keys.
#[test]
fn a_lane_that_has_no_thread_yet_may_greet_and_no_more() {
    let (doors, mut numbers) = (doors(Admission::Protected), Numbers::default());
    let now = START + (2 << 20);
    let mut lane = lane(&doors, &mut numbers, now, Door::Datagrams);
    for thread in 0..2 {
        let mut gate = Gate::new(&doors, thread);
        let (hello, request) = (sealed(&mut lane, &HELLO, 0), sealed(&mut lane, &REQUEST, 0));
        assert_eq!(opened(&mut gate, &doors, request, HERE, now), None);
        let wrap = opened(&mut gate, &doors, hello, HERE, now).unwrap();
        let mut room = [&HELLO.answer(now, 0).seal(&[])[..], &[0; PROOF_BYTES]].concat();
        gate.close(&doors, wrap, &mut room, HEADER_BYTES);
        assert!(lane.open(&mut room, 1).unwrap().is_some());
    }
}

#[test]
fn a_stream_is_of_one_lane() {
    let (doors, mut numbers) = (doors(Admission::Protected), Numbers::default());
    let now = START + (2 << 20);
    let (mut one, mut other) =
        (lane(&doors, &mut numbers, now, Door::Streams), lane(&doors, &mut numbers, now, Door::Streams));
    let ip = Ipv4Addr::from(HERE.0).into();
    let mut of_datagrams = lane(&doors, &mut numbers, now, Door::Datagrams);
    let (mut strange, mut hello) = (sealed(&mut of_datagrams, &HELLO, 0), sealed(&mut one, &HELLO, 0));
    let other_door = doors.lane_of(&strange, ip, now).unwrap().unwrap();
    assert_eq!(doors.open_next(&other_door, &mut strange, now), Err(Unwelcome), "a greeting of datagrams");
    assert_eq!(opened(&mut Gate::new(&doors, 0), &doors, hello.clone(), HERE, now), None, "a greeting of a stream");
    assert!(doors.lane_of(&hello[..PREFIX_BYTES - 1], ip, now).unwrap().is_none());
    let greeted = doors.lane_of(&hello, ip, now).unwrap().unwrap();
    assert!(doors.open_next(&greeted, &mut hello, now).unwrap().is_some());
    one.settle(4).unwrap();
    let stream = doors.settled(&greeted, 4);
    let mut request = sealed(&mut one, &REQUEST, 0);
    assert!(doors.lane_of(&request, ip, now).is_err(), "a connection begins with a greeting");
    assert_eq!(doors.open_next(&greeted, &mut request.clone(), now), Err(Unwelcome));
    assert_eq!(doors.open_next(&doors.settled(&greeted, 5), &mut request.clone(), now), Err(Unwelcome));
    assert_eq!(doors.open_next(&stream, &mut request[..50], now), Ok(None));
    let again = request.clone();
    assert_eq!(doors.open_next(&stream, &mut request, now), Ok(Some((HEADER_BYTES, HEADER_BYTES + PROOF_BYTES))));
    other.settle(4).unwrap();
    for mut unwelcome in [again, sealed(&mut other, &REQUEST, 0), REQUEST.seal(&[]).to_vec()] {
        assert_eq!(doors.open_next(&stream, &mut unwelcome, now), Err(Unwelcome));
    }
    let mut answer = [&REQUEST.answer(now, 0).seal(&[])[..], &[0; PROOF_BYTES]].concat();
    stream.seal(&mut AnswerCounter::new(3), &mut answer, HEADER_BYTES);
    assert!(other.open(&mut answer.clone(), 0).is_err());
    assert!(one.open(&mut answer, 0).is_ok());
}

#[test]
fn plain_datagrams_need_the_cookie_of_their_address() {
    let doors = doors(Admission::Plain);
    let mut gate = Gate::new(&doors, 0);
    let period = doors.rules().cookie_period;
    let now = 10 * period;
    let mut plain = REQUEST.seal(&[]);
    let Arrived::Refused(Header { cookie, .. }, ErrorCode::Unproven) = gate.open(&doors, &mut plain, &HERE, now) else {
        panic!("a request without a cookie was let in");
    };
    let proven = Header { cookie, ..REQUEST }.seal(&[]).to_vec();
    assert_eq!(opened(&mut gate, &doors, proven.clone(), HERE, now), Some(Wrap::Plain));
    assert_eq!(opened(&mut gate, &doors, proven.clone(), HERE, now + 2 * period - 1), Some(Wrap::Plain));
    assert_eq!(opened(&mut gate, &doors, proven.clone(), HERE, now + 2 * period), None);
    assert_eq!(opened(&mut gate, &doors, proven, ELSEWHERE, now), None);
}
