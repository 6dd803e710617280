//! [`NodeLink`]: a node's connection to its controller, kept by one thread for as long as the node runs.
//!
//! The thread registers, reports three times in a lease, executes commands, and connects again when the connection is
//! lost, or the controller has been silent for longer than it says that it ever is ([`Silence`]). Each connection has a
//! reader thread that ends with it. The node serves its clients whether it is connected or not.

use std::io;
use std::mem;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use yonder_identity::{Credential, Stream};
use yonder_placement::{ClusterId, MoveId, Outcome, Registration};

use crate::addresses::{Addresses, LOOK_EVERY, is_refusal};
use crate::agent::{Executor, NodeAgent};
use crate::door::{DialError, dial};
use crate::lines::{LineReader, is_timeout, send_line};
use crate::messages::{FromController, ToController, VERSION, VERSION_MIN, too_old};
use crate::silence::Silence;

/// How long connecting, a line, or the welcome may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long a line may take to leave where there are other controllers: this one may stand still.
const WRITE_TIME_MAX: Duration = Duration::from_secs(2);
/// How long to wait before connecting again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
/// Reports in a lease: two may be lost.
const REPORTS_PER_LEASE: u32 = 3;
/// How long a controller may be silent, in times of what it says, where another one may lead: two thirds of a lease, if
/// that is not long.
const SILENCE_MAX: u32 = 4;
/// The same where there is no other: only its connection may be dead.
const SILENCE_ALONE_MAX: u32 = 40;

/// Why a node does not serve a controller.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Nobody answers.
    #[error("controller {address} cannot be reached: {cause}; start one with `yonder controller --listen {address}`")]
    Unreachable {
        /// Where it should be.
        address: String,
        /// What the operating system or the peer said.
        cause: String,
    },
    /// The controller does not want the node.
    #[error("controller {address} turned this node away: {cause}")]
    TurnedAway {
        /// Where it is.
        address: String,
        /// Why.
        cause: String,
    },
}

/// How the link is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkCondition {
    /// The node is registered.
    Connected,
    /// It is not, for this reason, and tries again.
    Reconnecting(String),
}

/// What the link's thread waits for.
#[derive(Debug)]
pub(crate) enum Event {
    /// A line on the connection with this number.
    Line(u64, FromController),
    /// The connection with this number is lost.
    Lost(u64, String),
    /// A move of this node has ended.
    MoveEnded(MoveId, Outcome),
    /// The node stops.
    Stop,
}

/// A node's link to its controller. Dropping it ends it.
#[derive(Debug)]
pub struct NodeLink {
    events: Sender<Event>,
    condition: Arc<Mutex<LinkCondition>>,
    thread: Option<JoinHandle<()>>,
}

impl NodeLink {
    /// Registers at the controller at `address` (`host:port`; several, of which one leads, are separated by commas),
    /// and goes on in a thread. Fails if none can be reached now, or the node is turned away.
    pub fn start(address: &str, facts: Registration, agent: Box<dyn NodeAgent>) -> Result<Self, LinkError> {
        Self::start_as(address, facts, agent, None)
    }

    /// The same, with the node's credential, if its controller asks for one. Its name is the credential's.
    pub fn start_as(
        address: &str,
        mut facts: Registration,
        agent: Box<dyn NodeAgent>,
        credential: Option<Arc<Credential>>,
    ) -> Result<Self, LinkError> {
        if let Some(credential) = &credential {
            facts.name = credential.itself().name().map(str::to_owned);
        }
        let (events, inbox) = mpsc::channel();
        let condition = Arc::new(Mutex::new(LinkCondition::Connected));
        let executor = Executor::new(agent, events.clone());
        let mut keeper = Keeper {
            addresses: Addresses::parse(address),
            facts,
            credential,
            executor,
            events: events.clone(),
            inbox,
            cluster: None,
            connections: 0,
        };
        let first = keeper.register()?;
        let shown = Arc::clone(&condition);
        let thread = thread::Builder::new().name("yonder-link".to_owned()).spawn(move || keeper.run(first, &shown));
        let thread = thread.map_err(|error| unreachable(address, &error))?;
        Ok(Self { events, condition, thread: Some(thread) })
    }

