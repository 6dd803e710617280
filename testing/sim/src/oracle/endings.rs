//! Frees and ends of address spaces that go in pieces, as the oracle sees them.
//!
//! From the first piece on the slow path finds nothing there. Data threads may find a page as it was until its piece
//! has come, or nothing: both are right, because the request has not been answered. When it is over nothing is found.
//! Invariant: what is leaving is in no allocation, and what has begun is executed, whatever is asked meanwhile.

use yonder_wire::{ErrorCode, Header, Kind, Permission};

use super::{Answered, Fate, Oracle, Space};

/// Pages of an allocation that is being freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Leaving {
    /// Their first address.
    pub(crate) from: u64,
    /// The address behind them.
    pub(crate) to: u64,
    permission: Permission,
    /// The request that frees them.
    first_id: u64,
}

impl Oracle {
    /// A free, or the end of an address space, has begun and is not over.
    pub(crate) fn begin_end(&mut self, asked: &Header) -> Result<(), String> {
        if let Some(code) = self.obstacles(asked).first() {
            return Err(format!("begun, though: {code}"));
        }
        if let Some(fate) = self.ledger.get(&asked.first_id) {
            return Err(format!("begun after it was {fate:?}"));
        }
        if asked.kind == Kind::DestroySpace {
            self.begin_end_of_space(asked.pid, asked.first_id);
            return Ok(());
        }
        let space = self.spaces.get_mut(&asked.pid).ok_or("a free in no address space")?;
        space.leave(asked.address, asked.first_id);
        Ok(())
    }

    /// An address space has begun to end, by the request with this name, or because its lease was over.
    pub(crate) fn begin_end_of_space(&mut self, pid: u32, first_id: u64) {
        let Some(space) = self.spaces.get_mut(&pid) else { return };
        space.is_ending = true;
        let allocated: Vec<u64> = space.allocations.keys().copied().collect();
        allocated.into_iter().for_each(|address| space.leave(address, first_id));
    }

    /// What [`Oracle::begin_end`] was told of is over. Returns what nobody may find any more.
    pub(crate) fn end(&mut self, asked: &Header) -> Result<Vec<Leaving>, String> {
        if let Some(fate) = self.ledger.get(&asked.first_id) {
            return Err(format!("executed after it was {fate:?}"));
        }
        let Header { address, capability, pid, first_id, .. } = *asked;
        let answer = Answered { address, capability, pid, allocated: None, counted: None };
        self.ledger.insert(first_id, Fate::Executed(answer));
        if asked.kind == Kind::DestroySpace {
            return Ok(self.space_has_ended(pid));
        }
        let Some(space) = self.spaces.get_mut(&pid) else { return Ok(Vec::new()) };
        let gone: Vec<Leaving> = space.leaving.extract_if(.., |leaving| leaving.first_id == first_id).collect();
        space.forget_pages(&gone, self.page_bytes);
        Ok(gone)
    }

    /// An address space has nothing any more. Returns what nobody may find.
    pub(crate) fn space_has_ended(&mut self, pid: u32) -> Vec<Leaving> {
        self.remove_space(pid).map_or(Vec::new(), |space| space.leaving)
    }

    /// The ranges of an address space that are leaving.
    pub(crate) fn leaving(&self, pid: u32) -> &[Leaving] {
        self.spaces.get(&pid).map_or(&[], |space| &space.leaving)
    }
}

impl Oracle {
    /// A range that is leaving an address space which goes on.
    pub(crate) fn leaving_range(&self) -> Option<(u32, u64, u64)> {
        let lasting = self.spaces.iter().filter(|(_, space)| !space.is_ending);
        let mut leaving = lasting.flat_map(|(pid, space)| space.leaving.iter().map(|leaving| (*pid, leaving)));
        leaving.next().map(|(pid, leaving)| (pid, leaving.from, leaving.to))
    }
}

impl Space {
    /// The allocation at `address` begins to leave.
    fn leave(&mut self, address: u64, first_id: u64) {
        if let Some(gone) = self.allocations.remove(&address) {
            let to = address + gone.bytes;
            self.leaving.push(Leaving { from: address, to, permission: gone.permission, first_id });
        }
    }

    /// Others have got `from..to`: what was leaving there has gone.
    pub(super) fn give_out(&mut self, from: u64, to: u64, page_bytes: u64) {
        let touched: Vec<Leaving> =
            self.leaving.extract_if(.., |leaving| leaving.from < to && from < leaving.to).collect();
        for leaving in &touched {
            let rest = [(leaving.from, from.min(leaving.to)), (to.max(leaving.from), leaving.to)];
            let rest = rest.into_iter().filter(|(from, to)| from < to);
            self.leaving.extend(rest.map(|(from, to)| Leaving { from, to, ..*leaving }));
        }
        let gone: Vec<Leaving> = touched
            .iter()
            .map(|leaving| Leaving { from: leaving.from.max(from), to: leaving.to.min(to), ..*leaving })
            .collect();
        self.forget_pages(&gone, page_bytes);
    }

    fn forget_pages(&mut self, gone: &[Leaving], page_bytes: u64) {
        let is_gone = |page: u64| gone.iter().any(|gone| (gone.from..gone.to).contains(&(page * page_bytes)));
        self.pages.retain(|page, _| !is_gone(*page));
    }

    /// What is leaving at `at`.
    pub(super) fn leaving_at(&self, at: u64) -> Option<&Leaving> {
        self.leaving.iter().find(|leaving| (leaving.from..leaving.to).contains(&at))
    }
}

impl Leaving {
    /// Why a data thread may refuse a request for it, and whether it must.
    pub(super) fn obstacle(&self, kind: Kind) -> Option<ErrorCode> {
        match kind {
            // The slow path knows at once that it is no allocation any more.
            Kind::Discard => Some(ErrorCode::BadAddress),
            Kind::Write | Kind::Atomic if self.permission == Permission::Read => Some(ErrorCode::NotAllowed),
            _ => None,
        }
    }
}
