//! [`Domains`]: what else fails when a node fails, as its operator says: `rack=a,row=3`.
//!
//! Each level has a name that all nodes agree about. Nodes that say the same name at a level fail together there; one
//! that says nothing at a level is alone at it. The level that is said first is the narrowest.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Most levels of one node.
pub const DOMAIN_LEVELS_MAX: usize = 4;
/// Longest name of a level or a domain.
const NAME_BYTES_MAX: usize = 64;

/// The failure domains of a node, the narrowest first; none if it fails alone.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Domains(Vec<Domain>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Domain {
    level: String,
    name: String,
}

/// Text that says no failure domains.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{text}' says no failure domains ({cause}): type LEVEL=NAME, the narrowest first, such as rack=a,row=3")]
pub struct DomainsError {
    text: String,
    cause: &'static str,
}

impl Domains {
    /// Whether the node fails alone.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The narrowest domain, as level and name.
    pub(crate) fn narrowest(&self) -> Option<(&str, &str)> {
        self.0.first().map(|domain| (domain.level.as_str(), domain.name.as_str()))
    }

    /// Whether both are in the same domain at the narrowest level.
    pub(crate) fn are_beside(&self, other: &Self) -> bool {
        self.narrowest().is_some_and(|narrowest| other.narrowest() == Some(narrowest))
    }

    /// At how many levels both fail together.
    pub(crate) fn shared_with(&self, other: &Self) -> u32 {
        self.0.iter().map(|domain| u32::from(other.0.contains(domain))).sum()
    }
}

impl fmt::Display for Domains {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Domain { level, name }) in self.0.iter().enumerate() {
            write!(formatter, "{}{level}={name}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Domains {
    type Err = DomainsError;

    fn from_str(text: &str) -> Result<Self, DomainsError> {
        let wrong = |cause| DomainsError { text: text.chars().take(NAME_BYTES_MAX).collect(), cause };
        let mut domains: Vec<Domain> = Vec::new();
        for part in text.split(',') {
            let (level, name) = part.trim().split_once('=').ok_or_else(|| wrong("a part has no ="))?;
            if !is_name(level) || !is_name(name) {
                return Err(wrong("names are of letters, digits and -_. alone, 64 at most"));
            }
            if domains.iter().any(|domain| domain.level == level) {
                return Err(wrong("a level is there twice"));
            }
            domains.push(Domain { level: level.to_owned(), name: name.to_owned() });
        }
        if domains.len() > DOMAIN_LEVELS_MAX {
            return Err(wrong("there are more than four levels"));
        }
        Ok(Self(domains))
    }
}

fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain)
}

impl From<Domains> for String {
    fn from(domains: Domains) -> Self {
        domains.to_string()
    }
}

impl TryFrom<String> for Domains {
    type Error = DomainsError;

    fn try_from(text: String) -> Result<Self, DomainsError> {
        if text.is_empty() { Ok(Self::default()) } else { text.parse() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeRecord, Record, Registration};

    fn domains(text: &str) -> Domains {
        text.parse().unwrap()
    }

    #[test]
    fn what_fails_together_is_said_by_level() {
        let [here, beside, row, elsewhere] =
            ["rack=a,row=3", "rack=a,row=3,room=1", "rack=b,row=3", "rack=3,row=a"].map(domains);
        assert_eq!([&beside, &row, &elsewhere].map(|other| here.shared_with(other)), [2, 1, 0]);
        assert_eq!([&beside, &row, &elsewhere].map(|other| here.are_beside(other)), [true, false, false]);
        let alone = Domains::default();
        assert_eq!((alone.shared_with(&alone), alone.are_beside(&alone), alone.is_empty()), (0, false, true));
    }

    #[test]
    fn text_comes_back_and_other_text_says_what_to_type() {
        for text in ["rack=a", "rack=a,row=3", "host=r1-n_2.x,rack=1,row=2,room=3"] {
            assert_eq!(domains(text).to_string(), text);
            let json = serde_json::to_string(&domains(text)).unwrap();
            assert_eq!(serde_json::from_str::<Domains>(&json).unwrap(), domains(text));
        }
        assert_eq!(domains("rack=a, row=3"), domains("rack=a,row=3"));
        let long = format!("rack={}", "x".repeat(65));
        for text in ["", "rack", "=a", "rack=", "rack=a,", "rack=a,rack=b", "rack=a b", "a=1,b=1,c=1,d=1,e=1", &long] {
            let said = text.parse::<Domains>().unwrap_err().to_string();
            assert!(said.ends_with("type LEVEL=NAME, the narrowest first, such as rack=a,row=3"), "{said}");
            assert!(!said.contains('\n') && said.len() < 240, "{said}");
        }
    }

    /// What nodes and stores of releases without failure domains say.
    #[test]
    fn a_node_that_says_none_is_alone() {
        let facts = r#"{"node":"00000000000000a1","urls":["tcp://10.0.0.1:7000"],"memory_bytes":4096,"page_bytes":4096,
            "region_bytes":4096}"#;
        let registration: Registration = serde_json::from_str(facts).unwrap();
        assert!(registration.domains.is_empty());
        assert!(!serde_json::to_string(&registration).unwrap().contains("domains"), "and an old controller reads it");
        let record = format!(r#"{{"node":{{"facts":{facts},"duty":"serving"}}}}"#);
        let Record::Node(NodeRecord { facts, .. }) = serde_json::from_str(&record).unwrap() else { panic!() };
        assert_eq!(facts, registration);
        let said = Registration { domains: domains("rack=a"), ..registration };
        assert_eq!(serde_json::from_str::<Registration>(&serde_json::to_string(&said).unwrap()).unwrap(), said);
    }
}
