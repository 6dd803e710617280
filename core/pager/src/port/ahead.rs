//! [`PrefetchWindows`]: a port's fetches ahead of demand.
//!
//! The prefetcher (`core/pager`) plans windows; each has a row of fetch slots here, and a queue pair of their own, so
//! that a fetch on demand is never behind one of these; only a page that is fetched with its object, or with a range,
//! is asked for there too, behind the others of it. A page that has arrived stays where it has arrived, in its frame
//! or in far memory that is mapped, charged and not mapped in the region, its entry still `Fetching`. The first touch
//! of a window is a hit: it plans the next window, and maps all that has arrived of this one, neighbours with one call
//! of the kernel.
//!
//! A window that nobody touches goes when its slots are needed, when memory is short, or with its range
//! ([`PortInner::drop_window`]): its pages are on the node as before.
//!
//! Invariants: a fetch in phase `Ready` has no waiters. What is fetched ahead is charged like what is fetched on
//! demand, and only while faults have room to spare.

use std::ops::Range;
use std::sync::Arc;

use crate::pagetable::State;
use crate::prefetch::{Algorithm, Plan, Prefetcher, Touch, WINDOW_PAGES_MAX};
use yonder_guide::{Cause, Verdict};
use yonder_units::{Nanos, Narrow, PageIndex};

use super::windows::await_room;
use super::{Phase, Port, PortInner};
use crate::fault::FaultTouch;
use crate::machine::Machine;
use crate::queue_pair::{Completion, QueuePair};
use crate::region::RegionCore;
use crate::turn::Turn;
use crate::waiters::Queue;

/// Windows of a port.
pub(super) const WINDOWS: usize = 8;
/// Slots of a window.
pub(super) const WINDOW_SLOTS: usize = WINDOW_PAGES_MAX as usize;

/// How a port fetches ahead, and over what.
pub(crate) struct Prefetch {
    pub(crate) algorithm: Algorithm,
    pub(crate) queue: Box<dyn QueuePair>,
}

/// A port's windows.
pub(super) struct PrefetchWindows {
    /// None if nothing is fetched ahead.
    prefetch: Option<(Prefetcher, Box<dyn QueuePair>)>,
    pub(super) windows: [PrefetchWindow; WINDOWS],
    /// The first slot of the first window.
    first_slot: u16,
    /// Slots in use.
    pub(super) in_use: usize,
    /// Windows made.
    pub(super) made: u64,
    /// Pages that the guide has fetched and that were thrown away, untouched.
    pub(super) unused_of_guide: u64,
    /// Slots whose page has arrived in this poll and is waited for.
    pub(super) wanted: Vec<u16>,
}

/// A row of slots, for pages in the order in which they will probably be touched.
#[derive(Clone, Copy, Debug)]
pub(super) struct PrefetchWindow {
    pub(super) in_use: u32,
    /// Number of the window among those that were made.
    pub(super) number: u64,
    /// What its first touch leads to, as long as nobody has touched it.
    pub(super) followed: Option<Followed>,
    pub(super) wanted_by: WantedBy,
}

/// A window by its place, and by the number that tells it from others that had the place or will have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MadeWindow {
    pub(super) window: usize,
    pub(super) number: u64,
}

/// A slot of a window: the window's place, and the slot's among those of the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WindowStep {
    pub(super) window: usize,
    pub(super) step: usize,
}

/// Who wants the pages of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WantedBy {
    Sequence,
    Guide,
    /// Who knows that they are about to be touched.
    Range,
    /// Who has touched one of them: they are mapped together, whichever that is.
    Object,
}

/// What the first touch of a window leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Followed {
    /// The next window of the sequence.
    ByNext,
    /// What the guide makes of it.
    ByGuide,
}

/// What a touch of a page that is fetched ahead has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hit {
    /// The page is mapped.
    Mapped,
    /// It is on its way.
    OnItsWay,
    /// It is here, but its block is swept, or the kernel has no page now.
    Later,
    /// The fetch is over, one way or another.
    Over,
}

impl PrefetchWindows {
    /// By when the queue pair needs a poll.
    pub(super) fn next_poll(&self) -> Nanos {
        self.prefetch.as_ref().map_or(Nanos::MAX, |(_, queue)| queue.next_poll())
    }

