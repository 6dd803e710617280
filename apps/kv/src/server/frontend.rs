//! The dispatcher's side of the server: [`KvFrontend`] accepts connections and datagrams, turns their bytes into
//! requests for workers, and sends the replies.
//!
//! Everything here runs on the dispatcher thread and never blocks but in `wait`. Who has something to do stands in a
//! queue, each client at most once; a turn is bounded, so no client keeps the others waiting. When accepting fails for
//! want of file descriptors or memory, it pauses instead of spinning. Handshakes cost more than anything else that is
//! done here, so few are begun or ended in a turn. Who gives way when something runs out is in `limits`.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mio::{Events, Interest, Poll, Token, Waker};
use yonder::sched::{Activity, Done, Frontend, Outcome};
use yonder_units::Nanos;

use super::access::KvAccess;
use super::budget::Budget;
use super::buffers::Output;
use super::channel::Channel;
use super::connection::{Connection, Fate};
use super::handler::{Client, Executed, KvReply, KvRequest, Work, WorkDone};
use super::registry::{Key, Registry};
use super::report::{self, Report, Traffic};
use super::session::Inquiry;
use super::socket::{Listener, Stream};
use super::time::Time;
use super::udp::{Listening, UdpPort};
use super::{ExtraStats, Shutdown, ShutdownCommand};
use crate::protocol::reply;

const EVENTS_MAX: usize = 1024;
/// Connections accepted in one turn.
const ACCEPTS_PER_TURN_MAX: usize = 64;
/// How long accepting pauses after it failed.
const ACCEPT_PAUSE_NS: Nanos = 100_000_000;
/// How often expired items are looked for.
const CRAWL_PERIOD_NS: Nanos = 25_000_000;
/// Slots looked at each time: few, so that the worker is soon free again.
const CRAWL_SLOTS_MAX: usize = 1 << 12;
/// How long clients get to take their last replies when the server ends.
const STOP_GRACE_NS: Nanos = 1_000_000_000;
/// Connections that `stats conns` lists.
const CONNECTIONS_LISTED_MAX: usize = 1024;
/// Handshakes that get on in one turn.
const HANDSHAKES_PER_TURN_MAX: usize = 8;

const LISTENER: Token = Token(usize::MAX);
const DATAGRAMS: Token = Token(usize::MAX - 1);
pub(super) const WAKER: Token = Token(usize::MAX - 2);

/// The dispatcher's sockets and clients.
pub struct KvFrontend {
    pub(super) poll: Poll,
    events: Events,
    waker: Arc<Waker>,
    listener: Option<Listener>,
    acceptable: bool,
    pub(super) accept_from: Nanos,
    /// When a silent connection may be closed in favour of a new one, or for its memory: not before.
    pub(super) place_from: Nanos,
    pub(super) memory_from: Nanos,
    pub(super) idle_from: Nanos,
    pub(super) connections: Registry<Connection>,
    ready: VecDeque<Key>,
    udp: Option<UdpPort>,
    pub(super) report: Report,
    pub(super) access: KvAccess,
    pub(super) traffic: Traffic,
    shutdown: Shutdown,
    stop_by: Option<Nanos>,
    pub(super) time: Time,
    crawl_from: Nanos,
    crawling: bool,
    had_room: bool,
}

/// The sockets of a front end, bound but not yet registered.
pub(super) struct Sockets {
    pub(super) poll: Poll,
    pub(super) waker: Arc<Waker>,
    pub(super) listener: Listener,
    pub(super) udp: Option<mio::net::UdpSocket>,
}

