//! `bench rread` and `bench rwrite`: reads and writes of a remote address space, by size, by clients and by depth.
//!
//! [`Bench::prepare`] takes a node and fills the memory; [`Bench::points`] are what is measured: the latency of one
//! thread that waits for each operation, at each size; then throughput at one size, by threads that wait and by
//! asynchronous operations of one thread. Each point is a warm-up and a run. Every read is checked; so are writes, by
//! reads afterwards.

use std::sync::Barrier;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use yonder::clib::{Permission, Process, Thread};
use yonder::units::parse_bytes;
use yonder_load::LatencyRecorder;

use crate::children::Launch;
use crate::flags::{BENCHMARK, List, byte_count, counts, duration, positive_duration};

pub use crate::flow::Direction;
use crate::flow::{Asynchronous, Flow, Items, Load, Measured, Synchronous, check, drive, stamp};
use crate::target::{NodeChoice, Target};
use crate::{BenchError, Counts};

/// Part of a point's time that comes before it, unmeasured.
const WARM_UP_SHARE: u32 = 4;
/// Bytes of a write that fills memory.
const FILL_BYTES: usize = 32 << 10;
/// Items that are read to check the writes of a point.
const CHECKED_ITEMS: u64 = 256;
/// Memory of a started node, as a multiple of what is used: there are other address spaces, and whole pages.
const NODE_MEMORY_FACTOR: u64 = 2;

/// What `yonder bench rread --help` ends with.
const RREAD_AFTER_HELP: &str = "\
Latency by size alone, then throughput alone, then beside Redis and memcached:
  yonder bench rread --sizes 64,4KiB --clients '' --depths ''
  yonder bench rread --sizes '' --clients 1,2,4 --depths 1,8,64
  yonder bench rread --peers --sizes 64,1KiB,4KiB";

/// What went over the wire.
#[derive(Clone, Copy, Default, Debug)]
struct Wire {
    retries: u64,
    sent_bytes: u64,
    received_bytes: u64,
}

/// Settings of a run.
#[derive(Clone, Debug, Args)]
#[command(after_help = RREAD_AFTER_HELP)]
pub struct Settings {
    /// Whether it reads or writes
    #[arg(skip)]
    pub direction: Direction,
    /// The node
    #[command(flatten)]
    pub node: NodeChoice,
    /// Sizes at which the latency of one thread is measured, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "SIZES", default_value = "4,16,64,256,1KiB,4KiB,16KiB,64KiB", value_parser = sizes)]
    pub sizes: List<usize>,
    /// Numbers of threads that wait for each operation, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "COUNTS", default_value = "1,2,4", value_parser = counts)]
    pub clients: List<usize>,
    /// Numbers of asynchronous operations of one thread, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "COUNTS", default_value = "1,2,4,8,16,32,64,128", value_parser = counts)]
    pub depths: List<usize>,
    /// Size at which throughput is measured, by --clients and by --depths
    #[arg(long = "size", help_heading = BENCHMARK, value_name = "SIZE", default_value = "4KiB", value_parser = byte_count)]
    pub throughput_bytes: usize,
    /// Memory that is used, at random places
    #[arg(long, help_heading = BENCHMARK, value_name = "SIZE", default_value = "64MiB", value_parser = parse_bytes)]
    pub memory: u64,
    /// How long a client asks again before it sleeps, at most
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "50us", value_parser = duration)]
    pub spin: Duration,
    /// Measured time of each run; a warm-up comes before
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "1s", value_parser = positive_duration)]
    pub duration: Duration,
}

/// Sizes of at least one byte.
fn sizes(text: &str) -> Result<List<usize>, String> {
    List::parse(text, |word| match byte_count(word) {
        Ok(0) => Err(format!("'{word}' is no size to read or write: type at least 1")),
        bytes => bytes,
    })
}

/// What one run of the benchmark varies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    /// `size`, `clients` or `depth`.
    pub sweep: &'static str,
    /// Bytes of an operation.
    pub bytes: usize,
    /// Threads.
    pub clients: usize,
    /// Asynchronous operations of each; `None` for a thread that waits for each operation.
    pub depth: Option<usize>,
}

