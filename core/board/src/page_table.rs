//! [`PageTable`]: where every page of every address space is.
//!
//! A bucket is two cache lines: eight tags, which say whose page a slot is, and eight entries, which say where it is.
//! The pages of a *run* (64 pages of one address space, aligned) fall into buckets beside each other, so that a run
//! adds at most one page to a bucket; where a run begins is a hash. See [`crate::Allocator`] for what that saves.
//!
//! Who touches what: the allocator alone inserts and removes, under `&mut` of itself; any thread looks up, maps, and
//! reads. An entry changes by compare-and-swap in one transition function. A removed page keeps its tag until
//! [`PageTable::forget`], which the owner calls when nobody can still be using the page. A visit that begins after that
//! wait may find the tag all the same, so a lookup looks at the tag again after the entry.

use xxhash_rust::xxh3::xxh3_64_with_seed;
use yonder_units::Narrow;
use yonder_wire::Permission;

use crate::address::{PhysicalPage, Pid, VirtualPage};
use crate::atomic::{AtomicU64, Ordering};

/// Slots of a bucket: tags and entries fill two cache lines.
pub(crate) const SLOTS_PER_BUCKET: usize = 8;
/// Slots for each physical page: room for buckets that differ, and for more virtual than physical pages.
const SLOTS_PER_PAGE: u64 = 2;
/// Pages of a run.
pub(crate) const RUN_PAGES: u32 = 64;
/// No page has this tag, because no address space has number 0.
const NOBODY: u64 = 0;

/// A hash table of page table entries whose buckets never overflow.
#[derive(Debug)]
pub(crate) struct PageTable {
    buckets: Box<[Bucket]>,
    seed: u64,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Bucket {
    tags: [AtomicU64; SLOTS_PER_BUCKET],
    entries: [AtomicU64; SLOTS_PER_BUCKET],
}

// A word of a model is more than its bits.
#[cfg(not(yonder_loom))]
const _: () = assert!(size_of::<Bucket>() == 128, "a bucket is two cache lines");

/// Where a page's entry is. Valid until the page is removed and forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    bucket: u32,
    slot: u8,
}

/// What a page table says of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lookup {
    /// Allocated, and never written: it reads as zeros.
    Reserved(Slot, Permission),
    /// It is there.
    Mapped(Slot, Permission, PhysicalPage),
    /// It is on its way to another node or from one, and cannot be used now.
    Moving,
}

/// Whether requests may use a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Service {
    /// They may.
    Open,
    /// They wait, because it moves.
    Moving,
}

/// An entry, as a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    /// No page, or a page that has been removed.
    Free,
    Page {
        permission: Permission,
        service: Service,
        memory: Option<PhysicalPage>,
    },
}

/// What happens to an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Insert(Permission, Service),
    /// The first write to a page that is open.
    Map(PhysicalPage),
    /// A page that moves gets the memory that its bytes are written to.
    Adopt(PhysicalPage),
    Unmap,
    Serve(Service),
    Remove,
}

impl Entry {
    const RESERVED: u64 = 1 << 32;
    const MAPPED: u64 = 2 << 32;
    const WRITABLE: u64 = 1 << 40;
    const MOVING: u64 = 1 << 41;

    fn from_bits(bits: u64) -> Self {
        let memory = match bits & (Self::RESERVED | Self::MAPPED) {
            0 => return Self::Free,
            Self::RESERVED => None,
            _ => Some(PhysicalPage((bits & 0xffff_ffff) as u32)),
        };
        let permission = if bits & Self::WRITABLE == 0 { Permission::Read } else { Permission::ReadWrite };
        let service = if bits & Self::MOVING == 0 { Service::Open } else { Service::Moving };
        Self::Page { permission, service, memory }
    }

    fn bits(self) -> u64 {
        let Self::Page { permission, service, memory } = self else { return 0 };
        let memory = memory.map_or(Self::RESERVED, |page| Self::MAPPED | u64::from(page.0));
        let writable = if permission == Permission::ReadWrite { Self::WRITABLE } else { 0 };
        let moving = if service == Service::Moving { Self::MOVING } else { 0 };
        memory | writable | moving
    }

