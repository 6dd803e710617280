//! [`Pager`]: what all regions and ports of one far memory share.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use crate::pagetable::State;
use crate::prefetch::Algorithm;
use crate::reclaim::{Policy, Usage};
use crossbeam_utils::CachePadded;
use yonder_guide::MakeGuide;
use yonder_units::Residence;
use yonder_units::{Nanos, PAGE_BYTES, PageId, PageIndex};

use crate::advice::AdvisedOut;
use crate::budget::Budget;
use crate::config::{Config, Reads, Verify};
use crate::error::TooManyPorts;
use crate::forked::Child;
use crate::frames::FramePool;
use crate::guests::GUEST_TOKENS;
use crate::limits::Limits;
use crate::liveness::Liveness;
use crate::machine::Machine;
use crate::port::{GuideOf, Port, Prefetch};
use crate::queue_pair::Module;
use crate::reclaimer::{ReclaimStats, Reclaimer};
use crate::region::RegionCore;
use crate::region_table::RegionTable;

/// Regions of one pager at one time.
pub const REGIONS_MAX: usize = 64;
/// Ports at one time: of workers, and those that guests share.
pub(crate) const PORTS_MAX: usize = 256;
/// Ports that ordinary threads share, each of them [`GUEST_TOKENS`] at a time.
pub(crate) const GUEST_PORTS: usize = 8;
const _: () = assert!(GUEST_PORTS < PORTS_MAX && PORTS_MAX <= u16::MAX as usize);

/// What all regions and ports of one far memory share: see the head of this file.
pub struct Pager<M: Machine> {
    /// Tells pagers apart in thread-local state.
    pub(crate) id: u32,
    pub(crate) config: Config,
    pub(crate) fabric: Arc<M::Fabric>,
    pub(crate) space: M::Space,
    /// Alone in its cache lines, because every fault writes it.
    pub(crate) budget: CachePadded<Budget>,
    pub(crate) frames: FramePool<M>,
    policy: Mutex<Policy>,
    /// What can be changed besides.
    pub(crate) limits: Arc<Limits>,
    pub(crate) advised_out: AdvisedOut,
    /// Looks at the ages of blocks so far.
    pub(crate) looks: AtomicU32,
    /// Pages of all regions. Changed under the policy's lock.
    region_pages: AtomicU64,
    /// Pages whose entry is `Standby`, written or not.
    pub(crate) standby: AtomicU64,
    /// Writes in flight.
    pub(crate) writing: AtomicU64,
    /// Those of them whose page stays on standby: nobody gets a frame by them.
    pub(crate) cleaning: AtomicU64,
    pub(crate) fault_deadline: Nanos,
    pub(crate) attempt_deadline: Nanos,
    reclaimer: CachePadded<Mutex<Reclaimer<M>>>,
    /// Alone in its cache lines, because the reclaimer writes it while faults read what is beside it.
    pub(crate) signals: CachePadded<ReclaimSignals>,
    pub(crate) reclaimed: ReclaimStats,
    /// Local memory of page tables, hashes and frame lists.
    pub(crate) metadata_bytes: AtomicU64,
    pub(crate) reclaimer_thread: OnceLock<M::Thread>,
    pub(crate) settler_thread: OnceLock<M::Thread>,
    /// Held by the thread that settles discards while it has a region.
    pub(crate) settling: Mutex<()>,
    pub(crate) stopping: AtomicBool,
    /// Charged pages above which reclaim should start: the watermark, kept where a glance is one load.
    pub(crate) start_above: AtomicU64,
    /// Most spare frames that count as free, because reads will take them.
    pub(crate) spare_for_reads: AtomicU64,
    /// Whether a fetch has reached its deadline and none has succeeded since: the node is gone.
    node_lost: AtomicBool,
    /// Pages that were lost with their local memory.
    pub(crate) damaged_pages: AtomicU64,
    pub(crate) region_table: RegionTable<M>,
    ports: Box<[OnceLock<Port<M>>]>,
    port_numbers: Mutex<PortNumbers>,
    node: Arc<str>,
    pub(crate) child: Child<M>,
    make_guide: Option<MakeGuide>,
}

