//! Which thread runs on which CPU.
//!
//! Workers come first; the dispatcher and the reclaimer have CPUs of their own where there are enough, share one where
//! there is one left, and with fewer CPUs than that nothing is pinned and the kernel decides.

use yonder_sched::Reclaim;

/// CPUs for the threads of a server.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CpuPinning {
    /// CPU of the dispatcher, then of each worker; empty if they are not pinned.
    pub cpus: Vec<usize>,
    /// CPU of the reclaimer.
    pub reclaimer: Option<usize>,
    /// Whether the reclaimer has a CPU that no other thread of the server spins on. If not, the dispatcher does its
    /// work.
    pub reclaimer_alone: bool,
}

impl CpuPinning {
    /// Who should reclaim on such CPUs.
    #[must_use]
    pub fn reclaim(&self) -> Reclaim {
        if self.reclaimer_alone { Reclaim::Thread } else { Reclaim::Dispatcher }
    }
}

/// Places `workers` workers, a dispatcher and a reclaimer on the CPUs this process may use.
#[must_use]
pub fn place(workers: usize) -> CpuPinning {
    place_on(&allowed(), workers)
}

fn place_on(cpus: &[usize], workers: usize) -> CpuPinning {
    if cpus.len() <= workers {
        return CpuPinning::default();
    }
    let (for_workers, rest) = cpus.split_at(workers);
    let dispatcher = rest[0];
    let cpus = std::iter::once(dispatcher).chain(for_workers.iter().copied()).collect();
    CpuPinning { cpus, reclaimer: Some(rest.get(1).copied().unwrap_or(dispatcher)), reclaimer_alone: rest.len() > 1 }
}

fn allowed() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_cpus_is_served() {
        let place = |cpus: usize, workers| place_on(&(0..cpus).collect::<Vec<_>>(), workers);
        assert_eq!(place(2, 1), CpuPinning { cpus: vec![1, 0], reclaimer: Some(1), reclaimer_alone: false });
        assert_eq!(place(3, 1), CpuPinning { cpus: vec![1, 0], reclaimer: Some(2), reclaimer_alone: true });
        assert_eq!(place(64, 8).cpus.len(), 9);
        assert_eq!(place(2, 2), CpuPinning::default());
        assert_eq!(place(0, 1), CpuPinning::default());
    }
}
