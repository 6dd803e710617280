//! The server: sockets on the dispatcher thread ([`KvFrontend`]), the store on worker threads ([`KvHandler`]).
//!
//! [`BoundKv::bind`] takes the addresses of a [`KvConfig`], and [`BoundKv::with_memory`] makes both halves once there
//! is the memory that will hold the items; [`KvServer::bind`] does both steps at once. The caller hands the halves to
//! the scheduler. The front end never touches far memory: what needs the store becomes a [`KvRequest`], and what does
//! not is answered on the spot. Replies are sent by the dispatcher, so workers never wait for a socket.
//!
//! Clients prove nothing unless they are asked to ([`KvAccess`]: passwords, certificates), so none of them is trusted
//! with memory or with answers: what all connections, datagrams and requests under way have allocated has a `budget`. A
//! request for which there is no room is answered with an error, and what those hold that make no `progress` is taken
//! from them. What is sent to an address that a datagram claims to come from has an `allowance`.
//!
//! Parts: `session` is a client without its socket, `connection` with one, which is a `channel` over a `socket`, `udp`
//! the datagrams, `frontend` the loop around them, `limits` who gives way, `report` the answers to `stats`.

mod access;
mod allowance;
mod budget;
mod buffers;
mod certificates;
mod channel;
mod config;
mod connection;
mod frontend;
mod handler;
mod hits;
mod limits;
mod passwords;
mod progress;
mod registry;
mod report;
mod session;
mod socket;
mod time;
mod udp;

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use mio::net::UdpSocket;
use mio::{Poll, Waker};

pub use self::access::KvAccess;
use self::budget::Budget;
pub use self::certificates::{TlsClients, TlsFiles};
pub use self::config::{KvConfig, KvError, Listen, ShutdownCommand, UdpTrust};
pub use self::frontend::KvFrontend;
use self::frontend::{Sockets, WAKER};
pub use self::handler::{KvHandler, KvReply, KvRequest};
use self::report::Report;
pub use self::report::runtime_stats;
use self::socket::Listener;
use crate::memory::ItemMemory;
use crate::store::{Store, StoreConfig};

/// Adds names and values to what `stats` answers. Called on the dispatcher thread.
pub type ExtraStats = Box<dyn Fn(&mut Vec<(String, String)>) + Send>;

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

/// The addresses of a server, which has no memory yet: what rights they took may be given up before that is opened.
pub struct BoundKv {
    config: KvConfig,
    access: KvAccess,
    sockets: Sockets,
}

impl BoundKv {
    /// Binds the addresses. Makes no threads.
    ///
    /// # Errors
    /// Of [`KvAccess::open`] and [`BoundKv::bind_with`].
    pub fn bind(config: KvConfig) -> Result<Self, KvError> {
        let access = KvAccess::open(&config)?;
        Self::bind_with(config, access)
    }

    /// The same with files that were read before, perhaps as another user.
    ///
    /// # Errors
    /// If the configuration is refused ([`KvConfig::check`]), or an address is taken or not ours.
    pub fn bind_with(config: KvConfig, access: KvAccess) -> Result<Self, KvError> {
        config.check()?;
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let listener = Listener::bind(&config.listen)?;
        let bind =
            |address| UdpSocket::bind(address).map_err(|cause| KvError::Listen { protocol: "udp", address, cause });
        let datagrams = config.udp.map(bind).transpose()?;
        let udp = datagrams.as_ref().map(UdpSocket::local_addr).transpose()?;
        let config = KvConfig { listen: listener.listen()?, udp, ..config };
        Ok(Self { config, access, sockets: Sockets { poll, waker, listener, udp: datagrams } })
    }

    /// Lays the store out over the whole of `memory`.
    ///
    /// # Errors
    /// If the memory is too small for the item size.
    pub fn with_memory<M: ItemMemory>(self, memory: M) -> Result<KvServer<M>, KvError> {
        let Self { config, access, sockets } = self;
        let (listen, udp) = (config.listen.clone(), config.udp);
        let memory_bytes = memory.bytes();
        let store_config = StoreConfig {
            value_bytes_max: config.value_bytes_max,
            items: config.items,
            hash_seed: RandomState::new().hash_one(memory_bytes),
            access_times: config.access_times,
        };
        let store = Arc::new(Store::new(memory, store_config)?);
        let shutdown = Shutdown { requested: Arc::default(), waker: Arc::clone(&sockets.waker) };
        let report = Report { store: Arc::clone(&store) as _, config, access, memory_bytes, extra: None };
        let started_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let buffers = Budget::new(report.config.buffer_bytes());
        let frontend = KvFrontend::new(sockets, report, shutdown.clone(), started_s, buffers.clone())?;
        Ok(KvServer { frontend, handler: KvHandler { store, buffers }, shutdown, listen, udp })
    }
}

/// A server that is bound to its addresses, and not yet serving.
pub struct KvServer<M: ItemMemory> {
    frontend: KvFrontend,
    handler: KvHandler<M>,
    shutdown: Shutdown,
    listen: Listen,
    udp: Option<SocketAddr>,
}

impl<M: ItemMemory> KvServer<M> {
    /// Binds the addresses and lays the store out over the whole of `memory`.
    ///
    /// # Errors
    /// Of [`BoundKv::bind`] and [`BoundKv::with_memory`].
    pub fn bind(config: KvConfig, memory: M) -> Result<Self, KvError> {
        BoundKv::bind(config)?.with_memory(memory)
    }

    /// Where clients connect, with the real port.
    pub fn listen(&self) -> &Listen {
        &self.listen
    }

    /// Where TCP clients connect, if they do.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.listen.tcp()
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
