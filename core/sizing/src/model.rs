//! A model of Yonder's local memory: what the reclaimer would do, without kernel, node and threads.
//!
//! It decides by the pager's own [`Policy`], [`SweepHand`] and [`Probation`]. What it leaves out: writes take no time,
//! and faults never find local memory full, so that the margin stays the least. Nothing is fetched ahead, but what of
//! the misses lies in sequences is counted.

use std::collections::VecDeque;

use yonder_pager::reclaim::{
    Action, Departures, LIMIT_PAGES_MIN, Margin, Policy, Probation, Shares, SweepHand, Turns, Usage, Visit,
};
use yonder_units::{BLOCK_PAGES, BlockIndex, Narrow, PageIndex};

use crate::sample::Weight;
use crate::sequences::Sequences;
use crate::trace::{Touch, Trace};

/// Fewest pages of local memory.
pub const PAGES_MIN: usize = 512;
const _: () = assert!(PAGES_MIN as u64 == LIMIT_PAGES_MIN, "the policy takes no less");

/// What a trace has come to with so many pages of local memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Replayed {
    /// Touches of pages that had been here and had left.
    pub misses: u64,
    /// Those of them that lie in sequences, and are fetched ahead.
    pub in_sequences: u64,
    /// Touches of pages that were unmapped and had not left.
    pub rescues: u64,
    /// Touches of pages without content, since local memory was short for the first time: before that they are the
    /// kernel's.
    pub firsts: u64,
}

impl Replayed {
    /// The same of each of so many.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        let Self { misses, in_sequences, rescues, firsts } = self;
        let [misses, in_sequences, rescues, firsts] =
            [misses, in_sequences, rescues, firsts].map(|pages| pages * count);
        Self { misses, in_sequences, rescues, firsts }
    }

    fn with(self, in_sequences: u64) -> Self {
        Self { in_sequences, ..self }
    }

    /// What stands for more touches than its own. First touches are seen at all times.
    fn weighted(self, weight: Weight) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of pages")]
        let [misses, in_sequences, rescues] =
            [self.misses, self.in_sequences, self.rescues].map(|pages| (pages as f64 * weight.times()).round() as u64);
        Self { misses, in_sequences, rescues, firsts: self.firsts }
    }

    /// Both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            misses: self.misses + other.misses,
            in_sequences: self.in_sequences + other.in_sequences,
            rescues: self.rescues + other.rescues,
            firsts: self.firsts + other.firsts,
        }
    }
}

/// Where a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// It has never been here.
    Nowhere,
    Mapped,
    /// In a frame, as that entry of the queue says.
    Standby(u64),
    Far,
}

struct Model {
    policy: Policy,
    places: Vec<Place>,
    mapped_in: Vec<u32>,
    mapped: u64,
    standby: VecDeque<(u64, u32)>,
    standing: u64,
    spare: u64,
    entries: u64,
    probation: Probation,
    departures: Departures,
    turns: Turns,
    on_probation: SweepHand,
    all: SweepHand,
    is_working: bool,
    /// Whether it was ever.
    has_worked: bool,
}

/// Replays a trace with `local` pages of local memory, which are [`PAGES_MIN`] at least.
#[must_use]
pub fn replay(trace: &Trace, local: usize) -> Replayed {
    replay_weighted(trace, &[], local)
}

/// As [`replay`], where touches stand for others as well: up to which of them, and for how many.
pub(crate) fn replay_weighted(trace: &Trace, weights: &[(usize, Weight)], local: usize) -> Replayed {
    let policy = Policy::new(local as u64, Shares::default()).expect("the default shares are in order");
    let mut sequences = Sequences::new(trace.numbers());
    let mut model = Model {
        policy: policy.for_pages(trace.pages() as u64, &Margin::default()),
        places: vec![Place::Nowhere; trace.numbers()],
        mapped_in: vec![0; trace.blocks()],
        mapped: 0,
        standby: VecDeque::new(),
        standing: 0,
        spare: 0,
        entries: 0,
        probation: Probation::new(trace.numbers(), trace.blocks()),
        departures: Departures::default(),
        turns: Turns::default(),
        on_probation: SweepHand::default(),
        all: SweepHand::default(),
        is_working: false,
        has_worked: false,
    };
    let (mut all, mut replayed, mut weights) = (Replayed::default(), Replayed::default(), weights.iter().peekable());
    for (number, touch) in (0u32..).zip(trace.touches()) {
        while let Some((_, weight)) = weights.next_if(|(end, _)| *end <= number as usize) {
            all = all.plus(std::mem::take(&mut replayed).with(sequences.take()).weighted(*weight));
        }
        let misses = replayed.misses;
        model.touch(touch, &mut replayed);
        if replayed.misses > misses {
            sequences.miss(touch.page, number);
        }
    }
    let weight = weights.next().map_or(Weight::ONE, |(_, weight)| *weight);
    all.plus(replayed.with(sequences.take()).weighted(weight))
}

impl Model {
    fn touch(&mut self, Touch { page, is_first }: Touch, replayed: &mut Replayed) {
        let place = self.places[page.index()];
        if is_first {
            // What it was before was given back, nobody knows when.
            replayed.firsts += u64::from(self.has_worked);
            if let Place::Standby(_) = place {
                self.standing -= 1;
            } else if place == Place::Far {
                self.probation.forget(page);
            }
        }
        match place {
            Place::Mapped => return,
            Place::Nowhere => {}
            _ if is_first => {}
            Place::Standby(_) => {
                replayed.rescues += 1;
                self.standing -= 1;
                self.spare += 1;
            }
            Place::Far => {
                replayed.misses += 1;
                self.probation.returns(page, &self.departures, self.policy.limit());
            }
        }
        self.places[page.index()] = Place::Mapped;
        self.mapped_in[page.block().index()] += 1;
        self.mapped += 1;
        self.is_working |= self.policy.is_low(&self.usage());
        self.has_worked |= self.is_working;
        while self.is_working {
            match self.policy.decide(&self.usage()) {
                Action::Rest => self.is_working = false,
                Action::Trim(frames) => self.spare -= frames,
                Action::Drain(pages) => self.drain(pages),
                Action::Sweep(room) => self.sweep(room.narrow_usize()),
                Action::AwaitWrites => unreachable!("writes take no time"),
            }
        }
    }

