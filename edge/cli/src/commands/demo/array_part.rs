//! The demo's first part: random reads of an array, with requests made in the dispatcher.

use std::time::Duration;

use yonder::FaultPolicy;
use yonder::units::LocalSize;
use yonder_bench::array::{Array, ArraySettings};
use yonder_load::Rate;
use yonder_report::{Chart, Point};

use super::Part;
use super::summary::{HasBar, LOADS, LOCAL_PERCENT, Mode, ratios};
use crate::commands::points::{median_point, point};
use crate::output::Bar;

pub(super) const MEMORY: u64 = 256 << 20;
const FAR: &str = "emu://?latency=2.5us&gbps=100";
const RUN: Duration = Duration::from_millis(600);
/// Rounds over all loads and modes, taken in turn; the median of each figure counts, so that a moment in which the
/// machine does something else does not.
const ROUNDS: usize = 3;

type Emit<'a> = &'a mut dyn FnMut(&serde_json::Value) -> anyhow::Result<()>;

pub(super) fn run(emit: Emit<'_>) -> anyhow::Result<Part> {
    let bar = Bar::new("array ");
    let mut settings = ArraySettings {
        duration: RUN,
        ..ArraySettings::new(FAR.to_owned(), MEMORY, LocalSize::Percent(LOCAL_PERCENT))
    };
    let array = Array::prepare(&settings, &mut |what, share| bar.show(what, share))?;
    let mut modes = [("busy-wait", FaultPolicy::Busy), ("yield", FaultPolicy::Yield)]
        .map(|(name, policy)| (Mode { name, peak_per_s: 0.0, points: Vec::new() }, policy));
    let mut measure = |policy, rate, label: &str| -> anyhow::Result<Point> {
        (settings.sched.faults, settings.rate) = (policy, rate);
        let result = array.run(&settings, &mut |_, share| bar.show(label, share))?;
        emit(&serde_json::to_value(&result)?)?;
        Ok(point(&result))
    };
    for (mode, policy) in &mut modes {
        let label = format!("{}, as fast as it can", mode.name);
        let rounds = (0..ROUNDS).map(|_| measure(*policy, Rate::Max, &label)).collect::<Result<Vec<_>, _>>()?;
        mode.peak_per_s = median_point(&rounds).achieved_per_s;
    }
    let peak = modes[0].0.peak_per_s;
    for load in LOADS {
        let rate = peak * load;
        let mut rounds = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for ((mode, policy), points) in modes.iter().zip(&mut rounds) {
                points.push(measure(
                    *policy,
                    Rate::PerSecond(rate),
                    &format!("{}, {:.0} K requests/s", mode.name, rate / 1e3),
                )?);
            }
        }
        for ((mode, _), points) in modes.iter_mut().zip(&rounds) {
            mode.points.push(median_point(points));
        }
    }
    let [(busy, _), (yielding, _)] = modes;
    Ok(Part {
        ratios: ratios("array", &busy, &yielding, HasBar::Yes),
        chart: Chart {
            title: "Random reads of an array".to_owned(),
            explanation:
                "Every request reads eight bytes at a random place; four of five find their page far away. Requests \
                          are made inside the process, so nothing but paging and scheduling is measured."
                    .to_owned(),
            far_memory: "2.5 us, 100 Gbit/s".to_owned(),
            curves: vec![busy.curve(), yielding.curve()],
        },
    })
}
