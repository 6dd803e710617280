//! Figures 1 and 6: the parts of a major fault, on average and of faults that reclaim nothing themselves.

use yonder_report::Bar;

use super::Pass;
use super::system::System;
use super::world::{Op, Part};
use crate::figure::{self, Cell, Check, Outcome, Run, Table, row};

/// A fault, in microseconds.
struct Fault {
    name: String,
    exception: f64,
    software: f64,
    fetch: f64,
    reclaim: f64,
}

impl Fault {
    /// The mean of a pass.
    fn mean(pass: &Pass) -> Self {
        let part = |part| pass.counts.part(part) as f64 / pass.counts.major as f64 / 1000.0;
        Self {
            name: pass.system.name.to_owned(),
            exception: part(Part::Exception),
            software: part(Part::Software),
            fetch: part(Part::Fetch),
            reclaim: part(Part::Reclaim),
        }
    }

    fn without_reclaim(&self) -> Self {
        Self { name: format!("{}, no reclaim", self.name), reclaim: 0.0, ..*self }
    }

    fn total(&self) -> f64 {
        self.exception + self.software + self.fetch + self.reclaim
    }

    fn percent(&self, part: f64) -> f64 {
        100.0 * part / self.total()
    }
}

/// Figure 1.
pub(super) fn fig1(run: &mut Run<'_>) -> Outcome {
    let pass = Pass::new(&System::FASTSWAP_NONE, Op::Read, run, 0.0);
    let mean = Fault::mean(&pass);
    let untouched = 100.0 * (1.0 - pass.counts.reclaiming as f64 / pass.counts.major as f64);
    let checks = vec![
        Check::new("share of the fetch, percent", 46.0, mean.percent(mean.fetch)).calibration(),
        Check::new("share of reclaim, percent", 29.0, mean.percent(mean.reclaim)).calibration(),
        Check::new("share of the exception, percent", 9.0, mean.percent(mean.exception)).calibration(),
        Check::new("faults that reclaim nothing themselves, percent", 99.0, untouched).within(1.0),
    ];
    let note = "Three of the four shares follow from the paper's own, and reclaim's fixes the cost of a clean page; that one fault in \
                a hundred does all the reclaim that is seen in faults follows from none of them.";
    outcome("dilos-fig1", "Fastswap's page fault", &[mean.without_reclaim(), mean], checks, note, pass.counts.major)
}

/// Figure 6.
pub(super) fn fig6(run: &mut Run<'_>) -> Outcome {
    let dilos = Pass::new(&System::NONE, Op::Read, run, 0.0);
    let fastswap = Pass::new(&System::FASTSWAP_NONE, Op::Read, run, 0.5);
    let (ours, theirs) = (Fault::mean(&dilos), Fault::mean(&fastswap));
    let less = 100.0 * (1.0 - ours.total() / theirs.total());
    let hidden = 100.0 - ours.percent(ours.reclaim);
    let checks = vec![
        Check::new("a fault of DiLOS is shorter than Fastswap's, percent", 49.0, less),
        Check::new("DiLOS' fault that is not reclaim, percent", 100.0, hidden).within(0.5),
    ];
    let note = "No fault of DiLOS waits for room: the other CPU keeps enough free, at the cost of a page that the table of costs gives.";
    let requests = dilos.counts.major + fastswap.counts.major;
    let faults = [ours, theirs.without_reclaim(), theirs];
    outcome("dilos-fig6", "A page fault of a sequential read without prefetching", &faults, checks, note, requests)
}

fn outcome(name: &str, title: &str, faults: &[Fault], checks: Vec<Check>, note: &str, requests: u64) -> Outcome {
    let columns = [
        ("system", 0),
        ("exception_us", 2),
        ("software_us", 2),
        ("fetch_us", 2),
        ("reclaim_us", 2),
        ("total_us", 2),
        ("fetch_percent", 1),
        ("reclaim_percent", 1),
        ("exception_percent", 1),
    ];
    let mut table = Table::new("breakdown", title, &columns);
    let mut bars = Vec::new();
    for fault in faults {
        let Fault { exception, software, fetch, reclaim, .. } = *fault;
        let mut cells = row([&fault.name], [exception, software, fetch, reclaim, fault.total()]);
        cells.extend([fetch, reclaim, exception].map(|part| Cell::from(fault.percent(part))));
        table.push(cells);
        let parts = vec![exception, software, fetch, reclaim];
        bars.push(Bar { name: fault.name.clone(), numbers: format!("{:.2} us", fault.total()), parts });
    }
    let names = ["exception", "software", "fetch", "reclaim"];
    Outcome {
        tables: vec![table],
        bars: vec![figure::bars(name, title, "Simulated; the mean of all major faults.", &names, bars)],
        checks,
        notes: vec![note.to_owned()],
        requests,
        ..Outcome::default()
    }
}