/// Numbers of ports that no thread has. Touched where threads are bound and unbound, never by a fault.
struct PortNumbers {
    /// Ports that were made for threads that are gone.
    returned: Vec<u16>,
    /// Numbers without a port.
    unmade: Vec<u16>,
}

/// What the reclaimer, its host and those who wait for it tell one another.
#[derive(Debug, Default)]
pub(crate) struct ReclaimSignals {
    /// CPU time of reclaim in nanoseconds, of its thread and of a host.
    pub(crate) cpu_ns: AtomicU64,
    /// Steps of a host, which runs reclaim instead of the thread while it makes steps; 0 without a host.
    pub(crate) hosted_steps: AtomicU64,
    /// Whether reclaim has started and not reached the upper watermark, or has writes in flight.
    pub(crate) at_work: AtomicBool,
    /// Whether somebody waits for room.
    pub(crate) starved: AtomicBool,
    /// When the reclaimer should look after standby pages, quotas and advice.
    pub(crate) tend_at: AtomicU64,
    /// Threads that wait for the reclaimer: its own thread lets them go first.
    wanted: AtomicU32,
}

impl<M: Machine> Pager<M> {
    /// A pager whose pages are mapped through `space` and come over `fabric`; `make_guide` makes a guide for each port.
    pub fn new(
        config: Config,
        space: M::Space,
        fabric: Arc<M::Fabric>,
        make_guide: Option<MakeGuide>,
    ) -> Result<Self, M::Error> {
        static IDS: AtomicU32 = AtomicU32::new(1);
        let policy = config.policy()?;
        let frames = frames_for(config.local_bytes_max / PAGE_BYTES as u64, config.reads)?;
        let write_back = M::queue_pair(&fabric, Module::WriteBack, frames.mapping())?;
        let node = Arc::from(M::url(&fabric));
        let metadata_bytes = frames.metadata_bytes();
        let fault_deadline = config.deadlines.fault.as_nanos() as Nanos;
        let attempt_deadline =
            if M::loses_operations(&fabric) { config.deadlines.attempt.as_nanos() as Nanos } else { fault_deadline };
        let pager = Self {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            config,
            space,
            budget: CachePadded::new(Budget::new(&policy)),
            frames,
            policy: Mutex::new(policy.for_pages(0)),
            limits: Arc::new(Limits::new(&policy)),
            advised_out: AdvisedOut::default(),
            looks: AtomicU32::new(0),
            region_pages: AtomicU64::new(0),
            standby: AtomicU64::new(0),
            writing: AtomicU64::new(0),
            cleaning: AtomicU64::new(0),
            fault_deadline,
            attempt_deadline,
            reclaimer: CachePadded::new(Mutex::new(Reclaimer::new(write_back))),
            signals: CachePadded::default(),
            reclaimed: ReclaimStats::default(),
            metadata_bytes: AtomicU64::new(metadata_bytes),
            reclaimer_thread: OnceLock::new(),
            settler_thread: OnceLock::new(),
            settling: Mutex::new(()),
            stopping: AtomicBool::new(false),
            start_above: AtomicU64::new(policy.for_pages(0).start_above()),
            spare_for_reads: AtomicU64::new(0),
            node_lost: AtomicBool::new(false),
            damaged_pages: AtomicU64::new(0),
            region_table: RegionTable::new(),
            ports: (0..PORTS_MAX).map(|_| OnceLock::new()).collect(),
            port_numbers: Mutex::new(PortNumbers {
                returned: Vec::new(),
                unmade: (0..PORTS_MAX as u16).rev().collect(),
            }),
            fabric,
            node,
            child: Child::default(),
            make_guide,
        };
        for _ in 0..GUEST_PORTS {
            pager.add_port(GUEST_TOKENS)?;
        }
        Ok(pager)
    }

