//! [`Far`]: the far side, and the queue pairs that lead there.
//!
//! The model keeps what `QueuePair` promises and nothing more: completions come late and in any order, operations fail,
//! are lost, and are executed after they were given up, but a write that was cancelled never after one that is posted
//! later on the same queue pair. The node stops, answers nothing meanwhile, and may come back without what it had.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use rand::Rng;
use rand::rngs::SmallRng;
use yonder_pager::{Completion, PostError, Posting, QueuePair, ReadInto, RemoteAddress, Status, Vector, WorkId};
use yonder_units::{FrameIndex, Nanos, PAGE_BYTES};

use crate::memory::{Bytes, Kind, Memory, zeros};
use crate::sabotage::Sabotage;
use crate::settings::Settings;
use crate::world::{Step, below, say, step, violate, with};

/// Pages of far memory.
const PAGES: usize = 16_384;

pub(crate) struct Far {
    pub(crate) memory: Arc<Memory>,
    /// Pages whose content the node has lost.
    lost: Vec<bool>,
    operations: Vec<Operation>,
    queues: usize,
    allocated: u64,
    /// What begins where and is allocated, and what was and is not any more, in pages.
    ranges: BTreeMap<u64, u64>,
    free: Vec<(u64, u64)>,
    down_until: Nanos,
    latency: Nanos,
    depth: usize,
    /// Faults in thousandths of operations, and how late the late are.
    fails: u32,
    loses: u32,
    delays: u32,
    late_max: Nanos,
    /// Reads and writes that were executed.
    pub(crate) executed: u64,
    sabotage: Option<Sabotage>,
    /// What was asked of the far side that must not be.
    pub(crate) violation: Option<String>,
    /// What pages were before their last write.
    before: Vec<Option<Bytes>>,
    /// Which pages are in the slower tier, if there are two, and until when that is out of reach.
    has_tiers: bool,
    is_slow: Vec<bool>,
    slow_down_until: Nanos,
    lease_end: Nanos,
    /// Discards that were given up and may be executed yet: when, and which pages.
    late_discards: Vec<(Nanos, Range<u64>)>,
}

/// How many times longer the slower tier takes.
const SLOW_FACTOR: u64 = 8;

struct Operation {
    queue: usize,
    id: WorkId,
    page: u64,
    what: What,
    vector: Vector,
    execute_at: Nanos,
    /// When its completion is there; never, if that is lost.
    done_at: Nanos,
    status: Status,
    is_executed: bool,
    is_cancelled: bool,
}

enum What {
    Read { into: Option<FrameIndex>, frames: Arc<Memory>, bytes: Option<Bytes> },
    Write { from: FrameIndex, frames: Arc<Memory>, bytes: Bytes },
}

