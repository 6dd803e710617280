//! The control thread: accepts connections, waits for their greetings, and deals them to the data threads.
//!
//! A peer that comes back names the thread that served it before and gets it again, because that thread remembers what
//! it has executed. The others are dealt in turn.
//!
//! Connections that have not greeted are few: for a new one the oldest goes, of the source that has most of them. Those
//! that have greeted are counted by `connections`.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, sockopt};
use yonder_board::Source;
use yonder_datagram::peer::Peer;
use yonder_session::AnswerCounter;
use yonder_units::Narrow;
use yonder_wire::ErrorCode;

use crate::closed::Closed;
use crate::connection::{Connection, Transport};
use crate::connections::Guest;
use crate::event_loop::{Arrival, Inbox, Poll, close};
use crate::listen::{Listen, Listener};
use crate::{Shared, sessions, source};

/// Idle time after which the kernel asks whether the peer is there, how often, and how many times.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES_MAX: u32 = 3;
/// Pause after the operating system has refused a connection, such as for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

struct Control {
    shared: Arc<Shared>,
    poll: Poll,
    listeners: Vec<(u64, Arc<Listener>)>,
    /// Connections whose peers have not greeted.
    silent: HashMap<u64, Connection>,
    /// The data threads that serve connections, by their numbers.
    homes: Vec<(u32, Arc<Inbox>)>,
    next_home: usize,
    /// Numbers of the welcomes.
    answers: AnswerCounter,
    /// When the time of one who wants a session is over, and when a connection has been idle for too long.
    next_session_end: Option<Instant>,
    next_idle_end: Option<Instant>,
    /// Set after the operating system refused a connection: when to try again.
    accept_after: Option<Instant>,
}

/// The body of the control thread.
pub(crate) fn serve(
    shared: Arc<Shared>,
    poll: Poll,
    listeners: Vec<Listener>,
    homes: Vec<(u32, Arc<Inbox>)>,
    thread: usize,
) {
    let stop = Arc::clone(&shared);
    let mut control = Control {
        shared,
        poll,
        listeners: Vec::new(),
        silent: HashMap::new(),
        homes,
        next_home: 0,
        answers: AnswerCounter::new(thread.narrow_u16()),
        next_session_end: None,
        next_idle_end: None,
        accept_after: None,
    };
    for listener in listeners {
        match control.poll.watch(&listener, EventFlags::IN | EventFlags::ET) {
            Ok(token) => control.listeners.push((token, Arc::new(listener))),
            Err(errno) => tracing::error!("{} is not served: {errno}", listener.address()),
        }
    }
    let mut ready = Vec::new();
    while !stop.stop.load(Ordering::Acquire) {
        if control.poll.wait(control.timeout(), &mut ready) {
            // Nothing is handed to this thread: it was only woken.
            control.poll.inbox.take();
        }
        for token in ready.drain(..) {
            match control.listeners.iter().find(|(listening, _)| *listening == token) {
                Some((_, listener)) => control.accept_all(&Arc::clone(listener)),
                None => control.turn(token),
            }
        }
        control.keep_deadlines();
    }
    for connection in control.silent.values() {
        close(&control.shared, connection, Closed::Gone(Errno::CANCELED));
    }
}

