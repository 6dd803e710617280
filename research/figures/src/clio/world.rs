//! [`World`]: threads, machines, the switch and memory nodes, and what happens between them.
//!
//! A request passes the compute node's link, waits at the switch for the board's port, and is executed when it arrives
//! (T1); its answer comes back the same way. The fixed part of a way is added behind the last queue of it.

use std::rc::Rc;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use yonder_simulation::EventQueue;
use yonder_units::Nanos;

use super::link::Link;
use super::node::{Node, Space};
use super::thread::{Ledger, Load, Thread};
use crate::costs::clio::{COMPUTE_LINK, COMPUTE_NODES, PATH};

/// Something that happens.
#[derive(Debug)]
enum Event {
    /// A request is at the switch.
    Sent(Packet),
    /// It is at its memory node.
    Asked(Packet),
    /// The answer leaves the board.
    Answered(Packet),
    /// The answer is at the switch.
    Returned(Packet),
    /// It is at its thread's machine.
    Received(Packet),
    /// A thread's CPU has done what it began.
    Worked(usize),
    /// A client's timer.
    Wake(usize),
}

/// A message of a thread or to it.
#[derive(Debug)]
struct Packet {
    thread: usize,
    bytes: Vec<u8>,
}

/// Everything there is.
#[derive(Debug)]
pub(super) struct World {
    events: EventQueue<Event>,
    rng: ChaCha8Rng,
    nodes: Vec<Node>,
    threads: Vec<Thread>,
    /// Of each compute node: to the switch, and from it.
    links: Vec<[Link; 2]>,
    /// Operations for which threads are still to be asked in turn.
    turns: u64,
    ledger: Ledger,
}

/// What was measured.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Measured {
    pub(super) operations: u64,
    /// How long it took.
    pub(super) time: Nanos,
    /// Latencies in nanoseconds, in order.
    latencies: Vec<Nanos>,
    /// Requests that clients sent again, from the beginning on.
    pub(super) retried: u64,
    /// Packets that the clients' congestion windows have room for at the end, on average.
    pub(super) window_packets: f64,
}

impl World {
    /// Memory nodes, and nobody who uses them.
    pub(super) fn new(nodes: Vec<Node>, rng: ChaCha8Rng) -> Self {
        let links = |_| [Link::new(COMPUTE_LINK), Link::new(COMPUTE_LINK)];
        Self {
            events: EventQueue::new(),
            rng,
            nodes,
            threads: Vec::new(),
            links: (0..COMPUTE_NODES.value as usize).map(links).collect(),
            turns: 0,
            ledger: Ledger::default(),
        }
    }

    /// Adds a thread with a lane to `node`; compute nodes get one in turn.
    pub(super) fn add(&mut self, node: usize, load: Load) {
        let compute_node = self.threads.len() % self.links.len();
        let thread = Thread::new(compute_node, node, load, &mut self.rng);
        self.threads.push(thread);
        self.poke(self.threads.len() - 1);
    }

    /// From now on a thread's operations are to `space`.
    pub(super) fn go_to(&mut self, thread: usize, space: Rc<Space>) {
        self.threads[thread].go_to(space);
    }

    /// Asks each thread for an operation, one after the other.
    pub(super) fn ask_each(&mut self) {
        for thread in 0..self.threads.len() {
            self.threads[thread].ask(self.events.now());
            self.poke(thread);
            self.warm_up(1);
        }
    }

    /// Measures `operations` of threads that are asked in turn: on each compute node one after the other, drawn at
    /// random.
    pub(super) fn measure_in_turn(&mut self, operations: u64) -> Measured {
        let at_a_time = self.links.len().min(self.threads.len());
        self.turns = operations.saturating_sub(at_a_time as u64);
        for compute_node in 0..at_a_time {
            self.ask_on(compute_node);
        }
        self.measure(operations.max(at_a_time as u64))
    }

    /// Lets `operations` be over, and measures them.
    pub(super) fn measure(&mut self, operations: u64) -> Measured {
        let (begun, due) = (self.events.now(), self.ledger.completed + operations);
        self.ledger.latencies.clear();
        self.run(|ledger| ledger.completed >= due);
        let mut latencies = std::mem::take(&mut self.ledger.latencies);
        latencies.sort_unstable();
        let stats: Vec<_> = self.threads.iter().map(|thread| thread.client.stats()).collect();
        Measured {
            operations: latencies.len() as u64,
            time: self.events.now() - begun,
            latencies,
            retried: stats.iter().map(|stats| stats.retried).sum(),
            window_packets: stats.iter().map(|stats| stats.window_packets).sum::<f64>() / stats.len() as f64,
        }
    }

