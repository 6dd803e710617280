//! Where a page goes once its bytes are here: into the region, or onto standby in the frame in which it has arrived.

use crate::pagetable::{Entry, Event, Source as LocalSource, State};
use yonder_units::{FrameIndex, Narrow, PAGE_BYTES, PageIndex};

use crate::budget::Account;
use crate::machine::{CopyOutcome, Machine};
use crate::pager::Pager;
use crate::port::FetchReservation;
use crate::queue_pair::RemoteAddress;
use crate::region::RegionCore;

/// Installs that the kernel may refuse because its address space is changing before the install is put off.
const AGAIN_MAX: u32 = 1_000;

/// Where an install takes the bytes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InstallSource {
    Frame(FrameIndex),
    /// Far memory that the fabric maps.
    Far(RemoteAddress),
}

/// How an install of a page that needs no fetch ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Local {
    /// The page is mapped; it was on standby or untouched.
    Mapped(LocalSource),
    /// Somebody else was first: look again.
    Raced,
    /// Local memory is full.
    NoRoom,
    /// The block is swept, or the kernel has no page now.
    Later,
}

impl<M: Machine> Pager<M> {
    /// The mapping and the offset that hold the bytes of `source`.
    #[inline]
    pub(crate) fn resolve(&self, source: InstallSource) -> (&M::Memory, u64) {
        match source {
            InstallSource::Frame(frame) => (self.local.frames.mapping(), frame.offset()),
            InstallSource::Far(address) => {
                (M::mapped(&self.fabric).expect("only mapping fabrics read without a frame"), address.0)
            }
        }
    }

    /// Maps a page that has been fetched; its entry is `Fetching` and belongs to the caller. False if its block is
    /// swept or the kernel has no page now.
    #[inline]
    fn map_arrived(&self, region: &RegionCore<M>, page: PageIndex, source: InstallSource) -> bool {
        let gate = region.gate(page);
        if !gate.enter() {
            return false;
        }
        let mapped = self.copy(region, page, source);
        if mapped {
            region.probation.returns(page, &self.reclaim.departures, self.limit());
            region.table.advance_owned(page, Event::Installed);
            if region.counts.count(page.block()) {
                self.touches_more();
            }
        }
        gate.leave();
        mapped
    }

    /// As [`Pager::map_arrived`] for `pages` pages of one block whose bytes lie one behind the other. How many are
    /// mapped, from the first on.
    pub(crate) fn map_arrived_run(
        &self,
        region: &RegionCore<M>,
        first: PageIndex,
        source: InstallSource,
        pages: usize,
    ) -> usize {
        let gate = region.gate(first);
        if !gate.enter() {
            return 0;
        }
        let (mapping, offset) = self.resolve(source);
        let mut mapped = 0;
        for _ in 0..AGAIN_MAX {
            let (from, to) = (offset + (mapped * PAGE_BYTES) as u64, first.offset() + (mapped * PAGE_BYTES) as u64);
            let copied = M::copy_pages(&self.space, &region.mapping, to, mapping, from, pages - mapped);
            let (more, next) =
                copied.unwrap_or_else(|error| panic!("an install that must be possible failed: {error}"));
            mapped += more;
            match next {
                CopyOutcome::Installed | CopyOutcome::NoMemory => break,
                CopyOutcome::Again => M::relax(),
                CopyOutcome::Exists => panic!("a page that the page table says is missing is mapped"),
            }
        }
        for page in (first.0..first.0 + mapped.narrow_u32()).map(PageIndex) {
            region.probation.returns(page, &self.reclaim.departures, self.limit());
            region.table.advance_owned(page, Event::Installed);
            if region.counts.count(page.block()) {
                self.touches_more();
            }
        }
        gate.leave();
        mapped
    }

