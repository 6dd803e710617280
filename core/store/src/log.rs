//! [`Log`]: what of each segment is used, where the next write goes, and which segment to clean.
//!
//! ```text
//! free ──reserve──> open ──full──> closed ──victim──> cleaning
//!  ^                                 │                   │
//!  └──── nothing lives in it, nothing is being written ──┘
//! ```
//!
//! New pages and those that were moved by the cleaner go to segments of their own ([`Head`]): what has outlived a
//! cleaning will outlive others, and segments whose pages die together cost nothing to clean. Which segment is cleaned
//! is decided as in log-structured file systems, by what cleaning gains, weighed with how long the segment has not
//! changed.

use std::collections::VecDeque;

use yonder_units::{Narrow, PAGE_BYTES, PageIndex};

use crate::{GRAIN_BYTES, Location, PAGE_GRAINS};

/// Share of a disk that is kept for cleaning: with less, cleaning moves many times what it gains.
const SPARE_FRACTION: usize = 8;
/// Free segments that only the cleaner takes: what it has moved it may have to move on before it has gained a whole
/// segment.
const CLEANER_SEGMENTS: usize = 2;
/// Fewest segments of a log: those that are open, the cleaner's, and one to be cleaned.
const SEGMENTS_MIN: usize = HEADS + CLEANER_SEGMENTS + 4;
/// Cleaning begins when less than one segment in so many is free.
const CLEAN_START_FRACTION: usize = 16;
const HEADS: usize = 2;

/// How a disk is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Segments.
    pub segments: usize,
    /// Grains of a segment: whole pages.
    pub segment_grains: usize,
}

impl Geometry {
    /// The largest log on `bytes` of disk, in segments of `segment_bytes`; `None` if that is too little to be cleaned.
    ///
    /// # Panics
    /// If a segment is not a whole number of pages.
    #[must_use]
    pub fn fitting(bytes: u64, segment_bytes: usize) -> Option<Self> {
        assert!(segment_bytes.is_multiple_of(PAGE_BYTES), "segments of {segment_bytes} bytes");
        let segments = usize::try_from(bytes / segment_bytes as u64).ok()?;
        (segments >= SEGMENTS_MIN).then_some(Self { segments, segment_grains: segment_bytes / GRAIN_BYTES })
    }

    /// The smallest log in segments of `segment_bytes` that can keep `pages` pages.
    #[must_use]
    pub fn keeping(pages: usize, segment_bytes: usize) -> Self {
        let mut geometry = Self { segments: SEGMENTS_MIN, segment_grains: segment_bytes / GRAIN_BYTES };
        let needed = pages.div_ceil(geometry.segment_pages());
        geometry.segments = geometry.segments.max(needed + needed / SPARE_FRACTION);
        while geometry.pages_max() < pages {
            geometry.segments += 1;
        }
        geometry
    }

    /// Bytes of disk.
    #[must_use]
    pub fn bytes(self) -> u64 {
        (self.segments * self.segment_grains * GRAIN_BYTES) as u64
    }

    /// Most pages that the log can keep, and still be cleaned.
    #[must_use]
    pub fn pages_max(self) -> usize {
        let spare = (self.segments / SPARE_FRACTION).max(SEGMENTS_MIN - 1);
        (self.segments - spare) * self.segment_pages()
    }

    fn segment_pages(self) -> usize {
        self.segment_grains / PAGE_GRAINS
    }
}

/// Which open segment a write goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Head {
    /// That of what was written.
    Fresh,
    /// That of what the cleaner moves.
    Moved,
}

/// How full a log is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Occupancy {
    /// Segments.
    pub segments: usize,
    /// Those of them with nothing in them.
    pub free_segments: usize,
    /// Bytes that pages are in.
    pub live_bytes: u64,
    /// Bytes reserved for writes since the log began.
    pub written_bytes: u64,
    /// Of these, those that the cleaner moved.
    pub moved_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Open,
    Closed,
    Cleaning,
}

/// What was reserved in a segment.
#[derive(Clone, Copy, Debug)]
struct Record {
    page: PageIndex,
    location: Location,
}

#[derive(Debug)]
struct Segment {
    state: State,
    /// Where what was reserved since it was opened ends, in grains.
    filled: usize,
    /// Grains of pages that the index has here.
    live: usize,
    /// Grains that are being written.
    pending: usize,
    /// Count of reservations when it last changed.
    changed_at: u64,
    /// Whether something lives here that could not be moved: it is cleaned again only after a change.
    is_stuck: bool,
    records: Vec<Record>,
}

/// The segments of a disk.
#[derive(Debug)]
pub struct Log {
    geometry: Geometry,
    segments: Vec<Segment>,
    free: VecDeque<usize>,
    open: [Option<usize>; HEADS],
    /// Grains reserved, by head.
    reserved: [u64; HEADS],
    /// Grains of all pages that the index has.
    live: usize,
}

