//! What goes wrong besides the weather: pauses, cuts, broken streams, clocks, nodes that lose everything, and
//! attackers.
//!
//! Each kind of fault comes at random times with the mean that the settings say, until the storm is over.

use rand::Rng;
use rand::seq::IndexedRandom;
use yonder_client::Transport;
use yonder_simulation::Clock;
use yonder_units::Nanos;

use crate::counts::Count;
use crate::lane::Stream;
use crate::settings::{MICROSECOND, MILLISECOND};
use crate::workload::Region;
use crate::world::{Event, Phase, World};

/// Longest pause or cut.
const OUTAGE_MAX: Nanos = 3 * MILLISECOND;
/// Furthest that a clock leaps ahead: longer than a calm lasts, so that no run ends by waiting.
const LEAP_MAX: Nanos = 200_000 * MILLISECOND;
/// Furthest that it leaps ahead in all: what is given up under a time that is ten minutes ahead is given up later.
const LEAPS_MAX: Nanos = 500_000 * MILLISECOND;
/// A clock that is wrong drifts by at most this many millionths: far more than clients allow for.
const WRONG_DRIFT_PPM_MAX: i64 = 20_000;

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// A node or a process stops for a while.
    Pause,
    /// A process and a node cannot reach each other for a while.
    Cut,
    /// A stream breaks.
    Disconnect,
    /// A node loses everything.
    Restart,
    /// An attacker sends something.
    Attack,
    /// A range goes one step on its way to another node, or back.
    Movement,
    /// A clock stops, leaps ahead, or changes its pace.
    Clock,
    /// A process ends, and another one begins in its place.
    ProcessRestart,
    /// A tenant that claims several times for one request sends something.
    Lie,
}

impl Fault {
    /// Each kind, the share of seeds that have it, and the mean time between two.
    pub(crate) const ALL: [(Self, f64, Nanos); 9] = [
        (Self::Pause, 0.4, 5 * MILLISECOND),
        (Self::Cut, 0.4, 5 * MILLISECOND),
        (Self::Disconnect, 0.6, 3 * MILLISECOND),
        (Self::Restart, 0.25, 10 * MILLISECOND),
        (Self::Attack, 0.4, MILLISECOND / 4),
        (Self::Movement, 0.5, MILLISECOND / 4),
        (Self::Clock, 0.4, MILLISECOND),
        (Self::ProcessRestart, 0.25, 8 * MILLISECOND),
        (Self::Lie, 0.3, MILLISECOND / 8),
    ];
}

/// Who stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Machine {
    /// This node.
    Node(usize),
    /// This process.
    Process(usize),
}

impl World {
    /// Plans the first fault of each kind.
    pub(crate) fn plan_faults(&mut self) {
        Fault::ALL.into_iter().for_each(|(fault, ..)| self.plan_fault(fault));
    }

    fn plan_fault(&mut self, fault: Fault) {
        let (_, mean) = self.settings.faults[fault as usize];
        if mean > 0 {
            let delay = self.rng.random_range(1..2 * mean);
            self.events.after(delay, Event::Fault(fault));
        }
    }

    /// A fault happens.
    pub(crate) fn strike(&mut self, fault: Fault) -> Result<(), String> {
        if self.phase != Phase::Storm {
            return Ok(());
        }
        self.plan_fault(fault);
        let node = self.rng.random_range(0..self.nodes.len());
        let process = self.rng.random_range(0..self.settings.processes);
        let outage = self.rng.random_range(1..OUTAGE_MAX);
        match fault {
            Fault::Pause => {
                let machine = self.either(node, process);
                if !self.paused.contains(&machine) {
                    self.trace.say(self.events.now(), || format!("{machine:?} stops"));
                    self.paused.push(machine);
                    self.events.after(outage, Event::Continue(machine));
                }
            }
            Fault::Cut => {
                self.trace.say(self.events.now(), || format!("process {process} and node {node} are cut off"));
                self.network.cut(process, node);
                self.events.after(outage, Event::Mend { process, node });
                self.disconnect(|lane| (lane.process, lane.node) == (process, node));
            }
            Fault::Disconnect => {
                let unlucky = self.rng.random_range(0..self.lanes.len());
                let mut index = 0;
                self.disconnect(|_| {
                    index += 1;
                    index == unlucky + 1
                });
            }
            Fault::Restart => self.restart(node),
            Fault::ProcessRestart => self.restart_process(process)?,
            Fault::Lie => {
                self.counts.add(Count::Lies, 1);
                self.nodes[node].lie(self.events.now(), &mut self.rng);
                self.plan_slow(node);
            }
            Fault::Movement => {
                let life = self.nodes[node].life();
                let lives: Vec<&Region> = self.regions.iter().filter(|region| region.life == life).collect();
                let range = lives.choose(&mut self.rng).map(|region| region.range());
                self.trace.say(self.events.now(), || format!("node {node}: a range moves, perhaps {range:x?}"));
                self.nodes[node].move_on(&mut self.rng, range);
            }
            Fault::Attack => self.attack(node)?,
            Fault::Clock => {
                let machine = self.either(node, process);
                self.disturb_clock(machine, outage);
            }
        }
        Ok(())
    }

