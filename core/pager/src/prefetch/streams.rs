//! [`Streams`]: the sequences of pages that are being read, each with its newest windows.
//!
//! ```text
//!            earlier window        newest window
//!   read  |--------------------|--------------------|  nothing planned
//!                              ^ first              ^ first + stride * pages
//! ```
//! A hit in the newest window, at whichever page, plans the next one. So does a miss of its first page, or of the one
//! right behind it: the window was thrown away, or could not be fetched. Any other miss in it is a coincidence.

use yonder_units::{Narrow, PageIndex};

use crate::prefetch::{BEFORE_THE_FIRST, Plan, Touch, WINDOW_PAGES_MAX, WINDOW_PAGES_MIN};

/// Streams at a time; a new one takes the place of the one that was touched longest ago.
const STREAMS_MAX: usize = 16;

/// One sequence.
#[derive(Clone, Copy, Debug)]
struct Stream {
    region: u32,
    /// First page of the newest window.
    first: i64,
    /// Pages of the newest window, as far as they could be fetched, and as they were planned.
    pages: u32,
    planned: u32,
    /// Pages before `first` that belong to it: the earlier window.
    behind: u32,
    stride: i32,
    /// When it was touched last; 0 if there is no such stream.
    touched: u64,
}

/// A fixed number of streams.
#[derive(Debug)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS_MAX],
    touches: u64,
}

/// What a touch is to the streams that are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// It belongs to none.
    Nothing,
    /// To one whose next window has been planned.
    Within,
    /// To one whose next window is this.
    Next(Plan),
}

impl Streams {
    pub(crate) fn new() -> Self {
        let none = Stream { region: 0, first: 0, pages: 0, planned: 0, behind: 0, stride: 1, touched: 0 };
        Self { streams: [none; STREAMS_MAX], touches: 0 }
    }

    #[inline]
    pub(crate) fn find(&mut self, region: u32, page: PageIndex, touch: Touch) -> Found {
        self.touches += 1;
        let touches = self.touches;
        let place = |stream: &Stream| stream.place_of(region, page, touch);
        let Some((stream, steps)) = self.streams.iter_mut().find_map(|stream| place(stream).map(|at| (stream, at)))
        else {
            return Found::Nothing;
        };
        stream.touched = touches;
        if steps < 0 {
            return Found::Within;
        }
        // A page right behind the window is fetched by whoever has touched it.
        let is_behind = steps == i64::from(stream.pages);
        Found::Next(stream.advance(is_behind))
    }

    /// The pages from `first` on, up to before page `end`, were fetched together. A stream that has come to the first
    /// goes on behind them.
    pub(crate) fn pass(&mut self, region: u32, first: PageIndex, end: u32) -> Found {
        self.touches += 1;
        let comes_there =
            |stream: &&mut Stream| stream.stride == 1 && stream.place_of(region, first, Touch::Hit).is_some();
        let Some(stream) = self.streams.iter_mut().find(comes_there) else { return Found::Nothing };
        stream.touched = self.touches;
        let passed = i64::from(end) - stream.first;
        if passed <= 0 {
            return Found::Within;
        }
        // What it had planned last is read on the way there. What lies farther back is as new as what no stream has.
        let behind = i64::from(stream.behind).saturating_add(passed).min(i64::from(2 * WINDOW_PAGES_MAX));
        stream.behind = behind.unsigned_abs().narrow_u32();
        stream.first = i64::from(end);
        stream.planned = (2 * stream.planned).min(WINDOW_PAGES_MAX);
        stream.pages = stream.planned;
        Found::Next(stream.plan())
    }

    /// Begins a stream at a page that was missed, and returns its first window.
    pub(crate) fn begin(&mut self, region: u32, page: PageIndex, stride: i32) -> Plan {
        let oldest = self.streams.iter_mut().min_by_key(|stream| stream.touched).expect("there are streams");
        *oldest = Stream {
            region,
            first: i64::from(page.0) + i64::from(stride),
            pages: WINDOW_PAGES_MIN,
            planned: WINDOW_PAGES_MIN,
            behind: 1,
            stride,
            touched: self.touches,
        };
        oldest.plan()
    }

    /// Of the window that was planned last for a stream only the first `pages` pages could be fetched.
    pub(crate) fn shorten(&mut self, plan: &Plan, pages: u32) {
        let is_its =
            |stream: &&mut Stream| stream.touched > 0 && stream.region == plan.region && stream.plan() == *plan;
        if let Some(stream) = self.streams.iter_mut().find(is_its) {
            stream.pages = pages;
        }
    }

    pub(crate) fn forget(&mut self, region: u32) {
        self.streams.iter_mut().filter(|stream| stream.region == region).for_each(|stream| stream.touched = 0);
    }
}

impl Stream {
    /// How many steps after the first page of the newest window `page` is, if it is one of the stream's.
    fn place_of(&self, region: u32, page: PageIndex, touch: Touch) -> Option<i64> {
        if self.touched == 0 || self.region != region {
            return None;
        }
        let (distance, stride) = (i64::from(page.0) - self.first, i64::from(self.stride));
        let (pages, behind) = (i64::from(self.pages), i64::from(self.behind));
        // Most touches are far from most streams, and divisions are slow.
        let along = distance * stride.signum();
        if along < -behind * stride.abs() || along > pages * stride.abs() {
            return None;
        }
        let steps = distance / stride;
        let is_expected = match touch {
            Touch::Hit => -behind <= steps && steps <= pages,
            Touch::Miss => (-behind <= steps && steps <= 0) || steps == pages,
        };
        (is_expected && distance % stride == 0).then_some(steps)
    }

    /// Goes on to the next window, twice as long, and leaves one page out if that is touched right now.
    fn advance(&mut self, leaves_one_out: bool) -> Plan {
        let steps = i64::from(self.pages) + i64::from(leaves_one_out);
        self.behind = self.pages;
        self.first += i64::from(self.stride) * steps;
        self.planned = (2 * self.planned).min(WINDOW_PAGES_MAX);
        self.pages = self.planned;
        self.plan()
    }

    /// The newest window. One that begins before page 0 is as empty as one behind the last page.
    fn plan(&self) -> Plan {
        let first = u32::try_from(self.first).map_or(BEFORE_THE_FIRST, PageIndex);
        Plan { region: self.region, first, stride: self.stride, count: self.planned }
    }
}
