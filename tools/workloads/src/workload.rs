//! [`Workload`]: which there are, by their names, and [`run`].

use std::str::FromStr;

use crate::result::{Outcome, Settings, WorkloadError, WorkloadResult};
use crate::{betweenness, frame, k_means, linked_list, pagerank, phases, quicksort, snappy};

/// One of the workloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workload {
    /// Sorts random numbers.
    Quicksort,
    /// Clusters points.
    KMeans,
    /// Compresses text.
    SnappyCompress,
    /// Decompresses text.
    SnappyDecompress,
    /// Ranks the vertices of a graph by the ranks of their neighbours.
    Pagerank,
    /// Ranks the vertices of a graph by the shortest paths over them.
    Betweenness,
    /// Queries on a table of taxi rides.
    Frame,
    /// Walks a list whose nodes lie in random order.
    LinkedList,
    /// Works on all of a table, and on parts of it, in turn.
    Phases,
}

/// Every workload, in the order of [`Workload`]: as it is typed, and what does it.
const WORKLOADS: [(Workload, &str, Work); 9] = [
    (Workload::Quicksort, "quicksort", quicksort::run),
    (Workload::KMeans, "k-means", k_means::run),
    (Workload::SnappyCompress, "snappy-compress", snappy::run_compress),
    (Workload::SnappyDecompress, "snappy-decompress", snappy::run_decompress),
    (Workload::Pagerank, "pagerank", pagerank::run),
    (Workload::Betweenness, "bc", betweenness::run),
    (Workload::Frame, "frame", frame::run),
    (Workload::LinkedList, "linked-list", linked_list::run),
    (Workload::Phases, "phases", phases::run),
];

/// Makes up its input, does the work and checks what came out.
type Work = fn(&Settings) -> Result<Outcome, WorkloadError>;

impl Workload {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        WORKLOADS.iter().map(|(workload, ..)| *workload)
    }

    /// As it is typed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        WORKLOADS[self as usize].1
    }
}

/// A name that no workload has.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{name}' is no workload: type one of {}", Workload::all().map(Workload::name).collect::<Vec<_>>().join(", "))]
pub struct UnknownWorkload {
    name: String,
}

impl FromStr for Workload {
    type Err = UnknownWorkload;

    fn from_str(name: &str) -> Result<Self, UnknownWorkload> {
        let found = Self::all().find(|workload| workload.name() == name);
        found.ok_or_else(|| UnknownWorkload { name: name.to_owned() })
    }
}

/// Makes up the input, does the work, and checks what came of it.
pub fn run(workload: Workload, settings: &Settings) -> Result<WorkloadResult, WorkloadError> {
    let outcome = WORKLOADS[workload as usize].2(settings)?;
    Ok(WorkloadResult { workload: workload.name(), seed: settings.seed, outcome })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 256 << 10;

    fn check(workload: Workload, seed: u64) -> String {
        run(workload, &Settings { size: SIZE, seed }).unwrap().outcome.check
    }

    #[test]
    fn equal_seeds_give_equal_checks_and_others_give_others() {
        for workload in Workload::all() {
            assert_eq!(check(workload, 1), check(workload, 1), "{workload:?}");
            assert_ne!(check(workload, 1), check(workload, 2), "{workload:?}");
        }
    }

    /// Results of different versions and machines are compared: only a change of an input, an algorithm or the format
    /// may change these.
    #[test]
    fn checks_stay_what_they_were() {
        let checks = WORKLOADS.map(|(workload, ..)| (workload.name(), check(workload, 1)));
        let known = [
            ("quicksort", "518d7710e785fe97"),
            ("k-means", "c1f2119e35647293"),
            ("snappy-compress", "220ec94b4d525169"),
            ("snappy-decompress", "2d1c3c051ca50798"),
            ("pagerank", "73878e18b43c2e0a"),
            ("bc", "d40ab9229d614c7c"),
            ("frame", "12e9d4ed02a9f5c3"),
            ("linked-list", "681c22c2faddee27"),
            ("phases", "59fc2c5148c628f4"),
        ];
        assert_eq!(checks.each_ref().map(|(name, check)| (*name, check.as_str())), known);
    }

    #[test]
    fn what_is_measured_takes_about_the_memory_that_was_asked_for() {
        let size = 4 << 20;
        for workload in Workload::all() {
            let outcome = run(workload, &Settings { size, seed: 1 }).unwrap().outcome;
            // A graph has a power of two of vertices, and compression's other side comes on top.
            assert!((size * 2 / 5..size * 2).contains(&outcome.bytes), "{workload:?}: {} bytes", outcome.bytes);
            assert!(outcome.seconds > 0.0 && outcome.setup_seconds > 0.0, "{workload:?}");
        }
    }

    #[test]
    fn a_size_that_holds_nothing_is_refused_with_one_that_is_enough() {
        for workload in Workload::all() {
            let Err(WorkloadError::TooSmall { least, .. }) = run(workload, &Settings { size: 1, seed: 1 }) else {
                panic!("{workload:?} did something with one byte");
            };
            run(workload, &Settings { size: least, seed: 1 }).unwrap();
            assert!(run(workload, &Settings { size: least - 1, seed: 1 }).is_err(), "{workload:?}");
        }
    }

    #[test]
    fn names_are_read_back_and_others_are_told_which_there_are() {
        for workload in Workload::all() {
            assert_eq!(workload.name().parse(), Ok(workload));
        }
        let error = "bogosort".parse::<Workload>().unwrap_err().to_string();
        assert!(error.contains("'bogosort'") && error.contains("type one of quicksort, "), "{error}");
    }

    #[test]
    fn a_result_is_one_flat_object() {
        let result = run(Workload::LinkedList, &Settings { size: SIZE, seed: 7 }).unwrap();
        let object = serde_json::to_value(&result).unwrap();
        for field in ["workload", "seed", "bytes", "seconds", "setup_seconds", "check", "nodes", "ns_per_node"] {
            assert!(!object[field].is_null() && !object[field].is_object(), "{field}: {object}");
        }
        assert_eq!((object["workload"].as_str(), object["seed"].as_u64()), (Some("linked-list"), Some(7)));
    }
}
