//! [`Guard`]: who may ask, by the heads of requests. Pure.
//!
//! - A page of others whose name is made to lead here (DNS rebinding) asks for its own host: only addresses by number,
//!   and `localhost`, are answered.
//! - A page of others that sends a change here (CSRF) has another origin, and does not have the key.
//! - Another user of this machine reaches the port, and does not have the key.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, StatusCode, header};
use rand::TryRngCore as _;
use rand::rngs::OsRng;

/// Bytes of a key.
const KEY_BYTES: usize = 16;
/// How the key is shown.
const SCHEME: &str = "Bearer ";
/// What browsers say of where a request comes from, and that cannot be forged by a page.
const SITE: &str = "sec-fetch-site";

/// Why a request is not answered: one line for who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stranger {
    /// Its host is none of this server.
    Host,
    /// Another page sends it.
    Origin,
    /// It does not have the key.
    Key,
}

impl Stranger {
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::Origin => StatusCode::FORBIDDEN,
            Self::Key => StatusCode::UNAUTHORIZED,
        }
    }

    pub(crate) const fn why(self) -> &'static str {
        match self {
            Self::Host => {
                "this is answered under its address alone: open the address that `yonder top --web` has printed"
            }
            Self::Origin => "another page asks for this: open the address that `yonder top --web` has printed",
            Self::Key => {
                "the key is another one: open the address that `yonder top --web` has printed at its last start"
            }
        }
    }
}

/// Knows where it is and what the key is.
#[derive(Debug)]
pub(crate) struct Guard {
    address: SocketAddr,
    key: String,
}

impl Guard {
    /// With a new key. An error if the system has no random numbers.
    pub(crate) fn new(address: SocketAddr) -> std::io::Result<Self> {
        let mut bytes = [0; KEY_BYTES];
        OsRng.try_fill_bytes(&mut bytes).map_err(std::io::Error::other)?;
        Ok(Self { address, key: bytes.iter().map(|byte| format!("{byte:02x}")).collect() })
    }

    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Whether a file of the page may be had, which has nothing that is not everybody's.
    pub(crate) fn admit(&self, head: &HeaderMap) -> Result<(), Stranger> {
        let host = text(head, header::HOST.as_str()).unwrap_or_default();
        if self.is_own(host) { Ok(()) } else { Err(Stranger::Host) }
    }

    /// Whether figures may be had.
    pub(crate) fn admit_to_look(&self, head: &HeaderMap) -> Result<(), Stranger> {
        self.admit(head)?;
        if text(head, SITE).is_some_and(|site| site != "same-origin" && site != "none") {
            return Err(Stranger::Origin);
        }
        let shown = text(head, header::AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix(SCHEME));
        if shown.is_some_and(|key| is_equal(key.as_bytes(), self.key.as_bytes())) { Ok(()) } else { Err(Stranger::Key) }
    }

    /// Whether something may be changed.
    pub(crate) fn admit_to_change(&self, head: &HeaderMap) -> Result<(), Stranger> {
        self.admit_to_look(head)?;
        let host = text(head, header::HOST.as_str()).unwrap_or_default();
        let origin = text(head, header::ORIGIN.as_str()).and_then(|origin| origin.strip_prefix("http://"));
        let is_json = text(head, header::CONTENT_TYPE.as_str()) == Some("application/json");
        if origin == Some(host) && is_json { Ok(()) } else { Err(Stranger::Origin) }
    }

    /// Whether a host is this server, by number or as `localhost`: names lead where others want them to.
    fn is_own(&self, host: &str) -> bool {
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let host = if has_port { host.to_owned() } else { format!("{host}:80") };
        let own = self.address.ip().to_canonical();
        if let Ok(asked) = host.parse::<SocketAddr>() {
            return asked.port() == self.address.port() && (own.is_unspecified() || asked.ip().to_canonical() == own);
        }
        let is_near = own.is_loopback() || own.is_unspecified();
        is_near && host.eq_ignore_ascii_case(&format!("localhost:{}", self.address.port()))
    }
}

