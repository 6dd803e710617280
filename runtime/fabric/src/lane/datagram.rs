//! [`DatagramLink`]: a connected socket for datagrams, in batches.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt;
use yonder_client::{Client, Config, FRAGMENT_BYTES_MIN};
use yonder_datagram::{DATAGRAM_BYTES_MAX, ReceiveBatch, SendBatch, Wait, path_mtu};
use yonder_intercept::Kept;
use yonder_units::Nanos;
use yonder_wire::{HEADER_BYTES, PROOF_BYTES, split, split_proven};

use super::protection::Protector;
use super::{Condition, Data, compose, sleep_on, take};

/// Datagrams sent or received with one system call.
const BATCH_DATAGRAMS: usize = 32;
/// Bytes of the headers of IPv6 and UDP, which leave the least room.
const NETWORK_HEADER_BYTES: usize = 48;
/// Most payload bytes of a datagram, however much the network takes: a few pages.
const FRAGMENT_BYTES_MAX: usize = 32 << 10;
/// Fragments are multiples of this, so that words and cache lines stay whole.
const FRAGMENT_BYTES_UNIT: usize = 64;
/// Bytes that we ask the kernel to hold for a lane; it may give less.
const RECEIVE_BUFFER_BYTES: usize = 2 << 20;
/// The kernel counts a datagram as more than its bytes: this many times, for a page.
const RECEIVE_BUFFER_PER_BYTE: usize = 3;
/// How long one sleeping call waits: less than until the first retry. Shorter sleeps cost one call more.
const RECEIVE_WAIT: Duration = Duration::from_millis(1);

/// A socket that is connected to a node.
#[derive(Debug)]
pub(super) struct DatagramLink {
    socket: Kept,
    /// What messages are protected with, if they are.
    protector: Option<Protector>,
    received: ReceiveBatch,
    requests: SendBatch,
    /// Datagrams that [`DatagramLink::wait`] has received and nobody has handled.
    has_arrived: bool,
    /// Down from when the network says that nobody listens there until something arrives.
    condition: Condition,
}

impl DatagramLink {
    /// A link over `socket`, and `config` fitted to what the network takes.
    pub(super) fn new(socket: UdpSocket, protector: Option<Protector>, config: Config) -> io::Result<(Self, Config)> {
        let room = path_mtu(socket.as_fd())?.saturating_sub(NETWORK_HEADER_BYTES + HEADER_BYTES + PROOF_BYTES);
        let fragment_bytes =
            (room / FRAGMENT_BYTES_UNIT * FRAGMENT_BYTES_UNIT).clamp(FRAGMENT_BYTES_MIN, FRAGMENT_BYTES_MAX);
        sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES)?;
        socket.set_read_timeout(Some(RECEIVE_WAIT))?;
        let incast_bytes = (sockopt::socket_recv_buffer_size(&socket)? / RECEIVE_BUFFER_PER_BYTE) as u64;
        // Calls of offloads are not cut, and may be longer than a fragment.
        let (received, requests) = (
            ReceiveBatch::new(BATCH_DATAGRAMS, DATAGRAM_BYTES_MAX),
            SendBatch::new(BATCH_DATAGRAMS, DATAGRAM_BYTES_MAX),
        );
        received.accept_trains(socket.as_fd());
        Ok((
            Self {
                socket: Kept::new(socket.into()),
                protector,
                received,
                requests,
                has_arrived: false,
                condition: Condition::Up,
            },
            Config { fragment_bytes, incast_bytes, ..config },
        ))
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn protector(&self) -> Option<&Protector> {
        self.protector.as_ref()
    }

    /// Sends what may be sent, and takes what has arrived.
    pub(super) fn exchange(&mut self, client: &mut Client, now: Nanos, data: &mut impl Data) -> Condition {
        // One that is down is listened to all the same: what is asked of it is given up at once, so that it looks idle.
        let is_used = !client.idle() || self.condition == Condition::Down;
        if is_used && self.try_exchange(client, now, data).is_err() {
            self.condition = Condition::Down;
        }
        self.condition
    }

    /// Fails if the network says that nobody listens there.
    fn try_exchange(&mut self, client: &mut Client, now: Nanos, data: &mut impl Data) -> io::Result<()> {
        if let Some(protector) = &mut self.protector {
            protector.follow();
        }
        let taken = self.take_arrived(client, data);
        let sent = self.send(client, now, data)?;
        // What was sent now is not answered yet, and what had arrived before was taken: the next poll asks the kernel.
        let is_up = self.condition == Condition::Up;
        if is_up && (sent > 0 || (taken > 0 && taken < self.received.slots())) {
            return Ok(());
        }
        loop {
            let count = self.received.receive(self.socket.as_fd(), Wait::Never)?;
            self.has_arrived = count > 0;
            self.take_arrived(client, data);
            self.send(client, now, data)?;
            if count < self.received.slots() {
                return Ok(());
            }
        }
    }

    /// Sleeps until something has arrived or `pause` is over.
    pub(super) fn wait(&mut self, pause: Duration) {
        if pause < RECEIVE_WAIT {
            return sleep_on(&mut [PollFd::new(&self.socket, PollFlags::IN)], pause);
        }
        match self.received.receive(self.socket.as_fd(), Wait::ForOne) {
            Ok(count) => self.has_arrived = count > 0,
            // The socket tells it only once.
            Err(_) => self.condition = Condition::Down,
        }
    }

    /// Handles what was received and not yet handled; how much it was.
    fn take_arrived(&mut self, client: &mut Client, data: &mut impl Data) -> usize {
        if !std::mem::take(&mut self.has_arrived) {
            return 0;
        }
        let now = yonder_clock::now();
        let mut taken = 0;
        for datagram in self.received.datagrams_mut() {
            taken += 1;
            // What is no whole message, or was damaged, is lost like what the network loses: it will be asked for
            // again.
            let message = match &mut self.protector {
                None => split(datagram.bytes).ok().flatten().filter(|message| message.bytes() == datagram.bytes.len()),
                Some(protector) => {
                    let length = datagram.bytes.len();
                    let opened = protector.open(datagram.bytes, now).ok().flatten().filter(|(_, all)| *all == length);
                    opened.and_then(|(bytes, _)| split_proven(&datagram.bytes[..bytes]).ok().flatten())
                }
            };
            if let Some(message) = message.filter(|message| message.verify().is_ok()) {
                take(client, &message, now, data);
                self.condition = Condition::Up;
            }
        }
        taken
    }

    /// Composes and sends what may be sent, for as long as the socket takes it; how much was composed.
    fn send(&mut self, client: &mut Client, now: Nanos, data: &mut impl Data) -> io::Result<usize> {
        let mut sent = 0;
        loop {
            let mut composed = 0;
            while let Some(room) = self.requests.room() {
                let Some(bytes) = compose(client, &mut self.protector, now, data, room) else { break };
                self.requests.push(bytes, None);
                composed += 1;
            }
            if self.requests.is_empty() {
                return Ok(sent);
            }
            sent += composed;
            self.requests.send(self.socket.as_fd())?;
            if composed == 0 || !self.requests.is_empty() {
                return Ok(sent);
            }
        }
    }
}
