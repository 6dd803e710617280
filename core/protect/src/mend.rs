//! [`Plan`]: which page is mended next; [`Rate`]: how fast; [`Progress`]: how long it will take.
//!
//! The mender is one more user of the groups, with queue pairs of its own. It takes a [`Job`] from the plan, reads the
//! page as any reader ([`Read`](crate::Read), with the ticket's source), writes it to the ticket's place if the read
//! counted, and ends the mend. Pages at the fewest places come first; among those, in the order of their words, so that
//! one round of looks finds them all. Pages at places that are evacuated come last. Which groups have any is known from
//! their counts, without a look.
//!
//! The rate is what is left of a ceiling when the program's own traffic is taken off, but never less than a floor: an
//! idle program's pages are mended fast, a busy one's do not wait for ever.

use std::borrow::Borrow;

use yonder_units::{Nanos, Narrow as _, PAGE_BYTES};

use crate::group::Group;
use crate::page::MendTicket;
use crate::rules::{Rule, Rules};
use crate::slots::{Slot, SlotSet};
use crate::word::Word;

/// A page to mend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// Which of the groups that were given.
    pub group: usize,
    /// The mend, which was begun.
    pub ticket: MendTicket,
}

/// What the plan says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Mend this page.
    Job(Job),
    /// Ask again: as many words were looked at as one call may.
    More,
    /// Nothing can be mended now. Something may be later: when a place was adopted, a node is up, or a write is over.
    /// To find that out costs a look at each word of the groups that have such pages: wait before asking again.
    Nothing,
}

/// Which page is next: where the look at words is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Plan {
    /// How many places the pages have that are looked for.
    copies: u8,
    group: usize,
    page: usize,
    /// Groups that were looked through in this round without a job.
    looked_through: usize,
    /// Pages with fewer places, when no more of them could be mended.
    stuck: u64,
    /// Jobs since then.
    jobs: u32,
}

/// After so many jobs it is looked whether pages with fewer places can be mended now.
const JOBS_MAX: u32 = 1024;

impl Plan {
    /// The next page of some groups, of which at most `words_max` words are looked at. `up` says which slots of a group
    /// have nodes that are not suspect: pages are copied from these and to these.
    pub fn next<R: Rules, G: Borrow<Group<R>>>(
        &mut self,
        groups: &[G],
        up: impl Fn(usize) -> SlotSet,
        words_max: usize,
    ) -> Next {
        let mut words = words_max;
        let fewer = endangered(groups, self.copies);
        if fewer > self.stuck || fewer > 0 && self.jobs >= JOBS_MAX {
            self.restart(0, 0);
        }
        // One that is mended, and another then, are two.
        self.stuck = self.stuck.min(fewer);
        while self.copies <= wanted_max(groups) {
            while self.looked_through <= groups.len() && !groups.is_empty() {
                self.group %= groups.len();
                let group = groups[self.group].borrow();
                if let Some(ticket) = self.look(group, up(self.group), &mut words) {
                    self.looked_through = 0;
                    self.jobs += 1;
                    return Next::Job(Job { group: self.group, ticket });
                }
                if words == 0 {
                    return Next::More;
                }
                self.page = 0;
                self.group += 1;
                self.looked_through += 1;
            }
            self.restart(self.copies + 1, endangered(groups, self.copies + 1));
        }
        self.restart(0, 0);
        Next::Nothing
    }

    /// Looks for pages with so many places from where the look is, until words run out or the group ends.
    fn look<R: Rules>(&mut self, group: &Group<R>, up: SlotSet, words: &mut usize) -> Option<MendTicket> {
        let live = group.without_evacuated(group.view().live()) & up;
        let (needed, wanted) = (group.protection().needed(), group.protection().wanted());
        let moves = (self.copies == wanted).then(|| group.moves());
        let pages = if moves.is_some() { group.pages_movable(up) } else { group.pages_at(self.copies) };
        // Without enough of these there is nobody to read at.
        let have_pages = (group.view().readable() & up).iter().filter(|slot| group.pages_current(*slot) > 0);
        let pages = if have_pages.count() >= usize::from(needed) { pages } else { 0 };
        if pages == 0 || self.copies < needed || live.is_empty() {
            return None;
        }
        while self.page < group.pages() && *words > 0 {
            let page = self.page;
            (self.page, *words) = (page + 1, *words - 1);
            let word = group.look(page);
            let unsettled =
                if group.rules.breaks(Rule::MendAvoidsUnsettled) { SlotSet::NONE } else { word.unsettled() };
            // While it waits for a page, the mender keeps writes from the place that it copies it to.
            let can_be_read = (word.current() & up).count() >= needed;
            let slots = live - unsettled;
            let to = match moves {
                None => target(word, self.copies, slots, page),
                Some(moves) if moves.concern(word) => {
                    group.leave_page(page);
                    moves.target(word, wanted, slots, page)
                }
                Some(_) => None,
            };
            let to = to.filter(|_| can_be_read);
            if let Some(ticket) = to.and_then(|to| group.begin_mend(page, to)) {
                return Some(ticket);
            }
        }
        None
    }

