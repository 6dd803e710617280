//! Pre-allocated unithreads: [`Pool`].
//!
//! A pool is shared by reference (or in an `Arc`) and gives slots out as linear handles; a handle that is dropped goes
//! home from whichever thread it is on. Taking and returning neither allocate nor lock nor make a system call.
//! The memory is unmapped when the pool has been dropped AND every slot is home: a handle may outlive its pool, and a
//! stack that was abandoned while suspended keeps it mapped for good, because something may still point into it.
//!
//! Neighbours: `free_list.rs` decides which slots are home, `stack_memory.rs` maps them, `slot.rs` says what they hold.

// UNSAFETY: slots are placed in raw memory, and the last one home frees the pool.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use crate::free_list::{FreeList, Homecoming};
use crate::slot::{Header, Slot};
use crate::stack_memory::{PAGE_BYTES, StackMemory, stack_bytes_min};
use crate::unithread::Unithread;

/// Largest number of slots in a pool: eight times what Adios pre-allocates.
pub const POOL_SLOTS_MAX: usize = 1 << 20;
/// Largest stack, in bytes.
pub const STACK_BYTES_MAX: usize = 1 << 30;
/// A stack size that suits requests which call ordinary library code: 32 KiB.
pub const STACK_BYTES_DEFAULT: usize = 32 << 10;

/// A guard below the stacks of code in C, whose functions need not touch their frames from above: one whose frame is
/// larger than the guard may step over it, into the stack below.
pub const GUARD_BYTES_OF_C: usize = 64 << 10;
const _: () = assert!(GUARD_BYTES_OF_C.is_multiple_of(PAGE_BYTES), "a guard is whole pages");

/// A fixed number of unithreads, each with room for a payload of type `P` and a stack of its own.
///
/// `P` is `'static` because a unithread that is suspended may be abandoned: what it borrowed, or lent to a scoped
/// thread, must then stay valid for ever.
pub struct Pool<P: Send + 'static> {
    shared: NonNull<Shared>,
    payload: PhantomData<P>,
}

/// What a pool and its slots share; freed by whichever of them is the last.
pub(crate) struct Shared {
    free: FreeList,
    memory: StackMemory,
}

// SAFETY: a pool gives slots out by atomic operations, and payloads are `Send`; nothing in it is tied to a thread.
unsafe impl<P: Send> Send for Pool<P> {}
// SAFETY: as above; `take` is the only shared operation, and no payload is reachable through the pool itself.
unsafe impl<P: Send> Sync for Pool<P> {}

impl<P: Send + 'static> Pool<P> {
    /// Maps `slots` unithreads with at least `stack_bytes` of stack each, for code in Rust: it touches each page of a
    /// frame in turn, so that a guard of one page stops it.
    ///
    /// # Errors
    /// As of [`with_guard`](Self::with_guard).
    pub fn new(slots: usize, stack_bytes: usize) -> io::Result<Self> {
        Self::with_guard(slots, stack_bytes, PAGE_BYTES)
    }

    /// The same with so large a guard below each stack: [`GUARD_BYTES_OF_C`] for code in C.
    ///
    /// # Panics
    /// If the guard is no whole number of pages.
    ///
    /// # Errors
    /// `InvalidInput` if `slots` is not in `1..=`[`POOL_SLOTS_MAX`] or `stack_bytes` not in
    /// [`stack_bytes_min`]`..=`[`STACK_BYTES_MAX`], in one line that names the limit; otherwise what the kernel said
    /// about the mapping.
    #[expect(clippy::cast_possible_truncation, reason = "POOL_SLOTS_MAX is checked, and less than 4 Gi")]
    pub fn with_guard(slots: usize, stack_bytes: usize, guard_bytes: usize) -> io::Result<Self> {
        const { assert!(align_of::<Slot<P>>() <= PAGE_BYTES, "a payload is aligned to a page at most") };
        check("unithreads in a pool", slots, 1, POOL_SLOTS_MAX)?;
        check("bytes of unithread stack", stack_bytes, stack_bytes_min(), STACK_BYTES_MAX)?;
        let top_bytes = size_of::<Slot<P>>() + align_of::<Slot<P>>();
        let slot_bytes = guard_bytes + (stack_bytes + top_bytes).next_multiple_of(PAGE_BYTES);
        let memory =
            StackMemory::map(slots, slot_bytes, guard_bytes).map_err(|error| explain(&error, slots, slot_bytes))?;
        let shared = Box::new(Shared { free: FreeList::full(slots as u32), memory });
        Ok(Self { shared: NonNull::from(Box::leak(shared)), payload: PhantomData })
    }

    /// Takes a unithread and stores the payload in it; gives the payload back if all are out.
    #[inline]
    pub fn take(&self, payload: P) -> Result<Unithread<P>, P> {
        // SAFETY: the pool has not been dropped, so what it shares is alive.
        let shared = unsafe { self.shared.as_ref() };
        let Some(index) = shared.free.pop() else { return Err(payload) };
        let (slot, stack_bytes) = shared.place::<P>(index);
        // SAFETY: the index was popped, so the slot is ours alone; its memory is mapped, large enough and aligned.
        unsafe {
            let header = &raw mut (*slot.as_ptr()).header;
            (&raw mut (*header).pool).write(self.shared);
            (&raw mut (*header).index).write(index);
            (&raw mut (*header).stack_bytes).write(stack_bytes);
            (&raw mut (*slot.as_ptr()).payload).write(MaybeUninit::new(payload));
            Ok(Unithread::own(slot))
        }
    }
}

