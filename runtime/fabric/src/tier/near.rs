//! [`Near`]: the memory node's share of a tiered store, in blocks that are split into slots of a page (LightSwap,
//! section 5.1).
//!
//! The node is asked for a block of up to 1 GiB when the slots become few, so that it is filled gradually, and refuses
//! only what it has not got; then a smaller block will do. A slot has one page at a time. Which one it says itself, so
//! that the hand of a clock can go round over the slots and find pages that nobody has used since it came by.
//!
//! Who touches what: free slots, under the lock; an owner, who has the slot. Asking the node blocks: never on a queue
//! pair's side.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use yonder_units::{Nanos, Narrow, PAGE_BYTES};
use zerocopy::FromZeros as _;

use crate::{Fabric, FabricError, RemoteAddress};

/// Largest block, and the least that is asked for when the node refuses larger ones.
const BLOCK_BYTES_MAX: u64 = 1 << 30;
const BLOCK_BYTES_MIN: u64 = 2 << 20;
const BLOCKS_MAX: usize = 4096;
/// Slots of a block, as bits of a slot's number.
const SLOT_BITS: u32 = (BLOCK_BYTES_MAX / PAGE_BYTES as u64).ilog2();
const _: () = assert!((BLOCKS_MAX as u64) << SLOT_BITS <= 1 << u32::BITS);

/// Slots that are kept free for pages that are written: a share of all, and at most so many.
const RESERVE_SHARE: usize = 16;
const RESERVE_SLOTS_MAX: usize = 512;
/// Slots beyond those that the pages need, so that a node with room for everything never runs short: a page that is
/// written has two for a while.
const SPARE_BYTES: u64 = 2 * (RESERVE_SLOTS_MAX * PAGE_BYTES) as u64;

/// How long no write goes to a node after one has failed there, and how long a node that has refused a block is not
/// asked again.
const PAUSE: Nanos = 1_000_000_000;

/// A page's worth of the node's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot(pub(super) u32);

/// The memory of the node.
pub(super) struct Near {
    fabric: Arc<dyn Fabric>,
    /// Most bytes of it.
    limit: u64,
    blocks: Box<[OnceLock<Block>]>,
    free: Mutex<Vec<Slot>>,
    /// As many as `free` has, for whoever only wants to know that.
    free_slots: AtomicUsize,
    slots: AtomicUsize,
    /// Bytes of all areas.
    wanted: AtomicU64,
    /// No block is asked for, and no page written there, before these times.
    asks_after: AtomicU64,
    writes_after: AtomicU64,
    /// Held by who asks the node.
    asking: Mutex<()>,
    /// Whether the node has refused a block, or has given all that may be asked for.
    is_complete: AtomicBool,
}

struct Block {
    start: RemoteAddress,
    /// The address of the page that a slot has, plus one; 0 is none.
    owners: Box<[AtomicU64]>,
}

impl Near {
    /// At most `limit` bytes of `fabric`.
    pub(super) fn new(fabric: Arc<dyn Fabric>, limit: u64) -> Self {
        Self {
            fabric,
            limit,
            blocks: (0..BLOCKS_MAX).map(|_| OnceLock::new()).collect(),
            free: Mutex::default(),
            free_slots: AtomicUsize::new(0),
            slots: AtomicUsize::new(0),
            wanted: AtomicU64::new(0),
            asks_after: AtomicU64::new(0),
            writes_after: AtomicU64::new(0),
            asking: Mutex::default(),
            is_complete: AtomicBool::new(false),
        }
    }

    pub(super) fn fabric(&self) -> &Arc<dyn Fabric> {
        &self.fabric
    }

    /// There are so many bytes of areas more.
    pub(super) fn want(&self, bytes: u64) {
        self.wanted.fetch_add(bytes, Ordering::AcqRel);
        self.is_complete.store(false, Ordering::Release);
        self.asks_after.store(0, Ordering::Release);
    }

