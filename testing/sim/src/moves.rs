//! Ranges that move away from a node and come back: [`Moves`], the shell around the board's migration.
//!
//! Where they are meanwhile is another node as far as this one can tell: a copy of their bytes. The oracle knows which
//! ranges move and which are away: nothing in them may be executed, and what comes back is what went.

use rand::Rng;
use rand::rngs::SmallRng;
use yonder_board::{Memory, MovedAllocation, Moving, Pid, Shell, VirtualPage};

use crate::memory::Janitor;
use crate::node::Node;
use crate::oracle::Presence;
use crate::sabotage::Sabotage;
use crate::settings::PAGE_BYTES;

/// A range of an address space: PID, first address, and the address behind it.
pub(crate) type Range = (u32, u64, u64);

/// Ranges that are on their way, or away.
#[derive(Default, Debug)]
pub(crate) struct Moves {
    out: Vec<(Range, Moving)>,
    away: Vec<Away>,
    back: Vec<(Range, Moving)>,
}

/// What another node has.
#[derive(Debug)]
struct Away {
    range: Range,
    allocations: Vec<MovedAllocation>,
    content: Vec<(VirtualPage, Vec<u8>)>,
}

impl Node {
    /// Something that moves goes one step on, or `range` begins to move.
    pub(crate) fn move_on(&mut self, rng: &mut SmallRng, range: Option<Range>) {
        let leaving = self.oracle.leaving_range().filter(|_| rng.random_bool(0.5));
        if (leaving.is_some() || rng.random_bool(0.4))
            && let Some(range) = leaving.or(range)
        {
            return self.begin_move(range);
        }
        if let Some((range, moving)) = self.moves.out.pop() {
            if rng.random_bool(0.6) {
                self.send_away(range, moving);
            } else {
                self.slow_path.abandon_move(moving);
                self.oracle.set_presence(range, Presence::Here);
            }
        } else if let Some((range, moving)) = self.moves.back.pop() {
            self.slow_path.finish_move(moving);
            self.oracle.set_presence(range, Presence::Here);
        } else if let Some(away) = self.moves.away.pop() {
            self.begin_return(away);
        }
    }

    /// Everything that moves comes home. Returns the ranges for which there is no room.
    pub(crate) fn end_moves(&mut self) -> Vec<Range> {
        for (range, moving) in std::mem::take(&mut self.moves.out) {
            self.slow_path.abandon_move(moving);
            self.oracle.set_presence(range, Presence::Here);
        }
        for away in std::mem::take(&mut self.moves.away) {
            self.begin_return(away);
        }
        for (range, moving) in std::mem::take(&mut self.moves.back) {
            self.slow_path.finish_move(moving);
            self.oracle.set_presence(range, Presence::Here);
        }
        self.away().collect()
    }

    /// The ranges that are away; once all else came home, for good.
    pub(crate) fn away(&self) -> impl Iterator<Item = Range> {
        self.moves.away.iter().map(|away| away.range)
    }

    fn begin_move(&mut self, range: Range) {
        let (number, from, to) = range;
        let Some(pid) = Pid::new(number) else { return };
        // It may have been freed, or be on its way: then there is nothing to move.
        if let Ok(moving) = self.slow_path.begin_move(pid, from, to, &mut Janitor(&self.pages)) {
            self.oracle.set_presence(range, Presence::Moving);
            self.moves.out.push((range, moving));
        }
    }

    fn send_away(&mut self, range: Range, moving: Moving) {
        let copy = |(page, memory): &(VirtualPage, _)| {
            let mut bytes = vec![0; PAGE_BYTES as usize];
            self.pages.read(*memory, 0, &mut bytes);
            (*page, bytes)
        };
        let content = moving.memory().iter().map(copy).collect();
        self.moves.away.push(Away { range, allocations: moving.allocations().to_vec(), content });
        self.slow_path.finish_move(moving);
        self.oracle.set_presence(range, Presence::Away);
    }

    fn begin_return(&mut self, away: Away) {
        let (number, from, to) = away.range;
        let Some(pid) = Pid::new(number).filter(|_| self.oracle.spaces().any(|(space, _)| space == number)) else {
            return;
        };
        let pages: Vec<VirtualPage> = away.content.iter().map(|(page, _)| *page).collect();
        let upkeep = &mut Janitor(&self.pages);
        let mut shell = Shell { memory: &self.pages, pages: &self.pages.inner, upkeep };
        let Ok(moving) = self.slow_path.begin_adopt(pid, (from, to), &away.allocations, &pages, &mut shell) else {
            self.moves.away.insert(0, away);
            return;
        };
        for (page, memory) in moving.memory() {
            if let Some((_, bytes)) = away.content.iter().find(|(moved, _)| moved == page)
                && self.sabotage != Some(Sabotage::LostMoves)
            {
                self.pages.write(*memory, 0, bytes);
            }
        }
        self.pages.take_effect();
        self.oracle.set_presence(away.range, Presence::Moving);
        self.moves.back.push((away.range, moving));
    }
}
