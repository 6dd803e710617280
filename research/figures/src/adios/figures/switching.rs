//! Table 1: what a switch between user-level threads takes.

use crate::costs::{Cost, adios, testbed, yonder};
use crate::figure::{Cell, Check, Figure, Outcome, Run, Table};

pub(crate) const TABLE1: Figure = Figure {
    name: "adios-table1",
    source: "Adios, Table 1",
    title: "Cycles of a switch between user-level threads, and what they are of a fault that yields",
    run: table1,
};

fn table1(_: &mut Run<'_>) -> Outcome {
    let mut table =
        Table::new("all", "Switches", &[("mechanism", 0), ("cycles", 0), ("two_switches_of_a_fault_percent", 2)]);
    let cycles = |cost: &Cost| cost.value * testbed::CLOCK.value;
    let fault = adios::FAULTED.value - adios::HIT.value;
    let mut row = |name: &str, cycles: f64| {
        let share = 2.0 * cycles / testbed::CLOCK.value / fault * 100.0;
        table.push(vec![Cell::from(name), cycles.into(), share.into()]);
    };
    row("Adios' unithread", cycles(&adios::SWITCH));
    row("Shinjuku's ucontext_t", cycles(&adios::UCONTEXT));
    row("Yonder's unithread", yonder::SWITCH.value);
    Outcome {
        checks: vec![
            Check::new("ucontext_t / unithread", 4.7, adios::UCONTEXT.value / adios::SWITCH.value).calibration(),
        ],
        tables: vec![table],
        ..Outcome::default()
    }
}
