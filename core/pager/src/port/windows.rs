//! What windows are made of: pages are fetched into a window, and mapped from it.
//!
//! Invariant: the slots of a window are used from its first on, so what has arrived is mapped in the order in which it
//! will probably be touched, neighbours with one call of the kernel.

use std::ops::Range;
use std::sync::Arc;

use crate::pagetable::{Event, State};
use crate::prefetch::Plan;
use yonder_units::{Nanos, Narrow, PageIndex};

use super::ahead::{Followed, MadeWindow, PrefetchWindow, WINDOW_SLOTS, WINDOWS, WantedBy, WindowStep};
use super::{FetchRequest, FetchReservation, Phase, PortInner};
use crate::fault::{FaultTouch, Wants};
use crate::install::InstallSource;
use crate::machine::Machine;
use crate::region::RegionCore;
use crate::turn::Turn;

/// How long a thread waits for room for a window: until some hundred pages are reclaimed.
const ROOM_TIMEOUT: Nanos = 100_000;

/// How far a plan was followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Extension {
    /// Pages of the plan that are here, on their way or not to be had.
    pub(super) pages: u32,
    /// Slots that this took.
    pub(super) steps: usize,
}

/// Whether a page is fetched ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Taken {
    Yes,
    /// It is here, on its way, or not there.
    NotFar,
    /// There is no room for it, nor for others.
    NoRoom,
}

impl<M: Machine> PortInner<M> {
    /// Makes a window without pages; `None` if none is free.
    pub(super) fn begin_window(
        &mut self,
        wanted_by: WantedBy,
        followed: Option<Followed>,
        turn: Turn<'_, M>,
    ) -> Option<MadeWindow> {
        let window = self.free_window(wanted_by, turn)?;
        self.ahead.made += 1;
        self.ahead.windows[window] = PrefetchWindow { in_use: 0, number: self.ahead.made, followed, wanted_by };
        Some(MadeWindow { window, number: self.ahead.made })
    }

    /// Whether a window that was made is still the one at its place, and untouched.
    pub(super) fn is_open(&self, made: MadeWindow) -> bool {
        let window = &self.ahead.windows[made.window];
        window.number == made.number && window.followed.is_some()
    }

    /// Fetches the pages of a plan into a window whose slots from `from` on are free.
    pub(super) fn extend_window(
        &mut self,
        from: WindowStep,
        plan: Plan,
        region: &Arc<RegionCore<M>>,
        turn: Turn<'_, M>,
    ) -> Extension {
        let extension = self.fetch_pages(from, plan, region, turn);
        self.send_ahead(turn);
        extension
    }

    /// What is posted is sent by a poll, and the next one may be long from now.
    fn send_ahead(&mut self, turn: Turn<'_, M>) {
        let mut completions = std::mem::take(&mut self.completions);
        self.poll_ahead(&mut completions, turn);
        self.completions = completions;
    }

    /// A window without fetches: a free one, or the oldest, if it can be emptied. Objects take none of which something
    /// is under way: more of them than there are windows would throw away one another's pages.
    fn free_window(&mut self, wanted_by: WantedBy, turn: Turn<'_, M>) -> Option<usize> {
        let windows = &self.ahead.windows;
        let oldest = (0..WINDOWS).min_by_key(|at| (windows[*at].in_use > 0, windows[*at].number))?;
        if wanted_by != WantedBy::Object || self.has_all_arrived(oldest) {
            self.drop_window(oldest, turn);
        }
        (self.ahead.windows[oldest].in_use == 0).then_some(oldest)
    }

    /// Whether of a window only pages are left that are here, and that no thread waits for.
    fn has_all_arrived(&self, window: usize) -> bool {
        (0..WINDOW_SLOTS)
            .map(|step| self.fetches[usize::from(self.ahead.slot(WindowStep { window, step }))].phase)
            .all(|phase| matches!(phase, Phase::Free | Phase::Ready))
    }

    /// See [`PortInner::extend_window`].
    fn fetch_pages(
        &mut self,
        WindowStep { window, step: first }: WindowStep,
        plan: Plan,
        region: &Arc<RegionCore<M>>,
        turn: Turn<'_, M>,
    ) -> Extension {
        let mut steps = 0;
        for (pages, page) in plan.pages().enumerate() {
            let so_far = Extension { pages: pages.narrow_u32(), steps };
            let slot = self.ahead.slot(WindowStep { window, step: first + steps });
            match self.take_ahead(slot, page, region, turn) {
                Taken::Yes => steps += 1,
                Taken::NotFar => continue,
                Taken::NoRoom => return so_far,
            }
            if !self.post_ahead(slot, turn) {
                return so_far;
            }
        }
        Extension { pages: plan.count, steps }
    }

    /// Fetches those of `pages` that are far into a window without any, the touched one last. Whether it is on its way.
    pub(super) fn fetch_together(
        &mut self,
        window: usize,
        pages: Range<u32>,
        touch: &FaultTouch<'_, M>,
        turn: Turn<'_, M>,
    ) -> bool {
        let (mut steps, mut touched) = (0, None);
        for page in pages.take(WINDOW_SLOTS).map(PageIndex) {
            let slot = self.ahead.slot(WindowStep { window, step: steps });
            match self.take_ahead(slot, page, touch.region, turn) {
                Taken::Yes => steps += 1,
                Taken::NotFar => continue,
                Taken::NoRoom => break,
            }
            if page == touch.page() {
                touched = Some(slot);
            }
        }
        for step in 0..steps {
            let slot = self.ahead.slot(WindowStep { window, step });
            if Some(slot) != touched {
                self.post_ahead(slot, turn);
            }
        }
        let is_under_way = touched.is_some_and(|slot| self.post_ahead(slot, turn));
        self.send_ahead(turn);
        is_under_way
    }

