//! [`Stamps`]: the times at which a major fault passes what is public of the runtime: its handler, and its queue pair.
//!
//! [`StampedFabric`] is any fabric whose queue pairs for demand fetches note when a read was posted, when it was first
//! looked for, and when it was found to be done; [`Stamps`] also observes the faults of a region. So the fault path is
//! the product's own, and costs nothing where nobody stamps. Meant for one fault at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use yonder::clock;
use yonder::units::Nanos;
use yonder::{Fabric, FabricError};
use yonder_fabric::{
    Completion, Counter, Credentials, Module, PageRead, PageWrite, PostError, Posting, QueuePair, RemoteAddress, WorkId,
};
use yonder_mapping::Mapping;
use yonder_paging::{FaultObserver, Needed, SeenFault};

/// When one fault passed. Written by the thread that has the fault, and read by it; 0 is not yet.
#[derive(Debug, Default)]
pub(super) struct Stamps {
    began: AtomicU64,
    posted: AtomicU64,
    polled: AtomicU64,
    completed: AtomicU64,
    ended: AtomicU64,
    /// What was seen more than once: then it was not one plain fault.
    again: AtomicU64,
}

/// The times of one plain major fault, on [`yonder::clock`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Passed {
    /// The handler began.
    pub(super) began: Nanos,
    /// The read was posted.
    pub(super) posted: Nanos,
    /// The queue pair was first looked at.
    pub(super) polled: Nanos,
    /// A look found that the page was there.
    pub(super) completed: Nanos,
    /// The handler ended.
    pub(super) ended: Nanos,
}

impl Stamps {
    /// Makes ready for a fault.
    pub(super) fn clear(&self) {
        for stamp in [&self.began, &self.posted, &self.polled, &self.completed, &self.ended, &self.again] {
            stamp.store(0, Ordering::Relaxed);
        }
    }

    /// What has passed since, if that was one plain major fault.
    pub(super) fn passed(&self) -> Option<Passed> {
        let get = |stamp: &AtomicU64| stamp.load(Ordering::Relaxed);
        let [began, posted, polled, completed, ended] =
            [&self.began, &self.posted, &self.polled, &self.completed, &self.ended].map(get);
        let in_order = 0 < began && began <= posted && posted <= polled && polled <= completed && completed <= ended;
        (in_order && get(&self.again) == 0).then_some(Passed { began, posted, polled, completed, ended })
    }