    fn either(&mut self, node: usize, process: usize) -> Machine {
        if self.rng.random_bool(0.5) { Machine::Node(node) } else { Machine::Process(process) }
    }

    fn disturb_clock(&mut self, machine: Machine, outage: Nanos) {
        let (now, what) = (self.events.now(), self.rng.random_range(0..3));
        if let Machine::Process(process) = machine {
            // By a clock that stands still or is slow no lease can be kept.
            self.has_wrong_clock[process] |= what != 1;
        }
        match what {
            0 => {
                self.trace.say(now, || format!("the clock of {machine:?} stops"));
                self.each_clock(machine, |clock| clock.stop(now));
                self.events.after(outage, Event::ClockGoesOn(machine));
                if self.rng.random_bool(0.5) && !self.paused.contains(&machine) {
                    self.paused.push(machine);
                    self.events.after(outage, Event::Continue(machine));
                }
            }
            1 => {
                let lease = self.settings.lease;
                let furthest = LEAP_MAX.min(LEAPS_MAX.saturating_sub(self.leapt(machine))).max(OUTAGE_MAX);
                // By little, by about a lease, or by much.
                let ahead = match self.rng.random_range(0..4) {
                    0 => self.rng.random_range(1..OUTAGE_MAX),
                    1 => self.rng.random_range(1..furthest),
                    _ => self.rng.random_range(lease / 2..lease * 3 / 2),
                };
                self.leaps.push((machine, ahead));
                self.trace.say(now, || format!("the clock of {machine:?} leaps ahead by {ahead} ns"));
                // By more than a step of the clock no lease runs.
                if let Machine::Node(node) = machine
                    && ahead <= self.settings.lease_step()
                {
                    self.nodes[node].leaps += 1;
                }
                self.each_clock(machine, |clock| clock.leap(now, ahead));
            }
            _ => {
                let drift_ppm = self.rng.random_range(-WRONG_DRIFT_PPM_MAX..=WRONG_DRIFT_PPM_MAX);
                self.trace.say(now, || format!("the clock of {machine:?} is fast by {drift_ppm} ppm"));
                self.each_clock(machine, |clock| clock.drift(now, drift_ppm));
            }
        }
    }

    /// The clock of a machine goes on if it stood still.
    pub(crate) fn clock_goes_on(&mut self, machine: Machine) {
        let now = self.events.now();
        self.each_clock(machine, |clock| clock.go_on(now));
    }

    /// By how much the clock of a machine has leapt ahead.
    fn leapt(&self, machine: Machine) -> Nanos {
        self.leaps.iter().filter(|(of, _)| *of == machine).map(|(_, ahead)| ahead).sum()
    }

    /// Changes the clock of a machine. The timers of its lanes are looked after.
    fn each_clock(&mut self, machine: Machine, mut change: impl FnMut(&mut Clock)) {
        match machine {
            Machine::Node(node) => change(&mut self.nodes[node].clock),
            Machine::Process(process) => {
                for (index, lane) in self.lanes.iter_mut().enumerate().filter(|(_, lane)| lane.process == process) {
                    change(&mut lane.clock);
                    self.events.after(0, Event::Wake { lane: index });
                }
            }
        }
    }

