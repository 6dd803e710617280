//! [`Lane`]: one client over one lane, as its process runs it: the shell that `runtime/fabric` is in the real world.
//!
//! [`World::pump`] lets a lane do all that it can do now: take what time has brought, hand completions to the workload,
//! take new operations from it, and send. Everything that passes is told to the history.

use std::collections::{BTreeMap, VecDeque};

use rand::Rng;
use yonder_client::{Client, Completion, Operation, OperationId, Outcome, Payload, Received, Transmit};
use yonder_session::{Protector, SessionNumber};
use yonder_units::Nanos;
use yonder_wire::{Header, Message};

use crate::counts::Count;
use crate::history::{Asked, End, Life};
use crate::network::Wire;
use crate::sabotage::Sabotage;
use crate::settings::MICROSECOND;
use crate::workload::{Purpose, Script};
use crate::world::{Event, World};
use yonder_simulation::Clock;

/// Set in the tokens of fences.
const FENCE: u64 = 1 << 63;

/// One client, and what its process keeps for it.
#[derive(Debug)]
pub(crate) struct Lane {
    /// The process that has it.
    pub(crate) process: usize,
    /// The node it leads to.
    pub(crate) node: usize,
    /// The data thread of the node that serves it.
    pub(crate) thread: usize,
    /// The stream, if it is one.
    pub(crate) stream: Option<Stream>,
    /// The code under test.
    pub(crate) client: Client,
    /// Whether it speaks under a session.
    pub(crate) has_sessions: bool,
    /// The code under test that seals and opens, once there is a session.
    pub(crate) protector: Option<Protector>,
    /// The number that it last sealed under, and the counter.
    pub(crate) last_counter: (SessionNumber, u64),
    /// The clock of its process.
    pub(crate) clock: Clock,
    /// The life of the node that it knows of.
    pub(crate) life: Life,
    /// Operations that may still be started in the storm.
    pub(crate) budget: u32,
    /// Nothing is started before.
    pub(crate) idle_until: Nanos,
    /// Operations that have not ended.
    pub(crate) open: BTreeMap<u64, OperationId>,
    /// A critical section.
    pub(crate) script: Script,
    /// Which one: what is left of an earlier one does not count.
    pub(crate) script_number: u32,
    wake_at: Nanos,
    /// Bodies of operations that were not sent yet.
    answers: BTreeMap<u64, (Header, Vec<u8>)>,
    /// What the client has no room for yet, in order.
    waiting: VecDeque<Submission>,
    last_data: Vec<u8>,
}

/// A stream, which breaks and is opened again.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Stream {
    /// How often it was opened; what was sent on an earlier one is not answered.
    pub(crate) connection: u32,
    /// Whether it can be used.
    pub(crate) is_open: bool,
    /// The way to the node.
    pub(crate) there: Wire,
    /// The way back.
    pub(crate) back: Wire,
}

/// What is handed to the client as soon as it has room.
#[derive(Clone, Debug)]
enum Submission {
    Operation { token: u64, capability: u128, body: Vec<u8>, deadline: Nanos },
    Fence { serial: u64 },
}

impl Lane {
    /// A lane of `process` to `life.node`, with `budget` operations to do.
    #[must_use]
    pub(crate) fn new(process: usize, life: Life, thread: usize, clock: Clock, client: Client, budget: u32) -> Self {
        Self {
            process,
            node: life.node,
            thread,
            stream: None,
            client,
            has_sessions: false,
            protector: None,
            last_counter: (SessionNumber(0), 0),
            clock,
            life,
            budget,
            idle_until: 0,
            open: BTreeMap::new(),
            script: Script::Idle,
            script_number: 0,
            wake_at: Nanos::MAX,
            answers: BTreeMap::new(),
            waiting: VecDeque::new(),
            last_data: Vec::new(),
        }
    }

    /// Whether it may send now.
    #[must_use]
    pub(crate) fn is_open(&self) -> bool {
        self.stream.is_none_or(|stream| stream.is_open) && (self.protector.is_some() || !self.has_sessions)
    }

    /// Operations that have not ended or not begun.
    #[must_use]
    pub(crate) fn depth(&self) -> usize {
        self.open.len() + self.waiting.len()
    }

    /// Whether nothing is to be done for it.
    #[must_use]
    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty() && self.waiting.is_empty() && self.client.idle()
    }

    /// The answer to an operation of the slow path.
    pub(crate) fn take_answer(&mut self, token: u64) -> Option<(Header, Vec<u8>)> {
        self.answers.remove(&token)
    }
}

