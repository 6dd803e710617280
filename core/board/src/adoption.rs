//! Ranges that other nodes send here, by messages: [`Adoptions`], those that are on their way, and what each stage does.
//!
//! The node that sends a range names the transfer. A stage of another transfer than the one under way is refused, so a
//! message of an earlier one, however late, changes nothing. A transfer of which nothing is heard for a while is undone: its
//! sender has ended, or has given it up and could not say so.
//!
//! One owner, the slow path. Invariant: every adoption is one move of its address space.

use std::collections::BTreeMap;

use yonder_wire::{ADOPT_PAGES_MAX, AdoptRequest, AdoptStage, AdoptedAllocation, ErrorCode, Inventory};

use crate::address::{PageSize, Pid, VirtualPage};
use crate::board::{Memory, PageSource, Upkeep};
use crate::migration::{MovedAllocation, Moving};
use crate::recent::NodeTime;
use crate::slow_path::{Shell, SlowPath};

/// Ranges that may be on their way here at a time.
const ADOPTIONS_MAX: usize = 64;
/// How long a transfer may be silent, in nanoseconds.
const SILENCE_MAX: NodeTime = 60_000_000_000;

/// The ranges that are on their way here.
#[derive(Default, Debug)]
pub(crate) struct Adoptions {
    /// By address space and first address.
    under_way: BTreeMap<(Pid, u64), Adoption>,
}

#[derive(Debug)]
struct Adoption {
    transfer: u64,
    to: u64,
    moving: Moving,
    heard: NodeTime,
}

impl Adoptions {
    /// How many are on their way to an address space.
    pub(crate) fn count_of(&self, pid: Pid) -> usize {
        self.of(pid).count()
    }

    /// When the next one is undone if it stays silent.
    pub(crate) fn next_end(&self) -> Option<NodeTime> {
        self.under_way.values().map(Adoption::end).min()
    }

    fn of(&self, pid: Pid) -> impl Iterator<Item = (Pid, u64)> {
        self.under_way.range((pid, 0)..=(pid, u64::MAX)).map(|(key, _)| *key)
    }

    /// The transfer of this name, if it is under way.
    fn named(&mut self, pid: Pid, request: &AdoptRequest<'_>) -> Option<&mut Adoption> {
        let adoption = self.under_way.get_mut(&(pid, request.from))?;
        (adoption.transfer == request.transfer && adoption.to == request.to).then_some(adoption)
    }

    fn take(&mut self, pid: Pid, request: &AdoptRequest<'_>) -> Option<Moving> {
        self.named(pid, request)?;
        self.under_way.remove(&(pid, request.from)).map(|adoption| adoption.moving)
    }
}

impl Adoption {
    fn end(&self) -> NodeTime {
        self.heard.saturating_add(SILENCE_MAX)
    }

    /// Stores bytes into the memory that the range has; all, or none if there is no memory for some.
    fn fill(&self, size: PageSize, address: u64, bytes: &[u8], memory: &impl Memory) -> Result<(), ErrorCode> {
        let pieces = size.pieces(address, bytes.len() as u64)?;
        if pieces.clone().any(|piece| self.moving.memory_of(piece.page).is_none()) {
            return Err(ErrorCode::BadAddress);
        }
        let mut rest = bytes;
        for piece in pieces {
            let (part, behind) = rest.split_at(piece.bytes as usize);
            let page = self.moving.memory_of(piece.page).expect("it was checked");
            memory.write(page, piece.offset, part);
            rest = behind;
        }
        Ok(())
    }
}

