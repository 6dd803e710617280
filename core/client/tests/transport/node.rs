//! [`Node`]: a model of a memory node that executes real messages, as simple as can be.
//!
//! One address space of [`MEMORY_BYTES`], one data thread. It remembers a bounded number of requests that must not be
//! executed twice, and apart from that everything it ever executed, for the tests to look at.

use std::collections::{HashMap, VecDeque};

use yonder_wire::{AtomicOperation, Body, ErrorCode, Header, Kind, Message, NodeStatus, split};

/// Bytes of the only address space.
pub(crate) const MEMORY_BYTES: usize = 4096;
/// Its number.
pub(crate) const PID: u32 = 7;
/// The right to it.
pub(crate) const CAPABILITY: u128 = 0x00c0_ffee;
/// Number of the only offload, which returns its arguments.
pub(crate) const OFFLOAD: u64 = 3;

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deed {
    /// It was executed; the word before, if it was an atomic.
    Executed(u64),
    /// It never will be.
    Refused(ErrorCode),
}

pub(crate) struct Node {
    pub(crate) memory: Vec<u8>,
    /// Requests executed, in order, by the name of their first attempt.
    pub(crate) executions: Vec<(u64, Kind)>,
    recent: HashMap<u64, Deed>,
    order: VecDeque<(u64, u64)>,
    recent_max: usize,
    forgotten_until: Option<u64>,
    /// What its clock says when the client's says 0.
    clock_start: u64,
    /// Refuse the next request for this reason, which may pass.
    pub(crate) short_of: Option<ErrorCode>,
}

impl Node {
    pub(crate) fn new(recent_max: usize, clock_start: u64) -> Self {
        Self {
            memory: vec![0; MEMORY_BYTES],
            executions: Vec::new(),
            recent: HashMap::new(),
            order: VecDeque::new(),
            recent_max,
            forgotten_until: None,
            clock_start,
            short_of: None,
        }
    }

    /// Its clock, which runs slower than the client's.
    pub(crate) fn clock(&self, now: u64) -> u64 {
        self.clock_start + now - now / 2000
    }

    pub(crate) fn executions_of(&self, first_id: u64) -> usize {
        self.executions.iter().filter(|(id, _)| *id == first_id).count()
    }

    /// The answer to a message.
    pub(crate) fn handle(&mut self, bytes: &[u8], now: u64) -> Option<Vec<u8>> {
        let message = split(bytes).ok()??;
        let time = self.clock(now);
        if message.verify().is_err() {
            return Some(sealed(&message.header.refusal(time, ErrorCode::Corrupt), &[]));
        }
        if let Some(code) = self.short_of.take() {
            return Some(sealed(&message.header.refusal(time, code), &[]));
        }
        Some(self.answer(&message, time))
    }

    fn answer(&mut self, message: &Message<'_>, time: u64) -> Vec<u8> {
        let header = &message.header;
        if header.kind.is_exactly_once() {
            let deed = match self.recent.get(&header.first_id) {
                Some(deed) => *deed,
                None if self.forgotten_until.is_some_and(|until| header.time <= until) => {
                    Deed::Refused(ErrorCode::TooOld)
                }
                None => self.execute_and_record(message, time),
            };
            return confirm(header, deed, message.payload, time);
        }
        match header.kind {
            Kind::Read => match self.range(header) {
                Some(range) => {
                    self.executions.push((header.first_id, Kind::Read));
                    sealed(&header.answer(time, header.length), &self.memory[range])
                }
                None => sealed(&header.refusal(time, ErrorCode::BadAddress), &[]),
            },
            Kind::Ping => sealed(&header.answer(time, 0), &[]),
            Kind::Status => {
                let mut body = [0; NodeStatus::BYTES];
                let bytes = MEMORY_BYTES as u64;
                NodeStatus { memory_bytes: bytes, free_bytes: 0, allocated_bytes: bytes, spaces: 1 }
                    .write_to(&mut body);
                sealed(&header.answer(time, body.len() as u32), &body)
            }
            _ => sealed(&header.refusal(time, ErrorCode::Unsupported), &[]),
        }
    }

    fn execute_and_record(&mut self, message: &Message<'_>, time: u64) -> Deed {
        let header = &message.header;
        let deed = if header.kind == Kind::Abort { Deed::Refused(ErrorCode::Aborted) } else { self.execute(message) };
        if matches!(deed, Deed::Executed(_)) {
            self.executions.push((header.first_id, header.kind));
        }
        if self.order.len() == self.recent_max
            && let Some((forgotten, executed)) = self.order.pop_front()
        {
            self.recent.remove(&forgotten);
            self.forgotten_until = self.forgotten_until.max(Some(executed));
        }
        self.recent.insert(header.first_id, deed);
        self.order.push_back((header.first_id, time));
        deed
    }

    fn execute(&mut self, message: &Message<'_>) -> Deed {
        let header = &message.header;
        if header.kind == Kind::Call {
            let code = if header.address == OFFLOAD { None } else { Some(ErrorCode::NoOffload) };
            return code.map_or(Deed::Executed(0), Deed::Refused);
        }
        if (header.pid, header.capability) != (PID, CAPABILITY) {
            return Deed::Refused(ErrorCode::BadCapability);
        }
        let Some(range) = self.range(header) else { return Deed::Refused(ErrorCode::BadAddress) };
        match header.kind {
            Kind::Write => self.memory[range].copy_from_slice(message.payload),
            Kind::Discard => self.memory[range].fill(0),
            Kind::Atomic => {
                let operation = AtomicOperation::from_bytes(message.payload).unwrap();
                let word = &mut self.memory[header.address as usize..][..8];
                let old = u64::from_le_bytes(word.try_into().unwrap());
                word.copy_from_slice(&operation.apply(old).to_le_bytes());
                return Deed::Executed(old);
            }
            _ => return Deed::Refused(ErrorCode::Unsupported),
        }
        Deed::Executed(0)
    }

    fn range(&self, header: &Header) -> Option<std::ops::Range<usize>> {
        let (start, length) = (header.address as usize, header.length as usize);
        (start.checked_add(length)? <= self.memory.len()).then(|| start..start + length)
    }
}

fn confirm(header: &Header, deed: Deed, arguments: &[u8], time: u64) -> Vec<u8> {
    match (header.kind, deed) {
        (Kind::Abort, Deed::Refused(ErrorCode::TooOld)) => sealed(&header.refusal(time, ErrorCode::TooOld), &[]),
        (Kind::Abort, deed) => sealed(&header.answer(time, u32::from(matches!(deed, Deed::Executed(_)))), &[]),
        (_, Deed::Refused(code)) => sealed(&header.refusal(time, code), &[]),
        (Kind::Atomic, Deed::Executed(old)) => sealed(&Header { address: old, ..header.answer(time, 0) }, &[]),
        (Kind::Call, Deed::Executed(_)) => sealed(&header.answer(time, arguments.len() as u32), arguments),
        (_, Deed::Executed(_)) => sealed(&header.answer(time, 0), &[]),
    }
}

/// A message as it goes on the wire.
pub(crate) fn sealed(header: &Header, payload: &[u8]) -> Vec<u8> {
    [&header.seal(payload)[..], payload].concat()
}
