//! Following pointers in the caller's memory, so that a walk costs one round trip (Clio, section 6, radix tree).
//!
//! A structure has levels. [`Shape::Lists`]: each level is a linked list, of which the first node that compares as
//! asked is searched; from it a child pointer leads to the next level. With one level that is a list, with more a tree
//! of lists. [`Shape::Tables`]: each node has a table of pointers, and the key's next byte chooses one: a radix tree.
//!
//! Key types: [`PointerChase`] is the offload; [`Request`] and [`Answer`] are what clients send and get. It keeps
//! nothing and writes nothing. A walk has at most [`STEPS_MAX`] steps, so one in a ring ends too; a longer one is gone
//! on with.

mod protocol;

use std::cmp::Ordering;

use yonder_units::Narrow;
use yonder_wire::ErrorCode;

use crate::memory::{OffloadMemory, Space, offset};
use crate::{Call, Effect, Offload};
pub use protocol::{
    Answer, Field, KEY_BYTES_MAX, Lists, Order, Outcome, Request, STEPS_MAX, Shape, Take, VALUE_BYTES_MAX,
};

/// The number of the offload.
pub const NUMBER: u64 = 1;

/// Key and pointer of a node are read at once if no more bytes than these hold both.
const WINDOW_BYTES_MAX: usize = 256;

/// The offload.
#[derive(Clone, Copy, Default, Debug)]
pub struct PointerChase;

impl Offload for PointerChase {
    fn number(&self) -> u64 {
        NUMBER
    }

    fn name(&self) -> &'static str {
        "pointer-chase"
    }

    fn effect(&self, _: &[u8]) -> Effect {
        Effect::Repeatable
    }

    fn call(&mut self, Call { arguments, memory, answer, .. }: Call<'_>) -> Result<(), ErrorCode> {
        let request = Request::decode(arguments)?;
        check(&request)?;
        let mut walk =
            Walk { memory, node: request.start, previous: 0, level: 0, steps: 0, steps_max: request.steps_max };
        let outcome = match &request.shape {
            Shape::Lists(lists) => walk.lists(lists, request.key)?,
            Shape::Tables { table_offset } => walk.tables(*table_offset, request.key)?,
        };
        let Walk { node, previous, level, steps, memory, .. } = walk;
        let mut value = Vec::new();
        if outcome == Outcome::Found {
            value.resize(request.value.bytes as usize, 0);
            memory.read(Space::Caller, offset(node, u64::from(request.value.offset))?, &mut value)?;
        }
        Answer { outcome, steps, level, node, previous, value: &value }.encode(answer);
        Ok(())
    }
}

fn check(request: &Request<'_>) -> Result<(), ErrorCode> {
    let key_fits = match &request.shape {
        Shape::Lists(lists) => lists.levels > 0 && request.key.len().is_multiple_of(lists.levels as usize),
        Shape::Tables { .. } => true,
    };
    let bounded = request.key.len() <= KEY_BYTES_MAX
        && request.value.bytes as usize <= VALUE_BYTES_MAX
        && (1..=STEPS_MAX).contains(&request.steps_max);
    if key_fits && bounded { Ok(()) } else { Err(ErrorCode::BadLength) }
}

/// Where a walk is.
struct Walk<'a> {
    memory: &'a mut dyn OffloadMemory,
    /// The node to look at next, or 0.
    node: u64,
    /// The node before it in the same list, or 0.
    previous: u64,
    level: u32,
    steps: u32,
    steps_max: u32,
}

