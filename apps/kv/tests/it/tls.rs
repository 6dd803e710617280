//! TLS over loopback sockets: with clients that do all right, and with those that do not.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;
use yonder_kv::{KvConfig, KvServer, Listen, TlsClients, TlsFiles};

use crate::driven::{Driven, SECOND};
use crate::harness::{Running, read_until};
use crate::login::private_file;
use crate::memory::FlatMemory;

const NAME: &str = "kv.example";

/// An authority, which makes certificates of [`NAME`].
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("there is randomness");
        Self(CertifiedIssuer::self_signed(params, key).expect("the parameters are right"))
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate and its key.
    fn issue(&self) -> (String, String) {
        let key = KeyPair::generate().expect("there is randomness");
        let params = CertificateParams::new([NAME.to_owned()]).expect("a name");
        (params.signed_by(&key, &self.0).expect("the authority signs").pem(), key.serialize_pem())
    }
}

/// A folder with what a server of this authority shows, which asks clients for certificates of `clients`.
struct Files {
    folder: TempDir,
    clients: Option<(Authority, TlsClients)>,
}

impl Files {
    fn new(authority: &Authority, clients: Option<(Authority, TlsClients)>) -> Self {
        let files = Self { folder: tempfile::tempdir().expect("a temporary folder"), clients };
        files.write(authority);
        files
    }

    fn write(&self, authority: &Authority) {
        let (cert, key) = authority.issue();
        private_file(self.path(), "cert", &cert);
        private_file(self.path(), "key", &key);
        if let Some((authority, _)) = &self.clients {
            private_file(self.path(), "ca", &authority.pem());
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn tls(&self) -> TlsFiles {
        TlsFiles {
            cert: self.path().join("cert"),
            key: self.path().join("key"),
            client_authorities: self.clients.as_ref().map(|_| self.path().join("ca")),
            clients: self.clients.as_ref().map_or(TlsClients::MayBeUnknown, |(_, clients)| *clients),
        }
    }

    fn adjust(&self, config: &mut KvConfig) {
        config.tls = Some(self.tls());
        config.udp = None;
    }

    fn start(&self) -> Running {
        Running::start(FlatMemory::new(64 << 20), |config| self.adjust(config))
    }
}

/// A client that trusts an authority, and shows a certificate of another if there is one.
fn client<S: Read + Write>(
    trusts: &Authority,
    shows: Option<&Authority>,
    socket: S,
) -> StreamOwned<ClientConnection, S> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&trusts.pem())).expect("a certificate of an authority");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has TLS 1.3")
        .with_root_certificates(roots);
    let config = match shows.map(Authority::issue) {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
            builder.with_client_auth_cert(vec![certificate(&cert)], key).expect("a certificate and its key")
        }
    };
    let name = ServerName::try_from(NAME).expect("a name");
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).expect("the configuration is right"), socket)
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")
}

fn ask<S: Read + Write>(client: &mut S, input: &[u8], end: &[u8]) -> Vec<u8> {
    client.write_all(input).expect("the server listens");
    read_until(client, end)
}

/// What the server answers to one command, or why it does not.
fn tried<S: Read + Write>(mut client: StreamOwned<ClientConnection, S>) -> io::Result<Vec<u8>> {
    client.write_all(b"mn\r\n")?;
    let mut answer = vec![0; 4];
    client.read_exact(&mut answer)?;
    Ok(answer)
}