impl World {
    /// Lets `index` do all that it can.
    pub(crate) fn pump(&mut self, index: usize) -> Result<(), String> {
        let now = self.events.now();
        let lane = &mut self.lanes[index];
        lane.wake_at = lane.wake_at.max(now + 1);
        let local = lane.clock.read(now);
        lane.client.advance(local);
        self.hand_over(index);
        self.take_completions(index)?;
        self.work(index)?;
        self.transmit(index)?;
        self.take_completions(index)?;
        self.plan_wake(index);
        Ok(())
    }

    /// The time has come that was planned.
    pub(crate) fn wake(&mut self, index: usize) -> Result<(), String> {
        self.lanes[index].wake_at = Nanos::MAX;
        self.pump(index)
    }

    fn plan_wake(&mut self, index: usize) {
        let now = self.events.now();
        let lane = &mut self.lanes[index];
        let timer = lane.client.timeout().filter(|_| self.sabotage != Some(Sabotage::StoppedTimers));
        // Without a session what is due stays due.
        let pause = if lane.has_sessions && lane.protector.is_none() { 20 * MICROSECOND } else { 1 };
        let timer = timer.map_or(Nanos::MAX, |due| lane.clock.when(due).max(now + pause));
        let work = if lane.idle_until > now { lane.idle_until } else { Nanos::MAX };
        let held_back = if lane.waiting.is_empty() || !lane.client.has_room() { Nanos::MAX } else { now + 1 };
        let due = timer.min(work).min(held_back);
        if due < lane.wake_at || (lane.wake_at <= now && due != Nanos::MAX) {
            lane.wake_at = due;
            self.events.at(due, Event::Wake { lane: index });
        }
    }

    pub(crate) fn take_completions(&mut self, index: usize) -> Result<(), String> {
        while let Some(Completion { token, outcome, .. }) = self.lanes[index].client.completion() {
            if token & FENCE != 0 {
                self.history.fence_passed(index, token & !FENCE)?;
                continue;
            }
            let end = match outcome {
                Outcome::Done => End::Done(None),
                Outcome::Old(old) => End::Done(Some(old)),
                Outcome::Refused(code) => End::Refused(code),
                Outcome::TimedOut | Outcome::Lost => End::Unknown,
            };
            self.trace.say(self.events.now(), || format!("lane {index}: operation {token} ends: {outcome:?}"));
            self.lanes[index].open.remove(&token);
            self.history.ended(token, end)?;
            self.counts.add(end.count(), 1);
            self.react(index, token, end)?;
        }
        Ok(())
    }

    /// Submits an operation. The caller has seen to it that there is room.
    pub(crate) fn submit(
        &mut self,
        asked: Asked,
        capability: u128,
        body: Vec<u8>,
        deadline: Nanos,
        purpose: Purpose,
    ) -> u64 {
        let (index, token) = (asked.lane, self.history.next_token());
        self.trace.say(self.events.now(), || {
            let Asked { kind, pid, address, length, .. } = &asked;
            format!("lane {index}: operation {token} is {kind:?} of {length} at {pid:x}:{address:#x}, {purpose:?}")
        });
        self.history.submitted(asked);
        self.purposes.push(purpose);
        let waiting = &mut self.lanes[index].waiting;
        waiting.push_back(Submission::Operation { token, capability, body, deadline });
        if self.sabotage == Some(Sabotage::WrongOrder) {
            if waiting.len() == 1 && self.rng.random_bool(0.3) {
                return token;
            }
            waiting.make_contiguous().reverse();
        }
        self.hand_over(index);
        token
    }

    /// Hands the client what it has room for.
    fn hand_over(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        let local = lane.clock.read(self.events.now());
        while lane.client.has_room()
            && let Some(submission) = lane.waiting.pop_front()
        {
            let taken = match submission {
                Submission::Fence { serial } => lane.client.fence(FENCE | serial, local).map(|_| ()),
                Submission::Operation { token, capability, body, deadline } => {
                    let Asked { kind, pid, address, length, .. } = *self.history.asked(token);
                    let operation = Operation { kind, pid, capability, address, length, body: &body, deadline, token };
                    lane.client.submit(&operation, local).map(|id| {
                        lane.open.insert(token, id);
                    })
                }
            };
            taken.expect("there was room");
        }
    }

    /// Sets a fence on a lane.
    pub(crate) fn fence(&mut self, index: usize) -> Result<(), String> {
        let serial = self.history.fenced(index);
        self.trace.say(self.events.now(), || format!("lane {index}: fence {serial}"));
        if self.sabotage == Some(Sabotage::OpenFences) {
            return self.history.fence_passed(index, serial);
        }
        self.lanes[index].waiting.push_back(Submission::Fence { serial });
        self.hand_over(index);
        Ok(())
    }

