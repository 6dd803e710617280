//! [`Text`]: strings by their length.

use std::ops::Range;

use yonder_guide::{Arrived, Reach, Reading, Touch};

use crate::layout::{STRING_HEADER_MAX, STRING_HEADERS, text_bytes};

/// Bytes of a page, and of a batch.
const PAGE: u64 = 4096;
const BATCH: u64 = 32 * PAGE;

/// The string that is being read.
#[derive(Default)]
pub(crate) struct Text {
    /// What of it was not asked for yet.
    left: Range<u64>,
    /// The batch that was asked for last.
    batch: Range<u64>,
    /// Where a header that is on its way ends.
    awaited: u64,
}

impl Text {
    /// A miss, which could be of the last byte of a string's header. A string of few pages is fetched as a whole by
    /// whoever knows of the allocation; this is for what that leaves.
    pub(crate) fn missed(&mut self, touch: &Touch<'_>, reach: &mut dyn Reach) {
        // What is long begins a page, so that the last byte of its header lies where only headers of long strings have
        // theirs.
        let header = (touch.address % PAGE) as usize + 1;
        if !STRING_HEADERS.contains(&header) {
            return;
        }
        let mut bytes = [0; STRING_HEADER_MAX];
        let bytes = &mut bytes[..header];
        self.awaited = touch.address;
        if reach.read(touch.address + 1 - header as u64, bytes, 0) == Reading::Done {
            self.begin(touch.address, bytes, reach);
        }
    }

    /// The first touch of a batch: whether it is this string's.
    pub(crate) fn hit(&mut self, address: u64, reach: &mut dyn Reach) -> bool {
        let is_own = self.batch.contains(&address);
        if is_own {
            self.go_on(reach);
        }
        is_own
    }

    /// A header that was far.
    pub(crate) fn arrived(&mut self, arrived: &Arrived<'_>, reach: &mut dyn Reach) {
        let last = arrived.address + arrived.bytes.len() as u64 - 1;
        if last == self.awaited {
            self.begin(last, arrived.bytes, reach);
        }
    }

    fn begin(&mut self, last: u64, header: &[u8], reach: &mut dyn Reach) {
        if let Some(text_bytes) = text_bytes(header) {
            self.left = last + 1..last + 1 + text_bytes + 1;
            self.go_on(reach);
        }
    }

    fn go_on(&mut self, reach: &mut dyn Reach) {
        let Range { start, end } = self.left.clone();
        // Batches end with pages.
        let until = end.min((start + BATCH) / PAGE * PAGE);
        self.batch = start..until;
        if start < until && reach.prefetch(start, until - start) {
            self.left = until..end;
        } else {
            self.left = end..end;
        }
    }
}

#[cfg(test)]
mod tests {
    use yonder_guide::{Cause, FakeReach, Guide as _, Payoff};

    use super::*;
    use crate::RedisGuide;

    const START: u64 = 0x3000_0010_0000;

    fn touch(cause: Cause, address: u64) -> Touch<'static> {
        Touch { cause, address, registers: &[], history: &[], payoff: Payoff::default() }
    }

    /// Memory with a string of so many bytes at the beginning of a page.
    fn string(bytes: u32) -> FakeReach {
        let mut reach = FakeReach::default();
        reach.put(START, &[u64::from(bytes) | u64::from(bytes) << 32, 3]);
        reach
    }

    #[test]
    fn a_string_is_fetched_in_batches_until_its_end() {
        let (mut guide, mut reach) = (RedisGuide::default(), string(300_000));
        reach.make_far(START..START + 300_010);
        guide.touched(&touch(Cause::Miss, START + 8), &mut reach);
        assert!(reach.prefetched.is_empty() && reach.deliver(&mut guide));
        let end = START + 9 + 300_001;
        while reach.prefetched.last().unwrap().end < end {
            let batches = reach.prefetched.len();
            guide.touched(&touch(Cause::Hit, reach.prefetched.last().unwrap().start), &mut reach);
            assert_eq!(reach.prefetched.len(), batches + 1);
        }
        assert_eq!(reach.prefetched[0].start, START + 9);
        assert!(reach.prefetched.windows(2).all(|pair| pair[0].end == pair[1].start), "{:?}", reach.prefetched);
        guide.touched(&touch(Cause::Hit, end - 1), &mut reach);
        assert_eq!(reach.prefetched.last().unwrap().end, end);
    }

    #[test]
    fn what_is_no_header_is_left_alone() {
        for (address, word) in [(START + 7, 3), (START + 8, 1), (START + 4, 3), (START + 4096 + 8, 3)] {
            let (mut guide, mut reach) = (RedisGuide::default(), string(300_000));
            reach.put(START + 8, &[word]);
            guide.touched(&touch(Cause::Miss, address), &mut reach);
            assert!(reach.prefetched.is_empty(), "{address:#x}");
        }
    }
}