    /// A port for `tokens` waiters, until [`Pager::return_port`]: one that a thread has given back, or a new one.
    pub fn add_port(&self, tokens: usize) -> Result<u16, M::Error> {
        let numbers = || self.port_numbers.lock().expect("no code panics while it holds the numbers of ports");
        // Taken before the port's lock is waited for: others give ports back meanwhile.
        let returned = numbers().returned.pop();
        if let Some(id) = returned {
            self.port(id).begin(tokens);
            return Ok(id);
        }
        let Some(id) = numbers().unmade.pop() else { return Err(TooManyPorts(PORTS_MAX - GUEST_PORTS).into()) };
        let port = self.make_port(id, tokens).inspect_err(|_| numbers().unmade.push(id))?;
        assert!(self.ports[usize::from(id)].set(port).is_ok(), "port {id} was given out twice");
        Ok(id)
    }

    fn make_port(&self, id: u16, tokens: usize) -> Result<Port<M>, M::Error> {
        let queue = |module| M::queue_pair(&self.fabric, module, self.frames.mapping());
        let prefetch = match self.config.prefetch {
            Algorithm::None if self.make_guide.is_none() => None,
            algorithm => Some(Prefetch { algorithm, queue: queue(Module::Prefetch)? }),
        };
        let guide = match &self.make_guide {
            Some(make) => Some(GuideOf { guide: make(), queue: queue(Module::Guide)? }),
            None => None,
        };
        Ok(Port::new(id, queue(Module::Fault)?, prefetch, guide, tokens))
    }

    /// Takes the port of a thread back, with its queue pairs: the next thread that is bound has them.
    pub fn return_port(&self, id: u16) {
        // A forked child never uses queue pairs, which are its parent's.
        if self.child.is_one() {
            return;
        }
        self.port(id).end(self);
        self.port_numbers.lock().expect("no code panics while it holds the numbers of ports").returned.push(id);
    }

    pub(crate) fn port(&self, id: u16) -> &Port<M> {
        self.ports[usize::from(id)].get().expect("a port is set before its number is known")
    }

    pub(crate) fn ports(&self) -> impl Iterator<Item = &Port<M>> {
        self.ports.iter().filter_map(OnceLock::get)
    }

    /// The memory that pages on standby stand in.
    pub fn frame_memory(&self) -> &M::Memory {
        self.frames.mapping()
    }

    /// What the pager was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Its number among those of the process, by which a thread knows whose worker it is.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The way to far memory.
    pub fn fabric(&self) -> &M::Fabric {
        &self.fabric
    }

    /// The way by which pages are mapped.
    pub fn space(&self) -> &M::Space {
        &self.space
    }

    /// Limit of local memory in pages.
    pub fn limit(&self) -> u64 {
        self.budget.limit()
    }

    /// Fetches in flight on a port.
    pub fn outstanding(&self, port: u16) -> u32 {
        self.port(port).outstanding()
    }

    /// Whether the page at `place` can be had without a fetch now. Never waits.
    #[inline]
    pub fn residence(&self, page_id: PageId) -> Residence {
        self.region_table.residence(page_id)
    }

    /// What `look` makes of the region that `address` is in, and of the offset there; `None` if it is in none. The
    /// region cannot end meanwhile. May wait for a moment.
    pub fn with_region_at<T>(&self, address: usize, look: impl Fn(&RegionCore<M>, u64) -> T) -> Option<T> {
        let in_region = |core: &RegionCore<M>| {
            let offset = address.checked_sub(M::address(&core.mapping))?;
            (offset < M::len(&core.mapping)).then(|| look(core, offset as u64))
        };
        self.region_table.numbers().find_map(|number| self.region_table.with(number, in_region).flatten())
    }

    pub(crate) fn node(&self) -> Arc<str> {
        Arc::clone(&self.node)
    }

    pub(crate) fn verifies(&self) -> bool {
        self.config.verify == Verify::On
    }