impl<P: Send + 'static> Drop for Pool<P> {
    fn drop(&mut self) {
        // SAFETY: what the pool shares is alive until `release` has been told that it is the last.
        unsafe {
            let homecoming = self.shared.as_ref().free.close();
            release(self.shared, homecoming);
        }
    }
}

impl Shared {
    /// Bytes of the guard below each stack.
    pub(crate) fn guard_bytes(&self) -> usize {
        self.memory.guard_bytes()
    }

    /// Where slot `index` keeps its header, and how many bytes of stack lie between that and the guard.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "STACK_BYTES_MAX is checked, and less than 4 GiB")]
    fn place<P>(&self, index: u32) -> (NonNull<Slot<P>>, u32) {
        let memory = self.memory.slot(index as usize);
        let unaligned = memory.end.addr().get() - size_of::<Slot<P>>();
        let address = unaligned & !(align_of::<Slot<P>>() - 1);
        let stack_bytes = address - memory.lowest_usable.addr().get();
        // SAFETY: the address lies in the slot's own memory, above its guard: the pool was made with room for a header,
        // a payload and their alignment above the stack.
        let header = unsafe { memory.lowest_usable.add(stack_bytes) };
        (header.cast(), stack_bytes as u32)
    }
}

/// Brings a slot home; the pool is freed with the last one, if it has been dropped.
///
/// # Safety
/// The slot was taken from a pool, holds no payload and no live stack, and the caller gives it up.
#[inline]
pub(crate) unsafe fn bring_home(header: NonNull<Header>) {
    // SAFETY: the caller owns the slot, and what the pool shares is alive as long as one of its slots is out.
    unsafe {
        let shared = (*header.as_ptr()).pool;
        let homecoming = shared.as_ref().free.push((*header.as_ptr()).index);
        release(shared, homecoming);
    }
}

/// Frees what the pool and its slots share, if the caller is the last of them.
///
/// # Safety
/// `homecoming` is what the free list of `shared` has just answered.
#[inline]
unsafe fn release(shared: NonNull<Shared>, homecoming: Homecoming) {
    if homecoming == Homecoming::Last {
        // SAFETY: it was leaked from a box by `Pool::new`, and the free list tells exactly one caller that every slot
        // is home and the pool dropped; nobody else can reach it now.
        drop(unsafe { Box::from_raw(shared.as_ptr()) });
    }
}

fn check(what: &str, value: usize, min: usize, max: usize) -> io::Result<()> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{value} {what} will not do: give {min} to {max}")))
}

