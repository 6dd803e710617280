//! [`Oracle`]: what every word of far memory should hold, and what else must be so.
//!
//! A store and its note here are one step, and so are a load and its check. A read that looks at the page table first
//! is checked against every value that the word held in the course of the call.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use yonder_pager::{Pager, PagingCause};
use yonder_units::Nanos;

use crate::machine::Simulated;
use crate::memory::backed;
use crate::world::{violate, with};

/// A word: the address of its region, its page, and its offset there.
pub(crate) type Word = (usize, u32, u16);

#[derive(Default)]
pub(crate) struct Oracle {
    words: HashMap<Word, History>,
    last_value: u64,
    /// Regions whose paging is guided, and the words of them that somebody needs.
    guided: HashSet<usize>,
    live: BTreeSet<Word>,
    /// Pages whose memory was damaged.
    damaged: HashSet<(usize, u32)>,
    /// Whether the node has lost its memory once.
    pub(crate) has_lost_power: bool,
    pub(crate) pager: Option<Arc<Pager<Simulated>>>,
    /// Loads that were checked, stores, and accesses that failed.
    pub(crate) checked: u64,
    pub(crate) stored: u64,
    pub(crate) failed: u64,
}

/// What a word has held, with the step from which on, the last version last. Zero before the first.
#[derive(Default)]
struct History {
    versions: Vec<(u64, u64)>,
    /// Whether it may hold anything.
    is_unknown: bool,
}

impl History {
    /// Whether the word held `value` at some time since step `since`.
    fn held(&self, value: u64, since: u64) -> bool {
        let last = self.versions.last().map_or(0, |(_, value)| *value);
        if self.is_unknown || last == value {
            return true;
        }
        let ends = self.versions.windows(2).map(|pair| (pair[0].1, pair[1].0));
        let first = self.versions.first().map(|(at, _)| (0, *at));
        first.into_iter().chain(ends).any(|(held, until)| held == value && until >= since)
    }

    fn set(&mut self, step: u64, value: u64) {
        self.is_unknown = false;
        self.versions.push((step, value));
        if self.versions.len() > 64 {
            self.versions.drain(..32);
        }
    }
}

impl Oracle {
    /// A value that was never stored before.
    pub(crate) fn new_value(&mut self) -> u64 {
        self.last_value += 1;
        self.last_value
    }

    /// A value that the word held before the last.
    pub(crate) fn older_value(&self, word: Word) -> Option<u64> {
        let versions = &self.words.get(&word)?.versions;
        versions.len().checked_sub(2).map(|at| versions[at].1)
    }

    pub(crate) fn store(&mut self, word: Word, step: u64, value: u64) {
        self.stored += 1;
        self.words.entry(word).or_default().set(step, value);
    }

    /// From now on words of the region are live only from a store of them to [`Oracle::free`]. What was stored is live.
    pub(crate) fn guide(&mut self, region: usize) {
        self.guided.insert(region);
        self.live.extend(self.words.keys().filter(|word| word.0 == region));
    }

    /// The word is about to be stored to.
    pub(crate) fn allocate(&mut self, word: Word) {
        if self.guided.contains(&word.0) {
            self.live.insert(word);
        }
    }

    /// Nobody needs the word, in a region whose paging is guided. A word that nobody has stored to reads as zeros for
    /// ever, live or not.
    pub(crate) fn free(&mut self, word: Word) {
        if self.live.remove(&word) {
            self.forget(word);
        }
    }

    /// Offsets of the live words of a page, in order.
    pub(crate) fn live_words(&self, (region, page): (usize, u32)) -> Vec<u16> {
        self.live.range((region, page, 0)..=(region, page, u16::MAX)).map(|word| word.2).collect()
    }

    /// The word may hold anything from now on.
    pub(crate) fn forget(&mut self, word: Word) {
        self.words.entry(word).or_default().is_unknown = true;
    }

