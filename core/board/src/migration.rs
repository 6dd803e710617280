//! Moving ranges of an address space between nodes (Clio, section 4.7), at both ends.
//!
//! At the source: [`SlowPath::begin_move`] holds requests for the range up and says what is in it; the shell copies the
//! bytes; [`SlowPath::finish_move`] frees them, and from then on requests for the range are told that it has moved. At
//! the destination: [`SlowPath::begin_adopt`] makes the same allocations at the same addresses; the shell copies the
//! bytes into the memory that it names; [`SlowPath::finish_move`] lets requests use them. [`SlowPath::abandon_move`]
//! undoes either.
//!
//! The source decides: its [`SlowPath::finish_move`] is the one point from which the range is the destination's. It
//! comes after the destination has said that it has prepared everything, and before anything tells the destination to
//! serve the range. [`SlowPath::depart`] is [`SlowPath::begin_move`] for a transfer with a number, which is executed at
//! most once.
//!
//! Invariant: while a range moves nothing of it changes, and no request sees any of it. So no range moves while
//! something that was freed there is still in the page table (`unlinking`).

use yonder_wire::{Backing, ErrorCode, Permission};

use crate::address::{PhysicalPage, Pid, VirtualPage};
use crate::moved::Closed;
use crate::node_core::{PageSource, Upkeep};
use crate::page_table::Service;
use crate::range::{Allocated, Exposed, Terms, Window};
use crate::slow_path::{Shell, SlowPath};
use crate::transfers::{Fate, Last};

/// An allocation that moves, as the other node has to make it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MovedAllocation {
    /// Its first page.
    pub first: VirtualPage,
    /// Its pages.
    pub pages: u32,
    /// What it may be used for.
    pub permission: Permission,
    /// When it gets its memory.
    pub backing: Backing,
}

/// A range that moves. It ends with [`SlowPath::finish_move`] or [`SlowPath::abandon_move`].
#[must_use = "the range is held up until the move is finished or abandoned"]
#[derive(Debug)]
pub struct Moving {
    pid: Pid,
    pages: Window,
    way: Way,
    allocations: Vec<MovedAllocation>,
    memory: Vec<(VirtualPage, PhysicalPage)>,
    /// Parts of the range that were closed before it began to move, and why.
    before: Vec<(u32, u32, Closed)>,
    /// First address and number of the transfer that takes it away, if that has one.
    departs: Option<(u64, u64)>,
}

/// How an order to send a range away begins.
#[must_use = "a range that moves is held up until the move is finished or abandoned"]
#[derive(Debug)]
pub enum Departure {
    /// The range begins to move.
    Begun(Moving),
    /// It has left with this transfer already.
    Left,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Out,
    In,
}

impl Moving {
    /// What is allocated in it, in order.
    #[must_use]
    pub fn allocations(&self) -> &[MovedAllocation] {
        &self.allocations
    }

    /// The memory of one of its pages, if it has any.
    #[must_use]
    pub(crate) fn memory_of(&self, page: VirtualPage) -> Option<PhysicalPage> {
        let at = self.memory.binary_search_by_key(&page, |(page, _)| *page).ok()?;
        Some(self.memory[at].1)
    }

    /// Its pages that have memory, in order, and that memory: to be read at the source and written at the destination.
    /// All other pages are zeros.
    #[must_use]
    pub fn memory(&self) -> &[(VirtualPage, PhysicalPage)] {
        &self.memory
    }
}

impl SlowPath {
    /// Begins to move a range as [`SlowPath::begin_move`], by a transfer with a number. A number is used once: a
    /// transfer that has ended well is told to have left, one that was abandoned is refused.
    ///
    /// # Errors
    /// As [`SlowPath::begin_move`]; `TooOld` if a transfer of the range with this number or a higher one is known.
    pub fn depart(
        &mut self,
        pid: Pid,
        transfer: u64,
        (from, to): (u64, u64),
        upkeep: &mut impl Upkeep,
    ) -> Result<Departure, ErrorCode> {
        if self.transfers.last(pid, from) == Some(Last { transfer, fate: Fate::Left }) {
            return Ok(Departure::Left);
        }
        self.transfers.admit(pid, from, transfer)?;
        let mut moving = self.begin_move(pid, from, to, upkeep)?;
        self.transfers.note(pid, from, transfer, Fate::Open);
        moving.departs = Some((from, transfer));
        Ok(Departure::Begun(moving))
    }

