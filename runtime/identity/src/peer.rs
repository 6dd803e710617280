//! [`Peer`]: who is at the other end, as its certificate says.

use std::fmt;

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::role::Role;

/// What one who has the shared key is called: it has no name of its own.
pub(crate) const KEY_HOLDER: &str = "key";

/// How limits begin in a certificate. They follow as text, which is what nodes read.
pub(crate) const LIMITS_SCHEME: &str = "yonder-limits:";

/// How much a tenant may have and do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// As it was typed; nothing if nothing was.
    pub text: String,
    /// When it was said, in seconds since 1970. What was said last holds.
    pub since: u64,
}

impl Limits {
    fn parse(text: &str) -> Option<Self> {
        let (text, since) = text.rsplit_once('@')?;
        Some(Self { text: text.to_owned(), since: since.parse().ok()? })
    }
}

/// The other end of a connection. Its certificate was checked at the handshake.
#[derive(Clone, PartialEq, Eq)]
pub struct Peer {
    role: Option<Role>,
    name: String,
    limits: Option<Limits>,
    certificate: CertificateDer<'static>,
}

impl Peer {
    /// What a checked certificate says; `None` if it is none of this project.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let parsed = EndEntityCert::try_from(certificate).ok()?;
        let mut plain = Vec::new();
        let mut member = None;
        for domain in parsed.valid_dns_names() {
            match Role::of_domain(domain)? {
                (role, None) => plain.push(role),
                (role, Some(name)) if member.is_none() => member = Some((role, name.to_owned())),
                (_, Some(_)) => return None,
            }
        }
        let mut limits = parsed.valid_uri_names().filter_map(|uri| uri.strip_prefix(LIMITS_SCHEME));
        let limits = limits.next().and_then(Limits::parse);
        let certificate = certificate.clone().into_owned();
        match member {
            // The name of its own role, and of no other.
            Some((role, name)) if plain == [role] => Some(Self { role: Some(role), name, limits, certificate }),
            None if Role::ALL.iter().all(|role| plain.contains(role)) => {
                Some(Self { role: None, name: KEY_HOLDER.to_owned(), limits: None, certificate })
            }
            _ => None,
        }
    }

    /// Whether it may do what the role may. One who has the shared key has every role.
    #[must_use]
    pub fn has(&self, role: Role) -> bool {
        self.role.is_none_or(|own| own == role)
    }

    /// Its role; `None` if it has the shared key, and so every role.
    #[must_use]
    pub const fn role(&self) -> Option<Role> {
        self.role
    }

    /// Its name among all members of its authority; `None` if it has the shared key, which names no one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.role.map(|_| self.name.as_str())
    }

    /// What its certificate says of how much it may have and do; `None` if it is of a time when that was not said.
    #[must_use]
    pub const fn limits(&self) -> Option<&Limits> {
        self.limits.as_ref()
    }

    pub(crate) const fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.role {
            Some(role) => write!(formatter, "{role} {}", self.name),
            None => formatter.write_str("one who has the shared key"),
        }
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Peer({self})")
    }
}