#[test]
fn commands_and_large_values_pass_both_ways_until_the_end() {
    let authority = Authority::new();
    let server = Files::new(&authority, None).start();
    let mut client = client(&authority, None, server.connect());
    let value: Vec<u8> = (0..1 << 20).map(|index: usize| (index % 251) as u8).collect();
    let set = [format!("set k 0 0 {}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
    let item = [format!("VALUE k 0 {}\r\n", value.len()).as_bytes(), &value, b"\r\nEND\r\n"].concat();
    assert_eq!(ask(&mut client, &set, b"\r\n"), b"STORED\r\n");
    // All are asked for before any is read.
    const GETS: usize = 20;
    client.write_all(&b"get k\r\n".repeat(GETS)).expect("the commands fit the socket");
    let mut reply = vec![0; item.len()];
    for _ in 0..GETS {
        client.read_exact(&mut reply).expect("the reply is complete");
        assert!(reply == item);
    }
    let settings = String::from_utf8(ask(&mut client, b"stats settings\r\n", b"END\r\n")).expect("settings are text");
    assert!(settings.contains("STAT ssl_enabled yes\r\n") && settings.contains("STAT ssl_verify_mode 0\r\n"));
    // The end of TLS is said, so that a client knows that no byte is missing.
    client.write_all(&[&set[..], b"quit\r\n"].concat()).expect("the server listens");
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).expect("the end is said");
    assert_eq!(rest, b"STORED\r\n");
}

#[test]
fn what_was_sent_before_the_end_of_tls_is_answered() {
    let authority = Authority::new();
    let server = Files::new(&authority, None).start();
    let mut client = client(&authority, None, server.connect());
    client.write_all(b"set k 0 0 1\r\n1\r\nget k\r\nget").expect("the server listens");
    client.conn.send_close_notify();
    client.flush().expect("the server listens");
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).expect("the end is said");
    assert_eq!(answer, b"STORED\r\nVALUE k 0 1\r\n1\r\nEND\r\n");
}

/// Sends each byte by itself.
struct Drip(TcpStream);

