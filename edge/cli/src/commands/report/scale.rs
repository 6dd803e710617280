//! [`Scale`]: how much is measured, so that a whole report takes minutes.

use std::time::Duration;

use yonder_bench::programs;

/// How much each experiment measures.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// Size of the array.
    pub(super) memory: u64,
    /// Measured time of a run; a warm-up of a quarter of it comes before.
    pub(super) run: Duration,
    /// Rounds in which all that is compared takes turns; the median of each figure counts.
    pub(super) rounds: usize,
    /// Faults of a run that are taken apart, and such runs.
    pub(super) faults: u64,
    pub(super) fault_runs: usize,
    /// Switches of a round.
    pub(super) switches: u64,
    /// Work of programs.
    pub(super) programs: programs::Scale,
}

impl Scale {
    /// What counts.
    const FULL: Self = Self {
        memory: 256 << 20,
        run: Duration::from_secs(1),
        rounds: 3,
        faults: 20_000,
        fault_runs: 3,
        switches: 2_000_000,
        programs: programs::Scale::Full,
    };
    /// What shows that it works.
    const QUICK: Self = Self {
        memory: 64 << 20,
        run: Duration::from_millis(200),
        rounds: 1,
        faults: 2_000,
        fault_runs: 1,
        switches: 100_000,
        programs: programs::Scale::Small,
    };

    pub(super) fn of(quick: bool) -> &'static Self {
        if quick { &Self::QUICK } else { &Self::FULL }
    }

    /// How it was measured, in words.
    pub(super) fn words(&self) -> String {
        let rounds = match self.rounds {
            1 => "one round".to_owned(),
            rounds => format!("medians of {rounds} rounds in which all that is compared takes turns"),
        };
        format!("Runs of {:.1} s; {rounds}.", self.run.as_secs_f64())
    }
}
