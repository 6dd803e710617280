//! [`Simulated`]: the machine that the pager runs on here.
//!
//! The pager's code is that of production; this type parameter is all that differs. Each call is a step.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use rand::Rng;
use yonder_pager::machine::{CopyOutcome, Machine, Rule};
use yonder_pager::{FaultPolicy, Module, PagingCause, QueuePair, RemoteAddress};
use yonder_units::{Nanos, PAGE_BYTES, Run};

use crate::far::Queue;
use crate::lending;
use crate::memory::{Access, Bytes, Kind, Memory};
use crate::refused::Refused;
use crate::sabotage::Sabotage;
use crate::world::{Step, World, assert_is_parent, below, chance, is_sabotaged, park, say, step, violate, with};

/// Pages that a drop, a protection or an install of many does between two steps.
pub(crate) const PART_PAGES: usize = 8;
/// A thread that sleeps for a page is woken sooner than this where nothing fails.
const FORGOTTEN_AFTER: Nanos = 15_000_000;
/// Time of a call of the kernel.
pub(crate) const CALL: Nanos = 1_000;

/// The simulator's machine.
pub(crate) enum Simulated {}

/// The way to the far side.
pub(crate) struct Link {
    /// Far memory, if it is mapped.
    pub(crate) mapped: Option<Arc<Memory>>,
}

/// The way by which pages are mapped: a userfaultfd of one process, which is that by so many forks a descendant of the
/// first.
pub(crate) struct Space(pub(crate) u32);

impl Space {
    /// It is that of the process that runs: through its parent's a child would change the parent's memory.
    fn assert_is_own(&self) {
        let process = with(|world| world.process);
        if self.0 != process {
            violate(format!("process {process} uses the userfaultfd of process {}", self.0));
        }
    }
}

/// What is read to be mapped is there: a child has no far memory but a copy of its parent's.
fn assert_is_inherited(source: &Memory) {
    let is_missing = with(|world| world.process > 0 && !world.settings.is_inherited);
    if source.kind == Kind::Far && is_missing {
        violate("a child maps what the node has by now".into());
    }
}

/// What the kernel makes of an attempt to install, before it looks at the page.
fn refusal() -> Option<CopyOutcome> {
    let (again, no_memory, is_hostile) =
        with(|world| (world.settings.again, world.settings.no_memory, world.is_hostile));
    if is_hostile && chance(again) {
        Some(CopyOutcome::Again)
    } else if is_hostile && (chance(no_memory) || with(|world| world.now < world.no_memory_until)) {
        // The kernel looks for memory before it says that there is none.
        step(Step::Effect(below(10_000)));
        Some(CopyOutcome::NoMemory)
    } else {
        None
    }
}

/// Whether the kernel will not protect or unmap a page now.
pub(crate) fn is_refused() -> bool {
    with(|world| world.is_hostile && world.chance(world.settings.refused))
}

fn map(region: &Memory, offset: u64, bytes: Bytes) -> CopyOutcome {
    let outcome = if region.map(offset, bytes) { CopyOutcome::Installed } else { CopyOutcome::Exists };
    let page = offset / PAGE_BYTES as u64;
    say(|| format!("maps page {page} of {:#x}: {outcome:?}", region.address));
    crate::oracle::check_limit();
    outcome
}

impl Machine for Simulated {
    type Memory = Memory;
    type Space = Space;
    type Fabric = Link;
    type Thread = usize;
    type Registers<'a> = ();
    type Words = &'static [u64];
    type Refusal = String;
    type Error = Refused;

    fn now() -> Nanos {
        with(|world| world.now)
    }

    fn relax() {
        step(Step::Wait);
    }

    fn yield_now() {
        say(|| "lets others run".into());
        step(Step::Wait);
    }

    fn preempt() {
        step(Step::Point);
    }

    fn breaks(rule: Rule) -> bool {
        is_sabotaged(Sabotage::Pager(rule))
    }

