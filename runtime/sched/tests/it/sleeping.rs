//! Requests that sleep: others run meanwhile, and whoever has slept long enough goes on before new requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use yonder_paging::{Config, FarMemory, no_yield};
use yonder_sched::{Handler, Idle, Outcome, SchedConfig, serve_all, sleep_until};

const NIGHT: Duration = Duration::from_millis(20);

/// How long a request waits for the others to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Sleeps so many nights, and on until all requests have started: they end only if all of them can be asleep at once.
struct Sleeps {
    all: usize,
    started: AtomicUsize,
}

impl Handler for Sleeps {
    type Request = u32;
    type Reply = u32;

    fn handle(&self, nights: u32) -> u32 {
        self.started.fetch_add(1, Ordering::Relaxed);
        let start = Instant::now();
        sleep_a_while(nights);
        while self.started.load(Ordering::Relaxed) < self.all {
            assert!(start.elapsed() < START_TIMEOUT, "others do not start while this one sleeps");
            sleep_a_while(1);
        }
        nights
    }
}

fn sleep_a_while(nights: u32) {
    let until = yonder_clock::now() + u64::from(nights) * NIGHT.as_nanos() as u64;
    sleep_until(until);
    assert!(yonder_clock::now() >= until, "it was woken too early");
}

fn slept(nights: &[u32]) -> Option<(Vec<Outcome<u32>>, Duration)> {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return None;
    }
    let far = FarMemory::open("emu://", Config::with_local(4 << 20)).unwrap();
    let config = SchedConfig { idle: Idle::SleepAfter(Duration::ZERO), ..SchedConfig::default() };
    let handler = Arc::new(Sleeps { all: nights.len(), started: AtomicUsize::new(0) });
    let start = Instant::now();
    let outcomes = serve_all(&config, &far, &handler, nights.iter().copied()).unwrap();
    Some((outcomes, start.elapsed()))
}

#[test]
fn all_sleep_at_once_and_each_wakes_at_its_time() {
    let nights: Vec<u32> = (0..100).map(|number| 1 + number % 4).collect();
    let Some((outcomes, took)) = slept(&nights) else { return };
    assert!(took >= 4 * NIGHT, "{took:?}");
    // Outcomes come as requests end.
    let ended = |nights: u32| outcomes.iter().filter(|outcome| **outcome == Outcome::Reply(nights)).count();
    assert_eq!([1, 2, 3, 4].map(ended), [25; 4]);
}

#[test]
fn a_thread_and_a_section_that_must_not_yield_sleep_themselves() {
    let start = Instant::now();
    sleep_until(yonder_clock::now() + NIGHT.as_nanos() as u64);
    no_yield(|| sleep_until(yonder_clock::now() + NIGHT.as_nanos() as u64));
    assert!(start.elapsed() >= 2 * NIGHT);
    sleep_until(0);
}
