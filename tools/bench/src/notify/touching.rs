//! Threads that touch pages, and the board on which a handler notes when it was told.
//!
//! Who touches what: the place of a thread on the [`Board`] is written by whoever handles its faults, in that thread or
//! in another, and read by the thread when its touch is over. It has one touch at a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, RwLock};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use rustix::thread::CpuSet;
use yonder::units::{Nanos, PAGE_BYTES};
use yonder_load::LatencyRecorder;
use yonder_mapping::Mapping;

use crate::BenchError;

const PAGE: u64 = PAGE_BYTES as u64;

/// When the last fault of each thread was noticed. Each thread touches pages of its own, which say whose fault it is.
pub(super) struct Board {
    places: Vec<Place>,
    bytes_per_thread: u64,
}

/// Two cache lines, because processors fetch them in pairs.
#[repr(align(128))]
struct Place(AtomicU64);

impl Board {
    pub(super) fn new(threads: usize, faults_per_thread: usize) -> Self {
        let places = (0..threads).map(|_| Place(AtomicU64::new(0))).collect();
        Self { places, bytes_per_thread: faults_per_thread as u64 * PAGE }
    }

    /// The memory that all threads touch.
    pub(super) fn bytes(&self) -> usize {
        self.places.len() * self.bytes_per_thread as usize
    }

    /// Notes that the fault at `offset` was noticed. Runs in signal handlers.
    #[inline]
    pub(super) fn note(&self, offset: u64, now: Nanos) {
        self.places[(offset / self.bytes_per_thread) as usize].0.store(now, Ordering::Release);
    }

    fn noticed(&self, thread: usize) -> Nanos {
        self.places[thread].0.load(Ordering::Acquire)
    }
}

/// What touches came to.
pub(super) struct Touches {
    /// From the touches to the handler.
    pub(super) latency: LatencyRecorder,
    /// Touches that failed, read something else than zeros, or were not noticed.
    pub(super) errors: u64,
    /// From the first touch of any thread to the last one's end.
    pub(super) took_ns: Nanos,
}

/// The touches of one thread.
struct Share {
    latency: LatencyRecorder,
    errors: u64,
    start: Nanos,
    end: Nanos,
}

/// Touches all pages of `mapping`, each thread of the board its own. The threads start together, on the CPUs in turn as
/// in the paper.
pub(super) fn touch_all(mapping: &Mapping, board: &Board) -> Result<Touches, BenchError> {
    let threads = board.places.len();
    let cpus = allowed_cpus();
    let (complete, together) = (RwLock::new(false), Barrier::new(threads));
    let shares = std::thread::scope(|scope| {
        // Threads wait at the lock until all of them exist: one that did not would be missing at the barrier for ever.
        let mut is_complete = complete.write().expect("nobody has panicked yet");
        let spawned: Result<Vec<_>, _> = (0..threads)
            .map(|thread| {
                let (complete, together, cpu) = (&complete, &together, cpus.get(thread % cpus.len().max(1)));
                spawn(scope, move || {
                    pin(cpu.copied());
                    if !*complete.read().expect("nobody panics while threads are started") {
                        return None;
                    }
                    together.wait();
                    Some(touch(mapping, board, thread))
                })
            })
            .collect();
        *is_complete = spawned.is_ok();
        drop(is_complete);
        let joined = spawned?.into_iter().map(|thread| thread.join().expect("a thread that touches does not panic"));
        Ok::<Vec<Share>, std::io::Error>(joined.flatten().collect())
    })?;
    let mut latency = LatencyRecorder::new();
    shares.iter().for_each(|share| latency.merge(&share.latency));
    let start = shares.iter().map(|share| share.start).min().unwrap_or(0);
    let end = shares.iter().map(|share| share.end).max().unwrap_or(0);
    Ok(Touches { latency, errors: shares.iter().map(|share| share.errors).sum(), took_ns: end.saturating_sub(start) })
}

/// The CPUs that this process may use.
pub(super) fn allowed_cpus() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> std::io::Result<ScopedJoinHandle<'scope, T>> {
    Builder::new().name("yonder-touch".into()).spawn_scoped(scope, work)
}

fn pin(cpu: Option<usize>) {
    let Some(cpu) = cpu else { return };
    let mut set = CpuSet::new();
    set.set(cpu);
    // A thread that is not pinned touches as well as another.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Touches the pages of one thread.
fn touch(mapping: &Mapping, board: &Board, thread: usize) -> Share {
    let (mut latency, mut errors) = (LatencyRecorder::new(), 0);
    let start = yonder_clock::now();
    let first = thread as u64 * board.bytes_per_thread;
    for offset in (first..first + board.bytes_per_thread).step_by(PAGE_BYTES) {
        let touched = yonder_clock::now();
        let value = mapping.try_read_u64(offset);
        // What is noted is older than the touch if nobody noticed it.
        match (value, board.noticed(thread).checked_sub(touched)) {
            (Ok(0), Some(took)) => latency.record(took),
            _ => errors += 1,
        }
    }
    Share { latency, errors, start, end: yonder_clock::now() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_noted_for_the_thread_whose_page_it_is() {
        let board = Board::new(3, 4);
        assert_eq!(board.bytes(), 12 * PAGE_BYTES);
        board.note(4 * PAGE, 7);
        board.note(11 * PAGE + 5, 9);
        assert_eq!([0, 1, 2].map(|thread| board.noticed(thread)), [0, 7, 9]);
    }

    #[test]
    fn touches_that_nobody_notices_are_errors() {
        let board = Board::new(2, 8);
        let touches = touch_all(&Mapping::region(board.bytes()).unwrap(), &board).unwrap();
        assert_eq!((touches.errors, touches.latency.len()), (16, 0));
    }
}
