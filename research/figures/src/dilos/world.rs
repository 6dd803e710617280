//! [`simulate`]: one thread that touches the pages of its array, one after the other, while another CPU reclaims.
//!
//! ```text
//! touch -> exception -> handle: remote   -> prepare -> room? -> read, reads ahead -> await -> map -> return -> touch
//!                               fetching -> reads ahead ---------------------------> await -> map -> return
//!                               standby  -> map -> return             being swept -> wait, handle
//! ```
//! Every nanosecond of a fault is one [`Part`]'s. Invariant: a page is mapped for each read that was not withdrawn, so
//! in a sequence pages are as many as installs.

use yonder_pager::pagetable::State;
use yonder_pager::prefetch::Plan;
use yonder_pager::reclaim::Action;
use yonder_simulation::EventQueue;
use yonder_units::{BLOCK_PAGES, Nanos, PageIndex};

use super::ahead::Ahead;
use super::link::{Nic, Queue};
use super::memory::Memory;
use super::system::{Reclaim, System, Windows};
use crate::costs::dilos;

/// What the thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Op {
    Read,
    Write,
}

/// What the time of faults is spent on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// The CPU's and the system's way into the handler and out of it.
    Exception,
    /// The handler, before the read and after it.
    Software,
    /// From the posted read until the page is there.
    Fetch,
    /// Making room, or waiting for it.
    Reclaim,
}

/// Parts of a fault.
pub(super) const PARTS: usize = 4;

/// What a simulation counted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Counts {
    pub(super) major: u64,
    pub(super) minor: u64,
    /// Major faults that reclaimed.
    pub(super) reclaiming: u64,
    /// Pages that were mapped after a read.
    pub(super) installed: u64,
    pub(super) elapsed: Nanos,
    /// By [`Part`], of all faults together.
    pub(super) parts: [Nanos; PARTS],
}

impl Counts {
    /// Of all faults together.
    pub(super) fn part(&self, part: Part) -> Nanos {
        self.parts[part as usize]
    }
}

/// Touches `order`, pages of an array of `pages` of which `limit` can be local.
pub(super) fn simulate(system: &System, op: Op, (pages, limit): (u32, u32), order: &[u32]) -> Counts {
    let mut world = World::new(system, op, pages, limit, order);
    world.events.after(0, Event::Thread);
    while world.counts.elapsed == 0 {
        let event = world.events.advance().expect("the thread waits for something that comes");
        world.happens(event);
    }
    world.counts.installed = world.memory.installed;
    world.counts
}

#[derive(Debug)]
enum Event {
    /// The thread's step is to be made.
    Thread,
    /// A read has ended; it may have been withdrawn.
    Arrived,
    /// The reclaimer's job is done.
    Reclaimed,
    /// The node has acknowledged a write.
    Written(PageIndex),
}

/// What the thread does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Touch,
    Handle,
    Charge,
    /// A batch that it reclaimed itself is done.
    Reclaimed,
    Await,
}

/// What the thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wait {
    Page,
    Room,
    Sweep,
}

/// A CPU's work of reclaim.
#[derive(Debug)]
enum Job {
    Sweep(Vec<PageIndex>),
    Drain(Vec<PageIndex>),
}

struct World<'a> {
    system: &'a System,
    op: Op,
    order: &'a [u32],
    at: usize,
    step: Step,
    /// What the thread waits for, and since when.
    wait: Option<(Wait, Nanos)>,
    /// Pages that the thread reclaims itself.
    own_batch: Vec<PageIndex>,
    has_reclaimed: bool,
    /// The reclaimer's work, and whether there is more to do than watermarks say.
    job: Option<Job>,
    is_reclaiming: bool,
    memory: Memory,
    ahead: Ahead,
    nic: Nic,
    /// When the last read of each page ends.
    due: Vec<Nanos>,
    events: EventQueue<Event>,
    counts: Counts,
}

impl<'a> World<'a> {
    fn new(system: &'a System, op: Op, pages: u32, limit: u32, order: &'a [u32]) -> Self {
        let mut memory = Memory::new(pages, limit, system.shares());
        if system.reclaim == Reclaim::Background {
            memory.settle(memory.policy.limit() - memory.policy.start_above());
        }
        Self {
            system,
            op,
            order,
            at: 0,
            step: Step::Touch,
            wait: None,
            own_batch: Vec::new(),
            has_reclaimed: false,
            job: None,
            is_reclaiming: false,
            memory,
            ahead: Ahead::new(system),
            nic: Nic::default(),
            due: vec![0; pages as usize],
            events: EventQueue::new(),
            counts: Counts::default(),
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Thread => self.thread(),
            // If it was another's, the thread waits again.
            Event::Arrived => self.wake(Wait::Page),
            Event::Reclaimed => {
                let job = self.job.take().expect("it was at work");
                self.finish(job);
            }
            Event::Written(page) => {
                self.memory.end_write(page, self.events.now());
                self.freed();
            }
        }
    }