    /// All that is known of a page is zeros from now on; damage is mended.
    pub(crate) fn zero(&mut self, (region, page): (usize, u32), step: u64) {
        let of_page = |word: &&mut (&Word, &mut History)| word.0.0 == region && word.0.1 == page;
        let mut words: Vec<_> = self.words.iter_mut().collect();
        words.iter_mut().filter(|word| of_page(word)).for_each(|(_, history)| history.set(step, 0));
        self.damaged.remove(&(region, page));
    }

    pub(crate) fn is_damaged(&self, page: (usize, u32)) -> bool {
        self.damaged.contains(&page)
    }

    pub(crate) fn damage(&mut self, page: (usize, u32)) {
        self.damaged.insert(page);
    }

    /// The words of a region that were stored to, in order.
    pub(crate) fn words_of(&self, region: usize) -> Vec<Word> {
        let mut words: Vec<Word> = self.words.keys().filter(|word| word.0 == region).copied().collect();
        words.sort_unstable();
        words
    }

    fn check(&mut self, word: Word, value: u64, since: u64) -> Result<(), String> {
        self.checked += 1;
        let history = self.words.entry(word).or_default();
        if history.held(value, since) {
            return Ok(());
        }
        let (region, page, offset) = word;
        let last = history.versions.last().map_or(0, |(_, value)| *value);
        Err(format!("word {offset} of page {page} of region {region:#x} reads {value}, and {last} was stored last"))
    }
}

/// Checks a value that was read, of a read that began at step `since`.
pub(crate) fn check(word: Word, value: u64, since: u64) {
    if let Err(what) = with(|world| world.oracle.check(word, value, since)) {
        violate(what);
    }
}

/// Checks that an access may have failed so, and in time.
pub(crate) fn check_failure(page: (usize, u32), cause: PagingCause) {
    let is_allowed = with(|world| {
        world.oracle.failed += 1;
        let is_recovering = world.is_hostile || world.now < world.recovered_at || world.far.lease_is_over(world.now);
        match cause {
            PagingCause::HardwareError => world.oracle.damaged.contains(&page),
            PagingCause::Poisoned => world.oracle.has_lost_power,
            PagingCause::Forked => world.process > 0 && !world.settings.is_inherited,
            // Of a page whose damage was being found when the process forked.
            PagingCause::Stuck if world.process > 0 => world.oracle.damaged.contains(&page),
            PagingCause::LocalMemoryFull if world.process > 0 => world.settings.no_memory > 0,
            _ if world.process > 0 => false,
            // What is held is not swept, and may be all there is.
            PagingCause::LocalMemoryFull if world.settings.holds => is_recovering,
            _ => world.settings.may_time_out() && is_recovering,
        }
    });
    if !is_allowed {
        violate(format!("page {} of region {:#x} cannot be had: {cause:?}", page.1, page.0));
    }
}

/// How long a thread that is no worker may sleep beside its deadline: until its page is expected, and until it replaces
/// another that was to poll for it.
const GUEST_SLEEPS: Nanos = 70_000_000;

/// Checks that an access that began at `began`, when threads had been stalled for `stalled`, has ended in time.
pub(crate) fn check_time(began: Nanos, stalled: Nanos) {
    let late = with(|world| {
        // Other unithreads of a worker may be in discards, which do not yield.
        let others = match world.fibers[world.running].bound {
            Some(_) => world.settings.unithreads as u64 - 1,
            None => 0,
        };
        let sleeps = if world.fibers[world.running].bound.is_some() { 0 } else { GUEST_SLEEPS };
        let bound = sleeps + 2 * (1 + others) * world.settings.fault_deadline + 8_000_000 + (world.stalled - stalled);
        (world.now - began).checked_sub(bound)
    });
    if let Some(late) = late {
        violate(format!("an access ended {late} ns too late"));
    }
}

/// Checks that the kernel backs no more than the limit allows.
pub(crate) fn check_limit() {
    let over = with(|world| {
        // What a child touches is not counted.
        if world.process > 0 {
            return None;
        }
        let most = world.oracle.pager.as_ref()?.charged().1;
        (backed() > most).then_some((backed(), most))
    });
    if let Some((backed, most)) = over {
        violate(format!("the kernel backs {backed} pages of {most}"));
    }
}
