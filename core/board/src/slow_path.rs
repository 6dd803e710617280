//! [`SlowPath`]: makes and ends address spaces, frees, discards, and says how full the node is. It allocates in
//! `allocation`.
//!
//! Each operation is there as a function, for offloads and the shell, and as a message, in `messages`. It never waits
//! for data threads except to use freed memory again, and before a range moves, which is in `migration`.
//!
//! One owner: the slow path's thread. Invariant: only it inserts and removes entries of the page table.

use std::collections::VecDeque;
use std::sync::Arc;
use yonder_units::Narrow;

use yonder_wire::{Backing, ErrorCode, Header, NodeStatus, Permission, Rights, Translation};

use crate::accounts::AccountNumber;
use crate::address::{PhysicalPage, Pid, Piece, VirtualPage};
use crate::adoption::Adoptions;
use crate::allocation::Provisions;
use crate::allocator::{Allocator, Freed};
use crate::capability::Claims;
use crate::messages::Outcome;
use crate::moved::ClosedRanges;
use crate::node_core::{Memory, NodeCore, Upkeep};
use crate::page_table::Lookup;
use crate::pool::Pool;
use crate::range::{Exposed, Window};
use crate::recent::{NodeTime, Recent};
use crate::source::Source;
use crate::spaces::{Owner, Spaces};
use crate::transfers::Transfers;
use crate::unlinking::{Progress, Unlinking};

/// Zeros are written in pieces of this many bytes.
const ZEROS_BYTES: usize = 4096;

/// What needs no capability is remembered apart: one of so many of what else is.
const STRANGERS_DIVISOR: usize = 16;

/// Most address spaces whose lease is over that one turn ends.
const EXPIRED_MAX: usize = 16;

/// What the shell gives to the slow path.
#[derive(Debug)]
pub struct Shell<'a, M, P, U> {
    /// The bytes of the node's pages.
    pub memory: &'a M,
    /// Pages that data threads are about to take, for an allocation that needs them now.
    pub pages: &'a P,
    /// How freed memory becomes usable again.
    pub upkeep: &'a mut U,
}

/// The one part of a node that changes which memory belongs to whom.
#[derive(Debug)]
pub struct SlowPath {
    pub(crate) board: Arc<NodeCore>,
    pub(crate) allocator: Allocator,
    pub(crate) pool: Pool,
    pub(crate) closed: ClosedRanges,
    pub(crate) spaces: Spaces,
    pub(crate) adoptions: Adoptions,
    pub(crate) transfers: Transfers,
    pub(crate) recent: Recent<Result<Outcome, ErrorCode>>,
    /// The same of requests that need no capability.
    pub(crate) recent_of_strangers: Recent<Result<Outcome, ErrorCode>>,
    /// What goes in pieces.
    pub(crate) unlinking: VecDeque<Unlinking>,
    pub(crate) provisions: Provisions,
    /// Address spaces that have begun or ended and whom the shell has not been told of.
    created: VecDeque<Pid>,
    ended: VecDeque<Pid>,
}

impl SlowPath {
    pub(crate) fn new(board: Arc<NodeCore>, closed: ClosedRanges) -> Self {
        Self {
            allocator: Allocator::new(Arc::clone(&board.table)),
            pool: Pool::new(board.config.pages, board.config.page_size),
            closed,
            spaces: Spaces::new(board.config.spaces, board.config.lease_step_max, Arc::clone(&board.lives)),
            adoptions: Adoptions::default(),
            transfers: Transfers::default(),
            recent: Recent::new(board.config.recent_max),
            recent_of_strangers: Recent::new(board.config.recent_max.div_ceil(STRANGERS_DIVISOR)),
            unlinking: VecDeque::new(),
            provisions: Provisions::default(),
            created: VecDeque::new(),
            ended: VecDeque::new(),
            board,
        }
    }