/// The result of one point; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct PointResult {
    /// `rread` or `rwrite`.
    pub bench: &'static str,
    /// The node's URL.
    pub node: String,
    /// What is varied: `size`, `clients` or `depth`.
    pub sweep: &'static str,
    /// Bytes of an operation.
    pub size_bytes: usize,
    /// Threads.
    pub clients: usize,
    /// Operations that each thread has under way.
    pub depth: usize,
    /// `sync` or `async`.
    pub calls: &'static str,
    /// Bytes of memory that are read or written.
    pub memory_bytes: u64,
    /// How long a client spins before it sleeps, in microseconds.
    pub spin_us: f64,
    /// Measured seconds.
    pub seconds: f64,
    /// Operations per second of all threads.
    pub ops_per_s: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Longest latency.
    pub max_us: f64,
    /// CPU time of the client process for each operation, in microseconds.
    pub client_cpu_us_per_op: f64,
    /// CPU time of the node for each operation, in microseconds; absent for a node that was there before.
    pub server_cpu_us_per_op: Option<f64>,
    /// Requests that were sent again.
    pub retries: u64,
    /// Bytes of the messages that were sent for that, of all attempts, with their headers.
    pub wire_sent_bytes: u64,
    /// Bytes of those that were received.
    pub wire_received_bytes: u64,
    /// Faults, bytes and errors.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Memory on a node that points are measured on.
pub struct Bench {
    settings: Settings,
    // Before the target: an address space ends before its node does.
    process: Process,
    target: Target,
    address: u64,
}

impl Bench {
    /// Takes a node and allocates memory on it.
    pub fn prepare(settings: &Settings, launch: &dyn Launch) -> Result<Self, BenchError> {
        settings.check()?;
        let target = Target::new(&settings.node, launch, NODE_MEMORY_FACTOR * settings.memory, None)?;
        let pending_max = settings.depths.iter().copied().max().unwrap_or(1);
        let process = target.process(pending_max, settings.spin)?;
        let address = process.thread()?.ralloc(settings.memory, Permission::ReadWrite)?;
        Ok(Self { settings: settings.clone(), process, target, address })
    }

    /// The node's URL.
    #[must_use]
    pub fn node(&self) -> &str {
        self.target.url()
    }

