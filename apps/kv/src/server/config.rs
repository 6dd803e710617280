//! What a server is told, [`KvConfig`], and why it cannot start, [`KvError`].

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use yonder_identity::IdentityError;

use super::certificates::{TlsClients, TlsFiles};
use super::connection;
use crate::store::{StoreError, VALUE_BYTES_LIMIT};

/// What the buffers of all connections may take, unless they are told or values are large.
const BUFFER_BYTES: usize = 64 << 20;
/// Connections with large values that there is room for, unless buffers are told.
const LARGE_CONNECTIONS: usize = 4;
/// Limits of buffers are whole multiples of this.
const BUFFER_UNIT_BYTES: usize = 1 << 20;

/// What the address of a Unix socket starts with.
const UNIX_SCHEME: &str = "unix://";

/// Where clients connect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listen {
    /// Over TCP. Port 0 takes any free port.
    Tcp(SocketAddr),
    /// At a socket in a folder, which ends with the server: for programs of its user.
    Unix(PathBuf),
}

impl Listen {
    /// The address, if there is one.
    #[must_use]
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix(UNIX_SCHEME) {
            Some(path) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            Some(path) => Err(format!("'{path}' is no absolute path: type {UNIX_SCHEME}/run/yonder.sock")),
            None => text.parse().map(Self::Tcp).map_err(|_| {
                format!("type an address and a port, such as 127.0.0.1:11211, or {UNIX_SCHEME}/run/yonder.sock")
            }),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX_SCHEME}{}", path.display()),
        }
    }
}

/// What a server is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KvConfig {
    /// Where clients connect.
    pub listen: Listen,
    /// Where UDP requests arrive, if anywhere.
    pub udp: Option<SocketAddr>,
    /// Whether UDP may listen where others than this machine can ask, who prove nothing.
    pub open: bool,
    /// Which sources of datagrams are answered without limit.
    pub udp_trust: UdpTrust,
    /// Who is let in, by lines `user:password`; all are if it is not given.
    pub auth_file: Option<PathBuf>,
    /// What TLS is spoken with, if it is.
    pub tls: Option<TlsFiles>,
    /// Whether clients may end the server (`shutdown`).
    pub shutdown: ShutdownCommand,
    /// Whether it is known when items were accessed (`l` of `mg`, `la` of `me`): four bytes of local memory a slot.
    pub access_times: bool,
    /// Clients at a time. More are turned away with an error, unless one is silent in the middle of a command, or
    /// has never sent one.
    pub connections_max: usize,
    /// How long a client may get on with nothing; None is for ever.
    pub idle_timeout: Option<Duration>,
    /// What the buffers of all clients and of requests under way may take together, beyond the little that each has for
    /// nothing; None is 64 MiB, or more if that is too little for a few of the largest values.
    pub buffer_bytes_max: Option<usize>,
    /// Largest value, in bytes.
    pub value_bytes_max: usize,
    /// How many items are expected; None derives it from the memory.
    pub items: Option<u64>,
    /// Worker threads, for `stats`.
    pub threads: usize,
}

/// What becomes of `shutdown`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShutdownCommand {
    /// It is refused.
    Refused,
    /// It ends the server.
    Obeyed,
}

/// Which sources of datagrams are known to be what they claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UdpTrust {
    /// Addresses of this machine, which the kernel lets no other machine use.
    Loopback,
    /// None.
    NoSource,
}

impl UdpTrust {
    pub(super) fn includes(self, source: IpAddr) -> bool {
        match self {
            Self::Loopback => is_loopback(source),
            Self::NoSource => false,
        }
    }
}

impl KvConfig {
    /// A server on `listen`, with memcached's defaults: 1024 connections, values up to 1 MiB.
    #[must_use]
    pub fn new(listen: impl Into<Listen>) -> Self {
        Self {
            listen: listen.into(),
            udp: None,
            open: false,
            udp_trust: UdpTrust::Loopback,
            auth_file: None,
            tls: None,
            shutdown: ShutdownCommand::Refused,
            access_times: false,
            connections_max: 1024,
            idle_timeout: None,
            buffer_bytes_max: None,
            value_bytes_max: 1 << 20,
            items: None,
            threads: 1,
        }
    }

    /// Whether a server may be started like this, as far as that can be told without trying.
    ///
    /// # Errors
    /// If UDP would listen beyond loopback and that is not wanted, or where clients are to show who they are, which a
    /// datagram cannot; if TLS would be spoken at a socket in a folder, or buffers are too small for one client.
    pub fn check(&self) -> Result<(), KvError> {
        if self.udp.is_some() && (self.auth_file.is_some() || self.tls.is_some()) {
            return Err(KvError::UdpProvesNothing);
        }
        if let (Listen::Unix(_), Some(_)) = (&self.listen, &self.tls) {
            return Err(KvError::TlsOfUnix);
        }
        if let Some(TlsFiles { client_authorities: None, clients: TlsClients::AreVerified, .. }) = &self.tls {
            return Err(KvError::NoAuthorities);
        }
        if let Some(address) = self.udp.filter(|address| !is_loopback(address.ip()) && !self.open) {
            return Err(KvError::UdpOpen { address });
        }
        let (bytes, least) = (self.buffer_bytes(), self.buffer_bytes_least());
        if bytes < least {
            return Err(KvError::BuffersTooSmall { bytes, value_bytes_max: self.value_bytes_max, least });
        }
        Ok(())
    }

