//! `tier+near=SIZE+NEAR+FAR`: a memory node first, a disk when the node is full or lost (LightSwap, section 4.1, has
//! the one or the other).
//!
//! Each page has one current copy, near or far, and a word that says where ([`entry`]). Near memory is had from the
//! node in blocks ([`near`]); far memory is had for everything at once, so that every page of the node can go there. A
//! mover ([`mover`]) keeps slots of the node free, and brings back what is read often. What is lost with a node is an
//! error: never zeros, and never the older copy that the far tier may still have.
//!
//! An address of a tiered store is the address in the far tier. Neighbours: any two fabrics below; `core/pager` above.

mod entry;
mod mover;
mod near;
mod queue;
mod suggestions;
mod url;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use yonder_mapping::Mapping;
use yonder_units::{Nanos, Narrow, PAGE_BYTES};

use crate::areas::{Area, Areas, GIVEN_TWICE, View};
use crate::background::{Background, Pace, Waker};
use crate::{Counter, Credentials, Fabric, FabricError, Module, QueuePair, RemoteAddress};
use entry::{Entries, Location};
use mover::Mover;
use near::Near;
use queue::TierQueuePair;
use suggestions::Suggestions;
pub(crate) use url::{PREFIX, Parts, parse};

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    WrittenNear,
    WrittenFar,
    Demoted,
    Promoted,
    ReadAgain,
}

/// Their names, in their order.
const EVENTS: [&str; 5] =
    ["tier_near_writes", "tier_far_writes", "tier_demoted_pages", "tier_promoted_pages", "tier_repeated_reads"];

/// A memory node and what is behind it.
pub struct TierFabric {
    url: String,
    shared: Arc<Shared>,
    mover: Arc<Mutex<Mover>>,
    /// The thread of the mover; none in a test that makes its steps.
    background: Option<Background>,
}

/// What queue pairs and the mover share.
struct Shared {
    areas: Arc<Areas<Entries>>,
    near: Near,
    far: Arc<dyn Fabric>,
    suggestions: Suggestions,
    events: [AtomicU64; EVENTS.len()],
    waker: OnceLock<Arc<Waker>>,
    /// Areas that have ended, and whose memory the mover may still be writing.
    ended: Mutex<Vec<(Arc<Area<Entries>>, RemoteAddress)>>,
}

