//! Ranges that other nodes send here, by messages: [`Adoptions`], those that are on their way, and what each stage
//! does.
//!
//! A transfer is *filling* until the node that sends the range says that all bytes are there; then it is *prepared*,
//! and ends only on a word: the source's, by message ([`AdoptStage::Finish`]), or the controller's
//! ([`SlowPath::open_range`]). Either says that the source has closed the range for good. Whoever comes second finds it
//! done. Only a transfer that is filling is undone when nothing is heard of it for a while: its sender has ended, or
//! has given it up and could not say so. One that is prepared may be all that there is of the range.
//!
//! Transfers have numbers, of which `transfers` remembers the last. A stage of another transfer than the one under way
//! is refused, and none begins again: a message of an earlier one, however late, changes nothing.
//!
//! One owner, the slow path. Invariants: every adoption is one move of its address space; a range is opened only from
//! prepared; what has been opened is never dropped as the rest of a move.

use std::collections::BTreeMap;

use yonder_units::Narrow;
use yonder_wire::{ADOPT_PAGES_MAX, AdoptRequest, AdoptStage, AdoptedAllocation, ErrorCode, Inventory};

use crate::address::{PageSize, Pid, VirtualPage};
use crate::migration::{MovedAllocation, Moving};
use crate::moved::Closed;
use crate::node_core::{Memory, PageSource, Upkeep};
use crate::range::Window;
use crate::recent::NodeTime;
use crate::slow_path::{Shell, SlowPath};
use crate::transfers::Fate;

/// Ranges that may be filling at a time.
const ADOPTIONS_MAX: usize = 64;
/// Ranges that may be under way or prepared in one address space, so that one leaves others room.
const ADOPTIONS_OF_SPACE_MAX: usize = 64;
/// How long a transfer that is filling may be silent, in nanoseconds.
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
    stage: Stage,
    /// When it began, if the range comes back.
    comes_back: Option<NodeTime>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Bytes are on their way; of which something was heard then.
    Filling(NodeTime),
    /// All bytes are here.
    Prepared,
}

impl Adoptions {
    /// How many are on their way to an address space.
    pub(crate) fn count_of(&self, pid: Pid) -> usize {
        self.of(pid).count()
    }

    /// When the next one is undone if it stays silent.
    pub(crate) fn next_end(&self) -> Option<NodeTime> {
        self.under_way.values().filter_map(Adoption::end).min()
    }

    fn of(&self, pid: Pid) -> impl Iterator<Item = (Pid, u64)> {
        self.under_way.range((pid, 0)..=(pid, u64::MAX)).map(|(key, _)| *key)
    }

    /// The transfer of this name, if it is under way.
    fn named(&mut self, pid: Pid, request: &AdoptRequest<'_>) -> Option<&mut Adoption> {
        let adoption = self.under_way.get_mut(&(pid, request.from))?;
        (adoption.transfer == request.transfer && adoption.to == request.to).then_some(adoption)
    }

    fn take(&mut self, pid: Pid, request: &AdoptRequest<'_>) -> Option<Adoption> {
        self.named(pid, request)?;
        self.under_way.remove(&(pid, request.from))
    }
}

impl Adoption {
    /// When it is undone if it stays silent.
    fn end(&self) -> Option<NodeTime> {
        match self.stage {
            Stage::Filling(heard) => Some(heard.saturating_add(SILENCE_MAX)),
            Stage::Prepared => None,
        }
    }

