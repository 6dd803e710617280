//! [`Turns`]: what a worker does next, where requests that will fault queue apart from those that will not.
//!
//! The poster (section 4.2) separates the two so that short requests do not wait for long ones, as Persephone does.
//! Hits go first, then requests whose page has come, then those that will fault, but nobody is overtaken without end:
//! who waits is given a turn after a fixed number of others had theirs.

/// Turns of hits before a resumed request has one, while any waits.
pub const RESUMED_OVERTAKEN_MAX: u32 = 8;
/// Turns of all others before a request that will fault has one, while any waits: about 50 us, at 3 us a turn.
pub const FAULTS_OVERTAKEN_MAX: u32 = 16;
const _: () = assert!(RESUMED_OVERTAKEN_MAX > 0 && FAULTS_OVERTAKEN_MAX > RESUMED_OVERTAKEN_MAX);

/// Which requests wait at a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// New requests that will not fault, or of which nothing is known.
    pub hits: bool,
    /// Requests that have faulted and whose page is there.
    pub resumed: bool,
    /// New requests that will fault.
    pub faults: bool,
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// The first of the new requests that will not fault.
    Hit,
    /// The first of those whose page is there.
    Resumed,
    /// The first of the new requests that will fault.
    Fault,
}

/// Gives out turns. Keeps how often those who wait were overtaken.
#[derive(Debug, Default)]
pub struct Turns {
    resumed_overtaken: u32,
    faults_overtaken: u32,
}

impl Turns {
    /// The next turn, or `None` if nobody waits.
    pub fn next(&mut self, waiting: Waiting) -> Option<Turn> {
        let turn = if waiting.faults && self.faults_overtaken >= FAULTS_OVERTAKEN_MAX {
            Turn::Fault
        } else if waiting.resumed && self.resumed_overtaken >= RESUMED_OVERTAKEN_MAX {
            Turn::Resumed
        } else if waiting.hits {
            Turn::Hit
        } else if waiting.resumed {
            Turn::Resumed
        } else if waiting.faults {
            Turn::Fault
        } else {
            return None;
        };
        let overtaken = |waits: bool, own: Turn, before: u32| if waits && turn != own { before + 1 } else { 0 };
        self.resumed_overtaken = overtaken(waiting.resumed, Turn::Resumed, self.resumed_overtaken);
        self.faults_overtaken = overtaken(waiting.faults, Turn::Fault, self.faults_overtaken);
        Some(turn)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: Waiting = Waiting { hits: true, resumed: true, faults: true };

    #[test]
    fn hits_go_first_and_faults_last() {
        let next = |waiting| Turns::default().next(waiting);
        assert_eq!(next(ALL), Some(Turn::Hit));
        assert_eq!(next(Waiting { hits: false, ..ALL }), Some(Turn::Resumed));
        assert_eq!(next(Waiting { hits: false, resumed: false, ..ALL }), Some(Turn::Fault));
        assert_eq!(next(Waiting { hits: false, resumed: false, faults: false }), None);
    }

    #[test]
    fn a_full_server_is_mostly_for_hits() {
        let mut turns = Turns::default();
        let given: Vec<Turn> = (0..170).filter_map(|_| turns.next(ALL)).collect();
        let count = |turn| given.iter().filter(|given| **given == turn).count();
        assert_eq!((count(Turn::Fault), count(Turn::Resumed)), (10, 18));
    }

    proptest! {
        /// Who waits without a break is never overtaken more often than the bound, and a turn goes to somebody who
        /// waits.
        #[test]
        fn nobody_starves(steps in prop::collection::vec((0u8..10, 0u8..10, 0u8..10), 1..500)) {
            let (mut turns, mut resumed, mut faults) = (Turns::default(), 0, 0);
            for (hits, resumes, faulting) in steps {
                let waiting = Waiting { hits: hits > 0, resumed: resumes > 1, faults: faulting > 1 };
                let turn = turns.next(waiting);
                match turn {
                    Some(Turn::Hit) => prop_assert!(waiting.hits),
                    Some(Turn::Resumed) => prop_assert!(waiting.resumed),
                    Some(Turn::Fault) => prop_assert!(waiting.faults),
                    None => prop_assert!(!(waiting.hits || waiting.resumed || waiting.faults)),
                }
                resumed = if waiting.resumed && turn != Some(Turn::Resumed) { resumed + 1 } else { 0 };
                faults = if waiting.faults && turn != Some(Turn::Fault) { faults + 1 } else { 0 };
                // A resumed request may have to let one that will fault go first when its own turn has come.
                prop_assert!(resumed <= RESUMED_OVERTAKEN_MAX + 1, "a resumed request was overtaken {resumed} times");
                prop_assert!(faults <= FAULTS_OVERTAKEN_MAX, "a fault was overtaken {faults} times");
            }
        }
    }
}
