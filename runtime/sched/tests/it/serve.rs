//! Servers whose requests read and write far memory, under every policy.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use yonder_fabric::{EmuControl, EmuFabric, page_deadline};
use yonder_paging::{Access, Config, Deadlines, FarMemory, FaultPolicy, PagingError, Region, Stats, no_yield};
use yonder_sched::{
    Activity, DispatchPolicy, Done, Frontend, Handler, Idle, InstallDelegation, Order, Outcome, PollingDelegation,
    Predictions, Reclaim, SchedConfig, SchedStats, Timing, checkpoint, serve, serve_all, sync, yield_now,
};
use yonder_units::{Nanos, PAGE_BYTES};

pub(crate) const PAGE: u64 = PAGE_BYTES as u64;
pub(crate) const LOCAL: u64 = 4 << 20;
pub(crate) const PAGES: u64 = 4 * LOCAL / PAGE;

pub(crate) fn far(config: Config) -> Option<(FarMemory, Arc<EmuControl>)> {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return None;
    }
    let pairs = [("latency", "5us"), ("size", "128MiB")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let fabric = EmuFabric::from_query("emu://?latency=5us&size=128MiB", &pairs).unwrap();
    let control = fabric.control();
    Some((FarMemory::new(Arc::new(fabric), config).unwrap(), control))
}

/// Hands out a list of requests and keeps the replies.
pub(crate) struct Script<Q, R> {
    requests: VecDeque<Q>,
    pub(crate) replies: Vec<Done<R>>,
    /// Requests that are handed out only when all before them are over.
    pub(crate) last: usize,
    given: usize,
}

impl<Q, R> Script<Q, R> {
    pub(crate) fn new(requests: impl IntoIterator<Item = Q>) -> Self {
        Self { requests: requests.into_iter().collect(), replies: Vec::new(), last: 0, given: 0 }
    }
}

impl<Q, R> Frontend for Script<Q, R> {
    type Request = Q;
    type Reply = R;

    fn poll(&mut self, _now: Nanos, room: usize, admit: &mut dyn FnMut(Q)) -> Activity {
        if self.requests.len() == self.last && self.given == self.replies.len() {
            self.last = 0;
        }
        let count = room.min(self.requests.len() - self.last);
        self.given += count;
        self.requests.drain(..count).for_each(admit);
        if count > 0 { Activity::Busy } else { Activity::Idle }
    }

    fn complete(&mut self, _now: Nanos, done: Done<R>) {
        self.replies.push(done);
    }

    fn wait(&mut self, timeout: Duration) {
        std::thread::park_timeout(timeout);
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let thread = std::thread::current();
        Arc::new(move || thread.unpark())
    }

    fn is_finished(&self) -> bool {
        self.requests.is_empty()
    }
}

/// Adds one to the word at the start of a page, under a lock that is held across the accesses.
struct Increment {
    region: Region,
    locks: Vec<sync::Mutex<()>>,
}

impl Handler for Increment {
    type Request = u64;
    type Reply = Result<u64, PagingError>;

    fn handle(&self, page: u64) -> Self::Reply {
        checkpoint();
        let _guard = self.locks[page as usize % self.locks.len()].lock();
        let value = self.region.read_u64(page * PAGE)? + 1;
        self.region.write_u64(page * PAGE, value)?;
        Ok(value)
    }

    fn key(&self, page: &u64) -> Option<u64> {
        Some(*page)
    }
}

/// Runs 40,000 increments on random pages under `config` and checks every page's count. Returns what far memory
/// counted, or `None` where userfaultfd is missing.
pub(crate) fn increments_are_exact(config: &SchedConfig, access: Access) -> Option<Stats> {
    let (far, _) = far(Config::with_local(LOCAL))?;
    Some(increments_are_exact_on(&far, config, access))
}

