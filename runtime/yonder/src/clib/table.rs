//! [`Table`]: the asynchronous operations of a thread, their buffers, and what became of them.
//!
//! A buffer belongs to the table from the call to the moment when its owner takes the result, so that nothing else can
//! touch it meanwhile. Synchronous operations use slices of their callers instead, under a token of their own.

use yonder_client::{Completion, OperationId, Outcome};
use yonder_fabric::lane::Data;
use yonder_placement::NodeId;
use yonder_wire::{Header, Kind};

use super::ClibError;

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
pub(super) struct Index {
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
    Pending { buffer: B, id: Option<OperationId>, asked: Asked },
    Done { buffer: B, outcome: Outcome },
}

/// What a pending operation has asked, and of whom: to ask again when that has moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) kind: Kind,
    pub(super) address: u64,
    pub(super) node: Option<NodeId>,
    /// Position in the order of calls.
    pub(super) order: u64,
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
        Self { entries, free: (0..capacity as u32).rev().collect() }
    }

    /// How many operations fit.
    pub(super) fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Operations that are pending or whose result was not taken.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Takes a buffer in; gives it back if there is no room.
    pub(super) fn insert(&mut self, buffer: B, asked: Asked) -> Result<Index, B> {
        let Some(slot) = self.free.pop() else { return Err(buffer) };
        let entry = &mut self.entries[slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.state = State::Pending { buffer, id: None, asked };
        Ok(Index { slot, generation: entry.generation })
    }

    /// Takes a buffer in whose operation has ended already; gives it back if there is no room.
    pub(super) fn insert_done(&mut self, buffer: B, outcome: Outcome) -> Result<Index, B> {
        let Some(slot) = self.free.pop() else { return Err(buffer) };
        let entry = &mut self.entries[slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.state = State::Done { buffer, outcome };
        Ok(Index { slot, generation: entry.generation })
    }

    /// Notes that a lane to `node` has the operation, and under which name.
    pub(super) fn submitted(&mut self, slot: u32, submitted: OperationId, node: Option<NodeId>) {
        let State::Pending { id, asked, .. } = &mut self.entries[slot as usize].state else {
            panic!("what has ended is not submitted");
        };
        (*id, asked.node) = (Some(submitted), node);
    }

    /// What a pending operation has asked, and how many bytes it is about.
    pub(super) fn asked(&self, slot: u32) -> (Asked, u64) {
        let State::Pending { buffer, asked, .. } = &self.entries[slot as usize].state else {
            panic!("only what is pending is asked for again");
        };
        (*asked, buffer.len() as u64)
    }

    /// Ends a pending operation that no lane has.
    pub(super) fn end(&mut self, slot: u32, outcome: Outcome) {
        let entry = &mut self.entries[slot as usize];
        match std::mem::replace(&mut entry.state, State::Free) {
            State::Pending { buffer, .. } => entry.state = State::Done { buffer, outcome },
            State::Free | State::Done { .. } => panic!("only what is pending ends"),
        }
    }

    /// Takes an operation out again that the lane has not taken.
    pub(super) fn withdraw(&mut self, index: Index) -> B {
        match std::mem::replace(&mut self.entries[index.slot as usize].state, State::Free) {
            State::Pending { buffer, .. } => {
                self.free.push(index.slot);
                buffer
            }
            State::Free | State::Done { .. } => panic!("only what is pending is withdrawn"),
        }
    }

    /// Notes what an operation has come to.
    pub(super) fn complete(&mut self, completion: &Completion) {
        let entry = &mut self.entries[completion.token as usize];
        match std::mem::replace(&mut entry.state, State::Free) {
            State::Pending { buffer, id, .. } => {
                assert_eq!(id, Some(completion.id), "a completion of another operation");
                entry.state = State::Done { buffer, outcome: completion.outcome };
            }
            State::Free | State::Done { .. } => panic!("a completion of what is not pending"),
        }
    }

    /// The result of an operation, once it has one; `None` while it is pending.
    ///
    /// # Panics
    /// If the result was taken before.
    pub(super) fn take(&mut self, index: Index) -> Option<(B, Outcome)> {
        let entry = &mut self.entries[index.slot as usize];
        assert!(entry.generation == index.generation, "the result of an operation is taken once");
        match std::mem::replace(&mut entry.state, State::Free) {
            State::Done { buffer, outcome } => {
                self.free.push(index.slot);
                Some((buffer, outcome))
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
        match &mut self.entries[token as usize].state {
            State::Pending { buffer, .. } => buffer,
            State::Free | State::Done { .. } => panic!("the lane uses the buffer of an operation that is over"),
        }
    }
}

impl<B: Buffer> Data for Memory<'_, B> {
    fn copy_out(&mut self, token: u64, offset: u64, into: &mut [u8]) {
        let offset = offset as usize;
        if token != SYNCHRONOUS {
            return self.table.buffer(token).copy_out(offset, into);
        }
        let (Slice::From(bytes) | Slice::Answer { arguments: bytes, .. }) = &self.slice else {
            panic!("a read has nothing to send");
        };
        into.copy_from_slice(&bytes[offset..offset + into.len()]);
    }

    fn copy_in(&mut self, token: u64, offset: u64, bytes: &[u8]) {
        let offset = offset as usize;
        if token != SYNCHRONOUS {
            return self.table.buffer(token).copy_in(offset, bytes);
        }
        let Slice::Into(into) = &mut self.slice else { panic!("a write has nothing to receive") };
        into[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn answer(&mut self, _token: u64, header: &Header, payload: &[u8]) {
        let Slice::Answer { answer, .. } = &mut self.slice else { panic!("an answer to nothing that was asked") };
        **answer = Some((*header, payload.to_vec()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Asked = Asked { kind: Kind::Read, address: 0, node: None, order: 0 };

    #[test]
    fn a_table_is_bounded_and_results_are_taken_once() {
        let mut table = Table::new(1);
        let index = table.insert(vec![1u8], ASKED).unwrap();
        assert_eq!((table.insert(vec![2], ASKED), table.len()), (Err(vec![2]), 1));
        assert!(table.take(index).is_none() && table.has_pending());
        assert_eq!(table.withdraw(index), [1]);
        let again = table.insert(vec![3], ASKED).unwrap();
        assert_ne!(index, again);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| table.take(index))).is_err());
        table.end(again.slot, Outcome::Done);
        assert_eq!(table.take(again), Some((vec![3], Outcome::Done)));
    }
}
