//! A model of the windows: the exact set of everything that was accepted.
//!
//! Lanes send in order; an attacker delivers anything that was ever sent, in any order and as often as it likes, while
//! time passes and other lanes push windows out. [`lanes_are_heard`] has a network without an attacker.

use std::collections::{HashSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::counter::{RequestCounter, SEQUENCE_MAX};

const UNIT: u64 = 1 << 20;
/// Cases of each property.
const CASES: u32 = if cfg!(miri) { 2 } else { 512 };
/// Where times wrap around, and where the clock begins.
const STARTS: [u64; 4] = [0, 5 * UNIT, (1 << 48) - 40 * UNIT, (1 << 47) - 3 * UNIT];

fn secret() -> NodeSecret {
    NodeSecret::new([1; 32])
}

fn lane(index: usize) -> SessionNumber {
    SessionNumber::new(index as u32 / 3, 24, 1).with_lane(1 + (index % 3) as u8)
}

fn counter(time_ns: u64, sequence: u64) -> u64 {
    units(time_ns) << 36 | sequence
}

/// A table of one set, at a time when it has no memory of its start.
fn table(now: u64) -> ReplayWindows {
    ReplayWindows::with_sets(&secret(), 1, now - 10 * UNIT)
}

#[test]
fn a_window_takes_every_sequence_once_in_any_order() {
    let (now, mut table) = (100 * UNIT, table(100 * UNIT));
    let top = 3 * WINDOW_MESSAGES;
    assert!(table.accept(lane(0), counter(now, top), now));
    for sequence in (1..top).rev() {
        let is_within = top - sequence < WINDOW_MESSAGES;
        assert_eq!(table.accept(lane(0), counter(now, sequence), now), is_within, "{sequence}");
        assert!(!table.accept(lane(0), counter(now, sequence), now));
    }
    assert!(!table.accept(lane(0), counter(now, top), now));
    assert!(!table.accept(lane(0), counter(now, 0), now), "no sequence is 0");
    assert!(table.accept(lane(0), counter(now, SEQUENCE_MAX), now));
    assert!(!table.accept(lane(0), counter(now, top + 1), now));
    assert!(table.accept(lane(0), counter(now, SEQUENCE_MAX - 1), now));
    const { assert!(WINDOW_MESSAGES >= 256) };
}

#[test]
fn the_session_itself_sends_nothing() {
    let now = 100 * UNIT;
    assert!(!table(now).accept(lane(0).session(), counter(now, 1), now));
    assert!(!table(now).accept(SessionNumber(0), counter(now, 1), now));
}

#[test]
fn what_was_sent_before_the_table_was_made_is_refused() {
    let now = 100 * UNIT;
    let mut table = ReplayWindows::new(&secret(), now);
    assert!(!table.accept(lane(0), counter(now, 1), now));
    assert!(table.accept(lane(0), counter(now + UNIT, 2), now + UNIT));
    assert!(!table.accept(lane(0), counter(now, 1), now + UNIT));
}

/// A lane that comes back has a window without bits for what it had sent before.
#[test]
fn a_lane_that_comes_back_does_not_bring_its_past() {
    let mut now = 100 * UNIT;
    let mut table = table(now);
    let old = counter(now, 5);
    assert!(table.accept(lane(0), old, now));
    for other in 1..=WAYS {
        now += UNIT;
        assert!(table.accept(lane(other), counter(now, 1), now));
    }
    assert!(!table.accept(lane(0), old, now), "the floor");
    let late = counter(now, 4);
    assert!(table.accept(lane(0), late, now), "a sequence below, sent later");
    assert!(!table.accept(lane(0), old, now), "the window, though the sequence is above");
    assert!(table.accept(lane(0), counter(now, 7), now));
    assert!(!table.accept(lane(0), old, now), "the window, though the sequence is below");
    assert!(table.accept(lane(0), counter(now, 6), now), "what has not come yet");
}

#[test]
fn a_lane_from_the_future_shuts_no_set() {
    let mut now = 100 * UNIT;
    let mut table = table(now);
    for sequence in 1..9 {
        assert!(!table.accept(lane(0), counter(now + sequence * 2 * UNIT, sequence), now));
    }
    assert!(table.accept(lane(0), counter(now + UNIT, 9), now));
    assert!(!table.accept(lane(0), counter(now + 2 * UNIT, 10), now), "nor a lane that is known");
    for other in 1..=WAYS {
        assert!(table.accept(lane(other), counter(now, 1), now));
    }
    assert!(!table.accept(lane(9), counter(now + UNIT, 1), now), "as late as what was forgotten");
    now += 2 * UNIT;
    assert!(table.accept(lane(9), counter(now, 2), now));
}

#[test]
fn the_lane_that_was_seen_least_recently_goes() {
    let mut now = 100 * UNIT;
    let mut table = table(now);
    for index in 0..WAYS {
        assert!(table.accept(lane(index), counter(now, 1), now));
    }
    // A replay does not keep a lane.
    assert!(table.accept(lane(0), counter(now, 2), now) && !table.accept(lane(1), counter(now, 1), now));
    let old = counter(now, 9);
    now += 5 * UNIT;
    assert!(table.accept(lane(8), counter(now, 1), now));
    assert!(table.accept(lane(0), old, now), "it is known, and such times were not forgotten when it came");
    assert!(!table.accept(lane(1), old, now), "it is not known, and such times have been forgotten");
}

/// Whoever sends again what was recorded of forgotten lanes makes the table forget no others.
#[test]
fn what_is_refused_displaces_nothing() {
    let now = 100 * UNIT;
    let mut table = table(now);
    for index in 0..=WAYS {
        assert!(table.accept(lane(index), counter(now, 1), now));
    }
    for _ in 0..3 {
        assert!(!table.accept(lane(0), counter(now, 1), now));
        assert!(!table.accept(lane(0), counter(now + 2 * UNIT, 2), now));
    }
    let known: Vec<_> = table.sets[0].windows.iter().map(|window| window.lane).collect();
    assert!((1..=WAYS).all(|index| known.contains(&lane(index))), "{known:?}");
}

#[test]
fn times_are_those_nearest_before_now() {
    let modulus = 1 << TIME_BITS;
    for now in [0, 1, 2, modulus / 2, modulus - 1, modulus, 5 * modulus + 3] {
        let low = |time: u64| time & (modulus - 1);
        for ahead in [0, 1] {
            assert_eq!(claimed(low(now + ahead), now), Some(now + ahead));
        }
        assert_eq!(claimed(low(now + 2), now), None);
        for age in [1, 2, modulus / 4, modulus / 2] {
            assert_eq!(claimed(low(now.wrapping_sub(age)), now), now.checked_sub(age), "{now} {age}");
        }
        assert_eq!(claimed(low(now.wrapping_sub(modulus / 2 + 1)), now), None);
    }
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A lane sends, and claims a time that is so many units later than the node's.
    Send { lane: usize, ahead: i64, is_delivered: bool },
    /// A message is delivered that was sent before, counted from the last.
    Deliver { back: usize },
    /// A message is delivered, counted from the first.
    Replay { index: usize },
    /// A lane skips sequences, as if many messages had been lost.
    Lose { lane: usize, messages: u64 },
    /// Nanoseconds pass.
    Pass { nanos: u64 },
}

fn step(lanes: usize) -> impl Strategy<Value = Step> {
    let ahead = prop_oneof![
        6 => Just(0), 2 => -1..=1i64, 2 => -5..=3i64, 1 => -10_000..=10_000i64, 1 => -(1i64 << 28)..=1 << 28
    ];
    let pass = prop_oneof![8 => 0..UNIT, 4 => 0..4 * UNIT, 1 => 0..20 * 60 * 1_000_000_000u64];
    prop_oneof![
        8 => (0..lanes, ahead, any::<bool>())
            .prop_map(|(lane, ahead, is_delivered)| Step::Send { lane, ahead, is_delivered }),
        6 => (0..20usize).prop_map(|back| Step::Deliver { back }),
        6 => any::<usize>().prop_map(|index| Step::Replay { index }),
        1 => (0..lanes, 0..3 * WINDOW_MESSAGES).prop_map(|(lane, messages)| Step::Lose { lane, messages }),
        4 => pass.prop_map(|nanos| Step::Pass { nanos }),
    ]
}

/// The table, and the exact set of what it has accepted.
struct Model {
    table: ReplayWindows,
    accepted: HashSet<(SessionNumber, u64)>,
    now: u64,
}

impl Model {
    fn deliver(&mut self, (number, counter): (SessionNumber, u64)) -> Result<(), TestCaseError> {
        if self.table.accept(number, counter, self.now) {
            prop_assert!(self.accepted.insert((number, counter)), "{number:?} {counter:x} is accepted twice");
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn nothing_is_accepted_twice(
        sets in 1..3usize,
        start in prop::sample::select(STARTS.to_vec()),
        steps in (2..12usize).prop_flat_map(|lanes| prop::collection::vec(step(lanes), 1..400)),
    ) {
        let table = ReplayWindows::with_sets(&secret(), sets, start);
        let mut model = Model { table, accepted: HashSet::new(), now: start };
        let mut sequences = [0; 12];
        let mut sent = Vec::new();
        for step in steps {
            match step {
                Step::Send { lane: index, ahead, is_delivered } => {
                    sequences[index] += 1;
                    let time = model.now.wrapping_add_signed(ahead << 20);
                    let message = (lane(index), counter(time, sequences[index]));
                    sent.push(message);
                    if is_delivered {
                        model.deliver(message)?;
                    }
                }
                Step::Deliver { back } => {
                    if let Some(message) = sent.iter().rev().nth(back) {
                        model.deliver(*message)?;
                    }
                }
                Step::Replay { index } => {
                    if !sent.is_empty() {
                        model.deliver(sent[index % sent.len()])?;
                    }
                }
                Step::Lose { lane, messages } => sequences[lane] += messages,
                // A session lasts for a day, and is over when its times come round.
                Step::Pass { nanos } => model.now = (model.now + nanos).min(start + 24 * 3_600_000_000_000),
            }
        }
        for message in sent.iter().chain(sent.iter().rev()) {
            model.deliver(*message)?;
        }
    }

    /// Messages arrive in order and claim the right time, or one that is a little old, as a client's bound is.
    #[test]
    fn lanes_are_heard(
        lanes in 1..12usize,
        start in prop::sample::select(STARTS.to_vec()),
        steps in prop::collection::vec((any::<usize>(), 0..2 * UNIT, any::<bool>()), 1..300),
    ) {
        let mut table = ReplayWindows::with_sets(&secret(), 1, start);
        let mut counters: Vec<RequestCounter> = (0..12).map(|_| RequestCounter::new()).collect();
        // The lanes that must be in the table, the one first that was seen least recently.
        let mut known: VecDeque<usize> = VecDeque::new();
        let mut now = start;
        for (index, passed, waits) in steps {
            now += passed;
            let index = index % lanes;
            let is_heard = table.accept(lane(index), counters[index].next(now).unwrap(), now);
            if let Some(at) = known.iter().position(|known| *known == index) {
                prop_assert!(is_heard, "a lane that is in the table");
                known.remove(at);
            } else if !is_heard {
                // The retry comes when the units of time that are compared have passed.
                now += if waits { 5 * UNIT } else { 2 * UNIT };
                let is_heard = table.accept(lane(index), counters[index].next(now).unwrap(), now);
                prop_assert!(is_heard, "the retry of a lane that was forgotten");
            }
            known.push_back(index);
            if known.len() > WAYS {
                known.pop_front();
            }
        }
    }

    /// A lane that has paused for longer than the units that are compared is not refused even once.
    #[test]
    fn lanes_that_take_turns_slowly_are_never_refused(lanes in 1..12usize, rounds in 1..20usize) {
        let mut now = 10 * UNIT;
        let mut table = ReplayWindows::with_sets(&secret(), 1, now);
        let mut counters: Vec<RequestCounter> = (0..lanes).map(|_| RequestCounter::new()).collect();
        for _ in 0..rounds {
            for (index, counter) in counters.iter_mut().enumerate() {
                now += UNIT;
                prop_assert!(table.accept(lane(index), counter.next(now).unwrap(), now));
            }
        }
    }
}
