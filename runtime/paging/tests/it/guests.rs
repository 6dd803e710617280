//! Threads that are not workers: how many of them fetch at one time, and what becomes of their waits.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::emulated::far;
use yonder_paging::{Access, Config, Deadlines, FarMemory, Region};
use yonder_units::PAGE_BYTES;

const PAGE: u64 = PAGE_BYTES as u64;
const LOCAL: u64 = 16 << 20;
/// How long a test waits for something that needs milliseconds.
const SOON: Duration = Duration::from_secs(60);

/// What is lost on the link is asked for again soon.
fn config() -> Config {
    let deadlines = Deadlines { fault: SOON, attempt: Duration::from_millis(200) };
    Config { deadlines, ..Config::with_local(LOCAL) }
}

/// A sealed region that is larger than local memory, whose pages hold their number plus one.
fn sealed(far: &FarMemory) -> Region {
    let mut region = far.region(4 * LOCAL).unwrap().with_access(Access::Trap);
    (0..region.bytes() / PAGE).for_each(|page| region.write_u64(page * PAGE, page + 1).unwrap());
    // What is swept from a sealed region is far, and not on standby.
    region.seal().unwrap();
    region
}

/// Waits until `is_so`.
fn see(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < SOON, "{what}: not yet");
        std::thread::yield_now();
    }
}

#[test]
fn a_thousand_threads_fetch_at_one_time() {
    const THREADS: u64 = 1_000;
    let Some((far, control)) = far(config()) else { return };
    let region = sealed(&far);
    // Scattered, so that nothing is fetched ahead.
    let pages: Vec<u64> = (0..region.bytes() / PAGE)
        .map(|at| at * 7919 % (region.bytes() / PAGE))
        .filter(|page| !region.is_resident(page * PAGE))
        .take(THREADS as usize)
        .collect();
    // No answer comes until all have asked.
    control.set_drops(1.0);
    std::thread::scope(|scope| {
        for page in &pages {
            let region = &region;
            scope.spawn(move || assert_eq!(region.read_u64(page * PAGE), Ok(page + 1)));
        }
        see("all fetch", || far.stats().in_flight == THREADS);
        control.set_drops(0.0);
    });
    assert_eq!(far.stats().in_flight, 0);
}

#[test]
fn threads_that_touch_one_page_wait_for_one_fetch() {
    const THREADS: u64 = 64;
    let Some((far, control)) = far(config()) else { return };
    let region = sealed(&far);
    let page = (0..region.bytes() / PAGE).find(|page| !region.is_resident(page * PAGE)).expect("more than fits");
    let before = far.stats();
    control.set_drops(1.0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| assert_eq!(region.read_u64(page * PAGE), Ok(page + 1)));
        }
        see("all wait", || far.stats().joins - before.joins == THREADS - 1);
        assert_eq!((far.stats().major_faults - before.major_faults, far.stats().in_flight), (1, 1));
        control.set_drops(0.0);
    });
}

/// Rounds of a few fetches at a time, of which the quickest decides how long guests sleep: a link that becomes slow or
/// quick again, errors, and losses.
#[test]
fn guests_wait_as_long_as_the_link_takes() {
    const THREADS: u64 = 16;
    let Some((far, control)) = far(config()) else { return };
    let region = sealed(&far);
    let (pages, start) = (region.bytes() / PAGE, Barrier::new(THREADS as usize));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (region, control, start) = (&region, &control, &start);
            scope.spawn(move || {
                for (round, delay) in [0, 3_000_000, 200_000, 20_000, 2_000_000, 0].into_iter().enumerate() {
                    if start.wait().is_leader() {
                        control.set_delay(delay, 1.0);
                        control.set_errors(if round % 2 == 0 { 0.05 } else { 0.0 });
                        control.set_drops(if round == 2 { 0.01 } else { 0.0 });
                    }
                    start.wait();
                    for at in 0..100 {
                        let page = (at * THREADS + thread + round as u64 * 1613) * 7919 % pages;
                        assert_eq!(region.read_u64(page * PAGE), Ok(page + 1));
                    }
                }
            });
        }
    });
    assert_eq!(far.stats().in_flight, 0);
}
