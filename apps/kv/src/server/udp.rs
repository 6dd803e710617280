//! memcached over UDP: one request per datagram, each behind a frame of eight bytes; a reply is as many datagrams as
//! it takes.
//!
//! A datagram becomes an exchange with a [`Session`] of its own. Exchanges are bounded: beyond [`EXCHANGES_MAX`] the
//! socket is not read, and the kernel drops what it cannot hold; an exchange that needs memory which the others have,
//! or other clients, is dropped, as UDP allows. Replies that the socket does not take at once wait in a bounded queue;
//! what does not fit there is dropped as well.
//!
//! A source may be forged, and memcached's protocol has no way to prove one. Only what the [`Allowances`] of a source
//! permit is sent to it, unless it is known to be true ([`UdpTrust`]).

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use mio::net::UdpSocket;
use yonder_units::Nanos;

use super::allowance::Allowances;
use super::budget::{Budget, Charge};
use super::buffers::{Input, Output};
use super::registry::{Key, Registry};
use super::report::Traffic;
use super::session::{Inquiry, Next, Session};
use super::{KvConfig, UdpTrust};
use crate::protocol::{Command, StatsKind, reply};
use crate::store::Execution;

/// Requests being executed or waiting for it.
const EXCHANGES_MAX: usize = 1024;
/// Datagrams read in one turn.
const DATAGRAMS_PER_TURN_MAX: usize = 64;
/// Bytes of replies that may wait for the socket.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// What all exchanges may have allocated, and how many of the largest replies at least.
const EXCHANGE_BYTES_MAX: usize = 16 << 20;
const LARGE_REPLIES: usize = 4;
/// What an exchange may have allocated and is not charged for to the budget of all clients: most have less.
const FREE_BYTES: usize = 2 << 10;
/// Largest datagram sent.
const DATAGRAM_BYTES_MAX: usize = 1400;
/// Largest datagram that IP can carry.
const RECEIVE_BYTES_MAX: usize = 64 << 10;
const FRAME_BYTES: usize = 8;
/// The part of a reply that fits one datagram.
const PIECE_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - FRAME_BYTES;
/// A reply may exceed the largest value by this.
const REPLY_SLACK_BYTES: usize = 64 << 10;

/// The UDP socket and what came through it.
pub(super) struct UdpPort {
    socket: UdpSocket,
    value_bytes_max: usize,
    trust: UdpTrust,
    allowances: Allowances,
    now: Nanos,
    exchanges: Registry<Exchange>,
    /// What the exchanges have allocated.
    budget: Budget,
    ready: VecDeque<Key>,
    readable: bool,
    waiting: VecDeque<(SocketAddr, Vec<u8>)>,
    waiting_bytes: usize,
    waiting_charge: Charge,
    scratch: Box<[u8]>,
}

struct Exchange {
    question: Question,
    session: Session,
    /// Of what all exchanges may have.
    charge: Charge,
    /// Of what all clients may have.
    shared: Charge,
}

/// What an answer has to know of the datagram that asked for it.
#[derive(Clone, Copy)]
struct Question {
    peer: SocketAddr,
    request_id: [u8; 2],
    bytes: usize,
}

impl UdpPort {
    pub(super) fn new(socket: UdpSocket, config: &KvConfig) -> Self {
        let exchange_bytes_max = EXCHANGE_BYTES_MAX.max(LARGE_REPLIES * reply_bytes_max(config.value_bytes_max));
        Self {
            socket,
            value_bytes_max: config.value_bytes_max,
            trust: config.udp_trust,
            allowances: Allowances::new(),
            now: 0,
            exchanges: Registry::new(),
            budget: Budget::new(exchange_bytes_max),
            ready: VecDeque::new(),
            readable: true,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            waiting_charge: Charge::default(),
            scratch: vec![0; RECEIVE_BYTES_MAX].into_boxed_slice(),
        }
    }

    pub(super) fn socket(&mut self) -> &mut UdpSocket {
        &mut self.socket
    }

    /// The socket is ready for something.
    pub(super) fn note_ready(&mut self) {
        self.readable = true;
    }

    /// Whether a turn would find work at once.
    pub(super) fn has_work(&self) -> bool {
        !self.ready.is_empty() || (self.readable && self.exchanges.len() < EXCHANGES_MAX)
    }

    /// Whether no request is under way and no reply waits.
    pub(super) fn is_idle(&self) -> bool {
        self.exchanges.len() == 0 && self.waiting.is_empty()
    }

