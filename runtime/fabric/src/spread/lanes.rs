//! [`Lanes`]: the lanes of one queue pair, by the numbers of their nodes.

use std::sync::Arc;

use yonder_mapping::Mapping;
use yonder_protect::Slot;
use yonder_units::{Nanos, Narrow};

use super::nodes::{Inbox, Link, NODES_MAX, NodeIndex};
use crate::queue::{End, LaneQueue};
use crate::vector::Operation as Posted;
use crate::{PostError, WorkId};

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
}

impl Lanes {
    /// Those of an inbox, and all that arrive there later.
    pub(super) fn new(inbox: Arc<Inbox>) -> Self {
        let links = (0..NODES_MAX).map(|_| None).collect();
        let mut lanes = Self { inbox, links, nodes: Vec::with_capacity(NODES_MAX) };
        lanes.take_arrived();
        lanes
    }

    /// Without any, and none that arrives.
    pub(super) fn none(frames: Arc<Mapping>) -> Self {
        Self { inbox: Inbox::without_sender(frames), links: Box::default(), nodes: Vec::new() }
    }

    /// Takes the lanes that have arrived.
    #[inline]
    pub(super) fn take_arrived(&mut self) {
        let Self { inbox, links, nodes } = self;
        inbox.take(|node, link| {
            assert!(links[usize::from(node.0)].replace(link).is_none(), "a queue pair has one lane to a node");
            nodes.push(node);
        });
    }

    /// The one to a node, if it is there.
    #[inline]
    pub(super) fn get(&mut self, node: NodeIndex) -> Option<&mut Link> {
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
        let link = self.get(node)?;
        Some(link.queue.post(id, posted, link.right, now))
    }

    /// Withdraws what was posted at a node.
    pub(super) fn cancel(&mut self, node: NodeIndex, id: WorkId) {
        if let Some(link) = self.get(node) {
            link.queue.cancel(id);
        }
    }

    /// Sends and receives on all lanes. A node of which nothing has come is silent for that long.
    pub(super) fn poll(&mut self, now: Nanos) {
        self.take_arrived();
        for node in &self.nodes {
            let link = self.links[usize::from(node.0)].as_mut().expect("it is among those there");
            link.queue.poll(now, || false);
            if link.queue.is_waiting() {
                link.node.health.wait(now);
            }
        }
    }

    /// The next operation that has ended at any node.
    #[inline]
    pub(super) fn take_ended(&mut self, now: Nanos) -> Option<(WorkId, End)> {
        self.nodes.iter().find_map(|node| {
            let link = self.links[usize::from(node.0)].as_mut()?;
            let ended = link.queue.take_ended()?;
            if ended.1 != End::Unknown {
                link.node.health.hear(now);
            }
            Some(ended)
        })
    }

    /// Whether a node answers in time, as far as is known here.
    #[inline]
    pub(super) fn is_up(&self, node: NodeIndex) -> bool {
        self.links[usize::from(node.0)].as_ref().is_some_and(|link| link.node.health.state().is_up())
    }

    /// As [`crate::QueuePair::next_poll`].
    pub(super) fn next_poll(&self) -> Nanos {
        let links = self.nodes.iter().filter_map(|node| self.links[usize::from(node.0)].as_ref());
        links.map(|link| link.queue.next_poll()).min().unwrap_or(Nanos::MAX)
    }

    /// The lane to a node, to ask about it.
    pub(super) fn queue(&self, node: NodeIndex) -> Option<&LaneQueue> {
        self.links[usize::from(node.0)].as_ref().map(|link| &link.queue)
    }
}
