//! [`Access`]: reads, writes and atomics in address spaces, by PID and without messages. Requests and offloads share
//! it.
//!
//! A page that was looked up, and its memory, may be used until the caller next passes a point that
//! [`crate::Upkeep::wait_until_quiet`] waits for; so nothing that was looked up outlives a call.
//!
//! Invariant: a write looks at all its pages before it changes any.

use yonder_units::Narrow;
use yonder_wire::{AtomicOperation, ErrorCode, PAYLOAD_BYTES_MAX, Permission};

use crate::address::{PAGE_BYTES_MIN, PhysicalPage, Pid, VirtualPage};
use crate::node_core::{Memory, NodeCore, PageSource};
use crate::page_table::{Lookup, Slot};
use crate::recent::NodeTime;

/// Most pages that a fragment touches: it may begin and end inside of one.
#[expect(clippy::cast_possible_truncation, reason = "a size of a page")]
const PIECES_MAX: usize = PAYLOAD_BYTES_MAX / PAGE_BYTES_MIN as usize + 1;
/// Bytes of a word that is changed atomically.
const WORD_BYTES: u64 = 8;

/// The address spaces of a node, as one thread uses them.
#[derive(Debug)]
pub struct Access<'a, M, P> {
    board: &'a NodeCore,
    memory: &'a M,
    pages: &'a P,
    /// When the request was sent first that this is for, if it is for one that may come late.
    sent: NodeTime,
}

/// A page that may be written.
#[derive(Clone, Copy)]
enum Target {
    Reserved(Slot),
    Mapped(PhysicalPage),
}

impl<'a, M: Memory, P: PageSource> Access<'a, M, P> {
    pub(crate) const fn new(board: &'a NodeCore, memory: &'a M, pages: &'a P) -> Self {
        Self { board, memory, pages, sent: NodeTime::MAX }
    }

    /// For a request that was sent first at this time or later: it changes nothing in a region that has come back
    /// since.
    #[inline]
    pub(crate) fn sent_at(self, sent: NodeTime) -> Self {
        Self { sent, ..self }
    }

    /// Copies the bytes at `address`. What was never written is zeros, and takes no memory.
    ///
    /// # Errors
    /// `BadLength` if nothing is asked for; `BadAddress`, `Moved`, or `Busy` if a page is moving or may have moved.
    /// Then `into` has any content.
    #[inline]
    pub fn read(&self, pid: Pid, address: u64, into: &mut [u8]) -> Result<(), ErrorCode> {
        let mut rest = into;
        for piece in self.board.config.page_size.pieces(address, rest.len() as u64)? {
            let (part, behind) = rest.split_at_mut(piece.bytes.narrow_usize());
            match self.find(pid, piece.page)? {
                Found::Reserved(..) => part.fill(0),
                Found::Mapped(_, page) => self.memory.read(page, piece.offset, part),
            }
            rest = behind;
        }
        Ok(())
    }

    /// Stores bytes at `address`. If it is refused, nothing was changed, unless `from` is longer than
    /// [`PAYLOAD_BYTES_MAX`]: then what comes before the part that was refused may have been stored.
    ///
    /// # Errors
    /// As [`Access::read`]; `NotAllowed` if a page is read-only; `OutOfMemory`, or `Busy` if the node lacks a page only
    /// for a moment.
    #[inline]
    pub fn write(&self, pid: Pid, address: u64, from: &[u8]) -> Result<(), ErrorCode> {
        self.board.config.page_size.pieces(address, from.len() as u64)?;
        let mut address = address;
        for part in from.chunks(PAYLOAD_BYTES_MAX) {
            self.write_fragment(pid, address, part)?;
            address = address.wrapping_add(part.len() as u64);
        }
        Ok(())
    }