impl Far {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            memory: Arc::new(Memory::new(Kind::Far, 0, PAGES)),
            lost: vec![false; PAGES],
            operations: Vec::new(),
            queues: 0,
            allocated: 0,
            ranges: BTreeMap::new(),
            free: Vec::new(),
            down_until: 0,
            latency: settings.latency,
            depth: settings.depth,
            fails: settings.fails,
            loses: settings.loses,
            delays: settings.delays,
            late_max: settings.late_max,
            executed: 0,
            sabotage: None,
            violation: None,
            before: vec![None; PAGES],
            has_tiers: settings.has_tiers,
            is_slow: vec![false; PAGES],
            slow_down_until: 0,
            lease_end: Nanos::MAX,
            late_discards: Vec::new(),
        }
    }

    pub(crate) fn sabotage(&mut self, by: Option<Sabotage>) {
        self.sabotage = by;
    }

    /// No more faults from now on.
    pub(crate) fn heal(&mut self, now: Nanos) {
        if !self.lease_is_over(now) {
            self.lease_end = Nanos::MAX;
        }
        (self.fails, self.loses, self.delays, self.down_until, self.slow_down_until) = (0, 0, 0, 0, 0);
    }

    pub(crate) fn allocate(&mut self, pages: u64) -> RemoteAddress {
        // What was given back last is what somebody gets first.
        let start = match self.free.iter().rposition(|(_, free)| *free == pages) {
            Some(at) => self.free.remove(at).0,
            None => {
                self.allocated += pages;
                self.allocated - pages
            }
        };
        assert!(self.allocated <= PAGES as u64, "a seed uses more far memory than there is");
        self.ranges.insert(start, pages);
        RemoteAddress(start * PAGE_BYTES as u64)
    }

    /// The range that begins at `start` is nobody's. False if there is none.
    pub(crate) fn release(&mut self, start: RemoteAddress) -> bool {
        let Some((first, pages)) = self.ranges.remove_entry(&(start.0 / PAGE_BYTES as u64)) else { return false };
        for page in first as usize..(first + pages) as usize {
            (self.before[page], self.lost[page], self.is_slow[page]) = (None, false, false);
            self.memory.drop_page(page);
        }
        self.forget_discards(&(first..first + pages));
        self.free.push((first, pages));
        true
    }

    /// The node stops until `until`; without power it loses what it has.
    pub(crate) fn stop(&mut self, until: Nanos, loses_memory: bool) {
        self.down_until = self.down_until.max(until);
        if loses_memory {
            for page in 0..self.allocated as usize {
                self.lost[page] = true;
                self.memory.fill((page * PAGE_BYTES) as u64, zeros());
            }
        }
    }

    /// The slower tier is out of reach until `until`.
    pub(crate) fn stop_slow(&mut self, until: Nanos) {
        self.slow_down_until = self.slow_down_until.max(until);
    }

    pub(crate) fn is_down(&self, now: Nanos) -> bool {
        now < self.down_until || now >= self.lease_end
    }

    /// The lease ends at `end`, if nobody heals the node before.
    pub(crate) fn end_lease(&mut self, end: Nanos) {
        self.lease_end = end;
    }

    /// Whether nothing is answered any more.
    pub(crate) fn lease_is_over(&self, now: Nanos) -> bool {
        now >= self.lease_end
    }

    /// The content of a page, unless the node has lost it.
    pub(crate) fn content(&self, at: RemoteAddress) -> Option<Bytes> {
        let page = (at.0 / PAGE_BYTES as u64) as usize;
        (!self.lost[page]).then(|| self.memory.content(at.0))
    }

    pub(crate) fn next_event(&self, now: Nanos) -> Option<Nanos> {
        let times = self.operations.iter().flat_map(|operation| [operation.execute_at, operation.done_at]);
        let times = times.chain(self.late_discards.iter().map(|(at, _)| *at));
        times.filter(|at| *at > now && *at < Nanos::MAX).min()
    }

    /// Executes what is due.
    pub(crate) fn execute_until(&mut self, now: Nanos, rng: &mut SmallRng) {
        while let Some(at) = self.late_discards.iter().position(|(at, _)| *at <= now) {
            let (_, pages) = self.late_discards.swap_remove(at);
            self.clear(pages);
        }
        loop {
            let due = self.operations.iter_mut().enumerate();
            let due = due.filter(|(_, operation)| !operation.is_executed && operation.execute_at <= now);
            let Some((at, _)) = due.min_by_key(|(_, operation)| operation.execute_at) else { break };
            self.execute(at, rng);
        }
    }

    fn execute(&mut self, at: usize, rng: &mut SmallRng) {
        self.operations[at].is_executed = true;
        let operation = &self.operations[at];
        let page = operation.page as usize;
        let is_down = self.is_down(self.operations[at].execute_at)
            || self.is_slow[page] && self.operations[at].execute_at < self.slow_down_until;
        let operation = &mut self.operations[at];
        if is_down {
            operation.status = Status::Disconnected;
        }
        if operation.status != Status::Done {
            // A write that fails may have been executed all the same.
            let is_write = matches!(operation.what, What::Write { .. });
            if !is_write || is_down || rng.random_range(0..2) == 0 {
                self.forget_if_cancelled(at);
                return;
            }
        }
        self.executed += 1;
        let offset = (page * PAGE_BYTES) as u64;
        match &mut operation.what {
            What::Write { from, frames, bytes } => {
                if !operation.is_cancelled && *frames.content(from.offset()) != **bytes {
                    self.violation
                        .get_or_insert(format!("frame {} changed while it was written to far page {page}", from.0));
                }
                let is_hit = rng.random_range(0..10) == 0;
                if self.sabotage == Some(Sabotage::LostWrite) && is_hit {
                    self.forget_if_cancelled(at);
                    return;
                }
                let mut content = self.memory.content(offset);
                self.before[page] = Some(content.clone());
                for segment in operation.vector.segments() {
                    content[segment.clone()].copy_from_slice(&bytes[segment]);
                }
                match self.sabotage {
                    Some(Sabotage::HalfWrite) if is_hit => content[PAGE_BYTES / 2..].fill(0),
                    Some(Sabotage::FlippedWrite) if is_hit => content[8] ^= 1,
                    _ => {}
                }
                if operation.vector == Vector::WHOLE {
                    self.lost[page] = false;
                }
                self.is_slow[page] = self.has_tiers && rng.random_range(0..3) == 0;
                self.memory.fill(offset, content);
            }
            What::Read { bytes, into, frames } => {
                if operation.is_cancelled && self.sabotage == Some(Sabotage::LateRead) {
                    // It comes all the same, when another page may have the frame.
                    if let Some(frame) = into {
                        frames.write(frame.offset(), &[0xDD; PAGE_BYTES]);
                    }
                } else if self.lost[page] && self.sabotage != Some(Sabotage::LostAsZeros) {
                    operation.status = Status::Lost;
                } else if into.is_some() {
                    let mut content = self.memory.content(offset);
                    let is_hit = rng.random_range(0..20) == 0;
                    match (self.sabotage, &self.before[page]) {
                        (Some(Sabotage::WrongPage), _) if is_hit && page > 0 => {
                            content = self.memory.content(offset - PAGE_BYTES as u64);
                        }
                        (Some(Sabotage::StaleRead), Some(before)) if is_hit => content = before.clone(),
                        (Some(Sabotage::FlippedRead), _) if is_hit => content[0] ^= 0x80,
                        _ => {}
                    }
                    *bytes = Some(content);
                    // The bytes may be here before the completion is.
                    if !operation.is_cancelled && rng.random_range(0..2) == 0 {
                        let frame = into.expect("a read into a frame");
                        put(frames, frame, operation.vector, bytes.as_ref().expect("just read"));
                    }
                }
            }
        }
        self.forget_if_cancelled(at);
    }

    /// Takes the end of a write that is executed later.
    fn acknowledge_early(&mut self, at: usize) -> Option<Operation> {
        let operation = &mut self.operations[at];
        let What::Write { from, frames, bytes } = &operation.what else { return None };
        let what = What::Write { from: *from, frames: Arc::clone(frames), bytes: bytes.clone() };
        operation.is_cancelled = true;
        let (queue, id, page, vector) = (operation.queue, operation.id, operation.page, operation.vector);
        let (execute_at, done_at) = (operation.execute_at, operation.done_at);
        let (is_executed, is_cancelled, status) = (true, false, Status::Done);
        Some(Operation { queue, id, page, what, vector, execute_at, done_at, status, is_executed, is_cancelled })
    }

    fn forget_if_cancelled(&mut self, at: usize) {
        if self.operations[at].is_cancelled && self.sabotage != Some(Sabotage::CompletionAfterCancel) {
            self.operations.swap_remove(at);
        }
    }

    /// A page goes to the other tier.
    pub(crate) fn move_page(&mut self, page: u64) {
        self.is_slow[page as usize] ^= self.has_tiers;
    }

    /// A discard is given up, and executed at `at` unless a later one of its pages has succeeded by then.
    pub(crate) fn discard_later(&mut self, at: Nanos, start: RemoteAddress, bytes: u64) {
        self.late_discards.push((at, pages_of(start, bytes)));
    }

    /// The range reads as zeros again. What was given up and is of it is over.
    pub(crate) fn discard(&mut self, start: RemoteAddress, bytes: u64) {
        let pages = pages_of(start, bytes);
        self.operations.retain(|operation| !operation.is_cancelled || !pages.contains(&operation.page));
        if self.sabotage != Some(Sabotage::ForgetfulLane) {
            self.forget_discards(&pages);
        }
        self.clear(pages);
    }

    /// A lane holds a request back until the aborts of those before it are answered, so these are never executed.
    fn forget_discards(&mut self, pages: &Range<u64>) {
        self.late_discards.retain(|(_, late)| late.end <= pages.start || pages.end <= late.start);
    }

    fn clear(&mut self, pages: Range<u64>) {
        if self.sabotage == Some(Sabotage::DiscardBeside) && pages.start > 0 {
            self.memory.drop_page(pages.start as usize - 1);
        }
        for page in pages {
            self.before[page as usize] = None;
            self.lost[page as usize] = false;
            self.memory.drop_page(page as usize);
        }
    }
}

