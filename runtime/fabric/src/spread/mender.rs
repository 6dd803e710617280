//! [`Mender`]: copies pages to places that do not have them, in the background.
//!
//! It reads a page where it is current, makes the copy or the share that a place lacks, and writes it there, some pages
//! at a time. A write of the program meanwhile makes that void, and the page is looked at again later. Pages that are
//! at the fewest places come first. It also asks nodes that nobody else asks, so that one that ends is noticed, and one
//! that is back ([`Probe`]).

use std::borrow::Borrow;
use std::sync::{Arc, Weak};
use std::time::Duration;

use yonder_protect::health::State;
use yonder_protect::mend::{Next, Plan, Progress, Rate};
use yonder_protect::pace::Answering;
use yonder_protect::{Group, MendEnd, MendTicket, Read, ReadNext, ReadTicket, SLOTS_MAX, Slot, SlotSet};
use yonder_units::{Nanos, Narrow};
use yonder_wire::ErrorCode;

use super::backup;
use super::group::{Asked, Entry};
use super::lanes::{Lanes, below, name_and_slot};
use super::nodes::{Node, NodeIndex};
use super::shares::Shares;
use super::unsettled::Unsettled;
use super::{Event, Shared};
use crate::areas::{Area, AreaPage, List};
use crate::background::Pace;
use crate::queue::End;
use crate::vector::Operation as Posted;
use crate::{FabricError, Module, PageRead, PageWrite, ReadInto, RemoteAddress, Vector, WorkId};

/// Pages under way at a time.
const DEPTH: usize = 16;
/// Those of them that wait for a file: a disk that stands still keeps no others from nodes.
const OF_FILE_MAX: usize = DEPTH / 4;
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

/// How often a node is asked that answers others, or is asked nothing: each time of another of its places.
const PROBE_EACH: Nanos = 1_000_000_000;
/// More often where it has many: each of them may have moved, and is asked for in about this time, or at this pace.
const PROBE_ALL: Nanos = 60_000_000_000;
const PROBE_EACH_MIN: Nanos = 20_000_000;
/// The same, while another is suspect.
const PROBE_SOON: Nanos = 50_000_000;
/// The name of what is asked of a node, behind those of mends.
const PROBE: u64 = 1 << 62;

/// What is asked of a node to know whether it answers, and has its places still: a page of one, which nobody looks at.
struct Probe {
    under_way: Option<Question>,
    /// Where the next place is looked for among the areas.
    next_area: usize,
    /// Places that were found in this round, and in the last.
    places: [u64; 2],
    next_at: Nanos,
    /// The same, while a node is suspect.
    soon_at: Nanos,
}

/// A page that is asked for to know that.
struct Question {
    /// Its memory may be given back meanwhile.
    area: Weak<Area<Entry>>,
    slot: Slot,
    asked: Asked,
    since: Nanos,
    /// The place has moved there, as the controller says.
    has_moved: bool,
}

/// A page under way.
struct Mend {
    at: AreaPage<Entry>,
    ticket: MendTicket,
    course: Course,
    /// The names of what is posted for it, but for the slot.
    id: WorkId,
    begun: Nanos,
}

/// Where it is in its course, and the nodes that were asked, by slots.
enum Course {
    Reading(Read, [NodeIndex; SLOTS_MAX]),
    Writing(Asked),
}

/// A thread's work on all groups of a fabric.
pub(super) struct Mender {
    shared: Arc<Shared>,
    lanes: Lanes,
    /// What is read and written is here, and behind it what probes read.
    shares: Shares,
    under_way: [Option<Mend>; DEPTH],
    /// Tells the uses of a place among them apart.
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

impl Probe {
    fn pause(&self) -> Nanos {
        (PROBE_ALL / self.places[1].max(1)).clamp(PROBE_EACH_MIN, PROBE_EACH)
    }
}

impl Borrow<Group> for Held {
    fn borrow(&self) -> &Group {
        &self.0.table.group
    }
}

impl Mender {
    pub(super) fn new(shared: &Arc<Shared>) -> Result<Self, FabricError> {
        let shares = Shares::new(shared.code(), DEPTH, 1)?;
        let frames = || Arc::clone(shares.frames());
        let file = shared.backup.as_ref().map(|backup| backup.link(Module::Fault, frames())).transpose()?;
        Ok(Self {
            shared: Arc::clone(shared),
            lanes: Lanes::new(shared.nodes.inbox(frames()), file, 1),
            shares,
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
                None => {
                    let (id, slot) = name_and_slot(id);
                    self.arrive((id.0 % DEPTH as u64).narrow_usize(), slot, end, now);
                }
            }
        }
        // Here, because this thread never waits.
        self.shared.nodes.judge(now);
        self.shared.poll_orphans(now);
        self.probe(now);
        self.give_up_late(now);
        self.unsettled.settle(&self.lanes, self.shared.pid());
        self.measure(now);
        self.bury();
        if now >= self.rest_until {
            for place in 0..DEPTH {
                if self.under_way[place].is_none() && !self.begin_next(place, now) {
                    break;
                }
            }
        }
        let is_busy = self.under_way.iter().any(Option::is_some) || now >= self.rest_until;
        let is_probing = self.probes.iter().any(|probe| probe.under_way.is_some());
        Pace::After(match (is_busy, is_probing) {
            (true, _) => AWAIT,
            (false, true) => AWAIT_PROBE,
            (false, false) => REST,
        })
    }

