//! `bench scale-clients`: up to a thousand client processes on one node. The node keeps nothing about clients, so
//! neither its memory nor what a read takes should depend on how many there are.
//!
//! The clients of a run share one rate, so that the load on the machine is the same however many there are. All are
//! started, get ready (each has its address space and its page, or the way to the one that all share), and begin
//! together when their standard input ends. They report on one standard output that all have in common, in lines that
//! are short enough to stay whole. `client` is what such a process does.
//!
//! A process that sleeps most of the time finds caches cold and is woken late, the more so the more there are. `echo`
//! shows how late: the same processes at the same pace, with a plain datagram that a plain thread sends back.

mod client;
mod echo;

use std::collections::HashMap;
use std::io::PipeWriter;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use yonder::clib::{Permission, Process, Rights, Ticket};
use yonder_load::{LatencyRecorder, LatencySummary};

use crate::children::{Child, Launch, NodeChild, Resident, lines_of};
use crate::flags::{BENCHMARK, List, byte_count, counts, positive_duration};
use crate::target::{NodeChoice, Target};
use crate::{BenchError, Counts};

pub use client::run as run_client;
use client::{PAGE_BYTES, Report};
use echo::EchoServer;

/// How long all clients of a run may take to get ready, or to end after their time.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Pause between two looks whether a client has died.
const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// Time between the beginning and the first read that counts, and what each client adds: all wake at once, and that
/// must be over. Besides there is a period, so that every client has made a read at its pace before.
const SETTLE: Duration = Duration::from_millis(50);
const SETTLE_PER_CLIENT: Duration = Duration::from_millis(1);
/// Node pages for each client: its own, and room so that allocations are easy.
const NODE_PAGES_PER_CLIENT: u64 = 4;
const NODE_PAGES_MIN: u64 = 4096;

/// Whose memory clients use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Spaces {
    /// Each has an address space of its own, with one page.
    Own,
    /// All use one, and the same page.
    Shared,
    /// None: datagrams that a thread of the benchmark sends back as they are, to compare.
    Echo,
}

/// Settings of a run.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// The node
    #[command(flatten)]
    pub node: NodeChoice,
    /// Numbers of client processes, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "COUNTS", default_value = "1,10,100,1000", value_parser = counts)]
    pub clients: List<usize>,
    /// Reads per second, of all processes together
    #[arg(long, help_heading = BENCHMARK, value_name = "RPS", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    pub rate: u32,
    /// Size of a read
    #[arg(long = "size", help_heading = BENCHMARK, value_name = "SIZE", default_value = "16", value_parser = byte_count)]
    pub read_bytes: usize,
    /// Measured time of each run
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "5s", value_parser = positive_duration)]
    pub duration: Duration,
}

/// What one client process does.
#[derive(Clone, PartialEq, Debug)]
pub struct ClientTask {
    /// The node, or the echo that is asked in its place.
    pub node: String,
    /// The address space that all share, and where its page is; none if the client makes one of its own.
    pub shared: Option<(Ticket, u64)>,
    /// Bytes of a read.
    pub read_bytes: usize,
    /// Time from one read to the next.
    pub period: Duration,
    /// When the first read that counts is due, after the beginning. As long passes between the last and the end.
    pub first: Duration,
    /// Until when reads are made, after the beginning.
    pub duration: Duration,
}

impl ClientTask {
    /// Time before the first read that counts in which reads are made at the same pace: whole periods in the half of it
    /// that is farther from the beginning, and one if it can be.
    fn unmeasured(&self) -> Duration {
        let period = self.period.as_nanos().max(1);
        let periods = (self.first.as_nanos() / 2 / period).max(1);
        let time = self.period * u32::try_from(periods).unwrap_or(u32::MAX);
        if time <= self.first { time } else { Duration::ZERO }
    }
}

