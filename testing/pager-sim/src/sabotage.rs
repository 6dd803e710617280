//! [`Sabotage`]: one thing that is broken on purpose, in the world around the pager or in the pager itself, to prove
//! that the checker can fail.

use yonder_pager::machine::Rule;

/// What is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// Some writes are acknowledged and not executed.
    LostWrite,
    /// Of some writes only the first half of the page is executed.
    HalfWrite,
    /// Some writes are acknowledged long before they are executed.
    EarlyAck,
    /// A bit of some writes changes on its way.
    FlippedWrite,
    /// A write that was cancelled is executed after one that was posted later.
    Overtaking,
    /// Some reads bring the page beside the right one.
    WrongPage,
    /// Some reads bring what the page was before its last write.
    StaleRead,
    /// A bit of some reads changes on its way.
    FlippedRead,
    /// Some reads are said to be done and bring nothing.
    MissingBytes,
    /// Some reads arrive in the frame beside the right one.
    WrongFrame,
    /// Reads that fail are said to be done.
    FailedAsDone,
    /// Pages that the node has lost read as zeros.
    LostAsZeros,
    /// A read that was cancelled writes into its frame all the same.
    LateRead,
    /// Some completions come twice.
    DoubleCompletion,
    /// Operations that were cancelled complete all the same.
    CompletionAfterCancel,
    /// Some completions never come over a link that loses nothing.
    ForgottenCompletion,
    /// A discard takes the page before its range too.
    DiscardBeside,
    /// Write protection has no effect.
    NoProtection,
    /// The last pages of a range are protected after the call has returned.
    LateProtection,
    /// Some pages stay mapped though they were dropped.
    ForgottenDrop,
    /// Frames stay backed though they were given back.
    LeakedFrames,
    /// Some copies of swept pages lack their first word.
    TornCopy,
    /// Some pages are mapped as zeros instead of with their content.
    ZeroedInstall,
    /// Some threads are not woken.
    LostWake,
    /// Some unithreads are resumed before their page is there.
    EarlyResume,
    /// A discard that was given up is taken for done.
    DiscardTakenForDone,
    /// A discard that was given up is executed although a later one of its pages has succeeded.
    ForgetfulLane,
    /// The pager does not hear which pages the kernel has not protected.
    UnseenRefusal,
    /// Pages are told apart by a hash with a key of zeros, which does not see every change.
    WeakDigest,
    /// What is live of a page is not all that is.
    ForgetfulOwner,
    /// The pager itself breaks a rule of its own.
    Pager(Rule),
}

impl Sabotage {
    /// All of them.
    pub const ALL: [Self; 46] = [
        Self::LostWrite,
        Self::HalfWrite,
        Self::EarlyAck,
        Self::FlippedWrite,
        Self::Overtaking,
        Self::WrongPage,
        Self::StaleRead,
        Self::FlippedRead,
        Self::MissingBytes,
        Self::WrongFrame,
        Self::FailedAsDone,
        Self::LostAsZeros,
        Self::LateRead,
        Self::DoubleCompletion,
        Self::CompletionAfterCancel,
        Self::ForgottenCompletion,
        Self::DiscardBeside,
        Self::NoProtection,
        Self::LateProtection,
        Self::ForgottenDrop,
        Self::LeakedFrames,
        Self::TornCopy,
        Self::ZeroedInstall,
        Self::LostWake,
        Self::EarlyResume,
        Self::DiscardTakenForDone,
        Self::ForgetfulLane,
        Self::UnseenRefusal,
        Self::WeakDigest,
        Self::ForgetfulOwner,
        Self::Pager(Rule::DiscardHolds),
        Self::Pager(Rule::DiscardSettles),
        Self::Pager(Rule::RestandIsHeard),
        Self::Pager(Rule::WriteIsRepeated),
        Self::Pager(Rule::WriteHolds),
        Self::Pager(Rule::TurnEnds),
        Self::Pager(Rule::FrameIsCharged),
        Self::Pager(Rule::SectionIsKept),
        Self::Pager(Rule::DigestIsOfWrite),
        Self::Pager(Rule::UnreadableStay),
        Self::Pager(Rule::GuidesKeepOut),
        Self::Pager(Rule::BesideIsCleared),
        Self::Pager(Rule::EveryBellRings),
        Self::Pager(Rule::GivenUpWritesEnd),
        Self::Pager(Rule::ForkStopsReclaim),
        Self::Pager(Rule::ChildIsLeftAlone),
    ];
}
