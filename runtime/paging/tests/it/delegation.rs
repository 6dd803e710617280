//! Installs that a worker hands over: made by a helper, taken back, and made by the worker in the end. One thread plays
//! all parts, so every order of their steps is chosen here.

use std::sync::Arc;
use std::time::Duration;

use yonder_fabric::EmuFabric;
use yonder_paging::{Config, Deadlines, FarMemory, FaultPolicy, Installs, Posting, Region, Shares, WorkerPort};
use yonder_unithread::{Pool, Resumed, Running, STACK_BYTES_DEFAULT};
use yonder_units::{Nanos, PAGE_BYTES};

use crate::emulated::wait_for;

const PAGE: u64 = PAGE_BYTES as u64;
const LOCAL: u64 = 4 << 20;
/// Longer than a worker waits for its helper.
const LATE: Nanos = 1_000_000;

/// A read of one page on a unithread.
struct Read {
    region: Arc<Region>,
    page: u64,
    value: Option<u64>,
}

/// A worker, and far memory whose pages hold their number plus one; the low ones are far.
struct Worker {
    far: FarMemory,
    region: Arc<Region>,
    pool: Pool<Read>,
    port: WorkerPort,
    ready: Vec<u32>,
    retry: Vec<u32>,
}

impl Worker {
    /// None, and a line that says why, where userfaultfd is missing.
    fn new() -> Option<Self> {
        if let Err(error) = yonder_uffd::probe().userfaultfd {
            println!("SKIP: {error}");
            return None;
        }
        let fabric = EmuFabric::open("emu://?latency=1us&size=64MiB").unwrap();
        let far = FarMemory::new(Arc::new(fabric), Config::with_local(LOCAL)).unwrap();
        let mut region = far.region(4 * LOCAL).unwrap();
        for page in 0..region.bytes() / PAGE {
            region.write_u64(page * PAGE, page + 1).unwrap();
        }
        // What is swept from a sealed region is far, and not on standby.
        region.seal().unwrap();
        let port = WorkerPort::bind(&far, 16, FaultPolicy::Yield).unwrap();
        let pool = Pool::new(16, STACK_BYTES_DEFAULT).unwrap();
        Some(Self { far, region: Arc::new(region), pool, port, ready: Vec::new(), retry: Vec::new() })
    }

    /// Starts reads until one of them waits for a far page at or after `page`.
    fn read_far(&mut self, mut page: u64) -> (Running<Read>, u64) {
        loop {
            let read = Read { region: Arc::clone(&self.region), page, value: None };
            let unithread = self.pool.take(read).ok().expect("16 are enough");
            let running = unithread.start(|read| read.value = read.region.read_u64(read.page * PAGE).ok());
            match running.resume() {
                Resumed::Suspended(running) => return (running, page),
                Resumed::Finished(unithread) => drop(unithread),
                Resumed::Panicked(..) => panic!("a read panicked"),
            }
            page += 1;
        }
    }

    fn poll(&mut self, now: Nanos, installs: Installs) {
        self.port.poll(now, installs, Posting::AtOnce, &mut self.ready, &mut self.retry);
    }

    /// Resumes `running`, which must be the one that is ready, and checks what it has read.
    fn finish(&mut self, running: Running<Read>, page: u64) {
        assert_eq!(std::mem::take(&mut self.ready), [running.id().0]);
        let Resumed::Finished(mut unithread) = running.resume() else { panic!("the page is there") };
        assert_eq!(unithread.payload_mut().value, Some(page + 1));
    }

    fn helped(&self) -> u64 {
        self.far.stats().delegated_installs
    }
}

#[test]
fn a_helper_maps_the_page_while_the_worker_does_not() {
    let Some(mut worker) = Worker::new() else { return };
    let mut helper = worker.far.help_install(worker.port.id());
    let (running, page) = worker.read_far(0);
    while !helper.step() {
        worker.poll(yonder_clock::now(), Installs::Delegated);
        assert!(worker.ready.is_empty(), "the worker has mapped it");
    }
    assert!(!helper.step(), "an install was made twice");
    worker.poll(yonder_clock::now(), Installs::Delegated);
    worker.finish(running, page);
    assert_eq!(worker.helped(), 1);
}

#[test]
fn a_worker_without_other_work_takes_its_installs_back() {
    let Some(mut worker) = Worker::new() else { return };
    let mut helper = worker.far.help_install(worker.port.id());
    let (running, page) = worker.read_far(0);
    let far_later = yonder_clock::now() + 10_000;
    worker.poll(far_later, Installs::Delegated);
    assert!(worker.ready.is_empty());
    worker.poll(far_later, Installs::Own);
    assert!(!helper.step(), "what was taken back is still there");
    worker.finish(running, page);
    assert_eq!(worker.helped(), 0);
}

#[test]
fn a_helper_that_does_not_answer_is_not_waited_for() {
    let Some(mut worker) = Worker::new() else { return };
    let helper = worker.far.help_install(worker.port.id());
    let (running, page) = worker.read_far(0);
    let now = yonder_clock::now() + 10_000;
    worker.poll(now, Installs::Delegated);
    assert!(worker.ready.is_empty());
    worker.poll(now + LATE, Installs::Delegated);
    worker.finish(running, page);
    drop(helper);
    // Without a helper nothing is handed over at all.
    let (running, page) = worker.read_far(page + 1);
    worker.poll(now + 10 * LATE, Installs::Delegated);
    worker.finish(running, page);
    assert_eq!(worker.helped(), 0);
}

