//! Inputs that true clients would make, from which the corpus begins. `tests/it/handshake.rs` writes the corpus.

use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use yonder_identity::{Role, connect_bare};
use yonder_session::{Cipher, Protection, SessionGrant, SessionNumber, SessionRequest, SessionSecret};

use super::text::Unnamed;
use super::{CHANGED_MESSAGE, CHANGED_TLS, CREDENTIAL, DATAGRAM, STREAM, TLS, TYPED, WITHOUT_AES, WORD, doors, tls};

/// How long the client may take that says the first words of TLS.
const HELLO_TIME_MAX: Duration = Duration::from_secs(20);

/// What is done to a true message, and how its input is called.
const CHANGES: [(u8, &str); 3] = [(5, "twice"), (0, "with-another-byte"), (3, "from-elsewhere")];

/// Inputs with names, the same in each process: they are in the corpus as they are here.
#[must_use]
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for (of, cipher, name) in [(0, Cipher::Aegis128L, "aegis"), (WITHOUT_AES, Cipher::ChaCha20Poly1305, "chacha20")] {
        for (index, said) in doors::said(cipher).into_iter().enumerate() {
            let at_port =
                if said.name.starts_with("stream") { vec![of + STREAM, 0, 17] } else { vec![of + DATAGRAM, 0] };
            let bytes = [at_port, said.bytes].concat();
            all.push((format!("{}-{name}", said.name), bytes));
            let changes: &[(u8, &str)] = if of == 0 { &CHANGES } else { &CHANGES[..1] };
            for (what, change) in changes {
                let bytes = vec![of + CHANGED_MESSAGE, index as u8, *what, 30, 1];
                all.push((format!("{}-{name}-{change}", said.name), bytes));
            }
        }
    }
    let hello = doors::hello();
    all.extend([
        named("plain-greeting-datagram", &[DATAGRAM, 1], &hello),
        named("plain-greeting-stream", &[STREAM, 1, 30], &hello),
        named("plain-greeting-where-sessions-are-asked-for", &[STREAM, 0, 30], &hello),
        named("http-at-a-node", &[STREAM, 0, 3], b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"),
        named(
            "tls-at-a-node-without-identity",
            &[STREAM, 1, 3],
            b"\x16\x03\x01\x00\xee\x01\x00\x00\xea\x03\x03 and more",
        ),
        named("greeting", &[WORD], &hello[hello.len() - 32..]),
        named("session-request", &[WORD], &SessionRequest { protection: Protection::Encrypted }.to_bytes()),
        named("session-grant", &[WORD], &grant()),
        named("tls-endless-hello", &[TLS, 2, 15], &[&b"\x16\x03\x01\x3f\xfb\x01\x00\xff\xff"[..], &[3; 1000]].concat()),
        named("tls-empty-records", &[TLS, 3, 15], b"\x16\x03\x03\x00\x00"),
        named("tls-plain-alert", &[TLS, 0, 0], b"\x15\x03\x03\x00\x02\x02\x28"),
        named("http-at-an-end-of-tls", &[TLS, 1, 200], b"GET /metrics HTTP/1.1\r\n\r\n"),
        named("shared-key", &[CREDENTIAL], format!("yonder-key-1:{}\n", "5a".repeat(32)).as_bytes()),
        named("shared-key-cut", &[CREDENTIAL], b"yonder-key-1:5a5a"),
        named(
            "limits",
            &[TYPED],
            b"spaces=16, reserved=4GiB,memory=2GiB,requests=200k,bytes=1MiB,work=100ms,connections=8",
        ),
        named("limits-least", &[TYPED], b"spaces=1,reserved=1.5,work=0.6ns,requests=1k"),
        named("name", &[TYPED], b"rack-3-node-12"),
        named("role", &[TYPED], b"operator"),
    ]);
    for who in 0..3 {
        let client = ["nameless", "foreign", "member"][usize::from(who)];
        for (server, changed, what) in [(0, 0, "at-a-node"), (0, 1, "with-another-byte"), (1, 0, "at-a-key")] {
            let bytes = vec![CHANGED_TLS, who, server, 200, 1, changed, changed, 0, 40, 3];
            all.push((format!("tls-{client}-{what}"), bytes));
        }
    }
    all
}

fn named(name: &str, place: &[u8], bytes: &[u8]) -> (String, Vec<u8>) {
    (name.to_owned(), [place, bytes].concat())
}

fn grant() -> Vec<u8> {
    let secret = SessionSecret::from_bytes([9; 32], Cipher::Aegis128L, Protection::Authenticated);
    let grant =
        SessionGrant { number: SessionNumber::new(7, 2, 3), secret, incarnation: 1 << 60, time: 5, seconds: 3600 };
    grant.to_bytes().to_vec()
}

/// The first words of TLS as clients of this release say them, as an input. Another one at each call.
///
/// # Panics
/// If this machine has no network of its own.
#[must_use]
pub fn hello_of(server: u8) -> Vec<u8> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("this machine has a network");
    let client = TcpStream::connect(listener.local_addr().expect("it was bound")).expect("it listens");
    let (mut here, _) = listener.accept().expect("it was just connected");
    let asks = std::thread::spawn(move || {
        let key = Unnamed::new(format!("yonder-key-1:{}\n", "5a".repeat(32)).as_bytes());
        let credential = key.load().expect("it is a key");
        connect_bare(&credential, client, Role::Node, Instant::now() + HELLO_TIME_MAX).map(drop)
    });
    let mut said = vec![0; 5];
    here.read_exact(&mut said).expect("it says something");
    said.resize(5 + usize::from(u16::from_be_bytes([said[3], said[4]])), 0);
    here.read_exact(&mut said[5..]).expect("a record is whole");
    drop(here);
    assert!(asks.join().is_ok_and(|refused| refused.is_err()), "no one has answered");
    assert!(tls::is_answered(server, &said), "a true client is not answered");
    [&[TLS, server, 90][..], &said].concat()
}

/// A new file that says who one is, as an input.
#[must_use]
pub fn file_that_says(role: Role) -> Vec<u8> {
    let [text] = tls::identities([(role, "m1")]);
    [&[CREDENTIAL], text.as_bytes()].concat()
}
