//! [`Config`]: one validated, immutable description of a far memory: how a [`Pager`](crate::Pager) pages.

use std::time::Duration;

use crate::prefetch::Algorithm;
use crate::reclaim::{LIMIT_PAGES_MAX, LIMIT_PAGES_MIN, Policy, Shares};
use yonder_units::{Nanos, PAGE_BYTES, format_bytes};

/// What a worker does while a page is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultPolicy {
    /// Park the unithread and run others (Adios, section 3.3).
    Yield,
    /// Spin until the page is there (DiLOS and its kin).
    Busy,
    /// Spin until the page is there, which a helper may map meanwhile as it does for workers that yield.
    BusyDelegated,
    /// Spin this long, then yield.
    Hybrid(Nanos),
}

impl FaultPolicy {
    /// Whether a fault keeps its worker until its page is there.
    #[must_use]
    pub fn always_waits(self) -> bool {
        matches!(self, Self::Busy | Self::BusyDelegated)
    }
}

/// How long the runtime tries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadlines {
    /// From the touch of a page until its paging error.
    pub fault: Duration,
    /// From a post until the operation counts as lost and is posted again.
    pub attempt: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { fault: Duration::from_secs(5), attempt: Duration::from_millis(20) }
    }
}

/// Settings of one far memory.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Config {
    /// Limit of local memory in bytes: mapped pages and backed frames.
    pub local_bytes: u64,
    /// Largest limit that may be set later ([`Pager::set_limit`](crate::Pager::set_limit)).
    pub local_bytes_max: u64,
    /// Most frames: pages that stand by, are written, or were fetched ahead. As many as the largest limit may need if
    /// this is more; their tables are local memory from the beginning.
    pub frames_max: usize,
    /// Watermarks of reclaim.
    pub shares: Shares,
    /// How long operations are tried.
    pub deadlines: Deadlines,
    /// CPU that the reclaimer thread is pinned to.
    pub reclaimer_cpu: Option<usize>,
    /// Whether a fetched page is checked before it is mapped.
    pub verify: Verify,
    /// What is fetched before it is touched.
    pub prefetch: Algorithm,
    /// Where accesses that only read have their pages.
    pub reads: Reads,
    /// How faults reach the pager.
    pub delivery: Delivery,
    /// Whether blocks that nobody has touched are left to the kernel while there is room, where it lets itself be asked
    /// what it has mapped. They count as mapped in full then.
    pub lends: bool,
}

/// How faults reach the pager.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Delivery {
    /// As SIGBUS, in the thread that has the fault. Accesses of the kernel fail.
    #[default]
    Signal,
    /// As messages that somebody reads, while the thread sleeps in the kernel, also one in a system call.
    Messages,
    /// As [`Delivery::Messages`], but accesses of the kernel may fail: any user may have this.
    UserMessages,
}

/// Where accesses that ask for bytes ([`RegionCore::look`](crate::RegionCore::look)) have a page that they had to
/// fetch.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Reads {
    /// In the frame in which it has arrived: it is not mapped before somebody writes to it or touches it by pointer, so
    /// to fetch it and to let go of it take no system call.
    #[default]
    InFrames,
    /// In the region, like those of all other accesses: for programs that only touch far memory by pointer. The tables
    /// of frames take half as much local memory.
    Mapped,
}

/// Whether fetched pages are compared with the hash of what was written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Verify {
    /// The fabric's own checks are trusted.
    #[default]
    Off,
    /// A page that differs is fetched again, and lost if it differs until the deadline. Costs one hash a fetch.
    On,
}

/// A setting that cannot work, and what to set instead.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// Less local memory than reclaim needs.
    #[error("{} of local memory are too few: give at least {}", format_bytes(*.0), format_bytes(LOCAL_BYTES_MIN))]
    LocalTooSmall(u64),
    /// More local memory than can be accounted for.
    #[error("{} of local memory are too many: give at most {}", format_bytes(*.0), format_bytes(LOCAL_BYTES_MAX))]
    LocalTooLarge(u64),
    /// Limits in the wrong order.
    #[error("the largest local limit ({}) is below the local limit ({}): give at least as much", format_bytes(*.max), format_bytes(*.local))]
    LocalAboveMax {
        /// The limit.
        local: u64,
        /// The largest limit.
        max: u64,
    },
    /// Watermarks that contradict one another.
    #[error(transparent)]
    Shares(#[from] crate::reclaim::SharesError),
}

/// Smallest local limit.
const LOCAL_BYTES_MIN: u64 = LIMIT_PAGES_MIN * PAGE_BYTES as u64;
/// Largest local limit.
const LOCAL_BYTES_MAX: u64 = LIMIT_PAGES_MAX * PAGE_BYTES as u64;

impl Config {
    /// A configuration with `local_bytes` of local memory and defaults for the rest.
    #[must_use]
    pub fn with_local(local_bytes: u64) -> Self {
        Self {
            local_bytes,
            local_bytes_max: local_bytes,
            frames_max: usize::MAX,
            shares: Shares::default(),
            deadlines: Deadlines::default(),
            reclaimer_cpu: None,
            verify: Verify::Off,
            prefetch: Algorithm::default(),
            reads: Reads::default(),
            delivery: Delivery::default(),
            lends: false,
        }
    }

    /// Whether far memory can be made with these settings.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.policy().map(|_| ())
    }

    /// Checks the settings and derives the watermarks.
    pub fn policy(&self) -> Result<Policy, ConfigError> {
        if self.local_bytes < LOCAL_BYTES_MIN {
            return Err(ConfigError::LocalTooSmall(self.local_bytes));
        }
        if self.local_bytes_max > LOCAL_BYTES_MAX {
            return Err(ConfigError::LocalTooLarge(self.local_bytes_max));
        }
        if self.local_bytes_max < self.local_bytes {
            return Err(ConfigError::LocalAboveMax { local: self.local_bytes, max: self.local_bytes_max });
        }
        Ok(Policy::new(self.local_bytes / PAGE_BYTES as u64, self.shares)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_settings_say_what_to_give() {
        let error = Config::with_local(4096).policy().unwrap_err();
        assert_eq!(error.to_string(), "4 KiB of local memory are too few: give at least 2 MiB");
        let error = Config::with_local(16 << 40).policy().unwrap_err();
        assert_eq!(error.to_string(), "16.0 TiB of local memory are too many: give at most 8.0 TiB");
        let config = Config { local_bytes_max: 4 << 20, ..Config::with_local(8 << 20) };
        assert!(matches!(config.policy(), Err(ConfigError::LocalAboveMax { .. })));
    }
}
