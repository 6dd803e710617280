//! Which pages to fetch before they are touched.
//!
//! A [`Prefetcher`] is told of every touch that it could have made faster: a [`Touch::Miss`], which waited for the
//! node, and a [`Touch::Hit`], the first touch of a window that had been fetched ahead. It answers with a [`Plan`], a
//! window of pages to fetch next. There are no accessed bits in user space, so that is all it learns: what is mapped
//! with a window is not seen again until its end. Windows therefore belong to streams, and the hit of one plans the
//! next, twice as long, so that it is under way while this one is read.
//!
//! [`Algorithm`]s differ in how they recognise a new stream: readahead by a neighbour that was missed before, trend by
//! the majority of the last steps (Leap, section 4.2; DiLOS, section 4.3, has the same two). A stream that was
//! recognised is the same for both.
//!
//! Invariants: a plan's pages are those after the touched one, in steps of its stride; no more than
//! [`WINDOW_PAGES_MAX`]; a prefetcher of which most pages were thrown away unread plans nothing for a while
//! ([`Prefetcher::unused`]).

mod payoff;
mod recent;
mod streams;
mod trend;

use yonder_units::PageIndex;

use payoff::Payoff;
use recent::Recent;
use streams::{Found, Streams};
use trend::History;

/// Pages of the longest window.
pub const WINDOW_PAGES_MAX: u32 = 32;
/// Pages of a stream's first window.
pub const WINDOW_PAGES_MIN: u32 = 4;

/// How new streams are recognised.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Algorithm {
    /// Not at all: nothing is fetched ahead.
    None,
    /// Two neighbours, the second after the first.
    #[default]
    Readahead,
    /// Most of the last steps were equal.
    Trend,
}

/// What happened at a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// It had to be fetched.
    Miss,
    /// It had been fetched ahead, and nobody had touched its window before.
    Hit,
}

/// A window of pages to fetch ahead: `first`, `first + stride`, and so on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Number of the region.
    pub region: u32,
    /// The first page; it may be beyond the region's end.
    pub first: PageIndex,
    /// From one page to the next; not 0.
    pub stride: i32,
    /// Number of pages, at least 1.
    pub count: u32,
}

/// Where a plan begins that would begin before page 0.
const BEFORE_THE_FIRST: PageIndex = PageIndex(u32::MAX);

impl Plan {
    /// The pages, as far as they have numbers. Of one that would begin before page 0 there are none.
    pub fn pages(self) -> impl Iterator<Item = PageIndex> {
        let count = if self.first == BEFORE_THE_FIRST { 0 } else { self.count };
        let page = move |step: u32| i64::from(self.first.0) + i64::from(self.stride) * i64::from(step);
        (0..count).map(page).map_while(|page| u32::try_from(page).ok()).map(PageIndex)
    }
}

/// What one thread has seen of its touches, and what it makes of that. Fixed memory.
#[derive(Debug)]
pub struct Prefetcher {
    detector: Detector,
    streams: Streams,
    payoff: Payoff,
}

#[derive(Debug)]
enum Detector {
    None,
    Adjacent(Recent),
    Majority(History),
}

impl Prefetcher {
    /// One that has seen nothing.
    #[must_use]
    pub fn new(algorithm: Algorithm) -> Self {
        let detector = match algorithm {
            Algorithm::None => Detector::None,
            Algorithm::Readahead => Detector::Adjacent(Recent::new()),
            Algorithm::Trend => Detector::Majority(History::new()),
        };
        Self { detector, streams: Streams::new(), payoff: Payoff::new() }
    }

    /// Whether it ever plans anything.
    #[must_use]
    #[inline]
    pub fn is_on(&self) -> bool {
        !matches!(self.detector, Detector::None)
    }

    /// A page of a region was touched. What to fetch ahead now, if anything.
    pub fn touched(&mut self, region: u32, page: PageIndex, touch: Touch) -> Option<Plan> {
        if !self.is_on() {
            return None;
        }
        let found = self.streams.find(region, page, touch);
        if touch == Touch::Miss {
            self.payoff.missed(found != Found::Nothing);
        }
        let plan = match found {
            Found::Within => None,
            Found::Next(plan) => Some(plan),
            Found::Nothing => {
                let stride = match &mut self.detector {
                    Detector::None => None,
                    Detector::Adjacent(recent) => recent.missed(region, page),
                    Detector::Majority(history) => history.missed(region, page),
                };
                stride.map(|stride| self.streams.begin(region, page, stride))
            }
        };
        plan.filter(|plan| self.payoff.planned(plan.count))
    }

    /// Whether it recognises what lies side by side.
    #[must_use]
    pub fn knows_neighbours(&self) -> bool {
        matches!(self.detector, Detector::Adjacent(_))
    }

    /// Pages were fetched together, since they are needed together, and none of them will be told of as missed. What to
    /// fetch ahead behind them, if they follow others that were missed or fetched so.
    pub fn fetched_together(&mut self, region: u32, pages: std::ops::Range<u32>) -> Option<Plan> {
        let Detector::Adjacent(recent) = &mut self.detector else { return None };
        let (first, last) = (PageIndex(pages.start), PageIndex(pages.end.checked_sub(1)?));
        let follows = recent.missed(region, first).is_some();
        recent.missed(region, last);
        let found = self.streams.pass(region, first, pages.end);
        self.payoff.missed(follows || found != Found::Nothing);
        let plan = match found {
            Found::Next(plan) => Some(plan),
            Found::Nothing if follows => Some(self.streams.begin(region, last, 1)),
            Found::Within | Found::Nothing => None,
        };
        plan.filter(|plan| self.payoff.planned(plan.count))
    }

    /// Only the first `pages` pages of a plan that was just made could be fetched: the stream goes on from there.
    pub fn shortened(&mut self, plan: &Plan, pages: u32) {
        self.streams.shorten(plan, pages);
    }

    /// Pages that were fetched ahead have been thrown away, and nobody had touched them.
    pub fn unused(&mut self, pages: u32) {
        self.payoff.unused(pages);
    }

    /// Forgets what it knows of a region, whose number may be given to another.
    pub fn forget(&mut self, region: u32) {
        self.streams.forget(region);
        match &mut self.detector {
            Detector::None => {}
            Detector::Adjacent(recent) => recent.forget(region),
            Detector::Majority(history) => history.forget(region),
        }
    }
}

#[cfg(test)]
mod tests;
