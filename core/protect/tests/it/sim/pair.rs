//! [`Pair`]: a queue pair of the simulated program: what it has posted, and what it does when it is polled.
//!
//! A poll first takes all that has arrived, into frames, then handles the ends of operations one after another, then
//! looks at what is under way. What gets no answer is sent again, under its number. A write that was cancelled is
//! aborted, again and again, until the node has agreed; then it has settled.

mod writes;

use std::collections::{BTreeMap, BTreeSet};

use yonder_protect::hedge::{Budget, DELAY_MAX};
use yonder_protect::mend::{Next, Plan};
use yonder_protect::pace::{Answering, Pace, READS_PER_SAMPLE, hedge_after};
use yonder_protect::{Landing, Look, MendEnd, Place, Read, ReadNext, ReadStep, Slot, SlotSet, Write};

use super::node::{Answer, Call, Reply, Request};
use super::owner::{Frame, Owner, PlaceRecord};
use super::runs::{MendRun, Operation, Purpose, ReadRun, Role, Task, WriteRun};
use super::{Count, MS, PAGES, Sabotage};

const RETRY_MIN: u64 = 3 * MS;
const RETRY_MAX: u64 = 40 * MS;
/// Time after which a write is posted again whose place has moved.
const AGAIN: u64 = 2 * MS;
/// How often places are asked whether they are where they were.
const PROBE_EACH: u64 = 500 * MS;
/// Operations of a thread that are under way.
const RUNS_MAX: usize = 3;
/// Words that the mender looks at in a call.
const WORDS: usize = 5;

pub(super) struct Pair {
    number: usize,
    role: Role,
    pub(super) inbox: Vec<Answer>,
    operations: BTreeMap<u64, Operation>,
    reads: BTreeMap<u64, ReadRun>,
    writes: BTreeMap<u64, WriteRun>,
    /// Mends whose write is under way.
    mends: BTreeMap<u64, MendRun>,
    /// By the numbers of healths.
    paces: BTreeMap<usize, Pace>,
    hedge_after: u64,
    reads_beside_slow: u64,
    budget: Budget,
    plan: Plan,
    polled: u64,
    next_work: u64,
    next_probe: u64,
    pub(super) is_working: bool,
}

impl Pair {
    pub(super) fn new(number: usize, role: Role) -> Self {
        Self {
            number,
            role,
            inbox: Vec::new(),
            operations: BTreeMap::new(),
            reads: BTreeMap::new(),
            writes: BTreeMap::new(),
            mends: BTreeMap::new(),
            paces: BTreeMap::new(),
            hedge_after: DELAY_MAX,
            reads_beside_slow: 0,
            budget: Budget::default(),
            plan: Plan::default(),
            polled: 0,
            next_work: 0,
            next_probe: 0,
            is_working: true,
        }
    }

    /// Whether nothing is under way but probes, aborts included.
    pub(super) fn is_idle(&self) -> bool {
        let mut tasks = self.operations.values().map(|operation| operation.task);
        tasks.all(|task| matches!(task, Task::Probe(_)))
            && self.reads.is_empty()
            && self.writes.is_empty()
            && self.mends.is_empty()
    }

    /// When it wants to be polled, if nothing arrives.
    pub(super) fn next_poll(&self, now: u64) -> u64 {
        let reads = self.reads.values().map(|run| run.read.next_look());
        reads.min().unwrap_or(u64::MAX).clamp(now + MS / 20, now + 5 * MS)
    }

    pub(super) fn poll(&mut self, owner: &mut Owner) {
        let mut heard = BTreeSet::new();
        let arrived: Vec<_> = self.inbox.drain(..).collect();
        for answer in &arrived {
            let Some(operation) = self.operations.get(&answer.id) else { continue };
            if answer.reply == Reply::Refused {
                owner.healths[operation.health].lose();
                continue;
            }
            owner.healths[operation.health].hear(owner.now);
            heard.insert(operation.health);
            if let (Reply::Content(content), Task::Read(run, slot)) = (answer.reply, operation.task) {
                self.reads
                    .get_mut(&run)
                    .expect("a read that is over has cancelled the rest")
                    .frame
                    .arrive(slot, content);
            }
        }
        for answer in arrived.into_iter().filter(|answer| answer.reply != Reply::Busy) {
            // It may have been cancelled by the end of another.
            if let Some(operation) = self.operations.remove(&answer.id) {
                self.end(owner, operation, answer.reply);
            }
        }
        for operation in self.operations.values().filter(|operation| !heard.contains(&operation.health)) {
            if owner.sabotage == Some(Sabotage::PausesAreSilence) {
                (self.polled..owner.now).step_by(MS as usize).for_each(|at| owner.healths[operation.health].wait(at));
            }
            owner.healths[operation.health].wait(owner.now);
        }
        self.polled = owner.now;
        self.look(owner);
        if self.role == Role::Mender && owner.sabotage != Some(Sabotage::NothingIsProbed) {
            self.probe(owner);
        }
        self.retry(owner);
        self.work(owner);
    }