    /// Asks nodes whether they are there.
    fn probe(&mut self, now: Nanos) {
        let list = self.shared.areas.all();
        // Whether others are heard decides what the silence of one means.
        let is_any_silent = (0..self.probes.len())
            .any(|node| self.shared.nodes.get(NodeIndex(node.narrow_u16())).health.state() == State::Suspect);
        for node in 0..self.shared.nodes.len() {
            if node == self.probes.len() {
                self.probes.push(Probe {
                    under_way: None,
                    next_area: 0,
                    places: [0; 2],
                    next_at: now + PROBE_EACH,
                    soon_at: now,
                });
            }
            let index = NodeIndex(node.narrow_u16());
            let node = self.shared.nodes.get(index);
            let probe = &mut self.probes[usize::from(index.0)];
            if node.health.state() == State::Lost {
                while node.take_moved().is_some() {}
                continue;
            }
            let is_due = now >= probe.next_at
                || node.health.wants_probe(now)
                || is_any_silent && now >= probe.soon_at
                || node.has_moved_here();
            // A place on its way to or from the node says for as long that it is to be asked again: another one that
            // may be there does not wait for that. One that has said nothing yet is left its time.
            let is_held_up = |question: &Question| {
                let is_late = now >= question.since.saturating_add(PROBE_SOON);
                is_late && node.has_moved_here() && node.health.last_heard() > question.since
            };
            if let Some(question) = probe.under_way.take_if(|question| is_held_up(question)) {
                self.lanes.cancel(index, WorkId(PROBE + u64::from(index.0)));
                question.area.upgrade().filter(|_| question.has_moved).iter().for_each(|area| node.note_moved(area));
            }
            if probe.under_way.is_none() && is_due {
                self.ask_whether_there(index, &node, &list, now);
            }
        }
    }

    /// Asks for a page of some place at a node: of one that has moved there, if there is one, or the next in turn.
    fn ask_whether_there(&mut self, index: NodeIndex, node: &Node, list: &List<Entry>, now: Nanos) {
        let probe = &mut self.probes[usize::from(index.0)];
        (probe.next_at, probe.soon_at) = (now + probe.pause(), now + PROBE_SOON);
        let first = probe.next_area;
        // Writes may wait for it.
        let mut moved = std::iter::from_fn(|| node.take_moved()).filter_map(|area| area.upgrade());
        let moved = moved.find_map(|area| area.table.asked_at(index).map(|found| (area, None, found)));
        let found = moved.or_else(|| {
            let mut in_turn = (first..list.len()).chain(0..first.min(list.len()));
            in_turn.find_map(|at| Some((Arc::clone(&list[at]), Some(at), list[at].table.asked_at(index)?)))
        });
        let Some((area, at, (slot, address, asked))) = found else {
            probe.places = [0; 2];
            return;
        };
        if let Some(at) = at {
            if at < first {
                probe.places = [0, probe.places[0]];
            }
            probe.places[0] += 1;
            probe.next_area = at + 1;
        }
        let into = ReadInto::Frame(self.shares.frame(DEPTH, Slot::new(0)));
        let read = PageRead { from: RemoteAddress(address.start), into, vector: Vector::WHOLE };
        let id = WorkId(PROBE + u64::from(index.0));
        if self.lanes.post(index, id, Posted::Read(read), now) == Some(Ok(())) {
            let has_moved = at.is_none();
            probe.under_way = Some(Question { area: Arc::downgrade(&area), slot, asked, since: now, has_moved });
        } else if at.is_none() {
            // The lane is not there yet.
            node.note_moved(&area);
        }
    }

