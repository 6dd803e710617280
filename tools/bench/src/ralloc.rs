//! `bench ralloc`: what allocation costs, by size and by how full the node is.
//!
//! Three parts. [`latency`]: pairs of ralloc and rfree at rising sizes, on a node as it is. [`fill_node`]: allocations
//! of a few pages until a node of small pages is 98 % full, as a client sees them. [`fill_table`]: the same without a
//! network, on a larger page table: what the node itself takes, and how many ranges it tries because a bucket would
//! overflow.

use std::time::Duration;

use clap::Args;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use yonder::clib::{Backing, ClibError, Permission, Thread};
use yonder::units::{Nanos, parse_bytes};
use yonder_board::{
    Config, LEASE_STEP_MAX, NodeCore, PIECE_PAGES_MAX, PageSize, PageSource, PhysicalPage, Pid, Shell, SlowPath,
    SpaceLimits, Upkeep,
};
use yonder_load::LatencyRecorder;
use yonder_wire::AllocateRequest;

use crate::children::Launch;
use crate::flags::{BENCHMARK, List, positive_duration};
use crate::target::{NodeChoice, Target};
use crate::{BenchError, Counts};

/// Memory of a node that is started for latencies: more than the largest size of the issue, and not taken until
/// written.
const LATENCY_MEMORY_MIN: u64 = 4 << 30;
/// Pages of a node that is filled.
const FILLED_PAGE_BYTES: u64 = 4 << 10;
/// Upper ends of the bands of utilisation that are told apart, in percent of physical pages.
const BANDS: [u32; 5] = [50, 80, 90, 95, 98];
/// Address spaces that a page table is filled by.
const SPACES: usize = 64;
/// Fewest pairs of a size, however long they take.
const PAIRS_MIN: u64 = 3;

/// Settings of a run. The node that is filled is always started.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// The node
    #[command(flatten)]
    pub node: NodeChoice,
    /// Sizes of allocations whose latency is measured, with commas between; page is one page of the node
    #[arg(long, help_heading = BENCHMARK, value_name = "SIZES", default_value = "page,64MiB,256MiB,1GiB", value_parser = allocations)]
    pub sizes: List<u64>,
    /// Pages of 4 KiB of a node that is started and filled to 98 %
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(64..))]
    pub node_pages: u32,
    /// Pages of a page table that is filled to 98 % without a network
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(64..1 << 28))]
    pub table_pages: u32,
    /// Most pages of an allocation while something is filled
    #[arg(long = "longest", help_heading = BENCHMARK, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub longest_pages: u32,
    /// Measured time of each size
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "1s", value_parser = positive_duration)]
    pub duration: Duration,
}

/// Sizes of allocations, where `page` is one page of the node, which 0 stands for.
fn allocations(text: &str) -> Result<List<u64>, String> {
    List::parse(text, |word| match word {
        "page" => Ok(0),
        _ => parse_bytes(word).map_err(|error| error.to_string()),
    })
}

/// One size, or one band of utilisation; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct AllocResult {
    /// Always `ralloc`.
    pub bench: &'static str,
    /// `latency`, `node` or `table`.
    pub part: &'static str,
    /// `ralloc` or `rfree`.
    pub op: &'static str,
    /// The node's URL; absent without a node.
    pub node: Option<String>,
    /// Bytes that were asked for; absent where sizes differ.
    pub size_bytes: Option<u64>,
    /// Bytes that it became, in whole pages.
    pub allocated_bytes: Option<u64>,
    /// Utilisation in percent of physical pages below which these operations were made, and at or above which not the
    /// band before; absent on a node that is empty.
    pub utilisation_percent: Option<u32>,
    /// Physical pages; absent where the node was there before.
    pub pages: Option<u32>,
    /// Most pages of an allocation.
    pub longest_pages: Option<u32>,
    /// Operations measured.
    pub operations: u64,
    /// Operations per second of one thread that does nothing else.
    pub ops_per_s: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Ranges tried in vain, for each allocation.
    pub retries_mean: f64,
    /// Most ranges tried in vain for one allocation.
    pub retries_max: u32,
    /// Faults, bytes and errors.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Operations of a kind.
#[derive(Clone, Debug, Default)]
struct Tally {
    latency: LatencyRecorder,
    retries: u64,
    retries_max: u32,
    refused: u64,
}

impl Tally {
    fn count(&mut self, took: Nanos, retries: u32) {
        self.latency.record(took);
        self.retries += u64::from(retries);
        self.retries_max = self.retries_max.max(retries);
    }