    /// The slot that an operation is about.
    fn slot_of(&self, task: Task) -> SlotSet {
        match task {
            Task::Read(_, slot) | Task::Write(_, slot) => slot.into(),
            Task::MendWrite(run) => self.mends[&run].ticket.to().slot.into(),
            Task::Abort(place) | Task::Probe(place) => place.slot.into(),
        }
    }

    /// An operation has ended.
    fn end(&mut self, owner: &mut Owner, operation: Operation, reply: Reply) {
        let page = operation.request.page;
        let slots = self.slot_of(operation.task);
        if reply == Reply::Moved {
            owner.doubted |= slots;
        }
        let is_done = matches!(reply, Reply::Content(_) | Reply::Done) && !matches!(operation.task, Task::Abort(_));
        for slot in slots.iter().filter(|_| is_done) {
            let answered = &mut owner.answered[slot.index()];
            *answered = (*answered).max(operation.address);
        }
        match operation.task {
            Task::Probe(_) => {}
            Task::Abort(place) => {
                owner.count(Count::Settled);
                // The write may go on at other places.
                let is_its = |write: &Write| write.ticket().page() == page && write.place(place.slot) == place;
                for run in self.writes.values_mut().filter(|run| is_its(&run.write)) {
                    run.write.settled(place.slot);
                }
                owner.group.settle(page, place);
            }
            Task::Read(run, slot) => {
                let (nodes, now) = (self.answering(owner), owner.now);
                let read = &mut self.reads.get_mut(&run).expect("it is under way").read;
                if let Some(span) = read.waited(slot, now) {
                    self.paces.entry(operation.health).or_default().took(span, self.hedge_after);
                }
                let step = match reply {
                    Reply::Refused | Reply::Moved => read.failed(slot, nodes, now),
                    _ => read.answered(&owner.group, slot),
                };
                self.go_on_reading(owner, run, step);
            }
            Task::Write(run, slot) if reply == Reply::Moved => {
                owner.count(Count::WrittenAgain);
                let entry = self.writes.get_mut(&run).expect("it is under way");
                entry.again |= slot.into();
                entry.again_at = owner.now + AGAIN;
            }
            Task::Write(run, slot) => {
                let write = &mut self.writes.get_mut(&run).expect("it is under way").write;
                let step = match reply {
                    Reply::Refused => write.failed(slot, Landing::Never),
                    _ => write.acknowledged(slot),
                };
                self.go_on_writing(owner, run, step);
            }
            Task::MendWrite(run) => {
                let MendRun { ticket, .. } = self.mends.remove(&run).expect("it is under way");
                let end = if reply == Reply::Done { MendEnd::Done } else { MendEnd::Failed };
                if owner.group.end_mend(&ticket, end) {
                    owner.count(Count::Mended);
                }
            }
        }
    }

    /// Looks at all that is under way.
    fn look(&mut self, owner: &mut Owner) {
        let (nodes, now) = (self.answering(owner), owner.now);
        self.hedge_after = hedge_after(self.paces.values(), &mut Vec::with_capacity(self.paces.len()));
        for run in self.reads.keys().copied().collect::<Vec<_>>() {
            let entry = self.reads.get_mut(&run).expect("it is under way");
            if now >= entry.give_up_at {
                let cancel = entry.read.give_up();
                self.go_on_reading(owner, run, ReadStep { cancel, then: ReadNext::Failed });
                continue;
            }
            owner.doubted |= entry.read.waiting() - nodes.up;
            let step = entry.read.look(&owner.group, nodes, now, &mut self.budget);
            if matches!(step.then, ReadNext::Ask(_)) && !entry.read.waiting().is_empty() {
                owner.count(Count::Hedged);
            }
            self.go_on_reading(owner, run, step);
        }
        self.look_at_writes(owner, nodes);
        for run in self.mends.keys().copied().collect::<Vec<_>>() {
            let MendRun { ticket, give_up_at } = self.mends[&run];
            if now >= give_up_at || !owner.group.view().has(ticket.to()) {
                self.mends.remove(&run);
                owner.group.end_mend(&ticket, MendEnd::Unsettled);
                self.cancel(owner, |task| matches!(task, Task::MendWrite(other) if other == run), ticket.to());
            }
        }
    }

