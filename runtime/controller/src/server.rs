//! [`ControllerServer`]: the listening socket, a reader thread for each connection, and the brain's thread.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use yonder_identity::{Credential, Host, Peer, Role};
use yonder_placement::{ClusterId, Config, ConfigError, Controller, RestoreError};

use crate::brain::{Brain, PeerId};
use crate::desk::{Desk, Mouth, Party};
use crate::door::{Door, Visit};
use crate::limits::Limits;
use crate::lines::{Allowance, LINE_TIME_MAX, LineReader, LongLines, Speaker, is_timeout, send_line};
use crate::messages::{FromController, ToController};
use crate::peers::{Counted, Peers};
use crate::store::{self, Store, StoreError};

/// Stack of a reader: it parses lines of bounded depth, and there may be many.
const READER_STACK_BYTES: usize = 256 << 10;
/// How long a peer may not read what it is sent, once its socket is full.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the acceptor is waited for.
const WAKE_TIMEOUT: Duration = Duration::from_millis(500);

/// Why a controller cannot start, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {cause}; type another --listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the operating system said.
        cause: io::Error,
    },
    /// The limits contradict each other.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The stored state does not fit.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A running controller. Dropping it stops it.
#[derive(Debug)]
pub struct ControllerServer {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    desk: Desk,
    brain: Mutex<Option<JoinHandle<Result<(), StoreError>>>>,
    acceptor: Option<JoinHandle<()>>,
}

impl ControllerServer {
    /// Serves all who connect at `listen`, with the records in `store`.
    pub fn start(listen: SocketAddr, config: Config, store: Box<dyn Store>) -> Result<Self, ControllerError> {
        Self::start_as(listen, config, store, None)
    }

    /// The same, with the controller's credential: then it serves only those whom that lets in, as what they are.
    pub fn start_as(
        listen: SocketAddr,
        config: Config,
        store: Box<dyn Store>,
        credential: Option<Arc<Credential>>,
    ) -> Result<Self, ControllerError> {
        Self::start_on(Self::bind(listen)?, config, store, credential)
    }

    /// Listens at `listen`: nodes and clients that connect wait for [`ControllerServer::start_on`].
    pub fn bind(listen: SocketAddr) -> Result<TcpListener, ControllerError> {
        TcpListener::bind(listen).map_err(|cause| ControllerError::Listen { address: listen, cause })
    }

    /// As [`ControllerServer::start_as`], on a socket that listens already.
    pub fn start_on(
        listener: TcpListener,
        config: Config,
        mut store: Box<dyn Store>,
        credential: Option<Arc<Credential>>,
    ) -> Result<Self, ControllerError> {
        config.check()?;
        let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let address = listener.local_addr().map_err(|cause| ControllerError::Listen { address: unknown, cause })?;
        let failed = |cause| ControllerError::Listen { address, cause };
        let records = store::load(store.as_mut(), "the store")?;
        let controller = Controller::restore(config, ClusterId(StdRng::from_os_rng().random()), records, 0)?;
        let desk = Desk::default();
        let inbox = desk.inbox();
        let limits = Limits::of_process();
        let door = Door::new(credential, limits.handshakes_max);
        let brain = Brain::new(controller, store, config, door.clone(), Instant::now());
        let stopping = Arc::new(AtomicBool::new(false));
        let on_end = EndGuard { stopping: Arc::clone(&stopping), address };
        let think = move || {
            let _on_end = on_end;
            brain.run(&inbox)
        };
        let brain = thread::Builder::new().name("yonder-controller".to_owned()).spawn(think).map_err(failed)?;
        let (stops, long_lines) = (Arc::clone(&stopping), LongLines::default());
        let peers = Peers::new(limits.peers_max);
        let acceptor = Acceptor { listener, stopping: stops, desk: desk.clone(), door, peers, long_lines };
        let accept = thread::Builder::new().name("yonder-accept".to_owned()).spawn(move || acceptor.run());
        let acceptor = Some(accept.map_err(failed)?);
        Ok(Self { address, stopping, desk, brain: Mutex::new(Some(brain)), acceptor })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until it ends: well after [`ControllerServer::stop`], or because its store failed.
    pub fn wait(&self) -> Result<(), ControllerError> {
        let brain = self.brain.lock().unwrap_or_else(PoisonError::into_inner).take();
        match brain.map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => Ok(result?),
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        }
    }

    /// Tells it to end; [`ControllerServer::wait`] returns then.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.desk.stop();
    }
}

