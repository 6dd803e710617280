//! [`Sabotage`]: one thing that is broken on purpose, by a wrapper around the real code, to prove that the checker can
//! fail.

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
    /// A client never learns that it took a node's clock for later than it is.
    RisingBound,
    /// A client that has learned it corrects the time of requests that copies are under way of.
    CorrectedTimes,
    /// What goes in several pieces is answered as done with the first.
    AnsweredEarly,
    /// An abort between two pieces is answered as if nothing had begun.
    AbortedBetween,
    /// A range is given out again before its last piece is done.
    GivenOutInPieces,
    /// A node takes a leap of its clock for silence of its clients.
    LeasesThatLeap,
    /// A process counts its lease from when it hears that it was renewed, and not from when it asked.
    LateLeases,
    /// A node's windows let everything in that was let in before.
    WindowsAcceptTwice,
    /// A lane takes what it has sealed itself for an answer, as if one key were for both directions.
    OneKeyBothWays,
    /// A retry is sealed under the counter of the message before.
    RetriesCountAgain,
    /// A node does not look at whether a session is over.
    EndlessSessions,
    /// The keys of a session are good from any address.
    AnyAddress,
    /// A node that wants sessions lets plain messages in.
    PlainIsLetIn,
    /// All threads of a node count their answers from the same number.
    ThreadsCountTogether,
    /// What is for one thread of a node is let in by all.
    ThreadsAreOne,
    /// A node has the same secret after it was started again.
    KeptSecret,
    /// A node forgets that capabilities were revoked.
    NothingIsRevoked,
    /// Pages whose discard was given up are written before the node has agreed to it. This and the following are of
    /// [`simulate_order`].
    ///
    /// [`simulate_order`]: crate::simulate_order
    GivenOutEarly,
    /// What the node has of a page is forgotten when its discard is given up, and the node is not asked again.
    ForgottenDigest,
    /// A page is taken for what the node has while a discard of it may still be executed.
    CleanWhileHeld,
    /// A lane forgets what was given up on it before the abort is answered.
    ForgetfulLane,
    /// A range whose free was given up is used on.
    FreedRangeUsed,
}