fn explain(error: &io::Error, slots: usize, slot_bytes: usize) -> io::Error {
    let text = format!(
        "no memory map for {slots} unithreads of {} KiB: {error}; ask for fewer, or allow more mappings with \
         'sysctl -w vm.max_map_count={}'",
        slot_bytes >> 10,
        2 * slots + 65_536
    );
    io::Error::new(error.kind(), text)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use proptest::prelude::*;

    use super::*;

    /// Counts its drops.
    struct Counted(Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn bad_sizes_are_refused_in_one_line() {
        let text = |slots, stack| Pool::<u8>::new(slots, stack).map(|_| ()).unwrap_err().to_string();
        assert_eq!(text(0, STACK_BYTES_DEFAULT), "0 unithreads in a pool will not do: give 1 to 1048576");
        assert!(text(POOL_SLOTS_MAX + 1, STACK_BYTES_DEFAULT).starts_with("1048577 unithreads"));
        assert!(text(1, stack_bytes_min() - 1).contains(&format!("give {} to", stack_bytes_min())));
        assert!(!text(POOL_SLOTS_MAX, STACK_BYTES_MAX).contains('\n'), "more address space than there is");
    }

    #[test]
    fn an_empty_pool_gives_the_payload_back() {
        let pool = Pool::new(2, STACK_BYTES_DEFAULT).unwrap();
        let first = pool.take("one").unwrap();
        let _second = pool.take("two").unwrap();
        assert_eq!(pool.take("three").unwrap_err(), "three");
        let recycled = first.id();
        assert_eq!(first.into_payload(), "one");
        assert_eq!(pool.take("three").unwrap().id(), recycled);
    }

    #[test]
    fn a_payload_is_dropped_once_however_it_leaves() {
        let drops = Arc::new(AtomicUsize::new(0));
        let pool = Pool::new(1, STACK_BYTES_DEFAULT).unwrap();
        let take = || pool.take(Counted(Arc::clone(&drops))).ok().unwrap();
        drop(take());
        assert_eq!(drops.load(Ordering::Relaxed), 1);
        let payload = take().into_payload();
        assert_eq!(drops.load(Ordering::Relaxed), 1);
        drop(payload);
        assert_eq!(drops.load(Ordering::Relaxed), 2);
        let idle = take();
        assert!(pool.take(Counted(Arc::clone(&drops))).is_err_and(|refused| Arc::ptr_eq(&refused.0, &drops)));
        assert_eq!(drops.load(Ordering::Relaxed), 3);
        drop(idle);
        assert_eq!(drops.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn a_slot_comes_home_even_if_dropping_its_payload_panics() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                std::panic::resume_unwind(Box::new("boom"));
            }
        }
        let pool = Pool::new(1, STACK_BYTES_DEFAULT).unwrap();
        let idle = pool.take(Some(Bomb)).ok().unwrap();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(idle))).is_err());
        assert!(pool.take(None).is_ok());
    }

    #[test]
    fn a_handle_may_outlive_its_pool() {
        let pool = Pool::new(2, STACK_BYTES_DEFAULT).unwrap();
        let (first, mut second) = (pool.take(1u64).unwrap(), pool.take(2).unwrap());
        drop(pool);
        drop(first);
        *second.payload_mut() += 1;
        assert_eq!(second.into_payload(), 3);
    }

    #[test]
    fn slots_are_aligned_and_keep_apart() {
        #[repr(align(1024))]
        struct Wide([u8; 1024]);
        const SLOTS: usize = 8;
        let pool = Pool::new(SLOTS, STACK_BYTES_DEFAULT).unwrap();
        let mut taken: Vec<_> = (0..SLOTS).map(|n| pool.take(Wide([n as u8; 1024])).ok().unwrap()).collect();
        for (n, unithread) in taken.iter_mut().enumerate() {
            assert!(std::ptr::from_mut(unithread.payload_mut()).addr().is_multiple_of(1024));
            assert!(unithread.payload_mut().0.iter().all(|byte| *byte == n as u8));
            assert!(unithread.stack_bytes() >= STACK_BYTES_DEFAULT);
        }
    }

    #[test]
    fn adios_pool_size_fits() {
        for guard_bytes in [PAGE_BYTES, GUARD_BYTES_OF_C] {
            let pool = match Pool::with_guard(131_072, STACK_BYTES_DEFAULT, guard_bytes) {
                Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
                    println!("SKIP: {error}");
                    return;
                }
                result => result.unwrap(),
            };
            assert!(pool.take(0u8).is_ok());
        }
    }

    proptest! {
        /// Against a model: taking keeps payloads apart, returns them unchanged, and fails only when all are out.
        #[test]
        fn keeps_what_it_was_given(
            slots in 1usize..6,
            operations in prop::collection::vec(prop::option::of(0usize..8), 0..60),
        ) {
            let pool = Pool::new(slots, STACK_BYTES_DEFAULT).unwrap();
            let mut handles = Vec::new();
            let mut model = HashMap::new();
            for (value, operation) in operations.into_iter().enumerate() {
                match operation {
                    None => match pool.take(value) {
                        Ok(unithread) => {
                            prop_assert!(model.insert(unithread.id(), value).is_none(), "a slot was given out twice");
                            handles.push(unithread);
                        }
                        Err(refused) => prop_assert!(refused == value && model.len() == slots),
                    },
                    Some(nth) if !handles.is_empty() => {
                        let unithread = handles.swap_remove(nth % handles.len());
                        prop_assert_eq!(model.remove(&unithread.id()), Some(unithread.into_payload()));
                    }
                    Some(_) => {}
                }
                prop_assert_eq!(handles.len(), model.len());
            }
        }
    }
}