    fn page(&self) -> PageIndex {
        PageIndex(self.order[self.at])
    }

    fn thread(&mut self) {
        match self.step {
            Step::Touch => self.touch(),
            Step::Handle => self.handle(),
            Step::Charge => self.charge(),
            Step::Reclaimed => {
                let batch = std::mem::take(&mut self.own_batch);
                self.drop_batch(&batch);
                self.step = Step::Charge;
                self.charge();
            }
            Step::Await => self.await_page(),
        }
    }

    /// The thread is busy with `part` for `delay`, then makes `step`.
    fn busy(&mut self, part: Part, delay: Nanos, step: Step) {
        self.counts.parts[part as usize] += delay;
        self.step = step;
        self.events.after(delay, Event::Thread);
    }

    fn sleep(&mut self, wait: Wait) {
        self.wait = Some((wait, self.events.now()));
    }

    /// The thread makes its step again, if it waits for that.
    fn wake(&mut self, from: Wait) {
        let Some((wait, since)) = self.wait.filter(|(wait, _)| *wait == from) else { return };
        let part = if wait == Wait::Page { Part::Fetch } else { Part::Reclaim };
        self.counts.parts[part as usize] += self.events.now() - since;
        self.wait = None;
        self.thread();
    }

    fn touch(&mut self) {
        let page = self.page();
        if !self.memory.entry(page).is_resident() {
            self.has_reclaimed = false;
            self.busy(Part::Exception, dilos::EXCEPTION.ns() / 2, Step::Handle);
            return;
        }
        let mut cost = dilos::TOUCH.ns();
        if self.op == Op::Write {
            self.memory.store(page);
            cost += dilos::STORE.ns();
        }
        self.at += 1;
        if self.at == self.order.len() {
            self.counts.elapsed = self.events.now() + cost;
        } else {
            self.events.after(cost, Event::Thread);
        }
    }

    fn handle(&mut self) {
        let page = self.page();
        match self.memory.entry(page).state() {
            State::Remote => {
                self.counts.major += 1;
                self.busy(Part::Software, self.system.prepare_ns, Step::Charge);
            }
            State::Fetching { .. } => {
                self.counts.minor += 1;
                let plan = self.ahead.hit(page);
                let posted = plan.map_or(0, |plan| self.fetch_ahead(plan));
                let cost = posted * self.system.prepare_ns + self.system.minor_ns;
                self.busy(Part::Software, cost, Step::Await);
                self.start_reclaim();
            }
            State::Standby(_) => {
                self.counts.minor += 1;
                self.memory.rescue(page);
                self.counts.parts[Part::Software as usize] += self.system.map_ns;
                self.leave(self.system.map_ns);
            }
            State::Evicting => self.sleep(Wait::Sweep),
            state => unreachable!("a fault finds page {} {state:?}", page.0),
        }
    }

    /// Room for the page, and its read (sections 3.1 and 4.2).
    fn charge(&mut self) {
        if !self.memory.has_room(self.system.room_pages()) {
            let batch = if self.system.reclaim == Reclaim::Shared { self.take_batch() } else { Vec::new() };
            if batch.is_empty() {
                self.sleep(Wait::Room);
                self.start_reclaim();
            } else {
                self.counts.reclaiming += u64::from(!std::mem::replace(&mut self.has_reclaimed, true));
                let cost = self.batch_ns(&batch);
                self.own_batch = batch;
                self.busy(Part::Reclaim, cost, Step::Reclaimed);
            }
            return;
        }
        let page = self.page();
        self.post(page, self.events.now(), Queue::Demand, 0);
        // What is fetched ahead is posted while the page is on its way (section 4.3).
        let plan = self.ahead.missed(page);
        let posted = plan.map_or(0, |plan| self.fetch_ahead(plan));
        self.busy(Part::Fetch, posted * self.system.prepare_ns, Step::Await);
        self.start_reclaim();
    }

    fn await_page(&mut self) {
        let page = self.page();
        let (due, now) = (&self.due, self.events.now());
        let is_here = |page: PageIndex| due[page.index()] <= now;
        if !is_here(page) {
            return self.sleep(Wait::Page);
        }
        let mapped = self.ahead.take(page, self.system.mapping, is_here);
        mapped.iter().for_each(|page| self.memory.install(*page));
        let cost = mapped.len() as Nanos * self.system.map_ns;
        self.counts.parts[Part::Software as usize] += cost;
        self.leave(cost);
    }

    /// The fault is over after `mapping`, and the access is made again.
    fn leave(&mut self, mapping: Nanos) {
        let exit = dilos::EXCEPTION.ns() - dilos::EXCEPTION.ns() / 2;
        self.counts.parts[Part::Exception as usize] += exit;
        self.step = Step::Touch;
        self.events.after(mapping + exit, Event::Thread);
    }

