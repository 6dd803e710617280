//! The order between the lanes of one process: [`simulate_order`].
//!
//! A process has a range of pages on a node, a lane on which it writes and reads them, and a control lane on which it
//! discards, frees and allocates, with deadlines that the node's slow path, which stands still now and then, does not
//! keep. The process obeys `docs/design/order-of-operations.md`, as `core/pager` does: pages that a discard holds
//! are neither written nor taken for what the node has until the node has agreed, and a range that was freed is
//! nobody's before that. The oracle knows what the process was told: what was acknowledged is there, and what was
//! discarded is zeros, whatever was given up before.
//!
//! Client and board are the real ones; beside the words of the process, the node's own oracle judges every answer.

use std::collections::BTreeSet;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use yonder_client::{Client, Config, Operation, Outcome, Payload, Received, Transmit, Transport};
use yonder_session::Wrap;
use yonder_simulation::{Clock, Counts, EventQueue, Failure, caught, encoded};
use yonder_units::Nanos;
use yonder_wire::{AllocateRequest, Backing, ErrorCode, Kind, Permission, split};

use crate::counts::OrderCount;
use crate::history::Life;
use crate::node::{Arrived, Birth, Node, Sender};
use crate::sabotage::Sabotage;
use crate::settings::{MICROSECOND, MILLISECOND, PAGE_BYTES, Settings};

/// Pages of the range.
const PAGES: usize = 12;
/// Values that are written: few, so that an old content is written again now and then.
const VALUES: u64 = 4;
/// The lanes of the process.
const CONTROL: usize = 0;
const DATA: usize = 1;
/// Time of the storm, and longest time until all has ended after it.
const STORM: Nanos = 60 * MILLISECOND;
const CALM_MAX: Nanos = 5_000 * MILLISECOND;

/// Runs `seed`, with `sabotage` if there is to be some.
pub fn simulate_order(seed: u64, sabotage: Option<Sabotage>) -> Result<Counts<OrderCount>, Failure> {
    caught(seed, || Scene::new(seed, sabotage).run())
}

#[derive(Debug)]
enum Event {
    ToNode { lane: usize, bytes: Vec<u8> },
    ToLane { lane: usize, bytes: Vec<u8> },
    Slow,
    Refill,
    Act,
    Timer { lane: usize },
}

/// What an operation of the process is for.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Purpose {
    Create,
    Allocate,
    Discard(std::ops::Range<usize>),
    Free,
    Write { page: usize, value: u64 },
    Read { page: usize },
}

/// A page as the process knows it.
#[derive(Clone, Copy, Default, Debug)]
struct Page {
    /// What the node has, as far as the process knows: its digest.
    on_node: u64,
    /// A discard holds it.
    is_held: bool,
    /// An operation on it is under way on the data lane.
    is_busy: bool,
}

struct Scene {
    rng: SmallRng,
    sabotage: Option<Sabotage>,
    events: EventQueue<Event>,
    node: Node,
    lanes: [Client; 2],
    /// When each of them has its next timer event.
    timers: [Nanos; 2],
    purposes: Vec<Purpose>,
    data: Vec<Vec<u8>>,
    answer: Option<(u32, u128, u64)>,
    pid: u32,
    capability: u128,
    /// Where the range is; `None` while the process has none.
    range: Option<u64>,
    /// A free that the node has not agreed to.
    is_freeing: bool,
    /// An operation of the control lane is under way.
    is_controlling: bool,
    pages: [Page; PAGES],
    stalled_until: Nanos,
    is_slow_planned: bool,
    is_calm: bool,
    trouble: f64,
    counts: Counts<OrderCount>,
}

