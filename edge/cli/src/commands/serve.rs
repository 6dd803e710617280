//! `yonder serve`: applications over UDP, with their data in far memory.
//!
//! Each binds its addresses first; then it becomes `--user`'s; then it opens far memory, makes threads and serves.

use std::fmt::Display;
use std::process::ExitCode;
use std::sync::Arc;

use yonder::sched::{Handler, SchedConfig, SchedStats, serve};
use yonder::units::format_bytes;
use yonder::{Config, FarMemory};
use yonder_faiss::{Collection, Searcher};
use yonder_identity::Credential;
use yonder_metrics::{BoundMetrics, MetricsServer, Requests, Sample};
use yonder_oltp::tpcc::{Scale, Tpcc};
use yonder_rocksdb::{Rocks, Rows};
use yonder_serve::{Protocol, Served, UdpServer};

use crate::args::{AppServerArgs, ServeAppArgs, ServeTpccArgs, ServeVectorArgs, ServedApp, as_user, become_user};
use crate::commands::ctl::serve_settings;
use crate::commands::metrics::{check_addresses, fabric_metrics, how_to_watch};
use crate::commands::protection;
use crate::output::{Bar, with_bar};
use crate::setup::Setup;

/// Regions have whole blocks.
const BLOCK_BYTES: u64 = 2 << 20;

pub(crate) fn run(args: &ServeAppArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        ServedApp::Rocksdb(args) => rocksdb(args),
        ServedApp::Tpcc(args) => tpcc(args),
        ServedApp::Vector(args) => vector(args),
    }
}

fn rocksdb(args: &AppServerArgs) -> anyhow::Result<ExitCode> {
    let (server, sched, paging) = prepare(args)?;
    let rows = Rows::of_bytes(args.paging.memory.size);
    let far = open_far(args, paging)?;
    let rocks = with_bar("serve rocksdb", |progress| Rocks::filled(rows, &far, progress));
    let rocks = rocks.map_err(|error| args.user.name_in(error))?;
    let about = serde_json::json!({ "app": "rocksdb", "rows": rows.count }).to_string();
    let sched = SchedConfig { stack_bytes: yonder_rocksdb::STACK_BYTES, ..sched };
    serve_app::<yonder_rocksdb::Datagrams, _, _>(
        args,
        server,
        (&far, &sched),
        (&format!("{} rows", rows.count), about),
        &Arc::new(Served::new(rocks)),
    )?;
    Ok(ExitCode::SUCCESS)
}

fn tpcc(args: &ServeTpccArgs) -> anyhow::Result<ExitCode> {
    let scale = tpcc_scale(args.server.paging.memory.size, args.shrink);
    let mut server_args = args.server.clone();
    server_args.paging.memory.size = scale.bytes(0);
    let (server, sched, paging) = prepare(&server_args)?;
    let far = open_far(&server_args, paging)?;
    let region = Arc::new(far.region(scale.bytes(args.orders).next_multiple_of(BLOCK_BYTES))?);
    let tpcc = with_bar("serve tpcc", |progress| {
        Tpcc::load(region, scale, 1, &mut |share| progress("loading tables", share))
    })?;
    let about = serde_json::json!({ "app": "tpcc", "scale": scale }).to_string();
    let sched = SchedConfig { stack_bytes: yonder_oltp::STACK_BYTES, ..sched };
    let what = format!("{} warehouses", scale.warehouses);
    let served = Arc::new(Served::new(tpcc));
    serve_app::<yonder_oltp::tpcc::Datagrams, _, _>(&server_args, server, (&far, &sched), (&what, about), &served)?;
    served.handler().check()?;
    eprintln!("yonder serve: the tables are consistent after {} transactions", served.handler().database().commits());
    Ok(ExitCode::SUCCESS)
}

fn vector(args: &ServeVectorArgs) -> anyhow::Result<ExitCode> {
    let (server, sched, paging) = prepare(&args.server)?;
    let memory = &args.server.paging.memory;
    let collection = Collection::of_bytes(memory.size, args.lists)?;
    let far = open_far(&args.server, paging)?;
    let searcher = {
        let bar = Bar::new("serve vector");
        bar.show("making vectors", 0.0);
        let index = collection.index(&collection.vectors(), &mut |share| bar.show("making the index", share));
        let index = index.map_err(|error| args.server.user.name_in(error))?;
        bar.show("moving lists to far memory", 0.0);
        let bytes = index.list_bytes()? as u64 + 1;
        Searcher::open(index, Some(far.region(bytes.next_multiple_of(BLOCK_BYTES))?))?
    };
    let about = serde_json::json!({ "app": "vector", "collection": collection }).to_string();
    let sched = SchedConfig { stack_bytes: yonder_faiss::STACK_BYTES, ..sched };
    let what = format!("{} vectors", collection.vectors);
    let served = Arc::new(Served::new(searcher));
    serve_app::<yonder_faiss::Datagrams, _, _>(&args.server, server, (&far, &sched), (&what, about), &served)?;
    Ok(ExitCode::SUCCESS)
}

