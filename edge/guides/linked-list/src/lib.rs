//! The guide of linked lists, `yonder run --guide linked-list -- PROGRAM`: the example of how to write one.
//!
//! A program walks a list whose nodes are 64 bytes, at multiples of 64, and begin with the address of the next node
//! (`linked-list` of `tools/workloads` is such a program; so is any whose nodes have a size of 64, as [`NODE_BYTES`] is
//! an alignment that the far heap gives them). In what order the nodes lie says nothing, so no general prefetcher can
//! know the next page. The nodes themselves do:
//!
//! ```text
//!     touched: a miss             read 8 bytes       read 8 bytes       read 8 bytes
//!            |                         |                  |                  |
//!     +------v-----+            +------v-----+     +------v-----+     +------v-----+
//!     | next | ... |----------->| next | ... |---->| next | ... |---->| next | ... |---> ...
//!     +------------+            +------------+     +------------+     +------------+
//!                                  prefetch           prefetch           prefetch          one batch
//! ```
//!
//! A guide has two functions. `touched` is told of misses, and of the first touch of each batch that it has fetched
//! itself, a hit. It answers with what it asks of its reach: `prefetch` for pages, `read` for a few bytes. What is far
//! comes later to the other function, `arrived`, with the `note` that the read had. That is all; this guide does the
//! rest of a prefetcher's work:
//!
//! - **Is it ours?** Most misses of a program are of something else. Here a register must point into the node, and the
//!   page must not be a neighbour of the last one missed, which is a scan that readahead does better. Where walks lead
//!   nowhere, because the first word is no address, fewer are begun (`is_walk`).
//! - **How far ahead?** A walk begins with a short batch. A hit asks for the next one, twice as long, as readahead
//!   does; when what was fetched was thrown away untouched, half as long.
//! - **Is it true?** What is read may be anything. It is checked before it is followed, and the reach refuses what is
//!   not far memory. A read of a walk that was given up is recognised by its note.
//!
//! There is no allocation, no lock, and nothing that lasts: this runs in a signal handler. The state is this structure,
//! of which each port has one. The page "write a guide", for Rust and C, is `docs/guide/src/guides.md`.

#![forbid(unsafe_code)]

use yonder_guide::{Arrived, Cause, Guide, Reach, Reading, Touch, Verdict, word};

yonder_plugin::export_guide!(LinkedList);

/// Bytes of a node, and what its address is a multiple of.
pub const NODE_BYTES: u64 = 64;
/// Nodes of the first and of the longest batch.
const BATCH_MIN: u32 = 4;
const BATCH_MAX: u32 = 32;
/// Nodes that a hit is recognised by: those of the batch that is touched, and of the one that is made meanwhile.
const TRAIL_NODES: usize = 2 * BATCH_MAX as usize;
/// After so many walks in a row that led nowhere, one miss in so many begins another.
const DOUBTS_MAX: u32 = 8;
const TRY_EVERY: u32 = 16;
/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

/// See the head of this file.
#[derive(Debug)]
pub struct LinkedList {
    /// The node whose next one is to be found, once more nodes are wanted.
    at: u64,
    /// Nodes that are still to be asked for.
    wanted: u32,
    /// Whether the word at `at` is on its way.
    is_waiting: bool,
    /// Nodes of a batch.
    batch: u32,
    /// Nodes that this walk has found.
    found: u32,
    /// The number of this walk, the note of its reads.
    walk: u64,
    /// The last nodes that were asked for, in a ring.
    trail: [u64; TRAIL_NODES],
    /// Pages that had been thrown away at the last hit.
    unused_pages: u64,
    /// Walks in a row that led nowhere, and misses since then.
    doubts: u32,
    misses: u32,
}

impl Default for LinkedList {
    fn default() -> Self {
        Self {
            at: 0,
            wanted: 0,
            is_waiting: false,
            batch: BATCH_MIN,
            found: 0,
            walk: 0,
            trail: [0; TRAIL_NODES],
            unused_pages: 0,
            doubts: 0,
            misses: 0,
        }
    }
}

impl Guide for LinkedList {
    fn touched(&mut self, touch: &Touch<'_>, reach: &mut dyn Reach) -> Verdict {
        let node = touch.address & !(NODE_BYTES - 1);
        match touch.cause {
            Cause::Miss if self.is_walk(node, touch) => self.begin(node),
            Cause::Hit if self.trail.contains(&node) => self.adapt(touch.payoff.unused_pages),
            _ => return Verdict::Unknown,
        }
        self.wanted = self.batch;
        self.go_on(reach);
        Verdict::Known
    }

    fn arrived(&mut self, arrived: &Arrived<'_>, reach: &mut dyn Reach) {
        if arrived.note == self.walk && arrived.address == self.at {
            self.is_waiting = false;
            self.step(word(arrived.bytes), reach);
            self.go_on(reach);
        }
    }
}

