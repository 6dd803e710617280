//! [`Lanes`]: the lanes of one queue pair, by the numbers of their nodes, and its way to a file.

use std::sync::Arc;

use yonder_mapping::Mapping;
use yonder_protect::hedge::DELAY_MAX;
use yonder_protect::pace::{Answering, hedge_after};
use yonder_protect::{Place, Slot, SlotSet};
use yonder_units::{FrameIndex, Nanos, Narrow};

use super::backup::{self, FileLink, Left};
use super::group::Entry;
use super::nodes::{Inbox, Link, NODES_MAX, NodeIndex};
use super::rounds::Rounds;
use crate::areas::AreaPage;
use crate::queue::End;
use crate::vector::Operation as Posted;
use crate::{PostError, Posting, RemoteAddress, WorkId};

/// Where the slot is in the name of what is posted.
const SLOT_SHIFT: u32 = 56;

/// The name of what is posted to a slot for an operation.
pub(super) fn below(operation: WorkId, slot: Slot) -> WorkId {
    assert!(operation.0 >> SLOT_SHIFT == 0, "there are fewer operations");
    WorkId(operation.0 | u64::from(slot.number()) << SLOT_SHIFT)
}

/// The operation and the slot of such a name.
pub(super) fn name_and_slot(posted: WorkId) -> (WorkId, Slot) {
    (WorkId(posted.0 & ((1 << SLOT_SHIFT) - 1)), Slot::new((posted.0 >> SLOT_SHIFT).narrow_u8()))
}

/// The lanes that a queue pair, or the mender, has.
pub(super) struct Lanes {
    inbox: Arc<Inbox>,
    links: Box<[Option<Box<Link>>]>,
    /// Those that are there.
    nodes: Vec<NodeIndex>,
    file: Option<FileLink>,
    rounds: Rounds,
    hedge_after: Nanos,
    /// To reckon that.
    room: Vec<Nanos>,
    polled: Nanos,
    /// How long before that was the poll before: what has arrived may have waited for so long.
    since: Nanos,
}

impl Lanes {
    /// Those of an inbox, and all that arrive there later; a read is so many messages.
    pub(super) fn new(inbox: Arc<Inbox>, file: Option<FileLink>, messages: u8) -> Self {
        let links = (0..NODES_MAX).map(|_| None).collect();
        let nodes = Vec::with_capacity(NODES_MAX.into());
        let (rounds, room) = (Rounds::new(messages), Vec::with_capacity(NODES_MAX.into()));
        let mut lanes = Self { inbox, links, nodes, file, rounds, hedge_after: DELAY_MAX, room, polled: 0, since: 0 };
        lanes.take_arrived();
        lanes
    }

    /// Without any, and none that arrives.
    pub(super) fn none(frames: Arc<Mapping>) -> Self {
        let (inbox, rounds) = (Inbox::without_sender(frames), Rounds::new(1));
        let (nodes, room) = (Vec::new(), Vec::new());
        Self {
            inbox,
            links: Box::default(),
            nodes,
            file: None,
            rounds,
            hedge_after: DELAY_MAX,
            room,
            polled: 0,
            since: 0,
        }
    }

    /// As [`crate::QueuePair::set_posting`].
    pub(super) fn set_posting(&mut self, posting: Posting) {
        self.rounds.set_posting(posting);
    }

    /// Takes the lanes that have arrived.
    #[inline]
    pub(super) fn take_arrived(&mut self) {
        let Self { inbox, links, nodes, .. } = self;
        inbox.take(|node, link| {
            assert!(links[usize::from(node.0)].replace(link).is_none(), "a queue pair has one lane to a node");
            nodes.push(node);
        });
    }

    /// The one to a node, if it is there.
    #[inline]
    fn get(&mut self, node: NodeIndex) -> Option<&mut Link> {
        self.links[usize::from(node.0)].as_deref_mut()
    }