    /// What there is to measure, in order.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        self.settings.points()
    }

    /// Measures one point.
    pub fn run(&self, point: Point) -> Result<PointResult, BenchError> {
        let items = Items { address: self.address, bytes: point.bytes };
        let count = self.settings.memory / point.bytes as u64;
        if self.settings.direction == Direction::Read {
            fill(&mut self.process.thread()?, items, count)?;
        }
        let start = Barrier::new(point.clients + 1);
        let outcomes = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..point.clients)
                .map(|client| {
                    let start = &start;
                    scope.spawn(move || self.client(point, items, count, client as u64, start))
                })
                .collect();
            // Threads have warmed up at the first barrier, and begin at the second.
            start.wait();
            let before = self.target.cpu_times();
            start.wait();
            let outcomes: Result<Vec<_>, _> =
                clients.into_iter().map(|client| client.join().expect("a client does not panic")).collect();
            Ok::<_, BenchError>((outcomes?, before?, self.target.cpu_times()?))
        });
        let (outcomes, before, after) = outcomes?;
        if self.settings.direction == Direction::Write {
            self.check_written(items, count)?;
        }
        let mut latency = LatencyRecorder::new();
        let (mut seconds, mut wire) = (0f64, Wire::default());
        for (measured, own) in &outcomes {
            latency.merge(&measured.latency);
            seconds = seconds.max(measured.seconds);
            wire = Wire {
                retries: wire.retries + own.retries,
                sent_bytes: wire.sent_bytes + own.sent_bytes,
                received_bytes: wire.received_bytes + own.received_bytes,
            };
        }
        let cpu = after.per_op(before, latency.len());
        Ok(self.result(point, &Measured { latency, seconds }, cpu, &wire))
    }

    /// One thread of a point: what it measured, and what went over the wire.
    fn client(
        &self,
        point: Point,
        items: Items,
        count: u64,
        client: u64,
        start: &Barrier,
    ) -> Result<(Measured, Wire), BenchError> {
        let load =
            Load { items: count, depth: point.depth.unwrap_or(1), duration: self.settings.duration, seed: client };
        let warm_up = Load { duration: load.duration / WARM_UP_SHARE, seed: !client, ..load };
        let opened = self.process.thread();
        let mut ready = opened.map_err(BenchError::from).and_then(|mut thread| {
            drive(&mut *flow(&mut thread, items, point, self.settings.direction), &warm_up)?;
            Ok(thread)
        });
        // The others wait here too, whether this one has failed or not.
        start.wait();
        start.wait();
        let thread = ready.as_mut().map_err(|error| std::mem::replace(error, BenchError::WrongValues(0)))?;
        let before = thread.stats();
        let measured = drive(&mut *flow(thread, items, point, self.settings.direction), &load)?;
        let after = thread.stats();
        let wire = Wire {
            retries: after.retried - before.retried,
            sent_bytes: after.sent_bytes - before.sent_bytes,
            received_bytes: after.received_bytes - before.received_bytes,
        };
        Ok((measured, wire))
    }

    /// Reads what was written: each item that is not zeros must be what writes put there.
    fn check_written(&self, items: Items, count: u64) -> Result<(), BenchError> {
        let mut thread = self.process.thread()?;
        let mut buffer = vec![0; items.bytes];
        for sample in 0..CHECKED_ITEMS {
            let item = sample * count / CHECKED_ITEMS;
            stamp(item, &mut buffer);
            thread.rwrite(items.address + item * items.bytes as u64, &buffer)?;
            buffer.fill(0);
            thread.rread(items.address + item * items.bytes as u64, &mut buffer)?;
            check(item, &buffer)?;
        }
        Ok(())
    }

    fn result(&self, point: Point, measured: &Measured, cpu: (f64, Option<f64>), wire: &Wire) -> PointResult {
        let latency = measured.latency.summary();
        let moved = measured.ops() * point.bytes as u64;
        let reads = self.settings.direction == Direction::Read;
        PointResult {
            bench: if reads { "rread" } else { "rwrite" },
            node: self.target.url().to_owned(),
            sweep: point.sweep,
            size_bytes: point.bytes,
            clients: point.clients,
            depth: point.depth.unwrap_or(1),
            calls: if point.depth.is_some() { "async" } else { "sync" },
            memory_bytes: self.settings.memory,
            spin_us: self.settings.spin.as_nanos() as f64 / 1e3,
            seconds: measured.seconds,
            ops_per_s: measured.ops() as f64 / measured.seconds,
            p50_us: latency.p50_us,
            p99_us: latency.p99_us,
            p999_us: latency.p999_us,
            max_us: latency.max_us,
            client_cpu_us_per_op: cpu.0,
            server_cpu_us_per_op: cpu.1,
            retries: wire.retries,
            wire_sent_bytes: wire.sent_bytes,
            wire_received_bytes: wire.received_bytes,
            counts: Counts {
                fetched_bytes: if reads { moved } else { 0 },
                written_bytes: if reads { 0 } else { moved },
                ..Counts::default()
            },
        }
    }
}

impl Settings {
    fn points(&self) -> Vec<Point> {
        let point = |sweep, bytes, clients, depth| Point { sweep, bytes, clients, depth };
        let sizes = self.sizes.iter().map(|bytes| point("size", *bytes, 1, None));
        let clients = self.clients.iter().map(|clients| point("clients", self.throughput_bytes, *clients, None));
        let depths = self.depths.iter().map(|depth| point("depth", self.throughput_bytes, 1, Some(*depth)));
        sizes.chain(clients).chain(depths).collect()
    }

    fn check(&self) -> Result<(), BenchError> {
        let largest = self.points().iter().map(|point| point.bytes).max();
        let Some(largest) = largest else {
            return Err(BenchError::Settings("nothing is measured: type --sizes 4KiB, for example".to_owned()));
        };
        if largest as u64 > self.memory {
            return Err(BenchError::Settings(format!(
                "operations of {largest} bytes do not fit into {} bytes of memory: type a larger --memory",
                self.memory
            )));
        }
        Ok(())
    }
}