    /// Makes an address space for the shell with the number `wanted`, or with one that is drawn, and a lease of
    /// `lease_ms` milliseconds, or none if that is 0. It takes nothing from the shares of clients.
    ///
    /// # Errors
    /// `BadAddress` if there is one with this number, `Busy` if what an earlier one had is still being freed,
    /// `OutOfMemory` if there are as many as there may be.
    pub fn create_space(&mut self, wanted: Option<Pid>, lease_ms: u32, now: NodeTime) -> Result<Pid, ErrorCode> {
        self.create_space_of(wanted, 0, lease_ms, now)
    }

    /// The same for the tenant with a number, who alone may use it, and pays for it; 0 is all who have a capability,
    /// and nobody pays. The limit of address spaces is not asked: one that a controller has made is made everywhere.
    ///
    /// # Errors
    /// As [`SlowPath::create_space`].
    pub fn create_space_of(
        &mut self,
        wanted: Option<Pid>,
        tenant: u16,
        lease_ms: u32,
        now: NodeTime,
    ) -> Result<Pid, ErrorCode> {
        let payer = match tenant {
            0 => AccountNumber::SHARED,
            tenant => self.board.accounts.number_of(Source::of_tenant(tenant)),
        };
        let owner = Owner { tenant, payer };
        let pid = self.spaces.create(wanted, owner, lease_ms, now, &self.board.capabilities)?;
        self.has_created(pid, payer);
        Ok(pid)
    }

    /// Makes an address space for a client at `source`, and says how long its lease is.
    pub(crate) fn create_space_for(
        &mut self,
        source: Source,
        lease_ms: u32,
        now: NodeTime,
    ) -> Result<(Pid, u32), ErrorCode> {
        let payer = self.board.accounts.number_of(source);
        if !self.board.account(payer).has_room_for_space() {
            return Err(ErrorCode::OutOfMemory);
        }
        let (pid, lease_ms) = self.spaces.create_for(source, payer, lease_ms, now, &self.board.capabilities)?;
        self.has_created(pid, payer);
        Ok((pid, lease_ms))
    }

    fn has_created(&mut self, pid: Pid, payer: AccountNumber) {
        self.board.account(payer).begin_space();
        self.created.push_back(pid);
    }

    /// The account that pays for what an address space has.
    pub(crate) fn payer_of(&self, pid: Pid) -> AccountNumber {
        self.spaces.payer_of(pid)
    }

    /// Counts pages of an allocation that is to be made.
    ///
    /// # Errors
    /// `OutOfMemory` if the payer has reserved as much as it may: then nothing is counted.
    pub(crate) fn reserve(&self, pid: Pid, pages: u32) -> Result<(), ErrorCode> {
        let bytes = u64::from(pages) * self.board.config.page_size.bytes();
        let account = self.board.account(self.payer_of(pid));
        if !account.may_reserve(bytes) {
            return Err(ErrorCode::OutOfMemory);
        }
        account.reserve(bytes);
        Ok(())
    }

    /// Counts pages of an allocation that another node has granted, which is not refused here.
    pub(crate) fn has_reserved(&self, pid: Pid, pages: u32) {
        let bytes = u64::from(pages) * self.board.config.page_size.bytes();
        self.board.account(self.payer_of(pid)).reserve(bytes);
    }

    /// An allocation that was counted is not made, or not there any more.
    pub(crate) fn unreserve(&self, pid: Pid, pages: u64) {
        self.board.account(self.payer_of(pid)).unreserve(pages * self.board.config.page_size.bytes());
    }

    /// Ends an address space, and frees all it has: what is much of it by [`SlowPath::work`]. What another node was
    /// sending to it is given up.
    ///
    /// # Errors
    /// `BadCapability` if there is no such space, `Busy` while the shell moves a range of it.
    pub fn destroy_space(&mut self, pid: Pid) -> Result<(), ErrorCode> {
        self.begin_destroy_space(pid, None).map(drop)
    }

    /// As [`SlowPath::destroy_space`], for a request that is answered when all is freed.
    pub(crate) fn begin_destroy_space(&mut self, pid: Pid, asked: Option<&Header>) -> Result<Progress, ErrorCode> {
        if self.spaces.moves_of(pid)? as usize > self.adoptions.count_of(pid) {
            return Err(ErrorCode::Busy);
        }
        self.end_adoptions_of(pid);
        self.give_up_provisions_of(pid);
        self.spaces.remove(pid)?;
        self.board.account(self.payer_of(pid)).end_space();
        // Before any of its memory is free, which may be mapped.
        self.pool.quarantine.end(pid);
        Ok(self.unlink_space(pid, asked))
    }

