//! [`Certificates`]: what TLS shows to clients and asks of them, from files that are read again on demand.
//!
//! TLS 1.3 alone, without resumption: each connection is judged by the files as they were last read.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, ServerConnection, version};
use yonder_identity::{IdentityError, read_secret};

use super::KvError;

/// The files of a server that speaks TLS, all in PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The server's certificate, and those between it and an authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities whose certificates clients may show; none is asked for without.
    pub client_authorities: Option<PathBuf>,
    /// What becomes of clients that show none.
    pub clients: TlsClients,
}

/// What becomes of clients that show no certificate. One that is shown must be good, always.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsClients {
    /// They are served.
    MayBeUnknown,
    /// They are refused.
    AreVerified,
}

/// What TLS is spoken with. Any thread may read the files again.
#[derive(Debug)]
pub(super) struct Certificates {
    files: TlsFiles,
    config: Mutex<Arc<ServerConfig>>,
}

impl Certificates {
    /// Reads the files.
    pub(super) fn open(files: TlsFiles) -> Result<Self, KvError> {
        let config = Mutex::new(read(&files)?);
        Ok(Self { files, config })
    }

    /// Reads the files again, for connections from here on. If they cannot be used, all stays as it is.
    pub(super) fn reload(&self) -> Result<(), KvError> {
        let config = read(&self.files)?;
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// The server's end of a connection; `None` if there is no memory for it.
    pub(super) fn connection(&self) -> Option<ServerConnection> {
        let config = Arc::clone(&self.config.lock().unwrap_or_else(PoisonError::into_inner));
        ServerConnection::new(config).ok()
    }
}

fn read(files: &TlsFiles) -> Result<Arc<ServerConfig>, KvError> {
    let chain = certificates(&files.cert, "--tls-cert")?;
    let text = read_secret(&files.key).map_err(|error| match error {
        IdentityError::File { cause, .. } => refused(&files.key, "--tls-key", "a file to be read", cause),
        error => KvError::Secret(Box::new(error)),
    })?;
    let key = PrivateKeyDer::from_pem_slice(text.as_bytes())
        .map_err(|cause| refused(&files.key, "--tls-key", "a private key", cause))?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&version::TLS13])
        .expect("the provider has TLS 1.3");
    let builder = match &files.client_authorities {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            let unusable = |cause: String| refused(path, "--tls-ca", "certificates of authorities", cause);
            for authority in certificates(path, "--tls-ca")? {
                roots.add(authority).map_err(|cause| unusable(cause.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match files.clients {
                TlsClients::MayBeUnknown => verifier.allow_unauthenticated(),
                TlsClients::AreVerified => verifier,
            };
            builder.with_client_cert_verifier(verifier.build().map_err(|cause| unusable(cause.to_string()))?)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|cause| refused(&files.key, "--tls-key", "the key of the certificate", cause))?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn certificates(path: &Path, flag: &'static str) -> Result<Vec<CertificateDer<'static>>, KvError> {
    let text = std::fs::read(path).map_err(|cause| refused(path, flag, "a file to be read", cause))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|cause| refused(path, flag, "certificates", cause))?;
    if found.is_empty() { Err(refused(path, flag, "certificates", "it has none")) } else { Ok(found) }
}

fn refused(path: &Path, flag: &'static str, wanted: &'static str, cause: impl std::fmt::Display) -> KvError {
    KvError::Tls { path: path.to_owned(), flag, wanted, cause: cause.to_string() }
}
