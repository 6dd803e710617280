//! [`Machine`]: what the pager runs on.
//!
//! The pager decides; a machine is all that it does not decide: time, how a thread waits, memory and how the kernel
//! maps it, and the way to far memory. There are two: the kernel's (`runtime/paging`), which programs page on, and that
//! of the simulator (`testing/pager-sim`), which models the kernel and the far side and chooses at each call who runs
//! next. Both run the same code, which they give its type parameter.
//!
//! Functions without a receiver are about the thread that calls them. All that is called on the fault path is inlined
//! for the kernel's machine, so the parameter costs nothing there.

use std::fmt::{Debug, Display};
use std::num::NonZeroU32;
use std::ops::Deref;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard};

use yonder_units::{Nanos, PAGE_BYTES, Run};

use crate::clean_drop::CleanDrop;
use crate::config::{ConfigError, FaultPolicy};
use crate::error::{PagingError, TooManyPorts};
use crate::queue_pair::{Module, QueuePair, RemoteAddress};

/// How an install ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyOutcome {
    /// The page is mapped with the new content.
    Installed,
    /// A page was there already; it is unchanged.
    Exists,
    /// The address space was changing; nothing was done. Try again.
    Again,
    /// The kernel had no memory for the page; nothing was done.
    NoMemory,
}

/// What the pager has to say that is nobody's error.
#[derive(Clone, Copy, Debug)]
pub enum Notice<'a, E> {
    /// The node did not take back the memory of a region.
    NotTakenBack(&'a E),
    /// The node has not agreed to a discard yet: it is asked again.
    UnconfirmedDiscard(&'a E),
}

/// A rule of the pager that a simulator may have it break, to see that the breach is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// A discard holds its pages until the node has agreed.
    DiscardHolds,
    /// What the node has is forgotten only when it has agreed to a discard.
    DiscardSettles,
    /// The reclaimer hears of a page that stands again because it could not be mapped.
    RestandIsHeard,
    /// A write that has failed is posted again.
    WriteIsRepeated,
    /// What a sweep spares is not unmapped with the others.
    SparedStay,
    /// What is write-protected in a sweep and spared is made writable again.
    SparedAreWritable,
    /// A write holds its frame.
    WriteHolds,
    /// A frame's turn ends with its last hold.
    TurnEnds,
    /// A frame is charged before the kernel backs it.
    FrameIsCharged,
    /// A unithread in a no-yield section is not parked.
    SectionIsKept,
    /// What the node has is what was written, and not what the page has become since.
    DigestIsOfWrite,
    /// What is unreadable is not swept.
    UnreadableStay,
    /// Guides do not read what is unreadable.
    GuidesKeepOut,
    /// Of a frame those bytes are zeros that a fetch does not bring.
    BesideIsCleared,
    /// All guests are woken whose waits have ended together.
    EveryBellRings,
    /// Far memory is given back once no write that was given up can reach it any more.
    GivenUpWritesEnd,
    /// While a process forks nothing is swept or written back.
    ForkStopsReclaim,
    /// A child fetches nothing from its parent's node.
    ChildIsLeftAlone,
    /// Lent pages are charged before the kernel may map them.
    LoanIsCharged,
    /// Who recalls a block takes note of what the kernel has mapped of it.
    RecallLooks,
    /// A loan that the kernel refuses is recalled, since some of it may be lent.
    RefusedLoanIsRecalled,
    /// What is held of a lent block is mapped.
    HeldIsPopulated,
}

