//! Figure 11: one thread's page fault, by what takes its time.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use yonder_report::Bar;

use super::stages::{Load, simulate};
use super::systems::{Entry, RESOURCES, System};
use crate::costs::lightswap;
use crate::figure::{self, Check, Outcome, Run, Table, row};

/// Faults of each system, in a full run.
const FAULTS: u64 = 100_000;

/// Figure 11.
pub(super) fn fig11(run: &mut Run<'_>) -> Outcome {
    let systems = [
        (System::LIGHTSWAP_RDMA, Some((39.76, None))),
        (System::LIGHTSWAP_SSD, Some((13.09, None))),
        (System::INFINISWAP, Some((80.16, Some(25.0)))),
        (System::LINUX, Some((42.13, Some(43.2)))),
        (System::YONDER, None),
    ];
    let columns = [
        ("system", 0),
        ("notification_us", 2),
        ("other_software_us", 2),
        ("fetch_us", 2),
        ("total_us", 2),
        ("software_percent", 2),
    ];
    let mut table = Table::new("breakdown", "A page fault of one thread", &columns);
    let (mut outcome, mut bars) = (Outcome::default(), Vec::new());
    let faults = run.requests(FAULTS);
    for (number, (system, paper)) in systems.into_iter().enumerate() {
        (run.progress)(system.name, number as f64 / systems.len() as f64);
        let load = Load { threads: 1, think_ns: lightswap::THINK.ns(), faults };
        let mut random = ChaCha8Rng::seed_from_u64(run.seed);
        let mut until = |stage: usize| simulate(load, RESOURCES, |_| system.stages(0, 1), stage, &mut random) / 1000.0;
        let stages = system.stages(0, 1).len();
        let notified = until(match system.entry {
            Entry::Ebpf => 2,
            Entry::Signal | Entry::Kernel => 1,
        });
        let software = until(match system.entry {
            Entry::Ebpf => 3,
            Entry::Signal | Entry::Kernel => 2,
        });
        let total = until(stages);
        let percent = 100.0 * software / total;
        // Nothing is told of the kernel's own way to its handler.
        let notification = if system.entry == Entry::Kernel { f64::NAN } else { notified };
        let parts = [notified, software - notified, total - software];
        table.push(row([system.name], [notification, parts[1], parts[2], total, percent]));
        bars.push(Bar {
            name: system.name.to_owned(),
            numbers: format!("{total:.1} us, {percent:.1} % software"),
            parts: parts.to_vec(),
        });
        if let Some((share, latency)) = paper {
            outcome
                .checks
                .push(Check::new(format!("{}: share of software, percent", system.name), share, percent).calibration());
            let latency =
                latency.map(|paper| Check::new(format!("{}: in all, us", system.name), paper, total).calibration());
            outcome.checks.extend(latency);
        }
        outcome.requests += faults;
    }
    outcome.tables = vec![table];
    let caption = "Simulated; of Yonder the software's costs are measured.";
    let names = ["notification", "other software", "fetch"];
    outcome.bars = vec![figure::bars("lightswap-fig11", "A page fault of one thread", caption, &names, bars)];
    outcome.notes = NOTES.map(str::to_owned).to_vec();
    outcome
}

const NOTES: [&str; 3] = [
    "The shares are what the software's costs were taken from, so they show only that nothing else takes time; the sums of Infiniswap and of \
     Linux are told elsewhere in the paper and follow.",
    "Handling ends when the page is mapped, as in the paper: leaving the handler is not in it.",
    "Yonder's costs were measured on a virtual machine with 2 CPUs and Linux 6.18; LightSwap's on two CPUs of 40 cores each.",
];