    fn go_on_reading(&mut self, owner: &mut Owner, run: u64, step: ReadStep) {
        let ReadRun { read, purpose, frame, .. } = self.reads[&run];
        for slot in step.cancel.iter() {
            // A read that was cancelled was waited for all the same.
            let late = read.waited(slot, owner.now).filter(|span| *span > self.hedge_after);
            if let (Some(span), Some(health)) = (late, owner.health_of(read.place(slot))) {
                self.paces.entry(health).or_default().took(span, self.hedge_after);
            }
            self.operations
                .retain(|_, operation| !matches!(operation.task, Task::Read(other, at) if other == run && at == slot));
        }
        match step.then {
            ReadNext::Wait => {}
            ReadNext::Ask(slots) => {
                for slot in slots.iter() {
                    let task = Task::Read(run, slot);
                    if !self.post(owner, task, read.place(slot), read.ticket().page(), Call::Read) {
                        let read = &mut self.reads.get_mut(&run).expect("it is under way").read;
                        read.was_not_asked(slot);
                    }
                }
            }
            ReadNext::Done | ReadNext::Again | ReadNext::Failed => {
                self.reads.remove(&run);
                let frame = frame.content(owner.group.protection(), read.got());
                self.end_read(owner, read.ticket().page(), purpose, (step.then, frame));
            }
        }
    }

    fn end_read(&mut self, owner: &mut Owner, page: usize, purpose: Purpose, (end, frame): (ReadNext, u64)) {
        match (purpose, end) {
            (Purpose::Mend(ticket), ReadNext::Done) => {
                let run = owner.id();
                let give_up_at = owner.now + 400 * MS;
                let is_another = owner.sabotage == Some(Sabotage::MendedShareIsAnother);
                let slot = if is_another { Slot::new((ticket.to().slot.number() + 1) % 8) } else { ticket.to().slot };
                if self.post(owner, Task::MendWrite(run), ticket.to(), page, owner.share(frame, slot)) {
                    self.mends.insert(run, MendRun { ticket, give_up_at });
                } else {
                    owner.group.end_mend(&ticket, MendEnd::Failed);
                }
            }
            (Purpose::Mend(ticket), _) => drop(owner.group.end_mend(&ticket, MendEnd::Failed)),
            (Purpose::Program, ReadNext::Again) => {
                owner.count(Count::ReadAgain);
                self.read(owner, page, purpose);
            }
            (Purpose::Program, end) => {
                owner.pages[page].is_busy = false;
                if end == ReadNext::Done {
                    owner.check_read(page, frame);
                }
            }
            (Purpose::Guide, ReadNext::Done) => owner.check_read(page, frame),
            (Purpose::Guide, _) => {}
        }
    }

    /// Sends an operation to where its place is. Whether that is there still.
    fn post(&mut self, owner: &mut Owner, task: Task, place: Place, page: usize, call: Call) -> bool {
        let Some(address) = owner.group.address(place) else { return false };
        assert!(!owner.given_up.contains(&address), "a place that was given up is asked");
        let PlaceRecord { node, incarnation, region, health } = owner.places[address as usize];
        let (id, sent, pair) = (owner.id(), owner.now, self.number);
        let request = Request { id, sent, pair, node, incarnation, region, page, call };
        self.send(owner, task, request, (health, address));
        true
    }

    fn send(&mut self, owner: &mut Owner, task: Task, request: Request, (health, address): (usize, u64)) {
        owner.outbox.push(request);
        let retry_at = owner.now + RETRY_MIN;
        self.operations
            .insert(request.id, Operation { request, health, address, task, retry_at, retry_after: RETRY_MIN });
    }

    fn retry(&mut self, owner: &mut Owner) {
        self.leave_behind(owner);
        let group = &owner.group;
        let health_of = |place| owner.health_of(place);
        self.operations.retain(|_, operation| match operation.task {
            Task::Abort(place) => group.view().has(place),
            Task::Probe(place) => health_of(place) == Some(operation.health),
            Task::Read(..) | Task::Write(..) | Task::MendWrite(_) => true,
        });
        for operation in self.operations.values_mut().filter(|operation| owner.now >= operation.retry_at) {
            operation.retry_after = (2 * operation.retry_after).min(RETRY_MAX);
            operation.retry_at = owner.now + operation.retry_after;
            owner.outbox.push(operation.request);
        }
    }

