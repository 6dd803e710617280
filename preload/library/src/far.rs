//! [`Far`]: the far memory of this process, and when it begins to be used.
//!
//! A process is left alone until it has asked for [`ENOUGH_BYTES`]: the many small programs that a program starts have
//! nothing to gain, and would pay for a reclaimer thread and a connection each. From then on whatever its code
//! allocates is far; what it has before stays where it is. Threads that ask while it is made wait for it, or they would
//! keep locally what they ask for meanwhile: a short program all of its memory.
//!
//! A program with an allocator of its own may be in the locks of that whenever it maps memory, and to make threads
//! takes the same locks. A thread that waits for it begins there, and what is mapped meanwhile stays where it is.
//!
//! Who touches what: [`FAR`] is set once, by the thread that has won [`STAGE`]; everything in a [`Far`] is shared.
//!
//! UNSAFETY: a pointer that is set once, a word that threads wait at, whether a thread can be cancelled, and a
//! descriptor that a child has of its parent.

use std::cell::Cell;
use std::ffi::c_int;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use yonder_control::{ControlServer, FarControl};
use yonder_fabric::{likely_page_cost, page_deadline};
use yonder_guide::MakeGuide;
use yonder_paging::far_heap::{FarHeap, NoHandlers, Uninterrupted};
use yonder_paging::{Config, Delivery, Effort, FarMemory, Reads, Region, know_traps};
use yonder_plugin::Loaded;
use yonder_preload_protocol::{
    Faults, Figures, ProcessSlot, Settings, SharedStats, Space, Transfer, WINDOW, pid_namespace,
};

use crate::bounce::Bounces;
use crate::held::HeldPages;
use crate::libc_own::{errno, pthread_setcancelstate, set_errno};
use crate::recorded::{self, Recorded};
use crate::{auto, callers, complain, ending, malloc, mapped, reserved, signals};

/// Bytes that a process allocates before its memory becomes far.
const ENOUGH_BYTES: u64 = 4 << 20;
/// How long a thread waits for far memory that another one makes. Who waits may hold a lock of the dynamic linker, in
/// the constructor of a library, and who makes may need it.
const MAKING_TIME: Duration = Duration::from_secs(3);
/// How often the figures of this process are put up.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);

/// The far memory of this process.
pub(crate) struct Far {
    pub(crate) heap: FarHeap,
    pub(crate) bounces: Bounces,
    pub(crate) held: HeldPages,
    place: Option<ProcessSlot>,
    recorded: Option<Recorded>,
    control: Option<ControlServer>,
    /// See [`Far::peak_bytes`].
    peak_bytes: AtomicU64,
    local_over_time: OverTime,
    /// Whether this is a forked child, whose figures are nobody's.
    forked: AtomicBool,
    pub(crate) calls: Calls,
}

/// System calls on far memory.
#[derive(Default)]
pub(crate) struct Calls {
    pub(crate) all: AtomicU64,
    pub(crate) trapped: AtomicU64,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();
static FAR: AtomicPtr<Far> = AtomicPtr::new(std::ptr::null_mut());
static ASKED: AtomicU64 = AtomicU64::new(0);
static STAGE: AtomicU32 = AtomicU32::new(OFF);
/// Whether the program's threads must not begin, nor the starter while it is made.
static STARTS_ELSEWHERE: AtomicBool = AtomicBool::new(false);
/// The thread that begins then.
static STARTER: OnceLock<Thread> = OnceLock::new();
/// The process whose thread makes the far memory. A child that was forked meanwhile has no such thread.
static MAKER_PROCESS: AtomicU32 = AtomicU32::new(0);
/// Whether a thread has waited in vain: then none waits any more.
static WAITED_IN_VAIN: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread makes the far memory, and must not wait for it.
    static MAKES: Cell<bool> = const { Cell::new(false) };
}

/// This process is none of a run, or is not ready yet.
const OFF: u32 = 0;
/// It has not asked for much memory yet.
const SMALL: u32 = 1;
/// A thread is making its far memory.
const STARTING: u32 = 2;
/// Its memory is far.
const STARTED: u32 = 3;

/// From now on memory becomes far once there is enough of it.
pub(crate) fn arm(settings: Settings) {
    if SETTINGS.set(settings).is_ok() {
        STARTS_ELSEWHERE.store(malloc::is_another(), Ordering::Relaxed);
        STAGE.store(SMALL, Ordering::Release);
        if STARTS_ELSEWHERE.load(Ordering::Relaxed) {
            yonder_trap::hold_back(spawn_starter);
        }
    }
}