    fn words((): ()) -> &'static [u64] {
        &[]
    }

    fn suspend() {
        say(|| "parks".into());
        if is_sabotaged(Sabotage::EarlyResume) && chance(50) {
            return;
        }
        with(|world| {
            let fiber = world.fibers[world.running];
            assert!(fiber.bound.is_some() && !fiber.no_yield, "a thread that cannot be parked is");
            let thread = &mut world.threads[fiber.thread];
            thread.current = thread.main;
        });
        step(Step::Wait);
    }

    fn bound_unithread(_pager: u32) -> Option<(u16, u32, FaultPolicy)> {
        with(|world| world.fibers.get(world.running).and_then(|fiber| fiber.bound))
    }

    fn bound_port(_pager: u32) -> Option<u16> {
        with(|world| world.fibers.get(world.running).and_then(|fiber| world.threads[fiber.thread].port))
    }

    fn in_no_yield_section() -> bool {
        with(|world| world.fibers[world.running].no_yield)
    }

    fn guest_number() -> usize {
        with(|world| match world.fibers.get(world.running) {
            // All of them share a port.
            Some(fiber) if !world.settings.is_crowd => fiber.thread,
            _ => 0,
        })
    }

    fn sleep_on(word: &AtomicU32, value: u32, time: Nanos) {
        step(Step::Point);
        if word.load(Ordering::Acquire) != value {
            return;
        }
        let address = std::ptr::from_ref(word).addr();
        let until = with(|world| {
            let thread = world.fibers[world.running].thread;
            world.threads[thread].sleeps_on = Some(address);
            world.now + time
        });
        park(until);
        let is_forgotten = with(|world| {
            let thread = world.fibers[world.running].thread;
            let has_slept_on = world.threads[thread].sleeps_on.take().is_some();
            has_slept_on && time >= FORGOTTEN_AFTER && !world.settings.may_time_out()
        });
        if is_forgotten {
            violate(format!("a thread has slept for {time} ns and nobody has woken it"));
        }
    }

    fn wake(word: &AtomicU32) {
        step(Step::Effect(500));
        if is_sabotaged(Sabotage::LostWake) {
            return;
        }
        let address = std::ptr::from_ref(word).addr();
        with(|world| {
            let sleeper = world.threads.iter_mut().find(|thread| thread.sleeps_on == Some(address));
            if let Some(thread) = sleeper {
                (thread.asleep_until, thread.sleeps_on) = (0, None);
            }
        });
    }

    fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        step(Step::Point);
        let mut has_waited = false;
        loop {
            match mutex.try_lock() {
                Ok(guard) => {
                    if has_waited {
                        with(World::note_lock_taken);
                    }
                    return guard;
                }
                // Threads that unwind when a seed is over leave locks so.
                Err(TryLockError::Poisoned(left)) if with(|world| world.is_ending()) => return left.into_inner(),
                Err(_) if yonder_unithread::is_on_unithread() => {
                    say(|| format!("waits for a lock: {}", std::any::type_name::<T>()));
                    step(Step::Lock);
                    has_waited = true;
                }
                Err(_) => panic!("a lock is held and no thread runs"),
            }
        }
    }

    fn unpark(thread: &usize) {
        with(|world| {
            let thread = &mut world.threads[*thread];
            (thread.is_unparked, thread.asleep_until) = (true, 0);
        });
    }

    fn frames(bytes: usize) -> Result<Memory, Refused> {
        Ok(Memory::new(Kind::Frames, 0x1000_0000, bytes / PAGE_BYTES))
    }

    fn address(memory: &Memory) -> usize {
        memory.address
    }

    fn len(memory: &Memory) -> usize {
        memory.bytes()
    }

    fn read(memory: &Memory, offset: u64, into: &mut [u8]) {
        memory.read(offset, into);
    }

    fn write(memory: &Memory, offset: u64, from: &[u8]) {
        memory.write(offset, from);
        crate::oracle::check_limit();
    }

    fn copy(to: &Memory, offset: u64, from: &Memory, from_offset: u64) {
        step(Step::Effect(100));
        to.fill(offset, from.content(from_offset));
        crate::oracle::check_limit();
    }

    fn try_copy(to: &Memory, offset: u64, from: &Memory, from_offset: u64) -> Result<(), NonZeroU32> {
        step(Step::Effect(100));
        match from.sweep(from_offset) {
            Access::Done(mut bytes) => {
                if is_sabotaged(Sabotage::TornCopy) && chance(50) {
                    bytes[..8].fill(0);
                }
                to.fill(offset, bytes);
                crate::oracle::check_limit();
                Ok(())
            }
            Access::Damaged => Err(PagingCause::HardwareError.code()),
            Access::Missing => violate(format!("page {} is swept and is not mapped", from_offset / PAGE_BYTES as u64)),
            Access::Hidden => violate(format!("page {} is swept and is unreadable", from_offset / PAGE_BYTES as u64)),
        }
    }

    fn try_read(memory: &Memory, offset: u64, into: &mut [u8]) -> Result<(), NonZeroU32> {
        memory.visit(offset - offset % PAGE_BYTES as u64, |page: &[u8; PAGE_BYTES]| {
            let at = offset as usize % PAGE_BYTES;
            into.copy_from_slice(&page[at..at + into.len()]);
        });
        Ok(())
    }

    fn with_page<T>(memory: &Memory, offset: u64, visit: impl FnOnce(&[u8; PAGE_BYTES]) -> T) -> T {
        memory.visit(offset, visit)
    }

    fn prefetch_page(_memory: &Memory, _offset: u64) {}

    fn discard(memory: &Memory, offset: u64, bytes: usize) -> Result<(), Refused> {
        let first = (offset / PAGE_BYTES as u64) as usize;
        say(|| format!("drops pages {first}..{} of {:#x}", first + bytes / PAGE_BYTES, memory.address));
        for page in first..first + bytes / PAGE_BYTES {
            if page % PART_PAGES == 0 || page == first {
                step(Step::Effect(CALL / 4));
            }
            if is_sabotaged(Sabotage::ForgottenDrop) && chance(10) {
                continue;
            }
            // What a program has locked. Only the evictor's pages are protected; others are the caller's own.
            if memory.kind == Kind::Region && memory.is_protected(page) && is_refused() {
                say(|| format!("does not drop page {page}"));
                return Err(Refused::Busy);
            }
            memory.drop_page(page);
        }
        step(Step::Effect(CALL));
        Ok(())
    }

    fn drop_runs(memory: &Memory, runs: &[Run]) -> Result<(), Refused> {
        for run in runs {
            step(Step::Effect(50));
            if memory.kind == Kind::Frames && is_sabotaged(Sabotage::LeakedFrames) {
                continue;
            }
            (run.first_page..run.first_page + run.pages).for_each(|page| memory.drop_page(page as usize));
        }
        step(Step::Effect(CALL));
        Ok(())
    }

    fn copy_page(
        space: &Space,
        region: &Memory,
        offset: u64,
        source: &Memory,
        source_offset: u64,
    ) -> Result<CopyOutcome, String> {
        space.assert_is_own();
        assert_is_inherited(source);
        step(Step::Effect(CALL));
        let is_zeroed = is_sabotaged(Sabotage::ZeroedInstall) && chance(20);
        let content = if is_zeroed { crate::memory::zeros() } else { source.content(source_offset) };
        let outcome = refusal().unwrap_or_else(|| map(region, offset, content));
        step(Step::Point);
        Ok(outcome)
    }

    fn copy_pages(
        space: &Space,
        region: &Memory,
        offset: u64,
        source: &Memory,
        source_offset: u64,
        pages: usize,
    ) -> Result<(usize, CopyOutcome), String> {
        space.assert_is_own();
        assert_is_inherited(source);
        step(Step::Effect(CALL));
        for done in 0..pages {
            let by = (done * PAGE_BYTES) as u64;
            let outcome = refusal().unwrap_or_else(|| map(region, offset + by, source.content(source_offset + by)));
            if outcome != CopyOutcome::Installed {
                // A call that stopped in between says EAGAIN, whatever stopped it.
                return Ok(if done > 0 { (done, CopyOutcome::Again) } else { (0, outcome) });
            }
            if with(|world| world.is_hostile) && below(32) == 0 {
                return Ok(if done + 1 == pages { (pages, outcome) } else { (done + 1, CopyOutcome::Again) });
            }
            step(Step::Effect(100));
        }
        Ok((pages, CopyOutcome::Installed))
    }

    fn zero_page(space: &Space, region: &Memory, offset: u64) -> Result<CopyOutcome, String> {
        space.assert_is_own();
        step(Step::Effect(CALL));
        let outcome = refusal().unwrap_or_else(|| map(region, offset, crate::memory::zeros()));
        step(Step::Point);
        Ok(outcome)
    }

    fn write_protect(
        space: &Space,
        region: &Memory,
        offset: u64,
        pages: usize,
        refused: &mut dyn FnMut(usize),
    ) -> Result<(), String> {
        space.assert_is_own();
        let first = (offset / PAGE_BYTES as u64) as usize;
        say(|| format!("protects pages {first}..{} of {:#x}", first + pages, region.address));
        if is_sabotaged(Sabotage::NoProtection) {
            step(Step::Effect(CALL));
            return Ok(());
        }
        let protected = if is_sabotaged(Sabotage::LateProtection) { pages.saturating_sub(2) } else { pages };
        for page in first..first + protected {
            if page % PART_PAGES == 0 || page == first {
                step(Step::Effect(CALL / 4));
            }
            // A page of a mapping that userfaultfd does not have.
            if is_refused() {
                say(|| format!("does not protect page {page}"));
                if !is_sabotaged(Sabotage::UnseenRefusal) {
                    refused(page - first);
                }
                continue;
            }
            region.protect(page);
        }
        step(Step::Effect(CALL));
        Ok(())
    }

    fn unprotect(space: &Space, region: &Memory, offset: u64, pages: usize) -> Result<(), String> {
        space.assert_is_own();
        let first = (offset / PAGE_BYTES as u64) as usize;
        (first..first + pages).for_each(|page| region.unprotect(page));
        step(Step::Effect(CALL));
        Ok(())
    }

    fn can_lend(_space: &Space) -> bool {
        with(|world| world.settings.lends)
    }

    fn lend(space: &Space, region: &Memory, offset: u64, pages: usize) -> Result<(), String> {
        space.assert_is_own();
        lending::lend(region, offset, pages)
    }

    fn recall(
        space: &Space,
        region: &Memory,
        offset: u64,
        pages: usize,
        is_here: &mut dyn FnMut(usize),
    ) -> Result<(), String> {
        space.assert_is_own();
        lending::recall(region, offset, pages, is_here)
    }

    fn populate(region: &Memory, offset: u64, pages: usize) -> bool {
        lending::populate(region, offset, pages)
    }

    fn register(_space: &Space, _region: &Memory) -> Result<(), String> {
        Ok(())
    }

    fn url(_fabric: &Link) -> &str {
        "model://"
    }

    fn queue_pair(_fabric: &Link, _module: Module, frames: &Arc<Memory>) -> Result<Box<dyn QueuePair>, Refused> {
        Ok(Box::new(Queue::new(frames)))
    }

    fn loses_operations(_fabric: &Link) -> bool {
        with(|world| world.settings.loses_operations)
    }

    fn is_inherited(_fabric: &Link) -> bool {
        with(|world| world.settings.is_inherited)
    }

    fn mapped(fabric: &Link) -> Option<&Arc<Memory>> {
        fabric.mapped.as_ref()
    }

    fn release_far(_fabric: &Link, start: RemoteAddress) -> Result<(), Refused> {
        assert_is_parent("gives its parent's far memory back");
        say(|| format!("gives far memory from page {} on back", start.0 / PAGE_BYTES as u64));
        step(Step::Effect(2_000));
        let is_down = with(|world| {
            let is_down = world.far.is_down(world.now) || !world.far.release(start);
            if !is_down && world.is_hostile && world.settings.has_neighbour && world.chance(500) {
                let until = world.now + world.rng.random_range(10_000..world.settings.late_max + 20_000);
                world.far.lend(until);
            }
            is_down
        });
        if is_down { Err(Refused::Node) } else { Ok(()) }
    }

    fn discard_far(_fabric: &Link, start: RemoteAddress, bytes: u64) -> Result<(), Refused> {
        assert_is_parent("discards its parent's far memory");
        say(|| format!("discards far pages from {} on", start.0 / PAGE_BYTES as u64));
        step(Step::Effect(2_000));
        let is_given_up = with(|world| {
            let is_late = world.is_hostile && world.chance(world.settings.discards_fail);
            let is_given_up = world.far.is_down(world.now) || is_late;
            if !is_given_up {
                world.far.discard(start, bytes);
            } else if !world.far.lease_is_over(world.now) && world.chance(500) {
                let late_max = [30_000, world.settings.late_max][world.rng.random_range(0..2)];
                let at = world.now + world.rng.random_range(0..late_max);
                world.far.discard_later(at, start, bytes);
            }
            is_given_up
        });
        step(Step::Effect(2_000));
        if is_given_up && !is_sabotaged(Sabotage::DiscardTakenForDone) { Err(Refused::Node) } else { Ok(()) }
    }
}