impl Drop for ControllerServer {
    fn drop(&mut self) {
        self.stop();
        if let Err(error) = self.wait() {
            tracing::error!(%error, "the controller has failed");
        }
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

/// When the brain ends, for whatever reason, nobody is accepted any more.
struct EndGuard {
    stopping: Arc<AtomicBool>,
    address: SocketAddr,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // Wakes the acceptor, which then sees that it must stop.
        let mut address = self.address;
        match address {
            SocketAddr::V4(_) if address.ip().is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            SocketAddr::V6(_) if address.ip().is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        let _ = TcpStream::connect_timeout(&address, WAKE_TIMEOUT);
    }
}

struct Acceptor {
    listener: TcpListener,
    stopping: Arc<AtomicBool>,
    desk: Desk,
    door: Door,
    peers: Peers,
    long_lines: LongLines,
}

impl Acceptor {
    fn run(self) {
        for number in 0.. {
            let accepted = self.listener.accept();
            if self.stopping.load(Ordering::Acquire) {
                return;
            }
            match accepted {
                Ok((stream, from)) => self.serve(PeerId(number), stream, Host::of(from.ip())),
                // A connection that ended before it was accepted, or no descriptor is free: others may end soon.
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }

    /// Starts the reader of a connection. A connection too many, or a broken one, is dropped.
    fn serve(&self, id: PeerId, stream: TcpStream, source: Host) {
        // Those whose names are asked for take a place once they are known: else strangers would have all places.
        let counted = if self.door.asks() { None } else { Some(self.peers.admit(Party::Host(source))) };
        if let Some(Err(cause)) = counted {
            tracing::warn!(%source, "a connection was refused: {cause}");
            return;
        }
        let prepared = stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(LINE_TIME_MAX)))
            .and_then(|()| stream.set_write_timeout(Some(SEND_TIMEOUT)));
        if prepared.is_err() {
            return;
        }
        let Some(visit) = self.door.visit(stream, source) else {
            tracing::warn!(%source, "too many members shake hands: a connection was refused");
            return;
        };
        let reader = Reader {
            id,
            source,
            door: self.door.clone(),
            peers: self.peers.clone(),
            long_lines: self.long_lines.clone(),
            desk: self.desk.clone(),
        };
        let read = move || reader.run(visit, counted.and_then(Result::ok));
        let thread = thread::Builder::new().name("yonder-read".to_owned()).stack_size(READER_STACK_BYTES);
        if let Err(error) = thread.spawn(read) {
            tracing::warn!(%error, "no thread is left for a connection: it was refused");
        }
    }
}

/// What the thread of a connection does: lets it in, and passes its lines on.
struct Reader {
    id: PeerId,
    source: Host,
    door: Door,
    peers: Peers,
    long_lines: LongLines,
    desk: Desk,
}

impl Reader {
    /// One that is counted already goes on being so.
    fn run(&self, visit: Visit, counted: Option<Counted>) {
        let (stream, peer) = match self.door.let_in(visit) {
            Ok(let_in) => let_in,
            Err(cause) => return tracing::warn!(cause, source = %self.source, "a connection was not let in"),
        };
        let party = Party::of(peer.as_ref(), self.source);
        let place = match counted.map_or_else(|| self.peers.admit(party.clone()), Ok) {
            Ok(counted) => counted,
            Err(cause) => {
                tracing::warn!(source = %self.source, cause, "a peer was turned away");
                let _ = send_line(&stream, &FromController::TurnedAway { cause });
                return;
            }
        };
        let speaker = match peer.as_ref().and_then(Peer::role) {
            Some(Role::Node) => Speaker::Long,
            Some(Role::Tenant | Role::Operator | Role::Controller) => Speaker::Short,
            None => Speaker::Unknown,
        };
        let Ok(mut mouth) = self.desk.begin(self.id, stream.clone(), self.source, peer, place) else {
            let _ = stream.shutdown();
            return;
        };
        let allowance = Allowance { long_lines: self.long_lines.clone(), party, standing: mouth.standing() };
        let mut lines = LineReader::bounded(stream, speaker, Some(allowance));
        let cause = read_lines(&mut lines, &mut mouth);
        // What it had of a line that was not ended is of no use while those before it wait to be heard.
        drop(lines);
        mouth.end(cause);
    }
}

/// Passes lines on until the connection ends; says what was wrong with it, if that was its fault.
fn read_lines(lines: &mut LineReader, mouth: &mut Mouth) -> Option<String> {
    loop {
        match lines.next::<ToController>() {
            Ok(Some(line)) => {
                let part = lines.take_part();
                if mouth.say(line, part).is_err() {
                    let _ = lines.shutdown();
                    return None;
                }
            }
            Ok(None) => return None,
            // How long a client may be silent between lines is the brain's to say.
            Err(error) if is_timeout(&error) && lines.is_between_lines() => {}
            Err(error) if is_timeout(&error) => return Some("a line was begun and not ended".to_owned()),
            Err(error) => return (error.kind() == ErrorKind::InvalidData).then(|| error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use yonder_placement::Request;

    use super::*;

    /// What had been sent of a line once counted for as long as the lines before it waited, though its connection had
    /// ended.
    #[test]
    fn a_connection_that_ends_in_a_long_line_gives_its_bytes_back_while_lines_before_it_wait() {
        let desk = Desk::default();
        let inbox = desk.inbox();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (here, from) = listener.accept().unwrap();
        let (door, source, long_lines) = (Door::new(None, 1), Host::of(from.ip()), LongLines::default());
        let visit = door.visit(here, source).unwrap();
        let peers = Peers::default();
        let reader = Reader { id: PeerId(1), source, door, peers, long_lines: long_lines.clone(), desk: desk.clone() };
        let reader = thread::spawn(move || reader.run(visit, None));
        send_line(&there.try_clone().unwrap().into(), &ToController::Ask { id: 1, request: Request::Nodes }).unwrap();
        there.write_all(&[b'['; 32 << 10]).unwrap();
        drop(there);
        // It waits until the line is heard.
        desk.until_one_sleeps();
        assert_eq!(long_lines.taken(), [0, 0]);
        drop(inbox);
        reader.join().unwrap();
    }
}