fn increments_are_exact_on(far: &FarMemory, config: &SchedConfig, access: Access) -> Stats {
    let region = far.region(PAGES * PAGE).unwrap().with_access(access);
    let handler = Arc::new(Increment { region, locks: (0..16).map(|_| sync::Mutex::new(())).collect() });
    let pages = (0..40_000u64).map(|turn| turn.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32).map(|random| random % PAGES);
    let mut wanted = vec![0; PAGES as usize];
    pages.clone().for_each(|page| wanted[page as usize] += 1);
    let (mut script, stats) = (Script::new(pages), SchedStats::default());
    serve(config, far, &handler, &mut script, &stats).unwrap();
    assert_eq!((script.replies.len(), stats.completed()), (40_000, 40_000));
    assert!(script.replies.iter().all(|done| matches!(done.outcome, Outcome::Reply(Ok(_)))));
    for (page, wanted) in wanted.into_iter().enumerate() {
        assert_eq!(handler.region.read_u64(page as u64 * PAGE), Ok(wanted), "page {page}");
    }
    let Predictions { hits_right, hits_wrong, faults_right, faults_wrong } = stats.predictions();
    let predicted = hits_right + hits_wrong + faults_right + faults_wrong;
    assert_eq!(predicted, if config.dispatch == DispatchPolicy::Predicted { 40_000 } else { 0 });
    assert_eq!(stats.predictor_bytes() > 0, predicted > 0);
    let faults: u64 = script.replies.iter().map(|done| u64::from(done.timing.major_faults)).sum();
    assert!(faults > 0, "nothing was far");
    assert!(far.stats().peak_pages <= LOCAL / PAGE);
    far.stats()
}

#[test]
fn requests_that_are_known_beforehand_all_end_one_way_or_another() {
    /// Panics at odd numbers.
    struct Even;

    impl Handler for Even {
        type Request = u64;
        type Reply = u64;

        fn handle(&self, number: u64) -> u64 {
            assert!(number.is_multiple_of(2), "{number} is odd");
            number
        }
    }

    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    // Many times as many as there is room for.
    let outcomes = serve_all(&SchedConfig::with_workers(2), &far, &Arc::new(Even), 0..5_000).unwrap();
    let mut replies: Vec<u64> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Reply(number) => Some(*number),
            Outcome::Panicked => None,
        })
        .collect();
    replies.sort_unstable();
    assert_eq!((outcomes.len(), replies), (5_000, (0..5_000).step_by(2).collect()));
    assert!(serve_all(&SchedConfig::default(), &far, &Arc::new(Even), []).unwrap().is_empty());
}

#[test]
fn yielding_faults_with_traps() {
    increments_are_exact(&SchedConfig::default(), Access::Trap);
}

#[test]
fn yielding_faults_with_probes_on_two_workers() {
    increments_are_exact(&SchedConfig { workers: 2, ..SchedConfig::default() }, Access::Probe);
}

#[test]
fn busy_faults_with_preemption() {
    let preempt = Some(Duration::from_micros(5));
    increments_are_exact(&SchedConfig { faults: FaultPolicy::Busy, preempt, ..SchedConfig::default() }, Access::Trap);
}

#[test]
fn busy_faults_whose_pages_the_dispatcher_maps() {
    let config = SchedConfig { faults: FaultPolicy::BusyDelegated, idle: Idle::BusyPoll, ..SchedConfig::default() };
    // Whether the dispatcher has a CPU while the worker waits is up to the kernel, for one run.
    let mut runs = (0..10).map_while(|_| increments_are_exact(&config, Access::Trap)).peekable();
    if runs.peek().is_some() {
        assert!(runs.any(|stats| stats.delegated_installs > 0), "the dispatcher never helped");
    }
}

#[test]
fn hybrid_faults_round_robin_on_four_workers() {
    let dispatch = DispatchPolicy::RoundRobin;
    increments_are_exact(
        &SchedConfig { faults: FaultPolicy::Hybrid(3_000), dispatch, workers: 4, ..SchedConfig::default() },
        Access::Trap,
    );
}

/// A thread that stayed on the dispatcher's CPU would leave the next server one CPU for all of its threads.
#[test]
fn the_dispatchers_thread_has_its_cpus_again_when_the_server_has_ended() {
    use rustix::thread::{CpuSet, sched_getaffinity};

    let mine = || {
        let set = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect::<Vec<_>>()
    };
    let before = mine();
    if before.len() < 2 {
        println!("SKIP: one CPU is all there is");
        return;
    }
    let cpus = vec![before[1], before[0]];
    increments_are_exact(&SchedConfig { cpus, ..SchedConfig::with_workers(1) }, Access::Trap);
    assert_eq!(mine(), before);
}

