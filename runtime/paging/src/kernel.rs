//! [`Kernel`]: the machine that programs page on: this one.
//!
//! The pager (`core/pager`) asks it for time, waits, memory, the kernel's mappings and the way to far memory. All that
//! is called on the fault path is inlined.

use std::num::NonZeroU32;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Thread;

use rustix::thread::futex;
use yonder_fabric::Fabric;
use yonder_mapping::{Mapping, Run};
use yonder_pager::machine::{CopyOutcome, Machine, Notice};
use yonder_pager::{CleanDrop, Delivery, FaultPolicy, Module, QueuePair, REGIONS_MAX, RemoteAddress};
use yonder_trap::{REGISTRATIONS_MAX, Registers, Words};
use yonder_uffd::{Uffd, UffdError};
use yonder_units::{Nanos, PAGE_BYTES};

use crate::error::FarError;
use crate::worker;

const _: () = assert!(REGIONS_MAX <= REGISTRATIONS_MAX, "each region has a place in the table of the SIGBUS handler");

/// The pager of programs.
pub(crate) type Pager = yonder_pager::Pager<Kernel>;
/// Settings and counts of one far memory of a program. See [`FarMemory::tuning`](crate::FarMemory::tuning).
pub type Tuning = yonder_pager::Tuning<Kernel>;
/// A region of programs.
pub(crate) type RegionCore = yonder_pager::RegionCore<Kernel>;

/// This machine: its clock, its threads, its userfaultfd.
pub enum Kernel {}

impl Machine for Kernel {
    type Memory = Mapping;
    type Space = Uffd;
    type Fabric = dyn Fabric;
    type Thread = Thread;
    type Registers<'a> = Registers<'a>;
    type Words = Words;
    type Refusal = UffdError;
    type Error = FarError;

    #[inline(always)]
    fn now() -> Nanos {
        yonder_clock::now()
    }

    #[inline(always)]
    fn relax() {
        std::hint::spin_loop();
    }

    fn yield_now() {
        std::thread::yield_now();
    }

    #[inline(always)]
    fn suspend() {
        yonder_unithread::suspend();
    }

    #[inline(always)]
    fn words(registers: Registers<'_>) -> Words {
        registers.words()
    }

    fn notice(notice: Notice<'_, FarError>) {
        match notice {
            Notice::NotTakenBack(error) => {
                tracing::warn!(?error, "the node did not take back the memory of a region");
            }
            Notice::UnconfirmedDiscard(error) => tracing::debug!(?error, "a discard is not confirmed yet"),
        }
    }

    #[inline(always)]
    fn bound_unithread(pager: u32) -> Option<(u16, u32, FaultPolicy)> {
        worker::bound_unithread(pager)
    }

    fn bound_port(pager: u32) -> Option<u16> {
        worker::bound_port(pager)
    }

    #[inline(always)]
    fn in_no_yield_section() -> bool {
        yonder_unithread::must_stay()
    }

    #[inline(always)]
    fn guest_number() -> usize {
        worker::guest_number()
    }

    fn sleep_on(word: &AtomicU32, value: u32, time: Nanos) {
        let time = futex::Timespec {
            tv_sec: (time / 1_000_000_000).cast_signed(),
            tv_nsec: (time % 1_000_000_000).cast_signed(),
        };
        let _ = futex::wait(word, futex::Flags::PRIVATE, value, Some(&time));
    }

    fn wake(word: &AtomicU32) {
        let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
    }

