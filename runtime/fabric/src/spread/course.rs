//! [`Operation`]: what a queue pair was asked for, and [`Course`]: how far that is.

use yonder_protect::{Read, SlotSet, Write};
use yonder_units::{FrameIndex, Nanos};

use super::group::Entry;
use crate::areas::AreaPage;
use crate::{Status, Vector, WorkId};

/// Where it is in its course.
#[derive(Clone, Copy, Debug)]
pub(super) enum Course {
    /// Nothing is posted: it begins at this time.
    Waiting(Nanos),
    Read(Read),
    /// The slots are those to be posted again, where the place is by then.
    Write(Write, SlotSet),
    /// Nodes have it, and a file is to have it.
    Leaving,
}

/// What it does with the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Read,
    Write,
}

/// A read or a write of a page.
#[derive(Clone)]
pub(super) struct Operation {
    pub(super) id: WorkId,
    pub(super) kind: Kind,
    pub(super) at: AreaPage<Entry>,
    pub(super) frame: FrameIndex,
    pub(super) vector: Vector,
    pub(super) course: Course,
}

/// What comes of a step of an operation.
pub(super) enum Step {
    /// It goes on so.
    On(Course),
    Ended(Status),
}
