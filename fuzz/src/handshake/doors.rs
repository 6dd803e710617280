//! The first bytes at a node's port: plain messages with and without cookies, and greetings of sessions.
//!
//! A node with a secret of ours stands behind the real doors. It lets in what was sealed by a client of its own,
//! unchanged and once, from the client's address; plain datagrams with the cookie of their address, and plain
//! greetings, if it has no identity; and nothing else.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use yonder_session::{
    Admission, Arrived, Chain, Cipher, Door, Doors, Frame, Gate, NodeSecret, Numbers, Origin, ProtectedLane,
    Protection, Protector, RenewalTimes, ReplayWindows, Rules, Session, SessionNumber, Table, Unwelcome, Visitor, Wrap,
};
use yonder_wire::{
    Body as _, Direction, ErrorCode, Greeting, HEADER_BYTES, Header, Kind, Message, PROOF_BYTES, split, split_proven,
};

use crate::Trail;
use crate::script::Step;

/// What only the node knows.
const SECRET: [u8; 32] = [11; 32];
/// When the node began, and when messages arrive unless another time is said.
const BEGAN: u64 = 1 << 40;
const NOW: u64 = BEGAN + (2 << 20);
const HOUR: u64 = 3_600_000_000_000;
/// The thread that looks.
const THREAD: u16 = 2;
/// First byte of a plain message, and that of TLS, as `runtime/node` tells them apart.
const PLAIN_LEAD: u8 = b'Y';
const TLS_LEAD: u8 = 0x16;

/// An address, with its port.
#[derive(Clone, Copy, PartialEq, Debug)]
struct From([u8; 6]);

const HERE: From = From([10, 0, 0, 1, 27, 88]);
const ELSEWHERE: From = From([10, 0, 0, 2, 27, 88]);

impl From {
    /// That of the client, or another one.
    const fn of(byte: u8) -> Self {
        if byte.is_multiple_of(2) { HERE } else { ELSEWHERE }
    }

    fn host(self) -> Ipv4Addr {
        let [a, b, c, d, ..] = self.0;
        Ipv4Addr::new(a, b, c, d)
    }
}

impl Origin for From {
    fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn ip(&self) -> Option<Ipv6Addr> {
        Some(self.host().to_ipv6_mapped())
    }
}

struct Windows(RefCell<ReplayWindows>);

impl Table for Windows {
    fn accept(&self, number: SessionNumber, counter: u64, now: u64) -> bool {
        self.0.borrow_mut().accept(number, counter, now)
    }
}

/// A node that has just begun.
struct Node {
    doors: Doors<Box<NodeSecret>, Windows>,
    gate: Gate<From>,
}

/// A true message, and how it travels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Said {
    pub(super) name: &'static str,
    pub(super) bytes: Vec<u8>,
    way: Way,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Stream,
    Datagram,
    /// A datagram that has a cookie, and no more.
    Plain,
}

/// How far a stream has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Greeted {
    /// More is to come.
    Waits,
    /// It is no greeting that is let in.
    Refused,
    /// Someone wants a session.
    Tls,
    /// A greeting of so many bytes.
    Is { bytes: usize, is_proven: bool },
}

impl Node {
    fn new(admission: Admission, cipher: Cipher) -> Self {
        let rules = Rules { cipher, tables: 2, sets_per_table: 1, ..Rules::usual(admission) };
        let windows = |windows| Windows(RefCell::new(windows));
        let doors = Doors::new(Box::new(NodeSecret::new(SECRET)), rules, BEGAN, windows);
        let gate = Gate::new(&doors, THREAD);
        Self { doors, gate }
    }

    /// Whether a datagram is let in, and is what was sent.
    fn lets_in(&mut self, mut datagram: Vec<u8>, from: From, now: u64) -> bool {
        match self.gate.open(&self.doors, &mut datagram, &from, now) {
            Arrived::Message(message, _) => message.verify().is_ok(),
            Arrived::Refused(..) | Arrived::Dropped => false,
        }
    }

