//! The thread that watches a sample of this process's pages for `yonder size`: what was touched is unmapped again, so
//! that it is seen once more.
//!
//! It does so whenever a share of the sample was touched. What a page was touched for again before that is not seen:
//! with as much local memory as that share is of the program's, and more, nothing of it would be missed.
//!
//! Where that holds the program up too much, fewer pages are watched, and if there are few already, it watches now and
//! then: what it sees in between stands for all that the program works until it watches again.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use yonder_paging::{Effort, know_traps};
use yonder_preload_protocol::Sampler;
use yonder_sizing::{CHUNK_PAGES, COARSENESS_MAX, Coarseness, Touch, Weight, chunk_of, is_sampled};
use yonder_units::{Nanos, PAGE_BYTES, PageIndex, saturating_nanos};

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
/// A program that is watched all the time may be held up for so long besides.
const BESIDES: Duration = Duration::from_millis(200);
/// Where it watches now and then, it does so until each page of the sample was seen so many times, on average.
const TIMES_SEEN: u64 = 4;
/// What is seen stands for at most so many times as much.
const WEIGHT_MAX: f64 = 1000.0;
/// It does not watch for so long at most.
const REST_MAX: Duration = Duration::from_secs(5);

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
    /// Since when it watches, if not all the time.
    window: Option<Window>,
}

/// A time in which it watches: what the process had worked and what had been seen when it began.
struct Window {
    worked: Nanos,
    seen: u64,
}

impl Watch {
    fn new(sampler: Arc<Sampler>) -> Self {
        Self { sampler, ever: HashSet::new(), done: 0, since: Instant::now(), again: 0, window: None }
    }

    fn run(mut self) {
        if let Some(far) = far() {
            know_traps(far.region().far());
        }
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
        let mut chunks = HashSet::new();
        for Touch { page, is_first } in self.sampler.touched(self.done, count) {
            self.ever.insert(page.0);
            self.again += u64::from(!is_first);
            chunks.insert(chunk_of(page).0);
        }
        self.done = count;
        chunks.into_iter().for_each(set_aside);
    }

    /// Makes the sample coarser if the program is held up too much, or does not watch for a while.
    fn keep_share(&mut self) {
        let Coarseness(level) = self.sampler.coarseness();
        let held_up = TOUCH.as_secs_f64() * self.again as f64;
        let is_too_much = self.again > ENOUGH && held_up > SHARE_MAX * self.since.elapsed().as_secs_f64();
        if !is_too_much {
            return;
        }
        if level < COARSENESS_MAX.0 && self.ever.len() >= SAMPLE_PAGES_MIN {
            let coarser = Coarseness(level + 1);
            self.sampler.set_coarseness(coarser);
            self.ever.retain(|page| is_sampled(PageIndex(*page), coarser));
            (self.since, self.again) = (Instant::now(), 0);
            return;
        }
        let rest = Duration::from_secs_f64((held_up - BESIDES.as_secs_f64()).max(0.0) / SHARE_MAX);
        let rest = rest.saturating_sub(self.since.elapsed());
        if rest.is_zero() {
            return;
        }
        let Some(window) = &self.window else {
            // What was seen until now was seen all the time.
            self.sampler.weigh(Weight::ONE);
            return self.begin_window();
        };
        if self.done - window.seen < TIMES_SEEN * self.ever.len() as u64 {
            return;
        }
        let worked_since = |window: &Window| worked().saturating_sub(window.worked) as f64;
        let watched = worked_since(window);
        std::thread::sleep(rest.min(REST_MAX));
        let times = worked_since(window) / watched.max(1.0);
        self.sampler.weigh(Weight::of(times.min(WEIGHT_MAX)));
        self.begin_window();
    }

    /// Unmaps all that is watched.
    fn begin_window(&mut self) {
        let chunks: HashSet<u32> = self.ever.iter().map(|page| chunk_of(PageIndex(*page)).0).collect();
        chunks.into_iter().for_each(set_aside);
        self.window = Some(Window { worked: worked(), seen: self.done });
    }
}

/// Unmaps the pages of a chunk.
fn set_aside(chunk: u32) {
    let Some(far) = far() else { return };
    far.region().set_aside(PageIndex(chunk).offset(), u64::from(CHUNK_PAGES) * PAGE_BYTES as u64);
}

/// How much the process has worked so far, without this thread.
fn worked() -> Nanos {
    let own = Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).map_or(0, saturating_nanos);
    far().map_or(0, |far| Effort::of(&far.region().far().stats()).worked.saturating_sub(own))
}