/// Where a browser of this machine finds what is bound to an address.
pub(crate) fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(std::net::Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(std::net::Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

/// The only value of a field.
fn text<'a>(head: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = head.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// In a time that says nothing of where two differ.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |sum, (one, other)| sum | (one ^ other)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(address: &str) -> Guard {
        Guard::new(address.parse().unwrap()).unwrap()
    }

    fn head(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn hosts_by_number_are_answered_and_names_are_not() {
        for (bound, own, others) in [
            (
                "127.0.0.1:9101",
                &["127.0.0.1:9101", "localhost:9101", "LOCALHOST:9101"][..],
                &["127.0.0.1", "127.0.0.1:80", "127.0.0.2:9101", "evil.example:9101", "localhost", "", ":9101"][..],
            ),
            ("[::1]:9101", &["[::1]:9101", "localhost:9101"], &["[::1]", "[::2]:9101", "::1"]),
            ("10.0.0.2:80", &["10.0.0.2", "10.0.0.2:80"], &["localhost", "localhost:80", "10.0.0.3"]),
            ("0.0.0.0:9101", &["10.0.0.2:9101", "localhost:9101"], &["localhost.evil.example:9101", "10.0.0.2:9102"]),
        ] {
            let guard = guard(bound);
            for host in own {
                assert_eq!(guard.admit(&head(&[("host", host)])), Ok(()), "{bound}: {host}");
            }
            for host in others {
                assert_eq!(guard.admit(&head(&[("host", host)])), Err(Stranger::Host), "{bound}: {host}");
            }
            assert_eq!(guard.admit(&head(&[])), Err(Stranger::Host));
        }
        let twice = [("host", "127.0.0.1:1"), ("host", "127.0.0.1:1")];
        let mut both = HeaderMap::new();
        for (name, value) in twice {
            both.append(name, value.parse().unwrap());
        }
        assert_eq!(guard("127.0.0.1:1").admit(&both), Err(Stranger::Host));
    }

    #[test]
    fn keys_are_new_and_must_be_shown() {
        let (one, other) = (guard("127.0.0.1:1"), guard("127.0.0.1:1"));
        assert_ne!(one.key(), other.key());
        let look = |shown: &str| one.admit_to_look(&head(&[("host", "127.0.0.1:1"), ("authorization", shown)]));
        assert_eq!(look(&format!("Bearer {}", one.key())), Ok(()));
        for wrong in [format!("Bearer {}", other.key()), one.key().to_owned(), "Bearer ".to_owned(), String::new()] {
            assert_eq!(look(&wrong), Err(Stranger::Key), "{wrong}");
        }
    }

    #[test]
    fn changes_come_from_the_page_itself() {
        let guard = guard("127.0.0.1:1");
        let key = format!("Bearer {}", guard.key());
        let change = |origin: &str, kind: &str, site: &str| {
            guard.admit_to_change(&head(&[
                ("host", "127.0.0.1:1"),
                ("authorization", &key),
                ("origin", origin),
                ("content-type", kind),
                ("sec-fetch-site", site),
            ]))
        };
        let (own, json) = ("http://127.0.0.1:1", "application/json");
        assert_eq!(change(own, json, "same-origin"), Ok(()));
        for origin in ["http://evil.example", "http://localhost:1", "https://127.0.0.1:1", "null", "127.0.0.1:1"] {
            assert_eq!(change(origin, json, "same-origin"), Err(Stranger::Origin), "{origin}");
        }
        assert_eq!(change(own, "text/plain", "same-origin"), Err(Stranger::Origin));
        assert_eq!(change(own, json, "cross-site"), Err(Stranger::Origin));
        let without = head(&[("host", "127.0.0.1:1"), ("authorization", &key), ("content-type", json)]);
        assert_eq!(guard.admit_to_change(&without), Err(Stranger::Origin));
    }
}