    /// Leaves a page that has been fetched to be read in `frame`; its entry is `Fetching` and belongs to the caller.
    #[inline]
    fn keep_arrived(&self, region: &RegionCore<M>, page: PageIndex, source: InstallSource, frame: FrameIndex) {
        if let InstallSource::Far(RemoteAddress(from)) = source {
            let (mapping, _) = self.resolve(source);
            M::copy(self.local.frames.mapping(), frame.offset(), mapping, from);
        }
        region.probation.returns(page, &self.reclaim.departures, self.limit());
        // Before the entry says so: who takes it from standby counts down.
        self.local.counts.stand(1);
        self.local.frames.keep(region, page, frame);
    }

    /// Puts a page that has been fetched where its room is; its entry is `Fetching` and belongs to the caller. False if
    /// that is not possible now.
    #[inline]
    pub(crate) fn finish_fetch(
        &self,
        region: &RegionCore<M>,
        page: PageIndex,
        source: InstallSource,
        reservation: FetchReservation,
    ) -> bool {
        match reservation {
            FetchReservation::Page | FetchReservation::PageByFrame(_) => self.map_arrived(region, page, source),
            FetchReservation::Frame(frame) => {
                self.keep_arrived(region, page, source, frame);
                true
            }
        }
    }

    /// Maps an untouched or standby page whose entry was `seen`.
    pub(crate) fn map_local(&self, region: &RegionCore<M>, page: PageIndex, seen: Entry) -> Local {
        if !self.local.budget.charge(Account::Fault) {
            return Local::NoRoom;
        }
        M::preempt();
        let gate = region.gate(page);
        if !gate.enter() {
            self.local.budget.uncharge(1);
            return Local::Later;
        }
        let result = self.map_local_inside(region, page, seen);
        gate.leave();
        if !matches!(result, Local::Mapped(_)) {
            self.local.budget.uncharge(1);
        }
        result
    }

    fn map_local_inside(&self, region: &RegionCore<M>, page: PageIndex, seen: Entry) -> Local {
        let Ok(owned) = region.table.advance(page, seen, Event::Install) else { return Local::Raced };
        let State::Installing(source) = owned.state() else { unreachable!("an install was begun") };
        let mapped = match source {
            LocalSource::Zeros => self.zero(region, page),
            LocalSource::Frame(frame) => self.copy(region, page, InstallSource::Frame(frame)),
        };
        if !mapped {
            self.stay_local(region, page, source);
            return Local::Later;
        }
        region.table.advance_owned(page, Event::Installed);
        if region.counts.count(page.block()) {
            self.touches_more();
        }
        M::preempt();
        if let LocalSource::Frame(frame) = source {
            self.local.counts.leave();
            self.local.frames.release(frame);
        }
        Local::Mapped(source)
    }

    /// The kernel would not map a page whose entry is the caller's and `Installing`: it is what it was before.
    #[cold]
    pub(crate) fn stay_local(&self, region: &RegionCore<M>, page: PageIndex, source: LocalSource) {
        match source {
            LocalSource::Zeros => _ = region.table.advance_owned(page, Event::InstallFailed),
            LocalSource::Frame(frame) => self.local.frames.restand(&region.table, region.place(page), frame),
        }
    }

    fn copy(&self, region: &RegionCore<M>, page: PageIndex, source: InstallSource) -> bool {
        let (mapping, offset) = self.resolve(source);
        install::<M>(|| M::copy_page(&self.space, &region.mapping, page.offset(), mapping, offset))
    }

    fn zero(&self, region: &RegionCore<M>, page: PageIndex) -> bool {
        install::<M>(|| M::zero_page(&self.space, &region.mapping, page.offset()))
    }
}

/// Installs until the kernel takes the page; false if it does not for long.
fn install<M: Machine>(mut attempt: impl FnMut() -> Result<CopyOutcome, M::Refusal>) -> bool {
    for _ in 0..AGAIN_MAX {
        match attempt() {
            Ok(CopyOutcome::Installed) => return true,
            Ok(CopyOutcome::Again) => M::relax(),
            Ok(CopyOutcome::NoMemory) => return false,
            Ok(CopyOutcome::Exists) => panic!("a page that the page table says is missing is mapped"),
            Err(error) => panic!("an install that must be possible failed: {error}"),
        }
    }
    false
}
