//! [`Tree`]: an ordered index in far memory, a B+-tree whose nodes are pages.
//!
//! Readers lock nothing: they note a node's version, copy the node, and look at the version again; a child's version is
//! noted while its parent still is what it was, so the child is the right one. Leaves are not linked: the bounds of a
//! leaf are learned on the way to it, and whoever goes on does so from the bound, in either direction.
//!
//! A leaf's version says what keys there are: transactions change leaves only when they commit (`commit`). A node is
//! split before it must take more than it can, and a leaf that has become empty is taken out of its parent; both lock
//! the nodes that they change at the versions that they have seen, and begin again if those are others by now.

use std::sync::atomic::{AtomicU64, Ordering};

use yonder::PagingError;
use yonder::sched::yield_now;

use crate::error::OltpError;
use crate::latches::{Seen, Wanted};
use crate::memory::Memory;
use crate::node::{ENTRIES_MAX, Key, Node};

/// Entries for which room can be asked in one leaf, at most.
pub(crate) const ROOM_MAX: usize = 64;
const _: () = assert!(ENTRIES_MAX.div_ceil(2) + ROOM_MAX <= ENTRIES_MAX, "half a leaf has room");

/// An index.
pub(crate) struct Tree {
    root: AtomicU64,
}

/// Where a way down has ended.
pub(crate) struct Reached {
    /// The node's page.
    pub(crate) at: u64,
    pub(crate) seen: Seen,
    /// The keys that it may have.
    pub(crate) first: Key,
    pub(crate) last: Key,
    parent: Option<(u64, Seen)>,
}

impl Tree {
    /// An index without keys.
    pub(crate) fn new(memory: &Memory) -> Result<Self, OltpError> {
        let root = memory.nodes.take(&memory.space)?;
        memory.write_node(root, &Node::new(0))?;
        Ok(Self { root: AtomicU64::new(root) })
    }

    /// The leaf that has a key if any has, and its copy in `node`.
    pub(crate) fn find(&self, memory: &Memory, key: Key, node: &mut Node) -> Result<Reached, PagingError> {
        self.descend(memory, key, node, |_| false)
    }

    /// Splits nodes until the leaf of `key` has room for so many entries.
    pub(crate) fn make_room(&self, memory: &Memory, key: Key, entries: usize) -> Result<(), OltpError> {
        assert!(entries <= ROOM_MAX, "room for {entries} entries in a leaf: at most {ROOM_MAX}");
        let mut node = Node::new(0);
        loop {
            // A parent has room for the second half of its child: full ones on the way are split first.
            let reached = self.descend(memory, key, &mut node, |inner| inner.len() == ENTRIES_MAX)?;
            if node.is_leaf() && node.len() + entries <= ENTRIES_MAX {
                return Ok(());
            }
            if !self.split(memory, &reached, key, &mut node)? {
                yield_now();
            }
        }
    }

    /// Takes the leaf of `key` out of the index if it is empty, and not its parent's only one: such leaves are few, and
    /// stay.
    pub(crate) fn remove_empty(&self, memory: &Memory, key: Key) -> Result<(), PagingError> {
        let mut node = Node::new(0);
        loop {
            let leaf = self.find(memory, key, &mut node)?;
            let Some(parent) = leaf.parent.filter(|_| node.len() == 0) else { return Ok(()) };
            if self.unlink(memory, &leaf, parent, &mut node)? {
                return Ok(());
            }
            yield_now();
        }
    }

    /// Goes down to the leaf of `key`, or to the first inner node that `ends` the way.
    fn descend(
        &self,
        memory: &Memory,
        key: Key,
        node: &mut Node,
        ends: impl Fn(&Node) -> bool,
    ) -> Result<Reached, PagingError> {
        loop {
            if let Some(reached) = self.try_descend(memory, key, node, &ends)? {
                return Ok(reached);
            }
            yield_now();
        }
    }

    /// [`Tree::descend`], unless a node on the way is being changed.
    fn try_descend(
        &self,
        memory: &Memory,
        key: Key,
        node: &mut Node,
        ends: &impl Fn(&Node) -> bool,
    ) -> Result<Option<Reached>, PagingError> {
        let latches = &memory.latches;
        let mut at = self.root.load(Ordering::Acquire);
        let Some(mut seen) = latches.look(latches.of_node(at)) else { return Ok(None) };
        if self.root.load(Ordering::Acquire) != at {
            return Ok(None);
        }
        let (mut first, mut last, mut parent) = (Key::MIN, Key::MAX, None);
        loop {
            memory.read_node(at, node)?;
            if !latches.still(seen) {
                return Ok(None);
            }
            if node.is_leaf() || ends(node) {
                return Ok(Some(Reached { at, seen, first, last, parent }));
            }
            let place = node.child(key);
            first = node.key(place);
            if place + 1 < node.len() {
                last = node.key(place + 1) - 1;
            }
            let child = node.value(place);
            let Some(child_seen) = latches.look(latches.of_node(child)) else { return Ok(None) };
            if !latches.still(seen) {
                return Ok(None);
            }
            parent = Some((at, seen));
            (at, seen) = (child, child_seen);
        }
    }

