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
use crate::machine::Machine;
use crate::queue_pair::Module;
use crate::reclaim::Policy;
use crate::reclaimer::Reclaimer;
use crate::region::RegionCore;
use crate::region_table::RegionTable;

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
pub struct Pager<M: Machine> {
    // These never change.
    /// Tells pagers apart in thread-local state.
    pub(crate) id: u32,
    pub(crate) config: Config,
    pub(crate) fabric: Arc<M::Fabric>,
    pub(crate) space: M::Space,
    make_guide: Option<MakeGuide>,

    pub(crate) local: LocalMemory<M>,
    pub(crate) reclaim: ReclaimState<M>,
    pub(crate) watermarks: Watermarks,
    ports: Ports<M>,
    pub(crate) node: NodeState,
    pub(crate) threads: Threads<M>,
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
        let write_back = M::queue_pair(&fabric, Module::WriteBack, local.frames.mapping())?;
        let pager = Self {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            space,
            make_guide,
            local,
            reclaim: ReclaimState::new(write_back),
            watermarks: Watermarks::new(&policy),
            ports: Ports::new(),
            node: NodeState::new::<M>(&config, &fabric),
            threads: Threads::default(),
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
        self.watermarks.set_policy(policy, || self.local.budget.set_policy(policy));
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

    /// Lets the reclaimer look at limits and advice now: something has changed.
    pub fn tend_now(&self) {
        self.reclaim.signals.tend_now();
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
