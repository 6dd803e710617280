//! What can be wrong with files, names and handshakes. Each is one line that says what to type, if typing helps.

use std::io;
use std::path::PathBuf;

use rustls::{AlertDescription, CertificateError, Error as TlsError};

/// What is wrong with a file, a folder or a name.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file cannot be read or written.
    #[error("{path}: {cause}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        cause: io::Error,
    },
    /// Others could have read the file, or written it.
    #[error("{path} has a secret, and {cause}: type {mends}")]
    Exposed {
        /// The file or folder.
        path: PathBuf,
        /// Who else may use it.
        cause: String,
        /// What mends it.
        mends: String,
    },
    /// Others could have written the list of revoked certificates, or it is no file.
    #[error("{path} says who is revoked, and {cause}: type {mends}")]
    DoubtfulList {
        /// The list.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
        /// What mends it.
        mends: String,
    },
    /// The file is neither an identity nor a key.
    #[error(
        "{path} is neither an identity nor a shared key ({cause}): make one with `yonder cluster add` or `yonder cluster \
         key`"
    )]
    NoCredential {
        /// The file.
        path: PathBuf,
        /// What it lacks.
        cause: String,
    },
    /// The identity has another role than what it is for.
    #[error("{path} is the identity of {has}, and {wants} is needed: make one with `yonder cluster add {role} NAME`")]
    OtherRole {
        /// The file.
        path: PathBuf,
        /// What it is of.
        has: &'static str,
        /// What is needed.
        wants: &'static str,
        /// The same, as it is typed.
        role: &'static str,
    },
    /// Both of two that exclude one another.
    #[error("{first} and {second} are both given: one credential is enough, so leave one out")]
    Both {
        /// One.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// No role has this name.
    #[error("'{text}' is not a role: type node, tenant, operator or controller")]
    Role {
        /// What was typed.
        text: String,
    },
    /// No member can have this name.
    #[error("'{}' cannot be a name: type lowercase letters, digits and hyphens, at most 63", name.escape_default())]
    Name {
        /// What was typed.
        name: String,
    },
    /// No certificate lives so long.
    #[error("a certificate lives for a second at least and {days_max} days at most: type --days 90")]
    Lifetime {
        /// Most days.
        days_max: u32,
    },
    /// There is no authority in the folder.
    #[error("{folder} has no authority: make one with `yonder cluster init`, or type another --folder")]
    NoAuthority {
        /// The folder.
        folder: PathBuf,
    },
    /// There is one already.
    #[error("{folder} has an authority already: use that one, or type another --folder")]
    AuthorityExists {
        /// The folder.
        folder: PathBuf,
    },
    /// The authority's own files contradict one another.
    #[error("{path} cannot be understood ({cause}): restore it from a copy")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// A member has the name.
    #[error(
        "{has} has the name {name} already: type another name, --renew for a new certificate of the same one, or \
         `yonder cluster revoke {name}` if its key is lost"
    )]
    NameTaken {
        /// What it is.
        has: &'static str,
        /// Its name.
        name: String,
    },
    /// No member has the name.
    #[error("no member is called {name}: `yonder cluster list` shows those that are")]
    NoMember {
        /// What was typed.
        name: String,
    },
    /// A file that is to be made is there.
    #[error("{path} is there already: remove it, or type another --out")]
    FileExists {
        /// The file.
        path: PathBuf,
    },
    /// Signing or deriving failed: the library's word for it.
    #[error("no certificate could be made: {0}")]
    Crypto(String),
}

impl IdentityError {
    pub(crate) fn crypto(error: &impl std::fmt::Display) -> Self {
        Self::Crypto(error.to_string())
    }
}

/// Why a handshake came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The other end's certificate is not taken here.
    #[error("the other end is not trusted: {0}")]
    Untrusted(String),
    /// The other end does not take ours.
    #[error("the other end refuses this identity: {0}")]
    Refused(String),
    /// The other end does not take ours, because its list has it.
    #[error("the other end refuses this identity: {REVOKED}")]
    Revoked,
    /// Either, but it may be someone on the way who says so.
    #[error("{0}")]
    Unproven(String),
    /// What came is not TLS.
    #[error("the other end speaks no TLS: is it started without --identity or --key?")]
    NotTls,
    /// It took too long, or too many bytes.
    #[error("the handshake did not end within its {0}")]
    Exceeded(&'static str),
    /// The connection broke.
    #[error("the connection broke in the handshake: {0}")]
    Io(#[from] io::Error),
    /// Anything else that the library says.
    #[error("the handshake failed: {0}")]
    Tls(String),
    /// The list of those who are not to be let in cannot be used, so no one is.
    #[error("no one is let in while the list of revoked certificates cannot be used: {0}")]
    NoList(String),
    /// Our own credential cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

impl HandshakeError {
    /// What is known if the other end has not shown who it is: not that it is the one that refuses.
    pub(crate) fn unproven(self) -> Self {
        match self {
            Self::Refused(_) | Self::Revoked => Self::Unproven(self.to_string()),
            other => other,
        }
    }

    /// What the library's error means to a person.
    pub(crate) fn of(error: &TlsError) -> Self {
        match error {
            TlsError::InvalidCertificate(cause) => Self::Untrusted(untrusted(cause)),
            TlsError::InvalidCertRevocationList(cause) => {
                Self::Untrusted(format!("the list of revoked certificates cannot be used ({cause:?})"))
            }
            TlsError::NoCertificatesPresented => Self::Untrusted("it shows no certificate".to_owned()),
            TlsError::AlertReceived(AlertDescription::CertificateRevoked) => Self::Revoked,
            TlsError::AlertReceived(alert) => match refused(*alert) {
                Some(cause) => Self::Refused(cause.to_owned()),
                None => Self::Tls(error.to_string()),
            },
            TlsError::InvalidMessage(_) | TlsError::InappropriateMessage { .. } => Self::NotTls,
            other => Self::Tls(other.to_string()),
        }
    }
}

const EXPIRED: &str = "its certificate is over, or a clock is wrong; `yonder cluster add --renew` makes a new one";
const REVOKED: &str = "its certificate was revoked";
const OTHER_AUTHORITY: &str = "its certificate is of another authority, or its key is another one";

fn untrusted(cause: &CertificateError) -> String {
    match cause {
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => EXPIRED.to_owned(),
        CertificateError::Revoked => REVOKED.to_owned(),
        CertificateError::UnknownIssuer | CertificateError::BadSignature => OTHER_AUTHORITY.to_owned(),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate is of another role, or of another name, than is asked for there".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its certificate is of a role that serves no one, or of a tenant and made by an earlier release; `yonder \
             cluster add --renew` makes a new one"
                .to_owned()
        }
        other => other.to_string(),
    }
}

/// What an alert says of the certificate that was shown.
fn refused(alert: AlertDescription) -> Option<&'static str> {
    Some(match alert {
        AlertDescription::CertificateExpired => EXPIRED,
        AlertDescription::UnknownCA | AlertDescription::DecryptError => OTHER_AUTHORITY,
        AlertDescription::CertificateRequired => "it asks for a certificate; type --identity FILE or --key FILE",
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => "its certificate cannot be used there",
        _ => return None,
    })
}
