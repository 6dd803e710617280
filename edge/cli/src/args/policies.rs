//! Who reclaims, as a flag names it.

use clap::ValueEnum;
use yonder::sched::Reclaim;

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ReclaimBy {
    /// A thread of its own where there is a CPU for it, else the dispatcher
    Auto,
    /// A thread of its own
    Thread,
    /// The dispatcher, between its turns
    Dispatcher,
}

impl ReclaimBy {
    /// What was asked for; `None` leaves it to the placement on CPUs.
    pub(crate) fn wanted(self) -> Option<Reclaim> {
        match self {
            Self::Auto => None,
            Self::Thread => Some(Reclaim::Thread),
            Self::Dispatcher => Some(Reclaim::Dispatcher),
        }
    }
}
