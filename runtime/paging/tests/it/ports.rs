//! Ports of workers that come and go: each binding gives back what it has taken.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::emulated::far;
use yonder_paging::{Config, Deadlines, FarError, FarMemory, FaultPolicy, Installs, Posting, Region, WorkerPort};
use yonder_unithread::{Pool, Resumed, STACK_BYTES_DEFAULT};
use yonder_units::PAGE_BYTES;

const PAGE: u64 = PAGE_BYTES as u64;
const LOCAL: u64 = 4 << 20;
/// Bindings that there may be at one time.
const BINDINGS_MAX: usize = 248;

/// A read of one page on a unithread.
struct Read {
    region: Arc<Region>,
    page: u64,
    value: Option<u64>,
}

impl Read {
    fn run(&mut self) {
        self.value = self.region.read_u64(self.page * PAGE).ok();
    }
}

/// A sealed region that is larger than local memory, whose pages hold their number plus one.
fn sealed(far: &FarMemory) -> Arc<Region> {
    let mut region = far.region(4 * LOCAL).unwrap();
    (0..region.bytes() / PAGE).for_each(|page| region.write_u64(page * PAGE, page + 1).unwrap());
    // What is swept from a sealed region is far, and not on standby.
    region.seal().unwrap();
    Arc::new(region)
}

fn first_far(region: &Region, from: u64) -> u64 {
    let pages = region.bytes() / PAGE;
    (from..from + pages).map(|page| page % pages).find(|page| !region.is_resident(page * PAGE)).expect("more than fits")
}

/// Reads one page on a unithread of `port`, and polls until it is there.
fn read_on(port: &WorkerPort, pool: &Pool<Read>, region: &Arc<Region>, page: u64) -> u64 {
    let unithread = pool.take(Read { region: Arc::clone(region), page, value: None }).ok().expect("one is enough");
    let mut running = unithread.start(Read::run);
    let (mut ready, mut retry) = (Vec::new(), Vec::new());
    loop {
        match running.resume() {
            Resumed::Finished(mut unithread) => return unithread.payload_mut().value.expect("the page can be had"),
            Resumed::Panicked(..) => panic!("a read panicked"),
            Resumed::Suspended(suspended) => running = suspended,
        }
        while ready.is_empty() && retry.is_empty() {
            port.poll(yonder_clock::now(), Installs::Own, Posting::AtOnce, &mut ready, &mut retry);
        }
        ready.clear();
        retry.clear();
    }
}

#[test]
fn a_thousand_bindings_one_after_another() {
    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    let region = sealed(&far);
    let pool = Pool::new(1, STACK_BYTES_DEFAULT).unwrap();
    for binding in 0..1_000 {
        // Each has another number of waiters and another policy than the one before.
        let policy = if binding % 2 == 0 { FaultPolicy::Yield } else { FaultPolicy::Busy };
        let port = WorkerPort::bind(&far, 1 + binding % 7, policy).unwrap();
        let page = first_far(&region, binding as u64 * 37);
        assert_eq!(read_on(&port, &pool, &region, page), page + 1);
        assert_eq!(far.outstanding(port.id()), 0);
    }
    assert!(far.stats().major_faults >= 1_000, "what the ports have counted stays");
}

#[test]
fn several_times_as_many_threads_as_ports_come_and_go() {
    const THREADS: usize = 8;
    const BINDINGS_EACH: usize = 4 * BINDINGS_MAX / THREADS;
    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    let region = sealed(&far);
    for _ in 0..BINDINGS_EACH {
        std::thread::scope(|scope| {
            for thread in 0..THREADS as u64 {
                let (far, region) = (&far, &region);
                scope.spawn(move || {
                    let port = WorkerPort::bind(far, 1, FaultPolicy::Yield).unwrap();
                    let pool = Pool::new(1, STACK_BYTES_DEFAULT).unwrap();
                    let page = first_far(region, thread * 509);
                    assert_eq!(read_on(&port, &pool, region, page), page + 1);
                });
            }
        });
    }
}

#[test]
fn a_binding_that_is_refused_is_had_once_another_has_ended() {
    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    let (bound, binds) = (std::sync::Barrier::new(BINDINGS_MAX + 1), std::sync::Barrier::new(BINDINGS_MAX + 1));
    std::thread::scope(|scope| {
        for _ in 0..BINDINGS_MAX {
            scope.spawn(|| {
                let port = WorkerPort::bind(&far, 1, FaultPolicy::Yield);
                bound.wait();
                binds.wait();
                port.unwrap();
            });
        }
        bound.wait();
        // Refusals take no number away.
        for _ in 0..BINDINGS_MAX {
            let refused = WorkerPort::bind(&far, 1, FaultPolicy::Yield);
            assert!(matches!(refused, Err(FarError::Ports(BINDINGS_MAX))));
        }
        binds.wait();
    });
    drop(WorkerPort::bind(&far, 1, FaultPolicy::Yield).unwrap());
}

/// Workers whose threads end in the middle of fetches: their unithreads are abandoned, and neither the pages nor the
/// local memory that was taken for them.
#[test]
fn nobody_waits_for_the_fetches_of_a_thread_that_is_gone() {
    const SLOW: Duration = Duration::from_secs(20);
    const FETCHES: usize = 16;
    /// More fetches than there are local pages.
    const BINDINGS: usize = 2 * (LOCAL / PAGE) as usize / FETCHES;
    let deadlines = Deadlines { fault: 2 * SLOW, ..Deadlines::default() };
    let Some((far, control)) = far(Config { deadlines, ..Config::with_local(LOCAL) }) else { return };
    let region = sealed(&far);
    let begun = Instant::now();
    control.set_delay(SLOW.as_nanos() as u64, 1.0);
    let mut page = 0;
    for _ in 0..BINDINGS {
        let port = WorkerPort::bind(&far, FETCHES, FaultPolicy::Yield).unwrap();
        let pool = Pool::new(FETCHES, STACK_BYTES_DEFAULT).unwrap();
        for _ in 0..FETCHES {
            page = first_far(&region, page + 1);
            let read = Read { region: Arc::clone(&region), page, value: None };
            let unithread = pool.take(read).ok().expect("there are as many");
            let Resumed::Suspended(waits) = unithread.start(Read::run).resume() else { panic!("the page is far") };
            // Its stack is abandoned with it.
            drop(waits);
        }
        assert!(far.outstanding(port.id()) > 0, "others wait for what is fetched ahead");
        drop(port);
        assert_eq!(far.stats().in_flight, 0);
    }
    control.set_delay(0, 0.0);
    (0..region.bytes() / PAGE).for_each(|page| assert_eq!(region.read_u64(page * PAGE), Ok(page + 1)));
    assert!(begun.elapsed() < SLOW, "the fetches of a thread that is gone were waited for");
}
