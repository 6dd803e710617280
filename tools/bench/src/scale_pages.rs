//! `bench scale-pages`: reads of a node whose page table has ever more entries. A lookup touches one bucket, so it
//! should not matter how many there are.
//!
//! All pages belong to one address space; most were never written and read as zeros, so that a table of a million
//! entries needs little memory. Every so many pages one has memory of its own. Both kinds are checked.

use std::time::Duration;

use clap::Args;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use yonder::clib::{Permission, Process, Thread};
use yonder::units::{Nanos, parse_bytes};
use yonder_load::LatencyRecorder;

use crate::children::{Launch, NodeChild};
use crate::flags::{BENCHMARK, List, byte_count, positive_duration, positive_number};
use crate::flow::{check, stamp};
use crate::target::{NodeChoice, Target};
use crate::{BenchError, Counts};

/// Most pages of one allocation: longer ones find no room in a table that is half full.
const ALLOCATION_PAGES: u64 = 256;
/// One page in so many has memory.
const MAPPED_EVERY: u64 = 64;
/// Room for other pages than those that are measured, so that the last allocations need few retries.
const SPARE_PERCENT: u64 = 25;
/// Part of a run's time that comes before it, unmeasured.
const WARM_UP_SHARE: u64 = 4;

/// Settings of a run. A node that is there must have small pages and enough of them.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// The node
    #[command(flatten)]
    pub node: NodeChoice,
    /// Numbers of page table entries, rising, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "COUNTS", default_value = "1,16,256,4096,65536,1048576", value_parser = entry_counts)]
    pub entries: List<u64>,
    /// Size of the node's pages, and of each step from one entry to the next
    #[arg(long = "page-size", help_heading = BENCHMARK, value_name = "SIZE", default_value = "4KiB", value_parser = parse_bytes)]
    pub page_bytes: u64,
    /// Size of a read
    #[arg(long = "size", help_heading = BENCHMARK, value_name = "SIZE", default_value = "16", value_parser = byte_count)]
    pub read_bytes: usize,
    /// Measured time of each run; a warm-up comes before
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "2s", value_parser = positive_duration)]
    pub duration: Duration,
}

fn entry_counts(text: &str) -> Result<List<u64>, String> {
    List::parse(text, positive_number)
}

/// One number of entries; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct PagesResult {
    /// Always `scale-pages`.
    pub bench: &'static str,
    /// The node's URL.
    pub node: String,
    /// Page table entries in use.
    pub entries: u64,
    /// Those that have memory.
    pub mapped: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Bytes of a read.
    pub size_bytes: usize,
    /// Measured seconds.
    pub seconds: f64,
    /// Reads per second of one thread that waits for each.
    pub ops_per_s: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Median latency, as a multiple of the first run's.
    pub p50_ratio: f64,
    /// The node's own memory, in bytes; absent for a node that was there before.
    pub node_private_bytes: Option<u64>,
    /// What the node says that its tables take, in bytes; absent for a node that was there before.
    pub node_own_bytes: Option<u64>,
    /// Faults, bytes and errors.
    #[serde(flatten)]
    pub counts: Counts,
}

/// A node whose page table fills up.
pub struct Bench {
    settings: Settings,
    thread: Thread,
    // Before the target: an address space ends before its node does.
    _process: Process,
    target: Target,
    /// Address of each page.
    pages: Vec<u64>,
    first_p50_us: Option<f64>,
}

impl Bench {
    /// Takes a node with room for the most entries.
    pub fn prepare(settings: &Settings, launch: &dyn Launch) -> Result<Self, BenchError> {
        let most = settings.entries.iter().copied().max().unwrap_or(0);
        if most == 0 || !settings.entries.is_sorted() || settings.read_bytes as u64 > settings.page_bytes {
            return Err(BenchError::Settings(
                "entries rise from 1, and a read fits into a page: type --entries 1,1024,1048576 --size 16".to_owned(),
            ));
        }
        let pages = most.next_multiple_of(ALLOCATION_PAGES) * (100 + SPARE_PERCENT) / 100;
        let target = Target::new(&settings.node, launch, pages * settings.page_bytes, Some(settings.page_bytes))?;
        let process = target.process(1, Duration::ZERO)?;
        let thread = process.thread()?;
        let (pages, settings) = (Vec::new(), settings.clone());
        Ok(Self { settings, thread, _process: process, target, pages, first_p50_us: None })
    }

    /// Numbers of entries, in the order in which they are to be run.
    #[must_use]
    pub fn entries(&self) -> &[u64] {
        &self.settings.entries
    }

