//! What each system does at a page fault and at a reply, and what that costs.

use yonder_units::Nanos;

use crate::costs::{adios as costs, yonder};

/// A system of Adios' section 5.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum System {
    /// Linux with Hermit: faults in the kernel, busy-waiting.
    Hermit,
    /// Faults in the same address space, busy-waiting.
    Dilos,
    /// The same, preempted at checkpoints each 5 us, as Concord does.
    DilosP,
    /// Faults yield; transmissions are reaped by the dispatcher.
    Adios,
    /// The same on a stock kernel, whose traps and mappings cost what they cost us.
    Yonder,
    /// The same with probes before accesses, which skip the trap.
    YonderProbe,
}

impl System {
    pub(crate) const ALL: [Self; 6] =
        [Self::Hermit, Self::Dilos, Self::DilosP, Self::Adios, Self::Yonder, Self::YonderProbe];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hermit => "hermit",
            Self::Dilos => "dilos",
            Self::DilosP => "dilos-p",
            Self::Adios => "adios",
            Self::Yonder => "yonder",
            Self::YonderProbe => "yonder-probe",
        }
    }

    /// What it does and costs.
    pub(crate) fn profile(self) -> Profile {
        let yields = matches!(self, Self::Adios | Self::Yonder | Self::YonderProbe);
        let (before_fetch, after_fetch) = self.fault();
        let is_ours = matches!(self, Self::Yonder | Self::YonderProbe);
        let (away, back) = if is_ours { (yonder::AWAY.ns(), yonder::BACK.ns()) } else { (0, 0) };
        Profile {
            yields,
            spins: 0,
            preemption: (self == Self::DilosP).then(|| costs::PREEMPTION.ns()),
            delegates: yields,
            stalls: self == Self::Hermit,
            pinned_reclaimer: yields,
            before_fetch,
            away,
            after_fetch,
            back,
        }
    }

    /// A fault's own work before and after its fetch.
    fn fault(self) -> (Nanos, Nanos) {
        let halves = |whole: Nanos| (whole / 2, whole - whole / 2);
        let (post, install) = (yonder::POST.ns(), yonder::INSTALL.ns());
        match self {
            Self::Hermit => halves(costs::FAULT_SOFTWARE.ns() + costs::KERNEL_FAULT.ns()),
            Self::Dilos | Self::DilosP => halves(costs::FAULT_SOFTWARE.ns()),
            Self::Adios => halves(costs::FAULT_SOFTWARE.ns() + 2 * costs::SWITCH.ns() + costs::YIELD.ns()),
            Self::Yonder => (yonder::EXCEPTION.ns() + post, install + yonder::RETURN.ns()),
            Self::YonderProbe => (post, install),
        }
    }
}

/// What a system does, and its times in nanoseconds where they differ from others'.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Profile {
    /// A fault gives the worker to other requests.
    pub(crate) yields: bool,
    /// For so long it waits for its page before it does.
    pub(crate) spins: Nanos,
    /// Running time after which a request goes back to the queue at its next checkpoint.
    pub(crate) preemption: Option<Nanos>,
    /// The dispatcher reaps transmissions, so that workers need not wait for them.
    pub(crate) delegates: bool,
    /// A kernel takes the worker's CPU now and then.
    pub(crate) stalls: bool,
    /// The reclaimer need not be woken.
    pub(crate) pinned_reclaimer: bool,
    /// From the access to the posted read.
    pub(crate) before_fetch: Nanos,
    /// From there, or from the end of the wait, until the worker has its next request, where that is not part of what
    /// comes before.
    pub(crate) away: Nanos,
    /// From the page's arrival to the access that succeeds.
    pub(crate) after_fetch: Nanos,
    /// What is added to that for a request that the worker has left, where that is not part of it.
    pub(crate) back: Nanos,
}

impl Profile {
    /// Running time before the worker waits, or has left.
    pub(crate) fn at_fault(&self) -> Nanos {
        self.before_fetch + if self.spins == 0 { self.away } else { 0 }
    }

    /// Running time once the page is here, for a request that the worker has left.
    pub(crate) fn at_return(&self) -> Nanos {
        self.after_fetch + self.back
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::testbed;

    #[test]
    fn a_request_with_a_fault_takes_what_the_paper_says_with_busy_waiting() {
        let profile = System::Dilos.profile();
        let whole = costs::HIT.ns() + profile.before_fetch + testbed::FETCH.ns() + profile.after_fetch;
        assert_eq!(whole, costs::FAULTED.ns());
        let adios = System::Adios.profile();
        assert_eq!(
            adios.before_fetch + adios.after_fetch,
            profile.before_fetch + profile.after_fetch + costs::YIELD.ns() + 2 * costs::SWITCH.ns()
        );
    }
}