impl Log {
    /// An empty log.
    #[must_use]
    pub fn new(geometry: Geometry) -> Self {
        let none = Geometry { segments: 0, ..geometry };
        let (free, open, reserved) = (VecDeque::new(), [None; HEADS], [0; HEADS]);
        let mut log = Self { geometry: none, segments: Vec::new(), free, open, reserved, live: 0 };
        log.grow(geometry.segments);
        log
    }

    /// The disk has room for `segments` now, which are not fewer than before.
    pub fn grow(&mut self, segments: usize) {
        assert!(segments >= self.geometry.segments, "a log of {} segments grows to {segments}", self.geometry.segments);
        let empty = || Segment {
            state: State::Free,
            filled: 0,
            live: 0,
            pending: 0,
            changed_at: 0,
            is_stuck: false,
            records: Vec::new(),
        };
        self.free.extend(self.geometry.segments..segments);
        self.segments.resize_with(segments, empty);
        self.geometry.segments = segments;
    }

    /// How the disk is divided.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Reserves `grains` for a content of `page` that is about to be written at this head: right behind the end of what
    /// the same batch has, if that is `behind`, and nothing was reserved since and the segment has room, else at the
    /// beginning of a page of the disk. `None` if there is no room before something was cleaned.
    pub fn reserve(&mut self, head: Head, page: PageIndex, grains: usize, behind: Option<u64>) -> Option<Location> {
        let segment = self.open_with(head, grains, behind)?;
        let start = self.start_of(segment);
        let place = self.segments[segment].next(start, behind);
        // What was left out is written as well.
        self.reserved[head as usize] += (place - self.segments[segment].filled + grains) as u64;
        let changed_at = self.reservations();
        let segment = &mut self.segments[segment];
        let location = Location::new(start + place as u64, grains);
        segment.filled = place + grains;
        segment.pending += grains;
        segment.changed_at = changed_at;
        segment.records.push(Record { page, location });
        segment.check(self.geometry);
        Some(location)
    }

    /// What was reserved is written, and the index has it.
    pub fn commit(&mut self, location: Location) {
        let segment = self.segment_of(location);
        let segment = &mut self.segments[segment];
        segment.end_write(location);
        segment.live += location.grains();
        self.live += location.grains();
        segment.check(self.geometry);
    }

    /// What was reserved is not used: its write failed, or came too late.
    pub fn abandon(&mut self, location: Location) {
        let segment = self.segment_of(location);
        self.segments[segment].end_write(location);
        self.free_if_empty(segment);
    }

    /// The index does not have the place any more.
    pub fn release(&mut self, location: Location) {
        let (segment, changed_at) = (self.segment_of(location), self.reservations());
        let changed = &mut self.segments[segment];
        changed.live = changed.live.checked_sub(location.grains()).expect("what is released was committed");
        changed.changed_at = changed_at;
        changed.is_stuck = false;
        self.live -= location.grains();
        self.free_if_empty(segment);
    }

    /// Whether so little is free that the cleaner should work, and it has a segment to gain.
    #[must_use]
    pub fn wants_cleaning(&self) -> bool {
        let used = (self.geometry.segments - self.free.len()) * self.geometry.segment_grains;
        self.free.len() < (self.geometry.segments / CLEAN_START_FRACTION).max(CLEANER_SEGMENTS + 2)
            && used - self.live > (HEADS + 1) * self.geometry.segment_grains
    }

    /// The segment that is best cleaned now, which belongs to the cleaner until [`Log::cleaned`]. `None` if cleaning
    /// gains nothing.
    pub fn victim(&mut self) -> Option<usize> {
        let (now, whole) = (self.reservations(), self.geometry.segment_grains);
        let gain = |segment: &Segment| {
            let (dead, age) = ((whole - segment.live) as u128, u128::from(now - segment.changed_at) + 1);
            // Benefit over cost: space times age, over reading all and writing what lives. In integers: it orders
            // exactly.
            ((dead * age) << 32) / (whole + segment.live) as u128
        };
        let is_candidate = |segment: &Segment| {
            segment.state == State::Closed && segment.pending == 0 && segment.live < whole && !segment.is_stuck
        };
        let candidates = self.segments.iter().enumerate().filter(|(_, segment)| is_candidate(segment));
        let (victim, _) = candidates.max_by_key(|(_, segment)| gain(segment))?;
        self.segments[victim].state = State::Cleaning;
        Some(victim)
    }

    /// What was written to a segment, in order of place; some of it may be dead.
    pub fn records(&self, segment: usize) -> impl Iterator<Item = (PageIndex, Location)> {
        self.segments[segment].records.iter().map(|record| (record.page, record.location))
    }