impl SlowPath {
    /// Does one stage of a transfer. `address` is where the bytes of a fill belong.
    ///
    /// # Errors
    /// `BadAddress` if the transfer is not under way, or the bytes belong where it has no memory; at its beginning as
    /// [`SlowPath::begin_adopt`], `BadLength` if the range has too many pages, `Busy` if another transfer of it is under
    /// way, or too many are.
    pub(crate) fn adopt_by_message<M: Memory, P: PageSource, U: Upkeep>(
        &mut self,
        pid: Pid,
        request: &AdoptRequest<'_>,
        address: u64,
        now: NodeTime,
        shell: &mut Shell<'_, M, P, U>,
    ) -> Result<(), ErrorCode> {
        match request.stage {
            AdoptStage::Begin(inventory) => self.begin_transfer(pid, request, inventory, now, shell)?,
            AdoptStage::Fill(bytes) => {
                let adoption = self.adoptions.named(pid, request).ok_or(ErrorCode::BadAddress)?;
                adoption.heard = now;
                adoption.fill(self.board.config.page_size, address, bytes, shell.memory)?;
            }
            AdoptStage::Finish => {
                let moving = self.adoptions.take(pid, request).ok_or(ErrorCode::BadAddress)?;
                self.finish_move(moving);
            }
            // One that is not under way was abandoned before, or never began.
            AdoptStage::Abandon => {
                if let Some(moving) = self.adoptions.take(pid, request) {
                    self.abandon_move(moving);
                }
            }
        }
        Ok(())
    }

    /// Frees whatever an address space has in a range that is not this node's, and answers requests for it as moved. What
    /// is on its way here from another node is given up. Nothing, if there is no such space.
    ///
    /// # Errors
    /// `BadAddress` if the range does not begin and end with pages; `Busy` while it moves to another node.
    pub fn drop_range(&mut self, pid: Pid, from: u64, to: u64) -> Result<(), ErrorCode> {
        if !self.spaces.contains(pid) {
            return Ok(());
        }
        self.end_adoptions(pid, |begin| (from..to).contains(&begin));
        self.free_and_close(pid, from, to)
    }

    /// Gives up what is on its way to an address space.
    pub(crate) fn end_adoptions_of(&mut self, pid: Pid) {
        self.end_adoptions(pid, |_| true);
    }

    /// Undoes transfers of which nothing was heard for too long.
    pub(crate) fn expire_adoptions(&mut self, now: NodeTime) {
        let silent = self.adoptions.under_way.iter().filter(|(_, adoption)| adoption.end() <= now);
        let silent: Vec<(Pid, u64)> = silent.map(|(key, _)| *key).collect();
        for (pid, from) in silent {
            self.end_adoptions(pid, |begin| begin == from);
        }
    }

    fn begin_transfer<M: Memory, P: PageSource, U: Upkeep>(
        &mut self,
        pid: Pid,
        request: &AdoptRequest<'_>,
        inventory: Inventory<'_>,
        now: NodeTime,
        shell: &mut Shell<'_, M, P, U>,
    ) -> Result<(), ErrorCode> {
        let AdoptRequest { transfer, from, to, .. } = *request;
        if self.adoptions.named(pid, request).is_some() {
            return Ok(());
        }
        if self.adoptions.under_way.len() >= ADOPTIONS_MAX {
            return Err(ErrorCode::Busy);
        }
        if (to - from) / self.board.config.page_size.bytes() > u64::from(ADOPT_PAGES_MAX) {
            return Err(ErrorCode::BadLength);
        }
        let allocations: Vec<MovedAllocation> = inventory.allocations().map(MovedAllocation::from).collect();
        let pages: Vec<VirtualPage> = inventory.pages().map(VirtualPage).collect();
        let moving = self.begin_adopt(pid, (from, to), &allocations, &pages, shell)?;
        self.adoptions.under_way.insert((pid, from), Adoption { transfer, to, moving, heard: now });
        Ok(())
    }

    fn end_adoptions(&mut self, pid: Pid, is_meant: impl Fn(u64) -> bool) {
        let meant: Vec<(Pid, u64)> = self.adoptions.of(pid).filter(|(_, from)| is_meant(*from)).collect();
        for key in meant {
            if let Some(adoption) = self.adoptions.under_way.remove(&key) {
                self.abandon_move(adoption.moving);
            }
        }
    }
}

impl From<AdoptedAllocation> for MovedAllocation {
    fn from(allocation: AdoptedAllocation) -> Self {
        let AdoptedAllocation { first, pages, permission, backing } = allocation;
        Self { first: VirtualPage(first), pages, permission, backing }
    }
}

impl From<MovedAllocation> for AdoptedAllocation {
    fn from(allocation: MovedAllocation) -> Self {
        let MovedAllocation { first, pages, permission, backing } = allocation;
        Self { first: first.0, pages, permission, backing }
    }
}
