//! [`Home`]: which thread of a node a message is for, as the keys of its lane say it, and as its prefix tells the
//! kernel.
//!
//! What was executed is remembered by the thread that has executed it. So a message must come to one thread alone, also
//! when somebody on the way sends it from another port, from where the kernel would give it to any. Nor may he lead a
//! lane from a thread that remembers to one that does not: a greeting is for one kind of thread, and names its thread
//! if the lane has one.

use yonder_units::Narrow;

use crate::frame::THREAD_FIELD;

/// Where a lane that has no thread yet is welcomed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Door {
    /// By the thread that gets its datagrams.
    Datagrams,
    /// On its connection.
    Streams,
}

/// For whom the keys of a lane are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Home {
    /// Any thread at a door. Nothing but a greeting is let in.
    Door(Door),
    /// The thread with this number.
    Thread(u16),
}

impl Home {
    /// Whether nothing but a greeting is for it.
    #[must_use]
    pub const fn is_door(self) -> bool {
        matches!(self, Self::Door(_))
    }

    /// As keys are derived from it. A node has fewer threads than [`NODE_THREADS_MAX`](crate::NODE_THREADS_MAX), so the
    /// last numbers are nobody's.
    pub(crate) const fn to_bytes(self) -> [u8; 2] {
        match self {
            Self::Door(Door::Datagrams) => [0xff, 0xff],
            Self::Door(Door::Streams) => [0xfe, 0xff],
            Self::Thread(number) => number.to_le_bytes(),
        }
    }

    /// As a prefix tells it.
    pub(crate) fn told(self) -> u8 {
        match self {
            Self::Door(_) => 0,
            Self::Thread(number) => (usize::from(number) % THREAD_FIELD.modulus).narrow_u8(),
        }
    }
}
