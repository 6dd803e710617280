//! [`Asker`]: for whom a request is handled, and what each of them may ask.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::message::{Refusal, Request};
use crate::names::Pid;

/// Who asks, as far as the shell has made sure of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Asker {
    /// A person who runs the cluster: may ask everything.
    Operator,
    /// A program of a cluster in which programs have names: may have address spaces, and use its own.
    Tenant(String),
    /// What may look, and change nothing: a controller that serves metrics.
    Observer,
    /// A connection from this address, where there are no names: may ask everything, as far as one address may.
    Source(String),
}

/// Who has made an address space.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Maker {
    /// A program, by name.
    Tenant(String),
    /// A program without a name, at this address.
    Source(String),
}

impl Asker {
    /// This machine, where there are no names.
    #[must_use]
    pub fn local() -> Self {
        Self::Source("127.0.0.1".to_owned())
    }

    /// What is noted in the address spaces that it makes. Those of operators are theirs together.
    pub(crate) fn maker(&self) -> Option<Maker> {
        match self {
            Self::Tenant(name) => Some(Maker::Tenant(name.clone())),
            Self::Source(address) => Some(Maker::Source(address.clone())),
            Self::Operator | Self::Observer => None,
        }
    }

    /// Whether it may ask something of this kind at all.
    pub(crate) fn check(&self, request: &Request) -> Result<(), Refusal> {
        let for_operators = matches!(
            request,
            Request::Nodes
                | Request::Spaces { .. }
                | Request::Tenants
                | Request::Drain { .. }
                | Request::Undrain { .. }
        );
        let looks = matches!(request, Request::Nodes | Request::Spaces { .. } | Request::Tenants);
        match self {
            Self::Operator | Self::Source(_) => Ok(()),
            Self::Tenant(_) if !for_operators => Ok(()),
            Self::Observer if looks => Ok(()),
            Self::Tenant(_) | Self::Observer => Err(Refusal::NotAnOperator { asker: self.to_string() }),
        }
    }

    /// Whether it may use an address space that `maker` has made, if it has a key of it.
    pub(crate) fn check_space(&self, pid: Pid, maker: Option<&Maker>) -> Result<(), Refusal> {
        match (self, maker) {
            (Self::Tenant(own), Some(Maker::Tenant(other))) if own == other => Ok(()),
            (Self::Tenant(_) | Self::Observer, _) => Err(Refusal::NotYours { pid }),
            (Self::Operator | Self::Source(_), _) => Ok(()),
        }
    }
}

impl fmt::Display for Asker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator => formatter.write_str("an operator"),
            Self::Tenant(name) => write!(formatter, "tenant {name}"),
            Self::Observer => formatter.write_str("an observer"),
            Self::Source(address) => formatter.write_str(address),
        }
    }
}
