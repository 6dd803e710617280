//! [`Far`]: the far side, and the queue pairs that lead there.
//!
//! The model keeps what `QueuePair` promises and nothing more: completions come late and in any order, operations fail,
//! are lost, and are executed after they were given up, but a write that was cancelled never after one that is posted
//! later on the same queue pair. The node stops, answers nothing meanwhile, and may come back without what it had.

mod neighbour;
mod operation;
mod queue;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use yonder_pager::RemoteAddress;
use yonder_units::{Nanos, PAGE_BYTES};

use crate::memory::{Bytes, Kind, Memory, zeros};
use crate::sabotage::Sabotage;
use crate::settings::Settings;

use neighbour::Taken;
use operation::Operation;
pub(crate) use queue::Queue;

/// Pages of far memory, beside those of the region that all threads work on.
const PAGES: usize = 16_384;

pub(crate) struct Far {
    pub(crate) memory: Arc<Memory>,
    /// Pages whose content the node has lost.
    lost: Vec<bool>,
    operations: Vec<Operation>,
    queues: usize,
    allocated: u64,
    /// What begins where and is allocated, and what was and is not any more, in pages.
    ranges: BTreeMap<u64, u64>,
    free: Vec<(u64, u64)>,
    /// What another process has of it.
    taken: Vec<Taken>,
    down_until: Nanos,
    /// Reads and writes that were executed.
    pub(crate) executed: u64,
    sabotage: Option<Sabotage>,
    /// What was asked of the far side that must not be.
    pub(crate) violation: Option<String>,
    /// What pages were before their last write.
    before: Vec<Option<Bytes>>,
    /// Which pages are in the slower tier, if there are two, and until when that is out of reach.
    has_tiers: bool,
    is_slow: Vec<bool>,
    slow_down_until: Nanos,
    lease_end: Nanos,
    /// Discards that were given up and may be executed yet: when, and which pages.
    late_discards: Vec<(Nanos, Range<u64>)>,
}

impl Far {
    pub(crate) fn new(settings: &Settings, sabotage: Option<Sabotage>) -> Self {
        let pages = PAGES + settings.region_pages() as usize;
        Self {
            memory: Arc::new(Memory::new(Kind::Far, 0, pages)),
            lost: vec![false; pages],
            operations: Vec::new(),
            queues: 0,
            allocated: 0,
            ranges: BTreeMap::new(),
            free: Vec::new(),
            taken: Vec::new(),
            down_until: 0,
            executed: 0,
            sabotage,
            violation: None,
            before: vec![None; pages],
            has_tiers: settings.has_tiers,
            is_slow: vec![false; pages],
            slow_down_until: 0,
            lease_end: Nanos::MAX,
            late_discards: Vec::new(),
        }
    }

    /// It can be reached from now on, as long as its lease lasts.
    pub(crate) fn heal(&mut self, now: Nanos) {
        if !self.lease_is_over(now) {
            self.lease_end = Nanos::MAX;
        }
        (self.down_until, self.slow_down_until) = (0, 0);
    }

    pub(crate) fn allocate(&mut self, pages: u64) -> RemoteAddress {
        // What was given back last is what somebody gets first.
        let start = match self.free.iter().rposition(|(_, free)| *free == pages) {
            Some(at) => self.free.remove(at).0,
            None => {
                self.allocated += pages;
                self.allocated - pages
            }
        };
        assert!(self.allocated <= self.lost.len() as u64, "a seed uses more far memory than there is");
        self.ranges.insert(start, pages);
        RemoteAddress(start * PAGE_BYTES as u64)
    }

    /// The range that begins at `start` is nobody's. False if there is none.
    pub(crate) fn release(&mut self, start: RemoteAddress) -> bool {
        let Some((first, pages)) = self.ranges.remove_entry(&(start.0 / PAGE_BYTES as u64)) else { return false };
        self.empty(first..first + pages);
        self.forget_discards(&(first..first + pages));
        self.free.push((first, pages));
        true
    }

