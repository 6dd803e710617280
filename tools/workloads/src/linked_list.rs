//! `linked-list`: `size` bytes of nodes, linked in random order and walked from end to end.
//!
//! Which page comes next is not known before a node is read, so readahead is of no use here. A guide can do better that
//! knows how a node lies in memory: 64 bytes, of which the first eight are the address of the next node, or 0 at the
//! end.

use rand::Rng as _;
use rand::seq::SliceRandom as _;

use crate::checksum::Checksum;
use crate::random::{Use, generator};
use crate::result::{Details, Outcome, Settings, WorkloadError, require, timed};

/// Times that the list is walked.
const WALKS: usize = 3;
const PAYLOAD_WORDS: usize = 6;

/// The order of its fields is part of what this workload is.
#[repr(C)]
struct Node {
    next: Option<Box<Node>>,
    /// Nodes before this one.
    position: u64,
    payload: [u64; PAYLOAD_WORDS],
}

const _: () = assert!(size_of::<Node>() == 64);

struct List {
    head: Option<Box<Node>>,
}

pub(crate) fn run(settings: &Settings) -> Result<Outcome, WorkloadError> {
    let nodes = settings.count_of(size_of::<Node>() as u64, 2)?;
    let (list, setup_seconds) = timed(|| List::new(nodes, settings.seed));
    let (walks, seconds) = timed(|| [(); WALKS].map(|()| list.walk()));
    require(|| walks.iter().all(|walk| walk.visited == nodes as u64), "nodes are missing or come in another order")?;
    require(|| walks.iter().all(|walk| *walk == walks[0]), "another walk found other nodes")?;
    Ok(Outcome {
        bytes: (nodes * size_of::<Node>()) as u64,
        seconds,
        setup_seconds,
        check: Checksum::of([walks[0].visited, walks[0].folded]).text(),
        details: Details::LinkedList { nodes, walks: WALKS, ns_per_node: seconds * 1e9 / (nodes * WALKS) as f64 },
    })
}

/// What one walk found.
#[derive(PartialEq, Eq, Debug)]
struct Walk {
    /// Nodes that came where they should.
    visited: u64,
    /// All payloads, in this order.
    folded: u64,
}

impl List {
    /// Allocates the nodes one after the other and links them in another order.
    fn new(nodes: usize, seed: u64) -> Self {
        let (mut values, mut order) = (generator(seed, Use::Values), generator(seed, Use::Order));
        let node = |_| Box::new(Node { next: None, position: 0, payload: values.random() });
        let mut loose: Vec<Box<Node>> = (0..nodes).map(node).collect();
        loose.shuffle(&mut order);
        let mut head = None;
        while let Some(mut node) = loose.pop() {
            node.position = loose.len() as u64;
            node.next = head;
            head = Some(node);
        }
        Self { head }
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        std::iter::successors(self.head.as_deref(), |node| node.next.as_deref())
    }

    fn walk(&self) -> Walk {
        let mut walk = Walk { visited: 0, folded: 0 };
        for node in self.nodes() {
            walk.visited += u64::from(node.position == walk.visited);
            let payload = node.payload.iter().fold(0, |sum: u64, word| sum.wrapping_add(*word));
            walk.folded = walk.folded.rotate_left(5) ^ payload;
        }
        walk
    }
}

/// One node after the other: the compiler's own way recurses, and the stack is not that deep.
impl Drop for List {
    fn drop(&mut self) {
        let mut next = self.head.take();
        while let Some(mut node) = next {
            next = node.next.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_finds_what_a_plain_loop_over_the_nodes_finds() {
        let list = List::new(1000, 5);
        let payloads: Vec<[u64; PAYLOAD_WORDS]> = list.nodes().map(|node| node.payload).collect();
        assert_eq!(payloads.len(), 1000);
        let mut folded = 0_u64;
        for payload in payloads {
            let mut sum = 0_u64;
            for word in payload {
                sum = sum.wrapping_add(word);
            }
            folded = folded.rotate_left(5) ^ sum;
        }
        assert_eq!(list.walk(), Walk { visited: 1000, folded });
    }

    #[test]
    fn nodes_are_not_linked_in_the_order_of_their_addresses() {
        let list = List::new(1000, 5);
        let addresses: Vec<usize> = list.nodes().map(|node| std::ptr::from_ref(node).addr()).collect();
        let upwards = addresses.windows(2).filter(|two| two[0] < two[1]).count();
        assert!((300..700).contains(&upwards), "{upwards} of 999 links lead upwards");
    }

    #[test]
    fn a_node_that_is_lost_or_changed_is_noticed() {
        let mut list = List::new(100, 5);
        let whole = list.walk();
        list.head.as_mut().unwrap().payload[3] ^= 1;
        assert_ne!(list.walk(), whole);
        let mut lost = list.head.as_mut().unwrap().next.take().unwrap();
        list.head.as_mut().unwrap().next = lost.next.take();
        assert_eq!(list.walk().visited, 1);
    }

    #[test]
    fn a_long_list_is_freed_without_a_deep_stack() {
        drop(List::new(500_000, 1));
    }
}
