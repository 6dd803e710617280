//! Where a node listens: [`Listen`] addresses as the user types them, and [`Listener`], the bound sockets.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use socket2::{Domain, Protocol, Socket as Socket2, Type};
use yonder_datagram::{NamedSocket, Steering, steer};
use yonder_session::{THREAD_FIELD, ThreadField};
use yonder_units::Narrow;

/// Bytes of datagrams that a socket holds for its thread.
const DATAGRAM_BUFFER_BYTES: usize = 4 << 20;
/// Threads that serve one address of datagrams, at most: a message can tell as many apart.
const THREADS_MAX: usize = THREAD_FIELD.modulus;
/// Ports that the kernel chooses for datagrams, of which one is to be free for streams too.
const PORTS_TRIED_MAX: usize = 64;

/// One address of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listen {
    /// `tcp://host:port`: the host and port.
    Tcp(String),
    /// `udp://host:port`: the host and port.
    Udp(String),
    /// `shm:///path`: a socket in the file system, for clients on this machine.
    Shm(PathBuf),
}

impl Listen {
    /// The host and port, if it is an address of the network.
    #[must_use]
    pub fn socket_address(&self) -> Option<&str> {
        match self {
            Self::Tcp(address) | Self::Udp(address) => Some(address),
            Self::Shm(_) => None,
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(formatter, "tcp://{address}"),
            Self::Udp(address) => write!(formatter, "udp://{address}"),
            Self::Shm(path) => write!(formatter, "shm://{}", path.display()),
        }
    }
}

/// What is wrong with a typed list of addresses, and what to type instead.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "'{text}' {problem}: type --listen tcp://127.0.0.1:7000, udp://127.0.0.1:7000 or shm:///tmp/yonder.sock, or several \
     with commas"
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
        Some((scheme @ ("tcp" | "udp"), address)) => match address.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                let listen = if scheme == "tcp" { Listen::Tcp } else { Listen::Udp };
                Ok(listen(address.to_owned()))
            }
            _ => bad("has no host and port"),
        },
        Some(("shm", path)) if path.starts_with('/') => Ok(Listen::Shm(PathBuf::from(path))),
        Some(("shm", _)) => bad("is not an absolute path"),
        _ => bad("is not an address of a memory node"),
    }
}

