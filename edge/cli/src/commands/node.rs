//! `yonder node`: a memory node, until it is told to end.
//!
//! It binds its addresses first; then it becomes `--user`'s and enters its sandbox; then it makes threads and serves.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};

use anyhow::Context as _;
use yonder::units::format_bytes;
use yonder_controller::LinkCondition;
use yonder_identity::{Credential, Role};
use yonder_metrics::{Extra, ExtraKind, Sample, Tenant};
use yonder_node::{BoundNode, ControllerConfig, Listen, Node, NodeConfig, NodeStats, Polling, TenantUse};
use yonder_process::{Entered, User};

use super::protection;
use crate::args::{NodeArgs, SandboxArgs, as_user};

pub(crate) fn run(args: &NodeArgs) -> anyhow::Result<ExitCode> {
    if !args.credential.is_typed() {
        let addresses = args.listen.0.iter().filter_map(Listen::socket_address);
        let metrics = args.metrics.as_deref();
        args.open.check_or(addresses.chain(metrics), ", or --identity FILE or --key FILE")?;
    }
    let user = args.sandbox.user.find()?;
    let credential = as_user(user.as_ref(), || args.credential.of_server(Role::Node))?;
    let bound = Node::bind(config(args, credential.clone()))?;
    let bound_metrics = args.metrics.as_deref().map(yonder_metrics::bind).transpose()?;
    // Threads that are made from here on have no more rights than this one.
    confine(&args.sandbox, user.as_ref(), &bound)?;
    let (stop, stopped) = mpsc::channel();
    ctrlc::set_handler(move || {
        let _ = stop.send(());
    })?;
    let node = Arc::new(bound.serve()?);
    let addresses: Vec<String> = node.addresses().iter().map(ToString::to_string).collect();
    let joined = args.controller.as_ref().map_or_else(String::new, |at| format!(", for the controller at {at}"));
    let (memory, addresses) = (format_bytes(args.memory), addresses.join(", "));
    eprintln!("yonder node: lending {memory} on {addresses}{joined}; Ctrl-C ends it");
    eprintln!("yonder node: {}", protection::of_node(&args.credential, node.addresses()));
    let for_metrics = Arc::clone(&node);
    let sample = move || {
        let mut extra = metrics(&for_metrics.stats());
        extra.extend(for_metrics.controller().map(|link| link_metric(&link)));
        extra.extend(Tenant::node_metrics(for_metrics.tenants().into_iter().map(tenant).collect()));
        Sample { extra, ..Sample::default() }
    };
    let server = bound_metrics.map(|bound| bound.serve(Arc::new(sample), credential)).transpose()?;
    if let Some(server) = &server {
        eprintln!("yonder node: metrics on {}", server.address());
    }
    stopped.recv()?;
    let stats = node.stats();
    if args.controller.is_some() && stats.allocated_bytes > 0 {
        let gone = format_bytes(stats.allocated_bytes);
        eprintln!(
            "yonder node: {gone} that were in use are gone; `yonder controller drain` empties a node before it ends"
        );
    }
    eprintln!("yonder node: {} reads and {} writes served", stats.reads, stats.writes);
    Ok(ExitCode::SUCCESS)
}

/// Gives up what the node needed to bind its addresses and does not need to serve.
fn confine(args: &SandboxArgs, user: Option<&User>, bound: &BoundNode) -> anyhow::Result<()> {
    if let Some(user) = user {
        bound.give_sockets(user).context("a socket cannot be given to --user")?;
        user.become_for_good()?;
    }
    if args.no_sandbox {
        return Ok(());
    }
    let Entered { filter, landlock } = bound.sandbox([]).enter();
    for (what, entered) in [("a filter of system calls (seccomp)", filter), ("rules for files (landlock)", landlock)] {
        if let Err(cause) = entered {
            eprintln!("yonder node: serves without {what}, which this kernel does not let it have: {cause}");
        }
    }
    Ok(())
}

