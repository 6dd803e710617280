//! [`Pace`]: whether a node keeps up with the others, as one queue pair sees it.
//!
//! A node may answer everything and be of little use: ten times slower than the others, or behind a link that loses
//! one datagram in twenty. Hedges are too few for all that is asked of it, and would wait for what is usual there. So a
//! hedge waits for what is usual at the quicker half of nodes ([`hedge_after`]), an answer that takes longer is *late*,
//! and a node of which many are is *slow*: reads ask it last. A few ask it first ([`READS_PER_SAMPLE`]), and show when
//! it keeps up again.
//!
//! Nothing is allocated.

use yonder_units::Nanos;

use crate::hedge::{DELAY_MAX, Delay};
use crate::slots::SlotSet;

/// One in so many reads asks slow nodes first. Each may need a hedge, so they are fewer than those.
pub const READS_PER_SAMPLE: u64 = 32;
const _: () = assert!(READS_PER_SAMPLE > crate::hedge::READS_PER_HEDGE as u64);

/// What stands for all answers in a share of them.
const ALL: u32 = 1 << 16;
/// The share of late answers from which on a node is slow, and that below which it is so no more. More than hedges are
/// of reads, so that these suffice for a node that is not.
const SLOW_FROM: u32 = ALL / 8;
const SLOW_UNTIL: u32 = ALL / 16;
/// An answer has this part in the share: an eighth of that many may come late together and make no node slow.
const WEIGHT_OF: u32 = 128;
/// The same of a node that is slow, which is asked less.
const WEIGHT_OF_SLOW: u32 = 32;

/// The slots whose nodes answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answering {
    /// Those that are not suspect.
    pub up: SlotSet,
    /// Those of them that keep up.
    pub quick: SlotSet,
}

/// How a node answers.
#[derive(Clone, Default, Debug)]
pub struct Pace {
    delay: Delay,
    late: u32,
    is_slow: bool,
}

impl Answering {
    /// Those that do not keep up come first.
    #[must_use]
    pub fn slow_first(self) -> Self {
        let slow = self.up - self.quick;
        Self { quick: if slow.is_empty() { self.quick } else { slow }, ..self }
    }
}

impl From<SlotSet> for Answering {
    /// All keep up.
    fn from(up: SlotSet) -> Self {
        Self { up, quick: up }
    }
}

impl Pace {
    /// An answer took so long, or was waited for for so long, where hedges wait for `hedge_after`.
    pub fn took(&mut self, span: Nanos, hedge_after: Nanos) {
        self.delay.took(span);
        let late = if span > hedge_after { ALL } else { 0 };
        let weight_of = if self.is_slow { WEIGHT_OF_SLOW } else { WEIGHT_OF };
        self.late = (self.late * (weight_of - 1) + late) / weight_of;
        self.is_slow = self.late > if self.is_slow { SLOW_UNTIL } else { SLOW_FROM };
    }

    /// Whether it does not keep up.
    #[must_use]
    pub const fn is_slow(&self) -> bool {
        self.is_slow
    }
}

/// How long an answer is waited for before another place is asked too: as is usual at some nodes, of which the slower
/// half has no say. The longest, until one of them has answered enough. `room` is for as many times as there are
/// nodes.
pub fn hedge_after<'a>(paces: impl Iterator<Item = &'a Pace>, room: &mut Vec<Nanos>) -> Nanos {
    room.clear();
    for delay in paces.filter_map(|pace| pace.delay.get()) {
        assert!(room.len() < room.capacity(), "there is room for all nodes");
        room.push(delay);
    }
    let middle = room.len().saturating_sub(1) / 2;
    if room.is_empty() { DELAY_MAX } else { *room.select_nth_unstable(middle).1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hedge::DELAY_MIN;

    const US: Nanos = 1_000;

    /// A node that has answered so often, each time within `span`.
    fn node(answers: usize, span: Nanos) -> Pace {
        let mut pace = Pace::default();
        (0..answers).for_each(|_| pace.took(span, DELAY_MAX));
        pace
    }

    fn after(nodes: &[Pace]) -> Nanos {
        hedge_after(nodes.iter(), &mut Vec::with_capacity(nodes.len()))
    }

    #[test]
    fn hedges_wait_for_what_is_usual_at_most_nodes() {
        assert_eq!(after(&[]), DELAY_MAX);
        assert_eq!(after(&[node(0, 0), node(63, 10 * US)]), DELAY_MAX);
        let [quick, usual, slow] = [10 * US, 100 * US, 2_000 * US].map(|span| node(64, span));
        assert_eq!(after(&[node(0, 0), quick.clone()]), DELAY_MIN);
        let of_usual = after(std::slice::from_ref(&usual));
        assert!((300 * US..400 * US).contains(&of_usual), "{of_usual}");
        assert_eq!(after(&[slow.clone(), usual.clone()]), of_usual);
        assert_eq!(after(&[slow, usual, quick]), of_usual);
    }

    #[test]
    fn a_node_of_which_many_answers_are_late_is_slow_until_few_are() {
        let mut pace = node(1_000, 100 * US);
        let took = |pace: &mut Pace, late_of_100: usize, answers: usize| {
            let late = |answer: &usize| answer * late_of_100 % 100 < late_of_100;
            let spans = (0..answers).map(|answer| if late(&answer) { 900 * US } else { 100 * US });
            spans.for_each(|span| pace.took(span, 400 * US));
            pace.is_slow()
        };
        assert!(!took(&mut pace, 5, 10_000), "hedges suffice");
        assert!(took(&mut pace, 23, 400), "as where one datagram in twenty is lost");
        assert!(took(&mut pace, 12, 10_000), "it is not well yet");
        assert!(!took(&mut pace, 1, 300));
        assert!(took(&mut pace, 100, 32), "as where a node is ten times slower");
    }

    #[test]
    fn one_that_is_well_again_is_soon_known_to_be() {
        let mut pace = node(1_000, 100 * US);
        (0..10_000).for_each(|_| pace.took(900 * US, 400 * US));
        let wanted = (1..).find(|_| {
            pace.took(100 * US, 400 * US);
            !pace.is_slow()
        });
        assert!(wanted < Some(100), "{wanted:?} samples");
        let set = |bits| SlotSet::from_bits(bits);
        assert_eq!(Answering { up: set(0b111), quick: set(0b101) }.slow_first().quick, set(0b010));
        assert_eq!(Answering::from(set(0b111)).slow_first(), set(0b111).into());
    }

    #[test]
    fn a_few_that_are_late_together_make_no_node_slow() {
        let mut pace = node(1_000, 100 * US);
        (0..16).for_each(|_| pace.took(50_000 * US, 400 * US));
        assert!(!pace.is_slow());
        (0..16).for_each(|_| pace.took(50_000 * US, 400 * US));
        assert!(pace.is_slow());
    }
}
