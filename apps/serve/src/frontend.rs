//! The server's socket, on the dispatcher thread: [`UdpFrontend`] makes requests of datagrams and datagrams of replies.
//!
//! A request is admitted and answered if it shows the token of its sender's address; to another goes that token and no
//! more (`address_tokens`).
//!
//! Nothing here blocks but `wait`. Requests wait here for workers, as many as there is room for; the kernel drops what
//! it cannot hold beyond that, and this drops of a reply what the socket does not take: whoever asks by datagrams asks
//! again.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token, Waker};
use rand::TryRngCore as _;
use rand::rngs::OsRng;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use yonder::sched::{Activity, Done, Frontend, Outcome};
use yonder::units::Nanos;
use yonder_datagram::{ReceiveBatch, SendBatch, Wait};

use crate::Protocol;
use crate::address_tokens::AddressTokens;
use crate::handler::{Answered, Asked, From};
use crate::wire::{
    self, PIECE_BYTES, Question, RECEIVE_BUFFER_BYTES, REPLY_HEAD, REQUEST_BYTES_MAX, REQUEST_HEAD, Status,
};

/// Datagrams read and sent with one system call.
const RECEIVED_MAX: usize = 64;
const SENT_MAX: usize = 256;
/// Requests that wait for a worker: the kernel has room for some hundreds only, and drops what comes while they wait.
const ASKED_MAX: usize = 8192;

const SOCKET: Token = Token(0);
const WAKER: Token = Token(1);

/// Why a server cannot start. The text says what to type.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on udp {address}: {cause}; type --listen with a free address, such as 127.0.0.1:11311")]
    Listen {
        /// As configured.
        address: SocketAddr,
        /// What the operating system said.
        cause: io::Error,
    },
    /// The operating system refused something else.
    #[error("cannot set up the server's socket: {0}; `ulimit -n` shows how many files it may open")]
    System(#[from] io::Error),
}

/// Tells a server to end: what is under way is answered.
#[derive(Clone)]
pub struct Shutdown {
    requested: Arc<AtomicBool>,
    waker: Arc<Waker>,
}

impl Shutdown {
    /// Ends the server. Returns at once; may be called from any thread and more than once.
    pub fn request(&self) {
        self.requested.store(true, Ordering::Release);
        // Waking fails only when the front end is gone already.
        let _ = self.waker.wake();
    }
}

/// A server that is bound to its address, and not yet serving.
pub struct UdpServer {
    poll: Poll,
    socket: UdpSocket,
    address: SocketAddr,
    tokens: AddressTokens,
    shutdown: Shutdown,
}

impl UdpServer {
    /// Binds `address`; port 0 takes any free port.
    ///
    /// # Errors
    /// If the address is taken or not ours.
    pub fn bind(address: SocketAddr) -> Result<Self, ServeError> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let mut socket = UdpSocket::bind(address).map_err(|cause| ServeError::Listen { address, cause })?;
        poll.registry().register(&mut socket, SOCKET, Interest::READABLE | Interest::WRITABLE)?;
        set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES).map_err(io::Error::from)?;
        let address = socket.local_addr()?;
        let mut key = [0; 16];
        OsRng.try_fill_bytes(&mut key).map_err(io::Error::other)?;
        let (tokens, shutdown) = (AddressTokens::new(&key), Shutdown { requested: Arc::default(), waker });
        Ok(Self { poll, socket, address, tokens, shutdown })
    }

    /// Where requests arrive, with the real port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the server when asked to.
    #[must_use]
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// The dispatcher's side. Who asks who the server is gets `about`, at most [`PIECE_BYTES`] of text.
    #[must_use]
    pub fn into_frontend<P: Protocol>(self, about: String) -> UdpFrontend<P> {
        assert!(about.len() <= PIECE_BYTES, "{} bytes about a server", about.len());
        UdpFrontend {
            poll: self.poll,
            events: Events::with_capacity(8),
            socket: self.socket,
            tokens: self.tokens,
            shutdown: self.shutdown,
            about,
            arrived: ReceiveBatch::new(RECEIVED_MAX, REQUEST_HEAD + REQUEST_BYTES_MAX),
            asked: VecDeque::with_capacity(ASKED_MAX),
            replies: SendBatch::new(SENT_MAX, REPLY_HEAD + PIECE_BYTES),
            is_ended: false,
        }
    }
}

