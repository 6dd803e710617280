//! The page fault predictor: will a request fault? Known before it runs, by the history of its key (the poster, section
//! 4.2).
//!
//! A [`Predictor`] is asked for a [`Forecast`] when a request is admitted and told its [`Outcome`] when the request is
//! over. History says *where* a key's data was missing last, and the page table, which the caller looks at, says
//! whether it is there now. A key that never faulted has no such place; what is known of it is how many faults ago it
//! was served, and how often keys of that age fault is learned. The files: `history` has the keys, `evidence` what each
//! kind of knowledge is worth.
//!
//! Neighbours: `runtime/sched` asks and tells; [`Turns`](crate::Turns) says what becomes of the two kinds of requests.
//!
//! Invariants: nothing allocates after [`Predictor::new`]; a call looks at one set of [`WAYS`] keys; a prediction is a
//! hint, and any may be wrong.

mod evidence;
mod history;

use yonder_units::{PageId, Residence};

pub use crate::predict::evidence::Prediction;
use crate::predict::evidence::{Evidence, Judges};
use crate::predict::history::History;
pub use crate::predict::history::{KEYS_MAX, WAYS};

/// Keys that are remembered for each page of local memory: small items share a page.
const KEYS_PER_PAGE: u64 = 8;

/// What was predicted for a request, and from what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forecast {
    /// Whether it will fault.
    pub prediction: Prediction,
    evidence: Evidence,
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Its faults that needed a fetch.
    pub major_faults: u32,
    /// The page of its last major fault, or of its last minor one if it had no major one.
    pub page_id: Option<PageId>,
}

/// Predicts faults of requests by their keys.
#[derive(Debug)]
pub struct Predictor {
    history: History,
    judges: Judges,
    /// Major faults so far, which is about how many pages have come into local memory. It wraps.
    clock: u32,
}

impl Predictor {
    /// A predictor for `local_pages` pages of local memory, that remembers some keys for each, at most [`KEYS_MAX`].
    #[must_use]
    pub fn new(local_pages: u64) -> Self {
        let keys = local_pages.saturating_mul(KEYS_PER_PAGE);
        Self { history: History::new(keys), judges: Judges::new(), clock: 0 }
    }

    /// Local memory that it takes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.history.bytes()
    }

    /// Whether a request for `key` will fault. Keys are any numbers that tell them apart; `residence` says where a page
    /// is now.
    #[must_use]
    pub fn predict(&self, key: u64, residence: impl FnOnce(PageId) -> Residence) -> Forecast {
        let evidence = match self.history.find(key) {
            None => Evidence::STRANGER,
            Some(known) => {
                let where_now = known.page_id().map_or(Residence::Unknown, residence);
                let age = self.clock.wrapping_sub(known.seen_at);
                Evidence::of(where_now, age, known.surprises)
            }
        };
        Forecast { prediction: self.judges.predict(evidence), evidence }
    }

    /// Learns what became of a request for `key` of which `forecast` was said.
    pub fn learn(
        &mut self,
        key: u64,
        forecast: Forecast,
        outcome: Outcome,
        residence: impl FnOnce(PageId) -> Residence,
    ) {
        let has_faulted = outcome.major_faults > 0;
        self.note_faults(outcome.major_faults);
        self.judges.learn(forecast.evidence, has_faulted);
        // Against what is said of other keys in this place: what is said of surprising ones may have been right.
        let is_surprise = has_faulted && self.judges.predict(forecast.evidence.of_others()) == Prediction::Hit;
        let known = self.history.find_or_insert(key, self.clock);
        known.seen_at = self.clock;
        known.note_surprise(is_surprise);
        if let Some(page_id) = outcome.page_id {
            known.set_page_id(page_id);
        } else if forecast.evidence.is_far()
            && known.page_id().is_some_and(|page_id| residence(page_id) == Residence::Far)
        {
            // The page is still away and nobody missed it: the key's data lies elsewhere now.
            known.forget_page_id();
        }
    }

    /// Major faults of requests without a key: they too take local memory.
    pub fn note_faults(&mut self, major_faults: u32) {
        self.clock = self.clock.wrapping_add(major_faults);
    }
}
