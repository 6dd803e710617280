//! [`Choice`]: the policies of a server and the names under which flags and results have them, each once.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use yonder::sched::{DispatchPolicy, InstallDelegation, Order, PollingDelegation, Reclaim};
use yonder::{FaultPolicy, Prefetch, Reads};

/// How long a hybrid fault spins before it yields: a little more than a fetch over a fast network. The help says it
/// too.
const HYBRID_SPIN_NS: u64 = 4_000;

/// The word that results have for a choice, and the command line too where it can be typed.
pub(crate) fn name_of(choice: impl serde::Serialize) -> String {
    match serde_json::to_value(choice) {
        Ok(serde_json::Value::String(word)) => word,
        other => unreachable!("a choice is a word, not {other:?}"),
    }
}

/// Something that is chosen by a name.
pub trait Choice: Copy + PartialEq + Send + Sync + 'static {
    /// Everything there is to choose: its name, and what the help says of it.
    const CHOICES: &'static [(Self, &'static str, &'static str)];

    /// The name that flags and results use.
    #[must_use]
    fn name(self) -> &'static str {
        let found = Self::CHOICES.iter().find(|(choice, ..)| self.is(*choice));
        found.map_or("", |(_, name, _)| name)
    }

    /// Whether it has the name of `other`.
    #[must_use]
    fn is(self, other: Self) -> bool {
        self == other
    }
}

/// Reads a choice from a flag.
#[must_use]
pub fn choice<T: Choice>() -> impl TypedValueParser<Value = T> {
    let names = T::CHOICES.iter().map(|(_, name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(names).map(|typed| {
        let found = T::CHOICES.iter().find(|(_, name, _)| *name == typed);
        found.expect("the parser takes no other name").0
    })
}

impl Choice for FaultPolicy {
    const CHOICES: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Yield, "yield", "Park the request and run others"),
        (Self::Busy, "busy", "Spin until the page is there"),
        (Self::BusyDelegated, "busy-delegated", "Spin until the page is there, which the dispatcher may map meanwhile"),
        (Self::Hybrid(HYBRID_SPIN_NS), "hybrid", "Spin for 4 us, then park the request"),
    ];

    fn is(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

impl Choice for DispatchPolicy {
    const CHOICES: &'static [(Self, &'static str, &'static str)] = &[
        (
            Self::PageFaultAware,
            "pf-aware",
            "First come, first served, by the worker with the fewest page fetches under way",
        ),
        (Self::RoundRobin, "round-robin", "First come, first served, by each worker in turn"),
        (
            Self::Predicted,
            "predicted",
            "As pf-aware, but requests that will probably fault, by the history of their keys, wait for those that will not",
        ),
    ];
}

impl Choice for Order {
    const CHOICES: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Classes, "classes", "Requests whose page has come, then new and preempted ones, then those that yield"),
        (Self::Fifo, "fifo", "As they became ready"),
    ];
}

impl Choice for Reclaim {
    const CHOICES: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Thread, "thread", "A thread of its own"),
        (Self::Dispatcher, "dispatcher", "The dispatcher, between its turns"),
    ];
}

impl Choice for PollingDelegation {
    const CHOICES: &'static [(Self, &'static str, &'static str)] =
        &[(Self::On, "on", "The dispatcher"), (Self::Off, "off", "The worker")];
}

impl Choice for InstallDelegation {
    const CHOICES: &'static [(Self, &'static str, &'static str)] =
        &[(Self::On, "on", "The dispatcher when it has time"), (Self::Off, "off", "The worker")];
}

impl Choice for Prefetch {
    const CHOICES: &'static [(Self, &'static str, &'static str)] = &[
        (Self::None, "none", "Nothing"),
        (Self::Readahead, "readahead", "The pages behind neighbours that were touched"),
        (Self::Trend, "trend", "The pages at the distance that most of the last touches had"),
    ];
}

impl Choice for Reads {
    const CHOICES: &'static [(Self, &'static str, &'static str)] = &[
        (Self::InFrames, "frames", "In the frame in which it has arrived, until it is written to"),
        (Self::Mapped, "mapped", "Where a write or a trap would have it"),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_has_a_name_of_its_own() {
        fn names<T: Choice>() -> Vec<&'static str> {
            T::CHOICES.iter().map(|(choice, ..)| choice.name()).collect()
        }
        assert_eq!(names::<FaultPolicy>(), ["yield", "busy", "busy-delegated", "hybrid"]);
        assert_eq!(FaultPolicy::Hybrid(7).name(), "hybrid", "however long it spins");
        assert_eq!(names::<DispatchPolicy>(), ["pf-aware", "round-robin", "predicted"]);
        assert_eq!((names::<Order>(), names::<Reclaim>()), (vec!["classes", "fifo"], vec!["thread", "dispatcher"]));
        assert_eq!(
            (names::<Prefetch>(), names::<Reads>()),
            (vec!["none", "readahead", "trend"], vec!["frames", "mapped"])
        );
        assert_eq!(
            (names::<PollingDelegation>(), names::<InstallDelegation>()),
            (vec!["on", "off"], vec!["on", "off"])
        );
    }
}
