//! [`Queue`]: a queue pair of the model.

use std::sync::Arc;

use rand::Rng;
use rand::rngs::SmallRng;
use yonder_pager::{
    Completion, PageRead, PageWrite, PostError, QueuePair, ReadInto, RemoteAddress, Status, Vector, WorkId,
};
use yonder_units::{FrameIndex, Nanos, PAGE_BYTES};

use super::operation::{Operation, What, put};
use super::{Far, pages_of};
use crate::memory::Memory;
use crate::sabotage::Sabotage;
use crate::settings::Settings;
use crate::world::{Step, World, assert_is_parent, below, say, step, violate, with};

/// How many times longer the slower tier takes.
const SLOW_FACTOR: u64 = 8;

/// A queue pair of the model.
pub(crate) struct Queue {
    number: usize,
    frames: Arc<Memory>,
    outstanding: usize,
}

/// What will become of an operation.
struct Fate {
    execute_at: Nanos,
    done_at: Nanos,
    status: Status,
}

impl Fate {
    fn draw(world: &mut World, page: u64, is_write: bool) -> Self {
        let (far, rng) = (&world.far, &mut world.rng);
        let Settings { latency, late_max, fails, loses, delays, .. } = world.settings;
        let mut execute_at = world.now + latency / 2 + rng.random_range(0..latency);
        let [fails, loses, delays] = if world.is_hostile { [fails, loses, delays] } else { [0; 3] };
        if rng.random_range(0..1000) < delays {
            execute_at += rng.random_range(0..late_max);
        }
        if far.is_slow[page as usize] {
            execute_at += latency * SLOW_FACTOR;
        }
        let mut done_at = execute_at + latency / 2;
        let mut status = Status::Done;
        if far.sabotage == Some(Sabotage::ForgottenCompletion) && rng.random_range(0..50) == 0 {
            done_at = Nanos::MAX;
        }
        if far.sabotage == Some(Sabotage::EarlyAck) && is_write {
            execute_at += 200_000;
        }
        if rng.random_range(0..1000) < fails {
            status = Status::Failed;
        }
        if rng.random_range(0..1000) < loses {
            done_at = Nanos::MAX;
            if rng.random_range(0..2) == 0 {
                execute_at += rng.random_range(0..late_max);
            }
        }
        Self { execute_at, done_at, status }
    }
}

impl Queue {
    pub(crate) fn new(frames: &Arc<Memory>) -> Self {
        let number = with(|world| {
            world.far.queues += 1;
            world.far.queues
        });
        Self { number, frames: Arc::clone(frames), outstanding: 0 }
    }

    fn post(&mut self, id: WorkId, page: u64, what: What, vector: Vector) -> Result<(), PostError> {
        assert_is_parent("posts to its parent's queue pair");
        step(Step::Effect(50));
        let posted = with(|world| {
            if self.outstanding >= world.settings.depth || world.is_hostile && world.rng.random_range(0..200) == 0 {
                return Err(PostError::Full);
            }
            let is_write = matches!(what, What::Write { .. });
            let Fate { execute_at, done_at, status } = Fate::draw(world, page, is_write);
            if is_write {
                if world.far.is_being_written(page) {
                    return Ok(false);
                }
                let (far, rng) = (&mut world.far, &mut world.rng);
                far.end_given_up(self.number, page, rng);
            }
            let (queue, is_executed, is_cancelled) = (self.number, false, false);
            let operation =
                Operation { queue, id, page, what, vector, execute_at, done_at, status, is_executed, is_cancelled };
            world.far.operations.push(operation);
            Ok(true)
        });
        if !posted? {
            violate(format!("two writes of far page {page} are outstanding together"));
        }
        self.outstanding += 1;
        Ok(())
    }

    /// An operation whose completion is there, in any order.
    fn take_due(&self) -> Option<Operation> {
        with(|world| {
            let now = world.now;
            let is_early = world.far.sabotage == Some(Sabotage::EarlyAck);
            let is_zombie = world.far.sabotage == Some(Sabotage::CompletionAfterCancel);
            let is_due = |operation: &Operation| {
                let is_done = (operation.is_executed || is_early) && operation.done_at <= now;
                operation.queue == self.number && (!operation.is_cancelled || is_zombie) && is_done
            };
            let count = world.far.operations.iter().filter(|operation| is_due(operation)).count();
            // Some come only with a later poll.
            if count == 0 || world.is_hostile && world.rng.random_range(0..16) == 0 {
                return None;
            }
            let nth = world.rng.random_range(0..count);
            let due = world.far.operations.iter().enumerate().filter(|(_, operation)| is_due(operation));
            let at = due.map(|(at, _)| at).nth(nth)?;
            if is_early && !world.far.operations[at].is_executed {
                return world.far.acknowledge_early(at);
            }
            Some(world.far.operations.swap_remove(at))
        })
    }
}

impl Far {
    fn is_being_written(&self, page: u64) -> bool {
        self.operations.iter().any(|other| other.page == page && other.is_write() && !other.is_cancelled)
    }

