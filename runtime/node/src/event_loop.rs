//! One thread's epoll over its connections.
//!
//! [`EventLoop`] serves the connections that came through its [`Inbox`]; data threads run [`EventLoop::serve`], and the
//! control thread composes the same steps with accepting and deadlines. A connection belongs to one loop at a time; the
//! inbox is the only way in, and the only part that other threads touch.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;

use crate::Shared;
use crate::connection::{Closed, Connection};

/// Events taken from the kernel at a time.
const EVENTS_MAX: usize = 256;
/// The token of the inbox.
const INBOX_TOKEN: u64 = u64::MAX;

/// How other threads reach a loop: connections handed over, and a wake-up.
#[derive(Debug)]
pub(crate) struct Inbox {
    arrived: Mutex<Vec<Connection>>,
    event: OwnedFd,
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { arrived: Mutex::default(), event })
    }

    /// Hands a connection over.
    pub(crate) fn send(&self, connection: Connection) {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        self.wake();
    }

    /// Makes the loop look at its inbox, its deadlines and the order to stop.
    pub(crate) fn wake(&self) {
        // The only failure is a counter that is full, and then the loop is about to wake anyway.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    fn take(&self) -> Vec<Connection> {
        // Nothing to read means that the wake-up was taken together with an earlier one.
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
        std::mem::take(&mut self.arrived.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug)]
struct Served {
    connection: Connection,
    waits_for: epoll::EventFlags,
}

/// The connections of one thread.
#[derive(Debug)]
pub(crate) struct EventLoop {
    pub(crate) shared: Arc<Shared>,
    inbox: Arc<Inbox>,
    epoll: OwnedFd,
    connections: HashMap<u64, Served>,
    next_token: u64,
}

impl EventLoop {
    pub(crate) fn new(shared: Arc<Shared>, inbox: Arc<Inbox>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &inbox.event, epoll::EventData::new_u64(INBOX_TOKEN), epoll::EventFlags::IN)?;
        Ok(Self { shared, inbox, epoll, connections: HashMap::new(), next_token: 0 })
    }

    /// Serves until the node stops: the body of a data thread.
    pub(crate) fn serve(mut self) {
        let mut ready = Vec::with_capacity(EVENTS_MAX);
        while self.wait(None, &mut ready) {
            for token in ready.drain(..) {
                self.turn(token);
            }
        }
        self.close_all();
    }

    /// A token that no connection has, for a socket that the caller watches itself. It is reported once for each time
    /// that something new arrives.
    pub(crate) fn watch(&mut self, socket: impl AsFd) -> io::Result<u64> {
        let token = self.token();
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.epoll, socket, epoll::EventData::new_u64(token), flags)?;
        Ok(token)
    }

    /// Waits for events, takes arrivals in, and puts what is ready into `ready`. False when the node stops.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<u64>) -> bool {
        let mut space = [MaybeUninit::<epoll::Event>::uninit(); EVENTS_MAX];
        let timeout =
            timeout.map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) });
        let events: &[epoll::Event] = match epoll::wait(&self.epoll, &mut space, timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => &[],
            Err(errno) => panic!("waiting on an epoll of our own failed: {errno}"),
        };
        if self.shared.stop.load(Ordering::Acquire) {
            return false;
        }
        let woken = events.iter().any(|event| event.data.u64() == INBOX_TOKEN);
        ready.extend(events.iter().map(|event| event.data.u64()).filter(|token| *token != INBOX_TOKEN));
        if woken {
            for connection in self.inbox.take() {
                self.adopt(connection);
            }
        }
        true
    }

    /// Takes a connection in. What it has received already is served at once. Its token, if it stays open.
    pub(crate) fn adopt(&mut self, connection: Connection) -> Option<u64> {
        let token = self.token();
        let flags = epoll::EventFlags::IN;
        if let Err(errno) = epoll::add(&self.epoll, connection.session(), epoll::EventData::new_u64(token), flags) {
            self.close(connection, Closed::Gone(errno));
            return None;
        }
        self.connections.insert(token, Served { connection, waits_for: flags });
        self.turn(token).map(|_| token)
    }

    /// Lets a connection do what it can. `None` if it was closed, now or before.
    pub(crate) fn turn(&mut self, token: u64) -> Option<&Connection> {
        let served = self.connections.get_mut(&token)?;
        let advanced = served.connection.advance(&self.shared).and_then(|waits_for| {
            if waits_for != served.waits_for {
                let data = epoll::EventData::new_u64(token);
                epoll::modify(&self.epoll, served.connection.session(), data, waits_for).map_err(Closed::Gone)?;
                served.waits_for = waits_for;
            }
            Ok(())
        });
        match advanced {
            Ok(()) => self.connections.get(&token).map(|served| &served.connection),
            Err(reason) => {
                self.end(token, reason);
                None
            }
        }
    }

    /// Takes a connection out, for another loop.
    pub(crate) fn hand_over(&mut self, token: u64, to: &Inbox) {
        let Some(served) = self.connections.remove(&token) else { return };
        match epoll::delete(&self.epoll, served.connection.session()) {
            Ok(()) => to.send(served.connection),
            Err(errno) => self.close(served.connection, Closed::Gone(errno)),
        }
    }

    /// The earliest deadline of a peer that has not greeted.
    pub(crate) fn next_greeting_deadline(&self) -> Option<Instant> {
        self.connections.values().filter_map(|served| served.connection.greeting_deadline()).min()
    }

    /// Closes the connections whose peers have not greeted in time.
    pub(crate) fn close_silent(&mut self, now: Instant) {
        let late = |served: &Served| served.connection.greeting_deadline().is_some_and(|deadline| deadline <= now);
        let silent: Vec<u64> =
            self.connections.iter().filter(|(_, served)| late(served)).map(|(token, _)| *token).collect();
        for token in silent {
            self.end(token, Closed::Silent);
        }
    }

    /// Closes everything: the node stops.
    pub(crate) fn close_all(mut self) {
        let arrived = self.inbox.take();
        let served = std::mem::take(&mut self.connections).into_values().map(|served| served.connection);
        for connection in served.chain(arrived) {
            self.close(connection, Closed::Gone(Errno::CANCELED));
        }
    }

    /// Accounts for the end of a connection and closes it.
    pub(crate) fn close(&self, connection: Connection, reason: Closed) {
        match reason {
            Closed::Violation(_) | Closed::Silent => {
                self.shared.counters.bad_peer();
                tracing::warn!("connection closed: {reason}");
            }
            Closed::Refused(_) | Closed::Fenced => tracing::info!("connection closed: {reason}"),
            Closed::Gone(_) => tracing::debug!("connection closed: {reason}"),
        }
        // Counted first: once the client's memory is released, its connections are seen to be gone.
        self.shared.counters.disconnected();
        // A peer sees the end now, even if another thread still holds the session.
        let _ = rustix::net::shutdown(connection.session(), rustix::net::Shutdown::Both);
        if let Some(admitted) = connection.admitted()
            && self.shared.clients.leave(admitted, Instant::now())
        {
            self.shared.control.wake();
        }
    }

    fn end(&mut self, token: u64, reason: Closed) {
        if let Some(served) = self.connections.remove(&token) {
            // The socket leaves the epoll when it is closed; a session that is still held elsewhere must leave now.
            let _ = epoll::delete(&self.epoll, served.connection.session());
            self.close(served.connection, reason);
        }
    }

    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }
}
