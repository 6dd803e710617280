//! The control thread: accepts, greets, serves control connections, and keeps the deadlines.
//!
//! A connection stays here until its session is open. Then a control connection (queue pair 0) stays for good, and the
//! others are dealt to the data threads in turn, so that a long release never delays a fetch.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{SocketFlags, sockopt};
use yonder_wire::{ErrorCode, Header, Kind};

use crate::connection::{Connection, Transport};
use crate::event_loop::{EventLoop, Inbox};
use crate::listen::{Listen, Listener};
use crate::session::Session;

/// The queue pair that stands for a client's control connection.
const CONTROL_QUEUE_PAIR: u32 = 0;
/// Idle time after which the kernel asks whether the peer is there, how often, and how many times.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES_MAX: u32 = 3;
/// Pause after the operating system has refused a connection, such as for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

struct Control {
    events: EventLoop,
    listeners: Vec<(u64, Arc<Listener>)>,
    data: Vec<Arc<Inbox>>,
    next_data: usize,
    /// Set after the operating system refused a connection: when to try again.
    accept_after: Option<Instant>,
}

/// The body of the control thread.
pub(crate) fn serve(events: EventLoop, listeners: Vec<Listener>, data: Vec<Arc<Inbox>>) {
    let mut control = Control { events, listeners: Vec::new(), data, next_data: 0, accept_after: None };
    for listener in listeners {
        match control.events.watch(&listener) {
            Ok(token) => control.listeners.push((token, Arc::new(listener))),
            Err(error) => tracing::error!("{} is not served: {error}", listener.address()),
        }
    }
    let mut ready = Vec::new();
    while control.events.wait(control.timeout(), &mut ready) {
        for token in ready.drain(..) {
            match control.listeners.iter().find(|(listening, _)| *listening == token) {
                Some((_, listener)) => control.accept_all(&Arc::clone(listener)),
                None => control.turn(token),
            }
        }
        control.keep_deadlines();
    }
    control.events.close_all();
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
            Listen::Tcp(_) => Transport::Tcp,
            Listen::Shm(_) => Transport::Shm,
        };
        if transport == Transport::Tcp
            && let Err(errno) = tune(&socket)
        {
            tracing::debug!("a connection broke while it was accepted: {errno}");
            return;
        }
        let mut connection = Connection::new(Session::new(socket), transport, Instant::now());
        let shared = &self.events.shared;
        if !shared.counters.try_connect(shared.connections_max) {
            let refused = connection.refuse(&Header::request(Kind::Hello, 0, 0, 0), ErrorCode::TooMany);
            tracing::warn!("connection not taken, {} are open: {refused}", shared.connections_max);
            return;
        }
        if let Some(token) = self.events.adopt(connection) {
            self.turn(token);
        }
    }

    /// Serves a connection, and hands it to a data thread once it has turned out to be theirs.
    fn turn(&mut self, token: u64) {
        let Some(connection) = self.events.turn(token) else { return };
        if connection.admitted().is_some_and(|admitted| admitted.greeting.queue_pair != CONTROL_QUEUE_PAIR) {
            let inbox = Arc::clone(&self.data[self.next_data % self.data.len()]);
            self.next_data = self.next_data.wrapping_add(1);
            self.events.hand_over(token, &inbox);
        }
    }

    fn keep_deadlines(&mut self) {
        let now = Instant::now();
        self.events.close_silent(now);
        if self.accept_after.is_some_and(|after| now >= after) {
            self.accept_after = None;
            for (_, listener) in self.listeners.clone() {
                self.accept_all(&listener);
            }
        }
        for owner in self.events.shared.clients.expire(now) {
            tracing::info!("a client has gone for good; its memory is released");
            self.events.shared.memory.release_all(owner);
        }
    }

    /// Time until the next deadline.
    fn timeout(&self) -> Option<Duration> {
        let deadlines =
            [self.events.next_greeting_deadline(), self.events.shared.clients.next_expiry(), self.accept_after];
        deadlines.into_iter().flatten().min().map(|deadline| deadline.saturating_duration_since(Instant::now()))
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
