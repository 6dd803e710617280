//! [`Backup`]: a file on a local disk in which each page is too, a little later (`?disk=/path`; as the backup of
//! Infiniswap, NSDI'17, section 4).
//!
//! It is the place in the last slot of each group. Writes leave it out where a node answers, and reads do not ask it;
//! the mender writes to it what it lacks. How many pages may be behind is bounded: beyond that, a write goes to the
//! file too and waits for it. Where no node of a page answers, the file alone is read and written.
//!
//! A disk that has failed once is written no more: what it alone has is still read there.
//!
//! Invariant: what was allocated in the file is used again only when nothing that was written there can be under way.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use yonder_mapping::Mapping;
use yonder_protect::Slot;
use yonder_units::Nanos;
use yonder_wire::ErrorCode;

use super::group::{Address, Entry};
use super::nodes::{NODES_MAX, NodeIndex};
use crate::areas::{Area, List};
use crate::queue::End;
use crate::vector::Operation as Posted;
use crate::{
    Completion, Fabric as _, FabricError, FileFabric, Module, PageWrite, PostError, QUEUE_DEPTH_MAX, QueuePair,
    RemoteAddress, Status, Vector, WorkId,
};

/// The slot of the place in the file.
pub(super) const SLOT: Slot = Slot::new(7);
/// What stands for the file among the numbers of nodes.
pub(super) const NODE: NodeIndex = NodeIndex(NODES_MAX);
/// How often it is counted how many pages are behind.
const COUNT_EACH: Nanos = 1_000_000;
/// How often a link without operations is polled.
const IDLE_POLL_INTERVAL: Nanos = 10_000_000;

/// See the head of this file.
pub(super) struct Backup {
    fabric: FileFabric,
    /// Pages that may be behind, but for those that are being written.
    late_max: u64,
    /// Pages that were behind when they were counted last.
    counted: AtomicU64,
    /// Pages that were left behind since, or shortly before.
    added: AtomicU64,
    has_failed: AtomicBool,
    /// Groups whose memory was released: the mender may still write there.
    released: Mutex<Vec<Arc<Area<Entry>>>>,
}

/// A queue pair's, or the mender's, way to the file.
pub(super) struct FileLink {
    backup: Arc<Backup>,
    queue: Box<dyn QueuePair>,
    ended: Vec<Completion>,
    idle_poll_at: Nanos,
}

impl Backup {
    /// In the file at `path`, or in one without a name in that folder.
    pub(super) fn open(path: &Path, late_max: u64) -> Result<Self, FabricError> {
        let fabric = FileFabric::open(&format!("file://{}", path.display()))?;
        let [counted, added] = [0, 0].map(AtomicU64::new);
        let (has_failed, released) = (AtomicBool::new(false), Mutex::default());
        Ok(Self { fabric, late_max, counted, added, has_failed, released })
    }

    pub(super) fn link(self: &Arc<Self>, module: Module, frames: Arc<Mapping>) -> Result<FileLink, FabricError> {
        let queue = self.fabric.queue_pair(module, frames)?;
        Ok(FileLink { backup: Arc::clone(self), queue, ended: Vec::with_capacity(QUEUE_DEPTH_MAX), idle_poll_at: 0 })
    }

    /// Puts a place in the file into a group.
    pub(super) fn give_to(&self, entry: &Entry) -> Result<(), FabricError> {
        let start = self.fabric.allocate(entry.bytes())?;
        assert!(entry.adopt(SLOT, None, Address { node: NODE, start: start.0 }), "nobody else knows it");
        Ok(())
    }

    /// Forgets what is in `bytes` at `start`.
    pub(super) fn discard(&self, start: u64, bytes: u64) -> Result<(), FabricError> {
        self.fabric.discard(RemoteAddress(start), bytes)
    }

    /// The memory of a group was released, and nobody but the mender has operations there.
    pub(super) fn release(&self, area: &Arc<Area<Entry>>) {
        self.released.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(area));
    }

    /// Gives back what the mender has nothing under way at, and never will again.
    pub(super) fn bury(&self, is_under_way: impl Fn(&Arc<Area<Entry>>) -> bool) {
        let mut released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
        released.retain(|area| {
            let stays = is_under_way(area);
            if let Some(kept) = area.table.kept().find(|kept| !stays && kept.place.slot == SLOT) {
                // What cannot be given back ends with the file.
                let _ = self.fabric.release(RemoteAddress(kept.address.start));
            }
            stays
        });
    }

    /// Whether the disk has refused something.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Pages that are at nodes alone, or more.
    pub(super) fn late(&self) -> u64 {
        self.counted.load(Ordering::Acquire) + self.added.load(Ordering::Acquire)
    }

    /// Whether as many are as may be.
    pub(super) fn is_full(&self) -> bool {
        self.late() >= self.late_max
    }

    pub(super) fn late_max(&self) -> u64 {
        self.late_max
    }

    /// A write has left a page behind.
    pub(super) fn leave_behind(&self) {
        self.added.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts the pages that are behind.
    fn count(&self, areas: &List<Entry>) {
        // What is added from now on may be counted twice, and is never missed.
        let added = self.added.load(Ordering::Acquire);
        let late = areas.iter().map(|area| area.table.pages_late()).sum();
        self.counted.store(late, Ordering::Release);
        self.added.fetch_sub(added, Ordering::AcqRel);
    }

    fn fail(&self) {
        if !self.has_failed.swap(true, Ordering::AcqRel) {
            tracing::warn!(file = self.fabric.url(), "the disk has failed: pages are at nodes alone from now on");
        }
    }
}

/// When pages that are behind are counted again, by who mends.
#[derive(Default)]
pub(super) struct Count {
    at: Nanos,
}

impl Count {
    pub(super) fn step(&mut self, backup: &Backup, areas: &List<Entry>, now: Nanos) {
        if now >= self.at {
            self.at = now + COUNT_EACH;
            backup.count(areas);
        }
    }
}

impl FileLink {
    pub(super) fn post(&mut self, id: WorkId, posted: Posted, now: Nanos) -> Result<(), PostError> {
        match posted {
            Posted::Read(read) => self.queue.post_read_vector(id, read, now),
            // All of the page: who mends from here asks for all of it.
            Posted::Write(write) => self.queue.post_write_vector(id, PageWrite { vector: Vector::WHOLE, ..write }, now),
        }
    }

    pub(super) fn cancel(&mut self, id: WorkId) {
        self.ended.retain(|ended| ended.id != id);
        self.queue.cancel(id);
    }

    pub(super) fn poll(&mut self, now: Nanos) {
        // What was cancelled has its buffer until the disk is done with it.
        if self.queue.outstanding() > 0 || now >= self.idle_poll_at {
            self.idle_poll_at = now + IDLE_POLL_INTERVAL;
            self.queue.poll(now, &mut self.ended);
        }
    }

    pub(super) fn take_ended(&mut self) -> Option<(WorkId, End)> {
        let Completion { id, status } = self.ended.pop()?;
        let end = if status == Status::Done { End::Done } else { End::Refused(ErrorCode::System) };
        if end != End::Done {
            self.backup.fail();
        }
        Some((id, end))
    }

    pub(super) fn is_up(&self) -> bool {
        !self.backup.has_failed()
    }

    pub(super) fn next_poll(&self) -> Nanos {
        self.queue.next_poll()
    }
}