    /// Posts at a node. None if there is no lane to it yet.
    pub(super) fn post(
        &mut self,
        node: NodeIndex,
        id: WorkId,
        posted: Posted,
        now: Nanos,
    ) -> Option<Result<(), PostError>> {
        match posted {
            Posted::Read(_) => self.rounds.add(),
            Posted::Write(_) => self.rounds.hurry(),
        }
        if node == backup::NODE {
            return Some(self.file.as_mut()?.post(id, posted, now));
        }
        let link = self.get(node)?;
        Some(link.queue.post(id, posted, link.right, now))
    }

    /// As [`FileLink::leave`], if there is a file.
    pub(super) fn leave_to_file(&mut self, at: &AreaPage<Entry>, from: FrameIndex, now: Nanos) -> Left {
        self.rounds.hurry();
        self.file.as_mut().map_or(Left::Taken, |file| file.leave(at, from, now))
    }

    /// Whether pages are on their way to a file.
    pub(super) fn has_late(&self) -> bool {
        self.file.as_ref().is_some_and(FileLink::has_late)
    }

    /// Withdraws what was posted at a node.
    pub(super) fn cancel(&mut self, node: NodeIndex, id: WorkId) {
        self.rounds.hurry();
        if node == backup::NODE {
            self.file.iter_mut().for_each(|file| file.cancel(id));
        } else if let Some(link) = self.get(node) {
            link.queue.cancel(id);
        }
    }

    /// Sends and receives on all lanes, if it is time for that. A node of which nothing has come is silent for that
    /// long.
    pub(super) fn poll(&mut self, now: Nanos) {
        if !self.rounds.is_due(now) {
            return;
        }
        self.take_arrived();
        (self.since, self.polled) = (now.saturating_sub(self.polled), now);
        for node in &self.nodes {
            let link = self.links[usize::from(node.0)].as_mut().expect("it is among those there");
            link.queue.poll(now, || false);
            if link.queue.is_waiting() {
                link.wait(self.since, now);
            } else if link.queue.owes_nothing() {
                // While the node has not agreed to what was given up, the lane is as silent as before.
                link.end_silence();
            }
        }
        self.file.iter_mut().for_each(|file| file.poll(now));
    }

    /// The next operation that has ended at any node.
    #[inline]
    pub(super) fn take_ended(&mut self, now: Nanos) -> Option<(WorkId, End)> {
        let at_node = self.nodes.iter().find_map(|node| {
            let link = self.links[usize::from(node.0)].as_mut()?;
            let ended = link.queue.take_ended()?;
            if ended.1 != End::Unknown {
                link.node.health.hear(now);
                link.has_answered();
            }
            Some(ended)
        });
        at_node.or_else(|| self.file.as_mut()?.take_ended(now))
    }

    /// Whether a node answers in time, as far as is known here.
    #[inline]
    fn is_up(&self, node: NodeIndex) -> bool {
        if node == backup::NODE {
            return self.file.as_ref().is_some_and(FileLink::is_up);
        }
        self.links[usize::from(node.0)].as_ref().is_some_and(|link| link.is_up())
    }

    /// Those of some slots whose nodes answer, and a file that can be used.
    pub(super) fn up(&self, entry: &Entry, slots: SlotSet, place: impl Fn(Slot) -> Place) -> SlotSet {
        let is_up = |slot: &Slot| entry.address(place(*slot)).is_some_and(|address| self.is_up(address.node));
        slots.iter().filter(is_up).collect()
    }

    /// Those of some slots that a write goes to: a file only if no node answers.
    pub(super) fn up_to_write(&self, entry: &Entry, slots: SlotSet, place: impl Fn(Slot) -> Place) -> SlotSet {
        let all = self.up(entry, slots, place);
        let at_nodes = all - self.of_file(all);
        if at_nodes.is_empty() { all } else { at_nodes }
    }

