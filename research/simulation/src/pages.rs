//! [`Pages`]: a memory node's physical memory (the board's `Memory`) and its ring of pages that are ready (its
//! `PageSource`; Clio, section 4.3); and [`Janitor`], which looks after what the slow path takes back (its `Upkeep`).
//!
//! It holds what was written and no more, so that a node of terabytes costs nothing. Everything else is zero. A
//! simulation has one thread, so a data thread holds nothing whenever the slow path runs: quiet is at once.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use yonder_board::{Memory, PageSource, PhysicalPage, Shell, SlowPath, Upkeep};
use yonder_wire::{AtomicOperation, Body};

/// Bytes that are kept together.
const PIECE_BYTES: u64 = 4096;

/// Memory that was written, by page and piece.
type Pieces = BTreeMap<(PhysicalPage, u64), Box<[u8]>>;

/// A memory node's memory.
#[derive(Debug)]
pub struct Pages {
    pieces: RefCell<Pieces>,
    ready: RefCell<VecDeque<PhysicalPage>>,
    ready_max: usize,
    taken: Cell<u64>,
}

impl Pages {
    /// Zeros, of which up to `ready_max` pages can be held ready.
    #[must_use]
    pub fn new(ready_max: usize) -> Self {
        let (pieces, ready) = (RefCell::new(BTreeMap::new()), RefCell::new(VecDeque::new()));
        Self { pieces, ready, ready_max, taken: Cell::new(0) }
    }

    /// Pages that were given to a first write and have not come back to the ring.
    #[must_use]
    pub const fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// Pages that are held ready.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.ready.borrow().len()
    }

    /// Whether another page can be held ready.
    #[must_use]
    pub fn wants_pages(&self) -> bool {
        self.ready() < self.ready_max
    }

    /// Makes a free page ready.
    pub fn make_ready(&self, page: PhysicalPage) {
        self.ready.borrow_mut().push_back(page);
    }

    /// Fills the ring with free pages, if there are any.
    pub fn refill(&self, slow_path: &mut SlowPath) {
        while self.wants_pages()
            && let Some(page) = slow_path.take_free_page(&mut Janitor(self))
        {
            self.make_ready(page);
        }
    }

    /// Lets the slow path work on this memory.
    pub fn with_shell<T>(&self, work: impl FnOnce(&mut Shell<'_, Self, Self, Janitor<'_>>) -> T) -> T {
        work(&mut Shell { memory: self, pages: self, upkeep: &mut Janitor(self) })
    }

    /// Whether nothing was written to a page since it was made zero.
    #[must_use]
    pub fn is_zero(&self, page: PhysicalPage) -> bool {
        let pieces = self.pieces.borrow();
        let mut pieces = pieces.range((page, 0)..=(page, u64::MAX));
        pieces.all(|(_, bytes)| bytes.iter().all(|byte| *byte == 0))
    }
}

impl Memory for Pages {
    fn read(&self, page: PhysicalPage, offset: u64, into: &mut [u8]) {
        let pieces = self.pieces.borrow();
        for (piece, within, part) in parts(PIECE_BYTES, offset, into.len()) {
            match pieces.get(&(page, piece)) {
                Some(bytes) => into[part.clone()].copy_from_slice(&bytes[within..within + part.len()]),
                None => into[part].fill(0),
            }
        }
    }

    fn write(&self, page: PhysicalPage, offset: u64, from: &[u8]) {
        let mut pieces = self.pieces.borrow_mut();
        for (piece, within, part) in parts(PIECE_BYTES, offset, from.len()) {
            let bytes = pieces.entry((page, piece)).or_insert_with(|| vec![0; PIECE_BYTES as usize].into());
            bytes[within..within + part.len()].copy_from_slice(&from[part]);
        }
    }

    fn atomic(&self, page: PhysicalPage, offset: u64, operation: AtomicOperation) -> u64 {
        assert!(offset.is_multiple_of(8), "an atomic of a word at {offset}");
        let mut word = [0; 8];
        self.read(page, offset, &mut word);
        let old = u64::from_le_bytes(word);
        self.write(page, offset, &operation.apply(old).to_le_bytes());
        old
    }
}

impl PageSource for Pages {
    fn take(&self) -> Option<PhysicalPage> {
        let page = self.ready.borrow_mut().pop_front()?;
        self.taken.set(self.taken.get() + 1);
        Some(page)
    }

    fn give_back(&self, page: PhysicalPage) {
        self.taken.set(self.taken.get().saturating_sub(1));
        self.make_ready(page);
    }
}

/// Makes pages zero that the slow path takes back.
#[derive(Clone, Copy, Debug)]
pub struct Janitor<'a>(pub &'a Pages);

impl Upkeep for Janitor<'_> {
    fn wait_until_quiet(&mut self) {}

    fn zero(&mut self, page: PhysicalPage) {
        self.0.pieces.borrow_mut().retain(|(other, _), _| *other != page);
    }
}

/// A body as bytes.
pub fn encoded<B: Body>(body: &B) -> Vec<u8> {
    let mut bytes = vec![0; B::BYTES];
    body.write_to(&mut bytes);
    bytes
}

/// The pieces of `piece_bytes` that `length` bytes from `start` lie in: number, offset in the piece, and which of the
/// bytes.
pub fn parts(piece_bytes: u64, start: u64, length: usize) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = start + done as u64;
        let within = (at % piece_bytes) as usize;
        let taken = (length - done).min(piece_bytes as usize - within);
        let part = done..done + taken;
        done += taken;
        (taken > 0).then_some((at / piece_bytes, within, part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_across_pieces_and_the_rest_is_zero() {
        let pages = Pages::new(0);
        let (page, offset) = (PhysicalPage(3), PIECE_BYTES - 3);
        pages.write(page, offset, &[1, 2, 3, 4, 5]);
        let mut read = [9; 7];
        pages.read(page, offset - 1, &mut read);
        assert_eq!(read, [0, 1, 2, 3, 4, 5, 0]);
        pages.read(PhysicalPage(4), offset, &mut read);
        assert_eq!(read, [0; 7], "another page");
        assert!(!pages.is_zero(page) && pages.is_zero(PhysicalPage(4)));
        Janitor(&pages).zero(page);
        pages.read(page, offset, &mut read);
        assert_eq!(read, [0; 7], "a page that was zeroed");
        assert!(pages.is_zero(page));
    }

    #[test]
    fn an_atomic_changes_a_word_and_returns_what_it_was() {
        let pages = Pages::new(0);
        assert_eq!(pages.atomic(PhysicalPage(0), 8, AtomicOperation::FetchAdd(5)), 0);
        assert_eq!(pages.atomic(PhysicalPage(0), 8, AtomicOperation::FetchAdd(1)), 5);
    }
}