    /// Begins to move what an address space has from address `from` to before `to`, both at the start of a page:
    /// requests for it are refused as busy. Returns when none is under way any more.
    ///
    /// # Errors
    /// `BadCapability` if there is no such space; `BadAddress` if an allocation lies only partly in the range, or it
    /// does not begin and end with pages; `Busy` or `Moved` if a part of it moves or has moved, `Busy` also while a
    /// part of it is being freed; `NotAllowed` if a client was told where its memory is; `OutOfMemory` if the node
    /// cannot remember more ranges.
    pub fn begin_move(&mut self, pid: Pid, from: u64, to: u64, upkeep: &mut impl Upkeep) -> Result<Moving, ErrorCode> {
        let pages = self.range_that_may_move(pid, from, to)?;
        if let Some(closed) = self.closed.overlap(pid, pages) {
            return Err(closed.code());
        }
        let allocated = self.allocator.among(pid, pages.from, pages.to);
        if allocated.iter().any(|range| range.first < pages.from || range.pages > pages.to - range.first) {
            return Err(ErrorCode::BadAddress);
        }
        if allocated.iter().any(|range| range.terms.exposed == Exposed::Yes) {
            return Err(ErrorCode::NotAllowed);
        }
        self.closed.close(pid, pages.from, pages.to, Closed::Moving);
        self.spaces.begin_move(pid);
        for page in allocated.iter().flat_map(|range| range.each()) {
            self.board.table.serve(pid, page, Service::Moving);
        }
        upkeep.wait_until_quiet();
        let with_memory = |page| Some((page, self.board.table.memory_of(pid, page)?));
        Ok(Moving {
            pid,
            pages,
            way: Way::Out,
            allocations: allocated.iter().map(MovedAllocation::from).collect(),
            memory: allocated.iter().flat_map(|range| range.each()).filter_map(with_memory).collect(),
            before: Vec::new(),
            departs: None,
        })
    }

    /// Begins to take a range over: makes `allocations` in an address space of this node, and gives memory to the pages
    /// `with_memory`, and to every page of allocations that are to have it at once. The bytes are to be written into
    /// what [`Moving::memory`] then says. Requests for the range are refused as busy.
    ///
    /// # Errors
    /// As [`SlowPath::begin_move`]; `BadAddress` also if an allocation or a page lies outside, or the space has
    /// allocations there already; `OutOfMemory` also if there is no room for one of the allocations at its place, or no
    /// memory; then nothing was changed, and another node may have room.
    pub fn begin_adopt<M, P: PageSource, U: Upkeep>(
        &mut self,
        pid: Pid,
        (from, to): (u64, u64),
        allocations: &[MovedAllocation],
        with_memory: &[VirtualPage],
        shell: &mut Shell<'_, M, P, U>,
    ) -> Result<Moving, ErrorCode> {
        let pages = self.range_that_may_move(pid, from, to)?;
        if self.closed.overlap(pid, pages) == Some(Closed::Moving) {
            return Err(ErrorCode::Busy);
        }
        let outside = |range: &MovedAllocation| {
            range.pages == 0 || range.first.0 < pages.from || range.first.0.saturating_add(range.pages) > pages.to
        };
        // A range that serves requests is never closed by who sends one too late.
        if allocations.iter().any(outside) || !self.allocator.among(pid, pages.from, pages.to).is_empty() {
            return Err(ErrorCode::BadAddress);
        }
        let overlaps = |(start, end, _): &(u32, u32, Closed)| *start < pages.to && pages.from < *end;
        let clip = |(start, end, closed): (u32, u32, Closed)| (start.max(pages.from), end.min(pages.to), closed);
        let before = self.closed.of(pid).filter(overlaps).map(clip).collect();
        self.closed.close(pid, pages.from, pages.to, Closed::Moving);
        self.spaces.begin_move(pid);
        let mut moving =
            Moving { pid, pages, way: Way::In, allocations: Vec::new(), memory: Vec::new(), before, departs: None };
        match self.adopt(&mut moving, allocations, with_memory, shell) {
            Ok(()) => Ok(moving),
            Err(code) => {
                self.abandon_move(moving);
                Err(code)
            }
        }
    }

    /// Ends a move whose bytes are at the destination. At the source the range is freed, and requests are told that it
    /// has moved; at the destination requests may use it.
    pub fn finish_move(&mut self, moving: Moving) {
        let Moving { pid, pages, way, .. } = moving;
        match way {
            Way::Out => {
                // Before the entries go, so that no request finds neither.
                self.closed.close(pid, pages.from, pages.to, Closed::Moved);
                self.free_range(&moving);
                if let Some((from, transfer)) = moving.departs {
                    self.transfers.note(pid, from, transfer, Fate::Left);
                }
            }
            Way::In => {
                self.serve_range(&moving);
                self.closed.open(pid, pages.from, pages.to);
            }
        }
        self.spaces.end_move(pid);
    }

    /// Ends a move that failed. At the source requests may use the range again; at the destination what was made is
    /// freed.
    pub fn abandon_move(&mut self, moving: Moving) {
        let Moving { pid, pages, way, .. } = moving;
        match way {
            Way::Out => self.serve_range(&moving),
            Way::In => self.free_range(&moving),
        }
        self.closed.open(pid, pages.from, pages.to);
        for (from, to, closed) in &moving.before {
            self.closed.close(pid, *from, *to, *closed);
        }
        self.spaces.end_move(pid);
    }

    /// Frees the allocations that lie in a range, and answers requests for it as moved. An allocation that lies
    /// there only partly stays as it is.
    pub(crate) fn free_and_close(&mut self, pid: Pid, from: u64, to: u64) -> Result<(), ErrorCode> {
        let pages = self.range_that_may_move(pid, from, to)?;
        if self.closed.overlap(pid, pages) == Some(Closed::Moving) {
            return Err(ErrorCode::Busy);
        }
        self.closed.close(pid, pages.from, pages.to, Closed::Moved);
        self.free_within(pid, pages);
        Ok(())
    }

