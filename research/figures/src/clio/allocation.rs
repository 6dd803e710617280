//! Figure 13: retries of an allocation by how full physical memory is, for three sizes.
//!
//! The real slow path allocates until the board's memory is promised, and says how many ranges it tried in vain. Beside
//! it stands an allocator whose pages are hashed one by one, as the paper describes its own.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use yonder_board::{Config, LEASE_STEP_MAX, NodeCore, PIECE_PAGES_MAX, PageSize, Pid, SlowPath, SpaceLimits};
use yonder_report::Quantity;
use yonder_simulation::Pages;
use yonder_wire::{AllocateRequest, Backing, Permission};

use super::by_page::ByPage;
use super::node::BOARD_PAGES;
use super::random;
use crate::costs::clio::{ALLOCATION_RETRY, PAGE};
use crate::figure::{Check, Figure, Outcome, Run, Table, picture, row};

/// The figure.
pub(crate) const FIGURE: Figure = Figure {
    name: "clio-fig13",
    source: "Clio, Figure 13",
    title: "Retries of an allocation by how full physical memory is",
    run,
};

/// Pages of an allocation: 4, 64 and 256 MiB. The text does not name the paper's three sizes.
const SIZES: [u64; 3] = [1, 16, 64];
/// Processes that allocate.
const PROCESSES: usize = 16;
/// Boards that are filled with each size, in a full run.
const BOARDS: u64 = 1000;
/// Parts that fullness is counted in.
const PARTS: usize = 8;

/// Retries of allocations that left memory so full.
#[derive(Clone, Copy, Default)]
struct Part {
    allocations: u64,
    without: u64,
    retries: u64,
    most: u32,
}

/// Something that allocates.
trait Allocates {
    fn pid(&mut self, process: usize) -> Pid;
    fn allocate(&mut self, pid: Pid, pages: u64) -> u32;
}

/// Yonder's board, without the paths that use memory.
struct Yonder {
    slow_path: SlowPath,
    memory: Pages,
}

impl Yonder {
    fn new(rng: &mut ChaCha8Rng) -> Self {
        let (_, slow_path) = NodeCore::new(&Config {
            pages: BOARD_PAGES,
            page_size: PageSize::DEFAULT,
            seed: rng.random(),
            key: rng.random::<[u8; 16]>().into(),
            recent_max: 1,
            spaces: SpaceLimits::of(PROCESSES),
            piece_pages_max: PIECE_PAGES_MAX,
            lease_step_max: LEASE_STEP_MAX,
            tenants: yonder_board::TenantLimits::default(),
        });
        Self { slow_path, memory: Pages::new(0) }
    }
}

impl Allocates for Yonder {
    fn pid(&mut self, _: usize) -> Pid {
        self.slow_path.create_space(None, 0, 0).expect("there is room for every process")
    }

    fn allocate(&mut self, pid: Pid, pages: u64) -> u32 {
        let (bytes, permission) = (pages * PAGE.value as u64, Permission::ReadWrite);
        let request = AllocateRequest { bytes, permission, backing: Backing::OnDemand, from: 0, to: 0 };
        let allocated = self.memory.with_shell(|shell| self.slow_path.allocate(pid, &request, shell));
        allocated.expect("half of the slots are free").1.retries
    }
}

impl Allocates for ByPage {
    fn pid(&mut self, process: usize) -> Pid {
        Pid::new(process as u32 + 1).expect("it is not 0")
    }

    fn allocate(&mut self, pid: Pid, pages: u64) -> u32 {
        Self::allocate(self, pid, pages).expect("half of the slots are free")
    }
}

/// Fills a board with allocations of `pages` pages, of processes drawn at random.
fn fill(allocator: &mut impl Allocates, rng: &mut ChaCha8Rng, curve: &mut Curve) {
    let pages = curve.pages;
    let pids: Vec<Pid> = (0..PROCESSES).map(|process| allocator.pid(process)).collect();
    let (mut full, mut most) = (0, 0);
    while full + pages <= u64::from(BOARD_PAGES) {
        let retries = allocator.allocate(pids[rng.random_range(0..PROCESSES)], pages);
        full += pages;
        most = most.max(retries);
        let part = &mut curve.parts[((full - 1) * PARTS as u64 / u64::from(BOARD_PAGES)) as usize];
        part.allocations += 1;
        part.without += u64::from(retries == 0);
        part.retries += u64::from(retries);
        part.most = part.most.max(retries);
    }
    curve.most.push(most);
}

/// Everything that was counted of one allocator and size.
struct Curve {
    name: &'static str,
    pages: u64,
    parts: [Part; PARTS],
    /// The most retries of an allocation, of each board.
    most: Vec<u32>,
}

