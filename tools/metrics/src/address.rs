//! Addresses as a user types them: `A:P`, with a number or a name for A.

use std::net::{SocketAddr, ToSocketAddrs};

/// The address that examples show and `yonder top` attaches to when none is given.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:9185";

/// The text is not an address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{text}' is not an address: type a host and a port, such as {DEFAULT_ADDRESS}")]
pub struct AddressError {
    text: String,
}

/// Parses `A:P`; of a name with several addresses, the first is taken.
pub(crate) fn parse(text: &str) -> Result<SocketAddr, AddressError> {
    let wrong = || AddressError { text: text.to_owned() };
    text.to_socket_addrs().map_err(|_| wrong())?.next().ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_ports_are_addresses() {
        assert_eq!(parse("127.0.0.1:80"), Ok(SocketAddr::from(([127, 0, 0, 1], 80))));
        assert_eq!(parse("[::1]:80").map(|address| address.port()), Ok(80));
        assert!(parse(DEFAULT_ADDRESS).is_ok());
    }

    #[test]
    fn anything_else_says_what_to_type() {
        for text in ["", "9185", "127.0.0.1", "127.0.0.1:http:80", "127.0.0.1:99999"] {
            let said = parse(text).unwrap_err().to_string();
            assert_eq!(said, format!("'{text}' is not an address: type a host and a port, such as 127.0.0.1:9185"));
        }
    }
}
