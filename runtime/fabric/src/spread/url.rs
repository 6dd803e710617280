//! What stands in a `yonder://` URL.

use std::path::Path;
use std::time::Duration;

use yonder_protect::{Protection as Places, SLOTS_MAX};
use yonder_session::Protection;
use yonder_units::parse_duration;

use crate::FabricError;
use crate::space::LEASE;
use crate::url::{bad, query};

/// What the scheme begins with.
pub(crate) const SCHEME: &str = "yonder://";
/// Shortest lease of an address space at a controller.
const LEASE_MIN: Duration = Duration::from_secs(5);
/// Most nodes that a page is at, as a whole.
const COPIES_MAX: u8 = 3;
/// What can be typed.
const USAGE: &str = "type yonder://host:port, the address of a controller, or several with commas between, perhaps \
                     with ?copies=2, ?code=4+1, ?disk=/var/tmp, ?lease=60s or ?protection=authenticated behind, \
                     several with & between";

/// What is asked of a controller and its nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Settings<'a> {
    /// `host:port`, several with commas between.
    pub(super) controllers: &'a str,
    /// How long the memory is kept after the last sign of life.
    pub(super) lease: Duration,
    /// At how many nodes each page is, or parts and sums of it are; the disk counts as one.
    pub(super) places: Places,
    /// A folder on a local disk where each page is too.
    pub(super) disk: Option<String>,
    /// What is done to each message, if nodes want to know who asks.
    pub(super) protection: Protection,
}

/// Reads a `yonder://` URL.
pub(super) fn parse(url: &str) -> Result<Settings<'_>, FabricError> {
    let rest = url.strip_prefix(SCHEME).unwrap_or_default();
    let at = rest.find('?').unwrap_or(rest.len());
    let (controllers, settings) = rest.split_at(at);
    let is_address = |address: &str| {
        address
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok())
    };
    if !controllers.split(',').all(is_address) {
        return Err(bad(url, &format!("is not the address of a controller: {USAGE}")));
    }
    let places = Places::copies(1);
    let mut asked = Settings { controllers, lease: LEASE, places, disk: None, protection: Protection::Encrypted };
    let mut is_protected = false;
    for (key, value) in query(url, settings)? {
        match (key.as_str(), value.as_str()) {
            ("lease", text) => {
                let lease = parse_duration(text).ok().filter(|lease| *lease >= LEASE_MIN);
                asked.lease = lease.ok_or_else(|| bad(url, "has no lease of at least 5s: type ?lease=60s"))?;
            }
            ("copies" | "code" | "disk", _) if std::mem::replace(&mut is_protected, true) => {
                return Err(bad(
                    url,
                    "says twice how pages are protected: type ?copies=2, ?code=4+1 or ?disk=/var/tmp",
                ));
            }
            ("copies", text) => {
                let copies = number(text).filter(|copies| (1..=COPIES_MAX).contains(copies));
                let copies = copies.ok_or_else(|| bad(url, "has no copies from 1 to 3: type ?copies=2"))?;
                asked.places = Places::copies(copies);
            }
            ("code", text) => {
                let cause = "has no code of at least 2 parts and 1 sum, and 8 of both at most: type ?code=4+1";
                asked.places = code(text).ok_or_else(|| bad(url, cause))?;
            }
            ("disk", folder) => {
                if !Path::new(folder).is_dir() {
                    return Err(bad(url, "names no folder on a disk: type ?disk=/var/tmp"));
                }
                (asked.places, asked.disk) = (Places::copies(2), Some(folder.to_owned()));
            }
            ("protection", "encrypted") => asked.protection = Protection::Encrypted,
            ("protection", "authenticated") => asked.protection = Protection::Authenticated,
            _ => return Err(bad(url, &format!("has an unknown setting '{key}={value}': {USAGE}"))),
        }
    }
    Ok(asked)
}

/// Reads `parts+sums`.
fn code(text: &str) -> Option<Places> {
    let (parts, sums) = text.split_once('+')?;
    let (parts, sums) = (number(parts)?, number(sums)?);
    let is_good = parts >= 2 && sums >= 1 && usize::from(parts.checked_add(sums)?) <= SLOTS_MAX;
    is_good.then(|| Places::code(parts, sums))
}

/// A number without a sign.
fn number(text: &str) -> Option<u8> {
    text.parse().ok().filter(|_| !text.starts_with('+'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_or_say_what_to_type() {
        let read = parse("yonder://a:1,b:2?lease=10s&protection=authenticated&copies=3").unwrap();
        assert_eq!((read.controllers, read.lease.as_secs(), read.places), ("a:1,b:2", 10, Places::copies(3)));
        assert_eq!(read.protection, Protection::Authenticated);
        assert_eq!(parse("yonder://[::1]:7").unwrap().controllers, "[::1]:7");
        assert_eq!(parse("yonder://a:1?code=4+1").unwrap().places, Places::code(4, 1));
        assert_eq!(parse("yonder://a:1?code=6+2").unwrap().places, Places::code(6, 2));
        let read = parse("yonder://a:1?lease=9s&disk=/tmp").unwrap();
        assert_eq!((read.places, read.disk.as_deref()), (Places::copies(2), Some("/tmp")));
        let addresses = ["", "a", "a:1,", ",", "a:1/b", ":1", "a:70000"].map(str::to_owned);
        let settings = [
            "disk",
            "disk=/none",
            "disk=/tmp&copies=2",
            "late=1MiB",
            "disk=/tmp&late=1",
            "lease=1s",
            "copies",
            "copies=4",
            "copies=+2",
            "some=1",
            "copies=2&code=4+1",
            "code=4+1&code=4+1",
        ];
        let codes =
            ["4", "4+", "1+1", "4+0", "7+2", "255+1", "a+b", "4+1+1", "4++1"].map(|code| format!("a:1?code={code}"));
        let settings = settings.map(|setting| format!("a:1?{setting}"));
        for wrong in addresses.iter().chain(&settings).chain(&codes) {
            let message = parse(&format!("yonder://{wrong}")).unwrap_err().to_string();
            assert!(message.contains("type ") && !message.contains('\n'), "{message}");
        }
    }
}
