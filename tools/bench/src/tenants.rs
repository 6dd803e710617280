//! `bench tenants`: what a tenant of a memory node gets beside one that does all it can to be in its way.
//!
//! The node runs inside this process, with one data thread of each kind, under the identities of a cluster that is made
//! for it. The victim keeps some reads under way all the time, or what else it is to do: alone, beside a *twin*, which
//! is a second tenant that does just the same, and beside each attack, which has threads, lanes and an identity of its
//! own. What it gets beside the twin is its fair share.
//!
//! Clients and node share the CPUs of one machine. So that it is the node's turns that are measured and not those of
//! its scheduler, all threads of an attack together have the weight of the twin's one: each is as nice as that takes.
//! Node and victim wait for them all the same. With `--own-cpus` half of the CPUs are of node and victim alone, and
//! the others of the twin, or of an attack, whose threads are not nice then.

mod attack;
mod errand;
mod halves;
mod result;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use clap::{Args, ValueEnum};
use yonder::units::Nanos;
use yonder_client::{Operation, Outcome};
use yonder_fabric::lane::{CallError, Data, Lane, NodeAddress, NodeSession, call};
use yonder_identity::{Authority, Credential, Role};
use yonder_load::LatencyRecorder;
use yonder_node::{CpuList, Listen, Node, NodeConfig};
use yonder_session::Protection;
use yonder_wire::{AllocateRequest, Backing, Body, Header, Kind, Permission};

use crate::BenchError;
use crate::children::folder;
use crate::flags::{BENCHMARK, positive_count, positive_duration};

pub use attack::Attack;
use errand::Errand;
use halves::Halves;
pub use result::TenantsResult;

/// Memory of each tenant.
const MEMORY_BYTES: u64 = 32 << 20;
/// Memory of the node: more than both have.
const NODE_BYTES: u64 = 2 << 30;
/// Pages of the node.
const PAGE_BYTES: u64 = 64 << 10;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Part of a run that comes before it, unmeasured.
const WARM_UP_SHARE: u32 = 4;
/// Steps of a walk of the victim.
const WALK_STEPS: u32 = 16;
/// Bytes of a message.
const MESSAGE_BYTES: usize = 64 << 10;

/// How the node is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Transport {
    /// Datagrams over loopback
    Udp,
    /// Connections over loopback
    Tcp,
}

/// What the victim, and its twin, ask the node for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Work {
    /// Some reads at a time, of its data threads
    Reads,
    /// Address spaces made and ended, of its slow path
    Spaces,
    /// Short walks along a list, of its extend path
    Calls,
}

impl Work {
    /// What it is asked for one after the other; `None` for reads.
    fn errand(self, lane: &mut Lane, memory: Memory) -> Result<Option<Errand>, BenchError> {
        match self {
            Self::Reads => Ok(None),
            Self::Spaces => Ok(Some(Errand::Space)),
            Self::Calls => Errand::walk(lane, memory, WALK_STEPS).map(Some),
        }
    }
}

/// Settings of a run.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct Settings {
    /// How the node is reached
    #[arg(long, help_heading = BENCHMARK, value_name = "KIND", default_value = "udp")]
    pub transport: Transport,
    /// What the victim does
    #[arg(long, help_heading = BENCHMARK, value_name = "WORK", default_value = "reads")]
    pub work: Work,
    /// Reads of the victim that are under way
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 4, value_parser = positive_count)]
    pub depth: usize,
    /// Bytes of a read of the victim
    #[arg(long, help_heading = BENCHMARK, value_name = "BYTES", default_value_t = 4096, value_parser = positive_count)]
    pub size: usize,
    /// Threads of an attack, each with a lane
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 2, value_parser = positive_count)]
    pub attackers: usize,
    /// Half of the CPUs are of node and victim alone, and the others of the twin and attacks
    #[arg(long, help_heading = BENCHMARK)]
    pub own_cpus: bool,
    /// CPUs that the node's data threads have alone, such as 0
    #[arg(long, help_heading = BENCHMARK, value_name = "LIST")]
    pub data_cpus: Option<CpuList>,
    /// What the victim is measured beside, in turn
    #[arg(long, help_heading = BENCHMARK, value_name = "ATTACKS", value_delimiter = ',')]
    #[arg(default_values_t = Attack::ALL)]
    pub attacks: Vec<Attack>,
    /// Turns, of which the medians are told
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 5, value_parser = positive_count)]
    pub turns: usize,
    /// Measured time of each run; a warm-up comes before
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "1s", value_parser = positive_duration)]
    pub duration: Duration,
}

/// What is told while it goes on.
pub trait Progress {
    /// A part of so many of all runs is done.
    fn done(&self, part: f64, beside: &str);
}