/// As many warehouses as `bytes` take, one at least, each so many times smaller than the specification's.
pub(crate) fn tpcc_scale(bytes: u64, shrink: u32) -> Scale {
    let warehouses = bytes / Scale::full(1).shrunk(shrink).bytes(0);
    let warehouses = u32::try_from(warehouses).unwrap_or(u32::MAX).clamp(1, u32::from(u16::MAX));
    Scale::full(warehouses).shrunk(shrink)
}

/// What is served at, and who may look at the metrics.
struct Bound {
    udp: UdpServer,
    metrics: Option<BoundMetrics>,
    credential: Option<Arc<Credential>>,
}

/// Checks the settings and binds the addresses, before anything that takes long, and becomes `--user`'s.
fn prepare(args: &AppServerArgs) -> anyhow::Result<(Bound, SchedConfig, Config)> {
    check_addresses([args.listen], args.metrics.as_deref(), args.open, &args.paging.credential)?;
    let user = args.user.find()?;
    let credential = as_user(user.as_ref(), || args.paging.credential.show_and_serve())?;
    let Setup { paging, sched } = Setup::of_server(&args.paging, args.busy_poll)?;
    let udp = UdpServer::bind(args.listen)?;
    let metrics = args.metrics.as_deref().map(yonder_metrics::bind).transpose()?;
    become_user(user.as_ref())?;
    Ok((Bound { udp, metrics, credential }, sched, paging))
}

fn open_far(args: &AppServerArgs, paging: Config) -> anyhow::Result<FarMemory> {
    FarMemory::open(&args.paging.memory.far, paging).map_err(|error| args.user.name_in(error))
}

/// Serves until Ctrl-C. The calling thread becomes the dispatcher. `what` is served, and `about` tells clients of it.
fn serve_app<P, H, E>(
    args: &AppServerArgs,
    Bound { udp: server, metrics, credential }: Bound,
    (far, sched): (&FarMemory, &SchedConfig),
    (what, about): (&str, String),
    served: &Arc<Served<P, H>>,
) -> anyhow::Result<()>
where
    P: Protocol,
    H: Handler<Request = P::Request, Reply = Result<P::Answer, E>>,
    E: Display + Send + 'static,
{
    let shutdown = server.shutdown();
    ctrlc::set_handler(move || shutdown.request())?;
    let stats = Arc::<SchedStats>::default();
    let metrics = metrics.map(|bound| serve_metrics(bound, far, &stats, credential)).transpose()?;
    let _settings = serve_settings(far, &args.user);
    eprintln!(
        "yonder serve: {what} of {} on UDP {}, {} local, far memory {}; Ctrl-C ends it",
        format_bytes(args.paging.memory.size),
        server.address(),
        format_bytes(far.local()),
        far.url()
    );
    if let Some(left) = protection::of_far(far.url()) {
        eprintln!("yonder serve: {left}");
    }
    if let Some(metrics) = &metrics {
        eprintln!("yonder serve: {}", how_to_watch(metrics, &args.paging.credential));
    }
    let mut frontend = server.into_frontend::<P>(about);
    Ok(serve(sched, far, served, &mut frontend, &stats)?)
}

/// Serves metrics of paging and requests until the result is dropped, to members if there is a credential.
fn serve_metrics(
    bound: BoundMetrics,
    far: &FarMemory,
    stats: &Arc<SchedStats>,
    credential: Option<Arc<Credential>>,
) -> anyhow::Result<MetricsServer> {
    let (far, stats) = (far.clone(), Arc::clone(stats));
    let sample = move || Sample {
        paging: Some(far.stats()),
        requests: Some(Requests::from(&*stats)),
        extra: fabric_metrics(&far.counters()),
    };
    Ok(bound.serve(Arc::new(sample), credential)?)
}