    /// The node stops until `until`; without power it loses what it has.
    pub(crate) fn stop(&mut self, until: Nanos, loses_memory: bool) {
        self.down_until = self.down_until.max(until);
        if loses_memory {
            self.forget_neighbour();
            for page in 0..self.allocated as usize {
                self.lost[page] = true;
                self.memory.fill((page * PAGE_BYTES) as u64, zeros());
            }
        }
    }

    /// The slower tier is out of reach until `until`.
    pub(crate) fn stop_slow(&mut self, until: Nanos) {
        self.slow_down_until = self.slow_down_until.max(until);
    }

    pub(crate) fn is_down(&self, now: Nanos) -> bool {
        now < self.down_until || now >= self.lease_end
    }

    /// The lease ends at `end`, if nobody heals the node before.
    pub(crate) fn end_lease(&mut self, end: Nanos) {
        self.lease_end = end;
    }

    /// Whether nothing is answered any more.
    pub(crate) fn lease_is_over(&self, now: Nanos) -> bool {
        now >= self.lease_end
    }

    /// The content of a page, unless the node has lost it.
    pub(crate) fn content(&self, at: RemoteAddress) -> Option<Bytes> {
        let page = (at.0 / PAGE_BYTES as u64) as usize;
        (!self.lost[page]).then(|| self.memory.content(at.0))
    }

    pub(crate) fn next_event(&self, now: Nanos) -> Option<Nanos> {
        let times = self.operations.iter().flat_map(|operation| [operation.execute_at, operation.done_at]);
        let times = times.chain(self.late_discards.iter().map(|(at, _)| *at));
        times.filter(|at| *at > now && *at < Nanos::MAX).min()
    }

    /// A page goes to the other tier.
    pub(crate) fn move_page(&mut self, page: u64) {
        self.is_slow[page as usize] ^= self.has_tiers;
    }

    /// A discard is given up, and executed at `at` unless a later one of its pages has succeeded by then.
    pub(crate) fn discard_later(&mut self, at: Nanos, start: RemoteAddress, bytes: u64) {
        self.late_discards.push((at, pages_of(start, bytes)));
    }

    /// The range reads as zeros again. Discards of it that were given up are over; writes, which travel on another
    /// lane, are not.
    pub(crate) fn discard(&mut self, start: RemoteAddress, bytes: u64) {
        let pages = pages_of(start, bytes);
        if self.sabotage != Some(Sabotage::ForgetfulLane) {
            self.forget_discards(&pages);
        }
        self.clear(pages);
    }

    /// A lane holds a request back until the aborts of those before it are answered, so these are never executed.
    fn forget_discards(&mut self, pages: &Range<u64>) {
        self.late_discards.retain(|(_, late)| late.end <= pages.start || pages.end <= late.start);
    }

    /// What an inherited copy of far memory is in a child: nothing that was under way for its parent is executed there.
    pub(crate) fn is_copied(&mut self) {
        self.operations.clear();
        self.late_discards.clear();
    }

    fn empty(&mut self, pages: Range<u64>) {
        for page in pages.start as usize..pages.end as usize {
            (self.before[page], self.lost[page], self.is_slow[page]) = (None, false, false);
            self.memory.drop_page(page);
        }
    }

    fn clear(&mut self, pages: Range<u64>) {
        if self.sabotage == Some(Sabotage::DiscardBeside) && pages.start > 0 {
            self.memory.drop_page(pages.start as usize - 1);
        }
        for page in pages {
            self.before[page as usize] = None;
            self.lost[page as usize] = false;
            self.memory.drop_page(page as usize);
        }
    }
}

/// The pages of a range.
fn pages_of(start: RemoteAddress, bytes: u64) -> Range<u64> {
    start.0 / PAGE_BYTES as u64..(start.0 + bytes) / PAGE_BYTES as u64
}