/// One number of clients; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct ClientsResult {
    /// Always `scale-clients`.
    pub bench: &'static str,
    /// The node's URL.
    pub node: String,
    /// `own` or `shared`; `echo` for the same processes without a node.
    pub spaces: Spaces,
    /// Client processes.
    pub clients: usize,
    /// Reads per second that all together should do.
    pub offered_per_s: f64,
    /// Bytes of a read.
    pub size_bytes: usize,
    /// Measured seconds.
    pub seconds: f64,
    /// Reads per second of all clients.
    pub ops_per_s: f64,
    /// Median latency, from when a read was sent.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Median latency, as a multiple of the echo's with as many processes; absent for the echo itself.
    pub p50_ratio_to_echo: Option<f64>,
    /// The same of the 99th percentile.
    pub p99_ratio_to_echo: Option<f64>,
    /// The same of the 99.9th percentile.
    pub p999_ratio_to_echo: Option<f64>,
    /// CPU time of the node for each read while measuring, or of the echo's thread for each datagram, in microseconds;
    /// absent where the kernel does not tell.
    pub node_cpu_us_per_op: Option<f64>,
    /// The node's own memory while all clients are there, in bytes; absent, as the next ones, for a node that was there
    /// and for the echo.
    pub node_private_bytes: Option<u64>,
    /// Memory of the node that clients use.
    pub node_lent_bytes: Option<u64>,
    /// What the node says that its tables take.
    pub node_own_bytes: Option<u64>,
    /// By how much the node's own memory has grown since before the clients came, for each client.
    pub node_private_bytes_per_client: Option<f64>,
    /// The same of what the node says that its tables take.
    pub node_own_bytes_per_client: Option<f64>,
    /// Faults, bytes and errors.
    #[serde(flatten)]
    pub counts: Counts,
}

/// A node, and memory of it that clients share.
pub struct Bench<'a> {
    settings: Settings,
    launch: &'a dyn Launch,
    // Before the target: an address space ends before its node does.
    _process: Process,
    target: Target,
    shared: (Ticket, u64),
    echo: EchoServer,
    /// What the echo took, by the number of clients.
    echoed: HashMap<usize, LatencySummary>,
}

/// Client processes, their way to begin, and their lines.
struct Clients {
    children: Vec<Child>,
    begin: Option<PipeWriter>,
    lines: Receiver<String>,
}

/// What the clients of a run have measured, and what it cost the other side.
#[derive(Debug)]
struct Measured {
    latency: LatencyRecorder,
    errors: u64,
    /// CPU time while it was measured.
    cpu: Option<Duration>,
}

/// The node's memory at some moment.
#[derive(Clone, Copy, Debug)]
struct NodeMemory {
    resident: Resident,
    own_bytes: u64,
}

impl<'a> Bench<'a> {
    /// Takes a node.
    pub fn prepare(settings: &Settings, launch: &'a dyn Launch) -> Result<Self, BenchError> {
        let most = settings.clients.iter().copied().max().unwrap_or(0);
        if most == 0 || settings.read_bytes as u64 > PAGE_BYTES || settings.rate == 0 {
            return Err(BenchError::Settings(format!(
                "there are clients, and a read fits into {PAGE_BYTES} bytes: type --clients 1,10,100 --size 16 --rate 2000"
            )));
        }
        let pages = (NODE_PAGES_PER_CLIENT * most as u64).max(NODE_PAGES_MIN);
        let target = Target::new(&settings.node, launch, pages * PAGE_BYTES, Some(PAGE_BYTES))?;
        let process = target.process(1, Duration::ZERO)?;
        let mut thread = process.thread()?;
        let address = thread.ralloc(PAGE_BYTES, Permission::ReadWrite)?;
        client::prepare_page(&mut thread, address)?;
        let shared = (process.ticket(Rights::Read)?, address);
        let (echo, echoed) = (EchoServer::start()?, HashMap::new());
        Ok(Self { settings: settings.clone(), launch, _process: process, target, shared, echo, echoed })
    }

