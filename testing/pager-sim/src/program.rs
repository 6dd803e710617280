//! What programs do to far memory: loads and stores by pointer, which may have faults, reads that look first, and
//! holds.
//!
//! Every access tells the oracle what it read or stored in the same step.

use std::num::NonZeroU32;
use std::sync::Arc;

use rand::Rng;
use yonder_pager::{PagingCause, RegionCore};
use yonder_units::{PAGE_BYTES, PageIndex};

use crate::machine::Simulated;
use crate::memory::{Access, Kind, Memory};
use crate::oracle::{self, Word};
use crate::world::{Step, below, chance, say, stall, step, violate, with};

pub(crate) type Region = Arc<RegionCore<Simulated>>;

/// Offsets in a page of the words that programs use.
pub(crate) const WORDS: [u16; 6] = [0, 8, 512, 2048, 4080, 4088];

/// A word of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) page: u32,
    pub(crate) word: u16,
}

impl At {
    fn offset(self) -> u64 {
        u64::from(self.page) * PAGE_BYTES as u64 + u64::from(self.word)
    }

    fn word_of(self, region: &Region) -> Word {
        (region.memory().address, self.page, self.word)
    }
}

/// Faults of one access at most: its page may be taken away again before it is tried again, but not for ever.
const TOUCHES_MAX: usize = 5_000;
/// The same where little is left beside what is held, and others take it in turns: then the access is given up.
const TOUCHES_BESIDE_HOLDS_MAX: usize = 100;

/// When a touch began, and for how long threads had been stalled then.
struct Began {
    now: u64,
    stalled: u64,
}

impl Began {
    fn here() -> Self {
        with(|world| Self { now: world.now, stalled: world.stalled })
    }

    /// In a no-yield section the other unithreads of the worker are stalled all the time.
    fn end(self) {
        with(|world| {
            if world.fibers[world.running].no_yield {
                world.stalled += world.now - self.now;
            }
        });
    }
}

/// The end of an access, well or badly.
fn end(region: &Region, at: At, result: Result<(), PagingCause>) -> Result<(), PagingCause> {
    if let Err(cause) = result {
        say(|| format!("cannot have page {} of {:#x}: {cause:?}", at.page, region.memory().address));
        oracle::check_failure((region.memory().address, at.page), cause);
    }
    result
}

/// A load or a store, which is tried until its page is there.
fn access<T>(region: &Region, offset: u64, mut attempt: impl FnMut(&Memory) -> Access<T>) -> Result<T, PagingCause> {
    let holds = with(|world| world.settings.holds);
    for _ in 0..if holds { TOUCHES_BESIDE_HOLDS_MAX } else { TOUCHES_MAX } {
        step(Step::Point);
        match attempt(region.memory()) {
            Access::Done(value) => return Ok(value),
            Access::Missing => {
                let began = Began::here();
                let brought = region.bring_for_fault(offset, 0, ());
                oracle::check_time(began.now, began.stalled);
                began.end();
                brought?;
            }
            Access::Damaged => region.find_damage(PageIndex::containing(offset))?,
            Access::Hidden => await_readable(region, PageIndex::containing(offset)),
        }
    }
    if holds {
        return Err(PagingCause::LocalMemoryFull);
    }
    violate(format!("an access has had {TOUCHES_MAX} faults"))
}

/// Waits for whoever has protected a page against reading, as the handler of a signal does that a program has for that.
fn await_readable(region: &Region, page: PageIndex) {
    while matches!(region.memory().load(page.offset()), Access::Hidden) {
        step(Step::Wait);
    }
}

/// Loads a word by pointer.
pub(crate) fn load(region: &Region, at: At) -> Result<(), PagingCause> {
    let result = access(region, at.offset(), |memory| {
        let loaded = memory.load(at.offset());
        if let Access::Done(value) = loaded {
            oracle::check(at.word_of(region), value, with(|world| world.steps));
        }
        loaded
    });
    end(region, at, result.map(|_| ()))
}

