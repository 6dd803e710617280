//! [`World`]: nodes, lanes and the network between them, and the loop that lets events happen one after the other.
//!
//! A run has phases. In the *storm* everything goes wrong that the settings allow. In the *calm* nothing does, and
//! every operation must end. In the *review* all that is left is read. When it is *over*, everything is given back, and
//! nothing may be missing.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use xxhash_rust::xxh3::xxh3_64_with_seed;
use yonder_session::Wrap;
use yonder_units::Nanos;
use yonder_wire::{Header, Kind, split};

use crate::attacker::{Attacker, Tape};
use crate::counts::Count;
use crate::faults::{Fault, Machine};
use crate::history::{History, Life};
use crate::homes::Home;
use crate::lane::{Lane, summary};
use crate::locks::LockTruth;
use crate::network::Network;
use crate::node::{Arrived, Node, Sender};
use crate::oracle::Verdict;
use crate::sabotage::Sabotage;
use crate::seals::Seals;
use crate::sessions::Line;
use crate::settings::{Guard, MICROSECOND, MILLISECOND, Settings};
use crate::workload::{Purpose, Region};
use yonder_simulation::{Clock, Counts, EventQueue, Trace};

/// Longest storm.
const STORM_MAX: Nanos = 60 * MILLISECOND;
/// Longest time from the end of the storm until everything has ended.
const CALM_MAX: Nanos = 60_000 * MILLISECOND;
/// Most events of a run.
const EVENTS_MAX: u64 = 1_000_000;
/// Datagrams that wait for a machine that has stopped; more are lost.
const HELD_MAX: usize = 64;

/// Something that happens.
#[derive(Debug)]
pub(crate) enum Event {
    /// Bytes arrive at a node.
    ToNode {
        /// Where.
        node: usize,
        /// Which data thread gets them.
        thread: usize,
        /// What.
        bytes: Vec<u8>,
        /// From whom.
        from: Sender,
    },
    /// Bytes arrive at a lane.
    ToLane {
        /// Where, and on which connection.
        to: Sender,
        /// What.
        bytes: Vec<u8>,
    },
    /// A lane has planned to do something.
    Wake {
        /// Which.
        lane: usize,
    },
    /// The slow path of a node can take the next request.
    Slow(Life),
    /// The ring of ready pages of a node is looked after.
    Refill(Life),
    /// A node looks at its leases.
    Leases(usize),
    /// Something goes wrong.
    Fault(Fault),
    /// A machine goes on.
    Continue(Machine),
    /// The clock of a machine goes on, if it stands still.
    ClockGoesOn(Machine),
    /// Two machines reach each other again.
    Mend {
        /// This one.
        process: usize,
        /// And this.
        node: usize,
    },
    /// A stream is opened again.
    Reconnect {
        /// Of which lane.
        lane: usize,
    },
    /// A process looks after its sessions.
    RenewSessions(usize),
}

/// Where a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Anything goes wrong.
    Storm,
    /// Nothing goes wrong, and nothing is begun.
    Calm,
    /// Everything is read.
    Review,
}

/// Everything there is.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) trace: Trace,
    pub(crate) rng: SmallRng,
    pub(crate) events: EventQueue<Event>,
    pub(crate) network: Network,
    pub(crate) nodes: Vec<Node>,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) history: History,
    pub(crate) purposes: Vec<Purpose>,
    pub(crate) homes: Vec<Home>,
    pub(crate) regions: Vec<Region>,
    /// Parts of regions that a lane is to read in the review.
    pub(crate) reviews: Vec<Vec<(usize, u64)>>,
    pub(crate) locks: BTreeMap<(usize, u64), LockTruth>,
    pub(crate) attacker: Attacker,
    /// Draws what has to do with sessions and cookies, so that runs without them are as if there were none.
    pub(crate) guard_rng: SmallRng,
    /// The sessions of each process with each node.
    pub(crate) lines: Vec<Option<Line>>,
    pub(crate) seals: Seals,
    pub(crate) tape: Tape,
    /// Capabilities that are void, and of which life and address space they were.
    pub(crate) spent: Vec<(Life, u32, u128)>,
    /// Those that will be, by the operations that are to end their address spaces.
    pub(crate) spent_at_the_end: BTreeMap<u64, Vec<(Life, u32, u128)>>,
    pub(crate) paused: Vec<Machine>,
    /// Whose clock has leapt ahead, and by how much.
    pub(crate) leaps: Vec<(Machine, Nanos)>,
    /// What waits for machines that have stopped.
    pub(crate) held: Vec<(Machine, Event)>,
    /// For each process, whether its clock is of the kind that no lease can be kept by.
    pub(crate) has_wrong_clock: Vec<bool>,
    /// For each lane, since when bytes of each of its old connections are lost.
    pub(crate) lost_from: Vec<Vec<Nanos>>,
    pub(crate) phase: Phase,
    pub(crate) counts: Counts<Count>,
    pub(crate) slow_is_planned: Vec<bool>,
    pub(crate) refill_is_planned: Vec<bool>,
    phase_end: Nanos,
    /// The clock of the process whose lanes are being made.
    pub(crate) last_clock: Clock,
    digest: u64,
}

