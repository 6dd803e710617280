//! [`Mender`]: copies pages to places that do not have them, in the background.
//!
//! It reads a page where it is current and writes it where it is not, some pages at a time. A write of the program
//! meanwhile makes the copy void, and the page is looked at again later. Pages that are at the fewest places come
//! first. It also asks nodes that nobody else asks, so that one that ends is noticed, and one that is back ([`Probe`]).

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Duration;

use yonder_mapping::Mapping;
use yonder_protect::health::State;
use yonder_protect::mend::{Next, Plan, Progress, Rate};
use yonder_protect::{Group, MendEnd, MendTicket, Place, Slot};
use yonder_units::{FrameIndex, Nanos, Narrow, PAGE_BYTES};

use super::group::Entry;
use super::lanes::Lanes;
use super::nodes::NodeIndex;
use super::unsettled::Unsettled;
use super::{Event, Shared};
use crate::areas::{Area, AreaPage, List};
use crate::background::Pace;
use crate::queue::End;
use crate::vector::Operation as Posted;
use crate::{FabricError, PageRead, PageWrite, ReadInto, Vector, WorkId};

/// Pages under way at a time.
const DEPTH: usize = 16;
/// Bytes that are mended in a second, at least and at most: what the program itself moves comes off the most.
const RATE_FLOOR: u64 = 16 << 20;
const RATE_CEILING: u64 = 192 << 20;
/// Time after which what has no answer is given up.
const SILENCE: Nanos = 500_000_000;
/// Pause while answers are awaited, and while nothing is to be mended.
const AWAIT: Duration = Duration::from_micros(50);
const AWAIT_PROBE: Duration = Duration::from_millis(2);
const REST: Duration = Duration::from_millis(20);
const REST_NANOS: Nanos = 20_000_000;
/// Words that are looked at in one step, so that answers do not wait for long.
const WORDS_PER_STEP: usize = 1 << 14;

/// How often a node is asked that answers others, or is asked nothing.
const PROBE_EACH: Nanos = 1_000_000_000;
/// The same, while another is suspect.
const PROBE_SOON: Nanos = 50_000_000;
/// The name of what is asked of a node, behind those of mends.
const PROBE: u64 = 1 << 62;

/// What is asked of a node to know whether it answers: a page that it has, which nobody looks at.
struct Probe {
    is_under_way: bool,
    next_at: Nanos,
    /// The same, while a node is suspect.
    soon_at: Nanos,
}

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
    /// By the numbers of nodes.
    probes: Vec<Probe>,
    plan: Plan,
    rate: Rate,
    progress: Progress,
    list: List<Entry>,
    groups: Vec<Held>,
    /// No page is looked for before that.
    rest_until: Nanos,
}

/// An area, as the plan takes it.
struct Held(Arc<Area<Entry>>);

impl Borrow<Group> for Held {
    fn borrow(&self) -> &Group {
        &self.0.table.group
    }
}

impl Mender {
    pub(super) fn new(shared: &Arc<Shared>) -> Result<Self, FabricError> {
        // One more for probes.
        let frames = Mapping::anonymous((DEPTH + 1) * PAGE_BYTES);
        let frames = frames.map_err(|error| FabricError::System { url: String::new(), cause: error.to_string() })?;
        Ok(Self {
            shared: Arc::clone(shared),
            lanes: Lanes::new(shared.nodes.inbox(Arc::new(frames))),
            under_way: std::array::from_fn(|_| None),
            uses: 0,
            unsettled: Unsettled::new(DEPTH),
            probes: Vec::new(),
            plan: Plan::default(),
            rate: Rate::new(RATE_FLOOR, RATE_CEILING),
            progress: Progress::default(),
            list: shared.areas.all(),
            groups: Vec::new(),
            rest_until: 0,
        })
    }

    /// One look: takes answers, and begins more.
    pub(super) fn step(&mut self) -> Pace {
        let now = yonder_clock::now();
        self.lanes.poll(now);
        while let Some((id, end)) = self.lanes.take_ended(now) {
            match id.0.checked_sub(PROBE) {
                Some(node) => self.end_probe(NodeIndex(node.narrow_u16()), end),
                None => self.arrive((id.0 % DEPTH as u64).narrow_usize(), end, now),
            }
        }
        // Here, because this thread never waits.
        self.shared.nodes.judge(now);
        self.shared.poll_orphans(now);
        self.probe(now);
        self.give_up_late(now);
        self.unsettled.settle(&self.lanes, self.shared.pid());
        self.measure(now);
        if now >= self.rest_until {
            for frame in 0..DEPTH {
                if self.under_way[frame].is_none() && !self.begin_next(frame, now) {
                    break;
                }
            }
        }
        let is_busy = self.under_way.iter().any(Option::is_some) || now >= self.rest_until;
        let is_probing = self.probes.iter().any(|probe| probe.is_under_way);
        Pace::After(match (is_busy, is_probing) {
            (true, _) => AWAIT,
            (false, true) => AWAIT_PROBE,
            (false, false) => REST,
        })
    }

