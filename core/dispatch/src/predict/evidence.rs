//! [`Evidence`], what is known of a request before it runs, and [`Judges`], how often each kind of it was followed by a
//! fault.
//!
//! A judge is a moving average with hysteresis, one for each kind of evidence, as a branch predictor has one for each
//! pattern. So no horizon is set anywhere: the ages at which keys begin to fault are found by the judges of those ages,
//! and found again when the load or the limit of local memory changes.

use yonder_units::{Narrow, Residence};

/// Whether a request will need a page that has to be fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prediction {
    /// All it touches is local, or on its way.
    Hit,
    /// It will have a major fault.
    Fault,
}

/// What is known of a request, as the number of a judge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Evidence(u8);

/// Ages are told apart by half octaves: 32 bits of age and one bit below the leading one.
const AGES: u8 = 64;
/// Kinds of evidence apart from surprises: a stranger, three residences, and the ages.
const KINDS: u8 = 4 + AGES;
/// Numbers of evidence. A key that has just surprised is judged apart from one that has not.
const EVIDENCE_MAX: usize = 2 * KINDS as usize;

const LOCAL: u8 = 1;
const COMING: u8 = 2;
const FAR: u8 = 3;
const FIRST_AGE: u8 = 4;

/// Surprises from which on a key is judged apart.
const SURPRISING_FROM: u8 = 2;

impl Evidence {
    /// The key is not known.
    pub(crate) const STRANGER: Self = Self(0);

    /// A known key, whose page is at `residence`, which was served `age` faults ago and has faulted against the
    /// prediction `surprises` times of late.
    pub(crate) fn of(residence: Residence, age: u32, surprises: u8) -> Self {
        let kind = match residence {
            Residence::Local => LOCAL,
            Residence::Coming => COMING,
            Residence::Far => FAR,
            Residence::Unknown => FIRST_AGE + half_octave(age),
        };
        Self(if surprises >= SURPRISING_FROM { KINDS + kind } else { kind })
    }

    /// The same of a key that has not surprised.
    pub(crate) fn of_others(self) -> Self {
        Self(self.0 % KINDS)
    }

    /// Whether a page that is known to be away was the reason.
    pub(crate) fn is_far(self) -> bool {
        self.0 % KINDS == FAR
    }
}

/// Twice the logarithm of `age`, rounded down, below [`AGES`].
fn half_octave(age: u32) -> u8 {
    let Some(octave) = age.checked_ilog2() else { return 0 };
    let half = if octave == 0 { 0 } else { (age >> (octave - 1)) & 1 };
    (2 * octave + half).narrow_u8()
}

/// A share of 65,536.
type Share = u16;

/// A judge says fault above this share of faults...
const FAULT_ABOVE: Share = 5 << 13;
/// ...and hit below this, and what it said before in between.
const HIT_BELOW: Share = 3 << 13;
/// An outcome moves the share by a 32nd of the way.
const WEIGHT_SHIFT: u32 = 5;

#[derive(Clone, Copy, Debug)]
struct Judge {
    faults: Share,
    says: Prediction,
}

impl Judge {
    fn learn(&mut self, has_faulted: bool) {
        if has_faulted {
            self.faults += (Share::MAX - self.faults) >> WEIGHT_SHIFT;
        } else {
            self.faults -= self.faults >> WEIGHT_SHIFT;
        }
        if self.faults > FAULT_ABOVE {
            self.says = Prediction::Fault;
        } else if self.faults < HIT_BELOW {
            self.says = Prediction::Hit;
        }
    }
}

/// A judge for each kind of evidence.
#[derive(Debug)]
pub(crate) struct Judges([Judge; EVIDENCE_MAX]);

impl Judges {
    /// Judges who know that a page which is away has to be fetched, and nothing else: a hit is said until faults are
    /// seen.
    pub(crate) fn new() -> Self {
        let mut judges = [Judge { faults: Share::MAX / 2, says: Prediction::Hit }; EVIDENCE_MAX];
        for surprising in [0, KINDS] {
            judges[usize::from(surprising + LOCAL)].faults = 0;
            judges[usize::from(surprising + COMING)].faults = 0;
            judges[usize::from(surprising + FAR)] = Judge { faults: Share::MAX, says: Prediction::Fault };
        }
        Self(judges)
    }

    pub(crate) fn predict(&self, evidence: Evidence) -> Prediction {
        self.0[usize::from(evidence.0)].says
    }

    pub(crate) fn learn(&mut self, evidence: Evidence, has_faulted: bool) {
        self.0[usize::from(evidence.0)].learn(has_faulted);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn half_octaves_grow_with_age() {
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7, 8].map(half_octave), [0, 0, 2, 3, 4, 4, 5, 5, 6]);
        assert_eq!(half_octave(u32::MAX), AGES - 1);
    }

    #[test]
    fn a_judge_keeps_its_word_until_outcomes_are_clearly_against_it() {
        let mut judge = Judge { faults: Share::MAX / 2, says: Prediction::Hit };
        (0..1000).for_each(|turn| judge.learn(turn % 2 == 0));
        assert_eq!(judge.says, Prediction::Hit, "even outcomes say nothing");
        (0..30).for_each(|_| judge.learn(true));
        assert_eq!(judge.says, Prediction::Fault);
        (0..1000).for_each(|turn| judge.learn(turn % 2 == 0));
        assert_eq!(judge.says, Prediction::Fault, "even outcomes say nothing");
        (0..30).for_each(|_| judge.learn(false));
        assert_eq!(judge.says, Prediction::Hit);
    }

    proptest! {
        #[test]
        fn every_evidence_has_a_judge(age: u32, surprises in 0u8..4, outcomes in prop::collection::vec(any::<bool>(), 0..200)) {
            let mut judges = Judges::new();
            for residence in [Residence::Local, Residence::Coming, Residence::Far, Residence::Unknown] {
                let evidence = Evidence::of(residence, age, surprises);
                prop_assert_eq!(evidence.is_far(), residence == Residence::Far);
                prop_assert!(evidence != Evidence::STRANGER);
                outcomes.iter().for_each(|has_faulted| judges.learn(evidence, *has_faulted));
                // Once all outcomes have been the same for long, the judge says so.
                for always in [true, false] {
                    (0..200).for_each(|_| judges.learn(evidence, always));
                    prop_assert_eq!(judges.predict(evidence) == Prediction::Fault, always);
                }
            }
        }
    }
}
