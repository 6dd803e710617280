//! [`Home`]: which thread of a node a message is for, as the keys of its lane say it.
//!
//! What was executed is remembered by the thread that has executed it. So a message must come to one thread alone, also
//! when somebody on the way sends it from another port, from where the kernel would give it to any.

/// For whom the keys of a lane are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Home {
    /// Any thread: a lane that greets does not know yet which one it will have. Nothing but a greeting is let in.
    Any,
    /// The thread with this number.
    Thread(u16),
}

impl Home {
    /// As keys are derived from it. A node has fewer threads than [`NODE_THREADS_MAX`](crate::NODE_THREADS_MAX), so the
    /// last number is nobody's.
    pub(crate) const fn to_bytes(self) -> [u8; 2] {
        match self {
            Self::Any => [0xff; 2],
            Self::Thread(number) => number.to_le_bytes(),
        }
    }
}
