//! The flags of `yonder controller`, and how addresses of controllers and of etcd are typed.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use yonder::units::parse_bytes;
use yonder_controller::{EtcdAccess, EtcdCertificate, EtcdTls};

use super::open::is_of_this_machine;
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
    /// Say what is not well: nodes that are lost or silent, and address spaces with pages at fewer nodes than was asked
    /// for. Exits with 1 if there is anything
    Health(HealthArgs),
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
    /// Keep them in etcd instead: https://host:port with --etcd-ca, or http://host:port, or several of one etcd with
    /// commas between. Of several controllers on one etcd, one serves and the others wait to take over. Needs a build
    /// with the feature etcd
    #[arg(long, help_heading = SERVER, value_name = "URLS", value_delimiter = ',', value_parser = parse_etcd)]
    #[arg(conflicts_with = "state")]
    pub(crate) etcd: Vec<String>,
    /// Certificate of the authority that has signed etcd's own, in PEM
    #[arg(long, help_heading = SERVER, value_name = "FILE", requires = "etcd")]
    pub(crate) etcd_ca: Option<PathBuf>,
    /// Certificate to show to etcd, in PEM, if it asks for one (--client-cert-auth)
    #[arg(long, help_heading = SERVER, value_name = "FILE", requires_all = ["etcd_ca", "etcd_key"])]
    pub(crate) etcd_cert: Option<PathBuf>,
    /// Private key of --etcd-cert, in PEM; it must be of mode 0600
    #[arg(long, help_heading = SERVER, value_name = "FILE", requires = "etcd_cert")]
    pub(crate) etcd_key: Option<PathBuf>,
    /// What is placed and moved as one: a power of two, the same for all nodes and for ever
    #[arg(long, help_heading = SERVER, value_name = "SIZE", default_value = "1GiB", value_parser = parse_bytes)]
    pub(crate) region_size: u64,
    /// Nodes that a set has more than a page has places, at least: copies of pages are kept within few sets of nodes.
    /// Fewer lose less when many nodes fail at once, more rebuild faster
    #[arg(long, help_heading = SERVER, value_name = "N", default_value_t = 1)]
    pub(crate) set_spares: u32,
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
pub(crate) struct HealthArgs {
    #[command(flatten)]
    pub(crate) controller: AtArgs,
    /// One JSON object on standard output
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

impl ControllerAddresses {
    /// Each as `host:port`.
    pub(crate) fn each(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|address| address.0.as_str())
    }
}

impl fmt::Display for ControllerAddresses {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.each().collect::<Vec<_>>().join(","))
    }
}

/// What https is typed as.
const HTTPS: &str = "https://";
const HTTP: &str = "http://";

/// An endpoint of etcd.
fn parse_etcd(text: &str) -> Result<String, String> {
    let parts = [HTTPS, HTTP].into_iter().find_map(|scheme| Some((scheme, text.strip_prefix(scheme)?)));
    match parts.map(|(scheme, rest)| (scheme, rest.trim_end_matches('/').parse::<ControllerAddress>())) {
        Some((scheme, Ok(address))) => Ok(format!("{scheme}{}", address.0)),
        _ => Err(format!("'{text}' is not where etcd is: type https://HOST:PORT, or http://127.0.0.1:2379")),
    }
}