    /// As [`SlowPath::free_and_close`], for a range that no other node has: requests for it are answered as for one in
    /// which nothing was ever allocated.
    pub(crate) fn free_and_open(&mut self, pid: Pid, from: u64, to: u64) -> Result<(), ErrorCode> {
        let pages = self.whole_pages(from, to)?;
        if self.is_unlinking(pid, pages) || self.closed.overlap(pid, pages) == Some(Closed::Moving) {
            return Err(ErrorCode::Busy);
        }
        // A range in the middle of one that is closed cuts that in two.
        if self.closed.has_room() {
            self.closed.open(pid, pages.from, pages.to);
        }
        self.free_within(pid, pages);
        Ok(())
    }

    fn free_within(&mut self, pid: Pid, pages: Window) {
        for range in self.allocator.among(pid, pages.from, pages.to) {
            let is_inside = range.first >= pages.from && range.pages <= pages.to - range.first;
            if let Some(freed) = is_inside.then(|| self.allocator.free(pid, VirtualPage(range.first))).flatten() {
                self.retire(freed);
            }
        }
    }

    fn range_that_may_move(&self, pid: Pid, from: u64, to: u64) -> Result<Window, ErrorCode> {
        if !self.spaces.contains(pid) {
            return Err(ErrorCode::BadCapability);
        }
        if !self.closed.has_room() {
            return Err(ErrorCode::OutOfMemory);
        }
        let pages = self.whole_pages(from, to)?;
        if self.is_unlinking(pid, pages) { Err(ErrorCode::Busy) } else { Ok(pages) }
    }

    /// The pages of a range that begins and ends with one.
    fn whole_pages(&self, from: u64, to: u64) -> Result<Window, ErrorCode> {
        let page = |address| match self.board.config.page_size.split(address) {
            Some((page, 0)) => Ok(page.0),
            _ => Err(ErrorCode::BadAddress),
        };
        let pages = Window { from: page(from)?, to: page(to)? };
        if pages.pages() == 0 { Err(ErrorCode::BadAddress) } else { Ok(pages) }
    }

    /// Makes allocations and gives them memory. What was made before a failure is in `moving`.
    fn adopt<M, P: PageSource, U: Upkeep>(
        &mut self,
        moving: &mut Moving,
        allocations: &[MovedAllocation],
        with_memory: &[VirtualPage],
        shell: &mut Shell<'_, M, P, U>,
    ) -> Result<(), ErrorCode> {
        let pid = moving.pid;
        self.pool.reclaim_freed(&mut self.allocator, shell.upkeep);
        for range in allocations {
            let terms = Terms { permission: range.permission, backing: range.backing, exposed: Exposed::No };
            let made = self.allocator.allocate_moving(pid, range.first.0, range.pages, terms);
            made.map_err(|_| ErrorCode::OutOfMemory)?;
            self.has_reserved(pid, range.pages);
            moving.allocations.push(*range);
        }
        let at_once = allocations.iter().filter(|range| range.backing == Backing::Now);
        let mut pages: Vec<VirtualPage> =
            at_once.flat_map(MovedAllocation::each).chain(with_memory.iter().copied()).collect();
        pages.sort_unstable();
        pages.dedup();
        if pages.iter().any(|page| !allocations.iter().any(|range| range.has(*page))) {
            return Err(ErrorCode::BadAddress);
        }
        let memory = self.take_pages(u32::try_from(pages.len()).map_err(|_| ErrorCode::OutOfMemory)?, shell)?;
        if let Err(code) = self.board.count_mapped(self.payer_of(pid), memory.len()) {
            for page in memory {
                self.pool.give_back(page);
            }
            return Err(code);
        }
        for (page, memory) in pages.into_iter().zip(memory) {
            self.board.table.adopt(pid, page, memory);
            moving.memory.push((page, memory));
        }
        Ok(())
    }

    fn free_range(&mut self, moving: &Moving) {
        for range in &moving.allocations {
            let freed =
                self.allocator.free(moving.pid, range.first).expect("nothing of a range changes while it moves");
            self.retire(freed);
        }
    }

    fn serve_range(&self, moving: &Moving) {
        for page in moving.allocations.iter().flat_map(MovedAllocation::each) {
            self.board.table.serve(moving.pid, page, Service::Open);
        }
    }
}

impl MovedAllocation {
    fn each(&self) -> impl Iterator<Item = VirtualPage> {
        (self.first.0..self.first.0 + self.pages).map(VirtualPage)
    }

    fn has(&self, page: VirtualPage) -> bool {
        page.0.checked_sub(self.first.0).is_some_and(|offset| offset < self.pages)
    }
}

impl From<&Allocated> for MovedAllocation {
    fn from(range: &Allocated) -> Self {
        let Terms { permission, backing, .. } = range.terms;
        Self { first: VirtualPage(range.first), pages: range.pages, permission, backing }
    }
}