fn spawn_starter() {
    let begin = || {
        while ASKED.load(Ordering::Relaxed) < ENOUGH_BYTES {
            std::thread::park();
        }
        start();
    };
    match std::thread::Builder::new().name("yonder-starter".into()).spawn(begin) {
        Ok(starter) => {
            let _ = STARTER.set(starter.thread().clone());
            // Enough may have been asked for before anybody could wake it.
            starter.thread().unpark();
        }
        Err(error) => {
            complain(&format!("no thread can be made, so memory stays local: {error}"));
            STAGE.store(OFF, Ordering::Release);
        }
    }
}

/// The far memory of this process, if it has any.
#[inline]
pub(crate) fn far() -> Option<&'static Far> {
    // SAFETY: null, or from `Box::into_raw` and never freed: threads can touch far memory until the process has ended.
    unsafe { FAR.load(Ordering::Acquire).as_ref() }
}

/// This process is a forked child, and when its parent was about to fork it had no far memory: what another thread has
/// made since is not this process's, and what one was making will never be made here.
pub(crate) fn has_none() {
    if matches!(STAGE.load(Ordering::Acquire), STARTING | STARTED) {
        STAGE.store(OFF, Ordering::Release);
        FAR.store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// The far memory of this process for an allocation of `bytes`, which it may be the one to begin with.
#[inline]
pub(crate) fn far_for(bytes: usize) -> Option<&'static Far> {
    match STAGE.load(Ordering::Relaxed) {
        STARTED => far(),
        SMALL => {
            let asked = ASKED.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
            if asked < ENOUGH_BYTES {
                return None;
            }
            if STARTS_ELSEWHERE.load(Ordering::Relaxed) {
                STARTER.get().into_iter().for_each(Thread::unpark);
                return None;
            }
            start()
        }
        STARTING => when_made(),
        _ => None,
    }
}

/// The far memory that another thread makes, once it is there.
#[cold]
fn when_made() -> Option<&'static Far> {
    let must_not_wait = STARTS_ELSEWHERE.load(Ordering::Relaxed)
        || MAKES.get()
        || WAITED_IN_VAIN.load(Ordering::Relaxed)
        || MAKER_PROCESS.load(Ordering::Relaxed) != std::process::id();
    if must_not_wait {
        return None;
    }
    let begun = Instant::now();
    while STAGE.load(Ordering::Acquire) == STARTING {
        let Some(left) = MAKING_TIME.checked_sub(begun.elapsed()) else {
            if !WAITED_IN_VAIN.swap(true, Ordering::Relaxed) {
                complain("what the program asks for while its far memory is made stays local: that takes too long");
            }
            return None;
        };
        wait_while_starting(left);
    }
    far()
}

/// Waits while far memory is being made, at most for so long. By the system call: where the C library waits, a thread
/// can be cancelled, and programs allocate where none can.
fn wait_while_starting(most: Duration) {
    let timeout = libc::timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let error = errno();
    // SAFETY: the word lives for ever, and the time as long as the call.
    unsafe { libc::syscall(libc::SYS_futex, STAGE.as_ptr(), operation, STARTING, &raw const timeout) };
    set_errno(error);
}

/// Far memory is made: all who wait for it have it.
fn hand_over(new: Far) {
    FAR.store(Box::into_raw(Box::new(new)), Ordering::Release);
    STAGE.store(STARTED, Ordering::Release);
    // SAFETY: the word lives for ever.
    unsafe { libc::syscall(libc::SYS_futex, STAGE.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, c_int::MAX) };
}

/// Whether an address is of far memory.
#[inline]
pub(crate) fn is_far(address: usize) -> bool {
    WINDOW.contains(&address)
}

#[cold]
fn start() -> Option<&'static Far> {
    // A thread that is cancelled makes nothing.
    uncancelled(begin)
}

fn begin() -> Option<&'static Far> {
    // A handler of a signal may wait for a thread that waits for this one.
    if !yonder_trap::hold_back(make) {
        return when_made();
    }
    let settings = SETTINGS.get().expect("armed with settings");
    yonder_trap::hold_back(spawn_publisher);
    if let Some(slowdown) = settings.slowdown {
        let page_cost = likely_page_cost(&settings.far);
        yonder_trap::hold_back(|| auto::begin(slowdown, page_cost));
    }
    far()
}

