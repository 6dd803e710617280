//! What each system does at a page fault and at a reply, and what that costs.

use yonder_units::Nanos;

use crate::costs::{adios as costs, testbed};

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
}

impl System {
    pub(crate) const ALL: [Self; 4] = [Self::Hermit, Self::Dilos, Self::DilosP, Self::Adios];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hermit => "hermit",
            Self::Dilos => "dilos",
            Self::DilosP => "dilos-p",
            Self::Adios => "adios",
        }
    }

    /// What it does and costs.
    pub(crate) fn profile(self) -> Profile {
        let kernel = if self == Self::Hermit { costs::KERNEL_FAULT.ns() } else { 0 };
        let yields = self == Self::Adios;
        let yielding = if yields { costs::YIELD.ns() } else { 0 };
        let switches = if yields { 2 * costs::SWITCH.ns() } else { 0 };
        let software = costs::FAULT_SOFTWARE.ns() + kernel;
        Profile {
            yields,
            preemption: (self == Self::DilosP).then(|| costs::PREEMPTION.ns()),
            delegates: yields,
            stalls: self == Self::Hermit,
            pinned_reclaimer: yields,
            before_fetch: software / 2 + switches / 2 + yielding / 2,
            after_fetch: software - software / 2 + switches / 2 + yielding - yielding / 2,
        }
    }
}

/// What a system does, and its times in nanoseconds where they differ from others'.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Profile {
    /// A fault gives the worker to other requests.
    pub(crate) yields: bool,
    /// Running time after which a request goes back to the queue at its next checkpoint.
    pub(crate) preemption: Option<Nanos>,
    /// The dispatcher reaps transmissions, so that workers need not wait for them.
    pub(crate) delegates: bool,
    /// A kernel takes the worker's CPU now and then.
    pub(crate) stalls: bool,
    /// The reclaimer need not be woken.
    pub(crate) pinned_reclaimer: bool,
    /// From the access to the posted read; with yielding, until the worker has its next request.
    pub(crate) before_fetch: Nanos,
    /// From the page's arrival to the access that succeeds.
    pub(crate) after_fetch: Nanos,
}

/// A page's time on the link, with its packets' headers.
pub(crate) fn page_wire() -> Nanos {
    let packets = testbed::PAGE.value / testbed::PACKET_PAYLOAD.value;
    let bytes = testbed::PAGE.value + packets * testbed::PACKET_OVERHEAD.value;
    (bytes * 8.0 / testbed::LINK.value) as Nanos
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_page_takes_its_bytes_and_four_headers() {
        assert_eq!(page_wire(), (4096 + 4 * 98) * 8 / 100);
    }
}