    /// There are so many bytes of areas less. The blocks stay, for others.
    pub(super) fn want_less(&self, bytes: u64) {
        self.wanted.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Asks the node for a block, if more is wanted and it may have more. Blocks. Whether there is one more.
    pub(super) fn grow(&self, now: Nanos) -> bool {
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if now < self.asks_after.load(Ordering::Acquire) {
            return false;
        }
        let have = (self.slots() * PAGE_BYTES) as u64;
        let most = self.most();
        let mut bytes = most.saturating_sub(have).min(BLOCK_BYTES_MAX);
        let next = self.blocks.iter().position(|block| block.get().is_none());
        while let (Some(next), true) = (next, bytes > 0) {
            match self.fabric.allocate(bytes) {
                Ok(start) => {
                    self.add(next, start, (bytes / PAGE_BYTES as u64).narrow_usize());
                    self.is_complete.store(most == have + bytes, Ordering::Release);
                    return true;
                }
                Err(FabricError::OutOfMemory { .. }) if bytes / 2 >= BLOCK_BYTES_MIN => {
                    bytes = bytes / 2 / PAGE_BYTES as u64 * PAGE_BYTES as u64;
                }
                // The node is full or lost.
                Err(_) => break,
            }
        }
        self.is_complete.store(true, Ordering::Release);
        self.asks_after.store(now + PAUSE, Ordering::Release);
        false
    }

    fn add(&self, block: usize, start: RemoteAddress, slots: usize) {
        let owners = <[AtomicU64]>::new_box_zeroed_with_elems(slots).expect("a word a page is 1/512 of the block");
        assert!(self.blocks[block].set(Block { start, owners }).is_ok(), "blocks are added one after the other");
        let mut free = self.free();
        // For all slots, so that giving one back never allocates.
        let missing = (self.slots() + slots).saturating_sub(free.len());
        free.reserve(missing);
        let first = block.narrow_u32() << SLOT_BITS;
        free.extend((first..first + slots.narrow_u32()).rev().map(Slot));
        self.free_slots.store(free.len(), Ordering::Release);
        drop(free);
        self.slots.fetch_add(slots, Ordering::AcqRel);
    }

    /// All slots.
    pub(super) fn slots(&self) -> usize {
        self.slots.load(Ordering::Acquire)
    }

    pub(super) fn free_slots(&self) -> usize {
        self.free_slots.load(Ordering::Acquire)
    }

    /// How many slots should be free for pages that are written.
    pub(super) fn reserve(&self) -> usize {
        (self.slots() / RESERVE_SHARE).clamp(1, RESERVE_SLOTS_MAX)
    }

    /// Whether there are fewer.
    pub(super) fn is_short(&self) -> bool {
        self.free_slots() < self.reserve()
    }

    /// Whether the node is not to be asked for more now.
    pub(super) fn is_complete(&self, now: Nanos) -> bool {
        self.is_complete.load(Ordering::Acquire) && (now < self.asks_after.load(Ordering::Acquire) || self.has_all())
    }

    fn has_all(&self) -> bool {
        (self.slots() * PAGE_BYTES) as u64 >= self.most()
    }

    /// How many bytes the node may be asked for in all.
    fn most(&self) -> u64 {
        match self.wanted.load(Ordering::Acquire) {
            0 => 0,
            wanted => self.limit.min(wanted + SPARE_BYTES) / PAGE_BYTES as u64 * PAGE_BYTES as u64,
        }
    }

    /// A write to the node has failed: none goes there for a while.
    pub(super) fn failed(&self, now: Nanos) {
        self.writes_after.store(now + PAUSE, Ordering::Release);
    }

    /// Whether pages may be written to the node now.
    pub(super) fn is_up(&self, now: Nanos) -> bool {
        now >= self.writes_after.load(Ordering::Acquire)
    }

    /// A free slot, if there is one.
    pub(super) fn take(&self) -> Option<Slot> {
        if self.free_slots() == 0 {
            return None;
        }
        let mut free = self.free();
        let slot = free.pop();
        self.free_slots.store(free.len(), Ordering::Release);
        slot
    }

    /// Gives a slot back whose page is elsewhere, and which nobody writes any more.
    pub(super) fn give(&self, slot: Slot) {
        self.set_owner(slot, None);
        let mut free = self.free();
        free.push(slot);
        self.free_slots.store(free.len(), Ordering::Release);
    }

    /// Says which page a slot has.
    pub(super) fn set_owner(&self, slot: Slot, page: Option<RemoteAddress>) {
        let (block, at) = self.find(slot);
        block.owners[at].store(page.map_or(0, |address| address.0 + 1), Ordering::Release);
    }

    /// The next slot that has a page, within `slots` steps of the `hand`, which moves.
    pub(super) fn next_owner(&self, hand: &mut Slot, slots: usize) -> Option<(Slot, RemoteAddress)> {
        for _ in 0..slots {
            let slot = *hand;
            let (block, at) = ((slot.0 >> SLOT_BITS) as usize, (slot.0 & ((1 << SLOT_BITS) - 1)) as usize);
            let Some(owners) = self.blocks.get(block).and_then(OnceLock::get).map(|block| &block.owners) else {
                *hand = Slot(0);
                continue;
            };
            hand.0 = if at + 1 < owners.len() { slot.0 + 1 } else { (block.narrow_u32() + 1) << SLOT_BITS };
            match owners[at].load(Ordering::Acquire) {
                0 => {}
                owner => return Some((slot, RemoteAddress(owner - 1))),
            }
        }
        None
    }

    /// Where a slot is on the node.
    pub(super) fn address(&self, slot: Slot) -> RemoteAddress {
        let (block, at) = self.find(slot);
        RemoteAddress(block.start.0 + (at * PAGE_BYTES) as u64)
    }

    fn find(&self, slot: Slot) -> (&Block, usize) {
        let block = self.blocks[(slot.0 >> SLOT_BITS) as usize].get().expect("a slot is in a block that is there");
        (block, (slot.0 & ((1 << SLOT_BITS) - 1)) as usize)
    }

    fn free(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open;

    const PAGE: u64 = PAGE_BYTES as u64;

    #[test]
    fn the_node_is_asked_for_as_much_as_it_has_and_as_is_wanted() {
        // Size of the node, limit, what is wanted, and the slots of each block.
        for (node, limit, wanted, expected) in [
            ("4GiB", u64::MAX, 10 << 20, vec![3584]),
            ("4GiB", u64::MAX, 3 << 30, vec![1 << 18, 1 << 18, 1 << 18, 1024]),
            ("4GiB", 7 * PAGE + 1, 3 << 30, vec![7]),
            ("23MiB", u64::MAX, 28 << 20, vec![4096, 1024, 768]),
            ("1MiB", u64::MAX, 28 << 20, vec![]),
        ] {
            let near = Near::new(open(&format!("emu://?size={node}")).unwrap(), limit);
            near.want(wanted);
            let mut blocks = Vec::new();
            while near.grow(0) {
                blocks.push(near.slots() - blocks.iter().sum::<usize>());
            }
            assert_eq!(blocks, expected, "{node}");
            assert!(near.is_complete(0) && near.free_slots() == near.slots());
            near.want(0);
            assert!(!near.grow(0));
        }
    }

    #[test]
    fn a_slot_is_nobodys_until_it_is_given_back() {
        let near = Near::new(open("emu://?size=1MiB").unwrap(), 4 * PAGE);
        near.want(8 * PAGE);
        assert!(near.grow(0));
        let taken: Vec<Slot> = std::iter::from_fn(|| near.take()).collect();
        assert_eq!(taken, [0, 1, 2, 3].map(Slot));
        let addresses: Vec<u64> = taken.iter().map(|slot| near.address(*slot).0).collect();
        assert!(addresses.windows(2).all(|pair| pair[0] + PAGE == pair[1]));
        near.set_owner(Slot(2), Some(RemoteAddress(0)));
        let mut hand = Slot(0);
        for _ in 0..3 {
            assert_eq!(near.next_owner(&mut hand, 8), Some((Slot(2), RemoteAddress(0))));
        }
        near.give(Slot(2));
        assert_eq!((near.next_owner(&mut hand, 8), near.take(), near.take()), (None, Some(Slot(2)), None));
    }
}
