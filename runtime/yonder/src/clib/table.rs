//! [`Table`]: the asynchronous operations of a thread, their buffers, and what became of them.
//!
//! A buffer belongs to the table from the call to the moment when its owner takes the result, so that nothing else can
//! touch it meanwhile. Allocations and releases have no buffer; the table keeps what they are answered. Synchronous
//! operations use slices of their callers instead, under a token of their own.

use yonder_client::{Completion, OperationId, Outcome};
use yonder_fabric::lane::Data;
use yonder_placement::NodeId;
use yonder_units::Narrow;
use yonder_wire::{AllocateRequest, Body, Header, Kind};

use super::ClibError;
use super::allocate::Allocation;
use super::flows::Request;

/// Memory that an asynchronous operation reads from or into.
pub trait Buffer {
    /// Bytes in it.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes from `offset` into `into`.
    fn copy_out(&self, offset: usize, into: &mut [u8]);

    /// Replaces the bytes from `offset` by `from`.
    fn copy_in(&mut self, offset: usize, from: &[u8]);
}

impl Buffer for Vec<u8> {
    fn len(&self) -> usize {
        self.len()
    }

    fn copy_out(&self, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self[offset..offset + into.len()]);
    }

    fn copy_in(&mut self, offset: usize, from: &[u8]) {
        self[offset..offset + from.len()].copy_from_slice(from);
    }
}

/// What an asynchronous operation has come to.
#[derive(Debug)]
pub struct Completed<B> {
    /// Its buffer: what was read, or what was to be written.
    pub buffer: B,
    /// Whether it was done.
    pub result: Result<(), ClibError>,
}

/// The token of the synchronous operation, of which a thread has one at a time.
pub(super) const SYNCHRONOUS: u64 = u64::MAX;

/// Name of an entry of the table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Index {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

#[derive(Debug)]
struct Entry<B> {
    generation: u32,
    state: State<B>,
}

#[derive(Debug)]
enum State<B> {
    Free,
    Pending { content: Content<B>, id: Option<OperationId>, asked: Asked },
    Done { content: Content<B>, outcome: Outcome },
}

/// What an asynchronous operation has.
#[derive(PartialEq, Eq, Debug)]
pub enum Content<B> {
    /// It reads into this, or writes it.
    Buffer(B),
    /// It allocates.
    Allocation(Allocation),
    /// It frees.
    Free,
}

impl<B: Buffer> Content<B> {
    /// The request for what was asked. What it carries is put into `body`.
    pub(super) fn request<'a>(&self, asked: &Asked, body: &'a mut [u8; AllocateRequest::BYTES]) -> Request<'a> {
        let Asked { kind, address, .. } = *asked;
        match self {
            Self::Buffer(buffer) => Request::at(kind, address, buffer.len() as u64),
            Self::Allocation(allocation) => allocation.request(body),
            Self::Free => Request::at(kind, address, 0),
        }
    }
}

/// What a pending operation has asked, and of whom: to ask again when that has moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) kind: Kind,
    pub(super) address: u64,
    pub(super) node: Option<NodeId>,
    /// Position in the order of calls.
    pub(super) order: u64,
    /// How often it was refused for where it was asked.
    pub(super) moves: u32,
}

/// The asynchronous operations of a thread.
#[derive(Debug)]
pub(super) struct Table<B> {
    entries: Vec<Entry<B>>,
    free: Vec<u32>,
}

/// The caller's memory of the synchronous operation.
pub(super) enum Slice<'a> {
    /// It reads into this.
    Into(&'a mut [u8]),
    /// It writes this.
    From(&'a [u8]),
    /// It is answered by a message, whose payload is kept here.
    Answer { arguments: &'a [u8], answer: &'a mut Option<(Header, Vec<u8>)> },
}

impl Slice<'_> {
    /// The same memory, for a shorter time.
    pub(super) fn reborrow(&mut self) -> Slice<'_> {
        match self {
            Self::Into(into) => Slice::Into(into),
            Self::From(from) => Slice::From(from),
            Self::Answer { arguments, answer } => Slice::Answer { arguments, answer },
        }
    }
}