    /// Takes all that a fetch ahead needs, and moves the page's entry to `Fetching`.
    fn take_ahead(&mut self, slot: u16, page: PageIndex, region: &Arc<RegionCore<M>>, turn: Turn<'_, M>) -> Taken {
        let Turn { pager, now, .. } = turn;
        if page.index() >= region.table.pages() || pager.room_ahead() == 0 {
            return Taken::NoRoom;
        }
        let seen = region.table.load(page);
        if seen.state() != State::Remote {
            return Taken::NotFar;
        }
        let Some(reservation) = FetchReservation::take(pager, Wants::Mapping) else { return Taken::NoRoom };
        M::preempt();
        if region.table.advance(page, seen, Event::Fetch { port: self.id, slot }).is_err() {
            reservation.give_back(pager);
            return Taken::NotFar;
        }
        let WindowStep { window, .. } = self.ahead.place(slot);
        self.ahead.windows[window].in_use += 1;
        self.ahead.in_use += 1;
        let deadline = now + pager.node.fault_timeout();
        self.fill(&FetchRequest { region, page, slot, reservation, entered: now, deadline });
        Taken::Yes
    }

    /// Posts the read of a slot that was taken. If that is not possible it ends as if it had been lost.
    fn post_ahead(&mut self, slot: u16, turn: Turn<'_, M>) -> bool {
        let is_posted = self.post(slot, turn);
        if is_posted {
            turn.port.stats.prefetched_pages.add(1);
        } else {
            self.drop_ahead(slot, turn);
        }
        is_posted
    }

    /// Maps what has arrived of a window, from `slot` on, and of an object all; whether the page of `slot` is.
    pub(super) fn map_window(&mut self, slot: u16, turn: Turn<'_, M>) -> bool {
        let WindowStep { window, step: asked_for } = self.ahead.place(slot);
        let is_whole = self.ahead.windows[window].wanted_by == WantedBy::Object;
        let mut step = if is_whole { 0 } else { asked_for };
        while step < WINDOW_SLOTS {
            let run = self.run_at(WindowStep { window, step }, step == asked_for);
            if run == 0 {
                step += 1;
                continue;
            }
            let mapped = self.map_run(WindowStep { window, step }, run, turn);
            if mapped < run {
                if step + mapped > asked_for || step == asked_for {
                    return step + mapped > asked_for;
                }
                // It may lie in another block, which is not swept.
                step = asked_for;
                continue;
            }
            step += run;
        }
        true
    }

    /// How many pages from `step` on have arrived, lie one behind the other here and where they came to, and in one
    /// block. Only the first that is asked for may be waited for: others of those are seen to by themselves.
    fn run_at(&self, WindowStep { window, step }: WindowStep, is_asked_for: bool) -> usize {
        let fetch = |step: usize| &self.fetches[usize::from(self.ahead.slot(WindowStep { window, step }))];
        let first = fetch(step);
        if first.phase != Phase::Ready && !(is_asked_for && first.phase == Phase::Arrived) {
            return 0;
        }
        let mut run = 1;
        while step + run < WINDOW_SLOTS {
            let next = fetch(step + run);
            let follows = next.phase == Phase::Ready
                && next.region == first.region
                && next.page.0 == first.page.0 + run.narrow_u32()
                && next.page.block() == first.page.block()
                && match (first.reservation, next.reservation) {
                    (FetchReservation::PageByFrame(first), FetchReservation::PageByFrame(next)) => {
                        next.0 == first.0 + run.narrow_u32()
                    }
                    (FetchReservation::Page, FetchReservation::Page) => true,
                    _ => false,
                };
            if !follows {
                break;
            }
            run += 1;
        }
        run
    }

    /// Maps a run, and ends the fetches of what is mapped; how many are.
    fn map_run(&mut self, from: WindowStep, run: usize, turn: Turn<'_, M>) -> usize {
        let Turn { port, pager, .. } = turn;
        let slot = self.ahead.slot(from);
        let fetch = &self.fetches[usize::from(slot)];
        let (page, source): (PageIndex, InstallSource) = (fetch.page, self.source(slot, pager));
        let region = Arc::clone(self.region(fetch.region));
        let mapped = pager.map_arrived_run(&region, page, source, run);
        let now = M::now();
        for done in 0..mapped {
            let slot = self.ahead.slot(WindowStep { step: from.step + done, ..from });
            self.fetches[usize::from(slot)].reservation.finished(pager);
            self.end(slot, Ok(()), now);
        }
        port.stats.prefetch_used_pages.add(mapped as u64);
        if mapped > 0 {
            pager.node.answered();
        }
        mapped
    }
}

/// Waits a moment until `pages` can be fetched ahead, for a thread that has nothing else to do. One that reads a
/// sequence faster than memory is reclaimed has to wait in any case: here once for a window, and not for every page by
/// a fault.
pub(super) fn await_room<M: Machine>(turn: Turn<'_, M>, pages: u32) {
    let Turn { pager, now, .. } = turn;
    let has_room = || pager.room_ahead() >= u64::from(pages);
    if has_room() {
        return;
    }
    pager.threads.unpark_reclaimer();
    while !has_room() && M::now() < now + ROOM_TIMEOUT {
        // The reclaimer may wait for this CPU.
        M::yield_now();
    }
}