impl KvFrontend {
    /// A front end that begins to serve with its first `poll`. It is `started_s` seconds since 1970.
    pub(super) fn new(
        mut sockets: Sockets,
        report: Report,
        shutdown: Shutdown,
        started_s: u64,
        buffers: Budget,
    ) -> io::Result<Self> {
        let registry = sockets.poll.registry();
        sockets.listener.register(registry, LISTENER)?;
        let mut udp = sockets.udp.map(|socket| UdpPort::new(socket, &report.config));
        let traffic = Traffic::new(buffers);
        if let Some(udp) = &mut udp {
            registry.register(udp.socket(), DATAGRAMS, Interest::READABLE | Interest::WRITABLE)?;
        }
        Ok(Self {
            poll: sockets.poll,
            events: Events::with_capacity(EVENTS_MAX),
            waker: sockets.waker,
            listener: Some(sockets.listener),
            acceptable: true,
            accept_from: 0,
            place_from: 0,
            memory_from: 0,
            idle_from: 0,
            connections: Registry::new(),
            ready: VecDeque::new(),
            udp,
            access: report.access.clone(),
            report,
            traffic,
            shutdown,
            stop_by: None,
            time: Time::new(started_s),
            crawl_from: 0,
            crawling: false,
            had_room: true,
        })
    }

    /// Adds lines to what `stats` answers.
    pub fn extra_stats(&mut self, extra: ExtraStats) {
        self.report.extra = Some(extra);
    }

    /// Waits up to `timeout` for sockets to become ready, and notes who has something to do.
    fn collect(&mut self, timeout: Duration) {
        if let Err(error) = self.poll.poll(&mut self.events, Some(timeout)) {
            // Nothing but a signal ends the wait with an error; the next turn asks again.
            tracing::debug!(%error, "waiting for sockets");
            return;
        }
        for event in &self.events {
            match event.token() {
                LISTENER => self.acceptable = true,
                DATAGRAMS => self.udp.iter_mut().for_each(UdpPort::note_ready),
                WAKER => {}
                Token(slot) => {
                    let Some(key) = self.connections.key_at(slot) else { continue };
                    if let Some(connection) = self.connections.get_mut(key) {
                        connection.note(event);
                        enqueue(&mut self.ready, key, connection);
                    }
                }
            }
        }
    }

