//! [`World`]: the nodes, the network and the program of a run, and the order of time.

mod faults;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use yonder_protect::{Group, Place, Protection, Word};

use super::controller::{Controller, Found, Location};
use super::node::{Answer, Node, Request};
use super::owner::{Owner, Page};
use super::pair::Pair;
use super::runs::Role;
use super::supervisor::Supervisor;
use super::{Breach, Broken, Count, Counts, MS, NODES_MAX, PAGES, Sabotage, US};

/// How long the program works, and faults happen.
const WORKING: u64 = 2_500 * MS;
/// When regions of nodes that came back without them are said to be lost.
const WRITING_OFF: u64 = 10_000 * MS;
/// By when all is mended.
const DEADLINE: u64 = 20_000 * MS;
/// Nodes, where a group does not have more places: at most.
const NODES_FEW: usize = 6;

/// What may happen in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Weather {
    /// No node fails. The program stands still now and then, and nodes are slow.
    Calm,
    /// The same, and nothing is lost: each page is at all its places, whatever is evacuated.
    Placid,
    /// One fault at a time, the next when all is mended: no page is lost.
    Fair,
    /// Anything.
    Wild,
    /// Regions move all the time, and the ways to nodes stand still.
    Restless,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Deliver(Request),
    Arrive(Answer),
    Poll(usize),
    Supervise,
    Allocate(usize),
    Allocated(usize, Option<(u32, u64)>),
    /// The supervisor hears where a place is.
    Sought(Place, Found),
    /// The move of a region ends.
    Moved(u64),
    Fault,
    Restart(usize),
    Remember(usize),
    Close,
}

/// How a node's link is.
#[derive(Clone, Copy, Default)]
struct Link {
    /// What arrives before waits until then.
    stalled_until: u64,
    /// What arrives before is lost.
    cut_until: u64,
    slow_until: u64,
}

/// Copies, or shares.
fn protection(seed: u64, rng: &mut SmallRng) -> Protection {
    let usual = match rng.random_range(0..8) {
        0 => Protection::code(2, 1),
        1 => Protection::code(2, 2),
        2 => Protection::code(4, 1),
        3 => Protection::code(3, 2),
        _ => Protection::copies(rng.random_range(1..=3)),
    };
    // With all slots in use a place is replaced when its own is free again.
    match seed % 16 {
        7 => Protection::code(6, 2),
        15 => Protection::code(7, 1),
        _ => usual,
    }
}

/// How a run is to be, and how often regions move.
fn weather(breach: Option<Breach>, rng: &mut SmallRng) -> (Weather, f64) {
    let moving = if rng.random_bool(0.6) { rng.random_range(0.0..0.12) } else { 0.0 };
    let weather = match rng.random_range(0..14) {
        0 => Weather::Calm,
        10 => Weather::Placid,
        1..=5 => Weather::Fair,
        11.. => Weather::Restless,
        _ => Weather::Wild,
    };
    let weather = match breach {
        // What it needs is rare elsewhere.
        Some(Breach::World(Sabotage::SettledByWord | Sabotage::NothingIsTooOld)) => Weather::Restless,
        _ => weather,
    };
    let moving = match weather {
        Weather::Restless => rng.random_range(0.2..0.6),
        // A write that follows its place for too long is given up, and counts as written.
        Weather::Placid => moving / 10.0,
        _ => moving,
    };
    (weather, moving)
}

pub(super) struct World {
    seed: u64,
    weather: Weather,
    wanted: u8,
    loss: f64,
    repetition: f64,
    nodes: Vec<Node>,
    links: Vec<Link>,
    owner: Owner,
    pairs: Vec<Pair>,
    polls: Vec<u64>,
    supervisor: Supervisor,
    controller: Controller,
    /// How often regions move, and which has done so last.
    moving: f64,
    last_moved: Option<u64>,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    pending: std::collections::HashMap<u64, Event>,
    sequence: u64,
    program_stopped_until: u64,
    has_node_failed: bool,
    /// All pages were at all places once.
    was_whole: bool,
    regions: u64,
    is_closing: bool,
    has_read_back: bool,
}

