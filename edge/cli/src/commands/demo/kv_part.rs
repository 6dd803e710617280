//! The demo's second part: the memcached-compatible server under load over loopback.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use yonder_load::{KvLoad, LoadResult, LoadSettings, Rate};
use yonder_report::{Chart, Point};

use super::Part;
use super::summary::{HasBar, LOADS, LOCAL_PERCENT, Mode, ratios};
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
    let (busy, yielding) = (busy.stop(), yielding.stop());
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
    server: Server,
    bar: Bar,
}

/// A server process, ended with the value.
struct Server {
    child: Child,
}

impl Server {
    /// Starts `yonder kv` with faults handled as `faults` says, and returns it with its address.
    fn start(faults: &str) -> anyhow::Result<(Self, String)> {
        let program = std::env::current_exe().context("the demo starts this program again as its server")?;
        let local = format!("{LOCAL_PERCENT}%");
        let mut child = Command::new(program)
            .args(["kv", "--listen", "127.0.0.1:0", "--far", FAR, "--memory", MEMORY])
            .args(["--local", &local, "--faults", faults])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("the demo's server")?;
        let banner = child.stderr.take().context("the server's standard error was asked for")?;
        let server = Self { child };
        let mut line = String::new();
        BufReader::new(banner).read_line(&mut line)?;
        let address = line.split_whitespace().find_map(|word| {
            let word = word.trim_end_matches(',');
            word.parse::<std::net::SocketAddr>().is_ok().then(|| word.to_owned())
        });
        match address {
            Some(address) => Ok((server, address)),
            None => bail!("the demo's server did not start: {}", line.trim()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The child is this demo's own; a server that has ended already is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Bench {
    fn start(name: &'static str, faults: &str) -> anyhow::Result<Self> {
        let (server, address) = Server::start(faults)?;
        let settings = LoadSettings { keys: KEYS, value_size: VALUE_BYTES, ..LoadSettings::new(address) };
        let mut load = KvLoad::new(settings)?;
        let bar = Bar::new("server");
        load.fill(|progress| bar.show(&format!("{name}, filling"), progress.ops as f64 / KEYS as f64))?;
        Ok(Self { mode: Mode { name, peak_per_s: 0.0, points: Vec::new() }, load, server, bar })
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

    fn stop(self) -> Mode {
        drop(self.server);
        self.mode
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