/// Makes the far memory of this process, unless another thread does or has done. Whether this one did.
fn make() -> bool {
    MAKER_PROCESS.store(std::process::id(), Ordering::Relaxed);
    if STAGE.compare_exchange(SMALL, STARTING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return false;
    }
    MAKES.set(true);
    match Far::new(SETTINGS.get().expect("armed with settings")) {
        Ok(new) => {
            if STARTS_ELSEWHERE.load(Ordering::Relaxed) {
                // What the program's allocator gives these threads as they begin is local then. This thread has none
                // of its locks.
                new.region().far().await_threads();
            }
            hand_over(new);
        }
        Err(error) => {
            complain(&error);
            // SAFETY: ends the process without running code that would allocate.
            unsafe { libc::_exit(1) }
        }
    }
    MAKES.set(false);
    true
}

/// Runs `code`; this thread is cancelled afterwards if it is to be.
fn uncancelled<T>(code: impl FnOnce() -> T) -> T {
    const DISABLED: c_int = 1;
    let mut before = 0;
    // SAFETY: both states are the calling thread's, and the place for the one before is a local.
    unsafe { pthread_setcancelstate(DISABLED, &raw mut before) };
    let result = code();
    // SAFETY: likewise.
    unsafe { pthread_setcancelstate(before, &raw mut before) };
    result
}

impl Far {
    fn new(settings: &Settings) -> Result<Self, String> {
        yonder_trap::hold_signals();
        ending::with_own_filter(signals::answer_system_calls)
            .map_err(|error| format!("system calls cannot be filtered: {error}"))?;
        let delivery = match settings.faults {
            Faults::Inline => Delivery::Signal,
            Faults::Monitor => Delivery::Messages,
        };
        // A program touches its memory by pointer: nothing would ever stay in a frame.
        let (prefetch, reads) = (settings.prefetch, Reads::Mapped);
        // What is lent is touched unseen.
        let lends = settings.trace.is_none() && settings.sample.is_none();
        let mut config = Config { prefetch, reads, delivery, lends, ..Config::with_local(settings.local_bytes) };
        if settings.slowdown.is_some() {
            config.frames_max = auto::frames(settings.local_bytes);
        }
        config.deadlines.fault = page_deadline(&settings.far);
        let guide = settings.guide.as_deref().map(open_guide).transpose()?;
        let far = FarMemory::open_guided(&settings.far, config, guide).map_err(|error| error.to_string())?;
        let region = far.region_at(WINDOW.start, settings.memory_bytes).map_err(|error| error.to_string())?;
        let held_back: Uninterrupted = |code| yonder_trap::hold_back(code);
        let no_handlers = NoHandlers { in_changes: held_back, in_discards: held_back };
        let heap = FarHeap::without_handlers(region, no_handlers);
        if settings.transfer == Transfer::Live {
            heap.guide_paging();
        }
        let place = SharedStats::open(&settings.board).ok().and_then(SharedStats::take_slot);
        // Now, and not with the first figures: who looks at this process takes what is not told of for the program's.
        place.iter().for_each(|place| {
            tell_process(place);
            place.publish(&Figures { processes: 1, ..Figures::default() });
        });
        if let (Some(place), Some(space), Some(namespace)) = (&place, heap.region().far().space(), pid_namespace()) {
            // Whoever has started the run gives the memory back when this process is gone.
            let process = std::process::id();
            place.tell_space(Space { process, namespace, number: space.pid, capability: space.capability });
        }
        let recorded = place.as_ref().and_then(|place| recorded::observe(heap.region(), settings, place, complain));
        let control = settings
            .control
            .as_deref()
            .and_then(|folder| listen(folder, heap.region().far(), settings.slowdown.is_some()));
        let bounces = Bounces::new().map_err(|error| error.to_string())?;
        let held = HeldPages::none_of(heap.region().bytes()).map_err(|error| error.to_string())?;
        let (peak_bytes, forked, calls) = (AtomicU64::new(0), AtomicBool::new(false), Calls::default());
        let local_over_time = OverTime::default();
        Ok(Self { heap, bounces, held, place, recorded, control, peak_bytes, local_over_time, forked, calls })
    }

    /// The region whose bytes the heap gives out.
    #[inline]
    pub(crate) fn region(&self) -> &Region {
        self.heap.region()
    }

    /// Offset in the region of an address in the window; `None` behind the region's end.
    #[inline]
    pub(crate) fn offset(&self, address: usize) -> Option<u64> {
        let offset = address.wrapping_sub(WINDOW.start) as u64;
        (offset < self.region().bytes()).then_some(offset)
    }

    /// Whether this process is a forked child, and the far memory its parent's.
    pub(crate) fn is_of_parent(&self) -> bool {
        self.forked.load(Ordering::Relaxed)
    }

