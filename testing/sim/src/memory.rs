//! A node's physical memory in the simulator: [`Pages`] (the board's `Memory` and `PageSource`) and [`Janitor`] (its
//! `Upkeep`). It counts what is done to it, as [`Effect`], for the oracle.
//!
//! The simulator has one thread, so a data thread holds nothing whenever the slow path runs: quiet is at once.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use yonder_board::{Memory, PageSource, PhysicalPage, Upkeep};
use yonder_wire::AtomicOperation;

use crate::sabotage::Sabotage;
use crate::settings::PAGE_BYTES;

/// What was done to memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Effect {
    /// Bytes that were written.
    pub(crate) written: usize,
    /// Words that were changed by atomics.
    pub(crate) atomics: usize,
}

/// The bytes of all pages, and the ring of zeroed pages.
#[derive(Debug)]
pub(crate) struct Pages {
    bytes: RefCell<Vec<u8>>,
    ready: RefCell<VecDeque<PhysicalPage>>,
    ready_max: usize,
    effect: Cell<Effect>,
    accesses: Cell<u64>,
    sabotage: Option<Sabotage>,
}

impl Pages {
    /// `pages` pages of zeros, of which up to `ready_max` can be held ready.
    #[must_use]
    pub(crate) fn new(pages: u32, ready_max: usize, sabotage: Option<Sabotage>) -> Self {
        Self {
            bytes: RefCell::new(vec![0; pages as usize * PAGE_BYTES as usize]),
            ready: RefCell::new(VecDeque::new()),
            ready_max,
            effect: Cell::default(),
            accesses: Cell::default(),
            sabotage,
        }
    }

    /// What was done since the last call.
    pub(crate) fn take_effect(&self) -> Effect {
        self.effect.take()
    }

    /// Whether another page can be held ready.
    #[must_use]
    pub(crate) fn wants_pages(&self) -> bool {
        self.ready.borrow().len() < self.ready_max
    }

    /// Pages that are held ready.
    #[must_use]
    pub(crate) fn ready(&self) -> usize {
        self.ready.borrow().len()
    }

    fn at(page: PhysicalPage, offset: u64) -> usize {
        page.0 as usize * PAGE_BYTES as usize + offset as usize
    }

    /// Whether this access is one that suffers from the sabotage.
    fn suffers(&self, sabotage: Sabotage) -> bool {
        self.accesses.set(self.accesses.get() + 1);
        self.sabotage == Some(sabotage) && self.accesses.get().is_multiple_of(16)
    }
}

impl Memory for Pages {
    fn read(&self, page: PhysicalPage, offset: u64, into: &mut [u8]) {
        let bytes = self.bytes.borrow();
        let mut at = Self::at(page, offset);
        if self.suffers(Sabotage::WrongPage) {
            at = (at + PAGE_BYTES as usize) % bytes.len();
        }
        into.copy_from_slice(&bytes[at..at + into.len()]);
    }

    fn write(&self, page: PhysicalPage, offset: u64, from: &[u8]) {
        let effect = self.effect.get();
        self.effect.set(Effect { written: effect.written + from.len(), ..effect });
        if self.suffers(Sabotage::LostWrites) {
            return;
        }
        let at = Self::at(page, offset);
        self.bytes.borrow_mut()[at..at + from.len()].copy_from_slice(from);
    }

    fn atomic(&self, page: PhysicalPage, offset: u64, operation: AtomicOperation) -> u64 {
        let effect = self.effect.get();
        self.effect.set(Effect { atomics: effect.atomics + 1, ..effect });
        let at = Self::at(page, offset);
        let mut bytes = self.bytes.borrow_mut();
        let word: &mut [u8; 8] = (&mut bytes[at..at + 8]).try_into().expect("a word has 8 bytes");
        let old = u64::from_le_bytes(*word);
        *word = operation.apply(old).to_le_bytes();
        if self.suffers(Sabotage::TornAtomics) { operation.apply(old) } else { old }
    }
}

impl PageSource for Pages {
    fn take(&self) -> Option<PhysicalPage> {
        self.ready.borrow_mut().pop_front()
    }

    fn give_back(&self, page: PhysicalPage) {
        self.ready.borrow_mut().push_back(page);
    }
}

/// Looks after the pages that the slow path takes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Janitor<'a>(pub &'a Pages);

impl Upkeep for Janitor<'_> {
    fn wait_until_quiet(&mut self) {}

    fn zero(&mut self, page: PhysicalPage) {
        if self.0.sabotage != Some(Sabotage::DirtyPages) {
            let at = Pages::at(page, 0);
            self.0.bytes.borrow_mut()[at..at + PAGE_BYTES as usize].fill(0);
        }
    }
}