    /// What becomes of a stream whose bytes come in pieces: `Connection::greet` of `runtime/node`, in the same order.
    fn greeted(&self, bytes: &[u8], piece_bytes: usize, from: From, now: u64) -> Greeted {
        let (mut received, mut lane) = (Vec::new(), None);
        for piece in bytes.chunks(piece_bytes) {
            received.extend_from_slice(piece);
            match self.greet(&mut received, &mut lane, from, now) {
                Ok(Greeted::Waits) => {}
                Ok(greeted) => return greeted,
                Err(Unwelcome) => return Greeted::Refused,
            }
        }
        Greeted::Waits
    }

    fn greet(
        &self,
        received: &mut [u8],
        lane: &mut Option<ProtectedLane>,
        from: From,
        now: u64,
    ) -> Result<Greeted, Unwelcome> {
        if lane.is_none() && received[0] != PLAIN_LEAD {
            if self.doors.are_closed() && received[0] == TLS_LEAD {
                return Ok(Greeted::Tls);
            }
            *lane = self.doors.lane_of(received, IpAddr::V4(from.host()), now)?;
            if lane.is_none() {
                return Ok(Greeted::Waits);
            }
        }
        let message = match lane {
            Some(lane) => match self.doors.open_next(lane, received, now)? {
                Some((bytes, _)) => split_proven(&received[..bytes]),
                None => return Ok(Greeted::Waits),
            },
            None => split(received),
        };
        let Some(message) = message.map_err(|_| Unwelcome)? else {
            return if lane.is_some() { Err(Unwelcome) } else { Ok(Greeted::Waits) };
        };
        if !message.is_proven() && self.doors.are_closed() {
            return Err(Unwelcome);
        }
        if message.header.kind != Kind::Hello || message.header.direction != Direction::Request {
            return Err(Unwelcome);
        }
        message.verify().map_err(|_| Unwelcome)?;
        Greeting::from_bytes(message.payload).map_err(|_| Unwelcome)?;
        let bytes = message.bytes() + if message.is_proven() { PROOF_BYTES } else { 0 };
        Ok(Greeted::Is { bytes, is_proven: message.is_proven() })
    }
}

/// The cookies of an address that count at a time: that of the period, and that of the one before.
fn cookies(from: From, now: u64) -> [u64; 2] {
    let (secret, period) = (NodeSecret::new(SECRET), now / Rules::usual(Admission::Plain).cookie_period);
    [period, period.wrapping_sub(1)].map(|period| secret.cookie(&from.0, period))
}

/// What clients of a node with this cipher say first, from [`HERE`].
pub(super) fn said(cipher: Cipher) -> Vec<Said> {
    let (node, mut numbers) = (Node::new(Admission::Protected, cipher), Numbers::default());
    let mut lane = |door, protection| {
        let visitor = Visitor { tenant: Some("t1"), ip: HERE.host().into(), host: 1 };
        let grant = node.doors.session(&mut numbers, visitor, protection, 1, NOW).expect("there are numbers left");
        let session = Arc::new(Session::new(grant, HOUR, visitor.ip, 0, 0));
        let chain = Arc::new(Chain::new(&session, RenewalTimes::USUAL));
        let number = chain.next_lane().expect("it is the first");
        Protector::new(&chain, &session, number, door)
    };
    let mut all = Vec::new();
    for (names, protection) in [
        (["stream-encrypted", "datagram-encrypted", "request-encrypted"], Protection::Encrypted),
        (["stream-authenticated", "datagram-authenticated", "request-authenticated"], Protection::Authenticated),
    ] {
        let [stream, datagram, request] = names;
        let (mut of_streams, mut of_datagrams) = (lane(Door::Streams, protection), lane(Door::Datagrams, protection));
        all.push(Said { name: stream, bytes: sealed(&mut of_streams, &hello()), way: Way::Stream });
        all.push(Said { name: datagram, bytes: sealed(&mut of_datagrams, &hello()), way: Way::Datagram });
        of_datagrams.settle(THREAD.into()).expect("a node has such a thread");
        let ping = Header::request(Kind::Ping, 10, 0, 0).seal(&[]);
        all.push(Said { name: request, bytes: sealed(&mut of_datagrams, &ping), way: Way::Datagram });
    }
    let proven = Header { cookie: cookies(HERE, NOW)[0], ..Header::request(Kind::Ping, 10, 0, 0) };
    all.push(Said { name: "request-with-cookie", bytes: proven.seal(&[]).to_vec(), way: Way::Plain });
    all
}

