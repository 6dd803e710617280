//! `bench victims`: what a recorded program would have missed under each policy of what leaves local memory.
//!
//! The traces are those of `yonder run --trace`: each touch of a page that was not mapped, with little local memory.
//! Nothing runs, so the same trace has the same figures on every machine. What came for the first time is no miss.
//!
//! `known` has the policies of the literature, with local memory for nothing but pages; Yonder's is the model of
//! `core/sizing`, built from the parts of the pager that decide, with its frames and the room that it keeps free. No
//! policy fetches ahead.

mod known;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use yonder::units::{LocalSize, PAGE_BYTES, PageIndex};
use yonder_preload_protocol::read_trace;
use yonder_sizing::{PAGES_MIN, Replayed, Touch, Trace, replay};

use crate::flags::BENCHMARK;
use crate::{BenchError, OnProgress};

/// Settings of a comparison.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// Traces of yonder run --trace
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,
    /// Local memory, with commas between: sizes, or percentages of the pages that a trace has
    #[arg(long, help_heading = BENCHMARK, value_name = "SIZE|PCT", default_value = "75%,50%,25%,12.5%", value_delimiter = ',')]
    pub local: Vec<LocalSize>,
}

/// One policy with one local memory; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct VictimsResult {
    /// Always `victims`.
    pub bench: &'static str,
    /// The trace.
    pub trace: String,
    /// Touches that it has.
    pub touches: usize,
    /// Pages that they are of.
    pub pages: usize,
    /// Local memory.
    pub local_bytes: u64,
    /// `optimum`, `lru`, `clock`, `s3-fifo` or `yonder`.
    pub policy: &'static str,
    /// Touches of pages that had been here and had left.
    pub misses: u64,
    /// Touches of pages that were unmapped and had not left; of `yonder` alone.
    pub rescues: u64,
    /// Misses as a multiple of those of `lru`, if that has any.
    pub ratio_to_lru: Option<f64>,
}

/// A policy: what it makes of a trace with so many pages of local memory.
type Policy = fn(&Trace, usize) -> Replayed;

/// Every policy, in the order in which they are shown.
const POLICIES: [(&str, Policy); 5] = [
    ("optimum", known::optimum),
    ("lru", known::lru),
    ("clock", known::clock),
    ("s3-fifo", known::s3_fifo),
    ("yonder", replay),
];

/// Replays every trace with each local memory under each policy.
pub fn run(settings: &Settings, progress: OnProgress<'_>) -> Result<Vec<VictimsResult>, BenchError> {
    let mut results = Vec::new();
    let all = (settings.traces.len() * settings.local.len() * POLICIES.len()) as f64;
    for path in &settings.traces {
        let trace = trace(read_trace(path)?.into_iter().map(|page| page.0));
        for local in &settings.local {
            let local_bytes = local.resolve((trace.pages() * PAGE_BYTES) as u64);
            let pages = usize::try_from(local_bytes).unwrap_or(usize::MAX) / PAGE_BYTES;
            if pages < PAGES_MIN {
                let least = (PAGES_MIN * PAGE_BYTES) >> 20;
                let what = format!("{local_bytes} bytes are too little to replay: type --local {least}MiB or more");
                return Err(BenchError::Settings(what));
            }
            let begin = results.len();
            for (policy, replay) in POLICIES {
                progress(&format!("{}: {policy}", path.display()), results.len() as f64 / all);
                let Replayed { misses, rescues, .. } = replay(&trace, pages);
                results.push(VictimsResult {
                    bench: "victims",
                    trace: path.display().to_string(),
                    touches: trace.len(),
                    pages: trace.pages(),
                    local_bytes,
                    policy,
                    misses,
                    rescues,
                    ratio_to_lru: None,
                });
            }
            let lru = results[begin..].iter().find(|result| result.policy == "lru").map_or(0, |result| result.misses);
            for result in results[begin..].iter_mut().filter(|_| lru > 0) {
                result.ratio_to_lru = Some(result.misses as f64 / lru as f64);
            }
        }
    }
    Ok(results)
}

/// A trace of pages, of which nobody knows when they had content.
fn trace(pages: impl IntoIterator<Item = u32>) -> Trace {
    Trace::new(pages.into_iter().map(|page| Touch { page: PageIndex(page), is_first: false }))
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn misses(trace: &Trace, local: usize) -> Vec<u64> {
        POLICIES.iter().map(|(_, replay)| replay(trace, local).misses).collect()
    }

    #[test]
    fn what_fits_is_not_missed_and_nobody_beats_the_optimum() {
        let mut random = SmallRng::seed_from_u64(1);
        let trace = trace((0..200_000).map(|_| random.random_range(0..8_000_u32).min(random.random_range(0..8_000))));
        assert_eq!(misses(&trace, 2 * trace.pages()), [0; POLICIES.len()]);
        for local in [1_000, 2_000, 4_000] {
            let all = misses(&trace, local);
            assert!(all[1..].iter().all(|misses| *misses >= all[0] && all[0] > 0), "{all:?} of {local}");
        }
    }

    /// A program that uses some pages all the time, strewn over all blocks, and reads the others in a circle.
    fn scanned(hot_every: u32) -> Trace {
        let (mut random, mut scan) = (SmallRng::seed_from_u64(2), 0);
        trace((0..600_000).map(|touch| {
            if touch % 2 == 0 {
                return random.random_range(0..20_000 / hot_every) * hot_every;
            }
            scan = (scan + 1) % 20_000;
            scan
        }))
    }

    #[test]
    fn a_scan_does_not_take_the_place_of_what_is_wanted() {
        let trace = scanned(8);
        let all = misses(&trace, 5_000);
        let (optimum, lru, yonder) = (all[0], all[1], all[4]);
        assert!(10 * yonder < 9 * lru, "{yonder} misses, LRU has {lru}, the optimum {optimum}");
    }

    #[test]
    fn where_no_page_is_wanted_more_than_another_little_is_lost() {
        let mut random = SmallRng::seed_from_u64(3);
        let trace = trace((0..400_000).map(|_| random.random_range(0..20_000)));
        let all = misses(&trace, 8_000);
        assert!(100 * all[4] < 115 * all[1], "{all:?}");
    }

    #[test]
    fn what_is_no_trace_is_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        std::fs::write(&path, "no trace at all").unwrap();
        let settings = Settings { traces: vec![path], local: vec![LocalSize::Percent(50.0)] };
        let error = run(&settings, &mut |_, _| ()).unwrap_err().to_string();
        assert!(error.ends_with("is no trace"), "{error}");
    }
}