    /// Whether all fetches land in frames, because the fabric does not map far memory.
    #[inline]
    pub(crate) fn fetches_into_frames(&self) -> bool {
        M::mapped(&self.fabric).is_none()
    }

    /// Whether pages that are only read stay in the frames in which they arrive. A forked child has what its parent
    /// had, and nothing arrives there.
    #[inline]
    pub(crate) fn keeps_reads_in_frames(&self) -> bool {
        self.config.reads == Reads::InFrames && !self.child.is_one()
    }

    /// Local memory as it is now; who takes it only the reclaimer knows.
    pub(crate) fn usage(&self) -> Usage {
        let (charged, backed) = (self.budget.charged(), self.frames.backed());
        let cleaning = self.cleaning.load(Ordering::Acquire);
        let writing = self.writing.load(Ordering::Acquire).saturating_sub(cleaning);
        Usage {
            charged,
            spare_frames: self.frames.spare(),
            // A page that is rescued while it is written leaves standby but still counts as writing, so this may be
            // too low for the moment of a write, never too high.
            standby: self.standby.load(Ordering::Acquire).saturating_sub(writing),
            writing,
            resident: charged.saturating_sub(backed),
            headroom: self.budget.headroom(),
            ..Usage::default()
        }
    }

    /// The watermarks in force.
    pub(crate) fn policy(&self) -> Policy {
        *self.policy.lock().expect("no code panics while it holds the policy")
    }

    /// Faults and the reclaimer obey `policy` from now on.
    pub(crate) fn set_policy(&self, policy: &Policy) {
        // Under the same lock, so that of two changes at once the budget and the watermarks keep the same one.
        self.change_policy(|current| {
            *current = *policy;
            self.budget.set_policy(policy);
        });
    }

    /// A region of `pages` begins.
    pub(crate) fn cover(&self, pages: u64) {
        self.change_policy(|_| _ = self.region_pages.fetch_add(pages, Ordering::Relaxed));
    }

    /// A region of `pages` has ended.
    pub(crate) fn uncover(&self, pages: u64) {
        self.change_policy(|_| _ = self.region_pages.fetch_sub(pages, Ordering::Relaxed));
    }

    fn change_policy(&self, change: impl FnOnce(&mut Policy)) {
        let mut policy = self.policy.lock().expect("no code panics while it holds the policy");
        change(&mut policy);
        *policy = policy.for_pages(self.region_pages.load(Ordering::Relaxed));
        self.start_above.store(policy.start_above(), Ordering::Relaxed);
    }

    /// How long a fetch that begins now may take. Once the node has let one reach its deadline, later ones only probe
    /// it: requests that need it must not fill the workers, and with them the way of those that do not.
    #[inline]
    pub(crate) fn fault_timeout(&self) -> Nanos {
        if self.node_lost.load(Ordering::Relaxed) {
            self.attempt_deadline.min(self.fault_deadline)
        } else {
            self.fault_deadline
        }
    }

    /// Notes that a fetch has succeeded, or has reached its deadline without an answer of the node.
    #[inline]
    pub(crate) fn set_node_lost(&self, lost: bool) {
        if self.node_lost.load(Ordering::Relaxed) != lost {
            self.node_lost.store(lost, Ordering::Relaxed);
        }
    }

