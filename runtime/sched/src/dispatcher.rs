//! [`serve`]: the dispatcher, on the calling thread, and the life of its workers.
//!
//! A turn: take requests from the frontend into the queue, hand them to workers that have room, reap replies.
//! Everything that costs time on the way out (sending, recycling buffers) is done here, so workers never wait for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};
use yonder_dispatch::{Chooser, DispatchPolicy, WorkerView};
use yonder_paging::{FarError, FarMemory, InstallDelegate, Pinned, ReclaimHost, WorkerPort, pin_this_thread};
use yonder_unithread::{GUARD_BYTES_OF_C, Pool, Unithread};
use yonder_units::{Nanos, Narrow, saturating_nanos};

use crate::config::{Idle, InstallDelegation, PollingDelegation, Reclaim, SchedConfig, SchedConfigError};
use crate::fault_predictor::{FaultPredictor, PredictedRequest, Queue, Queues};
use crate::frontend::{Activity, Done, Frontend, Handler, Outcome};
use crate::park::Sleeper;
use crate::task::{SchedStats, Task};
use crate::worker::{Links, Worker, WorkerShared};

/// Longest sleep of the dispatcher.
const IDLE_SLEEP: Duration = Duration::from_millis(100);
/// Time without anything to do after which a dispatcher that reclaims sleeps, while requests are served: those that
/// read much want room every few milliseconds, and whoever wakes somebody for it waits for that.
const RECLAIM_SPIN: Duration = Duration::from_millis(5);
/// Requests admitted in a turn: after a pause there may be many, and nobody is served while they are looked at.
const ADMIT_MAX: usize = 64;
/// Replies reaped from one worker in a turn.
const REAP_MAX: usize = 64;

/// Hits that may be handed to a worker ahead of time for each fault that may: where faults are predicted, hits are
/// known to be short, and those that the worker does not have yet are overtaken by faults that it has.
const HITS_FOR_A_FAULT: usize = 4;

