//! Requests that sleep: others run meanwhile, and whoever has slept long enough goes on before new requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use yonder_paging::{Config, FarMemory, no_yield};
use yonder_sched::{Handler, Idle, Outcome, SchedConfig, serve_all, sleep_until};

const NIGHT: Duration = Duration::from_millis(20);

/// Sleeps so many nights. Returns how many requests had started when it ended.
struct Sleeps {
    started: AtomicUsize,
}

impl Handler for Sleeps {
    type Request = u32;
    type Reply = usize;

    fn handle(&self, nights: u32) -> usize {
        self.started.fetch_add(1, Ordering::Relaxed);
        let until = yonder_clock::now() + u64::from(nights) * NIGHT.as_nanos() as u64;
        sleep_until(until);
        assert!(yonder_clock::now() >= until, "it was woken too early");
        self.started.load(Ordering::Relaxed)
    }
}

fn slept(nights: &[u32]) -> Option<(Vec<Outcome<usize>>, Duration)> {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return None;
    }
    let far = FarMemory::open("emu://", Config::with_local(4 << 20)).unwrap();
    let config = SchedConfig { idle: Idle::SleepAfter(Duration::ZERO), ..SchedConfig::default() };
    let handler = Arc::new(Sleeps { started: AtomicUsize::new(0) });
    let start = Instant::now();
    let outcomes = serve_all(&config, &far, &handler, nights.iter().copied()).unwrap();
    Some((outcomes, start.elapsed()))
}

#[test]
fn all_sleep_at_once_and_each_wakes_at_its_time() {
    let nights: Vec<u32> = (0..100).map(|number| 1 + number % 4).collect();
    let Some((outcomes, took)) = slept(&nights) else { return };
    // One after the other they would take 250 nights. Nobody ends before the first night is over, and by then all have
    // started.
    assert!(took >= 4 * NIGHT && took < 100 * NIGHT, "{took:?}");
    assert_eq!(outcomes, vec![Outcome::Reply(100); 100]);
}

#[test]
fn a_thread_and_a_section_that_must_not_yield_sleep_themselves() {
    let start = Instant::now();
    sleep_until(yonder_clock::now() + NIGHT.as_nanos() as u64);
    no_yield(|| sleep_until(yonder_clock::now() + NIGHT.as_nanos() as u64));
    assert!(start.elapsed() >= 2 * NIGHT);
    sleep_until(0);
}
