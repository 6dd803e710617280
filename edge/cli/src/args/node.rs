//! The flags of `yonder node`.

use std::time::Duration;

use clap::Args;
use yonder::units::{parse_bytes, parse_duration};
use yonder_node::{CpuList, Listen, ListenError, TenantLimits, parse_listen};
use yonder_placement::Domains;

use super::{ControllerAddresses, CredentialArgs, OpenArgs, SandboxArgs, positive_count};

/// The addresses of a node, from one flag.
#[derive(Clone, Debug)]
pub(crate) struct Addresses(pub(crate) Vec<Listen>);

fn parse_addresses(text: &str) -> Result<Addresses, ListenError> {
    parse_listen(text).map(Addresses)
}

#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// Where to listen: udp://host:port or tcp://host:port for other machines, shm:///path.sock for this one, or
    /// several with commas between
    #[arg(long, value_name = "URLS", value_parser = parse_addresses)]
    pub(crate) listen: Addresses,
    /// Memory to lend, such as 4GiB; it is taken from the system as it is written to
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// Size of the node's pages, a power of two [default: 4MiB, less for a small memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) page_size: Option<u64>,
    /// Threads that serve datagrams, and as many for streams [default: half of the CPUs, at most 8]
    #[arg(long, value_name = "N", value_parser = positive_count)]
    pub(crate) data_threads: Option<usize>,
    /// CPUs for these threads alone, such as 0-3,8: all others of the node use the others, so that allocations,
    /// offloads and sessions slow no reads and writes down [default: the kernel decides]
    #[arg(long, value_name = "LIST")]
    pub(crate) data_cpus: Option<CpuList>,
    /// How long an idle thread asks for more before it sleeps, at most; less if that has not helped lately
    #[arg(long, value_name = "TIME", default_value = "50us", value_parser = parse_duration)]
    pub(crate) spin: Duration,
    /// Threads never sleep: the shortest latency, for a CPU each
    #[arg(long, conflicts_with = "spin")]
    pub(crate) busy_poll: bool,
    /// Serve a controller, which places what it likes here: its address, such as 127.0.0.1:7400, or several of which
    /// one leads, with commas between
    #[arg(long, value_name = "ADDRS")]
    pub(crate) controller: Option<ControllerAddresses>,
    /// What a controller places and moves as one: the same as was typed for the controller
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_bytes, requires = "controller")]
    pub(crate) region_size: u64,
    /// What fails together with this node, the narrowest first, such as rack=a or rack=a,row=3: copies go to nodes that
    /// do not fail together [default: it fails alone]
    #[arg(long, value_name = "LEVEL=NAME", requires = "controller")]
    pub(crate) domain: Option<Domains>,
    /// How much each tenant may have and do whose identity does not say it (without identities: each host), such as
    /// spaces=16,reserved=4GiB,memory=2GiB,requests=200k,bytes=1GiB,work=100ms,connections=8 [default: shares of what
    /// there is]
    #[arg(long, value_name = "LIST")]
    pub(crate) tenant_limits: Option<TenantLimits>,
    /// Serve Prometheus metrics here, such as 127.0.0.1:9186; not served if not given
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<String>,
    #[command(flatten)]
    pub(crate) credential: CredentialArgs,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
}
