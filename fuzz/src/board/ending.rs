//! Everything ends, and nothing is left: every page of memory is free, once, and can be had as zeros; every slot of the
//! page table has room for a page.

use std::collections::BTreeSet;

use yonder_board::PageSource as _;
use yonder_wire::{AllocateRequest, Backing, NodeStatus, Permission};

use super::node::{Node, PAGE, PAGES};

/// Slots of the page table: two for each page, in buckets of eight.
const SLOTS: u32 = (2 * PAGES).next_multiple_of(8);

/// Ends every address space of the node, and looks for what is left.
pub(super) fn check(node: &mut Node) {
    for pid in node.slow.spaces() {
        node.slow.destroy_space(pid).expect("an address space that does not move can be ended");
    }
    let memory_bytes = u64::from(PAGES) * PAGE;
    let empty = NodeStatus { memory_bytes, free_bytes: memory_bytes, allocated_bytes: 0, spaces: 0 };
    assert_eq!(node.slow.status(), empty, "something is left behind");
    assert_eq!(node.slow.next_expiry(), None, "a lease is left behind");
    check_memory(node);
    check_table(node);
}

/// Takes all the memory that there is.
fn check_memory(node: &mut Node) {
    let mut free: Vec<_> = std::iter::from_fn(|| node.memory.take()).collect();
    while let Some(page) = node.slow_path(|slow, shell| slow.take_free_page(shell.upkeep)) {
        free.push(page);
    }
    assert!(free.iter().all(|page| node.memory.is_zero(*page)), "a free page is not zero");
    let different: BTreeSet<_> = free.iter().collect();
    assert_eq!((free.len(), different.len()), (PAGES as usize, PAGES as usize), "pages are lost, or free twice");
}

/// Allocates until the page table is full.
fn check_table(node: &mut Node) {
    let now = node.now();
    let pid = node.slow.create_space(None, 0, now).expect("there is room for an address space");
    let (permission, backing) = (Permission::ReadWrite, Backing::OnDemand);
    let request = AllocateRequest { bytes: PAGE, permission, backing, from: 0, to: 0 };
    let allocated =
        (0..=SLOTS).take_while(|_| node.slow_path(|slow, shell| slow.allocate(pid, &request, shell)).is_ok());
    assert_eq!(allocated.count(), SLOTS as usize, "slots of the page table are lost");
}
