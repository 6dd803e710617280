//! [`Runs`]: which pages are free, and the lowest run of as many as are wanted.
//!
//! A bitmap of the pages, and above it a tree of [`Summary`]s: one for each block of 512 pages, then one for each
//! [`FAN`] of the level below, up to one of everything. A summary says how many pages are free at the start, at the
//! end, and in the longest run between, so a search goes down only where it finds something, and neighbours that become
//! free are one run without being joined. The Go runtime's page allocator has this form. Address-ordered first fit
//! keeps what is in use low and together, so that the blocks that are reclaimed are full ones.
//!
//! Everything is zero while all pages are free, so a large tree costs nothing before its pages are used. It never
//! allocates after its creation.

use std::ops::Range;

use yonder_units::{BLOCK_PAGES, BLOCK_PAGES_U32, Narrow};

use crate::bits::{self, Words};

/// Children of a node.
const FAN: usize = 8;
/// Pages under a node of the lowest level.
const LEAF_PAGES: u32 = BLOCK_PAGES_U32;
const LEAF_WORDS: usize = BLOCK_PAGES / u64::BITS as usize;
/// Runs without an aligned start after which a search asks for one that has room to spare for the alignment.
const MISALIGNED_MAX: u32 = 32;

/// The pages that are free.
#[derive(Debug)]
pub(crate) struct Runs {
    pages: u32,
    free: u32,
    /// A bit for each page that is taken.
    taken: Vec<u64>,
    /// Summaries, those of the blocks first. Each field is kept as its difference to the pages of the node.
    levels: Vec<Vec<[u32; 3]>>,
}

/// Free pages of a part of the range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Summary {
    /// From its first page on.
    start: u32,
    /// The longest run.
    max: u32,
    /// Up to its last page.
    end: u32,
}

/// A search on its way through the tree, in order of addresses.
struct Search {
    from: u32,
    wanted: u32,
    /// The free run that ends where the search is: its first page and its length.
    first: u32,
    length: u32,
}

impl Runs {
    /// `pages` free pages.
    pub(crate) fn new(pages: u32) -> Self {
        assert!(pages > 0, "a heap has pages");
        let blocks = pages.div_ceil(LEAF_PAGES) as usize;
        let mut levels = vec![vec![[0; 3]; blocks]];
        while let nodes @ 2.. = levels[levels.len() - 1].len() {
            levels.push(vec![[0; 3]; nodes.div_ceil(FAN)]);
        }
        Self { pages, free: pages, taken: vec![0; blocks * LEAF_WORDS], levels }
    }

    /// Pages that are free.
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// Takes the lowest `pages` free pages, not 0, that follow one another from a multiple of `align`, a power of two.
    pub(crate) fn take(&mut self, pages: u32, align: u32) -> Option<u32> {
        debug_assert!(pages > 0 && align.is_power_of_two(), "{pages} pages at a multiple of {align}");
        let first = if align == 1 { self.find(0, pages) } else { self.find_aligned(pages, align) }?;
        debug_assert!(first.is_multiple_of(align), "page {first} is no multiple of {align}");
        self.mark(first..first + pages, Mark::Taken);
        Some(first)
    }

    /// Takes the `pages` pages from `first` on, if all are there and free.
    pub(crate) fn take_at(&mut self, first: u32, pages: u32) -> bool {
        let end = first.checked_add(pages).filter(|end| *end <= self.pages);
        let free = end.is_some_and(|end| bits::next_one(&self.taken, first..end) == end);
        if free {
            self.mark(first..first + pages, Mark::Taken);
        }
        free
    }

    /// Makes pages free that were taken.
    pub(crate) fn give(&mut self, first: u32, pages: u32) {
        let end = first + pages;
        assert!(bits::next_zero(&self.taken, first..end) == end, "pages are given back that are free");
        self.mark(first..end, Mark::Free);
    }

    /// Bytes of address space that it has.
    pub(crate) fn bytes(&self) -> u64 {
        let nodes: usize = self.levels.iter().map(Vec::len).sum();
        (size_of_val(&self.taken[..]) + nodes * size_of::<[u32; 3]>()) as u64
    }

    fn find_aligned(&self, pages: u32, align: u32) -> Option<u32> {
        let (mut from, mut misaligned) = (0u32, 0);
        loop {
            let first = self.find(from, pages)?;
            if first.is_multiple_of(align) {
                return Some(first);
            }
            misaligned += 1;
            if misaligned == MISALIGNED_MAX
                && let Some(roomy) = self.find(from, pages.saturating_add(align - 1))
            {
                return Some(roomy.next_multiple_of(align));
            }
            from = first.checked_next_multiple_of(align)?;
        }
    }

    /// The first page of the lowest run of `wanted` free pages at `from` or behind it.
    fn find(&self, from: u32, wanted: u32) -> Option<u32> {
        let mut search = Search { from, wanted, first: 0, length: 0 };
        self.search(self.levels.len() - 1, 0, &mut search).then_some(search.first)
    }

