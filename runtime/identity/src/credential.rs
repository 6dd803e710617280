//! [`Credential`]: the file by which this process shows who it is, and knows who others are.
//!
//! The file, and the list of revoked certificates beside it, are looked at again at each handshake: a new certificate,
//! or a longer list, counts from the next connection on. If a changed identity cannot be read, what was read before
//! goes on counting, and the log says so. If the list cannot, no one is let in, or a revoked member would be. A list
//! that was read counts for as long as the process lives: lists only grow, so one that is shorter, or has gone, is an
//! older one.
//!
//! Neighbours: `named` says which file is a process's.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, ClientConfig, Error as TlsError, RootCertStore, ServerConfig, version};
use webpki::{BorrowedCertRevocationList, CertRevocationList};
use zeroize::Zeroizing;

use crate::authority::REVOKED_FILE;
use crate::certificate::Signer;
use crate::key::{self, SharedKey};
use crate::peer::Peer;
use crate::private_file::{read_list, read_secret};
use crate::role::Role;
use crate::{HandshakeError, IdentityError};

/// A certificate with its key and authority, or a shared key. Any thread may use it.
pub struct Credential {
    /// As it was typed.
    path: PathBuf,
    /// The same from the root on, so that it is found again when the process has gone to another folder.
    file: PathBuf,
    held: Mutex<Held>,
}

/// What was read last.
struct Held {
    stamps: Stamps,
    shown: Shown,
    loaded: Arc<Loaded>,
    /// What is wrong with the list; no one is let in then.
    problem: Option<String>,
    /// How often the files have changed.
    changes: u64,
}

/// What tells one content of the two files from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamps([Option<Stamp>; 2]);

/// Inode, bytes, owner and mode, and seconds and nanoseconds of the last change of any of it.
type Stamp = (u64, u64, u32, u32, i64, i64);

/// What the file itself has.
struct Shown {
    certified: Arc<SingleCertAndKey>,
    authority: CertificateDer<'static>,
    itself: Peer,
    /// The lists in it.
    lists: Vec<CertificateRevocationListDer<'static>>,
    heeds: Heeds,
}

/// What else counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Heeds {
    /// The list beside the file.
    ListBeside,
    /// Nothing: of those who have a key none can be taken away.
    Nothing,
}

/// What handshakes need of the files.
pub(crate) struct Loaded {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
    judge: Arc<dyn ClientCertVerifier>,
    /// The list that counts.
    revoked: Option<CertificateRevocationListDer<'static>>,
}

impl Credential {
    /// Reads an identity or a shared key. The file must be its user's alone.
    pub fn load(path: &Path) -> Result<Self, IdentityError> {
        // Some who may open a file by its name here may not by its whole path.
        let whole = std::path::absolute(path).ok().filter(|file| file.exists());
        let file = whole.unwrap_or_else(|| path.to_owned());
        let stamps = Stamps::of(&file);
        let shown = Shown::read(path)?;
        let loaded = Arc::new(shown.with_list(path, None)?);
        let held = Held { stamps, shown, loaded, problem: None, changes: 0 };
        Ok(Self { path: path.to_owned(), file, held: Mutex::new(held) })
    }

    /// Where it was read, as it was typed.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Who others see.
    #[must_use]
    pub fn itself(&self) -> Peer {
        self.held().shown.itself.clone()
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
        self.current()?.judge(peer).map_err(|error| HandshakeError::of(&error))
    }

    /// Whether a peer that was accepted is revoked now, as far as can be told. For what was made with its certificate,
    /// and lasts.
    #[must_use]
    pub fn has_revoked(&self, peer: &Peer) -> bool {
        let judged = self.current().ok().map(|loaded| loaded.judge(peer));
        matches!(judged, Some(Err(TlsError::InvalidCertificate(CertificateError::Revoked))))
    }

    /// How often the files have changed: as long as this is the same, so are all answers of
    /// [`Credential::has_revoked`].
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.held().changes
    }

    /// What the files have now, if anyone may be let in.
    pub(crate) fn current(&self) -> Result<Arc<Loaded>, HandshakeError> {
        let held = self.held();
        match &held.problem {
            None => Ok(Arc::clone(&held.loaded)),
            Some(cause) => Err(HandshakeError::NoList(cause.clone())),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        let stamps = Stamps::of(&self.file);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.stamps != stamps {
            held.read_again(&self.file);
            held.stamps = stamps;
        }
        held
    }
}

impl Held {
    fn read_again(&mut self, path: &Path) {
        self.changes += 1;
        match Shown::read(path) {
            Ok(shown) => self.shown = shown,
            Err(error) => tracing::error!(%error, "a changed credential is not used; the earlier one is"),
        }
        self.problem = match self.shown.with_list(path, self.loaded.revoked.clone()) {
            Ok(loaded) => {
                self.loaded = Arc::new(loaded);
                None
            }
            Err(error) => {
                tracing::error!(%error, "no one is let in until the list of revoked certificates can be used");
                Some(error.to_string())
            }
        };
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
            let (owner, mode) = (found.uid(), found.mode());
            Some((found.ino(), found.size(), owner, mode, found.ctime(), found.ctime_nsec()))
        };
        Self([stamp(path), stamp(&revoked_beside(path))])
    }
}

/// Where a list of revoked certificates is looked for, beside the one in the file itself.
fn revoked_beside(path: &Path) -> PathBuf {
    path.with_file_name(REVOKED_FILE)
}

