//! Installs that a worker hands over: made by a helper, taken back, and made by the worker in the end. One thread plays
//! all parts, so every order of their steps is chosen here.

use std::sync::Arc;

use yonder_fabric::EmuFabric;
use yonder_paging::{Config, FarMemory, FaultPolicy, Installs, Region, WorkerPort};
use yonder_unithread::{Pool, Resumed, Running, STACK_BYTES_DEFAULT};
use yonder_units::{Nanos, PAGE_BYTES};

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
        self.port.poll(now, installs, &mut self.ready, &mut self.retry);
    }

    /// Resumes `running`, which must be the one that is ready, and checks what it has read.
    fn finish(&mut self, running: Running<Read>, page: u64) {
        assert_eq!(std::mem::take(&mut self.ready), [running.id().0]);
        let Resumed::Finished(mut unithread) = running.resume() else { panic!("the page is there") };
        assert_eq!(unithread.payload_mut().value, Some(page + 1));
    }

    fn helped(&self) -> u64 {
        self.far.stats().helped_installs
    }
}

#[test]
fn a_helper_maps_the_page_while_the_worker_does_not() {
    let Some(mut worker) = Worker::new() else { return };
    let mut helper = worker.far.help_install(worker.port.id());
    let (running, page) = worker.read_far(0);
    while !helper.step() {
        worker.poll(yonder_clock::now(), Installs::HandOver);
        assert!(worker.ready.is_empty(), "the worker has mapped it");
    }
    assert!(!helper.step(), "an install was made twice");
    worker.poll(yonder_clock::now(), Installs::HandOver);
    worker.finish(running, page);
    assert_eq!(worker.helped(), 1);
}

#[test]
fn a_worker_without_other_work_takes_its_installs_back() {
    let Some(mut worker) = Worker::new() else { return };
    let mut helper = worker.far.help_install(worker.port.id());
    let (running, page) = worker.read_far(0);
    let far_later = yonder_clock::now() + 10_000;
    worker.poll(far_later, Installs::HandOver);
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
    worker.poll(now, Installs::HandOver);
    assert!(worker.ready.is_empty());
    worker.poll(now + LATE, Installs::HandOver);
    worker.finish(running, page);
    drop(helper);
    // Without a helper nothing is handed over at all.
    let (running, page) = worker.read_far(page + 1);
    worker.poll(now + 10 * LATE, Installs::HandOver);
    worker.finish(running, page);
    assert_eq!(worker.helped(), 0);
}

#[test]
fn a_second_touch_joins_an_install_that_is_handed_over() {
    let Some(mut worker) = Worker::new() else { return };
    let mut helper = worker.far.help_install(worker.port.id());
    let (first, page) = worker.read_far(0);
    let now = yonder_clock::now() + 10_000;
    worker.poll(now, Installs::HandOver);
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
    worker.poll(now, Installs::HandOver);
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
