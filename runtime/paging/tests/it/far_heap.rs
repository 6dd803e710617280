//! The far heap over real far memory that is smaller here than what is kept in it.

mod model;
mod rules;
mod threads;

use std::sync::Arc;

use yonder_paging::far_heap::FarHeap;
use yonder_paging::{Config, FarMemory};

/// Local memory: as little as there can be.
const LOCAL: u64 = 2 << 20;

/// A guided heap of `bytes`, or `None` and a line that says why there is none.
fn heap(bytes: u64) -> Option<Arc<FarHeap>> {
    if let Err(error) = yonder_uffd::probe().userfaultfd {
        println!("SKIP: {error}");
        return None;
    }
    let far = FarMemory::open("emu://?latency=1us", Config::with_local(LOCAL)).unwrap();
    let heap = FarHeap::new(far.region(bytes).unwrap());
    heap.guide_paging();
    Some(Arc::new(heap))
}

/// Offset in the region of an address.
fn offset(heap: &FarHeap, address: usize) -> u64 {
    (address - heap.region().address()) as u64
}

/// Memory that was given out, with a pattern of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Block {
    address: usize,
    bytes: usize,
    seed: u64,
}

impl Block {
    /// Its bytes: what lies within this many of the start of a piece, in the pieces that a large block is looked at in.
    fn pieces(self) -> impl Iterator<Item = (usize, usize)> {
        const PIECE: usize = 16 << 10;
        const LOOKED_AT: usize = 256;
        (0..self.bytes).step_by(PIECE).map(move |start| (start, LOOKED_AT.min(self.bytes - start)))
    }

    fn content(self, start: usize, bytes: usize) -> Vec<u8> {
        let byte = |at: usize| (self.seed.wrapping_add(at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8;
        (start..start + bytes).map(byte).collect()
    }

    fn fill(self, heap: &FarHeap) {
        for (start, bytes) in self.pieces() {
            heap.region().write(offset(heap, self.address) + start as u64, &self.content(start, bytes)).unwrap();
        }
    }

    fn check(self, heap: &FarHeap) {
        self.check_first(heap, self.bytes);
    }

    /// Checks what lies among the first `bytes`.
    fn check_first(self, heap: &FarHeap, bytes: usize) {
        for (start, length) in self.pieces().filter(|(start, length)| start + length <= bytes) {
            let mut found = vec![0; length];
            heap.region().read(offset(heap, self.address) + start as u64, &mut found).unwrap();
            assert!(found == self.content(start, length), "{self:x?} is damaged at {start}");
        }
    }

    fn check_zeros(self, heap: &FarHeap) {
        for start in (0..self.bytes).step_by(4096) {
            let mut found = vec![1; (self.bytes - start).min(4096)];
            heap.region().read(offset(heap, self.address) + start as u64, &mut found).unwrap();
            assert!(found.iter().all(|byte| *byte == 0), "{self:x?} is not zeros at {start}");
        }
    }
}