    /// This process is a forked child: its parent's place on the board is not its own, nor are its parent's settings.
    pub(crate) fn is_child(&self) {
        self.forked.store(true, Ordering::Relaxed);
        if let Some(descriptor) = self.control.as_ref().and_then(ControlServer::descriptor) {
            // SAFETY: it is the server's, whose thread is not in this process; from here the server knows that it is
            // gone.
            let _ = unsafe { libc::close(descriptor) };
        }
    }

    /// The process ends: puts its last figures up, and cannot be asked any more.
    pub(crate) fn ends(&self) {
        self.publish();
        if let Some(control) = &self.control {
            control.remove_socket();
        }
    }

    /// Most far memory in use at a time so far. What is reserved is not in use, and how much of it was at each moment
    /// is only known for moments like this one.
    fn peak_bytes(&self) -> u64 {
        let seen = if reserved::reserves() {
            mapped::in_use(|| self.heap.usage().used_bytes)
        } else {
            self.heap.usage().peak_bytes
        };
        self.peak_bytes.fetch_max(seen, Ordering::Relaxed).max(seen)
    }

    /// Puts the figures of now where `yonder run` sees them.
    pub(crate) fn publish(&self) {
        let Some(place) = self.place.as_ref().filter(|_| !self.forked.load(Ordering::Relaxed)) else { return };
        let stats = self.region().far().stats();
        let Effort { worked, stalled, .. } = Effort::of(&stats);
        place.publish(&Figures {
            processes: 1,
            major_faults: stats.major_faults,
            minor_faults: stats.minor_faults,
            fetched_bytes: stats.fetched_bytes,
            written_bytes: stats.written_bytes,
            peak_local_bytes: stats.peak_pages * yonder_units::PAGE_BYTES as u64,
            waited_ns: stats.stages.total.sum(),
            trapped_calls: self.calls.trapped.load(Ordering::Relaxed),
            far_calls: self.calls.all.load(Ordering::Relaxed),
            saved_bytes: stats.saved_fetch_bytes + stats.saved_written_bytes,
            peak_far_bytes: self.peak_bytes(),
            local_byte_ms: self.local_over_time.add(stats.charged_pages * yonder_units::PAGE_BYTES as u64),
            worked_ns: worked,
            stalled_ns: stalled,
        });
        tell_process(place);
        if let Some(recorded) = &self.recorded {
            recorded.look_for_code();
        }
    }
}

/// How much there was of something, over time.
struct OverTime {
    /// When the process's memory became far.
    began: Instant,
    /// Until when it is summed up, in milliseconds.
    until_ms: AtomicU64,
    sum: AtomicU64,
}

impl Default for OverTime {
    fn default() -> Self {
        Self { began: Instant::now(), until_ms: AtomicU64::new(0), sum: AtomicU64::new(0) }
    }
}

impl OverTime {
    /// There have been so many since the last call: their number times milliseconds, up to now.
    fn add(&self, number: u64) -> u64 {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let passed = now.saturating_sub(self.until_ms.fetch_max(now, Ordering::Relaxed));
        let more = number * passed;
        self.sum.fetch_add(more, Ordering::Relaxed) + more
    }
}

/// Tells which process this is, and what of its memory is not the program's.
fn tell_process(place: &ProcessSlot) {
    let own = yonder_mapping::ranges().filter(|range| !WINDOW.contains(&range.start));
    place.tell_process(own.map(|range| range.start as u64..range.end as u64));
}

/// Lets `yonder ctl` ask this process. If it cannot, that is all that is wrong.
fn listen(folder: &Path, far: &FarMemory, finds_out: bool) -> Option<ControlServer> {
    let server = ControlServer::start(folder, Arc::new(FarControl::new(far.clone()).that_finds_out(finds_out)));
    server.inspect_err(|error| complain(&format!("yonder ctl will not find this process: {error}"))).ok()
}

/// Loads the guide, whose code gets local memory, now and whenever it asks for any.
fn open_guide(path: &Path) -> Result<MakeGuide, String> {
    let guide = Loaded::open(path).map_err(|error| error.to_string())?;
    callers::add_guide(guide.address());
    Ok(guide.maker())
}

fn spawn_publisher() {
    let publish = || {
        loop {
            std::thread::sleep(PUBLISH_EVERY);
            if let Some(far) = far() {
                know_traps(far.region().far());
                far.publish();
            }
            ending::end_if_nobody_is_left();
        }
    };
    // Without it the figures are put up at the end only.
    let _ = std::thread::Builder::new().name("yonder-figures".into()).spawn(publish);
}