    pub(super) fn new(prefetch: Option<Prefetch>, first_slot: u16) -> Self {
        let prefetch = prefetch.map(|prefetch| (Prefetcher::new(prefetch.algorithm), prefetch.queue));
        let none = PrefetchWindow { in_use: 0, number: 0, followed: None, wanted_by: WantedBy::Sequence };
        let wanted = Vec::with_capacity(if prefetch.is_some() { WINDOWS * WINDOW_SLOTS } else { 0 });
        Self { prefetch, windows: [none; WINDOWS], first_slot, in_use: 0, made: 0, unused_of_guide: 0, wanted }
    }

    #[inline]
    pub(super) fn slots(&self) -> usize {
        if self.prefetch.is_some() { WINDOWS * WINDOW_SLOTS } else { 0 }
    }

    /// Whether `slot` is one of a window.
    #[inline]
    pub(super) fn has(&self, slot: u16) -> bool {
        slot >= self.first_slot
    }

    /// Fetches ahead that are not over.
    #[inline]
    pub(super) fn in_use(&self) -> usize {
        self.in_use
    }

    #[inline]
    pub(super) fn queue(&mut self) -> &mut dyn QueuePair {
        let (_, queue) = self.prefetch.as_mut().expect("only a port that fetches ahead has slots for it");
        &mut **queue
    }

    pub(super) fn forget(&mut self, region: u32) {
        if let Some((prefetcher, _)) = &mut self.prefetch {
            prefetcher.forget(region);
        }
    }

    /// The fetch at `slot` is over.
    #[inline]
    pub(super) fn ended(&mut self, slot: u16) {
        let WindowStep { window, .. } = self.place(slot);
        self.windows[window].in_use -= 1;
        self.in_use -= 1;
    }

    #[inline]
    pub(super) fn place(&self, slot: u16) -> WindowStep {
        let index = usize::from(slot - self.first_slot);
        WindowStep { window: index / WINDOW_SLOTS, step: index % WINDOW_SLOTS }
    }

    #[inline]
    pub(super) fn slot(&self, WindowStep { window, step }: WindowStep) -> u16 {
        self.first_slot + (window * WINDOW_SLOTS + step).narrow_u16()
    }
}

impl<M: Machine> PortInner<M> {
    /// Whether `slot` is of a fetch ahead.
    #[inline]
    pub(crate) fn is_ahead(&self, slot: u16) -> bool {
        self.ahead.has(slot)
    }

    /// A page has been missed: fetches ahead what the guide or else the prefetcher makes of that.
    #[inline]
    pub(crate) fn missed(&mut self, touch: &FaultTouch<'_, M>, turn: Turn<'_, M>) {
        if self.ahead.prefetch.is_some() && self.guide_touch(Cause::Miss, touch, turn) == Verdict::Unknown {
            self.plan(touch, Touch::Miss, turn);
        }
    }

    /// Somebody touches a page whose entry has said that it is fetched ahead at `slot`.
    pub(crate) fn hit(&mut self, slot: u16, touch: &FaultTouch<'_, M>, turn: Turn<'_, M>) -> Hit {
        let (own, page) = (self.id, touch.page());
        let is_under_way = || touch.region.table.load(page).state() == State::Fetching { port: own, slot };
        if !is_under_way() {
            return Hit::Over;
        }
        let WindowStep { window, step } = self.ahead.place(slot);
        let followed = self.ahead.windows[window].followed;
        if followed == Some(Followed::ByGuide) || followed == Some(Followed::ByNext) && self.is_first(window, step) {
            // As new as one that is made now: the next one takes another's place.
            self.ahead.made += 1;
            (self.ahead.windows[window].followed, self.ahead.windows[window].number) = (None, self.ahead.made);
            match followed {
                Some(Followed::ByGuide) => _ = self.guide_touch(Cause::Hit, touch, turn),
                _ => self.plan(touch, Touch::Hit, turn),
            }
            if !is_under_way() {
                return Hit::Over;
            }
        }
        match self.fetches[usize::from(slot)].phase {
            Phase::Ready => {
                if !self.map_window(slot, turn) {
                    return Hit::Later;
                }
                if !touch.is_in_range_fetch.get() {
                    turn.port.stats.prefetch_hits.add(1);
                }
                Hit::Mapped
            }
            Phase::Free => unreachable!("a page is under way as long as its entry says so"),
            Phase::Posted | Phase::Backoff(_) | Phase::Arrived | Phase::HandedOver => Hit::OnItsWay,
        }
    }