    /// A node has answered, or is out of reach: what it no longer has is asked for at the controller.
    fn end_probe(&mut self, node: NodeIndex, end: End) {
        let asked = self.probes[usize::from(node.0)].under_way.take();
        let asked = asked.and_then(|question| Some((question.area.upgrade()?, question.slot, question.asked)));
        let doubt = |area: &Area<Entry>| {
            let slots = area.table.kept().filter(|kept| kept.address.node == node).map(|kept| kept.place.slot);
            self.shared.doubt(&area.table, slots.collect());
        };
        match (end, asked) {
            (End::Done, Some((area, slot, asked))) => area.table.has_answered(slot, asked),
            (End::Done, None) => {}
            (End::Refused(ErrorCode::Moved | ErrorCode::BadAddress), Some((area, ..))) => doubt(&area),
            (End::Refused(ErrorCode::Moved | ErrorCode::BadAddress), None) => {}
            (End::Refused(_) | End::Unknown, _) => self.shared.areas.all().iter().for_each(|area| doubt(area)),
        }
    }

    /// Notes what the program itself moves, and how far mending is.
    fn measure(&mut self, now: Nanos) {
        let mended = self.shared.event(Event::Mended);
        let code = self.shared.code();
        let own = mended * (u64::from(code.parts().count()) + 1) * code.share_bytes() as u64;
        self.rate.foreground(self.shared.nodes.bytes().saturating_sub(own), now);
        self.progress.saw(mended, now);
        self.shared.tell_progress(&self.progress);
    }

    /// Begins to mend the next page, if there is one and the rate allows it.
    fn begin_next(&mut self, place: usize, now: Nanos) -> bool {
        let list = self.shared.areas.all();
        if !Arc::ptr_eq(&list, &self.list) || self.groups.len() != list.len() {
            self.groups = list.iter().map(|area| Held(Arc::clone(area))).collect();
            (self.list, self.plan) = (list, Plan::default());
        }
        let is_whole = |held: &Held| held.0.table.pages_to_mend() == 0 && held.0.table.pages_to_evacuate() == 0;
        if self.groups.iter().all(is_whole) {
            self.rest_until = now + REST_NANOS;
            return false;
        }
        if self.rate.take_page(now).is_err() {
            return false;
        }
        let (lanes, groups) = (&self.lanes, &self.groups);
        let of_file = self.under_way.iter().flatten().filter(|mend| mend.ticket.to().slot == backup::SLOT).count();
        let up = |group: usize| {
            let entry = &groups[group].0.table;
            let view = entry.group.view();
            let up = lanes.up(entry, view.readable(), |slot| view.place(slot));
            let up = if of_file < OF_FILE_MAX { up } else { up - lanes.of_file(view.live()) };
            // A file that has failed is read still for what it alone has.
            up | lanes.of_file(view.retiring())
        };
        match self.plan.next(groups, up, WORDS_PER_STEP) {
            Next::Job(job) => {
                let at = AreaPage { area: Arc::clone(&groups[job.group].0), page: job.ticket.page() };
                self.begin(place, at, job.ticket, now);
                true
            }
            Next::More => false,
            Next::Nothing => {
                self.rest_until = now + REST_NANOS;
                false
            }
        }
    }

    fn answering(&self, entry: &Entry, source: &ReadTicket) -> Answering {
        self.lanes.answering(entry, source.slots(), |slot| source.place(slot))
    }

    /// Gives back in a file what was released.
    fn bury(&self) {
        if let Some(backup) = &self.shared.backup {
            let under_way = self.under_way.iter().flatten();
            backup.bury(|area| under_way.clone().any(|mend| Arc::ptr_eq(&mend.at.area, area)));
        }
    }

    fn begin(&mut self, place: usize, at: AreaPage<Entry>, ticket: MendTicket, now: Nanos) {
        self.uses += 1;
        let id = WorkId(self.uses * DEPTH as u64 + place as u64);
        let (source, entry) = (ticket.source(), &at.area.table);
        // None is hedged: nobody waits for it.
        let (read, slots) = Read::begin(source, &entry.group, self.answering(entry, &source), now, Nanos::MAX);
        let course = Course::Reading(read, [NodeIndex(0); SLOTS_MAX]);
        self.ask(place, Mend { at, ticket, course, id, begun: now }, slots, now);
    }

    /// Asks the places of some slots for a page.
    fn ask(&mut self, place: usize, mut mend: Mend, slots: SlotSet, now: Nanos) {
        let Course::Reading(read, nodes) = &mut mend.course else { unreachable!("it is read first") };
        let entry = &mend.at.area.table;
        for slot in slots.iter() {
            let posted = entry.address(read.place(slot)).and_then(|address| {
                nodes[slot.index()] = address.node;
                let into = ReadInto::Frame(self.shares.frame(place, slot));
                let from = entry.page_at(address, mend.at.page);
                let read = Posted::Read(PageRead { from, into, vector: self.shares.vector() });
                self.lanes.post(address.node, below(mend.id, slot), read, now)
            });
            if posted != Some(Ok(())) {
                read.was_not_asked(slot);
                return self.fail(mend);
            }
        }
        self.under_way[place] = Some(mend);
    }