    fn post(&mut self, page: PageIndex, at: Nanos, queue: Queue, slot: u16) {
        self.memory.fetch(page, queue as u16, slot);
        let arrival = self.nic.read(at, queue) + self.system.driver_ns;
        self.due[page.index()] = arrival;
        self.events.at(arrival, Event::Arrived);
    }

    /// Posts the reads of a plan, each when it has been prepared; how many.
    fn fetch_ahead(&mut self, plan: Plan) -> u64 {
        let wanted = self.ahead.pages_of(&plan) as usize;
        let (mut seen, mut pages) = (0, Vec::with_capacity(wanted));
        for page in plan.pages().take(wanted).take_while(|page| page.0 < self.memory.pages()) {
            if self.memory.entry(page).state() == State::Remote {
                let room = pages.len() as u32 + 1;
                let has_room = match self.system.windows {
                    Windows::AfterMisses(_) => self.memory.has_room(room),
                    Windows::Followed => self.memory.has_room_ahead(room),
                };
                if !has_room {
                    break;
                }
                pages.push(page);
            }
            seen += 1;
        }
        self.ahead.shortened(&plan, seen);
        let (number, given_up) = self.ahead.begin(pages.clone());
        for page in given_up {
            self.memory.withdraw(page);
        }
        let prepare = self.system.prepare_ns;
        for (step, page) in (1..).zip(&pages) {
            self.post(*page, self.events.now() + step * prepare, Queue::Ahead, number);
        }
        pages.len() as u64
    }

    /// The reclaimer goes to work, if it is idle and there is reason.
    fn start_reclaim(&mut self) {
        let usage = self.memory.usage();
        if self.job.is_some() || !(self.is_reclaiming || self.memory.policy.is_low(&usage)) {
            return;
        }
        let action = self.memory.policy.decide(&usage);
        self.is_reclaiming = action != Action::Rest;
        let (job, cost) = match (action, self.system.reclaim) {
            (Action::Rest | Action::AwaitWrites, _) => return,
            (_, Reclaim::Shared) => {
                let batch = self.take_batch();
                let cost = self.batch_ns(&batch);
                (Job::Sweep(batch), cost)
            }
            (Action::Sweep(pages), Reclaim::Background) => {
                let swept = self.memory.sweep((pages as usize).min(BLOCK_PAGES));
                let cost = swept.len() as Nanos * dilos::RECLAIM.ns() / 2;
                (Job::Sweep(swept), cost)
            }
            (Action::Drain(pages), Reclaim::Background) => {
                let oldest: Vec<PageIndex> = (0..pages).map_while(|_| self.memory.oldest()).collect();
                let cost = oldest.len() as Nanos * dilos::RECLAIM.ns() / 2;
                (Job::Drain(oldest), cost)
            }
            (Action::Trim(_), _) => unreachable!("no frame is spare in this model"),
        };
        let (Job::Sweep(pages) | Job::Drain(pages)) = &job;
        if pages.is_empty() {
            self.is_reclaiming = false;
            return;
        }
        self.job = Some(job);
        self.events.after(cost, Event::Reclaimed);
    }

    fn finish(&mut self, job: Job) {
        let now = self.events.now();
        match job {
            Job::Sweep(batch) if self.system.reclaim == Reclaim::Shared => return self.drop_batch(&batch),
            Job::Sweep(pages) => pages.iter().for_each(|page| self.memory.stand_by(*page, now)),
            Job::Drain(pages) => {
                for page in pages {
                    if !self.memory.is_dirty(page) {
                        self.memory.drop_standing(page);
                    } else if self.memory.begin_write(page) {
                        let ack = self.nic.write(now);
                        self.events.at(ack, Event::Written(page));
                    }
                }
            }
        }
        self.freed();
    }

    /// Pages that Linux reclaims in one go.
    fn take_batch(&mut self) -> Vec<PageIndex> {
        let mut batch = Vec::new();
        while batch.len() < dilos::FASTSWAP_BATCH.value as usize {
            let more = self.memory.sweep(dilos::FASTSWAP_BATCH.value as usize - batch.len());
            if more.is_empty() {
                break;
            }
            batch.extend(more);
        }
        batch
    }

    /// A dirty page goes through the swap cache and a write that is waited for, as long as it took to come.
    fn batch_ns(&self, batch: &[PageIndex]) -> Nanos {
        let dirty = batch.iter().filter(|page| self.memory.is_dirty(**page)).count() as Nanos;
        let write = dilos::FASTSWAP_SWAP.ns() + dilos::FASTSWAP_FETCH.ns();
        batch.len() as Nanos * dilos::FASTSWAP_RECLAIM.ns() + dirty * write
    }

    fn drop_batch(&mut self, batch: &[PageIndex]) {
        batch.iter().for_each(|page| self.memory.write_out(*page));
        self.freed();
    }

    /// Pages have left: who waits for room or for a sweep looks again, and the reclaimer goes on.
    fn freed(&mut self) {
        // Whoever still finds none waits again.
        self.wake(Wait::Room);
        self.wake(Wait::Sweep);
        self.start_reclaim();
    }
}
