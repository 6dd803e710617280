//! [`Backup`]: a file on a local disk in which each page is too (`?disk=/path`; as the backup of Infiniswap, NSDI'17,
//! section 4).
//!
//! It is the place in the last slot of each group. Writes leave it out where a node answers, and reads do not ask it.
//! When a node has a page, the page is copied into a buffer that is on its way to the file ([`FileLink::leave`]), and
//! the write ends: the file is *late* by what is in these buffers, and a node that is lost takes nothing with it. Where
//! no buffer is free the write waits for one. Where no node of a page answers, the file alone is read and written, and
//! waited for.
//!
//! A page that is on its way to the file is being mended there, to `core/protect`: writes leave the file out until
//! then, and what arrives counts only if the page is still the same. The mender brings what does not arrive that way.
//!
//! A disk that has failed once is written no more: what it alone has is still read there.
//!
//! Invariant: what was allocated in the file is used again only when nothing that was written there can be under way.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use yonder_mapping::Mapping;
use yonder_protect::{MendEnd, MendTicket, Place, Slot, SlotSet};
use yonder_units::{FrameIndex, Nanos, Narrow as _};
use yonder_wire::ErrorCode;

use super::group::{Address, Entry};
use super::lanes::Lanes;
use super::nodes::{NODES_MAX, NodeIndex};
use crate::areas::{Area, AreaPage};
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
/// Pages that a queue pair has on their way to the file.
const LATE_MAX: usize = 256;
/// In the name of what is posted for such a page, beside its place among them.
const LATE: u64 = 1 << 63;
/// A disk from which nothing was heard for so long stands still.
const STALLED_AFTER: Nanos = 2_000_000_000;
/// How often a link without operations is polled.
const IDLE_POLL_INTERVAL: Nanos = 10_000_000;

/// See the head of this file.
pub(super) struct Backup {
    fabric: FileFabric,
    /// Those that have left pages.
    links: AtomicU64,
    has_failed: AtomicBool,
    /// That it has was said.
    is_told: AtomicBool,
    /// Groups whose memory was released: what was written to the file may be under way.
    released: Mutex<Vec<Arc<Area<Entry>>>>,
}

/// A queue pair's, or the mender's, way to the file.
pub(super) struct FileLink {
    backup: Arc<Backup>,
    queue: Box<dyn QueuePair>,
    /// It has left a page.
    leaves: bool,
    ended: Vec<Completion>,
    late: Box<[Option<Late>]>,
    /// Places there without a page.
    free: Vec<u16>,
    /// When something has arrived last, or pages began to be on their way.
    moved_at: Nanos,
    idle_poll_at: Nanos,
}

/// The slots that an operation waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waits {
    ToRead(SlotSet),
    ToWrite(SlotSet),
}

/// What became of a page that is to go to the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Left {
    /// It is on its way or there, or the file is not used.
    Taken,
    /// There is no room for it now, or something else is on its way there.
    Later,
    /// The node that had it is gone: it is to be written again.
    Lost,
}

/// A page on its way to the file.
struct Late {
    at: AreaPage<Entry>,
    ticket: MendTicket,
}

impl Backup {
    /// In a file without a name in a folder.
    pub(super) fn open(folder: &Path) -> Result<Self, FabricError> {
        let fabric = FileFabric::open(&format!("file://{}", folder.display()))?;
        let ([has_failed, is_told], released) = ([false; 2].map(AtomicBool::new), Mutex::default());
        Ok(Self { fabric, links: AtomicU64::new(0), has_failed, is_told, released })
    }

    pub(super) fn link(self: &Arc<Self>, module: Module, frames: Arc<Mapping>) -> Result<FileLink, FabricError> {
        let queue = self.fabric.queue_pair(module, frames)?;
        Ok(FileLink {
            backup: Arc::clone(self),
            queue,
            leaves: false,
            moved_at: 0,
            ended: Vec::with_capacity(QUEUE_DEPTH_MAX),
            late: (0..LATE_MAX).map(|_| None).collect(),
            free: (0..LATE_MAX.narrow_u16()).collect(),
            idle_poll_at: 0,
        })
    }