    /// Asks nodes whether they are there.
    fn probe(&mut self, now: Nanos) {
        // Whether others are heard decides what the silence of one means.
        let is_any_silent = (0..self.probes.len())
            .any(|node| self.shared.nodes.get(NodeIndex(node.narrow_u16())).health.state() == State::Suspect);
        for node in 0..self.shared.nodes.len() {
            if node == self.probes.len() {
                self.probes.push(Probe { is_under_way: false, next_at: now + PROBE_EACH, soon_at: now });
            }
            let (probe, index) = (&mut self.probes[node], NodeIndex(node.narrow_u16()));
            let health = &self.shared.nodes.get(index).health;
            let is_due = now >= probe.next_at || health.wants_probe(now) || is_any_silent && now >= probe.soon_at;
            if probe.is_under_way || !is_due || health.state() == State::Lost {
                continue;
            }
            (probe.next_at, probe.soon_at) = (now + PROBE_EACH, now + PROBE_SOON);
            let list = self.shared.areas.all();
            let address = list.iter().find_map(|area| area.table.address_at(index));
            if let Some(address) = address {
                let into = ReadInto::Frame(FrameIndex(DEPTH.narrow_u32()));
                let read = PageRead { from: address.page(0), into, vector: Vector::WHOLE };
                let posted = self.lanes.post(index, WorkId(PROBE + node as u64), Posted::Read(read), now);
                probe.is_under_way = posted == Some(Ok(()));
            }
        }
    }

    /// A node has answered, or is out of reach: what it no longer has is asked for at the controller.
    fn end_probe(&mut self, node: NodeIndex, end: End) {
        self.probes[usize::from(node.0)].is_under_way = false;
        if end != End::Done {
            for area in self.shared.areas.all().iter() {
                let slots = area.table.kept().filter(|kept| kept.address.node == node).map(|kept| kept.place.slot);
                self.shared.doubt(&area.table, slots.collect());
            }
        }
    }

    /// Notes what the program itself moves, and how far mending is.
    fn measure(&mut self, now: Nanos) {
        let mended = self.shared.event(Event::Mended);
        let own = 2 * mended * PAGE_BYTES as u64;
        self.rate.foreground(self.shared.nodes.bytes().saturating_sub(own), now);
        self.progress.saw(mended, now);
        self.shared.tell_progress(&self.progress);
    }

    /// Begins to mend the next page, if there is one and the rate allows it.
    fn begin_next(&mut self, frame: usize, now: Nanos) -> bool {
        let list = self.shared.areas.all();
        if !Arc::ptr_eq(&list, &self.list) || self.groups.len() != list.len() {
            self.groups = list.iter().map(|area| Held(Arc::clone(area))).collect();
            (self.list, self.plan) = (list, Plan::default());
        }
        if self.groups.iter().all(|held| held.0.table.group.pages_degraded() == 0) {
            self.rest_until = now + REST_NANOS;
            return false;
        }
        if self.rate.take_page(now).is_err() {
            return false;
        }
        let (lanes, groups) = (&self.lanes, &self.groups);
        let up = |group: usize| {
            let entry = &groups[group].0.table;
            let is_up = |place: Place| entry.address(place).is_some_and(|address| lanes.is_up(address.node));
            entry.kept().filter(|kept| is_up(kept.place)).map(|kept| kept.place.slot).collect()
        };
        match self.plan.next(groups, up, WORDS_PER_STEP) {
            Next::Job(job) => {
                let at = AreaPage { area: Arc::clone(&groups[job.group].0), page: job.ticket.page() };
                self.read(frame, at, job.ticket, now);
                true
            }
            Next::More => false,
            Next::Nothing => {
                self.rest_until = now + REST_NANOS;
                false
            }
        }
    }

    fn is_up(&self, entry: &Entry, place: Place) -> bool {
        entry.address(place).is_some_and(|address| self.lanes.is_up(address.node))
    }

    fn id(&mut self, frame: usize) -> WorkId {
        self.uses += 1;
        WorkId(self.uses * DEPTH as u64 + frame as u64)
    }

    fn read(&mut self, frame: usize, at: AreaPage<Entry>, ticket: MendTicket, now: Nanos) {
        let (entry, id) = (&at.area.table, self.id(frame));
        let source = ticket.source();
        let mut slots = source.slots().iter().filter(|slot| self.is_up(entry, source.place(*slot)));
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