/// The dispatcher's side of a server.
pub struct UdpFrontend<P: Protocol> {
    poll: Poll,
    events: Events,
    socket: UdpSocket,
    tokens: AddressTokens,
    shutdown: Shutdown,
    about: String,
    arrived: ReceiveBatch,
    /// Requests that have arrived and are not admitted.
    asked: VecDeque<Asked<P::Request>>,
    replies: SendBatch,
    is_ended: bool,
}

impl<P: Protocol> UdpFrontend<P> {
    /// Reads what has come, and answers what needs no worker. How many datagrams there were.
    fn receive(&mut self, now: Nanos) -> usize {
        // An error of the socket is that of a reply to somebody who has gone.
        let count = self.arrived.receive(self.socket.as_fd(), Wait::Never).unwrap_or(0);
        let Self { arrived, asked, replies, socket, tokens, about, .. } = self;
        let mut reply = |to: From, status, body: &[u8]| send(replies, socket, to, status, body);
        for datagram in arrived.datagrams() {
            let Some(Question { id, token, body }) = Question::of(datagram.bytes) else { continue };
            let Some(peer) = datagram.from.to_socket_addr() else { continue };
            let from = From { peer: *datagram.from, id };
            if let Err(token) = tokens.check(peer, token, now) {
                // Before anything else is done for an address that may be forged.
                reply(from, Status::Prove, &token.to_le_bytes());
            } else if datagram.is_cut {
                let text = format!("a request is longer than {REQUEST_BYTES_MAX} bytes");
                reply(from, Status::BadRequest, text.as_bytes());
            } else if body.is_empty() {
                reply(from, Status::Answer, about.as_bytes());
            } else {
                match P::request(body) {
                    Ok(request) => asked.push_back(Asked { from, request }),
                    Err(text) => reply(from, Status::BadRequest, text.as_bytes()),
                }
            }
        }
        count
    }

    /// Sends what waits, as far as the socket takes it.
    fn flush(&mut self) {
        if !self.replies.is_empty() {
            // As above.
            let _ = self.replies.send(self.socket.as_fd());
        }
    }
}

/// Composes a reply and sends it when enough have come together. What the socket does not take then is dropped with the
/// rest of its reply.
fn send(replies: &mut SendBatch, socket: &UdpSocket, to: From, status: Status, body: &[u8]) {
    let pieces = wire::pieces(to.id, status, body).expect("a reply that is too long is not made");
    for (head, part) in pieces {
        if replies.is_full() {
            let _ = replies.send(socket.as_fd());
        }
        let Some(room) = replies.room() else { return };
        room[..REPLY_HEAD].copy_from_slice(&head);
        room[REPLY_HEAD..REPLY_HEAD + part.len()].copy_from_slice(part);
        replies.push(REPLY_HEAD + part.len(), Some(&to.peer));
    }
}

impl<P: Protocol> Frontend for UdpFrontend<P> {
    type Request = Asked<P::Request>;
    type Reply = Answered;

    fn poll(&mut self, now: Nanos, room: usize, admit: &mut dyn FnMut(Self::Request)) -> Activity {
        self.is_ended = self.shutdown.requested.load(Ordering::Acquire);
        let has_room = self.asked.len() + RECEIVED_MAX <= ASKED_MAX;
        let received = if has_room && !self.is_ended { self.receive(now) } else { 0 };
        let admitted = self.asked.len().min(room);
        self.asked.drain(..admitted).for_each(admit);
        self.flush();
        if received + admitted > 0 { Activity::Busy } else { Activity::Idle }
    }

    fn complete(&mut self, _: Nanos, done: Done<Answered>) {
        // Who is not answered asks again; a panic has been reported where it happened.
        let Outcome::Reply(Answered { to, status, body }) = done.outcome else { return };
        send(&mut self.replies, &self.socket, to, status, &body);
    }

    fn wait(&mut self, timeout: Duration) {
        // Nothing but a signal ends the wait with an error; the next turn asks again.
        let _ = self.poll.poll(&mut self.events, Some(timeout));
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let waker = Arc::clone(&self.shutdown.waker);
        Arc::new(move || _ = waker.wake())
    }

