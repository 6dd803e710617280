//! `yonder serve`: applications over UDP, with their data in far memory.

use std::fmt::Display;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use yonder::sched::{Handler, Idle, SchedConfig, SchedStats, serve};
use yonder::units::format_bytes;
use yonder::{Config, FarMemory};
use yonder_metrics::{MetricsServer, Requests, Sample};
use yonder_rocksdb::{Datagrams, Rocks, Rows, STACK_BYTES};
use yonder_serve::{Protocol, Served, UdpServer};

use crate::args::{AppServerArgs, ServeAppArgs, ServedApp};
use crate::commands::ctl::serve_settings;
use crate::output::Bar;
use crate::setup::Setup;

/// How long idle threads of a server spin before they sleep.
const IDLE_SPIN: Duration = Duration::from_micros(50);

pub(crate) fn run(args: &ServeAppArgs) -> anyhow::Result<ExitCode> {
    match &args.what {
        ServedApp::Rocksdb(args) => rocksdb(args),
    }
}

fn rocksdb(args: &AppServerArgs) -> anyhow::Result<ExitCode> {
    let (server, sched, paging) = prepare(args)?;
    let rows = Rows::of_bytes(args.paging.memory.size);
    let far = FarMemory::open(&args.paging.memory.far, paging)?;
    let rocks = {
        let bar = Bar::new("serve rocksdb");
        Rocks::filled(rows, &far, &mut |what, share| bar.show(what, share))?
    };
    let about = serde_json::json!({ "app": "rocksdb", "rows": rows.count }).to_string();
    let sched = SchedConfig { stack_bytes: STACK_BYTES, ..sched };
    serve_app::<Datagrams, _, _>(args, server, (&far, &sched), (&format!("{} rows", rows.count), about), rocks)
}

/// Binds the socket and checks the settings, before anything that takes long.
fn prepare(args: &AppServerArgs) -> anyhow::Result<(UdpServer, SchedConfig, Config)> {
    let Setup { paging, sched } = Setup::from(&args.paging);
    let sched = SchedConfig {
        idle: if args.busy_poll { Idle::BusyPoll } else { Idle::SleepAfter(IDLE_SPIN) },
        // The clients of a server may run on the same CPUs, so the kernel decides.
        cpus: Vec::new(),
        ..sched
    };
    sched.validate()?;
    Ok((UdpServer::bind(args.listen)?, sched, paging))
}

/// Serves until Ctrl-C. The calling thread becomes the dispatcher. `what` is served, and `about` tells clients of it.
fn serve_app<P, H, E>(
    args: &AppServerArgs,
    server: UdpServer,
    (far, sched): (&FarMemory, &SchedConfig),
    (what, about): (&str, String),
    handler: H,
) -> anyhow::Result<ExitCode>
where
    P: Protocol,
    H: Handler<Request = P::Request, Reply = Result<P::Answer, E>>,
    E: Display + Send + 'static,
{
    let shutdown = server.shutdown();
    ctrlc::set_handler(move || shutdown.request())?;
    let stats = Arc::<SchedStats>::default();
    let metrics = args.metrics.as_deref().map(|address| serve_metrics(address, far, &stats)).transpose()?;
    let _settings = serve_settings(far);
    eprintln!(
        "yonder serve: {what} of {} on UDP {}, {} local, far memory {}; Ctrl-C ends it",
        format_bytes(args.paging.memory.size),
        server.address(),
        format_bytes(far.local()),
        far.url()
    );
    if let Some(metrics) = &metrics {
        eprintln!("yonder serve: metrics on {0}; `yonder top --attach {0}` shows them", metrics.address());
    }
    let mut frontend = server.into_frontend::<P>(about);
    serve(sched, far, &Arc::new(Served::<P, H>::new(handler)), &mut frontend, &stats)?;
    Ok(ExitCode::SUCCESS)
}

/// Serves metrics of paging and requests until the result is dropped.
fn serve_metrics(address: &str, far: &FarMemory, stats: &Arc<SchedStats>) -> anyhow::Result<MetricsServer> {
    let (far, stats) = (far.clone(), Arc::clone(stats));
    let sample =
        move || Sample { paging: Some(far.stats()), requests: Some(Requests::from(&*stats)), extra: Vec::new() };
    Ok(yonder_metrics::serve(address, Arc::new(sample))?)
}
