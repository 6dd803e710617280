//! The demo's second part: the memcached-compatible server under load over loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::anyhow;
use clap::Parser as _;
use yonder_kv::{KvConfig, Shutdown};
use yonder_load::{KvLoad, LoadResult, LoadSettings, Rate};
use yonder_report::{Chart, Point};

use super::Part;
use super::summary::{HasBar, LOADS, LOCAL_PERCENT, Mode, ratios};
use crate::args::{Cli, Command, PagingArgs};
use crate::commands::kv::Server;
use crate::output::Bar;

pub(super) const KEYS: u64 = 80_000;
pub(super) const VALUE_BYTES: usize = 1000;
const MEMORY: &str = "128MiB";
const FAR: &str = "emu://?latency=25us&gbps=100";
const RUN: Duration = Duration::from_millis(1500);

type Emit<'a> = &'a mut dyn FnMut(&serde_json::Value) -> anyhow::Result<()>;

pub(super) fn run(emit: Emit<'_>) -> anyhow::Result<Part> {
    let mut busy = Bench::start("busy-wait", "busy")?;
    let mut yielding = Bench::start("yield", "yield")?;
    for bench in [&mut busy, &mut yielding] {
        bench.mode.peak_per_s = bench.measure(Rate::Max, emit)?.ops_per_s;
    }
    let peak = busy.mode.peak_per_s;
    for load in LOADS {
        for bench in [&mut busy, &mut yielding] {
            let result = bench.measure(Rate::PerSecond(peak * load), emit)?;
            bench.mode.points.push(point(&result));
        }
    }
    let (busy, yielding) = (busy.stop()?, yielding.stop()?);
    Ok(Part {
        ratios: ratios("server", &busy, &yielding, HasBar::No),
        chart: Chart {
            title: "A memcached server over loopback".to_owned(),
            explanation: "Items, keys and hash chains live in far memory; a client loads the server through TCP and checks \
                          every value it reads. The fetch is slower here, as over a plain network, because the sockets of \
                          this machine take longer than a fetch over RDMA would."
                .to_owned(),
            far_memory: "25 us, 100 Gbit/s".to_owned(),
            curves: vec![busy.curve(), yielding.curve()],
        },
    })
}

/// A server in one mode, filled, with its load.
struct Bench {
    mode: Mode,
    load: KvLoad,
    shutdown: Shutdown,
    thread: JoinHandle<anyhow::Result<()>>,
    bar: Bar,
}

impl Bench {
    fn start(name: &'static str, faults: &str) -> anyhow::Result<Self> {
        let paging = paging(faults)?;
        let (started, is_started) = mpsc::channel();
        let thread = std::thread::Builder::new().name(format!("yonder-kv-{faults}")).spawn(move || {
            let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let server = Server::bind(&paging, KvConfig::new(any_port))?;
            let _ = started.send((server.address, server.shutdown.clone()));
            server.run()
        })?;
        let Ok((address, shutdown)) = is_started.recv() else {
            let failed = thread.join().map_err(|_| anyhow!("the server of the demo panicked"))?;
            return Err(failed.expect_err("a server that did not start failed"));
        };
        let settings = LoadSettings { keys: KEYS, value_size: VALUE_BYTES, ..LoadSettings::new(address.to_string()) };
        let mut load = KvLoad::new(settings)?;
        let bar = Bar::new("server");
        load.fill(|progress| bar.show(&format!("{name}, filling"), progress.ops as f64 / KEYS as f64))?;
        Ok(Self { mode: Mode { name, peak_per_s: 0.0, points: Vec::new() }, load, shutdown, thread, bar })
    }

    fn measure(&mut self, rate: Rate, emit: Emit<'_>) -> anyhow::Result<LoadResult> {
        let label = format!("{}, {rate} requests/s", self.mode.name);
        let bar = &self.bar;
        bar.show(&label, 0.0);
        let result = self
            .load
            .run(rate, RUN, |progress| bar.show(&label, progress.elapsed.as_secs_f64() / RUN.as_secs_f64()))?;
        result.verdict()?;
        let mut object = serde_json::to_value(&result)?;
        object["faults"] = self.mode.name.into();
        emit(&object)?;
        Ok(result)
    }

    fn stop(self) -> anyhow::Result<Mode> {
        self.shutdown.request();
        self.thread.join().map_err(|_| anyhow!("the server of the demo panicked"))??;
        Ok(self.mode)
    }
}

/// The flags of `yonder kv` that the demo would type.
fn paging(faults: &str) -> anyhow::Result<PagingArgs> {
    let local = format!("{LOCAL_PERCENT}%");
    let flags = ["yonder", "kv", "--far", FAR, "--memory", MEMORY, "--local", &local, "--faults", faults];
    match Cli::try_parse_from(flags)?.command {
        Command::Kv(args) => Ok(args.paging),
        _ => unreachable!("the flags say kv"),
    }
}

fn point(result: &LoadResult) -> Point {
    Point {
        offered_per_s: result.offered_per_s,
        achieved_per_s: result.ops_per_s,
        p50_us: result.p50_us,
        p99_us: result.p99_us,
        p999_us: result.p999_us,
        dropped: result.dropped,
    }
}