fn pages_of(start: RemoteAddress, bytes: u64) -> Range<u64> {
    start.0 / PAGE_BYTES as u64..(start.0 + bytes) / PAGE_BYTES as u64
}

/// Copies the segments of a page into a frame.
fn put(frames: &Memory, frame: FrameIndex, vector: Vector, bytes: &[u8; PAGE_BYTES]) {
    for segment in vector.segments() {
        frames.write(frame.offset() + segment.start as u64, &bytes[segment]);
    }
}

/// A queue pair of the model.
pub(crate) struct Queue {
    number: usize,
    frames: Arc<Memory>,
    outstanding: usize,
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
        step(Step::Effect(50));
        let posted = with(|world| {
            let (far, rng) = (&mut world.far, &mut world.rng);
            if self.outstanding >= far.depth || world.is_hostile && rng.random_range(0..200) == 0 {
                return Err(PostError::Full);
            }
            let is_write = matches!(what, What::Write { .. });
            let mut execute_at = world.now + far.latency / 2 + rng.random_range(0..far.latency);
            let [fails, loses, delays] = if world.is_hostile { [far.fails, far.loses, far.delays] } else { [0; 3] };
            if rng.random_range(0..1000) < delays {
                execute_at += rng.random_range(0..far.late_max);
            }
            if far.is_slow[page as usize] {
                execute_at += far.latency * SLOW_FACTOR;
            }
            let mut done_at = execute_at + far.latency / 2;
            let mut status = Status::Done;
            if far.sabotage == Some(Sabotage::ForgottenCompletion) && rng.random_range(0..50) == 0 {
                done_at = Nanos::MAX;
            }
            if far.sabotage == Some(Sabotage::EarlyAck) && matches!(what, What::Write { .. }) {
                execute_at += 200_000;
            }
            if rng.random_range(0..1000) < fails {
                status = Status::Failed;
            }
            if rng.random_range(0..1000) < loses {
                done_at = Nanos::MAX;
                if rng.random_range(0..2) == 0 {
                    execute_at += rng.random_range(0..far.late_max);
                }
            }
            if is_write {
                let other =
                    |operation: &&Operation| operation.page == page && matches!(operation.what, What::Write { .. });
                if far.operations.iter().filter(other).any(|operation| !operation.is_cancelled) {
                    return Ok(Err(page));
                }
                // What was given up is executed now or never.
                if far.sabotage != Some(Sabotage::Overtaking) {
                    let queue = self.number;
                    let is_given_up = |operation: &Operation| {
                        operation.queue == queue && operation.page == page && operation.is_cancelled
                    };
                    while let Some(at) = far.operations.iter().position(is_given_up) {
                        if rng.random_range(0..2) == 0 && !far.operations[at].is_executed {
                            far.execute(at, rng);
                        } else {
                            far.operations.swap_remove(at);
                        }
                    }
                }
            }
            far.operations.push(Operation {
                queue: self.number,
                id,
                page,
                what,
                vector,
                execute_at,
                done_at,
                status,
                is_executed: false,
                is_cancelled: false,
            });
            Ok(Ok(()))
        });
        match posted? {
            Ok(()) => {
                self.outstanding += 1;
                Ok(())
            }
            Err(page) => violate(format!("two writes of far page {page} are outstanding together")),
        }
    }
}

