//! [`Turns`]: who has more than its share of memory, where several programs lack some.
//!
//! One has what the others have above half of theirs, for two seconds or until it does not touch what it has: of those
//! that have had the fewest turns for their weights, the one that has the most memory, which works already while
//! others would have to fetch theirs. One that misses all the same in its turn, such as one that touches everything,
//! has fewer and fewer.

use std::collections::{BTreeMap, BTreeSet};

use yonder_units::Nanos;

/// How long a program has more than its share.
const TURN: Nanos = 2_000_000_000;
/// After this part of it, it is known what a program does with its turn, and who is held up meanwhile.
const SETTLED_PART: Nanos = 10;
/// Turns that one is owed at most because others have had more.
const OWED_MAX: f64 = 2.0;
/// Turns that one whose turns are of no use is passed over, at most.
const PASSED_OVER_MAX: u32 = 64;

/// A program, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Contender {
    pub(crate) number: u32,
    /// Of two, one with twice the weight has twice as long turns.
    pub(crate) weight: f64,
    /// Pages.
    pub(crate) local: u64,
    /// It misses much, because it may not have more.
    pub(crate) lacks: bool,
    /// It misses much.
    pub(crate) is_held_up: bool,
    /// It does not touch what is taken from it.
    pub(crate) is_cold: bool,
    /// It wants more than its share.
    pub(crate) wants_more: bool,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    turn: Option<Turn>,
    records: BTreeMap<u32, Record>,
}

#[derive(Debug)]
struct Turn {
    holder: u32,
    since: Nanos,
    /// Who lacks memory as well.
    waiting: BTreeSet<u32>,
    /// It was not held up in it, for a while.
    is_of_use: bool,
}

/// What is remembered of a program.
#[derive(Debug)]
struct Record {
    /// Whole turns that it has had, for its weight.
    turns: f64,
    /// Turns that it is passed over yet, and after the next one that is of no use.
    passed_over: u32,
    next_passed_over: u32,
}

impl Default for Record {
    fn default() -> Self {
        Self { turns: 0.0, passed_over: 0, next_passed_over: 1 }
    }
}

impl Turns {
    /// Forgets all programs but these.
    pub(crate) fn retain(&mut self, is_there: impl Fn(u32) -> bool) {
        self.records.retain(|number, _| is_there(*number));
    }

    pub(crate) fn is_turn_of(&self, number: u32) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.holder == number)
    }

    /// It is somebody's turn.
    pub(crate) fn is_any(&self) -> bool {
        self.turn.is_some()
    }

    /// It waits for its turn.
    pub(crate) fn waits(&self, number: u32) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.waiting.contains(&number))
    }

    pub(crate) fn takes_part(&self, number: u32) -> bool {
        self.is_turn_of(number) || self.waits(number)
    }

    /// Decides whose turn it is from now on.
    pub(crate) fn look(&mut self, now: Nanos, contenders: &[Contender]) {
        let find = |number: u32| contenders.iter().find(|contender| contender.number == number);
        let mut lacking: BTreeSet<u32> =
            contenders.iter().filter(|contender| contender.lacks).map(|contender| contender.number).collect();
        let Some(turn) = &mut self.turn else {
            self.turn = self.next(now, contenders, lacking);
            return;
        };
        let (age, holder) = (now.saturating_sub(turn.since), find(turn.holder));
        let has_settled = age > TURN / SETTLED_PART;
        turn.is_of_use |= holder.is_some_and(|holder| !holder.is_held_up);
        turn.waiting.retain(|number| find(*number).is_some_and(|other| other.is_held_up || !has_settled));
        lacking.remove(&turn.holder);
        turn.waiting.append(&mut lacking);
        let is_needed = holder.is_some_and(|holder| !holder.is_cold || !has_settled);
        if is_needed && age < TURN && !turn.waiting.is_empty() {
            return;
        }
        let Turn { holder: number, mut waiting, is_of_use, .. } = self.turn.take().expect("it was there");
        let weight = holder.map_or(1.0, |holder| holder.weight);
        self.records.entry(number).or_default().had(age, weight, is_of_use);
        // It waits for the others now, if it has more than its share.
        waiting.extend(holder.filter(|holder| holder.wants_more).map(|holder| holder.number));
        self.turn = self.next(now, contenders, waiting);
    }

    /// Whose turn it is of those that lack memory.
    fn next(&mut self, now: Nanos, contenders: &[Contender], mut lacking: BTreeSet<u32>) -> Option<Turn> {
        if lacking.len() < 2 {
            return None;
        }
        let lacking_of = || contenders.iter().filter(|contender| lacking.contains(&contender.number));
        let turns = lacking_of().filter_map(|contender| self.records.get(&contender.number)).map(|record| record.turns);
        let most = turns.fold(0.0, f64::max);
        let mut candidates = Vec::new();
        for contender in lacking_of() {
            let record = self.records.entry(contender.number).or_default();
            // Nothing is owed for a time in which it was not there, or lacked nothing.
            record.turns = record.turns.max(most - OWED_MAX);
            if record.passed_over > 0 {
                record.passed_over -= 1;
            } else if !contender.is_cold {
                let rank = [record.turns.floor(), -(contender.local as f64) / contender.weight];
                candidates.push((rank, contender.number));
            }
        }
        let before = |[turns, local]: &[f64; 2], [other_turns, other_local]: &[f64; 2]| {
            turns.total_cmp(other_turns).then(local.total_cmp(other_local))
        };
        let (_, holder) = candidates.into_iter().min_by(|(one, _), (other, _)| before(one, other))?;
        lacking.remove(&holder);
        Some(Turn { holder, since: now, waiting: lacking, is_of_use: false })
    }
}