    /// What was given up of a page on a queue pair is executed now or never: a later write of it is posted there.
    fn end_given_up(&mut self, queue: usize, page: u64, rng: &mut SmallRng) {
        if self.sabotage == Some(Sabotage::Overtaking) {
            return;
        }
        let is_given_up =
            |operation: &Operation| operation.queue == queue && operation.page == page && operation.is_cancelled;
        while let Some(at) = self.operations.iter().position(is_given_up) {
            if rng.random_range(0..2) == 0 && !self.operations[at].is_executed {
                self.execute(at, rng);
            } else {
                self.operations.swap_remove(at);
            }
        }
    }
}

/// Puts what a read brings where it belongs; what its completion says.
fn complete(operation: &Operation, sabotage: Option<Sabotage>, is_hit: bool) -> Status {
    let What::Read { into: Some(frame), frames, bytes } = &operation.what else { return operation.status };
    match (operation.status, bytes) {
        (Status::Done, Some(_)) if sabotage == Some(Sabotage::MissingBytes) && is_hit => {
            frames.write(frame.offset(), &[0; PAGE_BYTES]);
        }
        (Status::Done, Some(bytes)) if sabotage == Some(Sabotage::WrongFrame) && is_hit => {
            put(frames, FrameIndex(frame.0 ^ 1), operation.vector, bytes);
        }
        (Status::Done, Some(bytes)) => put(frames, *frame, operation.vector, bytes),
        // What a read that fails leaves where its bytes belong is anything.
        _ => put(frames, *frame, operation.vector, &[0xEE; PAGE_BYTES]),
    }
    if sabotage == Some(Sabotage::FailedAsDone) && operation.status == Status::Failed {
        return Status::Done;
    }
    operation.status
}

impl QueuePair for Queue {
    fn post_read_vector(&mut self, id: WorkId, read: PageRead, _now: Nanos) -> Result<(), PostError> {
        let PageRead { from, into, vector } = read;
        let into = match into {
            ReadInto::Frame(frame) => Some(frame),
            ReadInto::Mapped => None,
        };
        let page = from.0 / PAGE_BYTES as u64;
        say(|| format!("posts read {:#x} of far page {page} into {into:?}", id.0));
        self.post(id, page, What::Read { into, frames: Arc::clone(&self.frames), bytes: None }, vector)
    }

    fn post_write_vector(&mut self, id: WorkId, write: PageWrite, _now: Nanos) -> Result<(), PostError> {
        let PageWrite { to, from, vector } = write;
        let page = to.0 / PAGE_BYTES as u64;
        say(|| format!("posts write {:#x} of frame {} to far page {page}", id.0, from.0));
        let bytes = self.frames.content(from.offset());
        self.post(id, page, What::Write { from, frames: Arc::clone(&self.frames), bytes }, vector)
    }

    fn poll(&mut self, _now: Nanos, completions: &mut Vec<Completion>) {
        assert_is_parent("polls its parent's queue pair");
        step(Step::Point);
        while completions.len() < completions.capacity() {
            let Some(operation) = self.take_due() else { return };
            self.outstanding = self.outstanding.saturating_sub(1);
            let (sabotage, is_hit) = (with(|world| world.far.sabotage), below(20) == 0);
            let status = complete(&operation, sabotage, is_hit);
            say(|| format!("completes {:#x}: {status:?}", operation.id.0));
            completions.push(Completion { id: operation.id, status });
            if sabotage == Some(Sabotage::DoubleCompletion) && is_hit && completions.len() < completions.capacity() {
                completions.push(Completion { id: operation.id, status });
            }
        }
        if !completions.is_empty() {
            step(Step::Effect(20));
        }
    }

    fn cancel(&mut self, id: WorkId) {
        assert_is_parent("cancels on its parent's queue pair");
        say(|| format!("cancels {:#x}", id.0));
        with(|world| {
            let far = &mut world.far;
            let is_it =
                |operation: &Operation| operation.queue == self.number && operation.id == id && !operation.is_cancelled;
            let Some(at) = far.operations.iter().position(is_it) else { return };
            self.outstanding = self.outstanding.saturating_sub(1);
            far.operations[at].is_cancelled = true;
            if far.sabotage == Some(Sabotage::CompletionAfterCancel) {
                return;
            }
            let is_forgotten = !far.operations[at].is_write() && far.sabotage != Some(Sabotage::LateRead);
            if far.operations[at].is_executed || is_forgotten {
                far.operations.swap_remove(at);
            }
        });
        step(Step::Effect(30));
    }

    fn may_still_write(&self, start: RemoteAddress, bytes: u64) -> bool {
        let pages = pages_of(start, bytes);
        let is_late = |operation: &Operation| {
            operation.queue == self.number && operation.is_cancelled && pages.contains(&operation.page)
        };
        with(|world| world.far.operations.iter().any(is_late))
    }

    fn outstanding(&self) -> usize {
        self.outstanding
    }

    fn depth(&self) -> usize {
        with(|world| world.settings.depth)
    }
}