    /// Splits the node that was reached on the way to `key`; false if it has changed since. `node` is its copy.
    fn split(&self, memory: &Memory, reached: &Reached, key: Key, node: &mut Node) -> Result<bool, OltpError> {
        let right_at = memory.nodes.take(&memory.space)?;
        let new_root_at = match reached.parent {
            Some(_) => None,
            None => Some(memory.nodes.take(&memory.space).inspect_err(|_| memory.nodes.give(right_at))?),
        };
        let split = self.split_into(memory, reached, key, node, right_at, new_root_at);
        if split != Ok(true) {
            memory.nodes.give(right_at);
            new_root_at.into_iter().for_each(|page| memory.nodes.give(page));
        }
        Ok(split?)
    }

    fn split_into(
        &self,
        memory: &Memory,
        reached: &Reached,
        key: Key,
        node: &mut Node,
        right_at: u64,
        new_root_at: Option<u64>,
    ) -> Result<bool, PagingError> {
        let parent_at = new_root_at.or(reached.parent.map(|(at, _)| at)).expect("who has no parent gets one");
        let _held = memory.hold(vec![reached.at, right_at, parent_at])?;
        let parent_seen = reached.parent.map(|(_, seen)| seen);
        let Some(locked) = memory.latches.try_lock(&mut at_versions(&[Some(reached.seen), parent_seen])) else {
            return Ok(false);
        };
        let mut parent = Node::new(node.level() + 1);
        match new_root_at {
            None => memory.read_node(parent_at, &mut parent)?,
            Some(_) => parent.insert(0, Key::MIN, reached.at),
        }
        let (separator, right) = halve(node, key);
        parent.insert(parent.first_from(separator), separator, right_at);
        memory.write_node(right_at, &right)?;
        memory.write_node(parent_at, &parent)?;
        // What is held can be written. Should the machine lose this very page now, whoever reads it next is told.
        let _ = memory.write_node(reached.at, node);
        if new_root_at.is_some() {
            self.root.store(parent_at, Ordering::Release);
        }
        let tid = locked.newest().next_in(0);
        locked.release(tid);
        Ok(true)
    }

    /// Takes an empty leaf out of its parent; false if one of them has changed since.
    fn unlink(
        &self,
        memory: &Memory,
        leaf: &Reached,
        (parent_at, parent_seen): (u64, Seen),
        parent: &mut Node,
    ) -> Result<bool, PagingError> {
        let _held = memory.hold(vec![parent_at])?;
        let Some(locked) = memory.latches.try_lock(&mut at_versions(&[Some(leaf.seen), Some(parent_seen)])) else {
            return Ok(false);
        };
        memory.read_node(parent_at, parent)?;
        if parent.len() == 1 {
            return Ok(true);
        }
        // Its keys are the left neighbour's from now on, or the right one's if there is none.
        match parent.child(leaf.first) {
            0 => {
                let (lowest, next) = (parent.key(0), parent.value(1));
                parent.remove(1);
                parent.remove(0);
                parent.insert(0, lowest, next);
            }
            place => parent.remove(place),
        }
        memory.write_node(parent_at, parent)?;
        let tid = locked.newest().next_in(0);
        locked.release(tid);
        memory.nodes.give(leaf.at);
        Ok(true)
    }
}

/// These latches at the versions that were seen.
fn at_versions(seen: &[Option<Seen>]) -> Vec<Wanted> {
    seen.iter().flatten().map(|seen| Wanted { latch: seen.latch, only: Some(seen.tid) }).collect()
}

/// Cuts a node in two, and says from which key on the second has them. Where keys come in order, the first stays full.
fn halve(node: &mut Node, key: Key) -> (Key, Node) {
    let (place, middle) = (node.first_from(key), node.len() / 2);
    if node.is_leaf() && place >= middle {
        return (key, node.split_off(place));
    }
    let cut = place.clamp(middle, node.len() - 1);
    (node.key(cut), node.split_off(cut))
}