    /// Whether an address space has ended and not all that it had is freed: its number cannot be used again yet.
    #[must_use]
    pub fn is_ending(&self, pid: Pid) -> bool {
        self.spaces.is_ending(pid)
    }

    /// All that an address space had is freed.
    pub(crate) fn space_has_ended(&mut self, pid: Pid) {
        self.spaces.has_ended(pid);
        self.allocator.end(pid);
        self.closed.forget(pid);
        self.transfers.forget(pid);
        self.ended.push_back(pid);
    }

    /// A client may have memory of the address space mapped, because it was told where that is. If the space ends, its
    /// memory is given to nobody until [`SlowPath::let_go`] was called as often as this.
    pub fn hold(&mut self, pid: Pid) {
        self.pool.quarantine.hold(pid);
    }

    /// A client that [`SlowPath::hold`] was called for has nothing mapped any more.
    ///
    /// # Panics
    /// If it was not called for one.
    pub fn let_go(&mut self, pid: Pid) {
        self.pool.quarantine.let_go(pid);
    }

    /// The capability for `rights` to an address space of this node; one that opens nothing if there is no such space.
    #[must_use]
    pub fn capability(&self, pid: Pid, rights: Rights) -> u128 {
        self.board.capabilities.of(pid, Claims::of(rights, self.spaces.life_of(pid), self.spaces.tenant_of(pid)))
    }

    /// Begins the lease of an address space anew.
    ///
    /// # Errors
    /// `BadCapability` if there is no such space.
    pub fn renew(&mut self, pid: Pid, now: NodeTime) -> Result<(), ErrorCode> {
        self.spaces.renew(pid, now)
    }

    /// When the next lease ends, unless it is renewed, or another node is taken to have given up sending a range: call
    /// [`SlowPath::expire`] then.
    #[must_use]
    pub fn next_expiry(&self) -> Option<NodeTime> {
        self.spaces.next_expiry().into_iter().chain(self.adoptions.next_end()).min()
    }

    /// Ends address spaces whose lease is over at `now`, some of them if they are many: [`SlowPath::next_expiry`] has
    /// passed then. One that moves gets another lease instead. Gives up what other nodes have begun to send and not
    /// gone on with.
    ///
    /// To be called at least once in [`Config::lease_step_max`](crate::Config::lease_step_max): leases stand still for
    /// a longer time without a call, or a request that makes or renews one.
    pub fn expire(&mut self, now: NodeTime) {
        self.expire_adoptions(now);
        for _ in 0..EXPIRED_MAX {
            let Some(pid) = self.spaces.expired(now) else { break };
            self.destroy_space(pid).expect("it is there, and does not move");
        }
    }

    /// An address space that was made, each once. The shell asks after every message until there is none, and tells the
    /// offloads before it sends the answer.
    pub fn take_created(&mut self) -> Option<Pid> {
        self.created.pop_front()
    }

    /// An address space that has ended, each once. The shell asks after every message and expiry until there is none,
    /// and tells the offloads.
    pub fn take_ended(&mut self) -> Option<Pid> {
        self.ended.pop_front()
    }

    /// Frees the allocation that begins at `address`. No request that arrives after this finds it; the pages of a long
    /// one vanish one after the other, by [`SlowPath::work`].
    ///
    /// # Errors
    /// `BadAddress` if none begins there, `Busy` if it moves, `Moved` if it has moved.
    pub fn free(&mut self, pid: Pid, address: u64) -> Result<(), ErrorCode> {
        self.begin_free(pid, address, None).map(drop)
    }