/// What the pager runs on. See the head of this file.
pub trait Machine: Sized + Send + Sync + 'static {
    /// A range of memory: a region, the frames, or far memory that a fabric maps.
    type Memory: Send + Sync + 'static;
    /// The way by which pages of regions are mapped and protected.
    type Space: Send + Sync + 'static;
    /// The way to far memory.
    type Fabric: ?Sized + Send + Sync + 'static;
    /// A thread that can be woken.
    type Thread: Send + Sync + 'static;
    /// The registers of a thread at an instruction that has had a fault.
    type Registers<'a>: Copy;
    /// What is told to guides of them.
    type Words: Deref<Target = [u64]>;
    /// Why an install or a protection was refused for a reason that is not part of normal operation.
    type Refusal: Display + Debug;
    /// Why an operation failed.
    type Error: From<PagingError> + From<ConfigError> + From<TooManyPorts> + Debug;

    /// The time.
    fn now() -> Nanos;

    /// A moment of a wait for another thread, which is about to be over.
    fn relax();

    /// A moment of a wait for another thread, which may need the CPU.
    fn yield_now();

    /// A point between two steps of an operation on shared state. Threads run at any time in any case, so a kernel has
    /// nothing to do here; a machine that runs one thread at a time lets others run.
    #[inline(always)]
    fn preempt() {}

    /// Whether the pager breaks `rule`: only ever on purpose, and nowhere but in a simulator.
    #[inline(always)]
    fn breaks(_rule: Rule) -> bool {
        false
    }

    /// Parks the unithread that runs, until its worker resumes it.
    fn suspend();

    /// What the code works with that had a fault: its general registers, in no useful order, and words from the top of
    /// its stack.
    fn words(registers: Self::Registers<'_>) -> Self::Words;

    /// Is told of what is nobody's error. Never on the fault path.
    fn notice(_notice: Notice<'_, Self::Error>) {}

    /// The port and the token of the unithread that runs, and how its faults wait, if its thread is a worker of pager
    /// `pager`.
    fn bound_unithread(pager: u32) -> Option<(u16, u32, FaultPolicy)>;

    /// The port that the thread is bound to, if it is a worker of pager `pager`.
    fn bound_port(pager: u32) -> Option<u16>;

    /// Whether the unithread that runs must not be parked now.
    fn in_no_yield_section() -> bool;

    /// A number of the thread that stays the same.
    fn guest_number() -> usize;

    /// Sleeps while `word` is `value`, until a [`Machine::wake`] of it, or for `time`; perhaps shorter.
    fn sleep_on(word: &AtomicU32, value: u32, time: Nanos);

    /// Ends the sleep of a thread on `word`.
    fn wake(word: &AtomicU32);

    /// Takes a lock that others hold for moments.
    fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T>;

    /// Ends the sleep of a thread.
    fn unpark(thread: &Self::Thread);

    /// Memory of `bytes` that reads as zeros.
    fn frames(bytes: usize) -> Result<Self::Memory, Self::Error>;

    /// Address of the first byte.
    fn address(memory: &Self::Memory) -> usize;

    /// Length in bytes.
    fn len(memory: &Self::Memory) -> usize;

    /// Copies the bytes at `offset` out of memory that is no region, or of a page that is held.
    fn read(memory: &Self::Memory, offset: u64, into: &mut [u8]);

    /// Copies `from` to `offset` of memory that is no region.
    fn write(memory: &Self::Memory, offset: u64, from: &[u8]);

    /// Copies a page from one memory that is no region to another.
    fn copy(to: &Self::Memory, offset: u64, from: &Self::Memory, from_offset: u64);

    /// As [`Machine::copy`], from a region. Fails if the memory of the page is damaged; a part may be copied.
    fn try_copy(to: &Self::Memory, offset: u64, from: &Self::Memory, from_offset: u64) -> Result<(), NonZeroU32>;

    /// Copies the bytes at `offset` out of a region. Fails if the memory of the page is damaged; a part may be copied.
    fn try_read(memory: &Self::Memory, offset: u64, into: &mut [u8]) -> Result<(), NonZeroU32>;

    /// Calls `visit` with a page that nobody changes meanwhile.
    fn with_page<T>(memory: &Self::Memory, offset: u64, visit: impl FnOnce(&[u8; PAGE_BYTES]) -> T) -> T;

    /// Begins to bring a page into the cache.
    fn prefetch_page(memory: &Self::Memory, offset: u64);

    /// Gives the backing of `bytes` at `offset` back.
    fn discard(memory: &Self::Memory, offset: u64, bytes: usize) -> Result<(), Self::Error>;

    /// Gives the backing of scattered runs of pages back.
    fn drop_runs(memory: &Self::Memory, runs: &[Run]) -> Result<(), Self::Error>;

    /// Maps the page at `offset` of `region` with the content of a page of `source`.
    fn copy_page(
        space: &Self::Space,
        region: &Self::Memory,
        offset: u64,
        source: &Self::Memory,
        source_offset: u64,
    ) -> Result<CopyOutcome, Self::Refusal>;

    /// As [`Machine::copy_page`], for `pages` pages one behind the other: how many were mapped, and how the next one
    /// ended.
    fn copy_pages(
        space: &Self::Space,
        region: &Self::Memory,
        offset: u64,
        source: &Self::Memory,
        source_offset: u64,
        pages: usize,
    ) -> Result<(usize, CopyOutcome), Self::Refusal>;

    /// Maps the page at `offset` of `region` as zeros.
    fn zero_page(space: &Self::Space, region: &Self::Memory, offset: u64) -> Result<CopyOutcome, Self::Refusal>;

    /// Write-protects `pages` pages from `offset` of `region` on. Pages that the kernel will not protect are named to
    /// `refused`, by their place among them, the first first; all others are protected then.
    fn write_protect(
        space: &Self::Space,
        region: &Self::Memory,
        offset: u64,
        pages: usize,
        refused: &mut dyn FnMut(usize),
    ) -> Result<(), Self::Refusal>;

    /// Takes the write protection of `pages` pages from `offset` of `region` on away.
    fn unprotect(space: &Self::Space, region: &Self::Memory, offset: u64, pages: usize) -> Result<(), Self::Refusal>;

    /// Whether parts of regions can be lent to the kernel.
    fn can_lend(space: &Self::Space) -> bool;

    /// Leaves `pages` pages from `offset` of `region` on to the kernel, which maps them as zeros when they are touched.
    /// None of them is mapped. After an error some of them may be lent and others not: they are to be recalled.
    fn lend(space: &Self::Space, region: &Self::Memory, offset: u64, pages: usize) -> Result<(), Self::Refusal>;

    /// Takes lent pages back: from here on their faults reach the pager. `is_here` is told of those that the kernel
    /// has, by their place among them. After an error all of them are lent.
    fn recall(
        space: &Self::Space,
        region: &Self::Memory,
        offset: u64,
        pages: usize,
        is_here: &mut dyn FnMut(usize),
    ) -> Result<(), Self::Refusal>;

    /// Has the kernel map `pages` pages from `offset` of `region` on that are lent to it, unless they are mapped. False
    /// if it may not map all of them, as they are protected, or not lent any more.
    fn populate(region: &Self::Memory, offset: u64, pages: usize) -> bool;

    /// Lets faults of `region` reach the pager.
    fn register(space: &Self::Space, region: &Self::Memory) -> Result<(), Self::Refusal>;

    /// The name of the way to far memory, for messages.
    fn url(fabric: &Self::Fabric) -> &str;

    /// A new queue pair that moves bytes between far memory and `frames`.
    fn queue_pair(
        fabric: &Self::Fabric,
        module: Module,
        frames: &Arc<Self::Memory>,
    ) -> Result<Box<dyn QueuePair>, Self::Error>;

    /// Whether an operation may be lost on its way and never end.
    fn loses_operations(fabric: &Self::Fabric) -> bool;

    /// Whether a forked child has a copy of far memory.
    fn is_inherited(fabric: &Self::Fabric) -> bool;

    /// Far memory itself, if the fabric maps it.
    fn mapped(fabric: &Self::Fabric) -> Option<&Arc<Self::Memory>>;

    /// Whether pages that are dropped as clean are compared with a second copy of far memory, which the fabric keeps.
    fn compares_clean_drops(_fabric: &Self::Fabric) -> bool {
        false
    }

    /// A page whose content is `content` is dropped as clean. Only called where [`Machine::compares_clean_drops`] says
    /// so.
    fn compare_clean_drop(_fabric: &Self::Fabric, _dropped: &CleanDrop, _content: &[u8; PAGE_BYTES]) {}

    /// Gives the far memory of a region that began at `start` back to the node.
    fn release_far(fabric: &Self::Fabric, start: RemoteAddress) -> Result<(), Self::Error>;

    /// Far memory of `bytes` at `start` reads as zeros again.
    fn discard_far(fabric: &Self::Fabric, start: RemoteAddress, bytes: u64) -> Result<(), Self::Error>;
}
