//! Who this client is to a memory node, and whether the node still knows it.
//!
//! [`Identity`] is shared by the control connection and all queue pairs of a fabric. Its epochs rise with every session,
//! so that the node can fence the older session of a queue pair. It remembers the incarnation of the first welcome: a
//! welcome with another one means that the node has lost this client's memory. From then on the fabric is lost for good,
//! because an address of the new incarnation would read as zeros instead of failing.
//!
//! The methods that a queue pair calls while it polls neither lock nor allocate.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rand::TryRngCore;
use rand::rngs::OsRng;
use yonder_wire::{ClientId, Greeting, Incarnation, Welcome};

/// The node has forgotten this client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the node was restarted, or this client was away for too long: its far memory is lost")]
pub(crate) struct Forgotten;

/// One client of one node.
#[derive(Debug)]
pub(crate) struct Identity {
    client: ClientId,
    epochs: AtomicU64,
    incarnation: OnceLock<Incarnation>,
    lost: AtomicBool,
    numbers: Mutex<Numbers>,
}

/// Numbers of queue pairs. 0 is the control connection.
#[derive(Default, Debug)]
struct Numbers {
    highest: u32,
    returned: Vec<u32>,
}

impl Identity {
    /// A new client with a random name.
    pub(crate) fn new() -> std::io::Result<Self> {
        let mut client = ClientId([0; 16]);
        OsRng.try_fill_bytes(&mut client.0).map_err(std::io::Error::other)?;
        Ok(Self {
            client,
            epochs: AtomicU64::new(0),
            incarnation: OnceLock::new(),
            lost: AtomicBool::new(false),
            numbers: Mutex::default(),
        })
    }

    /// What to say when a session for `queue_pair` opens. Newer than every greeting before.
    pub(crate) fn greeting(&self, queue_pair: u32) -> Greeting {
        Greeting { client: self.client, epoch: self.epochs.fetch_add(1, Ordering::Relaxed) + 1, queue_pair }
    }

    /// Checks that the node still is the one that has this client's memory.
    pub(crate) fn accept(&self, welcome: &Welcome) -> Result<(), Forgotten> {
        if *self.incarnation.get_or_init(|| welcome.incarnation) != welcome.incarnation {
            self.lose();
        }
        if self.is_lost() { Err(Forgotten) } else { Ok(()) }
    }

    /// Gives the node up for good.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// Whether the node was given up.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// A number that no living queue pair has.
    pub(crate) fn take_number(&self) -> u32 {
        let mut numbers = self.numbers();
        numbers.returned.pop().unwrap_or_else(|| {
            numbers.highest += 1;
            numbers.highest
        })
    }

    /// Makes the number of a queue pair that is gone available again.
    pub(crate) fn return_number(&self, number: u32) {
        self.numbers().returned.push(number);
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_incarnation_is_a_loss_for_good() {
        let identity = Identity::new().unwrap();
        let welcome = |byte| Welcome { incarnation: Incarnation([byte; 16]), address_space_bytes: 0 };
        assert_eq!((identity.accept(&welcome(1)), identity.accept(&welcome(1))), (Ok(()), Ok(())));
        assert_eq!(identity.accept(&welcome(2)), Err(Forgotten));
        assert_eq!(identity.accept(&welcome(1)), Err(Forgotten), "once lost, always lost");
    }

    #[test]
    fn epochs_rise_and_numbers_are_reused() {
        let identity = Identity::new().unwrap();
        assert!(identity.greeting(1).epoch < identity.greeting(0).epoch);
        let (one, two) = (identity.take_number(), identity.take_number());
        assert!(one != 0 && two != 0 && one != two);
        identity.return_number(one);
        assert_eq!(identity.take_number(), one);
    }
}
