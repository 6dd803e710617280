//! Whom `yonder kv` serves: passwords and TLS, under memcached's words where it has any.

use std::path::PathBuf;

use clap::Args;
use yonder_kv::{TlsClients, TlsFiles};

/// Heading of these flags.
const CLIENTS: &str = "Clients";

/// The flags. Without any, whoever reaches the server is served.
#[derive(Clone, Default, Debug, Args)]
pub(crate) struct KvAccessArgs {
    /// Serve those who say a password first, as memcached's -Y: a file of lines user:password, read again on SIGHUP
    #[arg(long, help_heading = CLIENTS, value_name = "FILE")]
    pub(crate) auth_file: Option<PathBuf>,
    /// Speak TLS 1.3 alone, with this certificate and those that lead to its authority, in PEM; read again on SIGHUP
    #[arg(long, help_heading = CLIENTS, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of the certificate, in PEM, which no other user may read
    #[arg(long, help_heading = CLIENTS, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Authorities, in PEM: a client that shows a certificate must show one of theirs
    #[arg(long, help_heading = CLIENTS, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Turn clients away that show no certificate
    #[arg(long, help_heading = CLIENTS, requires = "tls_ca")]
    pub(crate) tls_verify: bool,
}

impl KvAccessArgs {
    /// The files of TLS, if it is spoken.
    pub(crate) fn tls(&self) -> Option<TlsFiles> {
        let (cert, key) = self.tls_cert.clone().zip(self.tls_key.clone())?;
        let clients = if self.tls_verify { TlsClients::AreVerified } else { TlsClients::MayBeUnknown };
        Some(TlsFiles { cert, key, client_authorities: self.tls_ca.clone(), clients })
    }

    /// Whether no stranger is served, not even one who has listened to others.
    pub(crate) fn keeps_strangers_out(&self) -> bool {
        self.tls_verify || (self.tls_cert.is_some() && self.auth_file.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_kept_out_by_what_they_cannot_overhear() {
        let (file, none) = (Some(PathBuf::from("file")), None);
        for (auth_file, tls_cert, tls_verify, keeps) in [
            (&none, &none, false, false),
            (&file, &none, false, false),
            (&none, &file, false, false),
            (&file, &file, false, true),
            (&none, &file, true, true),
        ] {
            let args = KvAccessArgs {
                auth_file: auth_file.clone(),
                tls_cert: tls_cert.clone(),
                tls_key: tls_cert.clone(),
                tls_ca: tls_cert.clone(),
                tls_verify,
            };
            assert_eq!(args.keeps_strangers_out(), keeps, "{args:?}");
        }
    }
}
