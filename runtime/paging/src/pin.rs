//! Pinning threads to CPUs.

/// Pins the calling thread to `cpu`. A CPU that this process may not use leaves the thread where it is, with a warning.
pub fn pin_this_thread(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!(%error, cpu, "a thread is not pinned");
    }
}