    /// Asks nodes that are not up, and of each place now and then whether it is where it was.
    fn probe(&mut self, owner: &mut Owner) {
        let view = owner.group.view();
        let is_due = owner.now >= self.next_probe && owner.sabotage != Some(Sabotage::QuietPlacesAreNotAsked);
        if is_due {
            self.next_probe = owner.now + PROBE_EACH;
        }
        for place in view.readable().iter().map(|slot| view.place(slot)) {
            let Some(address) = owner.group.address(place) else { continue };
            let health = &owner.healths[owner.places[address as usize].health];
            let is_asked = |task| matches!(task, Task::Probe(asked) if asked == place);
            let is_probed = self.operations.values().any(|operation| is_asked(operation.task));
            if !is_probed && (health.wants_probe(owner.now) || is_due && health.state().is_up()) {
                self.post(owner, Task::Probe(place), place, 0, Call::Read);
            }
        }
    }

    /// Begins something new.
    fn work(&mut self, owner: &mut Owner) {
        let under_way = self.reads.len() + self.writes.len() + self.mends.len();
        if owner.now < self.next_work || !self.is_working || under_way >= RUNS_MAX {
            return;
        }
        if self.role == Role::Mender {
            return self.mend(owner);
        }
        self.next_work = owner.now + rand::Rng::random_range(&mut owner.rng, 0..15 * MS);
        let page = rand::Rng::random_range(&mut owner.rng, 0..PAGES);
        if owner.chance(0.1) {
            return self.read(owner, page, Purpose::Guide);
        }
        if owner.pages[page].is_busy {
            return;
        }
        if owner.pages[page].is_dirty || owner.chance(0.45) {
            self.write(owner, page);
        } else if owner.chance(0.08) {
            if owner.group.forget(page).is_ok() {
                owner.count(Count::Forgotten);
                owner.pages[page].acknowledged = 0;
            }
        } else {
            self.read(owner, page, Purpose::Program);
        }
    }

    /// The slots whose nodes are not suspect, and those that keep up.
    fn answering(&self, owner: &Owner) -> Answering {
        let (up, view) = (owner.up(), owner.group.view());
        let pace = |slot: Slot| self.paces.get(&owner.health_of(view.place(slot))?);
        let is_slow = |slot: &Slot| pace(*slot).is_some_and(Pace::is_slow);
        Answering { up, quick: up - up.iter().filter(is_slow).collect() }
    }

    /// Reads a page that is not being written.
    pub(super) fn read_back(&mut self, owner: &mut Owner, page: usize) {
        self.read(owner, page, Purpose::Program);
    }

    fn read(&mut self, owner: &mut Owner, page: usize, purpose: Purpose) {
        match owner.group.look_to_read(page) {
            Look::At(ticket) => {
                if let Purpose::Program = purpose {
                    owner.pages[page].is_busy = true;
                }
                let mut nodes = self.answering(owner);
                if nodes.quick != nodes.up {
                    owner.count(Count::Slow);
                    self.reads_beside_slow += 1;
                    if self.reads_beside_slow.is_multiple_of(READS_PER_SAMPLE) {
                        nodes = nodes.slow_first();
                    }
                }
                let begun = Read::begin(ticket, &owner.group, nodes, owner.now, self.hedge_after);
                self.begin_read(owner, begun, purpose);
            }
            Look::Zeros => {
                if let Purpose::Program = purpose {
                    owner.pages[page].is_busy = false;
                }
                owner.check_read(page, 0);
            }
            Look::Writing | Look::Nowhere => {
                if let Purpose::Program = purpose {
                    owner.pages[page].is_busy = false;
                }
                owner.count(Count::Unreadable);
            }
        }
    }

    fn begin_read(&mut self, owner: &mut Owner, (read, slots): (Read, SlotSet), purpose: Purpose) {
        let run = owner.id();
        let span = rand::Rng::random_range(&mut owner.rng, 200..900) * MS;
        self.budget.earn();
        self.reads.insert(run, ReadRun { read, purpose, frame: Frame::default(), give_up_at: owner.now + span });
        self.go_on_reading(owner, run, ReadStep { cancel: SlotSet::NONE, then: ReadNext::Ask(slots) });
    }

    fn mend(&mut self, owner: &mut Owner) {
        let nodes = self.answering(owner);
        match self.plan.next(&[&owner.group], |_| nodes.up, WORDS) {
            Next::Job(job) => {
                let source = job.ticket.source();
                let begun = Read::begin(source, &owner.group, nodes, owner.now, self.hedge_after);
                self.begin_read(owner, begun, Purpose::Mend(job.ticket));
            }
            Next::More => {}
            Next::Nothing => self.next_work = owner.now + 5 * MS,
        }
    }
}
