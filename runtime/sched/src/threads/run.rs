//! [`run`]: the life of the workers, and what they share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use yonder_paging::{FarError, FarMemory, WorkerPort, hold_back_for_workers, pin_this_thread};
use yonder_unithread::{GUARD_BYTES_OF_C, Pool, SignalStack, Unithread};

use super::config::Config;
use super::guarded::Guarded;
use super::local::{Local, WorkerShared};
use super::spawn::{SpawnError, Task, spawn_in};
use super::worker::Worker;
use crate::dispatcher::SchedError;

/// Runs `main` as the first light thread, on the workers that `config` describes, and returns its result when it and
/// all light threads that were spawned have ended. Their page faults in regions of `far` park them alone, and their
/// workers run others meanwhile. The calling thread waits.
///
/// # Errors
/// If a setting cannot work, or threads, stacks or far memory are refused. `main` has not run then.
///
/// # Panics
/// With what `main` panicked with, when all others have ended; and if the caller is a unithread, whose worker would
/// wait.
pub fn run<F, T>(config: &Config, far: &FarMemory, main: F) -> Result<T, SchedError>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    assert!(!yonder_unithread::is_on_unithread(), "threads::run blocks its thread: call it from an ordinary one");
    config.validate()?;
    yonder_unithread::report_overflows()?;
    let run = Arc::new(Run::new(config)?);
    let started = {
        // The workers inherit it.
        let _held_back = hold_back_for_workers();
        start_workers(config, far, &run)
    };
    let handle = started.workers.is_ok().then(|| spawn_in(&run, main).expect("the first light thread finds room"));
    run.release();
    for thread in started.threads {
        thread.join().expect("a worker that panics ends the process");
    }
    started.workers?;
    let handle = handle.expect("it was spawned because the workers had started");
    Ok(handle.join().unwrap_or_else(|why| std::panic::resume_unwind(why)))
}

/// What all workers share.
pub(super) struct Run {
    pool: Pool<Task>,
    /// Light threads that have not started, in the order in which they were spawned.
    new: Guarded<VecDeque<Unithread<Task>>>,
    /// Their number, or soon: a hint that costs no lock.
    new_count: AtomicUsize,
    /// Light threads that have not ended, and one until the first is spawned.
    under_way: AtomicUsize,
    light_threads: usize,
    workers: Vec<Arc<WorkerShared>>,
}

impl Run {
    pub(super) fn new(config: &Config) -> Result<Self, SchedError> {
        let light_threads = config.light_threads;
        Ok(Self {
            pool: Pool::with_guard(light_threads, config.stack_bytes, GUARD_BYTES_OF_C)?,
            new: Guarded::new(VecDeque::with_capacity(light_threads)),
            new_count: AtomicUsize::new(0),
            under_way: AtomicUsize::new(1),
            light_threads,
            workers: (0..config.workers).map(|_| Arc::new(WorkerShared::new(light_threads))).collect(),
        })
    }

    /// Worker `index`, as others see it.
    pub(super) fn worker(&self, index: usize) -> Arc<WorkerShared> {
        Arc::clone(&self.workers[index])
    }

    /// Most light threads at a time: their tokens are below.
    pub(super) fn light_threads(&self) -> usize {
        self.light_threads
    }

    /// Queues a light thread, and wakes one worker that sleeps, if any does.
    pub(super) fn start_soon(&self, task: Task) -> Result<(), SpawnError> {
        let unithread = self.pool.take(task).map_err(|_| SpawnError::AllInUse(self.light_threads))?;
        self.under_way.fetch_add(1, Ordering::Relaxed);
        self.new.with(|new| {
            new.push_back(unithread);
            self.new_count.store(new.len(), Ordering::Release);
        });
        // Those that are awake look before they sleep.
        let _ = self.workers.iter().any(|worker| worker.wake());
        Ok(())
    }

    /// Whether a light thread waits to be started. A hint, but for a worker that has announced its sleep: it sees what
    /// was queued by all who did not see the announcement.
    #[inline]
    pub(super) fn has_new(&self) -> bool {
        self.new_count.load(Ordering::Acquire) > 0
    }

    /// The light thread that has waited longest to be started.
    pub(super) fn take_new(&self) -> Option<Unithread<Task>> {
        if !self.has_new() {
            return None;
        }
        self.new.with(|new| {
            let next = new.pop_front();
            self.new_count.store(new.len(), Ordering::Release);
            next
        })
    }

    /// A light thread has ended.
    pub(super) fn release(&self) {
        if self.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            for worker in &self.workers {
                worker.wake();
            }
        }
    }

    /// Whether all light threads have ended.
    pub(super) fn is_over(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == 0
    }
}

/// The threads that could be started, and whether all are workers.
struct Started {
    threads: Vec<thread::JoinHandle<()>>,
    workers: Result<(), SchedError>,
}

/// Ends the process if a worker panics, which it does only by a bug of the runtime: far memory cannot be trusted then,
/// and the light threads that are suspended there would be waited for in vain.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

/// Starts the worker threads and waits until each is bound to far memory.
fn start_workers(config: &Config, far: &FarMemory, run: &Arc<Run>) -> Started {
    let mut started = Started { threads: Vec::with_capacity(config.workers), workers: Ok(()) };
    for worker in 0..config.workers {
        match start_worker(worker, config, far, run, &mut started.threads) {
            Ok(()) => {}
            Err(error) => return Started { workers: Err(error), ..started },
        }
    }
    started
}

fn start_worker(
    worker: usize,
    config: &Config,
    far: &FarMemory,
    run: &Arc<Run>,
    threads: &mut Vec<thread::JoinHandle<()>>,
) -> Result<(), SchedError> {
    let (ready, is_ready) = mpsc::channel::<Result<(), FarError>>();
    let (config, far, run) = (config.clone(), far.clone(), Arc::clone(run));
    threads.push(thread::Builder::new().name(format!("yonder-threads-{worker}")).spawn(move || {
        let _guard = AbortOnPanic;
        let _signal_stack = SignalStack::of_this_thread();
        if let Some(cpu) = config.cpus.get(worker) {
            pin_this_thread(*cpu);
        }
        match WorkerPort::bind(&far, config.light_threads, config.faults) {
            Ok(port) => {
                let local = Local::enter(Arc::clone(&run), run.worker(worker));
                let _ = ready.send(Ok(()));
                Worker::new(&config, port, local).run();
                Local::leave();
                let shared = run.worker(worker);
                if let Some(reactor) = shared.reactor() {
                    reactor.leave_sockets(&shared);
                }
            }
            Err(error) => drop(ready.send(Err(error))),
        }
    })?);
    is_ready.recv().expect("a worker answers before it ends")?;
    Ok(())
}