/// The greeting of a client that has no thread yet, as it is before it is sealed.
pub(super) fn hello() -> Vec<u8> {
    let mut greeting = [0; Greeting::BYTES];
    Greeting { home: None }.write_to(&mut greeting);
    let header = Header::request(Kind::Hello, 9, 0, Greeting::BYTES as u32);
    [&header.seal(&greeting)[..], &greeting].concat()
}

fn sealed(lane: &mut Protector, plain: &[u8]) -> Vec<u8> {
    let mut room = [plain, &[0; PROOF_BYTES]].concat();
    let bytes = lane.seal(&mut room, plain.len(), 0).expect("it is among the first messages");
    room.truncate(bytes);
    room
}

/// Any bytes as a datagram, from the client's address or another, at a node of either kind.
pub(super) fn check_datagram(cipher: Cipher, bytes: &[u8], trail: &mut Trail) {
    let Some((how, bytes)) = bytes.split_first() else { return };
    let from = From::of(how / 2);
    if how % 2 == 0 {
        return check_at_closed(cipher, bytes, from, trail);
    }
    let (mut node, mut datagram) = (Node::new(Admission::Plain, cipher), bytes.to_vec());
    let arrived = node.gate.open(&node.doors, &mut datagram, &from, NOW);
    assert!(Frame::parse(bytes).is_none() || matches!(arrived, Arrived::Dropped), "there are no sessions");
    let became = match arrived {
        Arrived::Message(message, wrap) => {
            assert_eq!(wrap, Wrap::Plain);
            assert_eq!(message.header.cookie, cookies(from, NOW)[0], "every answer brings the present cookie");
            let is_proven = has_cookie(bytes, from);
            assert!(is_proven || message.header.kind == Kind::Hello, "a cookie that was not given is taken");
            check_same(&message, bytes);
            1 + u64::from(is_proven)
        }
        Arrived::Refused(header, code) => {
            assert_eq!(code, ErrorCode::Unproven);
            assert!(!has_cookie(bytes, from) && header.kind != Kind::Hello);
            assert!(bytes.len() >= HEADER_BYTES, "the answer is longer than what was asked");
            3
        }
        Arrived::Dropped => 0,
    };
    trail.note([2, became, from.0[3].into()]);
}

fn check_at_closed(cipher: Cipher, bytes: &[u8], from: From, trail: &mut Trail) {
    let (mut node, mut datagram) = (Node::new(Admission::Protected, cipher), bytes.to_vec());
    let became = match node.gate.open(&node.doors, &mut datagram, &from, NOW) {
        Arrived::Message(message, Wrap::Protected { .. }) => {
            assert!(message.is_proven() && from == HERE, "a proof that was not given is taken");
            let is_said = said(cipher).iter().any(|said| said.way == Way::Datagram && said.bytes == bytes);
            assert!(is_said, "a proof that was not given is taken");
            2
        }
        Arrived::Message(_, Wrap::Plain) => panic!("a plain message is let in"),
        Arrived::Refused(_, code) => {
            assert_eq!(code, ErrorCode::Unprotected);
            assert!(bytes.len() >= HEADER_BYTES && Frame::parse(bytes).is_none());
            1
        }
        Arrived::Dropped => 0,
    };
    assert!(!node.lets_in(bytes.to_vec(), from, NOW), "it is let in a second time");
    trail.note([3, became, from.0[3].into()]);
}

