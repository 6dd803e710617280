//! [`FarMemory`]: a process's share of one memory node.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rand::TryRngCore as _;
use rand::rngs::OsRng;
use yonder_fabric::{Credentials, Fabric};
use yonder_guide::MakeGuide;
use yonder_mapping::Mapping;
use yonder_pager::pagetable::{HASH_KEY_BYTES, PageHasher};
use yonder_pager::{Config, Delivery, REGIONS_MAX, ReclaimTurn, ReclaimTurns, RemoteAddress, Residence, Stats};
use yonder_trap::RegisterError;
use yonder_units::{Nanos, Narrow, PAGE_BYTES, PageId, pages_for, saturating_nanos};

use crate::error::FarError;
use crate::install_delegate::InstallDelegate;
use crate::kernel::{Pager, RegionCore, Tuning, open_space};
use crate::monitor::{MONITORS, monitor};
use crate::pin::pin_this_thread;
use crate::region::Region;

/// Far memory with a limit of local memory. Cheap to clone; the reclaimer thread ends with the last clone, region and
/// worker port.
#[derive(Clone)]
pub struct FarMemory {
    running: Arc<Running>,
}

/// The pager and its reclaimer thread.
struct Running {
    pager: Arc<Pager>,
    /// The reclaimer, the thread that confirms discards, and monitors if there are any.
    threads: Vec<JoinHandle<()>>,
    /// How many of them have begun.
    begun: Arc<Begun>,
    delivery: Delivery,
}

/// Counts threads that have begun.
#[derive(Default)]
struct Begun {
    count: Mutex<usize>,
    changed: Condvar,
}

impl Begun {
    fn add(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    fn wait_for(&self, threads: usize) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(count, |count| *count < threads));
    }
}

impl FarMemory {
    /// Far memory on `fabric`, with its reclaimer thread started.
    pub fn new(fabric: Arc<dyn Fabric>, config: Config) -> Result<Self, FarError> {
        Self::start(fabric, config, None)
    }

    /// As [`FarMemory::open`], and a guide is told of touches and fetches ahead what it knows will be touched: `guide`
    /// makes one for each port. What a guide knows nothing of is left to the configuration's prefetcher.
    pub fn open_guided(url: &str, config: Config, guide: Option<MakeGuide>) -> Result<Self, FarError> {
        Self::start(yonder_fabric::open(url)?, config, guide)
    }

    fn start(fabric: Arc<dyn Fabric>, config: Config, guide: Option<MakeGuide>) -> Result<Self, FarError> {
        let pager = Arc::new(Pager::new(config, open_space(config.delivery)?, fabric, guide)?);
        let begun = Arc::<Begun>::default();
        let start = |name: &str, run: fn(&Pager)| {
            let (pager, begun) = (Arc::clone(&pager), Arc::clone(&begun));
            let run = move || {
                begun.add();
                run(&pager);
            };
            std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(FarError::Thread)
        };
        let thread = start("yonder-reclaim", reclaim)?;
        pager.set_reclaimer_thread(thread.thread().clone());
        // From here a refusal ends the threads that have been started.
        let mut running = Running {
            pager: Arc::clone(&pager),
            threads: vec![thread],
            begun: Arc::clone(&begun),
            delivery: config.delivery,
        };
        running.threads.push(start("yonder-discard", confirm_discards)?);
        running.pager.set_discarder_thread(running.threads[1].thread().clone());
        if config.delivery != Delivery::Signal {
            for _ in 0..MONITORS {
                running.threads.push(start("yonder-monitor", monitor)?);
            }
        }
        Ok(Self { running: Arc::new(running) })
    }

    /// Far memory on the fabric that `url` names, with its reclaimer thread started.
    pub fn open(url: &str, config: Config) -> Result<Self, FarError> {
        Self::new(yonder_fabric::open(url)?, config)
    }

    /// Waits until the threads of far memory run. A thread that begins allocates, as the C library does for it: where
    /// what a program allocates becomes far, it must not yet be far then, for the thread may be the one that makes
    /// room for it.
    pub fn await_threads(&self) {
        self.running.begun.wait_for(self.running.threads.len());
    }