    /// The memory that the page has, if it is one and has any.
    fn memory(self) -> Option<PhysicalPage> {
        match self {
            Self::Free => None,
            Self::Page { memory, .. } => memory,
        }
    }

    /// The one transition function; `None` if `event` cannot happen now.
    fn on(self, event: Event) -> Option<Self> {
        let (permission, service, memory) = match (self, event) {
            (Self::Free, Event::Insert(permission, service)) => {
                return Some(Self::Page { permission, service, memory: None });
            }
            (Self::Free, _) | (Self::Page { .. }, Event::Insert(..)) => return None,
            (Self::Page { permission, service, memory }, _) => (permission, service, memory),
        };
        match (event, service, memory) {
            (Event::Map(page), Service::Open, None) | (Event::Adopt(page), Service::Moving, None) => {
                Some(Self::Page { permission, service, memory: Some(page) })
            }
            (Event::Unmap, Service::Open, _) => Some(Self::Page { permission, service, memory: None }),
            (Event::Serve(service), ..) => Some(Self::Page { permission, service, memory }),
            (Event::Remove, ..) => Some(Self::Free),
            _ => None,
        }
    }
}

impl PageTable {
    /// A table for `physical_pages` pages of memory. `seed` makes collisions unpredictable to clients.
    ///
    /// # Panics
    /// If there are more physical pages than an entry can name.
    #[must_use]
    pub(crate) fn new(physical_pages: u32, seed: u64) -> Self {
        assert!(physical_pages <= PhysicalPage::MAX.0, "{physical_pages} pages are more than an entry can name");
        let buckets = (SLOTS_PER_PAGE * u64::from(physical_pages)).div_ceil(SLOTS_PER_BUCKET as u64).max(1);
        Self { buckets: (0..buckets).map(|_| Bucket::default()).collect(), seed }
    }

    /// Bytes of the table, whatever is in it.
    #[must_use]
    pub(crate) fn bytes(&self) -> u64 {
        size_of_val::<[Bucket]>(&self.buckets) as u64
    }

    /// Number of buckets.
    #[must_use]
    pub(crate) fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// What is known of a page, from one bucket; `None` if it is not allocated.
    #[inline]
    #[must_use]
    pub(crate) fn look_up(&self, pid: Pid, page: VirtualPage) -> Option<Lookup> {
        let (number, tag) = (self.bucket_of(pid, page), tag(pid, page));
        let bucket = &self.buckets[number];
        let index = bucket.tags.iter().position(|found| found.load(Ordering::Acquire) == tag)?;
        let slot = Slot { bucket: number.narrow_u32(), slot: index.narrow_u8() };
        let entry = bucket.entries[index].load(Ordering::Acquire);
        // A page that was removed before this visit began keeps its tag until it is forgotten, which may happen between
        // the two loads; then the entry is already that of another page, and the tag is no longer this one.
        if bucket.tags[index].load(Ordering::Acquire) != tag {
            return None;
        }
        match Entry::from_bits(entry) {
            Entry::Free => None,
            Entry::Page { service: Service::Moving, .. } => Some(Lookup::Moving),
            Entry::Page { permission, memory: None, .. } => Some(Lookup::Reserved(slot, permission)),
            Entry::Page { permission, memory: Some(page), .. } => Some(Lookup::Mapped(slot, permission, page)),
        }
    }

    /// Gives a reserved page its memory. If another thread was first, or the page has been removed or moves, `page`
    /// stays the caller's, and is returned with what requests may use instead: the other's page, or nothing.
    pub(crate) fn map(&self, slot: Slot, page: PhysicalPage) -> Result<(), Option<PhysicalPage>> {
        match self.change(slot, Event::Map(page)) {
            Ok(_) => Ok(()),
            Err(Entry::Page { service: Service::Open, memory, .. }) => Err(memory),
            Err(_) => Err(None),
        }
    }