/// The flow of a point.
fn flow<'a>(thread: &'a mut Thread, items: Items, point: Point, direction: Direction) -> Box<dyn Flow + 'a> {
    match point.depth {
        Some(depth) => Box::new(Asynchronous::new(thread, items, direction, depth)),
        None => Box::new(Synchronous::new(thread, items, direction)),
    }
}

/// Writes all items.
pub(crate) fn fill(thread: &mut Thread, items: Items, count: u64) -> Result<(), BenchError> {
    let at_once = (FILL_BYTES / items.bytes).max(1) as u64;
    let mut buffer = vec![0; at_once as usize * items.bytes];
    let mut item = 0;
    while item < count {
        let these = at_once.min(count - item);
        for (number, content) in (item..item + these).zip(buffer.chunks_mut(items.bytes)) {
            stamp(number, content);
        }
        thread.rwrite(items.address + item * items.bytes as u64, &buffer[..these as usize * items.bytes])?;
        item += these;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_process::{NoLaunch, node};

    fn settings(url: String, direction: Direction) -> Settings {
        Settings {
            direction,
            node: NodeChoice::at(url),
            memory: 1 << 20,
            sizes: List(vec![4, 4096, 65536]),
            throughput_bytes: 4096,
            clients: List(vec![2]),
            depths: List(vec![1, 8]),
            spin: Duration::from_micros(50),
            duration: Duration::from_millis(20),
        }
    }

    #[test]
    fn a_list_of_sizes_may_be_empty_and_its_items_are_checked() {
        assert_eq!((sizes("4,1KiB"), sizes("")), (Ok(List(vec![4, 1024])), Ok(List(vec![]))));
        assert!(sizes("0").unwrap_err().contains("type at least 1"));
        assert!(counts("1,0").is_err() && counts("1,x").is_err());
    }

    #[test]
    fn every_point_is_measured_and_checked() {
        let (_node, url) = node(16 << 20, None);
        for (direction, name) in [(Direction::Read, "rread"), (Direction::Write, "rwrite")] {
            let bench = Bench::prepare(&settings(url.clone(), direction), &NoLaunch).unwrap();
            let points = bench.points();
            assert_eq!(points.len(), 6);
            for point in points {
                let result = bench.run(point).unwrap();
                assert_eq!((result.bench, result.counts.errors, result.server_cpu_us_per_op), (name, 0, None));
                assert!(result.ops_per_s > 0.0 && result.p50_us > 0.0 && result.p999_us >= result.p50_us);
                assert!(result.counts.fetched_bytes + result.counts.written_bytes >= point.bytes as u64);
            }
        }
    }

    #[test]
    fn a_wrong_value_ends_the_run() {
        let (_node, url) = node(16 << 20, None);
        let bench = Bench::prepare(&settings(url, Direction::Read), &NoLaunch).unwrap();
        let mut thread = bench.process.thread().unwrap();
        let items = Items { address: bench.address, bytes: 4096 };
        fill(&mut thread, items, 4).unwrap();
        thread.rwrite(items.address, &[0; 8]).unwrap();
        let load = Load { items: 1, depth: 1, duration: Duration::from_millis(5), seed: 1 };
        let outcome = drive(&mut Synchronous::new(&mut thread, items, Direction::Read), &load);
        assert!(matches!(outcome, Err(BenchError::WrongValues(1))));
    }

    #[test]
    fn settings_that_cannot_work_say_what_to_type() {
        let small = Settings { memory: 4096, ..settings(String::new(), Direction::Read) };
        let error = Bench::prepare(&small, &NoLaunch).err().unwrap().to_string();
        assert!(error.contains("type a larger --memory"), "{error}");
        let none = Settings { sizes: List(vec![]), clients: List(vec![]), depths: List(vec![]), ..small };
        let error = Bench::prepare(&none, &NoLaunch).err().unwrap().to_string();
        assert!(error.contains("--sizes"), "{error}");
    }
}
