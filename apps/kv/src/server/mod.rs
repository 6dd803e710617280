//! The server: sockets on the dispatcher thread ([`KvFrontend`]), the store on worker threads ([`KvHandler`]).
//!
//! [`KvServer::bind`] makes both from a [`KvConfig`] and the memory that will hold the items; the caller hands them to
//! the scheduler. The front end never touches far memory: what needs the store becomes a [`KvRequest`], and what does
//! not is answered on the spot. Replies are sent by the dispatcher, so workers never wait for a socket.
//!
//! Parts: `session` is a client without its socket, `connection` and `udp` are the sockets, `frontend` the loop around
//! them, `report` the answers to `stats`.

mod buffers;
mod connection;
mod frontend;
mod handler;
mod hits;
mod registry;
mod report;
mod session;
mod udp;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use mio::net::{TcpListener, UdpSocket};
use mio::{Poll, Waker};

pub use self::frontend::KvFrontend;
use self::frontend::{Sockets, WAKER};
pub use self::handler::{KvHandler, KvReply, KvRequest};
use self::report::Report;
pub use self::report::runtime_stats;
use crate::memory::ItemMemory;
use crate::store::{Store, StoreConfig, StoreError};

/// Adds names and values to what `stats` answers. Called on the dispatcher thread.
pub type ExtraStats = Box<dyn Fn(&mut Vec<(String, String)>) + Send>;

/// What a server is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KvConfig {
    /// Where TCP clients connect. Port 0 takes any free port.
    pub listen: SocketAddr,
    /// Where UDP requests arrive, if anywhere.
    pub udp: Option<SocketAddr>,
    /// TCP clients at a time. More are turned away with an error.
    pub connections_max: usize,
    /// Largest value, in bytes.
    pub value_bytes_max: usize,
    /// How many items are expected; None derives it from the memory.
    pub items: Option<u64>,
    /// Worker threads, for `stats`.
    pub threads: usize,
}

impl KvConfig {
    /// A server on `listen`, for TCP, with memcached's defaults: 1024 connections, values up to 1 MiB.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self { listen, udp: None, connections_max: 1024, value_bytes_max: 1 << 20, items: None, threads: 1 }
    }
}

/// Why a server cannot start. The text says what to type.
#[derive(Debug, thiserror::Error)]
pub enum KvError {
    /// The store does not fit the memory.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {protocol} {address}: {cause}; type --listen with a free address, such as 127.0.0.1:11211"
    )]
    Listen {
        /// `tcp` or `udp`.
        protocol: &'static str,
        /// As configured.
        address: SocketAddr,
        /// What the operating system said.
        cause: io::Error,
    },
    /// The operating system refused something else.
    #[error("cannot set up the server's sockets: {0}; `ulimit -n` shows how many files it may open")]
    System(#[from] io::Error),
}

/// Tells a server to end: what is under way is answered, clients get a second to take it.
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

/// A server that is bound to its addresses, and not yet serving.
pub struct KvServer<M: ItemMemory> {
    frontend: KvFrontend,
    handler: KvHandler<M>,
    shutdown: Shutdown,
    tcp: SocketAddr,
    udp: Option<SocketAddr>,
}

impl<M: ItemMemory> KvServer<M> {
    /// Binds the addresses and lays the store out over the whole of `memory`.
    ///
    /// # Errors
    /// If an address is taken or not ours, or the memory is too small for the item size.
    pub fn bind(config: KvConfig, memory: M) -> Result<Self, KvError> {
        let memory_bytes = memory.bytes();
        let store_config = StoreConfig {
            value_bytes_max: config.value_bytes_max,
            items: config.items,
            hash_seed: RandomState::new().hash_one(memory_bytes),
        };
        let store = Arc::new(Store::new(memory, store_config)?);
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let shutdown = Shutdown { requested: Arc::default(), waker: Arc::clone(&waker) };
        let listen_error = |protocol, address| move |cause| KvError::Listen { protocol, address, cause };
        let tcp = TcpListener::bind(config.listen).map_err(listen_error("tcp", config.listen))?;
        let udp =
            config.udp.map(|address| UdpSocket::bind(address).map_err(listen_error("udp", address))).transpose()?;
        let (tcp_address, udp_address) = (tcp.local_addr()?, udp.as_ref().map(UdpSocket::local_addr).transpose()?);
        let config = KvConfig { listen: tcp_address, udp: udp_address, ..config };
        let report = Report { store: Arc::clone(&store) as _, config, memory_bytes, extra: None };
        let started_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let frontend = KvFrontend::new(Sockets { poll, waker, tcp, udp }, report, shutdown.clone(), started_s)?;
        Ok(Self { frontend, handler: KvHandler { store }, shutdown, tcp: tcp_address, udp: udp_address })
    }

    /// Where TCP clients connect, with the real port.
    pub fn tcp_address(&self) -> SocketAddr {
        self.tcp
    }

    /// Where UDP requests arrive, with the real port.
    pub fn udp_address(&self) -> Option<SocketAddr> {
        self.udp
    }

    /// Ends the server when asked to.
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// The two halves, for the scheduler.
    pub fn into_parts(self) -> (KvFrontend, KvHandler<M>) {
        (self.frontend, self.handler)
    }
}
