//! [`Pager`]: what all regions and ports of one far memory share.
//!
//! Its parts are apart by who may touch them, which each says itself: `local_memory` is what every fault writes,
//! `reclaim_state` what who reclaims does, `watermarks` what changes under the policy's lock, `ports` what threads are
//! bound to, `node_state` what is known of the node, `threads` the pager's own.

mod local_memory;
mod node_state;
mod ports;
mod reclaim_state;
mod threads;
mod watermarks;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard};

use yonder_guide::MakeGuide;
use yonder_units::{Nanos, PageId, Residence};

use crate::advice::AdvisedOut;
use crate::config::{Config, Reads, Verify};
use crate::forked::Child;
use crate::guests::GUEST_TOKENS;
use crate::limits::Limits;
use crate::liveness::Liveness;
use crate::loans::Loans;
use crate::machine::Machine;
use crate::queue_pair::Module;
use crate::reclaim::Policy;
use crate::reclaimer::Reclaimer;
use crate::region::RegionCore;
use crate::region_table::RegionTable;
use crate::stalls::Stalls;

use local_memory::LocalMemory;
use node_state::NodeState;
pub(crate) use ports::GUEST_PORTS;
use ports::Ports;
use reclaim_state::ReclaimState;
use threads::Threads;
use watermarks::Watermarks;

/// Regions of one pager at one time.
pub const REGIONS_MAX: usize = 64;

/// What all regions and ports of one far memory share: see the head of this file.
///
/// A pager has no threads and reads no clock but its [`Machine`]'s. Threads call methods of six kinds:
///
/// - **Faults**: [`RegionCore::bring`], [`RegionCore::look`] and [`RegionCore::hold`], and in the handler of a fault
///   [`RegionCore::bring_for_fault`] and [`RegionCore::find_damage`]. They return when the page is there, or when it
///   cannot be had. But for `hold` it may leave again at once: the caller repeats its access. A thread that is not a
///   worker waits inline. A unithread of a worker is parked by [`Machine::suspend`] meanwhile, unless its policy or a
///   no-yield section forbids it.
/// - **Workers**: a thread binds itself with [`add_port`](Self::add_port), and calls
///   [`poll_worker`](Self::poll_worker) at each turn of its scheduler. It resumes each unithread that this names, in
///   `ready` or in `retry`, once; a unithread that is parked by a fault is resumed by nothing else. A worker with
///   nothing to run goes on polling, with [`PollMode::ALL`](crate::PollMode::ALL), as long as a unithread of its own is
///   parked: what it has posted is sent, repeated and seen to arrive by its polls.
///   [`take_faults`](Self::take_faults) tells of the faults of a unithread since it was asked last, and
///   [`return_port`](Self::return_port) comes at the end, when none is parked.
/// - **Install delegates**: a thread announces itself to a port with [`help_port`](Self::help_port), calls
///   [`install_for`](Self::install_for) when it has time, and takes its announcement back with `help_port`. A delegate
///   that does not come costs the worker a wait of microseconds, and nothing else.
/// - **Reclaim**: one thread takes [`ReclaimTurns`](crate::ReclaimTurns), and does between two turns what the last one
///   says; [`set_reclaimer_thread`](Self::set_reclaimer_thread) says which thread is woken. A host may make steps in
///   its place with [`reclaim_as_host`](Self::reclaim_as_host), between [`begin_hosting`](Self::begin_hosting) and
///   [`end_hosting`](Self::end_hosting). Without either, faults fail once local memory is full.
/// - **Discards**: one thread, which [`set_discarder_thread`](Self::set_discarder_thread) names, takes
///   [`discard_turn`](Self::discard_turn)s: again after the time that a turn says, or else when it is woken.
/// - **Owners of regions**: [`begin_region`](Self::begin_region) comes first. Then [`release`](Self::release),
///   [`seal`](Self::seal), [`mark_unreadable`](Self::mark_unreadable) and advice come in any order, while others use
///   the region. [`end_region`](Self::end_region) comes last and once, when no thread can touch the region any more.
///   These may wait for the node.
///
/// **Order** there is besides: both threads end, told by [`end_threads`](Self::end_threads), before the pager goes. A
/// process that forks has the [`Stopped`](crate::Stopped) of [`stop`](Self::stop) from before the fork until after it,
/// and the child goes on with [`go_on_as_child`](crate::Stopped::go_on_as_child) before it has a fault.
///
/// **Time** is the machine's, and never goes back. Each `now` that is passed in is one that the same thread has read
/// from it in this turn of its scheduler.
///
/// **Threads and memory**: all methods may be called by any thread at any time, but for what is said above. Faults
/// allocate nothing and lock nothing but a port, or what a forked child has instead, so they may be served in the
/// handler of a signal; `poll_worker` and `install_for` allocate nothing either, if `ready` and `retry` have room for
/// all of the worker's unithreads. What begins, ends, tunes or reclaims may allocate and lock, and is not for handlers.
pub struct Pager<M: Machine> {
    // These never change.
    /// Tells pagers apart in thread-local state.
    pub(crate) id: u32,
    pub(crate) config: Config,
    pub(crate) fabric: Arc<M::Fabric>,
    pub(crate) space: M::Space,
    make_guide: Option<MakeGuide>,

