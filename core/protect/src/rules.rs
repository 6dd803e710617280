//! [`Rule`]: a rule of protection that a simulator may have broken, to see that the breach is found.
//!
//! The rules of a group are its type parameter: [`Kept`] breaks none, and costs nothing.

/// A rule of protection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// A write that has ended leaves the page current where it was acknowledged, and nowhere else.
    EndedWriteIsCurrentOnly,
    /// A write that was given up is remembered until nothing of it can land.
    UnsettledIsRemembered,
    /// A write leaves the slots out where another may still land.
    UnsettledIsLeftOut,
    /// A write leaves the slot out that the mender copies the page to.
    MendedIsLeftOut,
    /// A place that was given up since a write began does not count when the write ends.
    EndedWriteLooksAtPlaces,
    /// A sweep tells the writes and mends that are under way that it came by.
    SweepTellsTheRest,
    /// A mend counts only if the page has not changed since it began.
    MendLooksAtVersion,
    /// The mender copies nothing to where a write may still land.
    MendAvoidsUnsettled,
    /// A read goes to places that have what was last acknowledged.
    ReadGoesToCurrent,
    /// A place that was given up is not asked again.
    GivenUpIsNotAsked,
    /// A read counts only if the page has not changed since it was posted.
    ReadLooksAtVersion,
    /// A read counts only if its place was not given up since it was posted.
    ReadLooksAtPlace,
    /// The answer to a hedge is looked at like the first.
    HedgeIsLookedAt,
    /// What settles at a place says nothing of the next place of its slot.
    SettlesItsOwnPlace,
    /// A page that is forgotten has changed.
    ForgettingIsChange,
    /// A place that alone has a page is not given up because it is silent.
    SolePlaceStays,
    /// A place that is evacuated keeps a page until as many others have it as are wanted.
    EvacuatedStaysUntilMoved,
    /// A write goes to a place that is evacuated if too few others can be written.
    EvacuatedIsWrittenIfNeeded,
    /// A read of shares is done when as many have come as are needed.
    ReadNeedsEnough,
    /// A write of shares is acknowledged when as many places have it as are needed.
    WriteNeedsEnough,
}

/// Which rules are broken.
pub trait Rules: Copy + Send + Sync + 'static {
    /// Whether a rule is.
    fn breaks(self, rule: Rule) -> bool;
}

/// None is.
#[derive(Clone, Copy, Default, Debug)]
pub struct Kept;

impl Rules for Kept {
    #[inline(always)]
    fn breaks(self, _rule: Rule) -> bool {
        false
    }
}
