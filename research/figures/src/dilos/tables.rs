//! Tables 1 to 3: throughput, and numbers of faults, of a sequential read and a sequential write.

use yonder_report::Bar;

use super::Pass;
use super::system::System;
use super::world::Op;
use crate::figure::{self, Check, Outcome, Run, Table, row as cells};

/// A row, and what the paper has in it.
struct Row {
    system: &'static System,
    /// GB/s, read and written.
    throughput: Option<(f64, f64)>,
    /// Major and minor faults of the read.
    faults: Option<(f64, Option<f64>)>,
}

const ROWS: [Row; 6] = [
    Row { system: &System::FASTSWAP, throughput: Some((0.98, 0.49)), faults: Some((655_737.0, Some(4_587_164.0))) },
    Row { system: &System::NONE, throughput: Some((1.24, 1.14)), faults: Some((5_242_880.0, None)) },
    Row { system: &System::READAHEAD, throughput: Some((3.74, 3.49)), faults: Some((655_358.0, Some(3_167_233.0))) },
    Row { system: &System::TREND, throughput: Some((3.73, 3.49)), faults: Some((655_356.0, Some(3_252_667.0))) },
    Row { system: &System::FOLLOWED, throughput: None, faults: None },
    Row { system: &System::FOLLOWED_TREND, throughput: None, faults: None },
];

/// All three.
pub(super) fn run(run: &mut Run<'_>) -> Outcome {
    let columns = [("system", 0), ("read_gb_per_s", 2), ("write_gb_per_s", 2)];
    let mut throughputs = Table::new("throughput", "Sequential read and write (Table 2)", &columns);
    let columns = [("system", 0), ("major_faults", 0), ("minor_faults", 0), ("faults", 0)];
    let mut faults = Table::new("faults", "Faults of the read, scaled up to 20 GB (Tables 1 and 3)", &columns);
    let (mut outcome, mut bars) = (Outcome::default(), Vec::new());
    for (number, row) in ROWS.iter().enumerate() {
        let done = number as f64 / ROWS.len() as f64;
        let read = Pass::new(row.system, Op::Read, run, done);
        let write = Pass::new(row.system, Op::Write, run, done + 0.5 / ROWS.len() as f64);
        let (reads, writes) = (read.throughput(), write.throughput());
        let (major, minor) = (read.scaled(read.counts.major), read.scaled(read.counts.minor));
        throughputs.push(cells([row.system.name], [reads, writes]));
        faults.push(cells([row.system.name], [major, minor, major + minor]));
        let numbers = format!("{reads:.2} and {writes:.2} GB/s");
        bars.push(Bar { name: row.system.name.to_owned(), numbers, parts: vec![reads] });
        outcome.checks.extend(checks(row, (reads, writes), (major, minor)));
        outcome.requests += read.pages + write.pages;
    }
    outcome.tables = vec![throughputs, faults];
    let caption = "Simulated; bars are reads, the second number writes.";
    let title = "Sequential read of 20 GB, 2.5 GB of it local";
    outcome.bars = vec![figure::bars("dilos-tables", title, caption, &["read"], bars)];
    outcome.notes = NOTES.map(str::to_owned).to_vec();
    outcome
}

const NOTES: [&str; 4] = [
    "Rows of DiLOS have the paper's window: eight pages with the one that was missed, and what has arrived is mapped by the next fault.",
    "Yonder's windows are of 4 to 32 pages, the first touch of one plans the next and maps it as a whole; its rows have DiLOS' costs, so they \
     compare ways of fetching ahead and not machines.",
    "With Yonder's windows the thread is faster than reads ahead can follow one another, so it waits for most pages: minor faults, no major ones.",
    "1.24, 1.14 and 3.74 GB/s, and DiLOS' 3,167,233 minor faults with readahead, fix a cost each; the other throughputs and all other faults \
     follow.",
];

const READ_MISS: &str = "A page costs Fastswap's reclaim what Figure 1 says, where prefetching is off, and with readahead it must cost less to reach this.";
const WRITE_MISS: &str = "A dirty page costs Fastswap here another swap cache entry and a write that is waited for; what else the kernel does, the paper does not say.";

fn checks(row: &Row, throughput: (f64, f64), faults: (f64, f64)) -> Vec<Check> {
    let name = row.system.name;
    let mut checks = Vec::new();
    if let Some((read, write)) = row.throughput {
        // These fix a cost each.
        let is_input = |number: f64| [1.24, 1.14, 3.74].contains(&number) && !name.contains("Fastswap");
        let of = |what, paper, ours| {
            Check::new(format!("{name}: {what}, GB/s"), paper, ours).calibration_if(is_input(paper))
        };
        let (read, write) = (of("read", read, throughput.0), of("write", write, throughput.1));
        // What is within the tolerance needs no reason.
        checks.extend(
            [(read, READ_MISS), (write, WRITE_MISS)].map(
                |(check, why)| {
                    if check.is_met() { check } else { check.because(why) }
                },
            ),
        );
    }
    if let Some((major, minor)) = row.faults {
        // Without prefetching every page is a fault, whatever the model.
        let is_every_page = major == 5_242_880.0;
        checks.push(Check::new(format!("{name}: major faults"), major, faults.0).calibration_if(is_every_page));
        let is_input = |minor: f64| minor == 3_167_233.0;
        checks.extend(
            minor.map(|minor| {
                Check::new(format!("{name}: minor faults"), minor, faults.1).calibration_if(is_input(minor))
            }),
        );
    }
    checks
}