    /// Accepts clients that wait. Returns whether there were any.
    fn accept(&mut self) -> Activity {
        if !self.acceptable || self.time.now < self.accept_from {
            return Activity::Idle;
        }
        let Some(listener) = &self.listener else { return Activity::Idle };
        let mut accepted = Vec::new();
        while self.acceptable && accepted.len() < ACCEPTS_PER_TURN_MAX {
            match listener.accept() {
                Ok(socket) => accepted.push(socket),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.acceptable = false,
                // The client gave up, or a signal came: try the next.
                Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections for now");
                    self.accept_from = self.time.now + ACCEPT_PAUSE_NS;
                    break;
                }
            }
        }
        let activity = if accepted.is_empty() { Activity::Idle } else { Activity::Busy };
        for socket in accepted {
            self.admit_client(socket);
        }
        activity
    }

    fn admit_client(&mut self, mut socket: Stream) {
        if self.connections.len() >= self.report.config.connections_max && !self.make_place() {
            self.traffic.connections_rejected += 1;
            if self.access.certificates.is_none() {
                // Best effort: the client learns the reason if its socket takes the line at once.
                let _ = io::Write::write(&mut socket, reply::TOO_MANY_CONNECTIONS);
            }
            return;
        }
        // Replies are whole when they are sent.
        socket.set_nodelay();
        let channel = match &self.access.certificates {
            None => Channel::plain(socket),
            Some(certificates) => match certificates.connection() {
                Some(connection) => Channel::secured(socket, connection),
                None => return,
            },
        };
        let (value_bytes_max, passwords) = (self.report.config.value_bytes_max, self.access.passwords.clone());
        let connection = Connection::new(channel, value_bytes_max, passwords, self.time.now);
        let key = self.connections.insert(connection);
        let Some(connection) = self.connections.get_mut(key) else { return };
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.poll.registry().register(connection.source(), Token(key.slot()), interest) {
            tracing::warn!(%error, "cannot watch a connection");
            self.close(key);
            return;
        }
        self.traffic.connections_total += 1;
        self.traffic.connections = self.connections.len() as u64;
    }

    fn serve_datagrams(&mut self, room: &mut usize, admit: &mut dyn FnMut(KvRequest)) -> Activity {
        let Some(udp) = &mut self.udp else { return Activity::Idle };
        let listening = if self.stop_by.is_some() { Listening::No } else { Listening::Yes };
        let mut busy = udp.move_datagrams(listening, self.time.now, &mut self.traffic);
        let (report, time) = (&self.report, &self.time);
        while *room > 0 {
            let next = udp.next_command(&mut self.traffic, &mut |kind, output, traffic| {
                report.answer(kind, traffic, time.uptime_s(), time.now_s(), output);
            });
            let Some((key, command)) = next else { break };
            admit(KvRequest { work: Work::Execute { client: Client::Udp(key), command }, now_s: time.now_s() });
            *room -= 1;
            busy = true;
        }
        if busy { Activity::Busy } else { Activity::Idle }
    }

    fn serve_connections(&mut self, room: &mut usize, admit: &mut dyn FnMut(KvRequest)) -> Activity {
        let mut activity = Activity::Idle;
        let mut handshakes = 0;
        // Those that queue up again meanwhile wait for the next call.
        for _ in 0..self.ready.len() {
            if *room == 0 {
                break;
            }
            let Some(key) = self.ready.pop_front() else { break };
            let Some(connection) = self.connections.get_mut(key) else { continue };
            activity = Activity::Busy;
            if connection.is_handshaking() {
                handshakes += 1;
                if handshakes > HANDSHAKES_PER_TURN_MAX {
                    self.ready.push_back(key);
                    continue;
                }
            }
            connection.queued = false;
            let (report, time, shutdown) = (&self.report, &self.time, &self.shutdown);
            let fate = connection.turn(time.now, &mut self.traffic, &mut |inquiry, output, traffic| match inquiry {
                Inquiry::RefreshCertificates => output.push(report.refresh_certificates()),
                Inquiry::Stats(kind) => report.answer(kind, traffic, time.uptime_s(), time.now_s(), output),
                Inquiry::Shutdown if report.config.shutdown == ShutdownCommand::Obeyed => shutdown.request(),
                Inquiry::Shutdown => output.push(reply::SHUTDOWN_REFUSED),
            });
            let has_room = matches!(fate, Fate::Over) || self.make_room(key);
            match fate {
                Fate::Over => self.close(key),
                Fate::Starved => {
                    if !has_room {
                        self.refuse_input(key);
                    }
                    self.enqueue(key);
                }
                Fate::Executes(command) => {
                    let command = if has_room { Some(command) } else { self.shed(key, command) };
                    let Some(command) = command else { continue };
                    let now_s = self.time.now_s();
                    admit(KvRequest { work: Work::Execute { client: Client::Tcp(key), command }, now_s });
                    *room -= 1;
                }
                // It does not take replies that there is no room for.
                _ if !has_room => self.refuse(key),
                Fate::Waits => {}
                Fate::Lists => self.list(key),
                Fate::Again => self.enqueue(key),
            }
        }
        activity
    }

    /// A command has been executed.
    fn executed(&mut self, Executed { client, execution, charge, was_refused }: Executed) {
        if was_refused {
            self.traffic.buffer_refusals += 1;
            self.free_memory(None);
        }
        let key = match (client, &mut self.udp) {
            (Client::Tcp(key), _) => key,
            (Client::Udp(key), Some(udp)) => return udp.executed(key, execution, charge, &mut self.traffic),
            (Client::Udp(_), None) => return self.traffic.buffers.release(charge),
        };
        let Some(connection) = self.connections.get_mut(key) else { return self.traffic.buffers.release(charge) };
        connection.executed(execution, charge);
        let has_room = self.make_room(key);
        self.traffic.buffer_refusals += u64::from(!has_room);
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.answer(has_room, self.time.now, &mut self.traffic) {
            self.close(key);
        } else {
            self.enqueue(key);
        }
    }

    /// Tells a client which connections there are.
    fn list(&mut self, key: Key) {
        let mut lines = Output::default();
        let listener = self.report.list_listener(&mut lines);
        for (other, connection) in self.connections.iter().take(CONNECTIONS_LISTED_MAX) {
            let (peer, state) = connection.describe();
            let silent_s = connection.silent_ns(self.time.now) / 1_000_000_000;
            let state = if other == key { "conn_parse_cmd" } else { state };
            report::connection(&mut lines, other.slot(), &peer, &listener, state, silent_s);
        }
        lines.push(reply::END);
        if let Some(connection) = self.connections.get_mut(key) {
            connection.list(&lines.take());
        }
        self.enqueue(key);
    }

    pub(super) fn enqueue(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key) {
            enqueue(&mut self.ready, key, connection);
        }
    }

    /// Once the server was told to end: takes nothing new, and drops who does not take replies in time.
    fn obey_shutdown(&mut self) {
        if !self.shutdown.requested.load(Ordering::Acquire) {
            return;
        }
        match self.stop_by {
            None => {
                self.stop_by = Some(self.time.now + STOP_GRACE_NS);
                self.listener = None;
                for key in self.connections.keys() {
                    if let Some(connection) = self.connections.get_mut(key) {
                        connection.stop();
                        enqueue(&mut self.ready, key, connection);
                    }
                }
            }
            Some(stop_by) if self.time.now >= stop_by => {
                self.connections.keys().into_iter().for_each(|key| self.close(key));
                self.udp = None;
            }
            Some(_) => {}
        }
    }

    fn crawl(&mut self, room: &mut usize, admit: &mut dyn FnMut(KvRequest)) {
        if *room > 0 && !self.crawling && self.stop_by.is_none() && self.time.now >= self.crawl_from {
            self.crawl_from = self.time.now + CRAWL_PERIOD_NS;
            self.crawling = true;
            admit(KvRequest { work: Work::Crawl { slots_max: CRAWL_SLOTS_MAX }, now_s: self.time.now_s() });
            *room -= 1;
        }
    }

    /// Whether `poll` would find work without anything happening first.
    fn has_work(&self) -> bool {
        let waiting = !self.ready.is_empty() || self.udp.as_ref().is_some_and(UdpPort::has_work);
        waiting && self.had_room
    }
}

