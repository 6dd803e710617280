//! Asking the node to discard: at once, and again until it agrees.
//!
//! [`Pager::confirm_discards`] asks for what discards hold ([`Order`](crate::order::Order)), in parts of bounded
//! length. When it fails, whether the node will still execute the request is not known, and the pages stay held. A
//! thread asks again until the node agrees, so that the pages can leave local memory; whoever frees a range may ask
//! again too.
//!
//! The far memory of a region that has ended is given back here too ([`Pager::give_back`]): a write that was given up
//! with the region may still be under way on the write-back lane, and the node would execute it over what another
//! region has there by then. So the range is kept until the node has answered the write's abort.
//!
//! Invariant: what the node has of a page is forgotten ([`Digests::forget`](crate::digest::Digests::forget)) only after
//! the node has agreed, and before its page is let go.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use yonder_units::{Narrow, PAGE_BYTES, PageIndex};

use crate::machine::{Machine, Notice, Rule};
use crate::order::Discards;
use crate::pager::Pager;
use crate::reclaimer::FarRange;
use crate::region::RegionCore;

/// Pages that the node is asked for at a time: what was agreed to stays so when the next part fails.
const PART_PAGES_MAX: u32 = 1 << 14;
/// How long the thread waits before it asks again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// How long it waits for answers to the aborts of writes.
const ABORT_PAUSE: Duration = Duration::from_millis(2);

impl<M: Machine> Pager<M> {
    /// Asks the node for what discards hold of `pages`, as often as there is more.
    pub(crate) fn confirm_discards(&self, core: &RegionCore<M>, pages: Range<u32>) -> Result<(), M::Error> {
        while let Some(held) = core.order.first_held(pages.clone()) {
            let discards = core.order.discards::<M>();
            if *discards == Discards::Over {
                break;
            }
            // Another thread may have had it confirmed meanwhile.
            let Some(held) = core.order.first_held(held) else { continue };
            let part = held.start..held.end.min(held.start.saturating_add(PART_PAGES_MAX));
            let bytes = part.len() as u64 * PAGE_BYTES as u64;
            if M::breaks(Rule::DiscardHolds) {
                core.order.let_go(part.clone());
            }
            let agreed = M::discard_far(&self.fabric, core.remote_address(PageIndex(part.start)), bytes);
            if !M::breaks(Rule::DiscardSettles) {
                agreed?;
            }
            let no_writes = self.lock_reclaimer();
            for page in part.clone().map(PageIndex) {
                core.digests.forget(page);
            }
            core.order.let_go(part);
            drop(no_writes);
            drop(discards);
        }
        Ok(())
    }

    /// Gives far memory of a region that has ended back to the node: now, or once the node has agreed that no write
    /// that was given up will reach it any more.
    pub(crate) fn give_back(&self, range: FarRange) {
        let mut reclaimer = self.lock_reclaimer();
        let is_quiescent = !reclaimer.may_still_write(range) || M::breaks(Rule::GivenUpWritesEnd);
        if !is_quiescent {
            reclaimer.ended.push(range);
        }
        drop(reclaimer);
        if is_quiescent {
            self.release_far(range);
        } else {
            self.wake_discarder();
        }
    }

    /// Gives back what had to be kept and has not to any longer. Whether there is more.
    pub fn give_back_quiescent(&self) -> bool {
        loop {
            let mut reclaimer = self.lock_reclaimer();
            reclaimer.poll_writes(self.pass(M::now()));
            let Some(range) = reclaimer.take_quiescent() else { return !reclaimer.ended.is_empty() };
            drop(reclaimer);
            self.release_far(range);
        }
    }

    fn release_far(&self, range: FarRange) {
        if let Err(error) = M::release_far(&self.fabric, range.start) {
            M::notice(Notice::NotTakenBack(&error));
        }
    }

    /// The thread that takes [`Pager::discard_turn`]s, which is woken when there is something to ask for.
    pub fn set_discarder_thread(&self, thread: M::Thread) {
        self.threads.set_discarder(thread);
    }

    /// Lets the thread ask again for what discards hold.
    pub(crate) fn wake_discarder(&self) {
        self.threads.unpark_discarder();
    }

    /// Returns when the thread has nothing of a region that has ended.
    pub(crate) fn await_discarder(&self) {
        drop(self.threads.lock_discarding());
    }

    /// One turn of the thread that confirms discards: over all regions, those that have ended first. How long until
    /// there is more to ask for, if there is.
    pub fn discard_turn(&self) -> Option<Duration> {
        let mut pause = self.give_back_quiescent().then_some(ABORT_PAUSE);
        let regions = self.lock_reclaimer().regions.len();
        for number in 0..regions {
            let alone = self.threads.lock_discarding();
            let core =
                self.lock_reclaimer().regions[number].as_ref().filter(|core| core.order.holds_any()).map(Arc::clone);
            if let Some(core) = core
                && let Err(error) = self.confirm_discards(&core, 0..core.table.pages().narrow_u32())
            {
                M::notice(Notice::UnconfirmedDiscard(&error));
                pause = pause.or(Some(RETRY_PAUSE));
            }
            drop(alone);
        }
        pause
    }
}