impl World {
    /// What `seed` makes, with something broken in it perhaps.
    #[must_use]
    pub(crate) fn new(seed: u64, sabotage: Option<Sabotage>, trace: Trace) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut guard_rng = SmallRng::seed_from_u64(!seed);
        let settings = Settings::draw(&mut rng);
        let guard = Guard::draw(seed, settings.slow_time, &mut guard_rng);
        let settings = Settings { guard, ..settings };
        trace.say(0, || format!("{settings:#?}"));
        let lanes = settings.processes * settings.nodes * settings.lanes;
        let mut world = Self {
            network: Network::new(settings.weather.clone()),
            history: History::new(lanes, settings.dependency_page_bytes),
            homes: vec![Home::default(); settings.processes * settings.nodes],
            reviews: vec![Vec::new(); lanes],
            has_wrong_clock: vec![false; settings.processes],
            lost_from: vec![Vec::new(); lanes],
            slow_is_planned: vec![false; settings.nodes],
            refill_is_planned: vec![false; settings.nodes],
            settings,
            sabotage,
            trace,
            rng,
            events: EventQueue::new(),
            nodes: Vec::new(),
            lanes: Vec::new(),
            purposes: Vec::new(),
            regions: Vec::new(),
            locks: BTreeMap::new(),
            attacker: Attacker::default(),
            guard_rng,
            lines: Vec::new(),
            seals: Seals::default(),
            tape: Tape::default(),
            spent: Vec::new(),
            spent_at_the_end: BTreeMap::new(),
            paused: Vec::new(),
            leaps: Vec::new(),
            held: Vec::new(),
            phase: Phase::Storm,
            counts: Counts::default(),
            phase_end: STORM_MAX,
            last_clock: Clock::new(0, 0),
            digest: 0,
        };
        world.nodes = (0..world.settings.nodes).map(|node| world.new_node(node, 0)).collect();
        world.lanes = (0..lanes).map(|index| world.new_lane(index)).collect();
        world.lines.resize_with(world.homes.len(), || None);
        world
    }

    /// Lets everything happen. Returns how often what happened, and a number that two equal runs have in common.
    pub(crate) fn run(mut self) -> Result<(Counts<Count>, u64), String> {
        for lane in 0..self.lanes.len() {
            let delay = self.rng.random_range(0..MILLISECOND / 10);
            self.events.after(delay, Event::Wake { lane });
        }
        (0..self.nodes.len()).for_each(|node| self.events.after(0, Event::Leases(node)));
        self.begin_sessions()?;
        self.plan_faults();
        while let Some(event) = self.events.advance() {
            if self.counts.add(Count::Events, 1) > EVENTS_MAX {
                return Err(format!("there is no end to it: {}", self.unfinished()));
            }
            self.happen(event)?;
            if self.next_phase()? {
                return self.finish();
            }
        }
        Err(format!("nothing happens any more: {}", self.unfinished()))
    }

    /// Goes on to the next phase if it is time to. Returns whether that was the last one.
    fn next_phase(&mut self) -> Result<bool, String> {
        let now = self.events.now();
        let is_late = now >= self.phase_end;
        match self.phase {
            Phase::Storm if is_late || self.lanes.iter().all(|lane| lane.budget == 0) => {
                self.trace.say(now, || "the storm is over".to_owned());
                self.calm_down();
                self.phase_end = now + CALM_MAX;
                self.wake_all();
            }
            Phase::Calm if self.lanes.iter().all(Lane::is_idle) && self.history.open() == 0 => {
                self.trace.say(now, || "everything has ended".to_owned());
                self.phase = Phase::Review;
                self.plan_review();
                self.wake_all();
            }
            Phase::Review if self.lanes.iter().all(Lane::is_idle) && self.reviews.iter().all(Vec::is_empty) => {
                return Ok(true);
            }
            Phase::Calm | Phase::Review if is_late => {
                return Err(format!("something does not end: {}", self.unfinished()));
            }
            _ => {}
        }
        Ok(false)
    }

    fn wake_all(&mut self) {
        for lane in 0..self.lanes.len() {
            self.lanes[lane].idle_until = 0;
            self.events.after(0, Event::Wake { lane });
        }
    }

    /// What has not ended, in words.
    fn unfinished(&self) -> String {
        let open = |(index, lane): (usize, &Lane)| {
            (!lane.is_idle())
                .then(|| format!("lane {index} with operations {:?}", lane.open.keys().collect::<Vec<_>>()))
        };
        let lanes: Vec<String> = self.lanes.iter().enumerate().filter_map(open).collect();
        format!("{} operations are open: {}", self.history.open(), lanes.join(", "))
    }

    fn finish(mut self) -> Result<(Counts<Count>, u64), String> {
        self.history.words.check()?;
        self.counts.add(Count::Words, self.history.words.count() as u64);
        let now = self.events.now();
        for node in &mut self.nodes {
            node.finish_work(now)?;
            node.expire_leases(now, self.settings.lease);
            node.end_liar();
            node.finish_work(now)?;
            // One after the other, so that none is too old by what is forgotten of those before; and twice, because the
            // first one also has remembered what was given up before its time, all of it now.
            let spaces = node.spaces();
            for (number, (pid, capability)) in (1..).zip(spaces.iter().chain(&spaces).copied()) {
                let at = now + number * MICROSECOND;
                let mut header = Header::request(Kind::DestroySpace, u64::MAX - number, 0, 0);
                (header.pid, header.capability, header.time) = (pid, capability, node.time(at));
                node.arrive(at, 0, &header.seal(&[]), None)?;
                node.finish_work(at)?;
            }
            node.check_empty()?;
        }
        Ok((self.counts, self.digest))
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        let holder = match &event {
            Event::ToNode { node, .. } | Event::Leases(node) => Machine::Node(*node),
            Event::Slow(life) | Event::Refill(life) => Machine::Node(life.node),
            Event::ToLane { to: Sender { lane, .. }, .. } | Event::Wake { lane } | Event::Reconnect { lane } => {
                Machine::Process(self.lanes[*lane].process)
            }
            Event::RenewSessions(process) => Machine::Process(*process),
            _ => return self.happen_now(event),
        };
        if !self.paused.contains(&holder) {
            return self.happen_now(event);
        }
        let datagrams =
            self.held.iter().filter(|(_, held)| matches!(held, Event::ToNode { .. } | Event::ToLane { .. }));
        let is_lost = match &event {
            Event::ToNode { from, .. } => self.lanes[from.lane].stream.is_none() && datagrams.count() >= HELD_MAX,
            Event::ToLane { to, .. } => self.lanes[to.lane].stream.is_none() && datagrams.count() >= HELD_MAX,
            _ => false,
        };
        if !is_lost {
            self.held.push((holder, event));
        }
        Ok(())
    }

    fn happen_now(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::ToNode { node, thread, bytes, from } => {
                let is_lost = self.lost_from[from.lane].get(from.connection as usize);
                if is_lost.is_some_and(|from| *from <= self.events.now()) {
                    return Ok(());
                }
                if self.settings.sessions().is_none() {
                    self.attacker.overhear(&bytes);
                }
                self.node_hears(node, thread, bytes, Some(from), self.address_of(from.lane))
            }
            Event::ToLane { to, bytes } => {
                self.digest = xxh3_64_with_seed(&bytes, self.digest ^ self.events.now());
                let stream = self.lanes[to.lane].stream;
                if stream.is_some_and(|stream| stream.connection != to.connection) {
                    return Ok(());
                }
                self.lane_receives(to.lane, &bytes)
            }
            Event::Wake { lane } => self.wake(lane),
            Event::Slow(life) => self.slow_step(life),
            Event::Refill(life) => {
                if self.nodes[life.node].life() == life {
                    self.refill_is_planned[life.node] = false;
                    self.nodes[life.node].refill();
                }
                Ok(())
            }
            Event::Leases(node) => self.look_at_leases(node),
            Event::Fault(fault) => self.strike(fault),
            Event::ClockGoesOn(machine) => {
                self.clock_goes_on(machine);
                Ok(())
            }
            Event::Continue(machine) => {
                self.resume(machine);
                Ok(())
            }
            Event::Mend { process, node } => {
                self.network.mend(process, node);
                Ok(())
            }
            Event::Reconnect { lane } => self.reconnect(lane),
            Event::RenewSessions(process) => self.renew_sessions(process),
        }
    }

    /// Bytes arrive at a node.
    pub(crate) fn node_receives(
        &mut self,
        node: usize,
        thread: usize,
        bytes: Vec<u8>,
        from: Option<Sender>,
    ) -> Result<(), String> {
        let arrived = self.nodes[node].arrive(self.events.now(), thread, &bytes, from)?;
        if let (Arrived::Answered { request, verdict: Verdict::Refused(_), .. }, Some(from)) = (&arrived, from) {
            self.copy_for_later(request, thread, &bytes, from);
        }
        let payload = if bytes.len() > yonder_wire::HEADER_BYTES { &bytes[yonder_wire::HEADER_BYTES..] } else { &[] };
        self.answered(node, thread, arrived, payload, from)?;
        let life = self.nodes[node].life();
        self.plan_slow(node);
        if self.nodes[node].wants_pages() && !self.refill_is_planned[node] {
            self.refill_is_planned[node] = true;
            self.events.after(self.settings.refill_period, Event::Refill(life));
        }
        Ok(())
    }

    /// Of a datagram that claims a time to come, the network may have a copy that arrives soon after that time: the
    /// worst that it can do to a request whose client has corrected itself.
    fn copy_for_later(&mut self, request: &Header, thread: usize, bytes: &[u8], from: Sender) {
        let (now, node) = (self.events.now(), self.lanes[from.lane].node);
        let is_early = request.kind.is_exactly_once() && request.time > self.nodes[node].time(now);
        let is_copied = self.lanes[from.lane].stream.is_none() && from.wrap == Wrap::Plain;
        if is_early && is_copied && self.rng.random_bool(0.5) {
            let delay = self.rng.random_range(0..MILLISECOND);
            let at = self.nodes[node].clock.when(request.time).saturating_add(delay);
            self.events.at(at, Event::ToNode { node, thread, bytes: bytes.to_vec(), from });
        }
    }

    /// Plans a turn of a node's slow path, if there is something for it to do and none is planned.
    pub(crate) fn plan_slow(&mut self, node: usize) {
        if self.nodes[node].has_slow_work() && !self.slow_is_planned[node] {
            self.slow_is_planned[node] = true;
            let delay = self.rng.random_range(0..=self.settings.slow_time);
            self.events.after(delay, Event::Slow(self.nodes[node].life()));
        }
    }

    fn slow_step(&mut self, life: Life) -> Result<(), String> {
        if self.nodes[life.node].life() != life {
            return Ok(());
        }
        self.slow_is_planned[life.node] = false;
        if let Some((arrived, from)) = self.nodes[life.node].slow_step(self.events.now())? {
            let thread = match &arrived {
                Arrived::Answered { request, .. } => self.nodes[life.node].slow_thread(request),
                _ => 0,
            };
            self.answered(life.node, thread, arrived, &[], from)?;
        }
        for request in self.nodes[life.node].take_over() {
            self.trace
                .say(self.events.now(), || format!("node {}: the last piece of {}", life.node, summary(&request)));
            self.history.judged(life, &request, [&[], &[]], Verdict::Executed(0))?;
            self.counts.add(Count::InPieces, 1);
        }
        self.plan_slow(life.node);
        Ok(())
    }

    /// Tells the history what a node has made of a request, and sends the answer, which a thread has given.
    fn answered(
        &mut self,
        node: usize,
        thread: usize,
        arrived: Arrived,
        payload: &[u8],
        from: Option<Sender>,
    ) -> Result<(), String> {
        let answer = match arrived {
            Arrived::Answered { request, verdict, answer } => {
                self.trace.say(self.events.now(), || format!("node {node}: {verdict:?}: {}", summary(&request)));
                self.counts.add(Count::Repeated, u64::from(verdict == Verdict::Repeated));
                self.counts.add(Count::Aborts, u64::from(request.kind == Kind::Abort));
                let answered = split(&answer).ok().flatten().map_or(&[][..], |message| message.payload);
                self.history.judged(self.nodes[node].life(), &request, [payload, answered], verdict)?;
                answer
            }
            Arrived::Corrupt(answer) => answer,
            Arrived::Queued | Arrived::Dropped => return Ok(()),
        };
        let Some(to) = from else { return Ok(()) };
        // What goes over a connection is sealed by the thread that has it.
        let is_stream = self.lanes[to.lane].stream.is_some();
        let answer = self.close(node, if is_stream { self.lanes[to.lane].thread } else { thread }, to, answer)?;
        self.send_to_lane(to, answer);
        Ok(())
    }
}