#[test]
fn a_second_touch_joins_an_install_that_is_handed_over() {
    let Some(mut worker) = Worker::new() else { return };
    let mut helper = worker.far.help_install(worker.port.id());
    let (first, page) = worker.read_far(0);
    let now = yonder_clock::now() + 10_000;
    worker.poll(now, Installs::Delegated);
    let (second, same) = worker.read_far(page);
    assert_eq!(same, page, "the page is not there yet");
    let fetches = worker.far.stats().major_faults;
    assert!(helper.step());
    // The page is mapped, but the worker has not heard of it: a third touch needs nothing.
    let read = Read { region: Arc::clone(&worker.region), page, value: None };
    let third =
        worker.pool.take(read).ok().unwrap().start(|read| read.value = read.region.read_u64(read.page * PAGE).ok());
    let Resumed::Finished(mut third) = third.resume() else { panic!("the page is there") };
    assert_eq!(third.payload_mut().value, Some(page + 1));
    worker.poll(now, Installs::Delegated);
    let mut ready = std::mem::take(&mut worker.ready);
    ready.sort_unstable();
    let mut both = [first.id().0, second.id().0];
    both.sort_unstable();
    assert_eq!(ready, both);
    for running in [first, second] {
        let Resumed::Finished(mut unithread) = running.resume() else { panic!("the page is there") };
        assert_eq!(unithread.payload_mut().value, Some(page + 1));
    }
    assert_eq!((worker.far.stats().major_faults, worker.helped()), (fetches, 1));
}

/// A region whose number is given to another one while a port may still know it: a guest thread's slow fetch keeps the
/// end of the first region waiting in the middle.
#[test]
fn a_region_is_never_taken_for_one_that_has_ended() {
    const DELAY: Nanos = 200_000_000;
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return;
    }
    let fabric = EmuFabric::open("emu://?latency=5us&size=64MiB&gbps=0").unwrap();
    let control = fabric.control();
    let deadlines = Deadlines { fault: Duration::from_secs(5), attempt: Duration::from_secs(2) };
    let far = FarMemory::new(Arc::new(fabric), Config { deadlines, ..Config::with_local(LOCAL / 2) }).unwrap();
    let filled = |pages: u64, tag: u64| {
        let mut region = far.region(pages * PAGE).unwrap();
        (0..pages).for_each(|page| region.write_u64(page * PAGE, tag + page).unwrap());
        region.seal().unwrap();
        Arc::new(region)
    };
    let (old, other) = (filled(64, 1_000_000), filled(2048, 2_000_000));
    let port = WorkerPort::bind(&far, 16, FaultPolicy::Yield).unwrap();
    let pool = Pool::new(16, STACK_BYTES_DEFAULT).unwrap();
    assert_eq!(read_on(&port, &pool, &old, 3), 1_000_003);
    std::thread::scope(|scope| {
        control.set_delay(DELAY, 1.0);
        let before = far.stats().major_faults;
        let guest = scope.spawn(|| {
            let first_far = (0..2048).find(|page| !other.is_resident(page * PAGE)).expect("more than fits");
            other.read_u64(first_far * PAGE).unwrap()
        });
        wait_for("a fault", || far.stats().major_faults != before);
        control.set_delay(0, 0.0);
        scope.spawn(move || drop(old));
        // As many as fit among the regions that there may be.
        for tag in (5_000_000..).step_by(1000).take(30) {
            if guest.is_finished() {
                break;
            }
            let new = filled(64, tag);
            for page in 0..64 {
                assert_eq!(read_on(&port, &pool, &new, page), tag + page);
            }
            // A region that is dropped waits for the guest, and this thread must not.
            scope.spawn(move || drop(new));
        }
    });
}

/// Reads one page on a unithread of `port`, and polls until it is there.
fn read_on(port: &WorkerPort, pool: &Pool<Read>, region: &Arc<Region>, page: u64) -> u64 {
    let read = Read { region: Arc::clone(region), page, value: None };
    let unithread = pool.take(read).ok().expect("16 are enough");
    let mut running = unithread.start(|read| read.value = read.region.read_u64(read.page * PAGE).ok());
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
fn watermarks_below_the_reserve_do_not_stop_paging() {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return;
    }
    for (start_percent, end_percent) in [(5.0, 7.0), (1.0, 1.5)] {
        let shares = Shares { start_percent, end_percent, ..Shares::default() };
        let fabric = EmuFabric::open("emu://?latency=1us&size=64MiB").unwrap();
        let far = FarMemory::new(Arc::new(fabric), Config { shares, ..Config::with_local(LOCAL) }).unwrap();
        let region = far.region(4 * LOCAL).unwrap();
        for page in 0..4 * LOCAL / PAGE {
            region.write_u64(page * PAGE, page).unwrap();
        }
    }
}
