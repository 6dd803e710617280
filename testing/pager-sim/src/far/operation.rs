//! [`Operation`]: a read or a write that is under way, and what becomes of it on the far side.

use std::sync::Arc;

use rand::Rng;
use rand::rngs::SmallRng;
use yonder_pager::{Status, Vector, WorkId};
use yonder_units::{FrameIndex, Nanos, PAGE_BYTES};

use super::Far;
use crate::memory::{Bytes, Memory};
use crate::sabotage::Sabotage;

pub(super) struct Operation {
    pub(super) queue: usize,
    pub(super) id: WorkId,
    pub(super) page: u64,
    pub(super) what: What,
    pub(super) vector: Vector,
    pub(super) execute_at: Nanos,
    /// When its completion is there; never, if that is lost.
    pub(super) done_at: Nanos,
    pub(super) status: Status,
    pub(super) is_executed: bool,
    pub(super) is_cancelled: bool,
}

pub(super) enum What {
    Read { into: Option<FrameIndex>, frames: Arc<Memory>, bytes: Option<Bytes> },
    Write { from: FrameIndex, frames: Arc<Memory>, bytes: Bytes },
}

impl Operation {
    pub(super) fn is_write(&self) -> bool {
        matches!(self.what, What::Write { .. })
    }
}

impl Far {
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

    pub(super) fn execute(&mut self, at: usize, rng: &mut SmallRng) {
        self.operations[at].is_executed = true;
        if self.comes_through(at, rng) {
            self.executed += 1;
            if self.operations[at].is_write() {
                self.write(at, rng);
            } else {
                self.read(at, rng);
            }
        }
        self.forget_if_cancelled(at);
    }

    /// Whether an operation reaches its page. A write that fails may have been executed all the same.
    fn comes_through(&mut self, at: usize, rng: &mut SmallRng) -> bool {
        let (page, due) = (self.operations[at].page as usize, self.operations[at].execute_at);
        let is_down = self.is_down(due) || self.is_slow[page] && due < self.slow_down_until;
        let operation = &mut self.operations[at];
        if is_down {
            operation.status = Status::Disconnected;
        }
        operation.status == Status::Done || operation.is_write() && !is_down && rng.random_range(0..2) > 0
    }

    fn write(&mut self, at: usize, rng: &mut SmallRng) {
        let operation = &self.operations[at];
        let What::Write { from, frames, bytes } = &operation.what else { unreachable!("it is a write") };
        let page = operation.page as usize;
        let offset = (page * PAGE_BYTES) as u64;
        if !operation.is_cancelled && *frames.content(from.offset()) != **bytes {
            self.violation.get_or_insert(format!("frame {} changed while it was written to far page {page}", from.0));
        }
        let is_hit = rng.random_range(0..10) == 0;
        if self.sabotage == Some(Sabotage::LostWrite) && is_hit {
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

    fn read(&mut self, at: usize, rng: &mut SmallRng) {
        let operation = &mut self.operations[at];
        let What::Read { bytes, into, frames } = &mut operation.what else { unreachable!("it is a read") };
        let page = operation.page as usize;
        if operation.is_cancelled && self.sabotage == Some(Sabotage::LateRead) {
            // It comes all the same, when another page may have the frame.
            if let Some(frame) = into {
                frames.write(frame.offset(), &[0xDD; PAGE_BYTES]);
            }
        } else if self.lost[page] && self.sabotage != Some(Sabotage::LostAsZeros) {
            operation.status = Status::Lost;
        } else if let Some(frame) = *into {
            let offset = (page * PAGE_BYTES) as u64;
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
            // The bytes may be here before the completion is.
            if !operation.is_cancelled && rng.random_range(0..2) == 0 {
                put(frames, frame, operation.vector, &content);
            }
            *bytes = Some(content);
        }
    }

    /// Takes the end of a write that is executed later.
    pub(super) fn acknowledge_early(&mut self, at: usize) -> Option<Operation> {
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
}

/// Copies the segments of a page into a frame.
pub(super) fn put(frames: &Memory, frame: FrameIndex, vector: Vector, bytes: &[u8; PAGE_BYTES]) {
    for segment in vector.segments() {
        frames.write(frame.offset() + segment.start as u64, &bytes[segment]);
    }
}
