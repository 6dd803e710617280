//! [`Worker`]: a thread that runs unithreads.
//!
//! The loop has LightSwap's priorities: pages that have arrived are mapped, unithreads whose pages are there are
//! resumed, new requests are started while fewer than `max_inflight` are parked, and yielded work comes last. A
//! preempted request goes behind all that waited when it was preempted, and before all that were admitted later, as in
//! Shinjuku's one queue; it stays with its worker. Where faults are predicted, requests that will not fault go before
//! all but the mapping, as `core/dispatch` gives out turns: also before those whose pages are there, for these have as
//! much left to do as a hit has in all.
//!
//! A unithread that suspends says why in a thread-local: it was preempted, it has yielded until others have run, it
//! sleeps until a time, or (the default) it waits and its port will name it when the wait is over. The workers of light
//! threads ([`crate::threads`]) have the same protocol and a loop of their own.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rtrb::{Consumer, Producer};
use yonder_dispatch::{DispatchPolicy, Order, Turn, Turns, Waiting};
use yonder_paging::{Installs, Posting, WorkerPort};
use yonder_unithread::{Resumed, Running, Unithread};
use yonder_units::{Nanos, saturating_nanos};

use crate::config::{Idle, PollingDelegation, SchedConfig};
use crate::fault_predictor::{Queue, Queues};
use crate::frontend::Handler;
use crate::park::Sleeper;
use crate::task::Task;

/// Longest sleep of a worker whose unithreads all wait: the fabric is polled at least this often.
const WAIT_SLEEP: Duration = Duration::from_micros(200);
/// Time without progress after which a worker whose unithreads all wait sleeps between polls: far above any fetch that
/// goes well, so only a node in trouble is polled this way.
const STALLED_AFTER: Nanos = 2_000_000;
/// Longest sleep of a worker without any request.
const IDLE_SLEEP: Duration = Duration::from_millis(100);
/// Parked unithreads from which on others will soon fault too, so that a read need not wait long for company.
pub(crate) const CROWD: usize = 4;

/// Why a unithread suspends.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Suspension {
    /// It waits for something that its port will see and name it for.
    #[default]
    Waits,
    /// It is a light thread and waits until another thread wakes it.
    Parked,
    /// It has nothing to do until others have run.
    Yields,
    /// Its time is up.
    Preempted,
    /// It has nothing to do before this time.
    Sleeps(Nanos),
}

thread_local! {
    /// Why the unithread that suspends now does so.
    pub(crate) static SUSPENSION: Cell<Suspension> = const { Cell::new(Suspension::Waits) };
    /// When the running unithread should give way at a checkpoint.
    pub(crate) static GIVE_WAY_AT: Cell<Nanos> = const { Cell::new(Nanos::MAX) };
}

/// Lets other unithreads of this worker run before this one goes on. On an ordinary thread, and in a no-yield section,
/// which is not left in the middle, lets other threads run.
pub fn yield_now() {
    if !suspend(Suspension::Yields) {
        std::thread::yield_now();
    }
}

/// Returns at this time of [`yonder_clock::now`], or soon after; other unithreads of this worker run meanwhile. Then
/// this one waits for its turn as one does whose page has come. An ordinary thread sleeps, and so does a worker in a
/// no-yield section.
pub fn sleep_until(time: Nanos) {
    if !suspend(Suspension::Sleeps(time)) {
        std::thread::sleep(Duration::from_nanos(time.saturating_sub(yonder_clock::now())));
    }
}

/// Whether a unithread runs and may be left here.
pub(crate) fn may_suspend() -> bool {
    yonder_unithread::is_on_unithread() && !yonder_unithread::must_stay()
}

/// Suspends the unithread that runs, if one does and may be left here.
pub(crate) fn suspend(suspension: Suspension) -> bool {
    let is_suspended = may_suspend();
    if is_suspended {
        SUSPENSION.set(suspension);
        yonder_unithread::suspend();
    }
    is_suspended
}

/// A place where a long request may give way to others, if the server preempts and the request's time is up.
#[inline]
pub fn checkpoint() {
    let give_way_at = GIVE_WAY_AT.get();
    if give_way_at != Nanos::MAX && yonder_clock::now() >= give_way_at {
        suspend(Suspension::Preempted);
    }
}

/// What the dispatcher and one worker share besides their rings.
pub(crate) struct WorkerShared {
    pub(crate) sleeper: Sleeper,
    /// Replies that have been transmitted, for workers that wait for each.
    pub(crate) transmitted: AtomicU64,
    pub(crate) stopping: AtomicBool,
    /// Whether the dispatcher sleeps and has requests of that queue, for which it had no room anywhere.
    pub(crate) has_backlog: Queues<AtomicBool>,
}

