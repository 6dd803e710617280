//! [`Protection`]: at how many nodes pages are, as the URL of far memory says it, and what that takes.

use std::fmt;
use std::str::FromStr;

/// Nodes that there are at least: with one more than a set of two copies and its spare.
const NODES_MIN: usize = 4;

/// What stands behind the `?` of `yonder://controller?copies=2`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Protection {
    query: String,
    /// Places that have something of a page.
    places: usize,
}

impl Protection {
    /// How many nodes are started: one more than a page has places, and a few at least.
    #[must_use]
    pub fn nodes(&self) -> usize {
        (self.places + 1).max(NODES_MIN)
    }
}

impl FromStr for Protection {
    type Err = String;

    fn from_str(query: &str) -> Result<Self, String> {
        let places = query.split('&').find_map(|part| match part.split_once('=')? {
            ("copies", copies) => copies.parse().ok(),
            ("code", code) => {
                let (data, parity) = code.split_once('+')?;
                Some(data.parse::<usize>().ok()? + parity.parse::<usize>().ok()?)
            }
            // One node has a page, and the disk.
            ("disk", _) => Some(2),
            _ => None,
        });
        match places {
            Some(places @ 2..) => Ok(Self { query: query.to_owned(), places }),
            _ => Err(format!("'{query}' does not keep pages at several places: type copies=2, code=4+1 or disk=/tmp")),
        }
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_follow_from_the_protection() {
        let nodes = |query: &str| query.parse::<Protection>().map(|protection| protection.nodes());
        assert_eq!(["copies=2", "copies=3", "code=4+1", "code=6+2"].map(nodes), [Ok(4), Ok(4), Ok(6), Ok(9)]);
        assert_eq!(nodes("disk=/tmp"), Ok(4));
        assert_eq!(nodes("copies=2&lease=60s"), Ok(4));
        for bad in ["", "copies=1", "copies=two", "code=4", "2"] {
            assert!(nodes(bad).unwrap_err().contains("type copies=2, code=4+1 or disk=/tmp"), "{bad}");
        }
    }
}
