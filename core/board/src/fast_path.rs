//! [`FastPath`]: executes reads, writes, atomics, pings and aborts, on a data thread.
//!
//! Cost sketch, for a small read: a checksum of 56 bytes and a SipHash of 8 bytes, about 10 ns each; one bucket of the
//! page table, which is one miss of the cache (about 80 ns) unless it was used lately; the bytes, another; a checksum
//! for the answer. A write adds a cache line to look for its id, three to keep it, and up to three more for the one
//! that it pushes out. Nothing allocates, nothing is locked, and the work is bounded by the bytes of the message: a
//! fragment of 64 KiB touches at most 17 pages.
//!
//! Anything else goes to another path unread, which checks the message itself; but what needs a capability and has none
//! goes nowhere, so that no stranger fills the queue of those that have one.

use std::sync::Arc;

use yonder_wire::{AtomicOperation, Body, Direction, ErrorCode, Header, Kind, Message, PAYLOAD_BYTES_MAX, Rights};

use crate::address::Pid;
use crate::capability::needs_capability;
use crate::node_core::{Memory, NodeCore, PageSource};
use crate::recent::{NodeTime, Party, Recent};
use crate::reply::{Handled, Reply};

/// A data thread's part of a node. A lane's requests all come to one.
#[derive(Debug)]
pub struct FastPath {
    board: Arc<NodeCore>,
    /// What was executed: the word's old value, or 0, or why it was refused.
    recent: Recent<Result<u64, ErrorCode>>,
}

impl FastPath {
    pub(crate) fn new(board: Arc<NodeCore>) -> Self {
        let recent = Recent::new(board.config.recent_max);
        Self { board, recent }
    }

    /// Executes one message, and composes the answer at the start of `reply`. `now` is the node's clock, read after the
    /// message had arrived.
    ///
    /// # Panics
    /// If `reply` has no room for a header.
    #[inline]
    pub fn execute(
        &mut self,
        message: &Message<'_>,
        now: NodeTime,
        memory: &impl Memory,
        pages: &impl PageSource,
        reply: &mut [u8],
    ) -> Handled {
        let header = &message.header;
        if header.direction != Direction::Request || header.kind == Kind::Hello {
            return Handled::Dropped;
        }
        if !is_fast(header) {
            return self.pass_on(message, now, reply);
        }
        let reply = Reply::new(header, now, reply);
        if message.verify().is_err() {
            return reply.refuse(ErrorCode::Corrupt);
        }
        match header.kind {
            Kind::Read => self.read(header, now, memory, pages, reply),
            // Who has no right to the address space leaves no trace: the refusal would be the same every time, and what
            // is remembered of others must not be pushed out by strangers.
            Kind::Abort => match self.board.check(header, Rights::Read, now) {
                Ok(_) => match self.give_up(header, now) {
                    Ok(executed) => reply.answer(executed),
                    Err(code) => reply.refuse(code),
                },
                Err(code) => reply.refuse(code),
            },
            Kind::Write | Kind::Atomic => {
                let board = &self.board;
                let space = match board.check(header, Rights::ReadWrite, now) {
                    Ok(space) => space,
                    Err(code) => return reply.refuse(code),
                };
                match self.recent.once(Party::of(header), header, now, || {
                    change(board, board.present(space)?, message, now, memory, pages)
                }) {
                    Ok(old) if header.kind == Kind::Atomic => {
                        reply.answer_with(header.length, |answer| answer.address = old)
                    }
                    Ok(_) => reply.answer(header.length),
                    Err(code) => reply.refuse(code),
                }
            }
            _ => reply.answer(0),
        }
    }

    fn give_up(&mut self, header: &Header, now: NodeTime) -> Result<u32, ErrorCode> {
        let party = Party::of(header);
        match self.board.may_change(header, now) {
            true => self.recent.abort(party, party.payer(), header, now),
            false => self.recent.was_executed(party, header, now),
        }
    }

    /// Looks whether another path is to see a message.
    #[inline(never)]
    fn pass_on(&self, message: &Message<'_>, now: NodeTime, reply: &mut [u8]) -> Handled {
        let header = &message.header;
        if !needs_capability(header) {
            return Handled::Slow;
        }
        let space = self.board.check(header, Rights::Read, now);
        // What may be repeated is for the present life alone; the rest may have been done in an earlier one, and is
        // answered as it was.
        let space = space.and_then(|space| match header.kind.is_exactly_once() {
            true => Ok(()),
            false => self.board.present(space).map(drop),
        });
        match space {
            Ok(()) => Handled::Slow,
            // Only if it is what its sender has sent.
            Err(_) if message.verify().is_err() => Reply::new(header, now, reply).refuse(ErrorCode::Corrupt),
            Err(code) => Reply::new(header, now, reply).refuse(code),
        }
    }

    /// Bytes that this thread's memory of requests takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.recent.bytes()
    }

    #[inline]
    fn read(
        &self,
        header: &Header,
        now: NodeTime,
        memory: &impl Memory,
        pages: &impl PageSource,
        reply: Reply<'_>,
    ) -> Handled {
        let length = header.length as usize;
        if length > PAYLOAD_BYTES_MAX.min(reply.payload.len()) {
            return reply.refuse(ErrorCode::BadLength);
        }
        let space = self.board.check(header, Rights::Read, now).and_then(|space| self.board.present(space));
        let read = space.and_then(|pid| {
            self.board.heat.touch(pid, header.address, now);
            let access = self.board.access(memory, pages);
            access.read(pid, header.address, &mut reply.payload[..length])
        });
        match read {
            Ok(()) => reply.answer_payload(length),
            Err(code) => reply.refuse(code),
        }
    }
}

/// Whether a data thread executes such a request. A ping with an address space renews its lease, and an abort with a
/// fragment's offset gives up a request of the slow path; both are the slow path's.
#[inline]
pub(crate) fn is_fast(header: &Header) -> bool {
    match header.kind {
        Kind::Ping => header.pid == 0,
        Kind::Abort => header.fragment_offset == 0,
        kind => kind.is_fast(),
    }
}

/// Executes a write or an atomic that has not been executed before. Returns the old value of the word, or 0.
#[inline]
fn change(
    board: &NodeCore,
    pid: Pid,
    message: &Message<'_>,
    now: NodeTime,
    memory: &impl Memory,
    pages: &impl PageSource,
) -> Result<u64, ErrorCode> {
    let header = &message.header;
    board.heat.touch(pid, header.address, now);
    let access = board.access(memory, pages).sent_at(header.time);
    if header.kind == Kind::Write {
        return access.write(pid, header.address, message.payload).map(|()| 0);
    }
    let operation = AtomicOperation::from_bytes(message.payload).map_err(|_| ErrorCode::BadLength)?;
    access.atomic(pid, header.address, operation)
}
