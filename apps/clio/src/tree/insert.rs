//! Inserting into the tree: [`Tree::insert`], by any number of clients at the same time.
//!
//! What is missing of a key hangs below one pointer that is still 0. The client writes the missing nodes first, and
//! then sets that pointer with one compare-and-swap; if somebody else was first, it searches on from there.

use std::ops::Range;

use crate::{AppError, Meter};

use crate::tree::handle::{Tree, VALUE_MAX, check_key};
use crate::tree::layout::{CHILD, NEXT, NODE_BYTES, Node, ROOT, TAKEN, VALUE};
use crate::tree::search::{Place, Way};

/// Nodes that a client takes at once, so that few inserts need to.
pub(crate) const SPARE_NODES: u64 = 256;

impl Tree {
    /// Gives a key a value, and returns the one that it had.
    pub fn insert(&mut self, key: &[u8], value: u64, meter: &mut Meter) -> Result<Option<u64>, AppError> {
        check_key(key)?;
        if value > VALUE_MAX {
            return Err(AppError::Settings(format!("the value {value} is too large: give one of at most {VALUE_MAX}")));
        }
        loop {
            let (level, last) = match self.find(key, Way::Whole, meter)? {
                Place::Node(found) => return replace(found.address + VALUE, found.value, value + 1, meter),
                Place::End { level, last } => (level, last),
            };
            let pointer = match (level, last) {
                (0, 0) => self.address + ROOT,
                (_, 0) => match self.find(&key[..level], Way::Whole, meter)? {
                    Place::Node(parent) => parent.address + CHILD,
                    Place::End { .. } => return Err(AppError::WrongValues(1)),
                },
                (_, last) => last + NEXT,
            };
            let nodes = self.take_nodes((key.len() - level) as u64, meter)?;
            let first = self.write_chain(&key[level..], value, &nodes, meter)?;
            if meter.compare_and_swap(pointer, 0, first)? == 0 {
                return Ok(None);
            }
            // Nobody knows of these nodes yet.
            self.spare.start = nodes.start;
        }
    }

    /// Writes one node below the other, the last with the value, and returns the address of the first.
    fn write_chain(&self, symbols: &[u8], value: u64, nodes: &Range<u64>, meter: &mut Meter) -> Result<u64, AppError> {
        let chain = symbols.iter().zip(nodes.clone()).map(|(symbol, number)| {
            let is_last = number + 1 == nodes.end;
            let (child, value) = if is_last { (0, value + 1) } else { (self.node(number + 1), 0) };
            Node { next: 0, child, value, symbol: *symbol }.to_words().map(u64::to_le_bytes)
        });
        let chain: Vec<[[u8; 8]; 4]> = chain.collect();
        let first = self.node(nodes.start);
        meter.write(first, chain.as_flattened().as_flattened())?;
        Ok(first)
    }

    /// Numbers of `count` nodes that nobody else uses, one after the other.
    fn take_nodes(&mut self, count: u64, meter: &mut Meter) -> Result<Range<u64>, AppError> {
        if room(&self.spare) < count {
            let more = count.max(SPARE_NODES);
            // The last nodes of the tree can be fewer than were asked for.
            let start = meter.fetch_add(self.address + TAKEN, more)?.min(self.capacity);
            let end = start.saturating_add(more).min(self.capacity);
            if self.spare.end == start {
                self.spare.end = end;
            } else if end - start >= count {
                self.spare = start..end;
            }
        }
        if room(&self.spare) < count {
            return Err(AppError::Settings(format!(
                "the tree has no room for {count} more nodes of {NODE_BYTES} bytes beside its {}: make it larger",
                self.capacity
            )));
        }
        let start = self.spare.start;
        self.spare.start += count;
        Ok(start..start + count)
    }
}

fn room(nodes: &Range<u64>) -> u64 {
    nodes.end - nodes.start
}

/// Replaces the word of a value, whatever others do to it meanwhile, and returns the value that it replaced.
fn replace(address: u64, seen: u64, word: u64, meter: &mut Meter) -> Result<Option<u64>, AppError> {
    let mut expected = seen;
    loop {
        let old = meter.compare_and_swap(address, expected, word)?;
        if old == expected {
            return Ok(old.checked_sub(1));
        }
        expected = old;
    }
}
