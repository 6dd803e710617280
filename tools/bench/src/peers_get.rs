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
use crate::BenchError;
use crate::children::{Launch, own_cpu_time};
use crate::flow::{Asynchronous, Direction, Flow, Items, Load, Measured, ReadSync, drive};
use crate::rread::fill;
use crate::target::{CpuTimes, NodeChoice, Target};

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

/// A median, and the rounds' extremes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// Median of the rounds.
    pub median: f64,
    /// Least.
    pub min: f64,
    /// Most.
    pub max: f64,
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
    /// Always 0: nothing is paged.
    pub major_faults: u64,
    /// Always 0: nothing is paged.
    pub minor_faults: u64,
    /// Bytes read while measuring with one request under way.
    pub fetched_bytes: u64,
    /// Always 0.
    pub written_bytes: u64,
    /// Always 0: an error ends the run.
    pub errors: u64,
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
        let mut runs: Vec<Vec<Vec<Run>>> = vec![vec![Vec::new(); depths.len()]; 1 + peers.len()];
        for round in 0..self.settings.rounds {
            for (place, depth) in depths.iter().enumerate() {
                let load = Load { items: count, depth: *depth, duration: self.settings.duration, seed: round as u64 };
                runs[0][place].push(self.run_ours(&mut thread, items, &load)?);
                for (number, flow) in peers.iter_mut().enumerate() {
                    runs[1 + number][place].push(run_peer(&self.servers[number], flow, &load)?);
                }
            }
        }
        thread.rfree(items.address)?;
        let names = std::iter::once(("yonder", self.target.url().to_owned()));
        let names = names.chain(self.servers.iter().map(|server| (server.dialect.name(), server.address.to_string())));
        let results = names.zip(&runs).map(|((system, at), runs)| self.result(system, at, bytes, count, &depths, runs));
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
        system: &'static str,
        at: String,
        bytes: usize,
        items: u64,
        depths: &[usize],
        runs: &[Vec<Run>],
    ) -> PeerResult {
        let one = &runs[0];
        let throughput = |runs: &Vec<Run>| spread(runs, |run| run.ops_per_s).median;
        let best = (0..runs.len()).max_by(|a, b| throughput(&runs[*a]).total_cmp(&throughput(&runs[*b])));
        let best = best.expect("there is depth 1");
        let cpu = |runs: &Vec<Run>| {
            runs.iter().all(|run| run.cpu_us.is_some()).then(|| spread(runs, |run| run.cpu_us.unwrap_or(0.0)).median)
        };
        let ends = |spread: Spread| [spread.min, spread.max];
        let best_cpu = cpu(&runs[best]);
        PeerResult {
            bench: "rread-peers",
            system,
            at,
            size_bytes: bytes,
            items,
            rounds: one.len(),
            ops_per_s: throughput(one),
            p50_us: spread(one, |run| run.p50_us).median,
            p99_us: spread(one, |run| run.p99_us).median,
            p999_us: spread(one, |run| run.p999_us).median,
            p50_spread_us: ends(spread(one, |run| run.p50_us)),
            p99_spread_us: ends(spread(one, |run| run.p99_us)),
            cpu_us_per_op: cpu(one),
            best_depth: depths[best],
            best_ops_per_s: throughput(&runs[best]),
            best_ops_spread_per_s: ends(spread(&runs[best], |run| run.ops_per_s)),
            best_cpu_us_per_op: best_cpu,
            best_ops_per_cpu_s: best_cpu.filter(|cpu| *cpu > 0.0).map(|cpu| 1e6 / cpu),
            major_faults: 0,
            minor_faults: 0,
            fetched_bytes: one.iter().map(|run| run.ops).sum::<u64>() * bytes as u64,
            written_bytes: 0,
            errors: 0,
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

fn spread(runs: &[Run], value: impl Fn(&Run) -> f64) -> Spread {
    let mut values: Vec<f64> = runs.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
    Spread { median: at(values.len() / 2), min: at(0), max: at(values.len().saturating_sub(1)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_process::{NoLaunch, node};

    #[test]
    fn medians_and_extremes() {
        let run = |ops_per_s| Run { ops: 1, ops_per_s, p50_us: 0.0, p99_us: 0.0, p999_us: 0.0, cpu_us: None };
        let runs = [run(3.0), run(1.0), run(2.0)];
        assert_eq!(spread(&runs, |run| run.ops_per_s), Spread { median: 2.0, min: 1.0, max: 3.0 });
    }

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