    /// Cancels an operation.
    pub(crate) fn cancel(&mut self, index: usize, token: u64) -> Result<(), String> {
        let Some(id) = self.lanes[index].open.remove(&token) else { return Ok(()) };
        self.trace.say(self.events.now(), || format!("lane {index}: operation {token} is cancelled"));
        self.lanes[index].client.cancel(id);
        self.history.ended(token, End::Cancelled)?;
        self.counts.add(Count::Cancelled, 1);
        Ok(())
    }

    /// Every operation of the lane is lost: the node is another one.
    pub(crate) fn abandon(&mut self, index: usize) -> Result<(), String> {
        let life = self.nodes[self.lanes[index].node].life();
        self.trace.say(self.events.now(), || format!("lane {index}: the node is another one, {life:?}"));
        let lane = &mut self.lanes[index];
        lane.client.abandon();
        lane.life = life;
        Ok(())
    }

    fn transmit(&mut self, index: usize) -> Result<(), String> {
        let lane = &mut self.lanes[index];
        if let Some(protector) = lane.protector.as_mut().filter(|_| lane.stream.is_none()) {
            protector.follow();
        }
        while self.lanes[index].is_open() {
            let lane = &mut self.lanes[index];
            let local = lane.clock.read(self.events.now());
            let Some(Transmit { header, token, payload }) = lane.client.transmit(local) else { break };
            let payload = match payload {
                Payload::None => &[],
                Payload::Inline(bytes) => bytes,
                Payload::Caller { offset, length } => &self.history.asked(token).data[offset as usize..][..length],
            };
            let mut sent = header;
            if self.sabotage == Some(Sabotage::CorrectedTimes) && header.request_id != header.first_id {
                sent.time = header.time.min(self.nodes[lane.node].time(self.events.now()));
            }
            let bytes = [&sent.seal(payload)[..], payload].concat();
            if token != 0 {
                self.history.sent(token, &header)?;
            }
            self.counts.add(Count::Requests, 1);
            self.trace.say(self.events.now(), || format!("lane {index}: sends {}", summary(&header)));
            if let Some(bytes) = self.protect(index, &header, bytes)? {
                self.send_to_node(index, bytes);
            }
        }
        Ok(())
    }

    /// A datagram, or a whole message of a stream, has arrived at the lane.
    pub(crate) fn lane_receives(&mut self, index: usize, bytes: &[u8]) -> Result<(), String> {
        let mut bytes = bytes.to_vec();
        let Some(message) = self.opened(index, &mut bytes)? else { return Ok(()) };
        self.trace.say(self.events.now(), || format!("lane {index}: receives {}", summary(&message.header)));
        // A real client learns it from a greeting or from a refused capability.
        let is_other = self.lanes[index].life != self.nodes[self.lanes[index].node].life();
        let claimed = self.history.claimed(message.header.first_id);
        if is_other && message.header.time < claimed {
            self.notice_restart(index)?;
        }
        let mut message = message;
        if self.sabotage == Some(Sabotage::RisingBound) {
            message.header.time = message.header.time.max(claimed);
        }
        let lane = &mut self.lanes[index];
        let local = lane.clock.read(self.events.now());
        match lane.client.receive(&message, local) {
            Received::Data { token, offset } => self.deliver(index, token, offset, &message)?,
            Received::Answer { token } => {
                lane.answers.insert(token, (message.header, message.payload.to_vec()));
            }
            Received::Nothing => {}
        }
        self.pump(index)
    }

    fn deliver(&mut self, index: usize, token: u64, offset: u64, message: &Message<'_>) -> Result<(), String> {
        let mut payload = message.payload.to_vec();
        if self.sabotage == Some(Sabotage::MixedAnswers) {
            let other = std::mem::replace(&mut self.lanes[index].last_data, payload.clone());
            if other.len() == payload.len() && self.rng.random_bool(0.2) {
                payload = other;
            }
        }
        self.history.delivered(token, offset, message.header.first_id, &payload)
    }
}

/// A header in few words.
pub(crate) fn summary(header: &Header) -> String {
    let Header { kind, code, pid, length, address, request_id, first_id, time, .. } = header;
    let retry = if request_id == first_id { String::new() } else { format!(" again {}", request_id - first_id) };
    let refused = if header.is_refusal() { format!(" refused: {code}") } else { String::new() };
    format!("{kind:?} {first_id:x}{retry} of {length} at {pid:x}:{address:#x}, time {time}{refused}")
}
