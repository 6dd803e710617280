//! The server's end of TLS: bytes of a stranger, in pieces, and true clients that have no certificate, that of another
//! cluster, or a good one, with a byte of what they say changed.
//!
//! An end that has a client's certificate and its proof says who the client is; before that it opens nothing, and what
//! it takes and answers is bounded. A record's type and version are not changed: the library holds neither against a
//! record that it can open.

use std::fs;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, ClientConnection, Resumption};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme, version};
use yonder_identity::{Authority, Credential, HandshakeError, Role, ServerEnd};

use super::text::Unnamed;
use crate::Trail;
use crate::script::Step;

/// Most bytes of a handshake that an end takes, as `runtime/identity` has it.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;
/// More than a server says before it knows its client: its part of the handshake, and why it refuses.
const ANSWER_BYTES_MAX: usize = 4096;
/// Flights of a client until it has shown its certificate, and one more.
const FLIGHTS_MAX: usize = 4;
/// Bytes in front of what a record has: type, version, length.
const RECORD_HEAD_BYTES: usize = 5;
const LENGTH_AT: usize = 3;
/// First byte of a record that says nothing, and is in no transcript.
const CHANGE_CIPHER_SPEC: u8 = 0x14;
/// The member that is let in.
const MEMBER: &str = "t1";
const LIFETIME: Duration = Duration::from_secs(90 * 24 * 3600);

/// What is drawn once in a process.
struct Cluster {
    /// A node's identity, and a shared key.
    servers: [(Credential, Unnamed); 2],
    /// By [`Who`].
    clients: [Arc<ClientConfig>; 3],
}

/// A client that speaks TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    /// One that shows no certificate.
    Nameless,
    /// A member of another cluster.
    Foreign,
    /// A member of the node's.
    Member,
}

const ALL: [Who; 3] = [Who::Nameless, Who::Foreign, Who::Member];

/// A file that says who one is, as the authority of a cluster makes it.
pub(super) fn identities<const COUNT: usize>(members: [(Role, &str); COUNT]) -> [String; COUNT] {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let mut authority = Authority::init(&folder.path().join("cluster")).expect("the folder is ours");
    members.map(|(role, name)| {
        let path = folder.path().join(name);
        let added = authority.add(role, name, LIFETIME).expect("the name is free");
        added.write(&path).expect("the folder is ours");
        fs::read_to_string(&path).expect("it was just written")
    })
}

fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let [node, member] = identities([(Role::Node, "n1"), (Role::Tenant, MEMBER)]);
        let [foreign] = identities([(Role::Tenant, MEMBER)]);
        let key = format!("yonder-key-1:{}\n", "5a".repeat(32));
        let servers = [node, key].map(|text| {
            let file = Unnamed::new(text.as_bytes());
            (file.load().expect("it was made for that"), file)
        });
        Cluster { servers, clients: [None, Some(foreign), Some(member)].map(|shows| client(shows.as_deref())) }
    })
}

/// A client that shows what the file has, and asks nothing of the server.
fn client(shows: Option<&str>) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13])
        .expect("the provider has it")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone(ring::default_provider())));
    let mut config = match shows {
        None => builder.with_no_client_auth(),
        Some(text) => {
            let certificate = CertificateDer::from_pem_slice(text.as_bytes()).expect("its own is the first");
            let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).expect("an identity has a key");
            builder.with_client_auth_cert(vec![certificate], key).expect("they belong together")
        }
    };
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Arc::new(config)
}

/// The server that an input is for.
fn server(how: u8) -> ServerEnd {
    let (credential, _) = &cluster().servers[usize::from(how % 2)];
    ServerEnd::new(credential).expect("nothing is revoked")
}

/// Whether a server goes on with a client that says this first.
pub(super) fn is_answered(how: u8, bytes: &[u8]) -> bool {
    let (mut end, mut answer) = (server(how), Vec::new());
    let is_taken = end.receive(bytes).is_ok();
    end.take_outgoing(&mut answer);
    is_taken && !answer.is_empty() && end.peer().is_none()
}

/// Hands bytes in, in pieces. What the end has opened must be of a client that it knows.
fn feed(end: &mut ServerEnd, bytes: &[u8], piece_bytes: usize) -> Result<(), HandshakeError> {
    for piece in bytes.chunks(piece_bytes) {
        let opened = end.receive(piece)?;
        assert!(opened.is_empty() || end.peer().is_some(), "something is opened of a client that is not known");
    }
    Ok(())
}

