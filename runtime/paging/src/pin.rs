//! Pinning threads to CPUs.

use std::marker::PhantomData;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Pins the calling thread to `cpu`. A CPU that this process may not use leaves the thread where it is, with a warning.
pub fn pin_this_thread(cpu: usize) {
    let mut set = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        tracing::warn!(cpu, "a thread is not pinned: there is no such CPU");
        return;
    }
    set.set(cpu);
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::warn!(%error, cpu, "a thread is not pinned");
    }
}

/// A thread that is pinned to a CPU for a while: dropping this gives it back the CPUs that it had before.
///
/// A thread that stayed pinned would pass that on to every thread and process that it starts, and to whoever asks it
/// how many CPUs there are.
#[derive(Debug)]
#[must_use = "the thread is pinned until this is dropped"]
pub struct Pinned {
    before: Option<CpuSet>,
    /// It belongs to the thread that it pinned.
    _here: PhantomData<*const ()>,
}

impl Pinned {
    /// Pins the calling thread to `cpu`, as [`pin_this_thread`] does.
    pub fn to(cpu: usize) -> Self {
        let before = sched_getaffinity(None).ok();
        pin_this_thread(cpu);
        Self { before, _here: PhantomData }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.before.as_ref().map(|before| sched_setaffinity(None, before)) {
            tracing::warn!(%error, "a thread stays pinned");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_is_not_there_leaves_a_thread_where_it_is() {
        pin_this_thread(usize::MAX);
        drop(Pinned::to(5000));
    }

    #[test]
    fn a_thread_has_its_cpus_again() {
        let cpus = |set: &CpuSet| (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect::<Vec<_>>();
        let here = || cpus(&sched_getaffinity(None).unwrap());
        let before = here();
        let last = *before.last().expect("a thread runs somewhere");
        let pinned = Pinned::to(last);
        assert_eq!(here(), [last]);
        drop(pinned);
        assert_eq!(here(), before);
    }
}