    /// Whether nothing before `step` is left of a window: who reads it in order comes there first, and who does not is
    /// no reason to fetch what is behind it.
    fn is_first(&self, window: usize, step: usize) -> bool {
        (0..step)
            .map(|step| WindowStep { window, step })
            .all(|at| self.fetches[usize::from(self.ahead.slot(at))].phase == Phase::Free)
    }

    /// Takes the completions of fetches ahead, and maps those that somebody waits for.
    pub(super) fn poll_ahead(&mut self, completions: &mut Vec<Completion>, turn: Turn<'_, M>) {
        if self.ahead.in_use == 0 {
            return;
        }
        assert!(completions.capacity() > 0, "somebody who polls polls again");
        loop {
            self.ahead.queue().poll(turn.now, completions);
            let is_full = completions.len() == completions.capacity();
            for completion in completions.drain(..) {
                self.complete(completion, turn, super::Installs::Own);
            }
            if !is_full {
                break;
            }
        }
        while let Some(slot) = self.ahead.wanted.pop() {
            if self.fetches[usize::from(slot)].phase == Phase::Arrived && !self.map_window(slot, turn) {
                self.deferred.push(slot);
            }
        }
    }

    /// The page of a fetch ahead has arrived.
    pub(super) fn arrived_ahead(&mut self, slot: u16, port: &Port<M>) {
        let fetch = &mut self.fetches[usize::from(slot)];
        port.stats.count_fetched(fetch.vector.bytes());
        if fetch.queue == Queue::EMPTY {
            fetch.phase = Phase::Ready;
        } else {
            self.ahead.wanted.push(slot);
        }
    }

    /// Gives back what nobody has touched: memory is short.
    pub(crate) fn drop_windows(&mut self, turn: Turn<'_, M>) {
        for window in 0..self.ahead.slots() / WINDOW_SLOTS {
            self.drop_window(window, turn);
        }
    }

    /// Gives up the fetch ahead at `slot`, if nobody waits for it.
    pub(crate) fn drop_unwanted(&mut self, slot: u16, turn: Turn<'_, M>) {
        let fetch = &self.fetches[usize::from(slot)];
        if fetch.queue != Queue::EMPTY {
            return;
        }
        match fetch.phase {
            Phase::Ready => self.drop_ahead(slot, turn),
            Phase::Posted => {
                self.cancel(slot);
                self.drop_ahead(slot, turn);
            }
            Phase::Free | Phase::Backoff(_) | Phase::Arrived | Phase::HandedOver => {}
        }
    }

    /// Ends a fetch ahead whose read is over or withdrawn and that nobody waits for.
    pub(super) fn drop_ahead(&mut self, slot: u16, turn: Turn<'_, M>) {
        self.abandon(slot, turn.pager);
        self.end(slot, Ok(()), turn.now);
        let WindowStep { window, .. } = self.ahead.place(slot);
        match (self.ahead.windows[window].wanted_by, &mut self.ahead.prefetch) {
            (WantedBy::Guide, _) => self.ahead.unused_of_guide += 1,
            (WantedBy::Sequence, Some((prefetcher, _))) => prefetcher.unused(1),
            _ => {}
        }
    }

    pub(super) fn drop_window(&mut self, window: usize, turn: Turn<'_, M>) {
        for step in 0..WINDOW_SLOTS {
            if self.ahead.windows[window].in_use == 0 {
                return;
            }
            self.drop_unwanted(self.ahead.slot(WindowStep { window, step }), turn);
        }
    }

    fn plan(&mut self, touched: &FaultTouch<'_, M>, touch: Touch, turn: Turn<'_, M>) {
        let (region, page) = (touched.region, touched.page());
        let Some((prefetcher, _)) = &mut self.ahead.prefetch else { return };
        // Asked in any case: a sequence of small objects is one all the same.
        let plan = prefetcher.touched(region.number, page, touch);
        let object = if touch == Touch::Miss { region.owner.object_at(page) } else { None };
        let rest = object.filter(|pages| (2..=WINDOW_PAGES_MAX).contains(pages)).map_or(0, |pages| pages - 1);
        if rest > plan.map_or(0, |plan| plan.count) {
            if let (Some(plan), Some((prefetcher, _))) = (plan, &mut self.ahead.prefetch) {
                prefetcher.shortened(&plan, 0);
            }
            self.fetch_range(region, PageIndex(page.0 + 1), rest, turn);
            return;
        }
        let Some(plan) = plan else { return };
        if touch == Touch::Miss && self.guests.is_alone() {
            await_room(turn, plan.count);
        }
        self.follow(plan, region, turn);
    }

