//! The thread that watches a sample of this process's pages for `yonder size`: what was touched is unmapped again, so
//! that it is seen once more.
//!
//! It does so whenever a share of the sample was touched. What a page was touched for again before that is not seen:
//! with as much local memory as that share is of the program's, and more, nothing of it would be missed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use yonder_preload_protocol::Sampler;
use yonder_sizing::{CHUNK_PAGES, COARSENESS_MAX, Coarseness, Touch, chunk_of, is_sampled};
use yonder_units::{PAGE_BYTES, PageIndex};

use crate::complain;
use crate::far::far;

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Of so many parts of the sample that were ever touched, one is touched before all that was is unmapped.
const PARTS: usize = 16;
/// Fewest pages of that.
const PAGES_MIN: usize = 64;
/// A touch that is seen takes the program about this long, and it may take this share of the program's time.
const TOUCH: Duration = Duration::from_micros(6);
const SHARE_MAX: f64 = 0.08;
/// After so many touches it is known how fast they come.
const ENOUGH: u64 = 2000;
/// A sample with fewer pages is not made coarser.
const SAMPLE_PAGES_MIN: usize = 2048;

/// Begins to watch.
pub(crate) fn watch(sampler: Arc<Sampler>) {
    let made = std::thread::Builder::new().name("yonder-sampler".into()).spawn(move || Watch::new(sampler).run());
    if let Err(error) = made {
        complain(&format!("no thread can be made, so touches are seen once: {error}"));
    }
}

struct Watch {
    sampler: Arc<Sampler>,
    /// The pages of the sample that were ever touched.
    ever: HashSet<u32>,
    /// What was seen before has been unmapped.
    done: u64,
    /// When the sample became as coarse as it is, and what was seen again since.
    since: Instant,
    again: u64,
}

impl Watch {
    fn new(sampler: Arc<Sampler>) -> Self {
        Self { sampler, ever: HashSet::new(), done: 0, since: Instant::now(), again: 0 }
    }

    fn run(mut self) {
        loop {
            std::thread::sleep(LOOK_EVERY);
            let count = self.sampler.count();
            if count - self.done >= (self.ever.len() / PARTS).max(PAGES_MIN) as u64 {
                self.unmap(count);
                self.keep_share();
            }
        }
    }

    /// Unmaps what was touched until `count`.
    fn unmap(&mut self, count: u64) {
        let Some(far) = far() else { return };
        let mut chunks = HashSet::new();
        for Touch { page, is_first } in self.sampler.touched(self.done, count) {
            self.ever.insert(page.0);
            self.again += u64::from(!is_first);
            chunks.insert(chunk_of(page).0);
        }
        self.done = count;
        for chunk in chunks {
            far.region().set_aside(PageIndex(chunk).offset(), u64::from(CHUNK_PAGES) * PAGE_BYTES as u64);
        }
    }

    /// Makes the sample coarser if the program is held up too much.
    fn keep_share(&mut self) {
        let Coarseness(level) = self.sampler.coarseness();
        let held_up = TOUCH.as_secs_f64() * self.again as f64;
        let is_too_much = self.again > ENOUGH && held_up > SHARE_MAX * self.since.elapsed().as_secs_f64();
        if is_too_much && level < COARSENESS_MAX.0 && self.ever.len() >= SAMPLE_PAGES_MIN {
            let coarser = Coarseness(level + 1);
            self.sampler.set_coarseness(coarser);
            self.ever.retain(|page| is_sampled(PageIndex(*page), coarser));
            (self.since, self.again) = (Instant::now(), 0);
        }
    }
}
