//! [`Credential`]: the file by which this process shows who it is, and knows who others are.
//!
//! The file, and the list of revoked certificates beside it, are looked at again at each handshake: a new certificate,
//! or a longer list, counts from the next connection on. If a changed file cannot be read, what was read before goes on
//! counting, and the log says so.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore, ServerConfig, version};
use webpki::{BorrowedCertRevocationList, CertRevocationList};
use zeroize::Zeroizing;

use crate::authority::REVOKED_FILE;
use crate::certificate::Signer;
use crate::key::{self, SharedKey};
use crate::peer::Peer;
use crate::private_file::{read_public, read_secret};
use crate::role::Role;
use crate::{HandshakeError, IdentityError};

/// Variables of the environment that name a credential's file, where no flag does.
const IDENTITY_VARIABLE: &str = "YONDER_IDENTITY";
const KEY_VARIABLE: &str = "YONDER_KEY";

/// A certificate with its key and authority, or a shared key. Any thread may use it.
pub struct Credential {
    path: PathBuf,
    loaded: Mutex<(Stamps, Arc<Loaded>)>,
}

/// What tells one content of the two files from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamps([Option<Stamp>; 2]);

/// Inode, bytes, seconds and nanoseconds of the last change.
type Stamp = (u64, u64, i64, i64);

/// What handshakes need of the files.
pub(crate) struct Loaded {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
    judge: Arc<dyn ClientCertVerifier>,
    itself: Peer,
}

impl Credential {
    /// Reads an identity or a shared key. The file must be its user's alone.
    pub fn load(path: &Path) -> Result<Self, IdentityError> {
        let stamps = Stamps::of(path);
        let loaded = Arc::new(Loaded::read(path)?);
        Ok(Self { path: path.to_owned(), loaded: Mutex::new((stamps, loaded)) })
    }

    /// The credential that a user has named by a flag, or else by `YONDER_IDENTITY` or `YONDER_KEY`. Both are read the
    /// same way: the file says which it is.
    pub fn of_user(identity: Option<&Path>, key: Option<&Path>) -> Result<Option<Arc<Self>>, IdentityError> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let path = match (identity, key) {
            (Some(_), Some(_)) => return Err(IdentityError::Both { first: "--identity", second: "--key" }),
            (Some(path), None) | (None, Some(path)) => Some(path.to_owned()),
            (None, None) => match (variable(IDENTITY_VARIABLE), variable(KEY_VARIABLE)) {
                (Some(_), Some(_)) => {
                    return Err(IdentityError::Both { first: IDENTITY_VARIABLE, second: KEY_VARIABLE });
                }
                (identity, key) => identity.or(key),
            },
        };
        path.map(|path| Self::load(&path).map(Arc::new)).transpose()
    }

    /// The credential that the environment names, if it does: [`Credential::of_user`] without flags.
    pub fn of_environment() -> Result<Option<Arc<Self>>, IdentityError> {
        Self::of_user(None, None)
    }

    /// Where it was read.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Who others see.
    #[must_use]
    pub fn itself(&self) -> Peer {
        self.current().itself.clone()
    }

    /// Fails if it is the identity of another role; a shared key is of every role.
    pub fn check_role(&self, role: Role) -> Result<(), IdentityError> {
        match self.itself().role() {
            Some(own) if own != role => Err(IdentityError::OtherRole {
                path: self.path.clone(),
                has: own.with_article(),
                wants: role.with_article(),
                role: role.as_str(),
            }),
            _ => Ok(()),
        }
    }

    /// Whether a peer that was accepted would be accepted now: its certificate may be over, or revoked, since. For
    /// connections that last.
    pub fn check(&self, peer: &Peer) -> Result<(), HandshakeError> {
        let judged = self.current().judge.verify_client_cert(peer.certificate(), &[], UnixTime::now());
        judged.map(drop).map_err(|error| HandshakeError::of(&error))
    }

    /// What the files have now.
    pub(crate) fn current(&self) -> Arc<Loaded> {
        let stamps = Stamps::of(&self.path);
        let mut held = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if held.0 != stamps {
            match Loaded::read(&self.path) {
                Ok(loaded) => held.1 = Arc::new(loaded),
                Err(error) => tracing::error!(%error, "a changed credential is not used; the earlier one is"),
            }
            held.0 = stamps;
        }
        Arc::clone(&held.1)
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Credential({}: {})", self.path.display(), self.itself())
    }
}

impl Stamps {
    fn of(path: &Path) -> Self {
        let stamp = |path: &Path| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
        };
        Self([stamp(path), stamp(&revoked_beside(path))])
    }
}