    /// A new region of `bytes`, rounded up to pages, that reads as zeros.
    pub fn region(&self, bytes: u64) -> Result<Region, FarError> {
        self.region_of(Mapping::region(pages_for(bytes.max(1)).narrow_usize() * PAGE_BYTES)?, own_hasher()?)
    }

    /// As [`FarMemory::region`], at `address`, a multiple of a block where nothing is mapped: for whoever has to tell
    /// far memory from other memory by its address.
    pub fn region_at(&self, address: usize, bytes: u64) -> Result<Region, FarError> {
        self.region_of(Mapping::region_at(address, pages_for(bytes.max(1)).narrow_usize() * PAGE_BYTES)?, own_hasher()?)
    }

    /// The region of `mapping`, whose pages are told apart by `hasher`.
    pub(crate) fn region_of(&self, mapping: Mapping, hasher: PageHasher) -> Result<Region, FarError> {
        let remote = self.pager().fabric().allocate(mapping.len() as u64)?;
        let core = self.add_region(mapping, remote, hasher).inspect_err(|_| {
            if let Err(error) = self.pager().fabric().release(remote) {
                tracing::warn!(%error, "the node did not take back the memory of a region that was refused");
            }
        })?;
        // From here a refusal drops the region, which gives everything back.
        let mut region = Region::new(self.clone(), core);
        region.handle_faults().map_err(|error| match error {
            RegisterError::Full => too_many_regions(),
            RegisterError::Os(error) => FarError::Regions(format!("the SIGBUS handler was refused: {error}")),
        })?;
        Ok(region)
    }

    fn add_region(
        &self,
        mapping: Mapping,
        remote: RemoteAddress,
        hasher: PageHasher,
    ) -> Result<Arc<RegionCore>, FarError> {
        self.pager().begin_region(mapping, remote, hasher)?.ok_or_else(too_many_regions)
    }

    /// Changes the limit of local memory while it is used, and returns when it holds. `bytes` is at most the
    /// configuration's largest limit.
    pub fn set_local(&self, bytes: u64) -> Result<(), FarError> {
        let pager = self.pager();
        let config = Config { local_bytes: bytes, ..*pager.config() };
        if pager.set_limit(&config.policy()?) {
            Ok(())
        } else {
            Err(FarError::Limit("the node takes no writes, or pages are held"))
        }
    }

    /// Takes reclaim over from its thread: for a thread that spins anyway and shares its CPU with the reclaimer, which
    /// could run only when the kernel's scheduler lets it. If the host makes no steps for a while, the thread does.
    #[must_use]
    pub fn host_reclaim(&self) -> ReclaimHost {
        self.pager().begin_hosting();
        ReclaimHost { far: self.clone(), next_look: 0 }
    }

    /// Makes installs for the worker whose port has number `port`: for a thread that has time while the worker has
    /// none.
    #[must_use]
    pub fn help_install(&self, port: u16) -> InstallDelegate {
        InstallDelegate::new(self.clone(), port)
    }

    /// Limit of local memory in bytes.
    #[must_use]
    pub fn local(&self) -> u64 {
        self.pager().limit() * PAGE_BYTES as u64
    }

    /// The largest limit of local memory that may be set, in bytes.
    #[must_use]
    pub fn local_max(&self) -> u64 {
        self.pager().config().local_bytes_max
    }

    /// URL of the fabric.
    #[must_use]
    pub fn url(&self) -> &str {
        self.pager().fabric().url()
    }

    /// What the fabric has counted since it was opened, such as `wire_sent_bytes` and `wire_received_bytes` where there
    /// is a network.
    #[must_use]
    pub fn counters(&self) -> Vec<yonder_fabric::Counter> {
        self.pager().fabric().counters()
    }

    /// The address space on the node that the memory is in, if there is a node: for whoever ends it when this process
    /// is gone.
    #[must_use]
    pub fn space(&self) -> Option<Credentials> {
        self.pager().fabric().space()
    }

