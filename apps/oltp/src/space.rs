//! [`Space`]: the pages of a region; [`Slab`]: pieces of one size.
//!
//! Both keep what they know in local memory: allocating and freeing touches nothing far. A piece may be given out again
//! as soon as it is given back, though somebody may still read there: its latch has had a new version meanwhile, and
//! will have another once the piece is written.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use yonder::units::PAGE_BYTES;

use crate::error::OltpError;
use crate::latches::RECORD_ALIGN;

/// What a slab takes of the space at a time. Small, so that many slabs waste little.
const CHUNK_BYTES: u64 = 16 << 12;
const PAGE: u64 = PAGE_BYTES as u64;

/// The pages of a region, given out once.
pub(crate) struct Space {
    bytes: u64,
    used: AtomicU64,
}

impl Space {
    pub(crate) fn new(bytes: u64) -> Self {
        Self { bytes: bytes / CHUNK_BYTES * CHUNK_BYTES, used: AtomicU64::new(0) }
    }

    /// Bytes in use by slabs.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Where the next chunk begins.
    fn take_chunk(&self) -> Result<u64, OltpError> {
        let next = |used: u64| (used < self.bytes).then_some(used + CHUNK_BYTES);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        taken.map_err(|_| OltpError::OutOfRoom { bytes: self.bytes })
    }
}

/// Pieces of one size, none of which is in two pages.
pub(crate) struct Slab {
    piece_bytes: u64,
    /// Held for a few instructions, and never while something far is touched.
    state: Mutex<SlabState>,
}

#[derive(Default)]
struct SlabState {
    /// What is left of the chunk that pieces are cut from.
    next: u64,
    end: u64,
    freed: Vec<u64>,
}

impl Slab {
    pub(crate) fn new(piece_bytes: usize) -> Self {
        assert!(piece_bytes <= PAGE_BYTES, "{piece_bytes} bytes are more than a page");
        let piece_bytes = (piece_bytes as u64).next_multiple_of(RECORD_ALIGN);
        Self { piece_bytes, state: Mutex::default() }
    }

    /// A piece, with anything in it.
    pub(crate) fn take(&self, space: &Space) -> Result<u64, OltpError> {
        let mut state = self.state.lock().expect("no code panics while it holds a slab");
        if let Some(piece) = state.freed.pop() {
            return Ok(piece);
        }
        if state.next % PAGE + self.piece_bytes > PAGE {
            state.next = state.next.next_multiple_of(PAGE);
        }
        if state.next >= state.end {
            state.next = space.take_chunk()?;
            state.end = state.next + CHUNK_BYTES;
        }
        let piece = state.next;
        state.next += self.piece_bytes;
        Ok(piece)
    }

    /// Gives a piece back.
    pub(crate) fn give(&self, piece: u64) {
        self.state.lock().expect("no code panics while it holds a slab").freed.push(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_apart_in_one_page_each_until_there_is_no_room() {
        for piece_bytes in [1, 8, 95, 655, 2048, 4096] {
            let space = Space::new(3 * CHUNK_BYTES + 1);
            let (slab, mut pieces) = (Slab::new(piece_bytes), Vec::new());
            let full = loop {
                match slab.take(&space) {
                    Ok(piece) => pieces.push(piece),
                    Err(full) => break full,
                }
            };
            assert_eq!(full, OltpError::OutOfRoom { bytes: 3 * CHUNK_BYTES });
            let bytes = piece_bytes as u64;
            assert_eq!(pieces.len() as u64, 3 * CHUNK_BYTES / PAGE * (PAGE / bytes.next_multiple_of(RECORD_ALIGN)));
            assert!(pieces.iter().all(|piece| piece / PAGE == (piece + bytes - 1) / PAGE && piece % RECORD_ALIGN == 0));
            assert!(
                pieces.windows(2).all(|pair| pair[0] + bytes <= pair[1])
                    && pieces.last().unwrap() + bytes <= space.bytes
            );
            assert_eq!(space.used(), space.bytes);
        }
    }

    #[test]
    fn what_is_given_back_is_given_out_again() {
        let space = Space::new(CHUNK_BYTES);
        let slab = Slab::new(4096);
        let pieces: Vec<u64> = (0..16).map(|_| slab.take(&space).unwrap()).collect();
        assert!(slab.take(&space).is_err());
        slab.give(pieces[3]);
        assert_eq!(slab.take(&space), Ok(pieces[3]));
    }
}
