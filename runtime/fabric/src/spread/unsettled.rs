//! [`Unsettled`]: writes that were given up and may still land, of one queue pair or the mender.
//!
//! Nothing else is written to such a page there, until the lane says that the write never will be executed: the lane
//! to the node that was asked. Or the place has moved since, and has answered where it is now: then the region has left
//! the node, and if it comes back the write is refused there, because it was sent before. That a controller says where
//! the place is would not be enough: its word may be late, and the place be back already.

use yonder_protect::Place;
use yonder_units::Nanos;

use super::group::{Asked, Entry};
use super::lanes::Lanes;
use crate::RemoteAddress;
use crate::areas::AreaPage;

/// Writes that may still land.
pub(super) struct Unsettled {
    list: Vec<Withdrawn>,
    /// Which is looked at next.
    next: usize,
}

/// A write that may.
struct Withdrawn {
    at: AreaPage<Entry>,
    place: Place,
    /// Where it was posted.
    asked: Asked,
}

/// How many are looked at each time.
const LOOKED_AT: usize = 32;

/// What a queue pair leaves that has ended: its lanes, until nothing of what it gave up can land.
pub(super) struct Orphan {
    pub(super) lanes: Lanes,
    pub(super) unsettled: Unsettled,
}

impl Orphan {
    /// Looks whether something may still land, or is on its way to a file. False if nothing is.
    pub(super) fn poll(&mut self, now: Nanos, pid: u32) -> bool {
        self.lanes.poll(now);
        // Nobody waits for them; but what is on its way to a file ends here.
        while self.lanes.take_ended(now).is_some() {}
        self.unsettled.settle(&self.lanes, pid);
        !self.unsettled.is_empty() || self.lanes.has_late()
    }
}

impl Unsettled {
    /// None yet. Room for so many is had now.
    pub(super) fn new(room: usize) -> Self {
        Self { list: Vec::with_capacity(room), next: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// A write of a page may still land at these places, which were asked at these nodes.
    pub(super) fn add(&mut self, at: &AreaPage<Entry>, places: impl Iterator<Item = (Place, Asked)>) {
        self.list.extend(places.map(|(place, asked)| Withdrawn { at: at.clone(), place, asked }));
    }

    /// Forgets what never will land any more, and tells the pages so. Looks at some of them: to ask a lane takes as
    /// long as it has operations.
    pub(super) fn settle(&mut self, lanes: &Lanes, pid: u32) {
        for _ in 0..self.list.len().min(LOOKED_AT) {
            self.next = if self.next < self.list.len() { self.next } else { 0 };
            if may_land(lanes, pid, &self.list[self.next]) {
                self.next += 1;
            } else {
                self.list.swap_remove(self.next);
            }
        }
    }

    /// Whether something may land in `bytes` at `start`.
    pub(super) fn is_at(&self, start: RemoteAddress, bytes: u64) -> bool {
        let end = start.0.saturating_add(bytes);
        self.list.iter().any(|Withdrawn { at, place, .. }| {
            let page = at.address();
            page >= start && page.0 < end && at.area.table.address(*place).is_some()
        })
    }
}

/// Whether a write that was given up may still land at its place. If not, the page is told so.
fn may_land(lanes: &Lanes, pid: u32, withdrawn: &Withdrawn) -> bool {
    let Withdrawn { at, place, asked } = withdrawn;
    let entry = &at.area.table;
    // At a place that was given up nothing is asked.
    let Some(address) = entry.address(*place) else { return false };
    let page = entry.page_at(address, at.page);
    let has_left = entry.has_left(place.slot, *asked);
    let may_land = !has_left && lanes.may_still_write(asked.node, pid, page, entry.share_bytes());
    if !may_land {
        entry.group.settle(at.page, *place);
    }
    may_land
}