    /// Lets operations be over that are not measured.
    pub(super) fn warm_up(&mut self, operations: u64) {
        let due = self.ledger.completed + operations;
        self.run(|ledger| ledger.completed >= due);
    }

    /// Begins nothing more, and lets everything come to its end.
    #[cfg(test)]
    pub(super) fn finish(&mut self) -> (&Ledger, &mut [Node], &[Thread]) {
        self.threads.iter_mut().for_each(Thread::stop);
        while let Some(event) = self.events.advance() {
            self.happen(event);
        }
        (&self.ledger, &mut self.nodes, &self.threads)
    }

    fn run(&mut self, is_done: impl Fn(&Ledger) -> bool) {
        loop {
            let event = self.events.advance().expect("something is under way until it is over");
            self.happen(event);
            if is_done(&self.ledger) {
                return;
            }
        }
    }

    fn happen(&mut self, event: Event) {
        let now = self.events.now();
        match event {
            Event::Sent(packet) => {
                let node = &mut self.nodes[self.threads[packet.thread].node];
                let at = node.links[0].carry(now, packet.bytes.len());
                self.events.at(at + PATH.ns(), Event::Asked(packet));
            }
            Event::Asked(Packet { thread, bytes }) => {
                let (at, bytes) = self.nodes[self.threads[thread].node].serve(now, &bytes);
                self.events.at(at, Event::Answered(Packet { thread, bytes }));
            }
            Event::Answered(packet) => {
                let node = &mut self.nodes[self.threads[packet.thread].node];
                let at = node.links[1].carry(now, packet.bytes.len());
                self.events.at(at, Event::Returned(packet));
            }
            Event::Returned(packet) => {
                let link = &mut self.links[self.threads[packet.thread].compute_node][1];
                let at = link.carry(now, packet.bytes.len());
                self.events.at(at + PATH.ns(), Event::Received(packet));
            }
            Event::Received(Packet { thread, bytes }) => {
                self.threads[thread].inbox.push_back(bytes);
                self.poke(thread);
            }
            Event::Worked(thread) => {
                let completed = self.ledger.completed;
                self.threads[thread].finish(now, &mut self.rng, &mut self.ledger);
                self.send(thread);
                self.poke(thread);
                if self.ledger.completed > completed && self.turns > 0 {
                    self.turns -= 1;
                    self.ask_on(self.threads[thread].compute_node);
                }
            }
            Event::Wake(thread) => {
                self.threads[thread].wake_at = Nanos::MAX;
                self.threads[thread].client.advance(now);
                self.send(thread);
            }
        }
    }

    /// A thread begins what there is to do.
    fn poke(&mut self, thread: usize) {
        let now = self.events.now();
        if let Some(delay) = self.threads[thread].begin(now) {
            self.events.after(delay, Event::Worked(thread));
        }
    }

    /// A thread's client sends what it may, and its timer is planned.
    fn send(&mut self, index: usize) {
        let now = self.events.now();
        let thread = &mut self.threads[index];
        while let Some(bytes) = thread.transmit(now) {
            let at = self.links[thread.compute_node][0].carry(now, bytes.len());
            self.events.at(at, Event::Sent(Packet { thread: index, bytes }));
        }
        let due = thread.client.timeout().map_or(Nanos::MAX, |due| due.max(now + 1));
        if due < thread.wake_at {
            thread.wake_at = due;
            self.events.at(due, Event::Wake(index));
        }
    }

    /// Asks a thread of a compute node for an operation.
    fn ask_on(&mut self, compute_node: usize) {
        let threads = (self.threads.len() - compute_node).div_ceil(self.links.len());
        let thread = compute_node + self.rng.random_range(0..threads) * self.links.len();
        self.threads[thread].ask(self.events.now());
        self.poke(thread);
    }
}

impl Measured {
    /// The latency in microseconds that `share` of all operations had at most.
    pub(super) fn percentile_us(&self, share: f64) -> f64 {
        let index = (self.latencies.len() as f64 * share).ceil() as usize;
        self.latencies[index.clamp(1, self.latencies.len()) - 1] as f64 / 1000.0
    }

    /// The payload of operations of `bytes` bytes, in gigabits a second.
    pub(super) fn gbps(&self, bytes: u64) -> f64 {
        (self.operations * bytes * 8) as f64 / self.time as f64
    }

    /// The mean latency in microseconds.
    pub(super) fn mean_us(&self) -> f64 {
        self.latencies.iter().sum::<Nanos>() as f64 / self.latencies.len() as f64 / 1000.0
    }
}
