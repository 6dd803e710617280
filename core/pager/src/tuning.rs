//! [`Tuning`]: what can be changed and seen of far memory while it is used, from any thread.
//!
//! A [`Tuning`] does not keep far memory alive: it has the settings, and a weak reference to the rest. When the far
//! memory has ended, settings read as they were last, there are no regions any more, and whatever would change
//! something is an [`TuningError::Ended`]. So it can be kept by a thread that outlives the far memory, such as one that
//! serves a control socket, without delaying its end.

use std::sync::{Arc, Weak};
use std::time::Duration;

use yonder_units::{PAGE_BYTES, format_bytes};

use crate::config::{Config, ConfigError};
use crate::limits::Limits;
use crate::machine::Machine;
use crate::pager::Pager;
use crate::region::RegionCore;

/// Smallest quota: less would leave a program no room for what it uses at one time.
pub const QUOTA_BYTES_MIN: u64 = 256 << 10;
/// Shortest age of a dirty page that is written back.
pub const STANDBY_AGE_MIN: Duration = Duration::from_millis(1);
/// From how long without a touch on a [`ColdBand`] begins, each.
pub const COLD_BANDS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(600),
];

/// A limit is at least so many times what is held.
const HELD_PARTS: u64 = 2;

/// Settings and counts of one far memory. See [`Pager::tuning`].
pub struct Tuning<M: Machine> {
    limits: Arc<Limits>,
    pager: Weak<Pager<M>>,
}

/// A region, as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionView {
    /// The number of the region. It names another region once this one has ended.
    pub id: u32,
    /// Address of the first byte.
    pub address: usize,
    /// Length in bytes.
    pub bytes: u64,
    /// Bytes that are mapped now.
    pub resident_bytes: u64,
    /// Most bytes that should be mapped.
    pub quota_bytes: Option<u64>,
}

/// How much of a region was last seen to be touched how long ago.
///
/// A touch is seen when it has a fault, so what is touched all the time looks as old as its last fault. By blocks of 2
/// MiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColdBand {
    /// The number of the region.
    pub region: u32,
    /// The touch was at least so long ago: one of [`COLD_BANDS`], and less than the next one.
    pub untouched: Duration,
    /// Mapped bytes of which that is so.
    pub resident_bytes: u64,
}

/// What the swap cache, quotas and advice have come to, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TuningCounts {
    /// Dirty pages written back because they had stood for the standby age.
    pub flushed_by_age_pages: u64,
    /// Dirty pages written back because there were as many as a batch has.
    pub flushed_by_size_pages: u64,
    /// Pages taken away because of a quota.
    pub quota_evicted_pages: u64,
    /// Pages taken away that had been advised out.
    pub advised_out_pages: u64,
    /// Pages fetched because they had been advised ahead.
    pub advised_ahead_pages: u64,
}

/// A setting that was not taken, and what to set instead.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TuningError {
    /// The far memory has ended.
    #[error("the far memory has ended: nothing can be set any more")]
    Ended,
    /// No region has this number.
    #[error("there is no region {0}: give the number of one that is listed")]
    NoRegion(u32),
    /// A quota that leaves no room.
    #[error("a quota of {} is too small: give at least {}, or none", format_bytes(*.0), format_bytes(QUOTA_BYTES_MIN))]
    QuotaTooSmall(u64),
    /// An age that would write every page at once.
    #[error("a standby age of {0:?} is too short: give at least {STANDBY_AGE_MIN:?}")]
    AgeTooShort(Duration),
    /// A limit that leaves too little room beside what is held.
    #[error("{} are locked or in use by system calls: give at least {}", format_bytes(*.held), format_bytes(*.least))]
    Held {
        /// Bytes in blocks that are held.
        held: u64,
        /// The smallest limit.
        least: u64,
    },
    /// A limit that local memory cannot have.
    #[error(transparent)]
    Local(#[from] ConfigError),
    /// A batch of no pages.
    #[error("a batch of 0 pages is too small: give at least 1")]
    NoPages,
}