    #[inline(always)]
    fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("no code panics while it holds what others wait for")
    }

    fn unpark(thread: &Thread) {
        thread.unpark();
    }

    fn frames(bytes: usize) -> Result<Mapping, FarError> {
        Ok(Mapping::anonymous(bytes)?)
    }

    #[inline(always)]
    fn address(memory: &Mapping) -> usize {
        memory.address()
    }

    #[inline(always)]
    fn len(memory: &Mapping) -> usize {
        memory.len()
    }

    #[inline(always)]
    fn read(memory: &Mapping, offset: u64, into: &mut [u8]) {
        memory.read(offset, into);
    }

    #[inline(always)]
    fn write(memory: &Mapping, offset: u64, from: &[u8]) {
        memory.write(offset, from);
    }

    #[inline(always)]
    fn copy(to: &Mapping, offset: u64, from: &Mapping, from_offset: u64) {
        to.copy_from(offset, from, from_offset, PAGE_BYTES);
    }

    #[inline(always)]
    fn try_copy(to: &Mapping, offset: u64, from: &Mapping, from_offset: u64) -> Result<(), NonZeroU32> {
        to.try_copy_from(offset, from, from_offset, PAGE_BYTES)
    }

    fn try_read(memory: &Mapping, offset: u64, into: &mut [u8]) -> Result<(), NonZeroU32> {
        memory.try_read(offset, into)
    }

    #[inline(always)]
    fn with_page<T>(memory: &Mapping, offset: u64, visit: impl FnOnce(&[u8; PAGE_BYTES]) -> T) -> T {
        memory.with_page(offset, visit)
    }

    #[inline(always)]
    fn prefetch_page(memory: &Mapping, offset: u64) {
        memory.prefetch_page(offset);
    }

    fn discard(memory: &Mapping, offset: u64, bytes: usize) -> Result<(), FarError> {
        Ok(memory.discard(offset, bytes)?)
    }

    fn drop_runs(memory: &Mapping, runs: &[Run]) -> Result<(), FarError> {
        Ok(memory.drop_runs(runs)?)
    }

    #[inline(always)]
    fn copy_page(
        space: &Uffd,
        region: &Mapping,
        offset: u64,
        source: &Mapping,
        source_offset: u64,
    ) -> Result<CopyOutcome, UffdError> {
        space.copy_page(region, offset, source, source_offset).map(outcome)
    }

    #[inline(always)]
    fn copy_pages(
        space: &Uffd,
        region: &Mapping,
        offset: u64,
        source: &Mapping,
        source_offset: u64,
        pages: usize,
    ) -> Result<(usize, CopyOutcome), UffdError> {
        let (mapped, next) = space.copy_pages(region, offset, source, source_offset, pages)?;
        Ok((mapped, outcome(next)))
    }

    #[inline(always)]
    fn zero_page(space: &Uffd, region: &Mapping, offset: u64) -> Result<CopyOutcome, UffdError> {
        space.zero_page(region, offset).map(outcome)
    }

    fn write_protect(
        space: &Uffd,
        region: &Mapping,
        offset: u64,
        pages: usize,
        refused: &mut dyn FnMut(usize),
    ) -> Result<(), UffdError> {
        space.write_protect(region, offset, pages, refused)
    }

    fn unprotect(space: &Uffd, region: &Mapping, offset: u64, pages: usize) -> Result<(), UffdError> {
        space.unprotect(region, offset, pages)
    }

    fn can_lend(space: &Uffd) -> bool {
        space.can_lend()
    }

    fn lend(space: &Uffd, region: &Mapping, offset: u64, pages: usize) -> Result<(), UffdError> {
        space.lend(region, offset, pages)
    }

    fn recall(
        space: &Uffd,
        region: &Mapping,
        offset: u64,
        pages: usize,
        is_here: &mut dyn FnMut(usize),
    ) -> Result<(), UffdError> {
        space.recall(region, offset, pages, is_here)
    }

    fn populate(region: &Mapping, offset: u64, pages: usize) -> bool {
        region.populate_part(offset, pages * PAGE_BYTES).is_ok()
    }

    fn register(space: &Uffd, region: &Mapping) -> Result<(), UffdError> {
        space.register(region)
    }

    fn url(fabric: &dyn Fabric) -> &str {
        fabric.url()
    }

    fn compares_clean_drops(fabric: &dyn Fabric) -> bool {
        fabric.copies().is_some()
    }

    fn compare_clean_drop(fabric: &dyn Fabric, dropped: &CleanDrop, content: &[u8; PAGE_BYTES]) {
        if let Some(copies) = fabric.copies() {
            copies.compare(dropped, content);
        }
    }

    fn queue_pair(fabric: &dyn Fabric, module: Module, frames: &Arc<Mapping>) -> Result<Box<dyn QueuePair>, FarError> {
        Ok(fabric.queue_pair(module, Arc::clone(frames))?)
    }

    fn loses_operations(fabric: &dyn Fabric) -> bool {
        fabric.loses_operations()
    }

    fn is_inherited(fabric: &dyn Fabric) -> bool {
        fabric.is_inherited()
    }

    #[inline(always)]
    fn mapped(fabric: &dyn Fabric) -> Option<&Arc<Mapping>> {
        fabric.mapped()
    }

    fn release_far(fabric: &dyn Fabric, start: RemoteAddress) -> Result<(), FarError> {
        Ok(fabric.release(start)?)
    }

    fn discard_far(fabric: &dyn Fabric, start: RemoteAddress, bytes: u64) -> Result<(), FarError> {
        Ok(fabric.discard(start, bytes)?)
    }
}

/// What the kernel has said, in the pager's words.
#[inline(always)]
fn outcome(outcome: yonder_uffd::CopyOutcome) -> CopyOutcome {
    match outcome {
        yonder_uffd::CopyOutcome::Installed => CopyOutcome::Installed,
        yonder_uffd::CopyOutcome::Exists => CopyOutcome::Exists,
        yonder_uffd::CopyOutcome::Again => CopyOutcome::Again,
        yonder_uffd::CopyOutcome::NoMemory => CopyOutcome::NoMemory,
    }
}

/// A userfaultfd whose faults are delivered in this way.
pub(crate) fn open_space(delivery: Delivery) -> Result<Uffd, FarError> {
    let delivery = match delivery {
        Delivery::Signal => yonder_uffd::Delivery::Signal,
        Delivery::Messages => yonder_uffd::Delivery::Messages,
        Delivery::UserMessages => yonder_uffd::Delivery::UserMessages,
    };
    Ok(Uffd::open_for(delivery)?)
}