impl World {
    pub(super) fn new(seed: u64, breach: Option<Breach>) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let protection = protection(seed, &mut rng);
        let wanted = protection.wanted();
        let nodes_max = if usize::from(wanted) > NODES_FEW { NODES_MAX } else { NODES_FEW };
        let (weather, moving) = weather(breach, &mut rng);
        // There is one more than there are places, where a region is to move.
        let nodes_min = usize::from(wanted) + usize::from(moving > 0.0);
        let nodes = rng.random_range(nodes_min.max(3)..=nodes_max.max(nodes_min));
        let (rule, sabotage) = match breach {
            Some(Breach::Rule(rule)) => (Some(rule), None),
            Some(Breach::World(sabotage)) => (None, Some(sabotage)),
            None => (None, None),
        };
        let (loss, repetition) = (rng.random_range(0.0..0.05), rng.random_range(0.0..0.05));
        let (loss, repetition) = if weather == Weather::Placid { (0.0, repetition) } else { (loss, repetition) };
        let workers = rng.random_range(1..=3);
        let has_other_groups = rng.random_bool(0.5);
        let owner = Owner::new(rng, Group::with_rules(PAGES, protection, Broken(rule)), sabotage);
        let roles = (0..workers).map(|_| Role::Worker).chain([Role::Mender]);
        let pairs: Vec<Pair> = roles.enumerate().map(|(number, role)| Pair::new(number, role)).collect();
        let mut world = Self {
            seed,
            weather,
            wanted,
            loss,
            repetition,
            nodes: (0..nodes).map(|_| Node::default()).collect(),
            links: vec![Link::default(); nodes],
            owner,
            polls: vec![0; pairs.len()],
            pairs,
            supervisor: Supervisor::new(has_other_groups),
            controller: Controller::default(),
            moving,
            last_moved: None,
            events: BinaryHeap::new(),
            pending: Default::default(),
            sequence: 0,
            program_stopped_until: 0,
            has_node_failed: false,
            was_whole: false,
            regions: 0,
            is_closing: false,
            has_read_back: false,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for pair in 0..self.pairs.len() {
            self.poll_at(pair, 5 * MS);
        }
        self.schedule(MS, Event::Supervise);
        self.schedule(100 * MS, Event::Fault);
        self.schedule(WORKING, Event::Close);
        for node in 0..self.nodes.len() {
            self.schedule(100 * MS, Event::Remember(node));
        }
    }

    /// Runs until all is mended and was read.
    pub(super) fn run(mut self) -> Result<Counts, String> {
        while let Some(Reverse((time, sequence))) = self.events.pop() {
            let event = self.pending.remove(&sequence).expect("each event comes once");
            self.owner.now = time;
            self.handle(event);
            if self.is_closing && self.is_over() {
                if self.has_read_back {
                    return Ok(self.owner.counts);
                }
                self.read_back();
            }
            if time > DEADLINE {
                let (view, degraded) = (self.owner.group.view(), self.owner.group.pages_degraded());
                let words: Vec<_> = (0..PAGES).map(|page| self.owner.group.look(page)).collect();
                let (wanted, pages) = (self.wanted, &self.owner.pages);
                let idle: Vec<_> = self.pairs.iter().map(Pair::is_idle).collect();
                return Err(format!(
                    "not mended: {degraded} of {wanted}, live {:?} retiring {:?} leaving {:?} up {:?} {words:?} {pages:?} \
                     {idle:?}",
                    view.live(),
                    view.retiring(),
                    view.leaving(),
                    self.owner.up()
                ));
            }
        }
        Err(format!("seed {}: nothing is left to happen", self.seed))
    }

    fn handle(&mut self, event: Event) {
        let now = self.owner.now;
        match event {
            Event::Deliver(request) => self.deliver(request),
            Event::Arrive(answer) => {
                self.pairs[answer.pair].inbox.push(answer);
                self.poll_at(answer.pair, now + 2 * US);
            }
            Event::Poll(pair) if self.polls[pair] == now => self.poll(pair),
            Event::Poll(_) => {}
            Event::Supervise => self.supervise(),
            Event::Allocate(node) => self.allocate(node),
            Event::Allocated(node, region) => self.supervisor.was_allocated(&mut self.owner, node, region),
            Event::Sought(place, found) => self.supervisor.was_sought(&mut self.owner, place, found),
            Event::Moved(region) => {
                if self.controller.end(region, &mut self.nodes, self.owner.sabotage) {
                    self.owner.count(Count::RegionMoved);
                }
            }
            Event::Fault => self.fault(),
            Event::Restart(node) if self.may_stay_away(node) && self.owner.chance(0.3) => {
                self.nodes[node].is_gone = true;
            }
            Event::Restart(node) => {
                let has_old = self.owner.chance(0.5);
                self.nodes[node].restart(has_old);
                self.links[node].cut_until = self.links[node].cut_until.max(now);
            }
            Event::Remember(node) => {
                self.nodes[node].remember();
                self.schedule(now + 300 * MS, Event::Remember(node));
            }
            Event::Close => self.close(),
        }
    }

