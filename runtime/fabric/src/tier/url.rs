//! The URL of a tiered store: `tier+near=4GiB+tcp://host:port+file:///path?size=64GiB`.
//!
//! Its terms stand one behind the other with a `+` between. The far tier begins at the first `+` behind the near tier's
//! `://` that has a URL behind it, so a path may have a `+`.

use yonder_units::parse_bytes;

use crate::FabricError;
use crate::url::{SCHEMES, bad};

/// What stands before the tiers.
pub(crate) const PREFIX: &str = "tier+";
/// What may be typed, for messages.
const USAGE: &str =
    "type tier+tcp://host:port+file:///path?size=64GiB, or tier+near=4GiB+... for at most 4 GiB of the node";

/// What a URL says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Parts<'url> {
    /// Most bytes of the near tier, if there is a limit.
    pub(crate) limit: Option<u64>,
    pub(crate) near: &'url str,
    pub(crate) far: &'url str,
}

/// The parts of `url`.
pub(crate) fn parse(url: &str) -> Result<Parts<'_>, FabricError> {
    let refused = |problem: &str| bad(url, &format!("{problem}: {USAGE}"));
    let rest = url.strip_prefix(PREFIX).ok_or_else(|| refused("is not tiered"))?;
    let (limit, tiers) = match rest.strip_prefix("near=") {
        Some(rest) => {
            let (size, tiers) = rest.split_once('+').ok_or_else(|| refused("has no tiers"))?;
            let bytes = parse_bytes(size).map_err(|error| refused(&error.to_string()))?;
            (Some(bytes), tiers)
        }
        None => (None, rest),
    };
    let scheme_end = tiers.find("://").ok_or_else(|| refused("has no tiers"))?;
    let begins = |(at, _): &(usize, &str)| *at > scheme_end && begins_url(&tiers[at + 1..]);
    let (middle, _) = tiers.match_indices('+').find(begins).ok_or_else(|| refused("has one tier only"))?;
    let (near, far) = (&tiers[..middle], &tiers[middle + 1..]);
    if [near, far].iter().any(|tier| tier.contains(PREFIX)) {
        return Err(refused("has a tiered store for a tier"));
    }
    Ok(Parts { limit, near, far })
}

/// Whether `text` begins with a scheme, or with a layer and one.
fn begins_url(text: &str) -> bool {
    let schemes = text.split_once("://").map_or("", |(schemes, _)| schemes);
    schemes.split('+').all(|scheme| SCHEMES.contains(&scheme))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_found() {
        for (near, far) in [
            ("tcp://a:7", "file:///b"),
            ("emu://?latency=2us&gbps=10", "file:///b?size=1GiB"),
            ("shm:///a+b.sock", "file:///c+d+e"),
            ("lz4+udp://[::1]:7", "lz4+tcp://a:7"),
            ("tcp://a:7", "lz4+file:///b"),
        ] {
            for (limit, text) in [(None, ""), (Some(4 << 20), "near=4MiB+")] {
                let url = format!("tier+{text}{near}+{far}");
                assert_eq!(parse(&url).unwrap(), Parts { limit, near, far });
            }
        }
    }

    #[test]
    fn what_is_no_tiered_store_says_what_to_type() {
        for (url, problem) in [
            ("tier+", "has no tiers"),
            ("tier+near=1GiB", "has no tiers"),
            ("tier+near=many+tcp://a:7+file:///b", "many"),
            ("tier+tcp://a:7", "has one tier only"),
            ("tier+tcp://a:7+b", "has one tier only"),
            ("tier+tcp://a:7+http://b", "has one tier only"),
            ("tier+tier+tcp://a:7+file:///b+file:///c", "for a tier"),
            ("tier+tcp://a:7+lz4+tier+tcp://b:7+file:///c", "for a tier"),
        ] {
            let message = parse(url).unwrap_err().to_string();
            assert!(message.starts_with(&format!("'{url}' ")) && message.contains(problem), "{message}");
            assert!(message.contains("type tier+tcp://host:port+file:///") && !message.contains('\n'), "{message}");
        }
    }
}
