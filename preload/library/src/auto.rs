//! The thread that finds out how much local memory this process needs, for `yonder run --local auto`: it looks how much
//! the process works and how long faults hold it up, and sets the soft limit that [`Auto`] makes of it.

use std::time::Duration;

use yonder_paging::{Effort, FarMemory, Tuning, know_traps};
use yonder_preload_protocol::monotonic_ns;
use yonder_sizing::{Auto, Moment};
use yonder_units::{Nanos, Narrow, PAGE_BYTES};

use crate::complain;
use crate::far::far;

/// How often it looks at a process that works, and at one that rests.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOOK_AT_REST: Duration = Duration::from_millis(200);
/// A process rests that works for less than this share of the time.
const REST_SHARE: u64 = 100;
/// What a process always has.
const LEAST_BYTES: u64 = 4 << 20;
/// Frames: of the most that may be local this part, and so many besides.
const FRAMES_PART: u64 = 64;
const FRAMES: u64 = 16 << 10;

/// How many frames a process has whose limit is `local_bytes`, which it will hardly need all of.
pub(crate) fn frames(local_bytes: u64) -> usize {
    (local_bytes / PAGE_BYTES as u64 / FRAMES_PART + FRAMES).narrow_usize()
}

/// Begins to look. The process may be slowed down by so many millionths of its work, and a page that is missed may cost
/// `page_cost` as far as is known.
pub(crate) fn begin(slowdown: u32, page_cost: Nanos) {
    let Some(far) = far() else { return };
    let far = far.region().far().clone();
    let look = move || {
        know_traps(&far);
        let least = LEAST_BYTES / PAGE_BYTES as u64;
        let (tuning, mut auto) = (far.tuning(), Auto::new(f64::from(slowdown) / 1e6, least, page_cost));
        let mut before = Moment::default();
        loop {
            let now = moment(&far);
            set(&tuning, auto.next(now));
            let worked = now.worked.saturating_sub(before.worked);
            let rests = worked * REST_SHARE < now.at.saturating_sub(before.at);
            before = now;
            std::thread::sleep(if rests { LOOK_AT_REST } else { LOOK_EVERY });
        }
    };
    if let Err(error) = std::thread::Builder::new().name("yonder-auto".into()).spawn(look) {
        complain(&format!("no thread can be made, so all memory that there is room for stays local: {error}"));
    }
}

fn set(tuning: &Tuning, pages: Option<u64>) {
    let bytes = pages.map(|pages| pages * PAGE_BYTES as u64);
    if bytes != tuning.soft_limit() {
        // It fails where the far memory has ended, and then nobody needs it.
        let _ = tuning.set_soft_limit(bytes);
    }
}

fn moment(far: &FarMemory) -> Moment {
    let stats = far.stats();
    let Effort { worked, stalled, fetching } = Effort::of(&stats);
    Moment {
        at: monotonic_ns(),
        worked,
        stalled,
        local: stats.charged_pages,
        touched: stats.touched_pages,
        taken: stats.taken_pages(),
        returned: stats.returned_pages(),
        fetched: stats.fetched_pages(),
        fetching,
    }
}