impl Frontend for KvFrontend {
    type Request = KvRequest;
    type Reply = KvReply;

    fn poll(&mut self, now: Nanos, room: usize, admit: &mut dyn FnMut(KvRequest)) -> Activity {
        self.time.note(now);
        let mut left = room;
        self.collect(Duration::ZERO);
        self.obey_shutdown();
        let activities =
            [self.accept(), self.serve_datagrams(&mut left, admit), self.serve_connections(&mut left, admit)];
        self.close_idle();
        self.crawl(&mut left, admit);
        self.had_room = left > 0;
        if activities.contains(&Activity::Busy) { Activity::Busy } else { Activity::Idle }
    }

    fn complete(&mut self, now: Nanos, done: Done<KvReply>) {
        self.time.note(now);
        self.had_room = true;
        let Outcome::Reply(reply) = done.outcome else {
            // The handler catches panics, so this is one outside of it; its client cannot be told any more.
            tracing::error!("a request was lost to a panic");
            return;
        };
        match reply.outcome {
            WorkDone::Crawled => self.crawling = false,
            WorkDone::Executed(executed) => {
                self.traffic.hits.count(&done.timing);
                self.executed(executed);
            }
        }
    }

    fn wait(&mut self, timeout: Duration) {
        let timeout = if self.has_work() { Duration::ZERO } else { timeout.min(Duration::from_nanos(ACCEPT_PAUSE_NS)) };
        self.collect(timeout);
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let waker = Arc::clone(&self.waker);
        // Waking fails only when the front end is gone, and then nobody sleeps.
        Arc::new(move || drop(waker.wake()))
    }

    fn is_finished(&self) -> bool {
        let served = self.connections.len() == 0 && self.udp.as_ref().is_none_or(UdpPort::is_idle);
        self.stop_by.is_some() && served
    }
}

fn enqueue(ready: &mut VecDeque<Key>, key: Key, connection: &mut Connection) {
    if !connection.queued {
        connection.queued = true;
        ready.push_back(key);
    }
}
