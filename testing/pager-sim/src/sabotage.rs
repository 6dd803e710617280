//! [`Sabotage`]: one thing that is broken on purpose, in the world around the pager or in the pager itself, to prove
//! that the checker can fail.

use clap::ValueEnum;
use yonder_pager::machine::Rule;

/// What is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
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
    #[value(skip)]
    Pager(Rule),
}

/// The rules that the pager can be made to break.
const RULES: [Rule; 22] = [
    Rule::DiscardHolds,
    Rule::DiscardSettles,
    Rule::RestandIsHeard,
    Rule::WriteIsRepeated,
    Rule::WriteHolds,
    Rule::TurnEnds,
    Rule::FrameIsCharged,
    Rule::SectionIsKept,
    Rule::DigestIsOfWrite,
    Rule::UnreadableStay,
    Rule::GuidesKeepOut,
    Rule::BesideIsCleared,
    Rule::EveryBellRings,
    Rule::GivenUpWritesEnd,
    Rule::ForkStopsReclaim,
    Rule::ChildIsLeftAlone,
    Rule::LoanIsCharged,
    Rule::RecallLooks,
    Rule::RefusedLoanIsRecalled,
    Rule::HeldIsPopulated,
    Rule::SparedStay,
    Rule::SparedAreWritable,
];

impl Sabotage {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::value_variants().iter().copied().chain(RULES.map(Self::Pager))
    }
}
