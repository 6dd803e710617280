//! Opening a fabric by its URL.
//!
//! [`open`] is the one place that knows the schemes; each fabric parses what follows its scheme. Every refusal is one
//! line that says what is wrong and what to type.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use yonder_identity::check_name;
use yonder_session::Protection;
use yonder_units::{Nanos, parse_duration};

use crate::lane::NodeSession;
use crate::space::LEASE;
use crate::stored::{Form as _, lz4::Lz4, seal::Seal};
use crate::{
    EmuFabric, Fabric, FabricError, FileFabric, Lz4Fabric, RemoteFabric, SealFabric, ShmFabric, SpreadFabric,
    TierFabric, tier,
};

/// What can be typed, for messages.
const KNOWN: &str = "type emu://?latency=2.5us&gbps=100, udp://host:port, tcp://host:port, shm:///path.sock, \
yonder://host:port of a controller or file:///path?size=64GiB, lz4+ and one of these to compress pages, seal+ and one of these to encrypt them, or tier+ and \
two of these with + between";
/// Shortest lease: it is renewed several times while it lasts, and each time may take a while.
const LEASE_MIN: Duration = Duration::from_secs(1);
/// What may stand before `://`, or before a `+` there.
pub(crate) const SCHEMES: [&str; 10] = ["lz4", "seal", "tier", "emu", "tcp", "udp", "shm", "file", "yonder", "rdma"];

/// Connects to the memory node that `url` names, or makes the embedded one. Blocks until it answers, at most seconds.
pub fn open(url: &str) -> Result<Arc<dyn Fabric>, FabricError> {
    if let Some(below) = url.strip_prefix(Lz4::PREFIX) {
        if below.starts_with(Lz4::PREFIX) {
            return Err(bad(url, "compresses what is compressed already: type lz4+ once, such as lz4+tcp://host:port"));
        }
        return Ok(Arc::new(Lz4Fabric::over(open(below)?)?));
    }
    if let Some(below) = url.strip_prefix(Seal::PREFIX) {
        if below.starts_with(Seal::PREFIX) {
            return Err(bad(url, "encrypts what is encrypted already: type seal+ once, such as seal+tcp://host:port"));
        }
        if below.starts_with(Lz4::PREFIX) {
            return Err(bad(url, "compresses what is encrypted, which is noise: type lz4+seal+ in front of the rest"));
        }
        return Ok(Arc::new(SealFabric::over(open(below)?)?));
    }
    if url.starts_with(tier::PREFIX) {
        let tier::Parts { limit, near, far } = tier::parse(url)?;
        return Ok(Arc::new(TierFabric::over(url, open(near)?, limit, open(far)?)?));
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(bad(url, &format!("has no scheme: {KNOWN}")));
    };
    match scheme {
        "yonder" => Ok(Arc::new(SpreadFabric::connect(url)?)),
        "emu" => Ok(Arc::new(EmuFabric::from_query(url, &query(url, rest)?)?)),
        "tcp" | "udp" => Ok(Arc::new(RemoteFabric::connect(url)?)),
        "shm" => Ok(Arc::new(ShmFabric::connect(url)?)),
        "file" => Ok(Arc::new(FileFabric::open(url)?)),
        "rdma" => Err(bad(url, &format!("is not available in this version: {KNOWN}"))),
        _ => Err(bad(url, &format!("has an unknown scheme: {KNOWN}"))),
    }
}

/// The URL without the forms that pages have in it: what they are kept in.
fn below_forms(url: &str) -> &str {
    let below = url.strip_prefix(Lz4::PREFIX).or_else(|| url.strip_prefix(Seal::PREFIX));
    below.map_or(url, below_forms)
}

/// Whether the fabric that `url` names keeps pages in a file, in one of its tiers at least.
#[must_use]
pub fn keeps_in_file(url: &str) -> bool {
    let url = below_forms(url);
    match tier::parse(url) {
        Ok(tier::Parts { near, far, .. }) => keeps_in_file(near) || keeps_in_file(far),
        Err(_) => url.starts_with("file://"),
    }
}

/// How long a page of the fabric that `url` names is tried for, unless somebody says otherwise. A page on a disk as
/// long as Linux takes it for normal that a task waits for one (`hung_task_timeout_secs`): disks that are shared or
/// collect garbage stand still for seconds, and file systems whose journal waits for them, as it does while much is
/// deleted on a disk that is told of it (`discard`), for half a minute and more.
#[must_use]
pub fn page_deadline(url: &str) -> Duration {
    const OF_DISKS: Duration = Duration::from_secs(120);
    const OF_NODES: Duration = Duration::from_secs(5);
    if keeps_in_file(url) || SpreadFabric::has_disk(node_url(url)) { OF_DISKS } else { OF_NODES }
}

