//! [`ListWalk`]: walks ahead of who walks a list.
//!
//! A walk begins with a miss of some node's entries. From then on it is in batches: the first touch of one asks for the
//! next. A list is seldom read to its end (`LRANGE key 0 99`), so the first batch goes as far as walks usually come,
//! and what comes then begins small and doubles. How far a walk has come is not known exactly: as far as the node whose
//! touch was seen last, and no further than its batch.

use std::ops::Range;

use yonder_guide::{Arrived, Reach, Reading, Touch, word};

use crate::OF_LIST;
use crate::layout::{NODE_BYTES, Node};

/// Nodes of the first batch of which nothing is known, and of the longest.
const BATCH_MIN: u32 = 1;
const BATCH_MAX: u32 = 16;
/// Walks in a row that have ended with the same node, until nothing is fetched beyond it.
const EXACT_MIN: u32 = 2;
/// Nodes that are looked at for a batch, at most.
const STEPS_MAX: u32 = 4 * BATCH_MAX;

/// See the head of this file.
#[derive(Default)]
pub(crate) struct ListWalk {
    /// The node whose entries were missed last.
    at: u64,
    /// The next node to look at, 0 if there is none.
    next: u64,
    is_backward: bool,
    /// Nodes of the next batch of which nothing is known.
    batch: u32,
    /// Nodes that are still to be fetched for this one, and the node of the walk that it ends with at the latest.
    wanted: u32,
    until: u32,
    /// Nodes that were looked at for it.
    steps: u32,
    /// Entries of the nodes of the batch, with the number of each on this walk.
    entries: [(Range<u64>, u32); BATCH_MAX as usize + 1],
    known: usize,
    /// Nodes of this walk: those that were asked for; those that were certainly and those that were perhaps come to.
    asked: u32,
    come_to: Range<u32>,
    /// Nodes that walks come to, and how many walks in a row have ended with just the last of them.
    usual: u32,
    exact: u32,
    /// Tells reads for this walk from those for walks before.
    number: u64,
}

impl ListWalk {
    /// A miss: whether it is of a node's entries.
    pub(crate) fn missed(&mut self, touch: &Touch<'_>, reach: &mut dyn Reach) -> bool {
        let Some((at, node)) = find(touch, reach) else { return false };
        if at == self.next {
            // The walk has come to where there was no room to go on.
            if self.asked >= self.usual {
                self.exact = 0;
            }
            self.asked += 1;
            self.come_to = self.asked..self.asked;
        } else {
            self.learn();
            // Who comes from the node behind walks backward.
            self.is_backward = node.next != 0 && node.next == self.at;
            let number = 1 + self.nodes_before(&node, touch, reach);
            (self.batch, self.asked, self.come_to) = (BATCH_MIN, number, number..number);
        }
        self.at = at;
        self.number = (self.number + 1) & (OF_LIST - 1);
        self.next = self.after(&node);
        if reach.prefetch(node.entries, node.entries_bytes) {
            // The rest of what was missed is touched first, and of the first batch.
            self.known = 0;
            self.know(&node);
            self.extend_batch(reach);
        }
        true
    }

    /// Nodes that the walk has come past: those that were here, if it has begun where the list does, as most do.
    fn nodes_before(&self, node: &Node, touch: &Touch<'_>, reach: &mut dyn Reach) -> u32 {
        let (mut node, mut count) = (*node, 0);
        loop {
            let before = if self.is_backward { node.next } else { node.previous };
            // Some nodes are in memory that is never far: those that were made first.
            if before == 0 || !is_near(before, touch) {
                return count;
            }
            match look(before, touch, reach) {
                Some(bytes) if count < STEPS_MAX => (node, count) = (Node::parse(&bytes), count + 1),
                _ => return 0,
            }
        }
    }