fn config(args: &NodeArgs, credential: Option<Arc<Credential>>) -> NodeConfig {
    NodeConfig {
        page_bytes: args.page_size,
        data_threads: args.data_threads.and_then(NonZeroUsize::new),
        data_cpus: args.data_cpus.clone(),
        controller: args.controller.as_ref().map(|addresses| ControllerConfig {
            domains: args.domain.clone().unwrap_or_default(),
            ..ControllerConfig::new(addresses.to_string(), args.region_size)
        }),
        polling: if args.busy_poll { Polling::Busy } else { Polling::Adaptive(args.spin) },
        credential,
        tenant_limits: args.tenant_limits.unwrap_or_default(),
        ..NodeConfig::new(args.listen.0.clone(), args.memory)
    }
}

fn link_metric(link: &LinkCondition) -> Extra {
    let help = "Whether the node is registered at its controller: 1 if it is.";
    let value = match link {
        LinkCondition::Connected => 1,
        LinkCondition::Reconnecting(_) => 0,
    };
    Extra::new("yonder_node_controller_connected", ExtraKind::Gauge, value, help)
}

/// What is shown of a tenant.
fn tenant((name, usage): (String, TenantUse)) -> Tenant {
    Tenant {
        name,
        requests: usage.requests,
        bytes: usage.bytes,
        shed: usage.shed,
        work_ns: usage.work_ns,
        spaces: usage.spaces.into(),
        connections: usage.connections.into(),
        reserved_bytes: usage.reserved_bytes,
        memory_bytes: usage.memory_bytes,
    }
}

fn metrics(stats: &NodeStats) -> Vec<Extra> {
    let metric = Extra::new;
    vec![
        metric("yonder_node_reads_total", ExtraKind::Counter, stats.reads, "Reads answered."),
        metric("yonder_node_writes_total", ExtraKind::Counter, stats.writes, "Writes applied."),
        metric("yonder_node_atomics_total", ExtraKind::Counter, stats.atomics, "Atomic operations applied."),
        metric("yonder_node_slow_requests_total", ExtraKind::Counter, stats.slow_requests, "Allocations and the like."),
        metric("yonder_node_calls_total", ExtraKind::Counter, stats.calls, "Calls of offloads answered."),
        metric("yonder_node_bad_datagrams_total", ExtraKind::Counter, stats.bad_datagrams, "Datagrams dropped."),
        metric("yonder_node_spaces", ExtraKind::Gauge, stats.spaces, "Address spaces now."),
        metric("yonder_node_own_bytes", ExtraKind::Gauge, stats.own_bytes, "Bytes of the node's own tables."),
        metric("yonder_node_read_bytes_total", ExtraKind::Counter, stats.read_bytes, "Bytes sent."),
        metric("yonder_node_written_bytes_total", ExtraKind::Counter, stats.written_bytes, "Bytes received."),
        metric("yonder_node_errors_total", ExtraKind::Counter, stats.errors, "Requests refused."),
        metric(
            "yonder_node_refused_capabilities_total",
            ExtraKind::Counter,
            stats.refused_capabilities,
            "Requests refused for want of a right.",
        ),
        metric(
            "yonder_node_refused_sessions_total",
            ExtraKind::Counter,
            stats.refused_sessions,
            "Sessions asked for and not made.",
        ),
        metric("yonder_node_connections", ExtraKind::Gauge, stats.connections, "Connections open now."),
        metric("yonder_node_allocated_bytes", ExtraKind::Gauge, stats.allocated_bytes, "Bytes lent now."),
        metric("yonder_node_backed_bytes", ExtraKind::Gauge, stats.backed_bytes, "Bytes of machine memory in use now."),
        metric("yonder_node_limit_bytes", ExtraKind::Gauge, stats.limit_bytes, "Bytes that may be lent."),
    ]
}
