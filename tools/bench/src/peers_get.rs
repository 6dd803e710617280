//! `bench rread --peers`: reads of a remote address space beside GETs of Redis and of memcached.
//!
//! The same loop (`flow::drive`) loads each in turn, over the same loopback, several rounds; medians count. The
//! peers get a plain blocking client that sends all requests which are due with one system call, and takes all replies
//! that are there with another; the best that can be done for them.
//!
//! Files: `dialect` is how each peer asks and answers, `servers` starts them.

mod dialect;
mod servers;

use std::time::Duration;

use serde::Serialize;
use yonder::clib::{Permission, Process, Thread};

use self::dialect::{Dialect, PeerFlow};
use self::servers::Server;
use crate::children::{Launch, own_cpu_time};
use crate::comparison::{Ended, Series, take_turns};
use crate::flow::{Asynchronous, Direction, Flow, Items, Load, Measured, ReadSync, drive};
use crate::rread::fill;
use crate::target::{CpuTimes, NodeChoice, Target};
use crate::{BenchError, Counts};

/// Most items of a size.
const ITEMS_MAX: u64 = 10_000;
/// Part of a run's time that comes before it, unmeasured.
const WARM_UP_SHARE: u32 = 5;
/// Memory of a node beside the items.
const NODE_MEMORY_MORE: u64 = 64 << 20;

/// Settings of a comparison.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Our node.
    pub node: NodeChoice,
    /// Bytes that the items of a size take, if they are not too many.
    pub memory: u64,
    /// Sizes of values.
    pub sizes: Vec<usize>,
    /// Requests under way, from which each system's best is taken.
    pub depths: Vec<usize>,
    /// Rounds that the medians are taken of.
    pub rounds: usize,
    /// How long our client asks again and again before it sleeps.
    pub spin: Duration,
    /// Time of each run; a warm-up of a fifth of it comes before.
    pub duration: Duration,
}

/// One system at one size; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct PeerResult {
    /// Always `rread-peers`.
    pub bench: &'static str,
    /// `yonder`, `redis` or `memcached`.
    pub system: &'static str,
    /// Where it was reached.
    pub at: String,
    /// Bytes of a value.
    pub size_bytes: usize,
    /// Values.
    pub items: u64,
    /// Rounds.
    pub rounds: usize,
    /// Operations per second of one client that waits for each.
    pub ops_per_s: f64,
    /// Its median latency; the median of the rounds.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Median latencies of the rounds.
    pub p50_spread_us: [f64; 2],
    /// 99th percentiles of the rounds.
    pub p99_spread_us: [f64; 2],
    /// CPU time of client and server for each operation.
    pub cpu_us_per_op: Option<f64>,
    /// Requests under way with which it does most operations per second.
    pub best_depth: usize,
    /// Operations per second with that many.
    pub best_ops_per_s: f64,
    /// Those of the rounds.
    pub best_ops_spread_per_s: [f64; 2],
    /// CPU time of client and server for each of these operations.
    pub best_cpu_us_per_op: Option<f64>,
    /// Operations per second of CPU time with that many requests under way.
    pub best_ops_per_cpu_s: Option<f64>,
    /// Faults, bytes and errors.
    #[serde(flatten)]
    pub counts: Counts,
}

/// The systems that are compared.
pub struct Comparison {
    settings: Settings,
    process: Process,
    target: Target,
    servers: Vec<Server>,
    missing: Vec<String>,
}

/// One measured run.
#[derive(Clone, Copy, Debug)]
struct Run {
    ops: u64,
    ops_per_s: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    cpu_us: Option<f64>,
}

