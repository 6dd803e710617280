//! memcached over UDP: one request per datagram, each behind a frame of eight bytes; a reply is as many datagrams as
//! it takes.
//!
//! A datagram becomes an exchange with a [`Session`] of its own. Exchanges are bounded: beyond [`EXCHANGES_MAX`] the
//! socket is not read, and the kernel drops what it cannot hold. Replies that the socket does not take at once wait in
//! a bounded queue; what does not fit there is dropped, as UDP allows.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use mio::net::UdpSocket;

use super::buffers::{Input, Output};
use super::registry::{Key, Registry};
use super::report::Traffic;
use super::session::{Next, Session};
use crate::protocol::{Command, StatsKind, reply};

/// Requests being executed or waiting for it.
const EXCHANGES_MAX: usize = 1024;
/// Datagrams read in one turn.
const DATAGRAMS_PER_TURN_MAX: usize = 64;
/// Bytes of replies that may wait for the socket.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// Largest datagram sent.
const DATAGRAM_BYTES_MAX: usize = 1400;
/// Largest datagram that IP can carry.
const RECEIVE_BYTES_MAX: usize = 64 << 10;
const FRAME_BYTES: usize = 8;
/// A reply may exceed the largest value by this.
const REPLY_SLACK_BYTES: usize = 64 << 10;

/// The UDP socket and what came through it.
pub(super) struct UdpPort {
    socket: UdpSocket,
    value_bytes_max: usize,
    exchanges: Registry<Exchange>,
    ready: VecDeque<Key>,
    readable: bool,
    waiting: VecDeque<(SocketAddr, Vec<u8>)>,
    waiting_bytes: usize,
    scratch: Box<[u8]>,
}

struct Exchange {
    peer: SocketAddr,
    request_id: [u8; 2],
    session: Session,
}

impl UdpPort {
    pub(super) fn new(socket: UdpSocket, value_bytes_max: usize) -> Self {
        Self {
            socket,
            value_bytes_max,
            exchanges: Registry::new(),
            ready: VecDeque::new(),
            readable: true,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
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
    pub(super) fn move_datagrams(&mut self, listening: Listening, traffic: &mut Traffic) -> bool {
        while let Some((peer, datagram)) = self.waiting.front() {
            if matches!(self.socket.send_to(datagram, *peer), Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
                break;
            }
            self.waiting_bytes -= datagram.len();
            self.waiting.pop_front();
        }
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
            match exchange.session.next(&mut |kind, output| describe(kind, output, traffic)) {
                Next::Execute(command) => return Some((key, command)),
                Next::Turn => self.ready.push_back(key),
                Next::End | Next::Input { .. } => self.end(key, traffic),
                Next::Output => {
                    exchange.session.output.take();
                    exchange.session.output.push(reply::UDP_TOO_LARGE);
                    self.end(key, traffic);
                }
            }
        }
        None
    }

    /// A command of an exchange has been executed.
    pub(super) fn executed(&mut self, key: Key, reply: Vec<u8>, rest: Option<Command>) {
        if let Some(exchange) = self.exchanges.get_mut(key) {
            exchange.session.executed(reply, rest);
            self.ready.push_back(key);
        }
    }

    fn begin(&mut self, bytes: usize, peer: SocketAddr, traffic: &mut Traffic) {
        let Some((frame, payload)) = self.scratch[..bytes].split_first_chunk::<FRAME_BYTES>() else {
            traffic.datagrams_dropped += 1;
            return;
        };
        let request_id = [frame[0], frame[1]];
        if [frame[4], frame[5]] != [0, 1] {
            self.send(peer, request_id, reply::MULTI_PACKET, traffic);
            return;
        }
        let reply_bytes_max = self.value_bytes_max + REPLY_SLACK_BYTES;
        let session = Session::new(self.value_bytes_max, reply_bytes_max, Input::holding(payload));
        let key = self.exchanges.insert(Exchange { peer, request_id, session });
        self.ready.push_back(key);
    }

    fn end(&mut self, key: Key, traffic: &mut Traffic) {
        if let Some(mut exchange) = self.exchanges.remove(key) {
            let reply = exchange.session.output.take();
            self.send(exchange.peer, exchange.request_id, &reply, traffic);
        }
    }

    fn send(&mut self, peer: SocketAddr, request_id: [u8; 2], reply: &[u8], traffic: &mut Traffic) {
        let pieces = reply.chunks(DATAGRAM_BYTES_MAX - FRAME_BYTES);
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
        if self.waiting_bytes + datagram.len() > WAITING_BYTES_MAX {
            traffic.datagrams_dropped += 1;
            return;
        }
        self.waiting_bytes += datagram.len();
        self.waiting.push_back((peer, datagram));
    }
}

/// Whether new requests are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Listening {
    Yes,
    No,
}