    /// Allocates until there are `entries` entries, and measures reads of them.
    pub fn run(&mut self, entries: u64) -> Result<PagesResult, BenchError> {
        while (self.pages.len() as u64) < entries {
            self.allocate(ALLOCATION_PAGES.min(entries - self.pages.len() as u64))?;
        }
        let warm_up = self.settings.duration / WARM_UP_SHARE as u32;
        self.read(entries, warm_up, 1)?;
        let start = yonder::clock::now();
        let latency = self.read(entries, self.settings.duration, 2)?;
        let seconds = (yonder::clock::now() - start) as f64 / 1e9;
        self.result(&latency, seconds)
    }

    /// Allocates some pages, and gives those memory that should have any.
    fn allocate(&mut self, pages: u64) -> Result<(), BenchError> {
        let page_bytes = self.settings.page_bytes;
        let start = self.thread.ralloc(pages * page_bytes, Permission::ReadWrite)?;
        for address in (0..pages).map(|page| start + page * page_bytes) {
            let page = self.pages.len() as u64;
            if page.is_multiple_of(MAPPED_EVERY) {
                let mut content = vec![0; self.settings.read_bytes];
                stamp(page, &mut content);
                self.thread.rwrite(address, &content)?;
            }
            self.pages.push(address);
        }
        Ok(())
    }

    /// Reads random pages of the first `entries` for `duration`.
    fn read(&mut self, entries: u64, duration: Duration, seed: u64) -> Result<LatencyRecorder, BenchError> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut latency = LatencyRecorder::new();
        let mut buffer = vec![0; self.settings.read_bytes];
        let until = yonder::clock::now() + duration.as_nanos() as Nanos;
        loop {
            let page = random.random_range(0..entries);
            let address = self.pages[page as usize];
            let start = yonder::clock::now();
            self.thread.rread(address, &mut buffer)?;
            let end = yonder::clock::now();
            latency.record(end - start);
            if page.is_multiple_of(MAPPED_EVERY) {
                check(page, &buffer)?;
            } else if buffer.iter().any(|byte| *byte != 0) {
                return Err(BenchError::WrongValues(1));
            }
            if end >= until {
                return Ok(latency);
            }
        }
    }

    fn result(&mut self, latency: &LatencyRecorder, seconds: f64) -> Result<PagesResult, BenchError> {
        let summary = latency.summary();
        let node = self.target.node.as_ref();
        let first = *self.first_p50_us.get_or_insert(summary.p50_us);
        Ok(PagesResult {
            bench: "scale-pages",
            node: self.target.url().to_owned(),
            entries: self.pages.len() as u64,
            mapped: (self.pages.len() as u64).div_ceil(MAPPED_EVERY),
            page_bytes: self.settings.page_bytes,
            size_bytes: self.settings.read_bytes,
            seconds,
            ops_per_s: summary.count as f64 / seconds,
            p50_us: summary.p50_us,
            p99_us: summary.p99_us,
            p999_us: summary.p999_us,
            p50_ratio: if first > 0.0 { summary.p50_us / first } else { 1.0 },
            node_private_bytes: node.map(|node| node.child.resident()).transpose()?.map(|resident| resident.private),
            node_own_bytes: node.map(NodeChild::own_bytes).transpose()?,
            counts: Counts { fetched_bytes: summary.count * self.settings.read_bytes as u64, ..Counts::default() },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_process::{NoLaunch, node};

    #[test]
    fn entries_grow_and_every_read_is_checked() {
        let (_node, url) = node(8 << 20, Some(4096));
        let settings = Settings {
            node: NodeChoice::at(url),
            page_bytes: 4096,
            entries: List(vec![1, 1000]),
            read_bytes: 16,
            duration: Duration::from_millis(10),
        };
        let mut bench = Bench::prepare(&settings, &NoLaunch).unwrap();
        let results: Vec<_> = settings.entries.iter().map(|entries| bench.run(*entries).unwrap()).collect();
        assert_eq!(results.iter().map(|result| result.mapped).collect::<Vec<_>>(), [1, 16]);
        assert_eq!(results[0].p50_ratio, 1.0);
        assert!(results.iter().all(|result| result.counts.fetched_bytes > 0 && result.node_private_bytes.is_none()));
        bench.thread.rwrite(bench.pages[1], &[1]).unwrap();
        assert!(matches!(bench.read(2, Duration::from_millis(50), 1), Err(BenchError::WrongValues(1))));
    }

    #[test]
    fn settings_that_cannot_work_say_what_to_type() {
        let settings = Settings {
            node: NodeChoice::at(String::new()),
            page_bytes: 4096,
            entries: List(vec![5, 1]),
            read_bytes: 16,
            duration: Duration::from_millis(10),
        };
        for wrong in [
            settings.clone(),
            Settings { entries: List(vec![]), ..settings.clone() },
            Settings { read_bytes: 5000, entries: List(vec![1]), ..settings },
        ] {
            let error = Bench::prepare(&wrong, &NoLaunch).err().unwrap().to_string();
            assert!(error.contains("type --entries"), "{error}");
        }
    }
}