impl Shared {
    fn count(&self, event: Event) {
        self.events[event as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn ended(&self) -> MutexGuard<'_, Vec<(Arc<Area<Entries>>, RemoteAddress)>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the memory of areas back that have ended, once the mover has nothing of them under way.
    fn release_ended(&self, mover: &Mutex<Mover>) {
        self.ended().retain(|(area, start)| {
            let has_left = lock(mover).has_left(area);
            if has_left {
                // Once only: after an error it may have been executed, and another area be there. What was not given
                // back ends with the address space.
                let _ = self.far.release(*start);
            }
            !has_left
        });
    }

    /// There is something to do for the mover.
    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// The page at `address` is read far again and again.
    fn suggest(&self, address: RemoteAddress, now: Nanos) {
        if self.can_promote(now) {
            self.suggestions.push(address);
            self.wake();
        }
    }

    /// Whether there are slots to be had for pages that nobody writes.
    fn can_promote(&self, now: Nanos) -> bool {
        self.near.is_up(now) && self.near.free_slots() > self.near.reserve() / 2
    }
}

impl TierFabric {
    /// At most `limit` bytes of `near`, and `far` for everything.
    pub fn over(
        url: &str,
        near: Arc<dyn Fabric>,
        limit: Option<u64>,
        far: Arc<dyn Fabric>,
    ) -> Result<Self, FabricError> {
        let mut fabric = Self::without_thread(url, near, limit, far)?;
        let (shared, mover) = (Arc::clone(&fabric.shared), Arc::clone(&fabric.mover));
        let work = move || {
            let now = yonder_clock::now();
            // The node may take its time, and nobody waits for it here.
            let has_grown = shared.near.is_short() && shared.near.grow(now);
            let pace = lock(&mover).step(now);
            shared.release_ended(&mover);
            if has_grown { Pace::Again } else { pace }
        };
        let background = Background::start("yonder-mover", work);
        let background = background.map_err(|error| FabricError::System {
            url: url.to_owned(),
            cause: format!("no thread can be started to move pages: {error}"),
        })?;
        assert!(fabric.shared.waker.set(background.waker()).is_ok(), "one thread moves");
        fabric.background = Some(background);
        Ok(fabric)
    }

    fn without_thread(
        url: &str,
        near: Arc<dyn Fabric>,
        limit: Option<u64>,
        far: Arc<dyn Fabric>,
    ) -> Result<Self, FabricError> {
        let shared = Arc::new(Shared {
            areas: Arc::new(Areas::new()),
            near: Near::new(near, limit.unwrap_or(u64::MAX)),
            far,
            suggestions: Suggestions::new(),
            events: [const { AtomicU64::new(0) }; EVENTS.len()],
            waker: OnceLock::new(),
            ended: Mutex::default(),
        });
        let mover = Arc::new(Mutex::new(Mover::new(&shared, url)?));
        Ok(Self { url: url.to_owned(), shared, mover, background: None })
    }

    /// Gives back the slots that pages of an area have.
    fn forget(&self, area: &Area<Entries>, pages: std::ops::Range<usize>) {
        for page in pages {
            if let Location::Near(slot) = area.table.forget(page) {
                self.shared.near.give(slot);
            }
        }
    }
}

fn lock(mover: &Mutex<Mover>) -> MutexGuard<'_, Mover> {
    mover.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fabric for TierFabric {
    fn url(&self) -> &str {
        &self.url
    }

    fn queue_pair(&self, module: Module, frames: Arc<Mapping>) -> Result<Box<dyn QueuePair>, FabricError> {
        Ok(Box::new(TierQueuePair::new(&self.shared, module, frames)?))
    }

    fn allocate(&self, bytes: u64) -> Result<RemoteAddress, FabricError> {
        let start = self.shared.far.allocate(bytes)?;
        let entries = Entries::new((bytes / PAGE_BYTES as u64).narrow_usize());
        if !self.shared.areas.add(Area::new(start, bytes, entries)) {
            return Err(FabricError::System { url: self.url.clone(), cause: GIVEN_TWICE.to_owned() });
        }
        self.shared.near.want(bytes);
        // If the node has nothing now, what is written goes far.
        self.shared.near.grow(yonder_clock::now());
        Ok(start)
    }

    fn release(&self, start: RemoteAddress) -> Result<(), FabricError> {
        if let Some(area) = self.shared.areas.remove(start) {
            let has_left = lock(&self.mover).abandon(&area);
            self.forget(&area, 0..area.pages());
            self.shared.near.want_less((area.pages() * PAGE_BYTES) as u64);
            if !has_left {
                // A write whose end is not known may still come: the memory is nobody's until then.
                self.shared.ended().push((area, start));
                self.shared.wake();
                return Ok(());
            }
        }
        self.shared.far.release(start)
    }

    fn discard(&self, start: RemoteAddress, bytes: u64) -> Result<(), FabricError> {
        if let Some((area, pages)) = View::new(&self.shared.areas).range(start, bytes) {
            self.forget(&area, pages);
        }
        self.shared.far.discard(start, bytes)
    }

    fn space(&self) -> Option<Credentials> {
        self.shared.near.fabric().space()
    }

    fn loses_operations(&self) -> bool {
        self.shared.near.fabric().loses_operations() || self.shared.far.loses_operations()
    }

    fn counters(&self) -> Vec<Counter> {
        let mut counters = self.shared.near.fabric().counters();
        counters.extend(self.shared.far.counters());
        let slots = self.shared.near.slots();
        let used = slots - self.shared.near.free_slots().min(slots);
        counters.push(Counter { name: "tier_near_bytes", value: (slots * PAGE_BYTES) as u64 });
        counters.push(Counter { name: "tier_near_used_bytes", value: (used * PAGE_BYTES) as u64 });
        let events = EVENTS.iter().zip(&self.shared.events);
        counters.extend(events.map(|(name, count)| Counter { name, value: count.load(Ordering::Relaxed) }));
        counters
    }
}

#[cfg(test)]
pub(crate) mod tests;
