//! The demo's first part: random reads of an array, with requests made in the dispatcher.

use std::time::{Duration, Instant};

use yonder::FaultPolicy;
use yonder::sched::InstallDelegation;
use yonder::units::LocalSize;
use yonder_bench::array::{Array, ArraySettings};

use super::turns::{LOCAL_PERCENT, measure};
use super::{Emit, Part};
use crate::commands::points::point;
use crate::output::with_bar;

pub(super) const MEMORY: u64 = 256 << 20;
const FAR: &str = "emu://?latency=2.5us&gbps=100";
/// Many short runs rather than few long ones: a moment in which the machine does something else spoils one of them.
const RUN: Duration = Duration::from_millis(200);
/// Those of the systems.
const POLICIES: [FaultPolicy; 2] = [FaultPolicy::Busy, FaultPolicy::Yield];

pub(super) fn run(deadline: Instant, emit: Emit<'_>) -> anyhow::Result<Part> {
    let mut settings = ArraySettings {
        duration: RUN,
        ..ArraySettings::new(FAR.to_owned(), MEMORY, LocalSize::Percent(LOCAL_PERCENT))
    };
    // Both have one CPU for their faults.
    settings.sched.installs = InstallDelegation::Off;
    let array = with_bar("array ", |progress| Array::prepare(&settings, progress))?;
    let measured = measure("array ", deadline, &[], |system, rate| {
        (settings.sched.faults, settings.rate) = (POLICIES[system], rate);
        let result = array.run(&settings, &mut |_, _| ())?;
        emit(&serde_json::to_value(&result)?)?;
        Ok(point(&result))
    })?;
    Ok(measured.part(
        "array",
        "Random reads of an array",
        "Every request reads eight bytes at a random place; four of five find their page far away. Requests are made \
         inside the process, so nothing but paging and scheduling is measured.",
        "2.5 us, 100 Gbit/s",
    ))
}
