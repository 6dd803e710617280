//! [`ExtendPath`]: admits calls of offloads and answers them, so that each is executed once if it must be.
//!
//! The thread that runs offloads has it. It executes one call after the other, so a copy of a call never meets its
//! first while that is under way. [`path_of`] says which requests are for it.

use std::sync::Arc;

use yonder_units::Narrow;
use yonder_wire::{Direction, ErrorCode, Header, Kind, Message, Rights};

use crate::address::Pid;
use crate::fast_path::is_fast;
use crate::node_core::NodeCore;
use crate::recent::{NodeTime, Party, Recent};
use crate::reply::{Handled, Reply};

/// Most bytes of a call's answer that are remembered, so that the call is executed once.
pub const CALL_RESULT_BYTES_MAX: usize = 64;
/// Operations that are remembered: fewer than a data thread does, for calls are fewer.
const RECENT_DIVISOR: usize = 4;
/// The fragment offset of an abort that is about a call.
const ABORTS_CALL: u32 = 2;

/// Whether a call of an offload may be executed again when the same request arrives again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallEffect {
    /// It may: it changes nothing, or the same again.
    Repeatable,
    /// It must not. Its answer has at most [`CALL_RESULT_BYTES_MAX`] bytes.
    Once,
}

/// Which part of a node a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Path {
    /// A data thread's.
    Fast,
    /// The slow path's.
    Slow,
    /// That of the offloads.
    Extend,
}

/// Which part of a node executes a request.
#[inline]
#[must_use]
pub fn path_of(header: &Header) -> Path {
    match header.kind {
        Kind::Call => Path::Extend,
        Kind::Abort if header.fragment_offset == ABORTS_CALL => Path::Extend,
        _ if is_fast(header) => Path::Fast,
        _ => Path::Slow,
    }
}

/// What is remembered of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CallAnswer {
    bytes: [u8; CALL_RESULT_BYTES_MAX],
    length: u8,
}

impl CallAnswer {
    /// The answer, if it is short enough to be remembered.
    fn new(answer: &[u8]) -> Result<Self, ErrorCode> {
        let mut bytes = [0; CALL_RESULT_BYTES_MAX];
        let room = bytes.get_mut(..answer.len()).ok_or(ErrorCode::OffloadFailed)?;
        room.copy_from_slice(answer);
        Ok(Self { bytes, length: answer.len().narrow_u8() })
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// The part of a board that calls of offloads go through.
#[derive(Debug)]
pub struct ExtendPath {
    board: Arc<NodeCore>,
    recent: Recent<Result<CallAnswer, ErrorCode>>,
}

impl ExtendPath {
    pub(crate) fn new(board: Arc<NodeCore>) -> Self {
        let recent = Recent::new(board.config().recent_max.div_ceil(RECENT_DIVISOR));
        Self { board, recent }
    }

    /// Takes a message. [`Handled::Slow`] means that it is a call to be executed now and to be answered with
    /// [`ExtendPath::answer`] before the next message; else the answer is at the start of `reply`. `is_space` knows
    /// which address spaces there are.
    ///
    /// # Panics
    /// If `reply` has no room for a header.
    pub fn admit(
        &mut self,
        message: &Message<'_>,
        now: NodeTime,
        is_space: impl FnOnce(Pid) -> bool,
        reply: &mut [u8],
    ) -> Handled {
        let header = &message.header;
        if header.direction != Direction::Request {
            return Handled::Dropped;
        }
        let reply = Reply::new(header, now, reply);
        if message.verify().is_err() {
            return reply.refuse(ErrorCode::Corrupt);
        }
        // Who has no right to the address space leaves no trace.
        let space = match self.board.check(header, Rights::ReadWrite, now) {
            Ok(space) => space,
            Err(code) => return reply.refuse(code),
        };
        let (party, present) = (Party::of(header), self.board.present(space));
        match header.kind {
            Kind::Abort => {
                let given_up = match present {
                    Ok(_) => self.recent.abort(party, party.payer(), header, now),
                    // What has no right any more is not executed in any case.
                    Err(_) => self.recent.was_executed(party, header, now),
                };
                match given_up {
                    Ok(executed) => reply.answer(executed),
                    Err(code) => reply.refuse(code),
                }
            }
            Kind::Call => match self.recent.ended(party, header, now).or_else(|| match present {
                Ok(space) => self.refuse(header, now, is_space(space)),
                Err(code) => Some(Err(code)),
            }) {
                None => Handled::Slow,
                Some(result) => answer_with(reply, result.as_ref().map(CallAnswer::bytes).map_err(|code| *code)),
            },
            _ => reply.refuse(ErrorCode::Unsupported),
        }
    }

    /// Composes the answer to a call that was executed. One that is to be executed once, and whose answer is longer
    /// than may be, is answered as failed.
    ///
    /// # Panics
    /// If `reply` has no room for a header, or the call was answered before.
    pub fn answer(
        &mut self,
        message: &Message<'_>,
        now: NodeTime,
        effect: CallEffect,
        result: Result<&[u8], ErrorCode>,
        reply: &mut [u8],
    ) -> Handled {
        let header = &message.header;
        let reply = Reply::new(header, now, reply);
        match effect {
            CallEffect::Repeatable => answer_with(reply, result),
            CallEffect::Once => {
                let kept = result.and_then(CallAnswer::new);
                self.recent.keep(Party::of(header), header, kept, now);
                answer_with(reply, kept.as_ref().map(CallAnswer::bytes).map_err(|code| *code))
            }
        }
    }

    /// Why a call that was not executed may not be, if it may not.
    fn refuse(&mut self, header: &Header, now: NodeTime, is_space: bool) -> Option<Result<CallAnswer, ErrorCode>> {
        if is_space {
            return None;
        }
        let refused = Err(ErrorCode::BadCapability);
        self.recent.keep(Party::of(header), header, refused, now);
        Some(refused)
    }
}

fn answer_with(reply: Reply<'_>, result: Result<&[u8], ErrorCode>) -> Handled {
    match result {
        Ok(bytes) if bytes.len() <= reply.payload.len() => {
            reply.payload[..bytes.len()].copy_from_slice(bytes);
            reply.answer_payload(bytes.len())
        }
        Ok(_) => reply.refuse(ErrorCode::BadLength),
        Err(code) => reply.refuse(code),
    }
}
