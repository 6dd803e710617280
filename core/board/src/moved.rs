//! Ranges of address spaces that are not here, or not now: [`ClosedRanges`], the slow path's list of ranges that move
//! or have moved, and [`MovedRanges`], what data threads see of it.
//!
//! Data threads look here only when a page has no entry, to tell an address that was never allocated from one that
//! another node has. They take no lock: the owner publishes a sorted array under a sequence number that is odd while it
//! changes, and who reads it then is told so, and refuses the request for a moment.
//!
//! Invariant: ranges do not overlap, and are sorted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use yonder_wire::ErrorCode;

use crate::address::{Pid, VirtualPage};
use crate::range::Window;

/// Ranges that a node can remember to have moved away. Ranges side by side count as one.
pub const MOVED_RANGES_MAX: usize = 4096;

/// An address space's page, as a number: pages of an address space lie side by side.
fn place(pid: Pid, page: u32) -> u64 {
    (u64::from(pid.get()) << 32) | u64::from(page)
}

/// The ranges that have moved, as data threads see them.
#[derive(Debug)]
pub(crate) struct MovedRanges {
    /// Odd while the owner changes the rest.
    sequence: AtomicU64,
    length: AtomicUsize,
    /// First place of each range, ascending.
    starts: Box<[AtomicU64]>,
    /// The place behind each range.
    ends: Box<[AtomicU64]>,
}

impl MovedRanges {
    fn new() -> Self {
        let zeros = || (0..MOVED_RANGES_MAX).map(|_| AtomicU64::new(0)).collect();
        Self { sequence: AtomicU64::new(0), length: AtomicUsize::new(0), starts: zeros(), ends: zeros() }
    }

    /// Why a page that has no entry is refused: it has moved, or was never there, or neither can be said now.
    pub(crate) fn why_absent(&self, pid: Pid, page: VirtualPage) -> ErrorCode {
        let sequence = self.sequence.load(Ordering::Acquire);
        let place = place(pid, page.0);
        let ranges = self.length.load(Ordering::Relaxed).min(MOVED_RANGES_MAX);
        let behind = self.starts[..ranges].partition_point(|start| start.load(Ordering::Relaxed) <= place);
        let inside = behind.checked_sub(1).is_some_and(|range| place < self.ends[range].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        if sequence % 2 == 1 || self.sequence.load(Ordering::Relaxed) != sequence {
            ErrorCode::Busy
        } else if inside {
            ErrorCode::Moved
        } else {
            ErrorCode::BadAddress
        }
    }

    /// Bytes that it takes, however many ranges there are.
    pub(crate) fn bytes(&self) -> u64 {
        (size_of_val::<[AtomicU64]>(&self.starts) + size_of_val::<[AtomicU64]>(&self.ends)) as u64
    }

    /// Shows other ranges. Only the owner of [`ClosedRanges`] does, so one thread at a time.
    fn publish(&self, ranges: impl Iterator<Item = (u64, u64)>) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let mut length = 0;
        for ((start, end), (start_at, end_at)) in ranges.zip(self.starts.iter().zip(&self.ends)) {
            start_at.store(start, Ordering::Relaxed);
            end_at.store(end, Ordering::Relaxed);
            length += 1;
        }
        self.length.store(length, Ordering::Relaxed);
        self.sequence.store(sequence + 2, Ordering::Release);
    }
}

/// Why nothing may be allocated in a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closed {
    /// It is on its way, to another node or from one.
    Moving,
    /// Another node has it.
    Moved,
}

impl Closed {
    /// The refusal of requests for such a range.
    pub(crate) const fn code(self) -> ErrorCode {
        match self {
            Self::Moving => ErrorCode::Busy,
            Self::Moved => ErrorCode::Moved,
        }
    }
}

/// All ranges in which nothing may be allocated. One owner, the slow path.
#[derive(Debug)]
pub(crate) struct ClosedRanges {
    /// By address space and first page: the page behind, and why.
    ranges: BTreeMap<(Pid, u32), (u32, Closed)>,
    published: Arc<MovedRanges>,
}

impl ClosedRanges {
    /// None, and what data threads will see of them.
    pub(crate) fn new() -> (Self, Arc<MovedRanges>) {
        let published = Arc::new(MovedRanges::new());
        (Self { ranges: BTreeMap::new(), published: Arc::clone(&published) }, published)
    }

    /// Closed ranges of an address space as (first page, page behind), ascending.
    pub(crate) fn of(&self, pid: Pid) -> impl Iterator<Item = (u32, u32, Closed)> {
        let ranges = self.ranges.range((pid, 0)..=(pid, u32::MAX));
        ranges.map(|((_, from), (to, closed))| (*from, *to, *closed))
    }

    /// Why a page of these is closed, if one is.
    pub(crate) fn overlap(&self, pid: Pid, pages: Window) -> Option<Closed> {
        self.of(pid).find(|(start, end, _)| *start < pages.to && pages.from < *end).map(|(.., closed)| closed)
    }

    /// Whether another range can be closed or opened; each may cut one in two.
    pub(crate) fn has_room(&self) -> bool {
        self.ranges.len() + 2 <= MOVED_RANGES_MAX
    }

