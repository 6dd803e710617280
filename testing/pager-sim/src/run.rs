//! [`simulate`]: one seed, from its settings to its verdict.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use yonder_guide::MakeGuide;
use yonder_pager::{Config, Deadlines, Pager};
use yonder_simulation::{Counts, Failure, Trace, caught};
use yonder_unithread::{Pool, Resumed, Running, panic_message};
use yonder_units::PAGE_BYTES;

use crate::actors::{self, Common, Own, SEALED_PAGES, Seal, Sealed, SharedObjects, begin_region};
use crate::guide::RandomGuide;
use crate::machine::{Link, Simulated, Space};
use crate::oracle::Oracle;
use crate::program::{At, Region, store};
use crate::sabotage::Sabotage;
use crate::settings::{Ballast, Settings};
use crate::world::{self, World, with};

/// Fibers of a seed at most, and their stacks.
const FIBERS_MAX: usize = 64;
const STACK_BYTES: usize = 128 << 10;

/// Things that a seed does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Count {
    /// Loads whose value was checked.
    Checked,
    /// Stores.
    Stored,
    /// Accesses that failed, as they may.
    Failed,
    /// Operations that the node executed.
    Executed,
    /// Steps.
    Steps,
}

type Job = Option<Box<dyn FnOnce() + Send>>;
type Fibers = Vec<Option<Running<Job>>>;

thread_local! {
    static POOL: RefCell<Pool<Job>> = RefCell::new(new_pool());
}

fn new_pool() -> Pool<Job> {
    Pool::new(FIBERS_MAX, STACK_BYTES).expect("stacks can be mapped")
}

/// Runs one seed, perhaps with something broken on purpose. A panic of the code under test is a failure too.
pub fn simulate(seed: u64, sabotage: Option<Sabotage>, trace: Trace) -> Result<Counts<Count>, Failure> {
    let world = World::new(seed, Settings::of(seed), sabotage, trace);
    world.say(|| format!("{:?}", world.settings));
    crate::memory::begin();
    world::set(Some(world));
    let ended = caught(seed, run);
    if ended.is_err() {
        // What was abandoned keeps its stacks.
        POOL.set(new_pool());
    }
    // What is dropped looks at the world.
    let pager = with(|world| world.oracle.pager.take());
    pager.iter().filter(|_| ended.is_ok()).for_each(|pager| pager.let_go());
    drop(pager);
    let mut counts = Counts::default();
    with(|world| {
        let Oracle { checked, stored, failed, .. } = world.oracle;
        let counted = [(Count::Checked, checked), (Count::Stored, stored), (Count::Failed, failed)];
        let counted = counted.into_iter().chain([(Count::Executed, world.far.executed), (Count::Steps, world.steps)]);
        counted.for_each(|(what, times)| _ = counts.add(what, times));
    });
    world::set(None);
    ended.map(|()| counts)
}

fn run() -> Result<(), String> {
    let settings = with(|world| world.settings.clone());
    let local = |pages: u64| pages * PAGE_BYTES as u64;
    let deadlines = Deadlines {
        fault: Duration::from_nanos(settings.fault_deadline),
        attempt: Duration::from_nanos(settings.attempt_deadline),
    };
    let config = Config {
        local_bytes_max: local(settings.limit_pages_max()),
        deadlines,
        verify: settings.verify,
        prefetch: settings.prefetch,
        reads: settings.reads,
        lends: settings.lends,
        ..Config::with_local(local(settings.limit_pages))
    };
    let make_guide = settings.has_guide.then(|| -> MakeGuide { Arc::new(|| Box::new(RandomGuide)) });
    let mapped = with(|world| settings.is_mapped.then(|| Arc::clone(&world.far.memory)));
    let pager = Pager::<Simulated>::new(config, Space(0), Arc::new(Link { mapped }), make_guide);
    let pager = Arc::new(pager.map_err(|error| format!("no pager: {error}"))?);
    with(|world| world.oracle.pager = Some(Arc::clone(&pager)));
    let mut fibers = Fibers::new();
    let common = Common {
        shared: begin_region(&pager, settings.region_pages() as usize),
        sealed: settings.seals.then(|| Sealed {
            region: begin_region(&pager, SEALED_PAGES as usize),
            is: if settings.seals_late { Seal::ToBe } else { Seal::Done },
        }),
        regions: Arc::default(),
        pager: Arc::clone(&pager),
    };
    if settings.guides {
        pager.guide_paging(&common.shared, Arc::new(SharedObjects));
    }
    // The first thing that runs: memory that stays, so that little is left, and what is sealed.
    let ballast = begin_region(&pager, settings.limit_pages as usize);
    prepare(&mut fibers, &common, &ballast)?;
    start(&mut fibers, &settings, &common);
    schedule(&mut fibers)?;
    if with(|world| world.process) > 0 {
        abandon(fibers);
        return Ok(());
    }
    ballast.unhold(0..settings.ballast().held_blocks);
    pager.end_region(&ballast);
    let audit = pager.audit()?;
    let left = audit.resident + audit.standby + (audit.backed - audit.spare);
    if left > 0 { Err(format!("local memory is left when every region has ended: {audit:?}")) } else { Ok(()) }
}

/// Adds the fiber whose description was added last.
fn add(fibers: &mut Fibers, job: impl FnOnce() + Send + 'static) {
    let job: Job = Some(Box::new(|| {
        if !with(|world| world.is_ending()) {
            job();
        }
    }));
    let unithread = POOL.with_borrow(|pool| pool.take(job)).unwrap_or_else(|_| panic!("more fibers than stacks"));
    fibers.push(Some(unithread.start(|job| (job.take().expect("a fiber runs once"))())));
}