    /// Changes the word of 8 bytes at `address`, and returns what it was.
    ///
    /// # Errors
    /// As [`Access::write`]; `BadLength` if the address is not a multiple of 8.
    #[inline]
    pub fn atomic(&self, pid: Pid, address: u64, operation: AtomicOperation) -> Result<u64, ErrorCode> {
        if !address.is_multiple_of(WORD_BYTES) {
            return Err(ErrorCode::BadLength);
        }
        let (page, offset) = self.board.config.page_size.split(address).ok_or(ErrorCode::BadAddress)?;
        let page = self.memory_of(pid, self.find_writable(pid, page)?)?;
        Ok(self.memory.atomic(page, offset, operation))
    }

    #[inline]
    fn write_fragment(&self, pid: Pid, address: u64, from: &[u8]) -> Result<(), ErrorCode> {
        let pieces = self.board.config.page_size.pieces(address, from.len() as u64)?;
        let mut targets = [Target::Mapped(PhysicalPage(0)); PIECES_MAX];
        for (target, piece) in targets.iter_mut().zip(pieces.clone()) {
            *target = self.find_writable(pid, piece.page)?;
        }
        // A page that got memory here stays zeros if a later one gets none, so nothing can be seen of it.
        for (target, _) in targets.iter_mut().zip(pieces.clone()) {
            *target = Target::Mapped(self.memory_of(pid, *target)?);
        }
        let mut rest = from;
        for (target, piece) in targets.into_iter().zip(pieces) {
            let (part, behind) = rest.split_at(piece.bytes.narrow_usize());
            self.memory.write(self.memory_of(pid, target)?, piece.offset, part);
            rest = behind;
        }
        Ok(())
    }

    /// An allocated page that requests may use now.
    #[inline]
    fn find(&self, pid: Pid, page: VirtualPage) -> Result<Found, ErrorCode> {
        match self.board.table.look_up(pid, page) {
            Some(Lookup::Mapped(_, permission, memory)) => Ok(Found::Mapped(permission, memory)),
            Some(Lookup::Reserved(slot, permission)) => Ok(Found::Reserved(permission, slot)),
            Some(Lookup::Moving) => Err(ErrorCode::Busy),
            None => Err(self.board.moved.why_absent(pid, page)),
        }
    }

    #[inline]
    fn find_writable(&self, pid: Pid, page: VirtualPage) -> Result<Target, ErrorCode> {
        let found = self.find(pid, page)?;
        // Only now: a region that is found here has been noted.
        if self.board.returned.is_before(pid, self.board.config.page_size.address(page), self.sent) {
            return Err(ErrorCode::Moved);
        }
        match found {
            Found::Mapped(Permission::ReadWrite, memory) => Ok(Target::Mapped(memory)),
            Found::Reserved(Permission::ReadWrite, slot) => Ok(Target::Reserved(slot)),
            Found::Mapped(Permission::Read, _) | Found::Reserved(Permission::Read, _) => Err(ErrorCode::NotAllowed),
        }
    }

    /// The memory of a page, which it gets now if it has none.
    #[inline]
    fn memory_of(&self, pid: Pid, target: Target) -> Result<PhysicalPage, ErrorCode> {
        match target {
            Target::Mapped(page) => Ok(page),
            Target::Reserved(slot) => self.give_memory(pid, slot),
        }
    }

    #[cold]
    fn give_memory(&self, pid: Pid, slot: Slot) -> Result<PhysicalPage, ErrorCode> {
        // Without one the address space has ended just now, and a second look will say so.
        let payer = self.board.lives.payer_of(pid).ok_or(ErrorCode::Busy)?;
        let page = self.pages.take().ok_or_else(|| self.board.why_no_page())?;
        // First, because what is mapped may be unmapped and counted before this goes on.
        if let Err(code) = self.board.count_mapped(payer, 1) {
            self.pages.give_back(page);
            return Err(code);
        }
        match self.board.table.map(slot, page) {
            Ok(()) => Ok(page),
            Err(instead) => {
                self.board.count_unmapped(payer, 1);
                self.pages.give_back(page);
                // Nothing instead: it is being freed or moved just now, and a second look will say which.
                instead.ok_or(ErrorCode::Busy)
            }
        }
    }
}

/// A page that requests may use now.
enum Found {
    Reserved(Permission, Slot),
    Mapped(Permission, PhysicalPage),
}
