//! [`FaultObserver`]: whoever wants to know of every fault of a region that came by a signal, and from where.
//!
//! A region has none, or one for good. It is told when the fault is over, in the handler of whoever had it: see the
//! trait for what that forbids. Without one a fault costs a load and a branch more.
//!
//! Neighbours: `region` calls it; `preload/library` has one that keeps a record for `yonder run --report`.

use std::sync::{Arc, OnceLock};

use crate::pagetable::{PageTable, State};
use yonder_units::{Nanos, PageIndex};

use crate::machine::Machine;

/// A fault that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeenFault {
    /// Byte offset of the touched address in its region.
    pub offset: u64,
    /// Address of the instruction that touched it.
    pub instruction: usize,
    /// When it began, by the clock of the pager's machine.
    pub began: Nanos,
    /// How long it took.
    pub took: Nanos,
    /// What the page needed when it was touched.
    pub needed: Needed,
}

/// What the page of a fault needed when it was touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needed {
    /// A fetch: a major fault. If others were quicker, it may have been spared.
    Fetch,
    /// No fetch, or one that was on its way.
    NoFetch,
    /// Nothing: it had no content, or none any more.
    Nothing,
}

/// Is told of faults.
///
/// It runs inside a signal handler, in the middle of anything: it must not allocate, lock, make system calls, or touch
/// far memory.
pub trait FaultObserver: Send + Sync {
    /// A fault is over, and its page was brought.
    fn saw(&self, fault: &SeenFault);

    /// The page at `offset`, which needs this, is brought because the region's owner holds it, without a fault.
    fn brings(&self, offset: u64, needed: Needed) {
        let _ = (offset, needed);
    }
}

/// A region's [`FaultObserver`], if it has one.
#[derive(Default)]
pub(crate) struct Observer(OnceLock<Arc<dyn FaultObserver>>);

impl Observer {
    /// These pages are brought without faults.
    pub(crate) fn bring(&self, table: &PageTable, pages: impl Iterator<Item = PageIndex>) {
        if let Some(observer) = self.0.get() {
            pages.for_each(|page| observer.brings(page.offset(), needed(table, page)));
        }
    }

    /// Whether there is one.
    pub(crate) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// False if there is one already.
    pub(crate) fn set(&self, observer: Arc<dyn FaultObserver>) -> bool {
        self.0.set(observer).is_ok()
    }

    /// Something that sees the fault that begins here; `None` if nobody wants to know of it.
    #[inline]
    pub(crate) fn begin<M: Machine>(&self, table: &PageTable, offset: u64, instruction: usize) -> Option<Seeing<'_>> {
        let observer = &**self.0.get()?;
        let needed = needed(table, PageIndex::containing(offset));
        Some(Seeing { observer, fault: SeenFault { offset, instruction, began: M::now(), took: 0, needed } })
    }
}

fn needed(table: &PageTable, page: PageIndex) -> Needed {
    match table.load(page).state() {
        State::Remote => Needed::Fetch,
        State::Untouched => Needed::Nothing,
        _ => Needed::NoFetch,
    }
}

/// A fault that is under way.
pub(crate) struct Seeing<'a> {
    observer: &'a dyn FaultObserver,
    fault: SeenFault,
}

impl Seeing<'_> {
    /// Its page was brought.
    pub(crate) fn end<M: Machine>(mut self) {
        self.fault.took = M::now().saturating_sub(self.fault.began);
        self.observer.saw(&self.fault);
    }
}