    fn restart(&mut self, copies: u8, stuck: u64) {
        *self = Self { copies, page: 0, looked_through: 0, stuck, jobs: 0, ..*self };
    }
}

/// Where a page is to be copied to, of some slots, if it has so many places and may be.
fn target(word: Word, copies: u8, slots: SlotSet, page: usize) -> Option<Slot> {
    let may = word.copies() == Some(copies) && !word.is_writing() && word.mended().is_none();
    (slots - word.current()).pick(page as u64).filter(|_| may)
}

/// Pages with content at fewer places than these, and as many as are needed.
fn endangered<R: Rules, G: Borrow<Group<R>>>(groups: &[G], copies: u8) -> u64 {
    let of = |group: &Group<R>| -> u64 {
        let protection = group.protection();
        let levels = protection.needed()..protection.wanted().min(copies);
        levels.map(|copies| group.pages_at(copies)).sum()
    };
    groups.iter().map(|group| of(group.borrow())).sum()
}

fn wanted_max<R: Rules, G: Borrow<Group<R>>>(groups: &[G]) -> u8 {
    groups.iter().map(|group| group.borrow().protection().wanted()).max().unwrap_or(0)
}

/// How fast pages are mended, in bytes per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    floor: u64,
    ceiling: u64,
    foreground: Foreground,
    /// What was mended is paid for by then.
    paid_until: Nanos,
}

/// The traffic of the program itself.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Foreground {
    bytes: u64,
    at: Nanos,
    rate: u64,
}

/// The program's own traffic is measured over so long at least.
const MEASURED_EACH: Nanos = 100_000_000;
/// The mender may be ahead of its rate by what it mends in so long.
const AHEAD_MAX: Nanos = 5_000_000;
const SECOND: Nanos = 1_000_000_000;

impl Rate {
    /// Between a floor and a ceiling, in bytes per second. The ceiling is for the mender and the program together.
    ///
    /// # Panics
    /// If the floor is nothing, or above the ceiling.
    #[must_use]
    pub fn new(floor: u64, ceiling: u64) -> Self {
        assert!(0 < floor && floor <= ceiling, "a rate of mending from {floor} to {ceiling} bytes per second");
        Self { floor, ceiling, foreground: Foreground::default(), paid_until: 0 }
    }

    /// What it is now.
    #[must_use]
    pub fn bytes_per_second(&self) -> u64 {
        self.ceiling.saturating_sub(self.foreground.rate).max(self.floor)
    }

    /// The program itself has moved so many bytes in all.
    pub fn foreground(&mut self, bytes: u64, now: Nanos) {
        let Foreground { bytes: before, at, rate } = self.foreground;
        let span = now.saturating_sub(at);
        if span < MEASURED_EACH {
            return;
        }
        let moved = u128::from(bytes.saturating_sub(before));
        let measured = u64::try_from(moved * u128::from(SECOND) / u128::from(span)).unwrap_or(u64::MAX);
        // What it does now counts as much as all that it did before. At first that is nothing.
        let rate = if at == 0 { 0 } else { rate.midpoint(measured) };
        self.foreground = Foreground { bytes, at: now, rate };
    }

    /// Wants to mend a page: it may, or it may at the time that is returned.
    pub fn take_page(&mut self, now: Nanos) -> Result<(), Nanos> {
        let begins = self.paid_until.max(now.saturating_sub(AHEAD_MAX));
        if begins > now {
            return Err(begins);
        }
        let span = (PAGE_BYTES as u64).saturating_mul(SECOND) / self.bytes_per_second();
        self.paid_until = begins.saturating_add(span);
        Ok(())
    }
}

/// How far mending is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Progress {
    mended: u64,
    at: Nanos,
    /// Pages per second, in thousandths.
    rate_milli: u64,
}

impl Progress {
    /// So many pages were mended in all. To be called again and again, also while none is.
    pub fn saw(&mut self, mended: u64, now: Nanos) {
        let span = now.saturating_sub(self.at);
        if span < MEASURED_EACH {
            return;
        }
        let more = u128::from(mended.saturating_sub(self.mended)) * 1_000;
        let measured = (more * u128::from(SECOND) / u128::from(span)).min(u128::from(u64::MAX)).narrow_u64();
        let rate_milli = if self.at == 0 { 0 } else { (self.rate_milli * 3).saturating_add(measured) / 4 };
        *self = Self { mended, at: now, rate_milli };
    }

    /// Bytes that are mended in a second.
    #[must_use]
    pub const fn bytes_per_second(&self) -> u64 {
        self.rate_milli.saturating_mul(PAGE_BYTES as u64) / 1_000
    }

    /// How long so many pages will take; `None` if none is being mended.
    #[must_use]
    pub fn time_left(&self, pages: u64) -> Option<Nanos> {
        if pages == 0 {
            return Some(0);
        }
        let span = u128::from(pages) * 1_000 * u128::from(SECOND);
        (self.rate_milli > 0).then(|| u64::try_from(span / u128::from(self.rate_milli)).unwrap_or(u64::MAX))
    }
}

#[cfg(all(test, not(yonder_loom)))]
mod tests;