    fn is_finished(&self) -> bool {
        self.is_ended && self.asked.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(20);
    const NONE: [Vec<u8>; 0] = [];
    const ABOUT: &str = "a server of bytes, which says more of itself than it was asked";
    /// How long a token is good, at most.
    const TOKEN_AGE_MAX: Nanos = 128_000_000_000;

    /// Any bytes but `?`.
    struct Bytes;

    impl Protocol for Bytes {
        type Request = Vec<u8>;
        type Answer = Vec<u8>;

        fn put_request(request: &Vec<u8>, to: &mut Vec<u8>) {
            to.extend_from_slice(request);
        }

        fn request(bytes: &[u8]) -> Result<Vec<u8>, String> {
            if bytes == b"?" { Err("a question mark is no request".to_owned()) } else { Ok(bytes.to_vec()) }
        }

        fn put_answer(answer: &Vec<u8>, to: &mut Vec<u8>) {
            to.extend_from_slice(answer);
        }

        fn answer(bytes: &[u8]) -> Option<Vec<u8>> {
            Some(bytes.to_vec())
        }
    }

    /// A front end without a dispatcher, and the time that it is told.
    struct Alone {
        frontend: UdpFrontend<Bytes>,
        address: SocketAddr,
        now: Nanos,
    }

    impl Alone {
        fn new() -> Self {
            let server = UdpServer::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let address = server.address();
            Self { frontend: server.into_frontend(ABOUT.to_owned()), address, now: 0 }
        }

        /// What is admitted when `client` sends a datagram.
        fn admitted(&mut self, client: &UdpSocket, datagram: &[u8]) -> Vec<Vec<u8>> {
            client.send_to(datagram, self.address).unwrap();
            let mut admitted = Vec::new();
            let mut admit = |asked: Asked<Vec<u8>>| admitted.push(asked.request);
            while self.frontend.poll(self.now, ASKED_MAX, &mut admit) == Activity::Idle {
                self.frontend.wait(TIMEOUT);
            }
            admitted
        }

        /// The reply when `client` sends a datagram that is not admitted.
        fn reply(&mut self, client: &UdpSocket, datagram: &[u8]) -> Vec<u8> {
            assert_eq!(self.admitted(client, datagram), NONE);
            let mut reply = [0; 2000];
            let bytes = client.recv(&mut reply).unwrap();
            reply[..bytes].to_vec()
        }

        /// The token of `client`.
        fn token(&mut self, client: &UdpSocket) -> u64 {
            let reply = self.reply(client, &question(0, b"what"));
            wire::Piece::of(&reply).and_then(|piece| piece.token()).expect("a token")
        }
    }

    fn client() -> UdpSocket {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        client
    }

    fn question(token: u64, body: &[u8]) -> Vec<u8> {
        [&wire::request_head(5, token)[..], body].concat()
    }

    #[test]
    fn what_does_not_prove_its_address_is_not_admitted_and_gets_no_more_than_it_has_sent() {
        let (mut server, client, other) = (Alone::new(), client(), client());
        let (token, others) = (server.token(&client), server.token(&other));
        let bodies = [&b""[..], b"?", b"what", &[1; REQUEST_BYTES_MAX], &[1; REQUEST_BYTES_MAX + 1]];
        for token in [0, u64::MAX, token ^ 1, token ^ 2, others] {
            for body in bodies {
                let reply = server.reply(&client, &question(token, body));
                assert_eq!(reply.len(), REQUEST_HEAD, "for {} bytes with {token}", body.len());
            }
        }
        // What is no request gets no reply: the next that comes is that to the next request.
        let whole = question(token, b"");
        for bytes in 0..whole.len() {
            assert_eq!(server.admitted(&client, &whole[..bytes]), NONE, "{bytes} bytes");
        }
        assert!(server.reply(&client, &whole).ends_with(ABOUT.as_bytes()));
        assert!(server.reply(&client, &question(token, b"?")).ends_with(b"a question mark is no request"));
        assert_eq!(server.admitted(&client, &question(token, b"what")), [b"what"]);
    }

    #[test]
    fn a_token_is_renewed_when_it_is_too_old() {
        let (mut server, client) = (Alone::new(), client());
        let old = server.token(&client);
        server.now = TOKEN_AGE_MAX - 1;
        assert_eq!(server.admitted(&client, &question(old, b"what")), [b"what"]);
        server.now = TOKEN_AGE_MAX;
        assert_eq!(server.reply(&client, &question(old, b"what")).len(), REQUEST_HEAD);
        let new = server.token(&client);
        assert_eq!(server.admitted(&client, &question(new, b"what")), [b"what"]);
        assert_eq!(server.reply(&client, &question(old, b"what")).len(), REQUEST_HEAD);
    }
}
