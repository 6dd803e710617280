//! [`Halves`]: some CPUs for node and victim, and the others for the twin and attacks, so that no scheduler shares one
//! between them.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::BenchError;

/// The CPUs that this process may use, in two parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Halves {
    all: CpuSet,
    /// Of node and victim.
    own: CpuSet,
    /// Of the twin and of attacks: those that are left, half of them at least.
    others: CpuSet,
}

impl Halves {
    /// Those of the calling thread.
    pub(super) fn of_this_thread() -> Result<Self, BenchError> {
        let all =
            sched_getaffinity(None).map_err(|errno| BenchError::Settings(format!("no CPUs are told: {errno}")))?;
        Self::of(&all)
            .ok_or_else(|| BenchError::Settings("there is only one CPU here: leave --own-cpus out".to_owned()))
    }

    fn of(all: &CpuSet) -> Option<Self> {
        let (mut own, mut others) = (CpuSet::new(), CpuSet::new());
        let half = all.count() / 2;
        for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)) {
            if own.count() < half { own.set(cpu) } else { others.set(cpu) }
        }
        (half > 0).then_some(Self { all: *all, own, others })
    }

    /// The calling thread, and those that it starts from now on, may use all.
    pub(super) fn take_all(&self) {
        take(&self.all);
    }

    /// They are of node and victim.
    pub(super) fn take_own(&self) {
        take(&self.own);
    }

    /// They are of another tenant.
    pub(super) fn take_others(&self) {
        take(&self.others);
    }
}

fn take(cpus: &CpuSet) {
    sched_setaffinity(None, cpus).expect("a thread may use some of its process's CPUs");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cpu_is_in_one_half() {
        let set = |cpus: &[usize]| {
            let mut set = CpuSet::new();
            cpus.iter().for_each(|cpu| set.set(*cpu));
            set
        };
        for (all, own, others) in
            [(&[0, 1][..], &[0][..], &[1][..]), (&[1, 3, 9], &[1], &[3, 9]), (&[0, 1, 2, 3], &[0, 1], &[2, 3])]
        {
            let halves = Halves::of(&set(all)).unwrap();
            assert_eq!((halves.own, halves.others, halves.all), (set(own), set(others), set(all)));
        }
        assert!(Halves::of(&set(&[5])).is_none());
    }
}
