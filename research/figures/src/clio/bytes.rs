//! [`Bytes`]: a memory node's physical memory, and the ring of pages that are ready (Clio, section 4.3).
//!
//! It holds what was written and no more, so that a node of terabytes costs nothing. Everything else is zero.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};

use yonder_board::{Memory, PageSource, PhysicalPage, SlowPath, Upkeep};
use yonder_wire::AtomicOperation;

/// Bytes that are kept together.
const PIECE_BYTES: u64 = 4096;
/// Pages that are held ready.
const READY_MAX: usize = 64;

/// Memory that was written, by page and piece.
type Pieces = BTreeMap<(PhysicalPage, u64), Box<[u8]>>;

/// A memory node's memory.
#[derive(Debug, Default)]
pub(super) struct Bytes {
    pieces: RefCell<Pieces>,
    ready: RefCell<VecDeque<PhysicalPage>>,
    taken: Cell<u64>,
}

impl Bytes {
    /// Pages that were given to a first write.
    pub(super) fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// Fills the ring with free pages, if there are any.
    pub(super) fn refill(&self, slow_path: &mut SlowPath) {
        while self.ready.borrow().len() < READY_MAX
            && let Some(page) = slow_path.take_free_page(&mut Cleaner(self))
        {
            self.ready.borrow_mut().push_back(page);
        }
    }

    /// Calls `each` with the parts of `bytes` bytes from `offset`: piece, where in it, where in the bytes, how many.
    fn parts(offset: u64, bytes: usize, mut each: impl FnMut(u64, usize, usize, usize)) {
        let mut done = 0;
        while done < bytes {
            let at = offset + done as u64;
            let within = (at % PIECE_BYTES) as usize;
            let part = (bytes - done).min(PIECE_BYTES as usize - within);
            each(at / PIECE_BYTES, within, done, part);
            done += part;
        }
    }
}

impl Memory for Bytes {
    fn read(&self, page: PhysicalPage, offset: u64, into: &mut [u8]) {
        let pieces = self.pieces.borrow();
        Self::parts(offset, into.len(), |piece, within, at, part| match pieces.get(&(page, piece)) {
            Some(bytes) => into[at..at + part].copy_from_slice(&bytes[within..within + part]),
            None => into[at..at + part].fill(0),
        });
    }

    fn write(&self, page: PhysicalPage, offset: u64, from: &[u8]) {
        let mut pieces = self.pieces.borrow_mut();
        Self::parts(offset, from.len(), |piece, within, at, part| {
            let bytes = pieces.entry((page, piece)).or_insert_with(|| vec![0; PIECE_BYTES as usize].into());
            bytes[within..within + part].copy_from_slice(&from[at..at + part]);
        });
    }

    fn atomic(&self, page: PhysicalPage, offset: u64, operation: AtomicOperation) -> u64 {
        let mut word = [0; 8];
        self.read(page, offset, &mut word);
        let old = u64::from_le_bytes(word);
        self.write(page, offset, &operation.apply(old).to_le_bytes());
        old
    }
}

impl PageSource for Bytes {
    fn take(&self) -> Option<PhysicalPage> {
        let page = self.ready.borrow_mut().pop_front()?;
        self.taken.set(self.taken.get() + 1);
        Some(page)
    }

    fn give_back(&self, page: PhysicalPage) {
        self.taken.set(self.taken.get() - 1);
        self.ready.borrow_mut().push_back(page);
    }
}

/// Makes pages zero again. There is one thread, so nobody holds an old page.
pub(super) struct Cleaner<'a>(pub(super) &'a Bytes);

impl Upkeep for Cleaner<'_> {
    fn wait_until_quiet(&mut self) {}

    fn zero(&mut self, page: PhysicalPage) {
        self.0.pieces.borrow_mut().retain(|(other, _), _| *other != page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_across_pieces_and_the_rest_is_zero() {
        let bytes = Bytes::default();
        let (page, offset) = (PhysicalPage(3), PIECE_BYTES - 3);
        bytes.write(page, offset, &[1, 2, 3, 4, 5]);
        let mut read = [9; 7];
        bytes.read(page, offset - 1, &mut read);
        assert_eq!(read, [0, 1, 2, 3, 4, 5, 0]);
        bytes.read(PhysicalPage(4), offset, &mut read);
        assert_eq!(read, [0; 7], "another page");
        Cleaner(&bytes).zero(page);
        bytes.read(page, offset, &mut read);
        assert_eq!(read, [0; 7], "a page that was zeroed");
    }

    #[test]
    fn an_atomic_changes_a_word_and_returns_what_it_was() {
        let bytes = Bytes::default();
        assert_eq!(bytes.atomic(PhysicalPage(0), 8, AtomicOperation::FetchAdd(5)), 0);
        assert_eq!(bytes.atomic(PhysicalPage(0), 8, AtomicOperation::FetchAdd(1)), 5);
    }
}