/// What it may cost that a page of the fabric that `url` names is missed, in nanoseconds, as long as nothing is known
/// of it: about what such fabrics take, rather more than less, and of tiers the slower one.
#[must_use]
pub fn likely_page_cost(url: &str) -> Nanos {
    const OF_DISKS: Nanos = 200_000;
    const OF_NETWORKS: Nanos = 60_000;
    const OF_MEMORY: Nanos = 10_000;
    let url = below_forms(url);
    match (tier::parse(url), url.split_once("://")) {
        (Ok(tier::Parts { near, far, .. }), _) => likely_page_cost(near).max(likely_page_cost(far)),
        (_, Some(("file", _))) => OF_DISKS,
        (_, Some(("emu" | "shm", _))) => OF_MEMORY,
        _ => OF_NETWORKS,
    }
}

/// The URL of the fabric at the other end of the network, of which `url` may be a layer.
pub(crate) fn node_url(url: &str) -> &str {
    let url = below_forms(url);
    tier::parse(url).map_or(url, |parts| node_url(parts.near))
}

/// The `host:port` of a `tcp` or `udp` URL.
pub(crate) fn socket_address(url: &str) -> Result<&str, FabricError> {
    let (scheme, address) = url.split_once("://").unwrap_or_default();
    match address.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && !host.contains(['/', '?']) && port.parse::<u16>().is_ok() => {
            Ok(address)
        }
        _ => {
            let problem =
                format!("is not a host and a port: type {scheme}://host:port, such as {scheme}://127.0.0.1:7000");
            Err(bad(url, &problem))
        }
    }
}

/// The path of a `shm` URL.
pub(crate) fn shm_path(url: &str) -> Result<&Path, FabricError> {
    let path = url.strip_prefix("shm://").unwrap_or_default();
    if !path.starts_with('/') || path.contains('?') {
        return Err(bad(url, "is not an absolute path: type shm:///path.sock, the socket that yonder node listens on"));
    }
    Ok(Path::new(path))
}

/// What may be asked of a node behind its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodeSettings<'a> {
    /// How long the node keeps memory that it no longer hears of, if that is said.
    pub(crate) lease: Option<Duration>,
    /// What the node is called: no other is taken for it.
    pub(crate) name: Option<&'a str>,
    /// What is done to each message, if the node wants to know who asks.
    pub(crate) protection: Protection,
}

/// The URL of a node without its settings, and what they ask for.
pub(crate) fn settings_of(url: &str) -> Result<(&str, NodeSettings<'_>), FabricError> {
    let mut asked = NodeSettings { lease: None, name: None, protection: Protection::Encrypted };
    let Some((node, settings)) = url.split_once('?') else { return Ok((url, asked)) };
    for setting in settings.split('&') {
        match setting.split_once('=') {
            Some(("lease", text)) => {
                let lease = parse_duration(text).ok().filter(|lease| *lease >= LEASE_MIN);
                asked.lease = Some(lease.ok_or_else(|| bad(url, "has no lease of at least 1s: type ?lease=60s"))?);
            }
            Some(("name", _)) if node.starts_with("shm://") => {
                return Err(bad(url, "has a name, which nodes show over a network alone: type it without ?name="));
            }
            Some(("name", name)) => {
                check_name(name)
                    .map_err(|_| bad(url, "has no name of a node: type the one in its identity, ?name=n1"))?;
                asked.name = Some(name);
            }
            Some(("protection", "encrypted")) => asked.protection = Protection::Encrypted,
            Some(("protection", "authenticated")) => asked.protection = Protection::Authenticated,
            _ => {
                return Err(bad(
                    url,
                    "has an unknown setting: type ?lease=60s, ?name=NODE or ?protection=authenticated behind the \
                     address, several with & between, or nothing",
                ));
            }
        }
    }
    Ok((node, asked))
}

impl NodeSettings<'_> {
    /// How long the node keeps the memory of a fabric.
    pub(crate) fn lease_of_fabric(&self) -> Duration {
        self.lease.unwrap_or(LEASE)
    }

    /// A node of which nothing is known yet, used like this.
    pub(crate) fn session(&self) -> NodeSession {
        NodeSession::protecting(self.protection).called(self.name.map(str::to_owned))
    }
}

/// The pairs of `?key=value&key=value`.
pub(crate) fn query(url: &str, rest: &str) -> Result<Vec<(String, String)>, FabricError> {
    let usage = "is not a list of settings: type emu://?latency=2.5us&gbps=100";
    let pairs = match rest.strip_prefix('?') {
        Some(pairs) => pairs,
        None if rest.is_empty() => return Ok(Vec::new()),
        None => return Err(bad(url, usage)),
    };
    let pair = |text: &str| match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(bad(url, usage)),
    };
    pairs.split('&').filter(|text| !text.is_empty()).map(pair).collect()
}