    /// A walk has ended: how far it has come.
    fn learn(&mut self) {
        let Range { start, end } = self.come_to;
        // If nothing of the last batch was away, nobody could see the walk go on.
        let is_seen = self.known > 0 || end + 1 < self.usual;
        if is_seen {
            let nodes = (start + end).div_ceil(2);
            self.exact = if nodes == self.usual { self.exact + 1 } else { 0 };
            self.usual = nodes;
        }
    }

    /// Notes that a node's entries are of the batch.
    fn know(&mut self, node: &Node) {
        if let Some(place) = self.entries.get_mut(self.known) {
            *place = (node.entries..node.entries + node.entries_bytes, self.asked);
            self.known += 1;
        }
    }

    /// The node that comes after `node` on this walk.
    fn after(&self, node: &Node) -> u64 {
        if self.is_backward { node.previous } else { node.next }
    }

    /// The first touch of a batch: whether it is this walk's.
    pub(crate) fn hit(&mut self, address: u64, reach: &mut dyn Reach) -> bool {
        let touched = self.entries[..self.known].iter().find(|(entries, _)| entries.contains(&address));
        let Some((_, number)) = touched else { return false };
        self.come_to = *number..self.asked;
        self.known = 0;
        self.extend_batch(reach);
        true
    }

    /// A node that was far.
    pub(crate) fn arrived(&mut self, arrived: &Arrived<'_>, reach: &mut dyn Reach) {
        let is_awaited = arrived.note == OF_LIST | self.number && arrived.address == self.next;
        if let (true, Ok(bytes)) = (is_awaited, arrived.bytes.try_into())
            && self.take(&Node::parse(bytes), reach)
        {
            self.go_on(reach);
        }
    }

    fn extend_batch(&mut self, reach: &mut dyn Reach) {
        (self.wanted, self.until) = match self.usual.saturating_sub(self.asked) {
            0 if self.exact >= EXACT_MIN => (0, 0),
            0 => {
                self.batch = (2 * self.batch).min(BATCH_MAX);
                (self.batch / 2, u32::MAX)
            }
            // The last one is a batch of its own: its touch says that this walk has come so far.
            1 => (1, self.usual),
            _ => (BATCH_MAX, self.usual - 1),
        };
        self.steps = 0;
        self.go_on(reach);
    }

    fn go_on(&mut self, reach: &mut dyn Reach) {
        while self.wanted > 0 && self.asked < self.until && self.next != 0 && self.steps < STEPS_MAX {
            let mut bytes = [0; NODE_BYTES];
            match reach.read(self.next, &mut bytes, OF_LIST | self.number) {
                Reading::Done if self.take(&Node::parse(&bytes), reach) => {}
                Reading::Coming => return,
                Reading::Done | Reading::Refused => self.wanted = 0,
            }
        }
    }

    /// Fetches the entries of the next node; whether to go on.
    fn take(&mut self, node: &Node, reach: &mut dyn Reach) -> bool {
        let mut is_here = |address| reach.peek(address, &mut [0]);
        // A batch of nodes that are here would have no first touch that anybody sees.
        let is_away = !is_here(node.entries) || !is_here(node.entries + node.entries_bytes.saturating_sub(1));
        self.steps += 1;
        if node.entries_bytes == 0 || !reach.prefetch(node.entries, node.entries_bytes) {
            self.wanted = 0;
            return false;
        }
        self.asked += 1;
        if is_away {
            self.know(node);
            self.wanted = self.wanted.saturating_sub(1);
        }
        self.next = self.after(node);
        true
    }
}

/// The node whose entries were touched, if a word has its address, or that of something that points to it at its
/// beginning.
fn find(touch: &Touch<'_>, reach: &mut dyn Reach) -> Option<(u64, Node)> {
    for (index, register) in touch.registers.iter().enumerate() {
        if touch.registers[..index].contains(register) {
            continue;
        }
        let Some(bytes) = look(*register, touch, reach) else { continue };
        for address in [*register, word(&bytes), word(&bytes[8..])] {
            let Some(bytes) = look(address, touch, reach) else { continue };
            let node = Node::parse(&bytes);
            if node.has(touch.address) && is_linked(address, &node, touch, reach) {
                return Some((address, node));
            }
        }
    }
    None
}