impl Curve {
    fn new(name: &'static str, pages: u64) -> Self {
        Self { name, pages, parts: Default::default(), most: Vec::new() }
    }

    /// Of an allocation.
    fn mebibytes(&self) -> f64 {
        self.pages as f64 * PAGE.value / 1_048_576.0
    }
}

fn run(run: &mut Run<'_>) -> Outcome {
    let boards = run.requests(BOARDS);
    let mut curves = Vec::new();
    for (index, pages) in SIZES.into_iter().enumerate() {
        (run.progress)(&format!("allocations of {pages} pages"), index as f64 / SIZES.len() as f64);
        let mut rng = random(run.seed, pages);
        let (mut yonder, mut by_page) = (Curve::new("yonder", pages), Curve::new("by-page", pages));
        for _ in 0..boards {
            fill(&mut Yonder::new(&mut rng), &mut rng, &mut yonder);
            fill(&mut ByPage::new(BOARD_PAGES, rng.random()), &mut rng, &mut by_page);
        }
        curves.extend([yonder, by_page]);
    }
    Outcome {
        tables: vec![table(&curves)],
        pictures: vec![picture(
            "clio-fig13",
            ["Retries of an allocation by fullness", "Mean of all boards; lower is better"],
            [Quantity::Number("% of memory"), Quantity::Number("retries")],
            curves.iter().map(line),
        )],
        checks: checks(&curves),
        notes: vec![
            "The text names neither the three sizes nor the slots of a bucket: 4, 64 and 256 MiB and 8 slots are ours. With 4 \
             slots an allocation of 256 MiB, each page by itself, would take thousands of retries."
                .into(),
            "by-page hashes every page by itself, as Clio does; yonder is the real allocator, whose runs of 64 pages share a \
             hash."
                .into(),
        ],
        requests: curves.iter().flat_map(|curve| &curve.parts).map(|part| part.allocations).sum(),
        ..Outcome::default()
    }
}

fn checks(curves: &[Curve]) -> Vec<Check> {
    let of = |name| curves.iter().filter(move |curve| curve.name == name);
    let most = of("yonder").flat_map(|curve| curve.most.iter().copied()).max().unwrap_or(0);
    let mean = |curve: &Curve| f64::from(curve.most.iter().sum::<u32>()) / curve.most.len() as f64;
    let mean_of_most = of("by-page").map(mean).fold(0.0, f64::max);
    let smooth = |name| {
        let below_half = of(name).flat_map(|curve| &curve.parts[..PARTS / 2]);
        let (without, all) = below_half.fold((0, 0), |sum, part| (sum.0 + part.without, sum.1 + part.allocations));
        without as f64 / all as f64 * 100.0
    };
    vec![
        Check::new("allocations without a retry below half full, Yonder, %", 100.0, smooth("yonder")).within(1.0),
        Check::new("allocations without a retry below half full, each page by itself, %", 100.0, smooth("by-page"))
            .within(5.0),
        Check::new("most retries of an allocation, Yonder", 60.0, f64::from(most)).because(
            "Sixty is a bound, and Yonder stays far below it: runs of 64 pages share a hash, so a range of 64 pages can be \
             refused at one or two places and not at 64.",
        ),
        Check::new("most retries on a board, mean of boards, each page by itself", 60.0, mean_of_most).because(
            "The paper's number is a bound for sizes and buckets that its text does not tell, so only the order can be compared.",
        ),
    ]
}

fn table(curves: &[Curve]) -> Table {
    let mut table = Table::new(
        "retries",
        "Retries of an allocation",
        &[
            ("allocator", 0),
            ("size_mib", 0),
            ("full_percent", 1),
            ("allocations", 0),
            ("retries_mean", 3),
            ("retries_max", 0),
            ("retries_ms_max", 1),
        ],
    );
    for curve in curves {
        for (index, part) in curve.parts.iter().enumerate() {
            let (allocations, most) = (part.allocations as f64, f64::from(part.most));
            let (mean, most_ms) = (part.retries as f64 / allocations, most * ALLOCATION_RETRY.value / 1e6);
            let numbers = [curve.mebibytes(), fullness(index), allocations, mean, most, most_ms];
            table.push(row([curve.name], numbers));
        }
    }
    table
}

/// The upper end of a part of fullness, in percent.
fn fullness(part: usize) -> f64 {
    (part + 1) as f64 * 100.0 / PARTS as f64
}

fn line(curve: &Curve) -> (String, Vec<(f64, f64)>) {
    let mean = |part: &Part| part.retries as f64 / part.allocations as f64;
    let points = curve.parts.iter().enumerate().map(|(index, part)| (fullness(index), mean(part)));
    (format!("{}, {} MiB", curve.name, curve.mebibytes()), points.collect())
}
