//! The demo's first part: random reads of an array, with requests made in the dispatcher.

use std::time::Duration;

use yonder::FaultPolicy;
use yonder::units::LocalSize;
use yonder_bench::array::{Array, ArrayResult, ArraySettings};
use yonder_load::Rate;
use yonder_report::{Chart, Point};

use super::Part;
use super::summary::{HasBar, LOADS, LOCAL_PERCENT, Mode, ratios};
use crate::output::Bar;

pub(super) const MEMORY: u64 = 256 << 20;
const FAR: &str = "emu://?latency=2.5us&gbps=100";
const RUN: Duration = Duration::from_millis(1500);

type Emit<'a> = &'a mut dyn FnMut(&serde_json::Value) -> anyhow::Result<()>;

pub(super) fn run(emit: Emit<'_>) -> anyhow::Result<Part> {
    let bar = Bar::new("array ");
    let mut settings = ArraySettings {
        memory: MEMORY,
        local: LocalSize::Percent(LOCAL_PERCENT),
        far: FAR.to_owned(),
        duration: RUN,
        ..ArraySettings::default()
    };
    let array = Array::prepare(&settings, &mut |what, share| bar.show(what, share))?;
    let mut modes = [("busy-wait", FaultPolicy::Busy), ("yield", FaultPolicy::Yield)]
        .map(|(name, policy)| (Mode { name, peak_per_s: 0.0, points: Vec::new() }, policy));
    let mut measure = |policy, rate, label: &str| -> anyhow::Result<ArrayResult> {
        (settings.faults, settings.rate) = (policy, rate);
        let result = array.run(&settings, &mut |_, share| bar.show(label, share))?;
        emit(&serde_json::to_value(&result)?)?;
        Ok(result)
    };
    for (mode, policy) in &mut modes {
        mode.peak_per_s = measure(*policy, Rate::Max, &format!("{}, as fast as it can", mode.name))?.ops_per_s;
    }
    let peak = modes[0].0.peak_per_s;
    for load in LOADS {
        for (mode, policy) in &mut modes {
            let rate = peak * load;
            let result =
                measure(*policy, Rate::PerSecond(rate), &format!("{}, {:.0} K requests/s", mode.name, rate / 1e3))?;
            mode.points.push(point(&result, rate));
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

fn point(result: &ArrayResult, rate: f64) -> Point {
    Point {
        offered_per_s: rate,
        achieved_per_s: result.ops_per_s,
        p50_us: result.p50_us,
        p99_us: result.p99_us,
        p999_us: result.p999_us,
        dropped: result.dropped,
    }
}
