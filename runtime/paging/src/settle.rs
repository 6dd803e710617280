//! Asking the node to discard: at once, and again until it agrees.
//!
//! [`Pager::settle_discards`] asks for what discards hold ([`Order`](crate::order::Order)), in parts of bounded length.
//! When it fails, whether the node will still execute the request is not known, and the pages stay held. A thread asks
//! again until the node agrees, so that the pages can leave local memory; whoever frees a range may ask again too.
//!
//! Invariant: what the node has of a page is forgotten ([`Digests::forget`](crate::digest::Digests::forget)) only after
//! the node has agreed, and before its page is let go.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use yonder_units::{PAGE_BYTES, PageIndex};

use crate::machine::Machine;
use crate::order::Discards;
use crate::pager::Pager;
use crate::region::RegionCore;

/// Pages that the node is asked for at a time: what was agreed to stays so when the next part fails.
const PART_PAGES_MAX: u32 = 1 << 14;
/// How long the thread waits before it asks again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

impl<M: Machine> Pager<M> {
    /// Asks the node for what discards hold of `pages`, as often as there is more.
    pub(crate) fn settle_discards(&self, core: &RegionCore<M>, pages: Range<u32>) -> Result<(), M::Error> {
        while let Some(held) = core.order.first_held(pages.clone()) {
            let discards = core.order.discards();
            if *discards == Discards::Over {
                break;
            }
            // Another thread may have settled it meanwhile.
            let Some(held) = core.order.first_held(held) else { continue };
            let part = held.start..held.end.min(held.start.saturating_add(PART_PAGES_MAX));
            let bytes = part.len() as u64 * PAGE_BYTES as u64;
            M::discard_far(&self.fabric, core.remote_address(PageIndex(part.start)), bytes)?;
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

    /// Lets the thread ask again for what discards hold.
    pub(crate) fn wake_settler(&self) {
        if let Some(thread) = self.settler_thread.get() {
            M::unpark(thread);
        }
    }

    /// Returns when the thread has nothing of a region that has ended.
    pub(crate) fn await_settler(&self) {
        drop(self.settling.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// One round over all regions. Whether a discard is left that has not been agreed to.
    fn settle_all(&self) -> bool {
        let regions = self.lock_reclaimer().regions.len();
        let mut is_left = false;
        for number in 0..regions {
            let alone = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
            let core =
                self.lock_reclaimer().regions[number].as_ref().filter(|core| core.order.holds_any()).map(Arc::clone);
            if let Some(core) = core
                && let Err(error) = self.settle_discards(&core, 0..core.table.pages() as u32)
            {
                tracing::debug!(?error, "a discard is not settled yet");
                is_left = true;
            }
            drop(alone);
        }
        is_left
    }
}

/// The thread: asks again while something is unsettled, sleeps otherwise.
pub(crate) fn settle(pager: &Pager) {
    while !pager.stopping.load(Ordering::Acquire) {
        if pager.settle_all() {
            std::thread::park_timeout(RETRY_PAUSE);
        } else {
            std::thread::park();
        }
    }
}
