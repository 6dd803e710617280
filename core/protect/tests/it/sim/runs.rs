//! What a [`Pair`](super::pair::Pair) has under way.

use yonder_protect::{MendTicket, Place, Read, Slot, SlotSet, Write};

use super::node::Request;
use super::owner::Frame;

/// What a queue pair is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Worker,
    Mender,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    Read(u64, Slot),
    Write(u64, Slot),
    MendWrite(u64),
    Abort(Place),
    /// To hear whether a node answers.
    Probe(Place),
}

/// An operation that was sent and has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) request: Request,
    pub(super) health: usize,
    /// Of the place when it was asked: a later one is larger.
    pub(super) address: u64,
    pub(super) task: Task,
    pub(super) retry_at: u64,
    pub(super) retry_after: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// Of a page that nothing else touches.
    Program,
    /// Of a page that may be written meanwhile.
    Guide,
    Mend(MendTicket),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ReadRun {
    pub(super) read: Read,
    pub(super) purpose: Purpose,
    pub(super) frame: Frame,
    pub(super) give_up_at: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct WriteRun {
    pub(super) write: Write,
    /// Slots where it is to be posted again: their regions have moved.
    pub(super) again: SlotSet,
    /// Not before that.
    pub(super) again_at: u64,
    pub(super) content: u64,
    pub(super) give_up_at: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MendRun {
    pub(super) ticket: MendTicket,
    pub(super) give_up_at: u64,
}
