//! Two workers, two helpers and a reclaim host on whatever CPUs there are: regions come and go, helpers come and go,
//! the fabric fails now and then, and every value that is read is the one that was written.

use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use yonder_fabric::EmuFabric;
use yonder_paging::{Access, Config, FarMemory, FaultPolicy, Installs, Posting, Region, WorkerPort};
use yonder_unithread::{Pool, Resumed, Running, STACK_BYTES_DEFAULT};
use yonder_units::PAGE_BYTES;

const PAGE: u64 = PAGE_BYTES as u64;
const LOCAL: u64 = 4 << 20;
const WORKERS: usize = 2;
/// Regions that each worker fills, reads and drops.
const ROUNDS: u64 = 16;
/// Regions after which a worker gives up waiting for a helper that the kernel never lets run in time.
const ROUNDS_MAX: u64 = 40 * ROUNDS;
/// Pages of a region: a third more than fits, for each worker.
const PAGES: u64 = 4 * LOCAL / PAGE / 3;
const INFLIGHT_MAX: usize = 24;

/// A store to a page, or a load of it, at both of its ends.
struct Job {
    region: Arc<Region>,
    page: u64,
    value: u64,
    work: Work,
    result: Option<[u64; 2]>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Store,
    Load,
}

impl Job {
    fn run(&mut self) {
        let [first, last] = [self.page * PAGE, (self.page + 1) * PAGE - 8];
        if self.work == Work::Store {
            self.region.write_u64(first, self.value).unwrap();
            self.region.write_u64(last, self.value).unwrap();
        }
        self.result = Some([first, last].map(|offset| self.region.read_u64(offset).unwrap()));
    }
}

/// One worker's loop: as many jobs at a time as it may have, each region's stores before its loads.
fn work(far: &FarMemory, port: &WorkerPort, seed: u64) {
    let pool = Pool::new(2 * INFLIGHT_MAX, STACK_BYTES_DEFAULT).unwrap();
    let mut random = SmallRng::seed_from_u64(seed);
    let mut parked: Vec<Option<Running<Job>>> = (0..2 * INFLIGHT_MAX).map(|_| None).collect();
    let (mut ready, mut retry, mut inflight) = (Vec::new(), Vec::new(), 0);
    for round in 0..ROUNDS_MAX {
        if round >= ROUNDS && far.stats().delegated_installs > 0 {
            break;
        }
        let access = if round % 2 == 0 { Access::Trap } else { Access::Probe };
        let region = Arc::new(far.region(PAGES * PAGE).unwrap().with_access(access));
        for work in [Work::Store, Work::Load] {
            let mut left = PAGES;
            while left > 0 || inflight > 0 {
                let installs = if random.random_ratio(3, 4) { Installs::Delegated } else { Installs::Own };
                port.poll(yonder_clock::now(), installs, Posting::AtOnce, &mut ready, &mut retry);
                if installs == Installs::Delegated && ready.is_empty() && random.random_ratio(1, 16) {
                    // With fewer CPUs than threads, a helper runs in time only if a worker lets it.
                    std::thread::yield_now();
                }
                let tokens = ready.drain(..).chain(retry.drain(..));
                let mut run: Vec<_> =
                    tokens.map(|token| parked[token as usize].take().expect("it is parked")).collect();
                inflight -= run.len();
                if left > 0 && inflight + run.len() < INFLIGHT_MAX {
                    left -= 1;
                    // Loads come back to few pages, so that several wait for one fetch.
                    let page =
                        if work == Work::Load && left.is_multiple_of(3) { random.random_range(0..40) } else { left };
                    let value = (seed << 48) ^ (round << 32) ^ page;
                    let job = Job { region: Arc::clone(&region), page, value, work, result: None };
                    run.push(pool.take(job).ok().expect("there are enough").start(Job::run));
                }
                for running in run {
                    let token = running.id().0;
                    match running.resume() {
                        Resumed::Suspended(running) => {
                            parked[token as usize] = Some(running);
                            inflight += 1;
                        }
                        Resumed::Finished(mut unithread) => {
                            let job = unithread.payload_mut();
                            assert_eq!(job.result, Some([job.value; 2]), "page {} of round {round}", job.page);
                        }
                        Resumed::Panicked(_, why) => panic!("{}", yonder_unithread::panic_message(&*why)),
                    }
                }
            }
        }
    }
}

fn every_value_is_right(url: &str) {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return;
    }
    let far = FarMemory::new(Arc::new(EmuFabric::open(url).unwrap()), Config::with_local(LOCAL)).unwrap();
    let (bound, at_work) = (Barrier::new(2 * WORKERS), AtomicUsize::new(WORKERS));
    let ports: [AtomicU16; WORKERS] = Default::default();
    std::thread::scope(|scope| {
        for (number, id) in ports.iter().enumerate() {
            let (far, bound, at_work) = (&far, &bound, &at_work);
            scope.spawn(move || {
                let port = WorkerPort::bind(far, 2 * INFLIGHT_MAX, FaultPolicy::Yield).unwrap();
                id.store(port.id(), Ordering::Release);
                bound.wait();
                work(far, &port, number as u64 + 1);
                at_work.fetch_sub(1, Ordering::Release);
            });
            scope.spawn(move || {
                bound.wait();
                let port = id.load(Ordering::Acquire);
                let mut host = (number == 0).then(|| far.host_reclaim());
                let (mut helper, mut turn) = (far.help_install(port), 0u64);
                while at_work.load(Ordering::Acquire) > 0 {
                    helper.step();
                    _ = host.as_mut().map(|host| host.step(yonder_clock::now()));
                    turn += 1;
                    if turn.is_multiple_of(5_000) {
                        helper = far.help_install(port);
                    }
                    if turn.is_multiple_of(400) {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    let stats = far.stats();
    println!("{url}: {} of {} fetched pages were mapped by helpers", stats.delegated_installs, stats.major_faults);
    assert!(stats.delegated_installs > 0, "nothing was handed over");
    assert_eq!((stats.resident_pages, stats.standby_pages, stats.in_flight), (0, 0, 0));
}

#[test]
fn pages_are_mapped_from_far_memory() {
    every_value_is_right("emu://?latency=2us&size=256MiB");
}

#[test]
fn pages_are_mapped_from_frames_of_a_fabric_that_fails() {
    every_value_is_right("emu://?latency=2us&size=256MiB&reads=frames&depth=16&error=0.01&drop=0.0005");
}
