//! [`Mender`]: copies pages to places that do not have them, in the background.
//!
//! It reads a page where it is current and writes it where it is not, some pages at a time. A write of the program
//! meanwhile makes the copy void, and the page is looked at again later. Pages that are at the fewest places come
//! first.

use std::sync::Arc;
use std::time::Duration;

use yonder_mapping::Mapping;
use yonder_protect::{MendEnd, MendTicket, Place, Slot, SlotSet};
use yonder_units::{FrameIndex, Nanos, Narrow, PAGE_BYTES};

use super::group::Entry;
use super::lanes::Lanes;
use super::nodes::NodeIndex;
use super::unsettled::Unsettled;
use super::{Event, Shared};
use crate::areas::{AreaPage, List};
use crate::background::Pace;
use crate::queue::End;
use crate::vector::Operation as Posted;
use crate::{FabricError, PageRead, PageWrite, ReadInto, Vector, WorkId};

/// Pages under way at a time.
const DEPTH: usize = 16;
/// Pages that are mended in a second at most.
const PAGES_PER_S: u64 = 1 << 16;
/// Time after which what has no answer is given up.
const SILENCE: Nanos = 500_000_000;
/// Pause while answers are awaited, and while nothing is to be mended.
const AWAIT: Duration = Duration::from_micros(50);
const REST: Duration = Duration::from_millis(20);
/// Words that are looked at in one step, so that answers do not wait for long.
const WORDS_PER_STEP: usize = 1 << 14;

/// A page under way.
struct Mend {
    at: AreaPage<Entry>,
    ticket: MendTicket,
    /// Where it is read; none once it is written.
    source: Option<Slot>,
    node: NodeIndex,
    /// Of what is posted.
    id: WorkId,
    begun: Nanos,
}

/// A thread's work on all groups of a fabric.
pub(super) struct Mender {
    shared: Arc<Shared>,
    lanes: Lanes,
    under_way: [Option<Mend>; DEPTH],
    /// Tells the uses of a frame apart.
    uses: u64,
    unsettled: Unsettled,
    /// Where the search goes on.
    list: Option<List<Entry>>,
    area: usize,
    page: usize,
    /// No page is begun before that.
    next_at: Nanos,
}

impl Mender {
    pub(super) fn new(shared: &Arc<Shared>) -> Result<Self, FabricError> {
        let frames = Mapping::anonymous(DEPTH * PAGE_BYTES);
        let frames = frames.map_err(|error| FabricError::System { url: String::new(), cause: error.to_string() })?;
        Ok(Self {
            shared: Arc::clone(shared),
            lanes: Lanes::new(shared.nodes.inbox(Arc::new(frames))),
            under_way: std::array::from_fn(|_| None),
            uses: 0,
            unsettled: Unsettled::new(DEPTH),
            list: None,
            area: 0,
            page: 0,
            next_at: 0,
        })
    }

    /// One look: takes answers, and begins more.
    pub(super) fn step(&mut self) -> Pace {
        let now = yonder_clock::now();
        self.lanes.poll(now);
        while let Some((id, end)) = self.lanes.take_ended() {
            let frame = (id.0 % DEPTH as u64).narrow_usize();
            self.arrive(frame, end, now);
        }
        self.give_up_late(now);
        self.unsettled.settle(&self.lanes, self.shared.pid());
        let mut is_searching = true;
        for frame in 0..DEPTH {
            if self.under_way[frame].is_none() && now >= self.next_at {
                let Some((at, ticket)) = self.next_page(now) else {
                    is_searching = self.list.is_some();
                    break;
                };
                self.next_at = self.next_at.max(now - now.min(1_000_000)) + 1_000_000_000 / PAGES_PER_S;
                self.read(frame, at, ticket, now);
            }
        }
        let is_busy = self.under_way.iter().any(Option::is_some) || is_searching || !self.unsettled.is_empty();
        Pace::After(if is_busy { AWAIT } else { REST })
    }

