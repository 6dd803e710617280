//! `bench migrate`: a node is drained while clients read and write what is on it. Nothing may be lost, and only a
//! region that moves may pause.
//!
//! A controller and two nodes run inside this process and speak over loopback. Each region has a client thread of its
//! own, which writes stamped pages and checks what it reads; so while one region pauses, the threads of the others show
//! whether they go on. Afterwards every page is read once more.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use yonder::clib::{Permission, Process, Thread};
use yonder::units::parse_bytes;
use yonder::units::{Nanos, PAGE_BYTES};
use yonder_controller::{ControllerClient, ControllerServer, MemoryStore};
use yonder_load::LatencyRecorder;
use yonder_node::{ControllerConfig, Listen, Node, NodeConfig};
use yonder_placement::Config;

use crate::flags::{BENCHMARK, duration, positive_count};
use crate::{BenchError, Counts};

/// How long anything that the controller does may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Parts of the time from the first operation to the last in which operations are counted.
const PARTS: usize = 200;
/// Memory of a node, as a multiple of what is moved.
const ROOM: u64 = 2;

/// Settings of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Args)]
pub struct Settings {
    /// Regions that move, each with a client thread of its own
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 4, value_parser = positive_count)]
    pub regions: usize,
    /// Size of a region, a power of two
    #[arg(long = "region-size", help_heading = BENCHMARK, value_name = "SIZE", default_value = "64MiB", value_parser = parse_bytes)]
    pub region_bytes: u64,
    /// Time that is measured before the drain, and again after it
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub duration: Duration,
}

/// What the drain did; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct MigrateResult {
    /// Always `migrate`.
    pub bench: &'static str,
    /// Regions that moved, and client threads.
    pub regions: usize,
    /// Bytes of a region.
    pub region_bytes: u64,
    /// Bytes that moved between the nodes.
    pub moved_bytes: u64,
    /// From the order to drain until the node was empty.
    pub drain_seconds: f64,
    /// Of each region the longest operation during the drain: the shortest of these ...
    pub pause_min_us: f64,
    /// ... their median ...
    pub pause_median_us: f64,
    /// ... and the longest.
    pub pause_max_us: f64,
    /// The longest time that the source held requests to a region up.
    pub held_up_max_us: f64,
    /// Operations per second before the drain.
    pub ops_per_s: f64,
    /// The same of one region's client, during the pauses of others.
    pub ops_per_s_beside_pauses: f64,
    /// The same of one region's client before the drain, to compare.
    pub ops_per_s_of_one: f64,
    /// Median latency before the drain.
    pub p50_us: f64,
    /// 99th percentile before the drain.
    pub p99_us: f64,
    /// 99.9th percentile before the drain.
    pub p999_us: f64,
    /// When the drain was ordered, in seconds from the beginning of the measurement ...
    pub drain_began_s: f64,
    /// ... and when the node was empty.
    pub drain_ended_s: f64,
    /// Of each region's client the longest operation during the drain, the shortest of them first.
    pub pauses: Vec<Pause>,
    /// Seconds in which operations were counted, for `ops_per_s_over_time`.
    pub part_seconds: f64,
    /// Operations per second that ended in each part of the time, before, during and after the drain.
    pub ops_per_s_over_time: Vec<f64>,
    /// Pages that were checked at the end.
    pub pages_checked: u64,
    /// Faults, bytes and errors.
    #[serde(flatten)]
    pub counts: Counts,
}

/// The longest operation of a region's client during the drain, in seconds from the beginning of the measurement.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Pause {
    /// The region, by its number.
    pub region: usize,
    /// When it began.
    pub began_s: f64,
    /// When it ended.
    pub ended_s: f64,
}

/// What is told while it goes on.
pub trait Progress: Sync {
    /// A stage begins.
    fn stage(&self, what: &str);
}

/// A controller and its nodes.
struct Cluster {
    // In this order: the nodes say goodbye to the controller.
    nodes: Vec<Node>,
    controller: ControllerServer,
    region_bytes: u64,
}

impl Cluster {
    fn start(region_bytes: u64) -> Result<Self, BenchError> {
        let config = Config { region_bytes, ..Config::default() };
        let any_port: SocketAddr = ([127, 0, 0, 1], 0).into();
        let started = ControllerServer::start(any_port, config, Box::new(MemoryStore::default()));
        let controller = started.map_err(|error| BenchError::Settings(error.to_string()))?;
        Ok(Self { nodes: Vec::new(), controller, region_bytes })
    }