impl<M: Machine> Pager<M> {
    /// What can be changed and seen while far memory is used. Does not keep it alive.
    #[must_use]
    pub fn tuning(self: &Arc<Self>) -> Tuning<M> {
        Tuning { limits: Arc::clone(&self.limits), pager: Arc::downgrade(self) }
    }
}

impl<M: Machine> Clone for Tuning<M> {
    fn clone(&self) -> Self {
        Self { limits: Arc::clone(&self.limits), pager: Weak::clone(&self.pager) }
    }
}

impl<M: Machine> Tuning<M> {
    /// How long a dirty page stands before it is written back without need. 1 s if nobody has changed it.
    #[must_use]
    pub fn standby_age(&self) -> Duration {
        self.limits.standby_age()
    }

    /// Changes [`Tuning::standby_age`], to at least [`STANDBY_AGE_MIN`]; `Duration::MAX` is never.
    pub fn set_standby_age(&self, age: Duration) -> Result<(), TuningError> {
        if age < STANDBY_AGE_MIN {
            return Err(TuningError::AgeTooShort(age));
        }
        self.change(|_| {
            self.limits.set_standby_age(age);
            Ok(())
        })
    }

    /// How many dirty pages stand before they are written back in a batch.
    #[must_use]
    pub fn standby_pages(&self) -> usize {
        self.limits.flush().pages
    }

    /// Changes [`Tuning::standby_pages`], to at least 1; `usize::MAX` is never.
    pub fn set_standby_pages(&self, pages: usize) -> Result<(), TuningError> {
        if pages == 0 {
            return Err(TuningError::NoPages);
        }
        self.change(|_| {
            self.limits.set_standby_pages(pages);
            Ok(())
        })
    }

    /// Most bytes of all regions together that should be mapped.
    #[must_use]
    pub fn process_quota(&self) -> Option<u64> {
        self.limits.process.bytes()
    }

    /// Changes [`Tuning::process_quota`], to at least [`QUOTA_BYTES_MIN`], rounded down to pages. What is mapped beyond
    /// it is taken away from now on, whether anything is touched or not.
    pub fn set_process_quota(&self, bytes: Option<u64>) -> Result<(), TuningError> {
        check_quota(bytes)?;
        self.change(|_| {
            self.limits.process.set(bytes);
            Ok(())
        })
    }

    /// The limit of local memory, in bytes; `None` once the far memory has ended.
    #[must_use]
    pub fn local(&self) -> Option<u64> {
        self.running().map(|pager| pager.limit() * PAGE_BYTES as u64)
    }

    /// Changes [`Tuning::local`], to at most the largest that the far memory was made for, which `None` is, and at
    /// least twice what is in blocks that are held now: what is locked cannot leave. Faults obey it at once, and what
    /// is local beyond it is taken away from now on.
    pub fn set_local(&self, bytes: Option<u64>) -> Result<(), TuningError> {
        let held = self.each_region(|_, core| core.held_pages()).into_iter().sum::<u64>() * PAGE_BYTES as u64;
        self.change(|pager| {
            let most = pager.config.local_bytes_max;
            let bytes = bytes.unwrap_or(most);
            if bytes < held * HELD_PARTS {
                return Err(TuningError::Held { held, least: held * HELD_PARTS });
            }
            let policy = Config { local_bytes: bytes, ..pager.config }.policy()?;
            pager.set_policy(&policy);
            Ok(())
        })
    }

    /// What reclaim keeps all local memory below, in bytes, though the limit has room for more.
    #[must_use]
    pub fn soft_limit(&self) -> Option<u64> {
        self.limits.soft.bytes()
    }