    /// Whether there are enough other nodes, and none of the group's regions is at this one.
    fn may_stay_away(&self, node: usize) -> bool {
        let regions = self.supervisor.places(&self.owner).map(|place| place.region);
        let others = self.nodes.iter().filter(|node| !node.is_down).count();
        others > usize::from(self.wanted) && !self.controller.uses(node, regions)
    }

    fn schedule(&mut self, time: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time.max(self.owner.now), self.sequence)));
        self.pending.insert(self.sequence, event);
    }

    fn poll_at(&mut self, pair: usize, time: u64) {
        let time = time.max(self.program_stopped_until);
        let planned = self.polls[pair];
        if planned <= self.owner.now || time < planned {
            self.polls[pair] = time;
            self.schedule(time, Event::Poll(pair));
        }
    }

    fn poll(&mut self, pair: usize) {
        let now = self.owner.now;
        if now < self.program_stopped_until {
            self.polls[pair] = 0;
            return self.poll_at(pair, self.program_stopped_until);
        }
        let mut polled = std::mem::replace(&mut self.pairs[pair], Pair::new(pair, Role::Worker));
        polled.poll(&mut self.owner);
        let next = polled.next_poll(now);
        self.pairs[pair] = polled;
        self.polls[pair] = 0;
        self.poll_at(pair, next);
        self.send();
    }

    fn latency(&mut self, node: usize) -> u64 {
        let slow = if self.links[node].slow_until > self.owner.now { 40 } else { 1 };
        let usual = self.owner.rng.random_range(10..150) * US * slow;
        let late = if self.owner.chance(0.01) { self.owner.rng.random_range(0..20 * MS) } else { 0 };
        usual + late
    }

    fn send(&mut self) {
        for request in std::mem::take(&mut self.owner.outbox) {
            let copies = 1 + usize::from(self.owner.chance(self.repetition));
            for _ in 0..copies {
                if !self.owner.chance(self.loss) {
                    let latency = self.latency(request.node);
                    self.schedule(self.owner.now + latency, Event::Deliver(request));
                }
            }
        }
    }

    fn deliver(&mut self, request: Request) {
        let (now, link) = (self.owner.now, self.links[request.node]);
        if self.nodes[request.node].is_down || link.cut_until > now {
            return;
        }
        if link.stalled_until > now {
            let jitter = self.owner.rng.random_range(0..100 * US);
            return self.schedule(link.stalled_until + jitter, Event::Deliver(request));
        }
        let reply = self.nodes[request.node].execute(&request, self.owner.sabotage);
        if !self.owner.chance(self.loss) {
            let latency = self.latency(request.node);
            let answer = Answer { id: request.id, pair: request.pair, reply };
            self.schedule(now + latency, Event::Arrive(answer));
        }
    }

    fn supervise(&mut self) {
        let now = self.owner.now;
        if now < self.program_stopped_until {
            return self.schedule(self.program_stopped_until, Event::Supervise);
        }
        if !self.is_closing && self.owner.chance(0.01) {
            let (node, span) = (self.victim(), self.owner.rng.random_range(5 * MS..600 * MS));
            self.supervisor.leave(node, now + span);
        }
        // A write waits for a place that has moved until it is given up, and that counts as written.
        let may_be_away = self.weather != Weather::Placid || self.moving == 0.0;
        if may_be_away && !self.is_closing && !self.controller.is_away(now) && self.owner.chance(0.004) {
            self.controller.away_until = now + self.owner.rng.random_range(5 * MS..2_500 * MS);
            self.owner.count(Count::ControllerAway);
        }
        self.move_region();
        let (nodes, links, controller) = (&self.nodes, &self.links, &self.controller);
        let regions: Vec<u64> = self.supervisor.places(&self.owner).map(|place| place.region).collect();
        let is_offered = |node: usize| {
            !controller.is_away(now)
                && nodes.get(node).is_some_and(|node| !node.is_down)
                && links[node].stalled_until <= now
                && links[node].cut_until <= now
                && !controller.uses(node, regions.iter().copied())
        };
        for node in self.supervisor.look(&mut self.owner, is_offered, self.wanted) {
            self.schedule(now + MS, Event::Allocate(node));
        }
        for (place, region) in self.supervisor.seek(&mut self.owner) {
            let found = self.controller.find(region, &self.nodes, now);
            let slow = match self.weather {
                Weather::Placid => 0.0,
                Weather::Restless => 0.8,
                _ => 0.3,
            };
            let longest = if self.owner.chance(slow) { 400 * MS } else { 20 * MS };
            let latency = self.owner.rng.random_range(MS..longest);
            self.schedule(now + latency, Event::Sought(place, found));
        }
        self.was_whole |= self.supervisor.is_whole(&self.owner, self.wanted);
        self.check();
        let pause = if self.owner.group.wants_sweep() { MS } else { 5 * MS };
        self.schedule(now + pause, Event::Supervise);
    }

    fn check(&mut self) {
        let silent = std::mem::take(&mut self.owner.given_up_silent);
        let is_of_now = self.has_failed_lately() || silent.iter().all(|node| self.nodes[*node].is_gone);
        assert!(is_of_now, "a place is given up for a silence of long ago");
        let owner = &self.owner;
        if self.is_wild() {
            return;
        }
        for (number, _) in owner.pages.iter().enumerate().filter(|(_, page)| !page.is_busy && !page.is_dirty) {
            let word = owner.group.look(number);
            assert!(!word.is_written() || self.can_be_read(word), "page {number} is lost: {word:?}");
            let is_whole = !word.is_written() || word.current().count() >= self.wanted;
            let may_be_degraded = self.weather != Weather::Placid || !self.was_whole;
            assert!(is_whole || may_be_degraded, "page {number} is at too few places: {word:?}");
        }
        let given_up = owner.counts[Count::GivenUp as usize] + owner.counts[Count::Retired as usize];
        assert!(self.has_node_failed || given_up == 0, "a place is given up and no node has failed");
    }

    /// Whether more than one thing may fail at a time.
    fn is_wild(&self) -> bool {
        matches!(self.weather, Weather::Wild | Weather::Restless)
    }

    fn can_be_read(&self, word: Word) -> bool {
        word.current().count() >= self.owner.group.protection().needed()
    }

    fn allocate(&mut self, node: usize) {
        self.regions += 1;
        let region = (!self.nodes[node].is_down).then(|| {
            self.nodes[node].allocate(self.regions);
            let incarnation = self.nodes[node].incarnation;
            self.controller.note(self.regions, Location { node, incarnation });
            (incarnation, self.regions)
        });
        self.schedule(self.owner.now + MS, Event::Allocated(node, region));
    }

    /// No more faults and no more work; what was not acknowledged is written again.
    fn close(&mut self) {
        let now = self.owner.now;
        if !self.is_closing {
            self.is_closing = true;
            let workers = self.pairs.len() - 1;
            self.pairs[..workers].iter_mut().for_each(|pair| pair.is_working = false);
        }
        if now >= self.program_stopped_until {
            self.write_back();
        }
        if now >= WRITING_OFF {
            // A controller that knows a node for lost waits for it, and the program may never have asked there.
            self.supervisor.write_off(&self.owner, |region| self.controller.is_gone(region, &self.nodes));
        }
        self.schedule(now + 20 * MS, Event::Close);
    }

    fn write_back(&mut self) {
        for page in 0..PAGES {
            let Page { is_dirty, is_busy, .. } = self.owner.pages[page];
            let word = self.owner.group.look(page);
            // It is gone with all its nodes, and the program makes it anew.
            let is_lost = self.is_wild() && word.is_written() && !self.can_be_read(word);
            if !is_busy && (is_dirty || is_lost) {
                if is_lost && !is_dirty {
                    self.owner.count(Count::Lost);
                }
                self.pairs[0].write_back(&mut self.owner, page);
            }
        }
        self.send();
    }

    fn read_back(&mut self) {
        for page in 0..PAGES {
            self.pairs[0].read_back(&mut self.owner, page);
        }
        self.has_read_back = true;
        self.send();
    }

    fn is_over(&self) -> bool {
        let is_clean = self.owner.pages.iter().all(|page| !page.is_busy && !page.is_dirty);
        let is_settled = self.supervisor.is_settled(&self.owner, self.wanted);
        is_clean
            && is_settled
            && self.is_noticed()
            && self.supervisor.is_whole(&self.owner, self.wanted)
            && self.pairs.iter().all(Pair::is_idle)
    }
}