    /// Searches the pages under a node; whether the run that `search` is in is long enough now.
    fn search(&self, level: usize, node: usize, search: &mut Search) -> bool {
        let span = self.span(level, node);
        if span.end <= search.from {
            return false;
        }
        if search.from <= span.start {
            let summary = self.summary(level, node);
            if search.length + summary.start >= search.wanted {
                search.extend(span.start, summary.start);
                return true;
            }
            if summary.max < search.wanted {
                if summary.start == span.end - span.start {
                    search.extend(span.start, summary.start);
                } else {
                    (search.first, search.length) = (span.end - summary.end, summary.end);
                }
                return false;
            }
        }
        if level == 0 {
            return self.search_block(span, search);
        }
        self.children(level, node).any(|child| self.search(level - 1, child, search))
    }

    fn search_block(&self, block: Range<u32>, search: &mut Search) -> bool {
        let mut at = block.start.max(search.from);
        loop {
            let taken = bits::next_one(&self.taken, at..block.end);
            search.extend(at, taken - at);
            if search.length >= search.wanted || taken == block.end {
                return search.length >= search.wanted;
            }
            search.length = 0;
            at = bits::next_zero(&self.taken, taken..block.end);
        }
    }

    /// Marks pages, and brings the summaries above them up to date.
    fn mark(&mut self, pages: Range<u32>, mark: Mark) {
        let count = pages.end - pages.start;
        match mark {
            Mark::Taken => {
                debug_assert!(bits::next_one(&self.taken, pages.clone()) == pages.end, "{pages:?} are not all free");
                self.free -= count;
            }
            Mark::Free => self.free += count,
        }
        debug_assert!(self.free <= self.pages, "{} of {} pages are free", self.free, self.pages);
        let Words { partial, whole } = bits::words_of(pages.clone());
        // Each bit changes.
        partial.into_iter().flatten().for_each(|(word, mask)| self.taken[word] ^= mask);
        self.taken[whole].fill(match mark {
            Mark::Taken => !0,
            Mark::Free => 0,
        });
        let (mut first, mut last) = ((pages.start / LEAF_PAGES) as usize, ((pages.end - 1) / LEAF_PAGES) as usize);
        for level in 0..self.levels.len() {
            let mut changed = false;
            for node in first..=last {
                let span = self.span(level, node);
                let inside = pages.start <= span.start && span.end <= pages.end;
                let Summary { start, max, end } = match mark {
                    Mark::Taken if inside => Summary::of_run(0),
                    Mark::Free if inside => Summary::of_run(span.end - span.start),
                    _ if level == 0 => self.summarize_block(span.clone()),
                    _ => self.summarize(level, node),
                };
                let missing = [start, max, end].map(|free| span.end - span.start - free);
                changed |= std::mem::replace(&mut self.levels[level][node], missing) != missing;
            }
            if !changed {
                break;
            }
            (first, last) = (first / FAN, last / FAN);
        }
        let longest = self.summary(self.levels.len() - 1, 0).max;
        debug_assert!(longest <= self.free && (longest == 0) == (self.free == 0), "a run of {longest}");
    }

    fn summarize_block(&self, span: Range<u32>) -> Summary {
        let mut summary = Summary::of_run(0);
        let mut at = span.start;
        loop {
            let taken = bits::next_one(&self.taken, at..span.end);
            let free = taken - at;
            if at == span.start {
                summary.start = free;
            }
            summary.max = summary.max.max(free);
            if taken == span.end {
                summary.end = free;
                return summary;
            }
            at = bits::next_zero(&self.taken, taken..span.end);
        }
    }

    fn summarize(&self, level: usize, node: usize) -> Summary {
        let mut whole = Summary::of_run(0);
        let mut before = 0;
        for child in self.children(level, node) {
            let (part, span) = (self.summary(level - 1, child), self.span(level - 1, child));
            let pages = span.end - span.start;
            if whole.start == before {
                whole.start += part.start;
            }
            whole.max = whole.max.max(part.max).max(whole.end + part.start);
            whole.end = if part.end == pages { whole.end + pages } else { part.end };
            before += pages;
        }
        whole
    }

    fn summary(&self, level: usize, node: usize) -> Summary {
        let span = self.span(level, node);
        let [start, max, end] = self.levels[level][node].map(|missing| span.end - span.start - missing);
        debug_assert!(start.max(end) <= max && max <= span.end - span.start, "{start}, {max}, {end} of {span:?}");
        Summary { start, max, end }
    }

    /// The pages under a node.
    fn span(&self, level: usize, node: usize) -> Range<u32> {
        let pages = u64::from(LEAF_PAGES) << (level.narrow_u32() * FAN.ilog2());
        let at = |node: usize| (node as u64 * pages).min(u64::from(self.pages)).narrow_u32();
        at(node)..at(node + 1)
    }