    /// As [`SlowPath::free`], for a request that is answered when all is freed.
    pub(crate) fn begin_free(&mut self, pid: Pid, address: u64, asked: Option<&Header>) -> Result<Progress, ErrorCode> {
        let (first, offset) = self.board.config.page_size.split(address).ok_or(ErrorCode::BadAddress)?;
        self.check_open(pid, first)?;
        let range = self.allocator.at(pid, first).filter(|_| offset == 0).ok_or(ErrorCode::BadAddress)?;
        if self.board.table.look_up(pid, VirtualPage(range.first)) == Some(Lookup::Moving) {
            return Err(ErrorCode::Busy);
        }
        let pages = self.allocator.begin_free(pid, first).ok_or(ErrorCode::BadAddress)?;
        Ok(self.unlink_range(pid, first.0..first.0 + pages, asked))
    }

    /// Makes bytes read as zeros. Whole pages give their memory back, or get other memory that is zeroed already if
    /// their allocation was to have it at once; so the pool zeroes memory, when there is time.
    ///
    /// # Errors
    /// `BadLength` if there are none; `BadAddress`, `Moved`, `Busy` or `NotAllowed` as for writes. Then nothing was
    /// changed.
    pub fn discard<M: Memory, P, U: Upkeep>(
        &mut self,
        pid: Pid,
        address: u64,
        bytes: u64,
        shell: &mut Shell<'_, M, P, U>,
    ) -> Result<(), ErrorCode> {
        let size = self.board.config.page_size;
        let pieces = size.pieces(address, bytes)?;
        for piece in pieces.clone() {
            self.check_writable(pid, piece.page)?;
        }
        for piece in pieces {
            let range = self.allocator.around(pid, piece.page).expect("it was checked");
            let is_whole = piece.bytes == size.bytes();
            if is_whole && range.terms.backing == Backing::OnDemand {
                self.take_memory(pid, piece.page);
            } else if is_whole && range.terms.exposed == Exposed::No && self.has_memory(pid, piece.page) {
                match self.pool.take_clean() {
                    Some(clean) => self.exchange_memory(pid, piece.page, clean),
                    None => self.zero(pid, &piece, shell),
                }
            } else {
                self.zero(pid, &piece, shell);
            }
        }
        Ok(())
    }

    fn has_memory(&self, pid: Pid, page: VirtualPage) -> bool {
        self.board.table.memory_of(pid, page).is_some()
    }

    /// Takes the memory of a page, which reads as zeros from now on.
    fn take_memory(&mut self, pid: Pid, page: VirtualPage) {
        if let Some(memory) = self.board.table.unmap(pid, page) {
            self.board.count_unmapped(self.payer_of(pid), 1);
            self.pool.retire_memory(memory);
        }
    }

    /// Gives a page memory that reads as zeros for what it has. The page stays counted meanwhile, so that its owner, at
    /// its limit, cannot lose the room to another page of its own.
    fn exchange_memory(&mut self, pid: Pid, page: VirtualPage, clean: PhysicalPage) {
        let before = self.board.table.unmap(pid, page);
        let had_memory = before.is_some();
        if let Some(memory) = before {
            self.pool.retire_memory(memory);
        }
        let is_mapped = match self.board.table.look_up(pid, page) {
            Some(Lookup::Reserved(slot, _)) => self.board.table.map(slot, clean).is_ok(),
            // A write has come between, and has brought memory, which it has counted.
            _ => false,
        };
        if !is_mapped {
            self.pool.give_back(clean);
        }
        match (had_memory, is_mapped) {
            (true, false) => self.board.count_unmapped(self.payer_of(pid), 1),
            // Only pages that have memory are exchanged.
            (false, true) => unreachable!("a page without memory was exchanged"),
            _ => {}
        }
    }

    /// Makes a page or a part of it read as zeros where it is.
    fn zero<M: Memory, P, U: Upkeep>(&self, pid: Pid, piece: &Piece, shell: &mut Shell<'_, M, P, U>) {
        match self.board.table.memory_of(pid, piece.page) {
            Some(page) if piece.bytes == self.board.config.page_size.bytes() => shell.upkeep.zero(page),
            Some(page) => write_zeros(shell.memory, page, piece.offset, piece.bytes),
            None => {}
        }
    }