    /// Puts a place in the file into a group.
    pub(super) fn give_to(&self, entry: &Entry) -> Result<(), FabricError> {
        if self.has_failed() {
            return Ok(());
        }
        let start = self.fabric.allocate(entry.bytes())?;
        assert!(entry.adopt(SLOT, None, Address { node: NODE, start: start.0 }), "nobody else knows it");
        Ok(())
    }

    /// Forgets what is in `bytes` at `start`.
    pub(super) fn discard(&self, start: u64, bytes: u64) -> Result<(), FabricError> {
        self.fabric.discard(RemoteAddress(start), bytes)
    }

    /// The memory of a group was released, and the program has no operations there.
    pub(super) fn release(&self, area: &Arc<Area<Entry>>) {
        self.released.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(area));
    }

    /// Gives back what nothing is under way to any more. `is_mended` says where the mender, who calls this, has
    /// something.
    pub(super) fn bury(&self, is_mended: impl Fn(&Arc<Area<Entry>>) -> bool) {
        let mut released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
        released.retain(|area| {
            let is_used = is_mended(area) || area.table.late() > 0;
            let kept = area.table.kept().find(|kept| kept.region.is_none());
            // It is tried again where another thread has memory given.
            is_used || kept.is_some_and(|kept| !self.fabric.try_release(RemoteAddress(kept.address.start)))
        });
    }

    /// Whether the disk has refused something.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Pages that can be on their way at a time.
    pub(super) fn late_max(&self) -> u64 {
        self.links.load(Ordering::Relaxed) * LATE_MAX as u64
    }

    /// The disk has refused something, or has something else than was written.
    pub(super) fn fail(&self) {
        self.has_failed.store(true, Ordering::Release);
    }

    /// Says once that it has failed.
    pub(super) fn tell_failure(&self) {
        if self.has_failed() && !self.is_told.swap(true, Ordering::AcqRel) {
            tracing::warn!(file = self.fabric.url(), "the disk has failed: pages are at nodes alone from now on");
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

    /// Takes a page that a node has, and that the file is to have too, from a frame, which is free then.
    pub(super) fn leave(&mut self, at: &AreaPage<Entry>, from: FrameIndex, now: Nanos) -> Left {
        let (entry, group) = (&at.area.table, &at.area.table.group);
        let view = group.view();
        let is_used = view.live().contains(SLOT) && !self.backup.has_failed();
        let current = group.look(at.page).current() & view.readable();
        if current.is_empty() {
            return Left::Lost;
        }
        if !is_used || current.contains(SLOT) {
            return Left::Taken;
        }
        // A disk that stands still stops nobody: the mender brings the page once it goes on.
        let is_stalled = self.has_late() && now.saturating_sub(self.moved_at) > STALLED_AFTER;
        let later = if is_stalled { Left::Taken } else { Left::Later };
        let Some(place) = self.free.last().copied() else { return later };
        let Some(ticket) = group.begin_mend(at.page, SLOT) else { return later };
        let to = entry.address(ticket.to()).map(|address| entry.page_at(address, at.page));
        let id = WorkId(LATE | u64::from(place));
        let write = to.map(|to| PageWrite { to, from, vector: Vector::WHOLE });
        if write.is_none_or(|write| self.queue.post_write_vector(id, write, now).is_err()) {
            group.end_mend(&ticket, MendEnd::Failed);
            return later;
        }
        if !self.has_late() {
            self.moved_at = now;
        }
        if !std::mem::replace(&mut self.leaves, true) {
            self.backup.links.fetch_add(1, Ordering::Relaxed);
        }
        self.free.pop();
        entry.count_late(1);
        self.late[usize::from(place)] = Some(Late { at: at.clone(), ticket });
        Left::Taken
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

    /// The next operation that has ended. Whether the disk has failed is for the caller to say if it has refused one.
    pub(super) fn take_ended(&mut self, now: Nanos) -> Option<(WorkId, End)> {
        loop {
            let Completion { id, status } = self.ended.pop()?;
            let is_done = status == Status::Done;
            if id.0 & LATE == 0 {
                return Some((id, if is_done { End::Done } else { End::Refused(ErrorCode::System) }));
            }
            if !is_done {
                self.backup.fail();
            }
            self.moved_at = now;
            self.arrive(id, if is_done { MendEnd::Done } else { MendEnd::Failed });
        }
    }

    /// A page on its way has arrived, or never will.
    fn arrive(&mut self, id: WorkId, end: MendEnd) {
        let place = (id.0 & !LATE).narrow_u16();
        let Late { at, ticket } = self.late[usize::from(place)].take().expect("it is on its way");
        self.free.push(place);
        at.area.table.group.end_mend(&ticket, end);
        at.area.table.count_late(-1);
    }

    pub(super) fn is_up(&self) -> bool {
        !self.backup.has_failed()
    }

    /// As [`QueuePair::next_poll`]: what is on its way is known to have arrived by a poll.
    pub(super) fn next_poll(&self) -> Nanos {
        if self.has_late() { 0 } else { self.queue.next_poll() }
    }

    /// Whether pages are on their way.
    pub(super) fn has_late(&self) -> bool {
        self.free.len() < LATE_MAX
    }
}

impl Lanes {
    /// Whether a read, or a write, of a page is better begun anew at the file: it waits for places of which no node
    /// answers.
    pub(super) fn wants_file(&self, at: &AreaPage<Entry>, waits: Waits, place: impl Fn(Slot) -> Place) -> bool {
        let (entry, group) = (&at.area.table, &at.area.table.group);
        let (Waits::ToRead(waiting) | Waits::ToWrite(waiting)) = waits;
        if !self.can_use_file() || waiting.is_empty() || waiting.contains(SLOT) {
            return false;
        }
        let (view, word) = (group.view(), group.look(at.page));
        let is_there = match waits {
            Waits::ToRead(_) => (word.current() & view.readable()).contains(SLOT),
            Waits::ToWrite(_) => {
                view.live().contains(SLOT) && word.mended() != Some(SLOT) && !word.unsettled().contains(SLOT)
            }
        };
        is_there && self.up(entry, waiting, place).is_empty()
    }
}

impl Drop for FileLink {
    /// What is on its way arrives, if the disk does not stand still; else it is given up, and the mender brings it.
    fn drop(&mut self) {
        let end = yonder_clock::now().saturating_add(STALLED_AFTER);
        while self.has_late() && yonder_clock::now() < end {
            let now = yonder_clock::now();
            self.poll(now);
            while self.take_ended(now).is_some() {}
            std::thread::yield_now();
        }
        for place in 0..LATE_MAX {
            if self.late[place].is_some() {
                let id = WorkId(LATE | place as u64);
                self.cancel(id);
                self.arrive(id, MendEnd::Failed);
            }
        }
        self.backup.links.fetch_sub(self.leaves.into(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use yonder_protect::{Cause, Extent, Protection};
    use yonder_units::PAGE_BYTES;

    use super::*;
    use crate::PageRead;

    const PAGES: usize = 2 * LATE_MAX;

    /// A disk that takes everything, and has done nothing yet.
    #[derive(Default)]
    struct Still {
        taken: Vec<WorkId>,
        ends: Option<Status>,
    }

    impl QueuePair for Still {
        fn post_read_vector(&mut self, _: WorkId, _: PageRead, _: Nanos) -> Result<(), PostError> {
            unreachable!("nothing is read")
        }

        fn post_write_vector(&mut self, id: WorkId, _: PageWrite, _: Nanos) -> Result<(), PostError> {
            self.taken.push(id);
            Ok(())
        }

        fn poll(&mut self, _: Nanos, completions: &mut Vec<Completion>) {
            if let Some(status) = self.ends {
                completions.extend(self.taken.drain(..).map(|id| Completion { id, status }));
            }
        }

        fn cancel(&mut self, id: WorkId) {
            self.taken.retain(|taken| *taken != id);
        }

        fn may_still_write(&self, _: RemoteAddress, _: u64) -> bool {
            false
        }

        fn outstanding(&self) -> usize {
            self.taken.len()
        }

        fn depth(&self) -> usize {
            PAGES
        }
    }

    /// A group at a node and in a file, and a link whose disk ends all that way; `None` where files cannot be used.
    fn scene(ends: Option<Status>) -> Option<(FileLink, Arc<Area<Entry>>)> {
        let folder = tempfile::tempdir().unwrap();
        let backup = match Backup::open(folder.path()) {
            Ok(backup) => Arc::new(backup),
            Err(error) => {
                println!("SKIP: {error}");
                return None;
            }
        };
        let entry = Entry::new(PAGES, PAGE_BYTES as u64, Protection::copies(2), 0);
        assert!(entry.adopt(Slot::new(0), Some(0), Address { node: NodeIndex(0), start: 0 }));
        backup.give_to(&entry).unwrap();
        let frames = Arc::new(Mapping::anonymous(PAGE_BYTES).unwrap());
        let mut link = backup.link(Module::WriteBack, frames).unwrap();
        let area = Arc::new(Area::new(RemoteAddress(0), (PAGES * PAGE_BYTES) as u64, entry));
        (0..PAGES).for_each(|page| {
            let write = area.table.group.begin_write(page, Extent::All).unwrap();
            area.table.group.end_write(&write, Slot::new(0).into(), SlotSet::NONE);
        });
        link.queue = Box::new(Still { ends, ..Still::default() });
        Some((link, area))
    }

    fn leave(link: &mut FileLink, area: &Arc<Area<Entry>>, page: usize, now: Nanos) -> Left {
        link.leave(&AreaPage { area: Arc::clone(area), page }, FrameIndex(0), now)
    }

    #[test]
    fn a_disk_that_stands_still_is_waited_for_a_while_and_stops_nobody_then() {
        let Some((mut link, area)) = scene(None) else { return };
        (0..LATE_MAX).for_each(|page| assert_eq!(leave(&mut link, &area, page, 1000), Left::Taken));
        assert_eq!((area.table.late(), link.backup.late_max()), (LATE_MAX as u64, LATE_MAX as u64));
        assert_eq!(leave(&mut link, &area, LATE_MAX, 1000 + STALLED_AFTER), Left::Later);
        assert_eq!(leave(&mut link, &area, LATE_MAX, 1001 + STALLED_AFTER), Left::Taken);
        assert!(!area.table.group.look(0).current().contains(SLOT), "nothing has arrived");
        // The mender has something to do for what was not taken along, and for what is given up.
        assert_eq!(area.table.pages_to_mend(), (PAGES - LATE_MAX) as u64);
        drop(link);
        assert_eq!((area.table.late(), area.table.pages_to_mend()), (0, PAGES as u64));
        assert!((0..PAGES).all(|page| area.table.group.look(page).mended().is_none()));
    }

    #[test]
    fn a_disk_that_refuses_is_used_no_more_and_what_a_lost_node_had_is_written_again() {
        let Some((mut link, area)) = scene(Some(Status::Failed)) else { return };
        assert_eq!(leave(&mut link, &area, 0, 0), Left::Taken);
        link.poll(IDLE_POLL_INTERVAL);
        assert_eq!(link.take_ended(0), None);
        assert!(link.backup.has_failed() && !link.is_up() && area.table.late() == 0);
        assert_eq!(leave(&mut link, &area, 1, 0), Left::Taken);
        assert!(area.table.group.look(1).mended().is_none(), "nothing goes to it");
        let group = &area.table.group;
        group.give_up(group.view().place(Slot::new(0)), Cause::Lost);
        assert_eq!(leave(&mut link, &area, 1, 0), Left::Lost, "no place has it, swept or not");
    }

    #[test]
    fn what_was_released_is_given_back_when_nothing_is_under_way_there() {
        let Some((mut link, area)) = scene(Some(Status::Done)) else { return };
        let backup = Arc::clone(&link.backup);
        let start = area.table.kept().find(|kept| kept.region.is_none()).unwrap().address.start;
        let is_free = || {
            let again = backup.fabric.allocate(PAGE_BYTES as u64).unwrap();
            backup.fabric.release(again).unwrap();
            again.0 == start
        };
        assert_eq!(leave(&mut link, &area, 0, 0), Left::Taken);
        backup.release(&area);
        backup.bury(|_| false);
        assert!(!is_free(), "a page is on its way");
        link.poll(IDLE_POLL_INTERVAL);
        assert_eq!(link.take_ended(0), None);
        assert!(area.table.group.look(0).current().contains(SLOT));
        backup.bury(|_| true);
        assert!(!is_free(), "the mender has something there");
        backup.bury(|_| false);
        assert!(is_free());
    }
}
