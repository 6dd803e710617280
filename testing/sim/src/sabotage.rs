//! [`Sabotage`]: one thing that is broken on purpose, by a wrapper around the real code, to prove that the checker can fail.

/// What is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// The node never recognises a retry: every request arrives as a first attempt.
    ForgetfulRing,
    /// Memory loses some writes, which are acknowledged all the same.
    LostWrites,
    /// Some aborts are answered and then forgotten, so late copies of what they named are executed.
    ForgottenAborts,
    /// Pages are not zeroed before somebody else gets them.
    DirtyPages,
    /// Some reads are served from a page beside the right one.
    WrongPage,
    /// Every capability is good.
    OpenDoors,
    /// Pages that are given back are lost.
    LeakedPages,
    /// An atomic reads and writes in two steps, and another one comes between.
    TornAtomics,
    /// Some operations of a lane are submitted in the wrong order (T2).
    WrongOrder,
    /// Fences are passed at once.
    OpenFences,
    /// A lock is taken by somebody who did not get it.
    BrokenLocks,
    /// A client is given bytes that were meant for another operation.
    MixedAnswers,
    /// What comes back from another node is empty.
    LostMoves,
    /// Clients' timers never come.
    StoppedTimers,
}
