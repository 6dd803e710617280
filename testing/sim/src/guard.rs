//! [`NodeGuard`]: the real doors of a node, as its threads have them, and what sabotage makes of them.
//!
//! What comes over the network is let in here before the board sees it, and its answer is sealed here. The board gets
//! what was let in as a plain message, whole or damaged as it came.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use yonder_session::{
    AnswerCounter, Arrived, Doors, Frame, Gate, NodeSecret, Numbers, Origin, ProtectedLane, Protection, ReplayWindows,
    Rules, SESSION_HOURS, SessionGrant, SessionNumber, Table, Visitor, Wrap,
};
use yonder_units::Nanos;
use yonder_wire::{Direction, Message, PROOF_BYTES, split, split_proven};

use crate::node::Sender;
use crate::sabotage::Sabotage;

/// Where something comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Address {
    ip: Ipv6Addr,
    bytes: [u8; 18],
}

/// The windows of a node. Its threads take turns.
#[derive(Debug)]
struct Windows {
    inner: RefCell<ReplayWindows>,
    sabotage: Option<Sabotage>,
}

/// A node's doors.
#[derive(Debug)]
pub(crate) struct NodeGuard {
    doors: Doors<Box<NodeSecret>, Windows>,
    numbers: Numbers,
    /// One for each thread that answers.
    gates: Vec<Gate<Address>>,
    /// Lanes of connections whose messages are protected, by lane and connection.
    streams: BTreeMap<(usize, u32), ProtectedLane>,
    began: Nanos,
    sabotage: Option<Sabotage>,
}

/// What became of what came to the doors.
#[derive(Debug)]
pub(crate) enum Entry {
    /// It is let in.
    Admitted {
        /// As a plain message.
        plain: Vec<u8>,
        /// How its answer goes back.
        wrap: Wrap,
    },
    /// It is not looked at, and this is the answer.
    Refused(Vec<u8>),
    /// It is not looked at.
    Dropped,
    /// Neither is what comes behind it on its connection.
    Closed,
}

impl Address {
    /// That of a lane of a process.
    pub(crate) fn of_lane(process: usize, lane: usize) -> Self {
        Self::new(ip_of(process), lane as u16)
    }

    /// One that no process has.
    pub(crate) fn of_stranger(number: u8) -> Self {
        Self::new(Ipv4Addr::new(10, 9, 9, number).into(), u16::from(number))
    }

    /// Whether it is an address of the same host.
    pub(crate) fn has_host_of(self, other: Self) -> bool {
        self.ip == other.ip
    }

    fn new(ip: IpAddr, port: u16) -> Self {
        let ip = match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mut bytes = [0; 18];
        bytes[..16].copy_from_slice(&ip.octets());
        bytes[16..].copy_from_slice(&port.to_le_bytes());
        Self { ip, bytes }
    }
}

/// The address of a process.
pub(crate) fn ip_of(process: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, process as u8 + 1).into()
}

impl Origin for Address {
    fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn ip(&self) -> Option<Ipv6Addr> {
        Some(self.ip)
    }
}

impl Table for Windows {
    fn accept(&self, number: SessionNumber, counter: u64, now: Nanos) -> bool {
        let is_new = self.inner.borrow_mut().accept(number, counter, now);
        is_new || self.sabotage == Some(Sabotage::WindowsAcceptTwice)
    }
}

impl NodeGuard {
    /// The doors of a node that began at `now` of its clock, with so many threads that answer.
    pub(crate) fn new(secret: [u8; 32], rules: Rules, threads: usize, now: Nanos, sabotage: Option<Sabotage>) -> Self {
        let table = |windows| Windows { inner: RefCell::new(windows), sabotage };
        let doors = Doors::new(Box::new(NodeSecret::new(secret)), rules, now, table);
        let gate = |thread| {
            let mut gate = Gate::new(&doors, if sabotage == Some(Sabotage::ThreadsAreOne) { 0 } else { thread });
            let counts_as = if sabotage == Some(Sabotage::ThreadsCountTogether) { 0 } else { thread };
            gate.answers = AnswerCounter::new(counts_as);
            gate
        };
        let gates = (0..threads as u16).map(gate).collect();
        Self { doors, numbers: Numbers::default(), gates, streams: BTreeMap::new(), began: now, sabotage }
    }

    /// A session for a process, and how long it lasts.
    pub(crate) fn grant(
        &mut self,
        process: usize,
        protection: Protection,
        incarnation: u64,
        now: Nanos,
    ) -> Option<(SessionGrant, Nanos)> {
        let ip = self.seen(Address::of_lane(process, 0)).ip.into();
        let visitor = Visitor { tenant: None, ip, host: process as u64 };
        let grant = self.doors.session(&mut self.numbers, visitor, protection, incarnation, now)?;
        let lasts = self.doors.left(grant.number, now);
        Some((grant, lasts))
    }