    /// Stores bytes into the memory that the range has; all, or none if there is no memory for some.
    fn fill(&self, size: PageSize, address: u64, bytes: &[u8], memory: &impl Memory) -> Result<(), ErrorCode> {
        let pieces = size.pieces(address, bytes.len() as u64)?;
        if pieces.clone().any(|piece| self.moving.memory_of(piece.page).is_none()) {
            return Err(ErrorCode::BadAddress);
        }
        let mut rest = bytes;
        for piece in pieces {
            let (part, behind) = rest.split_at(piece.bytes.narrow_usize());
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
    /// `BadAddress` if the transfer is not under way, or the bytes belong where it has no memory; `NotAllowed` for
    /// bytes of a transfer that is prepared, and for the end of one that is not; `TooOld` for the end of one after
    /// which another was heard of; at its beginning as [`SlowPath::begin_adopt`], `BadLength` if the range has too many
    /// pages, `TooOld` if the number of the transfer is not a new one, `Busy` if another transfer of it is under way,
    /// or too many are.
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
                if adoption.stage == Stage::Prepared {
                    return Err(ErrorCode::NotAllowed);
                }
                adoption.stage = Stage::Filling(now);
                adoption.fill(self.board.config.page_size, address, bytes, shell.memory)?;
            }
            AdoptStage::Prepare => {
                let adoption = self.adoptions.named(pid, request).ok_or(ErrorCode::BadAddress)?;
                adoption.stage = Stage::Prepared;
            }
            AdoptStage::Finish => self.open(pid, request.transfer, (request.from, request.to), Fate::Arrived)?,
            // One that is not under way was abandoned before, or never began; then it must not begin any more.
            AdoptStage::Abandon => match self.adoptions.take(pid, request) {
                Some(adoption) => self.abandon_move(adoption.moving),
                None if self.is_at_rest_elsewhere(pid, request.from) => {
                    self.transfers.refuse_before(pid, request.from, request.transfer.saturating_add(1));
                }
                None => {}
            },
        }
        Ok(())
    }

    /// Serves a range that a transfer has brought here, on the word of the controller that its source has closed it for
    /// good. Nothing, if it was served before on the word of the source, or has gone on by a later transfer.
    ///
    /// # Errors
    /// `BadAddress` if the transfer is not known here, `NotAllowed` if it is not prepared.
    pub fn open_range(&mut self, pid: Pid, transfer: u64, from: u64, to: u64) -> Result<(), ErrorCode> {
        match self.open(pid, transfer, (from, to), Fate::Confirmed) {
            Err(ErrorCode::TooOld) => Ok(()),
            opened => opened,
        }
    }

    /// Ranges of an address space that are served on the word of their source alone, as first address and number of the
    /// transfer, until [`SlowPath::open_range`] shows that the controller knows; some of them, if they are many.
    #[must_use]
    pub fn arrivals(&self, pid: Pid) -> Vec<(u64, u64)> {
        self.transfers.arrivals(pid).collect()
    }

    /// Frees whatever an address space has in a range that is not this node's, and answers requests for it as moved.
    /// What is on its way here from another node is given up, and no transfer with a number below `before` begins any
    /// more. Nothing, if there is no such space.
    ///
    /// # Errors
    /// `BadAddress` if the range does not begin and end with pages; `Busy` while it moves to another node, or a part of
    /// it is being freed; `NotAllowed` if its last transfer has brought it here and it is served.
    pub fn drop_range(&mut self, pid: Pid, before: u64, from: u64, to: u64) -> Result<(), ErrorCode> {
        if !self.spaces.contains(pid) {
            return Ok(());
        }
        if self.transfers.last(pid, from).is_some_and(|last| matches!(last.fate, Fate::Arrived | Fate::Confirmed)) {
            return Err(ErrorCode::NotAllowed);
        }
        self.end_adoptions(pid, |begin| (from..to).contains(&begin));
        self.free_and_close(pid, from, to)?;
        self.transfers.refuse_before(pid, from, before);
        Ok(())
    }

    /// Frees whatever an address space has in a range that its owner does not use any more, also what is served here.
    /// Nothing comes there again by a transfer that was heard of, or with a number below `before`; requests for it find
    /// nothing. Nothing, if there is no such space.
    ///
    /// # Errors
    /// `BadAddress` if the range does not begin and end with pages; `Busy` while it moves to another node, or a part of
    /// it is being freed.
    pub fn give_up_range(&mut self, pid: Pid, before: u64, from: u64, to: u64) -> Result<(), ErrorCode> {
        if !self.spaces.contains(pid) {
            return Ok(());
        }
        self.end_adoptions(pid, |begin| (from..to).contains(&begin));
        self.free_and_open(pid, from, to)?;
        // Only where there was one: all ranges of a space together have so many that are remembered.
        if let Some(last) = self.transfers.last(pid, from) {
            self.transfers.note(pid, from, last.transfer.max(before.saturating_sub(1)), Fate::Open);
        }
        Ok(())
    }

    /// Gives up what is on its way to an address space.
    pub(crate) fn end_adoptions_of(&mut self, pid: Pid) {
        self.end_adoptions(pid, |_| true);
    }

    /// Undoes transfers of which nothing was heard for too long.
    pub(crate) fn expire_adoptions(&mut self, now: NodeTime) {
        let silent =
            self.adoptions.under_way.iter().filter(|(_, adoption)| adoption.end().is_some_and(|end| end <= now));
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
        self.transfers.admit(pid, from, transfer)?;
        if self.adoptions.under_way.values().filter(|adoption| adoption.stage != Stage::Prepared).count()
            >= ADOPTIONS_MAX
        {
            return Err(ErrorCode::Busy);
        }
        // Prepared ranges do not end by themselves, and the list of closed ranges is everybody's.
        if self.adoptions.under_way.keys().filter(|(of, _)| *of == pid).count() >= ADOPTIONS_OF_SPACE_MAX {
            return Err(ErrorCode::Busy);
        }
        if (to - from) / self.board.config.page_size.bytes() > u64::from(ADOPT_PAGES_MAX) {
            return Err(ErrorCode::BadLength);
        }
        let allocations: Vec<MovedAllocation> = inventory.allocations().map(MovedAllocation::from).collect();
        let pages: Vec<VirtualPage> = inventory.pages().map(VirtualPage).collect();
        let moving = self.begin_adopt(pid, (from, to), &allocations, &pages, shell)?;
        let comes_back = self.transfers.last(pid, from).map(|_| now);
        self.transfers.note(pid, from, transfer, Fate::Open);
        let adoption = Adoption { transfer, to, moving, stage: Stage::Filling(now), comes_back };
        self.adoptions.under_way.insert((pid, from), adoption);
        Ok(())
    }

    /// Whether a range neither moves nor was brought here by its last transfer.
    fn is_at_rest_elsewhere(&self, pid: Pid, from: u64) -> bool {
        let Some((page, 0)) = self.board.config.page_size.split(from) else { return false };
        self.closed.overlap(pid, Window::page(page)) != Some(Closed::Moving)
            && !self.transfers.last(pid, from).is_some_and(|last| matches!(last.fate, Fate::Arrived | Fate::Confirmed))
    }

    /// Serves a range whose transfer is prepared; or finds that it was done.
    fn open(&mut self, pid: Pid, transfer: u64, (from, to): (u64, u64), word: Fate) -> Result<(), ErrorCode> {
        let request = AdoptRequest { transfer, from, to, stage: AdoptStage::Finish };
        match self.adoptions.named(pid, &request) {
            Some(adoption) if adoption.stage != Stage::Prepared => return Err(ErrorCode::NotAllowed),
            Some(_) => {
                let adoption = self.adoptions.take(pid, &request).expect("it was just found");
                // Until now its pages are not found. What is never served again refuses nothing: it would refuse what
                // others have sent.
                if let Some(begun) = adoption.comes_back {
                    self.board.returned.note(pid, from, to, begun);
                }
                self.finish_move(adoption.moving);
                self.transfers.note(pid, from, transfer, word);
                return Ok(());
            }
            None => {}
        }
        let last = self.transfers.last(pid, from).ok_or(ErrorCode::BadAddress)?;
        match last.fate {
            _ if last.transfer > transfer => Err(ErrorCode::TooOld),
            Fate::Arrived | Fate::Confirmed if last.transfer == transfer => {
                if word == Fate::Confirmed {
                    self.transfers.note(pid, from, transfer, word);
                }
                Ok(())
            }
            _ => Err(ErrorCode::BadAddress),
        }
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
