//! `yonder kv`: a memcached-compatible server whose items live in far memory.
//!
//! It binds its addresses first; then it becomes `--user`'s; then it opens far memory, makes threads and serves.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::{io, thread};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use yonder::sched::{SchedConfig, SchedStats, serve};
use yonder::units::format_bytes;
use yonder::{FarMemory, Region};
use yonder_identity::Credential;
use yonder_kv::{BoundKv, KvAccess, KvConfig, KvFrontend, KvHandler, Listen, Shutdown, ShutdownCommand, runtime_stats};
use yonder_metrics::{BoundMetrics, Extra, ExtraKind, MetricsServer, Requests, Sample};

use crate::args::{KvArgs, as_user, become_user};
use crate::commands::ctl::serve_settings;
use crate::commands::metrics::{check_addresses, fabric_metrics, how_to_watch};
use crate::commands::protection;
use crate::setup::Setup;

pub(crate) fn run(args: &KvArgs) -> anyhow::Result<ExitCode> {
    let addresses = [args.listen.tcp(), args.udp].into_iter().flatten();
    check_addresses(
        addresses.filter(|_| !args.access.keeps_strangers_out()),
        args.metrics.as_deref(),
        args.open,
        &args.paging.credential,
    )?;
    let user = args.user.find()?;
    let credential = as_user(user.as_ref(), || args.paging.credential.show_and_serve())?;
    let Setup { paging, sched } = Setup::of_server(&args.paging, args.busy_poll)?;
    let config = KvConfig {
        udp: args.udp,
        open: args.open.open,
        connections_max: args.connections,
        idle_timeout: args.idle_timeout,
        buffer_bytes_max: args.buffers.map(|bytes| bytes as usize),
        value_bytes_max: args.value_max as usize,
        threads: sched.workers,
        access_times: args.access_times,
        shutdown: if args.shutdown_command { ShutdownCommand::Obeyed } else { ShutdownCommand::Refused },
        auth_file: args.access.auth_file.clone(),
        tls: args.access.tls(),
        ..KvConfig::new(args.listen.clone())
    };
    config.check()?;
    // As its user, who reads them again later.
    let access = as_user(user.as_ref(), || Ok(KvAccess::open(&config)?))?;
    // A socket in a folder is the user's, who removes it at the end; ports may take root.
    let owner = user.as_ref().filter(|_| args.listen.tcp().is_none());
    let bound = as_user(owner, || Ok(BoundKv::bind_with(config, access.clone())?))?;
    let bound_metrics = args.metrics.as_deref().map(yonder_metrics::bind).transpose()?;
    become_user(user.as_ref())?;
    let far = FarMemory::open(&args.paging.memory.far, paging).map_err(|error| args.user.name_in(error))?;
    let server = Server::new(bound, far, args.paging.memory.size, sched)?;
    obey_signals(server.shutdown.clone(), access)?;
    let metrics = bound_metrics.map(|bound| server.serve_metrics(bound, credential)).transpose()?;
    let _settings = serve_settings(&server.far, &args.user);

    let udp = server.udp.map_or_else(String::new, |address| format!(" and UDP {address}"));
    eprintln!(
        "yonder kv: memcached's protocol on {}{udp}, {} of items, {} local, far memory {}; Ctrl-C ends it",
        server.listen,
        format_bytes(args.paging.memory.size),
        format_bytes(server.far.local()),
        server.far.url()
    );
    if let Some(left) = protection::of_far(server.far.url()) {
        eprintln!("yonder kv: {left}");
    }
    if let Some(metrics) = &metrics {
        eprintln!("yonder kv: {}", how_to_watch(metrics, &args.paging.credential));
    }
    server.run()?;
    Ok(ExitCode::SUCCESS)
}

/// Ends the server when it is told to; SIGHUP has files read again if there are any, and ends it otherwise.
fn obey_signals(shutdown: Shutdown, access: KvAccess) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let obey = move || {
        for signal in signals.forever() {
            if signal != SIGHUP || access.is_open() {
                shutdown.request();
            } else if let Err(error) = access.reload() {
                eprintln!("yonder kv: what was read before stays: {error}");
            } else {
                eprintln!("yonder kv: passwords and certificates are read again");
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(obey).map(drop)
}

/// Statistics of the store that are metrics too: the store's name, the metric's, its kind and what it says.
const ITEM_METRICS: [(&str, &str, ExtraKind, &str); 7] = [
    ("cmd_get", "yonder_kv_gets_total", ExtraKind::Counter, "Keys asked for."),
    ("cmd_set", "yonder_kv_sets_total", ExtraKind::Counter, "Items stored."),
    ("get_hits", "yonder_kv_get_hits_total", ExtraKind::Counter, "Keys asked for that were there."),
    ("get_misses", "yonder_kv_get_misses_total", ExtraKind::Counter, "Keys asked for that were not there."),
    ("evictions", "yonder_kv_evictions_total", ExtraKind::Counter, "Items evicted to make room."),
    ("curr_items", "yonder_kv_items", ExtraKind::Gauge, "Items stored now."),
    ("bytes", "yonder_kv_item_bytes", ExtraKind::Gauge, "Bytes of the items stored now."),
];

fn item_metrics(stats: &[(&'static str, u64)]) -> Vec<Extra> {
    let metric = |(wanted, name, kind, help): (&str, &'static str, ExtraKind, &'static str)| {
        let (_, value) = stats.iter().find(|(stat, _)| *stat == wanted)?;
        Some(Extra::new(name, kind, *value, help))
    };
    ITEM_METRICS.into_iter().filter_map(metric).collect()
}

/// A server that is bound and not yet serving.
struct Server {
    far: FarMemory,
    listen: Listen,
    udp: Option<SocketAddr>,
    shutdown: Shutdown,
    stats: Arc<SchedStats>,
    sched: SchedConfig,
    frontend: KvFrontend,
    handler: KvHandler<Region>,
}

impl Server {
    /// Lays items out in `bytes` of far memory.
    fn new(bound: BoundKv, far: FarMemory, bytes: u64, sched: SchedConfig) -> anyhow::Result<Self> {
        let server = bound.with_memory(far.region(bytes)?)?;
        let (listen, udp, shutdown) = (server.listen().clone(), server.udp_address(), server.shutdown());
        let (mut frontend, handler) = server.into_parts();
        let requests = Arc::<SchedStats>::default();
        frontend.extra_stats(runtime_stats(far.clone(), Arc::clone(&requests)));
        Ok(Self { far, listen, udp, shutdown, stats: requests, sched, frontend, handler })
    }

    /// Serves metrics of paging, requests and items until the result is dropped, to members if there is a credential.
    fn serve_metrics(&self, bound: BoundMetrics, credential: Option<Arc<Credential>>) -> anyhow::Result<MetricsServer> {
        let (far, requests, store) = (self.far.clone(), Arc::clone(&self.stats), Arc::clone(self.handler.store()));
        let sample = move || {
            let mut extra = item_metrics(&store.stats());
            extra.extend(fabric_metrics(&far.counters()));
            Sample { paging: Some(far.stats()), requests: Some(Requests::from(&*requests)), extra }
        };
        Ok(bound.serve(Arc::new(sample), credential)?)
    }

    /// Serves until the shutdown is requested. The calling thread becomes the dispatcher.
    fn run(mut self) -> anyhow::Result<()> {
        let handler = Arc::new(self.handler);
        Ok(serve(&self.sched, &self.far, &handler, &mut self.frontend, &self.stats)?)
    }
}