    /// Closes pages `from..to`, and forgets why any of them was closed before.
    pub(crate) fn close(&mut self, pid: Pid, from: u32, to: u32, closed: Closed) {
        self.cut_out(pid, from, to);
        self.ranges.insert((pid, from), (to, closed));
        self.join(pid, from);
        self.publish();
    }

    /// Opens pages `from..to`.
    pub(crate) fn open(&mut self, pid: Pid, from: u32, to: u32) {
        self.cut_out(pid, from, to);
        self.publish();
    }

    /// Opens all pages of an address space.
    pub(crate) fn forget(&mut self, pid: Pid) {
        if self.of(pid).next().is_some() {
            self.open(pid, 0, u32::MAX);
        }
    }

    fn cut_out(&mut self, pid: Pid, from: u32, to: u32) {
        let touched: Vec<_> = self.of(pid).filter(|(start, end, _)| *start < to && from < *end).collect();
        for (start, end, closed) in touched {
            self.ranges.remove(&(pid, start));
            if start < from {
                self.ranges.insert((pid, start), (from, closed));
            }
            if to < end {
                self.ranges.insert((pid, to), (end, closed));
            }
        }
    }

    /// Joins the range that begins at `from` with its neighbours, if both have moved.
    fn join(&mut self, pid: Pid, from: u32) {
        let (to, closed) = self.ranges[&(pid, from)];
        if closed != Closed::Moved {
            return;
        }
        let mut joined = (from, to);
        if let Some((end, Closed::Moved)) = self.ranges.get(&(pid, to)).copied() {
            self.ranges.remove(&(pid, to));
            joined.1 = end;
        }
        let before = self.ranges.range((pid, 0)..(pid, from)).next_back();
        if let Some(((_, start), (end, Closed::Moved))) = before
            && *end == from
        {
            joined.0 = *start;
            self.ranges.remove(&(pid, from));
        }
        self.ranges.insert((pid, joined.0), (joined.1, Closed::Moved));
    }

    fn publish(&self) {
        let moved = self.ranges.iter().filter(|(_, (_, closed))| *closed == Closed::Moved);
        self.published.publish(moved.map(|((pid, from), (to, _))| (place(*pid, *from), place(*pid, *to))));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PID: Pid = Pid::new(7).unwrap();

    #[test]
    fn neighbours_that_have_moved_are_one_range() {
        let (mut closed, _) = ClosedRanges::new();
        for (from, to) in [(10, 20), (30, 40), (20, 30)] {
            closed.close(PID, from, to, Closed::Moved);
        }
        closed.close(PID, 40, 50, Closed::Moving);
        assert_eq!(closed.of(PID).collect::<Vec<_>>(), [(10, 40, Closed::Moved), (40, 50, Closed::Moving)]);
        closed.open(PID, 15, 45);
        assert_eq!(closed.of(PID).collect::<Vec<_>>(), [(10, 15, Closed::Moved), (45, 50, Closed::Moving)]);
    }

    /// Readers beside a writer that moves one range to and fro: they see a range that was there, or that it changes.
    #[test]
    fn a_reader_never_sees_half_a_change() {
        let (mut closed, moved) = ClosedRanges::new();
        closed.close(PID, 100, 200, Closed::Moved);
        std::thread::scope(|scope| {
            let readers = [(); 2].map(|()| {
                scope.spawn(|| {
                    (0..20_000).all(|_| {
                        let [always, never] = [150, 250].map(|page| moved.why_absent(PID, VirtualPage(page)));
                        always != ErrorCode::BadAddress && never != ErrorCode::Moved
                    })
                })
            });
            for _ in 0..2000 {
                closed.close(PID, 10, 20, Closed::Moved);
                closed.open(PID, 10, 20);
            }
            assert!(readers.into_iter().all(|reader| reader.join().unwrap()));
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]
        /// Against an array of pages.
        #[test]
        fn keeps_what_an_array_would_keep(changes in prop::collection::vec((1u32..3, 0u32..30, 1u32..10, 0u8..3), 1..40)) {
            let (mut closed, moved) = ClosedRanges::new();
            let mut model = [[None; 40]; 3];
            for (number, from, pages, what) in changes {
                let (pid, to) = (Pid::new(number).unwrap(), from + pages);
                let why = [None, Some(Closed::Moving), Some(Closed::Moved)][usize::from(what)];
                match why {
                    None => closed.open(pid, from, to),
                    Some(why) => closed.close(pid, from, to, why),
                }
                model[number as usize][from as usize..to as usize].fill(why);
                for (number, pages) in (1..3).zip(&model[1..]) {
                    let pid = Pid::new(number).unwrap();
                    for (page, why) in (0..).zip(pages) {
                        prop_assert_eq!(closed.overlap(pid, Window::page(VirtualPage(page))), *why);
                        let absent = if *why == Some(Closed::Moved) { ErrorCode::Moved } else { ErrorCode::BadAddress };
                        prop_assert_eq!(moved.why_absent(pid, VirtualPage(page)), absent);
                    }
                }
            }
        }
    }
}