    pub(crate) local: LocalMemory<M>,
    pub(crate) loans: Loans,
    pub(crate) reclaim: ReclaimState<M>,
    pub(crate) watermarks: Watermarks,
    ports: Ports<M>,
    pub(crate) node: NodeState,
    pub(crate) threads: Threads<M>,
    pub(crate) stalls: Stalls,
    pub(crate) region_table: RegionTable<M>,
    pub(crate) child: Child<M>,

    // These change where programs advise, and where somebody tunes; the reclaimer looks at them.
    pub(crate) limits: Arc<Limits>,
    pub(crate) advised_out: AdvisedOut,
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
        let local = LocalMemory::new(&config, &policy)?;
        let loans = Loans::new(config.lends && M::can_lend(&space));
        let frames = local.frames.count() as u64;
        let write_back = M::queue_pair(&fabric, Module::WriteBack, local.frames.mapping())?;
        let pager = Self {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            space,
            make_guide,
            local,
            loans,
            reclaim: ReclaimState::new(write_back),
            watermarks: Watermarks::new(&policy, frames),
            ports: Ports::new(),
            node: NodeState::new::<M>(&config, &fabric),
            threads: Threads::default(),
            stalls: Stalls::default(),
            region_table: RegionTable::new(),
            child: Child::default(),
            limits: Arc::new(Limits::new(&policy)),
            advised_out: AdvisedOut::default(),
            config,
            fabric,
        };
        for _ in 0..GUEST_PORTS {
            pager.add_port(GUEST_TOKENS)?;
        }
        Ok(pager)
    }

    /// The memory that pages on standby stand in.
    pub fn frame_memory(&self) -> &M::Memory {
        self.local.frames.mapping()
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
        self.local.budget.limit()
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

    /// Faults and the reclaimer obey `policy` from now on.
    pub(crate) fn set_policy(&self, policy: &Policy) {
        self.watermarks.set_policy(policy, &self.local.budget);
    }

    /// The reclaimer, for a moment: whoever has to wait for the node gives it back meanwhile, or nobody could make
    /// room.
    pub(crate) fn lock_reclaimer(&self) -> MutexGuard<'_, Reclaimer<M>> {
        self.reclaim.lock()
    }

    /// Whether a step of the reclaimer would find something to do. A few loads.
    #[inline]
    pub(crate) fn wants_reclaim(&self, now: Nanos) -> bool {
        let signals = &self.reclaim.signals;
        signals.is_due(now) || self.is_above(self.watermarks.start_above()) || signals.is_busy()
    }

    /// Whether more pages are charged than `most`, not counting spare frames that are as good as free.
    fn is_above(&self, most: u64) -> bool {
        let excess = self.local.budget.charged().saturating_sub(most);
        excess > 0 && excess > self.local.frames.spare().min(self.reclaim.signals.spare_for_reads())
    }

    /// Ends the reclaimer's sleep: somebody waits for room.
    pub fn wake_reclaimer(&self) {
        self.reclaim.signals.starve();
        self.threads.unpark_reclaimer();
    }

    /// A block was touched for the first time, or many pages were: the watermarks may not be right any more at the next
    /// step, which a host makes soon, and the reclaimer's thread within its longest sleep.
    pub(crate) fn touches_more(&self) {
        self.reclaim.signals.enforce_quotas_now();
    }

    /// Lets the reclaimer look at limits and advice now: something has changed.
    pub fn enforce_quotas_now(&self) {
        self.reclaim.signals.enforce_quotas_now();
        self.threads.unpark_reclaimer();
    }

    /// How many pages may be fetched ahead: up to the middle between where reclaim starts and where faults have to
    /// wait, so that they are not the ones to find local memory full.
    #[inline]
    pub(crate) fn room_ahead(&self) -> u64 {
        let (charged, most) = self.local.budget.charged_of();
        let margin = most.saturating_sub(self.watermarks.start_above()) / 2;
        (most - margin).saturating_sub(charged)
    }

    /// From now on the pages of `region` are kept as `liveness` says.
    pub fn guide_paging(&self, region: &RegionCore<M>, liveness: Arc<dyn Liveness>) {
        let no_sweep = self.lock_reclaimer();
        let before = region.metadata_bytes();
        region.digests.keep_vectors();
        let is_first = region.owner.set(liveness);
        self.local.add_metadata(region.metadata_bytes() - before);
        drop(no_sweep);
        assert!(is_first, "the paging of a region is guided by one");
    }
}