impl Comparison {
    /// Starts what is to be compared. A peer that is not installed is left out.
    pub fn prepare(settings: &Settings, launch: &dyn Launch) -> Result<Self, BenchError> {
        if settings.sizes.is_empty() || settings.depths.is_empty() {
            return Err(BenchError::Settings("nothing is compared: type --sizes 4KiB --depths 1,32".to_owned()));
        }
        let largest = settings.sizes.iter().map(|bytes| *bytes as u64 * items_of(settings, *bytes)).max().unwrap_or(0);
        let target = Target::new(&settings.node, launch, largest + NODE_MEMORY_MORE, None)?;
        let pending_max = settings.depths.iter().copied().max().unwrap_or(1);
        let process = target.process(pending_max, settings.spin)?;
        let (mut servers, mut missing) = (Vec::new(), Vec::new());
        for dialect in [Dialect::Redis, Dialect::Memcached] {
            match Server::start(dialect, launch)? {
                Some(server) => servers.push(server),
                None => missing.push(format!(
                    "{} is not installed: apt-get install {}",
                    dialect.program(),
                    dialect.package()
                )),
            }
        }
        Ok(Self { settings: settings.clone(), process, target, servers, missing })
    }

    /// What is left out, and how to have it.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// The sizes, in order.
    #[must_use]
    pub fn sizes(&self) -> &[usize] {
        &self.settings.sizes
    }

    /// Compares all systems at one size of values; ours is first.
    pub fn run(&mut self, bytes: usize) -> Result<Vec<PeerResult>, BenchError> {
        let count = items_of(&self.settings, bytes);
        let mut thread = self.process.thread()?;
        let items = Items { address: thread.ralloc(count * bytes as u64, Permission::ReadWrite)?, bytes };
        fill(&mut thread, items, count)?;
        let depth_max = self.settings.depths.iter().copied().max().unwrap_or(1);
        let mut peers = Vec::new();
        for server in &mut self.servers {
            let mut flow = server.connect(bytes, depth_max, self.settings.spin)?;
            flow.fill(count)?;
            peers.push(flow);
        }
        let depths = self.depths();
        // Of each depth every system, ours first.
        let systems = 0..=peers.len();
        let variants = depths.iter().flat_map(|depth| systems.clone().map(|system| (system, *depth)));
        let mut all: Vec<Series<(usize, usize), Run>> = variants.map(Series::new).collect();
        let label = |_: &(usize, usize)| String::new();
        take_turns(&mut all, self.settings.rounds, &mut |_, _| (), label, |(system, depth), turn| {
            let load = Load { items: count, depth: *depth, duration: self.settings.duration, seed: turn as u64 };
            Ok::<_, BenchError>(Ended::Well(match system.checked_sub(1) {
                None => self.run_ours(&mut thread, items, &load)?,
                Some(peer) => run_peer(&self.servers[peer], &mut peers[peer], &load)?,
            }))
        })?;
        thread.rfree(items.address)?;
        let names = std::iter::once(("yonder", self.target.url().to_owned()));
        let names = names.chain(self.servers.iter().map(|server| (server.dialect.name(), server.address.to_string())));
        let of = |system| all.iter().filter(|series| series.variant.0 == system).collect::<Vec<_>>();
        let results = names.enumerate().map(|(system, (name, at))| self.result((name, at), bytes, count, &of(system)));
        Ok(results.collect())
    }

    /// The depths, with 1 first.
    fn depths(&self) -> Vec<usize> {
        let others = self.settings.depths.iter().copied().filter(|depth| *depth > 1);
        std::iter::once(1).chain(others).collect()
    }

    fn run_ours(&self, thread: &mut Thread, items: Items, load: &Load) -> Result<Run, BenchError> {
        let mut synchronous;
        let mut asynchronous;
        let flow: &mut dyn Flow = if load.depth == 1 {
            synchronous = ReadSync::new(thread, items);
            &mut synchronous
        } else {
            asynchronous = Asynchronous::new(thread, items, Direction::Read, load.depth);
            &mut asynchronous
        };
        run(flow, load, || self.target.cpu_times())
    }