    /// Those that answer, and which of them keep up; a file only if no node does.
    pub(super) fn answering(&self, entry: &Entry, slots: SlotSet, place: impl Fn(Slot) -> Place) -> Answering {
        let all = self.up(entry, slots, &place);
        let at_nodes = all - self.of_file(all);
        let evacuated = entry.group.evacuated();
        let is_slow = |slot: &Slot| entry.address(place(*slot)).is_some_and(|address| self.is_slow(address.node));
        let quick = at_nodes - at_nodes.iter().filter(is_slow).collect() - evacuated;
        if quick.is_empty() {
            // A disk is quicker than a node that is slow.
            return Answering { up: all, quick: all - at_nodes };
        }
        Answering { up: at_nodes, quick }
    }

    #[inline]
    fn is_slow(&self, node: NodeIndex) -> bool {
        // A file has no number there.
        let link = self.links.get(usize::from(node.0)).and_then(Option::as_ref);
        link.is_some_and(|link| link.pace().is_slow())
    }

    /// How long a read waits for an answer before another node is asked too.
    pub(super) fn hedge_after(&self) -> Nanos {
        self.hedge_after
    }

    /// A write of a page has ended at a node that was begun then, or is not waited for any more there.
    #[inline]
    pub(super) fn wrote(&mut self, node: NodeIndex, begun: Nanos, now: Nanos) {
        // A file has no number there.
        if let Some(link) = self.links.get_mut(usize::from(node.0)).and_then(Option::as_mut) {
            link.wrote(begun, now.saturating_sub(self.since).max(begun));
        }
    }

    /// Reckons that anew, and tells nodes what was written to them.
    pub(super) fn reckon(&mut self) {
        self.links.iter_mut().flatten().for_each(|link| link.tell_writes());
        let links = self.nodes.iter().filter_map(|node| self.links[usize::from(node.0)].as_ref());
        let asked = links.filter(|link| link.node.is_asked());
        self.hedge_after = hedge_after(asked.map(|link| link.pace()), &mut self.room);
    }

    /// A node has answered a read after so long. What the caller itself has not looked for it is no time of the node.
    pub(super) fn took(&mut self, node: NodeIndex, span: Nanos) {
        let (span, hedge_after) = (span.saturating_sub(self.since), self.hedge_after);
        if let Some(link) = self.links.get_mut(usize::from(node.0)).and_then(Option::as_mut) {
            link.took(span, hedge_after);
        }
    }

    /// A node has not answered a read for so long, and is not waited for any more. That says something if it is late.
    pub(super) fn was_not_heard(&mut self, node: NodeIndex, span: Nanos, now: Nanos) {
        let looked = span.saturating_sub(now.saturating_sub(self.polled));
        if looked.saturating_sub(self.since) > self.hedge_after {
            self.took(node, looked);
        }
    }

    /// Whether there is a file that has not failed.
    pub(super) fn can_use_file(&self) -> bool {
        self.file.as_ref().is_some_and(FileLink::is_up)
    }

    /// That of some slots which is a file's.
    pub(super) fn of_file(&self, slots: SlotSet) -> SlotSet {
        if self.file.is_some() { slots & backup::SLOT.into() } else { SlotSet::NONE }
    }

    /// As [`crate::QueuePair::next_poll`].
    pub(super) fn next_poll(&self) -> Nanos {
        let links = self.nodes.iter().filter_map(|node| self.links[usize::from(node.0)].as_ref());
        let of_nodes = links.map(|link| link.queue.next_poll()).min().unwrap_or(Nanos::MAX);
        self.file.as_ref().map_or(of_nodes, |file| of_nodes.min(file.next_poll()))
    }

    /// Whether a write that was given up may still reach one of the `bytes` at `start`, at a node.
    pub(super) fn may_still_write(&self, node: NodeIndex, pid: u32, start: RemoteAddress, bytes: u64) -> bool {
        // What was given up at a file never lands.
        let link = self.links.get(usize::from(node.0)).map(Option::as_ref);
        link.is_some_and(|link| link.is_none_or(|link| link.queue.may_still_write(pid, start, bytes)))
    }
}