    /// Whether numbers of sessions have room for the hours that there will be then.
    pub(crate) fn may_grant_at(&self, time: Nanos) -> bool {
        let hours = (time - self.began) / self.doors.rules().hour + Nanos::from(SESSION_HOURS);
        hours <= Nanos::from(SessionNumber::EXPIRY_MAX)
    }

    /// Whether a session is over.
    pub(crate) fn is_over(&self, number: SessionNumber, now: Nanos) -> bool {
        now - self.began >= Nanos::from(number.expiry_hours()) * self.doors.rules().hour
    }

    /// A datagram comes to a thread.
    pub(crate) fn admit(&mut self, thread: usize, mut bytes: Vec<u8>, from: Address, now: Nanos) -> Entry {
        if self.sabotage == Some(Sabotage::PlainIsLetIn)
            && split(&bytes).is_ok_and(|message| message.is_some_and(|message| message.bytes() == bytes.len()))
        {
            return Entry::Admitted { plain: bytes, wrap: Wrap::Plain };
        }
        let (from, believed) = (self.seen(from), self.believed(&bytes, now));
        match self.gates[thread].open(&self.doors, &mut bytes, &from, believed) {
            Arrived::Message(message, wrap) => Entry::Admitted { plain: plain(&message), wrap },
            Arrived::Refused(request, code) if request.direction == Direction::Request => {
                Entry::Refused(request.refusal(now, code).seal(&[]).to_vec())
            }
            Arrived::Refused(..) | Arrived::Dropped => Entry::Dropped,
        }
    }

    /// A message comes on a connection of a lane.
    pub(crate) fn admit_on_stream(&mut self, on: Sender, mut bytes: Vec<u8>, from: Address, now: Nanos) -> Entry {
        let (from, believed) = (self.seen(from), self.believed(&bytes, now));
        let key = (on.lane, on.connection);
        if !self.streams.contains_key(&key) {
            let Ok(Some(lane)) = self.doors.lane_of(&bytes, from.ip.into(), believed) else { return Entry::Closed };
            self.streams.insert(key, lane);
        }
        let (lane, length) = (&self.streams[&key], bytes.len());
        match self.doors.open_next(lane, &mut bytes, believed) {
            Ok(Some((opened, taken))) if taken == length => match split_proven(&bytes[..opened]) {
                Ok(Some(message)) => Entry::Admitted { plain: plain(&message), wrap: lane.wrap() },
                _ => Entry::Closed,
            },
            _ => Entry::Closed,
        }
    }

    /// The thread that a lane is told to be for: what else the lane says is sealed for that.
    pub(crate) fn home(&self, thread: usize) -> u32 {
        if self.sabotage == Some(Sabotage::ThreadsAreOne) { 0 } else { thread as u32 }
    }

    /// A connection was welcomed, by the thread that serves it.
    pub(crate) fn settle(&mut self, on: Sender, thread: usize) {
        let home = self.home(thread) as u16;
        if let Some(lane) = self.streams.get_mut(&(on.lane, on.connection)) {
            *lane = self.doors.settled(lane, home);
        }
    }

    /// A connection is over before anything has come of it: the next one has the same number.
    pub(crate) fn hang_up(&mut self, on: Sender) {
        self.streams.remove(&(on.lane, on.connection));
    }

    /// The answer as it goes back to `to`, sealed by a thread.
    pub(crate) fn close(&mut self, thread: usize, to: Sender, answer: &[u8]) -> Vec<u8> {
        let bytes = answer.len();
        let mut room = [answer, &[0; PROOF_BYTES]].concat();
        let gate = &mut self.gates[thread];
        let sealed = match self.streams.get(&(to.lane, to.connection)) {
            Some(lane) if to.wrap != Wrap::Plain => lane.seal(&mut gate.answers, &mut room, bytes),
            _ => gate.close(&self.doors, to.wrap, &mut room, bytes),
        };
        room.truncate(sealed);
        room
    }

    fn seen(&self, from: Address) -> Address {
        match self.sabotage {
            Some(Sabotage::AnyAddress) => Address::new(Ipv6Addr::LOCALHOST.into(), 0),
            _ => from,
        }
    }

    /// The time at which the node looks at a message. Sabotage looks at one of a session that is over when it was not.
    fn believed(&self, bytes: &[u8], now: Nanos) -> Nanos {
        match Frame::parse(bytes) {
            Some(frame) if self.sabotage == Some(Sabotage::EndlessSessions) && self.is_over(frame.number, now) => {
                let end = Nanos::from(frame.number.expiry_hours()).saturating_mul(self.doors.rules().hour);
                self.began.saturating_add(end).saturating_sub(1).max(self.began)
            }
            _ => now,
        }
    }
}

/// A message that was let in, as a plain one. One that was damaged on its way stays so.
fn plain(message: &Message<'_>) -> Vec<u8> {
    match message.verify() {
        Ok(()) => [&message.header.seal(message.payload)[..], message.payload].concat(),
        Err(_) => message.as_bytes().to_vec(),
    }
}
