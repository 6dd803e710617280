//! Reclaim policy: when to make room, by which hand, and in which order.
//!
//! Reclaim has two hands. The first sweeps blocks, or what may go first of them: resident pages become standby frames.
//! The second takes the oldest standby frames: clean ones become free at once, dirty ones once the node has
//! acknowledged a write. This module decides ([`Policy::decide`], [`Margin`], [`Demand`], [`SweepHand`], [`Probation`],
//! [`StandbyQueue`], [`Flusher`]); `reclaimer` does it.
//!
//! Proactive reclaim from watermarks is Adios' (section 3.3); the second chance replaces the accessed bits that user
//! space cannot see.

mod age;
mod demand;
mod hand;
mod margin;
mod policy;
mod probation;
pub mod quota;
mod standby;
mod write_back;

pub use age::Age;
pub use demand::Demand;
pub use hand::{SweepHand, Visit};
pub use margin::Margin;
pub use policy::{
    Action, LIMIT_PAGES_MAX, LIMIT_PAGES_MIN, Policy, RESERVE_PAGES_MAX, RESERVE_PAGES_MIN, Shares, SharesError, Usage,
};
pub use probation::{Departures, Probation, Turns};
pub use standby::{Standby, StandbyQueue};
pub use write_back::{FlushCause, FlushLimits, Flusher};