impl Walk<'_> {
    fn lists(&mut self, lists: &Lists<'_>, key: &[u8]) -> Result<Outcome, ErrorCode> {
        let key_bytes = key.len() / lists.levels as usize;
        loop {
            let from = self.level as usize * key_bytes;
            match self.list(lists, &key[from..from + key_bytes])? {
                Outcome::Found => {}
                other => return Ok(other),
            }
            if self.level + 1 == lists.levels {
                return Ok(Outcome::Found);
            }
            let child = offset(self.node, u64::from(lists.child_offset))?;
            (self.node, self.previous) = (self.memory.read_word(Space::Caller, child)?, 0);
            self.level += 1;
        }
    }

    /// Walks along one list until its node is the one to take.
    fn list(&mut self, lists: &Lists<'_>, key: &[u8]) -> Result<Outcome, ErrorCode> {
        loop {
            let (matches, next) = match self.node {
                0 => (false, 0),
                _ if self.steps == self.steps_max => return Ok(Outcome::StepsSpent),
                node => {
                    self.steps += 1;
                    self.look_at(node, lists, key)?
                }
            };
            match (lists.take, self.node, self.previous) {
                (Take::Match, 0, _) => return Ok(Outcome::Ended),
                (Take::Match, ..) if matches => return Ok(Outcome::Found),
                (Take::Before, node, before) if matches || node == 0 => {
                    if before == 0 {
                        return Ok(Outcome::Ended);
                    }
                    (self.node, self.previous) = (before, 0);
                    return Ok(Outcome::Found);
                }
                _ => (self.node, self.previous) = (next, self.node),
            }
        }
    }

    /// Whether the key of a node compares as asked, and the node after it.
    fn look_at(&mut self, node: u64, lists: &Lists<'_>, key: &[u8]) -> Result<(bool, u64), ErrorCode> {
        let (key_at, next_at) = (u64::from(lists.key_offset), u64::from(lists.next_offset));
        let (start, end) = (key_at.min(next_at), (key_at + key.len() as u64).max(next_at + 8));
        let mut window = [0; WINDOW_BYTES_MAX];
        if end - start <= WINDOW_BYTES_MAX as u64 {
            let window = &mut window[..(end - start).narrow_usize()];
            self.memory.read(Space::Caller, offset(node, start)?, window)?;
            let stored = &window[(key_at - start).narrow_usize()..][..key.len()];
            let next = window[(next_at - start).narrow_usize()..].first_chunk().copied().map_or(0, u64::from_le_bytes);
            return Ok((compares(stored, lists, key), next));
        }
        let stored = &mut window[..key.len()];
        self.memory.read(Space::Caller, offset(node, key_at)?, stored)?;
        let matches = compares(stored, lists, key);
        Ok((matches, self.memory.read_word(Space::Caller, offset(node, next_at)?)?))
    }

    /// Goes down one table for each byte of the key.
    fn tables(&mut self, table_offset: u32, key: &[u8]) -> Result<Outcome, ErrorCode> {
        for byte in key {
            if self.node == 0 {
                return Ok(Outcome::Ended);
            }
            if self.steps == self.steps_max {
                return Ok(Outcome::StepsSpent);
            }
            self.steps += 1;
            let pointer = offset(self.node, u64::from(table_offset) + 8 * u64::from(*byte))?;
            (self.node, self.previous) = (self.memory.read_word(Space::Caller, pointer)?, self.node);
            self.level += 1;
        }
        Ok(if self.node == 0 { Outcome::Ended } else { Outcome::Found })
    }
}

const _: () = assert!(KEY_BYTES_MAX <= WINDOW_BYTES_MAX);

/// Whether the bytes of a node compare with those of the key as asked, under the mask.
fn compares(stored: &[u8], lists: &Lists<'_>, key: &[u8]) -> bool {
    let masked = |index: usize| {
        let mask = lists.mask.get(index).copied().unwrap_or(u8::MAX);
        (stored[index] & mask).cmp(&(key[index] & mask))
    };
    let ordering = match lists.order {
        Order::Bytes => (0..key.len()).map(masked).find(|ordering| ordering.is_ne()),
        Order::LittleEndian => (0..key.len()).rev().map(masked).find(|ordering| ordering.is_ne()),
    };
    lists.comparison.holds(ordering.unwrap_or(Ordering::Equal))
}

#[cfg(test)]
mod tests;