    /// The cleaner has moved what it could of its victim.
    pub fn cleaned(&mut self, segment: usize) {
        let cleaned = &mut self.segments[segment];
        assert!(cleaned.state == State::Cleaning, "segment {segment} was not being cleaned");
        cleaned.state = State::Closed;
        cleaned.is_stuck = cleaned.live > 0;
        self.free_if_empty(segment);
    }

    /// How full it is.
    #[must_use]
    pub fn occupancy(&self) -> Occupancy {
        let bytes = |grains: u64| grains * GRAIN_BYTES as u64;
        Occupancy {
            segments: self.geometry.segments,
            free_segments: self.free.len(),
            live_bytes: bytes(self.live as u64),
            written_bytes: bytes(self.reservations()),
            moved_bytes: bytes(self.reserved[Head::Moved as usize]),
        }
    }

    /// The open segment of `head`, if it has room for `grains`, or a free one in its place.
    fn open_with(&mut self, head: Head, grains: usize, behind: Option<u64>) -> Option<usize> {
        if let Some(open) = self.open[head as usize] {
            if self.segments[open].next(self.start_of(open), behind) + grains <= self.geometry.segment_grains {
                return Some(open);
            }
            self.open[head as usize] = None;
            self.segments[open].state = State::Closed;
            self.free_if_empty(open);
        }
        let kept = match head {
            Head::Fresh => CLEANER_SEGMENTS,
            Head::Moved => 0,
        };
        let opened = (self.free.len() > kept).then(|| self.free.pop_front()).flatten()?;
        let segment = &mut self.segments[opened];
        assert!(segment.state == State::Free && segment.live == 0 && segment.pending == 0, "{segment:?} is not free");
        segment.state = State::Open;
        segment.filled = 0;
        segment.is_stuck = false;
        // Records of the smallest kind are rare, and the vector's memory stays with the segment.
        segment.records.clear();
        self.open[head as usize] = Some(opened);
        Some(opened)
    }

    fn free_if_empty(&mut self, index: usize) {
        debug_assert!(self.live <= self.segments.len() * self.geometry.segment_grains, "more lives than there is");
        let segment = &mut self.segments[index];
        segment.check(self.geometry);
        if segment.state == State::Closed && segment.live == 0 && segment.pending == 0 {
            segment.state = State::Free;
            self.free.push_back(index);
        }
    }

    fn start_of(&self, segment: usize) -> u64 {
        (segment * self.geometry.segment_grains) as u64
    }

    fn segment_of(&self, location: Location) -> usize {
        let whole = self.geometry.segment_grains as u64;
        debug_assert!(location.start() % whole + location.grains() as u64 <= whole, "{location:?} is in two segments");
        (location.start() / whole).narrow_usize()
    }

    /// Grains reserved since the log began: the log's clock.
    fn reservations(&self) -> u64 {
        self.reserved.iter().sum()
    }
}

impl Segment {
    /// The grain of this segment, which begins at `start`, where a content goes next: right after the end of its batch
    /// at `behind`, if nothing came in between, or at the beginning of a page.
    fn next(&self, start: u64, behind: Option<u64>) -> usize {
        let goes_on = behind == Some(start + self.filled as u64);
        if goes_on { self.filled } else { self.filled.next_multiple_of(PAGE_GRAINS) }
    }

    /// What was reserved as `location` is being written no more.
    fn end_write(&mut self, location: Location) {
        self.pending = self.pending.checked_sub(location.grains()).expect("what ends was reserved");
    }

    /// What lives and what is being written was reserved, and there is room for it.
    fn check(&self, Geometry { segment_grains, .. }: Geometry) {
        debug_assert!(self.live + self.pending <= self.filled && self.filled <= segment_grains, "{self:?}");
        debug_assert!(self.state != State::Free || self.live + self.pending == 0, "{self:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_with_a_page() -> (Log, Location) {
        let mut log = Log::new(Geometry::keeping(16, 4 * PAGE_BYTES));
        let location = log.reserve(Head::Fresh, PageIndex(3), PAGE_GRAINS, None).unwrap();
        (log, location)
    }

    #[test]
    #[should_panic(expected = "what ends was reserved")]
    fn ending_a_write_twice_is_our_bug() {
        let (mut log, location) = log_with_a_page();
        log.commit(location);
        log.abandon(location);
    }

    #[test]
    #[should_panic(expected = "what is released was committed")]
    fn releasing_what_was_not_committed_is_our_bug() {
        let (mut log, location) = log_with_a_page();
        log.release(location);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "is in two segments")]
    fn a_page_in_two_segments_is_our_bug() {
        let (mut log, location) = log_with_a_page();
        let end = log.geometry().segment_grains as u64;
        log.commit(Location::new(end - 1, location.grains()));
    }

    #[test]
    #[should_panic(expected = "grows to 1")]
    fn a_log_does_not_shrink() {
        log_with_a_page().0.grow(1);
    }
}
