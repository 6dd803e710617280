//! [`Adaptor`]: memory that is known by addresses, as an allocator of Rust's collections.
//!
//! Whoever has the memory implements [`Memory`], which speaks in numbers and needs no unsafe code; the adaptor makes
//! pointers of them, and sees to what the collections expect: nothing is asked for where a layout has no bytes, and
//! what cannot grow where it is moves.
//!
//! Neighbours: `runtime/yonder` has far memory here.
//!
//! UNSAFETY: the trait of allocators is unsafe to implement, and pointers are made of addresses.

use std::alloc::Layout;
use std::ops::Deref;
use std::ptr::{self, NonNull};

use allocator_api2::alloc::{AllocError, Allocator};

/// Memory that is given out and taken back by address.
///
/// # Contract
/// It is for crates of this project, and relied upon by unsafe code: an address that is given out is the first of so
/// many bytes that can be read and written as any memory, and that nobody else has before they are taken back; all
/// clones of a memory are the same, and what was given out stays as long as one of them. None of the functions unwinds.
pub trait Memory: Clone {
    /// The address of `bytes` bytes, more than none, at a multiple of `align`, with any content. `None` if there is no
    /// room.
    fn take(&self, bytes: usize, align: usize) -> Option<usize>;

    /// As [`Memory::take`], and the bytes are zeros.
    fn take_zeroed(&self, bytes: usize, align: usize) -> Option<usize>;

    /// Takes back what was given out.
    fn give(&self, address: usize);

    /// Whether what was given out at `address` now has `bytes` bytes where it is; else it is as it was.
    fn resize(&self, address: usize, bytes: usize) -> bool;
}

/// A [`Memory`] as an allocator.
#[derive(Clone, Debug)]
pub struct Adaptor<M>(M);

impl<M> Adaptor<M> {
    /// An allocator that gives out this memory.
    pub fn new(memory: M) -> Self {
        Self(memory)
    }
}

impl<M> Deref for Adaptor<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.0
    }
}

/// A block of this layout at an address that a [`Memory`] gave out for it.
fn block(address: Option<usize>, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
    let address = address.ok_or(AllocError)?;
    assert!(address.is_multiple_of(layout.align()), "{address:#x} is no place for {layout:?}");
    let first = NonNull::new(ptr::with_exposed_provenance_mut(address)).ok_or(AllocError)?;
    Ok(NonNull::slice_from_raw_parts(first, layout.size()))
}

/// What stands for a block without bytes.
fn nothing(layout: Layout) -> NonNull<[u8]> {
    let place = NonNull::new(ptr::without_provenance_mut(layout.align())).expect("an alignment is not 0");
    NonNull::slice_from_raw_parts(place, 0)
}

impl<M: Memory> Adaptor<M> {
    /// What is at `old` has the layout `new` where it is, or moves with its first `bytes` bytes.
    ///
    /// # Safety
    /// `old` is a block of this allocator that fits its layout, and both have at least `bytes` bytes.
    unsafe fn resize(
        &self,
        old: NonNull<u8>,
        old_layout: Layout,
        new: Layout,
        bytes: usize,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let has_bytes = old_layout.size() > 0 && new.size() > 0;
        if has_bytes && old.addr().get().is_multiple_of(new.align()) && self.0.resize(old.addr().get(), new.size()) {
            return Ok(NonNull::slice_from_raw_parts(old, new.size()));
        }
        let moved = self.allocate(new)?;
        // SAFETY: both have so many bytes, and nobody else has those of a new block; the caller gives up the old one.
        unsafe {
            ptr::copy_nonoverlapping(old.as_ptr(), moved.cast::<u8>().as_ptr(), bytes);
            self.deallocate(old, old_layout);
        }
        Ok(moved)
    }
}