/// Whether a datagram has a cookie that its address was given.
fn has_cookie(datagram: &[u8], from: From) -> bool {
    let message = split(datagram).ok().flatten();
    message.is_some_and(|message| cookies(from, NOW).contains(&message.header.cookie))
}

/// A message that is whole is written as it came.
fn check_same(message: &Message<'_>, bytes: &[u8]) {
    let Ok(Some(came)) = split(bytes) else { panic!("what is let in can be read") };
    assert_eq!((came.bytes(), came.payload), (bytes.len(), message.payload));
    if message.verify().is_ok() {
        assert_eq!([&came.header.seal(came.payload)[..], came.payload].concat(), bytes);
    }
}

/// Any bytes as the beginning of a stream, in pieces.
pub(super) fn check_stream(cipher: Cipher, bytes: &[u8], trail: &mut Trail) {
    let Some(([how, cut], bytes)) = bytes.split_first_chunk() else { return };
    let (admission, from) = (if how % 2 == 0 { Admission::Protected } else { Admission::Plain }, From::of(how / 2));
    // A node each: what one has accepted it does not accept again.
    let whole = Node::new(admission, cipher).greeted(bytes, bytes.len().max(1), from, NOW);
    let in_pieces = Node::new(admission, cipher).greeted(bytes, 1 + usize::from(*cut), from, NOW);
    assert_eq!(in_pieces, whole, "it is heard in another way in pieces of {} bytes", 1 + usize::from(*cut));
    if let Greeted::Is { bytes: taken, is_proven } = whole {
        assert_eq!(is_proven, admission == Admission::Protected);
        let is_said = || said(cipher).iter().any(|said| said.way == Way::Stream && said.bytes == bytes[..taken]);
        assert!(!is_proven || from == HERE && is_said(), "a proof that was not given is taken");
    }
    let became = match whole {
        Greeted::Waits => 0,
        Greeted::Refused => 1,
        Greeted::Tls => 2,
        Greeted::Is { .. } => 3,
    };
    let lead = bytes.first().map_or(0, |lead| 1 + u64::from(*lead));
    trail.note([4 + u64::from(how % 2), became, lead]);
}

/// True messages, with one thing about them that is not as it should be, or none.
pub(super) fn check_changed(cipher: Cipher, bytes: &[u8], trail: &mut Trail) {
    let all = said(cipher);
    let mut step = Step::of(bytes);
    let said = &all[step.index(all.len())];
    let admission = if said.way == Way::Plain { Admission::Plain } else { Admission::Protected };
    let mut node = Node::new(admission, cipher);
    let mut opens = |bytes: Vec<u8>, from, now| match said.way {
        Way::Stream => {
            let length = bytes.len();
            node.greeted(&bytes, length.max(1), from, now) == Greeted::Is { bytes: length, is_proven: true }
        }
        Way::Datagram | Way::Plain => node.lets_in(bytes, from, now),
    };
    let (what, mut changed) = (step.below(6), said.bytes.clone());
    let is_let_in = match what {
        0 => {
            let at = step.index(changed.len());
            changed[at] ^= 1 + step.below(255) as u8;
            opens(changed, HERE, NOW)
        }
        1 => {
            changed.truncate(step.index(said.bytes.len()));
            opens(changed, HERE, NOW)
        }
        2 => {
            changed.push(step.byte());
            opens(changed, HERE, NOW)
        }
        3 => opens(changed, ELSEWHERE, NOW),
        // Sessions and cookies are over.
        4 => opens(changed, HERE, NOW + 3 * HOUR),
        _ => {
            assert!(opens(changed.clone(), HERE, NOW), "{}: a true message is not let in", said.name);
            // Nothing tells plain messages that come again, at a door.
            opens(changed, HERE, NOW) && said.way != Way::Plain
        }
    };
    assert!(!is_let_in, "{}: it is let in, though it is changed ({what})", said.name);
    trail.note([6, what, all.iter().position(|other| other == said).map_or(0, |index| index as u64)]);
}