    /// How the link is now.
    #[must_use]
    pub fn condition(&self) -> LinkCondition {
        self.condition.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for NodeLink {
    fn drop(&mut self) {
        let _ = self.events.send(Event::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One registered connection.
#[derive(Debug)]
struct Connection {
    number: u64,
    stream: Stream,
    report_every: Duration,
    /// How long the controller says to be silent at most, if it says so.
    alive_every: Option<Duration>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The reader thread waits on the other half.
        let _ = self.stream.shutdown();
    }
}

/// Why the link's thread stops serving a connection.
enum End {
    Lost(String),
    Stop,
}

struct Keeper {
    addresses: Addresses,
    facts: Registration,
    credential: Option<Arc<Credential>>,
    executor: Executor,
    events: Sender<Event>,
    inbox: Receiver<Event>,
    cluster: Option<ClusterId>,
    connections: u64,
}

impl Keeper {
    fn run(&mut self, first: Connection, shown: &Mutex<LinkCondition>) {
        let show = |condition| *shown.lock().unwrap_or_else(PoisonError::into_inner) = condition;
        let mut connection = first;
        loop {
            match self.serve(&connection) {
                End::Stop => return,
                End::Lost(cause) => {
                    tracing::warn!(address = self.addresses.text(), cause, "the controller is lost; connecting again");
                    show(LinkCondition::Reconnecting(cause));
                }
            }
            drop(connection);
            connection = loop {
                if self.pause() {
                    return;
                }
                match self.register() {
                    Ok(connection) => break connection,
                    Err(error) => show(LinkCondition::Reconnecting(error.to_string())),
                }
            };
            tracing::info!(address = self.addresses.first(), "registered at the controller again");
            show(LinkCondition::Connected);
        }
    }

    /// Connects and registers at the first controller that takes the node; each is tried, those that say nothing last.
    fn register(&mut self) -> Result<Connection, LinkError> {
        loop {
            let is_last = self.addresses.left_in_round() == 1;
            match self.register_at(self.addresses.first().to_owned()) {
                Ok(connection) => {
                    self.addresses.answered();
                    self.addresses.begin();
                    return Ok(connection);
                }
                Err(error) => {
                    self.addresses.pass();
                    if is_last {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn register_at(&mut self, address: String) -> Result<Connection, LinkError> {
        let failed = |error: io::Error| unreachable(&address, &error);
        let stream = match dial(&address, self.addresses.connect_time(TIMEOUT), self.credential.as_ref()) {
            Ok(stream) => stream,
            Err(DialError::Lost(error)) => {
                if is_refusal(&error) {
                    self.addresses.answered();
                } else if is_timeout(&error) {
                    self.addresses.was_silent();
                }
                return Err(unreachable(&address, &error));
            }
            Err(DialError::Refused(cause)) => return Err(LinkError::TurnedAway { address, cause }),
        };
        let write_time = if self.addresses.count() > 1 { WRITE_TIME_MAX } else { TIMEOUT };
        stream.socket().set_write_timeout(Some(write_time)).map_err(failed)?;
        let (facts, cluster) = (self.facts.clone(), self.cluster);
        let (spaces, report) = (self.executor.spaces(), self.executor.report());
        let (knows_alive, version, version_min) = (true, VERSION, VERSION_MIN);
        let register = ToController::Register { facts, cluster, spaces, report, knows_alive, version, version_min };
        send_line(&stream, &register).map_err(failed)?;
        let mut lines = LineReader::new(stream.clone());
        let (lease_ms, alive_every_ms) = match self.welcome(&stream, &mut lines).map_err(failed)? {
            Some(FromController::Registered { cluster, lease_ms, alive_every_ms, version }) => {
                if let Some(cause) = too_old(version) {
                    return Err(LinkError::TurnedAway { address, cause });
                }
                self.cluster = Some(cluster);
                (lease_ms, alive_every_ms)
            }
            Some(FromController::TurnedAway { cause }) => return Err(LinkError::TurnedAway { address, cause }),
            other => {
                let cause = format!("it answered {}", if other.is_some() { "as to a client" } else { "nothing" });
                return Err(LinkError::Unreachable { address, cause });
            }
        };
        stream.socket().set_read_timeout(None).map_err(failed)?;
        self.connections += 1;
        let (number, events) = (self.connections, self.events.clone());
        let reader = thread::Builder::new().name("yonder-link-read".to_owned());
        reader.spawn(move || read_lines(number, lines, &events)).map_err(failed)?;
        let report_every = Duration::from_millis(lease_ms.max(1)) / REPORTS_PER_LEASE;
        let alive_every = (alive_every_ms > 0).then(|| Duration::from_millis(alive_every_ms));
        Ok(Connection { number, stream, report_every, alive_every })
    }

    /// What a controller says first. It is not waited for any more when another one listens: it may stand still.
    fn welcome(&mut self, stream: &Stream, lines: &mut LineReader) -> io::Result<Option<FromController>> {
        let deadline = Instant::now() + TIMEOUT;
        let slice = if self.addresses.count() > 1 { LOOK_EVERY } else { TIMEOUT };
        loop {
            stream.socket().set_read_timeout(Some(slice))?;
            match lines.next() {
                Err(error) if is_timeout(&error) => {
                    if Instant::now() >= deadline || self.addresses.another_listens() {
                        return Err(error);
                    }
                }
                said => return said,
            }
        }
    }

    /// Reports and executes until the connection is lost or the node stops.
    fn serve(&mut self, connection: &Connection) -> End {
        let mut report_at = Instant::now() + connection.report_every;
        let mut is_unknown_told = false;
        let mut silence = connection.alive_every.map(|every| {
            let most = if self.addresses.count() > 1 { SILENCE_MAX } else { SILENCE_ALONE_MAX };
            Silence::new(every.saturating_mul(most), Instant::now())
        });
        loop {
            let now = Instant::now();
            if silence.as_mut().is_some_and(|silence| silence.is_too_long(now)) {
                self.addresses.pass_silent();
                return End::Lost("it shows no sign of life".to_owned());
            }
            if now >= report_at {
                let report = self.executor.report();
                if let Err(error) = send_line(&connection.stream, &ToController::Report(report)) {
                    return End::Lost(error.to_string());
                }
                report_at = now + connection.report_every;
            }
            let wake_at = silence.as_ref().map_or(report_at, |silence| silence.look_at().min(report_at));
            let event = self.inbox.recv_timeout(wake_at.saturating_duration_since(now));
            if let (Some(silence), Ok(Event::Line(of, _))) = (&mut silence, &event)
                && *of == connection.number
            {
                silence.end(Instant::now());
            }
            let outcome = match event {
                Ok(Event::Line(of, FromController::Do(command))) if of == connection.number => {
                    self.executor.execute(command)
                }
                Ok(Event::Lost(of, cause)) if of == connection.number => return End::Lost(cause),
                Ok(Event::MoveEnded(id, outcome)) => {
                    self.executor.ended(id, outcome.clone());
                    Some(outcome)
                }
                Ok(Event::Line(of, FromController::Unknown { name, .. })) if of == connection.number => {
                    if mem::replace(&mut is_unknown_told, true) {
                        tracing::debug!(name, "the controller says what only a later release knows");
                    } else {
                        tracing::warn!(name, "the controller says what only a later release knows: upgrade this node");
                    }
                    None
                }
                // What an earlier connection left, or what is not for nodes.
                Ok(Event::Line(..) | Event::Lost(..)) | Err(RecvTimeoutError::Timeout) => None,
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return End::Stop,
            };
            if let Some(outcome) = outcome
                && let Err(error) = send_line(&connection.stream, &ToController::Outcome(outcome))
            {
                return End::Lost(error.to_string());
            }
        }
    }

    /// Waits before the next attempt; says whether the node stops.
    fn pause(&mut self) -> bool {
        let until = Instant::now() + RECONNECT_PAUSE;
        loop {
            match self.inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Event::MoveEnded(id, outcome)) => self.executor.ended(id, outcome),
                Ok(Event::Line(..) | Event::Lost(..)) => {}
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return true,
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
    }
}

fn read_lines(number: u64, mut lines: LineReader, events: &Sender<Event>) {
    let cause = loop {
        match lines.next() {
            Ok(Some(line)) => {
                if events.send(Event::Line(number, line)).is_err() {
                    return;
                }
            }
            Ok(None) => break "it closed the connection".to_owned(),
            Err(error) => break error.to_string(),
        }
    };
    let _ = events.send(Event::Lost(number, cause));
}

fn unreachable(address: &str, error: &io::Error) -> LinkError {
    LinkError::Unreachable { address: address.to_owned(), cause: error.to_string() }
}