/// Sockets for datagrams at `address`, one for each of `threads` threads of which the first has this number, and the
/// address with the port that was chosen. The kernel gives those that are sealed for a thread to that thread's, and all
/// others of one peer's socket to the same of them.
pub(crate) fn bind_datagrams(address: &str, first: usize, threads: usize) -> io::Result<(Vec<UdpSocket>, Listen)> {
    let mut refused = io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
    for candidate in address.to_socket_addrs()? {
        match bind_group(candidate, threads.min(THREADS_MAX)).and_then(|group| steered(group, first)) {
            Ok(group) => return Ok(group),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// Datagrams as `bind` binds them, on a port that the kernel chooses, and the streams to the same port on which their
/// sessions are made. Where one of this machine's own connections has the port of streams, another one is tried.
pub(crate) fn with_sessions_on_a_free_port(
    mut bind: impl FnMut() -> io::Result<(Vec<UdpSocket>, Listen)>,
) -> io::Result<(Vec<UdpSocket>, Listen, Listener)> {
    let mut tries = 0;
    loop {
        let (sockets, address) = bind()?;
        match Listener::for_sessions(address.socket_address().unwrap_or_default()) {
            Ok(sessions) => return Ok((sockets, address, sessions)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < PORTS_TRIED_MAX => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

/// The first socket of the group asks for the port alone, so it gets none that another node has, or gets at the same
/// time. Only then it lets the others share it.
fn bind_group(mut address: SocketAddr, threads: usize) -> io::Result<(Vec<UdpSocket>, Listen)> {
    let mut sockets: Vec<UdpSocket> = Vec::with_capacity(threads);
    for _ in 0..threads {
        let socket = Socket2::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        // The kernel may give less than this without an error.
        socket.set_recv_buffer_size(DATAGRAM_BUFFER_BYTES)?;
        socket.set_send_buffer_size(DATAGRAM_BUFFER_BYTES)?;
        let is_first = sockets.is_empty();
        if !is_first {
            socket.set_reuse_port(true)?;
        }
        socket.bind(&address.into())?;
        if is_first {
            socket.set_reuse_port(true)?;
        }
        let socket = UdpSocket::from(socket);
        address = socket.local_addr()?;
        sockets.push(socket);
    }
    Ok((sockets, Listen::Udp(address.to_string())))
}

/// The group, to which the kernel gives what is sealed for one of its threads whichever port it comes from.
fn steered((sockets, address): (Vec<UdpSocket>, Listen), first: usize) -> io::Result<(Vec<UdpSocket>, Listen)> {
    let ThreadField { leads, at, shift, modulus } = THREAD_FIELD;
    let steering = Steering { leads, at, shift, first: (first % modulus).narrow_u32(), modulus: modulus.narrow_u32() };
    if sockets.len() > 1
        && let Err(error) = steer(sockets[0].as_fd(), steering)
    {
        tracing::warn!(
            "a lane whose port changes on its way is heard no more, because the kernel steers nothing: {error}"
        );
    }
    Ok((sockets, address))
}

/// A bound socket for streams that does not block.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Socket,
    address: Listen,
    /// Whether more than sessions is to be had here.
    serves: bool,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Binds the address and listens.
    ///
    /// # Panics
    /// If the address is one for datagrams.
    pub(crate) fn bind(address: &Listen) -> io::Result<Self> {
        match address {
            Listen::Udp(_) => panic!("datagrams are not listened for"),
            Listen::Tcp(address) => {
                let socket = TcpListener::bind(address)?;
                socket.set_nonblocking(true)?;
                let address: SocketAddr = socket.local_addr()?;
                Ok(Self { socket: Socket::Tcp(socket), address: Listen::Tcp(address.to_string()), serves: true })
            }
            Listen::Shm(path) => {
                // Who may connect may read and write all memory of the node: the user alone may.
                let (_, socket) = NamedSocket::listen(path)?;
                Ok(Self { socket: Socket::Unix(socket), address: address.clone(), serves: true })
            }
        }
    }

    /// Binds the address of datagrams for the streams on which their sessions are made.
    pub(crate) fn for_sessions(address: &str) -> io::Result<Self> {
        Ok(Self { serves: false, ..Self::bind(&Listen::Tcp(address.to_owned()))? })
    }

    /// Whether more than sessions is to be had here.
    pub(crate) fn serves(&self) -> bool {
        self.serves
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_parse() {
        let all = parse_listen("tcp://0.0.0.0:7000, shm:///tmp/a.sock,udp://0.0.0.0:7000").unwrap();
        let (stream, datagram) = (Listen::Tcp("0.0.0.0:7000".into()), Listen::Udp("0.0.0.0:7000".into()));
        assert_eq!(all, [stream, Listen::Shm("/tmp/a.sock".into()), datagram]);
        assert_eq!((all[1].to_string(), all[2].to_string()), ("shm:///tmp/a.sock".into(), "udp://0.0.0.0:7000".into()));
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

    /// Of a machine with many connections their ports are taken, and the kernel does not know what else is wanted.
    #[test]
    fn datagrams_get_a_port_that_is_free_for_their_sessions_too() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut tried = 0;
        let (_, address, sessions) = with_sessions_on_a_free_port(|| {
            tried += 1;
            let wanted = if tried < 4 { taken.local_addr().unwrap().to_string() } else { "127.0.0.1:0".to_owned() };
            bind_datagrams(&wanted, 0, 2)
        })
        .unwrap();
        // Another that the kernel chose may have been taken too.
        assert!(tried >= 4, "{tried}");
        assert_eq!(address.socket_address(), sessions.address().socket_address());
        assert_ne!(address.socket_address(), Some(&*taken.local_addr().unwrap().to_string()));
    }

    #[test]
    fn a_group_has_one_port_and_no_stranger_joins_it() {
        let (sockets, address) = bind_datagrams("127.0.0.1:0", 0, 3).unwrap();
        assert!(sockets.iter().all(|socket| format!("udp://{}", socket.local_addr().unwrap()) == address.to_string()));
        let Listen::Udp(taken) = address else { panic!() };
        assert_eq!(bind_datagrams(&taken, 0, 1).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(sockets);
        assert_eq!(bind_datagrams(&taken, 0, 2).unwrap().0.len(), 2, "the port is free again");
    }

    /// The kernel spreads peers over the group, and keeps to its choice.
    #[test]
    fn every_peer_has_one_socket_of_the_group_and_every_socket_has_peers() {
        let (sockets, _) = bind_datagrams("127.0.0.1:0", 0, 2).unwrap();
        let group = sockets[0].local_addr().unwrap();
        sockets.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
        let mut served = [0; 2];
        for _ in 0..64 {
            let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
            for _ in 0..5 {
                peer.send_to(&[1], group).unwrap();
            }
            // The loopback delivers before the call returns.
            let received = |socket: &UdpSocket| std::iter::from_fn(|| socket.recv(&mut [0; 1]).ok()).count();
            match (received(&sockets[0]), received(&sockets[1])) {
                (5, 0) => served[0] += 1,
                (0, 5) => served[1] += 1,
                split => panic!("datagrams of one peer went to {split:?}"),
            }
        }
        assert!(served.iter().all(|peers| *peers > 8), "{served:?}");
    }

    /// Whichever port it comes from, what is for a thread comes to it, and what is for none of the group to any.
    #[test]
    fn what_is_sealed_for_a_thread_comes_to_its_socket() {
        let (first, threads) = (126, 5);
        let (sockets, _) = bind_datagrams("127.0.0.1:0", first, threads).unwrap();
        let group = sockets[0].local_addr().unwrap();
        sockets.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
        let arrived = |socket: &UdpSocket| std::iter::from_fn(|| socket.recv(&mut [0; 64]).ok()).count();
        let ThreadField { leads: [encrypted, authenticated], at, shift, modulus } = THREAD_FIELD;
        let from_many_ports = |lead: u8, number: usize| -> Vec<usize> {
            let mut message = [0x11; 40];
            (message[0], message[at]) = (lead, u8::try_from(number % modulus).unwrap() << shift | 1);
            for _ in 0..40 {
                UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&message, group).unwrap();
            }
            sockets.iter().map(arrived).collect()
        };
        for (place, lead) in (0..threads).zip([encrypted, authenticated].into_iter().cycle()) {
            let mut expected = vec![0; threads];
            expected[place] = 40;
            assert_eq!(from_many_ports(lead, first + place), expected);
        }
        let of_bytes = |bytes: usize| -> Vec<usize> {
            for _ in 0..40 {
                UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[encrypted; 8][..bytes], group).unwrap();
            }
            sockets.iter().map(arrived).collect()
        };
        let others = [(b'Y', first), (0xe5, first), (encrypted, first + threads)];
        let others = others.map(|(lead, number)| from_many_ports(lead, number));
        for found in others.into_iter().chain((0..=at).map(of_bytes)) {
            assert!(found.iter().sum::<usize>() == 40 && found.iter().all(|count| *count < 40), "{found:?}");
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
