//! A model of Yonder's local memory: what the reclaimer would do, without kernel, node and threads.
//!
//! It decides by the pager's own [`Policy`], [`SweepHand`] and [`Probation`]. What it leaves out: writes take no time,
//! nothing is fetched ahead, and faults never find local memory full, so that the margin stays the least.

use std::collections::VecDeque;

use yonder::units::{BLOCK_PAGES, BlockIndex, PageIndex};
use yonder_pager::reclaim::{
    Action, Departures, LIMIT_PAGES_MIN, Margin, Policy, Probation, Shares, SweepHand, Turns, Usage, Visit,
};

use super::{Replayed, Trace};

/// Fewest pages of local memory.
pub(super) const PAGES_MIN: usize = LIMIT_PAGES_MIN as usize;

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
}

/// See the head of this file.
pub(super) fn replay(trace: &Trace, local: usize) -> Replayed {
    let policy = Policy::new(local as u64, Shares::default()).expect("the default shares are in order");
    let mut model = Model {
        policy: policy.for_pages(trace.pages as u64, &Margin::default()),
        places: vec![Place::Nowhere; trace.numbers()],
        mapped_in: vec![0; trace.blocks],
        mapped: 0,
        standby: VecDeque::new(),
        standing: 0,
        spare: 0,
        entries: 0,
        probation: Probation::new(trace.numbers(), trace.blocks),
        departures: Departures::default(),
        turns: Turns::default(),
        on_probation: SweepHand::default(),
        all: SweepHand::default(),
        is_working: false,
    };
    let mut replayed = Replayed::default();
    for page in &trace.touches {
        model.touch(PageIndex(*page), &mut replayed);
    }
    replayed
}

impl Model {
    fn touch(&mut self, page: PageIndex, replayed: &mut Replayed) {
        match self.places[page.index()] {
            Place::Mapped => return,
            Place::Nowhere => {}
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
        while self.is_working {
            match self.policy.decide(&self.usage()) {
                Action::Rest => self.is_working = false,
                Action::Trim(frames) => self.spare -= frames,
                Action::Drain(pages) => self.drain(pages),
                Action::Sweep(room) => self.sweep(room as usize),
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
            let on_probation = mapped_in[block].saturating_sub(probation.proven_in(BlockIndex(block as u32)));
            let is_worth_it = if is_of_probation { turns.is_worth_a_sweep(on_probation) } else { mapped_in[block] > 0 };
            if is_worth_it { Visit::Take } else { Visit::Skip }
        })?;
        let first = block * BLOCK_PAGES;
        let mut swept = 0;
        for page in first..first + BLOCK_PAGES {
            if self.places[page] != Place::Mapped {
                continue;
            }
            let index = PageIndex(page as u32);
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
        self.probation.count(BlockIndex(block as u32), left.map(|page| PageIndex(page as u32)));
        self.mapped_in[block] -= swept as u32;
        (self.mapped, self.standing) = (self.mapped - swept as u64, self.standing + swept as u64);
        self.spare = self.spare.saturating_sub(swept as u64);
        Some(swept)
    }
}