    fn result(
        &self,
        (system, at): (&'static str, String),
        bytes: usize,
        items: u64,
        all: &[&Series<(usize, usize), Run>],
    ) -> PeerResult {
        let median = |series: &Series<_, Run>, figure: fn(&Run) -> f64| series.median(figure).unwrap_or(0.0);
        let ends = |series: &Series<_, Run>, figure: fn(&Run) -> f64| series.spread(figure).unwrap_or_default();
        let throughput = |series: &Series<_, Run>| median(series, |run| run.ops_per_s);
        let one = all[0];
        let best = all.iter().max_by(|a, b| throughput(a).total_cmp(&throughput(b))).expect("there is depth 1");
        let cpu = |series: &Series<_, Run>| {
            let is_known = series.trials.iter().all(|run| run.cpu_us.is_some());
            is_known.then(|| median(series, |run| run.cpu_us.unwrap_or(0.0)))
        };
        let best_cpu = cpu(best);
        PeerResult {
            bench: "rread-peers",
            system,
            at,
            size_bytes: bytes,
            items,
            rounds: one.trials.len(),
            ops_per_s: throughput(one),
            p50_us: median(one, |run| run.p50_us),
            p99_us: median(one, |run| run.p99_us),
            p999_us: median(one, |run| run.p999_us),
            p50_spread_us: ends(one, |run| run.p50_us),
            p99_spread_us: ends(one, |run| run.p99_us),
            cpu_us_per_op: cpu(one),
            best_depth: best.variant.1,
            best_ops_per_s: throughput(best),
            best_ops_spread_per_s: ends(best, |run| run.ops_per_s),
            best_cpu_us_per_op: best_cpu,
            best_ops_per_cpu_s: best_cpu.filter(|cpu| *cpu > 0.0).map(|cpu| 1e6 / cpu),
            counts: Counts { fetched_bytes: one.sum(|run| run.ops) * bytes as u64, ..Counts::default() },
        }
    }
}

fn items_of(settings: &Settings, bytes: usize) -> u64 {
    (settings.memory / bytes as u64).clamp(1, ITEMS_MAX)
}

fn run_peer(server: &Server, flow: &mut PeerFlow, load: &Load) -> Result<Run, BenchError> {
    run(flow, load, || Ok(CpuTimes::new(own_cpu_time(), server.child.cpu_time()?)))
}

/// Warms a flow up and measures it.
fn run(
    flow: &mut dyn Flow,
    load: &Load,
    cpu_times: impl Fn() -> Result<CpuTimes, BenchError>,
) -> Result<Run, BenchError> {
    drive(flow, &Load { duration: load.duration / WARM_UP_SHARE, seed: !load.seed, ..*load })?;
    let before = cpu_times()?;
    let measured: Measured = drive(flow, load)?;
    let (client, server) = cpu_times()?.per_op(before, measured.ops());
    let latency = measured.latency.summary();
    Ok(Run {
        ops: measured.ops(),
        ops_per_s: measured.ops() as f64 / measured.seconds,
        p50_us: latency.p50_us,
        p99_us: latency.p99_us,
        p999_us: latency.p999_us,
        cpu_us: server.map(|server| client + server),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_process::{NoLaunch, node};

    #[test]
    fn every_system_that_is_installed_is_compared() {
        let (_node, url) = node(16 << 20, None);
        let settings = Settings {
            node: NodeChoice::At(url),
            memory: 1 << 20,
            sizes: vec![100, 20_000],
            depths: vec![4],
            rounds: 2,
            spin: Duration::from_micros(50),
            duration: Duration::from_millis(20),
        };
        let mut comparison = Comparison::prepare(&settings, &NoLaunch).unwrap();
        for missing in comparison.missing() {
            println!("SKIP: {missing}");
        }
        let systems = 3 - comparison.missing().len();
        for bytes in settings.sizes {
            let results = comparison.run(bytes).unwrap();
            assert_eq!((results.len(), results[0].system), (systems, "yonder"));
            for result in results {
                assert!(result.p50_us > 0.0 && result.best_ops_per_s > 0.0, "{result:?}");
                assert!(result.p50_spread_us[0] <= result.p50_us && result.p50_us <= result.p50_spread_us[1]);
                assert_eq!(result.system != "yonder", result.cpu_us_per_op.is_some());
            }
        }
    }
}