    /// The next page that lacks a place.
    fn next_page(&mut self, now: Nanos) -> Option<(AreaPage<Entry>, MendTicket)> {
        let mut left = WORDS_PER_STEP;
        let list = match &self.list {
            Some(list) => Arc::clone(list),
            None => {
                (self.area, self.page) = (0, 0);
                let list = self.shared.areas.all();
                self.list = Some(Arc::clone(&list));
                list
            }
        };
        while let Some(area) = list.get(self.area) {
            let group = &area.table.group;
            if group.pages_degraded() == 0 {
                (self.area, self.page) = (self.area + 1, 0);
                continue;
            }
            let up: SlotSet = area
                .table
                .kept()
                .filter(|kept| self.is_up(&area.table, kept.place, now))
                .map(|kept| kept.place.slot)
                .collect();
            while self.page < group.pages() && left > 0 {
                let page = self.page;
                self.page += 1;
                left -= 1;
                let word = group.look(page);
                if !word.is_written() {
                    continue;
                }
                let Some(to) = group.mendable_to(word, up).first() else { continue };
                if let Some(ticket) = group.begin_mend(page, to) {
                    return Some((AreaPage { area: Arc::clone(area), page }, ticket));
                }
            }
            if left == 0 {
                return None;
            }
            (self.area, self.page) = (self.area + 1, 0);
        }
        self.list = None;
        None
    }

    fn is_up(&self, entry: &Entry, place: Place, now: Nanos) -> bool {
        entry.address(place).is_some_and(|address| self.lanes.is_sound(address.node, now))
    }

    fn id(&mut self, frame: usize) -> WorkId {
        self.uses += 1;
        WorkId(self.uses * DEPTH as u64 + frame as u64)
    }

    fn read(&mut self, frame: usize, at: AreaPage<Entry>, ticket: MendTicket, now: Nanos) {
        let (entry, id) = (&at.area.table, self.id(frame));
        let source = ticket.source();
        let mut slots = source.slots().iter().filter(|slot| self.is_up(entry, source.place(*slot), now));
        let asked = slots.next().and_then(|slot| Some((slot, entry.address(source.place(slot))?)));
        drop(slots);
        if let Some((slot, address)) = asked {
            let into = ReadInto::Frame(FrameIndex(frame.narrow_u32()));
            let read = PageRead { from: address.page(at.page), into, vector: Vector::WHOLE };
            if self.lanes.post(address.node, id, Posted::Read(read), now) == Some(Ok(())) {
                let mend = Mend { at, ticket, source: Some(slot), node: address.node, id, begun: now };
                self.under_way[frame] = Some(mend);
                return;
            }
        }
        entry.group.end_mend(&ticket, MendEnd::Failed);
    }

    fn arrive(&mut self, frame: usize, end: End, now: Nanos) {
        let Some(mend) = self.under_way[frame].take() else { return };
        let (entry, ticket) = (&mend.at.area.table, mend.ticket);
        match (mend.source, end) {
            (Some(slot), End::Done) if entry.group.read_counts(&ticket.source(), slot) => {
                let id = self.id(frame);
                if let Some(address) = entry.address(ticket.to()) {
                    let from = FrameIndex(frame.narrow_u32());
                    let write = PageWrite { to: address.page(mend.at.page), from, vector: Vector::WHOLE };
                    if self.lanes.post(address.node, id, Posted::Write(write), now) == Some(Ok(())) {
                        self.under_way[frame] = Some(Mend { source: None, node: address.node, id, begun: now, ..mend });
                        return;
                    }
                }
                entry.group.end_mend(&ticket, MendEnd::Failed);
            }
            (None, End::Done) => {
                if entry.group.end_mend(&ticket, MendEnd::Done) {
                    self.shared.count(Event::Mended);
                }
            }
            (None, End::Unknown) => self.leave(mend),
            (_, end) => {
                if matches!(end, End::Refused(_) | End::Unknown) {
                    let slot = mend.source.unwrap_or(ticket.to().slot);
                    self.shared.doubt(entry, slot.into());
                }
                entry.group.end_mend(&ticket, MendEnd::Failed);
            }
        }
    }

    /// A write is given up that may still land.
    fn leave(&mut self, mend: Mend) {
        let Mend { at, ticket, .. } = mend;
        self.shared.doubt(&at.area.table, ticket.to().slot.into());
        at.area.table.group.end_mend(&ticket, MendEnd::Unsettled);
        self.unsettled.add(&at, std::iter::once(ticket.to()));
    }

    fn give_up_late(&mut self, now: Nanos) {
        for frame in 0..DEPTH {
            let is_late = self.under_way[frame].as_ref().is_some_and(|mend| now >= mend.begun.saturating_add(SILENCE));
            if !is_late {
                continue;
            }
            let mend = self.under_way[frame].take().expect("it is late");
            self.lanes.cancel(mend.node, mend.id);
            match mend.source {
                Some(slot) => {
                    self.shared.doubt(&mend.at.area.table, slot.into());
                    mend.at.area.table.group.end_mend(&mend.ticket, MendEnd::Failed);
                }
                None => self.leave(mend),
            }
        }
    }
}
