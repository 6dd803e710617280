//! [`Share`]: a magazine that goes back to its heap when its thread ends.

use std::sync::{Arc, Weak};

use yonder_heap::Magazine;

use crate::far_heap::FarHeap;

/// A thread's magazine of a heap, for a thread-local: what lies in it is given back when it is dropped. It does not
/// keep the heap.
pub struct Share {
    heap: Weak<FarHeap>,
    magazine: Magazine,
}

impl Share {
    /// An empty magazine.
    #[must_use]
    pub fn new(heap: &Arc<FarHeap>) -> Self {
        Self { heap: Arc::downgrade(heap), magazine: Magazine::new() }
    }

    /// The magazine.
    #[inline]
    pub fn magazine(&mut self) -> &mut Magazine {
        &mut self.magazine
    }

    /// Whether it is of this heap.
    #[must_use]
    #[inline]
    pub fn is_of(&self, heap: &Arc<FarHeap>) -> bool {
        std::ptr::eq(self.heap.as_ptr(), Arc::as_ptr(heap))
    }

    /// Whether its heap is still there.
    #[must_use]
    pub fn is_of_use(&self) -> bool {
        self.heap.strong_count() > 0
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let Some(heap) = self.heap.upgrade() else { return };
        // A forked child has no such heap, and perhaps a lock that nobody will give back.
        if heap.is_of_this_process()
            && let Err(misuse) = heap.flush_all(&mut self.magazine)
        {
            misuse.die();
        }
    }
}