/// Why a server, or a program of light threads, could not run.
#[derive(Debug, thiserror::Error)]
pub enum SchedError {
    /// A setting cannot work.
    #[error(transparent)]
    Config(#[from] SchedConfigError),
    /// A setting of light threads cannot work.
    #[error(transparent)]
    ThreadsConfig(#[from] crate::threads::ConfigError),
    /// A worker could not be bound to far memory.
    #[error(transparent)]
    Far(#[from] FarError),
    /// Threads or stacks were refused.
    #[error("threads and stacks: {0}")]
    Os(#[from] std::io::Error),
}

/// The dispatcher's view of a worker.
struct WorkerHandle<H: Handler> {
    shared: Arc<WorkerShared>,
    requests: Queues<Producer<Unithread<Task<H>>>>,
    finished: Consumer<Unithread<Task<H>>>,
    port: u16,
    /// Maps pages for the worker, if installs are delegated.
    helper: Option<InstallDelegate>,
    thread: Option<JoinHandle<()>>,
}

struct Dispatcher<'a, H: Handler, F: Frontend> {
    config: &'a SchedConfig,
    far: &'a FarMemory,
    frontend: &'a mut F,
    stats: &'a SchedStats,
    pool: Arc<Pool<Task<H>>>,
    workers: Vec<WorkerHandle<H>>,
    chooser: Chooser,
    queues: Queues<VecDeque<Unithread<Task<H>>>>,
    handler: &'a H,
    /// Tells which queue a request belongs to; without it there is but one.
    predictor: Option<FaultPredictor<'a>>,
    /// Requests admitted and not over.
    in_system: usize,
    views: Vec<WorkerView>,
    order: Vec<usize>,
    sleeper: Arc<Sleeper>,
    reclaim: Option<ReclaimHost>,
}

/// Serves `frontend`'s requests with `handler` until the frontend is finished. The calling thread is the dispatcher,
/// and pinned only until then.
pub fn serve<H, F>(
    config: &SchedConfig,
    far: &FarMemory,
    handler: &Arc<H>,
    frontend: &mut F,
    stats: &SchedStats,
) -> Result<(), SchedError>
where
    H: Handler,
    F: Frontend<Request = H::Request, Reply = H::Reply>,
{
    config.validate()?;
    // Handlers call libraries that are not written in Rust, such as RocksDB.
    let pool = Arc::new(Pool::with_guard(config.unithreads, config.stack_bytes, GUARD_BYTES_OF_C)?);
    yonder_unithread::report_overflows()?;
    let sleeper = Arc::new(Sleeper::default());
    let workers = start_workers(config, far, handler, frontend.waker(), &sleeper)?;
    let _pinned = config.cpus.first().map(|cpu| Pinned::to(*cpu));
    let count = workers.len();
    let mut dispatcher = Dispatcher {
        config,
        far,
        frontend,
        stats,
        pool,
        workers,
        chooser: Chooser::new(config.dispatch),
        queues: Queues::new(VecDeque::with_capacity(config.unithreads), VecDeque::with_capacity(config.unithreads)),
        handler,
        predictor: (config.dispatch == DispatchPolicy::Predicted).then(|| FaultPredictor::new(far, stats)),
        in_system: 0,
        views: Vec::with_capacity(count),
        order: Vec::with_capacity(count),
        sleeper,
        reclaim: (config.reclaim == Reclaim::Dispatcher).then(|| far.host_reclaim()),
    };
    dispatcher.run();
    Ok(())
}

impl<H, F> Dispatcher<'_, H, F>
where
    H: Handler,
    F: Frontend<Request = H::Request, Reply = H::Reply>,
{
    fn run(&mut self) {
        let mut last_activity = yonder_clock::now();
        loop {
            let now = yonder_clock::now();
            let mut reaped = self.reap(now);
            let admitted = self.admit(now);
            reaped |= self.reap_awaited();
            self.dispatch();
            reaped |= self.reap_awaited();
            let reclaimed = self.reclaim.as_mut().is_some_and(|host| host.step(now));
            reaped |= self.reap_awaited();
            // Last, and one at a time: its own work comes first, because nobody else does that.
            let helped = !reaped && !admitted && self.help_install();
            if reaped || admitted || reclaimed || helped {
                last_activity = now;
            } else if self.in_system == 0 && self.frontend.is_finished() {
                return;
            } else {
                self.rest(now.saturating_sub(last_activity));
            }
        }
    }

    /// Maps one page for each worker that has handed one over.
    fn help_install(&mut self) -> bool {
        let mut helped = false;
        for worker in &mut self.workers {
            helped |= worker.helper.as_mut().is_some_and(InstallDelegate::step);
        }
        helped
    }

    /// Takes requests from the frontend.
    fn admit(&mut self, now: Nanos) -> bool {
        let room = (self.config.unithreads - self.in_system).min(ADMIT_MAX);
        let Self { frontend, pool, queues, in_system, stats, predictor, handler, .. } = self;
        let activity = frontend.poll(now, room, &mut |request| {
            let prediction = predictor.as_ref().and_then(|predictor| Some(predictor.predict(handler.key(&request)?)));
            let queue = prediction.as_ref().map_or(Queue::Hits, PredictedRequest::queue);
            let unithread = pool.take(Task::new(request, now, prediction));
            queues[queue].push_back(unithread.unwrap_or_else(|_| panic!("a frontend admitted more than its room")));
            *in_system += 1;
            stats.count_admitted();
        });
        activity == Activity::Busy
    }

    /// Hands requests to workers, of each queue by itself, so that neither waits for the other here.
    fn dispatch(&mut self) {
        for queue in Queue::ALL {
            self.dispatch_queue(queue);
        }
    }

    /// Each worker that has room gets one request, in the policy's order, until the queue or the room ends.
    fn dispatch_queue(&mut self, queue: Queue) {
        while !self.queues[queue].is_empty() {
            self.views.clear();
            for worker in &self.workers {
                let outstanding = if self.workers.len() > 1 { self.far.outstanding(worker.port) } else { 0 };
                self.views.push(WorkerView { room: worker.requests[queue].slots().narrow_u32(), outstanding });
            }
            self.chooser.order(&self.views, &mut self.order);
            if self.order.is_empty() {
                return;
            }
            // Where there is no choice, the only worker with room gets all it has room for.
            let each = if let [only] = self.order[..] { self.views[only].room } else { 1 };
            for index in &self.order {
                let worker = &mut self.workers[*index];
                for _ in 0..each {
                    let Some(unithread) = self.queues[queue].pop_front() else { break };
                    assert!(worker.requests[queue].push(unithread).is_ok(), "a worker with room takes a request");
                }
                self.chooser.dispatched(*index, self.views.len());
                worker.shared.sleeper.wake(|| worker.wake());
            }
        }
    }

    /// Reaps replies that workers wait for, if workers wait.
    fn reap_awaited(&mut self) -> bool {
        self.config.delegation == PollingDelegation::Off && self.reap(yonder_clock::now())
    }

    /// Reaps finished requests: replies go to the frontend, which transmits them, and buffers back to the pool.
    fn reap(&mut self, now: Nanos) -> bool {
        let mut any = false;
        for worker in &mut self.workers {
            for _ in 0..REAP_MAX {
                let Ok(mut unithread) = worker.finished.pop() else { break };
                any = true;
                self.in_system -= 1;
                let task = unithread.payload_mut();
                let (outcome, timing, prediction, page_id) =
                    (task.outcome(), task.timing, task.prediction, task.page_id);
                let panicked = u64::from(matches!(outcome, Outcome::Panicked));
                self.frontend.complete(now, Done { outcome, timing });
                worker.shared.transmitted.fetch_add(1, Ordering::Release);
                drop(unithread);
                if let Some(predictor) = &mut self.predictor {
                    predictor.learn(prediction, &timing, page_id);
                }
                self.stats.count_done(&timing, panicked);
            }
        }
        any
    }

    fn rest(&mut self, idle_for: Nanos) {
        let Idle::SleepAfter(spin) = self.config.idle else {
            std::hint::spin_loop();
            return;
        };
        let is_reclaiming = self.in_system > 0 && self.reclaim.is_some();
        let spin = if is_reclaiming { spin.max(RECLAIM_SPIN) } else { spin };
        if idle_for < saturating_nanos(spin) {
            // Not spinning for latency alone: whoever shares this CPU goes first.
            std::thread::yield_now();
            return;
        }
        let Self { workers, frontend, queues, .. } = self;
        let has_backlog = |queue: Queue| !queues[queue].is_empty();
        for worker in &*workers {
            for queue in Queue::ALL {
                worker.shared.has_backlog[queue].store(has_backlog(queue), Ordering::Relaxed);
            }
        }
        let has_room = |worker: &WorkerHandle<H>| {
            Queue::ALL.into_iter().any(|queue| has_backlog(queue) && worker.requests[queue].slots() > 0)
        };
        let has_work = || workers.iter().any(|worker| worker.has_work() || has_room(worker));
        self.sleeper.sleep(has_work, || frontend.wait(IDLE_SLEEP));
    }
}

impl<H: Handler, F: Frontend> Drop for Dispatcher<'_, H, F> {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            worker.shared.stopping.store(true, Ordering::Release);
            worker.wake();
        }
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take()
                && thread.join().is_err()
            {
                // A worker panics only by a bug of the runtime; far memory cannot be trusted then.
                std::process::abort();
            }
        }
    }
}