    /// Fetches in flight on the port with number `port`.
    #[must_use]
    pub fn outstanding(&self, port: u16) -> u32 {
        self.pager().outstanding(port)
    }

    /// Whether the page at `place`, where a fault was once, can be had without a fetch now. Never waits.
    #[inline]
    #[must_use]
    pub fn residence(&self, place: PageId) -> Residence {
        self.pager().residence(place)
    }

    /// What can be changed and seen while far memory is used. Does not keep it alive.
    #[must_use]
    pub fn tuning(&self) -> Tuning {
        self.pager().tuning()
    }

    /// Counters and what is now. Never waits.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.pager().stats()
    }

    /// Whether threads of their own handle its faults.
    pub(crate) fn has_monitors(&self) -> bool {
        self.running.delivery != Delivery::Signal
    }

    pub(crate) fn pager(&self) -> &Arc<Pager> {
        &self.running.pager
    }
}

/// A hasher of pages with a key of its own, all of it from the operating system: which contents collide is known to
/// none who chooses contents.
fn own_hasher() -> Result<PageHasher, FarError> {
    let mut key = [0; HASH_KEY_BYTES];
    let drawn = OsRng.try_fill_bytes(&mut key);
    drawn.map_err(|error| FarError::Regions(format!("no random key can be had: {error}")))?;
    Ok(PageHasher::new(&key))
}

fn too_many_regions() -> FarError {
    FarError::Regions(format!("{REGIONS_MAX} regions exist: use fewer and larger ones"))
}

impl Drop for Running {
    fn drop(&mut self) {
        self.pager.end_threads();
        for thread in self.threads.drain(..) {
            // The last owner could be one of these threads only if it held a clone, which none does.
            let _ = thread.join();
        }
    }
}

/// A thread that makes the reclaimer's steps. See [`FarMemory::host_reclaim`].
pub struct ReclaimHost {
    far: FarMemory,
    next_look: Nanos,
}

/// Time between two looks of a host at whether there is something to do. Every look takes the counter of local memory
/// away from the workers' caches, and a worker takes a page every few microseconds.
const LOOK_EVERY: Nanos = 2_000;

impl ReclaimHost {
    /// Makes one bounded step if there is something to do; costs little if not. Returns whether it did anything.
    #[inline]
    pub fn step(&mut self, now: Nanos) -> bool {
        if now < self.next_look {
            return false;
        }
        self.next_look = now + LOOK_EVERY;
        let worked = self.far.pager().reclaim_as_host(now);
        if worked {
            self.next_look = 0;
        }
        worked
    }
}

impl Drop for ReclaimHost {
    fn drop(&mut self) {
        self.far.pager().end_hosting();
    }
}

/// The reclaimer thread: steps while there is work, sleeps while there is none or a host does it.
fn reclaim(pager: &Pager) {
    if let Some(cpu) = pager.config().reclaimer_cpu {
        pin_this_thread(cpu);
    }
    let (mut cpu_before, mut turns) = (cpu_time(), ReclaimTurns::default());
    while !pager.is_ending() {
        let turn = turns.take(pager);
        if turn != ReclaimTurn::Yield {
            let cpu = cpu_time();
            pager.count_reclaim_cpu(cpu - cpu_before);
            cpu_before = cpu;
        }
        match turn {
            ReclaimTurn::Again => {}
            ReclaimTurn::Yield => std::thread::yield_now(),
            ReclaimTurn::Sleep(time) => std::thread::park_timeout(time),
        }
    }
}

/// The thread that confirms discards: asks again while something is unconfirmed, sleeps otherwise.
fn confirm_discards(pager: &Pager) {
    while !pager.is_ending() {
        match pager.discard_turn() {
            Some(pause) => std::thread::park_timeout(pause),
            None => std::thread::park(),
        }
    }
}

/// CPU time of the calling thread in nanoseconds.
fn cpu_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).map_or(0, saturating_nanos)
}