    /// Sends what waits, and reads what has come if requests are still taken. Returns whether it did anything.
    pub(super) fn move_datagrams(&mut self, listening: Listening, now: Nanos, traffic: &mut Traffic) -> bool {
        self.now = now;
        while let Some((peer, datagram)) = self.waiting.front() {
            if matches!(self.socket.send_to(datagram, *peer), Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
                break;
            }
            self.waiting_bytes -= datagram.len();
            self.waiting.pop_front();
        }
        let fits = traffic.buffers.charge(&mut self.waiting_charge, self.waiting_bytes);
        debug_assert!(fits, "there is always room for less");
        let mut received = 0;
        while listening == Listening::Yes
            && self.readable
            && received < DATAGRAMS_PER_TURN_MAX
            && self.exchanges.len() < EXCHANGES_MAX
        {
            match self.socket.recv_from(&mut self.scratch) {
                Ok((bytes, peer)) => {
                    received += 1;
                    traffic.bytes_read += bytes as u64;
                    if !self.trust.includes(peer.ip()) {
                        self.allowances.received(peer.ip(), bytes, now);
                    }
                    self.begin(bytes, peer, traffic);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable = false,
                // Errors of earlier sends are reported here; they concern one peer, not the socket.
                Err(_) => received += 1,
            }
        }
        received > 0
    }

    /// The next command to be executed. Exchanges that end are answered.
    pub(super) fn next_command(
        &mut self,
        traffic: &mut Traffic,
        describe: &mut dyn FnMut(StatsKind, &mut Output, &mut Traffic),
    ) -> Option<(Key, Command)> {
        while let Some(key) = self.ready.pop_front() {
            let Some(exchange) = self.exchanges.get_mut(key) else { continue };
            let next = exchange.session.next(&mut |inquiry, output| match inquiry {
                Inquiry::Stats(kind) => describe(kind, output, traffic),
                // UDP and TLS exclude one another.
                Inquiry::RefreshCertificates => output.push(reply::NO_TLS),
                // Anybody may have sent it.
                Inquiry::Shutdown => output.push(reply::SHUTDOWN_REFUSED),
            });
            if !self.settle(key, traffic) {
                self.drop_exchange(key, traffic);
                continue;
            }
            match next {
                Next::Execute(command) => return Some((key, command)),
                Next::Turn => self.ready.push_back(key),
                // Whoever asks may get no more than that they asked.
                Next::List => self.end_with(key, Some(reply::ERROR), traffic),
                Next::End | Next::Input { .. } => self.end_with(key, None, traffic),
                Next::Output => self.end_with(key, Some(reply::UDP_TOO_LARGE), traffic),
            }
        }
        None
    }

    /// A command of an exchange has been executed.
    pub(super) fn executed(&mut self, key: Key, execution: Execution, charge: Charge, traffic: &mut Traffic) {
        let Some(exchange) = self.exchanges.get_mut(key) else { return traffic.buffers.release(charge) };
        exchange.shared.add(charge);
        exchange.session.executed(execution.reply, execution.rest);
        if self.settle(key, traffic) {
            self.ready.push_back(key);
        } else {
            self.drop_exchange(key, traffic);
        }
    }

    fn begin(&mut self, bytes: usize, peer: SocketAddr, traffic: &mut Traffic) {
        let Some((frame, payload)) = self.scratch[..bytes].split_first_chunk::<FRAME_BYTES>() else {
            traffic.datagrams_dropped += 1;
            return;
        };
        let question = Question { peer, request_id: [frame[0], frame[1]], bytes };
        if [frame[4], frame[5]] != [0, 1] {
            self.answer(question, reply::MULTI_PACKET, traffic);
            return;
        }
        let session =
            Session::new(self.value_bytes_max, reply_bytes_max(self.value_bytes_max), Input::holding(payload));
        let (charge, shared) = (Charge::default(), Charge::default());
        let key = self.exchanges.insert(Exchange { question, session, charge, shared });
        if self.settle(key, traffic) {
            self.ready.push_back(key);
        } else {
            self.drop_exchange(key, traffic);
        }
    }

    /// Charges an exchange for what it has allocated. Returns whether there was room; without it, it is to be dropped.
    fn settle(&mut self, key: Key, traffic: &mut Traffic) -> bool {
        let Some(exchange) = self.exchanges.get_mut(key) else { return true };
        let bytes = exchange.session.allocated_bytes();
        self.budget.charge(&mut exchange.charge, bytes)
            && traffic.buffers.charge(&mut exchange.shared, bytes.saturating_sub(FREE_BYTES))
    }

    fn remove(&mut self, key: Key, traffic: &mut Traffic) -> Option<(Question, Session)> {
        let exchange = self.exchanges.remove(key)?;
        self.budget.release(exchange.charge);
        traffic.buffers.release(exchange.shared);
        Some((exchange.question, exchange.session))
    }

    fn drop_exchange(&mut self, key: Key, traffic: &mut Traffic) {
        traffic.datagrams_dropped += 1;
        self.remove(key, traffic);
    }

    /// Ends an exchange with its output, or with something else in place of that.
    fn end_with(&mut self, key: Key, instead: Option<&[u8]>, traffic: &mut Traffic) {
        if let Some((question, mut session)) = self.remove(key, traffic) {
            let output = session.output.take();
            self.answer(question, instead.unwrap_or(&output), traffic);
        }
    }

    /// Sends a reply if its receiver may have it; else the error, if that is no longer than the question.
    fn answer(&mut self, question: Question, reply: &[u8], traffic: &mut Traffic) {
        let error = reply::UDP_TOO_LARGE;
        if self.may_send(question.peer, reply) {
            self.send(question, reply, traffic);
        } else if sent_bytes(error) <= question.bytes && self.may_send(question.peer, error) {
            self.send(question, error, traffic);
        } else {
            traffic.answers_withheld += 1;
        }
    }

    fn may_send(&mut self, peer: SocketAddr, reply: &[u8]) -> bool {
        self.trust.includes(peer.ip()) || self.allowances.spend(peer.ip(), sent_bytes(reply), self.now)
    }

    fn send(&mut self, Question { peer, request_id, .. }: Question, reply: &[u8], traffic: &mut Traffic) {
        let pieces = reply.chunks(PIECE_BYTES_MAX);
        let total = u16::try_from(pieces.len()).unwrap_or(u16::MAX).to_be_bytes();
        for (number, piece) in pieces.enumerate() {
            let number = (number as u16).to_be_bytes();
            let mut datagram = Vec::with_capacity(FRAME_BYTES + piece.len());
            datagram.extend_from_slice(&[request_id[0], request_id[1], number[0], number[1], total[0], total[1], 0, 0]);
            datagram.extend_from_slice(piece);
            traffic.bytes_written += datagram.len() as u64;
            self.send_datagram(peer, datagram, traffic);
        }
    }

    fn send_datagram(&mut self, peer: SocketAddr, datagram: Vec<u8>, traffic: &mut Traffic) {
        let blocked = !self.waiting.is_empty()
            || matches!(self.socket.send_to(&datagram, peer), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        if !blocked {
            return;
        }
        let waiting_bytes = self.waiting_bytes + datagram.len();
        if waiting_bytes > WAITING_BYTES_MAX || !traffic.buffers.charge(&mut self.waiting_charge, waiting_bytes) {
            traffic.datagrams_dropped += 1;
            return;
        }
        self.waiting_bytes = waiting_bytes;
        self.waiting.push_back((peer, datagram));
    }
}

/// A reply is replaced by an error when it has grown beyond this.
fn reply_bytes_max(value_bytes_max: usize) -> usize {
    value_bytes_max + REPLY_SLACK_BYTES
}

/// What is sent for a reply, all frames included.
fn sent_bytes(reply: &[u8]) -> usize {
    reply.len() + FRAME_BYTES * reply.len().div_ceil(PIECE_BYTES_MAX)
}

/// Whether new requests are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Listening {
    Yes,
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_that_are_not_whole_have_a_bound_together() {
        const EXCHANGES: usize = 40;
        let socket = UdpSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("loopback has free ports");
        let address = socket.local_addr().expect("bound");
        let mut port = UdpPort::new(socket, &KvConfig::new(address));
        let all = Budget::new(2 * EXCHANGE_BYTES_MAX);
        let mut traffic = Traffic::new(all.clone());
        let client = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback has free ports");
        for _ in 0..EXCHANGES {
            client.send_to(b"\0\x01\0\0\0\x01\0\0get a b\r\n", address).expect("sent");
        }
        let mut commands = Vec::new();
        while commands.len() < EXCHANGES {
            port.note_ready();
            port.move_datagrams(Listening::Yes, 1, &mut traffic);
            while let Some(command) = port.next_command(&mut traffic, &mut |_, _, _| {}) {
                commands.push(command);
            }
        }
        for (key, command) in commands {
            let execution = Execution { reply: vec![0; 1 << 20], rest: Some(command) };
            port.executed(key, execution, Charge::default(), &mut traffic);
            let held: usize = port.exchanges.iter().map(|(_, exchange)| exchange.session.allocated_bytes()).sum();
            assert!(held <= EXCHANGE_BYTES_MAX, "{held} bytes wait for the rest of their replies");
        }
        assert!(port.exchanges.len() >= 15, "{} are left", port.exchanges.len());
        assert_eq!(traffic.datagrams_dropped as usize + port.exchanges.len(), EXCHANGES);
        assert!(all.taken_bytes() >= 14 << 20, "they count for all clients");
        port.exchanges.keys().into_iter().for_each(|key| port.drop_exchange(key, &mut traffic));
        assert_eq!(all.taken_bytes(), 0);
    }
}