/// Whether an object of the program could be at `address`.
fn is_near(address: u64, touch: &Touch<'_>) -> bool {
    address.is_multiple_of(8) && (address ^ touch.address) >> 44 == 0
}

/// What is at `address`, if that could be a node and is here.
fn look(address: u64, touch: &Touch<'_>, reach: &mut dyn Reach) -> Option<[u8; NODE_BYTES]> {
    let mut bytes = [0; NODE_BYTES];
    (is_near(address, touch) && reach.peek(address, &mut bytes)).then_some(bytes)
}

/// Whether the neighbours of what looks like a node know it, as far as they are here.
fn is_linked(at: u64, node: &Node, touch: &Touch<'_>, reach: &mut dyn Reach) -> bool {
    let mut knows = |address: u64, pointer: fn(&Node) -> u64| {
        // Some are in memory that is never far.
        let seen = look(address, touch, reach);
        address.is_multiple_of(8) && seen.is_none_or(|bytes| pointer(&Node::parse(&bytes)) == at)
    };
    knows(node.next, |next| next.previous) && knows(node.previous, |previous| previous.next)
}

#[cfg(test)]
mod tests {
    use yonder_guide::{Cause, FakeReach, Guide as _, Payoff, Verdict};

    use super::*;
    use crate::RedisGuide;

    const NODES: u64 = 0x3000_0010_0000;
    const ITERATOR: u64 = 0x3000_0000_1000;
    const ENTRIES_BYTES: u64 = 8_100;

    fn node(index: u64) -> u64 {
        NODES + index * 5_008 / 8 * 8
    }

    fn entries(index: u64) -> u64 {
        0x3000_1000_0000 + (index * 7 % 1000) * 0x3000
    }

    /// A list of so many nodes, in no order of addresses, and somebody who walks it.
    struct Walker {
        guide: RedisGuide,
        reach: FakeReach,
    }

    impl Walker {
        fn new(nodes: u64) -> Self {
            let mut reach = FakeReach::default();
            reach.make_far(entries(0)..entries(0) + 1000 * 0x3000);
            for index in 0..nodes {
                let previous = if index == 0 { 0 } else { node(index - 1) };
                let next = if index + 1 == nodes { 0 } else { node(index + 1) };
                reach.put(node(index), &[previous, next, entries(index), ENTRIES_BYTES]);
            }
            Self { guide: RedisGuide::default(), reach }
        }

        fn touch(&mut self, cause: Cause, address: u64, registers: &[u64]) -> Verdict {
            let touch = Touch { cause, address, registers, history: &[], payoff: Payoff::default() };
            self.guide.touched(&touch, &mut self.reach)
        }

        /// Misses and hits of a walk from `first`, of so many nodes: how often it had to wait.
        fn walk(&mut self, nodes: impl IntoIterator<Item = u64>) -> usize {
            self.reach.prefetched.clear();
            let (mut misses, mut mapped) = (0, 0);
            for index in nodes {
                let address = entries(index) + 4;
                match self.reach.prefetched.iter().position(|range| range.contains(&address)) {
                    None => {
                        misses += 1;
                        self.touch(Cause::Miss, address, &[1, node(index), 7]);
                        mapped = 1.max(mapped);
                    }
                    Some(at) if at >= mapped => {
                        mapped = self.reach.prefetched.len();
                        self.touch(Cause::Hit, address, &[]);
                    }
                    Some(_) => {}
                }
            }
            misses
        }
    }

    #[test]
    fn a_walk_waits_once_whatever_way_it_goes() {
        let mut walker = Walker::new(60);
        assert_eq!(walker.walk(0..60), 1);
        // Until it has come from one node to the one before, a walk could go either way.
        assert_eq!(walker.walk((0..60).rev()), 2);
    }