/// A node and its tenants.
pub(crate) struct Scene {
    node: Node,
    victim: Arc<NodeSession>,
    pub(crate) other: Arc<NodeSession>,
    _folder: tempfile::TempDir,
}

/// An address space on the node, and memory there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) pid: u32,
    pub(crate) capability: u128,
    pub(crate) address: u64,
}

/// What operations carry and bring: any bytes.
pub(crate) struct Any(Box<[u8]>);

impl Default for Any {
    fn default() -> Self {
        Self(vec![7; MESSAGE_BYTES].into())
    }
}

impl Data for Any {
    fn copy_out(&mut self, _token: u64, _offset: u64, into: &mut [u8]) {
        into.copy_from_slice(&self.0[..into.len()]);
    }

    fn copy_in(&mut self, _token: u64, _offset: u64, bytes: &[u8]) {
        self.0[..bytes.len()].copy_from_slice(bytes);
    }

    fn answer(&mut self, _token: u64, _header: &Header, _payload: &[u8]) {}
}

impl Scene {
    fn start(transport: Transport, data_cpus: Option<CpuList>) -> Result<Self, BenchError> {
        let wrong = |error: &dyn std::fmt::Display| BenchError::Settings(error.to_string());
        let folder = folder("tenants")?;
        let mut authority = Authority::init(&folder.path().join("authority")).map_err(|error| wrong(&error))?;
        let mut member = |role, name: &str| {
            let path = folder.path().join(format!("{name}.pem"));
            authority.add(role, name, DAY)?.write(&path)?;
            Credential::load(&path).map(Arc::new)
        };
        let mut made = || Ok((member(Role::Node, "n1")?, member(Role::Tenant, "a")?, member(Role::Tenant, "b")?));
        let (of_node, victim, other) = made().map_err(|error: yonder_identity::IdentityError| wrong(&error))?;
        let at = "127.0.0.1:0".to_owned();
        let listen = if transport == Transport::Udp { Listen::Udp(at) } else { Listen::Tcp(at) };
        let config = NodeConfig {
            page_bytes: Some(PAGE_BYTES),
            data_threads: Some(std::num::NonZeroUsize::MIN),
            data_cpus,
            credential: Some(of_node),
            ..NodeConfig::new(vec![listen], NODE_BYTES)
        };
        let node = Node::start(config).map_err(|error| wrong(&error))?;
        let session = |of| Arc::new(NodeSession::with(Some(of), Protection::Encrypted));
        Ok(Self { node, victim: session(victim), other: session(other), _folder: folder })
    }

    /// Where the node listens, as `host:port`.
    pub(crate) fn address(&self) -> &str {
        match &self.node.addresses()[0] {
            Listen::Udp(address) | Listen::Tcp(address) => address,
            Listen::Shm(_) => unreachable!("no socket was asked for"),
        }
    }

    pub(crate) fn lane(&self, session: &Arc<NodeSession>, depth: usize) -> Result<Lane, BenchError> {
        let wrong = |error: &dyn std::fmt::Display| BenchError::Settings(error.to_string());
        let addresses = NodeAddress::resolve(&self.node.addresses()[0].to_string()).map_err(|error| wrong(&error))?;
        let opened = Lane::open(&addresses[0], depth, session).map_err(|error| wrong(&error))?;
        Ok(opened.lane)
    }

    /// An address space with memory that is there.
    pub(crate) fn memory(&self, lane: &mut Lane) -> Result<Memory, BenchError> {
        let refused = |error: CallError| BenchError::Settings(format!("the node refuses memory: {error}"));
        let asked = |kind, pid, capability, length| Operation {
            kind,
            pid,
            capability,
            address: 0,
            length,
            body: &[],
            deadline: 0,
            token: 0,
        };
        let made = call(lane, &asked(Kind::CreateSpace, 0, 0, 0), &[]).map_err(refused)?.header;
        let (permission, backing) = (Permission::ReadWrite, Backing::Now);
        let request = AllocateRequest { bytes: MEMORY_BYTES, permission, backing, from: 0, to: 0 };
        let mut arguments = [0; AllocateRequest::BYTES];
        request.write_to(&mut arguments);
        let operation = asked(Kind::Allocate, made.pid, made.capability, arguments.len() as u64);
        let address = call(lane, &operation, &arguments).map_err(refused)?.header.address;
        Ok(Memory { pid: made.pid, capability: made.capability, address })
    }
}

/// Counts an attacker that attacks from now on, or has failed, when it is dropped.
pub(crate) struct Ready<'a>(&'a AtomicUsize);

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// What one run of the victim came to.
struct Run {
    ops_per_s: f64,
    latency: LatencyRecorder,
    attacks_per_s: f64,
}

