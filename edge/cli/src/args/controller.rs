//! The flags of `yonder controller`, and how addresses of controllers and of etcd are typed.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use yonder::units::parse_bytes;

use super::{CredentialArgs, OpenArgs, SERVER, UserArgs, positive_duration};

/// What `yonder controller --help` ends with.
const CONTROLLER_AFTER_HELP: &str = "\
One controller and two nodes on this machine, and a node that is emptied before it ends:
  yonder controller --listen tcp://127.0.0.1:7400
  yonder node --listen tcp://127.0.0.1:7001 --memory 1GiB --controller 127.0.0.1:7400
  yonder node --listen tcp://127.0.0.1:7002 --memory 1GiB --controller 127.0.0.1:7400
  yonder controller nodes --at 127.0.0.1:7400
  yonder controller spaces --at 127.0.0.1:7400
  yonder controller tenants --at 127.0.0.1:7400
  yonder controller drain tcp://127.0.0.1:7001 --at 127.0.0.1:7400

On a network with strangers give --identity or --key, here and to nodes; what asks a controller takes it from the
environment too, from YONDER_IDENTITY or YONDER_KEY. yonder cluster makes them.";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = CONTROLLER_AFTER_HELP)]
pub(crate) struct ControllerArgs {
    #[command(subcommand)]
    pub(crate) what: Option<ControllerWhat>,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
}

/// What one asks of a controller that runs.
#[derive(Debug, Subcommand)]
pub(crate) enum ControllerWhat {
    /// Show the memory nodes: their memory, regions and whether they serve
    Nodes(NodesArgs),
    /// Show the address spaces: their numbers, regions and memory, and the nodes that they are on
    Spaces(SpacesArgs),
    /// Show what each tenant has and does on all nodes; without names, each host: those with most memory first
    Tenants(TenantsArgs),
    /// Move everything off a node, and wait until nothing is left
    Drain(DrainArgs),
    /// Let a node that was drained, or is being drained, have regions again
    Undrain(NodeNameArgs),
}

/// A controller that is to run.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where nodes and clients connect, such as tcp://127.0.0.1:7400; port 0 takes a free one
    #[arg(long, help_heading = SERVER, value_name = "URL", required = true)]
    pub(crate) listen: Option<ControllerAddress>,
    /// File that has the address spaces and where they are; it is made if it is not there
    #[arg(long, help_heading = SERVER, value_name = "PATH", default_value = "yonder-controller.state")]
    pub(crate) state: PathBuf,
    /// Keep them in etcd instead: http://host:port, or several of one etcd with commas between. Of several controllers
    /// on one etcd, one serves and the others wait to take over. Needs a build with the feature etcd
    #[arg(long, help_heading = SERVER, value_name = "URLS", value_delimiter = ',', value_parser = parse_etcd)]
    #[arg(conflicts_with = "state")]
    pub(crate) etcd: Vec<String>,
    /// What is placed and moved as one: a power of two, the same for all nodes and for ever
    #[arg(long, help_heading = SERVER, value_name = "SIZE", default_value = "1GiB", value_parser = parse_bytes)]
    pub(crate) region_size: u64,
    /// How long a node may be silent before its memory is taken for lost
    #[arg(long, help_heading = SERVER, value_name = "TIME", default_value = "3s", value_parser = positive_duration)]
    pub(crate) lease: Duration,
    /// Serve Prometheus metrics here, such as 127.0.0.1:9187; not served if not given
    #[arg(long, help_heading = SERVER, value_name = "ADDR")]
    pub(crate) metrics: Option<String>,
    #[command(flatten)]
    pub(crate) credential: CredentialArgs,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    #[command(flatten)]
    pub(crate) user: UserArgs,
}

/// A controller that runs.
#[derive(Debug, Args)]
pub(crate) struct AtArgs {
    /// Where the controller listens, such as 127.0.0.1:7400; or several of which one leads, with commas between
    #[arg(long, value_name = "ADDRS")]
    pub(crate) at: ControllerAddresses,
    #[command(flatten)]
    pub(crate) credential: CredentialArgs,
}

#[derive(Debug, Args)]
pub(crate) struct NodesArgs {
    #[command(flatten)]
    pub(crate) controller: AtArgs,
    /// One JSON object for each node on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SpacesArgs {
    #[command(flatten)]
    pub(crate) controller: AtArgs,
    /// One JSON object for each address space on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TenantsArgs {
    #[command(flatten)]
    pub(crate) controller: AtArgs,
    /// One JSON object for each tenant on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NodeNameArgs {
    /// The node: its number, its name or one of its URLs, as yonder controller nodes shows them
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    #[command(flatten)]
    pub(crate) controller: AtArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    pub(crate) named: NodeNameArgs,
}

/// One controller: `host:port`, typed with or without `tcp://` before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ControllerAddress(String);

impl ControllerAddress {
    /// The first address that the name has.
    pub(crate) fn resolve(&self) -> anyhow::Result<SocketAddr> {
        let wrong = || format!("'{}' has no address: type a host and a port, such as 127.0.0.1:7400", self.0);
        self.0.to_socket_addrs().with_context(wrong)?.next().with_context(wrong)
    }
}

impl std::str::FromStr for ControllerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = text.strip_prefix("tcp://").unwrap_or(text);
        match plain.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok() => {
                Ok(Self(plain.to_owned()))
            }
            _ => Err(format!("'{text}' is not where a controller is: type HOST:PORT, such as 127.0.0.1:7400")),
        }
    }
}

/// Controllers of which one leads: `host:port,host:port`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ControllerAddresses(Vec<ControllerAddress>);

impl std::str::FromStr for ControllerAddresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').map(|address| address.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for ControllerAddresses {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<&str> = self.0.iter().map(|address| address.0.as_str()).collect();
        formatter.write_str(&addresses.join(","))
    }
}

/// An endpoint of etcd. There is no encryption, so https would promise what is not done.
fn parse_etcd(text: &str) -> Result<String, String> {
    let address = text.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
    match address.map(str::parse::<ControllerAddress>) {
        Some(Ok(address)) => Ok(format!("http://{}", address.0)),
        _ => Err(format!("'{text}' is not where etcd is: type http://HOST:PORT, such as http://127.0.0.1:2379")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_typed_with_and_without_a_scheme() {
        let both = ["tcp://127.0.0.1:7400", "127.0.0.1:7400"].map(|text| text.parse::<ControllerAddress>().unwrap());
        assert_eq!(both[0], both[1]);
        assert_eq!(both[0].resolve().unwrap(), "127.0.0.1:7400".parse().unwrap());
        let several: ControllerAddresses = "tcp://a:1, [::1]:2".parse().unwrap();
        assert_eq!(several.to_string(), "a:1,[::1]:2");
        for wrong in ["", "here", ":7400", "a:port", "udp://a:1", "a:1,", "tcp://a:99999"] {
            let said = wrong.parse::<ControllerAddresses>().unwrap_err();
            assert!(said.contains("type HOST:PORT"), "{said}");
        }
    }

    #[test]
    fn endpoints_of_etcd_are_plain_http() {
        assert_eq!(parse_etcd("http://127.0.0.1:2379/").unwrap(), "http://127.0.0.1:2379");
        for wrong in ["127.0.0.1:2379", "https://127.0.0.1:2379", "http://127.0.0.1", ""] {
            assert!(parse_etcd(wrong).unwrap_err().contains("type http://HOST:PORT"), "{wrong}");
        }
    }
}
