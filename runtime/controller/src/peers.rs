//! [`Peers`]: how many connections each [`Party`] has, so that a few have not all of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use yonder_board::Share;

use crate::desk::Party;

/// Most connections at a time.
pub(crate) const PEERS_MAX: usize = 4096;
/// One party has half of them at most, and the last quarter is for those with few.
const SHARE: Share = Share { places_max: PEERS_MAX, of_one_max: PEERS_MAX / 2, few_max: 16 };

/// The connections that there are; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    of: HashMap<Party, usize>,
}

/// One connection of a party, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    peers: Peers,
    party: Party,
}

impl Peers {
    /// Counts another connection of a party, or says why there is none.
    pub(crate) fn admit(&self, party: Party) -> Result<Counted, String> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, own) = (counts.all, counts.of.get(&party).copied().unwrap_or(0));
        if !SHARE.admits(all, own) {
            return Err(format!("{party} has {own} of {all} connections already: end some first"));
        }
        counts.all += 1;
        *counts.of.entry(party.clone()).or_default() += 1;
        drop(counts);
        Ok(Counted { peers: self.clone(), party })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.peers.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.all -= 1;
        let own = counts.of.get_mut(&self.party).expect("a connection that was counted is counted");
        *own -= 1;
        if *own == 0 {
            counts.of.remove(&self.party);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Peers {
        pub(crate) fn all(&self) -> usize {
            self.0.lock().unwrap().all
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
        assert!(peers.0.lock().unwrap().of.is_empty() && peers.0.lock().unwrap().all == 0);
    }
}
