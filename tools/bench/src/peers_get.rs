//! `bench rread --peers`: reads of a remote address space beside GETs of Redis and of memcached.
//!
//! The same loop (`flow::drive`) loads each in turn, over the same loopback, several rounds; medians count. The
//! peers get a plain blocking client that sends all requests which are due with one system call, and takes all replies
//! that are there with another; the best that can be done for them.
//!
//! Neighbours: `stock` starts the peers, and is that client.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;
use yonder::clib::{Permission, Process, Thread};
use yonder_load::{Protocol, Reply, Verb};

use crate::children::{Child, Launch, find_program, free_address, own_cpu_time};
use crate::comparison::{Ended, Series, take_turns};
use crate::flow::{Asynchronous, Direction, Flow, Items, Load, Measured, Synchronous, check, drive, stamp};
use crate::rread::fill;
use crate::stock::{self, Client};
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
        for protocol in [Protocol::Redis, Protocol::Memcached] {
            match Server::start(protocol, launch)? {
                Some(server) => servers.push(server),
                None => missing.extend(stock::missing(protocol)),
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
        let mut peers = Vec::new();
        for server in &mut self.servers {
            let mut flow = server.connect(bytes, self.settings.spin)?;
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
        let names = names.chain(self.servers.iter().map(|server| (server.name, server.address.to_string())));
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
            synchronous = Synchronous::new(thread, items, Direction::Read);
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

/// A running peer.
#[derive(Debug)]
struct Server {
    protocol: Protocol,
    /// What results call it.
    name: &'static str,
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// Starts a peer; `None` if it is not installed.
    fn start(protocol: Protocol, launch: &dyn Launch) -> Result<Option<Self>, BenchError> {
        let Some(program) = find_program(stock::program(protocol)) else { return Ok(None) };
        let address = free_address()?;
        let mut command = launch.guarded(&program);
        command.args(&stock::command(protocol, address.port())[1..]);
        let mut child = Child::start(&mut command, stock::program(protocol))?;
        child.connect(address)?;
        let name = if protocol == Protocol::Redis { "redis" } else { "memcached" };
        Ok(Some(Self { protocol, name, child, address }))
    }

    /// A connection for values of `bytes` bytes, which asks again for `spin` before it sleeps.
    fn connect(&mut self, bytes: usize, spin: Duration) -> Result<PeerFlow, BenchError> {
        let client = Client::new(self.protocol, self.child.connect(self.address)?, spin)?;
        Ok(PeerFlow { client, bytes, asked: VecDeque::new() })
    }
}

/// GETs of one client, with the items that were asked for.
struct PeerFlow {
    client: Client,
    /// Of each value.
    bytes: usize,
    asked: VecDeque<u64>,
}

impl PeerFlow {
    /// Stores `count` items.
    fn fill(&mut self, count: u64) -> Result<(), BenchError> {
        let mut value = vec![b'.'; self.bytes];
        let set = |client: &mut Client, item| {
            stamp(item, &mut value);
            client.set(&key(item), value.len(), |into| into.extend_from_slice(&value));
        };
        self.client.all(1, 0..count, set, |client, _| client.is_stored()).map(drop)
    }
}

impl Flow for PeerFlow {
    fn post(&mut self, item: u64) -> Result<(), BenchError> {
        self.client.get(&key(item));
        self.asked.push_back(item);
        Ok(())
    }

    fn wait(&mut self) -> Result<usize, BenchError> {
        let Self { client, bytes, asked } = self;
        let mut is_right = |reply: Reply<'_>| {
            let item = asked.pop_front().ok_or_else(|| BenchError::Child("a reply to nothing".to_owned()))?;
            match reply {
                Reply::Value { data, .. } if data.len() == *bytes => check(item, data),
                _ => Err(BenchError::WrongValues(1)),
            }
        };
        client.send()?;
        client.reply(Verb::Get, &mut is_right)??;
        let mut ended = 1;
        while let Some(is_right) = client.arrived(Verb::Get, &mut is_right)? {
            is_right?;
            ended += 1;
        }
        Ok(ended)
    }
}

fn key(item: u64) -> String {
    format!("item:{item}")
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
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::in_process::{NoLaunch, node};

    /// A peer that answers requests, however they are cut.
    #[test]
    fn a_pipeline_matches_replies_with_requests() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 36];
            stream.read_exact(&mut asked).unwrap();
            assert_eq!(&asked, b"get item:1\r\nget item:2\r\nget item:3\r\n");
            let mut replies = Vec::new();
            for item in [1, 2, 3] {
                let mut value = [b'.'; 10];
                stamp(item, &mut value);
                replies.extend_from_slice(format!("VALUE item:{item} 0 10\r\n").as_bytes());
                replies.extend_from_slice(&value);
                replies.extend_from_slice(b"\r\nEND\r\n");
            }
            for piece in replies.chunks(7) {
                stream.write_all(piece).unwrap();
            }
        });
        let stream = TcpStream::connect(address).unwrap();
        let client = Client::new(Protocol::Memcached, stream, Duration::from_micros(50)).unwrap();
        let mut flow = PeerFlow { client, bytes: 10, asked: VecDeque::new() };
        for item in [1, 2, 3] {
            flow.post(item).unwrap();
        }
        let mut ended = 0;
        while ended < 3 {
            ended += flow.wait().unwrap();
        }
        server.join().unwrap();
        assert!(flow.wait().is_err(), "the peer has hung up");
    }

    #[test]
    fn every_system_that_is_installed_is_compared() {
        let (_node, url) = node(16 << 20, None);
        let settings = Settings {
            node: NodeChoice::at(url),
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