    /// Runs `clients` processes. The echo with as many comes first, for others to be compared with it.
    pub fn run(&mut self, clients: usize, spaces: Spaces) -> Result<ClientsResult, BenchError> {
        let before = self.node_memory(spaces)?;
        let mut running = self.start(clients, spaces)?;
        running.wait_until_ready()?;
        let during = self.node_memory(spaces)?;
        let settle = settle(clients, self.period(clients));
        let measured = running.measure(settle, self.settings.duration, &|| self.server_cpu_time(spaces))?;
        let summary = measured.latency.summary();
        if spaces == Spaces::Echo {
            self.echoed.insert(clients, summary);
        }
        Ok(self.result(clients, spaces, before.zip(during), (&summary, &measured)))
    }

    /// Time from one read of a client to the next.
    fn period(&self, clients: usize) -> Duration {
        Duration::from_secs_f64(clients as f64 / f64::from(self.settings.rate))
    }

    fn start(&self, clients: usize, spaces: Spaces) -> Result<Clients, BenchError> {
        let (wait, begin) = std::io::pipe()?;
        let (read, write) = std::io::pipe()?;
        let period = self.period(clients);
        let settle = settle(clients, period);
        let mut running = Clients { children: Vec::with_capacity(clients), begin: Some(begin), lines: lines_of(read)? };
        for number in 0..clients {
            let task = ClientTask {
                node: self.url(spaces),
                shared: (spaces == Spaces::Shared).then_some(self.shared),
                read_bytes: self.settings.read_bytes,
                period,
                first: settle + period.mul_f64(number as f64 / clients as f64),
                duration: settle + self.settings.duration,
            };
            let mut command = self.launch.client(&task);
            command.stdin(Stdio::from(wait.try_clone()?)).stdout(Stdio::from(write.try_clone()?));
            running.children.push(Child::spawn(&mut command, "a client process")?);
        }
        Ok(running)
    }

    fn url(&self, spaces: Spaces) -> String {
        if spaces == Spaces::Echo { self.echo.url() } else { self.target.url().to_owned() }
    }

    /// CPU time that whoever answers has used until now.
    fn server_cpu_time(&self, spaces: Spaces) -> Option<Duration> {
        if spaces == Spaces::Echo { self.echo.cpu_time() } else { self.target.node.as_ref()?.child.threads_cpu_time() }
    }

    fn node_memory(&self, spaces: Spaces) -> Result<Option<NodeMemory>, BenchError> {
        let memory = |node: &NodeChild| {
            Ok::<_, BenchError>(NodeMemory { resident: node.child.resident()?, own_bytes: node.own_bytes()? })
        };
        self.target.node.as_ref().filter(|_| spaces != Spaces::Echo).map(memory).transpose()
    }

    fn result(
        &self,
        clients: usize,
        spaces: Spaces,
        memory: Option<(NodeMemory, NodeMemory)>,
        (summary, measured): (&LatencySummary, &Measured),
    ) -> ClientsResult {
        let seconds = self.settings.duration.as_secs_f64();
        let growth = |value: fn(&NodeMemory) -> u64| {
            memory.map(|(before, during)| (value(&during) as f64 - value(&before) as f64) / clients as f64)
        };
        let echoed = self.echoed.get(&clients).filter(|_| spaces != Spaces::Echo);
        let ratio = |value: fn(&LatencySummary) -> f64| {
            echoed.filter(|echo| value(echo) > 0.0).map(|echo| value(summary) / value(echo))
        };
        ClientsResult {
            bench: "scale-clients",
            node: self.url(spaces),
            spaces,
            clients,
            offered_per_s: f64::from(self.settings.rate),
            size_bytes: self.settings.read_bytes,
            seconds,
            ops_per_s: summary.count as f64 / seconds,
            p50_us: summary.p50_us,
            p99_us: summary.p99_us,
            p999_us: summary.p999_us,
            p50_ratio_to_echo: ratio(|latency| latency.p50_us),
            p99_ratio_to_echo: ratio(|latency| latency.p99_us),
            p999_ratio_to_echo: ratio(|latency| latency.p999_us),
            node_cpu_us_per_op: measured.cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / summary.count.max(1) as f64),
            node_private_bytes: memory.map(|(_, during)| during.resident.private),
            node_lent_bytes: memory.map(|(_, during)| during.resident.shared),
            node_own_bytes: memory.map(|(_, during)| during.own_bytes),
            node_private_bytes_per_client: growth(|memory| memory.resident.private),
            node_own_bytes_per_client: growth(|memory| memory.own_bytes),
            counts: Counts {
                fetched_bytes: summary.count * self.settings.read_bytes as u64,
                errors: measured.errors,
                ..Counts::default()
            },
        }
    }
}

