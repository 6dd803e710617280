//! A lane goes over from session to session, and never repeats a counter under one key.

use core::net::Ipv4Addr;
use std::collections::HashSet;

use yonder_wire::{HEADER_BYTES, Kind};

use super::*;
use crate::chain::{DOUBLINGS_MAX, Renewal, RenewalTimes};
use crate::cipher::{Protection, TESTED};
use crate::grant::SessionGrant;
use crate::secret::SessionSecret;

const TIMES: RenewalTimes = RenewalTimes { silent: 100, retry: 10 };
const LASTS: Nanos = 1000;
const HOME: u16 = 7;

fn session(serial: u32, time: u64, began: Nanos) -> Session {
    let number = SessionNumber::new(serial, 2, 0);
    let secret = SessionSecret::from_bytes([serial as u8; 32], TESTED[0], Protection::Authenticated);
    let grant = SessionGrant { number, secret, incarnation: 1, time, seconds: 0 };
    Session::new(grant, LASTS, Ipv4Addr::LOCALHOST.into(), began, began)
}

fn chain(first: Session) -> (Arc<Chain>, Renewal) {
    let first = Arc::new(first);
    (Arc::new(Chain::new(&first, TIMES)), Renewal::new(first, 0))
}

/// A lane that [`HOME`] has welcomed.
fn lane(chain: &Arc<Chain>, renewal: &Renewal) -> Protector {
    let mut lane = Protector::new(chain, renewal.last(), chain.next_lane().unwrap(), Door::Datagrams);
    lane.settle(HOME.into()).unwrap();
    lane
}

fn sent(lane: &mut Protector, now: Nanos) -> Frame {
    let mut room = [&Header::request(Kind::Ping, 1, 0, 0).seal(&[])[..], &[0; PROOF_BYTES]].concat();
    lane.seal(&mut room, HEADER_BYTES, now).unwrap();
    Frame::parse(&room).unwrap()
}

/// The answer that the node gives under the keys of `keys`, at `time` of its clock.
fn answer(keys: &LaneKeys, number: SessionNumber, counter: u64, time: u64) -> Vec<u8> {
    let header = Header::request(Kind::Ping, 1, 0, 0).answer(time, 0);
    let mut room = [&header.seal(&[])[..], &[0; PROOF_BYTES]].concat();
    seal(&keys.answers, number, counter, &mut room);
    room
}

#[test]
fn a_lane_follows_and_still_hears_the_session_before() {
    let (chain, mut renewal) = chain(session(1, 5 << 20, 0));
    let mut lane = lane(&chain, &renewal);
    let before = session(1, 0, 0).secret.lane(1, Home::Thread(HOME));
    let number = lane.number();
    let mut seen = HashSet::new();
    for _ in 0..3 {
        let frame = sent(&mut lane, 0);
        assert!(seen.insert((frame.number, frame.counter)));
    }
    renewal.follow_with(&chain, session(2, 9 << 20, 500), 500);
    assert_eq!(sent(&mut lane, 600).number, number, "it goes over when it is told to");
    lane.follow();
    let frame = sent(&mut lane, 600);
    assert!(frame.number != number && seen.insert((frame.number, frame.counter)));
    assert!(lane.open(&mut answer(&before, number, 7, 9 << 20), 600).is_ok());
    renewal.follow_with(&chain, session(3, 9 << 20, 700), 700);
    lane.follow();
    assert_eq!(lane.open(&mut answer(&before, number, 8, 9 << 20), 700), Err(Foreign));
}

#[test]
fn another_session_is_made_when_one_is_old_or_silent_and_lanes_want_it() {
    let (chain, mut renewal) = chain(session(1, 0, 0));
    let mut lane = lane(&chain, &renewal);
    let mut is_due = |now, has_lanes| renewal.is_due(&chain, || has_lanes, TIMES, now);
    assert!(!is_due(LASTS * 3 / 4 - 1, true));
    assert!(!is_due(LASTS * 3 / 4, false), "nobody needs it");
    assert!(!is_due(LASTS * 3 / 4 + 9, true), "it has just been tried");
    assert!(is_due(LASTS * 3 / 4 + 10, true));
    renewal.follow_with(&chain, session(2, 0, LASTS), LASTS);
    lane.follow();
    let mut is_due = |now| renewal.is_due(&chain, || true, TIMES, now);
    let now = LASTS + 50;
    (0..2).for_each(|_| _ = sent(&mut lane, now));
    assert!(!is_due(now + 100));
    let _ = sent(&mut lane, now + 101);
    assert!(is_due(now + 101), "nothing was heard for so long");
    assert!(!is_due(now + 200), "that was told");
    let keys = session(2, 0, 0).secret.lane(1, Home::Thread(HOME));
    let number = lane.number();
    lane.open(&mut answer(&keys, number, 1, 5), now + 201).unwrap();
    let _ = sent(&mut lane, now + 300);
    assert!(!is_due(now + 300), "something was heard");
}