    /// What the buffers of all clients and of requests under way may take together.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes_max.unwrap_or_else(|| BUFFER_BYTES.max(LARGE_CONNECTIONS * self.buffer_bytes_least()))
    }

    /// One client alone is never refused what it may ask for.
    fn buffer_bytes_least(&self) -> usize {
        let value_bytes_max = self.value_bytes_max.min(VALUE_BYTES_LIMIT);
        connection::bytes_max(value_bytes_max).next_multiple_of(BUFFER_UNIT_BYTES)
    }
}

/// Whether only this machine has the address.
fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
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
    /// The socket cannot be listened on.
    #[error("cannot listen at {path}: {cause}; type --listen with a path that is free, in a folder that you may write to",
            path = .path.display())]
    ListenUnix {
        /// As configured.
        path: PathBuf,
        /// What the operating system said.
        cause: io::Error,
    },
    /// UDP would listen beyond this machine, which was not asked for.
    #[error(
        "udp {address} can be asked by machines that prove nothing, in the name of others; type --udp 127.0.0.1:{port}, \
         or --open if only machines that you trust can reach it",
        port = .address.port()
    )]
    UdpOpen {
        /// As configured.
        address: SocketAddr,
    },
    /// A file with a secret cannot be read, or others can.
    #[error(transparent)]
    Secret(Box<IdentityError>),
    /// The file of passwords says something else.
    #[error(
        "{path} does not say who is let in: {cause}; type --auth-file with a file of lines such as alice:secret",
        path = .path.display()
    )]
    AuthFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// A file for TLS is not what it should be.
    #[error("{path} is not {wanted}: {cause}; type {flag} with a file in PEM", path = .path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// The flag that named it.
        flag: &'static str,
        /// What it should be.
        wanted: &'static str,
        /// What it is.
        cause: String,
    },
    /// Clients are to show who they are, and datagrams cannot.
    #[error("a datagram can neither be encrypted nor say a password: leave out --udp, or --auth-file and --tls-cert")]
    UdpProvesNothing,
    /// TLS where no network is.
    #[error(
        "TLS is for networks, not for a socket in a folder: type --listen with an address, or leave out --tls-cert"
    )]
    TlsOfUnix,
    /// Clients are to show certificates of nobody.
    #[error("--tls-verify wants to know whose certificates are good: type --tls-ca with a file in PEM")]
    NoAuthorities,
    /// One client could not be served.
    #[error(
        "{bytes} bytes of buffers are too few for values of {value_bytes_max} bytes: type --buffers {mib}MiB or more",
        mib = .least >> 20
    )]
    BuffersTooSmall {
        /// As configured.
        bytes: usize,
        /// As configured.
        value_bytes_max: usize,
        /// What would do.
        least: usize,
    },
    /// The operating system refused something else.
    #[error("cannot set up the server's sockets: {0}; `ulimit -n` shows how many files it may open")]
    System(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> KvConfig {
        KvConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    fn refusal(config: &KvConfig) -> String {
        config.check().expect_err("it is refused").to_string()
    }

    #[test]
    fn udp_beyond_this_machine_is_asked_for() {
        for (address, allowed) in [
            ("127.0.0.1:7", true),
            ("127.9.9.9:7", true),
            ("[::1]:7", true),
            ("[::ffff:127.0.0.1]:7", true),
            ("0.0.0.0:7", false),
            ("[::]:7", false),
            ("192.0.2.1:7", false),
        ] {
            let closed = KvConfig { udp: Some(address.parse().expect("an address")), ..config() };
            assert_eq!(closed.check().is_ok(), allowed, "{address}");
            assert!(KvConfig { open: true, ..closed.clone() }.check().is_ok(), "{address}");
            if !allowed {
                let refusal = refusal(&closed);
                assert!(refusal.contains(address) && refusal.contains("type --udp 127.0.0.1:7"), "{refusal}");
                assert!(refusal.contains("--open") && !refusal.contains('\n'), "{refusal}");
            }
        }
    }

    #[test]
    fn addresses_are_of_tcp_or_of_a_folder() {
        for text in ["127.0.0.1:0", "[::1]:11211", "unix:///run/yonder.sock"] {
            let listen: Listen = text.parse().expect(text);
            assert_eq!(listen.to_string(), text);
            assert_eq!(listen.tcp().is_none(), text.starts_with(UNIX_SCHEME), "{text}");
        }
        for text in ["unix://run/yonder.sock", "localhost", "11211", ""] {
            let refusal = text.parse::<Listen>().expect_err(text);
            assert!(refusal.contains("type ") && !refusal.contains('\n'), "{refusal}");
        }
    }

    #[test]
    fn buffers_are_large_enough_for_one_client() {
        assert_eq!(config().buffer_bytes(), BUFFER_BYTES);
        let large = KvConfig { value_bytes_max: VALUE_BYTES_LIMIT, ..config() };
        assert!(large.check().is_ok() && large.buffer_bytes() > 8 * VALUE_BYTES_LIMIT, "{}", large.buffer_bytes());
        let refusal = refusal(&KvConfig { buffer_bytes_max: Some(1 << 20), ..config() });
        assert!(refusal.contains("type --buffers 5MiB") && !refusal.contains('\n'), "{refusal}");
        assert!(KvConfig { buffer_bytes_max: Some(5 << 20), ..config() }.check().is_ok());
    }
}