    fn url(&self) -> String {
        format!("controller://{}", self.controller.address())
    }

    fn client(&self) -> ControllerClient {
        ControllerClient::new(&self.controller.address().to_string(), TIMEOUT)
    }

    /// Starts a node, and waits until the controller knows it.
    fn add_node(&mut self, memory_bytes: u64) -> Result<(), BenchError> {
        let listen = vec![Listen::Udp("127.0.0.1:0".to_owned())];
        let addresses = self.controller.address().to_string();
        let controller = Some(ControllerConfig::new(addresses, self.region_bytes));
        let config = NodeConfig { controller, ..NodeConfig::new(listen, memory_bytes) };
        self.nodes.push(Node::start(config).map_err(|error| BenchError::Settings(error.to_string()))?);
        let mut client = self.client();
        let end = Instant::now() + TIMEOUT;
        while client.nodes().map_err(clib)?.len() < self.nodes.len() {
            if Instant::now() > end {
                return Err(BenchError::Child("a memory node does not reach its controller".to_owned()));
            }
            thread::yield_now();
        }
        Ok(())
    }
}

/// One region's client, and the pages that it alone writes.
struct Client {
    thread: Thread,
    start: u64,
    /// The version of each page.
    versions: Vec<u64>,
    random: SmallRng,
}

/// One operation of a client.
#[derive(Clone, Copy, Debug)]
struct Done {
    began: Nanos,
    ended: Nanos,
}

impl Client {
    fn new(process: &Process, bytes: u64, number: u64) -> Result<Self, BenchError> {
        let mut thread = process.thread()?;
        let start = thread.ralloc(bytes, Permission::ReadWrite)?;
        let pages = (bytes / PAGE_BYTES as u64) as usize;
        let mut client = Self { thread, start, versions: vec![0; pages], random: SmallRng::seed_from_u64(number) };
        (0..pages).try_for_each(|page| client.write(page))?;
        Ok(client)
    }

    fn address(&self, page: usize) -> u64 {
        self.start + (page * PAGE_BYTES) as u64
    }

    fn write(&mut self, page: usize) -> Result<(), BenchError> {
        self.versions[page] += 1;
        let content = content(self.address(page), self.versions[page]);
        Ok(self.thread.rwrite(self.address(page), &content)?)
    }

    fn check(&mut self, page: usize) -> Result<(), BenchError> {
        let mut bytes = [0; PAGE_BYTES];
        self.thread.rread(self.address(page), &mut bytes)?;
        if bytes == content(self.address(page), self.versions[page]) { Ok(()) } else { Err(BenchError::WrongValues(1)) }
    }

    /// Reads and writes pages at random until told to stop.
    fn work(&mut self, stop: &AtomicBool) -> Result<Vec<Done>, BenchError> {
        let mut done = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let page = self.random.random_range(0..self.versions.len());
            let began = yonder::clock::now();
            if self.random.random_bool(0.5) { self.write(page) } else { self.check(page) }?;
            done.push(Done { began, ended: yonder::clock::now() });
        }
        Ok(done)
    }
}

/// The bytes of a page: its address and version in every word, so that a torn page is seen.
fn content(address: u64, version: u64) -> [u8; PAGE_BYTES] {
    let mut bytes = [0; PAGE_BYTES];
    for (number, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(address ^ version.rotate_left(40) ^ number as u64).to_le_bytes());
    }
    bytes
}

