//! Allocation of memory: [`SlowPath::allocate`] at once, and a [`Provision`] for a request that may have to wait.
//!
//! An allocation that is to have its memory at once may find that what is free is not zeroed. For a request that goes
//! in pieces, as a long free does, so that no tenant waits for another's zeros: the memory is counted as taken when the
//! work begins, pages are kept as they are zeroed, and the range is given out when all are there. The request is
//! refused as busy meanwhile, and so are its copies and its abort.
//!
//! Invariant: memory that a provision was promised is counted as taken, once, until it is some page's or is given back.

use std::collections::VecDeque;

use yonder_wire::{AllocateRequest, Allocated, Backing, ErrorCode, Header};

use crate::address::{PhysicalPage, Pid, VirtualPage};
use crate::messages::Outcome;
use crate::moved::Closed;
use crate::node_core::{PageSource, Upkeep};
use crate::page_table::Lookup;
use crate::range::{Exposed, Terms, Window};
use crate::recent::{NodeTime, Party};
use crate::slow_path::{Shell, SlowPath};
use crate::unlinking::Progress;

/// Allocations that may wait for memory, and how many of one address space.
const PROVISIONS_MAX: usize = 64;
const PROVISIONS_OF_SPACE_MAX: usize = 4;

/// An allocation whose memory is being zeroed.
#[derive(Debug)]
pub(crate) struct Provision {
    pid: Pid,
    request: AllocateRequest,
    /// Pages that it is to have, and the memory of some of them.
    pages: u32,
    memory: Vec<PhysicalPage>,
    /// The request that asked for it.
    asked: Header,
}

/// The allocations that wait for memory.
#[derive(Default, Debug)]
pub(crate) struct Provisions(VecDeque<Provision>);

impl Provisions {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one was begun by the request with this name.
    pub(crate) fn has(&self, first_id: u64) -> bool {
        self.0.iter().any(|provision| provision.asked.first_id == first_id)
    }

    fn have_room_for(&self, pid: Pid) -> bool {
        let of_space = self.0.iter().filter(|provision| provision.pid == pid).count();
        self.0.len() < PROVISIONS_MAX && of_space < PROVISIONS_OF_SPACE_MAX
    }
}

impl SlowPath {
    /// Allocates memory that reads as zeros; returns its first address, and what was allocated. If it is to be there at
    /// once, all that is not zeroed is zeroed now.
    ///
    /// # Errors
    /// `BadCapability` if there is no such space; `BadLength` if nothing is asked for, or more than a space has;
    /// `BadAddress` if the window is too small; `OutOfMemory` if there is no room; `Moved` or `Busy` if the window is
    /// on another node or on its way.
    pub fn allocate<M, P: PageSource, U: Upkeep>(
        &mut self,
        pid: Pid,
        request: &AllocateRequest,
        shell: &mut Shell<'_, M, P, U>,
    ) -> Result<(u64, Allocated), ErrorCode> {
        let pages = self.pages_of(pid, request, shell)?;
        let taken = match request.backing {
            Backing::OnDemand => Ok(Vec::new()),
            Backing::Now => self.take_pages(pages, shell),
        };
        let memory = taken.inspect_err(|_| self.unreserve(pid, pages.into()))?;
        if let Err(code) = self.board.count_mapped(self.payer_of(pid), memory.len()) {
            for page in memory {
                self.pool.give_back(page);
            }
            self.unreserve(pid, pages.into());
            return Err(code);
        }
        self.place(pid, request, pages, memory, shell)
    }

    /// As [`SlowPath::allocate`], for a request that is answered when its memory is zeroed: `Busy` until then.
    pub(crate) fn begin_allocate<M, P: PageSource, U: Upkeep>(
        &mut self,
        pid: Pid,
        request: &AllocateRequest,
        asked: &Header,
        shell: &mut Shell<'_, M, P, U>,
    ) -> Result<(u64, Allocated), ErrorCode> {
        if request.backing == Backing::OnDemand {
            return self.allocate(pid, request, shell);
        }
        let pages = self.pages_of(pid, request, shell)?;
        let has_room = pages <= self.board.free_pages();
        if !has_room || self.board.count_mapped(self.payer_of(pid), pages as usize).is_err() {
            self.unreserve(pid, pages.into());
            return Err(ErrorCode::OutOfMemory);
        }
        let mut provision = Provision { pid, request: *request, pages, memory: Vec::new(), asked: *asked };
        match self.provide(&mut provision, shell) {
            Ok(Progress::Done) => self.place(pid, request, pages, provision.memory, shell),
            Ok(Progress::Begun) if self.provisions.have_room_for(pid) => {
                self.recent.begin(Party::of(asked), asked);
                self.provisions.0.push_back(provision);
                Err(ErrorCode::Busy)
            }
            Ok(Progress::Begun) | Err(_) => {
                self.give_up(provision);
                Err(ErrorCode::Busy)
            }
        }
    }

    /// A piece of what an allocation waits for; of another one each time, if there are several.
    pub(crate) fn work_on_provisions<M, P: PageSource, U: Upkeep>(
        &mut self,
        now: NodeTime,
        shell: &mut Shell<'_, M, P, U>,
    ) {
        let Some(mut provision) = self.provisions.0.pop_front() else { return };
        let result = match self.provide(&mut provision, shell) {
            Ok(Progress::Begun) => return self.provisions.0.push_back(provision),
            Ok(Progress::Done) => {
                let memory = std::mem::take(&mut provision.memory);
                self.place(provision.pid, &provision.request, provision.pages, memory, shell)
            }
            Err(code) => {
                let asked = provision.asked;
                self.give_up(provision);
                return self.recent.keep_ended(Party::of(&asked), &asked, Err(code), now);
            }
        };
        let outcome = result.map(|(address, allocated)| Outcome::Allocated { address, allocated });
        self.recent.keep_ended(Party::of(&provision.asked), &provision.asked, outcome, now);
    }