impl LinkedList {
    /// Whether a miss looks like one of somebody who walks a list.
    fn is_walk(&mut self, node: u64, touch: &Touch<'_>) -> bool {
        let page = touch.address / PAGE_BYTES;
        let is_scan = touch.history.first().is_some_and(|last| page.abs_diff(last / PAGE_BYTES) <= 1);
        // Without a trap there are no registers, and only the node itself can tell.
        let has_pointer =
            touch.registers.is_empty() || touch.registers.iter().any(|register| register & !(NODE_BYTES - 1) == node);
        self.misses = self.misses.wrapping_add(1);
        let is_believed = self.doubts < DOUBTS_MAX || self.misses.is_multiple_of(TRY_EVERY);
        has_pointer && !is_scan && is_believed
    }

    /// Begins a walk at a node; what comes of another is not waited for.
    fn begin(&mut self, node: u64) {
        self.at = node;
        self.is_waiting = false;
        self.batch = BATCH_MIN;
        self.found = 0;
        self.walk = self.walk.wrapping_add(1);
        self.doubts = self.doubts.saturating_add(1);
    }

    /// A batch was of use: the next one is longer, unless another one was not.
    fn adapt(&mut self, unused_pages: u64) {
        let is_too_far = unused_pages > self.unused_pages;
        self.batch = if is_too_far { self.batch / 2 } else { self.batch * 2 }.clamp(BATCH_MIN, BATCH_MAX);
        self.unused_pages = unused_pages;
    }

    /// Looks at nodes for as long as they are here.
    fn go_on(&mut self, reach: &mut dyn Reach) {
        while self.wanted > 0 && !self.is_waiting {
            let mut next = [0; size_of::<u64>()];
            match reach.read(self.at, &mut next, self.walk) {
                Reading::Done => self.step(u64::from_ne_bytes(next), reach),
                Reading::Coming => self.is_waiting = true,
                Reading::Refused => self.wanted = 0,
            }
        }
    }

    /// Goes to the next node, if there is one and room for it.
    fn step(&mut self, next: u64, reach: &mut dyn Reach) {
        let is_node = next != 0 && next.is_multiple_of(NODE_BYTES);
        if !is_node || !reach.prefetch(next, NODE_BYTES) {
            self.wanted = 0;
            return;
        }
        self.trail[self.found as usize % TRAIL_NODES] = next;
        self.found = self.found.wrapping_add(1);
        self.at = next;
        self.wanted = self.wanted.saturating_sub(1);
        self.doubts = 0;
    }
}

#[cfg(test)]
mod tests {
    use yonder_guide::{FakeReach, Payoff};

    use super::*;

    const FIRST: u64 = 0x3000_0000_0000;
    const NODES: u64 = 500;

    /// Where node number `index` of the list is: each on a page of its own, in no order, not at its beginning.
    fn node(index: u64) -> u64 {
        FIRST + index * 7_919 % 1_009 * PAGE_BYTES * 2 + 3 * NODE_BYTES
    }

    /// A list, all of it far, and its guide.
    struct Walker {
        guide: LinkedList,
        reach: FakeReach,
        payoff: Payoff,
    }

    impl Walker {
        fn new() -> Self {
            let mut reach = FakeReach::default();
            for index in 0..NODES {
                reach.put(node(index), &[if index + 1 < NODES { node(index + 1) } else { 0 }]);
            }
            reach.make_far(FIRST..FIRST + (1 << 30));
            Self { guide: LinkedList::default(), reach, payoff: Payoff::default() }
        }

        fn touch(&mut self, cause: Cause, address: u64, registers: &[u64], history: &[u64]) -> Verdict {
            let touch = Touch { cause, address, registers, history, payoff: self.payoff };
            self.guide.touched(&touch, &mut self.reach)
        }

        /// A miss of a word of a node, whose address is in a register.
        fn miss(&mut self, index: u64) -> Verdict {
            self.touch(Cause::Miss, node(index) + 16, &[5, node(index), 6], &[])
        }

        fn hit(&mut self, index: u64) -> Verdict {
            self.touch(Cause::Hit, node(index) + 8, &[node(index)], &[])
        }

        /// Lets everything arrive; the nodes that were asked for since the last time.
        fn asked(&mut self) -> Vec<u64> {
            while self.reach.deliver(&mut self.guide) {}
            let index_of = |address| (0..NODES).find(|index| node(*index) == address).expect("a node of the list");
            self.reach.prefetched.drain(..).map(|range| index_of(range.start)).collect()
        }
    }

    #[test]
    fn a_miss_fetches_the_nodes_behind_it() {
        let mut walker = Walker::new();
        assert_eq!(walker.miss(10), Verdict::Known);
        assert!(walker.reach.prefetched.is_empty(), "nothing is known before the first word has come");
        assert_eq!(walker.asked(), [11, 12, 13, 14]);
        assert_eq!(walker.reach.reads, 4, "a word for each");
    }