/// One worker thread's state.
pub(crate) struct Worker<H: Handler> {
    pub(crate) port: WorkerPort,
    /// References to the handler that no task has: one moves with each task, so starting a request counts nothing.
    handlers: Vec<Arc<H>>,
    pub(crate) shared: Arc<WorkerShared>,
    pub(crate) requests: Queues<Consumer<Unithread<Task<H>>>>,
    pub(crate) finished: Producer<Unithread<Task<H>>>,
    pub(crate) wake_dispatcher: Arc<dyn Fn() + Send + Sync>,
    dispatcher: Arc<Sleeper>,
    /// Suspended unithreads by their id, with the time each has run so far.
    parked: Vec<Option<(Running<Task<H>>, Nanos)>>,
    /// Parked unithreads whose pages are there, with the time at which that was seen.
    ready: VecDeque<(u32, Nanos)>,
    /// Preempted unithreads, with the time at which they were.
    preempted: VecDeque<(u32, Nanos)>,
    /// Unithreads that have nothing to do until others have run.
    yielded: VecDeque<u32>,
    /// Unithreads that sleep, the one that wakes first on top.
    sleeping: BinaryHeap<Reverse<(Nanos, u32)>>,
    turns: Turns,
    order: Order,
    faults_predicted: bool,
    inflight: usize,
    max_inflight: usize,
    quantum: Nanos,
    sent: u64,
    delegation: PollingDelegation,
    idle: Idle,
}

/// What connects a worker to its dispatcher.
pub(crate) struct Links<H: Handler> {
    pub(crate) shared: Arc<WorkerShared>,
    pub(crate) requests: Queues<Consumer<Unithread<Task<H>>>>,
    pub(crate) finished: Producer<Unithread<Task<H>>>,
    pub(crate) wake_dispatcher: Arc<dyn Fn() + Send + Sync>,
    pub(crate) dispatcher: Arc<Sleeper>,
}

impl<H: Handler> Worker<H> {
    pub(crate) fn new(config: &SchedConfig, port: WorkerPort, handler: Arc<H>, links: Links<H>) -> Self {
        Self {
            port,
            handlers: vec![handler; config.max_inflight],
            shared: links.shared,
            requests: links.requests,
            finished: links.finished,
            wake_dispatcher: links.wake_dispatcher,
            dispatcher: links.dispatcher,
            parked: (0..config.unithreads).map(|_| None).collect(),
            ready: VecDeque::with_capacity(config.unithreads),
            preempted: VecDeque::with_capacity(64),
            yielded: VecDeque::with_capacity(64),
            sleeping: BinaryHeap::new(),
            turns: Turns::default(),
            order: config.order,
            faults_predicted: config.dispatch == DispatchPolicy::Predicted,
            inflight: 0,
            max_inflight: config.max_inflight,
            quantum: config.preempt.map_or(Nanos::MAX, saturating_nanos),
            sent: 0,
            delegation: config.delegation,
            idle: config.idle,
        }
    }

    /// Runs until the dispatcher says stop and everything is over.
    pub(crate) fn run(mut self) {
        let (mut arrived, mut retry, mut again) =
            (Vec::with_capacity(64), Vec::with_capacity(64), Vec::with_capacity(64));
        let mut last_progress = yonder_clock::now();
        loop {
            let now = yonder_clock::now();
            let (installs, posting) = self.between_turns();
            self.port.poll(now, installs, posting, &mut arrived, &mut retry);
            self.ready.extend(arrived.drain(..).map(|token| (token, now)));
            self.wake_sleeping(now);
            std::mem::swap(&mut retry, &mut again);
            for token in again.drain(..) {
                self.resume_parked(token);
            }
            if self.give_turns() {
                last_progress = now;
                continue;
            }
            let is_empty = Queue::ALL.into_iter().all(|queue| self.requests[queue].is_empty());
            if self.inflight == 0 && self.shared.stopping.load(Ordering::Acquire) && is_empty {
                return;
            }
            self.rest(now.saturating_sub(last_progress));
        }
    }

    fn wake_sleeping(&mut self, now: Nanos) {
        while let Some(first) = self.sleeping.peek_mut() {
            let Reverse((time, token)) = *first;
            if time > now {
                return;
            }
            PeekMut::pop(first);
            self.ready.push_back((token, now));
        }
    }

    /// Runs who is to run before the next look for pages: one new request, and of the resumed those that go before it.
    /// Returns whether there was anybody but those who yielded.
    fn give_turns(&mut self) -> bool {
        let mut has_resumed = false;
        loop {
            match self.turns.next(self.waiting()) {
                Some(Turn::Hit) => self.start_next(Queue::Hits),
                Some(Turn::Fault) => self.start_next(Queue::Faults),
                Some(Turn::Resumed) => {
                    let (token, _) = self.ready.pop_front().expect("its turn came because it waits");
                    self.resume_parked(token);
                    has_resumed = true;
                    continue;
                }
                None => {
                    let preempted = self.preempted.pop_front().map(|(token, _)| token);
                    let is_over = preempted.is_none();
                    if let Some(token) = preempted.or_else(|| self.yielded.pop_front()) {
                        self.resume_parked(token);
                    }
                    if is_over {
                        return has_resumed;
                    }
                }
            }
            return true;
        }
    }