impl QueuePair for Queue {
    fn post_read_vector(
        &mut self,
        id: WorkId,
        from: RemoteAddress,
        into: ReadInto,
        vector: Vector,
        _now: Nanos,
    ) -> Result<(), PostError> {
        let into = match into {
            ReadInto::Frame(frame) => Some(frame),
            ReadInto::Mapped => None,
        };
        let page = from.0 / PAGE_BYTES as u64;
        say(|| format!("posts read {:#x} of far page {page} into {into:?}", id.0));
        self.post(id, page, What::Read { into, frames: Arc::clone(&self.frames), bytes: None }, vector)
    }

    fn post_write_vector(
        &mut self,
        id: WorkId,
        to: RemoteAddress,
        from: FrameIndex,
        vector: Vector,
        _now: Nanos,
    ) -> Result<(), PostError> {
        let page = to.0 / PAGE_BYTES as u64;
        say(|| format!("posts write {:#x} of frame {} to far page {page}", id.0, from.0));
        let bytes = self.frames.content(from.offset());
        self.post(id, page, What::Write { from, frames: Arc::clone(&self.frames), bytes }, vector)
    }

    fn set_posting(&mut self, _posting: Posting) {}

    fn poll(&mut self, _now: Nanos, completions: &mut Vec<Completion>) {
        step(Step::Point);
        while completions.len() < completions.capacity() {
            let taken = with(|world| {
                let now = world.now;
                let is_early = world.far.sabotage == Some(Sabotage::EarlyAck);
                let is_zombie = world.far.sabotage == Some(Sabotage::CompletionAfterCancel);
                let is_due = |operation: &Operation| {
                    let is_done = (operation.is_executed || is_early) && operation.done_at <= now;
                    operation.queue == self.number && (!operation.is_cancelled || is_zombie) && is_done
                };
                let count = world.far.operations.iter().filter(|operation| is_due(operation)).count();
                // In any order, and some only with a later poll.
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
            });
            let Some(operation) = taken else { return };
            self.outstanding = self.outstanding.saturating_sub(1);
            let (sabotage, is_hit) = (with(|world| world.far.sabotage), below(20) == 0);
            let mut status = operation.status;
            if let What::Read { into: Some(frame), frames, bytes } = &operation.what {
                match (operation.status, bytes) {
                    (Status::Done, Some(_)) if sabotage == Some(Sabotage::MissingBytes) && is_hit => {
                        frames.write(frame.offset(), &[0; PAGE_BYTES]);
                    }
                    (Status::Done, Some(bytes)) if sabotage == Some(Sabotage::WrongFrame) && is_hit => {
                        put(frames, FrameIndex(frame.0 ^ 1), operation.vector, bytes);
                    }
                    (Status::Done, Some(bytes)) => put(frames, *frame, operation.vector, bytes),
                    // What a read that fails leaves in its frame is anything.
                    _ => frames.write(frame.offset(), &[0xEE; 64]),
                }
                if sabotage == Some(Sabotage::FailedAsDone) && status == Status::Failed {
                    status = Status::Done;
                }
            }
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
            let is_read = matches!(far.operations[at].what, What::Read { .. });
            let is_forgotten = is_read && far.sabotage != Some(Sabotage::LateRead);
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
        with(|world| world.far.depth)
    }
}