    fn result(&self, part: &'static str, op: &'static str) -> AllocResult {
        let latency = self.latency.summary();
        AllocResult {
            bench: "ralloc",
            part,
            op,
            node: None,
            size_bytes: None,
            allocated_bytes: None,
            utilisation_percent: None,
            pages: None,
            longest_pages: None,
            operations: latency.count,
            ops_per_s: if latency.mean_us > 0.0 { 1e6 / latency.mean_us } else { 0.0 },
            p50_us: latency.p50_us,
            p99_us: latency.p99_us,
            p999_us: latency.p999_us,
            retries_mean: self.retries as f64 / latency.count.max(1) as f64,
            retries_max: self.retries_max,
            counts: Counts { errors: self.refused, ..Counts::default() },
        }
    }
}

/// Measures pairs of ralloc and rfree at every size.
pub fn latency(settings: &Settings, launch: &dyn Launch) -> Result<Vec<AllocResult>, BenchError> {
    let largest = settings.sizes.iter().copied().max().unwrap_or(0);
    let target = Target::new(&settings.node, launch, LATENCY_MEMORY_MIN.max(2 * largest), None)?;
    let process = target.process(1, Duration::ZERO)?;
    let mut thread = process.thread()?;
    let mut results = Vec::new();
    for size in &*settings.sizes {
        // One byte takes one page.
        let bytes = (*size).max(1);
        let (mut allocations, mut frees) = (Tally::default(), Tally::default());
        let mut allocated_bytes = 0;
        let until = yonder::clock::now() + settings.duration.as_nanos() as Nanos;
        while yonder::clock::now() < until || allocations.latency.len() < PAIRS_MIN {
            let start = yonder::clock::now();
            let (address, allocated) = thread.ralloc_with(bytes, Permission::ReadWrite, Backing::OnDemand)?;
            let middle = yonder::clock::now();
            thread.rfree(address)?;
            frees.count(yonder::clock::now() - middle, 0);
            allocations.count(middle - start, allocated.retries);
            allocated_bytes = allocated.bytes;
        }
        for (tally, op) in [(&allocations, "ralloc"), (&frees, "rfree")] {
            results.push(AllocResult {
                node: Some(target.url().to_owned()),
                size_bytes: Some(if *size == 0 { allocated_bytes } else { bytes }),
                allocated_bytes: Some(allocated_bytes),
                ..tally.result("latency", op)
            });
        }
    }
    Ok(results)
}

/// Fills a node of its own, as one client.
pub fn fill_node(settings: &Settings, launch: &dyn Launch) -> Result<Vec<AllocResult>, BenchError> {
    let memory = u64::from(settings.node_pages) * FILLED_PAGE_BYTES;
    let target = Target::new(&settings.node.started(), launch, memory, Some(FILLED_PAGE_BYTES))?;
    let process = target.process(1, Duration::ZERO)?;
    let mut thread = process.thread()?;
    let mut allocate = |_, pages: u32| allocate_remotely(&mut thread, pages);
    let bands = fill(settings.node_pages, settings.longest_pages, &mut allocate)?;
    let node = Some(target.url().to_owned());
    let results = results_of(&bands, "node", settings.node_pages, settings.longest_pages);
    Ok(results.into_iter().map(|result| AllocResult { node: node.clone(), ..result }).collect())
}