/// Stores a new value to a word by pointer.
pub(crate) fn store(region: &Region, at: At) -> Result<(), PagingCause> {
    let word = at.word_of(region);
    let value = with(|world| {
        // What the word held before may come again, and be what the node has had all the time.
        let old = if world.rng.random_range(0..8) == 0 { world.oracle.older_value(word) } else { None };
        old.unwrap_or_else(|| world.oracle.new_value())
    });
    store_value(region, at, value)
}

/// Stores zeros to every word of a page.
pub(crate) fn clear(region: &Region, page: u32) {
    for word in WORDS {
        if store_value(region, At { page, word }, 0).is_err() {
            return;
        }
    }
}

fn store_value(region: &Region, at: At, value: u64) -> Result<(), PagingCause> {
    with(|world| world.oracle.allocate(at.word_of(region)));
    let result = access(region, at.offset(), |memory| {
        let stored = memory.store(at.offset(), value);
        if stored == Access::Done(()) {
            with(|world| world.oracle.store(at.word_of(region), world.steps, value));
            say(|| format!("stores {value} to page {} word {} of {:#x}", at.page, at.word, memory.address));
        }
        stored
    });
    end(region, at, result)
}

/// Needs a word no more: it may hold anything from now on.
pub(crate) fn forget(region: &Region, at: At) {
    step(Step::Point);
    with(|world| world.oracle.free(at.word_of(region)));
}

/// Reads a word as an access does that looks at the page table first.
pub(crate) fn look(region: &Region, at: At) -> Result<(), PagingCause> {
    let began = with(|world| world.steps);
    let mut value = 0;
    let read = |into: &mut u64, memory: &Memory, offset: u64| -> Result<(), NonZeroU32> {
        if memory.kind == Kind::Region {
            *into = access(region, offset, |memory| memory.load(offset)).map_err(PagingCause::code)?;
        } else {
            step(Step::Point);
            // The thread may lose its CPU between any two instructions, and frames change hands meanwhile.
            if chance(20) {
                stall(below(30_000));
            }
            let mut bytes = [0; 8];
            memory.read(offset, &mut bytes);
            *into = u64::from_le_bytes(bytes);
        }
        Ok(())
    };
    let result = region.look(at.offset(), &mut value, read, |into| *into = 0);
    if result.is_ok() {
        oracle::check(at.word_of(region), value, began);
    }
    end(region, at, result)
}

/// Brings a few pages together, and reads them: they may be away again by then.
pub(crate) fn bring(region: &Region, at: At, pages: u32) {
    match region.bring_all(u64::from(at.page) * PAGE_BYTES as u64, pages as usize * PAGE_BYTES) {
        Ok(()) => (at.page..at.page + pages).for_each(|page| _ = load(region, At { page, ..at })),
        Err((offset, cause)) => {
            let at = At { page: PageIndex::containing(offset).0, ..at };
            oracle::check_failure((region.memory().address, at.page), cause);
        }
    }
}

/// Holds a few pages, and has no fault on them meanwhile.
pub(crate) fn hold(region: &Region, at: At, pages: u32) {
    match region.hold(u64::from(at.page) * PAGE_BYTES as u64, pages as usize * PAGE_BYTES) {
        Ok(held) => {
            // A system call that is over at once, or one that waits for something, before it touches the pages or then.
            let rounds = if below(4) == 0 { 60 } else { 4 };
            let first_touch = below(rounds);
            for round in 0..rounds {
                step(Step::Effect(300));
                if round < first_touch {
                    continue;
                }
                for page in at.page..at.page + pages {
                    let here = At { page, ..at };
                    match region.memory().load(here.offset()) {
                        Access::Done(value) => oracle::check(here.word_of(region), value, with(|world| world.steps)),
                        Access::Missing => violate(format!("page {page} is held and not mapped")),
                        Access::Damaged | Access::Hidden => {}
                    }
                }
            }
            region.unhold(held);
        }
        Err((offset, cause)) => {
            let at = At { page: PageIndex::containing(offset).0, ..at };
            oracle::check_failure((region.memory().address, at.page), cause);
        }
    }
}