    #[test]
    fn walks_of_a_part_fetch_little_more_than_that() {
        let mut walker = Walker::new(200);
        (0..4).for_each(|_| _ = walker.walk(0..15));
        for _ in 0..20 {
            walker.walk(0..15);
            assert!((13..=19).contains(&walker.reach.prefetched.len()), "{}", walker.reach.prefetched.len());
        }
        (0..8).for_each(|_| _ = walker.walk(0..2));
        assert!(walker.reach.prefetched.len() <= 5, "{}", walker.reach.prefetched.len());
        // One that goes on is followed all the same.
        (0..4).for_each(|_| _ = walker.walk(0..15));
        assert_eq!(walker.reach.prefetched.len(), 15, "walks have the same end each time");
        assert_eq!(walker.walk(0..120), 2);
    }

    #[test]
    fn nodes_are_found_by_what_points_to_them() {
        for (at, registers) in [(8, [ITERATOR, 5]), (0, [3, ITERATOR])] {
            let mut walker = Walker::new(3);
            walker.reach.put(ITERATOR + at, &[node(0)]);
            assert_eq!(walker.touch(Cause::Miss, entries(0) + 4, &registers), Verdict::Known);
            assert_eq!(walker.reach.prefetched.len(), 1 + BATCH_MIN as usize);
        }
        let mut walker = Walker::new(3);
        walker.reach.put(ITERATOR, &[node(1), 0, 0]);
        assert_eq!(walker.touch(Cause::Miss, entries(0) + 40, &[ITERATOR, NODES + 1, 1 << 46]), Verdict::Unknown);
        assert_eq!((walker.reach.prefetched.len(), walker.reach.reads), (0, 0));
        // What only looks like a node: its neighbours do not know it, or are no addresses.
        for neighbour in [node(2), 77] {
            let mut walker = Walker::new(3);
            walker.reach.put(ITERATOR, &[0, neighbour, entries(0), ENTRIES_BYTES]);
            assert_eq!(walker.touch(Cause::Miss, entries(0) + 40, &[ITERATOR]), Verdict::Unknown);
        }
    }

    #[test]
    fn nodes_that_are_far_are_read_first() {
        let mut walker = Walker::new(20);
        walker.reach.make_far(node(1)..node(20));
        walker.touch(Cause::Miss, entries(0) + 4, &[node(0)]);
        assert_eq!(walker.reach.prefetched.len(), 1);
        while walker.reach.deliver(&mut walker.guide) {}
        assert_eq!(walker.reach.prefetched.len(), 1 + BATCH_MIN as usize);
        // An answer for a walk that is over is none for this one.
        walker.touch(Cause::Hit, entries(1), &[]);
        walker.touch(Cause::Miss, entries(0) + 4, &[node(0)]);
        let asked = walker.reach.prefetched.len();
        assert!(walker.reach.deliver(&mut walker.guide));
        assert_eq!(walker.reach.prefetched.len(), asked);
    }

    #[test]
    fn nodes_that_were_here_count_as_come_past() {
        let mut walker = Walker::new(60);
        (0..6).for_each(|_| _ = walker.walk(0..15));
        walker.reach.prefetched.clear();
        walker.touch(Cause::Miss, entries(5) + 4, &[node(5)]);
        walker.touch(Cause::Hit, entries(5) + 4, &[]);
        assert_eq!(walker.reach.prefetched.last(), Some(&(entries(14)..entries(14) + ENTRIES_BYTES)));
    }

    #[test]
    fn a_walk_without_room_goes_on_at_the_next_miss() {
        let mut walker = Walker::new(20);
        walker.reach.room = Some(3);
        walker.touch(Cause::Miss, entries(0) + 4, &[node(0)]);
        assert_eq!(walker.reach.prefetched.len(), 1);
        walker.reach.room = None;
        walker.touch(Cause::Miss, entries(1) + 4, &[node(1)]);
        assert!(walker.reach.prefetched.contains(&(entries(2)..entries(2) + ENTRIES_BYTES)));
        assert_eq!(walker.guide.list.come_to, 2..2, "it was taken for another walk");
    }
}