    #[test]
    fn hits_go_on_where_the_walk_has_come_to_with_twice_as_many() {
        let mut walker = Walker::new();
        _ = walker.miss(0);
        assert_eq!(walker.asked(), [1, 2, 3, 4]);
        let (mut next, mut first) = (5, 1);
        for batch in [8, 16, 32, 32, 32] {
            assert_eq!(walker.hit(first), Verdict::Known);
            assert_eq!(walker.asked(), Vec::from_iter(next..next + batch));
            (first, next) = (next, next + batch);
        }
    }

    #[test]
    fn what_was_fetched_for_nothing_makes_batches_shorter() {
        let mut walker = Walker::new();
        _ = walker.miss(0);
        assert_eq!(walker.asked().len(), 4);
        _ = walker.hit(1);
        assert_eq!(walker.asked().len(), 8);
        _ = walker.hit(5);
        assert_eq!(walker.asked().len(), 16);
        for left in [8, 4, 4] {
            walker.payoff.unused_pages += 3;
            _ = walker.hit(walker.guide.found.into());
            assert_eq!(walker.asked().len(), left);
        }
        _ = walker.hit(walker.guide.found.into());
        assert_eq!(walker.asked().len(), 8, "nothing more was thrown away");
    }

    #[test]
    fn a_hit_does_not_ask_twice_for_what_is_coming() {
        let mut walker = Walker::new();
        _ = walker.miss(0);
        assert!(walker.reach.deliver(&mut walker.guide));
        assert_eq!(walker.reach.reads, 2);
        assert_eq!(walker.hit(1), Verdict::Known);
        assert_eq!(walker.reach.reads, 2);
        assert_eq!(walker.asked(), [1, 2, 3, 4, 5, 6, 7, 8, 9], "the first of four, and eight more");
    }

    #[test]
    fn a_walk_elsewhere_forgets_what_was_coming() {
        let mut walker = Walker::new();
        _ = walker.miss(0);
        _ = walker.miss(100);
        assert_eq!(walker.asked(), [101, 102, 103, 104]);
        assert_eq!(walker.hit(1), Verdict::Unknown, "nobody has asked for it");
        assert_eq!(walker.asked(), []);
    }

    #[test]
    fn a_list_ends_and_what_is_no_address_is_not_followed() {
        let mut walker = Walker::new();
        _ = walker.miss(NODES - 2);
        assert_eq!(walker.asked(), [NODES - 1]);
        walker.reach.put(node(31), &[node(32) + 8]);
        _ = walker.miss(30);
        assert_eq!(walker.asked(), [31]);
    }

    #[test]
    fn a_walk_without_room_goes_on_at_the_next_hit() {
        let mut walker = Walker::new();
        walker.reach.room = Some(2);
        _ = walker.miss(0);
        assert_eq!(walker.asked(), [1, 2]);
        walker.reach.room = None;
        _ = walker.hit(1);
        assert_eq!(walker.asked(), Vec::from_iter(3..11));
    }

    #[test]
    fn scans_and_what_no_register_points_to_are_left_to_others() {
        let mut walker = Walker::new();
        let address = node(7);
        assert_eq!(walker.touch(Cause::Miss, address, &[1, 2], &[]), Verdict::Unknown);
        for last in [address - PAGE_BYTES, address, address + PAGE_BYTES] {
            assert_eq!(walker.touch(Cause::Miss, address, &[address], &[last]), Verdict::Unknown);
        }
        assert_eq!((walker.reach.reads, walker.asked()), (0, vec![]));
        assert_eq!(walker.touch(Cause::Miss, address, &[], &[address + 2 * PAGE_BYTES]), Verdict::Known);
    }

    #[test]
    fn who_walks_no_list_is_left_alone_after_a_while() {
        let mut walker = Walker::new();
        for index in 0..NODES {
            walker.reach.put(node(index), &[1 + index]);
        }
        let tried = (0..800).filter(|index| walker.miss(index % NODES) == Verdict::Known).count();
        assert_eq!(walker.asked(), []);
        assert!((50..65).contains(&tried), "{tried} of 800");
        // When there is a list, it is found within a few misses, and believed again.
        let mut list = Walker::new();
        std::mem::swap(&mut list.guide, &mut walker.guide);
        assert!((0..16).any(|index| list.miss(index) == Verdict::Known));
        assert_eq!(list.asked().len(), 4);
        assert!((100..120).all(|index| list.miss(index) == Verdict::Known && list.asked().len() == 4));
    }

    #[test]
    fn nodes_that_are_here_are_walked_over_at_once() {
        let mut walker = Walker::new();
        walker.reach = FakeReach::default();
        walker.reach.put(node(0), &[node(1)]);
        walker.reach.put(node(1), &[node(0)]);
        _ = walker.miss(0);
        assert_eq!(walker.asked(), [1, 0, 1, 0], "as far as a batch, even where a list has no end");
    }
}