/// All memory that a lane may ask for while it is polled.
pub(super) struct Memory<'a, B> {
    pub(super) table: &'a mut Table<B>,
    pub(super) slice: Slice<'a>,
}

impl<B: Buffer> Table<B> {
    /// Room for `capacity` operations.
    pub(super) fn new(capacity: usize) -> Self {
        let entries = (0..capacity).map(|_| Entry { generation: 0, state: State::Free }).collect();
        Self { entries, free: (0..capacity.narrow_u32()).rev().collect() }
    }

    /// How many operations fit.
    pub(super) fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Whether no other operation fits.
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Operations that are pending or whose result was not taken.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Takes an operation in; gives what it has back if there is no room.
    pub(super) fn insert(&mut self, content: Content<B>, asked: Asked) -> Result<Index, Content<B>> {
        let Some(slot) = self.free.pop() else { return Err(content) };
        let entry = &mut self.entries[slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.state = State::Pending { content, id: None, asked };
        Ok(Index { slot, generation: entry.generation })
    }

    /// Takes an operation in that has ended already; gives what it has back if there is no room.
    pub(super) fn insert_done(&mut self, content: Content<B>, outcome: Outcome) -> Result<Index, Content<B>> {
        let Some(slot) = self.free.pop() else { return Err(content) };
        let entry = &mut self.entries[slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.state = State::Done { content, outcome };
        Ok(Index { slot, generation: entry.generation })
    }

    /// Notes that a lane to `node` has the operation, and under which name.
    pub(super) fn submitted(&mut self, slot: u32, submitted: OperationId, node: Option<NodeId>) {
        let State::Pending { id, asked, .. } = &mut self.entries[slot as usize].state else {
            panic!("what has ended is not submitted");
        };
        (*id, asked.node) = (Some(submitted), node);
    }

    /// It was refused for where it was asked, so many times with this one.
    pub(super) fn count_move(&mut self, slot: u32) -> u32 {
        let State::Pending { asked, .. } = &mut self.entries[slot as usize].state else {
            panic!("only what is pending is refused");
        };
        asked.moves += 1;
        asked.moves
    }

    /// What a pending operation has asked, and has.
    pub(super) fn asked(&self, slot: u32) -> (&Asked, &Content<B>) {
        let State::Pending { content, asked, .. } = &self.entries[slot as usize].state else {
            panic!("only what is pending is asked for again");
        };
        (asked, content)
    }

    /// The same of one that allocates, to ask for something else; `None` of another one.
    pub(super) fn allocation(&mut self, slot: u32) -> Option<(&mut Asked, &mut Allocation)> {
        match &mut self.entries[slot as usize].state {
            State::Pending { content: Content::Allocation(allocation), asked, .. } => Some((asked, allocation)),
            _ => None,
        }
    }

    /// Ends a pending operation that no lane has.
    pub(super) fn end(&mut self, slot: u32, outcome: Outcome) {
        let entry = &mut self.entries[slot as usize];
        match std::mem::replace(&mut entry.state, State::Free) {
            State::Pending { content, .. } => entry.state = State::Done { content, outcome },
            State::Free | State::Done { .. } => panic!("only what is pending ends"),
        }
    }

    /// Takes an operation out again that the lane has not taken.
    pub(super) fn withdraw(&mut self, index: Index) -> Content<B> {
        match std::mem::replace(&mut self.entries[index.slot as usize].state, State::Free) {
            State::Pending { content, .. } => {
                self.free.push(index.slot);
                content
            }
            State::Free | State::Done { .. } => panic!("only what is pending is withdrawn"),
        }
    }

    /// Notes what an operation has come to.
    pub(super) fn complete(&mut self, completion: &Completion) {
        let entry = &mut self.entries[completion.token.narrow_usize()];
        match std::mem::replace(&mut entry.state, State::Free) {
            State::Pending { content, id, .. } => {
                assert_eq!(id, Some(completion.id), "a completion of another operation");
                entry.state = State::Done { content, outcome: completion.outcome };
            }
            State::Free | State::Done { .. } => panic!("a completion of what is not pending"),
        }
    }

    /// The result of an operation, once it has one; `None` while it is pending.
    ///
    /// # Panics
    /// If the result was taken before.
    pub(super) fn take(&mut self, index: Index) -> Option<(Content<B>, Outcome)> {
        let entry = &mut self.entries[index.slot as usize];
        assert!(entry.generation == index.generation, "the result of an operation is taken once");
        match std::mem::replace(&mut entry.state, State::Free) {
            State::Done { content, outcome } => {
                self.free.push(index.slot);
                Some((content, outcome))
            }
            pending @ State::Pending { .. } => {
                entry.state = pending;
                None
            }
            State::Free => panic!("the result of an operation is taken once"),
        }
    }

    /// Whether any operation has no result yet.
    pub(super) fn has_pending(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry.state, State::Pending { .. }))
    }

