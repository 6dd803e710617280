//! The compute node's events: requests arrive, dispatchers hand them to workers, workers run them, pages come.
//!
//! As in Adios, section 3.4: a dispatcher owns the single queue and gives a request to a worker that has told it that
//! it has room; the worker polls for pages before it takes a new request. Which worker gets a request is decided by
//! `core/dispatch`. Invariants: a worker does one thing at a time; a request is in one place; every request that
//! arrives is answered once or dropped once.

mod faults;

use std::collections::VecDeque;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use yonder_dispatch::{Chooser, WorkerView};
use yonder_simulation::EventQueue;
use yonder_units::{Nanos, PageIndex};

use super::fabric::Fabric;
use super::measure::{Measured, Meter, Spent};
use super::memory::{Found, Memory};
use super::state::{Dispatcher, Doing, Event, Request, Setup, Worker};
use crate::costs::adios as costs;

/// Transmissions that a dispatcher reaps with each request.
const REAPED_AT_ONCE: u32 = 2;
/// Pages that the reclaimer evicts between two looks at the clock.
const EVICTED_AT_ONCE: u64 = 16;

/// Simulates it.
pub(crate) fn run(setup: &Setup) -> Measured {
    assert!(setup.rate > 0.0, "no requests arrive");
    let mut node = Node::new(setup);
    node.events.after(0, Event::Arrive);
    if setup.profile.stalls {
        (0..setup.workers).for_each(|worker| node.stall_later(worker));
    }
    while node.left() {
        let Some(event) = node.events.advance() else { break };
        node.handle(event);
    }
    node.end()
}

struct Node<'a> {
    setup: &'a Setup,
    events: EventQueue<Event>,
    arrivals: ChaCha8Rng,
    touches: ChaCha8Rng,
    requests: Vec<Request>,
    free: Vec<u32>,
    workers: Vec<Worker>,
    dispatchers: Vec<Dispatcher>,
    memory: Memory,
    fabric: Fabric,
    /// Requests that wait for a page which another fetches.
    joined: Vec<(PageIndex, u32)>,
    /// Workers that found no room for their fault.
    starved: Vec<u16>,
    reclaiming: bool,
    faults: u32,
    arrived: u64,
    next_dispatcher: usize,
    busy: u32,
    busy_sum: Nanos,
    busy_since: Nanos,
    warm_at: Nanos,
    views: Vec<WorkerView>,
    order: Vec<usize>,
    meter: Meter,
}

impl<'a> Node<'a> {
    fn new(setup: &'a Setup) -> Self {
        let pages = setup.workload.pages;
        let limit = if setup.local_percent >= 100.0 {
            u64::from(pages) + yonder_pager::reclaim::RESERVE_PAGES_MAX
        } else {
            (f64::from(pages) * setup.local_percent / 100.0) as u64
        };
        let worker = |_| Worker {
            doing: Doing::Looking,
            put_off: 0,
            told: true,
            room: true,
            given: None,
            ready: VecDeque::new(),
            polled: 0,
            new_is_due: false,
            outstanding: 0,
        };
        let dispatcher = |index: usize| {
            let first_worker = index * setup.workers / setup.dispatchers;
            let workers = (index + 1) * setup.workers / setup.dispatchers - first_worker;
            let chooser = Chooser::new(setup.policy);
            Dispatcher { queue: VecDeque::new(), at_work: false, sent: 0, chooser, first_worker, workers }
        };
        Self {
            setup,
            events: EventQueue::new(),
            arrivals: ChaCha8Rng::seed_from_u64(setup.seed),
            touches: ChaCha8Rng::seed_from_u64(setup.seed ^ 0x9E37_79B9_7F4A_7C15),
            requests: Vec::new(),
            free: Vec::new(),
            workers: (0..setup.workers).map(worker).collect(),
            dispatchers: (0..setup.dispatchers).map(dispatcher).collect(),
            memory: Memory::new(pages, limit),
            fabric: Fabric::new(setup.workers, setup.nodes),
            joined: Vec::new(),
            starved: Vec::new(),
            reclaiming: false,
            faults: 0,
            arrived: 0,
            next_dispatcher: 0,
            busy: 0,
            busy_sum: 0,
            busy_since: 0,
            warm_at: 0,
            views: Vec::new(),
            order: Vec::new(),
            meter: Meter::new(setup.requests),
        }
    }

