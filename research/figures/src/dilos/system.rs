//! [`System`]: what distinguishes Fastswap, DiLOS and Yonder's way of fetching ahead, on one machine.

use yonder_pager::prefetch::Algorithm;
use yonder_pager::reclaim::Shares;
use yonder_units::Nanos;

use crate::costs::dilos;

/// A system under test.
#[derive(Clone, Copy, Debug)]
pub(super) struct System {
    /// Its row in a table.
    pub(super) name: &'static str,
    /// How sequences are recognised.
    pub(super) algorithm: Algorithm,
    pub(super) windows: Windows,
    pub(super) mapping: Mapping,
    pub(super) reclaim: Reclaim,
    /// Software before the read of a page is posted.
    pub(super) prepare_ns: Nanos,
    /// Software that maps a page that has arrived.
    pub(super) map_ns: Nanos,
    /// Software of a fault on a page that is under way, beside that.
    pub(super) minor_ns: Nanos,
    /// What its driver adds to the network's latency.
    pub(super) driver_ns: Nanos,
}

/// When and how far a system fetches ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Windows {
    /// At a miss, as many pages as make a window with the missed one; hits lead to nothing (Linux, DiLOS).
    AfterMisses(u32),
    /// At a miss, and at the first touch of each window: the next one, as `core/pager` plans it (Yonder).
    Followed,
}

/// When a page that was fetched ahead is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mapping {
    /// When it is touched: until then it is in the swap cache (section 3.2).
    Touched,
    /// By the next fault, of whichever page, that finds it has arrived (section 4.3).
    Arrived,
    /// With its window, by the first touch of that.
    Window,
}

/// Who makes room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reclaim {
    /// A CPU of its own, ahead of need (section 4.4).
    Background,
    /// A CPU of its own, and the fault itself where that does not keep up (section 3.1).
    Shared,
}

impl System {
    const DILOS: Self = Self {
        name: "DiLOS, no prefetching",
        algorithm: Algorithm::None,
        windows: Windows::AfterMisses(dilos::WINDOW.value as u32),
        mapping: Mapping::Arrived,
        reclaim: Reclaim::Background,
        prepare_ns: dilos::HANDLER.ns() / 2,
        map_ns: dilos::HANDLER.ns() / 2,
        minor_ns: dilos::TRACKER.ns(),
        driver_ns: 0,
    };

    /// Fastswap with Linux's readahead.
    pub(super) const FASTSWAP: Self = Self {
        name: "Fastswap",
        algorithm: Algorithm::Readahead,
        mapping: Mapping::Touched,
        reclaim: Reclaim::Shared,
        prepare_ns: dilos::FASTSWAP_SWAP.ns() / 2,
        map_ns: dilos::FASTSWAP_SWAP.ns() / 2,
        minor_ns: 0,
        driver_ns: dilos::FASTSWAP_FETCH.ns() - dilos::FETCH.ns(),
        ..Self::DILOS
    };
    /// Fastswap, each page by itself.
    pub(super) const FASTSWAP_NONE: Self =
        Self { name: "Fastswap, no prefetching", algorithm: Algorithm::None, ..Self::FASTSWAP };
    /// DiLOS, each page by itself.
    pub(super) const NONE: Self = Self::DILOS;
    /// DiLOS with readahead, a window of the paper's size after each miss.
    pub(super) const READAHEAD: Self =
        Self { name: "DiLOS, readahead", algorithm: Algorithm::Readahead, ..Self::DILOS };
    /// DiLOS with Leap's majority trend, a window of the paper's size after each miss.
    pub(super) const TREND: Self = Self { name: "DiLOS, trend", algorithm: Algorithm::Trend, ..Self::DILOS };
    /// Yonder's windows, of 4 to 32 pages, on DiLOS' machine.
    pub(super) const FOLLOWED: Self = Self {
        name: "Yonder's windows, readahead",
        algorithm: Algorithm::Readahead,
        windows: Windows::Followed,
        mapping: Mapping::Window,
        minor_ns: 0,
        ..Self::DILOS
    };
    /// The same with the majority trend.
    pub(super) const FOLLOWED_TREND: Self =
        Self { name: "Yonder's windows, trend", algorithm: Algorithm::Trend, ..Self::FOLLOWED };

    /// Pages that a miss finds room for, all that it fetches after a miss.
    pub(super) fn room_pages(&self) -> u32 {
        match (self.algorithm, self.windows) {
            (Algorithm::None, _) | (_, Windows::Followed) => 1,
            (_, Windows::AfterMisses(pages)) => pages,
        }
    }

    /// Shares of local memory between which it reclaims. Faults stop at 12.5 % or before,
    /// so Linux has little ahead of them, and DiLOS enough.
    pub(super) fn shares(&self) -> Shares {
        let (start_percent, end_percent) = match self.reclaim {
            Reclaim::Shared => (14.0, 20.0),
            Reclaim::Background => (25.0, 30.0),
        };
        Shares { start_percent, least_percent: start_percent, end_percent, standby_percent: 0.0 }
    }
}
