//! [`Fetch`]: one slot of a port's table of fetches.

use yonder_units::{Nanos, PageIndex};

use super::FetchReservation;
use crate::error::PagingCause;
use crate::waiters::Queue;
use yonder_units::Vector;

/// How far a fetch is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Free,
    Posted,
    /// To be posted again at this time.
    Backoff(Nanos),
    /// The bytes are here; the page is not mapped yet.
    Arrived,
    /// The bytes are here; another thread maps the page.
    HandedOver,
    /// The bytes are here, and nobody has touched the page: it was fetched ahead.
    Ready,
}

/// A slot, and the fetch that it is used for.
pub(super) struct Fetch {
    pub(super) phase: Phase,
    pub(super) region: u32,
    pub(super) page: PageIndex,
    pub(super) reservation: FetchReservation,
    /// Which bytes of the page are fetched: those that the node has.
    pub(super) vector: Vector,
    pub(super) generation: u32,
    pub(super) attempts: u32,
    pub(super) posted: Nanos,
    pub(super) arrived: Nanos,
    pub(super) deadline: Nanos,
    pub(super) queue: Queue,
    pub(super) last_failure: PagingCause,
}

impl Fetch {
    #[inline]
    pub(super) fn free() -> Self {
        Self {
            phase: Phase::Free,
            region: 0,
            page: PageIndex(0),
            reservation: FetchReservation::Page,
            vector: Vector::WHOLE,
            generation: 0,
            attempts: 0,
            posted: 0,
            arrived: 0,
            deadline: 0,
            queue: Queue::EMPTY,
            last_failure: PagingCause::TimedOut,
        }
    }
}
