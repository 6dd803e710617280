//! [`FakeReach`]: memory for tests of guides.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crate::{Arrived, Guide, READ_BYTES_MAX, READS_MAX, Reach, Reading};

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Memory of which some is far, and what a guide has asked of it. For the tests of guides.
#[derive(Default)]
pub struct FakeReach {
    words: BTreeMap<u64, u64>,
    far: Vec<Range<u64>>,
    coming: VecDeque<(u64, usize, u64)>,
    /// What was fetched ahead, in order.
    pub prefetched: Vec<Range<u64>>,
    /// Reads that were asked for.
    pub reads: usize,
    /// Pages that can be fetched still.
    pub room: Option<u64>,
}

impl FakeReach {
    /// Puts words into memory, from `address` on.
    pub fn put(&mut self, address: u64, words: &[u64]) {
        self.words.extend((address..).step_by(8).zip(words.iter().copied()));
    }

    /// Makes a range far, so that reads of it arrive later.
    pub fn make_far(&mut self, range: Range<u64>) {
        self.far.push(range);
    }

    /// Lets the oldest read that is under way arrive. False if there is none.
    pub fn deliver(&mut self, guide: &mut dyn Guide) -> bool {
        let Some((address, bytes, note)) = self.coming.pop_front() else { return false };
        let mut buffer = [0; READ_BYTES_MAX];
        self.copy(address, &mut buffer[..bytes]);
        guide.arrived(&Arrived { address, bytes: &buffer[..bytes], note }, self);
        true
    }

    fn is_far(&self, address: u64) -> bool {
        self.far.iter().any(|range| range.contains(&address))
    }

    fn copy(&self, address: u64, into: &mut [u8]) {
        for (at, byte) in (address..).zip(into) {
            let word = self.words.get(&(at & !7)).copied().unwrap_or_default();
            *byte = word.to_ne_bytes()[(at & 7) as usize];
        }
    }
}

/// Whether bytes are few enough, and of one page.
fn can_be_read(address: u64, into: &[u8]) -> bool {
    let bytes = into.len() as u64;
    (1..=READ_BYTES_MAX as u64).contains(&bytes) && address / PAGE == (address + bytes - 1) / PAGE
}

impl Reach for FakeReach {
    fn prefetch(&mut self, address: u64, bytes: u64) -> bool {
        let pages = (address + bytes).div_ceil(PAGE) - address / PAGE;
        if self.room.is_some_and(|room| room < pages) {
            return false;
        }
        self.room = self.room.map(|room| room - pages);
        self.prefetched.push(address..address + bytes);
        true
    }

    fn peek(&mut self, address: u64, into: &mut [u8]) -> bool {
        let is_here = can_be_read(address, into) && !self.is_far(address);
        if is_here {
            self.copy(address, into);
        }
        is_here
    }

    fn read(&mut self, address: u64, into: &mut [u8], note: u64) -> Reading {
        self.reads += 1;
        if !can_be_read(address, into) {
            return Reading::Refused;
        }
        if self.peek(address, into) {
            return Reading::Done;
        }
        if self.coming.len() == READS_MAX {
            return Reading::Refused;
        }
        self.coming.push_back((address, into.len(), note));
        Reading::Coming
    }
}