    /// What is read for it is withdrawn, and it is left as it was.
    fn fail(&mut self, mut mend: Mend) {
        if let Course::Reading(read, _) = &mut mend.course {
            let asked = read.give_up();
            self.withdraw(&mend, asked);
        }
        mend.at.area.table.group.end_mend(&mend.ticket, MendEnd::Failed);
    }

    fn withdraw(&mut self, mend: &Mend, slots: SlotSet) {
        for slot in slots.iter() {
            let node = match &mend.course {
                Course::Reading(_, nodes) => nodes[slot.index()],
                Course::Writing(asked) => asked.node,
            };
            self.lanes.cancel(node, below(mend.id, slot));
        }
    }

    fn arrive(&mut self, place: usize, slot: Slot, end: End, now: Nanos) {
        let Some(mut mend) = self.under_way[place].take() else { return };
        let entry = &mend.at.area.table;
        if end != End::Done {
            self.shared.doubt(entry, slot.into());
            let counts = match &mend.course {
                Course::Reading(read, _) => entry.group.read_counts(&read.ticket(), slot),
                Course::Writing(_) => true,
            };
            if counts {
                self.shared.file_refused(slot);
            }
            if slot == backup::SLOT {
                // It would be the next one again.
                self.rest_until = now + REST_NANOS;
            }
        }
        match (&mut mend.course, end) {
            (Course::Reading(read, _), end) => {
                let step = match end {
                    End::Done => read.answered(&entry.group, slot),
                    _ => {
                        let ticket = read.ticket();
                        read.failed(slot, self.answering(entry, &ticket), now)
                    }
                };
                let got = read.got();
                self.withdraw(&mend, step.cancel);
                match step.then {
                    ReadNext::Wait => self.under_way[place] = Some(mend),
                    ReadNext::Ask(slots) => self.ask(place, mend, slots, now),
                    ReadNext::Done => self.write(place, mend, got, now),
                    ReadNext::Again | ReadNext::Failed => self.fail(mend),
                }
            }
            (Course::Writing(_), End::Done) => {
                if entry.group.end_mend(&mend.ticket, MendEnd::Done) {
                    self.shared.count(Event::Mended);
                }
            }
            (Course::Writing(_), End::Unknown) => self.leave(mend),
            (Course::Writing(_), End::Refused(_)) => self.fail(mend),
        }
    }

    /// Writes to the place that lacks it what was made of the answers of some slots.
    fn write(&mut self, place: usize, mend: Mend, got: SlotSet, now: Nanos) {
        let (entry, to) = (&mend.at.area.table, mend.ticket.to());
        self.shares.make(place, got, to.slot);
        let Some((address, asked)) = entry.ask(to) else { return self.fail(mend) };
        let from = self.shares.frame(place, to.slot);
        let write = PageWrite { to: entry.page_at(address, mend.at.page), from, vector: self.shares.vector() };
        if self.lanes.post(address.node, below(mend.id, to.slot), Posted::Write(write), now) == Some(Ok(())) {
            self.under_way[place] = Some(Mend { course: Course::Writing(asked), begun: now, ..mend });
        } else {
            self.fail(mend);
        }
    }

    /// A write is given up that may still land.
    fn leave(&mut self, mend: Mend) {
        let Mend { at, ticket, course, .. } = mend;
        let Course::Writing(asked) = course else { unreachable!("what is read never lands") };
        self.shared.doubt(&at.area.table, ticket.to().slot.into());
        at.area.table.group.end_mend(&ticket, MendEnd::Unsettled);
        self.unsettled.add(&at, std::iter::once((ticket.to(), asked)));
    }

    fn give_up_late(&mut self, now: Nanos) {
        for place in 0..DEPTH {
            // What a disk has ends, and one that is busy is not helped by more of it.
            let is_at_node = |mend: &Mend| match &mend.course {
                Course::Reading(read, nodes) => read.waiting().iter().any(|slot| nodes[slot.index()] != backup::NODE),
                Course::Writing(asked) => asked.node != backup::NODE,
            };
            let is_late = |mend: &Mend| is_at_node(mend) && now >= mend.begun.saturating_add(SILENCE);
            let is_late = self.under_way[place].as_ref().is_some_and(is_late);
            if !is_late {
                continue;
            }
            let mend = self.under_way[place].take().expect("it is late");
            match &mend.course {
                Course::Reading(read, _) => {
                    self.shared.doubt(&mend.at.area.table, read.waiting());
                    self.fail(mend);
                }
                Course::Writing(_) => {
                    self.withdraw(&mend, mend.ticket.to().slot.into());
                    self.leave(mend);
                }
            }
        }
    }
}