    /// Inserts a page that has no slot, into the bucket where the allocator has found room.
    pub(crate) fn insert(&self, pid: Pid, page: VirtualPage, permission: Permission, service: Service) {
        let bucket = &self.buckets[self.bucket_of(pid, page)];
        let index = bucket.tags.iter().position(|tag| tag.load(Ordering::Relaxed) == NOBODY);
        let index = index.expect("the allocator gives out only pages whose bucket has room");
        let seen = Entry::from_bits(bucket.entries[index].load(Ordering::Relaxed));
        let reserved = seen.on(Event::Insert(permission, service)).expect("an unnamed slot is free");
        // The entry first: whoever finds the tag finds it.
        bucket.entries[index].store(reserved.bits(), Ordering::Release);
        bucket.tags[index].store(tag(pid, page), Ordering::Release);
    }

    /// Gives a page that moves to this node the memory for its bytes.
    pub(crate) fn adopt(&self, pid: Pid, page: VirtualPage, memory: PhysicalPage) {
        let adopted = self.change(self.slot_of(pid, page), Event::Adopt(memory));
        adopted.expect("a page is adopted once, while it moves");
    }

    /// Takes the memory of a page that serves requests, if it has any: it reads as zeros from now on. Threads that have
    /// looked it up may still use that memory.
    pub(crate) fn unmap(&self, pid: Pid, page: VirtualPage) -> Option<PhysicalPage> {
        self.change(self.slot_of(pid, page), Event::Unmap).expect("a page that moves is not unmapped").memory()
    }

    /// Lets requests use a page, or makes them wait. Threads that have looked it up may still use it.
    pub(crate) fn serve(&self, pid: Pid, page: VirtualPage, service: Service) {
        self.change(self.slot_of(pid, page), Event::Serve(service)).expect("a page is either open or moves");
    }

    /// The memory of a page, also of one that moves.
    pub(crate) fn memory_of(&self, pid: Pid, page: VirtualPage) -> Option<PhysicalPage> {
        Entry::from_bits(self.entry(self.slot_of(pid, page)).load(Ordering::Acquire)).memory()
    }

    /// Removes a page and returns the memory it had. Threads that have looked it up may still use that memory.
    pub(crate) fn remove(&self, pid: Pid, page: VirtualPage) -> (Slot, Option<PhysicalPage>) {
        let slot = self.slot_of(pid, page);
        let had = self.change(slot, Event::Remove).expect("only the allocator removes pages");
        (slot, had.memory())
    }

    /// Makes the slot of a removed page free for others. The caller knows that no thread still has it from a lookup.
    pub(crate) fn forget(&self, slot: Slot) {
        let bucket = &self.buckets[slot.bucket as usize];
        let entry = bucket.entries[usize::from(slot.slot)].load(Ordering::Acquire);
        assert!(Entry::from_bits(entry) == Entry::Free, "a slot is forgotten that holds a page");
        bucket.tags[usize::from(slot.slot)].store(NOBODY, Ordering::Release);
    }

    /// The bucket of a page.
    #[inline]
    pub(crate) fn bucket_of(&self, pid: Pid, page: VirtualPage) -> usize {
        let run = (u64::from(pid.get()) << 32) | u64::from(page.0 / RUN_PAGES);
        let hash = xxh3_64_with_seed(&run.to_le_bytes(), self.seed);
        let first = (u128::from(hash) * self.buckets.len() as u128) >> 64;
        (first.narrow_usize() + (page.0 % RUN_PAGES) as usize) % self.buckets.len()
    }

    /// The slot of a page that the caller knows to be allocated.
    fn slot_of(&self, pid: Pid, page: VirtualPage) -> Slot {
        let (number, tag) = (self.bucket_of(pid, page), tag(pid, page));
        let index = self.buckets[number].tags.iter().position(|found| found.load(Ordering::Acquire) == tag);
        match index {
            Some(index) => Slot { bucket: number.narrow_u32(), slot: index.narrow_u8() },
            None => panic!("page {} of address space {} is not there", page.0, pid.get()),
        }
    }

    /// Lets `event` happen to an entry, and returns what it was before; as an error if the event cannot happen now.
    fn change(&self, slot: Slot, event: Event) -> Result<Entry, Entry> {
        let entry = self.entry(slot);
        let mut bits = entry.load(Ordering::Acquire);
        loop {
            let seen = Entry::from_bits(bits);
            let next = seen.on(event).ok_or(seen)?;
            match entry.compare_exchange_weak(bits, next.bits(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(seen),
                Err(now) => bits = now,
            }
        }
    }

    #[inline]
    fn entry(&self, slot: Slot) -> &AtomicU64 {
        &self.buckets[slot.bucket as usize].entries[usize::from(slot.slot)]
    }
}

fn tag(pid: Pid, page: VirtualPage) -> u64 {
    (u64::from(pid.get()) << 32) | u64::from(page.0)
}

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use super::*;