#[test]
fn yielding_faults_first_in_first_out() {
    increments_are_exact(&SchedConfig { order: Order::Fifo, ..SchedConfig::default() }, Access::Trap);
}

/// Reads of a file are gathered while a worker has other requests to run. However they end, nobody waits for one that
/// was not begun.
#[test]
fn reads_of_a_file_are_begun_by_workers_that_yield_and_by_those_that_wait() {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return;
    }
    for faults in [FaultPolicy::Yield, FaultPolicy::Hybrid(3_000), FaultPolicy::Busy] {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("file://{}/store?size=128MiB", folder.path().display());
        let mut config = Config::with_local(LOCAL);
        config.deadlines.fault = page_deadline(&url);
        let far = match FarMemory::open(&url, config) {
            Ok(far) => far,
            Err(error) if error.to_string().contains("io_uring") || error.to_string().contains("direct access") => {
                println!("SKIP: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        increments_are_exact_on(&far, &SchedConfig { faults, ..SchedConfig::with_workers(1) }, Access::Trap);
    }
}

#[test]
fn workers_that_wait_for_replies_and_a_dispatcher_that_reclaims() {
    let config = SchedConfig {
        delegation: PollingDelegation::Off,
        reclaim: Reclaim::Dispatcher,
        idle: Idle::SleepAfter(Duration::ZERO),
        ..SchedConfig::default()
    };
    increments_are_exact(&config, Access::Trap);
}

#[test]
fn a_dispatcher_that_maps_pages_for_its_worker() {
    let config = SchedConfig { idle: Idle::BusyPoll, worker_queue: 64, ..SchedConfig::default() };
    // Whether the dispatcher has a CPU while the worker has pages to map is up to the kernel, for one run.
    let mut runs = (0..10).map_while(|_| increments_are_exact(&config, Access::Probe)).peekable();
    if runs.peek().is_none() {
        return;
    }
    assert!(runs.any(|stats| stats.delegated_installs > 0), "the dispatcher never helped");
    let own = SchedConfig { installs: InstallDelegation::Off, ..config };
    assert_eq!(increments_are_exact(&own, Access::Probe).map(|stats| stats.delegated_installs), Some(0));
}

#[test]
fn one_request_at_a_time_still_ends() {
    increments_are_exact(
        &SchedConfig { max_inflight: 1, worker_queue: 1, unithreads: 1, ..SchedConfig::default() },
        Access::Trap,
    );
}

/// Reads pages until told a number that means trouble.
struct Troubled {
    region: Region,
    handled: AtomicU64,
}

impl Handler for Troubled {
    type Request = u64;
    type Reply = Result<u64, PagingError>;

    fn handle(&self, page: u64) -> Self::Reply {
        let value = self.region.read_u64(page * PAGE)?;
        assert!(!page.is_multiple_of(100), "on purpose");
        self.handled.fetch_add(1, Ordering::Relaxed);
        Ok(value)
    }
}

#[test]
fn a_panicking_request_hurts_nobody_else() {
    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    let handler = Arc::new(Troubled { region: far.region(PAGES * PAGE).unwrap(), handled: AtomicU64::new(0) });
    let (mut script, stats) = (Script::new(0..1000), SchedStats::default());
    serve(&SchedConfig::default(), &far, &handler, &mut script, &stats).unwrap();
    assert_eq!((stats.panicked(), handler.handled.load(Ordering::Relaxed)), (10, 990));
}

#[test]
fn requests_that_need_a_dead_node_fail_and_others_go_on() {
    let deadlines = Deadlines { fault: Duration::from_millis(200), attempt: Duration::from_millis(10) };
    let Some((far, control)) = far(Config { deadlines, ..Config::with_local(LOCAL) }) else { return };
    let region = far.region(PAGES * PAGE).unwrap();
    // A busy machine may miss the deadline.
    (0..PAGES).for_each(|page| while region.write_u64(page * PAGE, page + 1).is_err() {});
    control.set_dead(true);
    let handler = Arc::new(Troubled { region, handled: AtomicU64::new(0) });
    let mut script = Script::new((1..PAGES).filter(|page| !page.is_multiple_of(100)).step_by(7));
    serve(&SchedConfig::default(), &far, &handler, &mut script, &SchedStats::default()).unwrap();
    let (mut served, mut failed) = (0, 0);
    for done in &script.replies {
        match &done.outcome {
            Outcome::Reply(Ok(value)) => {
                assert_ne!(*value, 0, "a lost page read as zero");
                served += 1;
            }
            Outcome::Reply(Err(error)) => {
                assert!(error.to_string().contains("emu://"), "{error}");
                failed += 1;
            }
            Outcome::Panicked => panic!("a paging error is not a panic"),
        }
    }
    assert!(served > 0 && failed > 0, "{served} served, {failed} failed");
}

/// A request that waits until `wanted` requests have been started.
struct Gathering {
    started: AtomicU64,
    wanted: u64,
}

impl Handler for Gathering {
    type Request = ();
    type Reply = ();

    fn handle(&self, (): ()) {
        self.started.fetch_add(1, Ordering::Relaxed);
        while self.started.load(Ordering::Relaxed) < self.wanted {
            yield_now();
        }
    }
}

/// A script whose dispatcher sleeps until it is woken, or until it must have been forgotten.
struct SleepsUntilWoken {
    script: Script<(), ()>,
    woken: Arc<AtomicBool>,
    was_forgotten: bool,
}

impl Frontend for SleepsUntilWoken {
    type Request = ();
    type Reply = ();

    fn poll(&mut self, now: Nanos, room: usize, admit: &mut dyn FnMut(())) -> Activity {
        self.script.poll(now, room, admit)
    }

    fn complete(&mut self, now: Nanos, done: Done<()>) {
        self.script.complete(now, done);
    }

    fn wait(&mut self, _timeout: Duration) {
        const FORGOTTEN: Duration = Duration::from_secs(10);
        let begin = std::time::Instant::now();
        while !self.was_forgotten && !self.woken.swap(false, Ordering::AcqRel) {
            std::thread::park_timeout(FORGOTTEN);
            self.was_forgotten = begin.elapsed() >= FORGOTTEN;
        }
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let (thread, woken) = (std::thread::current(), Arc::clone(&self.woken));
        Arc::new(move || {
            woken.store(true, Ordering::Release);
            thread.unpark();
        })
    }

    fn is_finished(&self) -> bool {
        self.script.is_finished()
    }
}

/// No reply wakes the dispatcher here: none comes before it has handed over the last request.
#[test]
fn a_worker_with_room_wakes_a_dispatcher_with_requests() {
    const REQUESTS: usize = 100;
    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    for dispatch in [DispatchPolicy::PageFaultAware, DispatchPolicy::Predicted] {
        let handler = Gathering { started: AtomicU64::new(0), wanted: REQUESTS as u64 };
        let script = Script::new(std::iter::repeat_n((), REQUESTS));
        let mut frontend = SleepsUntilWoken { script, woken: Arc::default(), was_forgotten: false };
        let config =
            SchedConfig { dispatch, worker_queue: 1, idle: Idle::SleepAfter(Duration::ZERO), ..SchedConfig::default() };
        serve(&config, &far, &Arc::new(handler), &mut frontend, &SchedStats::default()).unwrap();
        assert_eq!((frontend.script.replies.len(), frontend.was_forgotten), (REQUESTS, false));
    }
}

struct Timed;

impl Handler for Timed {
    type Request = u32;
    type Reply = ();

    fn handle(&self, yields: u32) {
        (0..yields).for_each(|_| yield_now());
        no_yield(|| std::hint::black_box(yields));
    }
}

#[test]
fn every_request_knows_where_its_time_went() {
    let Some((far, _)) = far(Config::with_local(LOCAL)) else { return };
    let mut script = Script::new(0..200);
    serve(&SchedConfig::default(), &far, &Arc::new(Timed), &mut script, &SchedStats::default()).unwrap();
    for Done { timing: Timing { running_ns, major_faults, minor_faults, .. }, .. } in script.replies {
        assert!(running_ns > 0 && major_faults + minor_faults == 0);
    }
}
