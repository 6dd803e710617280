//! [`Ahead`]: what a thread has fetched ahead, driven by `core/pager` as `core/pager` drives it.
//!
//! Windows are rows of pages; when there are [`WINDOWS`] and one more is made, the oldest is given up. A prefetcher
//! that fetches a window after a miss and follows no hits is the same one, told of misses only and with its windows cut
//! short.

use std::collections::VecDeque;

use yonder_pager::prefetch::{Plan, Prefetcher, Touch};
use yonder_units::PageIndex;

use super::system::{Mapping, System, Windows};

/// Windows at a time, as in `core/pager`.
const WINDOWS: usize = 8;
/// The array's number.
const REGION: u32 = 0;

/// The prefetcher and its windows, the oldest first.
#[derive(Debug)]
pub(super) struct Ahead {
    prefetcher: Prefetcher,
    kind: Windows,
    windows: VecDeque<Window>,
    /// Windows made.
    made: u16,
}

/// Pages fetched together, those that are not mapped yet.
#[derive(Debug)]
struct Window {
    pages: Vec<PageIndex>,
    /// Whether its first touch leads to the next one.
    is_followed: bool,
}

impl Ahead {
    pub(super) fn new(system: &System) -> Self {
        let prefetcher = Prefetcher::new(system.algorithm);
        Self { prefetcher, kind: system.windows, windows: VecDeque::new(), made: 0 }
    }

    /// A page was missed: what to fetch ahead.
    pub(super) fn missed(&mut self, page: PageIndex) -> Option<Plan> {
        self.prefetcher.touched(REGION, page, Touch::Miss)
    }

    /// A page that was fetched ahead is touched: what to fetch next, if it is the first of a window that nobody has
    /// touched.
    pub(super) fn hit(&mut self, page: PageIndex) -> Option<Plan> {
        if self.kind != Windows::Followed {
            return None;
        }
        let at = self.windows.iter().position(|window| window.pages.contains(&page))?;
        if !self.windows[at].is_followed || self.windows[at].pages[0] != page {
            return None;
        }
        // As new as one that is made now: the next one takes another's place.
        let mut window = self.windows.remove(at).expect("it was found");
        window.is_followed = false;
        self.windows.push_back(window);
        self.prefetcher.touched(REGION, page, Touch::Hit)
    }

    /// How many pages of a plan are fetched at most.
    pub(super) fn pages_of(&self, plan: &Plan) -> u32 {
        match self.kind {
            Windows::AfterMisses(pages) => plan.count.min(pages - 1),
            Windows::Followed => plan.count,
        }
    }

    /// Only the first `seen` pages of a plan could be seen to.
    pub(super) fn shortened(&mut self, plan: &Plan, seen: u32) {
        if seen < plan.count {
            self.prefetcher.shortened(plan, seen);
        }
    }

    /// Makes a window, as the newest; the pages that are given up for it, untouched.
    pub(super) fn begin(&mut self, pages: Vec<PageIndex>) -> (u16, Vec<PageIndex>) {
        self.made = self.made.wrapping_add(1);
        self.windows.push_back(Window { pages, is_followed: true });
        self.windows.retain(|window| !window.pages.is_empty());
        let oldest = if self.windows.len() > WINDOWS { self.windows.pop_front() } else { None };
        let given_up = oldest.map_or(Vec::new(), |window| window.pages);
        self.prefetcher.unused(given_up.len() as u32);
        (self.made, given_up)
    }

    /// The pages that are mapped with `page`, which has arrived, of those that `is_here`; they leave their windows.
    pub(super) fn take(
        &mut self,
        page: PageIndex,
        mapping: Mapping,
        is_here: impl Fn(PageIndex) -> bool,
    ) -> Vec<PageIndex> {
        let mut taken = vec![page];
        for window in &mut self.windows {
            let is_its = window.pages.contains(&page);
            window.pages.retain(|other| {
                let goes = match mapping {
                    Mapping::Touched => *other == page,
                    Mapping::Arrived => is_here(*other),
                    Mapping::Window => is_its && is_here(*other),
                };
                if goes && *other != page {
                    taken.push(*other);
                }
                !goes
            });
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(of: std::ops::Range<u32>) -> Vec<PageIndex> {
        of.map(PageIndex).collect()
    }

    #[test]
    fn the_oldest_window_is_given_up_and_a_touched_one_is_new() {
        let mut ahead = Ahead::new(&System::FOLLOWED);
        for number in 0..WINDOWS as u32 {
            assert!(ahead.begin(pages(100 * number..100 * number + 4)).1.is_empty());
        }
        let _ = ahead.hit(PageIndex(0));
        assert_eq!(ahead.begin(pages(900..904)).1, pages(100..104));
    }

    #[test]
    fn what_is_mapped_together_depends_on_the_system() {
        let here = |page: PageIndex| page.0 != 2 && page.0 != 11;
        let taken = |mapping| {
            let mut ahead = Ahead::new(&System::READAHEAD);
            ahead.begin(pages(0..4));
            ahead.begin(pages(10..13));
            let mut taken = ahead.take(PageIndex(1), mapping, here);
            taken.sort_unstable();
            taken.iter().map(|page| page.0).collect::<Vec<_>>()
        };
        assert_eq!(taken(Mapping::Touched), [1]);
        assert_eq!(taken(Mapping::Arrived), [0, 1, 3, 10, 12]);
        assert_eq!(taken(Mapping::Window), [0, 1, 3]);
    }
}
