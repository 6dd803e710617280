//! [`Carrier`]: the source's part of one move, as the node's `carrier` does it, a message at a time.

use std::collections::VecDeque;

use yonder_board::Moving;
use yonder_placement::{MoveOrder, NodeId};
use yonder_units::Nanos;
use yonder_wire::{AdoptRequest, AdoptStage, Header, Kind};

/// A stage that is to be sent, and where the bytes of a fill belong.
pub(super) type Stage = (u64, Vec<u8>);

/// What the stage that is under way is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// The target gets everything; the last of these stages prepares it.
    Filling,
    /// The target is told to serve the region.
    Finishing,
}

/// One move at its source.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) order: MoveOrder,
    /// The region, until the source has closed it for good.
    pub(super) moving: Option<Moving>,
    pub(super) phase: Phase,
    stages: VecDeque<Stage>,
    under_way: Option<(Header, Vec<u8>)>,
}

/// A message of a move, or its answer.
#[derive(Clone, Debug)]
pub(super) enum Packet {
    /// To the target.
    Request {
        /// The source.
        from: NodeId,
        /// The target.
        to: NodeId,
        /// The message.
        bytes: Vec<u8>,
    },
    /// To the source.
    Answer {
        /// The source.
        to: NodeId,
        /// What was asked, by the name of its first attempt.
        first_id: u64,
        /// How it was refused, if it was.
        refused: Option<yonder_wire::ErrorCode>,
    },
}

impl Carrier {
    /// A move whose stages up to the one that prepares the target are these.
    pub(super) fn new(order: MoveOrder, moving: Moving, stages: VecDeque<Stage>) -> Self {
        Self { order, moving: Some(moving), phase: Phase::Filling, stages, under_way: None }
    }

    /// A message with one stage of the move, in which the source waits for nothing.
    pub(super) fn message(&self, stage: AdoptStage<'_>, id: u64, now: Nanos) -> Packet {
        let payload = payload(&self.order, stage);
        self.packet(&self.header(id, 0, payload.len(), now), &payload)
    }

    /// Sends the next stage. None is left when the target is prepared.
    pub(super) fn send_next(&mut self, id: u64, now: Nanos) -> Option<Packet> {
        let (address, payload) = self.stages.pop_front()?;
        let header = self.header(id, address, payload.len(), now);
        let packet = self.packet(&header, &payload);
        self.under_way = Some((header, payload));
        Some(packet)
    }

    /// Sends what is under way again.
    pub(super) fn send_again(&self, id: u64) -> Option<Packet> {
        let (header, payload) = self.under_way.as_ref()?;
        Some(self.packet(&Header { request_id: id, ..*header }, payload))
    }

    /// From now on the target is told to serve the region.
    pub(super) fn finish(&mut self) {
        self.phase = Phase::Finishing;
        self.stages = VecDeque::from([(0, payload(&self.order, AdoptStage::Finish))]);
    }

    /// Whether an answer is to what is under way, which is then over.
    pub(super) fn is_answered(&mut self, first_id: u64) -> bool {
        let answered = self.under_way.as_ref().is_some_and(|(header, _)| header.first_id == first_id);
        if answered {
            self.under_way = None;
        }
        answered
    }

    /// Whether no stage is under way: it has just been ordered.
    pub(super) fn has_not_begun(&self) -> bool {
        self.under_way.is_none()
    }

    /// Whether the target has prepared everything.
    pub(super) fn is_prepared(&self) -> bool {
        self.phase == Phase::Filling && self.stages.is_empty() && self.under_way.is_none()
    }

    /// Whether the stage that prepares the target is the last one that is left.
    pub(super) fn has_sent_all_bytes(&self) -> bool {
        self.stages.len() <= 1
    }

    fn header(&self, id: u64, address: u64, length: usize, now: Nanos) -> Header {
        let header = Header::request(Kind::Adopt, id, address, length as u32);
        Header { pid: self.order.pid.0, capability: self.order.capability.0, time: now, ..header }
    }

    fn packet(&self, header: &Header, payload: &[u8]) -> Packet {
        let bytes = [&header.seal(payload)[..], payload].concat();
        Packet::Request { from: NodeId(0), to: self.order.to, bytes }
    }
}

impl Packet {
    /// The same from this node.
    pub(super) fn of(self, source: NodeId) -> Self {
        match self {
            Self::Request { to, bytes, .. } => Self::Request { from: source, to, bytes },
            answer @ Self::Answer { .. } => answer,
        }
    }
}

/// A stage of the move that was ordered.
pub(super) fn payload(order: &MoveOrder, stage: AdoptStage<'_>) -> Vec<u8> {
    let MoveOrder { id, address, bytes, .. } = *order;
    AdoptRequest { transfer: id.0, from: address, to: address + bytes, stage }.to_bytes()
}
