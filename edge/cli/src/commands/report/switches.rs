//! What a switch between user-level threads costs: Adios' Table 1, measured here.

use yonder_bench::switch::{self, SwitchResult};
use yonder_report::{Aim, Origin, Section, Table};

use super::scale::Scale;
use super::trial::compare;

/// Cycles of a switch between unithreads, and how much longer one of `ucontext` takes (section 3.2).
const PAPER_CYCLES: f64 = 40.0;
const PAPER_RATIO: f64 = 4.7;

pub(super) fn run(scale: &Scale) -> anyhow::Result<Section> {
    Ok(section(&switch::run(scale.switches)?))
}

fn section(results: &[SwitchResult]) -> Section {
    let of = |mechanism: &str| results.iter().find(|result| result.mechanism == mechanism);
    let ratio = of("ucontext").map_or(f64::NAN, |result| result.ratio_to_unithread);
    let cycles = of("unithread").and_then(|result| result.cycles_per_switch).unwrap_or(f64::NAN);
    Section {
        name: "switch".to_owned(),
        source: "Adios, Table 1".to_owned(),
        title: "What a switch between user-level threads costs".to_owned(),
        origin: Origin::Measured,
        words: vec!["One switch, one way; the median of nine rounds in which the mechanisms take turns.".to_owned()],
        tables: vec![table(results)],
        pictures: Vec::new(),
        bars: Vec::new(),
        comparisons: vec![
            compare(
                "a switch of ucontext / of unithreads",
                PAPER_RATIO,
                ratio,
                Aim::None,
                "The paper's ucontext is Shinjuku's, without a system call; here it is glibc's, which makes one.",
            ),
            compare("cycles of a switch between unithreads", PAPER_CYCLES, cycles, Aim::AtMost, ""),
        ],
        notes: Vec::new(),
    }
}

fn table(results: &[SwitchResult]) -> Table {
    let columns = [
        ("mechanism", 0),
        ("ns_per_switch", 2),
        ("cycles_per_switch", 1),
        ("least_ns", 2),
        ("most_ns", 2),
        ("ratio_to_unithread", 2),
    ];
    let mut table = Table::new("switch", "Switches", &columns);
    for result in results {
        table.push(vec![
            result.mechanism.into(),
            result.ns_per_switch.into(),
            result.cycles_per_switch.unwrap_or(f64::NAN).into(),
            result.spread_ns[0].into(),
            result.spread_ns[1].into(),
            result.ratio_to_unithread.into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_of_the_mechanisms_they_name() {
        let result = |mechanism, ns: f64, cycles| SwitchResult {
            bench: "switch",
            mechanism,
            ns_per_switch: ns,
            cycles_per_switch: cycles,
            spread_ns: [ns, ns],
            ratio_to_unithread: ns / 5.0,
            ops_per_s: 1e9 / ns,
        };
        let results = [result("unithread", 5.0, Some(13.0)), result("ucontext", 150.0, Some(390.0))];
        let whole = section(&results);
        assert_eq!((whole.comparisons[0].ours, whole.comparisons[1].ours, whole.met()), (30.0, 13.0, (1, 1)));
        // Where the counter is not used, cycles are not known, and not met.
        let unknown = section(&[result("unithread", 5.0, None)]);
        assert_eq!((unknown.met(), &unknown.tables[0].rows[0][2]), ((0, 1), &f64::NAN.into()));
    }
}