    /// A node loses everything, and begins anew.
    pub(crate) fn restart(&mut self, node: usize) {
        self.trace.say(self.events.now(), || format!("node {node} begins anew"));
        self.counts.add(Count::Restarts, 1);
        self.nodes[node] = self.new_node(node, self.nodes[node].life().number + 1);
        self.disconnect(|lane| lane.node == node);
    }

    /// Breaks the streams of these lanes.
    pub(crate) fn disconnect(&mut self, mut is_hit: impl FnMut(&crate::lane::Lane) -> bool) {
        for index in 0..self.lanes.len() {
            if !is_hit(&self.lanes[index]) || !self.lanes[index].is_open() {
                continue;
            }
            let Some(stream) = self.lanes[index].stream.as_mut() else { continue };
            let connection = stream.connection + 1;
            *stream = Stream { connection, is_open: false, ..Stream::default() };
            // What had been sent until some moment still arrives, and may be executed after the next connection has
            // begun.
            let lost_from = self.events.now() + self.rng.random_range(0..200) * MICROSECOND;
            self.lost_from[index].push(lost_from);
            self.trace.say(self.events.now(), || format!("lane {index}: the stream breaks"));
            let delay = self.rng.random_range(1..300) * MICROSECOND;
            self.events.after(delay, Event::Reconnect { lane: index });
        }
    }

    /// A lane tries to open its stream again.
    pub(crate) fn reconnect(&mut self, index: usize) -> Result<(), String> {
        let (process, node) = (self.lanes[index].process, self.lanes[index].node);
        if !self.network.is_whole(process, node) || !self.greet(index)? {
            self.reconnect_later(index);
            return Ok(());
        }
        self.trace.say(self.events.now(), || format!("lane {index}: the stream is open"));
        if let Some(stream) = self.lanes[index].stream.as_mut() {
            stream.is_open = true;
        }
        // The node's greeting says which life it is in.
        if self.lanes[index].life == self.nodes[node].life() {
            let lane = &mut self.lanes[index];
            lane.client.reconnected(lane.clock.read(self.events.now()));
        } else {
            self.notice_restart(index)?;
        }
        self.pump(index)
    }

    /// The machine goes on, with what has arrived meanwhile.
    pub(crate) fn resume(&mut self, machine: Machine) {
        self.paused.retain(|paused| *paused != machine);
        self.trace.say(self.events.now(), || format!("{machine:?} goes on"));
        let (held, kept) = std::mem::take(&mut self.held).into_iter().partition(|(holder, _)| *holder == machine);
        self.held = kept;
        let held: Vec<(Machine, Event)> = held;
        for (_, event) in held {
            self.events.after(0, event);
        }
    }

    /// The storm is over: nothing goes wrong from now on, and what is wrong is mended.
    pub(crate) fn calm_down(&mut self) {
        self.phase = Phase::Calm;
        self.network.weather = self.network.weather.calm();
        for process in 0..self.settings.processes {
            (0..self.nodes.len()).for_each(|node| self.network.mend(process, node));
        }
        for node in &mut self.nodes {
            let lost = node.end_moves();
            for region in self.regions.iter_mut().filter(|region| region.life == node.life()) {
                region.is_live &= !lost.iter().any(|lost| region.overlaps(*lost));
            }
        }
        for machine in std::mem::take(&mut self.paused) {
            self.resume(machine);
        }
        (0..self.nodes.len()).for_each(|node| self.clock_goes_on(Machine::Node(node)));
        (0..self.settings.processes).for_each(|process| self.clock_goes_on(Machine::Process(process)));
        // One whose clock has leapt over most hours that numbers have room for would begin anew in the middle.
        for node in 0..self.nodes.len() {
            let end = self.nodes[node].time(self.events.now()) + LEAP_MAX;
            if self.nodes[node].guard.as_ref().is_some_and(|guard| !guard.may_grant_at(end)) {
                self.restart(node);
            }
        }
    }

    /// What a lane is made of.
    pub(crate) fn draw_stream(&mut self) -> (Transport, Option<Stream>) {
        let transport = self.settings.transport(&mut self.rng);
        let stream = Stream { is_open: true, ..Stream::default() };
        (transport, (transport == Transport::Stream).then_some(stream))
    }
}