    fn note(&self, stamp: &AtomicU64, at: Nanos) {
        if stamp.load(Ordering::Relaxed) == 0 {
            stamp.store(at, Ordering::Relaxed);
        } else {
            self.again.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether a read is posted that nobody has looked for yet.
    fn is_unseen(&self) -> bool {
        self.posted.load(Ordering::Relaxed) > 0 && self.polled.load(Ordering::Relaxed) == 0
    }
}

impl FaultObserver for Stamps {
    fn saw(&self, fault: &SeenFault) {
        if fault.needed == Needed::Fetch {
            self.note(&self.began, fault.began);
            self.note(&self.ended, fault.began + fault.took);
        } else {
            self.again.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A fabric whose demand fetches are stamped.
pub(super) struct StampedFabric {
    inner: Arc<dyn Fabric>,
    stamps: Arc<Stamps>,
}

impl StampedFabric {
    pub(super) fn new(inner: Arc<dyn Fabric>, stamps: Arc<Stamps>) -> Self {
        Self { inner, stamps }
    }
}

impl Fabric for StampedFabric {
    fn url(&self) -> &str {
        self.inner.url()
    }

    fn queue_pair(&self, module: Module, frames: Arc<Mapping>) -> Result<Box<dyn QueuePair>, FabricError> {
        let inner = self.inner.queue_pair(module, frames)?;
        Ok(match module {
            Module::Fault => Box::new(StampedQueuePair { inner, stamps: Arc::clone(&self.stamps) }),
            Module::Prefetch | Module::Guide | Module::WriteBack => inner,
        })
    }

    fn allocate(&self, bytes: u64) -> Result<RemoteAddress, FabricError> {
        self.inner.allocate(bytes)
    }

    fn release(&self, start: RemoteAddress) -> Result<(), FabricError> {
        self.inner.release(start)
    }

    fn discard(&self, start: RemoteAddress, bytes: u64) -> Result<(), FabricError> {
        self.inner.discard(start, bytes)
    }

    fn space(&self) -> Option<Credentials> {
        self.inner.space()
    }

    fn is_inherited(&self) -> bool {
        self.inner.is_inherited()
    }

    fn loses_operations(&self) -> bool {
        self.inner.loses_operations()
    }

    fn counters(&self) -> Vec<Counter> {
        self.inner.counters()
    }

    fn mapped(&self) -> Option<&Arc<Mapping>> {
        self.inner.mapped()
    }
}

/// A queue pair whose reads are stamped.
struct StampedQueuePair {
    inner: Box<dyn QueuePair>,
    stamps: Arc<Stamps>,
}

impl QueuePair for StampedQueuePair {
    fn post_read_vector(&mut self, id: WorkId, read: PageRead, now: Nanos) -> Result<(), PostError> {
        self.inner.post_read_vector(id, read, now)?;
        self.stamps.note(&self.stamps.posted, clock::now());
        Ok(())
    }

    fn post_write_vector(&mut self, id: WorkId, write: PageWrite, now: Nanos) -> Result<(), PostError> {
        self.inner.post_write_vector(id, write, now)
    }

    fn set_posting(&mut self, posting: Posting) {
        self.inner.set_posting(posting);
    }

    fn poll(&mut self, now: Nanos, completions: &mut Vec<Completion>) {
        if self.stamps.is_unseen() {
            self.stamps.note(&self.stamps.polled, clock::now());
        }
        let before = completions.len();
        self.inner.poll(now, completions);
        if completions.len() > before {
            self.stamps.note(&self.stamps.completed, clock::now());
        }
    }

    fn cancel(&mut self, id: WorkId) {
        self.inner.cancel(id);
    }

    fn may_still_write(&self, start: RemoteAddress, bytes: u64) -> bool {
        self.inner.may_still_write(start, bytes)
    }

    fn next_poll(&self) -> Nanos {
        self.inner.next_poll()
    }

    fn outstanding(&self) -> usize {
        self.inner.outstanding()
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }
}

#[cfg(test)]
mod tests {
    use yonder_fabric::ReadInto;

    use super::*;

    fn seen(needed: Needed, began: Nanos) -> SeenFault {
        SeenFault { offset: 0, instruction: 1, began, took: 1_000_000_000, needed }
    }

    #[test]
    fn demand_fetches_are_stamped_in_their_order_and_others_are_not() {
        let stamps = Arc::new(Stamps::default());
        let fabric = StampedFabric::new(yonder::open("emu://?latency=5us&size=2MiB").unwrap(), Arc::clone(&stamps));
        let frames = Arc::new(Mapping::anonymous(1 << 16).unwrap());
        let start = fabric.allocate(1 << 20).unwrap();
        let fetch = |module| {
            stamps.clear();
            let mut queue = fabric.queue_pair(module, Arc::clone(&frames)).unwrap();
            let began = clock::now();
            queue.post_read(WorkId(1), start, ReadInto::Mapped, began).unwrap();
            let mut completions = Vec::with_capacity(4);
            while completions.is_empty() {
                queue.poll(clock::now(), &mut completions);
            }
            stamps.saw(&seen(Needed::Fetch, began));
            stamps.passed()
        };
        let passed = fetch(Module::Fault).unwrap();
        assert!(passed.completed - passed.began >= 5_000, "{passed:?}");
        assert_eq!(fetch(Module::Prefetch), None);
    }

    #[test]
    fn what_is_not_one_plain_fault_is_left_out() {
        let stamps = Stamps::default();
        let fetched = || {
            stamps.clear();
            for (stamp, at) in [(&stamps.posted, 20), (&stamps.polled, 30), (&stamps.completed, 40)] {
                stamps.note(stamp, at);
            }
            stamps.saw(&seen(Needed::Fetch, 10));
        };
        fetched();
        assert_eq!(stamps.passed().map(|passed| (passed.began, passed.completed)), Some((10, 40)));
        fetched();
        stamps.note(&stamps.posted, 50);
        assert_eq!(stamps.passed(), None, "posted twice");
        fetched();
        stamps.saw(&seen(Needed::NoFetch, 60));
        assert_eq!(stamps.passed(), None, "another fault came behind it");
        fetched();
        stamps.completed.store(0, Ordering::Relaxed);
        assert_eq!(stamps.passed(), None, "somebody else fetched it");
    }
}
