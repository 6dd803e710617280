//! Where a node listens: [`Listen`] addresses as the user types them, and [`Listener`], the bound sockets.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// One address of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listen {
    /// `tcp://host:port`: the host and port.
    Tcp(String),
    /// `shm:///path`: a socket in the file system, for clients on this machine.
    Shm(PathBuf),
}

impl fmt::Display for Listen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(formatter, "tcp://{address}"),
            Self::Shm(path) => write!(formatter, "shm://{}", path.display()),
        }
    }
}

/// What is wrong with a typed list of addresses, and what to type instead.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "'{text}' {problem}: type --listen tcp://127.0.0.1:7000 or --listen shm:///tmp/yonder.sock, or both with a comma"
)]
pub struct ListenError {
    text: String,
    problem: &'static str,
}

/// Parses a list of addresses separated by commas, such as `tcp://0.0.0.0:7000,shm:///tmp/yonder.sock`.
pub fn parse_listen(text: &str) -> Result<Vec<Listen>, ListenError> {
    text.split(',').map(|address| parse_one(address.trim())).collect()
}

fn parse_one(text: &str) -> Result<Listen, ListenError> {
    let bad = |problem| Err(ListenError { text: text.to_owned(), problem });
    match text.split_once("://") {
        Some(("tcp", address)) => match address.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Listen::Tcp(address.to_owned()))
            }
            _ => bad("has no host and port"),
        },
        Some(("shm", path)) if path.starts_with('/') => Ok(Listen::Shm(PathBuf::from(path))),
        Some(("shm", _)) => bad("is not an absolute path"),
        Some(("udp", _)) => bad("is not served by this version"),
        _ => bad("is not an address of a memory node"),
    }
}

/// A bound socket that does not block.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Socket,
    address: Listen,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Binds the address and listens.
    pub(crate) fn bind(address: &Listen) -> io::Result<Self> {
        match address {
            Listen::Tcp(address) => {
                let socket = TcpListener::bind(address)?;
                socket.set_nonblocking(true)?;
                let address: SocketAddr = socket.local_addr()?;
                Ok(Self { socket: Socket::Tcp(socket), address: Listen::Tcp(address.to_string()) })
            }
            Listen::Shm(path) => {
                remove_stale(path)?;
                let socket = UnixListener::bind(path)?;
                // Whoever connects can read and write all memory of the node.
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
                socket.set_nonblocking(true)?;
                Ok(Self { socket: Socket::Unix(socket), address: address.clone() })
            }
        }
    }

    /// The address, with the port that was chosen.
    pub(crate) fn address(&self) -> &Listen {
        &self.address
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Unix(socket) => socket.as_fd(),
        }
    }
}

/// Removes the socket of a node that was killed. The socket of a living node is left, and binding says so.
fn remove_stale(path: &Path) -> io::Result<()> {
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_parse() {
        let both = parse_listen("tcp://0.0.0.0:7000, shm:///tmp/a.sock").unwrap();
        assert_eq!(both, [Listen::Tcp("0.0.0.0:7000".into()), Listen::Shm("/tmp/a.sock".into())]);
        assert_eq!(both[1].to_string(), "shm:///tmp/a.sock");
        assert!(parse_listen("tcp://[::1]:0").is_ok());
    }

    #[test]
    fn bad_addresses_say_what_to_type() {
        for bad in ["", "7000", "tcp://", "tcp://:7000", "tcp://host", "tcp://host:port", "shm://a.sock", "rdma://a:1"]
        {
            let message = parse_listen(bad).unwrap_err().to_string();
            assert!(message.starts_with(&format!("'{bad}'")) && message.contains("type --listen tcp://"), "{message}");
            assert_eq!(message.lines().count(), 1);
        }
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_living_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let address = Listen::Shm(folder.path().join("node.sock"));
        drop(Listener::bind(&address).unwrap());
        let living = Listener::bind(&address).unwrap();
        assert_eq!(Listener::bind(&address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(living);
    }
}