/// Any bytes, in pieces, and perhaps again and again.
pub(super) fn check_bytes(bytes: &[u8], trail: &mut Trail) {
    let Some(([how, cut], bytes)) = bytes.split_first_chunk() else { return };
    let mut end = server(*how);
    let outcome = if how & 2 == 0 || bytes.is_empty() {
        feed(&mut end, bytes, 1 + usize::from(*cut))
    } else {
        let count = HANDSHAKE_BYTES_MAX / bytes.len() + 1;
        let endless = feed(&mut end, &bytes.repeat(count), (1 + usize::from(*cut)) * 64);
        assert!(endless.is_err(), "an end has taken {} bytes, and wants more", count * bytes.len());
        endless
    };
    assert!(end.peer().is_none(), "a client is known that has shown nothing");
    let mut answer = Vec::new();
    end.take_outgoing(&mut answer);
    assert!(answer.len() <= ANSWER_BYTES_MAX, "{} bytes are answered", answer.len());
    let cause = match &outcome {
        Ok(()) => 0,
        Err(HandshakeError::Exceeded(_)) => 1,
        Err(error) => 2 + error.to_string().len() as u64,
    };
    trail.note([20 + u64::from(how & 2), cause, u64::from(!answer.is_empty())]);
}

/// A true client, with a byte of what it says changed or none.
pub(super) fn check_changed(bytes: &[u8], trail: &mut Trail) {
    let mut step = Step::of(bytes);
    let (who, server_number, piece_bytes) = (step.pick(&ALL), step.byte(), 1 + step.index(2000));
    let mut change = step.once_in(2).then(|| (step.index(2), step.number(), 1 + step.below(255) as u8));
    let was_changed = change.is_some();
    let mut end = server(server_number);
    let config = Arc::clone(&cluster().clients[who as usize]);
    let name = ServerName::try_from("node.yonder").expect("it is a name");
    let mut client = ClientConnection::new(config, name).expect("the client is in order");
    let mut outcome = Ok(());
    for flight_number in 0..FLIGHTS_MAX {
        let mut flight = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut flight).expect("a vector takes all that is written");
        }
        if let Some((_, at, by)) = change.take_if(|(number, ..)| *number == flight_number) {
            change_byte(&mut flight, at, by);
        }
        outcome = feed(&mut end, &flight, piece_bytes);
        let mut answer = Vec::new();
        end.take_outgoing(&mut answer);
        assert!(answer.len() <= ANSWER_BYTES_MAX, "{} bytes are answered", answer.len());
        if outcome.is_err() || flight.is_empty() || !hear(&mut client, &answer) {
            break;
        }
    }
    let is_good = who == Who::Member && server_number % 2 == 0 && !was_changed;
    let known = end.peer();
    assert_eq!(known.is_some(), is_good, "{who:?}, changed: {was_changed}, and {outcome:?}");
    if let Some(peer) = known {
        assert_eq!((peer.role(), peer.name()), (Some(Role::Tenant), Some(MEMBER)));
    }
    trail.note([24 + u64::from(was_changed), who as u64, is_good.into()]);
}

/// Whether the client goes on after what the server has said.
fn hear(client: &mut ClientConnection, mut answer: &[u8]) -> bool {
    while !answer.is_empty() {
        let is_heard = client.read_tls(&mut answer).is_ok() && client.process_new_packets().is_ok();
        if !is_heard {
            return false;
        }
    }
    true
}

/// Changes a byte that counts: of the length of a record or of what is in it.
fn change_byte(flight: &mut [u8], at: u64, by: u8) {
    let mut count = Vec::new();
    let mut start = 0;
    while let Some([kind, _, _, high, low]) = flight.get(start..).and_then(|rest| rest.first_chunk()) {
        let end = start + RECORD_HEAD_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
        if *kind != CHANGE_CIPHER_SPEC {
            count.extend(start + LENGTH_AT..end.min(flight.len()));
        }
        start = end;
    }
    // What a client says of why it ends is no flight.
    if !count.is_empty() {
        flight[count[(at % count.len() as u64) as usize]] ^= by;
    }
}

/// Takes any server.
#[derive(Debug)]
struct Anyone(CryptoProvider);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