    /// Who could have a turn now. Requests that will fault leave a quarter of the unithreads to others, which would
    /// wait for slow pages else.
    fn waiting(&self) -> Waiting {
        let resumed = !self.ready.is_empty();
        let hits = self.inflight < self.max_inflight && self.is_next(Queue::Hits);
        if resumed && !self.faults_predicted {
            let resumed = self.resumes_first(hits);
            return Waiting { hits: !resumed && hits, resumed, faults: false };
        }
        let room_for_faults = self.max_inflight - self.max_inflight / 4;
        Waiting { hits, resumed, faults: self.inflight < room_for_faults && self.is_next(Queue::Faults) }
    }

    /// Whether a queue has a new request, and it was there before the first of the preempted ones was preempted.
    fn is_next(&self, queue: Queue) -> bool {
        let Ok(new) = self.requests[queue].peek() else { return false };
        self.preempted.front().is_none_or(|(_, preempted)| new.payload().timing.admitted <= *preempted)
    }

    /// Whether the first of those whose page has come goes first, in the order in force: before the first new request
    /// if that could be next, else before the first preempted one.
    fn resumes_first(&self, hits: bool) -> bool {
        let Some((_, page_came)) = self.ready.front() else { return true };
        match (self.requests[Queue::Hits].peek(), self.preempted.front()) {
            (Ok(new), _) if hits => self.order.resumes_first(*page_came, || new.payload().timing.admitted),
            (_, Some((_, preempted))) => self.order.resumes_first(*page_came, || *preempted),
            _ => true,
        }
    }

    /// What a look at pages may leave for later, because a unithread could run: installs for somebody else, if somebody
    /// is awake to make them, and reads that are begun together with others. Who yields may be waiting for one whose
    /// page is to be read, so that reads do not wait for them.
    fn between_turns(&self) -> (Installs, Posting) {
        let Waiting { hits, resumed, faults } = self.waiting();
        let has_turns = hits || resumed || faults || !self.preempted.is_empty();
        let is_handed_over = (has_turns || !self.yielded.is_empty()) && !self.dispatcher.is_asleep();
        let with_own_queue = self.ready.len() + self.preempted.len() + self.yielded.len() + self.sleeping.len();
        let parked = self.inflight - with_own_queue;
        let posting = match has_turns {
            false => Posting::AtOnce,
            true if parked < CROWD => Posting::Alone,
            true => Posting::Together,
        };
        (if is_handed_over { Installs::Delegated } else { Installs::Own }, posting)
    }

    fn start_next(&mut self, queue: Queue) {
        let unithread = self.requests[queue].pop().expect("its turn came because it waits");
        if let Ok(next) = self.requests[queue].peek() {
            next.prefetch();
        }
        self.start(unithread);
    }

    fn start(&mut self, mut unithread: Unithread<Task<H>>) {
        self.inflight += 1;
        let now = yonder_clock::now();
        let task = unithread.payload_mut();
        task.handler = self.handlers.pop();
        task.started = now;
        task.timing.queued_ns = now.saturating_sub(task.timing.admitted);
        self.resume(unithread.start(Task::run), 0, now);
    }

    fn resume_parked(&mut self, token: u32) {
        let (running, ran) = self.parked[token as usize].take().expect("only parked unithreads are named");
        self.resume(running, ran, yonder_clock::now());
    }

    fn resume(&mut self, running: Running<Task<H>>, ran: Nanos, now: Nanos) {
        let token = running.id().0;
        GIVE_WAY_AT.set(now.saturating_add(self.quantum));
        let resumed = running.resume();
        let end = yonder_clock::now();
        let ran = ran + end.saturating_sub(now);
        match resumed {
            Resumed::Suspended(running) => {
                self.parked[token as usize] = Some((running, ran));
                match SUSPENSION.take() {
                    Suspension::Waits => {}
                    Suspension::Parked => unreachable!("only a light thread is woken by others"),
                    Suspension::Yields => self.yielded.push_back(token),
                    Suspension::Preempted => self.preempted.push_back((token, end)),
                    Suspension::Sleeps(until) => self.sleeping.push(Reverse((until, token))),
                }
            }
            Resumed::Finished(unithread) => self.finish(unithread, token, end, ran),
            Resumed::Panicked(unithread, why) => {
                tracing::error!(panic = yonder_unithread::panic_message(&*why), "a request's handler panicked");
                self.finish(unithread, token, end, ran);
            }
        }
    }