/// Where a list of revoked certificates is looked for, beside the one in the file itself.
fn revoked_beside(path: &Path) -> PathBuf {
    path.with_file_name(REVOKED_FILE)
}

impl Loaded {
    fn read(path: &Path) -> Result<Self, IdentityError> {
        let text = read_secret(path)?;
        if text.starts_with(key::PREFIX) {
            let wrong = |cause: &str| IdentityError::NoCredential { path: path.to_owned(), cause: cause.to_owned() };
            Self::of_key(&SharedKey::parse(&text).map_err(wrong)?)
        } else {
            Self::of_identity(path, text.as_bytes())
        }
    }

    fn of_key(key: &SharedKey) -> Result<Self, IdentityError> {
        let signer = Signer::derive(key)?;
        let member = signer.key_holder()?;
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(member.key.0.serialize_der()));
        Self::new(member.certificate.der().clone(), private, signer.certificate()?.der().clone(), None)
    }

    fn of_identity(path: &Path, text: &[u8]) -> Result<Self, IdentityError> {
        let wrong = |cause: &str| IdentityError::NoCredential { path: path.to_owned(), cause: cause.to_owned() };
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        let Ok([certificate, authority]) = certificates.unwrap_or_default().try_into() as Result<[_; 2], _> else {
            return Err(wrong("it has not two certificates, its own and its authority's"));
        };
        let key = PrivateKeyDer::from_pem_slice(text).map_err(|_| wrong("it has no private key"))?;
        let mut lists = CertificateRevocationListDer::pem_slice_iter(text)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| wrong("its list of revoked certificates cannot be read"))?;
        let beside = revoked_beside(path);
        if let Some(text) = read_public(&beside)? {
            let damaged = |_| IdentityError::Damaged { path: beside.clone(), cause: "it is no list".to_owned() };
            lists.push(CertificateRevocationListDer::from_pem_slice(text.as_bytes()).map_err(damaged)?);
        }
        let revoked = newest(lists, &authority);
        Self::new(certificate, key, authority, revoked).map_err(|error| wrong(&error.to_string()))
    }

    fn new(
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
        authority: CertificateDer<'static>,
        revoked: Option<CertificateRevocationListDer<'static>>,
    ) -> Result<Self, IdentityError> {
        let itself = Peer::of(&certificate)
            .ok_or_else(|| IdentityError::Crypto("its certificate names no member of a cluster".to_owned()))?;
        let provider = Arc::new(CryptoProvider { ..ring::default_provider() });
        let mut roots = RootCertStore::empty();
        roots.add(authority).map_err(|error| IdentityError::crypto(&error))?;
        let roots = Arc::new(roots);
        let servers = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .with_crls(revoked.clone())
            .only_check_end_entity_revocation()
            .build()
            .map_err(|error| IdentityError::crypto(&error))?;
        let judge = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .with_crls(revoked)
            .only_check_end_entity_revocation()
            .build()
            .map_err(|error| IdentityError::crypto(&error))?;
        // The text of the key is wiped here; the library's own copy of the key is not.
        let key = Zeroizing::new(key);
        let signing = ring::sign::any_supported_type(&key).map_err(|error| IdentityError::crypto(&error))?;
        let certified = CertifiedKey::new(vec![certificate], signing);
        certified.keys_match().map_err(|error| IdentityError::crypto(&error))?;
        let shown = Arc::new(SingleCertAndKey::from(certified));
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|error| IdentityError::crypto(&error))?
            .with_webpki_verifier(servers)
            .with_client_cert_resolver(Arc::clone(&shown) as _);
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|error| IdentityError::crypto(&error))?
            .with_client_cert_verifier(Arc::clone(&judge))
            .with_cert_resolver(shown);
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self { client: Arc::new(client), server: Arc::new(server), judge, itself })
    }
}

/// The list of this authority that names most: such a list only grows. Another authority's may lie beside it.
fn newest(
    lists: Vec<CertificateRevocationListDer<'static>>,
    authority: &CertificateDer<'_>,
) -> Option<CertificateRevocationListDer<'static>> {
    let anchor = webpki::anchor_from_trusted_cert(authority).ok()?;
    let entries = |list: &CertificateRevocationListDer<'_>| {
        let list = BorrowedCertRevocationList::from_der(list.as_ref()).ok()?;
        let entries = list.into_iter().count();
        (CertRevocationList::from(list).issuer() == anchor.subject.as_ref()).then_some(entries)
    };
    let counted = lists.into_iter().filter_map(|list| Some((entries(&list)?, list)));
    counted.max_by_key(|(entries, _)| *entries).map(|(_, list)| list)
}
