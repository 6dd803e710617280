//! Fetches of several pages for one touch: of a range that is about to be copied, and of a small object.
//!
//! They go into a window of the port, as what is fetched ahead does, so the touch joins its own. It is a major fault
//! all the same ([`count`]).

use std::ops::Range;
use std::sync::Arc;

use crate::fault::{FaultTouch, Wants};
use crate::guests::GuestPort;
use crate::machine::Machine;
use crate::pager::Pager;
use crate::pagetable::State;
use crate::region::RegionCore;
use yonder_units::{Nanos, PageIndex};

/// Begins to fetch those of `pages` that are far, which are about to be touched, if there are several. Whether the
/// first is on its way then, and this thread waits for it.
pub(crate) fn fetch_range<M: Machine>(region: &Arc<RegionCore<M>>, pages: Range<u32>) -> bool {
    let (pager, first) = (&*region.pager, PageIndex(pages.start));
    if pager.child.is_one() || pages.clone().filter(|page| is_far(region, *page)).take(2).count() < 2 {
        return false;
    }
    let (was_far, now) = (is_far(region, pages.start), M::now());
    if let Some((port, ..)) = M::bound_unithread(pager.id) {
        let port = pager.port(port);
        port.lock().bring_range(region, pages, port.turn(pager, now));
        return false;
    }
    let mut inner = GuestPort::borrow(pager);
    let turn = inner.port().turn(pager, now);
    inner.bring_range(region, pages, turn);
    drop(inner);
    pager.stalls.add::<M>(M::now().saturating_sub(now), 0);
    was_far && matches!(region.table.load(first).state(), State::Fetching { .. })
}

/// Begins to fetch all of the small object that a thread touches, if it lies in several pages and more than this one
/// are far. Whether this one is on its way. Not for unithreads: while one waits for a page of its object, others run.
pub(crate) fn fetch_object<M: Machine>(touch: &FaultTouch<'_, M>) -> bool {
    let (region, page) = (touch.region, touch.page());
    if touch.wants == Wants::Bytes {
        return false;
    }
    let Some(pages) = region.owner.small_object_at(touch.offset) else { return false };
    if !pages.clone().any(|other| other != page.0 && is_far(region, other)) {
        return false;
    }
    let mut inner = GuestPort::borrow(&region.pager);
    let turn = inner.port().turn(&region.pager, M::now());
    inner.fetch_object(touch, pages, turn)
}

/// A page has come for which a thread's touch has begun the fetch, and which it then joined.
pub(crate) fn count<M: Machine>(pager: &Pager<M>, entered: Nanos) {
    let inner = GuestPort::borrow(pager);
    let port = inner.port();
    port.stats.range_faults.add(1);
    port.stages.total.record(M::now().saturating_sub(entered));
}

fn is_far<M: Machine>(region: &RegionCore<M>, page: u32) -> bool {
    (page as usize) < region.table.pages() && region.table.load(PageIndex(page)).state() == State::Remote
}