impl Read for Drip {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Drip {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.0.write(&from[..from.len().min(1)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn a_handshake_may_come_byte_by_byte() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let files = Files::new(&authority, Some((clients, TlsClients::AreVerified)));
    let server = files.start();
    let socket = server.connect();
    socket.set_nodelay(true).expect("a socket option");
    let shows = files.clients.as_ref().map(|(clients, _)| clients);
    let mut client = client(&authority, shows, Drip(socket));
    assert_eq!(ask(&mut client, b"set k 0 0 1\r\n1\r\n", b"\r\n"), b"STORED\r\n");
    assert_eq!(ask(&mut client, b"get k\r\n", b"END\r\n"), b"VALUE k 0 1\r\n1\r\nEND\r\n");
}

#[test]
fn what_is_no_tls_gets_an_alert_and_nothing_else() {
    let authority = Authority::new();
    let server = Files::new(&authority, None).start();
    let mut bystander = client(&authority, None, server.connect());
    for garbage in [b"version\r\nversion\r\n".to_vec(), b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![0; 3000], vec![22; 99]]
    {
        let answer = server.converse(&garbage);
        // A record of type alert is seven bytes, of which the first says so.
        assert!(answer.is_empty() || (answer.len() == 7 && answer[0] == 21), "{}", answer.escape_ascii());
        assert_eq!(ask(&mut bystander, b"get nothing\r\n", b"END\r\n"), b"END\r\n");
    }
}

#[test]
fn a_handshake_has_an_end() {
    let authority = Authority::new();
    let server = Files::new(&authority, None).start();
    // A hello of 60,000 bytes in records of one: legal as far as it goes, and never whole.
    let hello = [&[1, 0, 0xea, 0x60, 3, 3][..], &[0; 40_000]].concat();
    let records: Vec<u8> = hello.iter().flat_map(|byte| [22, 3, 1, 0, 1, *byte]).collect();
    let mut client = server.connect();
    client.write_all(&records).expect("the server reads on");
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).expect("the server ends it");
    assert!(answer.is_empty() || answer[0] == 21, "{}", answer.escape_ascii());
}

#[test]
fn who_stalls_in_the_handshake_is_closed_in_time() {
    let authority = Authority::new();
    let files = Files::new(&authority, None);
    let mut server = Driven::start(|config| files.adjust(config));
    let mut client = server.connect();
    client.write_all(&[22, 3, 1, 0]).expect("the server listens");
    for _ in 0..9 {
        server.now += SECOND;
        server.turn();
        let waits = client.read(&mut [0]).expect_err("nothing is said");
        assert_eq!(waits.kind(), ErrorKind::WouldBlock);
    }
    server.now += 2 * SECOND;
    let ended = server.until(|| match client.read(&mut [0]) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        ended => Some(ended),
    });
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

#[test]
fn certificates_of_others_are_refused() {
    let (authority, friends, others) = (Authority::new(), Authority::new(), Authority::new());
    let mut files = Files::new(&authority, Some((friends, TlsClients::AreVerified)));
    for (clients, unknown_is_served) in [(TlsClients::AreVerified, false), (TlsClients::MayBeUnknown, true)] {
        if let Some((_, how)) = &mut files.clients {
            *how = clients;
        }
        let server = files.start();
        let (friend, _) = files.clients.as_ref().expect("clients are asked");
        assert_eq!(tried(client(&authority, Some(friend), server.connect())).expect("a friend"), b"MN\r\n");
        let refused = tried(client(&authority, Some(&others), server.connect())).expect_err("a certificate of others");
        assert!(refused.to_string().contains("alert"), "{refused}");
        let unknown = tried(client(&authority, None, server.connect()));
        assert_eq!(unknown.is_ok(), unknown_is_served, "{unknown:?}");
    }
    // And the client refuses a server that it does not know.
    let server = files.start();
    tried(client(&others, None, server.connect())).expect_err("a server of others");
}

#[test]
fn certificates_are_read_again_when_asked_for() {
    let (old, new) = (Authority::new(), Authority::new());
    let files = Files::new(&old, None);
    let server = files.start();
    let mut first = client(&old, None, server.connect());
    files.write(&new);
    tried(client(&new, None, server.connect())).expect_err("it is not read yet");
    assert_eq!(ask(&mut first, b"refresh_certs\r\n", b"\r\n"), b"OK\r\n");
    assert_eq!(tried(client(&new, None, server.connect())).expect("it is read"), b"MN\r\n");
    private_file(files.path(), "cert", "nothing");
    let refused = ask(&mut first, b"refresh_certs\r\n", b"\r\n");
    assert!(refused.starts_with(b"Error loading certificates"), "{}", refused.escape_ascii());
    assert_eq!(tried(client(&new, None, server.connect())).expect("the last good one stays"), b"MN\r\n");
}

#[test]
fn without_a_place_nothing_is_said_in_plain() {
    let authority = Authority::new();
    let files = Files::new(&authority, None);
    let server = Running::start(FlatMemory::new(16 << 20), |config| {
        files.adjust(config);
        config.connections_max = 1;
    });
    let mut first = client(&authority, None, server.connect());
    ask(&mut first, b"get k\r\n", b"END\r\n");
    let mut answer = Vec::new();
    server.connect().read_to_end(&mut answer).expect("the connection ends");
    assert_eq!(answer, b"");
}

#[test]
fn files_that_cannot_be_used_say_what_to_type() {
    let authority = Authority::new();
    let files = Files::new(&authority, None);
    let refusal = |change: &dyn Fn(&mut KvConfig)| {
        let mut config = KvConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        config.tls = Some(files.tls());
        change(&mut config);
        let refused = KvServer::bind(config, FlatMemory::new(16 << 20)).err().expect("it is refused").to_string();
        assert!(refused.contains("type ") || refused.contains("leave out"), "{refused}");
        assert!(!refused.contains('\n'), "{refused}");
        refused
    };
    let other_key = private_file(files.path(), "other", &authority.issue().1);
    let with = |adjust: &dyn Fn(&mut TlsFiles)| refusal(&|config| adjust(config.tls.as_mut().expect("TLS")));
    assert!(with(&|files| files.cert = "/nowhere".into()).contains("--tls-cert"));
    assert!(with(&|tls| tls.cert = tls.key.clone()).contains("--tls-cert"));
    assert!(with(&|tls| tls.key = other_key.clone()).contains("--tls-key"));
    assert!(with(&|tls| tls.client_authorities = Some(other_key.clone())).contains("--tls-ca"));
    assert!(with(&|tls| tls.clients = TlsClients::AreVerified).contains("--tls-ca"));
    refusal(&|config| config.udp = Some(SocketAddr::from(([127, 0, 0, 1], 0))));
    refusal(&|config| config.listen = Listen::Unix("/tmp/never.sock".into()));
}
