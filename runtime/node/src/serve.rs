//! [`Server`]: what a data thread does with one request, whatever it came through.

use std::sync::Arc;

use yonder_board::{AccountNumber, FastPath, Handled, Path, is_for_tenant, may_be_put_off, path_of};
use yonder_mapping::MapError;
use yonder_units::{Nanos, Narrow};
use yonder_wire::{Body, CODE_AT, Direction, ErrorCode, Greeting, HEADER_BYTES, Header, Kind, Message, Welcome};

use crate::Shared;
use crate::forward::AnswerTo;
use crate::gate::{Gate, Wrap};
use crate::quiescence::ReadGuard;
use crate::stats::Batch;

/// A data thread's part of the board.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) shared: Arc<Shared>,
    fast: FastPath,
    pub(crate) gate: Gate,
    /// Number of the thread among those that visit the page table.
    visitor: usize,
}

/// Whose request it is, and how its answer goes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) wrap: Wrap,
    pub(crate) account: AccountNumber,
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Served {
    /// This many bytes of answer have been composed.
    Answered(usize),
    /// Another thread will answer.
    Forwarded,
    /// It is no request.
    NotARequest,
}

impl Server {
    pub(crate) fn new(shared: Arc<Shared>, visitor: usize) -> Result<Self, MapError> {
        let (fast, gate) = (shared.board.fast_path(), Gate::new(&shared.doors, visitor)?);
        Ok(Self { shared, fast, gate, visitor })
    }

    /// Number of the thread.
    pub(crate) fn number(&self) -> usize {
        self.visitor
    }

    /// Begins a batch of requests.
    pub(crate) fn begin(shared: &Shared, visitor: usize) -> ReadGuard<'_> {
        shared.quiet.visit(visitor)
    }

    /// Executes one request, inside a batch, and composes the answer at the start of `reply`. A request for another
    /// thread is refused as busy if `answer_to` has no place for its answer.
    #[inline]
    pub(crate) fn serve(
        &mut self,
        message: &Message<'_>,
        reply: &mut [u8],
        batch: &mut Batch,
        asker: Asker,
        answer_to: impl FnOnce() -> Option<AnswerTo>,
    ) -> Served {
        let now = yonder_clock::now();
        let served = self.serve_at(message, now, reply, batch, asker, answer_to);
        if let Served::Answered(_) | Served::Forwarded = served {
            let answer = if let Served::Answered(bytes) = served { bytes } else { 0 };
            batch.spend(asker.account, message.bytes() + answer, self.shared.board.accounts(), now);
        }
        served
    }

    #[inline]
    fn serve_at(
        &mut self,
        message: &Message<'_>,
        now: Nanos,
        reply: &mut [u8],
        batch: &mut Batch,
        asker: Asker,
        answer_to: impl FnOnce() -> Option<AnswerTo>,
    ) -> Served {
        let request = &message.header;
        // What one tenant has is of no use to another.
        let tenant = asker.wrap.tenant();
        if tenant.is_some_and(|tenant| !is_for_tenant(request.capability, tenant))
            && request.direction == Direction::Request
        {
            batch.answered(request, ErrorCode::BadCapability as u16);
            return Served::Answered(refuse(request, now, ErrorCode::BadCapability, reply));
        }
        if request.kind == Kind::Hello && request.direction == Direction::Request {
            return self.welcome(message, now, reply, batch);
        }
        match self.fast.execute(message, now, &self.shared.memory, &self.shared.memory, reply) {
            Handled::Reply(bytes) => {
                batch.answered(request, code_of(reply));
                Served::Answered(bytes)
            }
            Handled::Slow => self.forward(message, now, reply, batch, asker.account, answer_to()),
            Handled::Dropped => Served::NotARequest,
        }
    }

    /// Wakes the slow path if first writes have taken many pages.
    pub(crate) fn end_batch(&self, batch: &mut Batch) {
        self.shared.counters.add(batch);
        batch.settle(self.shared.board.accounts(), yonder_clock::now());
        if self.shared.memory.ring_wants(self.shared.board.free_pages()) {
            self.shared.slow.wake();
        }
    }

    fn forward(
        &self,
        message: &Message<'_>,
        now: Nanos,
        reply: &mut [u8],
        batch: &mut Batch,
        account: AccountNumber,
        answer_to: Option<AnswerTo>,
    ) -> Served {
        let queue = match path_of(&message.header) {
            Path::Extend => &self.shared.extend.queue,
            Path::Fast | Path::Slow => &self.shared.slow,
        };
        // A region whose memory a client reaches by itself never moves: only one that can may ask.
        let is_of_use = |answer_to: &AnswerTo| message.header.kind != Kind::Translate || answer_to.peer().is_some();
        let code = match answer_to {
            Some(answer_to) if !is_of_use(&answer_to) => ErrorCode::Unsupported,
            // Only nodes move regions.
            Some(answer_to) if message.header.kind == Kind::Adopt && answer_to.is_of_tenant() => ErrorCode::NotAllowed,
            Some(_)
                if may_be_put_off(&message.header) && !self.shared.board.accounts().get(account).admits_work(now) =>
            {
                self.shared.board.accounts().get(account).shed(1);
                ErrorCode::Busy
            }
            Some(answer_to) => {
                if queue.put(message, answer_to) {
                    return Served::Forwarded;
                }
                ErrorCode::Busy
            }
            None => ErrorCode::Busy,
        };
        batch.answered(&message.header, code as u16);
        Served::Answered(refuse(&message.header, now, code, reply))
    }

    fn welcome(&self, message: &Message<'_>, now: u64, reply: &mut [u8], batch: &mut Batch) -> Served {
        let is_right = message.verify().is_ok() && Greeting::from_bytes(message.payload).is_ok();
        let bytes = if is_right {
            compose_welcome(&message.header, now, &self.shared.welcome(self.visitor.narrow_u32()), reply)
        } else {
            refuse(&message.header, now, ErrorCode::Corrupt, reply)
        };
        batch.answered(&message.header, code_of(reply));
        Served::Answered(bytes)
    }
}

/// Why a composed answer refuses, as [`ErrorCode`] is numbered; 0 if it does not.
#[inline]
pub(crate) fn code_of(answer: &[u8]) -> u16 {
    u16::from_le_bytes(answer[CODE_AT].try_into().expect("two bytes"))
}

/// Composes the refusal of `request`, and returns its length.
pub(crate) fn refuse(request: &Header, now: u64, code: ErrorCode, reply: &mut [u8]) -> usize {
    reply[..HEADER_BYTES].copy_from_slice(&request.refusal(now, code).seal(&[]));
    HEADER_BYTES
}

/// Composes the answer to a greeting, and returns its length.
pub(crate) fn compose_welcome(hello: &Header, now: u64, welcome: &Welcome, reply: &mut [u8]) -> usize {
    let (head, rest) = reply.split_at_mut(HEADER_BYTES);
    let payload = &mut rest[..Welcome::BYTES];
    welcome.write_to(payload);
    head.copy_from_slice(&hello.answer(now, Welcome::BYTES.narrow_u32()).seal(payload));
    HEADER_BYTES + Welcome::BYTES
}