fn prepare(fibers: &mut Fibers, common: &Common, ballast: &Region) -> Result<(), String> {
    let reclaimer = with(|world| {
        world.busy = 1;
        world.is_hostile = false;
        world.add_thread("reclaimer", None)
    });
    common.pager.set_reclaimer_thread(reclaimer);
    let pager = Arc::clone(&common.pager);
    add(fibers, move || actors::reclaimer(&pager));
    with(|world| world.add_thread("first", None));
    let (common, ballast) = (common.clone(), Arc::clone(ballast));
    add(fibers, move || {
        if let Some(sealed) = &common.sealed {
            for page in 0..SEALED_PAGES {
                store(&sealed.region, At { page, word: 0 }).expect("nothing is broken yet");
            }
            if sealed.is == Seal::Done {
                common.pager.seal(&sealed.region).expect("nothing is broken yet");
            }
        }
        // Until the end: it is what other memory of the program would be.
        let Ballast { held, held_blocks, cold } = with(|world| world.settings.ballast());
        let blocks = ballast.hold(0, held as usize * PAGE_BYTES).expect("nothing is broken yet");
        assert_eq!(blocks, 0..held_blocks, "what is not held may leave");
        for page in cold {
            store(&ballast, At { page, word: 0 }).expect("nothing is broken yet");
        }
        with(|world| world.busy -= 1);
    });
    schedule(fibers)
}

/// Adds the threads of the seed.
fn start(fibers: &mut Fibers, settings: &Settings, common: &Common) {
    let owners_and_users = 1 + settings.threads + settings.workers;
    with(|world| {
        world.busy = owners_and_users;
        world.is_hostile = true;
        if let Some(end) = world.settings.lease_end {
            world.far.end_lease(world.now + end);
        }
        // The reclaimer goes on as a new fiber of its thread.
        let fiber = world.fibers.len();
        world.threads[0] = crate::world::Thread { main: fiber, current: fiber, is_over: false, ..world.threads[0] };
        world.fibers.push(crate::world::Fiber { thread: 0, bound: None, no_yield: false });
    });
    let pager = Arc::clone(&common.pager);
    add(fibers, move || actors::reclaimer(&pager));
    let discarder = with(|world| world.add_thread("discarder", None));
    common.pager.set_discarder_thread(discarder);
    let pager = Arc::clone(&common.pager);
    add(fibers, move || actors::discarder(&pager));
    for _ in 0..settings.threads {
        with(|world| world.add_thread("thread", None));
        let common = common.clone();
        add(fibers, move || actors::thread(&common));
    }
    (0..settings.workers).for_each(|_| start_workers(fibers, settings, common));
    if settings.has_host {
        with(|world| world.add_thread("host", None));
        let common = common.clone();
        add(fibers, move || actors::host(&common));
    }
    if settings.has_neighbour {
        with(|world| world.add_thread("neighbour", None));
        add(fibers, actors::neighbour);
    }
    with(|world| world.add_thread("owner", None));
    let mut common = common.clone();
    add(fibers, move || actors::owner(&mut common));
}

/// Adds the thread of one worker after another, and their unithreads.
fn start_workers(fibers: &mut Fibers, settings: &Settings, common: &Common) {
    let thread = with(|world| world.add_thread("worker", None));
    let first = with(|world| world.threads[thread].main) + 1;
    let of_each: Vec<Vec<usize>> = (0..settings.successions)
        .map(|nth| (0..settings.unithreads).map(|at| first + nth * settings.unithreads + at).collect())
        .collect();
    let unithreads = of_each.iter().map(Vec::len).sum::<usize>();
    let worker = common.clone();
    add(fibers, move || actors::workers(&worker, &of_each));
    for token in 0..unithreads as u32 {
        with(|world| world.add_unithread(thread, (u16::MAX, token, world.settings.policy)));
        let (common, mut own, operations) = (common.clone(), Own::begin(common), settings.operations / unithreads + 1);
        add(fibers, move || {
            actors::unithread(&common, &mut own, operations);
            own.end(&common);
        });
    }
}

/// Lets what is left of threads unwind that are not in the process which the seed has followed.
fn abandon(fibers: Fibers) {
    with(World::end);
    for (number, running) in fibers.into_iter().enumerate() {
        let Some(running) = running else { continue };
        with(|world| world.running = number);
        match running.resume() {
            Resumed::Finished(_) | Resumed::Panicked(..) => {}
            Resumed::Suspended(_) => unreachable!("a thread that unwinds does not wait"),
        }
    }
}

/// Lets threads take turns until all are over.
fn schedule(fibers: &mut Fibers) -> Result<(), String> {
    while let Some(picked) = with(World::pick) {
        let running = fibers[picked].take().expect("a fiber that is picked is not over");
        match running.resume() {
            Resumed::Suspended(running) => fibers[picked] = Some(running),
            Resumed::Finished(_) => with(World::ended),
            Resumed::Panicked(_, why) => {
                let told = with(|world| world.violation.take());
                return Err(told.unwrap_or_else(|| panic_message(&*why).to_owned()));
            }
        }
        if let Some(what) = with(|world| world.violation.take()) {
            return Err(what);
        }
    }
    with(|world| world.violation.take()).map_or(Ok(()), Err)
}
