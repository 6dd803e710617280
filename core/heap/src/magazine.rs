//! [`Magazine`]: small objects that a thread keeps ready, so that most allocations take no lock.
//!
//! After Bonwick's magazines. One belongs to one thread. An object in it is live for the [`Heap`](crate::Heap) and for
//! the [`PageMap`](crate::PageMap), so taking one and putting one back changes nothing that others see. Any thread's
//! magazine takes any thread's objects.

use crate::NotAllocated;
use crate::class::{CLASSES, Class, OBJECT_BYTES_MAX};

/// Most objects of a class in a magazine.
pub const MAGAZINE_OBJECTS_MAX: usize = 64;
/// Most bytes of a class in a magazine. Each refill and each flush holds signals back, by two system calls, so half of
/// this should be some objects of any class.
pub const MAGAZINE_BYTES_MAX: usize = 64 << 10;
const _: () = assert!(MAGAZINE_BYTES_MAX / OBJECT_BYTES_MAX >= 8);

/// A magazine has no room for the object, and did not take it: flush its class first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// Objects of each class that are ready to be used.
#[derive(Debug)]
pub struct Magazine {
    stacks: Box<[Stack; CLASSES]>,
}

#[derive(Debug)]
struct Stack {
    count: usize,
    offsets: [u64; MAGAZINE_OBJECTS_MAX],
}

impl Magazine {
    /// An empty magazine.
    #[must_use]
    pub fn new() -> Self {
        Self { stacks: Box::new([const { Stack { count: 0, offsets: [0; MAGAZINE_OBJECTS_MAX] } }; CLASSES]) }
    }

    /// Takes an object, the one that was put back last. With `None`, the caller [refills](crate::Heap::refill) the
    /// class and tries again.
    #[inline]
    pub fn alloc(&mut self, class: Class) -> Option<u64> {
        let stack = &mut self.stacks[class.index()];
        let top = stack.count.checked_sub(1)?;
        stack.count = top;
        stack.offsets.get(top).copied()
    }

    /// Puts back an object that [`PageMap::look_up`](crate::PageMap::look_up) says is of this class. If the class is
    /// full, the caller [flushes](crate::Heap::flush) it and tries again.
    #[inline]
    pub fn free(&mut self, class: Class, offset: u64) -> Result<(), Full> {
        let stack = &mut self.stacks[class.index()];
        if stack.count >= limit(class) {
            return Err(Full);
        }
        stack.offsets[stack.count] = offset;
        stack.count += 1;
        Ok(())
    }

    /// Whether `offset` lies ready, which means that it has been freed.
    #[must_use]
    #[inline]
    pub fn contains(&self, class: Class, offset: u64) -> bool {
        let stack = &self.stacks[class.index()];
        stack.offsets[..stack.count].contains(&offset)
    }

    /// Objects of a class that lie ready.
    #[must_use]
    pub fn objects(&self, class: Class) -> usize {
        self.stacks[class.index()].count
    }

    /// Objects that a refill adds and a flush takes: half of a magazine.
    pub(crate) fn batch(class: Class) -> usize {
        limit(class) / 2
    }

    /// Takes the `count` objects that lie deepest, or all, and passes each on. Returns the first error.
    pub(crate) fn drain(
        &mut self,
        class: Class,
        count: usize,
        mut each: impl FnMut(u64) -> Result<(), NotAllocated>,
    ) -> Result<(), NotAllocated> {
        let stack = &mut self.stacks[class.index()];
        let count = count.min(stack.count);
        let mut result = Ok(());
        for offset in &stack.offsets[..count] {
            result = result.and(each(*offset));
        }
        stack.offsets.copy_within(count..stack.count, 0);
        stack.count -= count;
        result
    }

    /// Turns the uppermost `count` objects round, so that the first that came is the first to go.
    pub(crate) fn reverse(&mut self, class: Class, count: usize) {
        let stack = &mut self.stacks[class.index()];
        stack.offsets[stack.count - count..stack.count].reverse();
    }
}

impl Default for Magazine {
    fn default() -> Self {
        Self::new()
    }
}

/// Most objects of a class.
#[inline]
fn limit(class: Class) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "there are fewer than 256 classes, and at most 64 objects of each"
    )]
    const LIMITS: [u8; CLASSES] = {
        let mut limits = [0; CLASSES];
        let mut index = 0;
        while index < CLASSES {
            let objects = MAGAZINE_BYTES_MAX / Class::at(index as u8).bytes();
            limits[index] = if objects > MAGAZINE_OBJECTS_MAX { MAGAZINE_OBJECTS_MAX } else { objects } as u8;
            index += 1;
        }
        limits
    };
    LIMITS[class.index()] as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_in_is_first_out_and_the_deepest_leave() {
        let (mut magazine, class) = (Magazine::new(), Class::fitting(8192, 1).unwrap());
        assert_eq!(magazine.alloc(class), None);
        (0..8).for_each(|offset| magazine.free(class, offset).unwrap());
        assert_eq!(magazine.free(class, 99), Err(Full));
        assert!(magazine.contains(class, 0) && !magazine.contains(class, 99));
        let mut left = Vec::new();
        let refuse = |offset| {
            left.push(offset);
            if offset == 1 { Err(NotAllocated { offset }) } else { Ok(()) }
        };
        assert_eq!(magazine.drain(class, 3, refuse), Err(NotAllocated { offset: 1 }));
        assert_eq!((left, magazine.objects(class)), (vec![0, 1, 2], 8 - 3));
        assert!(!magazine.contains(class, 0));
        assert_eq!(magazine.alloc(class), Some(7));
        magazine.reverse(class, 2);
        assert_eq!([magazine.alloc(class), magazine.alloc(class), magazine.alloc(class)], [Some(5), Some(6), Some(4)]);
    }

    #[test]
    fn bounds_follow_the_size() {
        let bound = |bytes| limit(Class::fitting(bytes, 1).unwrap());
        assert_eq!([16, 128, 1024, 2048, 4096, 8192].map(bound), [64, 64, 64, 32, 16, 8]);
    }
}
