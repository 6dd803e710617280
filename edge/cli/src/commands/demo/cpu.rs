//! [`CpuMeter`]: how much of this machine's CPUs the demo was given while it measured, and who had the rest.
//!
//! The kernel counts in ticks of about 10 ms: for each CPU in `/proc/stat`, for a process with all its threads, also
//! those that have ended, in `/proc/PID/stat`. That is exact enough over seconds. CPUs that this process may not run on
//! do not count.

use std::fmt;

use rustix::thread::{CpuSet, sched_getaffinity};

/// Share of the CPUs from which on the demo counts as undisturbed, in percent.
const QUIET_PERCENT: f64 = 90.0;

/// Whose time is counted, and what was counted when that began.
pub(super) struct CpuMeter {
    processes: Vec<u32>,
    begun: Option<Ticks>,
}

/// What the kernel has counted up to a moment, over all CPUs that this process may use.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Ticks {
    cpus: usize,
    /// Of all programs.
    busy: u64,
    /// That the hypervisor had for itself or for other machines.
    stolen: u64,
    idle: u64,
    /// Of the demo.
    own: u64,
}

/// Who had the CPUs, in percent of their time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct CpuShare {
    cpus: usize,
    /// What the demo used, or could have used: all that the others left.
    given_percent: f64,
    /// What other programs used.
    others_percent: f64,
    /// What the hypervisor took.
    stolen_percent: f64,
}

impl CpuMeter {
    /// Begins to count for this process and for `others` that are the demo's too.
    pub(super) fn start(others: &[u32]) -> Self {
        let processes = [&[std::process::id()], others].concat();
        Self { begun: Ticks::read(&processes), processes }
    }

    /// Who had the CPUs since then; `None` if the kernel does not say.
    pub(super) fn share(&self) -> Option<CpuShare> {
        Ticks::read(&self.processes)?.since(self.begun?)
    }
}

impl Ticks {
    fn read(processes: &[u32]) -> Option<Self> {
        let usable = sched_getaffinity(None).ok()?;
        let machine = Self::of_machine(&std::fs::read_to_string("/proc/stat").ok()?, |cpu| {
            cpu < CpuSet::MAX_CPU && usable.is_set(cpu)
        })?;
        let own = |pid: &u32| own_ticks(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?);
        Some(Self { own: processes.iter().map(own).sum::<Option<u64>>()?, ..machine })
    }

    /// Sums up the lines of `/proc/stat` that are of usable CPUs. None without any.
    fn of_machine(stat: &str, is_usable: impl Fn(usize) -> bool) -> Option<Self> {
        let mut sum = Self::default();
        for line in stat.lines() {
            let mut words = line.split_whitespace();
            let cpu = words.next().and_then(|word| word.strip_prefix("cpu")?.parse().ok());
            if !cpu.is_some_and(&is_usable) {
                continue;
            }
            let counts: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            let [user, nice, system, idle, waiting, interrupts, soft_interrupts, stolen, ..] = *counts else {
                return None;
            };
            sum.cpus += 1;
            sum.busy += user + nice + system + interrupts + soft_interrupts;
            sum.idle += idle + waiting;
            sum.stolen += stolen;
        }
        (sum.cpus > 0).then_some(sum)
    }

    fn since(self, begun: Self) -> Option<CpuShare> {
        let all = (self.busy + self.stolen + self.idle).checked_sub(begun.busy + begun.stolen + begun.idle)?;
        // The kernel's counts may fall a little.
        let percent = |ticks: u64| 100.0 * ticks as f64 / all as f64;
        let others_percent =
            percent(self.busy.saturating_sub(begun.busy).saturating_sub(self.own.saturating_sub(begun.own)));
        let stolen_percent = percent(self.stolen.saturating_sub(begun.stolen));
        let given_percent = 100.0 - others_percent - stolen_percent;
        (all > 0).then_some(CpuShare { cpus: self.cpus, given_percent, others_percent, stolen_percent })
    }
}

