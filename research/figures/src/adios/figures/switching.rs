//! Table 1: what a switch between user-level threads takes.

use crate::costs::{Cost, adios, testbed, yonder};
use crate::figure::{Check, Figure, Outcome, Run, Table, row};

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
    let switches = [
        ("Adios' unithread", cycles(&adios::SWITCH)),
        ("Shinjuku's ucontext_t", cycles(&adios::UCONTEXT)),
        ("Yonder's unithread", yonder::SWITCH.value),
    ];
    for (name, cycles) in switches {
        table.push(row([name], [cycles, 2.0 * cycles / testbed::CLOCK.value / fault * 100.0]));
    }
    Outcome {
        checks: vec![
            Check::new("ucontext_t / unithread", 4.7, adios::UCONTEXT.value / adios::SWITCH.value).calibration(),
        ],
        tables: vec![table],
        ..Outcome::default()
    }
}
