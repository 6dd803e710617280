//! An authority in a folder, and handshakes between its members.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use yonder_identity::{
    Authority, Credential, Expected, HandshakeError, Peer, Role, SecureStream, SharedKey, accept, connect,
};

pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);
/// Long enough for anything that will happen.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// What both ends have of a handshake.
pub(crate) type Ends = (Result<(SecureStream, Peer), HandshakeError>, Result<(SecureStream, Peer), HandshakeError>);

pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) authority: Authority,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::init(&folder.path().join("cluster")).unwrap();
        Self { folder, authority }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A new member's file.
    pub(crate) fn member(&mut self, role: Role, name: &str) -> PathBuf {
        self.member_for(role, name, 90 * DAY)
    }

    pub(crate) fn member_for(&mut self, role: Role, name: &str, lifetime: Duration) -> PathBuf {
        let path = self.file(&format!("{name}.pem"));
        self.authority.add(role, name, lifetime).unwrap().write(&path).unwrap();
        path
    }

    pub(crate) fn load(&mut self, role: Role, name: &str) -> Credential {
        Credential::load(&self.member(role, name)).unwrap()
    }

    pub(crate) fn key(&self, name: &str) -> Credential {
        let path = self.file(name);
        SharedKey::generate().unwrap().write(&path).unwrap();
        Credential::load(&path).unwrap()
    }
}

/// Two ends of a connection.
pub(crate) fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (there, listener.accept().unwrap().0)
}

/// What the client and the server have of a handshake in which the client asks for this server.
pub(crate) fn shake<'a>(client: &Credential, server: &Credential, asked: impl Into<Expected<'a>>) -> Ends {
    let (there, here) = pair();
    let deadline = Instant::now() + LONG;
    thread::scope(|scope| {
        let accepted = scope.spawn(|| accept(server, here, deadline));
        let connected = connect(client, there, asked, deadline);
        (connected, accepted.join().unwrap())
    })
}

pub(crate) fn said(end: Result<(SecureStream, Peer), HandshakeError>) -> String {
    end.map(|(_, peer)| peer).unwrap_err().to_string()
}

/// Both ends of a good connection.
pub(crate) fn streams() -> (SecureStream, SecureStream) {
    let world = World::new();
    let key = world.key("key");
    let (client, server) = shake(&key, &key, Role::Node);
    (client.unwrap().0, server.unwrap().0)
}

pub(crate) fn is_end(result: &io::Result<usize>) -> bool {
    matches!(result, Ok(0) | Err(_))
}
