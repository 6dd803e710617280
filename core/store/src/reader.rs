//! [`Reader`]: reads pages of a store, and believes nothing that the disk says of them.

use yonder_units::PageIndex;

use crate::{BufferIndex, Disk, Full, GRAIN_BYTES, Index, Location};

/// How often a page is read again because it was moved meanwhile, before that is an error: the cleaner moves a page
/// once in many reads, so that this many in a row mean that something else is wrong.
const MOVES_MAX: u8 = 8;

/// What became of a post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posted {
    /// The page was never written: it is zeros, and nothing is read.
    Zeros,
    /// The disk is reading into this buffer.
    Reading(BufferIndex),
}

/// How a read of a page ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    /// The content is at the start of the buffer, which is the reader's again with [`Reader::take_back`].
    Content {
        /// The buffer's bytes.
        bytes: usize,
    },
    /// The disk reads again: the page has moved.
    Again,
    /// The disk has not what was written.
    Damaged,
    /// The disk has failed; it may not, another time.
    Failed,
    /// Nobody wants it any more.
    Cancelled,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Free,
    Reading {
        page: PageIndex,
        location: Location,
        moves_left: u8,
    },
    Cancelled,
    /// Its content is with the caller.
    Lent,
}

/// The reads of one thread.
#[derive(Debug)]
pub struct Reader {
    slots: Box<[State]>,
    free: Vec<BufferIndex>,
}

impl Reader {
    /// A reader that has the first `buffers` buffers of its disk for itself.
    #[must_use]
    pub fn new(buffers: u16) -> Self {
        Self { slots: (0..buffers).map(|_| State::Free).collect(), free: (0..buffers).rev().map(BufferIndex).collect() }
    }

    /// Begins to read a page.
    pub fn post(&mut self, index: &Index, disk: &mut impl Disk, page: PageIndex) -> Result<Posted, Full> {
        let Some(location) = index.location(page) else { return Ok(Posted::Zeros) };
        let buffer = self.free.pop().ok_or(Full)?;
        self.begin(disk, buffer, page, location, MOVES_MAX);
        Ok(Posted::Reading(buffer))
    }

    /// The disk has ended what it did for `buffer`; `is_read`, if it says that it has read all of it.
    pub fn done(&mut self, index: &Index, disk: &mut impl Disk, buffer: BufferIndex, is_read: bool) -> Read {
        match self.slots[usize::from(buffer.0)] {
            State::Reading { page, location, moves_left } => {
                let bytes = location.grains() * GRAIN_BYTES;
                if is_read && index.is_content(page, &disk.buffer(buffer)[..bytes]) {
                    self.slots[usize::from(buffer.0)] = State::Lent;
                    return Read::Content { bytes };
                }
                match index.location(page) {
                    Some(moved) if moved != location && moves_left > 0 => {
                        self.begin(disk, buffer, page, moved, moves_left - 1);
                        Read::Again
                    }
                    _ => {
                        self.free_slot(buffer);
                        if is_read { Read::Damaged } else { Read::Failed }
                    }
                }
            }
            State::Cancelled => {
                self.free_slot(buffer);
                Read::Cancelled
            }
            State::Free | State::Lent => unreachable!("{buffer:?} was not being read into"),
        }
    }

    /// Takes back a buffer whose content was lent.
    pub fn take_back(&mut self, buffer: BufferIndex) {
        assert!(matches!(self.slots[usize::from(buffer.0)], State::Lent), "{buffer:?} was not lent");
        self.free_slot(buffer);
    }

    /// Forgets a read. Its buffer is used again when the disk has ended.
    pub fn cancel(&mut self, buffer: BufferIndex) {
        let slot = &mut self.slots[usize::from(buffer.0)];
        assert!(matches!(slot, State::Reading { .. }), "{buffer:?} was not being read into");
        *slot = State::Cancelled;
    }

    fn begin(
        &mut self,
        disk: &mut impl Disk,
        buffer: BufferIndex,
        page: PageIndex,
        location: Location,
        moves_left: u8,
    ) {
        self.slots[usize::from(buffer.0)] = State::Reading { page, location, moves_left };
        disk.read(buffer, location.start() * GRAIN_BYTES as u64, location.grains() * GRAIN_BYTES);
    }

    fn free_slot(&mut self, buffer: BufferIndex) {
        debug_assert!(!self.free.contains(&buffer), "{buffer:?} is free already");
        self.slots[usize::from(buffer.0)] = State::Free;
        self.free.push(buffer);
    }
}