/// User and system time of a process. Its name, in brackets, may have anything in it.
fn own_ticks(stat: &str) -> Option<u64> {
    /// Of user time, counted from the word behind the name; system time is the next.
    const USER_TIME: usize = 11;
    let words: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let [user, system] = words.get(USER_TIME..USER_TIME + 2)? else { return None };
    Some(user.parse::<u64>().ok()? + system.parse::<u64>().ok()?)
}

impl CpuShare {
    /// What it means for what was measured: one sentence.
    pub(super) fn sentence(&self) -> String {
        let Self { cpus, given_percent, others_percent, stolen_percent } = self;
        let who = format!("other programs had {others_percent:.0} %, the hypervisor {stolen_percent:.0} %");
        if *given_percent < QUIET_PERCENT {
            format!(
                "The demo had only {given_percent:.0} % of {cpus} CPUs ({who}): its numbers are of a machine that is \
                 shared with them."
            )
        } else {
            format!("The demo had {given_percent:.0} % of {cpus} CPUs ({who}).")
        }
    }
}

/// Such as `with 97 % of 2 CPUs`.
impl fmt::Display for CpuShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "with {:.0} % of {} CPUs", self.given_percent, self.cpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGUN: &str = "cpu  600 0 60 900 0 0 0 0 0 0\ncpu0 100 0 10 400 0 0 0 0 0 0\ncpu1 100 0 10 100 0 0 0 0 0 0\n\
                         cpu2 400 0 40 400 0 0 0 0 0 0\nintr 5 0\n";
    const ENDED: &str = "cpu  9 9 9 9\ncpu0 150 5 30 400 5 4 6 10 0 0\ncpu1 200 0 10 100 0 0 0 0 0 0\n\
                         cpu2 999 0 40 400 0 0 0 0 0 0\nintr 6 0\n";

    #[test]
    fn time_is_of_the_demo_of_others_or_of_the_hypervisor() {
        let ticks = |stat, own| Ticks { own, ..Ticks::of_machine(stat, |cpu| cpu < 2).unwrap() };
        let (begun, ended) = (ticks(BEGUN, 50), ticks(ENDED, 175));
        assert_eq!(begun, Ticks { cpus: 2, busy: 220, stolen: 0, idle: 500, own: 50 });
        // 200 ticks in all: 185 of programs, 125 of them the demo's, 10 stolen, and 5 in which there was nothing to do.
        let share = ended.since(begun).unwrap();
        let expected = CpuShare { cpus: 2, given_percent: 65.0, others_percent: 30.0, stolen_percent: 5.0 };
        assert_eq!(share, expected);
        assert_eq!(share.to_string(), "with 65 % of 2 CPUs");
        assert!(share.sentence().starts_with("The demo had only 65 % of 2 CPUs (other programs had 30 %, the hyper"));
        let quiet = CpuShare { given_percent: 98.6, ..share };
        assert!(quiet.sentence().starts_with("The demo had 99 % of 2 CPUs (") && quiet.sentence().ends_with(")."));
        assert_eq!(begun.since(begun), None, "no time has passed");
    }

    #[test]
    fn a_process_may_have_any_name() {
        let stat = "4711 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 70 30 0 0 20";
        assert_eq!(own_ticks(stat), Some(100));
        assert_eq!((own_ticks("4711 (x) S 1 2"), own_ticks("")), (None, None));
    }

    #[test]
    fn this_machine_says_who_has_its_cpus() {
        let ticks = Ticks::read(&[std::process::id()]).unwrap();
        assert!(ticks.cpus > 0 && ticks.busy + ticks.idle > 0, "{ticks:?}");
        assert_eq!(Ticks::of_machine("cpu0 1 2\n", |_| true), None);
        assert_eq!(Ticks::of_machine(BEGUN, |_| false), None);
    }
}
