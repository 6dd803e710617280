//! Sweeps of a [`Group`]: all words are swept of the places that were given up, some at each call.
//!
//! A sweep does not wait for writes and mends that are under way: it changes their words too, so that their ends look
//! at the slots again, and find the place gone. A place that retires is taken from the words of pages that others have;
//! when it has none alone any more, it is given up, and swept.
//!
//! Who touches what: any thread may call; while one sweeps the others are told so.

use crate::atomic::{Ordering, fence};
use crate::group::Group;
use crate::rules::{Rule, Rules};
use crate::slots::SlotSet;
use crate::view::Use;
use crate::word::Word;

/// What one call has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Swept {
    /// There is nothing to do.
    Nothing,
    /// There are more words: call again.
    More,
    /// Another thread sweeps.
    Busy,
    /// These slots are free now. Call again: there may be others.
    Freed(SlotSet),
}

/// Where a sweep is: what `Group::sweep` holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Progress {
    is_claimed: bool,
    /// The slots that leave. None while no sweep is under way.
    leaving: SlotSet,
    /// Those that retire and have been through all words, or are about to be.
    retiring: SlotSet,
    is_thinning: bool,
    page: u32,
}

impl Progress {
    const CLAIMED: u64 = 1 << 63;
    const THINNING: u64 = 1 << 62;

    fn from_bits(bits: u64) -> Self {
        let [a, b, c, d, leaving, retiring, ..] = bits.to_le_bytes();
        Self {
            is_claimed: bits & Self::CLAIMED != 0,
            leaving: SlotSet::from_bits(leaving),
            retiring: SlotSet::from_bits(retiring),
            is_thinning: bits & Self::THINNING != 0,
            page: u32::from_le_bytes([a, b, c, d]),
        }
    }

    fn to_bits(self) -> u64 {
        let mut bits = u64::from(self.page);
        bits |= u64::from(self.leaving.bits()) << 32 | u64::from(self.retiring.bits()) << 40;
        bits |= if self.is_claimed { Self::CLAIMED } else { 0 };
        bits | if self.is_thinning { Self::THINNING } else { 0 }
    }
}

impl<R: Rules> Group<R> {
    /// Whether a call of [`Group::sweep`] has anything to do, or may have it when pages were mended.
    #[must_use]
    pub fn wants_sweep(&self) -> bool {
        let view = self.view();
        !view.leaving().is_empty() || !view.retiring().is_empty()
    }

    /// Looks at `words_max` words at most, for the places that were given up. The supervisor calls it until there is
    /// nothing to do, and again from time to time while a place retires.
    pub fn sweep(&self, words_max: u32) -> Swept {
        let Some(mut progress) = self.claim_sweep() else { return Swept::Busy };
        let swept = self.sweep_on(&mut progress, words_max);
        progress.is_claimed = false;
        self.sweep.store(progress.to_bits(), Ordering::Release);
        swept
    }

    fn claim_sweep(&self) -> Option<Progress> {
        let before = Progress::from_bits(self.sweep.load(Ordering::Relaxed));
        let claimed = Progress { is_claimed: true, ..before };
        let (from, to) = (before.to_bits(), claimed.to_bits());
        let is_mine =
            !before.is_claimed && self.sweep.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok();
        is_mine.then_some(claimed)
    }

    fn sweep_on(&self, progress: &mut Progress, words_max: u32) -> Swept {
        if progress.leaving.is_empty() && !progress.is_thinning {
            self.begin_sweep(progress);
        }
        if progress.leaving.is_empty() && !progress.is_thinning {
            return Swept::Nothing;
        }
        // What begins a write or a mend marks the word first and looks at the slots then: either sees the other.
        fence(Ordering::SeqCst);
        let end = u32::try_from(self.pages()).unwrap_or(u32::MAX);
        let stop = end.min(progress.page.saturating_add(words_max));
        for page in progress.page..stop {
            self.sweep_page(page as usize, progress.leaving);
        }
        progress.page = stop;
        if stop < end {
            return Swept::More;
        }
        progress.page = 0;
        progress.is_thinning = false;
        let freed = std::mem::take(&mut progress.leaving);
        for slot in freed.iter() {
            self.change_slots(|view| Some(view.with(slot, Use::Free))).expect("nothing refuses it");
        }
        if freed.is_empty() { Swept::More } else { Swept::Freed(freed) }
    }

    /// Decides what is swept next: places that leave, or else those that retire and have not been through.
    fn begin_sweep(&self, progress: &mut Progress) {
        for slot in self.view().retiring().iter() {
            self.let_go(slot);
        }
        let view = self.view();
        progress.leaving = view.leaving();
        progress.is_thinning = view.leaving().is_empty() && !view.retiring().is_within(progress.retiring);
        progress.retiring &= view.retiring();
        if progress.is_thinning {
            progress.retiring = view.retiring();
        }
    }

    /// Takes the places that leave from a word, or if there are none, those that retire.
    fn sweep_page(&self, page: usize, leaving: SlotSet) {
        let tells = !self.rules.breaks(Rule::SweepTellsTheRest);
        let is_untouched = |word: Word| word.is_free_of(leaving) || !tells && word.is_writing();
        let needed = self.protection.needed();
        // A refusal is a word that stays as it is.
        let _ = self.change(page, |word, view| match leaving.is_empty() {
            true => Some(word.retire(view.live(), needed)),
            false => (!is_untouched(word)).then(|| word.sweep(leaving)),
        });
    }
}