    /// Fetches a window of a sequence, as far as that is possible.
    fn follow(&mut self, plan: Plan, region: &Arc<RegionCore<M>>, turn: Turn<'_, M>) {
        let Some(pages) = self.fetch_plan(plan, WantedBy::Sequence, region, turn) else { return };
        if let Some((prefetcher, _)) = &mut self.ahead.prefetch
            && pages < plan.count
        {
            prefetcher.shortened(&plan, pages);
        }
    }

    /// A page of a small object has been missed, which lies in these pages: fetches those that are far, the touched one
    /// last, so that all are here when it is, and are mapped with it. Whether it is on its way; if not, it is fetched
    /// as any other.
    pub(crate) fn fetch_object(&mut self, touch: &FaultTouch<'_, M>, pages: Range<u32>, turn: Turn<'_, M>) -> bool {
        let (region, page) = (touch.region, touch.page());
        let is_advised = region.random.around(page).is_some() || region.ahead.around(page).is_some();
        // A guide is told of every miss.
        let knows = |(prefetcher, _): &(Prefetcher, _)| prefetcher.knows_neighbours();
        if !self.ahead.prefetch.as_ref().is_some_and(knows) || self.guided.is_some() || is_advised {
            return false;
        }
        let Some(MadeWindow { window, .. }) = self.begin_window(WantedBy::Object, None, turn) else { return false };
        let is_under_way = self.fetch_together(window, pages.clone(), touch, turn);
        if is_under_way {
            self.fetch_behind(region, pages, turn);
        }
        is_under_way
    }

    /// Fetches `pages`, at most [`WINDOW_PAGES_MAX`], which are about to be touched.
    pub(crate) fn bring_range(&mut self, region: &Arc<RegionCore<M>>, pages: Range<u32>, turn: Turn<'_, M>) {
        if self.guests.is_alone() {
            await_room(turn, pages.len().narrow_u32());
        }
        self.fetch_range(region, PageIndex(pages.start), pages.len().narrow_u32(), turn);
        self.fetch_behind(region, pages, turn);
    }

    /// What follows pages that were fetched together, if these follow others.
    fn fetch_behind(&mut self, region: &Arc<RegionCore<M>>, pages: Range<u32>, turn: Turn<'_, M>) {
        if self.guided.is_some() || region.random.around(PageIndex(pages.start)).is_some() {
            return;
        }
        if let Some((prefetcher, _)) = &mut self.ahead.prefetch
            && let Some(plan) = prefetcher.fetched_together(region.number, pages)
        {
            self.follow(plan, region, turn);
        }
    }

    /// Fetches `count` pages, at most [`WINDOW_PAGES_MAX`], from `first` on, which are about to be touched.
    pub(crate) fn fetch_range(&mut self, region: &Arc<RegionCore<M>>, first: PageIndex, count: u32, turn: Turn<'_, M>) {
        if self.ahead.prefetch.is_some() {
            let plan = Plan { region: region.number, first, stride: 1, count };
            // Who cannot have a window fetches page by page.
            let _ = self.fetch_plan(plan, WantedBy::Range, region, turn);
        }
    }

    /// Makes a window of a plan; how many of its pages could be seen to, or `None` if no window is free.
    fn fetch_plan(
        &mut self,
        plan: Plan,
        wanted_by: WantedBy,
        region: &Arc<RegionCore<M>>,
        turn: Turn<'_, M>,
    ) -> Option<u32> {
        let followed = (wanted_by == WantedBy::Sequence).then_some(Followed::ByNext);
        let MadeWindow { window, .. } = self.begin_window(wanted_by, followed, turn)?;
        Some(self.extend_window(WindowStep { window, step: 0 }, plan, region, turn).pages)
    }
}
