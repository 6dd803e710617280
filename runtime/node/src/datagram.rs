//! A data thread that serves datagrams: one socket, batches in, batches out.
//!
//! The socket shares its port with those of the other threads; the kernel gives all datagrams of one client's socket to
//! the same thread, as long as no socket comes or goes. So a retry meets the thread that remembers its first attempt.
//! The thread keeps nothing about clients. While full batches come from several of them, they go through a [`Backlog`].

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use yonder_board::{AccountNumber, Admission, Source, may_be_put_off};
use yonder_datagram::{Address, DATAGRAM_BYTES_MAX, ReceiveBatch, SendBatch, Wait};
use yonder_units::Nanos;
use yonder_wire::{Direction, ErrorCode, Header, Kind, Message};

use crate::backlog::{Backlog, Stored, What};
use crate::crowd::Crowd;
use crate::forward::AnswerTo;
use crate::gate::{Arrived, Wrap, tenant_of};
use crate::owned_message::OwnedMessage;
use crate::polling::{Polling, Waiting};
use crate::serve::{Asker, Served, Server, refuse};
use crate::source;
use crate::stats::Batch;

/// Datagrams received and sent with one system call.
const BATCH_DATAGRAMS: usize = 32;
/// Room for the longest datagram.
const DATAGRAM_BYTES: usize = 64 << 10;
/// Datagrams after which no more are taken in before some are executed, while there is a backlog. Those that have come
/// as trains may be more by what one batch has.
const TAKEN_MAX: usize = 256;
/// Datagrams that are executed at once while several senders meet, and bytes of messages with which that ends, both
/// ways: the next one waits for no more of them.
const CROWDED_MAX: usize = 8;
const CROWDED_BYTES: usize = 32 << 10;
/// Bytes with which it ends where one sender is alone.
const ALONE_BYTES: usize = 256 << 10;
/// Whoever is so far beyond its limit is not even answered.
const DEAF_AFTER: Nanos = 250_000_000;

/// Those who have not shown where they are.
const STRANGERS: Source = Source(u64::MAX - 1);

const _: () = assert!(DATAGRAM_BYTES_MAX <= DATAGRAM_BYTES);

/// The body of the thread: serves until the node stops.
pub(crate) fn serve(server: Server, socket: &Arc<UdpSocket>, polling: Polling) {
    let shared = Arc::clone(&server.shared);
    let mut received = ReceiveBatch::new(BATCH_DATAGRAMS, DATAGRAM_BYTES);
    let mut desk = Desk {
        server,
        socket,
        replies: SendBatch::new(BATCH_DATAGRAMS, DATAGRAM_BYTES),
        backlog: Backlog::new(),
        last_plain: (Address::NONE, STRANGERS, AccountNumber::SHARED),
        crowd: Crowd::new(),
    };
    received.accept_trains(socket.as_fd());
    let mut waiting = Waiting::new(polling);
    while !shared.stop.load(Ordering::Acquire) {
        let has_backlog = !desk.backlog.is_empty();
        let wait = if has_backlog || waiting.asks_again() { Wait::Never } else { Wait::ForOne };
        match received.receive(socket.as_fd(), wait) {
            Ok(0) if !has_backlog => waiting.pause(),
            Ok(filled) => {
                waiting.end();
                // A train is one of what was filled, and has many.
                let are_more_than = |most: usize| received.datagrams().nth(most).is_some();
                let is_crowded = desk.crowd.is_there(yonder_clock::now()) && are_more_than(CROWDED_MAX);
                // Who comes behind so many waits for all of them, though there was no crowd.
                let is_flooded = are_more_than(TAKEN_MAX);
                if has_backlog || is_crowded || is_flooded {
                    desk.take_in(&mut received, filled);
                    desk.serve_backlog();
                } else {
                    desk.serve_batch(&mut received);
                }
                waiting.begin();
            }
            // What the network says of an earlier answer concerns nobody here: its client will ask again, or is gone.
            Err(error) => tracing::debug!("receiving a datagram failed: {error}"),
        }
    }
}