impl Scene {
    fn new(seed: u64, sabotage: Option<Sabotage>) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let settings = Settings { pages: 64, ready_pages: 8, recent: 512, threads: 2, ..Settings::draw(&mut rng) };
        let clock = Clock::new(rng.random_range(1..1_000) * MILLISECOND, rng.random_range(-400..400));
        let birth = Birth { clock, seed: rng.random(), key: rng.random(), secret: [0; 32] };
        let node = Node::new(Life { node: 0, number: 0 }, birth, &settings, None, 0);
        let lanes = std::array::from_fn(|_| new_lane(&mut rng));
        let trouble = if rng.random_bool(0.7) { rng.random_range(0.0..0.2) } else { 0.0 };
        Self {
            rng,
            sabotage,
            events: EventQueue::new(),
            node,
            lanes,
            timers: [0; 2],
            purposes: Vec::new(),
            data: Vec::new(),
            answer: None,
            pid: 0,
            capability: 0,
            range: None,
            is_freeing: false,
            is_controlling: false,
            pages: [Page::default(); PAGES],
            stalled_until: 0,
            is_slow_planned: false,
            is_calm: false,
            trouble,
            counts: Counts::default(),
        }
    }

    fn run(mut self) -> Result<Counts<OrderCount>, String> {
        self.events.after(0, Event::Act);
        self.events.after(0, Event::Refill);
        while let Some(event) = self.events.advance() {
            let now = self.events.now();
            self.is_calm |= now >= STORM;
            if now > STORM + CALM_MAX {
                return Err(format!("something does not end: {:?}", self.pages));
            }
            self.happen(event)?;
            if self.is_calm && self.is_quiescent() {
                return self.review();
            }
        }
        Err("nothing happens any more".to_owned())
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        let now = self.events.now();
        match event {
            Event::Act => {
                self.act(now);
                let pause = self.rng.random_range(1..60) * MICROSECOND;
                self.events.after(pause, Event::Act);
                self.pump(CONTROL)?;
                self.pump(DATA)
            }
            Event::Timer { lane } => self.pump(lane),
            Event::Refill => {
                self.node.refill();
                self.events.after(50 * MICROSECOND, Event::Refill);
                Ok(())
            }
            Event::ToNode { lane, bytes } => {
                let from = Some(Sender { lane, connection: 0, wrap: Wrap::Plain });
                let arrived = self.node.arrive(now, lane, &bytes, from)?;
                self.answered(arrived, lane);
                self.plan_slow(now);
                Ok(())
            }
            Event::Slow => {
                self.is_slow_planned = false;
                if let Some((arrived, from)) = self.node.slow_step(now)? {
                    self.answered(arrived, from.expect("every request has a sender").lane);
                }
                self.plan_slow(now);
                Ok(())
            }
            Event::ToLane { lane, bytes } => self.receive(lane, &bytes),
        }
    }

    fn plan_slow(&mut self, now: Nanos) {
        if self.node.has_slow_work() && !self.is_slow_planned {
            self.is_slow_planned = true;
            let at = self.stalled_until.max(now) + self.rng.random_range(1..20) * MICROSECOND;
            self.events.at(at, Event::Slow);
        }
    }

    /// What comes to the mind of the process.
    fn act(&mut self, now: Nanos) {
        if !self.is_calm && self.rng.random_bool(0.01) {
            self.counts.add(OrderCount::Stalls, 1);
            self.stalled_until = self.stalled_until.max(now + self.rng.random_range(1..12) * MILLISECOND);
        }
        if self.is_calm {
            self.stalled_until = 0;
        }
        if !self.is_controlling {
            self.control();
        }
        if !self.is_calm {
            (0..2).for_each(|_| self.use_page());
        }
    }

    fn control(&mut self) {
        if self.pid == 0 {
            return self.submit(CONTROL, Kind::CreateSpace, 0, 0, &[], Purpose::Create);
        }
        let Some(start) = self.range else {
            let bytes = PAGES as u64 * PAGE_BYTES;
            let (permission, backing) = (Permission::ReadWrite, self.backing());
            let body = encoded(&AllocateRequest { bytes, permission, backing, from: 0, to: 0 });
            return self.submit(CONTROL, Kind::Allocate, 0, body.len() as u64, &body, Purpose::Allocate);
        };
        if self.is_freeing {
            return self.submit(CONTROL, Kind::Free, start, PAGES as u64 * PAGE_BYTES, &[], Purpose::Free);
        }
        // What is held is asked for again until the node agrees.
        if let Some(first) = self.pages.iter().position(|page| page.is_held) {
            let end = (first..PAGES).find(|page| !self.pages[*page].is_held).unwrap_or(PAGES);
            return self.discard(start, first..end);
        }
        if self.is_calm || self.rng.random_bool(0.9) {
            return;
        }
        if self.rng.random_bool(0.2) && self.pages.iter().all(|page| !page.is_busy) {
            self.is_freeing = true;
            return self.submit(CONTROL, Kind::Free, start, PAGES as u64 * PAGE_BYTES, &[], Purpose::Free);
        }
        let first = self.rng.random_range(0..PAGES);
        let end = self.rng.random_range(first + 1..=PAGES);
        if self.pages[first..end].iter().all(|page| !page.is_busy) {
            self.discard(start, first..end);
        }
    }

    fn backing(&mut self) -> Backing {
        if self.rng.random_bool(0.5) { Backing::Now } else { Backing::OnDemand }
    }

    fn discard(&mut self, start: u64, pages: std::ops::Range<usize>) {
        for page in &mut self.pages[pages.clone()] {
            assert!(!page.is_busy, "a discard of a page whose operation has not ended");
            page.is_held = true;
        }
        let (at, bytes) = (start + pages.start as u64 * PAGE_BYTES, pages.len() as u64 * PAGE_BYTES);
        self.submit(CONTROL, Kind::Discard, at, bytes, &[], Purpose::Discard(pages));
    }

    /// Writes or reads a page, if nothing of it is under way.
    fn use_page(&mut self) {
        let Some(start) = self.range.filter(|_| !self.is_freeing) else { return };
        let number = self.rng.random_range(0..PAGES);
        let page = self.pages[number];
        if page.is_busy || page.is_held {
            return;
        }
        let at = start + number as u64 * PAGE_BYTES;
        if self.rng.random_bool(0.5) {
            let purpose = Purpose::Read { page: number };
            self.pages[number].is_busy = true;
            return self.submit(DATA, Kind::Read, at, 8, &[], purpose);
        }
        let value = self.rng.random_range(0..VALUES);
        if page.on_node == value {
            self.counts.add(OrderCount::Clean, 1);
            return;
        }
        self.pages[number].is_busy = true;
        self.submit(DATA, Kind::Write, at, 8, &[], Purpose::Write { page: number, value });
    }

    fn submit(&mut self, lane: usize, kind: Kind, address: u64, length: u64, body: &[u8], purpose: Purpose) {
        let now = self.events.now();
        let data = match purpose {
            Purpose::Write { value, .. } => value.to_le_bytes().to_vec(),
            _ => Vec::new(),
        };
        self.purposes.push(purpose);
        self.data.push(data);
        let deadline = match kind {
            Kind::Discard | Kind::Free if !self.is_calm => now + self.rng.random_range(200..2_000) * MICROSECOND,
            _ => Nanos::MAX,
        };
        let (pid, capability, token) = (self.pid, self.capability, self.purposes.len() as u64);
        let operation = Operation { kind, pid, capability, address, length, body, deadline, token };
        let taken = self.lanes[lane].submit(&operation, now);
        if lane == CONTROL {
            self.is_controlling = taken.is_ok();
        } else {
            taken.expect("there are fewer pages than operations");
        }
    }

    /// Lets a lane do all that it can.
    fn pump(&mut self, lane: usize) -> Result<(), String> {
        let now = self.events.now();
        self.lanes[lane].advance(now);
        self.take_completions(lane)?;
        while let Some(Transmit { header, token, payload }) = self.lanes[lane].transmit(now) {
            let payload = match payload {
                Payload::None => Vec::new(),
                Payload::Inline(bytes) => bytes.to_vec(),
                Payload::Caller { offset, length } => {
                    self.data[token as usize - 1][offset as usize..][..length].to_vec()
                }
            };
            let bytes = [&header.seal(&payload)[..], &payload].concat();
            self.send(bytes, |bytes| Event::ToNode { lane, bytes });
        }
        self.take_completions(lane)?;
        if let Some(due) = self.lanes[lane].timeout().map(|due| due.max(now + 1))
            && (due < self.timers[lane] || self.timers[lane] <= now)
        {
            self.timers[lane] = due;
            self.events.at(due, Event::Timer { lane });
        }
        Ok(())
    }

    /// Sends a datagram, which may be lost, sent twice, or late.
    fn send(&mut self, bytes: Vec<u8>, event: impl Fn(Vec<u8>) -> Event) {
        let trouble = if self.is_calm { 0.0 } else { self.trouble };
        for copy in 0..2 {
            if (copy == 0 && self.rng.random_bool(trouble)) || (copy == 1 && !self.rng.random_bool(trouble)) {
                continue;
            }
            let late = if self.rng.random_bool(trouble) { self.rng.random_range(1..6) * MILLISECOND } else { 0 };
            let delay = self.rng.random_range(1..40) * MICROSECOND + late;
            self.events.after(delay, event(bytes.clone()));
        }
    }

    fn answered(&mut self, arrived: Arrived, lane: usize) {
        if let Arrived::Answered { answer, .. } | Arrived::Corrupt(answer) = arrived {
            self.send(answer, |bytes| Event::ToLane { lane, bytes });
        }
    }

    fn receive(&mut self, lane: usize, bytes: &[u8]) -> Result<(), String> {
        let message = split(bytes).ok().flatten().expect("the network damages nothing here");
        match self.lanes[lane].receive(&message, self.events.now()) {
            Received::Data { token, .. } => self.data[token as usize - 1] = message.payload.to_vec(),
            Received::Answer { .. } => {
                self.answer = Some((message.header.pid, message.header.capability, message.header.address));
            }
            Received::Nothing => {}
        }
        self.pump(lane)
    }

    fn take_completions(&mut self, lane: usize) -> Result<(), String> {
        while let Some(completion) = self.lanes[lane].completion() {
            let purpose = self.purposes[completion.token as usize - 1].clone();
            if lane == CONTROL {
                self.is_controlling = false;
            }
            self.ended(purpose, completion.outcome, completion.token)?;
        }
        Ok(())
    }

    fn ended(&mut self, purpose: Purpose, outcome: Outcome, token: u64) -> Result<(), String> {
        match (purpose, outcome) {
            (Purpose::Create, Outcome::Done) => {
                (self.pid, self.capability, _) = self.answer.take().expect("it was answered");
            }
            (Purpose::Allocate, Outcome::Done) => {
                let (.., address) = self.answer.take().expect("it was answered");
                (self.range, self.pages) = (Some(address), [Page::default(); PAGES]);
            }
            (Purpose::Allocate, Outcome::Refused(_)) => {}
            (Purpose::Discard(pages), Outcome::Done) => {
                self.counts.add(OrderCount::Confirmed, 1);
                pages.for_each(|page| self.let_go(page, 0));
            }
            (Purpose::Discard(pages), Outcome::TimedOut) => {
                self.counts.add(OrderCount::GivenUp, 1);
                self.discard_was_given_up(pages);
            }
            (Purpose::Free, Outcome::Done) => {
                self.counts.add(OrderCount::Confirmed, 1);
                (self.range, self.is_freeing) = (None, false);
            }
            // An earlier attempt was executed.
            (Purpose::Free, Outcome::Refused(ErrorCode::BadAddress)) => (self.range, self.is_freeing) = (None, false),
            (Purpose::Free, Outcome::TimedOut) => {
                self.counts.add(OrderCount::GivenUp, 1);
                // The range is nobody's: it is asked for again.
                self.is_freeing = self.sabotage != Some(Sabotage::FreedRangeUsed);
            }
            (Purpose::Write { page, value }, Outcome::Done) => {
                self.counts.add(OrderCount::Writes, 1);
                self.pages[page].is_busy = false;
                self.pages[page].on_node = value;
            }
            (Purpose::Read { page }, Outcome::Done) => self.compare(page, token)?,
            (purpose, outcome) => return Err(format!("{purpose:?} ended {outcome:?}")),
        }
        Ok(())
    }

    /// The node is known to have `on_node` of a page that a discard has held.
    fn let_go(&mut self, page: usize, on_node: u64) {
        let page = &mut self.pages[page];
        (page.is_held, page.on_node) = (false, on_node);
    }

    /// The end of a discard is not known: its pages stay held, unless something is broken.
    fn discard_was_given_up(&mut self, pages: std::ops::Range<usize>) {
        match self.sabotage {
            Some(Sabotage::GivenOutEarly) => {
                // Written at once, whatever the node still does: with something that it certainly has not.
                pages.for_each(|page| self.let_go(page, VALUES));
            }
            Some(Sabotage::ForgottenDigest) => pages.for_each(|page| self.let_go(page, 0)),
            Some(Sabotage::CleanWhileHeld) => pages.for_each(|page| self.pages[page].is_held = false),
            Some(Sabotage::ForgetfulLane) => {
                // The lane forgets what was given up, so the next attempt does not wait for it.
                self.lanes[CONTROL] = new_lane(&mut self.rng);
            }
            _ => {}
        }
    }

    fn compare(&mut self, number: usize, token: u64) -> Result<(), String> {
        self.counts.add(OrderCount::Reads, 1);
        let page = &mut self.pages[number];
        page.is_busy = false;
        let read = u64::from_le_bytes(self.data[token as usize - 1][..8].try_into().expect("8 bytes were read"));
        // The pager reads from the node only what it knows the node to have.
        if read != page.on_node && page.on_node < VALUES {
            return Err(format!("page {number} was read as {read}, what was acknowledged is {}", page.on_node));
        }
        Ok(())
    }

    fn is_quiescent(&self) -> bool {
        let is_quiet = |page: &Page| !page.is_busy && !page.is_held;
        self.pages.iter().all(is_quiet)
            && !self.is_freeing
            && !self.is_controlling
            && self.lanes.iter().all(Client::idle)
    }

    /// Reads everything, of a node that has nothing left to do.
    fn review(mut self) -> Result<Counts<OrderCount>, String> {
        let mut left: BTreeSet<usize> = (0..PAGES).collect();
        let Some(start) = self.range else { return Ok(self.counts) };
        while let Some(page) = left.pop_first() {
            let at = start + page as u64 * PAGE_BYTES;
            self.pages[page].is_busy = true;
            self.submit(DATA, Kind::Read, at, 8, &[], Purpose::Read { page });
            self.pump(DATA)?;
            while self.pages[page].is_busy {
                let event = self.events.advance().ok_or("nothing happens any more")?;
                if !matches!(event, Event::Act) {
                    self.happen(event)?;
                }
            }
        }
        Ok(self.counts)
    }
}

fn new_lane(rng: &mut SmallRng) -> Client {
    let config = Config::new(Transport::Datagram, rng.random_range(1..1 << 63));
    let timeouts = (50 * MICROSECOND, MILLISECOND);
    Client::new(Config {
        operations_max: 64,
        fragments_max: 64,
        timeout_min: timeouts.0,
        timeout_max: timeouts.1,
        ..config
    })
}