    fn finish(&mut self, mut unithread: Unithread<Task<H>>, token: u32, now: Nanos, ran: Nanos) {
        self.inflight -= 1;
        let faults = self.port.take_faults(token);
        let task = unithread.payload_mut();
        self.handlers.extend(task.handler.take());
        task.timing.running_ns = ran;
        task.timing.waiting_ns = now.saturating_sub(task.started).saturating_sub(task.timing.running_ns);
        task.timing.major_faults = faults.major;
        task.timing.minor_faults = faults.minor;
        task.page_id = faults.page_id;
        let pushed = self.finished.push(unithread);
        assert!(pushed.is_ok(), "the ring holds every unithread");
        (self.wake_dispatcher)();
        self.sent += 1;
        if self.delegation == PollingDelegation::Off {
            while self.shared.transmitted.load(Ordering::Acquire) < self.sent {
                std::hint::spin_loop();
            }
        }
    }

    /// Wakes a dispatcher that sleeps because it had no room for its requests, if there is room now. A reply would wake
    /// it too, but who waits for a slow page, with room for more, must not wait for that alone.
    fn call_for_backlog(&self) {
        for queue in Queue::ALL {
            let (backlog, requests) = (&self.shared.has_backlog[queue], &self.requests[queue]);
            let has_room = || requests.slots() < requests.buffer().capacity();
            if backlog.load(Ordering::Relaxed) && has_room() {
                backlog.store(false, Ordering::Relaxed);
                (self.wake_dispatcher)();
            }
        }
    }

    /// Nothing could be done: spins or sleeps, as configured.
    fn rest(&self, idle_for: Nanos) {
        self.call_for_backlog();
        let wakes_at = self.sleeping.peek().map(|Reverse((time, _))| *time);
        let Some(sleep) = sleep_span(self.idle, self.inflight > 0, idle_for, wakes_at) else { return };
        let has_requests = || Queue::ALL.into_iter().any(|queue| !self.requests[queue].is_empty());
        let has_work = || has_requests() || self.shared.stopping.load(Ordering::Acquire);
        self.shared.sleeper.sleep(has_work, || std::thread::park_timeout(sleep));
    }
}

/// How long a worker that could do nothing for `idle_for` sleeps, until `wakes_at` at most; none, if it has spun or let
/// other threads run instead. Where unithreads wait, the fabric is polled meanwhile.
pub(crate) fn sleep_span(idle: Idle, some_wait: bool, idle_for: Nanos, wakes_at: Option<Nanos>) -> Option<Duration> {
    let Idle::SleepAfter(spin) = idle else {
        std::hint::spin_loop();
        return None;
    };
    let spin = saturating_nanos(spin);
    let (limit, sleep) = if some_wait { (STALLED_AFTER.max(spin), WAIT_SLEEP) } else { (spin, IDLE_SLEEP) };
    if idle_for < limit {
        // Not spinning for latency alone: whoever shares this CPU goes first.
        std::thread::yield_now();
        return None;
    }
    let wakes_in = wakes_at.map(|time| Duration::from_nanos(time.saturating_sub(yonder_clock::now())));
    Some(wakes_in.map_or(sleep, |time| sleep.min(time)))
}

#[cfg(test)]
mod tests {
    use yonder_unithread::{Pool, STACK_BYTES_DEFAULT, no_yield};

    use super::*;

    /// The steps of a unithread that gives way in every way there is.
    fn gives_way(give_way: fn()) -> usize {
        let pool = Pool::new(1, STACK_BYTES_DEFAULT).unwrap();
        let mut running = pool.take(give_way).unwrap().start(|give_way| give_way());
        for steps in 1.. {
            match running.resume() {
                Resumed::Suspended(again) => running = again,
                Resumed::Finished(_) => return steps,
                Resumed::Panicked(..) => panic!("it does nothing but give way"),
            }
        }
        unreachable!("it ends")
    }

    #[test]
    fn a_no_yield_section_is_not_left_in_the_middle() {
        assert_eq!(gives_way(yield_now), 2);
        assert_eq!(gives_way(|| no_yield(yield_now)), 1);
        assert_eq!(gives_way(|| no_yield(|| no_yield(yield_now))), 1);
        let after_a_section = || {
            no_yield(yield_now);
            yield_now();
        };
        assert_eq!(gives_way(after_a_section), 2);
        let at_a_checkpoint = || {
            GIVE_WAY_AT.set(0);
            checkpoint();
            GIVE_WAY_AT.set(Nanos::MAX);
        };
        assert_eq!(gives_way(at_a_checkpoint), 2);
        let in_a_section = || {
            GIVE_WAY_AT.set(0);
            no_yield(checkpoint);
            GIVE_WAY_AT.set(Nanos::MAX);
        };
        assert_eq!(gives_way(in_a_section), 1);
    }
}