fn allocate_remotely(thread: &mut Thread, pages: u32) -> Result<Option<u32>, BenchError> {
    let bytes = u64::from(pages) * FILLED_PAGE_BYTES;
    match thread.ralloc_with(bytes, Permission::ReadWrite, Backing::OnDemand) {
        Ok((_, allocated)) => Ok(Some(allocated.retries)),
        Err(ClibError::OutOfMemory) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Fills a page table in this process, without a network.
pub fn fill_table(settings: &Settings) -> Result<Vec<AllocResult>, BenchError> {
    let config = Config {
        pages: settings.table_pages,
        page_size: PageSize::new(FILLED_PAGE_BYTES).expect("it is a power of two"),
        seed: 1,
        key: [1; 16].into(),
        recent_max: 1,
        spaces: SpaceLimits::of(SPACES),
        piece_pages_max: PIECE_PAGES_MAX,
        lease_step_max: LEASE_STEP_MAX,
        tenants: yonder_board::TenantLimits::default(),
    };
    let (_board, mut slow) = NodeCore::new(&config);
    let no_room = |code: yonder_wire::ErrorCode| BenchError::Settings(format!("the page table is refused: {code}"));
    let spaces: Vec<Pid> =
        (0..SPACES).map(|_| slow.create_space(None, 0, 0)).collect::<Result<_, _>>().map_err(no_room)?;
    let mut allocate = |draw: u64, pages| Ok(allocate_here(&mut slow, spaces[draw as usize % SPACES], pages));
    let bands = fill(settings.table_pages, settings.longest_pages, &mut allocate)?;
    Ok(results_of(&bands, "table", settings.table_pages, settings.longest_pages))
}

fn allocate_here(slow: &mut SlowPath, pid: Pid, pages: u32) -> Option<u32> {
    let request = AllocateRequest {
        bytes: u64::from(pages) * FILLED_PAGE_BYTES,
        permission: Permission::ReadWrite,
        backing: Backing::OnDemand,
        from: 0,
        to: 0,
    };
    let mut shell = Shell { memory: &(), pages: &NoPages, upkeep: &mut Idle };
    slow.allocate(pid, &request, &mut shell).ok().map(|(_, allocated)| allocated.retries)
}

/// The table is filled with pages on demand, which nobody writes.
#[derive(Debug)]
struct NoPages;

impl PageSource for NoPages {
    fn take(&self) -> Option<PhysicalPage> {
        None
    }

    fn give_back(&self, _: PhysicalPage) {
        unreachable!("no page was taken");
    }
}

/// Nobody uses the pages.
#[derive(Debug)]
struct Idle;

impl Upkeep for Idle {
    fn wait_until_quiet(&mut self) {}

    fn zero(&mut self, _: PhysicalPage) {}
}

/// Allocates 1 to `longest` pages at a time until the last band is full; what happened in each. `allocate` gets a
/// random number and a number of pages, and returns the retries, or nothing if there is no room.
fn fill(
    pages: u32,
    longest: u32,
    allocate: &mut dyn FnMut(u64, u32) -> Result<Option<u32>, BenchError>,
) -> Result<Vec<(u32, Tally)>, BenchError> {
    let mut random = SmallRng::seed_from_u64(17);
    let (mut used, mut bands) = (0u32, Vec::new());
    for percent in BANDS {
        let until = (u64::from(pages) * u64::from(percent) / 100) as u32;
        let mut tally = Tally::default();
        while used < until {
            let wanted = random.random_range(1..=longest).min(until - used);
            let draw = random.random();
            let start = yonder::clock::now();
            match allocate(draw, wanted)? {
                Some(retries) => {
                    tally.count(yonder::clock::now() - start, retries);
                    used += wanted;
                }
                None => {
                    tally.refused += 1;
                    if tally.refused > u64::from(pages) {
                        return Err(BenchError::Settings(format!("the node is full at {used} of {pages} pages")));
                    }
                }
            }
        }
        bands.push((percent, tally));
    }
    Ok(bands)
}

fn results_of(bands: &[(u32, Tally)], part: &'static str, pages: u32, longest: u32) -> Vec<AllocResult> {
    let result = |(percent, tally): &(u32, Tally)| AllocResult {
        utilisation_percent: Some(*percent),
        pages: Some(pages),
        longest_pages: Some(longest),
        ..tally.result(part, "ralloc")
    };
    bands.iter().map(result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_process::{NoLaunch, node};

    fn settings(node: NodeChoice) -> Settings {
        Settings {
            node,
            sizes: List(vec![0, 1 << 20]),
            node_pages: 1024,
            table_pages: 16_384,
            longest_pages: 64,
            duration: Duration::from_millis(5),
        }
    }

    #[test]
    fn a_page_of_the_node_is_a_size_too() {
        assert_eq!(allocations("page,2MiB"), Ok(List(vec![0, 2 << 20])));
        assert!(allocations("page,lots").is_err());
    }

    #[test]
    fn a_page_table_is_filled_to_98_percent_with_few_retries() {
        let results = fill_table(&settings(NodeChoice::at(String::new()))).unwrap();
        let percents: Vec<_> = results.iter().filter_map(|result| result.utilisation_percent).collect();
        assert_eq!(percents, BANDS);
        for result in results {
            assert!(result.operations > 0 && result.counts.errors == 0, "{result:?}");
            assert!(result.retries_max <= 60, "{result:?}");
        }
    }

    #[test]
    fn refusals_end_a_fill_that_comes_no_further() {
        let mut left = 10;
        let mut allocate = |_, pages: u32| {
            left -= left.min(pages);
            Ok((left > 0).then_some(0))
        };
        let error = fill(100, 3, &mut allocate).unwrap_err();
        assert!(error.to_string().starts_with("the node is full at "), "{error}");
    }

    #[test]
    fn pairs_are_measured_at_every_size() {
        let (_node, url) = node(16 << 20, Some(64 << 10));
        let results = latency(&settings(NodeChoice::at(url)), &NoLaunch).unwrap();
        let seen: Vec<_> = results.iter().map(|result| (result.op, result.size_bytes.unwrap())).collect();
        assert_eq!(seen, [("ralloc", 64 << 10), ("rfree", 64 << 10), ("ralloc", 1 << 20), ("rfree", 1 << 20)]);
        assert!(results.iter().all(|result| result.operations >= PAIRS_MIN && result.p50_us > 0.0));
    }
}
