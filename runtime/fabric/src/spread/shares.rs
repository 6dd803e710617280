//! [`Shares`]: pages in shares on their way: each share of each operation has a frame of its own here.
//!
//! A page that is written is cut, and its sums are made, before anything is posted: what changes in the frame
//! meanwhile makes no two shares be of different contents. A page that is read is joined when enough shares have come.
//!
//! Invariant: nothing is allocated after it was made.

use std::sync::Arc;

use yonder_mapping::Mapping;
use yonder_protect::code::{Code, add_scaled};
use yonder_protect::{SLOTS_MAX, Slot, SlotSet};
use yonder_units::{FrameIndex, Narrow, PAGE_BYTES};

use crate::{FabricError, Vector};

/// Frames for the shares of some operations.
pub(super) struct Shares {
    code: Code,
    frames: Arc<Mapping>,
    vector: Vector,
    /// A page, and zeros behind it as far as its last part goes.
    parts: Box<[u8]>,
    sum: Box<[u8]>,
}

impl Shares {
    /// For so many operations, and with so many frames more.
    pub(super) fn new(code: Code, operations: usize, more: usize) -> Result<Self, FabricError> {
        let frames = Mapping::anonymous((operations * SLOTS_MAX + more) * PAGE_BYTES);
        let frames = frames.map_err(|error| FabricError::System { url: String::new(), cause: error.to_string() })?;
        let bytes = code.share_bytes();
        Ok(Self {
            code,
            frames: Arc::new(frames),
            vector: Vector::new(std::iter::once(0..bytes)),
            parts: vec![0; usize::from(code.parts().count()) * bytes].into(),
            sum: vec![0; bytes].into(),
        })
    }

    /// Where all shares are.
    pub(super) fn frames(&self) -> &Arc<Mapping> {
        &self.frames
    }

    /// The frame of a share.
    pub(super) fn frame(&self, operation: usize, slot: Slot) -> FrameIndex {
        FrameIndex((operation * SLOTS_MAX + slot.index()).narrow_u32())
    }

    /// Its bytes there.
    pub(super) fn vector(&self) -> Vector {
        self.vector
    }

    /// Makes the shares of some slots of the page of `from` at `offset`.
    pub(super) fn cut(&mut self, operation: usize, slots: SlotSet, from: &Mapping, offset: u64) {
        let (page, behind) = self.parts.split_at_mut(PAGE_BYTES);
        from.read(offset, page);
        behind.fill(0);
        for slot in slots.iter() {
            let to = self.frame(operation, slot).offset();
            if let Some(part) = self.parts.chunks(self.sum.len()).nth(slot.index()) {
                self.frames.write(to, part);
                continue;
            }
            let factors = self.code.factors(self.code.parts(), slot);
            self.sum.fill(0);
            for (part, factor) in self.parts.chunks(self.sum.len()).zip(factors) {
                add_scaled(&mut self.sum, part, factor);
            }
            self.frames.write(to, &self.sum);
        }
    }

    /// Puts a page together of as many shares as it has parts, and writes the bytes of `vector` to that of `to` at
    /// `offset`.
    pub(super) fn join(&mut self, operation: usize, got: SlotSet, vector: Vector, to: &Mapping, offset: u64) {
        for slot in self.code.parts().iter() {
            let bytes = self.sum.len();
            let part = slot.index() * bytes..(slot.index() + 1) * bytes;
            let is_there = got.contains(slot);
            if !is_there {
                self.add_up(operation, got, slot);
            }
            for segment in vector.segments() {
                let (start, end) = (segment.start.max(part.start), segment.end.min(part.end));
                if start >= end {
                    continue;
                }
                let (at, within) = (offset + start as u64, start - part.start);
                if is_there {
                    let share = self.frame(operation, slot).offset();
                    to.copy_from(at, &self.frames, share + within as u64, end - start);
                } else {
                    to.write(at, &self.sum[within..end - part.start]);
                }
            }
        }
    }

    /// Makes the share of a slot of as many others as a page has parts.
    pub(super) fn make(&mut self, operation: usize, got: SlotSet, slot: Slot) {
        self.add_up(operation, got, slot);
        self.frames.write(self.frame(operation, slot).offset(), &self.sum);
    }

    fn add_up(&mut self, operation: usize, got: SlotSet, slot: Slot) {
        let factors = self.code.factors(got, slot);
        self.sum.fill(0);
        for from in got.iter() {
            let offset = self.frame(operation, from).offset();
            let (sum, factor) = (&mut self.sum, factors[from.index()]);
            self.frames.with_page(offset, |share| {
                let bytes = sum.len();
                add_scaled(sum, &share[..bytes], factor);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of any shares, parts or sums, each byte that is asked for comes to its own place, and no other is written.
    #[test]
    fn what_is_asked_for_of_a_page_is_joined_of_any_shares_that_are_enough() {
        for parts in [1, 3, 4] {
            let code = Code::new(parts);
            let mut shares = Shares::new(code, 3, 0).unwrap();
            let page: [u8; PAGE_BYTES] = std::array::from_fn(|at| (at * 31 + at / 251) as u8);
            let [from, to] = [(); 2].map(|()| Mapping::anonymous(3 * PAGE_BYTES).unwrap());
            let offset = PAGE_BYTES as u64;
            from.write(offset, &page);
            shares.cut(1, SlotSet::ALL, &from, offset);
            let few = Vector::new([0..16, 1008..1424, 2000..4096]);
            for got in (0..=u8::MAX).map(SlotSet::from_bits).filter(|got| got.count() == parts) {
                for vector in [Vector::WHOLE, few] {
                    to.write(0, &[0xee; 3 * PAGE_BYTES]);
                    shares.join(1, got, vector, &to, offset);
                    let mut expected = [0xee; 3 * PAGE_BYTES];
                    for segment in vector.segments() {
                        expected[PAGE_BYTES..][segment.clone()].copy_from_slice(&page[segment]);
                    }
                    let mut joined = [0; 3 * PAGE_BYTES];
                    to.read(0, &mut joined);
                    assert!(joined == expected, "{parts} parts, of {got:?}");
                }
            }
        }
    }
}