#[test]
fn a_clock_that_stood_still_is_met_by_what_was_heard() {
    let (chain, renewal) = chain(session(1, 3 << 20, 0));
    let mut lane = lane(&chain, &renewal);
    let times: HashSet<u64> = (0..2 * UNANSWERED_MAX).map(|_| sent(&mut lane, 1 << 30).counter >> 36).collect();
    assert!(times.contains(&3) && times.iter().any(|time| *time > 1000), "{times:?}");
}

/// The simulator found it (`sim node`, seed 5): a lane that sends little changed sessions for ever, and was not heard.
#[test]
fn another_session_corrects_a_bound_that_was_too_high() {
    let (chain, mut renewal) = chain(session(1, 3 << 20, 0));
    let mut lane = lane(&chain, &renewal);
    // Our clock has leapt ahead.
    let leapt = 1 << 40;
    assert!(sent(&mut lane, leapt).counter >> 36 > 1000);
    renewal.follow_with(&chain, session(2, 5 << 20, leapt), leapt);
    lane.follow();
    assert_eq!(sent(&mut lane, leapt + 1).counter >> 36, 5);
}

/// Under the keys of a thread a lane speaks to that alone, in each of its sessions, and greets under others.
#[test]
fn a_lane_speaks_to_the_thread_that_has_welcomed_it() {
    let (chain, mut renewal) = chain(session(1, 0, 0));
    let mut lane = Protector::new(&chain, renewal.last(), chain.next_lane().unwrap(), Door::Streams);
    let keys = |serial, home| session(serial, 0, 0).secret.lane(1, home);
    let (door, other) = (Home::Door(Door::Streams), Home::Door(Door::Datagrams));
    assert!(sent(&mut lane, 0).is_greeting);
    for home in [Home::Thread(HOME), other] {
        assert_eq!(lane.open(&mut answer(&keys(1, home), lane.number(), 1, 0), 0), Err(Foreign), "{home:?}");
    }
    assert!(lane.open(&mut answer(&keys(1, door), lane.number(), 1, 0), 0).is_ok());
    assert_eq!(lane.settle(HOME.into()), Ok(()));
    assert_eq!((lane.settle(NODE_THREADS_MAX.into()), lane.settle(u32::MAX)), (Err(Foreign), Err(Foreign)));
    for serial in 1..3 {
        let frame = sent(&mut lane, 0);
        assert_eq!((frame.is_greeting, u16::from(frame.thread)), (false, HOME));
        for (home, is_good) in [(Home::Thread(HOME), true), (Home::Thread(HOME + 1), false), (door, false)] {
            let mut answer = answer(&keys(serial, home), lane.number(), 2, 0);
            assert_eq!(lane.open(&mut answer, 0).is_ok(), is_good, "{home:?}");
        }
        renewal.follow_with(&chain, session(serial + 1, 0, 0), 0);
        lane.follow();
    }
    lane.leave();
    assert!(sent(&mut lane, 0).is_greeting);
}

/// What is lost on the way back is not helped by sessions, of which a node makes some number in an hour.
#[test]
fn sessions_that_bring_nothing_are_made_ever_more_seldom() {
    let (chain, mut renewal) = chain(session(1, 0, 0));
    let mut lane = lane(&chain, &renewal);
    let (mut now, mut made) = (0, Vec::new());
    while now < 5000 {
        // Nothing is old, so that silence is the cause.
        let _ = sent(&mut lane, now);
        if renewal.is_due(&chain, || true, TIMES, now) {
            made.push(now);
            let grant = session(1 + made.len() as u32, 0, now);
            renewal.follow_with(&chain, Session::new(grant_of(&grant), 1 << 40, grant.own(), now, now), now);
            lane.follow();
        }
        now += 5;
    }
    let pauses: Vec<Nanos> = made.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(pauses[..2].iter().all(|pause| *pause < 2 * TIMES.silent), "{pauses:?}");
    assert!(pauses.iter().rev().take(3).all(|pause| *pause >= 10 << DOUBLINGS_MAX), "{pauses:?}");
    // Once it is heard for long, it is asked for soon again.
    let keys = session(1 + made.len() as u32, 0, 0).secret.lane(1, Home::Thread(HOME));
    lane.open(&mut answer(&keys, lane.number(), 1, 5), now).unwrap();
    now += 2000;
    assert!(!renewal.is_due(&chain, || true, TIMES, now));
    let _ = sent(&mut lane, now);
    let _ = sent(&mut lane, now + 101);
    assert!(renewal.is_due(&chain, || true, TIMES, now + 101));
}

fn grant_of(session: &Session) -> SessionGrant {
    let (number, secret) = (session.number, session.secret.clone());
    SessionGrant { number, secret, incarnation: 1, time: session.time, seconds: 0 }
}
