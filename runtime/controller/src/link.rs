//! [`NodeLink`]: a node's connection to its controller, kept by one thread for as long as the node runs.
//!
//! The thread registers, reports three times in a lease, executes commands, and connects again when the connection is
//! lost. Each connection has a reader thread that ends with it. The node serves its clients whether it is connected or
//! not.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use yonder_identity::{Credential, Stream};
use yonder_placement::{ClusterId, MoveId, Outcome, Registration};

use crate::agent::{Executor, NodeAgent};
use crate::door::{DialError, dial};
use crate::lines::{LineReader, send_line};
use crate::messages::{FromController, ToController};

/// How long connecting, a line, or the welcome may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait before connecting again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
/// Reports in a lease: two may be lost.
const REPORTS_PER_LEASE: u32 = 3;

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
            address: address.to_owned(),
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
    address: String,
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
                    tracing::warn!(address = self.address, cause, "the controller is lost; connecting again");
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
            tracing::info!(address = self.address, "registered at the controller again");
            show(LinkCondition::Connected);
        }
    }

    /// Connects and registers at the first controller that takes the node.
    fn register(&mut self) -> Result<Connection, LinkError> {
        let addresses = self.address.clone();
        let mut last = Err(unreachable(&addresses, &io::ErrorKind::InvalidInput.into()));
        for address in addresses.split(',') {
            last = self.register_at(address.trim().to_owned());
            if last.is_ok() {
                break;
            }
        }
        last
    }

    fn register_at(&mut self, address: String) -> Result<Connection, LinkError> {
        let failed = |error: io::Error| unreachable(&address, &error);
        let stream = match dial(&address, TIMEOUT, self.credential.as_ref()) {
            Ok(stream) => stream,
            Err(DialError::Lost(error)) => return Err(failed(error)),
            Err(DialError::Refused(cause)) => return Err(LinkError::TurnedAway { address, cause }),
        };
        let (facts, cluster) = (self.facts.clone(), self.cluster);
        let (spaces, report) = (self.executor.spaces(), self.executor.report());
        send_line(&stream, &ToController::Register { facts, cluster, spaces, report }).map_err(failed)?;
        let mut lines = LineReader::new(stream.clone());
        let lease_ms = match lines.next().map_err(failed)? {
            Some(FromController::Registered { cluster, lease_ms }) => {
                self.cluster = Some(cluster);
                lease_ms
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
        Ok(Connection { number, stream, report_every })
    }

    /// Reports and executes until the connection is lost or the node stops.
    fn serve(&mut self, connection: &Connection) -> End {
        let mut report_at = Instant::now() + connection.report_every;
        loop {
            let now = Instant::now();
            if now >= report_at {
                let report = self.executor.report();
                if let Err(error) = send_line(&connection.stream, &ToController::Report(report)) {
                    return End::Lost(error.to_string());
                }
                report_at = now + connection.report_every;
            }
            let outcome = match self.inbox.recv_timeout(report_at.saturating_duration_since(now)) {
                Ok(Event::Line(of, FromController::Do(command))) if of == connection.number => {
                    self.executor.execute(command)
                }
                Ok(Event::Lost(of, cause)) if of == connection.number => return End::Lost(cause),
                Ok(Event::MoveEnded(id, outcome)) => {
                    self.executor.ended(id, outcome.clone());
                    Some(outcome)
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