/// Runs the benchmark.
pub fn run(settings: &Settings, progress: &dyn Progress) -> Result<MigrateResult, BenchError> {
    let Settings { regions, region_bytes, duration } = *settings;
    if regions == 0 || !region_bytes.is_power_of_two() {
        return Err(BenchError::Settings(
            "regions are at least one, and of a power of two: type --regions 4 --region-size 64MiB".to_owned(),
        ));
    }
    let mut cluster = Cluster::start(region_bytes)?;
    let room = ROOM * regions as u64 * region_bytes;
    cluster.add_node(room)?;
    let process = Process::create(&cluster.url())?;
    progress.stage("filling");
    let clients = (0..regions as u64).map(|number| Client::new(&process, region_bytes, number));
    let mut clients = clients.collect::<Result<Vec<_>, _>>()?;
    cluster.add_node(room)?;
    progress.stage("measuring");
    let before = measured(&mut clients, || {
        pause(duration);
        Ok(())
    })?;
    progress.stage("draining");
    let mut controller = cluster.client();
    let source = cluster.nodes[0].addresses()[0].to_string();
    let during = measured(&mut clients, || {
        controller.drain(&source, TIMEOUT).map_err(clib)?;
        pause(duration);
        Ok(())
    })?;
    let drain_seconds = (during.seconds() - duration.as_secs_f64()).max(0.0);
    progress.stage("checking");
    for client in &mut clients {
        (0..client.versions.len()).try_for_each(|page| client.check(page))?;
    }
    let pages_checked = clients.iter().map(|client| client.versions.len() as u64).sum();
    let stats = cluster.nodes[0].stats();
    let mut result = summary(settings, &before, &during);
    (result.drain_seconds, result.pages_checked) = (drain_seconds, pages_checked);
    result.drain_ended_s = result.drain_began_s + drain_seconds;
    (result.moved_bytes, result.held_up_max_us) = (stats.moved_bytes, stats.longest_move_pause_ns as f64 / 1e3);
    drop(clients);
    drop(process);
    Ok(result)
}

/// What the clients did while something else happened.
struct Phase {
    began: Nanos,
    ended: Nanos,
    of_clients: Vec<Vec<Done>>,
}

impl Phase {
    fn seconds(&self) -> f64 {
        (self.ended - self.began) as f64 / 1e9
    }
}

fn measured(clients: &mut [Client], happens: impl FnOnce() -> Result<(), BenchError>) -> Result<Phase, BenchError> {
    let stop = AtomicBool::new(false);
    let began = yonder::clock::now();
    let of_clients = thread::scope(|scope| {
        let working: Vec<_> = clients.iter_mut().map(|client| scope.spawn(|| client.work(&stop))).collect();
        let happened = happens();
        stop.store(true, Ordering::Relaxed);
        let done = working.into_iter().map(|client| client.join().expect("a client does not panic"));
        let done = done.collect::<Result<Vec<_>, _>>();
        happened.and(done)
    })?;
    Ok(Phase { began, ended: yonder::clock::now(), of_clients })
}

/// Waits for a time that is measured.
fn pause(duration: Duration) {
    thread::sleep(duration);
}

fn summary(settings: &Settings, before: &Phase, during: &Phase) -> MigrateResult {
    let mut latency = LatencyRecorder::new();
    for done in before.of_clients.iter().flatten() {
        latency.record(done.ended - done.began);
    }
    let longest = |of_client: &Vec<Done>| of_client.iter().max_by_key(|done| done.ended - done.began).copied();
    let mut pauses: Vec<(usize, Done)> =
        during.of_clients.iter().enumerate().filter_map(|(client, of)| Some((client, longest(of)?))).collect();
    pauses.sort_by_key(|(_, done)| done.ended - done.began);
    let pause_us = |at: usize| pauses.get(at).map_or(0.0, |(_, done)| (done.ended - done.began) as f64 / 1e3);
    let operations = |phase: &Phase| phase.of_clients.iter().map(Vec::len).sum::<usize>() as f64;
    let ops_per_s = operations(before) / before.seconds();
    let seconds = |time: Nanos| time.saturating_sub(before.began) as f64 / 1e9;
    let pause = |(region, done): &(usize, Done)| Pause {
        region: *region,
        began_s: seconds(done.began),
        ended_s: seconds(done.ended),
    };
    let (part_seconds, ops_per_s_over_time) = over_time(before, during);
    let ops = |phase: &Phase| phase.of_clients.iter().map(Vec::len).sum::<usize>() as u64;
    let half_bytes = (ops(before) + ops(during)) / 2 * PAGE_BYTES as u64;
    MigrateResult {
        bench: "migrate",
        regions: settings.regions,
        region_bytes: settings.region_bytes,
        moved_bytes: 0,
        drain_seconds: 0.0,
        pause_min_us: pause_us(0),
        pause_median_us: pause_us(pauses.len() / 2),
        pause_max_us: pause_us(pauses.len().saturating_sub(1)),
        held_up_max_us: 0.0,
        ops_per_s,
        ops_per_s_beside_pauses: beside(&pauses, during),
        ops_per_s_of_one: ops_per_s / settings.regions as f64,
        p50_us: latency.percentile_us(50.0),
        p99_us: latency.percentile_us(99.0),
        p999_us: latency.percentile_us(99.9),
        drain_began_s: seconds(during.began),
        drain_ended_s: 0.0,
        pauses: pauses.iter().map(pause).collect(),
        part_seconds,
        ops_per_s_over_time,
        pages_checked: 0,
        counts: Counts { fetched_bytes: half_bytes, written_bytes: half_bytes, ..Counts::default() },
    }
}