// SAFETY: a block is memory as the contract of `Memory` says, at a multiple of the alignment, which is checked; it
// stays where it is as long as a clone of the memory does, and clones are the same memory. Blocks without bytes are
// nobody's memory.
unsafe impl<M: Memory> Allocator for Adaptor<M> {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(nothing(layout));
        }
        block(self.0.take(layout.size(), layout.align()), layout)
    }

    #[inline]
    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(nothing(layout));
        }
        block(self.0.take_zeroed(layout.size(), layout.align()), layout)
    }

    #[inline]
    unsafe fn deallocate(&self, old: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 {
            self.0.give(old.addr().get());
        }
    }

    unsafe fn grow(&self, old: NonNull<u8>, old_layout: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's, who also promises that the new layout is not smaller.
        unsafe { self.resize(old, old_layout, new, old_layout.size()) }
    }

    unsafe fn shrink(&self, old: NonNull<u8>, old_layout: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's, who also promises that the new layout is not larger.
        unsafe { self.resize(old, old_layout, new, new.size()) }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use allocator_api2::vec::Vec;

    use super::*;

    /// Memory of a box, given out from its start to its end; what was given out last can be resized and taken back.
    #[derive(Clone)]
    struct Boxed(Rc<RefCell<Inside>>);

    struct Inside {
        words: Box<[u64]>,
        blocks: std::vec::Vec<(usize, usize)>,
        given_back: usize,
        can_resize: bool,
    }

    impl Boxed {
        fn new(bytes: usize) -> Self {
            let words = vec![u64::MAX; bytes / 8].into_boxed_slice();
            words.as_ptr().expose_provenance();
            Self(Rc::new(RefCell::new(Inside { words, blocks: vec![], given_back: 0, can_resize: true })))
        }

        fn counts(&self) -> (usize, usize) {
            let inside = self.0.borrow();
            (inside.blocks.len(), inside.given_back)
        }
    }

    impl Memory for Boxed {
        fn take(&self, bytes: usize, align: usize) -> Option<usize> {
            assert!(bytes > 0);
            let mut inside = self.0.borrow_mut();
            let base = inside.words.as_mut_ptr().expose_provenance();
            let first = inside.blocks.last().map_or(base, |(address, bytes)| address + bytes).next_multiple_of(align);
            if first + bytes > base + inside.words.len() * 8 {
                return None;
            }
            inside.blocks.push((first, bytes));
            Some(first)
        }

        fn take_zeroed(&self, bytes: usize, align: usize) -> Option<usize> {
            let address = self.take(bytes, align)?;
            // SAFETY: these bytes were just given out.
            unsafe { ptr::with_exposed_provenance_mut::<u8>(address).write_bytes(0, bytes) };
            Some(address)
        }

        fn give(&self, address: usize) {
            let mut inside = self.0.borrow_mut();
            let place = inside.blocks.iter().position(|(first, _)| *first == address).expect("it was given out");
            inside.blocks.remove(place);
            inside.given_back += 1;
        }

        fn resize(&self, address: usize, bytes: usize) -> bool {
            let mut inside = self.0.borrow_mut();
            let end = inside.words.as_mut_ptr().expose_provenance() + inside.words.len() * 8;
            let can_resize = inside.can_resize;
            match inside.blocks.last_mut().filter(|(first, _)| *first == address) {
                Some(last) if can_resize && address + bytes <= end => {
                    last.1 = bytes;
                    true
                }
                _ => false,
            }
        }
    }

    #[test]
    fn a_vector_grows_where_it_is_or_moves() {
        for (can_resize, moves) in [(true, 0), (false, 6)] {
            let memory = Boxed::new(8 << 10);
            memory.0.borrow_mut().can_resize = can_resize;
            let mut numbers = Vec::new_in(Adaptor::new(memory.clone()));
            (0..200u64).for_each(|number| numbers.push(number));
            numbers.truncate(3);
            numbers.shrink_to_fit();
            assert_eq!((numbers.as_slice(), memory.counts().0), (&[0, 1, 2][..], 1));
            numbers.clear();
            numbers.shrink_to_fit();
            numbers.push(7);
            assert_eq!(numbers.as_slice(), [7]);
            drop(numbers);
            let (blocks, given_back) = memory.counts();
            assert!(blocks == 0 && given_back >= 2 + moves, "{given_back}");
        }
    }

    #[test]
    fn nothing_is_asked_for_nothing() {
        let memory = Boxed::new(64);
        let empty = Vec::<u64, _>::new_in(Adaptor::new(memory.clone()));
        let allocator = Adaptor::new(memory.clone());
        let layout = Layout::from_size_align(0, 64).unwrap();
        let block = allocator.allocate(layout).unwrap();
        assert_eq!((block.addr().get() % 64, block.len(), memory.counts()), (0, 0, (0, 0)));
        // SAFETY: the block was just allocated with this layout.
        unsafe { allocator.deallocate(block.cast(), layout) };
        drop(empty);
        assert_eq!(memory.counts(), (0, 0));
    }

    #[test]
    fn no_room_is_an_error_and_loses_nothing() {
        let memory = Boxed::new(64);
        let mut bytes: Vec<u8, _> = Vec::new_in(Adaptor::new(memory.clone()));
        bytes.resize(40, 5);
        assert!(bytes.try_reserve(100).is_err() && bytes.iter().all(|byte| *byte == 5));
        let zeros = Layout::from_size_align(64, 8).unwrap();
        assert!(Adaptor::new(memory).allocate_zeroed(zeros).is_err());
    }
}