    /// Changes [`Tuning::soft_limit`], rounded down to pages; less than reclaim can work with is as much as that. What
    /// is local beyond it is taken away from now on. No fault waits for it, so what programs bring meanwhile comes on
    /// top, up to the limit.
    pub fn set_soft_limit(&self, bytes: Option<u64>) -> Result<(), TuningError> {
        self.change(|pager| {
            self.limits.soft.set(bytes);
            pager.set_soft_limit(bytes.map(|bytes| bytes / PAGE_BYTES as u64));
            Ok(())
        })
    }

    /// The regions that there are.
    #[must_use]
    pub fn regions(&self) -> Vec<RegionView> {
        self.each_region(|_, core| RegionView {
            id: core.number,
            address: M::address(&core.mapping),
            bytes: M::len(&core.mapping) as u64,
            resident_bytes: core.counts.resident() * PAGE_BYTES as u64,
            quota_bytes: core.quota.bytes(),
        })
    }

    /// Changes the quota of region `id`, as [`Tuning::set_process_quota`] does that of all.
    pub fn set_region_quota(&self, id: u32, bytes: Option<u64>) -> Result<(), TuningError> {
        check_quota(bytes)?;
        self.change(|pager| pager.region_table.with(id, |core| core.quota.set(bytes)).ok_or(TuningError::NoRegion(id)))
    }

    /// How much of each region was last seen to be touched how long ago: bands of [`COLD_BANDS`] that are not empty,
    /// the youngest of a region first.
    #[must_use]
    pub fn cold(&self) -> Vec<ColdBand> {
        let bands = self.each_region(|pager, core| {
            let mut pages = [0; COLD_BANDS.len()];
            for (resident, looks) in core.counts.ages(pager.reclaim.signals.looks().saturating_sub(1)) {
                let age = Duration::from_secs(u64::from(looks));
                let band = COLD_BANDS.iter().rposition(|from| *from <= age).expect("the first band begins at zero");
                pages[band] += u64::from(resident);
            }
            let band = |(band, pages): (usize, u64)| ColdBand {
                region: core.number,
                untouched: COLD_BANDS[band],
                resident_bytes: pages * PAGE_BYTES as u64,
            };
            pages.into_iter().enumerate().filter(|(_, pages)| *pages > 0).map(band).collect::<Vec<_>>()
        });
        bands.into_iter().flatten().collect()
    }

    /// What has been done so far; zeros once the far memory has ended.
    #[must_use]
    pub fn counts(&self) -> TuningCounts {
        let Some(pager) = self.running() else { return TuningCounts::default() };
        let reclaimed = &pager.reclaim.stats;
        TuningCounts {
            flushed_by_age_pages: reclaimed.flushed_by_age_pages.get(),
            flushed_by_size_pages: reclaimed.flushed_by_size_pages.get(),
            quota_evicted_pages: reclaimed.quota_evicted_pages.get(),
            advised_out_pages: reclaimed.advised_out_pages.get(),
            advised_ahead_pages: pager.ports().map(|port| port.stats.advised_ahead_pages.get()).sum(),
        }
    }

    fn running(&self) -> Option<Arc<Pager<M>>> {
        self.pager.upgrade().filter(|pager| !pager.threads.is_stopping())
    }

    /// Makes a change, and lets the reclaimer look at it.
    fn change(&self, change: impl FnOnce(&Pager<M>) -> Result<(), TuningError>) -> Result<(), TuningError> {
        let pager = self.running().ok_or(TuningError::Ended)?;
        change(&pager)?;
        pager.enforce_quotas_now();
        Ok(())
    }

    fn each_region<T>(&self, view: impl Fn(&Pager<M>, &RegionCore<M>) -> T) -> Vec<T> {
        let Some(pager) = self.running() else { return Vec::new() };
        pager
            .region_table
            .numbers()
            .filter_map(|number| pager.region_table.with(number, |core| view(&pager, core)))
            .collect()
    }
}

fn check_quota(bytes: Option<u64>) -> Result<(), TuningError> {
    match bytes {
        Some(bytes) if bytes < QUOTA_BYTES_MIN => Err(TuningError::QuotaTooSmall(bytes)),
        _ => Ok(()),
    }
}