/// Operations per second that ended in each part of the time of both phases, and how long a part is.
fn over_time(before: &Phase, during: &Phase) -> (f64, Vec<f64>) {
    let nanos = during.ended - before.began;
    let part_seconds = nanos as f64 / 1e9 / PARTS as f64;
    let mut counts = vec![0u64; PARTS];
    for done in before.of_clients.iter().chain(&during.of_clients).flatten() {
        let part = (done.ended - before.began) as u128 * PARTS as u128 / u128::from(nanos.max(1));
        // What ended last ended at the end.
        counts[(part as usize).min(PARTS - 1)] += 1;
    }
    (part_seconds, counts.into_iter().map(|count| count as f64 / part_seconds).collect())
}

/// Operations per second of one client during the longest pauses of the others.
fn beside(pauses: &[(usize, Done)], during: &Phase) -> f64 {
    let (mut operations, mut client_seconds) = (0usize, 0.0);
    for (paused, pause) in pauses {
        for (_, of_client) in during.of_clients.iter().enumerate().filter(|(client, _)| client != paused) {
            let inside = of_client.iter().filter(|done| done.ended >= pause.began && done.ended <= pause.ended);
            operations += inside.count();
            client_seconds += (pause.ended - pause.began) as f64 / 1e9;
        }
    }
    if client_seconds > 0.0 { operations as f64 / client_seconds } else { 0.0 }
}

fn clib(error: yonder_controller::ClientError) -> BenchError {
    BenchError::Clib(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Silent;

    impl Progress for Silent {
        fn stage(&self, _: &str) {}
    }

    #[test]
    fn a_drained_node_loses_nothing_and_only_what_moves_pauses() {
        let settings = Settings { regions: 3, region_bytes: 1 << 20, duration: Duration::from_millis(100) };
        let result = run(&settings, &Silent).unwrap();
        assert_eq!((result.regions, result.pages_checked, result.counts.errors), (3, 768, 0));
        assert!(result.moved_bytes >= 3 << 20, "{result:?}");
        assert!(result.pause_max_us > 0.0 && result.ops_per_s > 0.0, "{result:?}");
        let end_s = result.part_seconds * PARTS as f64;
        assert!(result.drain_began_s >= 0.1 && result.drain_ended_s >= result.drain_began_s, "{result:?}");
        assert_eq!(result.pauses.len(), 3);
        for pause in &result.pauses {
            assert!(result.drain_began_s <= pause.began_s && pause.began_s < pause.ended_s, "{result:?}");
            assert!(pause.ended_s <= end_s, "{result:?}");
        }
        let longest = result.pauses.last().map(|pause| (pause.ended_s - pause.began_s) * 1e6);
        assert!(longest.is_some_and(|longest| (longest - result.pause_max_us).abs() < 1.0), "{result:?}");
        // Every operation is in one part, and each moves a page.
        let operations = result.ops_per_s_over_time.iter().sum::<f64>() * result.part_seconds;
        let moved = (result.counts.fetched_bytes + result.counts.written_bytes) as f64 / PAGE_BYTES as f64;
        assert!((operations - moved).abs() < 2.0, "{operations} operations, {moved} pages: {result:?}");
    }

    #[test]
    fn operations_are_counted_when_they_end() {
        let done = |began, ended| Done { began, ended };
        let phase = |began, ended, of_client: &[Done]| Phase { began, ended, of_clients: vec![of_client.to_vec()] };
        let second = 1_000_000_000;
        let before = phase(second, 2 * second, &[done(second, second), done(second, 2 * second - 1)]);
        let during = phase(2 * second, 3 * second, &[done(2 * second, 3 * second)]);
        let (part_seconds, over_time) = over_time(&before, &during);
        assert_eq!(part_seconds, 0.01);
        let some: Vec<_> = over_time.iter().enumerate().filter(|(_, ops)| **ops > 0.0).collect();
        assert_eq!(some, [(0, &100.0), (99, &100.0), (199, &100.0)]);
    }

    #[test]
    fn settings_that_cannot_be_say_what_to_type() {
        let settings = Settings { regions: 0, region_bytes: 3, duration: Duration::ZERO };
        assert!(run(&settings, &Silent).unwrap_err().to_string().contains("type --regions 4"));
    }
}