/// The thread's state.
struct Desk<'a> {
    server: Server,
    socket: &'a Arc<UdpSocket>,
    replies: SendBatch,
    backlog: Backlog,
    /// The sender that was seen last without a session.
    last_plain: (Address, Source, AccountNumber),
    /// While it is crowded there may be a backlog.
    crowd: Crowd,
}

impl Desk<'_> {
    /// Executes what has come, in its order.
    fn serve_batch(&mut self, received: &mut ReceiveBatch) {
        let shared = Arc::clone(&self.server.shared);
        let mut batch = Batch::default();
        let visit = Server::begin(&shared, self.server.number());
        let now = yonder_clock::now();
        for datagram in received.datagrams_mut() {
            match self.open(datagram.bytes, datagram.is_cut, datagram.from, now) {
                Arrived::Message(message, wrap) => {
                    let account = self.account_of(&message.header, wrap, datagram.from, now).1;
                    self.execute(&message, Asker { wrap, account }, datagram.from, now, &mut batch);
                }
                Arrived::Refused(request, code) => {
                    self.crowd.meets(STRANGERS, now);
                    self.refuse(&request, code, datagram.from, now, &mut batch);
                }
                Arrived::Dropped => batch.bad_datagrams += 1,
            }
        }
        drop(visit);
        self.server.end_batch(&mut batch);
        self.send();
    }

    /// Takes in what has come, and what comes behind it for a while.
    fn take_in(&mut self, received: &mut ReceiveBatch, mut filled: usize) {
        let shared = Arc::clone(&self.server.shared);
        let mut batch = Batch::default();
        let now = yonder_clock::now();
        let mut taken = 0;
        while filled > 0 {
            for datagram in received.datagrams_mut() {
                taken += 1;
                let from = *datagram.from;
                let (source, account, what) = match self.open(datagram.bytes, datagram.is_cut, &from, now) {
                    Arrived::Message(message, wrap) => {
                        let (source, account) = self.account_of(&message.header, wrap, &from, now);
                        if may_be_put_off(&message.header) && self.is_deaf_to(account, now) {
                            shared.board.accounts().get(account).shed(1);
                            continue;
                        }
                        (source, account, What::Execute(OwnedMessage::new(&message), wrap))
                    }
                    Arrived::Refused(request, code) => {
                        self.crowd.meets(STRANGERS, now);
                        (STRANGERS, AccountNumber::SHARED, What::Refuse(Box::new(request), code))
                    }
                    Arrived::Dropped => {
                        batch.bad_datagrams += 1;
                        continue;
                    }
                };
                let lost = |account| shared.board.accounts().get(account).shed(1);
                self.backlog.put(source, Stored { from, account, what }, lost);
            }
            if filled < BATCH_DATAGRAMS || taken >= TAKEN_MAX {
                break;
            }
            filled = received.receive(self.socket.as_fd(), Wait::Never).unwrap_or(0);
        }
        self.server.end_batch(&mut batch);
    }

    /// Whether an account owes so much that its requests are not even refused.
    fn is_deaf_to(&self, account: AccountNumber, now: Nanos) -> bool {
        let admission = self.server.shared.board.accounts().get(account).admits(now);
        matches!(admission, Admission::From(due) if due.saturating_sub(now) >= DEAF_AFTER)
    }

    /// Executes some of the backlog.
    fn serve_backlog(&mut self) {
        let shared = Arc::clone(&self.server.shared);
        let mut batch = Batch::default();
        let mut visit = Server::begin(&shared, self.server.number());
        let now = yonder_clock::now();
        let (mut last, mut bytes) = (None, 0);
        // Who is alone in it has as much at once as without it, so that it costs no more than to look for others.
        let is_alone = self.backlog.parties() <= 1;
        let (items_max, bytes_max) = if is_alone { (TAKEN_MAX, ALONE_BYTES) } else { (CROWDED_MAX, CROWDED_BYTES) };
        for _ in 0..items_max {
            let Some((source, Stored { from, account, what })) = self.backlog.next() else { break };
            if last.replace(source).is_some_and(|last| last != source) {
                // Answers, which are counted before, wait for no one else's requests.
                bytes += batch.bytes();
                drop(visit);
                self.server.end_batch(&mut batch);
                batch = Batch::default();
                self.send();
                visit = Server::begin(&shared, self.server.number());
            }
            let spent = batch.bytes();
            match what {
                What::Execute(message, wrap) => {
                    self.execute(&message.get(), Asker { wrap, account }, &from, now, &mut batch);
                }
                What::Refuse(request, code) => self.refuse(&request, code, &from, now, &mut batch),
            }
            self.backlog.charge(source, batch.bytes().saturating_sub(spent));
            if bytes + batch.bytes() >= bytes_max {
                break;
            }
        }
        self.backlog.forgive();
        drop(visit);
        self.server.end_batch(&mut batch);
        self.send();
    }

    /// Who has sent a message that was let in.
    #[inline]
    fn account_of(&mut self, header: &Header, wrap: Wrap, from: &Address, now: Nanos) -> (Source, AccountNumber) {
        let accounts = self.server.shared.board.accounts();
        let (source, account) = match tenant_of(wrap) {
            Some(source) => (source, accounts.number_of(source)),
            // Its address may be anybody's.
            None if header.kind == Kind::Hello && wrap == Wrap::Plain => (STRANGERS, AccountNumber::SHARED),
            None if self.last_plain.0 == *from => (self.last_plain.1, self.last_plain.2),
            None => {
                let unspecified = std::net::Ipv6Addr::UNSPECIFIED.into();
                let source = source::of_address(from.to_socket_addr().map_or(unspecified, |from| from.ip()));
                let account = accounts.number_of(source);
                self.last_plain = (*from, source, account);
                (source, account)
            }
        };
        self.crowd.meets(source, now);
        (source, account)
    }

    #[inline]
    fn open<'a>(&mut self, bytes: &'a mut [u8], is_cut: bool, from: &Address, now: Nanos) -> Arrived<'a> {
        if is_cut { Arrived::Dropped } else { self.server.gate.open(bytes, from, now) }
    }

    #[inline]
    fn execute(&mut self, message: &Message<'_>, asker: Asker, from: &Address, now: Nanos, batch: &mut Batch) {
        if self.replies.is_full() {
            self.send();
        }
        // Answers that the socket has not taken are lost like those that the network loses.
        let Some(reply) = self.replies.room() else { return };
        let account = self.server.shared.board.accounts().get(asker.account);
        if let Admission::From(due) = account.admits(now)
            && message.header.direction == Direction::Request
            && may_be_put_off(&message.header)
        {
            account.shed(1);
            if due.saturating_sub(now) < DEAF_AFTER {
                batch.answered(&message.header, ErrorCode::Busy as u16);
                let bytes = refuse(&message.header, now, ErrorCode::Busy, reply);
                let bytes = self.server.gate.close(asker.wrap, reply, bytes);
                self.replies.push(bytes, Some(from));
            }
            return;
        }
        let socket = self.socket;
        let answer_to = || Some(AnswerTo::Datagram { socket: Arc::clone(socket), to: *from, wrap: asker.wrap });
        let room = DATAGRAM_BYTES_MAX - asker.wrap.bytes();
        match self.server.serve(message, &mut reply[..room], batch, asker, answer_to) {
            Served::Answered(bytes) => {
                let bytes = self.server.gate.close(asker.wrap, reply, bytes);
                self.replies.push(bytes, Some(from));
            }
            Served::Forwarded => {}
            Served::NotARequest => batch.bad_datagrams += 1,
        }
    }

    fn refuse(&mut self, request: &Header, code: ErrorCode, from: &Address, now: Nanos, batch: &mut Batch) {
        if request.direction == Direction::Answer {
            batch.bad_datagrams += 1;
            return;
        }
        if self.replies.is_full() {
            self.send();
        }
        let Some(reply) = self.replies.room() else { return };
        batch.answered(request, code as u16);
        let bytes = refuse(request, now, code, reply);
        self.replies.push(bytes, Some(from));
    }

    fn send(&mut self) {
        if let Err(error) = self.replies.send(self.socket.as_fd()) {
            tracing::debug!("sending answers failed: {error}");
        }
    }
}