impl Record {
    /// It has had a turn for so long.
    fn had(&mut self, age: Nanos, weight: f64, is_of_use: bool) {
        self.turns += age.min(TURN) as f64 / TURN as f64 / weight;
        if is_of_use {
            self.next_passed_over = 1;
        } else if age >= TURN {
            self.passed_over = self.next_passed_over;
            self.next_passed_over = (2 * self.next_passed_over).min(PASSED_OVER_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Nanos = 50_000_000;

    fn lacking(number: u32, local: u64) -> Contender {
        let (lacks, is_held_up, is_cold, wants_more) = (true, true, false, true);
        Contender { number, weight: 1.0, local, lacks, is_held_up, is_cold, wants_more }
    }

    /// How many looks each of three has had its turn; the holder does as `in_turn` says.
    fn held(mut all: [Contender; 3], looks: u64, in_turn: impl Fn(&mut Contender)) -> [u32; 3] {
        let (mut turns, mut held, before) = (Turns::default(), [0; 3], all);
        for look in 0..looks {
            turns.look(look * LOOK, &all);
            all = before;
            for contender in all.iter_mut().filter(|contender| turns.is_turn_of(contender.number)) {
                held[contender.number as usize] += 1;
                in_turn(contender);
            }
        }
        held
    }

    fn content(contender: &mut Contender) {
        (contender.lacks, contender.is_held_up) = (false, false);
    }

    #[test]
    fn the_first_turn_is_of_the_one_that_has_the_most() {
        let all = [lacking(0, 100), lacking(1, 300), lacking(2, 200)];
        assert_eq!(held(all, 20, content), [0, 20, 0]);
        let heavy = Contender { weight: 4.0, ..lacking(1, 300) };
        assert_eq!(held([lacking(0, 100), heavy, lacking(2, 200)], 20, content), [0, 0, 20]);
    }

    #[test]
    fn turns_are_as_long_as_weights_are_large() {
        let all = [lacking(0, 100), Contender { weight: 2.0, ..lacking(1, 300) }, lacking(2, 200)];
        let held = held(all, 4_000, content);
        assert!(held.iter().zip([1_000, 2_000, 1_000]).all(|(held, of)| held.abs_diff(of) < 100), "{held:?}");
    }

    #[test]
    fn one_whose_turns_are_of_no_use_has_few() {
        let touches_all = |contender: &mut Contender| {
            if contender.number > 0 {
                content(contender);
            }
        };
        let held = held([lacking(0, 100), lacking(1, 300), lacking(2, 200)], 4_000, touches_all);
        assert!(held[0] < 400 && held[1] > 1_500 && held[2] > 1_500, "{held:?}");
    }

    #[test]
    fn a_turn_ends_where_its_holder_does_not_touch_what_it_has_or_nobody_waits() {
        for ends in [
            |all: &mut [Contender; 3]| all[1].is_cold = true,
            |all: &mut [Contender; 3]| all.iter_mut().for_each(content),
        ] {
            let mut turns = Turns::default();
            let mut all = [lacking(0, 100), lacking(1, 300), lacking(2, 200)];
            turns.look(0, &all);
            content(&mut all[1]);
            ends(&mut all);
            turns.look(LOOK, &all);
            assert!(turns.is_turn_of(1), "it is not known yet");
            turns.look(TURN / SETTLED_PART + 1, &all);
            assert!(!turns.is_turn_of(1) && turns.waits(1) == all[1].is_cold);
        }
    }

    #[test]
    fn one_alone_has_no_turn() {
        let mut all = [lacking(0, 100), lacking(1, 300), lacking(2, 200)];
        content(&mut all[0]);
        content(&mut all[2]);
        assert_eq!(held(all, 20, content), [0; 3]);
    }
}