    /// Where in the node's memory `address` lies. Only for allocations that got their memory at once: it stays theirs
    /// until they are freed. From then on the allocation cannot move, because its accesses could not be held up.
    ///
    /// # Errors
    /// `BadAddress`, `Moved` or `Busy` as for reads; `NotAllowed` if the allocation gets its memory on demand.
    pub fn translate(&mut self, pid: Pid, address: u64) -> Result<Translation, ErrorCode> {
        let size = self.board.config.page_size;
        let (page, offset) = size.split(address).ok_or(ErrorCode::BadAddress)?;
        self.check_open(pid, page)?;
        let range = self.allocator.around(pid, page).ok_or(ErrorCode::BadAddress)?;
        match self.board.table.look_up(pid, page) {
            Some(Lookup::Mapped(_, _, memory)) if range.terms.backing == Backing::Now => {
                self.allocator.expose(pid, VirtualPage(range.first));
                Ok(Translation { offset: u64::from(memory.0) * size.bytes() + offset, bytes: size.bytes() - offset })
            }
            Some(Lookup::Moving) => Err(ErrorCode::Busy),
            _ => Err(ErrorCode::NotAllowed),
        }
    }

    /// How full the node is.
    #[must_use]
    pub fn status(&self) -> NodeStatus {
        let page_bytes = self.board.config.page_size.bytes();
        NodeStatus {
            memory_bytes: u64::from(self.board.config.pages) * page_bytes,
            free_bytes: u64::from(self.board.free_pages()) * page_bytes,
            allocated_bytes: (self.allocator.pages() - self.pool.waiting_pages()) * page_bytes,
            spaces: self.spaces.len() as u64,
        }
    }

    /// A page for the data threads' ring: it is free, and reads as zeros. `None` if every page is in use or in the
    /// ring.
    pub fn take_free_page(&mut self, upkeep: &mut impl Upkeep) -> Option<PhysicalPage> {
        self.pool.take(&mut self.allocator, upkeep)
    }

    /// Zeroes some of the memory that was freed, so that it returns to the machine and is ready when it is needed.
    /// Returns whether there is more: to be called when there is nothing else to do.
    pub fn clean(&mut self, upkeep: &mut impl Upkeep) -> bool {
        let has_more = self.pool.clean(&mut self.allocator, upkeep);
        self.board.set_lacking(self.pool.quarantine.lacking());
        has_more
    }

    /// Counts the memory of a freed range as free, which others may use once no request does.
    pub(crate) fn retire(&mut self, freed: Freed) {
        self.unreserve(freed.pid(), freed.pages());
        self.board.count_unmapped(self.payer_of(freed.pid()), freed.memory.len());
        self.pool.retire(freed);
    }

    /// Refuses a page that is closed.
    fn check_open(&self, pid: Pid, page: VirtualPage) -> Result<(), ErrorCode> {
        let closed = self.closed.overlap(pid, Window::page(page));
        closed.map_or(Ok(()), |closed| Err(closed.code()))
    }

    fn check_writable(&self, pid: Pid, page: VirtualPage) -> Result<(), ErrorCode> {
        self.check_open(pid, page)?;
        // A range that is being freed in pieces is no allocation, and still has pages in the table.
        self.allocator.around(pid, page).ok_or(ErrorCode::BadAddress)?;
        match self.board.table.look_up(pid, page) {
            Some(Lookup::Reserved(_, permission) | Lookup::Mapped(_, permission, _)) => {
                if permission == Permission::ReadWrite { Ok(()) } else { Err(ErrorCode::NotAllowed) }
            }
            Some(Lookup::Moving) => Err(ErrorCode::Busy),
            None => Err(ErrorCode::BadAddress),
        }
    }
}

fn write_zeros(memory: &impl Memory, page: PhysicalPage, offset: u64, bytes: u64) {
    const ZEROS: [u8; ZEROS_BYTES] = [0; ZEROS_BYTES];
    let mut done = 0;
    while done < bytes {
        let part = (bytes - done).min(ZEROS_BYTES as u64);
        memory.write(page, offset + done, &ZEROS[..part.narrow_usize()]);
        done += part;
    }
}
