//! [`Peers`]: how many connections each [`Party`] has, so that a few have not all of them.

use std::sync::Arc;

use yonder_board::Share;

use crate::desk::Party;
use crate::pool::{Full, Part, Pool};

/// A party has few connections if it has no more, or fewer where there are few places.
const FEW_MAX: usize = 16;
/// Places for one of the few.
const PLACES_PER_FEW: usize = 64;

/// The connections that there are; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Peers(Pool);

/// One connection of a party, until all clones are dropped: those of its reader, and of its writer.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    _place: Arc<Part>,
}

impl Peers {
    /// So many places: one party has half of them at most, and the last quarter is for those with few.
    pub(crate) fn new(peers_max: usize) -> Self {
        let few_max = (peers_max / PLACES_PER_FEW).clamp(1, FEW_MAX);
        Self(Pool::new(Share { places_max: peers_max, of_one_max: peers_max.div_ceil(2), few_max }))
    }

    /// Counts another connection of a party, or says why there is none.
    pub(crate) fn admit(&self, party: Party) -> Result<Counted, String> {
        let mut place = self.0.part_of(party.clone());
        match place.grow_to(1) {
            Ok(()) => Ok(Counted { _place: Arc::new(place) }),
            Err(Full { taken, own }) => {
                Err(format!("{party} has {own} of {taken} connections already: end some first"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PEERS_MAX;

    impl Default for Peers {
        fn default() -> Self {
            Self::new(PEERS_MAX)
        }
    }

    impl Peers {
        pub(crate) fn all(&self) -> usize {
            self.0.taken()
        }
    }

    fn named(name: &str) -> Party {
        Party::Member(name.to_owned())
    }

    /// Two who act together once had all connections, and none else could renew a lease.
    #[test]
    fn a_few_leave_places_for_others() {
        let peers = Peers::default();
        let mut held: Vec<Counted> = Vec::new();
        for greedy in ["a", "b", "c"] {
            while let Ok(counted) = peers.admit(named(greedy)) {
                held.push(counted);
            }
        }
        let left = PEERS_MAX - held.len();
        assert!(left >= PEERS_MAX / 4 - 16, "{left}");
        let refused = peers.admit(named("a")).unwrap_err();
        assert!(refused.starts_with("a has 2048 of ") && refused.ends_with("already: end some first"), "{refused}");
        let few: Vec<_> = (0..16).map(|_| peers.admit(named("d")).unwrap()).collect();
        peers.admit(named("d")).unwrap_err();
        drop(few);
        drop(held);
        assert_eq!(peers.all(), 0);
    }

    #[test]
    fn one_has_half_of_fewer_places_too() {
        for (peers_max, own_max, few_max) in [(720, 360, 11), (128, 64, 2), (1, 1, 1)] {
            let peers = Peers::new(peers_max);
            let admitted = |name| std::iter::from_fn(|| peers.admit(named(name)).ok()).collect::<Vec<_>>();
            let first = admitted("a");
            assert_eq!(first.len(), own_max);
            let (second, third) = (admitted("b"), admitted("c"));
            assert_eq!(first.len() + second.len(), (peers_max - peers_max / 4).max(own_max));
            assert_eq!(third.len(), few_max.min(peers_max - own_max));
        }
    }
}