/// Time from the beginning until the first read that counts is due.
fn settle(clients: usize, period: Duration) -> Duration {
    SETTLE + SETTLE_PER_CLIENT * clients as u32 + period
}

impl Clients {
    fn wait_until_ready(&mut self) -> Result<(), BenchError> {
        let give_up = Instant::now() + TIMEOUT;
        let mut ready = 0;
        while ready < self.children.len() {
            match self.next_report(give_up)? {
                Report::Ready => ready += 1,
                other => {
                    return Err(BenchError::Child(format!("a client process reports {other:?} before it may begin")));
                }
            }
        }
        Ok(())
    }

    /// Lets all begin, and collects what they have measured. `cpu_time` tells what the other side has used until now.
    fn measure(
        &mut self,
        settle: Duration,
        duration: Duration,
        cpu_time: &dyn Fn() -> Option<Duration>,
    ) -> Result<Measured, BenchError> {
        self.begin = None;
        let begin = Instant::now();
        std::thread::sleep(settle);
        let before = cpu_time();
        std::thread::sleep((begin + settle + duration).saturating_duration_since(Instant::now()));
        let cpu = cpu_time().zip(before).map(|(after, before)| after.saturating_sub(before));
        let give_up = Instant::now() + settle + TIMEOUT;
        let mut measured = Measured { latency: LatencyRecorder::new(), errors: 0, cpu };
        let mut ended = 0;
        while ended < self.children.len() {
            match self.next_report(give_up)? {
                Report::Latencies(some) => some.into_iter().for_each(|took| measured.latency.record(took)),
                Report::Done(failed) => {
                    measured.errors += failed;
                    ended += 1;
                }
                Report::Ready | Report::Failed(_) => {
                    return Err(BenchError::Child("a client process is ready twice".to_owned()));
                }
            }
        }
        Ok(measured)
    }

    fn next_report(&mut self, give_up: Instant) -> Result<Report, BenchError> {
        loop {
            match self.lines.recv_timeout(LOOK_PAUSE) {
                Ok(line) => return Report::parse(&line),
                Err(RecvTimeoutError::Timeout) if Instant::now() < give_up => {
                    // One that has ended and is not heard of was ended by somebody.
                    if self.begin.is_some() && !self.children.iter_mut().all(Child::is_running) {
                        return Err(BenchError::Child("a client process has died".to_owned()));
                    }
                }
                Err(_) => return Err(BenchError::Child("client processes do not report".to_owned())),
            }
        }
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // Those that wait end as well.
        self.begin = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_keep_their_pace_before_the_first_read_that_counts() {
        let unmeasured = |period, first| {
            let (period, first) = (Duration::from_millis(period), Duration::from_millis(first));
            let task = ClientTask {
                node: String::new(),
                shared: None,
                read_bytes: 16,
                period,
                first,
                duration: Duration::ZERO,
            };
            task.unmeasured().as_millis()
        };
        assert_eq!(unmeasured(1, 101), 50, "half of the time");
        assert_eq!(unmeasured(500, 1550), 500);
        assert_eq!(unmeasured(90, 100), 90, "one, if it can be");
        assert_eq!(unmeasured(200, 100), 0, "none before the beginning");
        for clients in [1, 10, 1000] {
            let period = Duration::from_secs(clients as u64);
            assert!(settle(clients, period) > period, "there is always time for one");
        }
    }
}
