//! [`FarMemory`]: a process's share of one memory node.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use yonder_fabric::Fabric;
use yonder_trap::{REGISTRATIONS_MAX, RegisterError};
use yonder_units::{PAGE_BYTES, pages_for};

use crate::config::Config;
use crate::error::FarError;
use crate::pager::Pager;
use crate::reclaimer::Step;
use crate::region::{Region, RegionCore, RegionFaults};
use crate::stats::Stats;

/// Far memory with a limit of local memory. Cheap to clone; the reclaimer thread ends with the last clone, region and
/// worker port.
#[derive(Clone)]
pub struct FarMemory {
    running: Arc<Running>,
}

/// The pager and its reclaimer thread.
struct Running {
    pager: Arc<Pager>,
    thread: Option<JoinHandle<()>>,
}

impl FarMemory {
    /// Far memory on `fabric`, with its reclaimer thread started.
    pub fn new(fabric: Arc<dyn Fabric>, config: Config) -> Result<Self, FarError> {
        let pager = Arc::new(Pager::new(config, fabric)?);
        let for_thread = Arc::clone(&pager);
        let thread = std::thread::Builder::new().name("yonder-reclaim".into()).spawn(move || reclaim(&for_thread));
        let thread = thread.map_err(FarError::Thread)?;
        let _ = pager.reclaimer_thread.set(thread.thread().clone());
        Ok(Self { running: Arc::new(Running { pager, thread: Some(thread) }) })
    }

    /// A new region of `bytes`, rounded up to pages, that reads as zeros.
    pub fn region(&self, bytes: u64) -> Result<Region, FarError> {
        let pager = self.pager();
        let pages = pages_for(bytes.max(1));
        let remote = pager.fabric.allocate(pages * PAGE_BYTES as u64)?;
        let core = {
            let mut reclaimer = pager.reclaimer.lock().expect("no code panics while it holds the reclaimer");
            let number = reclaimer.regions.iter().position(Option::is_none).unwrap_or(reclaimer.regions.len());
            if number >= REGISTRATIONS_MAX {
                return Err(FarError::Regions(format!("{REGISTRATIONS_MAX} regions exist: use fewer and larger ones")));
            }
            // The seed makes hash collisions unpredictable to whoever chooses the content.
            let seed = RandomState::new().hash_one(number);
            let core = Arc::new(RegionCore::new(Arc::clone(pager), number as u32, pages as usize, remote, seed)?);
            pager.uffd.register(&core.mapping)?;
            if number == reclaimer.regions.len() {
                reclaimer.regions.push(None);
            }
            reclaimer.regions[number] = Some(Arc::clone(&core));
            core
        };
        let faults = Box::new(RegionFaults(Arc::clone(&core)));
        let registration =
            yonder_trap::register(core.mapping.address(), core.mapping.len(), faults).map_err(|error| match error {
                RegisterError::Full => {
                    FarError::Regions(format!("{REGISTRATIONS_MAX} regions exist: use fewer and larger ones"))
                }
                RegisterError::Os(error) => FarError::Regions(format!("the SIGBUS handler was refused: {error}")),
            })?;
        Ok(Region::new(self.clone(), core, registration))
    }

    /// Changes the limit of local memory while it is used, and returns when it holds. `bytes` is at most the
    /// configuration's largest limit.
    pub fn set_local(&self, bytes: u64) -> Result<(), FarError> {
        let pager = self.pager();
        let config = Config { local_bytes: bytes, ..pager.config };
        let policy = config.policy()?;
        *pager.policy.lock().expect("no code panics while it holds the policy") = policy;
        pager.budget.set_policy(&policy);
        let deadline = yonder_clock::now() + pager.fault_deadline;
        while pager.budget.charged() > policy.limit() {
            pager.wake_reclaimer();
            if yonder_clock::now() > deadline {
                return Err(FarError::Limit("the node takes no writes, or pages are held"));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Limit of local memory in bytes.
    #[must_use]
    pub fn local(&self) -> u64 {
        self.pager().budget.limit() * PAGE_BYTES as u64
    }

    /// URL of the fabric.
    #[must_use]
    pub fn url(&self) -> &str {
        self.pager().fabric.url()
    }

    /// Fetches in flight on the port with number `port`.
    #[must_use]
    pub fn outstanding(&self, port: u16) -> u32 {
        self.pager().port(port).outstanding()
    }

    /// Counters and what is now. Takes the reclaimer's lock for a moment.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let pager = self.pager();
        let mut stats = Stats::default();
        for port in pager.ports() {
            port.stats.add_to(&mut stats);
            stats.in_flight += u64::from(port.outstanding());
        }
        let usage = pager.usage();
        stats.charged_pages = usage.charged;
        stats.limit_pages = pager.budget.limit();
        stats.peak_pages = pager.budget.peak();
        stats.resident_pages = usage.resident;
        stats.standby_pages = usage.standby;
        stats.writing_pages = usage.writing;
        let reclaimer = pager.reclaimer.lock().expect("no code panics while it holds the reclaimer");
        stats.swept_pages = reclaimer.stats.swept_pages.get();
        stats.swept_blocks = reclaimer.stats.swept_blocks.get();
        stats.dropped_pages = reclaimer.stats.dropped_pages.get();
        stats.clean_pages = reclaimer.stats.clean_pages.get();
        stats.written_bytes = reclaimer.stats.written_pages.get() * PAGE_BYTES as u64;
        stats.write_retries = reclaimer.stats.write_retries.get();
        stats.metadata_bytes = reclaimer.regions.iter().flatten().map(|core| core.metadata_bytes()).sum();
        drop(reclaimer);
        stats.metadata_bytes += pager.frames.metadata_bytes();
        stats.reclaim_cpu_ns = pager.reclaim_cpu_ns.load(Ordering::Relaxed);
        stats
    }

    pub(crate) fn pager(&self) -> &Arc<Pager> {
        &self.running.pager
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.pager.stopping.store(true, Ordering::Release);
        self.pager.wake_reclaimer();
        if let Some(thread) = self.thread.take() {
            // The last owner can be the reclaimer's own thread only if it held a clone, which it does not.
            let _ = thread.join();
        }
    }
}

/// The reclaimer thread: steps while there is work, sleeps while there is none.
fn reclaim(pager: &Pager) {
    /// Steps between two readings of the thread's CPU time.
    const CPU_TIME_EVERY: u32 = 64;
    if let Some(cpu) = pager.config.reclaimer_cpu {
        pin(cpu);
    }
    let mut steps = 0u32;
    while !pager.stopping.load(Ordering::Acquire) {
        let step = {
            let mut reclaimer = pager.reclaimer.lock().expect("no code panics while it holds the reclaimer");
            reclaimer.step(pager, yonder_clock::now())
        };
        steps = steps.wrapping_add(1);
        if steps.is_multiple_of(CPU_TIME_EVERY) || !matches!(step, Step::Worked) {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            pager.reclaim_cpu_ns.store(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64, Ordering::Relaxed);
        }
        match step {
            Step::Worked => {}
            Step::Waiting => std::thread::yield_now(),
            Step::Idle(time) => std::thread::park_timeout(time.max(Duration::from_micros(1))),
        }
    }
}

/// Pins the calling thread. A CPU that is not there leaves the thread where it is.
fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!(%error, cpu, "the reclaimer is not pinned");
    }
}