    fn usage(&self) -> Usage {
        let charged = self.mapped + self.standing + self.spare;
        Usage {
            charged,
            spare_frames: self.spare,
            standby: self.standing,
            resident: self.mapped,
            headroom: self.policy.limit().saturating_sub(charged),
            ..Usage::default()
        }
    }

    fn drain(&mut self, pages: u64) {
        let mut drained = 0;
        while drained < pages {
            let Some((entry, page)) = self.standby.pop_front() else { return };
            if self.places[page as usize] == Place::Standby(entry) {
                self.places[page as usize] = Place::Far;
                self.probation.leaves(PageIndex(page), &self.departures);
                (self.standing, self.spare, drained) = (self.standing - 1, self.spare + 1, drained + 1);
            }
        }
    }

    fn sweep(&mut self, room: usize) {
        if self.turns.are_of_probation(self.mapped, self.probation.proven(), self.policy.limit()) {
            for _ in 0..self.mapped_in.len() {
                match self.sweep_next(room, true) {
                    None => break,
                    Some(0) => {}
                    Some(swept) => {
                        self.turns.sweep_on_probation(swept as u64);
                        return;
                    }
                }
            }
        }
        self.turns.sweep_all();
        self.sweep_next(room, false).expect("something is mapped");
    }

    /// Sweeps the next block, of what is on probation alone or all: how many pages. `None` if no block has any.
    fn sweep_next(&mut self, room: usize, is_of_probation: bool) -> Option<usize> {
        let (mapped_in, probation, turns) = (&self.mapped_in, &self.probation, &mut self.turns);
        let hand = if is_of_probation { &mut self.on_probation } else { &mut self.all };
        let (_, block) = hand.advance(&[mapped_in.len()], |_, block| {
            let on_probation = mapped_in[block].saturating_sub(probation.proven_in(BlockIndex(block.narrow_u32())));
            let is_worth_it = if is_of_probation { turns.is_worth_a_sweep(on_probation) } else { mapped_in[block] > 0 };
            if is_worth_it { Visit::Take } else { Visit::Skip }
        })?;
        let first = block * BLOCK_PAGES;
        let mut swept = 0;
        for page in first..first + BLOCK_PAGES {
            if self.places[page] != Place::Mapped {
                continue;
            }
            let index = PageIndex(page.narrow_u32());
            let is_proven = self.probation.look(index);
            if swept == room || is_proven && is_of_probation {
                continue;
            }
            self.probation.stands(index, is_proven);
            self.entries += 1;
            self.places[page] = Place::Standby(self.entries);
            self.standby.push_back((self.entries, index.0));
            swept += 1;
        }
        let left = (first..first + BLOCK_PAGES).filter(|page| self.places[*page] == Place::Mapped);
        self.probation.count(BlockIndex(block.narrow_u32()), left.map(|page| PageIndex(page.narrow_u32())));
        self.mapped_in[block] -= swept.narrow_u32();
        (self.mapped, self.standing) = (self.mapped - swept as u64, self.standing + swept as u64);
        self.spare = self.spare.saturating_sub(swept as u64);
        Some(swept)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn trace(pages: impl IntoIterator<Item = (u32, bool)>) -> Trace {
        Trace::new(pages.into_iter().map(|(page, is_first)| Touch { page: PageIndex(page), is_first }))
    }

    /// A circle of pages, some rounds.
    fn circle(pages: u32, rounds: u32) -> impl Iterator<Item = (u32, bool)> {
        (0..rounds).flat_map(move |round| (0..pages).map(move |page| (page, round == 0)))
    }

    #[test]
    fn what_fits_is_never_missed() {
        assert_eq!(replay(&trace(circle(4_000, 3)), 8_000), Replayed::default());
    }

    #[test]
    fn a_circle_that_does_not_fit_is_missed_in_sequences() {
        let replayed = replay(&trace(circle(8_000, 4)), 2_000);
        assert!(replayed.misses > 3 * 5_500, "{replayed:?}");
        assert!(100 * replayed.in_sequences > 95 * replayed.misses, "{replayed:?}");
        assert!((5_500..6_500).contains(&replayed.firsts), "{replayed:?}");
    }

    #[test]
    fn what_is_touched_at_random_is_missed_as_often_as_it_is_not_here_and_in_no_sequences() {
        let mut random = SmallRng::seed_from_u64(1);
        let again: Vec<u32> = (0..200_000).map(|_| random.random_range(0..16_000)).collect();
        let all = circle(16_000, 1).chain(again.iter().map(|page| (*page, false)));
        let replayed = replay(&trace(all), 8_000);
        assert!((95_000..120_000).contains(&(replayed.misses + replayed.rescues / 2)), "{replayed:?}");
        assert!(20 * replayed.in_sequences < replayed.misses, "{replayed:?}");
    }

    #[test]
    fn what_was_given_back_is_not_missed() {
        let replayed = replay(&trace((0..4).flat_map(|_| circle(8_000, 1))), 2_000);
        assert_eq!((replayed.misses, replayed.rescues), (0, 0));
        assert!(replayed.firsts > 24_000, "{replayed:?}");
    }
}
