//! A node's physical memory in the simulator: [`Pages`], the simulation's (the board's `Memory`) with what sabotage
//! makes of it, and [`Janitor`] (its `Upkeep`). It counts what is done to it, as [`Effect`], for the oracle.

use std::cell::Cell;

use yonder_board::{Memory, PhysicalPage, Upkeep};
use yonder_wire::AtomicOperation;

use crate::sabotage::Sabotage;

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
    pub(crate) inner: yonder_simulation::Pages,
    count: u32,
    effect: Cell<Effect>,
    accesses: Cell<u64>,
    sabotage: Option<Sabotage>,
}

impl Pages {
    /// `count` pages of zeros, of which up to `ready_max` can be held ready.
    #[must_use]
    pub(crate) fn new(count: u32, ready_max: usize, sabotage: Option<Sabotage>) -> Self {
        let inner = yonder_simulation::Pages::new(ready_max);
        Self { inner, count, effect: Cell::default(), accesses: Cell::default(), sabotage }
    }

    /// What was done since the last call.
    pub(crate) fn take_effect(&self) -> Effect {
        self.effect.take()
    }

    /// Whether this access is one that suffers from the sabotage.
    fn suffers(&self, sabotage: Sabotage) -> bool {
        self.accesses.set(self.accesses.get() + 1);
        self.sabotage == Some(sabotage) && self.accesses.get().is_multiple_of(16)
    }
}

impl Memory for Pages {
    fn read(&self, page: PhysicalPage, offset: u64, into: &mut [u8]) {
        let wrong = PhysicalPage((page.0 + 1) % self.count);
        self.inner.read(if self.suffers(Sabotage::WrongPage) { wrong } else { page }, offset, into);
    }

    fn write(&self, page: PhysicalPage, offset: u64, from: &[u8]) {
        let effect = self.effect.get();
        self.effect.set(Effect { written: effect.written + from.len(), ..effect });
        if !self.suffers(Sabotage::LostWrites) {
            self.inner.write(page, offset, from);
        }
    }

    fn atomic(&self, page: PhysicalPage, offset: u64, operation: AtomicOperation) -> u64 {
        let effect = self.effect.get();
        self.effect.set(Effect { atomics: effect.atomics + 1, ..effect });
        let old = self.inner.atomic(page, offset, operation);
        if self.suffers(Sabotage::TornAtomics) { operation.apply(old) } else { old }
    }
}

/// Looks after the pages that the slow path takes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Janitor<'a>(pub &'a Pages);

impl Upkeep for Janitor<'_> {
    fn wait_until_quiet(&mut self) {}

    fn zero(&mut self, page: PhysicalPage) {
        if self.0.sabotage != Some(Sabotage::DirtyPages) {
            yonder_simulation::Janitor(&self.0.inner).zero(page);
        }
    }
}