pub(crate) fn bad(url: &str, problem: &str) -> FabricError {
    FabricError::BadUrl(format!("'{url}' {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_urls_say_what_to_type() {
        let bad = [
            ("", "has no scheme"),
            ("127.0.0.1:7000", "has no scheme"),
            ("http://a:1", "unknown scheme"),
            ("udp://host", "not a host and a port"),
            ("rdma://a:1", "not available in this version"),
            ("file://a", "not an absolute path"),
            ("file:///a?size", "not a list of settings"),
            ("file:///tmp/none?size=many", "many"),
            ("file:///tmp/none?length=1GiB", "unknown setting 'length'"),
            ("file:///proc/none", "cannot be opened"),
            ("tcp://", "not a host and a port"),
            ("tcp://:7000", "not a host and a port"),
            ("tcp://host", "not a host and a port"),
            ("tcp://host:70000", "not a host and a port"),
            ("tcp://host/path:7", "not a host and a port"),
            ("shm://node.sock", "not an absolute path"),
            ("shm:///node.sock?lease=1ms", "at least 1s"),
            ("tcp://host:7000?latency=1us", "unknown setting"),
            ("tcp://host:7000?protection=some", "unknown setting"),
            ("shm:///node.sock?name=n1", "over a network alone"),
            ("tcp://host:7000?name=", "no name of a node"),
            ("tcp://host:7000?name=N.1&lease=60s", "no name of a node"),
            ("emu://latency", "not a list of settings"),
            ("emu://?latency", "not a list of settings"),
            ("lz4+lz4+emu://", "compressed already"),
            ("seal+seal+emu://", "encrypted already"),
            ("seal+lz4+emu://", "type lz4+seal+"),
            ("tier+emu://", "has one tier only"),
        ];
        for (url, problem) in bad {
            let message = match open(url) {
                Err(error @ FabricError::BadUrl(_)) => error.to_string(),
                other => panic!("{url}: {:?}", other.err()),
            };
            assert!(message.starts_with(&format!("'{url}' ")), "{message}");
            assert!(message.contains(problem) && message.contains("type ") && !message.contains('\n'), "{message}");
        }
    }

    #[test]
    fn what_is_wrong_below_a_layer_is_said_of_what_is_below() {
        for url in ["lz4+tcp://host", "tier+tcp://host+emu://", "tier+emu://+lz4+tcp://host"] {
            let message = open(url).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(message.starts_with("'tcp://host' is not a host and a port"), "{message}");
        }
    }

    #[test]
    fn layers_say_what_is_at_their_ends() {
        for (url, node, is_file) in [
            ("file:///a?size=1GiB", "file:///a?size=1GiB", true),
            ("lz4+tcp://a:7", "tcp://a:7", false),
            ("lz4+file:///a", "file:///a", true),
            ("lz4+seal+file:///a", "file:///a", true),
            ("seal+tier+seal+tcp://a:7+lz4+seal+file:///a", "tcp://a:7", true),
            ("tier+tcp://a:7+file:///a", "tcp://a:7", true),
            ("lz4+tier+near=1GiB+lz4+udp://a:7+lz4+file:///a", "udp://a:7", true),
            ("tier+tcp://a:7+emu://", "tcp://a:7", false),
        ] {
            assert_eq!((node_url(url), keeps_in_file(url)), (node, is_file), "{url}");
            assert_eq!(page_deadline(url).as_secs(), if is_file { 120 } else { 5 }, "{url}");
        }
    }

    #[test]
    fn a_page_costs_what_the_slowest_layer_does() {
        let urls =
            ["emu://?latency=1us", "shm:///a", "tcp://a:7", "lz4+udp://a:7", "tier+emu://+tcp://a:7", "file:///a"];
        let costs = urls.map(|url| likely_page_cost(url) / 1_000);
        assert_eq!(costs, [10, 10, 60, 60, 60, 200]);
        assert_eq!(likely_page_cost("lz4+tier+near=1GiB+shm:///a+lz4+file:///a"), 200_000);
    }

    #[test]
    fn the_embedded_fabric_opens() {
        for url in [
            "emu://",
            "emu://?",
            "emu://?latency=2.5us&gbps=100",
            "lz4+emu://",
            "seal+emu://",
            "lz4+seal+emu://",
            "tier+seal+emu://?size=1GiB+lz4+seal+emu://",
            "tier+near=1GiB+emu://?size=1GiB+lz4+emu://",
            "lz4+tier+emu://+emu://?latency=20us",
        ] {
            assert_eq!(open(url).unwrap().url(), url);
        }
    }

    #[test]
    fn a_node_that_is_not_there_is_unreachable() {
        let folder = tempfile::tempdir().unwrap();
        let free_port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for url in [
            format!("tcp://{free_port}"),
            format!("udp://{free_port}"),
            format!("shm://{}/none.sock", folder.path().display()),
        ] {
            match open(&url).err() {
                Some(FabricError::Unreachable { url: named, .. }) => assert_eq!(named, url),
                other => panic!("{url}: {other:?}"),
            }
        }
    }
}
