//! Table 1 and Figure 10: latency by the number of threads.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use yonder_report::{Picture, Quantity};

use super::stages::{Load, simulate};
use super::systems::{RESOURCES, System, notification};
use crate::costs::lightswap;
use crate::figure::{self, Check, Outcome, Run, Table, row};

/// Threads of Figure 10.
const THREADS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Faults at a number of threads, in a full run.
const FAULTS: u64 = 100_000;

/// Table 1, of eBPF: threads that do nothing but fault on pages that need no read.
pub(super) fn table1(run: &mut Run<'_>) -> Outcome {
    let paper = [(1, 1.6), (16, 1.7), (32, 2.0), (64, 2.4), (128, 4.0)];
    let mut table =
        Table::new("notification", "From the fault to its handler, mean", &[("threads", 0), ("ebpf_us", 2)]);
    let mut outcome = Outcome::default();
    let faults = run.requests(FAULTS);
    let rest = lightswap::LIGHTSWAP_RDMA.ns() - lightswap::NOTIFY.ns();
    let mut points = Vec::new();
    for (number, (threads, paper)) in paper.into_iter().enumerate() {
        (run.progress)("eBPF", number as f64 / 5.0);
        let mut random = ChaCha8Rng::seed_from_u64(run.seed);
        let load = Load { threads, think_ns: rest, faults };
        let stages = |thread| notification(thread).to_vec();
        let mean = simulate(load, RESOURCES, stages, 2, &mut random) / 1000.0;
        table.push(row([], [threads as f64, mean]));
        points.push((threads as f64, mean));
        let unit = if threads == 1 { "thread" } else { "threads" };
        // One thread is an input, and 128 fix how long a lock is held.
        let check =
            Check::new(format!("eBPF, {threads} {unit}, us"), paper, mean).calibration_if(matches!(threads, 1 | 128));
        outcome.checks.push(if (2..128).contains(&threads) && !check.is_met() {
            check.because(NO_LOCK)
        } else {
            check
        });
        outcome.requests += faults;
    }
    outcome.pictures = vec![picture("lightswap-table1", "Notification of a page fault", vec![("eBPF", points)])];
    outcome.tables = vec![table];
    outcome
}

const NO_LOCK: &str = "Up to 32 threads have a lock each and 64 share it by two, and the paper names nothing else that threads could wait for.";
const OTHER_FIGURE: &str = "Figure 11 has 5 us of reading and 39.76 % of software, which is 8.3 us; Figure 10 begins at 10 us, and no cost can be both.";

/// Figure 10.
pub(super) fn fig10(run: &mut Run<'_>) -> Outcome {
    let systems = [System::LIGHTSWAP_RDMA, System::LIGHTSWAP_SSD, System::INFINISWAP, System::LINUX];
    let columns = [
        ("threads", 0),
        ("lightswap_rdma_us", 1),
        ("lightswap_ssd_us", 1),
        ("infiniswap_us", 1),
        ("linux_us", 1),
        ("yonder_us", 1),
    ];
    let mut table = Table::new("latency", "From the fault to the mapped page, mean", &columns);
    let faults = run.requests(FAULTS);
    let mut means = Vec::new();
    for (number, threads) in THREADS.into_iter().enumerate() {
        (run.progress)("threads", number as f64 / THREADS.len() as f64);
        let of_system = |system: System| mean(&system, threads, faults, run.seed);
        let latencies = systems.map(of_system);
        // What more threads do to Yonder has not been measured with more than two CPUs.
        let yonder = if threads == 1 { of_system(System::YONDER) } else { f64::NAN };
        let [lightswap_rdma, lightswap_ssd, infiniswap, linux] = latencies;
        table.push(row([], [threads as f64, lightswap_rdma, lightswap_ssd, infiniswap, linux, yonder]));
        means.push(latencies);
    }
    let lines = systems.iter().enumerate().map(|(column, system)| {
        let points = THREADS.iter().zip(&means).map(|(threads, row)| (*threads as f64, row[column]));
        (system.name, points.collect())
    });
    let lines = lines.collect();
    Outcome {
        tables: vec![table],
        pictures: vec![picture("lightswap-fig10", "Handling a page fault", lines)],
        bars: Vec::new(),
        checks: checks(&means),
        notes: NOTES.map(str::to_owned).to_vec(),
        requests: faults * (THREADS.len() * systems.len() + 1) as u64,
    }
}

const NOTES: [&str; 3] = [
    "128 threads that faulted without a pause would want 300 Gbit/s at 13.5 us a fault, three times what the paper's link carries: so they \
     think, for a time that these 13.5 us fix.",
    "Linux' 63.2 us with 128 threads fix what a fault costs the kernel for each other thread; Infiniswap's growth follows from that.",
    "Yonder's costs were measured on a virtual machine with 2 CPUs and Linux 6.18: its row ends at one thread, with the paper's 5 us network.",
];

fn mean(system: &System, threads: usize, faults: u64, seed: u64) -> f64 {
    let load = Load { threads, think_ns: lightswap::THINK.ns(), faults };
    let stages = |thread| system.stages(thread, threads);
    let last = stages(0).len();
    simulate(load, RESOURCES, stages, last, &mut ChaCha8Rng::seed_from_u64(seed)) / 1000.0
}

/// `means` has a row for each number of threads.
fn checks(means: &[[f64; 4]]) -> Vec<Check> {
    let (one, most) = (means[0], means[means.len() - 1]);
    let ratio =
        |above: usize, below: usize| means.iter().map(|row| row[above] / row[below]).sum::<f64>() / means.len() as f64;
    vec![
        Check::new("Lightswap-RDMA, 1 thread, us", 10.0, one[0]).because(OTHER_FIGURE),
        Check::new("Lightswap-RDMA, 128 threads, us", 13.5, most[0]).calibration(),
        Check::new("Infiniswap, 1 thread, us", 25.0, one[2]).calibration(),
        Check::new("Infiniswap, 128 threads, us", 40.0, most[2]),
        Check::new("Linux swap, 1 thread, us", 43.2, one[3]).calibration(),
        Check::new("Linux swap, 128 threads, us", 63.2, most[3]).calibration(),
        Check::new("Lightswap-SSD / Linux swap, mean of all threads", 0.7, ratio(1, 3)),
        Check::new("Infiniswap / Lightswap-RDMA, mean of all threads", 2.75, ratio(2, 0)).because(OTHER_FIGURE),
        Check::new("Linux swap / Lightswap-RDMA, mean of all threads", 4.65, ratio(3, 0)).because(OTHER_FIGURE),
    ]
}

fn picture(name: &str, title: &str, lines: Vec<(&str, Vec<(f64, f64)>)>) -> Picture {
    let axes = [Quantity::Counts("threads"), Quantity::Number("us")];
    figure::picture(name, [title, "Simulated; mean in us, by threads."], axes, lines)
}