    const PID: Pid = Pid::new(7).unwrap();
    const PAGE: VirtualPage = VirtualPage(100);

    #[test]
    fn a_page_is_reserved_then_mapped_then_gone() {
        let table = PageTable::new(64, 1);
        assert_eq!(table.look_up(PID, PAGE), None);
        table.insert(PID, PAGE, Permission::ReadWrite, Service::Open);
        let Some(Lookup::Reserved(slot, Permission::ReadWrite)) = table.look_up(PID, PAGE) else { panic!() };
        assert_eq!(table.map(slot, PhysicalPage(5)), Ok(()));
        assert_eq!(table.map(slot, PhysicalPage(6)), Err(Some(PhysicalPage(5))));
        assert_eq!(table.look_up(PID, PAGE), Some(Lookup::Mapped(slot, Permission::ReadWrite, PhysicalPage(5))));
        assert_eq!(table.look_up(Pid::new(8).unwrap(), PAGE), None, "another address space sees the page");
        assert_eq!(table.remove(PID, PAGE), (slot, Some(PhysicalPage(5))));
        assert_eq!(table.look_up(PID, PAGE), None);
        assert_eq!(table.map(slot, PhysicalPage(6)), Err(None), "a late writer gives a removed page memory");
        table.forget(slot);
        table.insert(PID, PAGE, Permission::Read, Service::Open);
        assert!(matches!(table.look_up(PID, PAGE), Some(Lookup::Reserved(_, Permission::Read))));
    }

    #[test]
    fn one_of_two_first_writers_gives_the_page_its_memory() {
        let table = PageTable::new(64, 1);
        table.insert(PID, PAGE, Permission::ReadWrite, Service::Open);
        let Some(Lookup::Reserved(slot, _)) = table.look_up(PID, PAGE) else { panic!() };
        let results = std::thread::scope(|scope| {
            let table = &table;
            [1, 2]
                .map(|page| scope.spawn(move || table.map(slot, PhysicalPage(page))))
                .map(|thread| thread.join().unwrap())
        });
        let winner = results.iter().position(Result::is_ok).unwrap() as u32 + 1;
        assert!(results.contains(&Err(Some(PhysicalPage(winner)))), "{results:?}");
    }

    #[test]
    fn a_page_whose_memory_is_taken_reads_as_zeros_and_can_be_written_again() {
        let table = PageTable::new(64, 1);
        table.insert(PID, PAGE, Permission::ReadWrite, Service::Open);
        assert_eq!(table.unmap(PID, PAGE), None);
        let Some(Lookup::Reserved(slot, _)) = table.look_up(PID, PAGE) else { panic!() };
        table.map(slot, PhysicalPage(5)).unwrap();
        assert_eq!(table.unmap(PID, PAGE), Some(PhysicalPage(5)));
        assert_eq!(table.look_up(PID, PAGE), Some(Lookup::Reserved(slot, Permission::ReadWrite)));
        assert_eq!(table.map(slot, PhysicalPage(6)), Ok(()));
    }

    #[test]
    fn a_page_that_moves_is_not_served_and_gets_memory_only_from_the_mover() {
        let table = PageTable::new(64, 1);
        table.insert(PID, PAGE, Permission::ReadWrite, Service::Open);
        let Some(Lookup::Reserved(slot, _)) = table.look_up(PID, PAGE) else { panic!() };
        table.serve(PID, PAGE, Service::Moving);
        assert_eq!(table.look_up(PID, PAGE), Some(Lookup::Moving));
        assert_eq!(table.map(slot, PhysicalPage(5)), Err(None), "a late writer changes a page that moves");
        table.adopt(PID, PAGE, PhysicalPage(6));
        assert_eq!(table.memory_of(PID, PAGE), Some(PhysicalPage(6)));
        assert_eq!(table.map(slot, PhysicalPage(5)), Err(None), "a late writer gets a page that moves");
        table.serve(PID, PAGE, Service::Open);
        assert_eq!(table.look_up(PID, PAGE), Some(Lookup::Mapped(slot, Permission::ReadWrite, PhysicalPage(6))));
        table.serve(PID, PAGE, Service::Moving);
        assert_eq!(table.remove(PID, PAGE), (slot, Some(PhysicalPage(6))));
    }

