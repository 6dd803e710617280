//! Which transfers of a range this node has taken part in: [`Transfers`], the number and the fate of the last one.
//!
//! The numbers of a range's transfers only rise, because the controller counts moves. So a message, an order or a
//! command of an earlier transfer than the last is late, and is refused; and of the last one the node knows what it has
//! become, so that doing it again is the same as doing it once.
//!
//! One owner, the slow path. Invariant: the number of a range never falls while its address space lives.

use std::collections::BTreeMap;

use yonder_wire::ErrorCode;

use crate::address::Pid;

/// Ranges of one address space whose transfers are remembered. A range that was moved is remembered until the space
/// ends.
const RANGES_PER_SPACE_MAX: usize = 4096;
/// Ranges of one address space that are told to the controller at a time.
const ARRIVALS_PER_SPACE_MAX: usize = 64;

/// What has become of a transfer at this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It is under way, or was given up; it never ends well from here.
    Open,
    /// The range has left this node for good.
    Left,
    /// The range is served here, on the word of its source.
    Arrived,
    /// The same, and the controller knows it.
    Confirmed,
}

/// The last transfer of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Last {
    pub(crate) transfer: u64,
    pub(crate) fate: Fate,
}

/// The last transfers, by address space and first address.
#[derive(Default, Debug)]
pub(crate) struct Transfers {
    last: BTreeMap<(Pid, u64), Last>,
}

impl Transfers {
    /// The last transfer of a range.
    pub(crate) fn last(&self, pid: Pid, from: u64) -> Option<Last> {
        self.last.get(&(pid, from)).copied()
    }

    /// Whether a transfer with this number may begin.
    ///
    /// # Errors
    /// `TooOld` if one with this number or a higher one has begun before, or was refused for good; `OutOfMemory` if no
    /// other range of the address space can be remembered.
    pub(crate) fn admit(&self, pid: Pid, from: u64, transfer: u64) -> Result<(), ErrorCode> {
        match self.last(pid, from) {
            Some(last) if transfer <= last.transfer => Err(ErrorCode::TooOld),
            Some(_) => Ok(()),
            None if self.of(pid).count() >= RANGES_PER_SPACE_MAX => Err(ErrorCode::OutOfMemory),
            None => Ok(()),
        }
    }

    /// Notes what a transfer has become.
    ///
    /// # Panics
    /// If a later transfer of the range is known.
    pub(crate) fn note(&mut self, pid: Pid, from: u64, transfer: u64, fate: Fate) {
        let before = self.last.insert((pid, from), Last { transfer, fate });
        assert!(before.is_none_or(|before| before.transfer <= transfer), "a range's transfers have rising numbers");
    }

    /// From now on no transfer with a number below `before` begins here. Nothing, if no more ranges can be remembered.
    pub(crate) fn refuse_before(&mut self, pid: Pid, from: u64, before: u64) {
        if let Some(transfer) = before.checked_sub(1)
            && self.admit(pid, from, transfer).is_ok()
        {
            self.note(pid, from, transfer, Fate::Open);
        }
    }

    /// Ranges that are served here and of which the controller may not know it: first address and transfer.
    pub(crate) fn arrivals(&self, pid: Pid) -> impl Iterator<Item = (u64, u64)> {
        let arrived = self.of(pid).filter(|(_, last)| last.fate == Fate::Arrived);
        arrived.map(|(from, last)| (from, last.transfer)).take(ARRIVALS_PER_SPACE_MAX)
    }

    /// Forgets the ranges of an address space that has ended.
    pub(crate) fn forget(&mut self, pid: Pid) {
        let ranges: Vec<u64> = self.of(pid).map(|(from, _)| from).collect();
        for from in ranges {
            self.last.remove(&(pid, from));
        }
    }

    fn of(&self, pid: Pid) -> impl Iterator<Item = (u64, Last)> {
        self.last.range((pid, 0)..=(pid, u64::MAX)).map(|((_, from), last)| (*from, *last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PID: Pid = Pid::new(7).unwrap();

    #[test]
    fn numbers_only_rise_and_end_with_the_space() {
        let mut transfers = Transfers::default();
        assert_eq!(transfers.admit(PID, 0, 0), Ok(()));
        transfers.note(PID, 0, 5, Fate::Open);
        transfers.note(PID, 0, 5, Fate::Arrived);
        assert_eq!([4, 5, 6].map(|number| transfers.admit(PID, 0, number).is_ok()), [false, false, true]);
        transfers.refuse_before(PID, 0, 3);
        assert_eq!(transfers.arrivals(PID).collect::<Vec<_>>(), [(0, 5)]);
        transfers.refuse_before(PID, 0, 8);
        assert_eq!((transfers.admit(PID, 0, 7), transfers.admit(PID, 0, 8)), (Err(ErrorCode::TooOld), Ok(())));
        transfers.forget(PID);
        assert_eq!(transfers.last(PID, 0), None);
    }

    #[test]
    fn one_space_remembers_only_so_many_ranges() {
        let mut transfers = Transfers::default();
        (0..RANGES_PER_SPACE_MAX as u64).for_each(|from| transfers.note(PID, from, 1, Fate::Arrived));
        assert_eq!(transfers.admit(PID, u64::MAX, 1), Err(ErrorCode::OutOfMemory));
        assert_eq!(transfers.admit(PID, 1, 2), Ok(()));
        assert_eq!(transfers.admit(Pid::new(8).unwrap(), u64::MAX, 1), Ok(()));
        assert_eq!(transfers.arrivals(PID).count(), ARRIVALS_PER_SPACE_MAX);
    }
}
