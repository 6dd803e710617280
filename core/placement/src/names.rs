//! Numbers that must not be mixed up: [`NodeId`], [`ClusterId`], [`MoveId`], [`Pid`]; and two secrets, [`Key`] and
//! [`Capability`].
//!
//! Large numbers travel as hexadecimal text, because many JSON programs keep only 53 bits of a number. Secrets are
//! never in debug output.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Text that is not a name of the kind that was asked for.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{text}' is not {what}: type {digits} hexadecimal digits")]
pub struct NameError {
    text: String,
    what: &'static str,
    digits: usize,
}

macro_rules! hexadecimal {
    ($(#[$doc:meta])* $name:ident($number:ty), $what:literal, $digits:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub struct $name(pub $number);

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{:0width$x}", self.0, width = $digits)
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                let plain = text.len() == $digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
                let number = plain.then(|| <$number>::from_str_radix(text, 16).ok()).flatten();
                number.map(Self).ok_or_else(|| NameError { text: text.to_owned(), what: $what, digits: $digits })
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.to_string()
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                text.parse()
            }
        }
    };
}

hexadecimal!(
    /// A memory node: its incarnation, a number that it draws when it starts. A node that starts again is another node.
    NodeId(u64), "a node", 16
);
hexadecimal!(
    /// One controller's state, however often the controller starts. A node serves one for as long as it runs.
    ClusterId(u64), "a cluster", 16
);
hexadecimal!(
    /// Proof to one node of the right to an address space.
    Capability(u128), "a capability", 32
);
hexadecimal!(
    /// Proof to the controller of the right to an address space: a random number that the client draws.
    Key(u128), "a key", 32
);

impl fmt::Debug for NodeId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "NodeId({self})")
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ClusterId({self})")
    }
}

impl fmt::Debug for Capability {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Capability(..)")
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key(..)")
    }
}

/// One move of a region, among all that a cluster ever makes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct MoveId(pub u64);

/// An address space. Those of a controller have the top bit set, and no two ever have the same number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Pid(pub u32);

impl Pid {
    /// The first one of a controller. Smaller numbers are for spaces that nodes make by themselves.
    pub const FIRST: Self = Self(1 << 31);

    /// Whether a controller made it.
    #[must_use]
    pub const fn is_of_controller(self) -> bool {
        self.0 >= Self::FIRST.0
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        let node = NodeId(0x0123_4567_89ab_cdef);
        assert_eq!(node.to_string().parse(), Ok(node));
        assert_eq!(serde_json::to_string(&node).unwrap(), "\"0123456789abcdef\"");
        let key = Key(u128::MAX - 5);
        assert_eq!(serde_json::from_str::<Key>(&serde_json::to_string(&key).unwrap()).unwrap(), key);
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "12", "+123456789abcdef", "0123456789abcdeg", "0123456789abcdef0"] {
            assert!(text.parse::<NodeId>().is_err(), "{text}");
        }
        let said = "12".parse::<NodeId>().unwrap_err().to_string();
        assert_eq!(said, "'12' is not a node: type 16 hexadecimal digits");
    }

    #[test]
    fn secrets_are_not_in_debug_output() {
        assert_eq!(format!("{:?} {:?}", Key(5), Capability(5)), "Key(..) Capability(..)");
    }
}
