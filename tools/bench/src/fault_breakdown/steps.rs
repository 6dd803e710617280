//! [`Step`]: the parts of a major fault, and [`Steps`]: how long they take.

use serde::Serialize;
use yonder::StageHistogram;
use yonder::units::Nanos;
use yonder_load::LatencyRecorder;

use super::touching::Touch;

/// A part of a major fault, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// From the touch to the handler: the CPU's exception, and the kernel that delivers a signal.
    Exception,
    /// From the handler to the posted read: the page table, a fetch's slot, room in local memory.
    Post,
    /// From the posted read to the first look whether it is done: with yielding faults, parking the request and
    /// switching away.
    Away,
    /// From there to the look that finds the page.
    Fetch,
    /// The page is mapped by the kernel.
    Install,
    /// From the mapped page to the end of the handler: with yielding faults, the switch back.
    Back,
    /// From the end of the handler to the value that was touched: the signal's frame is left, and the access made
    /// again.
    Return,
}

/// Who spends the time of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// The CPU and the operating system.
    Kernel,
    /// Yonder's own code.
    Runtime,
    /// The way to far memory and back.
    Fabric,
}

impl Step {
    /// All of them, one behind the other.
    pub const ALL: [Self; 7] =
        [Self::Exception, Self::Post, Self::Away, Self::Fetch, Self::Install, Self::Back, Self::Return];

    /// What results call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Exception => "exception",
            Self::Post => "post",
            Self::Away => "away",
            Self::Fetch => "fetch",
            Self::Install => "install",
            Self::Back => "back",
            Self::Return => "return",
        }
    }

    /// Whose time it is.
    #[must_use]
    pub fn by(self) -> By {
        match self {
            Self::Exception | Self::Install | Self::Return => By::Kernel,
            Self::Post | Self::Away | Self::Back => By::Runtime,
            Self::Fetch => By::Fabric,
        }
    }
}

/// How long a step takes; the fields are a contract with scripts.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct StepResult {
    /// `exception`, `post`, `away`, `fetch`, `install`, `back` or `return`.
    pub step: Step,
    /// `kernel`, `runtime` or `fabric`.
    pub by: By,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Of the sum of all medians, in percent.
    pub percent: f64,
}

/// Times of faults, by step.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    /// Those of [`Step::ALL`], but [`Step::Install`] with [`Step::Back`], which cannot be told apart from outside.
    exact: [LatencyRecorder; 6],
    /// All of a fault.
    pub(super) total: LatencyRecorder,
    /// [`Step::Back`], as the runtime counts it.
    back: StageHistogram,
}

impl Steps {
    /// Adds a fault.
    pub(super) fn add(&mut self, touch: &Touch) {
        let passed = &touch.passed;
        let stamps =
            [touch.touched, passed.began, passed.posted, passed.polled, passed.completed, passed.ended, touch.over];
        for (step, between) in self.exact.iter_mut().zip(stamps.windows(2)) {
            step.record(between[1].saturating_sub(between[0]));
        }
        self.total.record(touch.over.saturating_sub(touch.touched));
    }

    /// Adds what the runtime has counted of [`Step::Back`].
    pub(super) fn add_back(&mut self, back: &StageHistogram) {
        self.back.buckets.iter_mut().zip(&back.buckets).for_each(|(sum, count)| *sum += count);
    }

    /// Adds those of another run.
    pub(super) fn merge(&mut self, other: &Self) {
        self.exact.iter_mut().zip(&other.exact).for_each(|(all, more)| all.merge(more));
        self.total.merge(&other.total);
        self.add_back(&other.back);
    }

    /// What they come to.
    pub(super) fn results(&self) -> Vec<StepResult> {
        // The runtime's own part of that step varies little, and so what varies is the kernel's.
        let back = |quantile: f64| microseconds(self.back.quantile(quantile));
        let installed = |percent: f64| (self.exact[4].percentile_us(percent) - back(0.5)).max(0.0);
        let figure = |step: Step, percent: f64| match step {
            Step::Exception => self.exact[0].percentile_us(percent),
            Step::Post => self.exact[1].percentile_us(percent),
            Step::Away => self.exact[2].percentile_us(percent),
            Step::Fetch => self.exact[3].percentile_us(percent),
            Step::Install => installed(percent),
            Step::Back => back(percent / 100.0),
            Step::Return => self.exact[5].percentile_us(percent),
        };
        let sum: f64 = Step::ALL.iter().map(|step| figure(*step, 50.0)).sum();
        let result = |step: Step| {
            let p50_us = figure(step, 50.0);
            let percent = if sum > 0.0 { 100.0 * p50_us / sum } else { 0.0 };
            StepResult { step, by: step.by(), p50_us, p99_us: figure(step, 99.0), percent }
        };
        Step::ALL.map(result).to_vec()
    }
}

fn microseconds(nanos: Nanos) -> f64 {
    nanos as f64 / 1e3
}

/// The share of `by` in all steps, in percent.
pub(super) fn percent_of(steps: &[StepResult], by: By) -> f64 {
    steps.iter().filter(|step| step.by == by).map(|step| step.percent).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault_breakdown::stamps::Passed;

    /// A fault whose steps, with install and back in one, take so long.
    fn touch(steps: [Nanos; 6]) -> Touch {
        let mut at = 1_000_000;
        let mut next = |step: usize| {
            at += steps[step];
            at
        };
        let passed = Passed { began: next(0), posted: next(1), polled: next(2), completed: next(3), ended: next(4) };
        Touch { touched: 1_000_000, passed, over: next(5) }
    }

    fn back(nanos: Nanos, count: usize) -> StageHistogram {
        let recorder = yonder_paging::StageRecorder::default();
        (0..count).for_each(|_| recorder.record(nanos));
        recorder.snapshot()
    }

    #[test]
    fn steps_are_what_lies_between_two_stamps() {
        let mut all = Steps::default();
        (0..98).for_each(|_| all.add(&touch([1_000, 200, 100, 3_000, 1_100, 600])));
        all.add_back(&back(96, 98));
        let mut slow = Steps::default();
        (0..2).for_each(|_| slow.add(&touch([9_000, 200, 100, 3_000, 40_100, 600])));
        slow.add_back(&back(96, 2));
        all.merge(&slow);
        let results = all.results();
        let rounded = |value: f64| (value * 10.0).round() / 10.0;
        let figures: Vec<_> =
            results.iter().map(|result| (result.step.name(), rounded(result.p50_us), rounded(result.p99_us))).collect();
        assert_eq!(
            figures,
            [
                ("exception", 1.0, 9.0),
                ("post", 0.2, 0.2),
                ("away", 0.1, 0.1),
                ("fetch", 3.0, 3.0),
                ("install", 1.0, 40.0),
                ("back", 0.1, 0.1),
                ("return", 0.6, 0.6)
            ]
        );
        let shares: f64 = results.iter().map(|result| result.percent).sum();
        assert!((shares - 100.0).abs() < 1e-9);
        let [kernel, runtime, fabric] =
            [By::Kernel, By::Runtime, By::Fabric].map(|by| percent_of(&results, by).round());
        assert_eq!((kernel, runtime, fabric), (43.0, 7.0, 50.0));
        assert_eq!((all.total.len(), rounded(all.total.percentile_us(50.0))), (100, 6.0));
    }

    #[test]
    fn nothing_measured_is_zero() {
        let results = Steps::default().results();
        assert!(results.iter().all(|result| (result.p50_us, result.p99_us, result.percent) == (0.0, 0.0, 0.0)));
    }
}