    /// An address space ends: what it waits for is never allocated.
    pub(crate) fn give_up_provisions_of(&mut self, pid: Pid) {
        let all = std::mem::take(&mut self.provisions.0);
        let (given_up, kept): (VecDeque<_>, VecDeque<_>) = all.into_iter().partition(|provision| provision.pid == pid);
        self.provisions.0 = kept;
        for provision in given_up {
            self.give_up(provision);
        }
    }

    fn give_up(&mut self, provision: Provision) {
        self.unreserve(provision.pid, provision.pages.into());
        self.board.count_unmapped(self.payer_of(provision.pid), provision.pages as usize);
        for page in provision.memory {
            self.pool.give_back(page);
        }
    }

    /// Zeroes some of what an allocation lacks.
    fn provide<M, P: PageSource, U: Upkeep>(
        &mut self,
        provision: &mut Provision,
        shell: &mut Shell<'_, M, P, U>,
    ) -> Result<Progress, ErrorCode> {
        let mut left = self.pool.cleaned_max();
        while provision.memory.len() < provision.pages as usize {
            if self.pool.would_zero() {
                if left == 0 {
                    return Ok(Progress::Begun);
                }
                left -= 1;
            }
            let page = self.pool.take(&mut self.allocator, shell.upkeep).or_else(|| shell.pages.take());
            // The rest is in the hands of data threads, which will use it or give it back.
            provision.memory.push(page.ok_or(ErrorCode::Busy)?);
        }
        Ok(Progress::Done)
    }

    /// How many pages are asked for. They are counted as reserved then.
    fn pages_of<M, P, U: Upkeep>(
        &mut self,
        pid: Pid,
        request: &AllocateRequest,
        shell: &mut Shell<'_, M, P, U>,
    ) -> Result<u32, ErrorCode> {
        if !self.spaces.contains(pid) {
            return Err(ErrorCode::BadCapability);
        }
        let size = self.board.config.page_size;
        let pages = size.pages_for(request.bytes).filter(|_| request.bytes > 0).ok_or(ErrorCode::BadLength)?;
        if self.window(request).pages() < pages {
            return Err(ErrorCode::BadAddress);
        }
        // First, so that freed ranges do not keep slots that the search would have to go round.
        self.pool.reclaim_freed(&mut self.allocator, shell.upkeep);
        self.board.set_lacking(self.pool.quarantine.lacking());
        self.reserve(pid, pages)?;
        Ok(pages)
    }

    /// Finds a range, and gives it its memory, which is counted as taken.
    fn place<M, P, U: Upkeep>(
        &mut self,
        pid: Pid,
        request: &AllocateRequest,
        pages: u32,
        memory: Vec<PhysicalPage>,
        shell: &mut Shell<'_, M, P, U>,
    ) -> Result<(u64, Allocated), ErrorCode> {
        let (size, window) = (self.board.config.page_size, self.window(request));
        let terms = Terms { permission: request.permission, backing: request.backing, exposed: Exposed::No };
        let found = loop {
            let found = self.allocator.allocate(pid, pages, terms, window, &self.closed);
            // What was freed and is not usable yet may be what it lacks.
            if found.is_ok() || !self.pool.reclaim_freed(&mut self.allocator, shell.upkeep) {
                break found;
            }
        };
        let Ok((first, retries)) = found else {
            self.unreserve(pid, pages.into());
            self.board.count_unmapped(self.payer_of(pid), memory.len());
            for page in memory {
                self.pool.give_back(page);
            }
            let closed = if window == Window::ALL { None } else { self.closed.overlap(pid, window) };
            return Err(closed.map_or(ErrorCode::OutOfMemory, Closed::code));
        };
        self.back(pid, first, memory);
        Ok((size.address(first), Allocated { bytes: u64::from(pages) * size.bytes(), retries }))
    }

    /// Memory for `pages` pages, all or none: the pool's first, then the data threads'.
    pub(crate) fn take_pages<M, P: PageSource, U: Upkeep>(
        &mut self,
        pages: u32,
        shell: &mut Shell<'_, M, P, U>,
    ) -> Result<Vec<PhysicalPage>, ErrorCode> {
        if pages > self.board.free_pages() {
            return Err(ErrorCode::OutOfMemory);
        }
        let mut taken = Vec::with_capacity(pages as usize);
        while taken.len() < pages as usize {
            let page = self.pool.take(&mut self.allocator, shell.upkeep).or_else(|| shell.pages.take());
            let Some(page) = page else {
                // The rest is in the hands of data threads, which will use it or give it back.
                for page in taken {
                    self.pool.give_back(page);
                }
                return Err(ErrorCode::Busy);
            };
            taken.push(page);
        }
        Ok(taken)
    }

    /// The whole pages of a request's window.
    fn window(&self, request: &AllocateRequest) -> Window {
        let size = self.board.config.page_size;
        let number = |pages: u64| u32::try_from(pages).unwrap_or(u32::MAX);
        let to = if request.to == 0 { u32::MAX } else { number(request.to / size.bytes()) };
        Window::new(number(request.from.div_ceil(size.bytes())), to)
    }

    /// Gives the first pages of a new allocation their memory.
    fn back(&self, pid: Pid, first: VirtualPage, memory: Vec<PhysicalPage>) {
        for (page, memory) in (first.0..).zip(memory) {
            let Some(Lookup::Reserved(slot, _)) = self.board.table.look_up(pid, VirtualPage(page)) else {
                panic!("page {page} of a new allocation is in use");
            };
            self.board.table.map(slot, memory).expect("nobody knows the address yet");
        }
    }
}