impl Shown {
    fn read(path: &Path) -> Result<Self, IdentityError> {
        let text = read_secret(path)?;
        let wrong = |cause: &str| IdentityError::NoCredential { path: path.to_owned(), cause: cause.to_owned() };
        if text.starts_with(key::PREFIX) {
            Self::of_key(&SharedKey::parse(&text).map_err(wrong)?)
        } else {
            Self::of_identity(text.as_bytes()).map_err(|cause| wrong(&cause))
        }
    }

    fn of_key(key: &SharedKey) -> Result<Self, IdentityError> {
        let signer = Signer::derive(key)?;
        let member = signer.key_holder()?;
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(member.key.0.serialize_der()));
        let authority = signer.certificate()?.der().clone();
        let (certificate, heeds) = (member.certificate.der().clone(), Heeds::Nothing);
        Self::new(certificate, private, authority, Vec::new(), heeds).map_err(|cause| IdentityError::crypto(&cause))
    }

    fn of_identity(text: &[u8]) -> Result<Self, String> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        let Ok([certificate, authority]) = certificates.unwrap_or_default().try_into() as Result<[_; 2], _> else {
            return Err("it has not two certificates, its own and its authority's".to_owned());
        };
        let key = PrivateKeyDer::from_pem_slice(text).map_err(|_| "it has no private key")?;
        let lists = CertificateRevocationListDer::pem_slice_iter(text)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| "its list of revoked certificates cannot be read")?;
        Self::new(certificate, key, authority, lists, Heeds::ListBeside)
    }

    fn new(
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
        authority: CertificateDer<'static>,
        lists: Vec<CertificateRevocationListDer<'static>>,
        heeds: Heeds,
    ) -> Result<Self, String> {
        let itself = Peer::of(&certificate).ok_or("its certificate names no member of a cluster")?;
        // The text of the key is wiped here; the library's own copy of the key is not.
        let key = Zeroizing::new(key);
        let signing = ring::sign::any_supported_type(&key).map_err(words)?;
        let certified = CertifiedKey::new(vec![certificate], signing);
        certified.keys_match().map_err(words)?;
        let certified = Arc::new(SingleCertAndKey::from(certified));
        Ok(Self { certified, authority, itself, lists, heeds })
    }

    /// With the list beside the file at `path`, and one that was read before.
    fn with_list(
        &self,
        path: &Path,
        before: Option<CertificateRevocationListDer<'static>>,
    ) -> Result<Loaded, IdentityError> {
        let mut lists: Vec<_> = self.lists.iter().cloned().chain(before).collect();
        let beside = revoked_beside(path);
        if self.heeds == Heeds::ListBeside
            && let Some(text) = read_list(&beside)?
        {
            let damaged = || IdentityError::Damaged { path: beside.clone(), cause: "it is no list".to_owned() };
            let list = CertificateRevocationListDer::from_pem_slice(text.as_bytes()).map_err(|_| damaged())?;
            BorrowedCertRevocationList::from_der(list.as_ref()).map_err(|_| damaged())?;
            lists.push(list);
        }
        Loaded::new(self, newest(lists, &self.authority)).map_err(|error| match self.heeds {
            Heeds::ListBeside => IdentityError::NoCredential { path: path.to_owned(), cause: error },
            Heeds::Nothing => IdentityError::crypto(&error),
        })
    }
}

impl Loaded {
    fn new(shown: &Shown, revoked: Option<CertificateRevocationListDer<'static>>) -> Result<Self, String> {
        let provider = Arc::new(CryptoProvider { ..ring::default_provider() });
        let mut roots = RootCertStore::empty();
        roots.add(shown.authority.clone()).map_err(words)?;
        let roots = Arc::new(roots);
        let servers = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .with_crls(revoked.clone())
            .only_check_end_entity_revocation()
            .build()
            .map_err(words)?;
        let judge = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .with_crls(revoked.clone())
            .only_check_end_entity_revocation()
            .build()
            .map_err(words)?;
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(words)?
            .with_webpki_verifier(servers)
            .with_client_cert_resolver(Arc::clone(&shown.certified) as _);
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])
            .map_err(words)?
            .with_client_cert_verifier(Arc::clone(&judge))
            .with_cert_resolver(Arc::clone(&shown.certified) as _);
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self { client: Arc::new(client), server: Arc::new(server), judge, revoked })
    }

    /// What a handshake would say of a peer now.
    fn judge(&self, peer: &Peer) -> Result<(), TlsError> {
        self.judge.verify_client_cert(peer.certificate(), &[], UnixTime::now()).map(drop)
    }
}

fn words(error: impl fmt::Display) -> String {
    error.to_string()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_again_from_any_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        SharedKey::generate().unwrap().write(&path).unwrap();
        let up: PathBuf = std::env::current_dir().unwrap().components().skip(1).map(|_| "..").collect();
        let typed = up.join(path.strip_prefix("/").unwrap());
        let credential = Credential::load(&typed).unwrap();
        assert!(typed.is_relative() && credential.file.is_absolute());
        assert_eq!((credential.path(), Stamps::of(&credential.file)), (&*typed, Stamps::of(&path)));
        let missing = Credential::load(Path::new("no-such.key")).unwrap_err().to_string();
        assert!(missing.starts_with("no-such.key: "), "{missing}");
    }
}