/// Keeps `depth` operations under way until `end`: each as `next` says, latencies after `from` are recorded.
pub(crate) fn drive(
    lane: &mut Lane,
    depth: usize,
    next: &mut dyn FnMut(u64) -> Operation<'static>,
    mut ended: impl FnMut(Nanos, Nanos, Outcome) -> bool,
) {
    let (mut data, mut number, mut begun) = (Any::default(), 0, vec![0; depth]);
    let mut free: Vec<usize> = (0..depth).collect();
    loop {
        let now = yonder_clock::now();
        while let Some(slot) = free.pop() {
            let operation = Operation { token: slot as u64, deadline: now + 5_000_000_000, ..next(number) };
            if lane.submit(&operation, now).is_err() {
                free.push(slot);
                break;
            }
            (begun[slot], number) = (now, number + 1);
        }
        lane.poll(now, &mut data);
        let now = yonder_clock::now();
        let mut has_ended = false;
        while let Some(completion) = lane.completion() {
            let slot = completion.token as usize;
            free.push(slot);
            has_ended = true;
            if !ended(begun[slot], now, completion.outcome) {
                return;
            }
        }
        if !has_ended {
            if !ended(now, now, Outcome::TimedOut) {
                return;
            }
            lane.wait(now, Duration::from_millis(10));
        }
    }
}

/// Reads of one tenant, at random.
fn reads(memory: Memory, size: usize) -> impl FnMut(u64) -> Operation<'static> {
    let items = MEMORY_BYTES / size as u64;
    move |number| {
        let item = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % items;
        let Memory { pid, capability, address } = memory;
        let address = address + item * size as u64;
        let length = size as u64;
        Operation { kind: Kind::Read, pid, capability, address, length, body: &[], deadline: 0, token: 0 }
    }
}

/// Runs the benchmark: alone first, then beside the twin and each attack, in each turn.
pub fn run(settings: &Settings, progress: &dyn Progress) -> Result<Vec<TenantsResult>, BenchError> {
    if settings.size as u64 > MEMORY_BYTES.min(MESSAGE_BYTES as u64) {
        return Err(BenchError::Settings(format!("reads have at most {MESSAGE_BYTES} bytes: type --size 4096")));
    }
    let halves = settings.own_cpus.then(Halves::of_this_thread).transpose()?;
    let attacks = settings.attacks.iter().copied().filter(|attack| *attack != Attack::Twin);
    let beside: Vec<Option<Attack>> = [None, Some(Attack::Twin)].into_iter().chain(attacks.map(Some)).collect();
    let mut runs: Vec<Vec<Run>> = beside.iter().map(|_| Vec::new()).collect();
    let all = settings.turns * beside.len();
    for turn in 0..settings.turns {
        // A node of its own for each: nothing of an attack is left behind.
        for (place, attack) in beside.iter().enumerate() {
            let name = attack.map_or_else(|| "none".to_owned(), |attack| attack.to_string());
            progress.done((turn * beside.len() + place) as f64 / all as f64, &name);
            runs[place].push(measure(settings, *attack, halves.as_ref())?);
        }
    }
    let [alone_p99, twin_p99] = [0, 1].map(|place| median(&runs[place], p99));
    let fair = median(&runs[1], |run| run.ops_per_s);
    let results = beside.iter().zip(&runs).map(|(attack, runs)| {
        let (ops_per_s, p99_us) = (median(runs, |run| run.ops_per_s), median(runs, p99));
        TenantsResult {
            bench: "tenants",
            transport: if settings.transport == Transport::Udp { "udp" } else { "tcp" },
            beside: attack.map_or_else(|| "none".to_owned(), |attack| attack.to_string()),
            work: settings.work.to_possible_value().expect("none is skipped").get_name().to_owned(),
            depth: settings.depth,
            size_bytes: settings.size,
            attackers: settings.attackers,
            own_cpus: settings.own_cpus,
            data_cpus: settings.data_cpus.as_ref().map(CpuList::to_string),
            turns: settings.turns,
            ops_per_s,
            ops_per_s_min: runs.iter().map(|run| run.ops_per_s).fold(f64::INFINITY, f64::min),
            ops_per_s_max: runs.iter().map(|run| run.ops_per_s).fold(0.0, f64::max),
            p50_us: median(runs, |run| run.latency.percentile_us(50.0)),
            p99_us,
            p99_us_max: runs.iter().map(p99).fold(0.0, f64::max),
            p999_us: median(runs, |run| run.latency.percentile_us(99.9)),
            of_fair_share: ops_per_s / fair,
            p99_of_alone: p99_us / alone_p99,
            p99_of_twin: p99_us / twin_p99,
            attacks_per_s: median(runs, |run| run.attacks_per_s),
        }
    });
    Ok(results.collect())
}

