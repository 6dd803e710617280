//! [`Trial`]: an array in far memory, and runs on it in which all that is compared takes turns.

use yonder::sched::{DispatchPolicy, InstallDelegation, SchedConfig};
use yonder::units::LocalSize;
use yonder::{Config, FaultPolicy};
use yonder_bench::array::{Array, ArraySettings};
use yonder_bench::comparison::{Ended, Series, take_turns};
use yonder_load::Rate;
use yonder_report::{Aim, Comparison, Line, Point};

use super::scale::Scale;
use crate::commands::points::{median_point, point};
use crate::output::Bar;

/// Far memory of all measurements: Adios' network (100 Gbit/s; a page in 2 to 3 us).
pub(super) const FAR: &str = "emu://?latency=2.5us&gbps=100";
/// The same in words.
pub(super) const LINK: &str = "2.5 us, 100 Gbit/s";
/// Share of the array that is local where nothing else is said, as in all of Adios' experiments.
pub(super) const LOCAL_PERCENT: f64 = 20.0;

/// One of the things that are compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) name: &'static str,
    faults: FaultPolicy,
    dispatch: DispatchPolicy,
    installs: InstallDelegation,
}

impl Way {
    /// Faults that yield, and those that busy-wait, in this order. Both have one CPU for their faults: each worker maps
    /// its pages itself.
    pub(super) const FAULTS: [Self; 2] = [
        Self { name: "yield", installs: InstallDelegation::Off, ..Self::DISPATCH[0] },
        Self { name: "busy", faults: FaultPolicy::Busy, installs: InstallDelegation::Off, ..Self::DISPATCH[0] },
    ];
    /// Both dispatch policies, in this order.
    pub(super) const DISPATCH: [Self; 2] = [
        Self {
            name: "pf-aware",
            faults: FaultPolicy::Yield,
            dispatch: DispatchPolicy::PageFaultAware,
            installs: InstallDelegation::On,
        },
        Self {
            name: "round-robin",
            faults: FaultPolicy::Yield,
            dispatch: DispatchPolicy::RoundRobin,
            installs: InstallDelegation::On,
        },
    ];
}

/// A bar that shows how many of all runs are done.
pub(super) struct Steps {
    bar: Bar,
    done: usize,
    all: usize,
}

impl Steps {
    /// Of an experiment that asks [`Trial::in_turn`] that many times.
    pub(super) fn new(title: &str, times: usize, ways: usize, scale: &Scale) -> Self {
        Self { bar: Bar::new(title), done: 0, all: times * ways * scale.rounds }
    }

    fn show(&self, what: &str, share: f64) {
        self.bar.show(what, (self.done as f64 + share) / self.all as f64);
    }
}

/// A filled array.
pub(super) struct Trial<'a> {
    array: Array,
    settings: ArraySettings,
    rounds: usize,
    ways: [Way; 2],
    steps: &'a mut Steps,
}

impl<'a> Trial<'a> {
    /// Fills an array of which so much is local, for that many workers.
    pub(super) fn prepare(
        scale: &Scale,
        (local_percent, workers): (f64, usize),
        ways: [Way; 2],
        steps: &'a mut Steps,
    ) -> anyhow::Result<Self> {
        let placement = yonder::place(workers);
        let settings = ArraySettings::new(FAR.to_owned(), scale.memory, LocalSize::Percent(local_percent));
        let settings = ArraySettings {
            paging: Config { reclaimer_cpu: placement.reclaimer, ..settings.paging },
            sched: SchedConfig { workers, reclaim: placement.reclaim(), cpus: placement.cpus, ..settings.sched },
            duration: scale.run,
            ..settings
        };
        let array = Array::prepare(&settings, &mut |what, _| steps.show(what, 0.0))?;
        Ok(Self { array, settings, rounds: scale.rounds, ways, steps })
    }

    /// Runs of both ways at a rate, in turn; the medians of each.
    pub(super) fn in_turn(&mut self, rate: Rate) -> anyhow::Result<[Point; 2]> {
        let mut all = self.ways.map(Series::new);
        let label = |way: &Way| format!("{}, {rate} requests/s", way.name);
        let Self { array, settings, rounds, steps, .. } = self;
        settings.rate = rate;
        take_turns(&mut all, *rounds, &mut |_, _| (), label, |way, _| {
            let Way { faults, dispatch, installs, .. } = *way;
            settings.sched = SchedConfig { faults, dispatch, installs, ..settings.sched.clone() };
            let result = array.run(settings, &mut |_, share| steps.show(&label(way), share))?;
            anyhow::ensure!(
                result.counts.errors == 0,
                "{} requests failed in a run of the report: look at the log with YONDER_LOG=info",
                result.counts.errors
            );
            steps.done += 1;
            Ok(Ended::Well(point(&result)))
        })?;
        Ok(all.map(|series| median_point(&series.trials)))
    }
}

/// A number of a paper's beside ours.
pub(super) fn compare(what: impl Into<String>, paper: f64, ours: f64, aim: Aim, why: impl Into<String>) -> Comparison {
    Comparison { what: what.into(), paper, ours, aim, why: why.into() }
}

/// A curve for each way, in the order of the ways.
pub(super) fn lines(ways: [Way; 2], curve: impl Fn(usize) -> Vec<(f64, f64)>) -> Vec<Line> {
    let line = |(index, way): (usize, Way)| Line { name: way.name.to_owned(), points: curve(index) };
    ways.into_iter().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compared_differs_in_one_policy() {
        let [yielding, busy] = Way::FAULTS;
        assert_eq!((yielding.dispatch, yielding.installs), (busy.dispatch, busy.installs));
        assert_eq!(yielding.installs, InstallDelegation::Off, "a second CPU for one of them is no comparison");
        let [aware, in_turn] = Way::DISPATCH;
        assert_eq!((aware.faults, aware.installs), (in_turn.faults, in_turn.installs));
    }
}
