//! [`Role`]: what a certificate allows, and how roles and names are written into certificates.

use std::fmt;
use std::str::FromStr;

use crate::IdentityError;

/// Longest name of a member, which is one label of a domain's name.
pub const NAME_BYTES_MAX: usize = 63;

/// The domain of all names in certificates. It has no servers: names are compared, never looked up.
const DOMAIN: &str = "yonder";

/// What a member of a cluster is, and so what it may do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// A memory node: registers at a controller under its name, and serves.
    Node,
    /// A program: makes address spaces, and uses its own.
    Tenant,
    /// A person or program that runs the cluster: drains nodes, sees all spaces.
    Operator,
    /// A controller. It is a role of its own, so that a node's stolen key does not make a controller.
    Controller,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Node, Self::Tenant, Self::Operator, Self::Controller];

    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Tenant => "tenant",
            Self::Operator => "operator",
            Self::Controller => "controller",
        }
    }

    /// Its word with an article, for a sentence.
    #[must_use]
    pub const fn with_article(self) -> &'static str {
        match self {
            Self::Node => "a node",
            Self::Tenant => "a tenant",
            Self::Operator => "an operator",
            Self::Controller => "a controller",
        }
    }

    /// The name that all certificates of the role have.
    pub(crate) fn domain(self) -> String {
        format!("{self}.{DOMAIN}")
    }

    /// The name that only the certificates of one member have.
    pub(crate) fn member(self, name: &str) -> String {
        format!("{name}.{self}.{DOMAIN}")
    }

    /// The role, and the member if it names one, of a name in a certificate.
    pub(crate) fn of_domain(domain: &str) -> Option<(Self, Option<&str>)> {
        let rest = domain.strip_suffix(DOMAIN)?.strip_suffix('.')?;
        match rest.rsplit_once('.') {
            None => Some((rest.parse().ok()?, None)),
            Some((name, role)) => Some((role.parse().ok()?, Some(name))),
        }
    }

    /// Whether others connect to it, and expect a server's certificate: to a tenant for its metrics. That a tenant is
    /// no node is in the names of its certificate.
    pub(crate) const fn serves(self) -> bool {
        matches!(self, Self::Node | Self::Controller | Self::Tenant)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let named = Self::ALL.into_iter().find(|role| role.as_str() == text);
        named.ok_or_else(|| IdentityError::Role { text: text.to_owned() })
    }
}

/// Fails if a member cannot have this name.
pub fn check_name(name: &str) -> Result<(), IdentityError> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let good = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(plain)
        && !name.starts_with('-')
        && !name.ends_with('-');
    if good { Ok(()) } else { Err(IdentityError::Name { name: name.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_certificates_come_back() {
        for role in Role::ALL {
            assert_eq!(Role::of_domain(&role.domain()), Some((role, None)));
            assert_eq!(Role::of_domain(&role.member("n-1")), Some((role, Some("n-1"))));
            assert_eq!(role.as_str().parse::<Role>().unwrap(), role);
        }
        for other in ["yonder", "node.yonder.org", "nodeyonder", "a.king.yonder", "king.yonder", "node.", ""] {
            assert_eq!(Role::of_domain(other), None, "{other}");
        }
    }

    #[test]
    fn a_name_is_one_label() {
        for good in ["n1", "a", "rack-3-node-12", "0"] {
            check_name(good).unwrap();
        }
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for bad in ["", "N1", "a.b", "-a", "a-", "a b", "a\n", "ü", &long] {
            let said = check_name(bad).unwrap_err().to_string();
            assert!(said.contains("type lowercase letters") && !said.contains('\n'), "{said}");
        }
    }
}