    /// The reclaimer, for a moment: whoever has to wait for the node gives it back meanwhile, or nobody could make
    /// room.
    pub(crate) fn lock_reclaimer(&self) -> MutexGuard<'_, Reclaimer<M>> {
        self.signals.wanted.fetch_add(1, Ordering::AcqRel);
        let guard = M::lock(&self.reclaimer);
        self.signals.wanted.fetch_sub(1, Ordering::AcqRel);
        guard
    }

    /// The reclaimer, if nobody has it and nobody waits for it: for whoever takes it again and again.
    pub(crate) fn try_lock_reclaimer(&self) -> Option<MutexGuard<'_, Reclaimer<M>>> {
        if self.signals.wanted.load(Ordering::Acquire) > 0 {
            return None;
        }
        self.reclaimer.try_lock().ok()
    }

    /// Whether a step of the reclaimer would find something to do. A few loads.
    #[inline]
    pub(crate) fn wants_reclaim(&self, now: Nanos) -> bool {
        now >= self.signals.tend_at.load(Ordering::Relaxed)
            || self.is_above(self.start_above.load(Ordering::Relaxed))
            || self.signals.at_work.load(Ordering::Relaxed)
            || self.signals.starved.load(Ordering::Relaxed)
    }

    /// Whether more pages are charged than `most`, not counting spare frames that are as good as free.
    fn is_above(&self, most: u64) -> bool {
        let excess = self.budget.charged().saturating_sub(most);
        excess > 0 && excess > self.frames.spare().min(self.spare_for_reads.load(Ordering::Relaxed))
    }

    /// Ends the reclaimer's sleep: somebody waits for room.
    pub fn wake_reclaimer(&self) {
        self.signals.starved.store(true, Ordering::Release);
        self.unpark_reclaimer();
    }

    /// Lets the reclaimer look at limits and advice now: something has changed.
    pub fn tend_now(&self) {
        self.signals.tend_at.store(0, Ordering::Release);
        self.unpark_reclaimer();
    }

    /// Ends the reclaimer's sleep: there is something to do.
    pub(crate) fn unpark_reclaimer(&self) {
        if let Some(thread) = self.reclaimer_thread.get() {
            M::unpark(thread);
        }
    }

    /// How many pages may be fetched ahead: up to the middle between where reclaim starts and where faults have to
    /// wait, so that they are not the ones to find local memory full.
    #[inline]
    pub(crate) fn room_ahead(&self) -> u64 {
        let (charged, most) = self.budget.charged_of();
        let margin = most.saturating_sub(self.start_above.load(Ordering::Relaxed)) / 2;
        (most - margin).saturating_sub(charged)
    }

    /// From now on the pages of `region` are kept as `liveness` says.
    pub fn guide_paging(&self, region: &RegionCore<M>, liveness: Arc<dyn Liveness>) {
        let no_sweep = self.lock_reclaimer();
        let before = region.metadata_bytes();
        region.digests.keep_vectors();
        let is_first = region.owner.set(liveness);
        self.metadata_bytes.fetch_add(region.metadata_bytes() - before, Ordering::Relaxed);
        drop(no_sweep);
        assert!(is_first, "the paging of a region is guided by one");
    }

    /// Gives up what was fetched ahead and nobody has touched, of every port that nobody uses now.
    pub(crate) fn drop_ahead(&self, now: Nanos) {
        if self.config.prefetch != Algorithm::None || self.make_guide.is_some() {
            for port in self.ports() {
                if let Some(mut inner) = port.try_lock() {
                    inner.drop_windows(port.turn(self, now));
                }
            }
        }
    }

    /// Gives up the fetch ahead of `page`, whose entry says that `slot` of port `port` has it.
    pub(crate) fn drop_ahead_of(&self, region: &RegionCore<M>, page: PageIndex, port: u16, slot: u16) {
        let own = self.port(port);
        if let Some(mut inner) = own.try_lock()
            && inner.is_ahead(slot)
            && region.table.load(page).state() == (State::Fetching { port, slot })
        {
            inner.drop_unwanted(slot, own.turn(self, M::now()));
        }
    }
}

/// Frames for a limit of `pages`: what may stand, writes in flight, a sweep, and fetches on their way.
fn frames_for<M: Machine>(pages: u64, reads: Reads) -> Result<FramePool<M>, M::Error> {
    let standing = match reads {
        Reads::InFrames => pages,
        Reads::Mapped => pages / 2,
    };
    FramePool::new((standing + 2 * crate::reclaim::RESERVE_PAGES_MAX) as usize)
}
