//! Any calls with several magazines, beside an oracle that knows every block by its interval and every content.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use yonder_paging::far_heap::{FarHeap, Magazine, Misuse};

use super::{Block, LOCAL, heap};

const MAGAZINES: usize = 3;
/// Three times what is local, and more than fits: allocations are refused too.
const HEAP: u64 = 24 << 20;

#[derive(Clone, Debug)]
enum Step {
    Alloc { bytes: usize, align: usize, zeroed: bool },
    Free { which: usize },
    Resize { which: usize, bytes: usize },
    FreeAgain,
    Flush,
}

/// Sizes whose logarithm is uniform, most of them small; the largest are given back when they are freed.
fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 0..12u32, 2 => 12..20u32, 1 => 20..23u32]
        .prop_flat_map(|power| (1usize << power..=1 << (power + 1)).prop_map(|bytes| bytes))
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let step = prop_oneof![
        5 => (sizes(), 0..14u32, any::<bool>())
            .prop_map(|(bytes, power, zeroed)| Step::Alloc { bytes, align: 1 << power, zeroed }),
        3 => any::<usize>().prop_map(|which| Step::Free { which }),
        2 => (any::<usize>(), sizes()).prop_map(|(which, bytes)| Step::Resize { which, bytes }),
        1 => Just(Step::FreeAgain),
        1 => Just(Step::Flush),
    ];
    vec((0..MAGAZINES, step), 1..400)
}

struct World {
    heap: Arc<FarHeap>,
    magazines: [Magazine; MAGAZINES],
    blocks: Vec<Block>,
    /// Usable bytes by address.
    intervals: BTreeMap<usize, usize>,
    seeds: u64,
    last_freed: Option<(usize, usize)>,
}

impl World {
    fn step(&mut self, magazine: usize, step: &Step) {
        if !matches!(step, Step::Free { .. } | Step::FreeAgain) {
            self.last_freed = None;
        }
        match *step {
            Step::Alloc { bytes, align, zeroed } => self.alloc(magazine, bytes, align, zeroed),
            Step::Free { which } => self.free(magazine, which),
            Step::Resize { which, bytes } => self.resize(magazine, which, bytes),
            Step::FreeAgain => self.free_again(),
            Step::Flush => self.heap.flush_all(&mut self.magazines[magazine]).unwrap(),
        }
    }

    fn alloc(&mut self, magazine: usize, bytes: usize, align: usize, zeroed: bool) {
        let Some(address) = self.heap.alloc(&mut self.magazines[magazine], bytes, align) else { return };
        assert!(address.is_multiple_of(align), "{address:#x} for an alignment of {align}");
        self.seeds += 1;
        let block = Block { address, bytes, seed: self.seeds };
        if zeroed {
            self.heap.zero(address).unwrap();
            block.check_zeros(&self.heap);
        }
        self.insert(block);
        block.fill(&self.heap);
    }

    /// Notes a block, which overlaps no other.
    fn insert(&mut self, block: Block) {
        let usable = self.heap.size_of(block.address).unwrap();
        assert!(usable >= block.bytes.max(1), "{usable} for {block:?}");
        let end = block.address + usable;
        let start = self.heap.region().address();
        assert!(block.address >= start && end <= start + self.heap.region().bytes() as usize);
        let before = self.intervals.range(..end).next_back();
        assert!(before.is_none_or(|(first, bytes)| first + bytes <= block.address), "{block:x?} overlaps {before:x?}");
        self.intervals.insert(block.address, usable);
        self.blocks.push(block);
    }

    fn take(&mut self, which: usize) -> Option<Block> {
        let place = which.checked_rem(self.blocks.len())?;
        let block = self.blocks.swap_remove(place);
        block.check(&self.heap);
        self.intervals.remove(&block.address);
        Some(block)
    }

    fn free(&mut self, magazine: usize, which: usize) {
        let Some(block) = self.take(which) else { return };
        assert_eq!(self.heap.free(&mut self.magazines[magazine], block.address), Ok(()));
        self.last_freed = Some((magazine, block.address));
    }

    fn resize(&mut self, magazine: usize, which: usize, bytes: usize) {
        let Some(block) = self.take(which) else { return };
        let (usable, kept) = (self.heap.size_of(block.address).unwrap(), block.bytes.min(bytes));
        let mut resized = Block { bytes, ..block };
        if self.heap.resize_in_place(block.address, bytes).unwrap() {
            block.check_first(&self.heap, kept);
        } else {
            assert_eq!(self.heap.size_of(block.address), Ok(usable), "what was refused has changed");
            block.check(&self.heap);
            let Some(address) = self.heap.alloc(&mut self.magazines[magazine], bytes, 1) else {
                return self.insert(block);
            };
            self.heap.free(&mut self.magazines[magazine], block.address).unwrap();
            resized.address = address;
        }
        self.insert(resized);
        resized.fill(&self.heap);
    }

    /// What a thread has freed last, and nobody has got since, is not taken from it a second time.
    fn free_again(&mut self) {
        let Some((magazine, address)) = self.last_freed.take() else { return };
        assert_eq!(self.heap.free(&mut self.magazines[magazine], address), Err(Misuse { address }));
    }

    fn end(mut self) -> u64 {
        for magazine in (0..MAGAZINES).cycle() {
            if self.blocks.is_empty() {
                break;
            }
            self.free(magazine, usize::MAX / 2);
        }
        self.magazines.iter_mut().for_each(|magazine| self.heap.flush_all(magazine).unwrap());
        assert!(self.heap.is_empty());
        let stats = self.heap.region().far().stats();
        assert!(stats.peak_pages * 4096 <= LOCAL, "{} pages were local", stats.peak_pages);
        assert!(self.heap.usage().peak_bytes <= HEAP);
        stats.fetched_bytes
    }
}

#[test]
fn any_calls_give_out_what_nobody_has_and_keep_what_was_stored() {
    if heap(HEAP).is_none() {
        return;
    }
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(20));
    let fetched_bytes = std::cell::Cell::new(0);
    let result = runner.run(&steps(), |steps| {
        let mut world = World {
            heap: heap(HEAP).unwrap(),
            magazines: std::array::from_fn(|_| Magazine::new()),
            blocks: Vec::new(),
            intervals: BTreeMap::new(),
            seeds: 0,
            last_freed: None,
        };
        steps.iter().for_each(|(magazine, step)| world.step(*magazine, step));
        fetched_bytes.set(fetched_bytes.get() + world.end());
        Ok(())
    });
    result.unwrap();
    assert!(fetched_bytes.get() > LOCAL, "almost nothing was far");
}