    /// Whether the run goes on: requests arrive, or some have not been answered. What is left at the end is answered
    /// too, but the span ends with the last arrival.
    fn left(&self) -> bool {
        self.arrived < self.setup.requests
    }

    fn warm(&self) -> bool {
        self.arrived * 5 > self.setup.requests
    }

    fn end(mut self) -> Measured {
        let busy = self.fabric.take_busy();
        self.meter.end(self.events.now() - self.warm_at, busy, self.setup.nodes)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrive => self.arrive(),
            Event::Dispatched(dispatcher) => {
                self.dispatchers[usize::from(dispatcher)].at_work = false;
                self.dispatch(usize::from(dispatcher));
            }
            Event::Given { worker, request } => {
                let given = &mut self.workers[usize::from(worker)].given;
                assert!(
                    given.replace((request, self.events.now())).is_none(),
                    "worker {worker} was given two requests"
                );
                self.look(usize::from(worker));
            }
            Event::Room(worker) => {
                self.workers[usize::from(worker)].room = true;
                self.dispatch(self.dispatcher_of(usize::from(worker)));
            }
            Event::Ran(worker) => self.ran(usize::from(worker)),
            Event::Sent { worker, page, request } => {
                let at = self.fabric.send(page as usize % self.setup.nodes, self.events.now());
                self.events.at(at, Event::Came { worker, page, request });
            }
            Event::Came { worker, page, request } => self.came(usize::from(worker), PageIndex(page), request),
            Event::SpunOut { worker, request, since } => self.spun_out(usize::from(worker), request, since),
            Event::Reclaim => self.reclaim(),
            Event::Stall(worker) => self.stall(usize::from(worker)),
        }
    }

    fn arrive(&mut self) {
        let now = self.events.now();
        self.arrived += 1;
        if self.arrived == self.setup.requests / 5 {
            self.warm_at = now;
            self.fabric.take_busy();
        }
        let gap = -(1.0 - self.arrivals.random::<f64>()).ln() * 1e9 / self.setup.rate;
        self.events.after(gap as Nanos, Event::Arrive);
        let index = self.next_dispatcher;
        self.next_dispatcher = (index + 1) % self.dispatchers.len();
        let (warm, busy_before) = (self.warm(), self.busy_until_now());
        if warm {
            self.meter.counts().arrived += 1;
        }
        if self.dispatchers[index].queue.len() >= costs::RX_RING.value as usize {
            if warm {
                self.meter.counts().dropped += 1;
            }
            return;
        }
        let kind = self.setup.workload.draw(&mut self.arrivals);
        let touches = self.setup.workload.touches(kind, &mut self.touches);
        let spent = Spent { kind, ..Spent::default() };
        let request = Request { arrived: now, busy_before, spent, touches, ..Request::default() };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.requests.push(Request::default());
            self.requests.len() as u32 - 1
        });
        self.requests[slot as usize] = request;
        self.dispatchers[index].queue.push_back(slot);
        self.dispatch(index);
    }

    fn dispatcher_of(&self, worker: usize) -> usize {
        self.dispatchers
            .iter()
            .rposition(|dispatcher| dispatcher.first_worker <= worker)
            .expect("the first begins at 0")
    }

    /// A dispatcher that is free gives the first request to a worker, or reaps a transmission.
    fn dispatch(&mut self, index: usize) {
        let dispatcher = &mut self.dispatchers[index];
        if dispatcher.at_work {
            return;
        }
        let workers = dispatcher.first_worker..dispatcher.first_worker + dispatcher.workers;
        if let Some(request) = dispatcher.queue.front().copied() {
            let view = |worker: &Worker| WorkerView { room: u32::from(worker.room), outstanding: worker.outstanding };
            self.views.clear();
            self.views.extend(self.workers[workers.clone()].iter().map(view));
            dispatcher.chooser.order(&self.views, &mut self.order);
            if let Some(choice) = self.order.first().copied() {
                dispatcher.queue.pop_front();
                dispatcher.chooser.dispatched(choice, dispatcher.workers);
                dispatcher.at_work = true;
                let worker = (workers.start + choice) as u16;
                self.workers[usize::from(worker)].room = false;
                let reaped = dispatcher.sent.min(REAPED_AT_ONCE);
                dispatcher.sent -= reaped;
                let took = costs::DISPATCH.ns() + Nanos::from(reaped) * costs::REAP.ns();
                self.events.after(took, Event::Dispatched(index as u16));
                self.events.after(took + costs::HANDOVER.ns(), Event::Given { worker, request });
                return;
            }
        }
        if dispatcher.sent > 0 {
            dispatcher.sent -= 1;
            dispatcher.at_work = true;
            self.events.after(costs::REAP.ns(), Event::Dispatched(index as u16));
        }
    }

    /// A worker that has nothing to do polls, takes what is ready by then, then what it was given, and tells its
    /// dispatcher when it has room. What becomes ready meanwhile waits for its next poll, so that nothing new waits for
    /// ever.
    fn look(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        if worker.doing != Doing::Looking {
            return;
        }
        if worker.given.is_none() && !worker.told {
            worker.told = true;
            self.events.after(costs::HANDOVER.ns(), Event::Room(index as u16));
        }
        let given = worker.given.map(|(_, at)| at);
        if worker.polled == 0 && !(worker.new_is_due && given.is_some()) {
            worker.polled = worker.ready.len();
            worker.new_is_due = true;
        }
        let resumes = worker.polled > 0 && {
            let came = self.requests[worker.ready[0] as usize].since;
            given.is_none_or(|given| self.setup.order.resumes_first(came, || given))
        };
        if resumes {
            let request = worker.ready.pop_front().expect("as many are ready");
            worker.polled -= 1;
            let now = self.events.now();
            let resumed = &mut self.requests[request as usize];
            resumed.spent.ready += (now - resumed.since) as u32;
            resumed.slice = 0;
            self.go_on(index, request, self.setup.profile.at_return());
        } else if let Some((request, _)) = worker.given.take() {
            worker.told = false;
            worker.new_is_due = false;
            self.start(index, request);
        }
    }

    /// A worker begins with a request, or goes on with one that had been put back.
    fn start(&mut self, index: usize, slot: u32) {
        let (now, busy) = (self.events.now(), self.busy_until_now());
        let request = &mut self.requests[slot as usize];
        let handled = (costs::DISPATCH.ns() + costs::HANDOVER.ns()) as u32;
        request.spent.running += handled;
        request.spent.queued += (now - request.since.max(request.arrived)) as u32 - handled;
        request.spent.queued_busy += ((busy - request.busy_before) / self.setup.workers as u64) as u32;
        request.slice = 0;
        request.worker = index as u16;
        let kind = self.setup.workload.kinds[usize::from(request.spent.kind)];
        let first = if std::mem::replace(&mut request.started, true) { costs::PREEMPT.ns() } else { kind.first };
        self.go_on(index, slot, first);
    }

    /// A worker runs a request for `first`, and on to its next fault, its checkpoint or its end.
    fn go_on(&mut self, index: usize, slot: u32, first: Nanos) {
        let (setup, mut took) = (self.setup, first);
        let request = &mut self.requests[slot as usize];
        let kind = &setup.workload.kinds[usize::from(request.spent.kind)];
        let doing = loop {
            if request.touches == 0 {
                took += kind.last;
                break Doing::ToEnd(slot);
            }
            let fresh = request.page.is_none();
            if fresh && setup.profile.preemption.is_some_and(|after| request.slice + took > after) {
                took += costs::PREEMPT.ns();
                break Doing::ToCheckpoint(slot);
            }
            let page = *request.page.get_or_insert_with(|| setup.workload.page(&mut self.touches));
            if self.memory.find(page) != Found::Local {
                took += setup.profile.at_fault();
                break Doing::ToFault(slot);
            }
            request.page = None;
            request.touches -= 1;
            took += if request.touches > 0 { kind.each } else { 0 };
        };
        request.spent.running += took as u32;
        request.slice += took;
        self.workers[index].doing = doing;
        self.events.after(took, Event::Ran(index as u16));
    }

    fn ran(&mut self, index: usize) {
        let put_off = std::mem::take(&mut self.workers[index].put_off);
        let doing = self.workers[index].doing;
        if put_off > 0 {
            if let Doing::ToFault(slot) | Doing::ToCheckpoint(slot) | Doing::ToEnd(slot) = doing {
                self.requests[slot as usize].spent.running += put_off as u32;
            }
            self.events.after(put_off, Event::Ran(index as u16));
            return;
        }
        match doing {
            Doing::ToFault(request) => self.fault(index, request),
            Doing::ToCheckpoint(request) => self.put_back(index, request),
            Doing::ToEnd(request) => self.answer(index, request),
            Doing::Sending | Doing::Leaving => self.idle(index),
            Doing::Looking | Doing::Waiting(_) => unreachable!("worker {index} was not running"),
        }
    }

    /// The worker has nothing more to do with what it was at.
    fn idle(&mut self, index: usize) {
        self.workers[index].doing = Doing::Looking;
        self.look(index);
    }

    /// A request has run for too long: it goes to the end of its dispatcher's queue.
    fn put_back(&mut self, index: usize, slot: u32) {
        let (now, busy) = (self.events.now(), self.busy_until_now());
        let request = &mut self.requests[slot as usize];
        (request.since, request.busy_before) = (now, busy);
        let dispatcher = self.dispatcher_of(index);
        self.dispatchers[dispatcher].queue.push_back(slot);
        self.idle(index);
        self.dispatch(dispatcher);
    }

    fn answer(&mut self, index: usize, slot: u32) {
        let request = self.requests[slot as usize];
        let whole = self.events.now() - request.arrived;
        assert_eq!(Nanos::from(request.spent.whole()), whole, "time is missing or counted twice: {request:?}");
        self.free.push(slot);
        if self.warm() && request.arrived >= self.warm_at {
            self.meter.answered(request.spent);
        }
        if self.setup.profile.delegates {
            let dispatcher = self.dispatcher_of(index);
            self.dispatchers[dispatcher].sent += 1;
            self.idle(index);
            self.dispatch(dispatcher);
        } else {
            self.workers[index].doing = Doing::Sending;
            self.events.after(costs::TX_WAIT.ns(), Event::Ran(index as u16));
        }
    }

    fn reclaim(&mut self) {
        let evicted = self.memory.evict(EVICTED_AT_ONCE);
        if evicted == 0 {
            self.reclaiming = false;
            return;
        }
        let took = evicted * costs::RECLAIM_PAGE.ns() / self.setup.reclaimers as u64;
        self.events.after(took, Event::Reclaim);
        self.feed_starved();
    }

    fn stall_later(&mut self, index: usize) {
        let pause = self.touches.random_range(0..2 * costs::KERNEL_STALL_EVERY.ns());
        self.events.after(pause, Event::Stall(index as u16));
    }

    /// The kernel takes the CPU: what the worker is at takes longer.
    fn stall(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        if !matches!(worker.doing, Doing::Looking | Doing::Waiting(_)) {
            worker.put_off += costs::KERNEL_STALL.ns();
        }
        self.stall_later(index);
    }

    fn count_busy(&mut self, change: i32) {
        self.busy_sum = self.busy_until_now();
        self.busy_since = self.events.now();
        self.busy = self.busy.checked_add_signed(change).expect("who stops waiting had waited");
    }

    fn busy_until_now(&self) -> Nanos {
        self.busy_sum + Nanos::from(self.busy) * (self.events.now() - self.busy_since)
    }
}
