//! The flags of `yonder cluster`.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use yonder_identity::{DAYS_DEFAULT, DAYS_MAX, Role};
use yonder_node::TenantLimits;

use super::RollArgs;

/// What `yonder cluster --help` ends with.
const AFTER_HELP: &str = "\
An authority, a controller, a node, a program, and a person who may empty nodes:
  yonder cluster init
  yonder cluster add controller c1
  yonder cluster add node n1
  yonder cluster add tenant app
  yonder cluster add operator me
Each add writes an identity, such as n1.pem, and says where it belongs and what to type there. A small cluster can have
one shared key instead:
  yonder cluster key cluster.key";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    pub(crate) what: ClusterWhat,
}

/// What is done with a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterWhat {
    /// Make the authority of a cluster, by which its members know each other
    Init(ClusterFolderArgs),
    /// Make the identity of a node, a tenant (a program), an operator (a person) or a controller
    Add(ClusterAddArgs),
    /// Show the members, and how long their identities are good
    List(ClusterListArgs),
    /// Revoke all identities of a member
    Revoke(ClusterRevokeArgs),
    /// Make a shared key: all who have it may do everything
    Key(ClusterKeyArgs),
    /// Restart all nodes and controllers that run, one after the other: each node is drained first, so that programs
    /// notice nothing. Safe to type again
    Roll(RollArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ClusterFolderArgs {
    /// Folder of the authority [default: $XDG_CONFIG_HOME/yonder/cluster]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ClusterAddArgs {
    /// What the member may do
    #[arg(value_name = "ROLE", value_parser = role())]
    pub(crate) role: Role,
    /// Its name, which no other member has: lowercase letters, digits and hyphens
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// How long the identity is good
    #[arg(long, value_name = "N", default_value_t = DAYS_DEFAULT)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(DAYS_MAX)))]
    pub(crate) days: u32,
    /// How much a tenant may have and do on each node, such as
    /// spaces=16,reserved=4GiB,memory=2GiB,requests=200k,bytes=1GiB,work=100ms,connections=8 [default: what the node
    /// says]
    #[arg(long, value_name = "LIST")]
    pub(crate) limits: Option<TenantLimits>,
    /// File that the identity is written to [default: NAME.pem]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// A new identity for a member that has one; the old one is good until its end
    #[arg(long)]
    pub(crate) renew: bool,
    #[command(flatten)]
    pub(crate) authority: ClusterFolderArgs,
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

fn role() -> impl TypedValueParser<Value = Role> {
    let help = |role| match role {
        Role::Node => "A memory node: it registers at a controller, and serves",
        Role::Tenant => "A program: it has address spaces of its own",
        Role::Operator => "A person: may empty nodes and see all address spaces",
        Role::Controller => "A controller: it places regions on nodes",
    };
    let names = Role::ALL.map(|role| PossibleValue::new(role.as_str()).help(help(role)));
    PossibleValuesParser::new(names).try_map(|typed| typed.parse())
}

#[derive(Debug, Args)]
pub(crate) struct ClusterListArgs {
    #[command(flatten)]
    pub(crate) authority: ClusterFolderArgs,
    /// One JSON object for each identity on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ClusterRevokeArgs {
    /// The member
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) authority: ClusterFolderArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ClusterKeyArgs {
    /// File that the key is written to
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}