    #[test]
    fn entries_survive_their_bits() {
        assert_eq!(Entry::from_bits(Entry::Free.bits()), Entry::Free);
        for permission in [Permission::Read, Permission::ReadWrite] {
            for service in [Service::Open, Service::Moving] {
                let pages = [0, 1, PhysicalPage::MAX.0].map(|page| Some(PhysicalPage(page)));
                for memory in pages.into_iter().chain([None]) {
                    let entry = Entry::Page { permission, service, memory };
                    assert_eq!(Entry::from_bits(entry.bits()), entry);
                }
            }
        }
    }

    #[test]
    fn a_run_falls_into_buckets_beside_each_other() {
        let table = PageTable::new(4096, 1);
        let first = table.bucket_of(PID, VirtualPage(RUN_PAGES));
        for page in 0..RUN_PAGES {
            let bucket = table.bucket_of(PID, VirtualPage(RUN_PAGES + page));
            assert_eq!(bucket, (first + page as usize) % table.buckets());
        }
    }

    #[test]
    #[should_panic(expected = "holds a page")]
    fn a_slot_in_use_cannot_be_forgotten() {
        let table = PageTable::new(64, 1);
        table.insert(PID, PAGE, Permission::Read, Service::Open);
        let Some(Lookup::Reserved(slot, _)) = table.look_up(PID, PAGE) else { panic!() };
        table.forget(slot);
    }
}

#[cfg(all(test, yonder_loom))]
mod model {
    use loom::sync::Arc;

    use super::*;

    const PAGE: VirtualPage = VirtualPage(1);
    const FIRST: Pid = Pid::new(7).unwrap();
    const SECOND: Pid = Pid::new(8).unwrap();

    /// A page was removed and waited for. A lookup of it that begins now finds nothing, while its slot becomes that of
    /// another page, which gets memory.
    #[test]
    fn a_removed_page_is_never_taken_for_the_one_that_gets_its_slot() {
        loom::model(|| {
            let table = PageTable::new(1, 1);
            table.insert(FIRST, PAGE, Permission::ReadWrite, Service::Open);
            let (slot, _) = table.remove(FIRST, PAGE);
            let table = Arc::new(table);
            let visitor = {
                let table = Arc::clone(&table);
                loom::thread::spawn(move || {
                    assert_eq!(table.look_up(FIRST, PAGE), None, "another page's memory is used")
                })
            };
            table.forget(slot);
            table.insert(SECOND, PAGE, Permission::ReadWrite, Service::Open);
            table.map(slot, PhysicalPage(5)).unwrap();
            visitor.join().unwrap();
        });
    }

    /// Of two first writers one gives the page its memory, and both use it.
    #[test]
    fn two_first_writers_use_one_page() {
        loom::model(|| {
            let table = PageTable::new(1, 1);
            table.insert(FIRST, PAGE, Permission::ReadWrite, Service::Open);
            let table = Arc::new(table);
            let write = |table: &PageTable, own: u32| {
                let Some(Lookup::Reserved(slot, _)) = table.look_up(FIRST, PAGE) else { return None };
                Some(table.map(slot, PhysicalPage(own)).map_or_else(|other| other.unwrap(), |()| PhysicalPage(own)))
            };
            let other = {
                let table = Arc::clone(&table);
                loom::thread::spawn(move || write(&table, 1))
            };
            let mine = write(&table, 2);
            let others = other.join().unwrap();
            let Some(Lookup::Mapped(_, _, page)) = table.look_up(FIRST, PAGE) else { panic!("nobody mapped it") };
            assert!([mine, others].into_iter().flatten().all(|used| used == page), "{mine:?} {others:?} {page:?}");
        });
    }
}