impl<H: Handler> WorkerHandle<H> {
    /// Whether the worker has something for the dispatcher.
    fn has_work(&self) -> bool {
        !self.finished.is_empty() || self.helper.as_ref().is_some_and(InstallDelegate::is_wanted)
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

/// Starts the worker threads and waits until each is bound to far memory.
fn start_workers<H: Handler>(
    config: &SchedConfig,
    far: &FarMemory,
    handler: &Arc<H>,
    waker: Arc<dyn Fn() + Send + Sync>,
    sleeper: &Arc<Sleeper>,
) -> Result<Vec<WorkerHandle<H>>, SchedError> {
    let mut workers: Vec<WorkerHandle<H>> = Vec::with_capacity(config.workers);
    for worker in 0..config.workers {
        let hits_ahead = if config.dispatch == DispatchPolicy::Predicted { HITS_FOR_A_FAULT } else { 1 };
        let (hits, take_hits) = RingBuffer::new(config.worker_queue * hits_ahead);
        let (faults, take_faults) = RingBuffer::new(config.worker_queue);
        let (give_finished, finished) = RingBuffer::new(config.unithreads);
        let shared = Arc::new(WorkerShared {
            sleeper: Sleeper::default(),
            transmitted: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            has_backlog: Queues::new(AtomicBool::new(false), AtomicBool::new(false)),
        });
        let (waker, sleeper) = (Arc::clone(&waker), Arc::clone(sleeper));
        let wake_dispatcher: Arc<dyn Fn() + Send + Sync> = match config.idle {
            // A dispatcher that never sleeps need not be asked whether it does, at the price of a fence a request.
            Idle::BusyPoll => Arc::new(|| ()),
            Idle::SleepAfter(_) => {
                let sleeper = Arc::clone(&sleeper);
                Arc::new(move || sleeper.wake(|| waker()))
            }
        };
        let links = Links {
            shared: Arc::clone(&shared),
            requests: Queues::new(take_hits, take_faults),
            finished: give_finished,
            wake_dispatcher,
            dispatcher: sleeper,
        };
        let (ready, is_ready) = mpsc::channel();
        let (config_copy, far_memory, far, handler) = (config.clone(), far, far.clone(), Arc::clone(handler));
        let thread = std::thread::Builder::new().name(format!("yonder-worker-{worker}")).spawn(move || {
            if let Some(cpu) = config_copy.cpus.get(worker + 1) {
                pin_this_thread(*cpu);
            }
            match WorkerPort::bind(&far, config_copy.unithreads, config_copy.faults) {
                Ok(port) => {
                    let _ = ready.send(Ok(port.id()));
                    Worker::new(&config_copy, port, handler, links).run();
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        })?;
        let bound = is_ready.recv().expect("a worker answers before it ends");
        match bound {
            Ok(port) => {
                let helper = (config.installs == InstallDelegation::On).then(|| far_memory.help_install(port));
                let requests = Queues::new(hits, faults);
                workers.push(WorkerHandle { shared, requests, finished, port, helper, thread: Some(thread) });
            }
            Err(error) => {
                stop(&mut workers);
                return Err(error.into());
            }
        }
    }
    Ok(workers)
}

fn stop<H: Handler>(workers: &mut [WorkerHandle<H>]) {
    for worker in workers {
        worker.shared.stopping.store(true, Ordering::Release);
        worker.wake();
        if let Some(thread) = worker.thread.take() {
            let _ = thread.join();
        }
    }
}