fn p99(run: &Run) -> f64 {
    run.latency.percentile_us(99.0)
}

fn median(runs: &[Run], of: impl Fn(&Run) -> f64) -> f64 {
    let mut all: Vec<f64> = runs.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// One run of the victim beside an attack.
fn measure(settings: &Settings, attack: Option<Attack>, halves: Option<&Halves>) -> Result<Run, BenchError> {
    if let Some(halves) = halves {
        // The node leaves CPUs to its data threads by itself, of all that there are.
        if settings.data_cpus.is_some() { halves.take_all() } else { halves.take_own() }
    }
    let scene = Scene::start(settings.transport, settings.data_cpus.clone())?;
    if let Some(halves) = halves {
        halves.take_own();
    }
    let mut lane = scene.lane(&scene.victim, settings.depth)?;
    let memory = scene.memory(&mut lane)?;
    let (stop, done, ready) = (AtomicBool::new(false), AtomicU64::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let mut attackers = Vec::new();
        let threads = attack.map_or_else(Vec::new, |attack| attack.threads(settings.attackers));
        let (count, nice) = (threads.len(), attack::nice_of(threads.len()));
        for (kind, number) in threads {
            let (scene, stop, done, ready) = (&scene, &stop, &done, Ready(&ready));
            let body = move || {
                match halves {
                    Some(halves) => halves.take_others(),
                    None => attack::be_nice(nice),
                }
                attack::run(kind, number, scene, settings, ready, (stop, done))
            };
            attackers.push(scope.spawn(body));
        }
        // The attack has begun before anything is measured.
        while ready.load(Ordering::Acquire) < count {
            std::thread::yield_now();
        }
        let run = of_victim(settings, &mut lane, memory, &done);
        stop.store(true, Ordering::Relaxed);
        for attacker in attackers {
            attacker.join().expect("an attacker does not panic")?;
        }
        run
    })
}

fn of_victim(settings: &Settings, lane: &mut Lane, memory: Memory, done: &AtomicU64) -> Result<Run, BenchError> {
    let (mut latency, errand) = (LatencyRecorder::new(), settings.work.errand(lane, memory)?);
    let from = yonder_clock::now() + (settings.duration / WARM_UP_SHARE).as_nanos() as Nanos;
    let end = from + settings.duration.as_nanos() as Nanos;
    let (mut wrong, mut before) = (0, None);
    let mut ended = |begun: Nanos, now: Nanos, is_done: bool| {
        if now >= from {
            before.get_or_insert_with(|| done.load(Ordering::Relaxed));
        }
        if begun < now && now >= from {
            latency.record(now - begun);
            wrong += u64::from(!is_done);
        }
        now < end
    };
    match errand {
        None => drive(lane, settings.depth, &mut reads(memory, settings.size), |begun, now, outcome| {
            ended(begun, now, outcome == Outcome::Done)
        }),
        Some(errand) => {
            let mut begun = yonder_clock::now();
            loop {
                let is_done = errand.run(lane).is_ok();
                let now = yonder_clock::now();
                if !ended(begun, now, is_done) {
                    break;
                }
                begun = now;
            }
        }
    }
    if wrong > 0 {
        return Err(BenchError::WrongValues(wrong));
    }
    let seconds = settings.duration.as_secs_f64();
    let attacks = done.load(Ordering::Relaxed) - before.unwrap_or(0);
    Ok(Run { ops_per_s: latency.len() as f64 / seconds, latency, attacks_per_s: attacks as f64 / seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Silent;

    impl Progress for Silent {
        fn done(&self, _part: f64, _beside: &str) {}
    }

    /// Every attack runs, and the victim's reads are all right beside it.
    #[test]
    fn the_victim_reads_beside_every_attack() {
        for transport in [Transport::Udp, Transport::Tcp] {
            let settings = Settings {
                transport,
                work: Work::Reads,
                depth: 2,
                size: 64,
                attackers: 1,
                own_cpus: false,
                data_cpus: None,
                attacks: Attack::ALL.to_vec(),
                turns: 1,
                // Long enough for an attack whose requests take long, beside other tests.
                duration: Duration::from_millis(200),
            };
            let results = run(&settings, &Silent).unwrap();
            assert_eq!(results.len(), 1 + Attack::ALL.len());
            assert!((results[1].of_fair_share - 1.0).abs() < 1e-9, "the twin is the measure");
            for result in &results {
                assert!(result.ops_per_s > 0.0, "{transport:?}: nothing is read beside {}", result.beside);
                assert!(result.beside == "none" || result.attacks_per_s > 0.0, "{} does nothing", result.beside);
            }
        }
    }
}