    /// The nodes below a node that is not of the lowest level.
    fn children(&self, level: usize, node: usize) -> Range<usize> {
        node * FAN..((node + 1) * FAN).min(self.levels[level - 1].len())
    }
}

impl Summary {
    /// Of as many pages, all of them free; or of any, none of them free, if that is 0.
    fn of_run(pages: u32) -> Self {
        Self { start: pages, max: pages, end: pages }
    }
}

impl Search {
    /// Appends free pages that follow the run the search is in, or begin one.
    fn extend(&mut self, first: u32, pages: u32) {
        if self.length == 0 {
            self.first = first;
        }
        self.length += pages;
    }
}

/// What becomes of pages.
#[derive(Clone, Copy)]
enum Mark {
    Taken,
    Free,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The lowest run by looking at every page.
    fn lowest(taken: &[bool], pages: u32, align: u32) -> Option<u32> {
        let starts = (0..taken.len()).step_by(align as usize);
        let run = |start: &usize| taken.get(*start..start + pages as usize).is_some_and(|run| !run.contains(&true));
        starts.into_iter().find(run).map(|start| start as u32)
    }

    proptest! {
        #[test]
        fn it_takes_the_lowest_run_that_fits(
            // Miri interprets each look at a page of the oracle.
            pages in 1u32..if cfg!(miri) { 500 } else { 20_000 },
            changes in prop::collection::vec((0u32..4, 0u32..9_000, 0u32..11, any::<prop::sample::Index>()), 1..120),
        ) {
            let (mut runs, mut taken, mut held) = (Runs::new(pages), vec![false; pages as usize], Vec::new());
            for (change, wanted, power, which) in changes {
                let small = wanted >> (power % 4 * 4);
                match change {
                    0 if !held.is_empty() => {
                        let (first, pages): (u32, u32) = held.swap_remove(which.index(held.len()));
                        runs.give(first, pages);
                        taken[first as usize..(first + pages) as usize].fill(false);
                    }
                    1 => {
                        let first = which.index(pages as usize) as u32;
                        let range = first as usize..(first + small + 1) as usize;
                        let free = taken.get(range.clone()).is_some_and(|run| !run.contains(&true));
                        prop_assert_eq!(runs.take_at(first, small + 1), free);
                        if free { taken[range].fill(true); held.push((first, small + 1)); }
                    }
                    _ => {
                        let align = if change == 2 { 1 } else { 1 << power };
                        let found = runs.take(small + 1, align);
                        let expected = lowest(&taken, small + 1, align);
                        // An aligned run may be another than the lowest, see MISALIGNED_MAX.
                        prop_assert_eq!(found.is_some(), expected.is_some());
                        prop_assert!(align > 1 || found == expected, "{:?} is not {:?}", found, expected);
                        if let Some(first) = found {
                            let range = first as usize..(first + small + 1) as usize;
                            prop_assert!(first.is_multiple_of(align) && !taken[range].contains(&true));
                            taken[first as usize..(first + small + 1) as usize].fill(true);
                            held.push((first, small + 1));
                        }
                    }
                }
                prop_assert_eq!(runs.free() as usize, taken.iter().filter(|taken| !**taken).count());
            }
            for (first, pages) in held { runs.give(first, pages); }
            prop_assert_eq!(runs.take(pages, 1), Some(0), "what is free again is one run");
        }
    }

    #[test]
    fn an_alignment_is_found_behind_many_runs_without_one() {
        // Every second page is free, and none of them at a multiple of two.
        let mut runs = Runs::new(4096);
        runs.take(4096, 1).unwrap();
        (1..2048).step_by(2).for_each(|page| runs.give(page, 1));
        assert_eq!(runs.take(1, 2), None);
        runs.give(4000, 1);
        assert_eq!(runs.take(1, 2), Some(4000), "an exact fit behind all others");
        runs.give(4001, 2);
        assert_eq!(runs.take(1, 2), Some(4002), "the only fit that has room to spare");
    }

    #[test]
    fn pages_behind_the_last_cannot_be_taken() {
        let mut runs = Runs::new(1000);
        assert!(!runs.take_at(999, 2) && !runs.take_at(1000, 1) && !runs.take_at(1, u32::MAX));
        assert!(runs.take_at(999, 1) && !runs.take_at(998, 2) && runs.take_at(998, 1));
    }

    #[test]
    fn the_whole_range_can_be_one_aligned_run() {
        let gib = 1 << 18;
        let mut runs = Runs::new(gib);
        assert_eq!(runs.take(gib, gib), Some(0));
        assert_eq!(runs.take(1, 1), None);
    }

    #[test]
    #[should_panic(expected = "are free")]
    fn what_is_free_cannot_be_given_back() {
        Runs::new(10).give(3, 1);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "are not all free")]
    fn taking_pages_twice_is_our_bug() {
        let mut runs = Runs::new(8);
        runs.mark(2..5, Mark::Taken);
        runs.mark(4..6, Mark::Taken);
    }
}
