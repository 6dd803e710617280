//! [`MoveBytes`]: how the bytes that a [`Vector`] names move between mappings, and between a mapping and a buffer;
//! [`Operation`]: what moves them.
//!
//! Neighbours: `core/pager` has the vector itself; queue pairs that copy by themselves move bytes with this.

use yonder_mapping::Mapping;
use yonder_pager::{PageRead, PageWrite, Vector};
use yonder_units::PAGE_BYTES;

/// What was posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Read(PageRead),
    Write(PageWrite),
}

/// Moves the bytes of a vector's segments.
pub(crate) trait MoveBytes {
    /// Copies the bytes of the page at `from_offset` to that at `to_offset`.
    fn copy(self, to: &Mapping, to_offset: u64, from: &Mapping, from_offset: u64);

    /// Packs the bytes of the page of `from` at `offset`, one segment behind the other, into the beginning of `into`.
    /// Returns how many there are.
    fn gather(self, from: &Mapping, offset: u64, into: &mut [u8]) -> usize;

    /// Writes those bytes of `packed`, which was gathered of this vector, that are `wanted` to the page of `to` at
    /// `offset`.
    fn scatter(self, packed: &[u8], wanted: Self, to: &Mapping, offset: u64);

    /// Writes zeros to its bytes of the page of `to` at `offset`.
    fn clear(self, to: &Mapping, offset: u64);

    /// A page of bytes `inside` the segments and bytes `outside`.
    #[cfg(test)]
    fn filled(self, inside: u8, outside: u8) -> [u8; PAGE_BYTES];
}

impl MoveBytes for Vector {
    fn copy(self, to: &Mapping, to_offset: u64, from: &Mapping, from_offset: u64) {
        for segment in self.segments() {
            let start = segment.start as u64;
            to.copy_from(to_offset + start, from, from_offset + start, segment.len());
        }
    }

    fn gather(self, from: &Mapping, offset: u64, into: &mut [u8]) -> usize {
        let mut packed = 0;
        for segment in self.segments() {
            from.read(offset + segment.start as u64, &mut into[packed..packed + segment.len()]);
            packed += segment.len();
        }
        packed
    }

    fn scatter(self, packed: &[u8], wanted: Self, to: &Mapping, offset: u64) {
        let mut before = 0;
        for segment in self.segments() {
            for part in wanted.segments() {
                let (start, end) = (part.start.max(segment.start), part.end.min(segment.end));
                if start < end {
                    let from = before + start - segment.start;
                    to.write(offset + start as u64, &packed[from..from + (end - start)]);
                }
            }
            before += segment.len();
        }
    }

    fn clear(self, to: &Mapping, offset: u64) {
        for segment in self.segments() {
            to.write(offset + segment.start as u64, &[0; PAGE_BYTES][..segment.len()]);
        }
    }

    #[cfg(test)]
    fn filled(self, inside: u8, outside: u8) -> [u8; PAGE_BYTES] {
        let mut page = [outside; PAGE_BYTES];
        self.segments().for_each(|segment| page[segment].fill(inside));
        page
    }
}