    fn buffer(&mut self, token: u64) -> &mut B {
        match &mut self.entries[token.narrow_usize()].state {
            State::Pending { content: Content::Buffer(buffer), .. } => buffer,
            State::Pending { .. } => panic!("the lane uses a buffer of an operation that has none"),
            State::Free | State::Done { .. } => panic!("the lane uses the buffer of an operation that is over"),
        }
    }
}

impl<B: Buffer> Data for Memory<'_, B> {
    fn copy_out(&mut self, token: u64, offset: u64, into: &mut [u8]) {
        let offset = offset.narrow_usize();
        if token != SYNCHRONOUS {
            return self.table.buffer(token).copy_out(offset, into);
        }
        let (Slice::From(bytes) | Slice::Answer { arguments: bytes, .. }) = &self.slice else {
            panic!("a read has nothing to send");
        };
        into.copy_from_slice(&bytes[offset..offset + into.len()]);
    }

    fn copy_in(&mut self, token: u64, offset: u64, bytes: &[u8]) {
        let offset = offset.narrow_usize();
        if token != SYNCHRONOUS {
            return self.table.buffer(token).copy_in(offset, bytes);
        }
        let Slice::Into(into) = &mut self.slice else { panic!("a write has nothing to receive") };
        into[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn answer(&mut self, token: u64, header: &Header, payload: &[u8]) {
        if token != SYNCHRONOUS {
            // A release is answered too, by nothing that anybody needs.
            if let Some((_, allocation)) = self.table.allocation(token.narrow_u32()) {
                allocation.address = header.address;
            }
            return;
        }
        let Slice::Answer { answer, .. } = &mut self.slice else { panic!("an answer to nothing that was asked") };
        **answer = Some((*header, payload.to_vec()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Asked = Asked { kind: Kind::Read, address: 0, node: None, order: 0, moves: 0 };

    #[test]
    fn a_table_is_bounded_and_results_are_taken_once() {
        let buffer = |byte: u8| Content::Buffer(vec![byte]);
        let mut table = Table::new(1);
        let index = table.insert(buffer(1), ASKED).unwrap();
        assert!(table.is_full());
        assert_eq!((table.insert(buffer(2), ASKED), table.len()), (Err(buffer(2)), 1));
        assert!(table.take(index).is_none() && table.has_pending());
        assert_eq!(table.withdraw(index), buffer(1));
        let again = table.insert(buffer(3), ASKED).unwrap();
        assert_ne!(index, again);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| table.take(index))).is_err());
        table.end(again.slot, Outcome::Done);
        assert_eq!(table.take(again), Some((buffer(3), Outcome::Done)));
    }
}