impl Control {
    /// Accepts what is waiting at `listener`.
    fn accept_all(&mut self, listener: &Listener) {
        loop {
            match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => self.accepted(listener, socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => {
                    tracing::error!("no connection can be accepted at {}: {errno}", listener.address());
                    self.accept_after = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn accepted(&mut self, listener: &Listener, socket: OwnedFd) {
        let transport = match listener.address() {
            Listen::Tcp(_) | Listen::Udp(_) => Transport::Tcp,
            Listen::Shm(_) => Transport::Shm,
        };
        if transport == Transport::Tcp
            && let Err(errno) = tune(&socket)
        {
            tracing::debug!("a connection broke while it was accepted: {errno}");
            return;
        }
        let Some((source, ip)) = source_of(&socket, transport) else {
            tracing::debug!("a connection broke while it was accepted");
            return;
        };
        let is_stranger = transport == Transport::Shm && !is_trusted(&socket);
        let guest = Guest::new(socket, transport, source, yonder_clock::now());
        let mut connection = Connection::new(guest, ip, listener.serves(), Instant::now());
        if is_stranger {
            let refused = connection.refuse(ErrorCode::NotAllowed);
            tracing::warn!("a connection of another user is not taken: {refused}");
            return;
        }
        if self.silent.len() >= self.shared.silent_max {
            self.end_oldest();
        }
        self.shared.counters.connected();
        match self.poll.watch(&connection, EventFlags::IN) {
            Ok(token) => {
                self.silent.insert(token, connection);
                self.turn(token);
            }
            Err(errno) => close(&self.shared, &connection, Closed::Gone(errno)),
        }
    }

    /// Looks for a greeting, and hands the connection to a data thread once it is there.
    fn turn(&mut self, token: u64) {
        let Some(connection) = self.silent.get_mut(&token) else { return };
        if self.shared.doors.are_closed()
            && let Some(ip) = connection.ip()
            && connection.has_sent_nothing()
        {
            match lead_of(connection) {
                // What is received before its first byte was looked at would be taken for a greeting.
                Ok(None) => return,
                Err(errno) => return self.end(token, Closed::Gone(errno)),
                Ok(Some(sessions::TLS_LEAD)) => return self.make_session(token, ip),
                // This port is for sessions alone: what they are for goes by datagram.
                Ok(Some(_)) if !connection.is_served() => {
                    let refused = connection.refuse(ErrorCode::Unsupported);
                    return self.end(token, refused);
                }
                Ok(Some(_)) => {}
            }
        }
        if self.homes.is_empty() {
            return;
        }
        let (homes, next) = (&self.homes, &mut self.next_home);
        let greeted = connection.greet(&self.shared, &mut self.answers, |known| match known {
            Some(number) if homes.iter().any(|(home, _)| *home == number) => number,
            _ => {
                *next = (*next + 1) % homes.len();
                homes[*next].0
            }
        });
        let home = match greeted {
            Ok(None) => return,
            Ok(Some(home)) => home,
            Err(reason) => return self.end(token, reason),
        };
        if let Err(errno) = self.poll.forget(&*connection) {
            return self.end(token, Closed::Gone(errno));
        }
        let connection = self.silent.remove(&token).expect("it was just looked at");
        let (_, inbox) = self.homes.iter().find(|(number, _)| *number == home).expect("it was chosen from these");
        inbox.send(Arrival::Connection(connection));
    }

    /// Lets another thread make a session on a connection.
    fn make_session(&mut self, token: u64, ip: IpAddr) {
        let Some(connection) = self.silent.remove(&token) else { return };
        let socket = self.poll.forget(&connection).map_err(Into::into).and_then(|()| connection.clone_socket());
        self.shared.counters.disconnected();
        match socket {
            Ok(socket) => sessions::begin(&self.shared, socket, connection.guest().source, ip),
            Err(error) => tracing::debug!("a connection broke while it was accepted: {error}"),
        }
    }

    /// Ends the oldest silent connection of the source that has most of them.
    fn end_oldest(&mut self) {
        let mut by_source: HashMap<Source, (usize, u64)> = HashMap::new();
        for (token, connection) in &self.silent {
            let (count, oldest) = by_source.entry(connection.guest().source).or_insert((0, *token));
            (*count, *oldest) = (*count + 1, (*oldest).min(*token));
        }
        let most = by_source.into_values().max_by_key(|(count, oldest)| (*count, Reverse(*oldest)));
        if let Some((_, oldest)) = most
            && let Some(connection) = self.silent.get_mut(&oldest)
        {
            let refused = connection.refuse(ErrorCode::Busy);
            self.end(oldest, refused);
        }
    }

    fn end(&mut self, token: u64, reason: Closed) {
        if let Some(connection) = self.silent.remove(&token) {
            close(&self.shared, &connection, reason);
        }
    }

    fn keep_deadlines(&mut self) {
        let now = Instant::now();
        let late = |connection: &Connection| connection.greeting_deadline().is_some_and(|deadline| deadline <= now);
        let silent: Vec<u64> =
            self.silent.iter().filter(|(_, connection)| late(connection)).map(|(token, _)| *token).collect();
        for token in silent {
            self.end(token, Closed::Silent);
        }
        self.next_session_end = self.shared.sessions.keep_deadlines(now);
        let clock = yonder_clock::now();
        let idle_end = self.shared.connections.end_idle(clock);
        self.next_idle_end = idle_end.map(|end| now + Duration::from_nanos(end.saturating_sub(clock)));
        if self.accept_after.is_some_and(|after| now >= after) {
            self.accept_after = None;
            for (_, listener) in self.listeners.clone() {
                self.accept_all(&listener);
            }
        }
    }

    /// Time until the next deadline.
    fn timeout(&self) -> Option<Duration> {
        let greetings = self.silent.values().filter_map(Connection::greeting_deadline);
        let next = greetings.chain(self.accept_after).chain(self.next_session_end).chain(self.next_idle_end).min();
        next.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }
}

/// Whether a client on this machine may have the node's memory: one of the same user, or root. The socket's mode says
/// the same, as long as it is not changed.
fn is_trusted(socket: &OwnedFd) -> bool {
    let own = rustix::process::geteuid().as_raw();
    Peer::of(socket).is_ok_and(|peer| peer.uid == own || peer.uid == 0)
}

/// The first byte on a connection, once it is there. It stays there. The error says that none will come.
fn lead_of(connection: &Connection) -> Result<Option<u8>, Errno> {
    let mut lead = [0];
    match rustix::net::recv(connection, &mut lead[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, 0)) => Err(Errno::PIPE),
        Ok(_) => Ok(Some(lead[0])),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Where a connection comes from, unless it has gone already; with its address, if that is one of the network.
fn source_of(socket: &OwnedFd, transport: Transport) -> Option<(Source, Option<IpAddr>)> {
    match transport {
        Transport::Tcp => {
            let address = SocketAddr::try_from(rustix::net::getpeername(socket).ok()??).ok()?;
            Some((source::of_address(address.ip()), Some(address.ip())))
        }
        Transport::Shm => Peer::of(socket).ok().map(|peer| (source::of_user(peer.uid), None)),
    }
}

/// Small messages go out at once, and a peer that has vanished is noticed.
fn tune(socket: &OwnedFd) -> rustix::io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES_MAX)
}