impl ServeArgs {
    /// Where etcd is, and how it is spoken with, if it is. In the clear with an etcd on this machine alone, unless the
    /// network may be used like this.
    pub(crate) fn etcd(&self) -> anyhow::Result<Option<EtcdAccess>> {
        let Some(first) = self.etcd.first() else { return Ok(None) };
        let endpoints = self.etcd.clone();
        let is_secure = first.starts_with(HTTPS);
        ensure!(
            endpoints.iter().all(|endpoint| endpoint.starts_with(HTTPS) == is_secure),
            "--etcd has endpoints of http and of https: type https:// in front of all"
        );
        let certificate = self.etcd_cert.clone().zip(self.etcd_key.clone());
        let certificate = certificate.map(|(certificate, key)| EtcdCertificate { certificate, key });
        let tls = match (is_secure, &self.etcd_ca) {
            (true, Some(ca)) => Some(EtcdTls { ca: ca.clone(), certificate }),
            (true, None) => bail!("{first} needs a certificate to know etcd by: type --etcd-ca FILE"),
            (false, Some(_)) => bail!("{first} is spoken with in the clear: type https:// for --etcd-ca to be used"),
            (false, None) => None,
        };
        let plain = endpoints.iter().filter_map(|endpoint| endpoint.strip_prefix(HTTP));
        for address in plain {
            ensure!(
                self.open.open || is_of_this_machine(address),
                "etcd at {address} would be spoken with in the clear over a network: type https://{address} with \
                 --etcd-ca FILE, --etcd-cert FILE and --etcd-key FILE, or --open if the network is yours alone"
            );
        }
        Ok(Some(EtcdAccess { endpoints, tls }))
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
    fn endpoints_of_etcd_say_how_they_are_spoken_with() {
        assert_eq!(parse_etcd("http://127.0.0.1:2379/").unwrap(), "http://127.0.0.1:2379");
        assert_eq!(parse_etcd("https://etcd:2379").unwrap(), "https://etcd:2379");
        for wrong in ["127.0.0.1:2379", "ftp://127.0.0.1:2379", "http://127.0.0.1", "https://", ""] {
            assert!(parse_etcd(wrong).unwrap_err().contains("type https://HOST:PORT"), "{wrong}");
        }
    }

    fn etcd_of(typed: &[&str]) -> anyhow::Result<Option<EtcdAccess>> {
        #[derive(Debug, clap::Parser)]
        struct Typed {
            #[command(flatten)]
            serve: ServeArgs,
        }
        let typed = ["yonder", "--listen", "127.0.0.1:7400"].into_iter().chain(typed.iter().copied());
        let typed = <Typed as clap::Parser>::try_parse_from(typed);
        typed.map_err(anyhow::Error::from).and_then(|typed| typed.serve.etcd())
    }

    #[test]
    fn an_etcd_of_another_machine_is_not_spoken_with_in_the_clear() {
        assert!(etcd_of(&[]).unwrap().is_none());
        assert!(etcd_of(&["--etcd", "http://127.0.0.1:2379"]).unwrap().unwrap().tls.is_none());
        let refused = etcd_of(&["--etcd", "http://10.0.0.2:2379"]).unwrap_err().to_string();
        assert!(
            refused.contains("https://10.0.0.2:2379 with --etcd-ca FILE") && refused.contains("--open"),
            "{refused}"
        );
        assert!(etcd_of(&["--etcd", "http://10.0.0.2:2379", "--open"]).unwrap().unwrap().tls.is_none());
        let mixed = etcd_of(&["--etcd", "https://10.0.0.2:2379,http://10.0.0.3:2379", "--etcd-ca", "ca"]);
        assert!(mixed.unwrap_err().to_string().contains("type https:// in front of all"));
        let refused = etcd_of(&["--etcd", "https://10.0.0.2:2379"]).unwrap_err().to_string();
        assert!(refused.ends_with("type --etcd-ca FILE"), "{refused}");
        let secure = ["--etcd", "https://10.0.0.2:2379", "--etcd-ca", "ca"];
        assert!(etcd_of(&secure).unwrap().unwrap().tls.unwrap().certificate.is_none());
        let whole = [&secure[..], &["--etcd-cert", "cert", "--etcd-key", "key"]].concat();
        assert!(etcd_of(&whole).unwrap().unwrap().tls.unwrap().certificate.is_some());
        // A certificate without its key, and what is for https at an etcd without it.
        assert!(etcd_of(&[&secure[..], &["--etcd-cert", "cert"]].concat()).is_err());
        let plain = etcd_of(&["--etcd", "http://127.0.0.1:2379", "--etcd-ca", "ca"]).unwrap_err().to_string();
        assert!(plain.contains("type https://"), "{plain}");
    }
}
